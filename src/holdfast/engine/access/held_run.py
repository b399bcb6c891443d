"""A run as the engine works on it: its record and fold, the claim if there is one, and how it is written.

`HeldRun` is the object that every module of the engine takes. It reads at any time. To write it must hold the run's
lease: `HeldRun.enter` gives the one that is held already, or claims the run for one call. `holdfast.engine.run.handle`
has the handle that users get, which adds nothing but their methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from holdfast.engine.access.commit import Ticket
from holdfast.engine.access.engine import Engine
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Op, Read, Settle, TakeTurn, no_turn
from holdfast.errors import (
    Claimed,
    HoldfastError,
    InboxNotEmpty,
    LeaseLost,
    RunBlocked,
    RunDamaged,
    RunEnded,
    RunNotFound,
    StoreUnusable,
    UsageError,
)
from holdfast.kernel.fold import Fold
from holdfast.kernel.inbox import preview
from holdfast.kernel.journal import Data
from holdfast.kernel.model import ENDED, Append, Change, Item, Post, RunRecord, Status
from holdfast.kernel.rules import LIVE
from holdfast.stores.protocol import write_one

Line = tuple[int, str, int, Data]  # an entry as a fold takes it: number, kind, time and data
CLOSED = ENDED | {Status.AWAY}  # nothing is added to the journal of such a run from here
NOT_UNDONE = "not everything was undone"  # what the reason of a run begins with that has ended like that
_TOLD = 5  # undos that a reason names


class HeldRun:
    """One run of a store, as this process sees it and may hold it."""

    def __init__(self, engine: Engine, id: str, uid: str, *, is_async: bool = False) -> None:
        self.id = id
        self.uid = uid
        self.is_async = is_async  # whether its operations are awaited
        self.engine = engine
        self.store = engine.store
        self.codec = engine.codec
        self.journals = engine.journals
        self.committer = engine.committer
        self.lock = threading.RLock()
        self.lease: Lease | None = None
        self.cached_fold: Fold | None = None
        self.active: set[str] = set()  # keys of the steps that are being called just now
        self.inside = False  # of a ``with run.claim():`` block
        self.adopted = False  # whether it executes the run's workflow
        self.expected: RunRecord | None = None  # how the run must still be when it is claimed next
        self.promised = False  # whether it was made in a transaction of the user's own, and not seen since

    def sibling(self, id: str, uid: str) -> HeldRun:
        """Another run of the same store, for the same kind of caller."""
        return HeldRun(self.engine, id, uid, is_async=self.is_async)

    def for_caller(self, *, is_async: bool) -> HeldRun:
        """The same run for sync or async code, without the claim."""
        return HeldRun(self.engine, self.id, self.uid, is_async=is_async)

    # --- reading

    def read_record(self) -> RunRecord:
        record = self.store.get(uid=self.uid)
        if record is None or record.hidden:
            if self.promised:
                problem = "the transaction in which it was enqueued is not committed yet, or was rolled back"
                raise RunNotFound(self.id, f"{problem}; once it is committed, the run is there")
            raise RunNotFound(self.id, "the run was deleted")
        self.promised = False
        return record

    def refold(self, record: RunRecord) -> Fold:
        """The fold of the run as it is now, carried on from the last time."""
        with self.lock:
            if self.lease is not None:
                return self.lease.fold
            self.cached_fold = self.journals.fold(record, record.seq, self.cached_fold)
            return self.cached_fold

    def seen(self) -> Op[Fold]:
        """The fold, with what waits in the inbox already counted."""
        record, items = yield from self.read_inbox()
        fold = yield Read(self.refold, record)
        return self.with_pending(fold, items)[0]

    def read_inbox(self) -> Op[tuple[RunRecord, list[Item]]]:
        """The record, and what waits in the inbox. What was left for the run is in the journal or in the inbox."""
        if self.lease is not None:
            yield from self.catch_up(self.lease)
        items = yield Read(self.store.inbox, self.uid)
        while True:
            record = yield Read(self.read_record)
            again = (yield Read(self.store.inbox, self.uid)) if items else items
            if [item.key for item in again] == [item.key for item in items]:
                took = self.lease.took if self.lease is not None else ()
                return record, [item for item in items if item.key not in took]
            items = again

    def with_pending(self, fold: Fold, items: Sequence[Item]) -> tuple[Fold, list[Line]]:
        """The fold with what waits in the inbox already counted, and the entries that it becomes.

        Their numbers are those that they have if nothing else is written before them.
        """
        lines: list[Line] = []
        if items:
            fold = fold.copy()
            for item in items:
                before, data = fold.seq, self.journals.item_data(self.id, self.uid, item)
                made = preview(self.uid, fold, item, data)
                lines += [(before + n, kind, item.at, told) for n, (kind, told) in enumerate(made, 1)]
        return fold, lines

    def pending(self) -> Op[tuple[RunRecord, list[Line]]]:
        """The record, and the entries that what waits in the inbox becomes."""
        record, items = yield from self.read_inbox()
        if not items:
            return record, []
        fold = yield Read(self.refold, record)
        return record, self.with_pending(fold, items)[1]

    def enter(self, allow: Collection[Status] = LIVE, *, rolls: bool = False) -> Op[tuple[Lease, bool]]:
        """The lease to write with, and whether it was claimed for this call alone."""
        lease, owned, end_turn = yield from self.enter_in_turn(allow, rolls=rolls)
        end_turn()
        return lease, owned

    def enter_in_turn(
        self, allow: Collection[Status] = LIVE, *, rolls: bool = False
    ) -> Op[tuple[Lease, bool, Callable[[], None]]]:
        """The same, and the function that ends this task's turn: call it once the write is submitted."""
        lease = self.lease
        if lease is not None:
            end_turn = yield TakeTurn(lease.line)
            try:
                yield from self.catch_up(lease)
                if lease.lost:
                    raise LeaseLost(self.id)
                self.check_not_rolling(lease)
            except BaseException:  # also if the task is cancelled
                end_turn()
                raise
            return lease, False, end_turn
        if self.inside:
            raise UsageError(
                f"run {self.id!r}: its claim was given up inside of this block, by pause(), release() or its end; "
                "leave the block, and claim the run again when it can go on"
            )
        return (yield from self.claim(allow, rolls=rolls)), True, no_turn

    def catch_up(self, lease: Lease) -> Op[None]:
        """Wait for what was submitted under the lease: nothing may be decided on what does not last in the end."""
        ticket = lease.pending
        while ticket is not None and not ticket.settled:
            with suppress(HoldfastError):  # it is told to whoever wrote it
                yield Settle(ticket)
            ticket = lease.pending
        if lease.check_may_block:
            with suppress(LeaseLost):
                yield Read(lease.check)

    def check_not_rolling(self, lease: Lease) -> None:
        if lease.fold.rolling is not None:
            raise UsageError(
                f"run {self.id!r} is being rolled back; if that was broken off, release the claim: the next one "
                "finishes it"
            )

    def leave(self, lease: Lease, owned: bool) -> Op[None]:
        if owned:
            yield from self.release(lease)

    def confirm(self, lease: Lease) -> Op[None]:
        """Before something is done outside: see that nobody has claimed the run; raises `LeaseLost`.

        While the heartbeat is in time that is known, and nothing is asked. After it was late, as when this process was
        stopped, the store is asked once. A process that is stopped right after this acts all the same when it wakes.
        """
        worker = self.engine.worker
        if not worker.is_sure_of(lease):
            yield Read(worker.confirm, lease)

    def write(self, lease: Lease, lines: Sequence[tuple[str, Data]], **how: Any) -> Op[int]:
        """Write entries and wait until they are lasting; the number of the first."""
        return (yield from self.settle(lease, lease.write(lines, **how)))

    def write_last(self, lease: Lease, lines: Sequence[tuple[str, Data]], change: Change, **how: Any) -> Op[None]:
        """Write with a release of the claim. If it ends the run, what was acknowledged meanwhile is taken in first."""
        while True:
            try:
                yield from self.write(lease, lines, change=change, **how)
                return
            except InboxNotEmpty:
                yield from self.catch_up(lease)
                if not (yield from self.drain(lease)):  # a cancel is left to whoever executes the run next
                    change = replace(change, status=Status.READY)

    def settle(self, lease: Lease, ticket: Ticket) -> Op[int]:
        try:
            yield Settle(ticket)
        finally:
            lease.settled(ticket)
        assert isinstance(ticket.write, Append)
        return ticket.write.entries[0].seq if ticket.write.entries else lease.seq

    # --- the claim

    def claim(self, allow: Collection[Status] = LIVE, *, rolls: bool = False, alone: bool = False) -> Op[Lease]:
        """Claim the run, finish a rollback that has begun, and take in what waits in the inbox.

        With ``rolls`` the caller rolls it back, and a rollback that has begun is left to it. Only such a caller gets a
        run that is blocked in the middle of its rollback. ``alone`` says that this process executes no other run.
        """
        if self.engine.closed:  # a call that was under way must not claim anew what the closing gave up
            raise StoreUnusable(self.store.place, "it is closed; open the store again")
        worker = yield Read(self.engine.worker.ready)
        stuck = self.engine.stuck.pop(self.uid, None)
        if stuck is not None:
            yield from self.release(*stuck)
        before = yield Read(self.read_record)
        if before.rollback is not None and before.status is Status.BLOCKED and not rolls:
            raise RunBlocked(self.id, before.reason)
        record = yield Read(self.store.claim, self.uid, worker, allow, alone=alone)
        seen, self.expected = self.expected, None
        if seen is not None and (record.epoch, record.seq) != (seen.epoch + 1, seen.seq):
            yield from self.release(Lease(record, self.journals, self.committer, Fold(self.id)), as_before(before))
            raise LeaseLost(self.id, "somebody else has claimed it since it was seen, so nothing was done")
        return (yield from self.take_up(record, as_before(before), allow, rolls=rolls))

    def take_up(
        self, record: RunRecord, back: Change | None, allow: Collection[Status] = LIVE, *, rolls: bool = False
    ) -> Op[Lease]:
        """The lease on a run that was claimed for this worker. ``back`` gives up what cannot even be read (no key)."""
        lease = Lease(record, self.journals, self.committer, Fold(self.id))
        try:
            lease.fold = yield Read(self.refold, record)
            self.cached_fold = None  # it is the lease's from now on, and changes under its lock
            if record.rollback is not None and rolls:
                return lease
            back = None
            if record.rollback is not None:
                yield from self.engine.upcalls.finish_rollback(self, lease)  # before all else
            yield from self.drain(lease)
            if lease.fold.ended is not None and lease.fold.ended[0] not in allow:
                # Its status was "running" only because somebody died while redacting it, rolling it back, or before
                # its parent was told.
                yield from self.notify_parent(lease)
                raise RunEnded(self.id, f"it is {lease.fold.ended[0]}; fork it, or roll it back, to go on")
        except RunDamaged as damage:
            parked = Change(status=Status.BLOCKED, release=True, reason=str(damage))
            yield from self.release(lease, parked if damage.run == self.id else back)
            raise
        except BaseException:  # whatever it is, the run is given up, and it is raised
            yield from self.release(lease, back)
            raise
        return lease

    def hold(self) -> Op[Lease]:
        if self.lease is not None:
            raise Claimed(self.id, "this handle holds the run already")
        lease = yield from self.claim()
        self.lease = lease
        self.engine.held.add(self)
        return lease

    def release(self, lease: Lease, change: Change | None = None) -> Op[None]:
        """Give up the lease in the store; if it was lost, or given up before, there is nothing to give up."""
        try:
            if lease.is_given_up:
                return
            rests = change
            if rests is None:
                yield from self.catch_up(lease)  # a write that failed must not be counted
                status = Status.READY if lease.untold else resting_status(lease.fold, lease.record)
                reason = not_undone(lease.fold, lease.record) if status in ENDED else None
                rests = Change(status=status, release=True, reason=reason)
            yield from self.write_last(lease, (), rests)
        except LeaseLost:
            pass
        except BaseException:  # a full disk, an interrupt
            # This worker may still hold the run. Its next claim begins with giving it up.
            self.engine.stuck[self.uid] = lease, change
            raise
        finally:
            self.forget(lease)

    def forget(self, lease: Lease) -> None:
        with self.lock:
            self.cached_fold = lease.fold if lease.sound else None
            if self.lease is lease:
                self.lease = None
                self.engine.held.discard(self)

    def save_tree(self, tree: Data, *, keep: bool) -> Op[int]:
        lease, owned, end_turn = yield from self.enter_in_turn()
        try:
            try:
                ticket = yield Read(lease.save, tree, keep=keep)
            finally:
                end_turn()
            return (yield from self.settle(lease, ticket))
        finally:
            yield from self.leave(lease, owned)

    # --- the inbox, and the parent

    def record_unheld(self) -> Op[None]:
        """Move what waits in the inbox of a run that nobody holds into its journal. A holder does that by itself.

        It was acknowledged when it was posted. So it is no failure if somebody claims the run meanwhile, or if the
        store cannot be written now: whoever claims the run next takes it in.
        """
        record, items = yield from self.read_inbox()
        items = [item for item in items if item.kind != "cancel"]
        if not items or record.worker is not None or record.rollback is not None or record.status in CLOSED:
            return
        with suppress(HoldfastError):
            fold = (yield Read(self.refold, record)).copy()
            data = [(item, self.journals.item_data(self.id, self.uid, item)) for item in items]
            lines = [line for item, told in data for line in preview(self.uid, fold, item, told)]
            if lines:
                at = max(self.store.clock.now(), record.updated_at)
                entries = self.journals.next_entries(record, lines, at, record.state, "entry", acknowledged=True)
                took = tuple(item.key for item in items)
                yield Settle(
                    self.committer.submit(Append(record.uid, record.id, record.epoch, "", tuple(entries), None, took))
                )

    def drain(self, lease: Lease) -> Op[bool]:
        """Move what waits in the inbox into the journal; whether there was anything. Several branches of a workflow may
        do so at once.
        """
        items = yield Read(self.store.inbox, self.uid)
        ended = lease.fold.ended is not None
        items = [item for item in items if item.kind != "cancel" or ended]  # that is for whoever drives the run
        if not items:
            return False
        lines: list[tuple[str, Data]] = []
        with lease.lock:
            lease.check()
            items = [item for item in items if item.key not in lease.took]
            if not items:
                return False
            fold = lease.fold.copy()
            for item in items:
                lines += preview(self.uid, fold, item, self.journals.item_data(self.id, self.uid, item))
            ticket = lease.write(lines, took=tuple(item.key for item in items), acknowledged=True)
        yield from self.settle(lease, ticket)
        return True

    def notify_parent(self, lease: Lease) -> Op[None]:
        """Leave word with the parent that the run has ended."""
        parent = lease.fold.input.get("parent")
        if parent is None:
            return
        store = self.store
        lease.untold = True  # if that fails, whoever claims the run next does it
        record = yield Read(lambda: store.get(uid=parent["uid"]))
        if record is None or record.hidden or record.status is Status.AWAY:
            lease.untold = False
            return
        # Its epoch makes the key a new one each time: a child that was tried again ends again.
        key = f"child:{self.uid}.{lease.record.epoch}"
        item = self.journals.item(record, key, "child", {"key": parent["key"], "id": self.id}, wakes=True)
        with suppress(RunEnded):  # it needs no word any more
            yield Read(write_one, store, Post(record.uid, item))
        lease.untold = False
        self.engine.watch.tell(record.uid)
        self.engine.bell.ring()


