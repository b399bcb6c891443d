"""Steps that touch the world: they say so before they act, so that a crash in the act is never invisible.

An at-least-once step whose process died in the act is run again, with the same idempotency key. An at-most-once step
never is: its ``check`` says whether it was done, or a person does with `resolve`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from holdfast.engine.define import StepFunction, current_scope
from holdfast.engine.drive import Call, Op, Read
from holdfast.engine.execution import Aborted, Execution, Scope, StepNow
from holdfast.errors import LeaseLost, NotDone, UsageError
from holdfast.journal import Data
from holdfast.model import Kind


class Done:
    """What a step's ``check`` returns if the step was done: its result."""

    def __init__(self, result: Any = None) -> None:
        self.result = result

    def __repr__(self) -> str:
        return f"Done({self.result!r})"


def this_step() -> StepNow:
    """What the step that is running knows of itself: its run, key, attempt, and a key to pass to the outside.

    The idempotency key is the same for each attempt at the same step, also in another process after a crash, and
    another one after the step was rolled back.
    """
    scope = current_scope.get()
    if scope is None or scope.step is None:
        raise UsageError("this_step() is for code inside of a step that a run is calling")
    key, attempt = scope.step
    execution = scope.execution
    fold, record = execution.lease.fold, execution.lease.record
    begun = fold.intents.get(key)
    generation = fold.generation if begun is None else sum(rewind.at < begun for rewind in record.rewinds)
    digest = blake2b(f"{record.uid}/{generation}/{key}".encode(), digest_size=16).hexdigest()
    return StepNow(record.id, key, attempt, digest)


def act(
    execution: Execution,
    scope: Scope,
    data: Data,
    step: StepFunction[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    trees: list[Any],
    named: dict[str, Any],
) -> Op[Any]:
    """Intent, act, result."""
    intent = {**data, "tool": step.name, "target": step.target_of(args, kwargs), "args": trees, "kwargs": named}
    intent["reversible"] = step.undo_name is not None if step.reversible is None else step.reversible
    if step.undo_name is not None:
        intent |= {"undo": step.undo_name, "undo_retries": step.undo_retry.times}
    if step.at_most_once:
        return (yield from _at_most_once(execution, scope, intent, step, args, kwargs))
    written = yield from execution.write([(Kind.INTENDED, intent)], f"arguments of {data['key']}")
    return (yield from execution.attempts(scope, {"key": data["key"], "intent": written}, step, args, kwargs))


def _at_most_once(
    execution: Execution,
    scope: Scope,
    intent: Data,
    step: StepFunction[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Op[Any]:
    key = intent["key"]
    fold = execution.lease.fold
    if key in fold.intents:
        done = yield from _find_out(execution, key, step, args, kwargs)
        if done is not None:
            return done.result
    attempt = fold.attempts[key].count if key in fold.attempts else 0
    while True:
        attempt += 1
        written = yield from execution.write([(Kind.INTENDED, intent)], f"arguments of {key}")
        yield Read(lambda: _confirm(execution))
        settled = {"key": key, "intent": written}
        try:
            return (yield from execution.once(step, key, attempt, args, kwargs, settled))
        except NotDone as error:
            if attempt > step.retry.times:
                yield from execution.fail(key, {**settled, "attempt": attempt}, error)
                raise
            yield from execution.retry_later(scope, settled, step, attempt, error)
        except Exception as error:
            text = execution.codec.scrub(f"{type(error).__name__}: {error}")[:2000]
            yield from execution.write([(Kind.RAISED, {**settled, "error": text, "uncertain": True})])
            execution.park(_doubt(key, step.name, f"raised {text}"))


def _confirm(execution: Execution) -> None:
    """Right before acting, make sure that nobody else took the run over: this process may have been asleep."""
    execution.engine.worker.keep()
    if not execution.lease.is_current():
        execution.unwind(Aborted(LeaseLost(execution.run.id)))


def _find_out(
    execution: Execution, key: str, step: StepFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Op[Done | None]:
    """What became of a step that died in the act. None if it was not done, and may be run."""
    fold = execution.lease.fold
    begun = fold.ledger[fold.intents[key]]
    how = f"raised {begun.error}" if begun.error else "was begun and its process died"
    if step.checker is None:
        execution.park(_doubt(key, step.name, how))
    token = current_scope.set(Scope(execution, "", (key, 0)))
    try:
        found = yield Call(step.checker, args, kwargs)
    finally:
        current_scope.reset(token)
    done = isinstance(found, Done)
    if not done and found is not NotDone and not isinstance(found, NotDone):
        execution.park(f"the check of step {key!r} gave {found!r}; it returns Done(result) or NotDone")
    resolved: Data = {"key": key, "intent": fold.intents[key], "done": done, "by": "check"}
    if done:
        resolved["result"] = execution.codec.encode(found.result, f"result of {key}")
    yield from execution.write([(Kind.RESOLVED, resolved)], f"result of {key}")
    return found if done else None


def _doubt(key: str, name: str, how: str) -> str:
    return (
        f"step {key!r} ({name}) {how}, and it is not known whether it was done; say what happened with "
        f"run.resolve({key!r}, done=True, result=...) or done=False"
    )
