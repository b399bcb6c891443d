"""Going back: undo the effects of the abandoned part, newest first, then end the effective history earlier.

The plan is journaled before anything is undone, and each undo when it is done. So a rollback that dies half-way is
continued by whoever claims the run next, and an undo that succeeded is not called again. (One that died between
acting and saying so is: an undo has to bear being called twice, and gets the same idempotency key each time.)

An undo that fails stops the rollback: older effects stay, nothing is rewound, and the run is blocked. Another rollback
retries the undo and continues further down; one with force passes over it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Call, Nap, Op, Read
from holdfast.engine.argument_checks import check_seq, check_texts
from holdfast.engine.control.cancel_requests import cancel_request, cancel_request_keys
from holdfast.engine.control.effects import effect
from holdfast.engine.control.undo_call import UndoCall
from holdfast.engine.log import INFO, WARNING, tell
from holdfast.engine.workflow.declare import state_type
from holdfast.engine.workflow.failures import one_line
from holdfast.engine.workflow.revived import note_revival
from holdfast.engine.workflow.scope import StepNow, current_scope, current_undo
from holdfast.engine.workflow.undo_functions import check_findable, find, is_at_hand
from holdfast.errors import (
    HoldfastError,
    InboxNotEmpty,
    RunDamaged,
    StoreError,
    Uncertain,
    UndoFailed,
    UndoRefused,
    UsageError,
)
from holdfast.kernel.fold import Fold, Mark, Rolling, rollback_plan
from holdfast.kernel.journal import Data
from holdfast.kernel.model import ENDED, Change, Kind, Rewind, Status
from holdfast.kernel.rules import LIVE
from holdfast.views import PlannedUndo, RollbackPlan, RollbackReport

if TYPE_CHECKING:
    from holdfast.kernel.model import RunRecord

# What a rollback is refused with before it begins. Nothing was done then.
REFUSALS = (UndoRefused, Uncertain)


def plan_rollback(run: HeldRun, to: int) -> Op[RollbackPlan]:
    """What a rollback to this entry would do, without doing it."""
    check_seq("to", to)
    record = yield Read(run.read_record)
    fold = yield from run.seen()
    marks = [fold.ledger[seq] for seq in rollback_plan(fold, record, to) if seq not in fold.settled]
    raised = {line["intent"] for _, line in _waiting_to_retry(fold)}
    planned = [
        PlannedUndo(effect(mark), "uncertain") if mark.seq in raised else _planned(run, record, mark) for mark in marks
    ]
    return RollbackPlan(to, tuple(planned))


def _waiting_to_retry(fold: Fold) -> list[tuple[str, Data]]:
    """The entries that say of effects which wait for their next attempt that the last one raised."""
    errors = {line["key"]: line.get("error") for _, kind, _, line in fold.log if kind == Kind.RAISED}
    return [
        (Kind.RAISED, {"key": key, "intent": fold.intents[key], "error": errors.get(key)})
        for key, attempt in fold.attempts.items()
        if key in fold.intents and not attempt.begun
    ]


def _planned(run: HeldRun, record: RunRecord, mark: Mark) -> PlannedUndo:
    """What a rollback that is made here would do about an effect. Nothing is imported to find out."""
    if mark.status == "uncertain" and _action(mark) == "uncertain":
        return PlannedUndo(effect(mark), "uncertain", _doubt(record, mark))
    if not _has_function(mark):
        return PlannedUndo(effect(mark), _action(mark))
    name = mark.data["undo"]
    try:
        check_findable(name)
    except UndoRefused as refused:
        return PlannedUndo(effect(mark), "missing", str(refused))
    try:
        if is_at_hand(name):
            _call_of(run, record, mark, find(name))
    except UndoRefused as refused:
        return PlannedUndo(effect(mark), "unreadable", str(refused))
    return PlannedUndo(effect(mark), "undo")


def _action(mark: Mark) -> Any:
    """What is to be done about an effect that is not dealt with yet."""
    if mark.data.get("id"):  # a child, which is undone as a whole
        return "undo"
    can_be_undone = bool(mark.data.get("undo")) and "erased" not in mark.data
    if mark.status in ("done", "undo_failed"):
        return "undo" if can_be_undone else "irreversible"
    return "undo" if mark.status == "uncertain" and can_be_undone and "undo_uncertain" in mark.data else "uncertain"


def _has_function(mark: Mark) -> bool:
    """Whether an effect is undone by calling a function of the user's."""
    return _action(mark) == "undo" and not mark.data.get("id")


def _doubt(record: RunRecord, mark: Mark) -> str:
    say = "" if record.status in ENDED else f"run.resolve({mark.key!r}, done=True, result=...) or done=False says so; "
    return f"it is not known whether step {mark.key!r} was done; {say}a rollback with force=True passes over it"


