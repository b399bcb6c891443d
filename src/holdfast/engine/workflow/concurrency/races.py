"""Races between the branches of a run: `first` and `timeout`, which journal how they ended.

How branches wait, fail and are stopped is told in `holdfast.engine.workflow.concurrency.branches`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, cast, overload

from holdfast.engine.access.operations import Op, drive, drive_async
from holdfast.engine.argument_checks import seconds_of
from holdfast.engine.workflow.concurrency.async_execution import AsyncExecution
from holdfast.engine.workflow.concurrency.branches import (
    A,
    B,
    Branch,
    Race,
    T,
    Threads,
    awaited,
    cancel_all,
    close_unbegun,
    fan,
    start,
    start_in,
)
from holdfast.engine.workflow.execution import Execution
from holdfast.engine.workflow.failures import describe
from holdfast.engine.workflow.replay import DIFFERS, UNCHANGED
from holdfast.engine.workflow.scope import Scope, current_scope
from holdfast.engine.workflow.waiting import timer
from holdfast.errors import TimedOut, UsageError
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Kind


def forget(execution: Execution, losers: list[Scope], ended: tuple[str, Data]) -> list[tuple[str, Data]]:
    """Stop branches that lost; the entries that say how the race ended, and close their questions."""
    keys: set[str] = set()
    for scope in losers:
        scope.stopped = True
        execution.lost.append(scope.path)
        for key in execution.waits_of(scope):
            keys.add(key)
            execution.waits.pop(key, None)
    kind, data = ended
    if lost := execution.lost_with(losers):
        data = {**data, "lost": lost}
        keys.update(lost)
    closing = [
        (str(Kind.CLOSED), {"question": seq})
        for seq, asked in execution.lease.fold.questions.copy().items()
        if asked.key in keys
    ]
    return [(kind, data), *closing]


def drop_children(execution: Execution) -> Op[None]:
    """Cancel the children of branches that lost."""
    cancelling = execution.engine.upcalls.cancel_losers(execution.run, execution.lease)
    yield from execution.unharmed(cancelling)


@overload
def first(a: Callable[[], A], b: Callable[[], B], /) -> A | B: ...
@overload
def first(*branches: Callable[[], T]) -> T: ...
def first(*branches: Branch) -> Any:
    """What the branch gives that ends first; the others are stopped. Await it in async workflows.

    Which one won is journaled, so that a replay agrees.
    """
    if not branches:
        raise UsageError("first() needs a branch")
    scope = fan(branches, "first")
    key, n = scope.allot("first")
    race = _First(scope, key, n, list(branches))
    return race.run_async() if scope.execution.workflow.is_async else race.run()


class _First(Race):
    def recall(self) -> Any:
        return self.execution.recall(self.scope, self.key, self.n, "first", None)

    def _won(self, place: int) -> Branch:
        """The branch that is recorded as the winner."""
        if place >= len(self.branches):
            self.execution.park(
                f"{DIFFERS}: branch {place + 1} of {self.key!r} won, and now it has {len(self.branches)} branches. "
                f"{UNCHANGED} put back the branches that it had; then run.unblock(), or fork the run before it"
            )
        return self.branches[place]

    def write(self, winner: int, scopes: list[Scope]) -> Op[None]:
        execution = self.execution
        execution.consume(self.key)
        yield from execution.admit(self.scope, self.key, "first")
        losers = [scope for place, scope in enumerate(scopes) if place != winner]
        lines = forget(execution, losers, (Kind.DONE, {"key": self.key, "n": self.n, "result": winner}))
        yield from execution.in_turn((yield from execution.write(lines)))

    def run(self) -> Any:
        found = drive(self.recall(), self.execution.committer)
        if found is not None:
            return _inline(self.scope, f"{self.key}.{found.result + 1}", self._won(found.result))
        threads = Threads(self.scope, self.key, self.branches, None)
        winner = threads.wait_for_one(None)
        if winner is None:
            threads.wait()
            threads.outcomes()  # which unwinds
        assert winner is not None
        _check_ended(threads.futures[winner])
        drive(self.write(winner, threads.scopes), self.execution.committer)
        threads.abandon()
        drive(drop_children(self.execution), self.execution.committer)
        return threads.futures[winner].result()

    async def run_async(self) -> Any:
        try:
            return await self._race()
        finally:
            close_unbegun(self.branches)

    async def _race(self) -> Any:
        found = await drive_async(self.recall(), self.execution.committer)
        if found is not None:
            return await start(self.scope, f"{self.key}.{found.result + 1}", awaited(self._won(found.result)))
        scopes = [self.scope.branch(f"{self.key}.{n}") for n in range(1, len(self.branches) + 1)]
        tasks = [start_in(scope, awaited(branch)) for scope, branch in zip(scopes, self.branches, strict=True)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            winner = next(place for place, task in enumerate(tasks) if task.done())
            _check_ended(tasks[winner])
            await drive_async(self.write(winner, scopes), self.execution.committer)
        finally:
            await cancel_all([task for task in tasks if not task.done()])
        await drive_async(drop_children(self.execution), self.execution.committer)
        return tasks[winner].result()


def _check_ended(branch: Future[Any] | asyncio.Task[Any]) -> None:
    """Raise what a branch was interrupted with: that is no way to win."""
    error = branch.exception()
    if error is not None and not isinstance(error, Exception):
        raise error


def _inline(scope: Scope, name: str, branch: Branch) -> Any:
    """Run a branch in this thread."""
    inner = scope.branch(name)
    token = current_scope.set(inner)
    try:
        assert callable(branch)
        return branch()
    finally:
        current_scope.reset(token)
        scope.stopped = scope.stopped or inner.stopped


def timeout(seconds: float | timedelta, branch: Callable[[], T]) -> T:
    """What the branch gives; `TimedOut` if it takes longer, and it is stopped. Await it in async workflows.

    The moment is journaled, and so is how it ended.
    """
    limit = seconds_of("seconds", seconds)
    scope = fan((branch,), "timeout")
    key, n = scope.allot("timeout")
    race = _Timed(scope, key, n, branch, limit)
    return cast(T, race.run_async() if scope.execution.workflow.is_async else race.run())


class _Timed(Race):
    def __init__(self, scope: Scope, key: str, n: int, branch: Branch, seconds: float) -> None:
        super().__init__(scope, key, n, [branch])
        self.branch, self.seconds = branch, seconds

    def recall(self) -> Any:
        return self.execution.recall(self.scope, self.key, self.n, "timeout", None)

    def timer(self) -> Any:
        return timer(self.execution, self.scope, self.key, self.n, self.seconds)

    def in_time(self) -> Op[None]:
        execution = self.execution
        yield from execution.admit(self.scope, self.key, "timeout")
        yield from execution.in_turn((yield from execution.write([(Kind.DONE, {"key": self.key, "n": self.n})])))

    def expired(self) -> TimedOut:
        return TimedOut(self.execution.run.id, f"{self.key} took longer than {self.seconds:g} s")

    def fail(self, error: TimedOut, loser: Scope) -> Op[None]:
        execution = self.execution
        execution.lost.append(loser.path)  # whatever it would still ask for: its time is over
        yield from execution.admit(self.scope, self.key, "timeout")
        data: Data = {"key": self.key, "n": self.n, "final": True, "error": str(error)}
        data["failure"] = describe(error, execution.codec)
        execution.failed.append((error, self.key))
        lines = forget(execution, [loser], (Kind.RAISED, data))
        yield from execution.in_turn((yield from execution.write(lines)))

    def left(self, until: int) -> float:
        return max(until - self.execution.clock.now(), 0) / 1_000_000

    def run(self) -> Any:
        committer = self.execution.committer
        if drive(self.recall(), committer) is not None:
            return _inline(self.scope, f"{self.key}.1", self.branch)
        until = drive(self.timer(), committer)
        threads = Threads(self.scope, self.key, [self.branch], None)
        if threads.wait_for_one(self.left(until)) is None:
            waiting = threads.futures[0].done()
            if waiting and self.left(until) > 0:  # for something durable, and so does this
                self.execution.waits[self.key] = until
                threads.outcomes()
            threads.abandon()
            error = self.expired()
            drive(self.fail(error, threads.scopes[0]), committer)
            drive(drop_children(self.execution), committer)
            raise error
        _check_ended(threads.futures[0])
        threads.close()
        drive(self.in_time(), committer)
        return threads.outcomes()[0] if (failed := threads.futures[0].exception()) is None else _throw(failed)

    async def run_async(self) -> Any:
        try:
            return await self._race()
        finally:
            close_unbegun([self.branch])

    async def _race(self) -> Any:
        execution = self.execution
        assert isinstance(execution, AsyncExecution)
        found = await drive_async(self.recall(), execution.committer)
        if found is not None:
            return await start(self.scope, f"{self.key}.1", awaited(self.branch))
        until = await drive_async(self.timer(), execution.committer)
        scope = self.scope.branch(f"{self.key}.1")
        task = start_in(scope, awaited(self.branch))
        clock = start(self.scope, f"{self.key}.0", self._clock(until))
        error: TimedOut | None = None
        try:
            await asyncio.wait([task, clock], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                _check_ended(task)
                await drive_async(self.in_time(), execution.committer)
            else:
                error = self.expired()
                await drive_async(self.fail(error, scope), execution.committer)
        finally:
            await cancel_all([one for one in (task, clock) if not one.done()])
        if error is not None:
            await drive_async(drop_children(execution), execution.committer)
            raise error
        return task.result()

    async def _clock(self, until: int) -> None:
        execution = self.execution
        while self.left(until) > 0:
            await execution.suspend(self.scope, self.key, until)


def _throw(error: BaseException) -> Any:
    raise error
