"""Working: take what is due and drive it, as long as one likes.

One loop serves any number of runs. It looks for work when it is told that there is some (a commit, by anybody on this
machine), when the next timer or schedule is due, and now and then for runs whose holder died without a sound. What it
takes, and within which limits, is the business of `holdfast.engine.worker.intake`. Async workflows are driven on the
loop, sync ones in threads. A worker that is told to stop claims nothing new; the runs it drives are released at their
next durable call, and their steps get some time to end.

What goes wrong with one run is no concern of the others. A run that cannot go on in this process (a version of its
workflow or a key that is not here) is left to others; one that met a passing error of the store is tried again later.
"""

from __future__ import annotations

import asyncio
import random
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from holdfast.engine.access.engine import Engine
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.offload import aside
from holdfast.engine.access.operations import Op, drive, drive_async
from holdfast.engine.access.wakeups import Heard
from holdfast.engine.argument_checks import check_options
from holdfast.engine.execute.execute import drive_taken, give_back, unstick
from holdfast.engine.log import INFO, WARNING, tell
from holdfast.engine.worker.intake import Intake
from holdfast.engine.worker.schedules import fire
from holdfast.engine.workflow.declare import registered_names
from holdfast.engine.workflow.failures import one_line
from holdfast.engine.workflow.inputs import QUEUE
from holdfast.errors import HoldfastError, RunDamaged, RunNotFound, StoreError, StoreUnusable, UsageError
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.model import Filter, RunRecord
from holdfast.kernel.rules import LIVE, SUSPECT, tries_alone
from holdfast.stores.protocol import Telling

if TYPE_CHECKING:
    from holdfast.engine.workflow.execution import Execution

LISTEN = 1.0  # seconds; after that it looks for the dead, where nobody knows when a lease ends
# Where that is known, and one is told what happens: parts of the lease. A claim is seen before it can have lapsed.
SELDOM = 0.6, 0.9
LATE = 0.5  # seconds after the end of a lease within which those who wait for it look, not all at once
LOOK_ANYWAY = 600.0  # seconds; after that it looks for what is due although nobody said that there is something
GRACE = 30.0
# Seconds after which a worker that is never idle takes a run, too, that should be executed alone. Then its death does
# not count.
BESIDE_AFTER = 60.0
LAST_GRACE = 5.0  # seconds for tasks that were cancelled
_NEVER = 1 << 62
REST = 1.0, 60.0  # seconds that a run is left alone after an error: at first, and at most