def _check(run: HeldRun, record: RunRecord, mark: Mark) -> None:
    """Raise what keeps an effect from being undone in this process, as far as that is known before it is tried."""
    if mark.status == "uncertain" and _action(mark) == "uncertain":
        raise Uncertain(run.id, _doubt(record, mark))
    if _has_function(mark):
        _call_of(run, record, mark, find(mark.data["undo"]))


def rollback(
    run: HeldRun, to: int, *, then: Status | str | None = None, force: bool = False, by: str | None = None
) -> Op[RollbackReport]:
    """Undo the effects after this entry, newest first, and continue from there. The history stays.

    An undo that fails stops it: `UndoFailed` is raised, older effects stay, and the run is blocked in the middle of its
    rollback. Roll back again to retry that undo and continue further down; with ``force``, a rollback passes over an
    undo that failed, cannot be found or read, and over an effect that is uncertain. That is recorded.

    Works on ended runs too, which can then continue; with ``then="cancelled"`` the run is cancelled instead. Who did it
    (``by``) is journaled.
    """
    check_seq("to", to)
    check_texts(by=by)
    if then not in (None, Status.CANCELLED):
        raise UsageError(f"then={then!r}: after a rollback a run goes on, or it is 'cancelled'")
    ending: Data = {"cancelled": {"error": "rolled back", "by": by}} if then is not None else {}
    return (yield from roll_back(run, to, ending, force=force, by=by))


def roll_back(run: HeldRun, to: int | None, ending: Data, *, force: bool = False, by: str | None) -> Op[RollbackReport]:
    """The same, which ends as ``ending`` says. Without ``to``, a rollback that has stopped is continued."""
    if run.active:
        raise UsageError(
            f"run {run.id!r} cannot be rolled back while a step is running: {', '.join(sorted(run.active))}"
        )
    before = yield Read(run.read_record)
    yield from note_revival(run.store, before)
    lease, owned = yield from run.enter(allow=LIVE | ENDED | {Status.BLOCKED}, rolls=True)
    place = _place(lease.fold)
    try:
        took = (
            (yield from cancel_request_keys(run)) if lease.fold.ended is not None else ()
        )  # they were about what has ended
        if to is None:
            rolling = lease.fold.rolling
            to = rolling.to if rolling is not None else lease.seq
        had_ended = lease.fold.ended is not None
        report = yield from begin_rollback(run, lease, to, ending, took, force=force, by=by)
        if lease.fold.ended is not None and not had_ended:
            yield from run.notify_parent(lease)
        return report
    except BaseException:  # whatever it is: where nothing was begun, the run stays blocked if it was
        if owned:
            yield from run.catch_up(lease)
            if _place(lease.fold) == place:
                yield from run.release(lease, if_blocked(before))
        raise
    finally:
        yield from run.leave(lease, owned)
        run.engine.bell.ring()


def _place(fold: Fold) -> tuple[int, int | None]:
    """What is another one as soon as a rollback begins, or ends."""
    return fold.generation, fold.rolling.seq if fold.rolling is not None else None


def if_blocked(record: RunRecord) -> Change | None:
    """What gives up the claim of a run to which nothing was done, and leaves it blocked if it was."""
    if record.status is not Status.BLOCKED:
        return None
    return Change(status=Status.BLOCKED, release=True, reason=record.reason)


def begin_rollback(
    run: HeldRun,
    lease: Lease,
    to: int,
    ending: Data,
    took: tuple[str, ...] = (),
    *,
    force: bool = False,
    by: str | None = None,
) -> Op[RollbackReport]:
    """Roll back under a lease. ``ending`` says how it ends, if it does; ``took`` what asked for it.

    If it is refused (`REFUSALS`), nothing was done. If it stops at an undo (`UndoFailed`), the lease is given up.
    """
    rolling = lease.fold.rolling
    if rolling is None:
        yield from run.drain(lease)  # an effect that was marked while the run was held is one to deal with
        if raised := _waiting_to_retry(lease.fold):
            yield from run.write(lease, raised)
    elif to > rolling.to:
        raise UsageError(
            f"run {run.id!r} is in the middle of its rollback to entry {rolling.to}, and can only be rolled back to "
            "that one or an earlier one"
        )
    record = yield Read(run.read_record)
    plan = rollback_plan(lease.fold, record, to)
    to = max(to, record.base)  # the entry that makes a fork a fork stays
    if not force:
        for mark in (lease.fold.ledger[seq] for seq in plan if seq not in lease.fold.settled):
            _check(run, record, mark)  # refused here, nothing is half done
    begun: Data = {"to": to, "plan": plan, **(ending or _ending_of(rolling))}
    begun |= ({"by": by} if by is not None else {}) | ({"force": True} if force else {})
    with lease.lock:
        change = Change(status=Status.RUNNING, rollback=lease.seq + 1)  # no longer blocked, if it was
        ticket = lease.write([(Kind.ROLLBACK_BEGUN, begun)], change=change, took=took)
    yield from run.settle(lease, ticket)
    return (yield from finish_rollback(run, lease))


