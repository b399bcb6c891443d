"""What users declare: workflows and steps.

`workflow` and `step` are decorators that keep the function's signature. A step that is called outside of a run is just
the function; inside one, the call goes to the execution that drives the run (`holdfast.engine.workflow.execution`).
"""

from __future__ import annotations

import inspect
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
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
    cast,
    get_type_hints,
    overload,
)

from msgspec import Struct

from holdfast.engine.argument_checks import check_options, check_texts
from holdfast.engine.workflow.undo_functions import check_signature, declared_name, name_of
from holdfast.errors import UndoRefused, UsageError

if TYPE_CHECKING:
    from holdfast.codec import Codec
    from holdfast.engine.workflow.execution import Execution
    from holdfast.engine.workflow.scope import Scope, StepNow
    from holdfast.kernel.model import RunRecord

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
F = TypeVar("F", bound=Callable[..., Any])

current_scope: ContextVar[Scope | None] = ContextVar("holdfast_scope", default=None)
current_undo: ContextVar[StepNow | None] = ContextVar("holdfast_undo", default=None)
driving: set[int] = set()  # the threads that drive a run now


class Retry(Struct, frozen=True):
    """How a step is tried again: how often, how long to wait in between, and after which errors."""

    times: int = 0
    delay: float = 1.0
    backoff: float = 2.0
    max_delay: float = 60.0
    jitter: bool = True
    on: tuple[type[Exception], ...] = (Exception,)

    def pause(self, attempt: int, chance: float) -> float:
        """Seconds to wait after an attempt (from 1) failed; ``chance`` is between 0 and 1."""
        try:
            seconds = min(self.delay * self.backoff ** (attempt - 1), self.max_delay)
        except OverflowError:  # after some thousand attempts
            seconds = self.max_delay
        return seconds * (0.5 + chance / 2) if self.jitter else seconds


class StepFunction(Generic[P, R_co]):
    """A function whose calls inside a run are checkpointed. What was declared of it are its attributes."""

    name: str
    key: str | None = None
    retry: Retry = Retry()
    timeout: float | None = None
    at_most_once: bool = False
    checker: Callable[..., Any] | None = None
    undo_name: str | None = None
    undo_retry: Retry = Retry(times=2, delay=0.1, max_delay=1.0)
    undo_uncertain: bool = False
    target: str | Callable[..., str] | None = None
    reversible: bool | None = None
    check_args: bool = True
    transactional: bool = False

    def __init__(self, function: Callable[P, R_co], name: str) -> None:
        self.function = function
        self.name = name
        self.is_async = inspect.iscoroutinefunction(function)
        self._types: dict[str, Any] | None = None
        self._signature: inspect.Signature | None = None
        self._look_like(function)
        self.settle_options()

    def _look_like(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", self.name)
        self.__qualname__ = getattr(function, "__qualname__", self.name)
        self.__module__ = getattr(function, "__module__", "")

    def settle_options(self) -> None:
        """Compute what follows from the options."""
        self.has_intent = (
            self.undo_name is not None or self.target is not None or self.reversible is not None or self.at_most_once
        )
        self.is_plain = not self.has_intent and not self.transactional and self.timeout is None

    def __repr__(self) -> str:
        return f"<step {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        scope = current_scope.get()
        if scope is None:
            if driving:
                _warn_if_lost(self.name)
            return self.function(*args, **kwargs)
        return scope.call(self, args, kwargs)  # type: ignore[no-any-return]

    @overload
    def __get__(self, instance: None, owner: type) -> StepFunction[P, R_co]: ...
    @overload
    def __get__(self: StepFunction[Concatenate[S, Q], R], instance: S, owner: type) -> StepFunction[Q, R]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        if self._types is None:
            self._types = annotations_of(self.function)  # here, so that they are not looked up for each call
        bound = self.function.__get__(instance, owner)
        return self._changed(function=bound, __wrapped__=bound, _signature=None)

    def _changed(self, **changes: Any) -> StepFunction[..., R_co]:
        copy: StepFunction[..., R_co] = object.__new__(StepFunction)
        copy.__dict__.update(self.__dict__)
        copy.__dict__.update(changes)
        copy.settle_options()
        return copy

    def options(
        self,
        *,
        key: str | None = None,
        target: str | None = None,
        timeout: float | None = None,
        check_args: bool | None = None,
    ) -> StepFunction[P, R_co]:
        """The same step with something said for one call: ``charge.options(key=tool_use_id)(order)``."""
        check_texts(key=key, target=target)
        check_options(timeout=timeout)
        if key is not None and (not key or "#" in key or key.startswith("patched:")):
            raise UsageError(
                f"step {self.name}: key={key!r}: a key is text that is not empty, has no # and does not begin with "
                "patched:, which are for the keys that Holdfast allots"
            )
        if timeout is not None and self.transactional:
            raise UsageError(f"step {self.name} is transactional, and done in one go; it takes no timeout")
        given = {"key": key, "target": target, "timeout": timeout, "check_args": check_args}
        changes = {name: value for name, value in given.items() if value is not None}
        return cast(StepFunction[P, R_co], self._changed(**changes))

    @overload
    def undo(  # type: ignore[misc, overload-overlap]
        self: Callable[[*Ts], Coroutine[Any, Any, T]], function: Callable[[T, *Ts], S], /
    ) -> Callable[[T, *Ts], S]: ...
    @overload
    def undo(self: Callable[[*Ts], T], function: Callable[[T, *Ts], S], /) -> Callable[[T, *Ts], S]: ...
    @overload
    def undo(
        self: StepFunction[P, Coroutine[Any, Any, T]], function: Callable[Concatenate[T, P], S], /
    ) -> Callable[Concatenate[T, P], S]: ...
    @overload
    def undo(
        self: StepFunction[P, T], function: Callable[Concatenate[T, P], S], /
    ) -> Callable[Concatenate[T, P], S]: ...
    def undo(self, function: Any, /) -> Any:
        """Declare what takes the step back; a rollback calls it with the step's result, then its arguments."""
        _check_own_name(self, function)
        check_signature(function, self.name, self.given())
        self._set_undo(declared_name(function))
        return function

    def _set_undo(self, name: str) -> None:
        self.undo_name = name
        _undone_by[name, self.name] = self
        self.settle_options()

    def given(self) -> list[inspect.Parameter]:
        """The parameters whose arguments are stored: not the object of a method, nor a transaction's connection."""
        found = list(inspect.signature(self.function).parameters.values())
        return found[1:] if self.transactional or (found and found[0].name in ("self", "cls")) else found

    def check(self, function: F) -> F:
        """Declare how to find out whether an at-most-once step that died in the act was done.

        It is called with the step's arguments, and returns `Done` with the result, or `NotDone`.
        """
        if not self.at_most_once:
            raise UsageError(f"step {self.name}: only an at_most_once step has a check; others are simply run again")
        self.checker = function
        return function

    @property
    def result_type(self) -> Any:
        """The annotated type of the result, if any."""
        if self._types is None:
            self._types = annotations_of(self.function)
        return self._types.get("return")

    @property
    def signature(self) -> inspect.Signature:
        """What a call inside a run gives to it."""
        if self._signature is None:
            self._signature = inspect.signature(self.function)
            if self.transactional:  # its first argument is given by the run
                self._signature = self._signature.replace(parameters=[*self._signature.parameters.values()][1:])
        return self._signature

    def entry(self, key: str, n: int | None, digest: str | None) -> dict[str, Any]:
        """What the entry of a call says beside its result: its key, its place, and a digest of its arguments."""
        data: dict[str, Any] = {"key": key}
        if n is not None:
            data["n"] = n
        else:  # a key of the user's own does not tell the name
            data["tool"] = self.name
        if digest is not None:
            data["digest"] = digest
        return data

    def target_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """What a call touches: the declared text with its arguments filled in, or what the declared function says."""
        if self.target is None or callable(self.target):
            return None if self.target is None else str(self.target(*args, **kwargs))
        if "{" not in self.target:
            return self.target
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            return self.target.format(**bound.arguments)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"step {self.name}: target={self.target!r} does not fit its arguments: {error}") from error


