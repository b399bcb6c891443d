"""Small durable calls of a workflow that do not wait: time, chance, notes, output, messages to other runs.

They are plain calls in sync and in async workflows. What they gave is journaled, so that a replay gets the same.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

from holdfast.engine.access.operations import Op, Read, drive
from holdfast.engine.access.posting import post_message, was_posted
from holdfast.engine.argument_checks import check_texts
from holdfast.engine.workflow.failures import fail
from holdfast.engine.workflow.outcomes import Continued
from holdfast.engine.workflow.replay import is_replaying
from holdfast.engine.workflow.scope import Scope, current_scope, here
from holdfast.errors import Moved, RunEnded, RunError, RunNotFound, UsageError
from holdfast.kernel.journal import Data
from holdfast.kernel.model import ENDED, Kind
from holdfast.kernel.rules import check_id
from holdfast.views import moment


def _recorded(name: str, make: Callable[[Scope], Any]) -> Any:
    """What ``make`` gave when this call was first made in the run."""
    scope = here(f"{name}()")
    return drive(_record(scope, name, make), scope.execution.committer)


def _record(scope: Scope, name: str, make: Callable[[Scope], Any]) -> Op[Any]:
    execution = scope.execution
    key, n = scope.allot(name)
    found = yield from execution.recall_now(scope, key, n, name)
    if found is not None:
        return execution.value(found, key)
    execution.consume(key)
    value = make(scope)
    stored = execution.codec.encode(value, name)
    yield from execution.write_by([(Kind.DONE, {"key": key, "n": n, "result": stored})], gives=True)
    return value


def now() -> datetime:
    """The time, in UTC; a replay gets the same. Outside of a run: the time."""
    if current_scope.get() is None:
        return datetime.now(UTC)
    return _recorded("now", lambda scope: moment(scope.execution.clock.now()))  # type: ignore[no-any-return]


def random() -> float:
    """A random number from 0 to 1; a replay gets the same."""
    if current_scope.get() is None:
        import random

        return random.random()
    return _recorded("random", lambda scope: int.from_bytes(scope.execution.clock.random_bytes(7)) / (1 << 56))  # type: ignore[no-any-return]


def uuid() -> UUID:
    """A random UUID; a replay gets the same, a fork that makes its own gets another."""
    if current_scope.get() is None:
        from uuid import uuid4

        return uuid4()
    return _recorded("uuid", lambda scope: UUID(bytes=scope.execution.clock.random_bytes(16), version=4))  # type: ignore[no-any-return]


def patched(name: str) -> bool:
    """Whether this run is to take the new way: False for one that had passed this point before the change was made.

    ``if patched("check-stock"): check(order)`` lets old runs keep the old way.
    """
    check_texts(name=name)
    if current_scope.get() is None:
        return True
    scope = here("patched()")
    execution = scope.execution
    if name not in execution.patches:
        key = f"patched:{name}"
        if key in execution.lease.fold.steps:
            execution.patches[name] = True
        elif is_replaying(execution):
            execution.patches[name] = False
        else:
            execution.patches[name] = True
            drive(execution.write_by([(Kind.DONE, {"key": key})], gives=True), execution.committer)
    return execution.patches[name]


def emit(value: Any, *, stream: str = "output") -> None:
    """Add a value to the run's durable output, which others follow with ``run.follow()``."""
    check_texts(stream=stream)
    _say(stream, value)


def note(text: str) -> None:
    """Say how far the run has come. Shown with the run, and followed with ``run.follow("notes")``."""
    check_texts(text=text)
    _say("notes", text)


def _say(stream: str, value: Any) -> None:
    if current_scope.get() is None:
        return
    scope = here("note()" if stream == "notes" else "emit()")
    drive(_emit(scope, stream, value), scope.execution.committer)


def _emit(scope: Scope, stream: str, value: Any) -> Op[None]:
    execution = scope.execution
    key, n = scope.allot("note" if stream == "notes" else "emit")
    if (yield from execution.recall_now(scope, key, n, "emit")) is not None:
        return
    execution.consume(key)
    data: Data = {"key": key, "n": n, "stream": stream, "value": execution.codec.encode(value, "emit.value")}
    yield from execution.write_by([(Kind.EMITTED, data)], "output", told=execution.engine.bell.ring)


def send(run: str, message: Any, *, topic: str | None = None) -> None:
    """Send a message to another run, exactly once. From outside of a workflow, use ``run.send(...)``.

    Raises `RunNotFound`, `RunEnded` if nothing receives it any longer, or `Moved` if that run lives in another store.
    """
    check_texts(topic=topic)
    scope = here("send()")
    drive(_send(scope, check_id(run), message, topic), scope.execution.committer)


def _send(scope: Scope, to: str, message: Any, topic: str | None) -> Op[None]:
    execution = scope.execution
    key, n = scope.allot("send")
    if (yield from execution.recall_now(scope, key, n, "send")) is not None:
        return
    execution.consume(key)
    yield from execution.admit(scope, key, "send", waits=False)
    yield from execution.make_sure()
    refused = yield from execution.unharmed(_post(scope, key, to, message, topic))
    if refused is not None:
        yield from fail(execution, key, {"key": key, "n": n}, refused)
        raise refused
    yield from execution.write([(Kind.DONE, {"key": key, "n": n})])


def _post(scope: Scope, key: str, to: str, message: Any, topic: str | None) -> Op[RunError | None]:
    """Leave the message with the run, if it was not left there before; why it cannot be, if so."""
    engine, own = scope.execution.engine, scope.execution.lease
    unique = f"{own.record.uid}/{scope.execution.era(own.fold.generation)}/{key}"
    record = yield Read(engine.store.get, to)
    if record is None:
        return RunNotFound(to, "there is no such run, so no message can be sent to it")
    if record.status in ENDED and not (yield Read(was_posted, engine, record, unique)):
        return RunEnded(to, f"it is {record.status}, so nothing receives the message")
    try:
        yield from post_message(engine, record, message, topic, unique, by=f"run {own.record.id}")
    except (Moved, RunEnded) as refused:  # that one, and not the run that sends
        return None if (yield Read(was_posted, engine, record, unique)) else refused
    return None


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """Begin the workflow anew with these arguments, under the same id.

    What was done so far is no longer replayed, so that an endless loop stays cheap to resume. Its history stays;
    messages that wait are kept.
    """
    scope = here("continue_as_new()")
    if scope.path:
        raise UsageError("continue_as_new() is for the workflow itself, not for one of its branches")
    bound = scope.execution.workflow.bind(args, kwargs)
    scope.execution.unwind(Continued(*bound))


def this_run() -> str:
    """The id of the run that is being driven here."""
    scope = current_scope.get()
    if scope is None:
        raise UsageError("this_run() works inside of a run")
    return scope.execution.run.id
