"""What users declare: workflows and steps.

`workflow` and `step` are decorators that keep the function's signature. A step that is called outside of a run is just
the function; inside one, the call goes to the execution that drives the run (`holdfast.engine.workflow.execution`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    TypeVarTuple,
    overload,
)

from msgspec import Struct

from holdfast.engine.argument_checks import check_options, check_texts
from holdfast.engine.workflow.attempts import Retry
from holdfast.engine.workflow.scope import current_scope, here
from holdfast.engine.workflow.step import StepFunction, annotations_of
from holdfast.engine.workflow.undo_functions import check_signature, name_of
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.codec import Codec
    from holdfast.engine.workflow.execution import Execution
    from holdfast.kernel.model import RunRecord

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
F = TypeVar("F", bound=Callable[..., Any])


class Edited(Struct, frozen=True):
    """What is to be saved after an edit: the delta to what was saved before; or the whole, if there was nothing."""

    delta: dict[str, Any] | None
    tree: dict[str, Any] | None = None


class Workflow(Generic[P, R_co]):
    """A function whose runs are durable."""

    def __init__(
        self,
        function: Callable[P, Any],
        *,
        name: str,
        version: str | None = None,
        on_failure: Literal["fail", "rollback"] = "fail",
        deadline: float | None = None,
        instance: Any = None,
    ) -> None:
        self.function = function
        self.name = name
        self.version = version
        self.on_failure = on_failure
        self.deadline = deadline
        self.instance = instance
        self.is_async = inspect.iscoroutinefunction(function)
        self.signature = inspect.signature(function)
        self._types: dict[str, Any] | None = None
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__

    def __repr__(self) -> str:
        return f"<workflow {self.label}>"

    # Another kind of workflow than a function may say these in its own way.

    state_type: Any = None  # what the states that it saves are read as
    keeps_place: bool = False  # whether it goes on from the state that it saved, and not from the top

    def edit(self, codec: Codec, input: dict[str, Any], saved: Any, update: Any, as_node: str | None) -> Edited | None:
        """What an update by a person makes of what a run has saved; None: what is given is the state as a whole."""
        return None

    def of_run(self, codec: Codec, input: dict[str, Any]) -> Workflow[..., Any]:
        """The workflow of one run: another one, if what it does is in its input.

        Raises `UsageError` if this process lacks what it needs; then the run waits for another one.
        """
        return self

    def completed(self, execution: Execution, value: Any) -> dict[str, Any]:
        """What is kept of what the function gave, when the run is completed."""
        return {"result": execution.codec.encode(value, f"result of {self.name}")}

    @property
    def label(self) -> str:
        """Name and version, for people."""
        return self.name if self.version is None else f"{self.name} (version {self.version})"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        scope = current_scope.get()
        given = args if self.instance is None else (self.instance, *args)
        if scope is None:
            return self.function(*given, **kwargs)  # type: ignore[no-any-return]
        return here(f"workflow {self.name}").child(self, given, kwargs)  # type: ignore[no-any-return]

    @overload
    def __get__(self, instance: None, owner: type) -> Workflow[P, R_co]: ...
    @overload
    def __get__(self: Workflow[Concatenate[S, Q], R], instance: S, owner: type) -> Workflow[Q, R]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        """Of a method: the same for one object, which is stored with the run as its first argument."""
        if instance is None:
            return self
        bound: Workflow[..., R_co] = object.__new__(Workflow)
        bound.__dict__.update(self.__dict__, instance=instance)
        return bound

    if TYPE_CHECKING:

        def _returns(self) -> R_co: ...

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as they are stored: by position where possible. Raises `UsageError` if they do not fit."""
        given = args if self.instance is None else (self.instance, *args)
        try:
            bound = self.signature.bind(*given, **kwargs)
        except TypeError as error:
            raise UsageError(f"workflow {self.name}{self.signature} does not take these arguments: {error}") from None
        return bound.args, bound.kwargs

    def types(self) -> dict[str, Any]:
        """The function's annotations, resolved where possible."""
        if self._types is None:
            self._types = annotations_of(self.function)
        return self._types


