"""What a journal means: pure functions over entries, no I/O.

A run is an append-only journal. Everything that can be asked of a run is computed here from its entries:

- **The chain.** `next_entry` makes the next line; its hash covers the hash before it, the header and the digest of
  the payload, and `verify` checks it. A payload can therefore be erased (its digest stays) and the chain still holds.
- **Effective history.** A rollback appends, it never removes: `live_ranges` gives the stretches of sequence numbers
  that still count at a given point. `segments` says which journals of a fork's lineage hold which numbers.
- **The state.** A save is stored as a whole (a snapshot) or as the difference to the one before. `wants_snapshot`
  is the rule that keeps a read of the latest state to about twice its own size while pure growth never pays for
  a second copy.
- **The fold.** `Fold` takes the effective entries in order and keeps what was done: results, effects, questions,
  answers. `rollback_plan` decides from it what an undo to an earlier point would do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

from msgspec import Struct

from holdfast.codec import redacted_digest
from holdfast.errors import NoCheckpoint, RunDamaged
from holdfast.model import Entry, Kind, Link, Rewind, RunRecord, Status

Data = dict[str, Any]  # an entry's payload, unpacked; user values in it are still encoded trees

# --- the chain


def genesis(uid: str) -> bytes:
    """What the first entry of a run is chained to."""
    return sha256(b"holdfast journal " + uid.encode()).digest()


def payload_digest(payload: bytes) -> bytes:
    """The digest that the chain covers; of an erased payload, the digest that was kept."""
    return redacted_digest(payload) or sha256(payload).digest()


def chain(prev: bytes, seq: int, kind: str, at: int, state: int | None, payload: bytes) -> bytes:
    """The hash of an entry."""
    return sha256(
        b"%b%d|%b|%d|%d|%b" % (prev, seq, kind.encode(), at, -1 if state is None else state, payload_digest(payload))
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
                f"restore the run from a backup, or fork it at {entry.seq - 1}",
            )


# --- erasure

_KEPT_WHEN_ERASED: dict[str, tuple[str, ...]] = {
    Kind.CREATED: ("definition",),
    Kind.SAVED: (),
    Kind.INTENDED: ("key", "tool", "reversible"),
    Kind.DONE: ("key", "tool", "intent"),
    Kind.RAISED: ("key", "intent", "uncertain"),
    Kind.MARKED: ("key", "tool", "reversible"),
    Kind.RESOLVED: ("key", "intent", "done"),
    Kind.ASKED: ("output_key",),
    Kind.ANSWERED: ("question",),
    Kind.UNDONE: ("effect", "ok"),
    Kind.COMPLETED: (),
    Kind.FAILED: (),
    Kind.CANCELLED: (),
}


def erased(kind: str, data: Data) -> Data | None:
    """What stays of a payload that is erased, so that a completed step still counts as completed.

    None for a kind that holds nothing of the user's.
    """
    kept = _KEPT_WHEN_ERASED.get(kind)
    if kept is None:
        return None
    return {**{name: data[name] for name in kept if name in data}, "erased": True}


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


# --- the fold


class Step(Struct, frozen=True):
    """A completed step: what it was called with, and what it gave."""

    seq: int
    tool: str
    digest: str | None
    result: Any
    erased: bool = False


class Asked(Struct, frozen=True):
    """An open question. It gets a new number with each rollback, so that old answers do not meet it."""

    seq: int
    at: int
    generation: int
    prompt: str
    fields: list[Any]
    output_key: str


class Mark(Struct, frozen=True):
    """An effect in the ledger: ``data`` is what declared it, ``settled`` the entry that says how it went."""

    seq: int
    settled: int
    at: int
    data: Data
    status: str
    error: str | None = None
    result: Any = None

    @property
    def key(self) -> str:
        return str(self.data["key"])


class Fold:
    """What was done in a run, from its entries in order. `Kind.SAVED` entries are not needed and ignored.

    `log` is the effective history so far; a rewind cuts it and everything else is rebuilt from it. The ledger of
    effects is not cut: what was done to the world stays in it, with what became of it.
    """

    def __init__(self, run: str) -> None:
        self.run = run
        self.seq = -1
        self.generation = 0
        self.ledger: dict[int, Mark] = {}
        self.log: list[tuple[int, str, int, Data]] = []
        self._reset()

    def copy(self) -> Fold:
        """Another one of the same contents, to try something on."""
        copy = Fold(self.run)
        copy.seq, copy.generation, copy.ended = self.seq, self.generation, self.ended
        copy.ledger, copy.log = dict(self.ledger), list(self.log)
        copy.steps, copy.intents = dict(self.steps), dict(self.intents)
        copy.questions, copy.answers = dict(self.questions), dict(self.answers)
        copy.rolling = self.rolling
        return copy

    def _reset(self) -> None:
        self.steps: dict[str, Step] = {}
        self.intents: dict[str, int] = {}
        self.questions: dict[int, Asked] = {}
        self.answers: dict[str, Any] = {}
        self.ended: tuple[Status, Data] | None = None
        self.rolling: Rolling | None = None

    def add(self, seq: int, kind: str, at: int, data: Data) -> None:
        """Take the next entry. An unknown kind raises `RunDamaged`: a newer Holdfast wrote it."""
        if kind not in _KNOWN:
            raise RunDamaged(self.run, f"entry {seq} is of the unknown kind {kind!r}; a newer Holdfast can read it")
        self.seq = seq
        if kind == Kind.SAVED:
            return
        if kind == Kind.REWOUND:
            self._rewind(data["to"])
            return
        if kind == Kind.INTENDED and (begun := self.intents.get(data["key"])) is not None:
            self.ledger[begun] = _settle(self.ledger[begun], "repeated", self.ledger[begun].error)
        self._enter(seq, kind, at, data)
        self.log.append((seq, kind, at, data))
        self._record_effect(seq, kind, at, data)

    def _rewind(self, to: int) -> None:
        self._settle_undone()
        for effect in self.rolling.plan if self.rolling else ():
            if self.ledger[effect].status == "done":
                self.ledger[effect] = _settle(self.ledger[effect], "left", None)
        self.generation += 1
        self.log = [line for line in self.log if line[0] <= to]
        self._reset()
        for line in self.log:
            self._enter(*line)
        self.intents = {key: seq for key, seq in self.intents.items() if self.ledger[seq].status == "uncertain"}

    def _settle_undone(self) -> None:
        """Note in the ledger what a rollback has undone so far."""
        for effect, (ok, error) in self.rolling.results.items() if self.rolling else ():
            self.ledger[effect] = _settle(self.ledger[effect], "undone" if ok else "undo_failed", error)

    def _enter(self, seq: int, kind: str, at: int, data: Data) -> None:
        match kind:
            case Kind.FORKED:
                self._settle_undone()
                self.intents.clear()  # what was begun in the parent is the parent's to finish
                self.rolling = None
                self.ended = None
            case Kind.INTENDED:
                self.intents[data["key"]] = seq
            case Kind.DONE | Kind.MARKED | Kind.RESOLVED:
                self._complete(seq, kind, data)
            case Kind.RAISED:
                if "uncertain" not in data:
                    self.intents.pop(data["key"], None)
            case Kind.ASKED:
                prompt, fields = data.get("prompt", "(erased)"), data.get("fields", [])
                self.questions[seq] = Asked(seq, at, self.generation, prompt, fields, data["output_key"])
            case Kind.ANSWERED:
                question = self.questions.pop(data["question"])
                if "erased" not in data:
                    self.answers[question.output_key] = data["value"]
            case Kind.ROLLBACK_BEGUN:
                self.rolling = Rolling(seq, data["to"], data["plan"], {})
            case Kind.UNDONE:
                if self.rolling is not None:
                    self.rolling.results[data["effect"]] = (data["ok"], data.get("error"))
            case Kind.COMPLETED | Kind.FAILED | Kind.CANCELLED:
                self.ended = (Status(kind), data)
                self.questions.clear()

    def _complete(self, seq: int, kind: str, data: Data) -> None:
        key = data["key"]
        self.intents.pop(key, None)
        if kind == Kind.RESOLVED and not data["done"]:
            return
        intent = data.get("intent")  # not whatever was open: that may have been begun as something else
        declared = self.ledger[intent].data if intent is not None else data
        if key not in self.steps:
            self.steps[key] = Step(seq, declared["tool"], declared.get("digest"), data.get("result"), "erased" in data)

    def _record_effect(self, seq: int, kind: str, at: int, data: Data) -> None:
        if kind == Kind.FORKED:
            self.ledger = {n: mark for n, mark in self.ledger.items() if mark.status != "uncertain"}
        elif kind == Kind.INTENDED:
            self.ledger[seq] = Mark(seq, seq, at, data, "uncertain")
        elif kind == Kind.MARKED:
            self.ledger[seq] = Mark(seq, seq, at, data, "done")
        elif kind in (Kind.DONE, Kind.RAISED, Kind.RESOLVED) and (opened := data.get("intent")) is not None:
            mark = self.ledger[opened]
            happened = kind == Kind.DONE or bool(data.get("done"))
            status = "done" if happened else "uncertain" if "uncertain" in data else "raised"
            declared = {**mark.data, "erased": True} if "erased" in data else mark.data
            self.ledger[opened] = Mark(mark.seq, seq, at, declared, status, data.get("error"), data.get("result"))


class Rolling(Struct, frozen=True):
    """A rollback that has begun: the effects to go through, newest first, and how each undo went."""

    seq: int
    to: int
    plan: list[int]
    results: dict[int, tuple[bool, str | None]]


_KNOWN = frozenset(Kind)


def _settle(mark: Mark, status: str, error: str | None) -> Mark:
    return Mark(mark.seq, mark.settled, mark.at, mark.data, status, error, mark.result)


def question_id(uid: str, asked: Asked) -> str:
    """The public id of a question: it differs between forks, and after each rollback."""
    return f"q{asked.seq}.{asked.generation}-{uid[-8:]}"


def rollback_plan(fold: Fold, record: RunRecord, to: int) -> list[int]:
    """The effects, newest first, that a rollback to ``to`` has to deal with."""
    ranges = live_ranges(record.rewinds, max(record.seq, fold.seq))  # the fold may count what waits in the inbox
    if not 0 <= to <= record.seq:
        raise NoCheckpoint(record.id, f"there is no entry {to}; the newest is {record.seq}")
    if not is_live(ranges, to):
        raise NoCheckpoint(record.id, f"entry {to}: it was abandoned by a rollback; fork it with fork(at={to})")
    if to < record.base - 1:
        raise NoCheckpoint(
            record.id,
            f"a fork rolls back no further than its fork point {record.base - 1}; roll back the run it came from",
        )
    return [
        mark.seq
        for mark in sorted(fold.ledger.values(), key=lambda mark: mark.settled, reverse=True)
        if mark.settled > max(to, record.base - 1)
        and mark.status in ("done", "uncertain", "repeated", "raised")
        and is_live(ranges, mark.seq)
    ]
