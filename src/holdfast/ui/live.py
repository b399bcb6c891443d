"""What changes, told to any number of streams: the store is watched once for all of them.

One thread waits until something was committed, reads how the runs stand that anybody looks at, and hands what differs
to the streams. A stream keeps for each run only the newest that was not sent yet, so it needs no more memory for a
client that reads slowly: that one misses what lay between, never the last.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection
from typing import NamedTuple

import msgspec
from msgspec import Struct

from holdfast.engine.app import Holdfast
from holdfast.engine.log import WARNING, tell
from holdfast.errors import HoldfastError, RunDamaged, StoreUnusable
from holdfast.kernel.model import RunRecord, Status
from holdfast.ui.api.problems import Refused
from holdfast.ui.shapes import etag_of

PAUSE = 0.25  # seconds between two looks at least
SHARE = 4  # it looks for no more than one part in so many of the time, however many runs are watched
PATIENCE = 0.75  # seconds after which it sees whether it is to stop


class RunMark(Struct, frozen=True, kw_only=True):
    """How a run stands now; ``gone``, if it was deleted."""

    run: str
    uid: str | None = None
    status: Status | None = None
    seq: int = -1
    etag: str | None = None
    gone: bool = False


class StoreMark(Struct, frozen=True):
    """That something changed in the store, whatever it is: ``mark`` counts up while the server runs."""

    mark: int


class Event(NamedTuple):
    """One event of a stream: ``run`` with a `RunMark`, or ``store`` with a `StoreMark`."""

    name: str
    data: str


def mark_of(id: str, record: RunRecord | None) -> RunMark:
    """How a run stands."""
    if record is None:
        return RunMark(run=id, gone=True)
    return RunMark(run=id, uid=record.uid, status=record.status, seq=record.seq, etag=etag_of(record))


class Stream:
    """What one client is told. Used on the event loop only."""

    def __init__(self, live: Live, runs: frozenset[str], store: bool) -> None:
        self.runs = runs
        self.store = store
        self._live = live
        self._pending: dict[str, Event] = {}
        self._news = asyncio.Event()
        self._over = False

    def put(self, topic: str, event: Event) -> None:
        """Leave something to be sent, in place of what was left about the same before."""
        self._pending[topic] = event
        self._news.set()

    def end(self) -> None:
        """Send nothing more."""
        self._over = True
        self._news.set()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.leave(self)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while not self._over:
            await self._news.wait()
            self._news.clear()
            while self._pending:
                yield self._pending.pop(next(iter(self._pending)))


class Live:
    """Watches the store while there are streams."""

    def __init__(self, holdfast: Holdfast, *, streams: int, runs: int) -> None:
        self._hf = holdfast
        self._engine = holdfast.client.engine
        self._most_streams = streams
        self._most_runs = runs
        self._streams: set[Stream] = set()
        self._watched: Counter[str] = Counter()  # runs, and by how many streams
        self._marks: dict[str, RunMark] = {}
        self._mark = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def __len__(self) -> int:
        return len(self._streams)

    def check(self, runs: Collection[str]) -> None:
        """Refuse a stream that would be one too many, or too much for one."""
        if len(self._streams) >= self._most_streams:
            raise Refused(503, "TooManyStreams", f"{len(self._streams)} live streams are open already; try again later")
        if len(runs) > self._most_runs:
            raise Refused(422, "TooManyRuns", f"one stream watches up to {self._most_runs} runs, not {len(runs)}")

    def open(self, runs: Collection[str] = (), *, store: bool = False) -> Stream:
        """A stream about these runs, and about whether anything changed at all: ``with live.open(...) as stream``.

        It begins with how each of the runs stands.
        """
        self.check(runs)
        stream = Stream(self, frozenset(runs), store)
        self._streams.add(stream)
        with self._lock:
            self._watched.update(stream.runs)
            known = [self._marks[id] for id in stream.runs if id in self._marks]
            if self._thread is None and not self._stopped:
                loop = asyncio.get_running_loop()
                self._thread = threading.Thread(target=self._watch, args=(loop,), name="holdfast-live", daemon=True)
                self._thread.start()
        for mark in known:
            stream.put(mark.run, _event("run", mark))
        if store:
            stream.put("", _event("store", StoreMark(self._mark)))
        self._engine.bell.ring()  # so that the others are looked at now
        return stream

    def leave(self, stream: Stream) -> None:
        """A stream has ended."""
        if stream not in self._streams:
            return
        self._streams.discard(stream)
        with self._lock:
            self._watched.subtract(stream.runs)
            for id in stream.runs:
                if self._watched[id] <= 0:
                    del self._watched[id]
                    self._marks.pop(id, None)

    def stop(self) -> None:
        """End all streams, and watch no longer. On the loop; `join` waits for the thread, elsewhere."""
        self._stopped = True
        for stream in list(self._streams):
            stream.end()
        self._engine.bell.ring()

    def join(self) -> None:
        """Wait until the thread that watches has ended."""
        if self._thread is not None:
            self._thread.join(2 * PATIENCE)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """The thread: look, hand over, wait for something to happen."""
        seen = -1
        while not self._stopped:
            began = time.monotonic()
            try:
                heard = self._engine.bell.heard()
                changed, seen = heard[0] != seen, heard[0]
                marks = self._look()
                if not self._hand_over(loop, lambda marks=marks, changed=changed: self._spread(marks, changed)):  # type: ignore[misc]
                    return
                time.sleep(max(PAUSE, (time.monotonic() - began) * (SHARE - 1)))
                while not self._stopped and not self._has_news(heard):
                    self._engine.bell.listen(heard, PATIENCE)
            except StoreUnusable:
                return
            except HoldfastError as error:  # whatever it is, the next look may succeed
                tell(WARNING, "ui.delayed", "what changed could not be read, will try again: {error}", error=str(error))
                time.sleep(PATIENCE)

    def _has_news(self, heard: tuple[int, int]) -> bool:
        return self._engine.bell.heard() != heard

    def _hand_over(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> bool:
        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed, so nobody is there to be told
            return False
        return True

    def _look(self) -> list[RunMark]:
        """What differs from the last look, of the runs that are watched."""
        with self._lock:
            watched = list(self._watched)
        found: list[RunMark] = []
        for id in watched:
            try:
                mark = mark_of(id, self._engine.store.get(id))
            except RunDamaged:  # that it stands still is all that can be told of it
                mark = RunMark(run=id, status=Status.BLOCKED)
            if self._marks.get(id) != mark:
                found.append(mark)
        return found

    def _spread(self, marks: list[RunMark], changed: bool) -> None:
        """On the loop: leave what is new with the streams that want it."""
        events: dict[str, Event] = {}
        with self._lock:
            for mark in marks:
                if mark.run in self._watched:
                    self._marks[mark.run] = mark
                    events[mark.run] = _event("run", mark)
        self._mark += changed
        store = _event("store", StoreMark(self._mark))
        for stream in self._streams:
            for id in events.keys() & stream.runs:
                stream.put(id, events[id])
            if changed and stream.store:
                stream.put("", store)


def _event(name: str, data: Struct) -> Event:
    return Event(name, msgspec.json.encode(data).decode())
