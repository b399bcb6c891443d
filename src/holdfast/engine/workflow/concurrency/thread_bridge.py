"""A plain function in an async workflow: it is called in a thread, and may wait for what is durable all the same.

Only the workflow's own loop can park a branch. So the thread hands over what it wants carried out, and blocks; the task
that called the function carries it out in the thread's place. Whether the run is quiet is therefore seen as ever: while
the function computes, its task waits for the world outside; while it asks or sleeps, its task waits for that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.access.operations import Call, Nap, Op, Read, Request, drive_async
from holdfast.engine.workflow.outcomes import Unwind
from holdfast.kernel.clock import Clock

if TYPE_CHECKING:
    from holdfast.engine.access.commit import Committer
    from holdfast.engine.workflow.scope import Scope

T = TypeVar("T")
Wish = tuple[Op[Any], Future[Any]]  # an operation that the thread wants carried out, and where it waits for that
current_bridge: ContextVar[Bridge | None] = ContextVar("holdfast_bridge", default=None)


class Bridge:
    """Between the thread that a plain function is called in, and the task that called it."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._committer: Committer = scope.execution.run.committer
        self._loop = asyncio.get_running_loop()
        self._wish: asyncio.Future[Wish | None] = self._loop.create_future()  # None: the function has ended
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._gone = False  # whether nobody carries out anything any more

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call the function in a thread; what it gives."""
        outcome: Future[Any] = Future()
        context = copy_context()
        context.run(current_bridge.set, self)
        work = partial(context.run, self._work, function, outcome)
        threading.Thread(target=work, name="holdfast-node", daemon=True).start()
        try:
            while (wish := await self._wish) is not None:
                self._wish = self._loop.create_future()
                await self._carry_out(*wish)
        except asyncio.CancelledError:
            self._gone = True
            if self._wish.done() and not self._wish.cancelled():
                _refuse(self._wish.result())
            while not self.scope.stopped and not self._ended.done():  # if it lost a race, nobody waits for it
                with suppress(asyncio.CancelledError):
                    await asyncio.wait({self._ended})
            raise
        return outcome.result()

    def _work(self, function: Callable[[], Any], outcome: Future[Any]) -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:  # it is raised where the function was called
            outcome.set_exception(error)
        finally:
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                self._loop.call_soon_threadsafe(self._take, None)

    def _take(self, wish: Wish | None) -> None:
        if wish is None and not self._ended.done():
            self._ended.set_result(None)
        if self._gone:
            _refuse(wish)
        elif not self._wish.done():
            self._wish.set_result(wish)

    async def _carry_out(self, operation: Op[Any], answer: Future[Any]) -> None:
        try:
            value = await drive_async(operation, self._committer)
        except asyncio.CancelledError:
            answer.set_exception(Unwind())
            raise
        except BaseException as error:  # it is raised where the thread called
            answer.set_exception(error)
        else:
            answer.set_result(value)

    # --- called by the thread

    def carry(self, operation: Op[T]) -> T:
        """Have an operation carried out on the loop, and wait for it."""
        if self._gone:
            operation.close()
            raise Unwind
        answer: Future[T] = Future()
        try:
            self._loop.call_soon_threadsafe(self._take, (operation, answer))
        except RuntimeError:  # the loop is closed, so nobody carries it out
            raise Unwind from None
        return answer.result()

    def waiting_there(self, operation: Op[T], suspend: Callable[..., Any]) -> Op[T]:
        """The operation, with its waits carried out on the loop, and all else in this thread."""
        return _waiting(operation, suspend, lambda call: Read(partial(self.carry, _alone(call))))


def waiting_here(operation: Op[T], suspend: Callable[..., Any], clock: Clock) -> Op[T]:
    """The operation, with its waits until a moment spent in place: who calls it cannot await anything."""

    def nap(call: Call) -> Nap:
        _, _, until = call.args
        return Nap(clock, max(until - clock.now(), 0) / 1_000_000)

    return _waiting(operation, suspend, nap)


def _waiting(operation: Op[T], suspend: Callable[..., Any], instead: Callable[[Call], Request]) -> Op[T]:
    """The operation, with something else in the place of each call that parks a branch on the loop."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = operation.send(value) if error is None else operation.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        value = error = None
        try:
            value = yield instead(request) if type(request) is Call and request.function == suspend else request
        except BaseException as raised:  # it is for the operation to see
            error = raised


def _refuse(wish: Wish | None) -> None:
    if wish is not None:
        operation, answer = wish
        operation.close()
        answer.set_exception(Unwind())


def _alone(request: Call) -> Generator[Call, Any, Any]:
    return (yield request)