_undos: dict[str, tuple[str, Callable[..., Any]]] = {}  # by name: the step that declared it, and the function
_undone_by: dict[tuple[str, str], StepFunction[..., Any]] = {}  # by the names of an undo and of the step


def step_undone_by(undo: str, name: str) -> StepFunction[..., Any] | None:
    """The step of that name which has this undo, if this process has it."""
    return _undone_by.get((undo, name))


def _check_own_name(step: StepFunction[..., Any], function: Any) -> None:
    """An undo is found by its name, so two steps must not have different ones of the same name."""
    name = getattr(function, "__qualname__", "")
    if name.endswith("<lambda>"):
        raise UndoRefused(f"the undo of step {step.name} is a lambda, which has no name to find it by; use def")
    owner = f"{step.__module__}:{step.__qualname__}"
    place = f"{getattr(function, '__module__', None)}:{name}"
    declared_by, other = _undos.get(place, (owner, function))
    if declared_by != owner and other is not function:
        raise UndoRefused(
            f"the undo of step {step.name} is named {name}, and so is that of {declared_by}; an undo is found by its "
            "name, so give each its own"
        )
    _undos[place] = declared_by, function


def _warn_if_lost(name: str) -> None:
    """A thread of one's own does not inherit the run that it was started in."""
    thread = threading.current_thread()
    if thread is not threading.main_thread() and thread.ident not in driving and thread.name.startswith("Thread"):
        warnings.warn(
            f"step {name} is called in {thread.name}, a plain thread, which belongs to no run: nothing of it is kept. "
            "If a workflow started the thread, use holdfast.gather or holdfast.map instead",
            stacklevel=3,
        )


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
        return scope.child(self, given, kwargs)  # type: ignore[no-any-return]

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


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; of one whose annotations cannot be resolved, nothing."""
    try:
        return get_type_hints(getattr(function, "__func__", function))
    except (NameError, TypeError, AttributeError):
        return {}


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
