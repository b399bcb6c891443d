"""Erasing on request: a payload goes, its digest stays, and the chain still verifies.

What is left of an erased step is its key, so that it still counts as completed. That something was erased, by whom
and why, is an entry of the journal; an audit wants one for every erased payload.

The record of a parked run says why it was parked, and may quote what is erased. Then that goes with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.codec import left_of, redaction
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.journal_reader import Journals
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.argument_checks import check_seq
from holdfast.errors import UsageError
from holdfast.kernel.journal import Data, erased, payload_digest
from holdfast.kernel.model import Change, Entry, Kind, RunRecord, Status
from holdfast.kernel.rules import ANY

ERASED_REASON = (
    "why it was blocked was erased with what it quoted; run.effects() tells what is uncertain, run.resolve(key, ...) "
    "says what became of that, and run.unblock() lets it go on"
)


def redact(run: HeldRun, *seqs: int, by: str | None = None, why: str | None = None) -> Op[None]:
    """Erase the payloads of these entries. The chain still verifies; that it was done, by whom and why, is kept.

    A state that builds on one of them is saved once more, as a whole; so save one without what is to go first.
    """
    for seq in seqs:
        check_seq("seq", seq)
    before = yield Read(run.read_record)
    lease, owned = yield from run.enter(ANY)
    parked, reason = owned and before.status is Status.BLOCKED, before.reason
    try:
        record = yield Read(run.read_record)
        erasures = yield Read(lambda: [(seq, _erasure(run, record, seq)) for seq in sorted(set(seqs))])
        data = erasure_data(erasures, by, why)
        if (yield Read(lambda: any(lease.builds_on(seq) for seq, _ in erasures))):
            yield from run.settle(lease, lease.save_whole())
        left = (yield Read(_reason_left, run, record, reason, seqs)) if parked else None
        change = Change(status=Status.BLOCKED, reason=left) if parked else None
        yield from run.write(lease, [(Kind.REDACTED, data)], change=change, redact=tuple(erasures))
        reason = left
        lease.refresh()  # what was erased must not live on in memory
    finally:
        if parked:
            yield from run.release(lease, Change(status=Status.BLOCKED, release=True, reason=reason))
        else:
            yield from run.leave(lease, owned)


def _erasure(run: HeldRun, record: RunRecord, seq: int) -> bytes:
    """What is stored in place of an erased payload."""
    if seq < record.base:
        raise UsageError(f"entry {seq} of run {run.id!r} belongs to the run that it was forked from; redact it there")
    uid, entry = run.journals.entry(record, seq)
    erasure = erasure_of(run.journals, record, uid, entry)
    if erasure is None:
        raise UsageError(f"entry {seq} of run {run.id!r} ({entry.kind}) holds nothing of yours, so it stays")
    return erasure


def _reason_left(run: HeldRun, record: RunRecord, reason: str | None, seqs: Sequence[int]) -> str | None:
    """What a parked run says of why it was parked, once these entries are erased: it names the call that it quotes."""
    for seq in seqs:
        uid, entry = run.journals.entry(record, seq)
        key = run.journals.data(run.id, uid, entry).get("key")
        if reason is not None and key is not None and repr(key) in reason:
            return ERASED_REASON
    return reason


def erasure_of(journals: Journals, record: RunRecord, uid: str, entry: Entry) -> bytes | None:
    """What is stored in place of an entry's payload; None if it holds nothing of the user's."""
    left = erased(entry.kind, journals.data(record.id, uid, entry))
    if left is None:
        return None
    sealed = journals.seal(uid, record.key_id is not None, f"{entry.seq}/{entry.kind}", left, "erasure")
    return redaction(payload_digest(entry.payload), sealed)


def erasure_data(erasures: Sequence[tuple[int, bytes]], by: str | None, why: str | None) -> Data:
    """The entry that says what was erased; an audit wants it."""
    return {
        "seqs": [seq for seq, _ in erasures],
        "left": [payload_digest(left_of(erasure)).hex() for _, erasure in erasures],
        "by": by,
        "why": why,
    }
