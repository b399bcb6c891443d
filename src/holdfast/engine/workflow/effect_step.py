"""Steps that touch the world: they say so before they act, so that a crash in the act is never invisible.

An at-least-once step whose process died in the act is run again, with the same idempotency key. An at-most-once step
never is: its ``check`` says whether it was done, or a person does with `resolve`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.access.operations import Call, Op, Read
from holdfast.engine.workflow.attempts import attempts, once, pause, retry_later, tell_time
from holdfast.engine.workflow.failures import fail, one_line
from holdfast.engine.workflow.scope import StepNow, StepScope, current_scope, current_undo
from holdfast.errors import NotDone, UsageError
from holdfast.kernel.fold import Mark, generation_at
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Kind

if TYPE_CHECKING:
    from holdfast.engine.workflow.execution import Execution
    from holdfast.engine.workflow.step import StepCall, StepFunction

T = TypeVar("T")


class Done:
    """What a step's ``check`` returns if the step was done: its result."""

    def __init__(self, result: Any = None) -> None:
        self.result = result

    def __repr__(self) -> str:
        return f"Done({self.result!r})"


def this_step() -> StepNow:
    """What the step that is running knows of itself: its run, key, attempt, and a key to pass to the outside.

    The idempotency key is the same for each attempt at the same step, also in another process after a crash, and
    another one after the step was rolled back, or the workflow began anew. In an undo it is that of the undo, which is
    the same for each attempt too, and differs from the step's.
    """
    scope = current_scope.get()
    if scope is None and (undo := current_undo.get()) is not None:
        return undo
    if not isinstance(scope, StepScope):
        raise UsageError("this_step() is for code inside of a step or an undo that a run is calling")
    execution, key, attempt = scope.execution, scope.key, scope.attempt
    record = execution.lease.record
    digest = blake2b(f"{record.uid}/{_era(execution, key)}/{key}".encode(), digest_size=16).hexdigest()
    return StepNow(record.id, key, attempt, digest)


def act(call: StepCall, data: Data) -> Op[Any]:
    """Intent, act, result. Meanwhile the effect is in flight."""
    execution, key, step = call.execution, call.key, call.step
    execution.in_flight[key] = step.timeout if step.timeout is not None else execution.engine.effect_wait
    try:
        return (yield from _act(call, data))
    finally:
        del execution.in_flight[key]


def _act(call: StepCall, data: Data) -> Op[Any]:
    execution, step = call.execution, call.step
    said = {**data, "tool": step.name, "args": call.trees, "kwargs": call.named}
    intent = intent_entry(said, step.target_of(call.args, call.kwargs), step.undo_name, step.reversible)
    if step.undo_name is not None:
        intent["undo_retries"] = step.undo_retry.times
        if step.undo_uncertain:
            intent["undo_uncertain"] = True
    if step.at_most_once:
        return (yield from _at_most_once(call, intent))
    key, fold = data["key"], execution.lease.fold
    failed = fold.attempts.get(key)
    # What waits to be tried again is still the same effect. What died in the act is not: it may have been done twice.
    written = fold.intents.get(key) if failed is not None and not failed.begun else None
    if written is None:
        written = yield from _intend(execution, intent)
    return (yield from attempts(call, {"key": key, "intent": written}))


def intent_entry(call: Data, target: str | None, undo: str | None, reversible: bool | None) -> Data:
    """What the journal says before an effect is made: the call, what it touches, and how it can be undone."""
    intent = {**call, "target": target, "reversible": undo is not None if reversible is None else reversible}
    return intent if undo is None else {**intent, "undo": undo}


def in_doubt(key: str, tool: str, begun: Mark) -> str:
    """Say that nobody knows whether an effect was made, and what to do about it."""
    how = f"raised {begun.error}" if begun.error else "was begun and its process died"
    return _doubt(key, tool, how)


def _intend(execution: Execution, intent: Data) -> Op[int]:
    """Say what is about to be done. What was begun before, and died in the act, keeps its idempotency key."""
    key = intent["key"]
    if (era := _era(execution, key)) != execution.era(execution.lease.fold.generation):
        intent = {**intent, "era": era}
    return (yield from execution.write([(Kind.INTENDED, intent)], f"arguments of {key}"))


def _era(execution: Execution, key: str) -> str:
    """When a step was begun first, as its idempotency key tells it."""
    fold, record = execution.lease.fold, execution.lease.record
    begun = fold.intents.get(key)
    if begun is None:
        return execution.era(fold.generation)
    told = fold.ledger[begun].data.get("era")
    return str(told) if told is not None else execution.era(generation_at(begun, record.rewinds))


