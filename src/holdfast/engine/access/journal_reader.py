"""Reads a run's journal through its forks: verified, decrypted, unpacked; and makes payloads for new entries.

Every entry that passes through here is checked against its hash first. What does not fit is `RunDamaged`, naming
the entry; what was erased on request is `Redacted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from holdfast.codec import (
    Codec,
    DataKey,
    Keyring,
    Tree,
    WrappedKey,
    check_size,
    expand,
    from_text,
    left_of,
    patch_owned,
    redacted_digest,
    squeeze,
    to_text,
)
from holdfast.errors import KeyMissing, NoCheckpoint, Redacted, RunDamaged, RunNotFound
from holdfast.kernel.clock import new_uid
from holdfast.kernel.fold import Fold
from holdfast.kernel.journal import Data, genesis, is_live, live_ranges, next_entry, segments, verify
from holdfast.kernel.model import Create, Entry, Item, Kind, RunRecord
from holdfast.stores.protocol import Store

MAX_KEYS = 10_000  # of runs, at hand
READ_LIMIT = 1 << 32  # of one payload, expanded; far beyond what anybody may have written


class Saved(Struct, frozen=True):
    """A saved state: the tree of everything that was given to ``save``, and how much text it was read from.

    ``seconds`` is how long the node of a graph took that ended with it, if the entry says so.
    """

    seq: int
    at: int
    tree: dict[str, Tree]
    snapshot: int
    chain_bytes: int
    seconds: float | None = None

    @property
    def told(self) -> dict[str, Tree]:
        """All that the entry says."""
        return self.tree if self.seconds is None else {**self.tree, "seconds": self.seconds}


class Journals:
    """The journals of a store, seen through a codec and a keyring."""

    def __init__(self, store: Store, codec: Codec, keyring: Keyring | None, max_bytes: int) -> None:
        self.store = store
        self.codec = codec
        self.keyring = keyring
        self.max_bytes = max_bytes
        # Texts up to this length are stored as they are: not compressed, and nobody is warned of their size.
        self.plain_bytes = min(max_bytes // 2, max_bytes if store.compress_over is None else store.compress_over)
        self._keys: dict[str, DataKey] = {}

    # --- payloads

    def new_key(self, uid: str) -> WrappedKey | None:
        """A data key for a new journal, if this engine encrypts."""
        if self.keyring is None:
            return None
        key, wrapped = self.keyring.new_data_key(uid, self.store.clock)
        self._remember(uid, key)
        return wrapped

    def _remember(self, uid: str, key: DataKey) -> DataKey:
        """Keep the key at hand, and forget the oldest if there are many."""
        if len(self._keys) >= MAX_KEYS:
            self._keys.pop(next(iter(self._keys)), None)
        self._keys[uid] = key
        return key

    def seal(self, uid: str, encrypted: bool, place: str, data: Data, what: str) -> bytes:
        """The payload to store for ``data``."""
        return self.seal_text(uid, encrypted, place, to_text(data), what)

    def seal_text(self, uid: str, encrypted: bool, place: str, text: bytes, what: str, *, over: int = 0) -> bytes:
        """The payload to store for data that is JSON text already. It is compressed if it is longer than ``over``."""
        self.codec.refuse_secrets(text, what)
        return self._sealed(uid, encrypted, place, text, what, over)

    def _sealed(self, uid: str, encrypted: bool, place: str, text: bytes, what: str, over: int = 0) -> bytes:
        if not encrypted and len(text) <= self.plain_bytes:
            return text
        check_size(text, what, limit=self.max_bytes, warn_at=self.max_bytes // 2)
        payload = squeeze(text, self.store.compress_over) if len(text) > over else text
        if encrypted:
            payload = self._key(uid).seal(payload, f"{uid}/{place}".encode(), self.store.clock)
        return payload

    def new_record(
        self, now: int, id: str | Callable[[str], str], *, root: bytes | None = None, **facts: Any
    ) -> RunRecord:
        """The record of a new run; ``id`` may be a function of its uid. ``root`` is the entry that a fork follows."""
        uid = new_uid(self.store.clock, now)
        key = self.new_key(uid)
        return RunRecord(
            uid=uid,
            id=id if isinstance(id, str) else id(uid),
            created_at=now,
            root=genesis(uid) if root is None else root,
            key_id=key.key_id if key else None,
            key_blob=key.blob if key else None,
            **facts,
        )

    def first_entry(self, record: RunRecord, kind: str, data: Data, what: str, state: int | None = None) -> Entry:
        """The first entry of a new run."""
        payload = self.seal(record.uid, record.key_id is not None, f"{record.base}/{kind}", data, what)
        return next_entry(record.root, record.base, kind, record.created_at, state, payload)

    def create(self, record: RunRecord, entries: tuple[Entry, ...]) -> Create:
        """What makes a run. Neither its id nor what it can be found by may hold the value of a secret."""
        texts: Tree = [record.id, {**record.tags}, record.workflow, record.queue, record.lane]
        self.codec.refuse_secrets(to_text(texts), "id, tags, queue or key of the run")
        return Create(record, entries)

    def open(self, run: str, uid: str, place: str, payload: bytes) -> Data:
        """What was given to `seal`; raises `RunDamaged` if it does not add up."""
        return self._measured(run, uid, place, payload)[0]

    def _measured(self, run: str, uid: str, place: str, payload: bytes) -> tuple[Data, int]:
        """The data of a payload, and the length of its text."""
        try:
            if payload[:1] == b"\x02":
                payload = self._key(uid).open(payload, f"{uid}/{place}".encode())
            text = expand(payload, max_bytes=READ_LIMIT)
            data = from_text(text)
        except ValueError as error:
            raise RunDamaged(run, f"{place} cannot be read ({error}); restore the run from a backup") from error
        if not isinstance(data, dict):
            raise RunDamaged(run, f"{place} is not what it should be; restore the run from a backup")
        return data, len(text)

    def item(self, record: RunRecord, key: str, kind: str, data: Data, *, wakes: bool) -> Item:
        """An item for the run's inbox."""
        self.codec.refuse_secrets(to_text(key), kind)
        payload = self.seal(record.uid, record.key_id is not None, f"inbox/{key}", data, kind)
        return Item(key, kind, self.store.clock.now(), payload, wakes)

    def item_data(self, run: str, uid: str, item: Item) -> Data:
        """What an inbox item says. Who left it may not have known a secret that is known here: that is taken out."""
        return self.codec.take_out_secrets(self.open(run, uid, f"inbox/{item.key}", item.payload))

    def value(self, run: str, tree: Tree, what: str, as_type: Any = None) -> Any:
        """The value of a tree in a payload."""
        try:
            return self.codec.decode(tree, as_type, what)
        except ValueError as error:
            raise RunDamaged(run, f"{what} cannot be read ({error}); restore the run from a backup") from error

    def next_entries(
        self,
        record: RunRecord,
        lines: Sequence[tuple[str, Data]],
        at: int,
        state: int | None,
        what: str,
        *,
        acknowledged: bool = False,
    ) -> list[Entry]:
        """Entries that continue the journal. What was acknowledged in the inbox (see `item_data`) is not refused."""
        entries: list[Entry] = []
        seq, prev = record.seq, record.hash
        for kind, data in lines:
            seq += 1
            payload = to_text(data)
            if not acknowledged:
                self.codec.refuse_secrets(payload, what)
            payload = self._sealed(record.uid, record.key_id is not None, f"{seq}/{kind}", payload, what)
            entry = next_entry(prev, seq, kind, at, state, payload)
            prev = entry.hash
            entries.append(entry)
        return entries

    def blind(self, record: RunRecord, text: str) -> str:
        """A digest of user text that may stand in the clear."""
        if record.key_id is not None:
            return self._key(record.uid).blind(text)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    def _key(self, uid: str) -> DataKey:
        key = self._keys.get(uid)
        if key is None:
            record = self.store.get(uid=uid)
            if record is None or record.key_id is None or record.key_blob is None:
                raise RunDamaged(record.id if record else uid, "an entry is encrypted, but the run has no key")
            if self.keyring is None:
                raise KeyMissing(
                    f"run {record.id!r} is encrypted with key {record.key_id!r}; open the store with keys="
                )
            wrapped = WrappedKey(record.key_id, record.key_blob)
            key = self._remember(uid, self.keyring.unwrap(uid, wrapped, of=f"run {record.id!r}"))
        return key

    def learn_key(self, uid: str, wrapped: WrappedKey, of: str) -> None:
        """Unwrap a data key that does not stand in a run's record, so that what it sealed can be opened."""
        if uid not in self._keys:
            if self.keyring is None:
                raise KeyMissing(f"{of} is encrypted with key {wrapped.key_id!r}; open the store with keys=")
            self._remember(uid, self.keyring.unwrap(uid, wrapped, of=of))

    def data(self, run: str, uid: str, entry: Entry) -> Data:
        """The payload of an entry. Of an erased one, what stayed of it; with ``erased`` set."""
        return self._measured_entry(run, uid, entry)[0]

    def _measured_entry(self, run: str, uid: str, entry: Entry) -> tuple[Data, int]:
        payload = entry.payload
        if redacted_digest(payload) is not None:
            payload = left_of(payload)
        return self._measured(run, uid, f"{entry.seq}/{entry.kind}", payload)

    # --- entries

    def entries(self, record: RunRecord, lo: int, hi: int, *, saved: bool | None = None) -> Iterator[tuple[str, Entry]]:
        """The entries lo to hi of a run, inherited ones included, each verified, with the uid of its journal."""
        for uid, start, end in segments(record, lo, hi):
            try:
                found = self.store.read(uid, start, end, saved=saved)
                verify(record.id, found)
                if uid != record.uid:
                    self._check_reaches(record, uid, found, end)
                if saved is None:
                    check_gapless(record.id, found, start, end)
            except RunDamaged:
                self.check_there(record)
                raise
            for entry in found:
                yield uid, entry

    def _check_reaches(self, record: RunRecord, uid: str, found: list[Entry], end: int) -> None:
        """Raise `RunDamaged` if the journal of an ancestor is gone, or ends before what the fork has of it.

        Where only some kinds of entries are read, the store finds gaps between them; it does not know of this end.
        """
        there = found[-1:] if found and found[-1].seq == end else self.store.read(uid, end, end, payloads=False)
        if not there:
            of = next((link.id for link in record.lineage if link.uid == uid), uid)
            problem = f"entry {end}, which it has in common with the run {of!r} (uid {uid}), is missing"
            raise RunDamaged(record.id, f"{problem}; restore both from a backup")

    def check_there(self, record: RunRecord) -> None:
        """Raise `RunNotFound` if a run was deleted since its record was read: what is missing is not damage then."""
        if self.store.get(uid=record.uid) is None:
            raise RunNotFound(record.id, "it was deleted while it was read")

    def headers(self, record: RunRecord, lo: int, hi: int) -> list[Entry]:
        """The entries lo to hi without their payloads, for lists: none is missing, but their hashes are not checked."""
        found: list[Entry] = []
        for uid, start, end in segments(record, lo, hi):
            some = self.store.read(uid, start, end, payloads=False)
            try:
                if uid != record.uid:
                    self._check_reaches(record, uid, some, end)
                check_gapless(record.id, some, start, end)
            except RunDamaged:
                self.check_there(record)
                raise
            found += some
        return found

    def entry(self, record: RunRecord, seq: int) -> tuple[str, Entry]:
        """One entry; raises `NoCheckpoint` if there is none of that number."""
        if 0 <= seq <= record.seq:
            for found in self.entries(record, seq, seq):
                return found
        raise NoCheckpoint(record.id, f"there is no entry {seq}; the newest is {record.seq}")

    def fold(self, record: RunRecord, upto: int, fold: Fold | None = None) -> Fold:
        """What was done up to an entry; a fold of an earlier point is carried on."""
        if fold is not None and fold.seq < record.chapter <= upto:
            fold = None  # nothing from before the chapter counts
        carried = fold is not None
        if fold is None:
            start = self.chapter(record, upto)
            fold = Fold(record.id, sum(rewind.at < start for rewind in record.rewinds))
            fold.seq = start - 1
        for uid, entry in self.entries(record, fold.seq + 1, upto, saved=False):
            if carried and entry.kind == Kind.REDACTED:
                return self.fold(record, upto)  # what was erased must not live on in memory
            data = self.data(record.id, uid, entry)
            try:
                fold.add(entry.seq, entry.kind, entry.at, data)
            except (KeyError, TypeError, ValueError) as error:
                raise RunDamaged(record.id, f"entry {entry.seq} ({entry.kind}) does not add up: {error!r}") from error
        fold.seq = max(fold.seq, upto)
        return fold

    def chapter(self, record: RunRecord, at: int) -> int:
        """Where the chapter of an entry begins: what was done before that does not count for it."""
        start = record.chapter
        while start > at:
            uid, entry = self.entry(record, start)
            start = int(self.data(record.id, uid, entry)["before"])
        return start

    def contents(self, record: RunRecord, uid: str, entry: Entry) -> dict[str, Any]:
        """What an entry says, readable without the user's classes. Of a save, the whole of what was saved."""
        data = self.data(record.id, uid, entry)
        if entry.kind == Kind.SAVED and "erased" not in data:
            saved = self.state(record, entry.seq)
            data = saved.told if saved is not None else {}
        return self.raw(data)

    def raw(self, data: Data) -> dict[str, Any]:
        """The data of an entry in a readable JSON form."""
        return {name: self.codec.raw(value) for name, value in data.items()}

    # --- states

    def state(self, record: RunRecord, at: int | None = None) -> Saved | None:
        """The last state that was saved at or before an entry (the newest, if none is given)."""
        if at is None:
            seq = record.state
        else:
            _, entry = self.entry(record, at)
            seq = entry.seq if entry.kind == Kind.SAVED else entry.state
        if seq is None:
            return None
        uid, last = self.entry(record, seq)
        if last.state is None or last.kind != Kind.SAVED:
            raise RunDamaged(record.id, f"entry {seq} should be a saved state and is not")
        links = [(uid, last)]
        if last.state < seq:
            ranges = live_ranges(record.rewinds, seq)
            earlier = self.entries(record, last.state, seq - 1, saved=True)
            links = [link for link in earlier if is_live(ranges, link[1].seq)] + links
        tree: Tree = None
        size = 0
        for uid, entry in links:
            data, length = self._measured_entry(record.id, uid, entry)
            size += length
            if "erased" in data:
                raise Redacted(
                    record.id, f"the state at {seq} builds on entry {entry.seq}, which was erased on request"
                )
            try:
                tree = data["s"] if "s" in data else patch_owned(tree, data["d"])  # of its own: it was read just now
            except (KeyError, ValueError) as error:
                self.check_there(record)
                raise RunDamaged(record.id, f"the state in entry {entry.seq} does not add up: {error}") from error
        if not isinstance(tree, dict):
            self.check_there(record)
            raise RunDamaged(record.id, f"the state at {seq} has no beginning: entry {last.state} is missing")
        return Saved(seq, last.at, tree, last.state, size, data.get("seconds"))

    def result(self, record: RunRecord, ended: Data) -> Tree:
        """What a run was completed with, which may be its state."""
        if (seq := ended.get("saved")) is None:
            return ended.get("result")
        saved = self.state(record, seq)
        return saved.tree["state"] if saved is not None else None


def check_gapless(run: str, entries: list[Entry], lo: int, hi: int) -> None:
    """Raise `RunDamaged` if the entries are not exactly lo to hi, each chained to the one before."""
    for expected, entry in enumerate(entries, lo):
        if entry.seq != expected or (expected > lo and entry.prev != entries[expected - lo - 1].hash):
            raise RunDamaged(run, f"entry {expected} is missing; restore the run from a backup")
    if len(entries) != hi - lo + 1:
        raise RunDamaged(run, f"the journal ends at {lo + len(entries) - 1}, but should reach {hi}")