def _ending_of(rolling: Rolling | None) -> Data:
    """How a rollback ends that is asked for again."""
    if rolling is None:
        return {}
    ending = {"failure": rolling.failure, "cancelled": rolling.cancelled}
    return {name: said for name, said in ending.items() if said is not None}


def finish_rollback(run: HeldRun, lease: Lease) -> Op[RollbackReport]:
    """Carry a rollback that has begun to its end, or to an undo that fails: then the run is blocked, and given up."""
    rolling = lease.fold.rolling
    if rolling is None:
        problem = "its record says that a rollback has begun, and its journal does not"
        raise RunDamaged(run.id, f"{problem}; restore the run from a backup")
    for seq in rolling.plan:
        mark = lease.fold.ledger[seq]
        if seq not in lease.fold.settled:
            yield from run.confirm(lease)
            yield from _deal_with(run, lease, rolling, mark)
    record = yield Read(run.read_record)
    _, target = yield Read(run.journals.entry, record, rolling.to)
    state = target.seq if target.kind == Kind.SAVED else target.state
    if record.queue is not None and rolling.failure is None and rolling.cancelled is None:
        yield from run.engine.upcalls.retry_children(run, lease, rolling.to)
    while True:
        lines, took = yield from _ending(run, rolling)
        with lease.lock:
            rewind = Change(rewind=Rewind(lease.seq + 1, rolling.to), final=len(lines) > 1)
            ticket = lease.write(lines, change=rewind, took=took, state=state)
        try:
            yield from run.settle(lease, ticket)
            return _report(lease.fold, rolling.to, rolling.plan)
        except InboxNotEmpty:  # something was acknowledged meanwhile, so it comes first
            yield from run.catch_up(lease)
            yield from run.drain(lease)


def _ending(run: HeldRun, rolling: Rolling) -> Op[tuple[list[tuple[str, Data]], tuple[str, ...]]]:
    """The last entries of a rollback, and the requests to cancel that they take: of a failed run, these count."""
    lines: list[tuple[str, Data]] = [(Kind.REWOUND, {"to": rolling.to})]
    if rolling.failure is None and rolling.cancelled is None:
        return lines, ()
    items = yield Read(run.store.inbox, run.uid)
    wish = cancel_request(run, items)
    if rolling.failure is not None and wish is None:
        lines.append((Kind.FAILED, rolling.failure))
    else:
        told = wish and {"error": wish.why, "by": wish.by}
        lines.append((Kind.CANCELLED, rolling.cancelled or told or {}))
    return lines, tuple(item.key for item in items if item.kind == "cancel")


def _deal_with(run: HeldRun, lease: Lease, rolling: Rolling, mark: Mark) -> Op[None]:
    """Undo an effect, and journal how that went. Raises `UndoFailed` if it stops the rollback."""
    outcome: Data = {"effect": mark.seq, "ok": False}
    if _action(mark) != "undo":
        if mark.status != "uncertain":
            return  # the end of the rollback says what becomes of it
        outcome |= {"passed": True, "uncertain": True}  # it was refused without force
    elif rolling.force and mark.status == "undo_failed":
        outcome |= {"error": mark.error, "passed": True}
    else:
        error, left = yield from _undo(run, mark, force=rolling.force)
        outcome |= {"ok": error is None, "error": error} | ({"left": True} if left else {})
        if error is not None and not left:
            if not rolling.force:
                yield from _block(run, lease, rolling, mark, outcome)
            outcome["passed"] = True
    yield from run.write(lease, [(Kind.UNDONE, outcome)])


def _block(run: HeldRun, lease: Lease, rolling: Rolling, mark: Mark, outcome: Data) -> Op[None]:
    """Journal that an undo failed, and block the run, in one go. Raises `UndoFailed`."""
    stopped = f"its rollback to entry {rolling.to} stopped: the undo of step {mark.key!r} failed"
    why = f" ({outcome['error']})"
    remedy = f"; run.rollback(to={rolling.to}) tries it again and continues, and with force=True it passes over it"
    shown = "" if lease.record.key_id is not None else why  # a reason stands in the clear
    reason = f"{stopped}{shown}{remedy}"
    change = Change(status=Status.BLOCKED, release=True, reason=reason)
    yield from run.write(lease, [(Kind.UNDONE, outcome)], change=change)
    run.forget(lease)
    tell(WARNING, "run.blocked", "run {run}: blocked: {reason}", run=run.id, reason=reason)
    run.engine.bell.ring()
    raise UndoFailed(run.id, f"{stopped}{why}{remedy}", _report(lease.fold, rolling.to, rolling.plan))


