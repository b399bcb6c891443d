"""Working: claim what is due and drive it, as long as one likes.

One loop serves any number of runs. It looks for work when it is told that there is some (a commit, by anybody on this
machine), when the next timer is due, and now and then for runs whose holder died without a sound. Async workflows are
driven on the loop, sync ones in threads. A worker that is told to stop claims nothing new; the runs it drives are
released at their next durable call, and their steps get some time to end.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.clock import SystemClock
from holdfast.engine.checks import check_options
from holdfast.engine.define import registered_names
from holdfast.engine.drive import drive_async
from holdfast.engine.workflows import QUEUE, drive_on
from holdfast.errors import HoldfastError, StoreUnusable, UsageError
from holdfast.model import RunRecord

if TYPE_CHECKING:
    from holdfast.engine import Engine

log = logging.getLogger("holdfast")

LISTEN = 1.0  # seconds; after that it looks for the dead
GRACE = 30.0


class Crew:
    """The runs that one call of ``work`` drives."""

    def __init__(self, engine: Engine, concurrency: int, queues: Collection[str], until_idle: bool) -> None:
        self._engine = engine
        self._concurrency = concurrency
        self._queues = tuple(queues)
        self._until_idle = until_idle
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._strange: set[str] = set()  # runs that cannot go on in this process
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Claim nothing new, and release what is driven."""
        if not self._stopping.is_set():
            log.info("the worker stops: what it drives is released")
        self._stopping.set()
        self._engine.bell.ring()

    async def work(self, grace: float) -> None:
        """Work until told to stop."""
        bell = self._engine.bell
        while not self._stopping.is_set():
            heard = bell.heard()
            free = self._concurrency - len(self._tasks)
            began = self._begin(free) if free > 0 else 0
            if began and free > began:
                continue
            pause = self._pause()
            if self._until_idle and not self._tasks and (pause is None or not self._skip(pause)):
                return
            await self._listen(heard, pause)
        await self._end(grace)

    def _begin(self, free: int) -> int:
        """Begin to drive what is due; how many."""
        store = self._engine.store
        found = store.due(self._queues, registered_names(), limit=free + len(self._strange))
        found += [record for record in store.orphans(limit=free) if record.queue in self._queues]
        new = [one for one in found if one.uid not in self._tasks and one.uid not in self._strange]
        mine = [one for one in new if one.workflow in registered_names()][:free]
        for record in mine:
            self._tasks[record.uid] = asyncio.create_task(self._drive(record))
        return len(mine)

    async def _drive(self, record: RunRecord) -> None:
        from holdfast.engine.run import AsyncRun

        run = AsyncRun(self._engine, record.id, record.uid)
        try:
            await drive_async(drive_on(run), self._engine.committer)
        except StoreUnusable:
            raise
        except HoldfastError as error:  # of this run alone: the others go on
            self._strange.add(record.uid)
            log.warning("run %s cannot go on here: %s", record.id, error)
        finally:
            del self._tasks[record.uid]
            self._engine.bell.ring()

    def _pause(self) -> float | None:
        """Seconds until the next timer; None if there is none."""
        wake = self._engine.store.next_wake()
        return None if wake is None else (wake - self._engine.store.clock.now()) / 1_000_000

    def _skip(self, pause: float) -> bool:
        """Whether there is a moment to wait for. A clock of a test's own is moved there."""
        if not isinstance(self._engine.store.clock, SystemClock):
            self._engine.store.clock.sleep(max(pause, 0))
        return True

    async def _listen(self, heard: int, pause: float | None) -> None:
        seconds = LISTEN if pause is None else min(max(pause, 0), LISTEN)
        failed = [task for task in self._tasks.values() if task.done()]
        for task in failed:
            task.result()
        await self._engine.bell.listen_async(heard, seconds)

    async def _end(self, grace: float) -> None:
        for uid in list(self._tasks):
            execution = self._engine.executions.get(uid)
            if execution is not None:
                execution.release()
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=grace)
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=5)


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
    if isinstance(queues, str) or not all(isinstance(name, str) for name in queues):
        raise UsageError(f"queues={queues!r}: takes a list of names")
    crew = Crew(engine, concurrency, queues, until_idle)
    loop = asyncio.get_running_loop()
    handled: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError, RuntimeError):  # where the loop cannot
                loop.add_signal_handler(number, crew.stop)
                handled.append(number)
    engine.crews.add(crew)
    try:
        await crew.work(grace)
    except asyncio.CancelledError:
        crew.stop()
        await crew._end(grace)
        raise
    finally:
        engine.crews.discard(crew)
        for number in handled:
            loop.remove_signal_handler(number)
