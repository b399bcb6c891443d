"""A step: the function that was declared as one, and how a call of it gets its result.

`perform` is how every call is made: it finds the stored result, or makes attempts until there is one. Most steps have
no intent, no timeout and no transaction, and succeed at once. They take a fast path beside it, `_at_once`, which falls
back to `perform` as soon as anything else happens: the step fails, or other branches have their turn. In paired and
interleaved runs it made a step in memory 1.4 times as fast (1.5 on an event loop), and one on SQLite 1.2 (1.3).
"""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from time import monotonic
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    TypeVarTuple,
    cast,
    get_type_hints,
    overload,
)

import msgspec
from msgspec import Struct

from holdfast.engine.access.operations import Op, drive, drive_async, refuse_awaitable
from holdfast.engine.argument_checks import check_options, check_texts
from holdfast.engine.log import DEBUG, is_told
from holdfast.engine.workflow.attempts import Retry, attempts, failed_attempt
from holdfast.engine.workflow.effect_step import act
from holdfast.engine.workflow.outcomes import Aborted
from holdfast.engine.workflow.replay import check_same
from holdfast.engine.workflow.scope import Scope, StepScope, current_scope, driving
from holdfast.engine.workflow.undo_functions import check_signature, declared_name
from holdfast.errors import HoldfastError, UndoRefused, UsageError, ValueRefused
from holdfast.kernel.fold import Step
from holdfast.kernel.journal import Data, note_seconds
from holdfast.kernel.model import Kind

if TYPE_CHECKING:
    from holdfast.engine.access.commit import Ticket
    from holdfast.engine.workflow.execution import Execution

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
F = TypeVar("F", bound=Callable[..., Any])

DONE = Kind.DONE.value  # a plain text: the garbage collector need not look after what holds nothing else


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
        if type(scope) is not Scope or scope.parent or scope.stopped or scope.execution.outcome is not None:
            scope.check(f"step {self.name}")
        assert isinstance(scope, Scope)
        return _call(scope, self, args, kwargs)  # type: ignore[no-any-return]

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

    def by_position(self, trees: list[Any], named: dict[str, Any]) -> list[Any]:
        """Stored arguments in one order: the same for one that is given by its name as for one given by position."""
        if named:
            with suppress(TypeError):  # they do not fit, which the call itself will say
                bound = self.signature.bind(*trees, **named)
                return [list(bound.args), bound.kwargs]
        return [trees, named]

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