if TYPE_CHECKING:

    class AsyncWorkflow(Workflow[P, R_co]):
        """To type checkers, a workflow whose calls are awaited."""

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]: ...  # type: ignore[override]
        @overload
        def __get__(self, instance: None, owner: type) -> AsyncWorkflow[P, R_co]: ...
        @overload
        def __get__(self: AsyncWorkflow[Concatenate[S, Q], R], instance: S, owner: type) -> AsyncWorkflow[Q, R]: ...
        def __get__(self, instance: Any, owner: type) -> Any: ...

    class Takes(Protocol[*Ts, R_co]):
        """To type checkers, a workflow that takes these arguments by position, and whose runs return this."""

        def __call__(self, *args: *Ts) -> Any: ...
        def _returns(self) -> R_co: ...

    class Declare(Protocol):
        """To type checkers, a decorator that makes a workflow of a function."""

        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncWorkflow[P, R]: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Workflow[P, R]: ...


_workflows: dict[str, dict[tuple[str | None, str], Workflow[..., Any]]] = {}  # by name; then version and file


def namesakes(name: str | None, version: str | None) -> list[Workflow[..., Any]]:
    """The workflows of that name and version that this process has."""
    return [one for (known, _), one in _workflows.get(name or "", {}).items() if known == version]


def registered(name: str | None, version: str | None = None, module: str | None = None) -> Workflow[..., Any] | None:
    """The workflow of that name and version, if this process has it. Of several, the one from that module."""
    found = namesakes(name, version)
    if len(found) > 1:
        found = [one for one in found if one.__module__ == module]
    return found[0] if found else None


def state_type(record: RunRecord) -> Any:
    """What the states of a run are read as, if what it is a run of tells."""
    if record.queue is None:
        return None
    known = {one.state_type for one in _workflows.get(record.workflow or "", {}).values()}
    return known.pop() if len(known) == 1 else None


def registered_names() -> frozenset[str]:
    """The names of all workflows that this process has."""
    return frozenset(_workflows)


@overload
def workflow(function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncWorkflow[P, R]: ...
@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str | None = None,
    on_failure: Literal["fail", "rollback"] = "fail",
    deadline: float | None = None,
) -> Declare: ...
def workflow(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: str | None = None,
    on_failure: Literal["fail", "rollback"] = "fail",
    deadline: float | None = None,
) -> Any:
    """Declare a function as a workflow: ``@workflow`` or ``@workflow(version="2", on_failure="rollback")``.

    Its name is how runs find it again, in any process that has imported it. A run keeps the version that it was
    started with: declare the old function beside the new one, each with its version, until the old runs have ended.
    ``deadline`` is how many seconds a run may take as a whole. With ``on_failure="rollback"`` a run that fails undoes
    its effects first.
    """
    if on_failure not in ("fail", "rollback"):
        raise UsageError(f"on_failure is 'fail' or 'rollback', not {on_failure!r}")
    check_texts(name=name, version=version)
    check_options(deadline=deadline)

    def declare(function: Callable[..., Any]) -> Workflow[..., Any]:
        _check_function("workflow", function)
        made: Workflow[..., Any] = Workflow(
            function,
            name=name or function.__qualname__.replace(".<locals>", ""),
            version=version,
            on_failure=on_failure,
            deadline=deadline,
        )
        register(made)
        return made

    return declare(function) if function is not None else declare


def _check_function(what: str, function: Any) -> None:
    if isinstance(function, StepFunction | Workflow):
        raise UsageError(f"{function!r} cannot be a {what} too; a workflow calls steps, each its own function")
    if not callable(function) or isinstance(function, type) or not hasattr(function, "__qualname__"):
        raise UsageError(f"@{what} is for functions, not for {function!r}; wrap it in a function of its own")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        remedy = "use holdfast.emit to stream its output" if what == "workflow" else "return a list"
        raise UsageError(f"{what} {function.__qualname__}: a generator cannot be kept and gone on with; {remedy}")


def register(workflow: Workflow[..., Any]) -> None:
    """Make a workflow known, so that runs of it are found again by its name."""
    _workflows.setdefault(workflow.name, {})[workflow.version, _home(workflow)] = workflow


def _home(workflow: Workflow[..., Any]) -> str:
    """Where a workflow is from: its file, since a script may be imported under a second name."""
    module = sys.modules.get(workflow.__module__)
    return getattr(module, "__file__", None) or workflow.__module__


