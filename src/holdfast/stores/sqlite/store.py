"""Journals in one SQLite file, safe for many processes and threads at once.

The file is in WAL mode. At ``durability=full`` (the default) a commit is on the disk before it is acknowledged. At
``durability=normal`` the last commits before a power failure may be lost (never torn, and a crash of the process
alone loses nothing).

Writers of several processes take turns by a lock beside the database (see `holdfast.stores.sqlite.file`). A plain
step is one INSERT that checks epoch, holder and the hash before it in the same statement; the run's row is not
touched. Plain steps that are committed together are one pass of that statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, TypeGuard

from msgspec.structs import replace

from holdfast.errors import HoldfastError, Moved, RunDamaged, RunEnded, RunExists, RunNotFound
from holdfast.kernel.clock import Clock, SystemClock
from holdfast.kernel.model import (
    Adopt,
    Append,
    Create,
    Document,
    EndMove,
    Entry,
    Item,
    Order,
    Post,
    Rewrap,
    RunRecord,
    Status,
    Write,
)
from holdfast.kernel.rules import (
    LIVE,
    Outcome,
    Term,
    adoptable,
    appended,
    check_takes,
    claimed,
    conflict,
    each_deleted,
    end_refusal,
    ending,
    ends,
    is_chain,
    may_delete,
    move_ended,
    new_version,
    refusal,
    woken,
)
from holdfast.stores.protocol import LOOK_EVERY
from holdfast.stores.sql_rows import sealed
from holdfast.stores.sqlite.damage import REMEDY, check_tail, is_posted
from holdfast.stores.sqlite.queues import choose
from holdfast.stores.sqlite.reads import SqliteReads
from holdfast.stores.sqlite.rows import document_row, row_of, taken_seal, worker_row
from holdfast.stores.sqlite.statements import Q
from holdfast.stores.sqlite.user_transaction import SqliteGuest

APPEND = Q["append"]
MAX_KNOWN = 10_000  # runs whose numbers are remembered


class _Withdrawn(Exception):
    """The transaction is to be rolled back, and nothing is wrong with the store."""


class SqliteStore(SqliteReads):
    """A store in one SQLite file. See `holdfast.stores.protocol.Store` for what each method promises."""

    compress_over: int | None = 512
    networked = False
    look_every = LOOK_EVERY

    def __init__(self, path: str, *, durability: str = "full", clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self._numbers: dict[str, int] = {}  # of runs, by uid: a guess, checked by the statement that uses it
        super().__init__(path, durability=durability)

    def close(self) -> None:
        try:
            if self._unusable is None:
                with self._lock, self._read_lock:
                    for worker in self._locks.workers():
                        self._retire(worker)
                    if self._presence is not None:
                        self._presence.leave()
        finally:
            self.drop()

    def _current(self, uid: str) -> RunRecord | None:
        """The record inside a write transaction."""
        return self._by_uid(self._db, uid)

    def _put(self, record: RunRecord) -> None:
        self._db.execute(Q["update_run"], (*row_of(record)[3:], record.uid))

    # --- writes

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        if len(batch) == 1 and self._append_alone(batch[0]):
            return [None]
        try:
            made = self._apply(batch)
        except sqlite3.IntegrityError:
            if len(batch) > 1:
                return [outcome for write in batch for outcome in self.apply([write])]
            with self._reading() as db:
                return [self._conflict(db, batch[0])]
        if any(isinstance(write, Append) and write.redact for write in batch):
            self._empty_log()
        return made

    def _apply(self, batch: Sequence[Write]) -> list[Outcome]:
        with suppress(_Withdrawn), self._writing():
            return self._make_together(batch)
        with self._writing():  # one of them is refused, so each is made by itself, to see which
            return [self._make(write) for write in batch]

    def _make_together(self, batch: Sequence[Write]) -> list[Outcome]:
        """Carry out writes in the transaction, plain steps that follow each other in one pass."""
        made: list[Outcome] = []
        for plain, writes in groupby(batch, _is_plain):
            if plain:
                made += self._append_many([write for write in writes if isinstance(write, Append)])
            else:
                made += [self._make(write) for write in writes]
        return made

    def _append_many(self, writes: Sequence[Append]) -> list[Outcome]:
        rows = [_values(self._guess(write.uid), write, entry) for write in writes for entry in write.entries]
        if self._cursor.executemany(APPEND, rows).rowcount != len(rows):
            raise _Withdrawn
        return [None] * len(writes)

    def _make(self, write: Write) -> Outcome:
        """Make a write in the transaction. One that is refused fails by itself, not the batch it is in."""
        try:
            match write:
                case Create():
                    return self._create(write)
                case Append():
                    return self._append(write)
                case Post():
                    return self._post(write.uid, write.item)
                case EndMove():
                    return self._end_move(write)
                case Rewrap():
                    return self._rewrap(write)
                case Adopt():
                    return self._adopt(write.record, write.entries, write.items, write.taken)
        except (Moved, RunDamaged, RunEnded, RunExists, RunNotFound) as refused:
            return refused

    def _append_alone(self, write: Write) -> bool:
        """Carry out a plain step, which is a single statement. False if it is none, or is refused."""
        if not _is_plain(write) or len(write.entries) != 1:
            return False
        number = self._numbers.get(write.uid)
        return number is not None and self._write_alone(APPEND, _values(number, write, write.entries[0])) == 1

    def transact(self, act: Callable[[sqlite3.Connection], Append]) -> HoldfastError | None:
        """See `holdfast.stores.protocol.Transacting`."""
        outcome: Outcome = None
        raised: Exception | None = None
        with self._lending(), suppress(_Withdrawn), self._writing():
            try:
                with self._db.lend():
                    write = act(self._db)
            except Exception as error:  # of the function, and not of the store
                raised = error
                raise _Withdrawn from None
            before = self._db.total_changes
            outcome = self._make(write)
            if outcome is not None or self._db.total_changes == before:  # refused, or it was made before
                raise _Withdrawn
        if raised is not None:
            raise raised
        assert outcome is None or isinstance(outcome, HoldfastError)
        return outcome

    def join(self, connection: Any, *, awaited: bool) -> SqliteGuest:
        """See `holdfast.stores.user_transaction.Joining`. Such a connection is called in async code, too."""
        self._check_usable()
        return SqliteGuest(connection, self.path)

    def _create(self, write: Create) -> RunRecord | HoldfastError:
        record = write.record
        if (existing := self._by_id(self._db, record.id)) is not None:
            return existing
        ancestors = [self._number(link.uid) for link in record.lineage]
        for link, number in zip(record.lineage, ancestors, strict=True):
            if number is None:
                return RunNotFound(link.id, "it was deleted, so it cannot be forked")
        self._insert(record, write.entries, [number for number in ancestors if number is not None])
        return ending(record, write.entries)

    def _insert(self, record: RunRecord, entries: Sequence[Entry], ancestors: Sequence[int]) -> int:
        number = self._db.execute(Q["insert_run"], row_of(record)).lastrowid
        assert number is not None
        self._add_entries(number, entries)
        self._db.executemany(Q["insert_link"], [(ancestor, number) for ancestor in ancestors])
        return number

    def _add_entries(self, number: int, entries: Sequence[Entry]) -> None:
        rows = [(number, e.seq, e.kind, e.at, e.state, e.hash, e.payload) for e in entries]
        self._db.executemany(Q["insert_entry"], rows)

    def _append(self, write: Append) -> HoldfastError | None:
        changes = bool(write.change or write.took or write.redact)
        record = self._current(write.uid) if changes else None  # before anything is written: it may be damaged
        if changes and (refused := refusal(record, write)):
            return refused
        if ends(write) and (unread := end_refusal(write, self._untaken(write.uid))):
            return unread
        if not is_chain(write.entries):
            return refusal(self._current(write.uid), write) or self._conflict(self._db, write)
        number = self._number(write.uid) or 0
        for entry in write.entries:
            if not self._db.execute(APPEND, _values(number, write, entry)).rowcount:
                return refusal(self._current(write.uid), write) or self._conflict(self._db, write)
        if record is not None:
            self._change(record, write)
        return None

    def _untaken(self, uid: str) -> list[str]:
        return [item.key for item in self._items(self._db, uid)]

    def _change(self, record: RunRecord, write: Append) -> None:
        number = self._guess(write.uid)
        for key in write.took:
            taken = self._db.execute(Q["take"], (taken_seal(key), number, key)).rowcount
            if not taken and is_posted(self._db, number, key):
                raise RunDamaged(write.id, f"an index does not have the inbox item {key!r}; {REMEDY}")
        self._put(appended(record, write, mail=bool(self._db.execute(Q["mail"], (write.uid,)).fetchone())))
        for seq, payload in write.redact:
            self._db.execute(Q["redact"], (payload, write.uid, seq))

    def _conflict(self, db: sqlite3.Connection, write: Write) -> HoldfastError | None:
        if isinstance(write, Create | Adopt):
            return RunExists(write.record.id)
        assert isinstance(write, Append)
        last = write.entries[-1]
        return conflict(write, [Entry(*row) for row in db.execute(Q["entry"], (write.uid, last.seq))])

    def _number(self, uid: str) -> int | None:
        number = self._number_in(self._db, uid)
        if number is None:
            return None
        if len(self._numbers) >= MAX_KNOWN:
            self._numbers.clear()
        self._numbers[uid] = number
        return number

    def _guess(self, uid: str) -> int:
        """The number of the run, if it has not been deleted since it was looked up; 0 if there is no such run."""
        return self._numbers.get(uid) or self._number(uid) or 0

    # --- claims, inboxes, workers

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE, *, alone: bool = False) -> RunRecord:
        with self._writing():
            record = self._current(uid)
            alive = record is not None and record.worker is not None and self._alive(self._db, record.worker)
            taken = claimed(record, uid, worker, allow, holder_alive=alive, alone=alone)
            self._check_left(record)
            self._put(taken)
            return taken

    def take(self, order: Order) -> list[RunRecord]:
        with self._reading() as db:
            if not choose(db, order, self.clock.now(), partial(self._alive, db)):
                return []  # as is usual when one looks, and then nothing need be locked
        with self._writing():
            taken: list[RunRecord] = []
            for uid in choose(self._db, order, self.clock.now(), partial(self._alive, self._db)):
                record = self._current(uid)
                self._check_left(record)
                taken.append(claimed(record, uid, order.worker, LIVE, holder_alive=False, alone=order.alone))
                self._put(taken[-1])
            return taken

    def _check_left(self, record: RunRecord | None) -> None:
        """Check a run that a dead holder left: an index may lack its last entries, and no other row says so."""
        if record is not None and record.worker is not None:
            check_tail(self._db, self._guess(record.uid), record.id, record.seq)

    def _post(self, uid: str, item: Item) -> bool:
        record = self._current(uid)
        if record is None or record.hidden:
            return False
        number = self._number(uid) or 0
        if is_posted(self._db, number, item.key):
            return False
        check_takes(record)
        values = (number, item.key, item.kind, item.at, sealed(item), item.wakes, 0)
        if not self._db.execute(Q["post"], values).rowcount:
            raise RunDamaged(record.id, f"the inbox item {item.key!r} is in one index and not in another; {REMEDY}")
        if item.wakes and woken(record) is not record:
            self._put(woken(record))
        return True

    def beat(self, worker: str, lease: float) -> None:
        if not lease:
            self._retire(worker)
            return
        if worker in self._locks.workers():
            self._restore_locks(worker)
        else:
            self._enlist(worker)
        with self._writing():
            self._db.execute(Q["beat"], worker_row(worker, Term.of(self.clock, lease)))

    def _enlist(self, worker: str) -> None:
        """Take the lock of a new worker, and forget those whose processes have ended."""
        with self._lock, self._translated():
            self._check_usable()
            self._locks.hold(worker)
            gone = self._locks.ended()
        self._stamp_file()
        if gone:
            with self._writing():
                self._db.executemany(Q["retire"], [(name,) for name in gone])
        with self._translated():
            for name in gone:
                self._locks.release(name)

    def _retire(self, worker: str) -> None:
        with self._writing():
            self._db.execute(Q["retire"], (worker,))
        self._locks.release(worker)

    # --- documents

    def put_document(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        with self._writing():
            known = self._document(self._db, kind, name)
            if (known.version if known else None) != expected:
                return False
            if value is None:
                self._db.execute(Q["delete_document"], (kind, name))
            else:
                row = document_row(kind, Document(name, value, new_version(self.clock)))
                self._db.execute(Q["put_document"], row)
            return True

    # --- whole runs

    def delete(self, records: Sequence[RunRecord]) -> list[bool | HoldfastError]:
        with self._writing():
            return each_deleted(records, self._delete)

    def _delete(self, expected: RunRecord) -> bool:
        record = self._current(expected.uid)
        if record is None or record.hidden:
            return False
        alive = record.worker is not None and self._alive(self._db, record.worker)
        if not may_delete(record, expected, holder_alive=alive):
            return False
        chain = [record.uid, *(link.uid for link in reversed(record.lineage))]
        for uid in chain[1:]:
            self._current(uid)  # before anything is written: it may be damaged
        self._put(replace(record, hidden=True, worker=None))
        self._db.execute("DELETE FROM inbox WHERE run = ?", (self._number(record.uid),))
        for uid in chain:
            self._remove_if_unshared(uid)
        return True

    def _remove_if_unshared(self, uid: str) -> None:
        """Remove the journal if it is hidden and no fork shares it any longer."""
        record, number = self._current(uid), self._number(uid)
        if record is None or not record.hidden or self._db.execute(Q["is_shared"], (number,)).fetchone():
            return
        self._db.execute("DELETE FROM entry WHERE run = ?", (number,))
        self._db.execute("DELETE FROM link WHERE child = ?", (number,))
        self._db.execute("DELETE FROM run WHERE n = ?", (number,))

    def _rewrap(self, write: Rewrap) -> bool:
        record = self._current(write.uid)
        if record is None or record.key_blob != write.old:
            return False
        self._put(replace(record, key_id=write.key_id, key_blob=write.key_blob))
        return True

    def _adopt(
        self, record: RunRecord, entries: Sequence[Entry], items: Sequence[Item], taken: Sequence[str]
    ) -> HoldfastError | None:
        ancestors = [self._number(link.uid) for link in record.lineage]
        if None in ancestors:
            return RunNotFound(record.id, "the run that it was forked from is not in this store")
        if adoptable(self._current(record.uid), record, entries):
            number = self._number(record.uid) or 0
            self._db.execute("DELETE FROM entry WHERE run = ?", (number,))
            self._db.execute("DELETE FROM inbox WHERE run = ?", (number,))
            self._put(record)
            self._add_entries(number, entries)
        else:
            number = self._insert(record, entries, [n for n in ancestors if n is not None])
        self._db.executemany(Q["post"], [(number, i.key, i.kind, i.at, sealed(i), i.wakes, 0) for i in items])
        self._db.executemany(Q["post"], [(number, key, "taken", 0, taken_seal(key), 0, 1) for key in taken])
        return None

    def _end_move(self, write: EndMove) -> bool:
        mail = {item.key: item.wakes for item in self._items(self._db, write.uid)}
        record = move_ended(self._current(write.uid), write, mail)
        if record is not None:
            self._put(record)
        return record is not None


def _is_plain(write: Write) -> TypeGuard[Append]:
    """Whether the write does nothing but add entries."""
    return type(write) is Append and not (write.change or write.took or write.redact) and len(write.entries) > 0


def _values(number: int, write: Append, entry: Entry) -> tuple[Any, ...]:
    """What the append statement takes: in which run, who may write it, what it continues, and the entry."""
    return (
        number,
        write.uid,
        write.epoch,
        write.worker,
        entry.seq - 1,
        entry.prev,
        entry.seq,
        entry.kind,
        entry.at,
        entry.state,
        entry.hash,
        entry.payload,
    )
