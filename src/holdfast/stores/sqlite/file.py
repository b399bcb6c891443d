"""An open SQLite file: its connections, its transactions, its errors, and what a fork of the process does to it.

Every write transaction first takes an operating-system lock beside the database, then SQLite's own: writers of
several processes take turns there, instead of meeting "database is locked". Who only reads takes neither, so a writer
that stands still is in nobody's way but the other writers', who are told which process it is.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NoReturn

from holdfast.errors import (
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreReplaced,
    StoreTooNew,
    StoreUnusable,
    UsageError,
)
from holdfast.stores import lock_holder
from holdfast.stores.locks import Presence, WorkerLocks, WriterLock
from holdfast.stores.mounts import check_disk
from holdfast.stores.protocol import READER, WRITER
from holdfast.stores.sqlite.connect import BUSY_SECONDS, C, code_of, connect_to_read, damage_of, is_refused
from holdfast.stores.sqlite.damage import REMEDY, glance
from holdfast.stores.sqlite.guarded_connection import LentConnection
from holdfast.stores.sqlite.identity import OLDER, RAISE, REMOVED, Identity, Mark, is_filled
from holdfast.stores.sqlite.rows import tagged
from holdfast.stores.sqlite.statements import migrations
from holdfast.stores.sqlite.wal import Log, log_of

APPLICATION_ID = 0x484F4C44  # "HOLD": how a SQLite file says whose it is
PAGE_SIZE = 8192
GLANCE = 1.0  # seconds that are spent on looking for damage after an unclean end
CLOSED = "it is closed"
FORKED = "it was opened before os.fork()"


class SqliteFile:
    """A SQLite file that belongs to Holdfast, open for writing (one thread at a time) and for reading."""

    def __init__(self, path: str, *, durability: str = "full") -> None:
        if durability not in ("full", "normal"):
            raise UsageError(f"durability is full or normal, not {durability!r}")
        self.path = os.path.realpath(path)  # the locks are beside the file, by whatever name it is opened
        self.place = f"sqlite:///{self.path}"
        self._durability = durability
        self._unusable: str | None = None
        self._notes = os.path.join(self.path + ".locks", "stamp")
        self._read_only: str | None = None  # why it cannot be written, if so
        self._presence: Presence | None = None
        self._lock = threading.RLock()
        self._read_lock = threading.RLock()
        self._log: Log | None = None
        with _forking, self._translated():
            self._open()
            _stores.add(self)

    # --- opening and closing

    def _open(self) -> None:
        try:
            check_disk(self.place, os.path.dirname(self.path))
            self._look()
            self._check_log()
            self._open_to_write()
        except (OSError, sqlite3.OperationalError) as error:
            if not is_refused(error) or not os.path.isfile(self.path):
                raise
            self._open_to_read(error)

    def _open_to_read(self, refused: OSError | sqlite3.OperationalError) -> None:
        """Open a store that cannot be written, which is an error only for who writes."""
        problem = f"{refused.strerror}: {refused.filename}" if isinstance(refused, OSError) else str(refused)
        self._read_only = f"{problem}; check the permissions of the file and its folder"
        self._locks = WorkerLocks(self.path + ".locks")
        self._presence = None
        self._db = connect_to_read(self.path, LentConnection)
        self._reader = connect_to_read(self.path, sqlite3.Connection)
        try:
            self._check_owner(self._db)
            if self._check_format() < migrations()[-1][0]:
                raise StoreReadOnly(
                    self.place, f"an older version made it; open it once where it can be written ({problem})"
                )
            for db in (self._db, self._reader):
                db.execute("PRAGMA cell_size_check = 1")
                db.create_function("tagged", 3, tagged, deterministic=True)
        except BaseException:  # also an interrupt: nothing stays open
            self._reader.close()
            self._db.close()
            raise
        self._identify()
        self._cursor: sqlite3.Cursor = self._db.cursor()
        self._watch = self._reader.cursor()

    def _open_to_write(self) -> None:
        os.makedirs(self.path + ".locks", exist_ok=True)
        self._locks = WorkerLocks(self.path + ".locks")
        self._writer_lock = self._open_writer_lock()
        try:
            self._presence = Presence(os.path.join(self.path + ".locks", "open"))
            unclean = self._presence.left_open or (self._presence.alone and is_filled(self.path + "-wal"))
            self._db = self._connect(LentConnection)
            self._cursor = self._db.cursor()
            try:
                self._identify()
                self._migrate()
                if unclean and (damage := glance(self._db, GLANCE)) is not None:
                    raise StoreDamaged(self.place, f"it was not closed, and is damaged now: {damage}; {REMEDY}")
                self._log = log_of(self.path)
                self._reader = self._connect(sqlite3.Connection)
                self._watch = self._reader.cursor()
            except BaseException:  # also an interrupt: nothing stays open
                self._db.close()
                self._close_log()
                raise
            self._reader.execute("PRAGMA query_only = 1")
            self._presence.come_in()
        except BaseException:  # as above
            if self._presence is not None:
                self._presence.close()
            self._writer_lock.close()
            raise
        self._writer_lock.free()

    def _open_writer_lock(self) -> WriterLock:
        return WriterLock(self._writer_path)

    @property
    def _writer_path(self) -> str:
        return os.path.join(self.path + ".locks", "writer")

    def _restore_locks(self, worker: str) -> None:
        """Make the locks of this handle again if somebody has removed the folder. Until then leases alone decide."""
        with self._lock, self._translated():
            self._check_usable()
            if self._identity.mark() is None:
                self._check_contents(None)
            self._locks.restore(worker)
            if not self._writer_lock.is_at(self._writer_path):
                lock, self._writer_lock = self._writer_lock, self._open_writer_lock()
                lock.close()

    def _take_turn(self) -> None:
        if not self._writer_lock.take_within(BUSY_SECONDS):
            raise StoreBusy(self.place, lock_holder.told(self._writer_lock.holder(), BUSY_SECONDS))

    # --- the file that was opened, and not another one

    def _check_log(self) -> None:
        """Before the file is opened: SQLite takes any log beside it for its own."""
        if not os.path.exists(self.path):
            with suppress(FileNotFoundError):
                os.unlink(self._notes)  # of a file that was removed
        elif problem := Identity(self.path, self._notes).foreign_log():
            raise StoreReplaced(self.place, problem)

    def _identify(self) -> None:
        self._identity = Identity(self.path, self._notes)
        self._seen_by_writer = self._seen_by_reader = self._identity.mark()

    def _check_before_reading(self) -> None:
        mark = self._identity.mark()
        if mark != self._seen_by_reader:
            self._check_contents(mark)
            self._seen_by_reader = mark

    def _check_before_writing(self) -> None:
        """In a turn. If there was a checkpoint, the stamp is raised."""
        mark = self._identity.mark()
        if mark != self._seen_by_writer:
            self._check_contents(mark)
            self._raise_stamp()
            self._seen_by_writer = self._identity.mark()

    def _check_contents(self, mark: Mark | None) -> None:
        if mark is None:
            self._unusable = REMOVED
        elif self._identity.is_older():
            self._unusable = OLDER
            if self._log is not None:
                self._log.empty()  # it belongs to the contents before, and must not get into these
        if self._unusable is not None:
            raise StoreReplaced(self.place, f"{self._unusable}; open the store again")

    def _raise_stamp(self) -> None:
        self._db.execute(RAISE, (int(time.time() * 1_000_000),))

    def _stamp_file(self) -> None:
        """Raise the stamp in the file itself, so that older contents are known from now on."""
        with self._lock, self._translated():
            self._check_usable()
            self._check_free()
            try:
                self._take_turn()
                self._check_before_writing()
                self._raise_stamp()
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
                self._check_contents(self._identity.mark())
                self._seen_by_writer = self._seen_by_reader = self._identity.mark()
            finally:
                self._writer_lock.free()

    def _look(self) -> None:
        """Refuse a file that is not ours before anything is put beside it.

        Who makes a store makes the folder of locks first. So a file that was there before, without that folder, is
        not one that another process is making just now.
        """
        if os.path.isdir(self.path):
            raise StoreError(self.place, "it is a folder, not a file; choose another path")
        if os.path.exists(self.path) and not os.path.isdir(self.path + ".locks"):
            with closing(sqlite3.connect(self.path, timeout=BUSY_SECONDS)) as db:
                self._check_owner(db)

    def _connect(self, kind: type[C]) -> C:
        db = kind(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            if self._version_of(db) != migrations()[-1][0]:
                self._take_turn()  # to make or migrate it; else nothing is written, and no writer is waited for
            self._check_owner(db)
            db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self._durability}")
            db.execute("PRAGMA cell_size_check = 1")
            db.execute("PRAGMA secure_delete = 1")  # what is erased must not stay in free space
            db.create_function("tagged", 3, tagged, deterministic=True)
        except BaseException:  # as above
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
        version = self._check_format()
        pending = [(number, sql) for number, sql in migrations() if number > version]
        for number, sql in pending:
            db.executescript(f"BEGIN IMMEDIATE;\n{sql}\nPRAGMA user_version = {number};\n")
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._commit()

    def _check_format(self) -> int:
        """The version of the schema; raises if this code cannot use it."""
        version = self._version_of(self._db)
        if version:
            needed = dict(self._db.execute("SELECT name, value FROM meta"))
            if not all(type(needed.get(name)) is int for name in ("oldest_reader", "oldest_writer")):
                raise StoreDamaged(self.place, "it does not say which format it has; restore it from a backup")
            if needed["oldest_reader"] > READER or needed["oldest_writer"] > WRITER:
                raise StoreTooNew(
                    self.place,
                    f"it needs a Holdfast that reads format {needed['oldest_reader']} and writes format "
                    f"{needed['oldest_writer']}, this one has {READER} and {WRITER}; upgrade Holdfast",
                )
        return version

    def _version_of(self, db: sqlite3.Connection) -> int:
        return int(db.execute("PRAGMA user_version").fetchone()[0])

    def drop(self) -> None:
        with self._lock, self._read_lock:
            self._check_free()
            if self._unusable not in (CLOSED, FORKED):
                self._unusable = CLOSED
                _stores.discard(self)
                self._reader.close()
                self._db.close()
                self._close_log()
                self._locks.drop()
                if self._presence is not None:
                    self._presence.close()
                    self._writer_lock.close()

    def _close_log(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close()

    # --- transactions

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._check_usable()
            self._check_free()
            if self._read_only is not None:
                raise StoreReadOnly(self.place, self._read_only)
            with self._translated():
                try:  # an interrupt can come as soon as the lock is taken; to free one that is not held does no harm
                    self._take_turn()
                    self._check_before_writing()
                    self._roll_back()
                    self._cursor.execute("BEGIN IMMEDIATE")
                    yield
                    self._commit()
                except BaseException:  # also an interrupt: nothing of it is kept
                    self._roll_back()
                    raise
                finally:
                    self._writer_lock.free()

    def _roll_back(self) -> None:
        """End a transaction that is open. Also before a new one: an interrupt can come before its own is ended."""
        if self._db.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _commit(self, statement: str = "COMMIT", values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """The moment at which a transaction becomes lasting: its end, or the one statement that it consists of."""
        log = self._log
        if log is None or self._durability != "full":
            return self._cursor.execute(statement, values)
        before = log.length()
        made = self._cursor.execute(statement, values)
        if log.length() > before:
            log.lengthen()
        return made

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """The connection to read with. It sees what is committed."""
        with self._read_lock:
            self._check_usable()
            with self._translated():
                self._check_before_reading()
                yield self._reader

    @contextmanager
    def _lending(self) -> Iterator[None]:
        """Around a transaction in which the connection is lent."""
        with self._lock:
            self._check_usable()
            try:
                yield
            finally:
                if not self._db.lent:
                    self._roll_back()
                    self._db.isolation_level = None  # the transaction is over; see `LentConnection.lend`

    def version(self) -> int:
        """See `Store.version`. The connection that reads notices the commits of all others, also of our own."""
        with self._read_lock:
            self._check_usable()
            self._check_before_reading()
            try:
                [version] = self._watch.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error as error:
                self._raise(error)
            return int(version)

    def _empty_log(self) -> None:
        """What was erased must not stand in the write-ahead log either. If a reader is in the way, it stays a while."""
        with self._lock, suppress(sqlite3.OperationalError):
            try:
                self._db.execute("PRAGMA busy_timeout = 1000")
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")

    def _check_usable(self) -> None:
        if self._unusable is not None:
            kind = StoreReplaced if self._unusable in (REMOVED, OLDER) else StoreUnusable
            raise kind(self.place, f"{self._unusable}; open the store again")

    def _check_free(self) -> None:
        """The lock is held, so it is this very thread whose transaction is under way."""
        if self._db.lent:
            raise UsageError(f"store {self.place}: a transaction with it is under way; use the connection of that one")

    def _leave_to_parent(self) -> None:
        """In a forked child: close what was inherited, which nobody was using at the moment of the fork.

        SQLite remembers per process which locks it has on a file, and the child has none of them. With the parent's
        connections still there, one that the child opens would go without locks; others would take the file for
        unused and remove its write-ahead log under the child's hands.
        """
        if self._unusable in (CLOSED, FORKED):
            return
        self._unusable = FORKED
        self._close_log()
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
        except OSError as error:
            self._raise_of_system(error)
        except UnicodeDecodeError as error:  # of a message that quotes the damaged place
            raise StoreDamaged(self.place, f"{error}; restore it from a backup with `restore`") from error

    def _raise_of_system(self, error: OSError) -> NoReturn:
        if isinstance(error, PermissionError | NotADirectoryError):
            raise StoreReadOnly(self.place, f"{error.strerror}: {error.filename}; check the permissions") from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(self.place) from error
        if error.errno == errno.EROFS:
            raise StoreReadOnly(self.place, f"{error.strerror}: {error.filename}; check the mount") from error
        problem = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        raise StoreError(self.place, f"{problem}; check the path, or choose another one") from error

    def _raise(self, error: sqlite3.Error) -> NoReturn:
        if isinstance(error, sqlite3.IntegrityError):
            raise error
        if (damage := damage_of(error, self.place)) is not None:
            raise damage from error
        whole = getattr(error, "sqlite_errorcode", None) or 0
        code = code_of(error)
        if code == sqlite3.SQLITE_FULL or whole == sqlite3.SQLITE_IOERR_SHMSIZE:  # no room for the index of the log
            raise StoreFull(self.place) from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
            raise StoreReadOnly(self.place, f"{error}; check the permissions of the file and its folder") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusy(self.place, lock_holder.told_of_sqlite(self.path, BUSY_SECONDS)) from error
        if code == sqlite3.SQLITE_IOERR:
            self._unusable = f"a write to the disk failed ({error})"
            raise StoreUnusable(self.place, f"{self._unusable}; check the disk, then open the store again") from error
        raise error


# --- forks

_forking = threading.RLock()  # held by a fork, and by whoever opens a store
_stores: weakref.WeakSet[SqliteFile] = weakref.WeakSet()
_held_back: list[SqliteFile] = []  # while a fork is under way


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
        with suppress(Exception):  # what cannot be closed (its disk failed) must not keep the others from it
            store._leave_to_parent()
    _go_on()


os.register_at_fork(before=_hold_back, after_in_parent=_go_on, after_in_child=_go_on_in_child)
