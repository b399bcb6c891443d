"""What others may wish of a run: that it is given up, or tried again.

Whoever can claim the run does it; a run that somebody else drives finds the wish in its inbox.
"""

from __future__ import annotations

from contextlib import suppress

from holdfast.codec import to_text
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.argument_checks import check_texts
from holdfast.engine.control import family
from holdfast.engine.control.finish import end, end_by_rollback, park
from holdfast.engine.control.rollback import REFUSALS, if_blocked, plan_rollback, roll_back, rollback
from holdfast.engine.control.unblock import unblock
from holdfast.engine.workflow.outcomes import Cancelled
from holdfast.engine.workflow.revived import note_revival
from holdfast.errors import Claimed, InboxNotEmpty, RunBlocked, RunEnded, UsageError
from holdfast.kernel.journal import Data
from holdfast.kernel.model import ENDED, Change, Item, Kind, Post, RunRecord, Status
from holdfast.kernel.rules import LIVE
from holdfast.stores.protocol import write_one


def asked_to_cancel(run: HeldRun, items: list[Item]) -> Cancelled | None:
    """The wish to cancel the run, if it is in its inbox."""
    for item in items:
        if item.kind == "cancel":
            data = run.journals.item_data(run.id, run.uid, item)
            return Cancelled(data["why"], data["undo"], data["by"], data.get("force", False))
    return None


def wishes(run: HeldRun) -> Op[tuple[str, ...]]:
    """The keys of all wishes to cancel the run, to be taken when it is, or when it goes on after its end."""
    items = yield Read(run.store.inbox, run.uid)
    return tuple(item.key for item in items if item.kind == "cancel")


def cancel(
    run: HeldRun, why: str | None = None, *, undo: bool = False, force: bool = False, by: str | None = None
) -> Op[None]:
    """Cancel the run, and the children that it started. With ``undo``, its effects are undone.

    A workflow that is being driven stops at its next durable call; async steps are cancelled at once, but for one that
    has an effect, which is awaited. If another process drives it, it is asked to stop: `wait` until it has. The run can
    still be forked, or rolled back and go on.

    If an undo fails, `UndoFailed` is raised, and the run is blocked in the middle of its rollback; with ``force`` such
    an undo is passed over, which is recorded. A run that is blocked like that is cancelled only with ``undo``, which
    tries the undo again, or with ``force``.
    """
    check_texts(why=why, by=by)
    why, by = (text and run.codec.scrub(text) for text in (why, by))
    record = yield Read(run.read_record)
    wish = Cancelled(why, undo, by, force)
    run.codec.refuse_secrets(to_text(_ending(wish)), "reason of a cancel")  # before anything is claimed or done
    if record.rollback is not None and (record.status is Status.BLOCKED or (force and record.status in LIVE)):
        yield from _cancel_rolling(run, record, wish)
        return
    if record.queue is None:
        yield from _cancel_by_hand(run, record, wish)
        return
    if record.status in ENDED:
        yield from _cancel_ended(run, record, wish)
        return
    try:
        lease = yield from run.claim(LIVE | {Status.BLOCKED})
    except Claimed:
        yield from _ask_to_cancel(run, record, wish)
        run.engine.watch.tell(run.uid)
        run.engine.bell.ring()
        return
    except RunEnded:
        if (yield Read(run.read_record)).status is not Status.CANCELLED:
            raise
        return  # it was being cancelled when its process died, and the claim finished that
    try:
        yield from cancel_held(run, lease, wish)
    except REFUSALS:
        yield from run.release(lease, if_blocked(record))
        raise


def _cancel_rolling(run: HeldRun, record: RunRecord, wish: Cancelled) -> Op[None]:
    """Cancel a run that is blocked in the middle of its rollback: that has to come to its end first."""
    if not (wish.undo or wish.force):
        raise RunBlocked(run.id, f"{record.reason}. run.cancel(force=True) does so, and cancels it")
    to = _beginning(record) if wish.undo else None
    yield from roll_back(run, to, _ending(wish), force=wish.force, by=wish.by)


def _cancel_by_hand(run: HeldRun, record: RunRecord, wish: Cancelled) -> Op[None]:
    """Cancel a run that is driven by hand."""
    if not wish.undo:
        yield from end_by_hand(run, Status.CANCELLED, _ending(wish)["cancelled"])
    elif record.status is Status.CANCELLED:
        yield from _cancel_ended(run, record, wish)
    elif record.status in ENDED:
        raise RunEnded(run.id, f"it is {record.status}, so it cannot be cancelled; run.rollback(to=0) undoes it")
    else:
        yield from roll_back(run, _beginning(record), _ending(wish), force=wish.force, by=wish.by)


def _beginning(record: RunRecord) -> int:
    """The entry before which nothing of a run is undone."""
    return max(record.chapter, record.base)


def _ending(wish: Cancelled) -> Data:
    """How a rollback ends that cancels a run."""
    return {"cancelled": {"error": wish.why, "by": wish.by}}


def _cancel_ended(run: HeldRun, record: RunRecord, wish: Cancelled) -> Op[None]:
    if record.status is not Status.CANCELLED:
        raise RunEnded(run.id, f"it is {record.status}, so it cannot be cancelled; run.rollback(to=0) undoes it")
    if wish.undo and (yield from plan_rollback(run, _beginning(record))).steps:
        yield from rollback(run, _beginning(record), then=Status.CANCELLED, force=wish.force)


