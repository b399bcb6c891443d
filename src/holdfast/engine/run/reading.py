"""Reading a run: its record, its entries, and the run as it was at a checkpoint."""

from __future__ import annotations

from typing import Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.argument_checks import check_history_page, check_seq
from holdfast.engine.control import family
from holdfast.engine.control.family import blocked_child
from holdfast.engine.run.checkpoint import Checkpoint, StepsAt
from holdfast.engine.workflow.declare import Workflow, registered, registered_names, state_type
from holdfast.errors import UsageError
from holdfast.kernel.journal import is_live, live_ranges
from holdfast.kernel.model import Item, RunRecord, Status
from holdfast.views import EntryContents, EntryInfo, Page, RunInfo, moment


def info(run: HeldRun) -> Op[RunInfo]:
    """The run's record: status, times, holder, tags."""
    record = yield Read(run.read_record)
    return run_info(record, (yield from blocked_child(run, record)))


def declared(run: HeldRun) -> Op[Workflow[..., Any] | None]:
    """The workflow or graph that the run is a run of, as this process has it; None if it is not declared here."""
    record = yield Read(run.read_record)
    input = (yield Read(run.refold, record)).input
    found = registered(record.workflow, input.get("version"), input.get("module"))
    return found.of_run(run.codec, input) if found is not None else None


def checkpoint(run: HeldRun, seq: int | None = None, *, type: Any = None) -> Op[Checkpoint]:
    """The run as it was at a sequence number, or as it is now. ``type`` is the state's type, if not registered."""
    check_seq("seq", 0 if seq is None else seq)
    items: list[Item] = []
    if seq is None:
        record, items = yield from run.read_inbox()
    else:
        record = yield Read(run.read_record)
    at = record.seq if seq is None else seq
    saved = yield Read(run.journals.state, record, seq)
    steps_at = StepsAt(lambda: run.with_pending(run.journals.fold(record, at), items)[0])
    if run.is_async:
        yield Read(steps_at.load)
    return Checkpoint(record, at, saved, run.journals, type or state_type(record), steps_at)


def history(
    run: HeldRun, *, limit: int = 100, after: str | None = None, kind: str | None = None
) -> Op[Page[EntryInfo]]:
    """The run's entries, oldest first, without their contents.

    An answer, mark or message that the holder has not taken in yet is the last, and ``pending``: its number may
    still change.
    """
    check_history_page(limit, after, kind)
    record, pending = yield from run.pending()
    lo = 0 if after is None else _cursor(after) + 1
    ranges = live_ranges(record.rewinds, record.seq)
    found: list[EntryInfo] = []
    last = lo - 1
    while last < record.seq and len(found) < limit:
        lo, hi = last + 1, min(last + max(limit, 100), record.seq)
        for entry in (yield Read(run.journals.headers, record, lo, hi)):
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


def entry(run: HeldRun, seq: int) -> Op[EntryContents]:
    """One entry with its contents in a readable JSON form, which needs none of the user's classes."""
    check_seq("seq", seq)
    record = yield Read(run.read_record)
    if seq > record.seq:
        record, pending = yield from run.pending()
        for one, kind, at, data in pending:
            if one == seq:
                return EntryContents(seq, kind, moment(at), run.journals.raw(data), pending=True)
    uid, entry = yield Read(run.journals.entry, record, seq)
    contents = yield Read(run.journals.contents, record, uid, entry)
    return EntryContents(seq, entry.kind, moment(entry.at), contents)


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
        reason=_reason(record) if blocked is None else family.waits_for_blocked(blocked),
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
