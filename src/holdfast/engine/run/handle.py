"""A handle on one run: everything that can be asked of it or done to it.

`Run` is the table of contents. What belongs to one subject lives in a module of its own: steps and effects in
`holdfast.engine.run.manual_step`, pauses in `holdfast.engine.control.questions`, going back in
`holdfast.engine.control.rollback`. Here are the claim, the states, and the run as a whole.

A handle reads at any time. To write it must hold the run's lease: ``with run.claim():`` keeps it for a block; a
writing call outside of such a block claims the run for just that call.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec.structs import replace

from holdfast.engine.access.commit import Ticket
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Async, Op, Operable, Operation, Read, Settle, TakeTurn, drive, no_turn
from holdfast.engine.argument_checks import check_history_page, check_seq, check_texts
from holdfast.engine.control import cancel as wishes
from holdfast.engine.control import edit as edits
from holdfast.engine.control import messages, rollback
from holdfast.engine.control import questions as pauses
from holdfast.engine.control.audit import audit
from holdfast.engine.control.erase import redact
from holdfast.engine.control.fork import Point, fork, fork_each
from holdfast.engine.execute import children
from holdfast.engine.execute import result as results
from holdfast.engine.run import manual_step, outputs, streams
from holdfast.engine.run.checkpoint import Checkpoint, StepsAt
from holdfast.engine.run.claim import AsyncHolding, Holding
from holdfast.engine.workflow.declare import Workflow, registered, registered_names, state_type
from holdfast.engine.workflow.failures import one_line
from holdfast.engine.workflow.replay import DIFFERS
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
from holdfast.kernel.journal import Data, is_live, live_ranges
from holdfast.kernel.model import ENDED, Append, Change, Item, Kind, RunRecord, Status
from holdfast.kernel.rules import ANY, LIVE
from holdfast.views import EntryContents, EntryInfo, Page, RunInfo, moment

if TYPE_CHECKING:
    from holdfast.engine.app import Engine

T = TypeVar("T")
Line = tuple[int, str, int, Data]  # an entry as a fold takes it: number, kind, time and data


class Run(Operable):
    """One run of a store."""

    def __init__(self, engine: Engine, id: str, uid: str) -> None:
        self.id = id
        self.uid = uid
        self._engine = engine
        self._store = engine.store
        self._codec = engine.codec
        self._journals = engine.journals
        self._committer = engine.committer
        self._lock = threading.RLock()
        self._lease: Lease | None = None
        self._fold: Fold | None = None
        self._active: set[str] = set()  # keys of the steps that are being called just now
        self._inside = False  # of a ``with run.claim():`` block
        self._adopted = False  # whether it drives the run's workflow
        self._expected: RunRecord | None = None  # how the run must still be when this handle claims it next
        self._promised = False  # whether it was made in a transaction of the user's own, and not seen since

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}>"

    # --- what the modules of this package use

    def _record(self) -> RunRecord:
        record = self._store.journal(self.uid)
        if record is None or record.hidden:
            if self._promised:
                problem = "the transaction in which it was enqueued is not committed yet, or was rolled back"
                raise RunNotFound(self.id, f"{problem}; once it is committed, the run is there")
            raise RunNotFound(self.id, "the run was deleted")
        self._promised = False
        return record

    def _refold(self, record: RunRecord) -> Fold:
        """The fold of the run as it is now, carried on from the last time."""
        with self._lock:
            if self._lease is not None:
                return self._lease.fold
            self._fold = self._journals.fold(record, record.seq, self._fold)
            return self._fold

    def _seen(self) -> Op[Fold]:
        """The fold, with what waits in the inbox already counted."""
        record, items = yield from self._inbox()
        fold = yield Read(lambda: self._refold(record))
        return self._with_pending(fold, items)[0]

    def _inbox(self) -> Op[tuple[RunRecord, list[Item]]]:
        """The record, and what waits in the inbox. What was left for the run is in the journal or in the inbox."""
        if self._lease is not None:
            yield from self._catch_up(self._lease)
        items = yield Read(lambda: self._store.inbox(self.uid))
        while True:
            record = yield Read(self._record)
            again = (yield Read(lambda: self._store.inbox(self.uid))) if items else items
            if [item.key for item in again] == [item.key for item in items]:
                took = self._lease.took if self._lease is not None else ()
                return record, [item for item in items if item.key not in took]
            items = again

    def _with_pending(self, fold: Fold, items: Sequence[Item]) -> tuple[Fold, list[Line]]:
        """The fold with what waits in the inbox already counted, and the entries that it becomes.

        Their numbers are those that they have if nothing else is written before them.
        """
        lines: list[Line] = []
        if items:
            fold = fold.copy()
            for item in items:
                before, data = fold.seq, self._journals.item_data(self.id, self.uid, item)
                made = pauses.preview(self.uid, fold, item, data)
                lines += [(before + n, kind, item.at, told) for n, (kind, told) in enumerate(made, 1)]
        return fold, lines

    def _pending(self) -> Op[tuple[RunRecord, list[Line]]]:
        """The record, and the entries that what waits in the inbox becomes."""
        record, items = yield from self._inbox()
        if not items:
            return record, []
        fold = yield Read(lambda: self._refold(record))
        return record, self._with_pending(fold, items)[1]

    def _enter(self, allow: Collection[Status] = LIVE, *, rolls: bool = False) -> Op[tuple[Lease, bool]]:
        """The lease to write with, and whether it was claimed for this call alone."""
        lease, owned, end_turn = yield from self._enter_in_turn(allow, rolls=rolls)
        end_turn()
        return lease, owned

    def _enter_in_turn(
        self, allow: Collection[Status] = LIVE, *, rolls: bool = False
    ) -> Op[tuple[Lease, bool, Callable[[], None]]]:
        """The same, and the function that ends this task's turn: call it once the write is submitted."""
        lease = self._lease
        if lease is not None:
            end_turn = yield TakeTurn(lease.line)
            try:
                yield from self._catch_up(lease)
                if lease.lost:
                    raise LeaseLost(self.id)
                self._check_not_rolling(lease)
            except BaseException:  # also if the task is cancelled
                end_turn()
                raise
            return lease, False, end_turn
        if self._inside:
            raise UsageError(
                f"run {self.id!r}: its claim was given up inside of this block, by pause(), release() or its end; "
                "leave the block, and claim the run again when it can go on"
            )
        return (yield from self._claim(allow, rolls=rolls)), True, no_turn

    def _catch_up(self, lease: Lease) -> Op[None]:
        """Wait for what was submitted under the lease: nothing may be decided on what does not last in the end."""
        ticket = lease.pending
        while ticket is not None and not ticket.settled:
            with suppress(HoldfastError):  # it is told to whoever wrote it
                yield Settle(ticket)
            ticket = lease.pending
        if lease.check_may_block:
            with suppress(LeaseLost):
                yield Read(lease.check)

    def _check_not_rolling(self, lease: Lease) -> None:
        if lease.fold.rolling is not None:
            raise UsageError(
                f"run {self.id!r} is being rolled back; if that was broken off, release the claim: the next one "
                "finishes it"
            )

    def _leave(self, lease: Lease, owned: bool) -> Op[None]:
        if owned:
            yield from self._let_go(lease)

    def _confirm(self, lease: Lease) -> Op[None]:
        """Before something is done outside: see that nobody has claimed the run; raises `LeaseLost`.

        While the heartbeat is in time that is known, and nothing is asked. After it was late, as when this process was
        stopped, the store is asked once. A process that is stopped right after this acts all the same when it wakes.
        """
        worker = self._engine.worker
        if not worker.is_sure_of(lease):
            yield Read(lambda: worker.confirm(lease))

    def _write(self, lease: Lease, lines: Sequence[tuple[str, Data]], **how: Any) -> Op[int]:
        """Write entries and wait until they are lasting; the number of the first."""
        return (yield from self._settle(lease, lease.write(lines, **how)))

    def _write_last(self, lease: Lease, lines: Sequence[tuple[str, Data]], change: Change, **how: Any) -> Op[None]:
        """Write with a release of the claim. If it ends the run, what was acknowledged meanwhile is taken in first."""
        while True:
            try:
                yield from self._write(lease, lines, change=change, **how)
                return
            except InboxNotEmpty:
                yield from self._catch_up(lease)
                if not (yield from pauses.drain(self, lease)):  # a cancel is left to whoever executes the run next
                    change = replace(change, status=Status.READY)

    def _settle(self, lease: Lease, ticket: Ticket) -> Op[int]:
        try:
            yield Settle(ticket)
        finally:
            lease.settled(ticket)
        assert isinstance(ticket.write, Append)
        return ticket.write.entries[0].seq if ticket.write.entries else lease.seq

    # --- the claim

    def _claim(self, allow: Collection[Status] = LIVE, *, rolls: bool = False, alone: bool = False) -> Op[Lease]:
        """Claim the run, finish a rollback that has begun, and take in what waits in the inbox.

        With ``rolls`` the caller rolls it back, and a rollback that has begun is left to it. Only such a caller gets a
        run that is blocked in the middle of its rollback. ``alone`` says that this process executes no other run.
        """
        if self._engine.closed:  # a call that was under way must not claim anew what the closing gave up
            raise StoreUnusable(self._store.place, "it is closed; open the store again")
        worker = yield Read(self._engine.worker.ready)
        stuck = self._engine.stuck.pop(self.uid, None)
        if stuck is not None:
            yield from self._let_go(*stuck)
        before = yield Read(self._record)
        if before.rollback is not None and before.status is Status.BLOCKED and not rolls:
            raise RunBlocked(self.id, before.reason)
        record = yield Read(lambda: self._store.claim(self.uid, worker, allow, alone=alone))
        seen, self._expected = self._expected, None
        if seen is not None and (record.epoch, record.seq) != (seen.epoch + 1, seen.seq):
            yield from self._let_go(Lease(record, self._journals, self._committer, Fold(self.id)), as_before(before))
            raise LeaseLost(self.id, "somebody else has claimed it since it was seen, so nothing was done")
        return (yield from self._take_up(record, as_before(before), allow, rolls=rolls))

    def _take_up(
        self, record: RunRecord, back: Change | None, allow: Collection[Status] = LIVE, *, rolls: bool = False
    ) -> Op[Lease]:
        """The lease on a run that was claimed for this worker. ``back`` gives up what cannot even be read (no key)."""
        lease = Lease(record, self._journals, self._committer, Fold(self.id))
        try:
            lease.fold = yield Read(lambda: self._refold(record))
            self._fold = None  # it is the lease's from now on, and changes under its lock
            if record.rollback is not None and rolls:
                return lease
            back = None
            if record.rollback is not None:
                rollback.tell_finished(self.id, (yield from rollback.finish_rollback(self, lease)))  # before all else
            yield from pauses.drain(self, lease)
            if lease.fold.ended is not None and lease.fold.ended[0] not in allow:
                # Its status was "running" only because somebody died while redacting it, rolling it back, or before
                # its parent was told.
                yield from children.notify(self, lease)
                raise RunEnded(self.id, f"it is {lease.fold.ended[0]}; fork it, or roll it back, to go on")
        except RunDamaged as damage:
            parked = Change(status=Status.BLOCKED, release=True, reason=str(damage))
            yield from self._let_go(lease, parked if damage.run == self.id else back)
            raise
        except BaseException:  # whatever it is, the run is given up, and it is raised
            yield from self._let_go(lease, back)
            raise
        return lease

    def _hold(self) -> Op[Lease]:
        if self._lease is not None:
            raise Claimed(self.id, "this handle holds the run already")
        lease = yield from self._claim()
        self._lease = lease
        self._engine.held.add(self)
        return lease

    def _let_go(self, lease: Lease, change: Change | None = None) -> Op[None]:
        """Give up the lease in the store; if it was lost, or given up before, there is nothing to give up."""
        try:
            if lease.is_given_up:
                return
            rests = change
            if rests is None:
                yield from self._catch_up(lease)  # a write that failed must not be counted
                status = Status.READY if lease.untold else resting_status(lease.fold, lease.record)
                reason = rollback.not_undone(lease.fold, lease.record) if status in ENDED else None
                rests = Change(status=status, release=True, reason=reason)
            yield from self._write_last(lease, (), rests)
        except LeaseLost:
            pass
        except BaseException:  # a full disk, an interrupt
            # This worker may still hold the run. Its next claim begins with giving it up.
            self._engine.stuck[self.uid] = lease, change
            raise
        finally:
            self._give_up(lease)

    def _give_up(self, lease: Lease) -> None:
        with self._lock:
            self._fold = lease.fold if lease.sound else None
            if self._lease is lease:
                self._lease = None
                self._engine.held.discard(self)

    def claim(self) -> Holding:
        """Become the one holder of the run; raises `Claimed` if another one has it.

        ``with run.claim():`` gives it up at the end of the block. Without ``with``, call `release`. A writing call
        outside of any claim takes one for itself.
        """
        return Holding(self, drive(self._hold(), self._committer))

    @Operation
    def release(self) -> Op[None]:
        """Give up the claim, so that another holder may go on. May be repeated."""
        if self._lease is not None:
            yield from self._let_go(self._lease)

    @property
    def status(self) -> Status:
        """In what state the run is now."""
        return self._record().status

    @property
    def epoch(self) -> int | None:
        """The epoch under which this handle holds the run, or None."""
        return self._lease.record.epoch if self._lease is not None else None

    # --- states

    @Operation
    def save(
        self,
        state: Any,
        *,
        next: str | None = None,
        queue: Any = None,
        variables: Any = None,
        node: str | None = None,
    ) -> Op[int]:
        """Checkpoint the state, and what comes next; returns its sequence number.

        Only what changed since the save before is stored. The state may be changed or thrown away afterwards. A
        checkpoint is what was given to its save: leave out ``next`` or ``queue``, and it has none. To change the
        state alone, use `edit`.
        """
        check_texts(next=next, node=node)
        tree: Data = {"state": self._codec.encode(state, "state")}
        for name, value in (("node", node), ("next", next), ("queue", queue), ("variables", variables)):
            if value is not None:
                tree[name] = self._codec.encode(value, name)
        return (yield from self._save(tree, keep=False))

    edit = Operation(edits.edit)

    def _save(self, tree: Data, *, keep: bool) -> Op[int]:
        lease, owned, end_turn = yield from self._enter_in_turn()
        try:
            try:
                ticket = yield Read(lambda: lease.save(tree, keep=keep))
            finally:
                end_turn()
            return (yield from self._settle(lease, ticket))
        finally:
            yield from self._leave(lease, owned)

    @Operation
    def checkpoint(self, seq: int | None = None, *, type: Any = None) -> Op[Checkpoint]:
        """The run as it was at a sequence number, or as it is now. ``type`` is the state's type, if not registered."""
        check_seq("seq", 0 if seq is None else seq)
        items: list[Item] = []
        if seq is None:
            record, items = yield from self._inbox()
        else:
            record = yield Read(self._record)
        at = record.seq if seq is None else seq
        saved = yield Read(lambda: self._journals.state(record, seq))
        steps_at = StepsAt(lambda: self._with_pending(self._journals.fold(record, at), items)[0])
        if isinstance(self, Async):
            yield Read(steps_at.load)
        return Checkpoint(record, at, saved, self._journals, type or state_type(record), steps_at)

    @Operation
    def history(self, *, limit: int = 100, after: str | None = None, kind: str | None = None) -> Op[Page[EntryInfo]]:
        """The run's entries, oldest first, without their contents.

        An answer, mark or message that the holder has not taken in yet is the last, and ``pending``: its number may
        still change.
        """
        check_history_page(limit, after, kind)
        record, pending = yield from self._pending()
        lo = 0 if after is None else _cursor(after) + 1
        ranges = live_ranges(record.rewinds, record.seq)
        found: list[EntryInfo] = []
        last = lo - 1
        while last < record.seq and len(found) < limit:
            lo, hi = last + 1, min(last + max(limit, 100), record.seq)
            for entry in (yield Read(lambda lo=lo, hi=hi: self._journals.headers(record, lo, hi))):  # type: ignore[misc]
                last = entry.seq
                if kind in (None, entry.kind):
                    live, inherited = is_live(ranges, entry.seq), entry.seq < record.base
                    found.append(EntryInfo(entry.seq, entry.kind, moment(entry.at), live, inherited))
                if len(found) == limit:
                    break
            else:
                last = hi
        for seq, what, at, _ in pending if last >= record.seq else ():
            if last < seq and len(found) < limit:
                last = seq
                found += [EntryInfo(seq, what, moment(at), pending=True)] if kind in (None, what) else []
        return Page(tuple(found), str(last) if last < record.seq + len(pending) else None)

    @Operation
    def entry(self, seq: int) -> Op[EntryContents]:
        """One entry with its contents in a readable JSON form, which needs none of the user's classes."""
        check_seq("seq", seq)
        record = yield Read(self._record)
        if seq > record.seq:
            record, pending = yield from self._pending()
            for one, kind, at, data in pending:
                if one == seq:
                    return EntryContents(seq, kind, moment(at), self._journals.raw(data), pending=True)
        uid, entry = yield Read(lambda: self._journals.entry(record, seq))
        contents = yield Read(lambda: self._journals.contents(record, uid, entry))
        return EntryContents(seq, entry.kind, moment(entry.at), contents)

    # --- forks, steps, pauses, going back

    def _sibling(self, id: str, uid: str) -> Run:
        return type(self)(self._engine, id, uid)

    def _plain(self) -> Run:
        """A handle on the same run for sync code."""
        return Run(self._engine, self.id, self.uid)

    def _awaited(self) -> AsyncRun:
        """A handle on the same run for async code."""
        return AsyncRun(self._engine, self.id, self.uid)

    # Operations that stand in modules of their own. Some have the name of their module, and hide it from there on.
    fork = Operation(fork)
    fork_each = Operation(fork_each)
    if TYPE_CHECKING:

        def once(
            self,
            key: str,
            function: Callable[..., T],
            /,
            *args: Any,
            target: str | None = None,
            undo: Callable[..., Any] | None = None,
            reversible: bool | None = None,
            at_most_once: bool = False,
            check_args: bool = True,
            result_type: Any = None,
            **kwargs: Any,
        ) -> T: ...
    else:
        once = Operation(manual_step.once)
    mark = Operation(manual_step.mark)
    resolve = Operation(manual_step.resolve)
    is_completed = Operation(manual_step.is_completed)
    effects = Operation(manual_step.effects)
    pause = Operation(pauses.pause)
    questions = Operation(pauses.questions)
    answer = Operation(pauses.answer)
    plan_rollback = Operation(rollback.plan_rollback)
    rollback = Operation(rollback.rollback)
    audit = Operation(audit)
    redact = Operation(redact)
    send = Operation(messages.send)
    follow = outputs.follow
    entries = Operation(streams.entries)
    events = streams.events
    states = streams.states
    activity = outputs.activity
    steps = Operation(outputs.steps)
    outputs = Operation(outputs.outputs)
    resume = Operation(results.resume)
    wait = Operation(results.wait)
    result = Operation(results.result)
    cancel = Operation(wishes.cancel)
    retry = Operation(wishes.retry)

    # --- the end, and the run as a whole

    @Operation
    def complete(self, result: Any = None) -> Op[None]:
        """The run is done; its lease is given up. Completing twice changes nothing.

        If somebody had asked to cancel the run before, it is cancelled instead, and `RunEnded` is raised.
        """
        yield from self._end(Status.COMPLETED, {"result": self._codec.encode(result, "result")})

    @Operation
    def fail(self, error: str | BaseException) -> Op[None]:
        """The run has failed; its lease is given up. It can still be forked, or rolled back and go on.

        If somebody had asked to cancel the run before, it is cancelled instead, and `RunEnded` is raised.
        """
        told = self._codec.scrub(error) if isinstance(error, str) else one_line(error, self._codec)
        yield from self._end(Status.FAILED, {"error": told})

    def _end(self, status: Status, data: Data) -> Op[None]:
        if self._lease is None and (yield Read(self._record)).status is status:
            return
        lease, owned = yield from self._enter()
        try:
            took: tuple[str, ...] = ()
            while True:
                change = Change(status=status, release=True)
                try:
                    yield from self._write(lease, [(Kind(status), data)], change=change, took=took, what="result")
                    break
                except InboxNotEmpty:
                    yield from self._catch_up(lease)
                    yield from pauses.drain(self, lease)
                items = yield Read(lambda: self._store.inbox(self.uid))
                wish = wishes.asked_to_cancel(self, items)
                if wish is not None and status is not Status.CANCELLED:  # it was acknowledged before
                    became = yield from wishes.cancel_driven(self, lease, wish)
                    problem = f"somebody asked to cancel it before it was {status}, so it is {became}"
                    raise (RunBlocked if became is Status.BLOCKED else RunEnded)(self.id, problem)
                took = tuple(item.key for item in items if item.kind == "cancel")
        except BaseException:  # whatever it is, the run is given up, and it is raised
            yield from self._leave(lease, owned)
            raise
        self._give_up(lease)

    @Operation
    def declared(self) -> Op[Workflow[..., Any] | None]:
        """The workflow or graph that the run is a run of, as this process has it; None if it is not declared here."""
        record = yield Read(self._record)
        input = (yield Read(lambda: self._refold(record))).input
        found = registered(record.workflow, input.get("version"), input.get("module"))
        return found.of_run(self._codec, input) if found is not None else None

    @Operation
    def info(self) -> Op[RunInfo]:
        """The run's record: status, times, holder, tags."""
        record = yield Read(self._record)
        return run_info(record, (yield from self._blocked_by(record)))

    def _blocked_by(self, record: RunRecord) -> Op[RunRecord | None]:
        """The blocked child that a waiting run waits for, if there is one."""
        if record.status is not Status.WAITING or record.queue is None:
            return None
        return (yield Read(lambda: children.blocked_below(self._store, record.uid)))  # type: ignore[no-any-return]

    @Operation
    def unblock(self, *, accept: bool = False, by: str | None = None) -> Op[None]:
        """Let a blocked run continue; who did it is journaled. One that is blocked in its rollback retries that.

        ``accept`` is for a run that is blocked because its code no longer does what was recorded: it continues with
        what the code does now. Recorded calls that the code still asks for keep their results, all others are left
        aside; a finished step that is called under another key is executed again.
        """
        record = yield Read(self._record)
        if record.status is not Status.BLOCKED:
            raise UsageError(f"run {self.id!r} is {record.status}, not blocked")
        if accept and not (record.reason or "").startswith(DIFFERS):
            raise UsageError(
                f"run {self.id!r} is blocked for another reason than code that differs from what was recorded "
                f"({record.reason}), so there is nothing to accept; call run.unblock()"
            )
        if record.rollback is not None:
            yield from rollback.roll_back(self, None, {}, by=by)
            return
        lease = yield from self._claim(ANY)
        change = Change(status=resting_status(lease.fold, lease.record), release=True)
        try:
            data: Data = {"by": by, "reason": record.reason and self._codec.scrub(record.reason)} | (
                {"accepted": True} if accept else {}
            )
            yield from self._write_last(lease, [(Kind.UNBLOCKED, data)], change)
        except BaseException:  # also an interrupt: whatever it is, the claim is given up
            yield from self._let_go(lease, as_before(record))
            raise
        self._give_up(lease)

    @Operation
    def delete(self) -> Op[bool]:
        """Delete the run; False if it was gone already. While forks share its history, the entries stay for them.

        Raises `Claimed` while a live worker holds it, and `RunBlocked` in the middle of a rollback: its journal says
        which effects are still there.
        """
        record = yield Read(lambda: self._store.journal(self.uid))
        if record is not None and record.rollback is not None and record.status is Status.BLOCKED:
            raise RunBlocked(self.id, f"{record.reason}. Deleting it would forget what was not undone")
        return bool((yield Read(lambda: self._store.delete(self.uid))))


