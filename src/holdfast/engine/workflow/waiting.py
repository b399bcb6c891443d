"""What a workflow can wait for: a moment, a person's answer, a message.

Each wait is journaled when it begins (with the moment at which it is over) and when it ends, so that a replay agrees.
In an async workflow they are awaited; in a sync one they are plain calls. While a run waits, no thread and no lease is
held for it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

from holdfast.engine.access.operations import Call, Nap, Op, Read
from holdfast.engine.access.posting import post_answer
from holdfast.engine.argument_checks import check_texts, micros_of, seconds_of
from holdfast.engine.workflow.failures import describe, fail
from holdfast.engine.workflow.replay import caller, check_same
from holdfast.engine.workflow.scope import Scope, here
from holdfast.errors import TimedOut, UsageError
from holdfast.forms import Form, Misfit, check_answer, form_differences, form_of, load_form, store_form, typed
from holdfast.kernel.fold import Asked, Step, name_in, question_id, words_digest
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Kind

if TYPE_CHECKING:
    from holdfast.engine.workflow.execution import Execution

T = TypeVar("T")
D = TypeVar("D")

IN_PLACE = 1_000_000  # microseconds; shorter waits do not give the run up


class _Unset:
    def __repr__(self) -> str:
        return "(none)"


UNSET: Any = _Unset()


def wait(
    execution: Execution,
    scope: Scope,
    key: str,
    until: int | None,
    ready: Callable[[], bool] = lambda: False,
    look: Callable[[], object] | None = None,
) -> Op[bool]:
    """Wait until something is there, or until a moment (then False).

    ``look`` asks the store for what ``ready`` needs.
    """
    is_async = execution.workflow.is_async
    while True:
        stirs = execution.stirs
        if look is not None:
            yield Read(look)
        if ready():
            break
        left = None if until is None else until - execution.clock.now()
        is_over = left is not None and left <= 0
        if is_over or not is_async:  # what came in time counts, also if nobody has looked into the inbox since
            yield from execution.take_in()
            if look is not None:
                yield Read(look)
            if ready():
                break
        if is_over:
            return False
        if left is not None and left <= IN_PLACE and not is_async:
            yield Nap(execution.clock, left / 1_000_000)
            continue
        if stirs == execution.stirs:  # else something came while the store was asked, and was not seen by it
            yield Call(execution.suspend, (scope, key, until), {})
    return True


def wait_until(execution: Execution, scope: Scope, key: str, until: int) -> Op[None]:
    """Wait until a moment."""
    yield from wait(execution, scope, key, until)


def timer(
    execution: Execution, scope: Scope, key: str, n: int, seconds: float | None, at: int | None = None
) -> Op[int]:
    """The recorded moment at which a wait is over; recorded now if it just begins."""
    execution.consume(key)
    until = execution.lease.fold.timers.get(key)
    if until is None:
        yield from execution.admit(scope, key, name_in(key))
        until = at if at is not None else execution.clock.now() + round((seconds or 0) * 1_000_000)
        yield from execution.write([(Kind.TIMER, {"key": key, "n": n, "until": until})])
    return until


def sleep(duration: float | timedelta | None = None, *, until: datetime | None = None) -> None:
    """Wait for some seconds, or until a moment, however long: it survives the process. Await it in async workflows."""
    scope = here("sleep()")
    if (duration is None) == (until is None):
        raise UsageError("sleep() takes seconds (or a timedelta), or until=")
    seconds = seconds_of("duration", duration) if duration is not None else None
    waiting = _sleep(scope, scope.allot("sleep"), seconds, micros_of("until", until))
    return scope.execution.perform(waiting)  # type: ignore[no-any-return]


def _sleep(scope: Scope, call: tuple[str, int], seconds: float | None, at: int | None) -> Op[None]:
    execution = scope.execution
    key, n = call
    if (yield from execution.recall(scope, key, n, "sleep", None)) is not None:
        return
    until = yield from timer(execution, scope, key, n, seconds, at)
    yield from wait_until(execution, scope, key, until)
    yield from execution.in_turn((yield from execution.write([(Kind.DONE, {"key": key})])))


@overload
def ask(prompt: str, kind: type[T], *, timeout: float | timedelta | None = None) -> T: ...
@overload
def ask(prompt: str, kind: type[T], *, timeout: float | timedelta | None = None, default: D) -> T | D: ...
@overload
def ask(prompt: str, kind: Any = None, *, timeout: float | timedelta | None = None, default: Any = UNSET) -> Any: ...
def ask(prompt: str, kind: Any = None, *, timeout: float | timedelta | None = None, default: Any = UNSET) -> Any:
    """Ask a person; the answer is what comes back. Await it in async workflows.

    ``kind`` says what is asked for: a dataclass, msgspec struct, pydantic model or TypedDict (a form with these
    fields), a Literal or enum (a choice), a simple type, or a list of `Field`. An answer that does not fit is refused
    where it is given. After ``timeout`` the answer is ``default``, or `TimedOut` is raised if there is none.
    """
    scope = here("ask()")
    check_texts(prompt=prompt)
    seconds = seconds_of("timeout", timeout) if timeout is not None else None
    form = form_of(kind)
    if default is not UNSET and default is not None:
        scope.execution.codec.encode(check_answer(scope.execution.run.id, form, default), "default")
    return scope.execution.perform(_ask(scope, scope.allot("ask"), prompt, kind, form, seconds, default))


def _ask(
    scope: Scope, call: tuple[str, int], prompt: str, kind: Any, form: Form, seconds: float | None, default: Any
) -> Op[Any]:
    execution = scope.execution
    key, n = call
    digest = words_digest(prompt)
    found = yield from execution.recall(scope, key, n, "ask", digest, call=([prompt], {}))
    if found is None:
        asked = yield from _open_question(execution, scope, key, n, prompt, form, seconds)

        def ready() -> bool:
            return asked.seq not in execution.lease.fold.questions

        answered = yield from wait(execution, scope, key, asked.until, ready)
        if not answered:
            yield from _answer_by_default(execution, asked, form, default)
        found = yield from execution.recall(scope, key, None, "ask", digest)
        if found is None:  # it was closed, since another branch had won
            yield Call(execution.suspend, (scope, key, None), {})
        assert found is not None
    value = execution.value(found, key)
    if value is None:
        return None
    try:
        return typed(kind, value)
    except Misfit as misfit:  # it was accepted, so the code has changed since
        _block_misfit(execution, key, found, form, misfit)


def _block_misfit(execution: Execution, key: str, found: Step, form: Form, misfit: Misfit) -> NoReturn:
    """Block the run: an answer that was accepted does not fit what the code asks for now."""
    log = execution.lease.fold.log
    asked, before = next(
        (
            (seq, load_form(data["fields"]))
            for seq, kind, _, data in log
            if kind == Kind.ASKED and data.get("key") == key
        ),
        (None, form),
    )
    told = ""
    if execution.lease.record.key_id is None:  # a reason stands in the clear
        changed = "; ".join(form_differences(before, form)) or "what its own validators take"
        told = execution.codec.scrub(f": {'; '.join(misfit.problems)}. Changed since it was asked: {changed}")
    again = "" if asked is None else f"; or roll back to entry {asked - 1}, and it is asked anew"
    execution.park(
        f"the code no longer does what was recorded: the answer to {key!r} at entry {found.seq} does not fit what is "
        f"asked for now, at {caller()}{told}. Put back what it asked for, and run.unblock(){again}; or fork the run "
        f"with results={{{key!r}: ...}}"
    )


def _answer_by_default(execution: Execution, asked: Asked, form: Form, default: Any) -> Op[None]:
    """Say that a question's time is over, in the way that anybody answers it: so an answer that comes in the same
    moment is either the one that counts, or is refused.
    """
    over: Data = {}
    if default is UNSET:
        late = TimedOut(execution.run.id, f"the question {asked.prompt!r} was not answered in time")
        over["failure"] = describe(late, execution.codec)
    else:
        value = default if default is None else check_answer(execution.run.id, form, default)
        over["value"] = execution.codec.encode(value, "default")
    id = question_id(execution.run.uid, asked)
    yield from execution.unharmed(post_answer(execution.run, id, asked.seq, over))
    yield from execution.take_in()


def _open_question(
    execution: Execution, scope: Scope, key: str, n: int, prompt: str, form: Form, seconds: float | None
) -> Op[Asked]:
    execution.consume(key)
    for asked in execution.lease.fold.questions.copy().values():  # other branches ask at the same time
        if asked.key == key:
            if key not in execution.lease.fold.accepted:
                recorded = Step(asked.seq, None, words_digest(asked.prompt), None)
                check_same(execution, key, "ask", recorded, words_digest(prompt), ([prompt], {}))
            return asked
    yield from execution.admit(scope, key, "ask", words_digest(prompt))
    data: Data = {"key": key, "n": n, "prompt": prompt, "fields": store_form(form), "output_key": key}
    if seconds is not None:
        data["until"] = execution.clock.now() + round(seconds * 1_000_000)
    seq = yield from execution.write([(Kind.ASKED, data)], "question")
    execution.engine.bell.ring()
    return execution.lease.fold.questions[seq]


@overload
def receive(topic: str | None = None, *, type: type[T], timeout: float | timedelta | None = None) -> T: ...
@overload
def receive(
    topic: str | None = None, *, type: type[T], timeout: float | timedelta | None = None, default: D
) -> T | D: ...
@overload
def receive(
    topic: str | None = None, *, type: Any = None, timeout: float | timedelta | None = None, default: Any = UNSET
) -> Any: ...
def receive(
    topic: str | None = None,
    *,
    type: Any = None,
    timeout: float | timedelta | None = None,
    default: Any = UNSET,
) -> Any:
    """The next message that was sent to this run under this topic. Await it in async workflows.

    ``type`` is what it is read as, if its class is not registered. After ``timeout`` it is ``default``, or
    `TimedOut` is raised if there is none; which of the two happened is recorded.
    """
    scope = here("receive()")
    check_texts(topic=topic)
    seconds = seconds_of("timeout", timeout) if timeout is not None else None
    if default is not UNSET:
        scope.execution.codec.encode(default, "default")
    return scope.execution.perform(_receive(scope, scope.allot("receive"), topic, type, seconds, default))


def _receive(
    scope: Scope, call: tuple[str, int], topic: str | None, kind: Any, seconds: float | None, default: Any
) -> Op[Any]:
    execution = scope.execution
    key, n = call
    digest = words_digest(topic)
    found = yield from execution.recall(scope, key, n, "receive", digest, call=([topic], {}))
    if found is not None:
        return execution.value(found, key, kind)
    execution.consume(key)
    if seconds is None:
        yield from execution.admit(scope, key, "receive", digest)
    until = None if seconds is None else (yield from timer(execution, scope, key, n, seconds))

    def ready() -> bool:
        return any(message.topic == topic for message in execution.lease.fold.mailbox)

    while True:
        in_time = yield from wait(execution, scope, key, until, ready)
        with execution.lease.lock:
            fold = execution.lease.fold
            message = next((message for message in fold.mailbox if message.topic == topic), None)
            if message is not None:
                data: Data = {"key": key, "n": n, "digest": digest, "message": message.seq, "result": message.value}
                ticket = execution.submit([(Kind.DONE, data)])
        if message is not None:
            yield from execution.settle(ticket)
            done = execution.lease.fold.steps[key]
            yield from execution.in_turn(done.seq)
            return execution.value(done, key, kind)
        if not in_time:
            break
    if default is UNSET:
        error = TimedOut(execution.run.id, f"no message of topic {topic!r} came in time")
        yield from execution.in_turn((yield from fail(execution, key, {"key": key, "n": n}, error)))
        raise error
    stored = execution.codec.encode(default, "default")
    seq = yield from execution.write([(Kind.DONE, {"key": key, "n": n, "result": stored})])
    yield from execution.in_turn(seq)
    return default
