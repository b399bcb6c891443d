"""Who writes the journals for the tests of the contract: right numbers, right hashes, and small things to look with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.kernel.clock import new_uid
from holdfast.kernel.journal import fork_lineage, fork_rewinds, genesis, next_entry
from holdfast.kernel.model import Append, Change, Create, Entry, Item, Kind, RunRecord, Status
from holdfast.stores.protocol import Store
from holdfast.testing.clock import ManualClock

LEASE = 30.0
ALL = 1 << 40  # more than any journal has


class Opening:
    """What the parts of the contract know of the store that is to be proved."""

    def open_store(self, place: Path, clock: ManualClock) -> Store:
        """Open a handle on the store at ``place``, which is made if there is none."""
        raise NotImplementedError("say in a subclass how the store is opened")


class Author:
    """Writes journals for the tests: right numbers and right hashes."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock

    def entries(
        self, root: bytes, seq: int, kinds: Sequence[str], state: int | None = None, payload: bytes | None = None
    ) -> tuple[Entry, ...]:
        """Entries that go on after the hash ``root``, the first one numbered ``seq``."""
        made: list[Entry] = []
        snapshot: int | None = None
        for n, kind in enumerate(kinds, seq):
            if kind == Kind.SAVED:
                snapshot = n if snapshot is None else snapshot
            pointer = snapshot if kind == Kind.SAVED else state
            data = payload if payload is not None else f'{{"of":{n}}}'.encode()
            entry = next_entry(made[-1].hash if made else root, n, kind, self.clock.now(), pointer, data)
            state = n if kind == Kind.SAVED else state
            made.append(entry)
        return tuple(made)

    def create(self, id: str, *kinds: str, **facts: Any) -> Create:
        """A new run. Its uid sorts behind all that were made before."""
        self.clock.advance(0.000_001)
        uid = facts.pop("uid", None) or new_uid(self.clock)
        root = genesis(uid)
        entries = self.entries(root, 0, kinds or (Kind.CREATED,))
        return Create(RunRecord(uid=uid, id=id, created_at=self.clock.now(), root=root, **facts), entries)

    def fork(self, parent: RunRecord, shared: Entry, id: str) -> Create:
        """A fork of ``parent`` after its entry ``shared``."""
        self.clock.advance(0.000_001)
        at = shared.seq
        state = shared.seq if shared.kind == Kind.SAVED else shared.state
        record = RunRecord(
            uid=new_uid(self.clock),
            id=id,
            created_at=self.clock.now(),
            root=shared.hash,
            base=at + 1,
            lineage=fork_lineage(parent, at),
            rewinds=fork_rewinds(parent, at),
        )
        return Create(record, self.entries(shared.hash, at + 1, (Kind.FORKED,), state))

    def append(self, held: RunRecord, *kinds: str, **how: Any) -> Append:
        """A write of the holder that ``held`` names, going on where ``held`` says that the journal ends."""
        payload = how.pop("payload", None)
        entries = self.entries(held.hash, held.seq + 1, kinds, held.state, payload)
        return Append(held.uid, held.id, held.epoch, held.worker or "", entries, **how)


def after(held: RunRecord, write: Append) -> RunRecord:
    """The holder's record when the write was made, to go on from."""
    last = write.entries[-1]
    state = last.seq if last.kind == Kind.SAVED else last.state
    return replace(held, seq=last.seq, hash=last.hash, updated_at=last.at, state=state)


def item(key: str, *, wakes: bool = True, payload: bytes = b'{"yes":true}', at: int = 7) -> Item:
    """Something for an inbox."""
    return Item(key, "answer", at, payload, wakes)


def make(store: Store, write: Create) -> RunRecord:
    """Create a run; the record that the store then has."""
    [made] = store.apply([write])
    assert isinstance(made, RunRecord), made
    return made


def put(store: Store, write: Append) -> None:
    """Make a write that must succeed."""
    [outcome] = store.apply([write])
    assert outcome is None, outcome


def delete(store: Store, which: RunRecord | str) -> bool:
    """Delete a run as it was read, or (of a uid) as it is now; raises its refusal."""
    record = store.get(uid=which) if isinstance(which, str) else which
    [outcome] = store.delete([record]) if record is not None else [False]
    if isinstance(outcome, HoldfastError):
        raise outcome
    return outcome


def refused(store: Store, write: Append | Create, by: type[HoldfastError] = LeaseLost) -> None:
    """Make a write that must be refused, and must change nothing; a plain step also as the end of the run."""
    uid = write.record.uid if isinstance(write, Create) else write.uid
    before = snapshot(store, uid)
    writes = [write]
    if isinstance(write, Append) and write.change is None:
        writes.append(replace(write, change=Change(status=Status.COMPLETED, release=True)))
    for each in writes:
        [outcome] = store.apply([each])
        assert type(outcome) is by, outcome
        assert snapshot(store, uid) == before


def keys_taken(store: Store, uid: str) -> list[str]:
    """The keys of the inbox items that were taken."""
    return [item.key for item in store.inbox(uid, taken=True)]


def snapshot(store: Store, uid: str) -> tuple[Any, ...]:
    """Everything that a store says about a run."""
    return store.get(uid=uid), store.read(uid, 0, ALL), store.inbox(uid), keys_taken(store, uid)


def ids(found: Sequence[RunRecord]) -> list[str]:
    """Their ids, in the order in which they were found."""
    return [record.id for record in found]


def whole(author: Author, id: str = "adopted", **facts: Any) -> tuple[RunRecord, tuple[Entry, ...]]:
    """A run as a backup has it."""
    write = author.create(id, Kind.CREATED, Kind.SAVED, Kind.REWOUND, **facts)
    last = write.entries[-1]
    end = {"seq": last.seq, "hash": last.hash, "updated_at": last.at, "state": last.state}
    return replace(write.record, **end), write.entries
