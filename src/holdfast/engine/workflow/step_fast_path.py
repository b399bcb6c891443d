"""The short way of a plain step: nothing is waited for but its function and its commit.

Most steps have no intent, no timeout and no transaction, and succeed at once. Such a step is called here with as little
around it as possible, since this is what a durable step costs beside its commit; and if the journal has its result,
that is all there is to it. Whatever else may happen (it fails, others of the run have their turn) is left to
`Execution.step`.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from holdfast.engine.access.operations import Op, drive, drive_async, refuse_awaitable
from holdfast.engine.log import DEBUG, is_told
from holdfast.engine.workflow.declare import current_scope
from holdfast.engine.workflow.replay import check_same
from holdfast.engine.workflow.step_call import StepCall
from holdfast.engine.workflow.timing import tell_time
from holdfast.errors import HoldfastError
from holdfast.kernel.fold import Step
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Kind

DONE = Kind.DONE.value  # a plain text: the garbage collector need not look after what holds nothing else


def execute(call: StepCall) -> Any:
    """The result of a step that is a plain function."""
    execution, key, step = call.execution, call.key, call.step
    committer = execution.committer
    committer.check_process()
    data = _begin(call)
    if type(data) is Step:
        return execution.value(data, key, step.result_type)
    if type(data) is not dict:
        return execution.carry_out(execution.step(call))
    try:
        token = current_scope.set(call.scope.inside(key, 1))
        try:
            result = step.function(*call.args, **call.kwargs)
            if hasattr(result, "__await__"):
                refuse_awaitable(result, step.function)
        finally:
            current_scope.reset(token)
        tell_time(data, execution.active[key])
        what = f"result of {key}"
        data["result"] = None if result is None else execution.codec.encode(result, what)
        ticket = execution.submit_one(DONE, data, what)
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


async def execute_async(call: StepCall) -> Any:
    """The same for a coroutine function."""
    execution, key, step = call.execution, call.key, call.step
    committer = execution.committer
    committer.check_process()
    data = _begin(call) if execution.is_alone() else None
    if type(data) is Step:
        return execution.value(data, key, step.result_type)
    if type(data) is not dict:
        return await drive_async(execution.step(call), committer)
    try:
        token = current_scope.set(call.scope.inside(key, 1))
        try:
            result = await step.function(*call.args, **call.kwargs)
        finally:
            current_scope.reset(token)
        tell_time(data, execution.active[key])
        what = f"result of {key}"
        data["result"] = None if result is None else execution.codec.encode(result, what)
        ticket = execution.submit_one(DONE, data, what)
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


def _begin(call: StepCall) -> Data | Step | None:
    """What the journal has for a call; of a new one, what is known before it is made. None: the short way ends here."""
    execution, key = call.execution, call.key
    fold = execution.lease.fold
    if key in fold.failures or key in fold.attempts or key in fold.intents or key in execution.called:
        return None
    if is_told(DEBUG):
        return None
    stored = call.describe()
    digest = call.digest
    if key in fold.steps or execution.replays or "deadline" in fold.input:
        found = execution.find(call.scope, key, call.n, digest)
    else:
        found = None
    if found is not None:
        if type(found) is not Step or found.erased:
            return None
        check_same(execution, key, call.step.name, found, digest, stored)
        execution.consume(key)
        execution.given(found.seq)
        return found
    held_back = execution.unsure is not None or execution.gate is not None or execution.gave_way
    if held_back or not execution.engine.worker.is_sure_of(execution.lease):
        return None
    execution.consumed.add(key)
    execution.called.add(key)
    execution.active[key] = monotonic()
    return call.entry()


def _again(call: StepCall, data: Data, error: Exception) -> Op[Any]:
    """After the first attempt failed, what there is to do."""
    from holdfast.engine.workflow.step import attempts, failed_attempt

    data.pop("result", None)  # what cannot be kept
    data.pop("seconds", None)
    yield from failed_attempt(call, data, 1, error)
    return (yield from attempts(call, data))
