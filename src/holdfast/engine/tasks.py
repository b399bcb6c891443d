"""The execution of an async workflow: its branches are tasks, and a wait parks one of them on a future.

Every task that the workflow creates (with `asyncio.gather`, a task group, `create_task`) gets a scope of its own,
numbered by creation, so that keys are stable whatever the interleaving. The task factory that sees to it leaves every
other task of the loop alone.

When nothing is active and all tasks wait for each other or for something durable, the run is **quiet**: the lease is
given up and the tasks are cancelled. A task that waits for something else (a socket, `asyncio.sleep`) keeps the run
going. What the journal has is given to the tasks in the order in which it was recorded.
"""

from __future__ import annotations

import asyncio
import weakref
from bisect import bisect_left
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.clock import SystemClock
from holdfast.engine.define import Workflow, current_scope
from holdfast.engine.drive import Call, Op, drive_async
from holdfast.engine.events import WARNING, tell
from holdfast.engine.execution import (
    Aborted,
    Execution,
    Expired,
    Outcome,
    Raised,
    Released,
    Returned,
    Scope,
    Suspended,
    Unwind,
)
from holdfast.engine.waits import IN_PLACE

if TYPE_CHECKING:
    from holdfast.engine.lease import Lease
    from holdfast.engine.run import Run

LOOK_AGAIN = 0.05  # seconds after which a workflow that was not quiet is looked at again
PATIENCE = 5.0  # seconds after which it is told that a cancelled task does not end

_loops: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()


