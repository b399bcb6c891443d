"""An open SQLite file: how it is opened, made and closed, and what a fork of the process does to it."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from contextlib import ExitStack, closing, suppress

from holdfast.errors import StoreDamaged, StoreError, StoreReadOnly, StoreReplaced, StoreTooNew, UsageError
from holdfast.stores.locks import Presence, WorkerLocks
from holdfast.stores.mounts import check_disk
from holdfast.stores.protocol import READER, WRITER
from holdfast.stores.sqlite.connect import BUSY_SECONDS, C, connect_to_read, is_refused
from holdfast.stores.sqlite.damage import REMEDY, glance
from holdfast.stores.sqlite.guarded_connection import LentConnection
from holdfast.stores.sqlite.identity import Identity, is_filled
from holdfast.stores.sqlite.rows import tagged
from holdfast.stores.sqlite.statements import migrations
from holdfast.stores.sqlite.transactions import Transactions, WriterLock
from holdfast.stores.sqlite.wal import Log, log_of

APPLICATION_ID = 0x484F4C44  # "HOLD": how a SQLite file says whose it is
PAGE_SIZE = 8192
GLANCE = 1.0  # seconds that are spent on looking for damage after an unclean end
CLOSED = "it is closed"
FORKED = "it was opened before os.fork()"


class SqliteFile(Transactions):
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
        super().__init__()
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
        with ExitStack() as opened:  # whatever goes wrong, also an interrupt: nothing stays open
            opened.callback(self._writer_lock.close)
            self._presence = Presence(os.path.join(self.path + ".locks", "open"))
            opened.callback(self._presence.close)
            unclean = self._presence.left_open or (self._presence.alone and is_filled(self.path + "-wal"))
            self._db = self._connect(LentConnection)
            opened.callback(self._db.close)
            self._cursor = self._db.cursor()
            self._identify()
            self._migrate()
            if unclean and (damage := glance(self._db, GLANCE)) is not None:
                raise StoreDamaged(self.place, f"it was not closed, and is damaged now: {damage}; {REMEDY}")
            self._log = log_of(self.path)
            opened.callback(self._close_log)
            self._reader = self._connect(sqlite3.Connection)
            opened.callback(self._reader.close)
            self._watch = self._reader.cursor()
            self._reader.execute("PRAGMA query_only = 1")
            self._presence.come_in()
            opened.pop_all()
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
            if self._mark() is None:
                self._check_contents(None)
            self._locks.restore(worker)
            if not self._writer_lock.is_at(self._writer_path):
                lock, self._writer_lock = self._writer_lock, self._open_writer_lock()
                lock.close()

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
        self._seen_by_writer = self._seen_by_reader = self._mark()

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
                self._check_contents(self._mark())
                self._seen_by_writer = self._seen_by_reader = self._mark()
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