class Crew:
    """The runs that one call of ``work`` drives."""

    def __init__(self, engine: Engine, concurrency: int, queues: Collection[str], until_idle: bool) -> None:
        self._engine = engine
        self._concurrency = concurrency
        self._queues = tuple(dict.fromkeys(queues))
        self._intake = Intake(engine, self._queues)
        self._until_idle = until_idle
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._strange: set[str] = set()  # runs that cannot go on in this process
        self._rests: dict[str, tuple[float, float]] = {}  # runs to be tried again: when, and how long that was
        self._looked: tuple[Heard, float] | None = None  # what was heard before the last look, and when that was
        self._knows: frozenset[str] = frozenset()  # the workflows that could be driven then
        self._wake: int | None = None  # the next timer, as of then
        self._tick: int | None = None  # the next schedule, as of then
        self._lapse: int | None = None  # when the next lease ends, as of then, if the store can tell
        self._held_back = False  # whether a limit kept something from being taken then
        self._suspect = ""  # the run that may be about to kill this process
        self._idle_at = time.monotonic()  # when it executed nothing
        self._told: set[str] = set()  # schedules that cannot be seen to here
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
        try:
            heard = await aside(engine.store, engine.bell.heard)
            # From here on, what is done rings the bell once more than was heard.
            free = self._concurrency - len(self._tasks)
            idle = not self._tasks and not self._has_rested()  # before one looks, and after
            if free <= 0:
                await engine.bell.listen_async(heard, None, here=True)  # until one of them is done
                return False
            if self._isolates():
                await engine.bell.listen_async(heard, LISTEN, here=True)
                return False
            self._begin(await aside(engine.store, lambda: self._look(heard, free)))
            wake, rest = self._until(self._wake), self._until_rested()
            idle = idle and not self._tasks
            if self._until_idle and idle and rest is None and not (self._held_back and wake is None):
                if wake is None:
                    return True
                if not isinstance(engine.store.clock, SystemClock):  # of a test's own: it is moved there
                    engine.store.clock.sleep(max(wake, 0))
                    return False
            told = isinstance(engine.store, Telling) and engine.store.hears
            longest = random.uniform(*SELDOM) * engine.worker.lease if told else max(LISTEN, engine.store.look_every)
            lapse = self._until(self._lapse)
            late = None if lapse is None else lapse + random.uniform(0, LATE)
            soonest = min(one for one in (wake, self._until(self._tick), late, rest, longest) if one is not None)
            await engine.bell.listen_async(heard, max(soonest, 0), here=told)
        except StoreUnusable:
            raise
        except StoreError as error:
            text = "the worker cannot look for work, will try again: {error}"
            tell(WARNING, "worker.failed", text, error=str(error))
            await asyncio.sleep(LISTEN)
        return False

    def _look(self, heard: Heard, free: int) -> list[RunRecord]:
        """Take what is due, and what the dead left; looked for only if that may have changed since the last time."""
        engine, at, names = self._engine, time.monotonic(), frozenset(registered_names())
        known = self._looked is not None and self._looked[0] == heard and at < self._looked[1] + LOOK_ANYWAY
        moments = [one for one in (self._wake, self._tick) if one is not None]
        quiet = known and not self._rests and min(moments, default=_NEVER) > engine.store.clock.now()
        if quiet and names == self._knows and not self._is_left(free):
            return []
        self._tick = drive(fire(engine, self._told), engine.committer)
        leave = self._leave()
        # One of those that were executed together may have killed their process. Alone, it is found out which.
        alone = not self._tasks
        self._idle_at = at if alone else self._idle_at
        may_suspect = alone or (at > self._idle_at + BESIDE_AFTER and self._suspect not in self._tasks)
        taken = self._intake.take(free, leave, suspects=int(may_suspect), alone=alone)
        self._lapse, wakes = self._intake.outlook.lapse, (self._intake.outlook.wake, self._intake.wake)
        self._wake = min((one for one in wakes if one is not None), default=None)
        self._held_back = self._until_idle and not taken and self._intake.is_held_back(leave)
        self._looked, self._knows = (heard, at), names
        return taken

    def _isolates(self) -> bool:
        """Whether a run is executed alone, since it may be what killed its process; until it gets further than then."""
        if self._suspect not in self._tasks or len(self._tasks) > 1:
            return False
        execution = self._engine.executions.get(self._suspect)
        record = execution.lease.record if execution is not None else None
        return record is None or (tries_alone(record) > 0 and record.crashed_at == record.seq)

    def _leave(self) -> set[str]:
        """Runs that are not to be taken now."""
        now = time.monotonic()
        resting = (uid for uid, (until, _) in self._rests.items() if until > now)
        return {*self._tasks, *self._strange, *resting}

    def _begin(self, taken: Collection[RunRecord]) -> None:
        """Begin to drive what was taken, and let go of what could not be let go of before."""
        for record in taken:
            if record.crashes >= SUSPECT:
                self._suspect = record.uid
            self._tasks[record.uid] = asyncio.create_task(self._drive(record, drive_taken))
        for uid in list(self._engine.stuck):
            if uid not in self._leave():
                self._tasks[uid] = asyncio.create_task(self._drive(self._engine.stuck[uid][0].record, unstick))

    def _is_left(self, limit: int) -> bool:
        """Whether there is a run of ours whose holder died, however many others lie before it."""
        store = self._engine.store
        if isinstance(store, Telling):
            if self._lapse is None or self._lapse > store.clock.now():
                return False  # nobody can have died since the last look
            self._lapse = store.look((), (), limit=0).lapse
        leave = self._leave()
        while True:
            found = self._engine.store.find(Filter(orphaned=True), limit=limit)
            if any(self._is_ours(one) and one.status in LIVE and one.uid not in leave for one in found):
                return True
            if len(found) < limit:
                return False
            limit *= 4

    def _is_ours(self, record: RunRecord) -> bool:
        return record.queue in self._queues and record.workflow in registered_names()

    async def _drive(self, record: RunRecord, how: Callable[[HeldRun, RunRecord], Op[None]]) -> None:
        uid = record.uid
        try:
            run = HeldRun(self._engine, record.id, uid, is_async=True)
            await drive_async((give_back if self._stopping else how)(run, record), self._engine.committer)
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

    def _until(self, moment: int | None) -> float | None:
        """Seconds until a time."""
        return None if moment is None else (moment - self._engine.store.clock.now()) / 1_000_000

    def _has_rested(self) -> bool:
        """Whether a run rests, or has done so since the last look, and so was not tried again yet."""
        looked = self._looked[1] if self._looked is not None else 0.0
        return any(until > looked for until, _ in self._rests.values())

    def _until_rested(self) -> float | None:
        """Seconds until a run is to be tried again; below 0, if its time came after the last look had begun."""
        now = time.monotonic()
        looked = self._looked[1] if self._looked is not None else 0.0
        self._rests = {uid: rest for uid, rest in self._rests.items() if rest[0] > min(now - REST[1], looked)}
        return min((until - now for until, _ in self._rests.values() if until > looked), default=None)

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
