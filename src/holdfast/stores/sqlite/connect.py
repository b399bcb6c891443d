"""Connections that only read, and what the errors of SQLite mean."""

from __future__ import annotations

import errno
import sqlite3
from typing import TypeVar
from urllib.parse import quote

from holdfast.errors import StoreDamaged
from holdfast.stores.sqlite.identity import is_filled

BUSY_SECONDS = 60.0
NOT_SQLITE = "this is not a SQLite file; choose another path, or, if it was a store, restore a backup into a new one"
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
C = TypeVar("C", bound=sqlite3.Connection)


def connect_to_read(path: str, kind: type[C]) -> C:
    """A connection that writes nothing, also where nothing can be written.

    SQLite wants files beside a database that has a log. Where it cannot make them, nobody is writing either, unless
    the log that the last writer left is there: what is in it cannot be read then.
    """
    for way in ("mode=ro", "mode=ro&immutable=1"):
        db = kind(
            f"file:{quote(path)}?{way}", uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            return db
        except BaseException as error:  # whatever it is, the connection is not left open
            db.close()
            refused = isinstance(error, sqlite3.OperationalError) and is_refused(error)
            if not refused or way != "mode=ro" or is_filled(path + "-wal"):
                raise
    raise AssertionError


def is_refused(error: OSError | sqlite3.OperationalError) -> bool:
    """Whether something could not be written, for want of permission."""
    if isinstance(error, OSError):
        return error.errno in (errno.EROFS, errno.EACCES, errno.EPERM)
    return code_of(error) in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)


def code_of(error: sqlite3.Error) -> int:
    """The primary code of an error."""
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def damage_of(error: sqlite3.Error, place: str) -> StoreDamaged | None:
    """What to say of an error that comes of a damaged file."""
    code = code_of(error)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreDamaged(place, NOT_SQLITE)
    if code in _DAMAGED or (not code and type(error) is sqlite3.OperationalError):  # text that is not UTF-8
        return StoreDamaged(place, f"{error}; restore it from a backup with `restore`")
    return None
