"""One transaction's worth of writes: what is there, what each write comes to, and the statements that make it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.errors import HoldfastError, RunDamaged, RunExists, RunNotFound
from holdfast.kernel.model import Adopt, Append, Create, EndMove, Entry, Item, Post, Rewrap, RunRecord, Status, Write
from holdfast.kernel.rules import (
    Outcome,
    adoptable,
    appended,
    check_takes,
    conflict,
    continues,
    end_refusal,
    ending,
    move_ended,
    refusal,
    woken,
)
from holdfast.stores.postgres.connections import Connection, Statement, begin, together
from holdfast.stores.postgres.rows import changing, given, kept, key_digest, record_of, row_of
from holdfast.stores.sql_rows import sealed

PORTION = 8 * 1024 * 1024  # bytes of payloads in one statement, so that the server soon hears of each: see ``stale``


class Batch:
    """Writes that are decided on rows that are locked. ``again`` says that they may have been made before."""

    def __init__(self, queries: dict[str, str], writes: Sequence[Write], again: bool) -> None:
        self._q = queries
        self._again = again
        self._writes = writes
        self.records: dict[str, RunRecord | RunDamaged] = {}  # by uid
        self.ids: dict[str, str] = {}  # the uids of those that are visible
        self.ancestors: set[str] = set()
        self._mail: dict[str, dict[str, bool]] = {}  # of each run, the keys of what was not taken, and whether it wakes
        self._before: dict[str, RunRecord] = {}
        self._new: list[RunRecord] = []
        self._emptied: list[str] = []
        self._entries: list[tuple[str, Entry]] = []
        self._hashes: dict[tuple[str, int], bytes] = {}
        self._links: list[tuple[str, str]] = []
        self._posted: dict[tuple[str, bytes], int | None] = {}  # of items with these keys: when they were posted
        self._items: list[tuple[Any, ...]] = []
        self._took: list[tuple[str, str]] = []
        self._redacted: list[tuple[str, int, bytes]] = []

    def begin(self, conn: Connection, *, inside: bool = False) -> None:
        """Begin the transaction: lock the runs that are written to, and read all that is needed to decide.

        With ``inside`` it was begun before.
        """
        new = [write.record for write in self._writes if isinstance(write, Create | Adopt)]
        there = {_uid_of(write) for write in self._writes if not isinstance(write, Create)}
        ancestors = sorted({link.uid for record in new for link in record.lineage})
        changed = {
            one.uid for one in self._writes if isinstance(one, EndMove) or (isinstance(one, Append) and one.change)
        }
        posts = [(one.uid, key_digest(one.item.key)) for one in self._writes if isinstance(one, Post)]
        lists: dict[str, tuple[str, Sequence[list[Any]]]] = {
            "locked": (self._q["lock"], [sorted(there)]),
            "known": (f"{self._q['record']} WHERE r.uid = ANY(%s::text[])", [sorted(map(_uid_of, self._writes))]),
            "named": (
                f"{self._q['record']} WHERE r.id = ANY(%s::text[]) AND NOT r.hidden",
                [[kept(record.id) for record in new]],
            ),
            "ancestors": (self._q["ancestors"], [ancestors]),
            "mail": (self._q["mail"], [sorted(changed)]),
            "posted": (self._q["posted"], _columns(posts)),
        }
        asked = {name: (query, tuple(values)) for name, (query, values) in lists.items() if values and values[0]}
        statements = list(asked.values())
        found = dict(zip(asked, (together if inside else begin)(conn, *statements), strict=True))
        for row in (*found.get("known", ()), *found.get("named", ())):
            record = _record_or_damage(row)
            self.records[row[1]] = record
            if isinstance(record, RunRecord):
                self._before[record.uid] = record
            if not row[22] and type(row[2]) is str:
                self.ids[given(row[2])] = row[1]
        self.ancestors = {uid for uid, _ in found.get("ancestors", ())}
        for uid, key, wakes in found.get("mail", ()):
            self._mail.setdefault(uid, {})[given(key)] = wakes
        self._posted = {(uid, digest): at for uid, digest, at in found.get("posted", ())}

    # --- decisions

    def make(self, conn: Connection, write: Write) -> Outcome:
        """What a write comes to. One that is refused fails by itself, not the batch it is in."""
        try:
            match write:
                case Create():
                    return self._create(write)
                case Append():
                    return self._append(conn, write)
                case Post():
                    return self._post(write.uid, write.item)
                case EndMove():
                    return self._end_move(write)
                case Rewrap():
                    return self._rewrap(write)
                case Adopt():
                    return self._adopt(write)
        except HoldfastError as refused:
            return refused

    def _current(self, uid: str) -> RunRecord | None:
        record = self.records.get(uid)
        if isinstance(record, RunDamaged):
            raise record
        return record

    def _create(self, write: Create) -> RunRecord | HoldfastError:
        record = write.record
        if record.id in self.ids:
            existing = self._current(self.ids[record.id])
            assert existing is not None
            return existing
        if record.uid in self.records:
            return RunExists(record.id)
        for link in record.lineage:
            if link.uid not in self.ancestors and link.uid not in self.records:
                return RunNotFound(link.id, "it was deleted, so it cannot be forked")
        return self._insert(record, write.entries)

    def _insert(self, record: RunRecord, entries: Sequence[Entry]) -> RunRecord:
        """Add a run with its entries; its record."""
        made = ending(record, entries)
        self._new.append(record)
        self._links += [(link.uid, record.uid) for link in record.lineage]
        self._add(record.uid, entries)
        self.records[record.uid] = self._before[record.uid] = made
        if not record.hidden:
            self.ids[record.id] = record.uid
        return made

    def _adopt(self, write: Adopt) -> HoldfastError | None:
        record, entries = write.record, write.entries
        there = self.records.get(record.uid)
        same = self._again and isinstance(there, RunRecord) and there.hash == entries[-1].hash
        if same and isinstance(there, RunRecord) and (there.status, there.hidden) == (record.status, record.hidden):
            return None  # it was made, and the answer was lost
        if isinstance(there, RunDamaged):
            return RunExists(record.id)
        replaces = adoptable(there, record, entries)
        if not record.hidden and self.ids.get(record.id, record.uid) != record.uid:
            return RunExists(record.id)
        if any(link.uid not in self.ancestors and link.uid not in self.records for link in record.lineage):
            return RunNotFound(record.id, "the run that it was forked from is not in this store")
        if replaces:
            self._emptied.append(record.uid)
            self._add(record.uid, entries)
            self.records[record.uid] = record
        else:
            self._insert(record, entries)
        self._items += [_item_row(record.uid, item) for item in write.items]
        self._items += [(record.uid, key_digest(key), kept(key), "taken", 0, None, False, True) for key in write.taken]
        return None

    def _post(self, uid: str, item: Item) -> bool:
        place = uid, key_digest(item.key)
        if place in self._posted:
            at, self._posted[place] = self._posted[place], None
            return self._again and at == item.at  # it is the one of which no answer came
        record = self._current(uid)
        if record is None or record.hidden:
            return False
        check_takes(record)
        self._posted[place] = None
        self._items.append(_item_row(uid, item))
        self._mail.setdefault(uid, {})[item.key] = item.wakes
        if item.wakes:
            self.records[uid] = woken(record)
        return True

    def _end_move(self, write: EndMove) -> bool:
        record = self._current(write.uid)
        after = move_ended(record, write, self._mail.get(write.uid, {}))
        if after is None:
            settled = record is not None and (
                record.was is None if write.here is None else record.status is not Status.AWAY
            )
            return self._again and settled
        self.records[write.uid] = after
        return True

    def _rewrap(self, write: Rewrap) -> bool:
        record = self._current(write.uid)
        if record is None:
            return False
        if record.key_blob != write.old:
            return self._again and (record.key_id, record.key_blob) == (write.key_id, write.key_blob)
        self.records[write.uid] = replace(record, key_id=write.key_id, key_blob=write.key_blob)
        return True

    def _append(self, conn: Connection, write: Append) -> HoldfastError | None:
        record = self._current(write.uid)
        if self._again and self.was_made(conn, write):
            return None
        refused = refusal(record, write)
        if refused is not None or record is None:
            return refused
        if write.entries and not continues(record, write):
            last = write.entries[-1]
            return conflict(write, [replace(last, hash=hash) for hash in self._stored(conn, write)])
        mail = self._mail.get(write.uid, {})
        if (unread := end_refusal(write, mail)) is not None:
            return unread
        self._add(write.uid, write.entries)
        self._mail[write.uid] = mail = {key: wakes for key, wakes in mail.items() if key not in write.took}
        self.records[write.uid] = appended(record, write, mail=any(mail.values()))
        self._took += [(write.uid, key) for key in write.took]
        self._redacted += [(write.uid, seq, payload) for seq, payload in write.redact]
        return None

    def was_made(self, conn: Connection, write: Append) -> bool:
        """Whether a write of which no answer came was made, though its epoch may have been given up with it."""
        record = self._current(write.uid)
        if record is None:
            return False
        if write.entries:
            return write.entries[-1].hash in self._stored(conn, write)
        released = write.change is not None and write.change.release
        if not (released and record.epoch == write.epoch and record.worker is None):
            return False
        return bool(write.worker) or (write.change is not None and record.status is write.change.status)

    def _stored(self, conn: Connection, write: Append) -> list[bytes]:
        """The hash of what the journal has under the number of the write's last entry."""
        place = write.uid, write.entries[-1].seq
        if place in self._hashes:
            return [self._hashes[place]]
        [rows] = together(conn, (self._q["hash"], (write.uid, place[1])))
        return [row[0] for row in rows]

    def _add(self, uid: str, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._entries.append((uid, entry))
            self._hashes[uid, entry.seq] = entry.hash

    # --- statements

    def statements(self) -> list[Statement]:
        """What makes the writes lasting; nothing, if none of them changes anything."""
        made: list[Statement] = [(self._q["insert_run"], row_of(record)) for record in self._new]
        for uid in self._emptied:
            made += [(self._q["empty_journal"], (uid,)), (self._q["empty_inbox"], (uid,))]
        for some in _portions(self._entries):
            rows = [(uid, e.seq, e.at, e.state, kept(e.kind), e.hash, e.payload) for uid, e in some]
            made.append((self._q["insert_entries"], _columns(rows)))
        if self._links:
            made.append((self._q["insert_links"], _columns([(up, down) for up, down in self._links])))
        for uid, record in self.records.items():
            if isinstance(record, RunRecord) and changing(record) != changing(self._before[uid]):
                made.append((self._q["update_run"], (*changing(record), uid)))
        if self._items:
            made.append((self._q["post"], _columns(self._items)))
        if self._took:
            made.append((self._q["take"], _columns([(uid, key_digest(key)) for uid, key in self._took])))
        if self._redacted:
            made.append((self._q["redact"], _columns([(uid, *what) for uid, *what in self._redacted])))
        return made


def _uid_of(write: Write) -> str:
    return write.record.uid if isinstance(write, Create | Adopt) else write.uid


def _item_row(uid: str, item: Item) -> tuple[Any, ...]:
    return uid, key_digest(item.key), kept(item.key), kept(item.kind), item.at, sealed(item), item.wakes, False


def _record_or_damage(row: tuple[Any, ...]) -> RunRecord | RunDamaged:
    try:
        return record_of(row)
    except RunDamaged as damage:
        return damage


def _portions(entries: Sequence[tuple[str, Entry]]) -> Iterator[Sequence[tuple[str, Entry]]]:
    """The entries in pieces, each small enough for one statement: a whole run that comes in may be of any size."""
    begin, size = 0, 0
    for n, (_, entry) in enumerate(entries):
        size += len(entry.payload)
        if size > PORTION and n > begin:
            yield entries[begin:n]
            begin, size = n, len(entry.payload)
    if begin < len(entries):
        yield entries[begin:]


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(list(column) for column in zip(*rows, strict=True))
