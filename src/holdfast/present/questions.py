"""Questions that are open, of a run and of its children, and answers that nobody has taken in yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from holdfast.engine.access.operations import drive
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.engine.run.reading import run_info
from holdfast.errors import HoldfastError
from holdfast.kernel.model import ENDED, Filter, Kind, Status
from holdfast.present.words import short
from holdfast.views import Question, RunInfo

_OPEN = tuple(frozenset(Status) - ENDED - {Status.AWAY})
_MOST_CHILDREN = 1_000
_REMEMBERED = 2_000  # runs


class Asked:
    """The open questions of runs, by the entry at which they are: without a new entry no question is asked."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[Question, ...]] = {}
        self._lock = threading.Lock()

    def by(self, hf: Holdfast, info: RunInfo) -> tuple[Question, ...] | None:
        """The open questions of a run; None, if it cannot be read."""
        key = (info.uid, info.seq)
        with self._lock:
            known = self._known.get(key)
        if known is not None and (not known or info.status is Status.WAITING):
            return known  # a run that is held may have an answer that was not taken in yet
        try:
            found = tuple(hf.get(info.id).questions())
        except HoldfastError:  # encrypted, damaged, deleted: its own page says it
            return None
        with self._lock:
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found


asked = Asked()


def open_runs(hf: Holdfast, run: Run) -> Iterator[Run]:
    """The run and its children, at any depth, that have not ended."""
    if run.status in ENDED:
        return
    yield run
    for record in hf.client.store.find(Filter(parent=run.uid, statuses=_OPEN), limit=_MOST_CHILDREN)[::-1]:
        yield from open_runs(hf, Run(hf.client.run(record.id, record.uid)))


def open_questions(hf: Holdfast, run: Run) -> list[Question]:
    """The open questions of a run and of its children."""
    return [question for one in open_runs(hf, run) for question in one.questions()]


def awaited(hf: Holdfast, info: RunInfo) -> Literal["answer", "child", "message", ""]:
    """What a waiting run waits for: an answer, to itself or to a child, a child, a message; "" if nobody can tell."""
    own = asked.by(hf, info) if info.seq > 0 else ()
    if own:
        return "answer"
    children = hf.client.store.find(Filter(parent=info.uid, statuses=_OPEN), limit=_MOST_CHILDREN)
    waiting = [run_info(record) for record in children if record.status is Status.WAITING]
    if any(awaited(hf, child) == "answer" for child in waiting):
        return "answer"
    return "child" if children else "message" if own is not None else ""


# What others than the holder leave.
_LEFT = frozenset({Kind.ANSWERED, Kind.DECLINED, Kind.LATE, Kind.MARKED, Kind.RECEIVED})


class Untaken(Struct, frozen=True):
    """An answer that was given, and with which nobody has resumed the run yet."""

    run: str
    prompt: str
    value: Any
    by: str | None

    @property
    def told(self) -> str:
        """The answer for people."""
        return f"answered: {short(self.value)}{f' by {self.by}' if self.by else ''} (not taken yet)"


def untaken_answers(hf: Holdfast, run: Run) -> list[Untaken]:
    """The answers to a run and to its children that nobody has resumed them with yet."""
    return [answer for one in open_runs(hf, run) for answer in _untaken(one)]


def _untaken(run: Run) -> list[Untaken]:
    """The answers that were given since somebody last executed the run, or that its holder has not taken in yet."""
    record, pending = drive(run.held.pending(), run.held.committer)
    fold = run.held.refold(record)
    lines = list(pending)
    if record.worker is None:
        for seq, kind, at, data in reversed(fold.log.copy()):
            if seq != (lines[0][0] if lines else record.seq + 1) - 1 or kind not in _LEFT:
                break
            lines.insert(0, (seq, kind, at, data))
    prompts = {seq: data.get("prompt", "(erased)") for seq, kind, _, data in fold.log.copy() if kind == Kind.ASKED}
    return [
        Untaken(run.id, prompts[data["question"]], run.held.codec.raw(data["value"]), data.get("by"))
        for _, kind, _, data in lines
        if kind == Kind.ANSWERED and "value" in data
    ]
