"""Journals in one SQLite file, safe for many processes and threads at once.

The file is in WAL mode. At ``durability=full`` (the default) a commit is on the disk before it is acknowledged. At
``durability=normal`` the last commits before a power failure may be lost (never torn, and a crash of the process
alone loses nothing).

Every write transaction first takes an operating-system lock beside the database, then SQLite's own: writers of
several processes queue there and wake at once, instead of polling until "database is locked". A plain step is one
INSERT that checks epoch, holder and the hash before it in the same statement; the run's row is not touched.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from holdfast.clock import Clock, SystemClock
from holdfast.errors import (
    HoldfastError,
    RunDamaged,
    RunExists,
    RunNotFound,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnusable,
    UsageError,
)
from holdfast.model import Append, Create, Entry, Filter, Item, Link, Rewind, RunRecord, Status, Write
from holdfast.stores.base import (
    LIVE,
    READER,
    WRITER,
    Outcome,
    appended,
    claimed,
    conflict,
    is_chain,
    may_delete,
    refusal,
    woken,
)
from holdfast.stores.locks import LockFile, WorkerLocks

APPLICATION_ID = 0x484F4C44  # "HOLD": how a SQLite file says whose it is
PAGE_SIZE = 8192
BUSY_SECONDS = 60.0
FORKED = "it was opened before os.fork()"

_SQL_FOLDER = os.path.join(os.path.dirname(__file__), "sql", "sqlite")
_decode_lineage = msgspec.json.Decoder(tuple[Link, ...]).decode
_decode_rewinds = msgspec.json.Decoder(tuple[Rewind, ...]).decode
_decode_tags = msgspec.json.Decoder(dict[str, str]).decode


def _load_queries() -> dict[str, str]:
    with open(os.path.join(_SQL_FOLDER, "queries.sql"), encoding="utf-8") as file:
        parts = file.read().split("-- name: ")[1:]
    return {name.strip(): sql.strip() for name, _, sql in (part.partition("\n") for part in parts)}


def migrations() -> list[tuple[int, str]]:
    """The numbered migrations, as (number, SQL)."""
    found = []
    for name in sorted(os.listdir(_SQL_FOLDER)):
        if name[:4].isdigit():
            with open(os.path.join(_SQL_FOLDER, name), encoding="utf-8") as file:
                found.append((int(name[:4]), file.read()))
    return found


Q = _load_queries()
# The statements are right, so a table or column that is not there, or of another type, was there before.
_DAMAGED = frozenset(
    {
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_SCHEMA,
    }
)
MAX_TIME = 253_402_300_800_000_000  # the year 10,000
KNOWN_STATUSES = frozenset(Status)


class SqliteStore:
    """A store in one SQLite file. See `holdfast.stores.base.Store` for what each method promises."""

    compress_over: int | None = 512

    def __init__(self, path: str, *, durability: str = "full", clock: Clock | None = None) -> None:
        if durability not in ("full", "normal"):
            raise UsageError(f"durability is full or normal, not {durability!r}")
        self.path = os.path.abspath(path)
        self.place = f"sqlite:///{self.path}"
        self.clock = clock or SystemClock()
        self._durability = durability
        self._unusable: str | None = None
        self._lock = threading.RLock()
        self._read_lock = threading.RLock()
        with _forking, self._translated():
            self._open()
            _stores.add(self)

    # --- opening and closing

    def _open(self) -> None:
        os.makedirs(self.path + ".locks", exist_ok=True)
        self._locks = WorkerLocks(self.path + ".locks")
        writer = os.path.join(self.path + ".locks", "writer")
        self._writer_lock = LockFile(os.open(writer, os.O_CREAT | os.O_RDWR, 0o600))
        try:
            self._writer_lock.take()
            self._db = self._connect()
            try:
                self._migrate()
                self._reader = self._connect()
            except BaseException:
                self._db.close()
                raise
            self._reader.execute("PRAGMA query_only = 1")
        except BaseException:
            self._writer_lock.close()
            raise
        self._writer_lock.free()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._check_owner(db)
            db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self._durability}")
            db.execute("PRAGMA cell_size_check = 1")
            db.execute("PRAGMA secure_delete = 1")  # what is erased must not stay in free space
            db.create_function("tagged", 3, _tagged, deterministic=True)
        except BaseException:
            db.close()
            raise
        return db

    def _check_owner(self, db: sqlite3.Connection) -> None:
        """Before anything is done to the file, since WAL mode alone would change it."""
        [owner] = db.execute("PRAGMA application_id").fetchone()
        if owner != APPLICATION_ID and db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            raise StoreError(self.place, "this SQLite file belongs to another program; choose another path")

    def _migrate(self) -> None:
        db = self._db
        version = self._schema_version()
        if version:
            needed = dict(db.execute("SELECT name, value FROM meta"))
            if not all(type(needed.get(name)) is int for name in ("oldest_reader", "oldest_writer")):
                raise StoreDamaged(self.place, "it does not say which format it has; restore it from a backup")
            if needed["oldest_reader"] > READER or needed["oldest_writer"] > WRITER:
                raise StoreTooNew(
                    self.place,
                    f"it needs a Holdfast that reads format {needed['oldest_reader']} and writes format "
                    f"{needed['oldest_writer']}, this one has {READER} and {WRITER}; upgrade Holdfast",
                )
        pending = [(number, sql) for number, sql in migrations() if number > version]
        for number, sql in pending:
            db.executescript(f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA user_version = {number};\n")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._commit()

    def _schema_version(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def close(self) -> None:
        if self._unusable is None:
            with self._lock, self._read_lock:
                for worker in self._locks.workers():
                    self.retire(worker)
        self.drop()

    def drop(self) -> None:
        with self._lock, self._read_lock:
            if self._unusable not in ("it is closed", FORKED):
                self._unusable = "it is closed"
                self._reader.close()
                self._db.close()
                self._locks.drop()
                self._writer_lock.close()

    # --- transactions

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._check_usable()
            with self._translated():
                if not self._writer_lock.take_within(BUSY_SECONDS):
                    raise StoreBusy(self.place)
                try:
                    self._db.execute("BEGIN IMMEDIATE")
                    try:
                        yield
                        self._commit()
                    except BaseException:
                        if self._db.in_transaction:
                            self._db.execute("ROLLBACK")
                        raise
                finally:
                    self._writer_lock.free()

    def _commit(self) -> None:
        """The moment at which a transaction becomes lasting."""
        self._db.execute("COMMIT")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The connection to read with: inside a transaction of this thread, the one that it writes with."""
        with self._read_lock:
            self._check_usable()
            with self._translated():
                yield self._reader

    def _check_usable(self) -> None:
        if self._unusable is not None:
            raise StoreUnusable(self.place, f"{self._unusable}; open the store again")

    def _leave_to_parent(self) -> None:
        """In a forked child: close what was inherited, which nobody was using at the moment of the fork.

        SQLite remembers per process which locks it has on a file, and the child has none of them. With the parent's
        connections still there, one that the child opens would go without locks; others would take the file for
        unused and remove its write-ahead log under the child's hands.
        """
        self._unusable = FORKED
        if not self._db.in_transaction:
            self._reader.close()
            self._db.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, which name the place and the remedy."""
        try:
            yield
        except sqlite3.Error as error:
            self._raise(error)
        except (PermissionError, NotADirectoryError) as error:
            raise StoreReadOnly(self.place, f"{error.strerror}: {error.filename}; check the permissions") from error
        except UnicodeDecodeError as error:  # of a message that quotes the damaged place
            raise StoreDamaged(self.place, f"{error}; restore it from a backup with `restore`") from error

    def _raise(self, error: sqlite3.Error) -> NoReturn:
        if isinstance(error, sqlite3.IntegrityError):
            raise error
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in _DAMAGED or (not code and type(error) is sqlite3.OperationalError):  # text that is not UTF-8
            raise StoreDamaged(self.place, f"{error}; restore it from a backup with `restore`") from error
        if code == sqlite3.SQLITE_FULL:
            raise StoreFull(self.place) from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
            raise StoreReadOnly(self.place, f"{error}; check the permissions of the file and its folder") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusy(self.place) from error
        if code == sqlite3.SQLITE_IOERR:
            self._unusable = f"a write to the disk failed ({error})"
            raise StoreUnusable(self.place, f"{self._unusable}; check the disk, then open the store again") from error
        raise error

    # --- records

    def get(self, id: str) -> RunRecord | None:
        return self._one("WHERE r.id = ? AND r.hidden = 0", id)

    def journal(self, uid: str) -> RunRecord | None:
        return self._one("WHERE r.uid = ?", uid)

    def _one(self, where: str, value: str) -> RunRecord | None:
        with self._reading() as db:
            row = db.execute(f"{Q['record']} {where}", (value,)).fetchone()
        return _record(row) if row else None

    def _current(self, uid: str) -> RunRecord | None:
        """The record inside a write transaction."""
        row = self._db.execute(f"{Q['record']} WHERE r.uid = ?", (uid,)).fetchone()
        return _record(row) if row else None

    def _put(self, record: RunRecord) -> None:
        self._db.execute(Q["update_run"], (*_row(record), record.uid))

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> list[RunRecord]:
        clauses, values = _where(filter)
        if before is not None:
            clauses.append("r.uid < ?")
            values.append(before)
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        with self._reading() as db:
            rows = db.execute(f"{Q['record']} {where} ORDER BY r.uid DESC LIMIT ?", (*values, limit)).fetchall()
        return [_listed(row) for row in rows]

    def orphans(self, limit: int = 100) -> list[RunRecord]:
        with self._reading() as db:
            workers = [row[0] for row in db.execute("SELECT DISTINCT worker FROM run WHERE worker IS NOT NULL")]
            found: list[RunRecord] = []
            for worker in workers:
                if not self._alive(db, worker):
                    rows = db.execute(f"{Q['record']} WHERE r.worker = ? LIMIT ?", (worker, limit - len(found)))
                    found += [_listed(row) for row in rows.fetchall()]
        return found

    # --- journals

    def read(
        self, uid: str, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        with self._reading() as db:
            run = db.execute("SELECT n, root, id, base FROM run WHERE uid = ?", (uid,)).fetchone()
            if run is None:
                return []
            only = "" if saved is None else "AND e.kind = 'saved'" if saved else "AND e.kind <> 'saved'"
            values = (run[0], lo, hi, -1 if limit is None else limit)
            query = Q["read"] if payloads else Q["read_headers"]
            rows = db.execute(f"{query} {only} ORDER BY e.seq LIMIT ?", values).fetchall()
            if saved is not None and limit is None:
                self._check_gapless(db, run, lo, hi)
        root = run[1]
        if not all(_is_entry(seq, kind, at, state, own) for seq, kind, at, state, _, own, _ in rows):
            raise RunDamaged(str(run[2]), "an entry is not what was written; restore the run from a backup")
        return [Entry(seq, kind, at, state, prev or root, own, data) for seq, kind, at, state, prev, own, data in rows]

    def _check_gapless(self, db: sqlite3.Connection, run: tuple[Any, ...], lo: int, hi: int) -> None:
        """Where only some kinds of entries are read, nobody else would notice that one is missing."""
        number, _, id, base = run
        [newest] = db.execute("SELECT max(seq) FROM entry WHERE run = ?", (number,)).fetchone()
        lo, hi = max(lo, base), min(hi, newest if type(newest) is int else -1)
        counting = "SELECT count(*) FROM entry WHERE run = ? AND seq BETWEEN ? AND ?"
        [found] = db.execute(counting, (number, lo, hi)).fetchone()
        if type(newest) is not int or found != max(hi - lo + 1, 0):
            raise RunDamaged(str(id), f"entries between {lo} and {hi} are missing; restore the run from a backup")

    def inbox(self, uid: str) -> list[Item]:
        with self._reading() as db:
            rows = db.execute(Q["inbox"], (uid,)).fetchall()
        return [_item(uid, *row) for row in rows]

    def taken(self, uid: str) -> list[str]:
        with self._reading() as db:
            return [row[0] for row in db.execute(Q["taken"], (uid,))]

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        try:
            with self._writing():
                made = [self._create(write) if isinstance(write, Create) else self._append(write) for write in batch]
        except sqlite3.IntegrityError:
            if len(batch) > 1:
                return [outcome for write in batch for outcome in self.apply([write])]
            with self._reading() as db:
                return [self._conflict(db, batch[0])]
        if any(isinstance(write, Append) and write.redact for write in batch):
            self._empty_log()
        return made

    def _empty_log(self) -> None:
        """What was erased must not stand in the write-ahead log either. If a reader is in the way, it stays a while."""
        with self._lock, suppress(sqlite3.OperationalError):
            self._db.execute("PRAGMA busy_timeout = 1000")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")

    def _create(self, write: Create) -> RunRecord | HoldfastError:
        record = write.record
        row = self._db.execute(f"{Q['record']} WHERE r.id = ? AND r.hidden = 0", (record.id,)).fetchone()
        if row is not None:
            return _record(row)
        ancestors = [self._number(link.uid) for link in record.lineage]
        for link, number in zip(record.lineage, ancestors, strict=True):
            if number is None:
                return RunNotFound(link.id, "it was deleted, so it cannot be forked")
        self._insert(record, write.entries, [number for number in ancestors if number is not None])
        last = write.entries[-1]
        state = last.seq if last.kind == "saved" else last.state
        return replace(record, seq=last.seq, hash=last.hash, updated_at=last.at, state=state)

    def _insert(self, record: RunRecord, entries: Sequence[Entry], ancestors: Sequence[int]) -> int:
        number = self._db.execute(Q["insert_run"], _row(record)).lastrowid
        assert number is not None
        self._db.executemany(
            Q["insert_entry"], [(number, e.seq, e.kind, e.at, e.state, e.hash, e.payload) for e in entries]
        )
        self._db.executemany(Q["insert_link"], [(ancestor, number) for ancestor in ancestors])
        return number

    def _append(self, write: Append) -> HoldfastError | None:
        if not is_chain(write.entries):
            return refusal(self._current(write.uid), write) or self._conflict(self._db, write)
        fence = {"uid": write.uid, "epoch": write.epoch, "worker": write.worker}
        for entry in write.entries:
            if not self._db.execute(Q["append"], {**fence, **_columns(entry)}).rowcount:
                return refusal(self._current(write.uid), write) or self._conflict(self._db, write)
        if write.change is None and not write.took and not write.redact:
            return None
        record = self._current(write.uid)
        refused = refusal(record, write)
        if refused is not None or record is None:
            return refused
        for key in write.took:
            self._db.execute(Q["take"], (write.uid, key))
        self._put(appended(record, write, mail=bool(self._db.execute(Q["mail"], (write.uid,)).fetchone())))
        for seq, payload in write.redact:
            self._db.execute(Q["redact"], (payload, write.uid, seq))
        return None

    def _conflict(self, db: sqlite3.Connection, write: Write) -> HoldfastError | None:
        if isinstance(write, Create):
            return RunExists(write.record.id)
        last = write.entries[-1]
        return conflict(write, [Entry(*row) for row in db.execute(Q["entry"], (write.uid, last.seq))])

    def _number(self, uid: str) -> int | None:
        row = self._db.execute(Q["run_number"], (uid,)).fetchone()
        return row[0] if row else None

    # --- claims, inboxes, workers

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE) -> RunRecord:
        with self._writing():
            record = self._current(uid)
            alive = record is not None and record.worker is not None and self._alive(self._db, record.worker)
            record = claimed(record, uid, worker, allow, holder_alive=alive)
            self._put(record)
            return record

    def post(self, uid: str, item: Item) -> bool:
        with self._writing():
            record = self._current(uid)
            if record is None or record.hidden:
                return False
            values = (self._number(uid), item.key, item.kind, item.at, _sealed(item), item.wakes, 0)
            if not self._db.execute(Q["post"], values).rowcount:
                return False
            if item.wakes and woken(record) is not record:
                self._put(woken(record))
            return True

    def enlist(self, worker: str, lease: float) -> None:
        with self._translated():
            self._locks.hold(worker)
            gone = self._locks.sweep()
        with self._writing():
            self._db.executemany(Q["retire"], [(name,) for name in gone])
            self._beat(worker, lease)

    def beat(self, worker: str, lease: float) -> None:
        with self._writing():
            self._beat(worker, lease)

    def _beat(self, worker: str, lease: float) -> None:
        self._db.execute(Q["beat"], (worker, self.clock.now() + int(lease * 1_000_000)))

    def retire(self, worker: str) -> None:
        with self._writing():
            self._db.execute(Q["retire"], (worker,))
        self._locks.release(worker)

    def _alive(self, db: sqlite3.Connection, worker: str) -> bool:
        row = db.execute(Q["until"], (worker,)).fetchone()
        return row is not None and row[0] > self.clock.now() and self._locks.is_held(worker)

    # --- whole runs

    def delete(self, uid: str, *, expected: RunRecord | None = None) -> bool:
        with self._writing():
            record = self._current(uid)
            if record is None or record.hidden:
                return False
            alive = record.worker is not None and self._alive(self._db, record.worker)
            if not may_delete(record, holder_alive=alive, expected=expected):
                return False
            self._put(replace(record, hidden=True, worker=None))
            self._db.execute("DELETE FROM inbox WHERE run = ?", (self._number(uid),))
            for ancestor in (uid, *(link.uid for link in reversed(record.lineage))):
                self._sweep(ancestor)
            return True

    def _sweep(self, uid: str) -> None:
        """Remove the journal if it is hidden and no fork shares it any longer."""
        record, number = self._current(uid), self._number(uid)
        if record is None or not record.hidden or self._db.execute(Q["is_shared"], (number,)).fetchone():
            return
        self._db.execute("DELETE FROM entry WHERE run = ?", (number,))
        self._db.execute("DELETE FROM link WHERE child = ?", (number,))
        self._db.execute("DELETE FROM run WHERE n = ?", (number,))

    def rewrap(self, uid: str, old: bytes, key_id: str, key_blob: bytes) -> bool:
        with self._writing():
            record = self._current(uid)
            if record is None or record.key_blob != old:
                return False
            self._put(replace(record, key_id=key_id, key_blob=key_blob))
            return True

    def adopt(self, record: RunRecord, entries: Sequence[Entry], items: Sequence[Item], taken: Sequence[str]) -> None:
        try:
            with self._writing():
                ancestors = [self._number(link.uid) for link in record.lineage]
                if None in ancestors:
                    raise RunNotFound(record.id, "the run that it was forked from is not in this store")
                number = self._insert(record, entries, [n for n in ancestors if n is not None])
                self._db.executemany(Q["post"], [(number, i.key, i.kind, i.at, _sealed(i), i.wakes, 0) for i in items])
                self._db.executemany(Q["post"], [(number, key, "taken", 0, None, 0, 1) for key in taken])
        except sqlite3.IntegrityError:
            raise RunExists(record.id) from None


# --- forks

_forking = threading.RLock()  # held by a fork, and by whoever opens a store
_stores: weakref.WeakSet[SqliteStore] = weakref.WeakSet()
_held_back: list[SqliteStore] = []  # while a fork is under way


def _hold_back() -> None:
    """Before a fork: wait until no thread is using a store."""
    _forking.acquire()
    _held_back.extend(sorted(_stores, key=id))
    for store in _held_back:
        store._lock.acquire()
        store._read_lock.acquire()


def _go_on() -> None:
    while _held_back:
        store = _held_back.pop()
        store._read_lock.release()
        store._lock.release()
    _forking.release()


def _go_on_in_child() -> None:
    for store in _held_back:
        store._leave_to_parent()
    _go_on()


os.register_at_fork(before=_hold_back, after_in_parent=_go_on, after_in_child=_go_on_in_child)


def _columns(entry: Entry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "at": entry.at,
        "state": entry.state,
        "prev": entry.prev,
        "hash": entry.hash,
        "payload": entry.payload,
    }


def _row(record: RunRecord) -> tuple[Any, ...]:
    """The columns of a record, and a checksum over them so that a damaged row is noticed."""
    columns = (
        record.uid,
        record.id,
        record.created_at,
        record.root,
        record.base,
        record.workflow,
        msgspec.json.encode(record.tags).decode(),
        msgspec.json.encode(record.lineage).decode(),
        record.key_id,
        record.key_blob,
        str(record.status),
        record.epoch,
        record.worker,
        msgspec.json.encode(record.rewinds).decode(),
        record.rollback,
        record.wake_at,
        record.reason,
        int(record.hidden),
    )
    return (*columns, _checksum(columns))


def _checksum(columns: tuple[Any, ...]) -> bytes:
    return blake2b(msgspec.msgpack.encode(columns), digest_size=8).digest()


def _record(row: tuple[Any, ...]) -> RunRecord:
    columns, checksum, (seq, hash, at, kind, state) = row[:18], row[18], row[19:]
    if _checksum(columns) != checksum:
        raise RunDamaged(str(row[1]), "its record was changed or damaged; restore the run from a backup")
    if not _is_entry(seq, kind, at, state, hash):
        raise RunDamaged(str(row[1]), "its newest entry is missing or damaged; restore the run from a backup")
    if columns[10] not in KNOWN_STATUSES:
        raise RunDamaged(str(row[1]), f"its status {columns[10]!r} is unknown here; a newer Holdfast wrote it")
    return RunRecord(
        uid=columns[0],
        id=columns[1],
        created_at=columns[2],
        root=columns[3],
        base=columns[4],
        workflow=columns[5],
        tags=_decode_tags(columns[6]),
        lineage=_decode_lineage(columns[7]),
        key_id=columns[8],
        key_blob=columns[9],
        status=Status(columns[10]),
        epoch=columns[11],
        worker=columns[12],
        rewinds=_decode_rewinds(columns[13]),
        rollback=columns[14],
        wake_at=columns[15],
        reason=columns[16],
        hidden=bool(columns[17]),
        seq=seq,
        hash=hash,
        updated_at=at,
        state=seq if kind == "saved" else state,
    )


def _sealed(item: Item) -> bytes:
    """The payload of an inbox item, after a checksum over the whole item."""
    return _checksum((item.key, item.kind, item.at, int(item.wakes), item.payload)) + item.payload


def _item(uid: str, key: Any, kind: Any, at: Any, sealed: Any, wakes: Any) -> Item:
    payload = bytes(sealed[8:]) if type(sealed) is bytes else b""
    if type(sealed) is not bytes or sealed[:8] != _checksum((key, kind, at, wakes, payload)):
        raise RunDamaged(uid, f"the inbox item {key!r} was changed or damaged; restore the run from a backup")
    return Item(key, kind, at, payload, bool(wakes))


def _is_entry(seq: Any, kind: Any, at: Any, state: Any, hash: Any) -> bool:
    """Whether the columns of an entry have the types that were written; a damaged one may have any."""
    return (
        type(seq) is int
        and type(kind) is str
        and type(at) is int
        and 0 <= at < MAX_TIME
        and (state is None or type(state) is int)
        and type(hash) is bytes
    )


def _listed(row: tuple[Any, ...]) -> RunRecord:
    """The record for a list: a damaged one is listed as such and does not hide the others."""
    try:
        return _record(row)
    except RunDamaged as damage:
        return RunRecord(
            uid=str(row[0]), id=str(row[1]), created_at=0, root=b"", status=Status.BLOCKED, reason=str(damage)
        )


def _tagged(tags: str, name: str, value: str) -> bool:
    return _decode_tags(tags).get(name) == value


def _where(filter: Filter) -> tuple[list[str], list[Any]]:
    clauses: list[str] = []
    values: list[Any] = []

    def add(clause: str, *given: Any) -> None:
        clauses.append(clause)
        values.extend(given)

    if filter.hidden is not None:
        add("r.hidden = ?", int(filter.hidden))
    if filter.statuses:
        add(f"r.status IN ({', '.join('?' * len(filter.statuses))})", *map(str, filter.statuses))
    if filter.workflow is not None:
        add("r.workflow = ?", filter.workflow)
    for name, value in filter.tags:
        add("tagged(r.tags, ?, ?)", name, value)
    if filter.prefix is not None:
        start = filter.prefix.encode("utf-8", "surrogatepass")  # as bytes: a text ends for SQLite at its first NUL
        add("substr(CAST(r.id AS BLOB), 1, ?) = ?", len(start), start)
    if filter.created_from is not None:
        add("r.created_at >= ?", filter.created_from)
    if filter.created_before is not None:
        add("r.created_at < ?", filter.created_before)
    return clauses, values
