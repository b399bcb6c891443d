"""The attempts at a step: one after the other, until it succeeds or its retries are used up, and how it went."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.engine.access.operations import Call, Op, Read
from holdfast.engine.log import DEBUG, INFO, WARNING, is_told, tell
from holdfast.engine.workflow.effects_in_flight import Cancellation, uninterrupted
from holdfast.engine.workflow.failures import fail, one_line
from holdfast.engine.workflow.outcomes import Aborted
from holdfast.engine.workflow.scope import Scope, StepScope, current_scope
from holdfast.engine.workflow.waiting import wait_until
from holdfast.errors import HoldfastError, NotDone, StepTimeout, UsageError, ValueRefused
from holdfast.kernel.journal import Data, note_seconds
from holdfast.kernel.model import Kind

if TYPE_CHECKING:
    from holdfast.codec import Codec
    from holdfast.engine.workflow.execution import Execution
    from holdfast.engine.workflow.step import StepCall, StepFunction


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


def attempts(call: StepCall, data: Data) -> Op[Any]:
    """Run the step until it succeeds or its retries are used up, and journal how it went."""
    execution, key = call.execution, call.key
    before = execution.lease.fold.attempts.get(key)
    attempt = 0
    if before is not None:
        attempt = before.count
        yield from pause(execution, call.scope, key, before.until)
    while True:
        attempt += 1
        yield from _intend_again(execution, call.step, data, attempt)
        try:
            return (yield from once(call, attempt, data))
        except Exception as error:  # of the user's function, which may raise anything
            yield from failed_attempt(call, data, attempt, error)


def _intend_again(execution: Execution, step: StepFunction[..., Any], data: Data, attempt: int) -> Op[None]:
    """Say of an effect that it is tried again, so that a crash in this attempt is no less visible than in the first."""
    failed = execution.lease.fold.attempts.get(data["key"])
    if "intent" in data and failed is not None and not failed.begun:
        line: Data = {"key": data["key"], "again": data["intent"], "attempt": attempt, "tool": step.name}
        yield from execution.write([(Kind.INTENDED, line)])


def failed_attempt(call: StepCall, data: Data, attempt: int, error: Exception) -> Op[None]:
    """After an attempt that failed: wait for the next one. If it was the last, raises the error."""
    execution, step = call.execution, call.step
    # What is wrong with the code, or with its result, is no better the next time.
    lasting = isinstance(error, UsageError | ValueRefused)
    again = attempt <= step.retry.times and isinstance(error, step.retry.on) and not lasting
    if not again:
        last = {**data, "attempt": attempt}
        if step.has_intent and _is_uncertain(step, error):
            last["uncertain"] = True
        tell_time(last, execution.active.get(data["key"]))
        yield from fail(execution, data["key"], last, error)
        raise error
    yield from retry_later(call, data, attempt, error)


def once(call: StepCall, attempt: int, data: Data) -> Op[Any]:
    """One attempt, and its result in the journal. What cannot be kept is an error of the step."""
    execution, key, step = call.execution, call.key, call.step
    yield from execution.unharmed(execution.run.confirm(execution.lease))
    token = current_scope.set(StepScope(execution, key, attempt))
    execution.active[key] = since = time.monotonic()
    cancellation = None
    try:
        if step.transactional:
            return (yield from _transact(call, attempt, data))
        if step.timeout is not None:
            request = Call(timed, (call,), {})
        else:
            request = Call(step.function, call.args, call.kwargs)
        if step.has_intent and step.is_async:
            cancellation = Cancellation()
            request = Call(uninterrupted, (execution, key, request, cancellation), {})
        if execution.engine.tracer is None:
            result = yield request
        else:
            with execution.engine.tracer.attempt(execution, key, attempt):
                result = yield request
    except Exception as error:  # of the user's function, which may raise anything
        if cancellation is not None and cancellation.came:  # nobody waits for another attempt
            yield from _broken_off(execution, step, {**data, "attempt": attempt}, error)
            cancellation.deliver()
        raise
    finally:
        current_scope.reset(token)
    done = done_entry(data, result, since, execution.codec, attempt)
    yield from execution.settle(execution.submit([(Kind.DONE, done)], f"result of {key}"))
    if is_told(DEBUG):
        tell(DEBUG, "step.done", "run {run}: step {step} done", run=execution.run.id, step=key, attempt=attempt)
    if cancellation is not None:
        cancellation.deliver()
    return result


def tell_time(data: Data, since: float | None) -> None:
    """Put into an entry how long its call took, if it was called."""
    if since is not None:
        note_seconds(data, time.monotonic() - since)


def done_entry(data: Data, result: Any, since: float, codec: Codec, attempt: int = 1) -> Data:
    """What the journal keeps of an attempt that succeeded. Raises what keeps its result from being stored."""
    done = {**data, "attempts": attempt} if attempt > 1 else data.copy()
    tell_time(done, since)
    done["result"] = None if result is None else codec.encode(result, f"result of {data['key']}")
    return done


def _broken_off(execution: Execution, step: StepFunction[..., Any], data: Data, error: Exception) -> Op[None]:
    """Journal how an effect failed whose task was cancelled meanwhile."""
    tell_time(data, execution.active.get(data["key"]))
    if _is_uncertain(step, error):
        data["uncertain"] = True
    if step.at_most_once:
        yield from execution.write([(Kind.RAISED, {**data, "error": one_line(error, execution.codec)})])
    else:
        yield from fail(execution, data["key"], data, error)


def _is_uncertain(step: StepFunction[..., Any], error: Exception) -> bool:
    """Whether an effect may have been made although its step failed."""
    return isinstance(error, StepTimeout) or (step.at_most_once and not isinstance(error, NotDone))


def _transact(call: StepCall, attempt: int, data: Data) -> Op[Any]:
    """Run the step inside of the transaction that commits its entry."""
    execution = call.execution
    function: Callable[..., Any] = call.step.function
    yield from execution.run.catch_up(execution.lease)
    result: list[Any] = []
    raised: list[Exception] = []

    def act(connection: Any) -> Data:
        since = time.monotonic()
        try:
            result[:] = [function(connection, *call.args, **call.kwargs)]
        except Exception as error:  # noted: it is told from what the store raises
            raised.append(error)
            raise
        return done_entry(data, result[0], since, execution.codec, attempt)

    try:
        yield Read(execution.lease.transact, Kind.DONE, act)
    except (UsageError, ValueRefused):
        raise
    except HoldfastError as error:
        if error in raised:
            raise
        execution.unwind(Aborted(error))
    return result[0]


def retry_later(
    call: StepCall, data: Data, attempt: int, error: Exception, *, first: Sequence[tuple[str, Data]] = ()
) -> Op[None]:
    """Journal that an attempt failed (after what comes ``first``), and wait until the next one."""
    execution, key = call.execution, call.key
    seconds = call.step.retry.pause(attempt, execution.clock.random_bytes(1)[0] / 255)
    until = execution.clock.now() + round(seconds * 1_000_000)
    text = one_line(error, execution.codec)
    told = "run {run}: step {step} failed, attempt {attempt}: {error}; again in {pause:.3g} s"
    tell(INFO, "step.retried", told, run=execution.run.id, step=key, attempt=attempt, error=text, pause=seconds)
    line: Data = {name: data[name] for name in ("key", "n", "tool", "intent") if name in data}
    line |= {"attempt": attempt, "until": until, "error": text}
    if not first:
        tell_time(line, execution.active.get(key))
    yield from execution.write([*first, (Kind.RAISED, line)])
    yield from pause(execution, call.scope, key, until)


def pause(execution: Execution, scope: Scope, key: str, until: int) -> Op[None]:
    """Wait between two attempts."""
    execution.active.pop(key, None)
    yield from wait_until(execution, scope, key, until)
    scope.check(f"step {key}")  # it may have been told to stop meanwhile
    execution.active[key] = time.monotonic()


def timed(call: StepCall) -> Any:
    """Call the step's function, for no longer than its timeout."""
    step, run, key = call.step, call.execution.run.id, call.key
    assert step.timeout is not None
    if step.is_async:
        return _timed_async(call)
    finished = threading.Event()
    box: list[tuple[bool, Any]] = []
    abandoned = False

    def work() -> None:
        try:
            box.append((True, step.function(*call.args, **call.kwargs)))
        except BaseException as error:  # it is raised again below, where the step was called
            box.append((False, error))
        finished.set()
        if abandoned:
            told = "run {run}: step {step} ended after its timeout; what it gave is discarded"
            tell(WARNING, "step.late", told, run=run, step=key)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=f"holdfast-step-{key}", daemon=True).start()
    if not finished.wait(step.timeout):
        abandoned = True
        raise StepTimeout(run, f"step {key!r} did not end within its timeout of {step.timeout:g} s")
    fine, value = box[0]
    if not fine:
        raise value
    return value


async def _timed_async(call: StepCall) -> Any:
    import asyncio

    step = call.step
    limit = asyncio.timeout(step.timeout)
    try:
        async with limit:
            return await step.function(*call.args, **call.kwargs)
    except TimeoutError as error:
        if not limit.expired():
            raise
        run, key = call.execution.run.id, call.key
        raise StepTimeout(run, f"step {key!r} did not end within its timeout of {step.timeout:g} s") from error