def _at_most_once(call: StepCall, intent: Data) -> Op[Any]:
    execution, step = call.execution, call.step
    key = intent["key"]
    intent = {**intent, "worker": execution.engine.worker.name}
    fold = execution.lease.fold
    if key in fold.intents:
        done = yield from _find_out(call)
        if done is not None:
            return done.result
    attempt = 0
    if (before := fold.attempts.get(key)) is not None:
        attempt = before.count
        yield from pause(execution, call.scope, key, before.until)
    while True:
        attempt += 1
        written = yield from _intend(execution, intent)
        confirm = partial(execution.engine.worker.confirm, execution.lease)  # this process may have been stopped
        settled = {"key": key, "intent": written}
        try:
            with _acting(execution, key):
                yield from execution.unharmed(_ask(confirm))
                return (yield from once(call, attempt, settled))
        except NotDone as error:
            tell_time(settled, execution.active.get(key))
            if attempt > step.retry.times:
                yield from fail(execution, key, {**settled, "attempt": attempt}, error)
                raise
            text = one_line(error, execution.codec)
            not_done = (Kind.RAISED, {**settled, "error": text})
            yield from retry_later(call, {"key": key}, attempt, error, first=[not_done])
        except Exception as error:  # of the user's function, which may raise anything
            tell_time(settled, execution.active.get(key))
            text = one_line(error, execution.codec)
            yield from execution.write([(Kind.RAISED, {**settled, "error": text, "uncertain": True})])
            execution.park(_doubtful(execution, key, step, f"raised {text}"))


def _ask(question: Callable[[], T]) -> Op[T]:
    answer: T = yield Read(question)
    return answer


@contextmanager
def _acting(execution: Execution, key: str) -> Iterator[None]:
    """Note that a step is being called, for whoever claims its run meanwhile."""
    acting, place = execution.engine.acting, (execution.run.uid, key)
    acting.add(place)
    try:
        yield
    finally:
        acting.discard(place)


def _may_be_acting(execution: Execution, key: str, begun: Mark) -> bool:
    """Whether the one who began a step may still be at it: its process runs, and the run was taken from it.

    A process that lets a run go has ended its calls, or says in the journal that they are uncertain. ``crashed_at``
    tells when the run was last taken from a holder. Processes on other machines are seen while their lease holds. Of
    this process it is known which steps are being called.
    """
    engine, record, worker = execution.engine, execution.lease.record, begun.data.get("worker")
    if worker == engine.worker.name:
        return (execution.run.uid, key) in engine.acting
    if record.base <= begun.seq and record.crashed_at < begun.seq:
        return False
    return any(one.worker == worker and one.running for one in engine.store.workers())


def _find_out(call: StepCall) -> Op[Done | None]:
    """What became of a step that died in the act. None if it was not done, and may be run."""
    execution, key, step = call.execution, call.key, call.step
    fold = execution.lease.fold
    begun = fold.ledger[fold.intents[key]]
    how = f"raised {begun.error}" if begun.error else "was begun and its process died"
    if not begun.error and (yield from execution.unharmed(_ask(partial(_may_be_acting, execution, key, begun)))):
        runs = f"was begun by {begun.data.get('worker')}, whose process still runs and may be acting"
        execution.park(_doubtful(execution, key, step, runs, first="end that process, then "))
    if step.checker is None:
        execution.park(_doubtful(execution, key, step, how))
    token = current_scope.set(StepScope(execution, key, 0))
    try:
        found = yield Call(step.checker, call.args, call.kwargs)
        done = isinstance(found, Done)
        stored = execution.codec.encode(found.result, f"result of {key}") if done else None
    except NotDone as error:
        found, done = error, False
    except Exception as error:  # of the user's function, which may raise anything
        raised = one_line(error, execution.codec)
        execution.park(_doubtful(execution, key, step, f"{how}, its check raised {raised}"))
    finally:
        current_scope.reset(token)
    if not done and found is not NotDone and not isinstance(found, NotDone):
        gave = f"{how}, its check gave {type(found).__name__} where it returns Done(result) or NotDone"
        execution.park(_doubtful(execution, key, step, gave))
    resolved: Data = {"key": key, "intent": fold.intents[key], "done": done, "by": "check"}
    if done:
        resolved["result"] = stored
    yield from execution.write([(Kind.RESOLVED, resolved)], f"result of {key}")
    return found if done else None


def _doubtful(execution: Execution, key: str, step: StepFunction[..., Any], how: str, *, first: str = "") -> str:
    if execution.lease.record.key_id is not None and " raised " in f" {how}":
        how = "raised an error"  # a reason stands in the clear, where nothing of an encrypted run may be read
    ask = "" if step.checker is None else f"; or {first}run.unblock(), which asks its check"
    return _doubt(key, step.name, how) + ask


def _doubt(key: str, tool: str, how: str) -> str:
    return (
        f"step {key!r} ({tool}) {how}, and it is not known whether it was done; say what happened with "
        f"run.resolve({key!r}, done=True, result=...) or done=False"
    )
