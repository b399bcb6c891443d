"""What a journal means: pure functions over entries, no I/O.

A run is an append-only journal. What holds for any journal is computed here from its entries:

- **The chain.** `next_entry` makes the next line; its hash covers the hash before it, the header and the digest of
  the payload, and `verify` checks it. A payload can therefore be erased (its digest stays) and the chain still holds.
- **Erasure.** `_KEPT_WHEN_ERASED` says what of an entry of each kind is not the user's, and stays.
- **Effective history.** A rollback appends, it never removes: `live_ranges` gives the stretches of sequence numbers
  that still count at a given point. `segments` says which journals of a fork's lineage hold which numbers.
- **The state.** A save is stored as a whole (a snapshot) or as the difference to the one before. `wants_snapshot`
  is the rule that keeps a read of the latest state to about twice its own size while pure growth never pays for
  a second copy.

What was done in a run is computed from its entries by `holdfast.kernel.fold`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from holdfast.codec import redacted_digest
from holdfast.codec.frame import REDACTED
from holdfast.errors import RunDamaged
from holdfast.kernel.model import Entry, Kind, Link, Rewind, RunRecord

Data = dict[str, Any]  # an entry's payload, unpacked; user values in it are still encoded trees

# --- the chain

HASH_BYTES = 32


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=HASH_BYTES).digest()


def genesis(uid: str) -> bytes:
    """What the first entry of a run is chained to."""
    return _hash(b"holdfast journal " + uid.encode())


def payload_digest(payload: bytes) -> bytes:
    """The digest that the chain covers; of an erased payload, the digest that was kept."""
    return redacted_digest(payload) or _hash(payload)


def chain(prev: bytes, seq: int, kind: str, at: int, state: int | None, payload: bytes) -> bytes:
    """The hash of an entry. It is made with each step, so what `payload_digest` does is done in place."""
    digest = payload_digest(payload) if payload[:1] == REDACTED else blake2b(payload, digest_size=HASH_BYTES).digest()
    pointer = -1 if state is None else state
    return blake2b(
        b"%b%d|%b|%d|%d|%b" % (prev, seq, kind.encode(), at, pointer, digest), digest_size=HASH_BYTES
    ).digest()


def next_entry(prev: bytes, seq: int, kind: str, at: int, state: int | None, payload: bytes) -> Entry:
    """A new entry, chained to the hash before it."""
    return Entry(seq, str(kind), at, state, prev, chain(prev, seq, kind, at, state, payload), payload)


def verify(run: str, entries: Iterable[Entry]) -> None:
    """Raise `RunDamaged` naming the first entry whose hash does not fit."""
    for entry in entries:
        if chain(entry.prev, entry.seq, entry.kind, entry.at, entry.state, entry.payload) != entry.hash:
            raise RunDamaged(
                run,
                f"entry {entry.seq} ({entry.kind}) was changed or damaged: its hash does not fit; "
                f"restore the run from a backup{f', or fork it at {entry.seq - 1}' if entry.seq else ''}",
            )


# --- erasure

_KEPT_WHEN_ERASED: dict[str, tuple[str, ...]] = {
    Kind.CREATED: ("definition", "version", "module", "deadline", "seconds", "parent", "depth"),
    Kind.SAVED: (),
    Kind.STARTED: ("key",),
    Kind.INTENDED: ("key", "tool", "reversible", "era", "again", "attempt"),
    Kind.DONE: ("key", "tool", "intent", "n", "message", "lost"),
    Kind.RAISED: ("key", "intent", "uncertain", "final", "attempt", "until", "n", "lost"),
    Kind.MARKED: ("key", "tool", "reversible"),
    Kind.RESOLVED: ("key", "intent", "done"),
    Kind.ASKED: ("output_key", "key", "until", "n"),
    Kind.ANSWERED: ("question",),
    Kind.DECLINED: ("question",),
    Kind.LATE: ("question", "key"),
    Kind.RECEIVED: (),
    Kind.CHILD: ("key", "id", "tool", "n"),
    Kind.EMITTED: ("key", "n"),
    Kind.CONTINUED: ("version", "module", "deadline", "seconds", "parent", "depth", "before"),
    Kind.ROLLBACK_BEGUN: ("to", "plan", "force"),
    Kind.UNDONE: ("effect", "ok", "left", "passed", "uncertain"),
    Kind.UNBLOCKED: ("by", "accepted"),
    Kind.COMPLETED: (),
    Kind.FAILED: ("keys", "node"),
    Kind.CANCELLED: (),
}


def erased(kind: str, data: Data) -> Data | None:
    """What stays of a payload that is erased, so that a completed step still counts as completed.

    None for an entry that holds nothing of the user's.
    """
    if kind == Kind.FORKED:
        return _erased_fork(data)
    kept = _KEPT_WHEN_ERASED.get(kind)
    if kept is None or (kind == Kind.ROLLBACK_BEGUN and data.keys() <= set(kept)):
        return None
    return {**{name: data[name] for name in kept if name in data}, "erased": True}


def _erased_fork(data: Data) -> Data | None:
    """Of what a fork changed, the names stay: what was given is neither what its origin had, nor to be made anew."""
    results, given = data.get("results", {}), data.get("input", {})
    if not results and "args" not in given:
        return None
    left = {**data, "erased": True}
    if results:
        left["results"] = dict.fromkeys(results)
    if "args" in given:
        left["input"] = {**given, "args": None, "kwargs": None}
    return left


# --- effective history


def live_ranges(rewinds: Sequence[Rewind], at: int) -> list[tuple[int, int]]:
    """The stretches of sequence numbers, lowest first, that count at ``at``. Later rewinds are ignored."""
    ranges = [(0, at)]
    for rewind in rewinds:
        if rewind.at > at:
            break
        kept = [(lo, min(hi, rewind.to)) for lo, hi in ranges if lo <= rewind.to]
        ranges = [*kept, (rewind.at, at)]
    return ranges


def is_live(ranges: Sequence[tuple[int, int]], seq: int) -> bool:
    """Whether the number lies in one of the ranges."""
    return any(lo <= seq <= hi for lo, hi in ranges)


def segments(record: RunRecord, lo: int, hi: int) -> Iterator[tuple[str, int, int]]:
    """Which journals hold the numbers lo to hi: (uid, from, to), in order."""
    start = 0
    for link in record.lineage:
        if lo <= link.upto and start <= hi:
            yield link.uid, max(lo, start), min(hi, link.upto)
        start = link.upto + 1
    if hi >= record.base:
        yield record.uid, max(lo, record.base), hi


def fork_lineage(parent: RunRecord, at: int) -> tuple[Link, ...]:
    """The flat lineage of a fork of ``parent`` at ``at``: chains of forks never nest."""
    kept = [link for link in parent.lineage if link.upto < at]
    if at >= parent.base:
        return (*kept, Link(parent.uid, parent.id, at))
    cut = parent.lineage[len(kept)]
    return (*kept, Link(cut.uid, cut.id, at))


def fork_rewinds(parent: RunRecord, at: int) -> tuple[Rewind, ...]:
    """The rewinds that were made in the shared part."""
    return tuple(rewind for rewind in parent.rewinds if rewind.at <= at)


# --- the state

SNAPSHOT_FACTOR = 2


def wants_snapshot(chain_bytes: int, delta_bytes: int, whole_bytes: int) -> bool:
    """Whether a save is stored as a whole.

    ``chain_bytes`` is what has to be read now to rebuild the state (the last snapshot and all differences since).
    Storing a whole only once that would exceed twice the state keeps reads bounded; and since at least the state's
    own size of differences came in between, writes are at most doubled.
    """
    return chain_bytes + delta_bytes > SNAPSHOT_FACTOR * whole_bytes


NOTED_FROM = 0.05  # seconds: a call that took less says nothing of it, and costs nothing


def note_seconds(data: Data, seconds: float) -> None:
    """Put into an entry how long its call took, if that is worth it: its branch may have waited before the call."""
    if seconds >= NOTED_FROM:
        data["seconds"] = round(seconds, 3)