class AsyncExecution(Execution):
    """A workflow of tasks that is being driven under a lease."""

    def __init__(self, run: Run, lease: Lease, workflow: Workflow[..., Any]) -> None:
        super().__init__(run, lease, workflow)
        self.tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._parked: dict[asyncio.Future[None], tuple[str, int | None]] = {}
        self._quiet = self._loop.create_future()
        self._looking = False
        self._draining = False
        fold = lease.fold
        self._order = sorted(found.seq for known in (fold.steps, fold.failures) for found in known.values())
        self._next = 0
        self._turns: dict[int, asyncio.Future[None]] = {}

    async def drive(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Call the workflow's function; how it went."""
        install_task_factory(self._loop)
        context = copy_context()
        context.run(current_scope.set, self.root)
        call: Any = partial(self.workflow.function, *args, **kwargs)
        tracer = self.engine.tracer
        function = call() if tracer is None else tracer.drive(self, call)
        root = asyncio.Task(function, loop=self._loop, context=context)
        self.follow(root)
        deadline = self._watch_deadline()
        try:
            await asyncio.wait({root, self._quiet}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if deadline is not None:
                deadline.cancel()
            if not root.done() and self.outcome is None:  # whoever awaits this was cancelled
                self.stop(Suspended())
        if self.outcome is None and root.done():
            try:
                self.outcome = Returned(root.result())
            except Exception as error:
                self.outcome = Raised(error)
            except asyncio.CancelledError as error:  # by the workflow's own code
                self.outcome = Raised(RuntimeError(f"the workflow cancelled itself: {error!r}"))
            except Unwind:
                self.outcome = Suspended()
        assert self.outcome is not None
        return self.outcome

    def _watch_deadline(self) -> asyncio.TimerHandle | None:
        deadline = self.deadline
        if deadline is None or not isinstance(self.clock, SystemClock):
            return None
        left = (deadline - self.clock.now()) / 1_000_000
        total = (deadline - self.lease.fold.log[0][2]) / 1_000_000
        return self._loop.call_later(max(left, 0), self.stop, Expired(total))

    def follow(self, task: asyncio.Task[Any]) -> None:
        """Count a task as one of the workflow's."""
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and isinstance(task.exception(), Unwind):
            pass  # asked for, so that nobody is told that it was never looked at
        self.look()

    # --- taking it apart

    def stop(self, outcome: Outcome) -> None:
        super().stop(outcome)
        self._loop.call_soon_threadsafe(self._stopped)

    def release(self) -> None:
        Execution.stop(self, Released())
        self._loop.call_soon_threadsafe(self._release)

    def _release(self) -> None:
        """Wait until no step is active, and what each of them gave is journaled."""
        if self.active:
            self._loop.call_later(0.01, self._release)
        else:
            self._stopped()

    def _stopped(self) -> None:
        if not self._quiet.done():
            self._quiet.set_result(None)

    async def dismantle(self) -> None:
        """Cancel what is left of the tasks, and wait until they have ended."""
        waited = 0.0
        while self.tasks:
            for task in list(self.tasks):
                task.cancel()
            await asyncio.wait(set(self.tasks), timeout=0.5)
            waited += 0.5
            if waited >= PATIENCE and self.tasks:
                names = ", ".join(sorted(task.get_name() for task in self.tasks))
                told = "run {run}: tasks that were cancelled do not end, and are left alone: {tasks}"
                tell(WARNING, "run.tasks_left", told, run=self.run.id, tasks=names)
                return

    # --- waiting

    def suspend(self, scope: Scope, key: str, until: int | None) -> Any:
        """Park a branch until something durable happens."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._parked[future] = key, until
        self.waits[key] = until
        if until is not None and isinstance(self.clock, SystemClock):
            delay = max(until - self.clock.now(), 0) / 1_000_000
            timer = self._loop.call_later(delay, self._wake, future)
            future.add_done_callback(lambda _: timer.cancel())
        future.add_done_callback(self._unparked)
        self.look()
        return future

    def _unparked(self, future: asyncio.Future[None]) -> None:
        key, _ = self._parked.pop(future)
        if not future.cancelled() or self.outcome is None:
            self.waits.pop(key, None)

    def _wake(self, future: asyncio.Future[None]) -> None:
        if not future.done():
            future.set_result(None)

    def mail(self) -> None:
        """Something is in the inbox. Called by any thread."""
        self._loop.call_soon_threadsafe(self._mail)

    def _mail(self) -> None:
        if not self._draining and self.outcome is None:
            self._draining = True
            self._loop.create_task(self._drain(), context=Context())

    async def _drain(self) -> None:
        from holdfast.engine.pauses import drain

        try:
            await drive_async(drain(self.run, self.lease), self.committer)
        except Exception as error:  # whatever it is, who drives the run gets to see it
            self.stop(Aborted(error))
        finally:
            self._draining = False
        for future in list(self._parked):
            self._wake(future)  # each looks for itself whether what it waits for is there

    # --- is it quiet?

    def look(self) -> None:
        """See soon whether there is nothing to do but wait."""
        if not self._looking and self.outcome is None:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self.outcome is not None or self._quiet.done() or not self.tasks:
            return
        if self.active or self._draining:
            return  # what is active ends, and then it is looked at again
        states = {_waits_for(task, self) for task in self.tasks}
        if "runs" in states:
            self.look()
        elif "outside" in states:
            self._looking = True
            self._loop.call_later(LOOK_AGAIN, self._look)
        elif self._turns:
            self._give_turn(min(self._turns))
        elif self._parked:
            self._all_wait()

    def _all_wait(self) -> None:
        soonest = self.soonest()
        left = None if soonest is None else soonest - self.clock.now()
        if left is None or left > IN_PLACE:
            self.stop(Suspended())
        elif not isinstance(self.clock, SystemClock):
            self.clock.sleep(max(left, 0) / 1_000_000)
            for future in list(self._parked):
                self._wake(future)

    # --- the order of what was recorded

    def in_turn(self, seq: int) -> Op[None]:
        """Wait until everything that was recorded before has been given to whoever asked for it."""
        place = bisect_left(self._order, seq)
        if self._next < place and len(self.tasks) > 1:
            turn = self._turns[seq] = self._loop.create_future()
            self.look()
            try:
                yield Call(lambda: turn, (), {})
            finally:
                self._turns.pop(seq, None)
        self._next = max(self._next, place + 1)
        if self._turns and self._next < len(self._order):
            self._give_turn(self._order[self._next])

    def _give_turn(self, seq: int) -> None:
        turn = self._turns.get(seq)
        if turn is not None and not turn.done():
            turn.set_result(None)


def _waits_for(task: asyncio.Task[Any], execution: AsyncExecution) -> str:
    """What a task is doing: it ``runs``, waits for something ``durable`` or for its peers, or for the ``outside``."""
    future = getattr(task, "_fut_waiter", None)
    if task.done():
        return "peers"
    if future is None:
        return "runs"
    if future.done():
        return "runs"
    if future in execution._parked or future in execution._turns.values():
        return "durable"
    if isinstance(future, asyncio.Task):
        return "peers" if future in execution.tasks else "outside"
    children = getattr(future, "_children", None)  # of asyncio.gather
    if children is not None:
        return "peers" if all(child in execution.tasks or child.done() for child in children) else "outside"
    return "peers" if _innermost(task) in _PEERS else "outside"


_PEERS = frozenset(
    {
        ("taskgroups", "__aexit__"),
        ("taskgroups", "_aexit"),
        ("tasks", "_wait"),
        ("tasks", "wait_for"),
        ("locks", "acquire"),
        ("locks", "wait"),
        ("locks", "_block"),
        ("queues", "get"),
        ("queues", "put"),
        ("queues", "join"),
    }
)


def _innermost(task: asyncio.Task[Any]) -> tuple[str, str]:
    """The function of asyncio, if it is one, that a task stands in."""
    coroutine: Any = task.get_coro()
    while (inner := getattr(coroutine, "cr_await", None)) is not None and hasattr(inner, "cr_code"):
        coroutine = inner
    code = getattr(coroutine, "cr_code", None)
    if code is None or not code.co_filename.startswith(_ASYNCIO):
        return "", ""
    return code.co_filename[len(_ASYNCIO) + 1 :].removesuffix(".py"), code.co_name


_ASYNCIO = asyncio.__path__[0]


# --- scopes for tasks


def install_task_factory(loop: asyncio.AbstractEventLoop) -> None:
    """See to it that each task which a workflow creates on this loop has a scope of its own."""
    if loop in _loops:
        return
    _loops.add(loop)
    before = loop.get_task_factory()

    def factory(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        context: Context | None = None,
        **more: Any,
    ) -> Any:
        scope = context.get(current_scope) if context is not None else current_scope.get()
        inside = scope is not None and scope.step is None
        if scope is not None and inside:
            context = context.copy() if context is not None else copy_context()
            context.run(current_scope.set, scope.task())
        if before is not None:
            make: Any = before
            task: Any = make(loop, coro, context=context, **more) if context is not None else make(loop, coro)
        else:
            task = asyncio.Task(coro, loop=loop, context=context, **more)
        if scope is not None and inside:
            execution = scope.execution
            assert isinstance(execution, AsyncExecution)
            execution.follow(task)
        return task

    loop.set_task_factory(factory)
