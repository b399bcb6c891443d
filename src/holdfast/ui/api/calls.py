"""One call of an operation, whoever makes it: the API for another program, or a page for a person."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from msgspec import Struct

from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import NoCheckpoint, RunNotFound
from holdfast.kernel.model import RunRecord
from holdfast.kernel.rules import check_id
from holdfast.present.status import living
from holdfast.ui.api.problems import Refused
from holdfast.ui.security import Person
from holdfast.ui.shapes import RunView, etag_of, run_view

Q = TypeVar("Q")
B = TypeVar("B")


class Call(Struct, Generic[Q, B], frozen=True):
    """What is called for: by whom, about what, with what.

    ``params`` are the parts of the path. ``key`` is the same for each repetition of one request: what an operation
    makes gets a name from it, so that it is made once. ``seen`` is how the run must still be when it is claimed.
    """

    hf: Holdfast
    person: Person
    params: Mapping[str, str]
    query: Q
    body: B
    key: str | None = None
    seen: RunRecord | None = None

    @property
    def run(self) -> Run:
        """The run that the path names; raises `RunNotFound`."""
        run = self.hf.get(self.params["run"])
        run.held.expected = self.seen
        return run

    @property
    def seq(self) -> int:
        """The number of the entry that the path names."""
        text = self.params["seq"]
        if not text.isascii() or not text.isdecimal() or len(text) > 15:
            raise NoCheckpoint(self.params["run"], f"{text!r} is not the number of an entry")
        return int(text)

    def record(self, id: str | None = None) -> RunRecord:
        """What the store knows of the run that the path names, or of another one."""
        id = self.params["run"] if id is None else id
        record = self.hf.client.store.get(check_id(id))
        if record is None:
            raise RunNotFound(id)
        return record

    def view(self, run: Run | None = None) -> RunView:
        """How the run stands now that the path names, or another one."""
        return self.views([self.record(run.id if run is not None else None)])[0]

    def views(self, records: Sequence[RunRecord]) -> list[RunView]:
        """Runs as the API shows them."""
        alive = living(self.hf.client.store, {record.status for record in records})
        return [run_view(record, alive) for record in records]


def check_match(record: RunRecord, if_match: str | None) -> RunRecord | None:
    """Refuse what is done to a run that is no longer as it was seen; how it must stay. ``*`` is any that is there."""
    if if_match is None:
        detail = "this changes a run: say by If-Match which state of it you saw (its ETag), or * for any"
        raise Refused(428, "MatchRequired", detail)
    tags = [tag.strip().removeprefix("W/") for tag in if_match.split(",")]
    if etag_of(record) not in tags and "*" not in tags:
        detail = "the run has changed since you saw it; look at it again, and repeat this if it is still wanted"
        raise Refused(412, "Changed", detail, {"ETag": etag_of(record)})
    return None if "*" in tags else record


class Turns:
    """Lets those who act on the same run act one after the other, so that what they checked still holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[threading.Lock, int]] = {}  # by id, and how many hold or want it

    @contextmanager
    def turn(self, id: str) -> Iterator[None]:
        """Wait until nobody else of this server acts on the run."""
        with self._lock:
            own, wanted = self._held.get(id, (threading.Lock(), 0))
            self._held[id] = own, wanted + 1
        try:
            with own:
                yield
        finally:
            with self._lock:
                own, wanted = self._held[id]
                if wanted == 1:
                    del self._held[id]
                else:
                    self._held[id] = own, wanted - 1


TURNS = Turns()
Plain = Call[None, None]
AnyCall = Call[Any, Any]