def resting_status(fold: Fold, record: RunRecord) -> Status:
    """The status of a run that nobody holds. With a rollback under way it is ready: the next claim finishes that.

    So is a workflow's: what it waits for, and until when, is known only after it was driven.
    """
    if fold.rolling is not None:
        return Status.READY
    if fold.ended is not None:
        return fold.ended[0]
    return Status.WAITING if fold.questions and record.queue is None else Status.READY


def as_before(record: RunRecord) -> Change:
    """What gives up a claim and leaves the run as it was before."""
    status = Status.READY if record.status is Status.RUNNING else record.status
    return Change(status=status, release=True, wake_at=record.wake_at, reason=record.reason)


def not_undone(fold: Fold, record: RunRecord) -> str | None:
    """What a run that has ended says of the effects that its rollback passed over; None if there are none."""
    marks = [mark for mark in fold.ledger.values() if mark.status == "undo_failed"] if fold.ended is not None else []
    if not marks:
        return None
    hidden = record.key_id is not None  # a reason stands in the clear
    told = [f"{mark.key!r}" + (f" ({mark.error})" if mark.error and not hidden else "") for mark in marks[:_TOLD]]
    more = f" and {len(marks) - _TOLD} more" if len(marks) > _TOLD else ""
    return f"{NOT_UNDONE}: the undo of step {', '.join(told)}{more} failed, and was passed over"
