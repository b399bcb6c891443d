"""The transactions of an open SQLite file, and what is done around each of them.

Every write transaction first takes its **turn**: an operating-system lock beside the database, before SQLite's own.
Writers of several processes wait there, instead of meeting "database is locked". A transaction that only reads takes
neither, so a writer that stands still is in nobody's way but the other writers', who are told which process it is. In
its turn a writer sees whether the file is still the one that was opened, and makes room in the log for the commit.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

from holdfast.errors import StoreBusy, StoreDamaged, StoreReadOnly, StoreReplaced, StoreUnusable, UsageError
from holdfast.stores import lock_holder
from holdfast.stores.lock_holder import Holder
from holdfast.stores.locks import LockFile
from holdfast.stores.sqlite.connect import BUSY_SECONDS, code_of, error_of, system_error_of
from holdfast.stores.sqlite.guarded_connection import LentConnection
from holdfast.stores.sqlite.identity import OLDER, RAISE, REMOVED, Identity
from holdfast.stores.sqlite.wal import Log

AT_ONCE, FREE = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN
_MARK = struct.Struct("<qd")  # process, time

Mark = tuple[int, int]  # when the file itself was written to, and its size


class WriterLock(LockFile):
    """The lock of whoever writes. Its file says who took it last and when, for those who wait in vain."""

    def __init__(self, path: str) -> None:
        super().__init__(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self._pid = os.getpid()

    def take_within(self, seconds: float, how: int = fcntl.LOCK_EX) -> bool:
        try:
            fcntl.flock(self.fd, AT_ONCE)
        except BlockingIOError:
            if not super().take_within(seconds, how):
                return False
        os.pwrite(self.fd, _MARK.pack(self._pid, time.time()), 0)
        return True

    def free(self) -> None:
        if self.fd >= 0:
            fcntl.flock(self.fd, FREE)

    def holder(self) -> Holder | None:
        """Who has the lock, or had it last; None if nobody had it."""
        mark = os.pread(self.fd, _MARK.size, 0)
        return Holder(*_MARK.unpack(mark)) if len(mark) == _MARK.size else None


class Transactions:
    """The connections to a SQLite file, one to write with (one thread at a time) and one to read with."""

    path: str
    place: str
    _durability: str
    _db: LentConnection
    _cursor: sqlite3.Cursor
    _reader: sqlite3.Connection
    _watch: sqlite3.Cursor
    _writer_lock: WriterLock
    _identity: Identity
    _log: Log | None
    _read_only: str | None
    _unusable: str | None
    _seen_by_writer: Mark | None
    _seen_by_reader: Mark | None

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._read_lock = threading.RLock()

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

    def _write_alone(self, statement: str, values: tuple[Any, ...]) -> int:
        """A statement as a transaction of its own, as `_writing` makes one; how many rows it changed.

        In paired runs it made a step 1.3 times as fast, together with `SqliteStore._append_alone`.
        """
        with self._lock:
            if self._unusable is not None or self._db.lent:
                self._check_usable()
                self._check_free()
            try:  # see `_writing`
                self._take_turn()
                self._check_before_writing()
                self._roll_back()
                return self._commit(statement, values).rowcount
            except sqlite3.Error as error:
                self._raise(error)
            except OSError as error:
                self._raise_of_system(error)
            finally:
                self._writer_lock.free()

    def _take_turn(self) -> None:
        if not self._writer_lock.take_within(BUSY_SECONDS):
            raise StoreBusy(self.place, lock_holder.told(self._writer_lock.holder(), BUSY_SECONDS))

    def _roll_back(self) -> None:
        """End a transaction that is open. Also before a new one: an interrupt can come before its own is ended."""
        if self._db.in_transaction:
            self._cursor.execute("ROLLBACK")

    def _commit(self, statement: str = "COMMIT", values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """The moment at which a transaction becomes lasting: its end, or the one statement that it consists of."""
        log = self._log
        if log is None or self._durability != "full":
            return self._cursor.execute(statement, values)
        before = os.lseek(log.fd, 0, os.SEEK_END)
        made = self._cursor.execute(statement, values)
        if os.lseek(log.fd, 0, os.SEEK_END) > before:
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

    # --- the file that was opened, and not another one

    def _mark(self) -> Mark | None:
        """When the file was written to; None if the path names another file, or none."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        if (found.st_dev, found.st_ino) != self._identity.inode:
            return None
        return found.st_mtime_ns, found.st_size

    def _check_before_reading(self) -> None:
        mark = self._mark()
        if mark != self._seen_by_reader:
            self._check_contents(mark)
            self._seen_by_reader = mark

    def _check_before_writing(self) -> None:
        """In a turn. If there was a checkpoint, the stamp is raised."""
        mark = self._mark()
        if mark != self._seen_by_writer:
            self._check_contents(mark)
            self._raise_stamp()
            self._seen_by_writer = self._mark()

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

    # --- whether it can be used, and what is wrong if not

    def _check_usable(self) -> None:
        if self._unusable is not None:
            kind = StoreReplaced if self._unusable in (REMOVED, OLDER) else StoreUnusable
            raise kind(self.place, f"{self._unusable}; open the store again")

    def _check_free(self) -> None:
        """The lock is held, so it is this very thread whose transaction is under way."""
        if self._db.lent:
            raise UsageError(f"store {self.place}: a transaction with it is under way; use the connection of that one")

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
        raise system_error_of(error, self.place) from error

    def _raise(self, error: sqlite3.Error) -> NoReturn:
        if (found := error_of(error, self.place, self.path)) is not error:
            raise found from error
        if code_of(error) == sqlite3.SQLITE_IOERR:
            self._unusable = f"a write to the disk failed ({error})"
            raise StoreUnusable(self.place, f"{self._unusable}; check the disk, then open the store again") from error
        raise error
