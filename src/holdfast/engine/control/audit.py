"""Is the history as it was written? The hash chain tells."""

from __future__ import annotations

from holdfast.codec import left_of, redacted_digest
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read
from holdfast.errors import RunDamaged, UsageError
from holdfast.kernel.journal import payload_digest
from holdfast.kernel.model import Kind, RunRecord
from holdfast.views import AuditReport


def audit(run: HeldRun, *, head: str | None = None) -> Op[AuditReport]:
    """Verify the run's whole journal, inherited entries included; raises `RunDamaged` naming the first bad entry.

    The report's ``head`` is worth keeping elsewhere: given to a later audit, it also finds a history that was cut
    short or rewritten as a whole, which nothing inside the store can show.
    """
    record, pending = yield from run.pending()
    kinds = tuple(kind for _, kind, _, _ in pending)
    return (yield Read(_audit, run, record, head, kinds))  # type: ignore[no-any-return]


def _audit(run: HeldRun, record: RunRecord, head: str | None, pending: tuple[str, ...]) -> AuditReport:
    expected = _parse(head) if head is not None else None
    hashes: dict[int, bytes] = {}
    erased: dict[int, str] = {}
    vouched: dict[int, str] = {}
    before = b""
    for uid, entry in run.journals.entries(record, 0, record.seq):
        if before and entry.prev != before:
            raise RunDamaged(run.id, f"entry {entry.seq} does not follow the entry before it: the history was changed")
        before = hashes[entry.seq] = entry.hash
        if redacted_digest(entry.payload) is not None:
            erased[entry.seq] = payload_digest(left_of(entry.payload)).hex()
        if entry.kind == Kind.REDACTED:
            data = run.journals.data(run.id, uid, entry)
            vouched |= dict(zip(data["seqs"], data["left"], strict=True))
    if erased.keys() - vouched.keys():
        vouched |= _erased_by_ancestors(run, record, hashes)
    for seq, left in erased.items():
        if vouched.get(seq) != left:
            raise RunDamaged(run.id, f"entry {seq} was erased, but no entry of the journal says so")
    if expected is not None:
        _check_head(run.id, hashes, *expected)
    return AuditReport(run.id, len(hashes), tuple(erased), f"{record.seq}:{before.hex()}", pending)


def _erased_by_ancestors(run: HeldRun, record: RunRecord, hashes: dict[int, bytes]) -> dict[int, str]:
    """What the runs that a fork came from say they erased after the fork point: shared entries are theirs to erase."""
    vouched: dict[int, str] = {}
    for link in record.lineage:
        ancestor = run.store.get(uid=link.uid)
        before = hashes[link.upto]
        for uid, entry in run.journals.entries(ancestor, link.upto + 1, ancestor.seq) if ancestor else ():
            if entry.prev != before:
                break  # not what follows upon the shared part, so it vouches for nothing
            before = entry.hash
            if entry.kind == Kind.REDACTED:
                data = run.journals.data(link.id, uid, entry)
                pairs = zip(data["seqs"], data["left"], strict=True)
                vouched |= {seq: left for seq, left in pairs if seq <= link.upto}
    return vouched


def _parse(head: str) -> tuple[int, bytes]:
    try:
        seq, _, digest = head.partition(":")
        return int(seq), bytes.fromhex(digest)
    except ValueError:
        raise UsageError(f"head={head!r} is not what an audit gave as its head (number:hash)") from None


def _check_head(run: str, hashes: dict[int, bytes], seq: int, digest: bytes) -> None:
    if seq not in hashes:
        raise RunDamaged(run, f"the history was cut short: it ended at {seq} before, now at {max(hashes, default=-1)}")
    if hashes[seq] != digest:
        raise RunDamaged(run, f"the history up to entry {seq} is not the one that the given head was taken from")