def _ask_to_cancel(run: HeldRun, record: RunRecord, wish: Cancelled) -> Op[None]:
    data = {"why": wish.why, "undo": wish.undo, "by": wish.by, "force": wish.force}
    key = f"cancel:{record.epoch}.{run.store.clock.random_bytes(4).hex()}"
    item = run.journals.item(record, key, "cancel", data, wakes=True)
    yield Read(write_one, run.store, Post(record.uid, item))


def cancel_held(run: HeldRun, lease: Lease, wish: Cancelled) -> Op[Status]:
    """Cancel a run that is held here."""
    try:
        yield from _cancel_parts(run, lease, wish)
        took = yield from wishes(run)
    except (RunBlocked, *REFUSALS) as blocked:  # a child, whose effects cannot be undone
        yield from park(run, lease, f"it was cancelled, and a child of it cannot be: {blocked}; then run.unblock()")
        raise
    except BaseException:  # also an interrupt: whatever it is, the claim is given up
        yield from run.release(lease)
        raise
    if wish.undo:
        return (yield from end_by_rollback(run, lease, _ending(wish), Status.CANCELLED, took, force=wish.force))
    try:
        return (yield from end(run, lease, Kind.CANCELLED, _ending(wish)["cancelled"], took))
    except BaseException:  # as above
        yield from run.release(lease)
        raise


def _cancel_parts(run: HeldRun, lease: Lease, wish: Cancelled) -> Op[None]:
    parts = yield from family.open_children(run)
    if parts and (yield Read(lambda: asked_to_cancel(run, run.store.inbox(run.uid)))) is None:
        yield from _ask_to_cancel(run, lease.record, wish)  # should this process die half-way, the next one goes on
    for part in parts:
        with suppress(RunEnded):  # just now, by itself
            why = wish.why or f"run {run.id} was cancelled"
            yield from cancel(part, why, undo=wish.undo, force=wish.force, by=wish.by)


def cancel_driven(run: HeldRun, lease: Lease, wish: Cancelled) -> Op[Status]:
    """Cancel a run for somebody who is not here to be told if it cannot be undone."""
    try:
        return (yield from cancel_held(run, lease, wish))
    except RunBlocked:
        return Status.BLOCKED
    except REFUSALS as refused:
        return (yield from park(run, lease, f"it was cancelled, and cannot be rolled back: {refused}"))


def end_by_hand(run: HeldRun, status: Status, data: Data) -> Op[None]:
    """End a run that is driven by hand. A cancel that was acknowledged before counts."""
    if run.lease is None and (yield Read(run.read_record)).status is status:
        return
    lease, owned = yield from run.enter()
    try:
        took: tuple[str, ...] = ()
        while True:
            change = Change(status=status, release=True)
            try:
                yield from run.write(lease, [(Kind(status), data)], change=change, took=took, what="result")
                break
            except InboxNotEmpty:
                yield from run.catch_up(lease)
                yield from run.drain(lease)
            items = yield Read(run.store.inbox, run.uid)
            wish = asked_to_cancel(run, items)
            if wish is not None and status is not Status.CANCELLED:  # it was acknowledged before
                became = yield from cancel_driven(run, lease, wish)
                problem = f"somebody asked to cancel it before it was {status}, so it is {became}"
                raise (RunBlocked if became is Status.BLOCKED else RunEnded)(run.id, problem)
            took = tuple(item.key for item in items if item.kind == "cancel")
    except BaseException:  # whatever it is, the run is given up, and it is raised
        yield from run.leave(lease, owned)
        raise
    run.forget(lease)


def retry(run: HeldRun, *, by: str | None = None) -> Op[None]:
    """Let a failed, cancelled or parked run go on: what it failed with is tried again, what was done is kept."""
    check_texts(by=by)
    record = yield Read(run.read_record)
    if record.status is Status.BLOCKED:
        yield from unblock(run, by=by)
    elif record.status in (Status.FAILED, Status.CANCELLED):
        yield from note_revival(run.store, record)
        lease = yield from run.claim({Status.FAILED, Status.CANCELLED})
        try:
            yield from _retry_held(run, lease, by)
        except BaseException:  # as above
            yield from run.release(lease)
            raise
        run.forget(lease)
    else:
        raise UsageError(f"run {run.id!r} is {record.status}; only a failed, cancelled or blocked run is tried again")
    run.adopted = run.adopted or record.queue is not None
    run.engine.bell.ring()


def _retry_held(run: HeldRun, lease: Lease, by: str | None) -> Op[None]:
    ended = lease.fold.ended
    data: Data = {"keys": ended[1].get("keys", []) if ended else [], "by": by}
    for part in (yield from family.broken_children(run, lease, data["keys"])):
        yield from retry(part, by=by)
    if (seconds := lease.fold.input.get("seconds")) is not None:
        data["deadline"] = run.store.clock.now() + round(seconds * 1_000_000)
    took = yield from wishes(run)
    change = Change(status=Status.READY, release=True)
    yield from run.write(lease, [(Kind.RETRIED, data)], change=change, took=took)
