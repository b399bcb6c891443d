"""Several things at once inside of one run: `gather`, `map`, `first` and `timeout`.

Each branch has a scope of its own, numbered by its place in the call, so that keys are stable whatever the
interleaving. In an async workflow a branch is a coroutine, and these are awaited; plain `asyncio.gather`, task groups
and `create_task` work as well, and number their tasks by creation. In a sync one a branch is a function without
arguments, which runs in a thread; more than `MAX_THREADS` of one call take turns.

**Waiting.** A branch that asks, sleeps, receives, or waits for a child or for its next attempt does not hold up the
others. The run pauses when every branch waits and no step is active. In an async workflow a branch that waits for
something else (`asyncio.sleep`, a socket, a thread, a future of one's own) keeps the run going; waiting for another
branch does not: by gather or a task group, or by an event, a lock or a queue, unless that is a module's global, which
others may use too. The time limits of asyncio itself (`asyncio.timeout`, `wait_for`) do not survive a pause, and a race
of one's own (`FIRST_COMPLETED`, `as_completed`) may go another way in a replay: use `timeout` and `first`.

**Pausing.** A run that pauses, or is stopped, is taken apart: async branches are cancelled, sync ones unwound. From
then on every durable call raises at once, so that ``finally`` and ``except`` blocks do no durable harm. What they do
outside of steps is done each time.

**Order.** Async branches are given what their calls return one at a time, in the order of the journal, so that a replay
meets what they share in memory in the same states. When something else woke a branch (`asyncio.sleep`, a socket) is not
recorded: do that in a step. Sync branches are threads; what they share is theirs to guard.

**Failing.** `gather` and `map` end when every branch has ended: an error of one does not stop the others, and is raised
when they are through (the first by place; with ``return_exceptions`` it takes the place of the result). While another
branch waits, so does the error. With `asyncio.gather` it is raised at once and the others go on; a task group cancels
them. An error of a task that nobody awaits is not told to anybody.

**Cancelling.** Who cancels a `gather`, `map`, `first` or `timeout` cancels its branches. `first` and `timeout` journal
how they ended together with closing the questions of the branches that lost. These are stopped: async ones are
cancelled, and are through before the call returns; sync ones are stopped at their next durable call. A step that they
were in may have been done, in whole or in part; a sync one is not interrupted, and its result is journaled. Children
that they wait for are cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_threads
from contextlib import contextmanager
from contextvars import Context, copy_context
from datetime import timedelta
from typing import Any

from holdfast.engine.checks import check_options, seconds_of
from holdfast.engine.define import current_scope
from holdfast.engine.drive import Op, drive, drive_async
from holdfast.engine.execution import Execution
from holdfast.engine.failures import describe
from holdfast.engine.outcomes import Unwind
from holdfast.engine.scope import Scope
from holdfast.engine.tasks import AsyncExecution
from holdfast.engine.waits import here, timer
from holdfast.errors import TimedOut, UsageError
from holdfast.journal import Data
from holdfast.model import Kind

MAX_THREADS = 32

Branch = Callable[[], Any] | Awaitable[Any]


def gather(*branches: Branch, limit: int | None = None, return_exceptions: bool = False) -> Any:
    """The results of all branches, in their order. Await it in async workflows.

    ``limit`` is how many run at a time. With ``return_exceptions`` an error takes the place of the result.
    """
    check_options(limit=limit)
    scope = _fan(branches, "gather")
    return _all(scope, _name(scope, "gather"), list(branches), limit, return_exceptions)


def map(
    function: Callable[[Any], Any], items: Iterable[Any], *, limit: int | None = None, return_exceptions: bool = False
) -> Any:
    """``function(item)`` for each item, several at a time; the results in their order. Await it in async workflows.

    The function may be a step, or any function that calls steps.
    """
    check_options(limit=limit)
    scope = _fan((), "map")
    branches: list[Branch] = [_Later(function, item) for item in items]
    return _all(scope, _name(scope, "map"), branches, limit, return_exceptions)


class _Later:
    def __init__(self, function: Callable[[Any], Any], item: Any) -> None:
        self.function, self.item = function, item

    def __call__(self) -> Any:
        return self.function(self.item)


def _fan(branches: Sequence[Branch], what: str) -> Scope:
    try:
        scope = here(f"{what}()")
        execution = scope.execution
        if isinstance(execution, AsyncExecution):
            execution.check_thread(f"{what}()")
    except BaseException:
        _close(branches)
        raise
    is_async = execution.workflow.is_async
    for branch in branches:
        if not callable(branch) and not (is_async and hasattr(branch, "__await__")):
            _close(branches)
            wanted = "a coroutine, or a function without arguments" if is_async else "a function without arguments"
            raise UsageError(
                f"{what}(): each branch is {wanted}, not {branch!r}; write {what}(lambda: charge(1), lambda: charge(2))"
            )
    return scope


def _name(scope: Scope, what: str) -> str:
    count = scope.counters[what] = scope.counters.get(what, 0) + 1
    return f"{what}#{count}"


def _all(scope: Scope, name: str, branches: list[Branch], limit: int | None, keep_errors: bool) -> Any:
    if scope.execution.workflow.is_async:
        return _all_async(scope, name, branches, limit, keep_errors)
    pool = _Threads(scope, name, branches, limit)
    pool.wait()
    return _results(pool.outcomes(), keep_errors)


def _results(outcomes: list[Any], keep_errors: bool) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, _Failed) and not isinstance(outcome.error, Exception):
            raise outcome.error
    for outcome in outcomes:
        if isinstance(outcome, _Failed) and not keep_errors:
            raise outcome.error
    return [outcome.error if isinstance(outcome, _Failed) else outcome for outcome in outcomes]


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


# --- threads


class _Threads:
    """The branches of a sync workflow, each in a thread."""

    def __init__(self, scope: Scope, name: str, branches: list[Branch], limit: int | None) -> None:
        self.scope = scope
        self.scopes = [scope.branch(f"{name}.{n}") for n in range(1, len(branches) + 1)]
        workers = max(1, min(limit or MAX_THREADS, len(branches), MAX_THREADS))
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="holdfast-branch")
        self.futures: list[Future[Any]] = []
        self._busy = 0
        self._idle = threading.Condition()
        with self._interruptible():
            for inner, branch in zip(self.scopes, branches, strict=True):
                context = copy_context()
                context.run(current_scope.set, inner)
                assert callable(branch)
                self.futures.append(self._pool.submit(self._call, context, branch))

    def _call(self, context: Context, branch: Callable[[], Any]) -> Any:
        with self._idle:
            self._busy += 1
        try:
            return context.run(branch)
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()

    def wait(self) -> None:
        """Until all have ended, or wait for something durable."""
        with self._interruptible():
            wait_for_threads(self.futures)
        self._pool.shutdown()

    def wait_for_one(self, seconds: float | None) -> int | None:
        """The place of the first branch that ended with a result or an error; None if all wait, or in time."""
        pending = set(self.futures)
        while pending:
            with self._interruptible():
                done, pending = wait_for_threads(pending, timeout=seconds, return_when=FIRST_COMPLETED)
            if not done:
                return None
            for future in self.futures:
                if future in done and not isinstance(future.exception(), Unwind):
                    return self.futures.index(future)
        return None

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """When whoever waits here is interrupted, let the steps end that are being run: the run is given up then, and
        what they do must not be done by another one at the same time.
        """
        try:
            yield
        except BaseException:
            self.scope.execution.release()
            self._pool.shutdown(wait=False, cancel_futures=True)
            with self._idle:  # the pool may not know yet of a thread that it was just starting
                while self._busy:
                    self._idle.wait()
            raise

    def abandon(self) -> None:
        """Those that still run are stopped at their next durable call."""
        for scope in self.scopes:
            scope.stopped = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    def outcomes(self) -> list[Any]:
        """What each branch gave. If one of them waits, this one does too."""
        self._pool.shutdown(wait=False)
        for future in self.futures:
            if isinstance(future.exception(), Unwind):
                self.scope.stopped = True
                raise Unwind
        return [_Failed(error) if (error := future.exception()) else future.result() for future in self.futures]


# --- tasks


async def _all_async(scope: Scope, name: str, branches: list[Branch], limit: int | None, keep_errors: bool) -> Any:
    scope.execution.borrow(scope, f"{scope.path}{name}")
    slots = asyncio.Semaphore(limit) if limit is not None else None
    tasks = [
        _start(scope, f"{name}.{n}", _limited(branch, slots) if slots else _awaited(branch))
        for n, branch in enumerate(branches, 1)
    ]
    try:
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await _cancel(tasks)
        raise
    finally:
        _close(branches)
    return _results([_outcome(task) for task in tasks], keep_errors)


def _start(scope: Scope, name: str, coroutine: Any) -> asyncio.Task[Any]:
    return _start_in(scope.branch(name), coroutine)


def _start_in(scope: Scope, coroutine: Any) -> asyncio.Task[Any]:
    execution = scope.execution
    assert isinstance(execution, AsyncExecution)
    context = copy_context()
    context.run(current_scope.set, scope)
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=asyncio.get_running_loop(), context=context)
    execution.follow(task)
    return task


async def _awaited(branch: Branch) -> Any:
    value = branch() if callable(branch) else branch
    return await value if hasattr(value, "__await__") else value


async def _limited(branch: Branch, slots: asyncio.Semaphore) -> Any:
    async with slots:
        return await _awaited(branch)


def _outcome(task: asyncio.Task[Any]) -> Any:
    if task.cancelled():
        return _Failed(asyncio.CancelledError())
    error = task.exception()
    return _Failed(error) if error is not None else task.result()


# --- races


def _forget(execution: Execution, losers: list[Scope], ended: tuple[str, Data]) -> list[tuple[str, Data]]:
    """Stop branches that lost; the entries that say how the race ended, and close their questions."""
    keys: set[str] = set()
    for scope in losers:
        scope.stopped = True
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


def _drop_children(execution: Execution) -> Op[None]:
    """Cancel the children of branches that lost."""
    from holdfast.engine.children import drop

    yield from execution.unharmed(drop(execution.run, execution.lease))


def first(*branches: Branch) -> Any:
    """What the branch gives that ends first; the others are stopped. Await it in async workflows.

    Which one won is journaled, so that a replay agrees.
    """
    if not branches:
        raise UsageError("first() needs a branch")
    scope = _fan(branches, "first")
    key, n = scope.allot("first")
    race = _Race(scope, key, n, list(branches))
    return race.run_async() if scope.execution.workflow.is_async else race.run()


class _Race:
    def __init__(self, scope: Scope, key: str, n: int, branches: list[Branch]) -> None:
        self.scope, self.key, self.n, self.branches = scope, key, n, branches
        self.execution: Execution = scope.execution

    def recall(self) -> Any:
        return self.execution.recall(self.scope, self.key, self.n, "first", None)

    def write(self, winner: int, scopes: list[Scope]) -> Op[None]:
        execution = self.execution
        execution.consumed.add(self.key)
        losers = [scope for place, scope in enumerate(scopes) if place != winner]
        lines = _forget(execution, losers, (Kind.DONE, {"key": self.key, "n": self.n, "result": winner}))
        yield from execution.in_turn((yield from execution.write(lines)))

    def run(self) -> Any:
        found = drive(self.recall(), self.execution.committer)
        if found is not None:
            branch = self.branches[found.result]
            return _inline(self.scope, f"{self.key}.{found.result + 1}", branch)
        threads = _Threads(self.scope, self.key, self.branches, None)
        winner = threads.wait_for_one(None)
        if winner is None:
            threads.wait()
            threads.outcomes()  # which unwinds
        assert winner is not None
        _check_ended(threads.futures[winner])
        drive(self.write(winner, threads.scopes), self.execution.committer)
        threads.abandon()
        drive(_drop_children(self.execution), self.execution.committer)
        return threads.futures[winner].result()

    async def run_async(self) -> Any:
        try:
            return await self._race()
        finally:
            _close(self.branches)

    async def _race(self) -> Any:
        found = await drive_async(self.recall(), self.execution.committer)
        if found is not None:
            return await _start(self.scope, f"{self.key}.{found.result + 1}", _awaited(self.branches[found.result]))
        scopes = [self.scope.branch(f"{self.key}.{n}") for n in range(1, len(self.branches) + 1)]
        tasks = [_start_in(scope, _awaited(branch)) for scope, branch in zip(scopes, self.branches, strict=True)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            winner = next(place for place, task in enumerate(tasks) if task.done())
            _check_ended(tasks[winner])
            await drive_async(self.write(winner, scopes), self.execution.committer)
        finally:
            await _cancel([task for task in tasks if not task.done()])
        await drive_async(_drop_children(self.execution), self.execution.committer)
        return tasks[winner].result()


def _check_ended(branch: Future[Any] | asyncio.Task[Any]) -> None:
    """Raise what a branch was interrupted with: that is no way to win."""
    error = branch.exception()
    if error is not None and not isinstance(error, Exception):
        raise error


def _close(branches: Iterable[Branch]) -> None:
    """Nobody awaits any longer what was not begun."""
    for branch in branches:
        if isinstance(branch, asyncio.Future):
            branch.cancel()
        elif inspect.iscoroutine(branch) and inspect.getcoroutinestate(branch) == inspect.CORO_CREATED:
            inner = inspect.getcoroutinelocals(branch)
            branch.close()
            match inner:
                case {"self": _Race(branches=within)} | {"branches": list(within), "keep_errors": _}:
                    _close(within)
                case {"self": _Timed(branch=one)}:
                    _close([one])


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


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


def timeout(seconds: float | timedelta, branch: Branch) -> Any:
    """What the branch gives; `TimedOut` if it takes longer, and it is stopped. Await it in async workflows.

    The moment is journaled, and so is how it ended.
    """
    limit = seconds_of("seconds", seconds)
    scope = _fan((branch,), "timeout")
    key, n = scope.allot("timeout")
    race = _Timed(scope, key, n, branch, limit)
    return race.run_async() if scope.execution.workflow.is_async else race.run()


class _Timed:
    def __init__(self, scope: Scope, key: str, n: int, branch: Branch, seconds: float) -> None:
        self.scope, self.key, self.n, self.branch, self.seconds = scope, key, n, branch, seconds
        self.execution: Execution = scope.execution

    def recall(self) -> Any:
        return self.execution.recall(self.scope, self.key, self.n, "timeout", None)

    def timer(self) -> Any:
        return timer(self.execution, self.key, self.n, self.seconds)

    def in_time(self) -> Op[None]:
        execution = self.execution
        yield from execution.in_turn((yield from execution.write([(Kind.DONE, {"key": self.key, "n": self.n})])))

    def expired(self) -> TimedOut:
        return TimedOut(self.execution.run.id, f"{self.key} took longer than {self.seconds:g} s")

    def fail(self, error: TimedOut, loser: Scope) -> Op[None]:
        execution = self.execution
        data: Data = {"key": self.key, "n": self.n, "final": True, "error": str(error)}
        data["failure"] = describe(error, execution.codec)
        execution.failed.append((error, self.key))
        lines = _forget(execution, [loser], (Kind.RAISED, data))
        yield from execution.in_turn((yield from execution.write(lines)))

    def left(self, until: int) -> float:
        return max(until - self.execution.clock.now(), 0) / 1_000_000

    def run(self) -> Any:
        committer = self.execution.committer
        if drive(self.recall(), committer) is not None:
            return _inline(self.scope, f"{self.key}.1", self.branch)
        until = drive(self.timer(), committer)
        threads = _Threads(self.scope, self.key, [self.branch], None)
        if threads.wait_for_one(self.left(until)) is None:
            waiting = threads.futures[0].done()
            if waiting and self.left(until) > 0:  # for something durable, and so does this
                self.execution.waits[self.key] = until
                threads.outcomes()
            threads.abandon()
            error = self.expired()
            drive(self.fail(error, threads.scopes[0]), committer)
            drive(_drop_children(self.execution), committer)
            raise error
        _check_ended(threads.futures[0])
        drive(self.in_time(), committer)
        return threads.outcomes()[0] if (failed := threads.futures[0].exception()) is None else _throw(failed)

    async def run_async(self) -> Any:
        try:
            return await self._race()
        finally:
            _close([self.branch])

    async def _race(self) -> Any:
        execution = self.execution
        assert isinstance(execution, AsyncExecution)
        found = await drive_async(self.recall(), execution.committer)
        if found is not None:
            return await _start(self.scope, f"{self.key}.1", _awaited(self.branch))
        until = await drive_async(self.timer(), execution.committer)
        scope = self.scope.branch(f"{self.key}.1")
        task = _start_in(scope, _awaited(self.branch))
        clock = _start(self.scope, f"{self.key}.0", self._clock(until))
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
            await _cancel([one for one in (task, clock) if not one.done()])
        if error is not None:
            await drive_async(_drop_children(execution), execution.committer)
            raise error
        return task.result()

    async def _clock(self, until: int) -> None:
        execution = self.execution
        while self.left(until) > 0:
            await execution.suspend(self.scope, self.key, until)


def _throw(error: BaseException) -> Any:
    raise error
