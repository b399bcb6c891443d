"""Working: claim what is due and drive it, as long as one likes.

One loop serves any number of runs. It looks for work when it is told that there is some (a commit, by anybody on this
machine), when the next timer is due, and now and then for runs whose holder died without a sound. Async workflows are
driven on the loop, sync ones in threads. A worker that is told to stop claims nothing new; the runs it drives are
released at their next durable call, and their steps get some time to end.

What goes wrong with one run is no concern of the others. A run that cannot go on in this process (a version of its
workflow or a key that is not here) is left to others; one that met a passing error of the store is tried again later.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from holdfast.clock import SystemClock
from holdfast.engine.bell import Heard
from holdfast.engine.checks import check_options
from holdfast.engine.define import registered_names
from holdfast.engine.drive import drive_async
from holdfast.engine.driving import drive_on
from holdfast.engine.events import INFO, WARNING, tell
from holdfast.engine.failures import one_line
from holdfast.engine.inputs import QUEUE
from holdfast.errors import HoldfastError, RunDamaged, RunNotFound, StoreError, StoreUnusable, UsageError
from holdfast.model import RunRecord
from holdfast.stores.base import LIVE

if TYPE_CHECKING:
    from holdfast.engine import Engine
    from holdfast.engine.execution import Execution

LISTEN = 1.0  # seconds; after that it looks for the dead
LOOK_ANYWAY = 10.0  # seconds; after that it looks for what is due although nobody said that there is something
GRACE = 30.0
LAST_GRACE = 5.0  # seconds for tasks that were cancelled
REST = 1.0, 60.0  # seconds that a run is left alone after an error: at first, and at most
SUSPECT = 2  # deaths of its holder at the same place, after which a run is not driven beside others of that kind


class Crew:
    """The runs that one call of ``work`` drives."""

    def __init__(self, engine: Engine, concurrency: int, queues: Collection[str], until_idle: bool) -> None:
        self._engine = engine
        self._concurrency = concurrency
        self._queues = tuple(dict.fromkeys(queues))
        self._until_idle = until_idle
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._strange: set[str] = set()  # runs that cannot go on in this process
        self._rests: dict[str, tuple[float, float]] = {}  # runs to be tried again: when, and how long that was
        self._looked: tuple[Heard, float] | None = None  # what was heard before the last look, and when that was
        self._wake: int | None = None  # the next timer, as of then
        self._suspect = ""  # the run that may be about to kill this process
        self._stopping = False
        self._hurried = False
        self._broken: StoreUnusable | None = None

    def stop(self) -> None:
        """Claim nothing new, and release what is driven. Told twice, wait for no step any longer."""
        if self._stopping:
            self._hurried = True
            tell(WARNING, "worker.hurried", "the worker is told to stop once more: steps that still run are broken off")
        else:
            self._stopping = True
            tell(INFO, "worker.stopping", "the worker stops: what it drives is released")
            for uid in list(self._tasks):
                execution = self._engine.executions.get(uid)
                if execution is not None:
                    execution.release()
        self._engine.bell.ring()

    def joined(self, execution: Execution) -> None:
        """A run begins to be driven: if the worker is stopping, it was claimed just before."""
        if self._stopping and execution.run.uid in self._tasks:
            execution.release()

    async def work(self, grace: float) -> None:
        """Work until told to stop."""
        try:
            while not self._stopping and not await self._turn():
                pass
        finally:
            if not self._stopping:
                self.stop()
            await self._end(grace)
        if self._broken is not None:
            raise self._broken

    async def _turn(self) -> bool:
        """Begin to drive what is due, and wait until there may be more; whether all is done."""
        engine = self._engine
        free = self._concurrency - len(self._tasks)
        try:
            heard = engine.bell.heard()
            if free <= 0:
                await engine.bell.listen_async(heard, None, here=True)  # until one of them is done
                return False
            self._begin(heard, free)
            wake, rest = self._until_wake(), self._until_rested()
            if self._until_idle and not self._tasks and rest is None:
                if wake is None:
                    return True
                if not isinstance(engine.store.clock, SystemClock):  # of a test's own: it is moved there
                    engine.store.clock.sleep(max(wake, 0))
                    return False
            soonest = min(moment for moment in (wake, rest, LISTEN) if moment is not None)
            await engine.bell.listen_async(heard, max(soonest, 0))
        except StoreUnusable:
            raise
        except StoreError as error:
            text = "the worker cannot look for work, will try again: {error}"
            tell(WARNING, "worker.failed", text, error=str(error))
            await asyncio.sleep(LISTEN)
        return False

    def _begin(self, heard: Heard, free: int) -> None:
        """Begin to drive what is due, and what somebody left."""
        limit = free + len(self._tasks) + len(self._strange) + len(self._rests)
        for record in (*self._due(heard, limit), *self._orphans(limit), *self._stuck()):
            uid = record.uid
            if free <= 0:
                return
            if uid in self._tasks or uid in self._strange or self._rests.get(uid, (0.0,))[0] > time.monotonic():
                continue
            if record.crashes >= SUSPECT and record.crashed_at == record.seq:
                # One of those that were driven together killed their process; one at a time, it is found out which.
                if self._suspect in self._tasks:
                    continue
                self._suspect = uid
            self._tasks[uid] = asyncio.create_task(self._drive(record))
            free -= 1

    def _due(self, heard: Heard, limit: int) -> list[RunRecord]:
        """Runs of ours that can go on; looked for only if that may have changed since the last time."""
        store, now, at = self._engine.store, self._engine.store.clock.now(), time.monotonic()
        known = self._looked is not None and self._looked[0] == heard and at < self._looked[1] + LOOK_ANYWAY
        if known and not self._rests and (self._wake is None or self._wake > now):
            return []
        found = store.due(self._queues, registered_names(), limit=limit)
        self._wake = store.next_wake(self._queues, registered_names(), after=now)
        self._looked = heard, at
        return found

    def _orphans(self, limit: int) -> list[RunRecord]:
        """Runs of ours whose holder died, however many others lie before them."""
        while True:
            found = self._engine.store.orphans(limit=limit)
            ours = [one for one in found if self._is_ours(one) and one.status in LIVE]
            if len(found) < limit or len(ours) == len(found):
                return ours
            limit *= 4

    def _stuck(self) -> list[RunRecord]:
        """Runs that this process itself could not let go of, since the store could not be written."""
        found = [self._engine.store.journal(uid) for uid in list(self._engine.stuck)]
        return [one for one in found if one is not None and self._is_ours(one)]

    def _is_ours(self, record: RunRecord) -> bool:
        return record.queue in self._queues and record.workflow in registered_names()

    async def _drive(self, record: RunRecord) -> None:
        from holdfast.engine.run import AsyncRun

        uid = record.uid
        try:
            if not self._stopping:
                run = AsyncRun(self._engine, record.id, uid)
                await drive_async(drive_on(run), self._engine.committer)
            self._rests.pop(uid, None)
        except RunNotFound:
            pass  # it was deleted just now
        except StoreUnusable as error:  # and so it is for everybody
            self._broken = error
            self._stopping = True
        except StoreError as error:
            seconds = min(self._rests[uid][1] * 2, REST[1]) if uid in self._rests else REST[0]
            self._rests[uid] = time.monotonic() + seconds, seconds
            text = "run {run}: cannot go on, will try again in {seconds:g} s: {error}"
            tell(WARNING, "run.delayed", text, run=record.id, seconds=seconds, error=str(error))
        except Exception as error:  # whatever it is, it is of this run alone
            if not isinstance(error, RunDamaged) or error.run != record.id:  # which is parked, until a person acts
                self._strange.add(uid)
            told = str(error) if isinstance(error, HoldfastError) else one_line(error, self._engine.codec)
            tell(WARNING, "run.left", "run {run}: cannot go on here: {error}", run=record.id, error=told)
        finally:
            del self._tasks[uid]
            self._engine.bell.ring()

    def _until_wake(self) -> float | None:
        """Seconds until the next timer of ours that was not due yet."""
        return None if self._wake is None else (self._wake - self._engine.store.clock.now()) / 1_000_000

    def _until_rested(self) -> float | None:
        """Seconds until a run is to be tried again."""
        now = time.monotonic()
        self._rests = {uid: rest for uid, rest in self._rests.items() if rest[0] > now - REST[1]}
        return min((until - now for until, _ in self._rests.values() if until > now), default=None)

    async def _end(self, grace: float) -> None:
        """Wait until everything that is driven was released; what takes too long is broken off."""
        until = time.monotonic() + grace
        while self._tasks and not self._hurried and (left := until - time.monotonic()) > 0:
            await asyncio.wait(set(self._tasks.values()), timeout=min(left, 0.1))
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=LAST_GRACE)


async def work(
    engine: Engine,
    *,
    concurrency: int = 10,
    queues: Collection[str] = (QUEUE,),
    until_idle: bool = False,
    grace: float = GRACE,
) -> None:
    """Claim what is due and drive it, until SIGTERM or SIGINT (or, with ``until_idle``, until nothing is due)."""
    check_options(concurrency=concurrency, grace=grace)
    if isinstance(queues, str) or not queues or not all(isinstance(name, str) for name in queues):
        raise UsageError(f"queues={queues!r}: takes a list of names")
    crew = Crew(engine, concurrency, queues, until_idle)
    engine.crews.add(crew)
    try:
        with _signals(crew):
            told = ", ".join(queues)
            tell(INFO, "worker.working", "the worker is at work for the queues: {queues}", queues=told)
            await crew.work(grace)
    except StoreUnusable:
        if not engine.closed:  # else somebody closed the store under it, which is a way to end it too
            raise
    finally:
        engine.crews.discard(crew)


@contextmanager
def _signals(crew: Crew) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop the crew, where signals can be handled; afterwards they do what they did before."""
    loop, before = asyncio.get_running_loop(), dict[signal.Signals, Any]()
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError):  # where the loop cannot
                handler = signal.getsignal(number)
                loop.add_signal_handler(number, crew.stop)
                before[number] = handler
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            if handler is not None:  # one that was not set from Python
                signal.signal(number, handler)