class AsyncRun(Run, Async):
    """The same for async callers: every operation is awaited, and a claim is entered with ``async with``."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]
        async def once(
            self,
            key: str,
            function: Callable[..., Awaitable[T]],
            /,
            *args: Any,
            target: str | None = None,
            undo: Callable[..., Any] | None = None,
            reversible: bool | None = None,
            at_most_once: bool = False,
            check_args: bool = True,
            result_type: Any = None,
            **kwargs: Any,
        ) -> T: ...
        @overload
        async def once(
            self,
            key: str,
            function: Callable[..., T],
            /,
            *args: Any,
            target: str | None = None,
            undo: Callable[..., Any] | None = None,
            reversible: bool | None = None,
            at_most_once: bool = False,
            check_args: bool = True,
            result_type: Any = None,
            **kwargs: Any,
        ) -> T: ...
        async def once(self, key: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...
        async def fork(
            self,
            at: Point = None,
            *,
            id: str | None = None,
            input: Mapping[str, Any] | None = None,
            results: Mapping[str, Any] | None = None,
            answers: Mapping[str, Any] | None = None,
            edit: Any = None,
            by: str | None = None,
        ) -> AsyncRun: ...

    def claim(self) -> AsyncHolding:  # type: ignore[override]
        """Become the one holder of the run: ``async with run.claim():``, or ``await run.claim()``."""
        return AsyncHolding(self)


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


def run_info(record: RunRecord, blocked: RunRecord | None = None) -> RunInfo:
    """A record as users see it; ``blocked`` is the child that it waits for, if that is blocked."""
    parent = record.lineage[-1] if record.lineage else None
    return RunInfo(
        id=record.id,
        uid=record.uid,
        status=record.status,
        workflow=record.workflow,
        tags=dict(record.tags),
        created_at=moment(record.created_at),
        updated_at=moment(record.updated_at),
        seq=record.seq,
        generation=record.generation,
        holder=record.worker,
        reason=_reason(record) if blocked is None else children.waits_for_blocked(blocked),
        forked_from=(parent.id, parent.upto) if parent else None,
        queue=record.queue,
        priority=record.priority,
        key=record.lane,
        parent=record.parent,
        wake_at=moment(record.wake_at) if record.wake_at is not None else None,
        away=record.away,
        rolls_back=record.rollback,
    )


def _reason(record: RunRecord) -> str | None:
    """Why a run does not go on, if it is not its own doing."""
    if record.status is Status.AWAY:
        return f"was moved to {record.away}" if record.was is None else f"is being moved between here and {record.away}"
    idle = record.reason is None and record.status is Status.READY and record.queue is not None
    if idle and record.workflow not in registered_names():
        declares = f"waits for a process that declares workflow {record.workflow!r}"
        return f"{declares}, as this one does not; a worker that does goes on with it"
    return record.reason


def _cursor(after: str) -> int:
    try:
        return int(after)
    except ValueError:
        raise UsageError(f"after={after!r} is not what a page gave as its next") from None
