"""Steps and effects of a hand-driven run: what was done is not done again, and what it did is on record.

A plain step is one entry, at its end. A step that touches the world (it names a target, an undo, or is at most
once) writes an **intent** first; a crash between intent and result leaves the effect *uncertain*, which everybody
can see. An at-least-once step is then simply run again; an at-most-once step raises `Uncertain` until somebody says
with `resolve` what became of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Call, Op, Read
from holdfast.engine.workflow.attempts import done_entry, tell_time
from holdfast.engine.workflow.effect_step import in_doubt, intent_entry
from holdfast.engine.workflow.failures import one_line
from holdfast.engine.workflow.undo_functions import name_of
from holdfast.errors import NonDeterminism, NotDone, Redacted, Uncertain, UsageError
from holdfast.kernel.fold import Fold, Step
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Kind, Post, Status
from holdfast.kernel.rules import LIVE
from holdfast.stores.protocol import write_one


def once(
    run: HeldRun,
    key: str,
    function: Callable[..., Any],
    /,
    *args: Any,
    target: str | None = None,
    undo: Callable[..., Any] | None = None,
    reversible: bool | None = None,
    at_most_once: bool = False,
    check_args: bool = True,
    result_type: Any = None,
    **kwargs: Any,
) -> Op[Any]:
    """Call a function once in this run, and keep its result; called again with the same key, return the result.

    ``target`` names what it touches. ``undo`` is a module-level function which a rollback calls with the result,
    then the arguments of the step. ``reversible`` says whether the effect can be taken back (by default: whether
    there is an undo). Raises `NonDeterminism` if the key was used before with another function or other arguments
    (``check_args=False`` allows that), `Uncertain` if an ``at_most_once`` step died in the act or raised anything but
    `NotDone`.
    """
    if not callable(function):
        raise UsageError(f"once({key!r}, ...) takes a function and then its arguments, not {function!r}")
    if target is not None and not isinstance(target, str):
        raise UsageError(f"target={target!r}: is an option of once, and text; give your function's own by position")
    call = _describe(run, key, function, args, kwargs, check_args)
    undo_name = name_of(undo) if undo is not None else None
    if run.lease is None:
        seen = yield from run.seen()
        if seen.rolling is None and key in seen.steps:  # else a claim ends the rollback first
            return _stored(run, key, seen.steps[key], call, check_args, result_type)
    lease, owned = yield from run.enter()
    try:
        done = lease.fold.steps.get(key)
        if done is not None:
            return _stored(run, key, done, call, check_args, result_type)
        if key in run.active:
            raise UsageError(f"step {key!r} of run {run.id!r} is being run by another thread or task already")
        if at_most_once and key in lease.fold.intents:
            raise Uncertain(run.id, in_doubt(key, call["tool"], lease.fold.ledger[lease.fold.intents[key]]))
        run.active.add(key)
        try:
            request = Call(function, args, kwargs)
            if undo is not None or target is not None or reversible is not None or at_most_once:
                intent = intent_entry(call, target, undo_name, reversible)
                return (yield from _act(run, lease, intent, at_most_once, request))
            plain = {name: call[name] for name in ("key", "tool", "digest")}
            yield from run.confirm(lease)
            since = time.monotonic()
            return (yield from _keep(run, lease, plain, (yield request), since))
        finally:
            run.active.discard(key)
    finally:
        yield from run.leave(lease, owned)


def _act(run: HeldRun, lease: Lease, intent: Data, at_most_once: bool, request: Call) -> Op[Any]:
    """Intent, act, result. An at-most-once step that raises may have acted, unless what it raises is `NotDone`."""
    key = intent["key"]
    written = yield from run.write(lease, [(Kind.INTENDED, intent)], what=f"arguments of {key}")
    yield from run.confirm(lease)
    settled: Data = {"key": key, "intent": written}
    since = time.monotonic()
    try:
        result = yield request
    except Exception as error:  # of the user's function, which may raise anything
        failure = {**settled, "error": one_line(error, run.codec)}
        tell_time(failure, since)
        if at_most_once and not isinstance(error, NotDone):
            failure["uncertain"] = True
        yield from run.write(lease, [(Kind.RAISED, failure)])
        raise
    return (yield from _keep(run, lease, settled, result, since))


def _keep(run: HeldRun, lease: Lease, data: Data, result: Any, since: float) -> Op[Any]:
    """Journal a result, and give it back."""
    done = done_entry(data, result, since, run.codec)
    yield from run.write(lease, [(Kind.DONE, done)], what=f"result of {data['key']}")
    return result


def _describe(
    run: HeldRun,
    key: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    check_args: bool,
) -> Data:
    if not isinstance(key, str) or not key:
        raise UsageError(f"a step's key is text, not {key!r}")
    while isinstance(function, partial):
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        function = function.func
    tool = getattr(function, "__qualname__", None) or type(function).__qualname__
    stored, named = run.codec.encode_call(tool, args, kwargs)
    digest = run.codec.digest([tool, stored, named]) if check_args else None
    return {"key": key, "tool": tool, "digest": digest, "args": stored, "kwargs": named}


def _stored(run: HeldRun, key: str, done: Step, call: Data, check_args: bool, result_type: Any) -> Any:
    if check_args and done.digest is not None and done.digest != call["digest"]:
        how = f"as {call['tool']}, another function" if call["tool"] != done.tool else "with other arguments"
        raise NonDeterminism(
            run.id,
            f"step {key!r} was completed at {done.seq} as {done.tool}; now it is called {how}. Use another key, or "
            "check_args=False to take the stored result anyway",
        )
    if done.erased:
        raise Redacted(run.id, f"the result of step {key!r} was erased on request")
    return run.journals.value(run.id, done.result, f"result of {key}", result_type)


def mark(
    run: HeldRun,
    key: str,
    tool: str,
    target: str | None = None,
    reversible: bool = False,
    *,
    result: Any = None,
) -> Op[bool]:
    """Note an effect that was made elsewhere. Marking twice counts once; False says that it was known already.

    Anybody may mark, and every view of the run includes it from then on. While another worker holds the run, the mark
    waits in its inbox until that takes it in. Raises `RunEnded` if the run has ended.
    """
    if not isinstance(key, str) or not key:
        raise UsageError(f"an effect's key is text, not {key!r}")
    data: Data = {"key": key, "tool": tool, "target": target, "reversible": reversible}
    data["result"] = run.codec.encode(result, f"result of {key}")
    lease = run.lease
    if lease is not None:
        yield from run.catch_up(lease)
    if lease is not None and not lease.lost and lease.fold.rolling is None:
        with lease.lock:
            if key in lease.fold.steps:
                return False
            ticket = lease.write([(Kind.MARKED, data)])
        yield from run.settle(lease, ticket)
        return True
    if key in (yield from run.seen()).steps:
        return False
    record = yield Read(run.read_record)
    item_key = f"mark:{run.journals.blind(record, key)}.{record.generation}"
    item = run.journals.item(record, item_key, "mark", data, wakes=False)
    if not (yield Read(write_one, run.store, Post(record.uid, item))):
        return False
    if lease is None:
        yield from run.record_unheld()
    return True


def resolve(run: HeldRun, key: str, *, done: bool, result: Any = None, by: str | None = None) -> Op[None]:
    """Say what became of a step that died in the act: it was done, with this result, or it was not."""
    data: Data = {"key": key, "done": done, "by": by}
    if done:
        data["result"] = run.codec.encode(result, f"result of {key}")
    if (yield Read(run.read_record)).status is Status.BLOCKED:
        _check_uncertain(run, (yield from run.seen()), key)  # before the claim, which lets it go on
    lease, owned = yield from run.enter(LIVE | {Status.BLOCKED})
    try:
        with lease.lock:
            _check_uncertain(run, lease.fold, key)
            data["intent"] = lease.fold.intents[key]
            ticket = lease.write([(Kind.RESOLVED, data)])
        yield from run.settle(lease, ticket)
    finally:
        yield from run.leave(lease, owned)
    run.engine.bell.ring()


def _check_uncertain(run: HeldRun, fold: Fold, key: str) -> None:
    if key not in fold.intents:
        raise UsageError(f"step {key!r} of run {run.id!r} is not uncertain, so there is nothing to resolve")


def is_completed(run: HeldRun, key: str) -> Op[bool]:
    """Whether the step or effect is on record as done."""
    fold = yield from run.seen()
    return key in fold.steps
