"""Several things at once inside of one run: `gather`, `map`, `first` and `timeout`.

Each branch has a scope of its own, numbered by its place in the call, so that keys are stable whatever the
interleaving. In an async workflow a branch is a coroutine, and these are awaited; plain `asyncio.gather`, task groups
and `create_task` work as well, and their tasks have names (`holdfast.engine.workflow.concurrency.task_scopes`). In a
sync one a branch is a function without arguments, which runs in a thread; more than `MAX_THREADS` of one call take
turns.

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
meets what they share in memory in the same states. When something else woke a branch (`asyncio.sleep`, a socket, a
thread, even one that called a step) is not recorded: do that in a step, and let no lock or queue depend on it. Sync
branches are threads; what they share is theirs to guard.

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
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_threads
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from typing import Any, Literal, TypeVar, overload

from msgspec import Struct

from holdfast.engine.argument_checks import check_options
from holdfast.engine.workflow.concurrency.async_execution import AsyncExecution
from holdfast.engine.workflow.outcomes import Unwind
from holdfast.engine.workflow.scope import Scope, current_scope, here
from holdfast.errors import UsageError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")

MAX_THREADS = 32
LOOK = 0.5  # seconds: Python does not notice an interrupt that comes right before a thread waits, until it wakes

Branch = Callable[[], Any] | Awaitable[Any]


@overload
def gather(  # type: ignore[overload-overlap]
    a: Callable[[], A], b: Callable[[], B], /, *, limit: int | None = None, return_exceptions: Literal[False] = False
) -> tuple[A, B]: ...
@overload
def gather(  # type: ignore[overload-overlap]
    a: Callable[[], A],
    b: Callable[[], B],
    c: Callable[[], C],
    /,
    *,
    limit: int | None = None,
    return_exceptions: Literal[False] = False,
) -> tuple[A, B, C]: ...
@overload
def gather(
    *branches: Callable[[], T], limit: int | None = None, return_exceptions: Literal[False] = False
) -> list[T]: ...
@overload
def gather(*branches: Callable[[], T], limit: int | None = None, return_exceptions: bool) -> list[T | Exception]: ...
def gather(*branches: Branch, limit: int | None = None, return_exceptions: bool = False) -> Any:
    """The results of all branches, in their order. Await it in async workflows.

    ``limit`` is how many run at a time. With ``return_exceptions`` an error takes the place of the result.
    """
    check_options(limit=limit)
    scope = fan(branches, "gather")
    return _all(scope, _name(scope, "gather"), list(branches), limit, return_exceptions)


@overload
def map(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    limit: int | None = None,
    return_exceptions: Literal[False] = False,
) -> list[R]: ...
@overload
def map(
    function: Callable[[T], R], items: Iterable[T], *, limit: int | None = None, return_exceptions: bool
) -> list[R | Exception]: ...
def map(
    function: Callable[[Any], Any], items: Iterable[Any], *, limit: int | None = None, return_exceptions: bool = False
) -> Any:
    """``function(item)`` for each item, several at a time; the results in their order. Await it in async workflows.

    The function may be a step, or any function that calls steps.
    """
    check_options(limit=limit)
    scope = fan((), "map")
    branches: list[Branch] = [_Later(function, item) for item in items]
    return _all(scope, _name(scope, "map"), branches, limit, return_exceptions)


class _Later:
    def __init__(self, function: Callable[[Any], Any], item: Any) -> None:
        self.function, self.item = function, item

    def __call__(self) -> Any:
        return self.function(self.item)


def fan(branches: Sequence[Branch], what: str) -> Scope:
    try:
        scope = here(f"{what}()")
        execution = scope.execution
        if isinstance(execution, AsyncExecution):
            execution.check_thread(f"{what}()")
    except BaseException:  # whatever it is: coroutines that nobody awaits would warn
        close_unbegun(branches)
        raise
    is_async = execution.workflow.is_async
    for branch in branches:
        if not callable(branch) and not (is_async and hasattr(branch, "__await__")):
            close_unbegun(branches)
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
    pool = Threads(scope, name, branches, limit)
    scope.execution.fans[f"{scope.path}{name}"] = pool.futures
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


def _until(
    futures: Iterable[Future[Any]], enough: Callable[[Iterable[bool]], bool], seconds: float | None = None
) -> set[Future[Any]]:
    """Wait until enough futures are done, or for some seconds; those that are done."""
    waited = set(futures)
    when = FIRST_COMPLETED if enough is any else ALL_COMPLETED
    until = None if seconds is None else time.monotonic() + seconds
    while waited:
        left = LOOK if until is None else min(LOOK, max(until - time.monotonic(), 0.0))
        done = wait_for_threads(waited, timeout=left, return_when=when).done
        if enough(future in done for future in waited) or (until is not None and time.monotonic() >= until):
            return done
    return waited


class _Failed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


# --- threads


class Slot:
    """The right of a branch to run: of these a pool has only so many.

    A branch that is held at the gate gives it back, with those of the branches around it, so that branches which have
    not begun yet can ask for what was recorded. It takes them again before it does anything new.
    """

    def __init__(self, pool: Threads) -> None:
        self._pool = pool
        self.is_taken = False

    def give_back(self) -> None:
        """Let another branch run."""
        self._pool.free(self)

    def take(self) -> None:
        """Wait until this one may run again."""
        self._pool.take(self)


class _Job(Struct, frozen=True, eq=False):
    slot: Slot
    future: Future[Any]
    context: Context
    branch: Callable[[], Any]


class Threads:
    """The branches of a sync workflow, each in a thread."""

    def __init__(
        self, scope: Scope, name: str, branches: Sequence[Branch], limit: int | None, *, more: int = 0
    ) -> None:
        self.scope = scope
        self.scopes = [scope.branch(f"{name}.{n}") for n in range(1, len(branches) + 1)]
        self._pool = ThreadPoolExecutor(max(1, len(branches) + more), thread_name_prefix="holdfast-branch")
        self.futures: list[Future[Any]] = []
        self.threads: set[int] = set()  # those that are in a branch
        self._free = min(limit or MAX_THREADS, MAX_THREADS)  # slots
        self._unbegun: deque[_Job] = deque()
        self._wanting = 0  # threads that wait for a slot to go on
        self._busy = 0  # jobs that a thread has, or is about to have
        self._lock = scope.execution.threads_lock  # not the condition: an interrupt in its __enter__ leaves it locked
        self._changed = threading.Condition(self._lock)
        with self._lock:
            scope.execution.pools.append(self)
        for inner, branch in zip(self.scopes, branches, strict=True):
            self.begin(inner, branch)

    def begin(self, inner: Scope, branch: Branch) -> Future[Any]:
        """Have a branch called; ``more`` says how many are to come like this."""
        context = copy_context()
        context.run(current_scope.set, inner)
        assert callable(branch)
        inner.slot = Slot(self)
        job = _Job(inner.slot, Future(), context, branch)
        with self._interruptible(), self._lock:
            self.futures.append(job.future)
            self._unbegun.append(job)
            self._hand_out()
        return job.future

    @property
    def is_starting(self) -> bool:
        """Whether a thread is about to begin, to end, or to go on with a branch. Call it under the lock."""
        return self._busy != len(self.threads) or (self._free > 0 and bool(self._unbegun or self._wanting))

    # --- slots

    def free(self, slot: Slot) -> None:
        """Take the slot of a branch, for others."""
        with self._lock:
            if slot.is_taken:
                self._release(slot)
                self._hand_out()

    def take(self, slot: Slot) -> None:
        """Give a branch its slot again, when there is one."""
        with self._lock:
            self._wanting += 1
            try:
                while not slot.is_taken and not self._free:
                    self._changed.wait(LOOK)
            finally:
                self._wanting -= 1
            if not slot.is_taken:  # by another thread of the same branch
                slot.is_taken = True
                self._free -= 1
                self._changed.notify_all()
            self._hand_out()

    def _release(self, slot: Slot) -> None:
        slot.is_taken = False
        self._free += 1
        self._changed.notify_all()

    def _hand_out(self) -> None:
        while (job := self._next()) is not None:
            self._pool.submit(self._work, job)

    def _next(self) -> _Job | None:
        """A branch that may begin now. Those that have begun before come first."""
        if not self._unbegun or self._free <= self._wanting:
            return None
        job = self._unbegun.popleft()
        job.slot.is_taken = True
        self._free -= 1
        self._busy += 1
        return job

    def _work(self, job: _Job | None) -> None:
        thread = threading.get_ident()
        while job is not None:
            with self._lock:
                self.threads.add(thread)
            _call(job)
            with self._lock:
                self.threads.discard(thread)
                self._busy -= 1
                if job.slot.is_taken:
                    self._release(job.slot)
                self._changed.notify_all()
                job = self._next()

    # --- waiting

    def wait_for_any(self, futures: Sequence[Future[Any]]) -> None:
        """Until one of these has ended, or waits for something durable."""
        with self._resting(futures, any), self._interruptible():
            _until(futures, any)

    def wait(self) -> None:
        """Until all have ended, or wait for something durable."""
        with self._resting(self.futures, all), self._interruptible():
            _until(self.futures, all)
        self._pool.shutdown()

    def wait_for_one(self, seconds: float | None) -> int | None:
        """The place of the first branch that ended with a result or an error; None if all wait, or in time."""
        pending = set(self.futures)
        while pending:
            with self._resting(list(pending), any), self._interruptible():
                done = _until(pending, any, seconds)
                pending -= done
            if not done:
                return None
            for future in self.futures:
                if future in done and not isinstance(future.exception(), Unwind):
                    return self.futures.index(future)
        return None

    @contextmanager
    def _resting(self, futures: Sequence[Future[Any]], enough: Callable[[Iterable[bool]], bool]) -> Iterator[None]:
        """While this thread waits for its branches, it asks for nothing: until they have ended, not until it wakes."""
        resting, thread = self.scope.execution.resting, threading.get_ident()
        with self._lock:
            resting[thread] = lambda: not enough(future.done() for future in futures)
        try:
            yield
        finally:
            with self._lock:
                del resting[thread]
        self.scope.take_slots()

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """When whoever waits here is interrupted, let the steps end that are being run: the run is given up then, and
        what they do must not be done by another one at the same time.
        """
        try:
            yield
        except BaseException:  # an interrupt, too
            self.scope.execution.interrupt()
            self.end()
            raise

    # --- the end

    def end(self) -> None:
        """Wait until no branch is being called, and begin none."""
        self._cancel()
        with self._lock:
            while self._busy:
                self._changed.wait(LOOK)

    def close(self) -> None:
        """Nothing more is begun; what is still being called is left to itself."""
        with self._lock:
            self._unbegun.clear()
            with suppress(ValueError):  # it was closed before
                self.scope.execution.pools.remove(self)
        self._pool.shutdown(wait=False)

    def _cancel(self) -> None:
        for future in self.futures:
            future.cancel()  # unless it has begun
        self.close()

    def abandon(self) -> None:
        """Those that still run are stopped at their next durable call."""
        for scope in self.scopes:
            scope.stopped = True
        self._cancel()

    def outcomes(self) -> list[Any]:
        """What each branch gave. If one of them waits, this one does too."""
        self.close()
        for future in self.futures:
            if isinstance(future.exception(), Unwind):
                self.scope.stopped = True
                raise Unwind
        return [_Failed(error) if (error := future.exception()) else future.result() for future in self.futures]


def _call(job: _Job) -> None:
    if not job.future.set_running_or_notify_cancel():
        return
    try:
        result = job.context.run(job.branch)
    except BaseException as error:  # whoever waits for it sees to it
        job.future.set_exception(error)
    else:
        job.future.set_result(result)


# --- tasks


async def _all_async(scope: Scope, name: str, branches: list[Branch], limit: int | None, keep_errors: bool) -> Any:
    scope.execution.borrow(scope, f"{scope.path}{name}")
    slots = asyncio.Semaphore(limit) if limit is not None else None
    tasks = [
        start(scope, f"{name}.{n}", _limited(branch, slots) if slots else awaited(branch))
        for n, branch in enumerate(branches, 1)
    ]
    scope.execution.fans[f"{scope.path}{name}"] = tasks
    try:
        if tasks:
            await asyncio.wait(tasks)
    except asyncio.CancelledError:
        await cancel_all(tasks)
        raise
    finally:
        close_unbegun(branches)
    return _results([_outcome(task) for task in tasks], keep_errors)


def start(scope: Scope, name: str, coroutine: Any) -> asyncio.Task[Any]:
    return start_in(scope.branch(name), coroutine)


def start_in(scope: Scope, coroutine: Any) -> asyncio.Task[Any]:
    execution = scope.execution
    assert isinstance(execution, AsyncExecution)
    context = copy_context()
    context.run(current_scope.set, scope)
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=asyncio.get_running_loop(), context=context)
    execution.follow(task, scope)
    return task


async def awaited(branch: Branch) -> Any:
    value = branch() if callable(branch) else branch
    return await value if hasattr(value, "__await__") else value


async def _limited(branch: Branch, slots: asyncio.Semaphore) -> Any:
    async with slots:
        return await awaited(branch)


def _outcome(task: asyncio.Task[Any]) -> Any:
    if task.cancelled():
        return _Failed(asyncio.CancelledError())
    error = task.exception()
    return _Failed(error) if error is not None else task.result()


class Race:
    """A call that has branches of its own, of which not all come to their end."""

    def __init__(self, scope: Scope, key: str, n: int, branches: list[Branch]) -> None:
        self.scope, self.key, self.n, self.branches = scope, key, n, branches
        self.execution = scope.execution


def close_unbegun(branches: Iterable[Branch]) -> None:
    """Nobody awaits any longer what was not begun."""
    for branch in branches:
        if isinstance(branch, asyncio.Future):
            branch.cancel()
        elif inspect.iscoroutine(branch) and inspect.getcoroutinestate(branch) == inspect.CORO_CREATED:
            inner = inspect.getcoroutinelocals(branch)
            branch.close()
            match inner:
                case {"self": Race(branches=within)} | {"branches": list(within), "keep_errors": _}:
                    close_unbegun(within)


async def cancel_all(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