def report_finished(run: str, report: RollbackReport) -> None:
    """Tell the log that a rollback which somebody else began, and did not end, is done."""
    undone, failed = len(report.undone), len(report.failed)
    text = "run {run}: finished its rollback to entry {to}: {undone} undone" + (", {failed} failed" if failed else "")
    tell(INFO, "run.rolled_back", text, run=run, to=report.to, undone=undone, failed=failed)


def _undo(run: HeldRun, mark: Mark, *, force: bool) -> Op[tuple[str | None, bool]]:
    """Undo an effect: what it failed with, if so; and whether that is no failure, but something irreversible in it."""
    if (part := mark.data.get("id")) is not None:
        return (yield from _undo_child(run, part, force=force))
    record = yield Read(run.read_record)
    try:
        function = find(mark.data["undo"])
        call = _call_of(run, record, mark, function)
        is_plain = not run.is_async and record.queue is not None
        if is_plain and inspect.iscoroutinefunction(function):
            function = partial(_in_a_loop, function)
        yield from _tried(run, mark, call, function)
    except Exception as error:  # whatever it is, the rollback stops there, or passes over it
        return one_line(error, run.codec), False
    return None, False


def _undo_child(run: HeldRun, id: str, *, force: bool) -> Op[tuple[str | None, bool]]:
    """The same for a child. What is wrong with the store says nothing about it."""
    try:
        left = yield from run.engine.upcalls.undo_child(run, id, force=force)
    except StoreError:
        raise
    except Exception as error:  # also what an undo of the child may raise
        return one_line(error, run.codec), False
    return left, left is not None


def _call_of(run: HeldRun, record: RunRecord, mark: Mark, function: Callable[..., Any]) -> UndoCall:
    """What the undo of an effect is called with; raises `UndoRefused` if that cannot be read in this process."""
    call = UndoCall(function, mark.data["undo"], mark.data["tool"], state_type(record))

    def value(tree: Any, kind: Any) -> Any:
        return run.journals.value(run.id, tree, f"step {mark.key!r}", kind)

    try:
        call.read(value, mark.result, mark.data["args"], mark.data["kwargs"])
    except HoldfastError as error:
        raise UndoRefused(
            f"the undo of step {mark.key!r} cannot read what the step was called with, or gave ({error}); annotate "
            "the step or its undo with the types, and import the modules of both"
        ) from error
    return call


def _tried(run: HeldRun, mark: Mark, call: UndoCall, function: Callable[..., Any]) -> Op[None]:
    """Call an undo until it succeeds or its retries are used up; raises what it failed with then."""
    digest = blake2b(f"{run.uid}/{mark.seq}/undo".encode(), digest_size=16).hexdigest()
    tries = 1 + int(mark.data.get("undo_retries", 0))
    for attempt in range(1, tries + 1):
        scope = current_scope.set(None)  # a step that it calls is just a function
        undo = current_undo.set(StepNow(run.id, mark.key, attempt, digest))
        try:
            yield Call(function, (call.result, *call.args), call.kwargs)
            return
        except Exception:  # of the user's function, which may raise anything
            if attempt == tries:
                raise
        finally:
            current_undo.reset(undo)
            current_scope.reset(scope)
        yield Nap(run.store.clock, 0.1 * 2 ** (attempt - 1))


def _in_a_loop(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Call the async undo of a workflow's step from sync code: whoever rolls it back need not know how it was written.

    In a thread, since the caller may be inside of a loop of its own.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context

    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-undo") as thread:
        thread.submit(copy_context().run, lambda: asyncio.run(function(*args, **kwargs))).result()


def _report(fold: Fold, to: int, plan: list[int]) -> RollbackReport:
    by_status: dict[str, list[Any]] = {
        "undone": [],
        "undo_failed": [],
        "left": [],
        "uncertain": [],
        "repeated": [],
        "raised": [],
        "done": [],
    }
    for seq in plan:
        mark = fold.ledger[seq]
        by_status[mark.status].append(effect(mark))
    return RollbackReport(
        to,
        fold.generation,
        undone=tuple(by_status["undone"]),
        failed=tuple(by_status["undo_failed"]),
        irreversible=tuple(by_status["left"]),
        uncertain=(*by_status["uncertain"], *by_status["repeated"], *by_status["raised"]),
        pending=tuple(by_status["done"]),
    )
