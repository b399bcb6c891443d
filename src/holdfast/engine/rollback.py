"""Going back: undo the effects of the abandoned part, newest first, then end the effective history earlier.

The plan is journaled before anything is undone, and each undo when it is done. So a rollback that dies half-way is
continued by whoever claims the run next, and an undo that succeeded is not called again. (One that died between
acting and saying so is: an undo has to bear being called twice.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.engine.checks import check_seq, check_texts
from holdfast.engine.drive import Async, Call, Nap, Op, Read
from holdfast.engine.events import INFO, tell
from holdfast.engine.failures import one_line
from holdfast.engine.pauses import drain
from holdfast.engine.revived import note_revival
from holdfast.engine.steps import effect
from holdfast.engine.undo import check_findable, find
from holdfast.errors import RunDamaged, UndoRefused, UsageError
from holdfast.fold import Fold, Mark, rollback_plan
from holdfast.journal import Data
from holdfast.model import ENDED, Change, Kind, Rewind, Status
from holdfast.stores.base import LIVE
from holdfast.views import PlannedUndo, RollbackPlan, RollbackReport

if TYPE_CHECKING:
    from holdfast.engine.lease import Lease
    from holdfast.engine.run import Run


def plan_rollback(run: Run, to: int) -> Op[RollbackPlan]:
    """What a rollback to this entry would do, without doing it."""
    check_seq("to", to)
    record = yield Read(run._record)
    fold = yield from run._seen()
    marks = [fold.ledger[seq] for seq in rollback_plan(fold, record, to)]
    return RollbackPlan(to, tuple(_planned(mark) for mark in marks))


def _planned(mark: Mark) -> PlannedUndo:
    """What a rollback that is made here would do about an effect."""
    try:
        _check_undo(mark, check_findable)
    except UndoRefused as refused:
        return PlannedUndo(effect(mark), "missing", str(refused))
    return PlannedUndo(effect(mark), _action(mark))


def _check_undo(mark: Mark, check: Callable[[str], object]) -> None:
    """Check the name of the function by which an effect is to be undone, if it is."""
    if _action(mark) == "undo" and (name := mark.data.get("undo")):
        check(name)


def _action(mark: Mark) -> Any:
    if mark.status != "done":
        return "uncertain"
    if mark.data.get("id"):  # a child, which is taken back as a whole
        return "undo"
    return "undo" if mark.data.get("undo") and "erased" not in mark.data else "irreversible"


def rollback(run: Run, to: int, *, then: Status | str | None = None, by: str | None = None) -> Op[RollbackReport]:
    """Undo the effects after this entry, newest first, and go on from there. The history stays.

    An undo that fails is reported and the others are still made. Works on ended runs too, which can then go on; with
    ``then="cancelled"`` the run is given up instead. Who did it (``by``) is journaled.
    """
    check_seq("to", to)
    check_texts(by=by)
    if then not in (None, Status.CANCELLED):
        raise UsageError(f"then={then!r}: after a rollback a run goes on, or it is 'cancelled'")
    if run._active:
        raise UsageError(
            f"run {run.id!r} cannot be rolled back while a step is running: {', '.join(sorted(run._active))}"
        )
    from holdfast.engine.wishes import wishes

    ending: Data = {"cancelled": {"error": "rolled back", "by": by}} if then is not None else {}
    if by is not None:
        ending["by"] = by
    yield from note_revival(run._store, (yield Read(run._record)))
    lease, owned = yield from run._enter(allow=LIVE | ENDED | {Status.BLOCKED})
    try:
        took = (yield from wishes(run)) if lease.fold.ended is not None else ()  # they were about what has ended
        return (yield from begin_rollback(run, lease, to, ending, took))
    finally:
        yield from run._leave(lease, owned)
        run._engine.bell.ring()


def begin_rollback(run: Run, lease: Lease, to: int, ending: Data, took: tuple[str, ...] = ()) -> Op[RollbackReport]:
    """Roll back under a lease. ``ending`` says how it ends, if it does, and who did it; ``took`` what asked for it."""
    yield from drain(run, lease)  # an effect that was marked while the run was held is one to deal with
    record = yield Read(run._record)
    plan = rollback_plan(lease.fold, record, to)
    to = max(to, record.base)  # the entry that makes a fork a fork stays
    for seq in plan:
        _check_undo(lease.fold.ledger[seq], find)  # refused here, nothing is half done
    with lease.lock:
        run._check_not_rolling(lease)
        begun = Change(rollback=lease.seq + 1)
        ticket = lease.write([(Kind.ROLLBACK_BEGUN, {"to": to, "plan": plan, **ending})], change=begun, took=took)
    yield from run._settle(lease, ticket)
    return (yield from finish_rollback(run, lease))


def finish_rollback(run: Run, lease: Lease) -> Op[RollbackReport]:
    """Carry a rollback that has begun to its end."""
    rolling = lease.fold.rolling
    if rolling is None:
        problem = "its record says that a rollback has begun, and its journal does not"
        raise RunDamaged(run.id, f"{problem}; restore the run from a backup")
    for seq in rolling.plan:
        mark = lease.fold.ledger[seq]
        if seq in lease.fold.undone or _action(mark) != "undo":
            continue
        error = yield from _undo(run, mark)
        outcome = {"effect": seq, "ok": error is None, "error": error}
        yield from run._write(lease, [(Kind.UNDONE, outcome)])
    record = yield Read(run._record)
    _, target = yield Read(lambda: run._journals.entry(record, rolling.to))
    state = target.seq if target.kind == Kind.SAVED else target.state
    if record.queue is not None and rolling.failure is None and rolling.cancelled is None:
        from holdfast.engine.children import bring_back

        yield from bring_back(run, lease, rolling.to)
    with lease.lock:
        rewind = Change(rewind=Rewind(lease.seq + 1, rolling.to))
        lines: list[tuple[str, Data]] = [(Kind.REWOUND, {"to": rolling.to})]
        if rolling.failure is not None:
            lines.append((Kind.FAILED, rolling.failure))
        elif rolling.cancelled is not None:
            lines.append((Kind.CANCELLED, rolling.cancelled))
        ticket = lease.write(lines, change=rewind, state=state, moves_state=True)
    yield from run._settle(lease, ticket)
    return _report(lease.fold, rolling.to, rolling.plan)


def tell_finished(run: str, report: RollbackReport) -> None:
    """Tell the log that a rollback which somebody else began, and did not end, is done."""
    undone, failed = len(report.undone), len(report.failed)
    text = "run {run}: finished its rollback to entry {to}: {undone} undone" + (", {failed} failed" if failed else "")
    tell(INFO, "run.rolled_back", text, run=run, to=report.to, undone=undone, failed=failed)


def _undo(run: Run, mark: Mark) -> Op[str | None]:
    """Call the undo of an effect, a few times if need be; what it failed with, if so."""
    if (part := mark.data.get("id")) is not None:
        from holdfast.engine.children import take_back

        try:
            yield from take_back(run, part)
        except Exception as error:  # it is reported, and the others are still undone
            return one_line(error, run._codec)
        return None
    function = find(mark.data["undo"])
    is_plain = not isinstance(run, Async) and (yield Read(run._record)).queue is not None
    call = partial(_in_a_loop, function) if is_plain and inspect.iscoroutinefunction(function) else function
    what, value = f"step {mark.key!r}", run._journals.value
    args = [value(run.id, stored, what) for stored in mark.data["args"]]
    kwargs = {name: value(run.id, stored, what) for name, stored in mark.data["kwargs"].items()}
    tries = 1 + int(mark.data.get("undo_retries", 0))
    for attempt in range(1, tries + 1):
        try:
            yield Call(call, (value(run.id, mark.result, what), *args), kwargs)
        except Exception as error:  # whatever it is, it is reported, and the others are still undone
            failed = one_line(error, run._codec)
            if attempt < tries:
                yield Nap(run._store.clock, 0.1 * 2 ** (attempt - 1))
        else:
            return None
    return failed


def _in_a_loop(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Call the async undo of a workflow's step from sync code: whoever rolls it back need not know how it was written.

    In a thread, since the caller may be inside of a loop of its own.
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-undo") as thread:
        thread.submit(lambda: asyncio.run(function(*args, **kwargs))).result()


def _report(fold: Fold, to: int, plan: list[int]) -> RollbackReport:
    by_status: dict[str, list[Any]] = {
        "undone": [],
        "undo_failed": [],
        "left": [],
        "uncertain": [],
        "repeated": [],
        "raised": [],
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
    )