class StepCall(Struct, eq=False):
    """One call of a step: where it is made, under which key, and with what."""

    scope: Scope
    execution: Execution
    key: str
    n: int | None  # its number among the calls of its scope; None if its key was given
    step: StepFunction[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    trees: list[Any] | None = None  # the arguments as they are stored, and a digest of them
    named: dict[str, Any] = {}
    digest: str | None = None

    def describe(self) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as they are stored; also sets their digest. Raises what keeps them from being stored."""
        if self.trees is None:
            step, codec = self.step, self.execution.codec
            trees, named = (
                codec.encode_call(step.name, self.args, self.kwargs) if self.args or self.kwargs else ([], {})
            )
            if step.check_args:
                self.digest = codec.short_digest(step.by_position(trees, named)) if trees or named else ""
            self.trees, self.named = trees, named
        return self.trees, self.named

    def entry(self) -> Data:
        """What its entries say beside the result: its key, its place, and a digest of its arguments."""
        data: Data = {"key": self.key}
        if self.n is not None:
            data["n"] = self.n
        else:  # a key of the user's own does not tell the name
            data["tool"] = self.step.name
        if self.digest is not None:
            data["digest"] = self.digest
        return data


def _call(scope: Scope, step: StepFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a step of the run: its result, or of an async step what to await for it."""
    execution = scope.execution
    if step.is_async and not execution.may_await:
        workflow = execution.workflow
        caller = f"workflow {workflow.name}" if not workflow.is_async else f"what calls it in {workflow.name}"
        raise UsageError(
            f"step {step.name} is async, and {caller} is not, so nobody awaits it; declare "
            f"{'that' if workflow.is_async else 'the workflow'} with async def"
        )
    if step.key is None:  # as `Scope.allot` does it
        scope.calls = n = scope.calls + 1
        count = scope.counters[step.name] = scope.counters.get(step.name, 0) + 1
        call = StepCall(scope, execution, f"{scope.path}{step.name}#{count}", n, step, args, kwargs)
    else:
        execution.codec.refuse_secrets(msgspec.json.encode(step.key), f"key of step {step.name}")
        call = StepCall(scope, execution, step.key, None, step, args, kwargs)
    is_fast = step.is_plain and execution.engine.tracer is None
    if not step.is_async:
        return _at_once(call) if is_fast else execution.carry_out(execution.step(call))
    awaitable: Any = _at_once_async(call) if is_fast else drive_async(execution.step(call), execution.committer)
    awaitable.__qualname__ = step.name  # what Python says was never awaited, if it was not
    return awaitable


# --- the general form


def perform(call: StepCall) -> Op[Any]:
    """The result of a step: the stored one, or that of executing it now."""
    stored = call.describe()
    execution, scope, key, n, step, digest = call.execution, call.scope, call.key, call.n, call.step, call.digest
    if execution.find(scope, key, n, digest) is not None:
        found = yield from execution.recall(scope, key, n, step.name, digest, in_turn=step.is_async, call=stored)
        assert found is not None
        return execution.value(found, key, step.result_type)
    fold = execution.lease.fold
    if fold.intents and (begun := fold.intents.get(key)) is not None:
        declared = fold.ledger[begun].data
        recorded = Step(begun, declared.get("tool"), declared.get("digest"), None)
        check_same(execution, key, step.name, recorded, digest, stored)
    execution.consume(key)
    yield from execution.admit(scope, key, step.name, digest, waits=step.is_async)
    if key in execution.called:
        raise UsageError(f"step {key!r} of run {execution.run.id!r} is running already; give each call its own key")
    data = call.entry()
    make = act if step.has_intent else attempts
    execution.called.add(key)
    execution.active[key] = monotonic()
    try:
        yield from execution.make_sure()
        if execution.engine.tracer is None:
            return (yield from make(call, data))
        with execution.engine.tracer.step(execution, step, key):
            return (yield from make(call, data))
    finally:
        execution.active.pop(key, None)
        execution.called.discard(key)


# --- the fast path


def _at_once(call: StepCall) -> Any:
    """The result of a plain step that is a plain function."""
    execution, key, step = call.execution, call.key, call.step
    committer = execution.committer
    committer.check_process()
    data = _start(call)
    if type(data) is Step:
        return execution.value(data, key, step.result_type)
    if type(data) is not dict:
        return execution.carry_out(execution.step(call))
    try:
        token = current_scope.set(StepScope(execution, key, 1))
        try:
            result = step.function(*call.args, **call.kwargs)
            if hasattr(result, "__await__"):
                refuse_awaitable(result, step.function)
        finally:
            current_scope.reset(token)
        ticket = _submit(call, data, result)
    except Exception as error:  # of the user's function, which may raise anything
        return execution.carry_out(_again(call, data, error))
    else:
        try:
            committer.settle(ticket)
        except HoldfastError:
            drive(execution.settle(ticket), committer)  # which says what follows from it
        return result
    finally:
        execution.active.pop(key, None)
        execution.called.discard(key)


async def _at_once_async(call: StepCall) -> Any:
    """The same for a coroutine function."""
    execution, key, step = call.execution, call.key, call.step
    committer = execution.committer
    committer.check_process()
    data = _start(call) if execution.is_alone() else None
    if type(data) is Step:
        return execution.value(data, key, step.result_type)
    if type(data) is not dict:
        return await drive_async(execution.step(call), committer)
    try:
        token = current_scope.set(StepScope(execution, key, 1))
        try:
            result = await step.function(*call.args, **call.kwargs)
        finally:
            current_scope.reset(token)
        ticket = _submit(call, data, result)
    except Exception as error:  # of the user's function, which may raise anything
        return await drive_async(_again(call, data, error), committer)
    else:
        try:
            await committer.settle_async(ticket)
        except HoldfastError:
            await drive_async(execution.settle(ticket), committer)
        return result
    finally:
        execution.active.pop(key, None)
        execution.called.discard(key)


def _start(call: StepCall) -> Data | Step | None:
    """The stored result; of a new call, what its entry begins with; None if the fast path ends here."""
    execution, key = call.execution, call.key
    lease, worker = execution.lease, execution.engine.worker
    fold = lease.fold
    if key in fold.failures or key in fold.attempts or key in fold.intents or key in execution.called:
        return None
    if is_told(DEBUG):
        return None
    stored = call.describe()
    digest = call.digest
    if key in fold.steps or execution.replays or "deadline" in fold.input:
        found = execution.find(call.scope, key, call.n, digest)
        if found is not None:
            if type(found) is not Step or found.erased:
                return None
            check_same(execution, key, call.step.name, found, digest, stored)
            execution.consume(key)
            execution.given(found.seq)
            return found
    if execution.unsure is not None or execution.gate is not None or execution.gave_way:
        return None
    if execution.clock.monotonic_ns() // 1000 >= worker.until or lease.lapses != worker.lapses:  # see `Worker.confirm`
        return None
    execution.consumed.add(key)
    execution.called.add(key)
    execution.active[key] = monotonic()
    return call.entry()


def _submit(call: StepCall, data: Data, result: Any) -> Ticket:
    """Put the result in line to be journaled."""
    execution, what = call.execution, f"result of {call.key}"
    note_seconds(data, monotonic() - execution.active[call.key])
    data["result"] = None if result is None else execution.codec.encode(result, what)
    if execution.passing is not None:
        return execution.submit([(DONE, data)], what)
    try:
        return execution.lease.append(DONE, data, what)
    except ValueRefused:
        raise
    except HoldfastError as error:
        execution.unwind(Aborted(error))


def _again(call: StepCall, data: Data, error: Exception) -> Op[Any]:
    """After the first attempt failed, what there is to do."""
    data.pop("result", None)  # what cannot be kept
    data.pop("seconds", None)
    yield from failed_attempt(call, data, 1, error)
    return (yield from attempts(call, data))


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; of one whose annotations cannot be resolved, nothing."""
    try:
        return get_type_hints(getattr(function, "__func__", function))
    except (NameError, TypeError, AttributeError):
        return {}