@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retries: int = 0,
    delay: float = 1.0,
    backoff: float = 2.0,
    max_delay: float = 60.0,
    jitter: bool = True,
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
    timeout: float | None = None,
    at_most_once: bool = False,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    undo_retries: int = 2,
    undo_uncertain: bool = False,
    target: str | Callable[..., str] | None = None,
    reversible: bool | None = None,
    check_args: bool = True,
    transactional: Literal[False] = False,
) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...
@overload
def step(
    *,
    name: str | None = None,
    retries: int = 0,
    delay: float = 1.0,
    backoff: float = 2.0,
    max_delay: float = 60.0,
    jitter: bool = True,
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
    undo: Callable[..., Any] | None = None,
    undo_retries: int = 2,
    undo_uncertain: bool = False,
    target: str | Callable[..., str] | None = None,
    reversible: bool | None = None,
    check_args: bool = True,
    transactional: Literal[True],
) -> Callable[[Callable[Concatenate[Any, P], R]], StepFunction[P, R]]: ...
def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    retries: int = 0,
    delay: float = 1.0,
    backoff: float = 2.0,
    max_delay: float = 60.0,
    jitter: bool = True,
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
    timeout: float | None = None,
    at_most_once: bool = False,
    check: Callable[..., Any] | None = None,
    undo: Callable[..., Any] | None = None,
    undo_retries: int = 2,
    undo_uncertain: bool = False,
    target: str | Callable[..., str] | None = None,
    reversible: bool | None = None,
    check_args: bool = True,
    transactional: bool = False,
) -> Any:
    """Declare a function as a step: ``@step`` or ``@step(retries=3, timeout=10)``.

    Inside a run its result is kept, and the call is not made again. ``retries`` tries it again after errors of
    ``retry_on``, waiting ``delay`` seconds, then ``backoff`` times as long, up to ``max_delay``. ``at_most_once``
    promises that it is never run twice: if its process dies in the act, or it raises, ``check`` (or a person) says
    whether it was done; ``retries`` then counts for `NotDone` alone, which says that it is safe to try again.
    ``undo`` takes it back in a rollback, tried again up to ``undo_retries`` times; with ``undo_uncertain`` it is also
    called, with None as the result, if it is not known whether the step was done. ``target`` names what it touches
    (text with the names of arguments in braces, or a function of them). ``transactional`` gives it the store's own
    connection as its first argument, and commits what it does together with its result.
    """
    check_texts(name=name)
    check_options(retries=retries, delay=delay, backoff=backoff, max_delay=max_delay, timeout=timeout)
    check_options(undo_retries=undo_retries)
    on = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in on):
        raise UsageError(f"retry_on={retry_on!r}: takes an Exception class, or a tuple of them")
    if check is not None and not at_most_once:
        raise UsageError("check= is for at_most_once steps; others are simply run again")

    def declare(function: Callable[..., Any]) -> StepFunction[..., Any]:
        _check_function("step", function)
        if transactional and inspect.iscoroutinefunction(function):
            raise UsageError(f"step {function.__qualname__}: a transactional step is a plain function, not async")
        if transactional and (at_most_once or timeout is not None):
            raise UsageError(
                f"step {function.__qualname__}: a transactional step is done exactly once, and in one go; it takes "
                "neither at_most_once nor a timeout"
            )
        made: StepFunction[..., Any] = StepFunction(function, _plain(name or function.__name__))
        made.retry = Retry(retries, delay, backoff, max_delay, jitter, on)
        made.timeout = timeout
        made.at_most_once = at_most_once
        made.checker = check
        made.undo_retry = Retry(times=undo_retries, delay=0.1, max_delay=1.0)
        made.undo_uncertain = undo_uncertain
        made.target = target
        made.reversible = reversible
        made.check_args = check_args
        made.transactional = transactional
        if undo is not None:
            name_of_undo = name_of(undo)
            check_signature(undo, made.name, made.given())
            made._set_undo(name_of_undo)
        made.settle_options()
        return made

    return declare(function) if function is not None else declare


def _plain(name: str) -> str:
    """A name that does not look like a part of a key."""
    return name.replace("/", "_").replace("#", "_")
