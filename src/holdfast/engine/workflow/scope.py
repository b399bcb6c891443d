"""Where in a run a call is made. Keys come from here: the path of branches, the name, and a counter."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from holdfast.engine.workflow.outcomes import Unwind
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.engine.workflow.concurrency.branches import Slot
    from holdfast.engine.workflow.declare import Workflow
    from holdfast.engine.workflow.execution import Execution


class StepNow(Struct, frozen=True):
    """What a step can know of itself while it runs: see `this_step`."""

    run: str
    key: str
    attempt: int
    idempotency_key: str


class StepScope(Struct, frozen=True, eq=False):
    """Inside of a step: its calls are not the run's business."""

    execution: Execution
    key: str
    attempt: int

    def check(self, what: str) -> NoReturn:
        """Raise `UsageError`: no durable call is made inside of a step."""
        raise UsageError(
            f"{what} is called inside of step {self.key!r} of run {self.execution.run.id!r}; a step is one "
            "act that is done or not: call it from the workflow instead (or a step's plain function, as "
            "name.function)"
        )


class Scope:
    """Where in a run a call is made: the run's execution, and the path of branches that leads there."""

    __slots__ = ("calls", "counters", "execution", "parent", "path", "slot", "stopped", "unnamed")

    def __init__(self, execution: Execution, path: str | None, parent: Scope | None = None) -> None:
        self.execution = execution
        if path is not None:
            self.path: str = path
        self.parent = parent
        self.calls = 0
        self.counters: dict[str, int] = {}
        self.unnamed: list[tuple[Scope, Callable[[], str]]] | None = None  # of the tasks that were created here
        self.stopped = False
        self.slot: Slot | None = None  # of a branch of a sync workflow

    def allot(self, name: str) -> tuple[str, int]:
        """The key of the next call of that name, and the number of the call in this scope."""
        self.calls += 1
        count = self.counters[name] = self.counters.get(name, 0) + 1
        return f"{self.path}{name}#{count}", self.calls

    def branch(self, name: str) -> Scope:
        """A scope for a branch."""
        return Scope(self.execution, f"{self.path}{name}/", parent=self)

    def task(self, name: Callable[[], str]) -> Scope:
        """A scope for a task, which is called ``name()``: that is asked later, since a task gets its name last."""
        scope = Scope(self.execution, None, parent=self)
        self.unnamed = self.unnamed or []
        self.unnamed.append((scope, name))
        return scope

    def name_tasks(self) -> None:
        """Name the tasks that were created here, in the order of their creation, with a counter for each name."""
        unnamed, self.unnamed = self.unnamed, None
        for scope, name_of in unnamed or ():
            name = name_of()
            count = self.counters[f"{name}~"] = self.counters.get(f"{name}~", 0) + 1
            scope.path = f"{self.path}{name}~{count}/"

    def __getattr__(self, name: str) -> Any:
        """The path of a task that nobody has needed yet."""
        if name != "path" or self.parent is None:
            raise AttributeError(name)
        self.parent.name_tasks()
        return self.path

    @property
    def is_over(self) -> bool:
        """Whether nothing new may be done here: this branch, or one that it belongs to, was stopped."""
        scope: Scope | None = self
        while scope is not None:
            if scope.stopped:
                return True
            scope = scope.parent
        return False

    def _slots(self) -> list[Slot]:
        """The slots of this branch and of those around it, the innermost first."""
        found: list[Slot] = []
        scope: Scope | None = self
        while scope is not None:
            if scope.slot is not None:
                found.append(scope.slot)
            scope = scope.parent
        return found

    def give_slots_back(self) -> None:
        """Let other branches run while this one does nothing."""
        for slot in self._slots():
            self.execution.gave_way = True
            slot.give_back()

    def take_slots(self) -> None:
        """Wait until this branch may run again. The outermost comes first, so that nobody waits in a circle."""
        for slot in reversed(self._slots()):
            slot.take()

    def check(self, what: str) -> None:
        """Raise `Unwind` if nothing new may be done here."""
        if self.execution.outcome is not None or self.is_over:
            self.execution.count_unwind()
            raise Unwind

    def child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a workflow as a part of the run."""
        call = self.allot(child_name(workflow))
        return self.execution.perform(self.execution.engine.upcalls.call_child(self, call, workflow, args, kwargs))


def child_name(workflow: Workflow[..., Any]) -> str:
    """What a workflow is called in the keys of its parent."""
    return workflow.name.replace("/", "_").replace("#", "_")


current_scope: ContextVar[Scope | StepScope | None] = ContextVar("holdfast_scope", default=None)
current_undo: ContextVar[StepNow | None] = ContextVar("holdfast_undo", default=None)
driving: set[int] = set()  # the threads that execute a run now


def here(what: str) -> Scope:
    """The scope of the run that is being executed here; raises `UsageError` if there is none."""
    scope = current_scope.get()
    if scope is None:
        raise UsageError(f"{what} works inside of a workflow that a run is driving: hf.start(workflow, ...)")
    scope.check(what)
    assert isinstance(scope, Scope)
    return scope
