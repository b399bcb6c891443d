"""The handle on one run that users hold: everything that can be asked of it or done to it.

`BaseRun` is the table of contents. The functions behind its methods work on its `HeldRun`, and live in the packages of
the engine by subject: `holdfast.engine.control` for what people and programs do to a run, `holdfast.engine.execute` for
its execution, and the modules beside this one for reading a run and for driving one by hand. `Run` and `AsyncRun` say
to type checkers what depends on the result of the workflow.

A handle reads at any time. To write it must hold the run's lease: ``with run.claim():`` keeps it for a block; a
writing call outside of such a block claims the run for just that call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Async, Operable, Operation, Stream, Sync, drive
from holdfast.engine.control import fork as forking
from holdfast.engine.control.audit import audit
from holdfast.engine.control.cancel import cancel, retry
from holdfast.engine.control.delete import delete
from holdfast.engine.control.edit import edit
from holdfast.engine.control.effects import effects
from holdfast.engine.control.erase import redact
from holdfast.engine.control.fork import Point
from holdfast.engine.control.messages import send
from holdfast.engine.control.questions import answer, pause, questions
from holdfast.engine.control.rollback import plan_rollback, rollback
from holdfast.engine.control.unblock import unblock
from holdfast.engine.execute.result import result, resume, wait
from holdfast.engine.run import manual_step
from holdfast.engine.run.claim import AsyncHolding, Holding, R
from holdfast.engine.run.manual_run import complete, fail, release, save
from holdfast.engine.run.manual_step import is_completed, mark, resolve
from holdfast.engine.run.outputs import Activity, activity, follow, outputs, steps
from holdfast.engine.run.reading import checkpoint, declared, entry, history, info
from holdfast.engine.run.streams import entries, events, states
from holdfast.kernel.model import Status

T = TypeVar("T")


class BaseRun(Operable, Generic[R]):
    """What the sync and the async handle on a run share."""

    def __init__(self, held: HeldRun) -> None:
        self.id: str = held.id
        self.uid: str = held.uid
        self.held = held  # for Holdfast's own modules
        self._committer = held.committer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    @property
    def _subject(self) -> HeldRun:
        return self.held

    def _presented(self, value: Any) -> Any:
        return presented(value, type(self))

    @property
    def status(self) -> Status:
        """In what state the run is now."""
        return self.held.read_record().status

    # --- reading

    info = Operation(info)
    declared = Operation(declared)
    checkpoint = Operation(checkpoint)
    history = Operation(history)
    entry = Operation(entry)
    entries = Operation(entries)
    steps = Operation(steps)
    effects = Operation(effects)
    is_completed = Operation(is_completed)
    outputs = Operation(outputs)
    questions = Operation(questions)
    audit = Operation(audit)

    follow = Stream(follow)
    events = Stream(events)
    states = Stream(states)

    def activity(self) -> Activity | None:
        """What this process does for the run now; None if it is driven elsewhere, or not at all."""
        return activity(self.held)

    # --- executing it

    resume = Operation(resume)
    wait = Operation(wait)
    if not TYPE_CHECKING:
        result = Operation(result)

    # --- what people and programs do to it

    answer = Operation(answer)
    send = Operation(send)
    cancel = Operation(cancel)
    retry = Operation(retry)
    unblock = Operation(unblock)
    resolve = Operation(resolve)
    edit = Operation(edit)
    plan_rollback = Operation(plan_rollback)
    rollback = Operation(rollback)
    redact = Operation(redact)
    delete = Operation(delete)
    if not TYPE_CHECKING:
        fork = Operation(forking.fork)
        fork_each = Operation(forking.fork_each)

    # --- driving it by hand

    @property
    def epoch(self) -> int | None:
        """The epoch under which this handle holds the run, or None."""
        return self.held.lease.record.epoch if self.held.lease is not None else None

    release = Operation(release)
    save = Operation(save)
    mark = Operation(mark)
    pause = Operation(pause)
    complete = Operation(complete)
    fail = Operation(fail)
    if not TYPE_CHECKING:
        once = Operation(manual_step.once)


class Run(BaseRun[R], Sync):
    """One run of a store; ``Run[str]`` is one of a workflow that returns a ``str``."""

    def claim(self) -> Holding[R]:
        """Become the one holder of the run; raises `Claimed` if another one has it.

        ``with run.claim():`` gives it up at the end of the block. Without ``with``, call `release`. A writing call
        outside of any claim takes one for itself.
        """
        return Holding(self, drive(self.held.hold(), self._committer))

    if TYPE_CHECKING:

        @overload
        def result(self, *, timeout: float | None = None) -> R: ...
        @overload
        def result(self, *, timeout: float | None = None, type: type[T]) -> T: ...
        @overload
        def result(self, *, timeout: float | None = None, type: Any) -> Any: ...
        def result(self, *, timeout: float | None = None, type: Any = None) -> Any: ...
        def fork(
            self,
            at: Point = None,
            *,
            id: str | None = None,
            input: Mapping[str, Any] | None = None,
            results: Mapping[str, Any] | None = None,
            answers: Mapping[str, Any] | None = None,
            edit: Any = None,
            by: str | None = None,
        ) -> Self: ...
        def fork_each(self, ways: Sequence[Mapping[str, Any]]) -> list[Self]: ...
        def once(
            self,
            key: str,
            function: Callable[..., T],
            /,
            *args: Any,
            target: str | None = None,
            undo: Callable[..., Any] | None = None,
            reversible: bool | None = None,
            at_most_once: bool = False,
            check_args: bool = True,
            result_type: Any = None,
            **kwargs: Any,
        ) -> T: ...


class AsyncRun(BaseRun[R], Async):
    """The same for async callers: every operation is awaited, and a claim is entered with ``async with``."""

    def claim(self) -> AsyncHolding[R]:
        """Become the one holder of the run: ``async with run.claim():``, or ``await run.claim()``."""
        return AsyncHolding(self)

    if TYPE_CHECKING:

        @overload
        async def result(self, *, timeout: float | None = None) -> R: ...
        @overload
        async def result(self, *, timeout: float | None = None, type: type[T]) -> T: ...
        @overload
        async def result(self, *, timeout: float | None = None, type: Any) -> Any: ...
        async def result(self, *, timeout: float | None = None, type: Any = None) -> Any: ...
        async def fork(
            self,
            at: Point = None,
            *,
            id: str | None = None,
            input: Mapping[str, Any] | None = None,
            results: Mapping[str, Any] | None = None,
            answers: Mapping[str, Any] | None = None,
            edit: Any = None,
            by: str | None = None,
        ) -> Self: ...
        async def fork_each(self, ways: Sequence[Mapping[str, Any]]) -> list[Self]: ...
        @overload
        async def once(
            self,
            key: str,
            function: Callable[..., Awaitable[T]],
            /,
            *args: Any,
            target: str | None = None,
            undo: Callable[..., Any] | None = None,
            reversible: bool | None = None,
            at_most_once: bool = False,
            check_args: bool = True,
            result_type: Any = None,
            **kwargs: Any,
        ) -> T: ...
        @overload
        async def once(
            self,
            key: str,
            function: Callable[..., T],
            /,
            *args: Any,
            target: str | None = None,
            undo: Callable[..., Any] | None = None,
            reversible: bool | None = None,
            at_most_once: bool = False,
            check_args: bool = True,
            result_type: Any = None,
            **kwargs: Any,
        ) -> T: ...
        async def once(self, key: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...


def presented(value: Any, handle: type[BaseRun[Any]]) -> Any:
    """The result of an operation, with handles in place of the runs that the engine works on."""
    if isinstance(value, HeldRun):
        return handle(value)
    if isinstance(value, list) and value and isinstance(value[0], HeldRun):
        return [handle(one) for one in value]
    return value
