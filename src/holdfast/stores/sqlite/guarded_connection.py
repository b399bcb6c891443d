"""The connection that a SQLite store writes with, which can be lent to a user's function inside of a transaction.

While it is **lent**, the function may read everything and write to its own tables. The transaction, the settings of
the connection and Holdfast's tables are not its business: SQLite asks an authorizer about each statement when it is
compiled, and what a statement cannot say (methods such as `close`) is refused by the methods themselves. Nothing of
this is in the way of a connection that is not lent: the authorizer is gone, and the store's own statements go through
a cursor.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any
from weakref import WeakSet

from holdfast.errors import UsageError

OURS = frozenset({"meta", "run", "run_tag", "entry", "link", "inbox", "worker", "document"})
ENDS = "Holdfast ends the transaction itself, together with the step's entry"

_HARMLESS = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_REINDEX,  # a part of making an index
    }
)
_BY_TABLE = {  # of what is written: whether the name of its table comes first or second
    sqlite3.SQLITE_INSERT: 0,
    sqlite3.SQLITE_UPDATE: 0,
    sqlite3.SQLITE_DELETE: 0,
    sqlite3.SQLITE_CREATE_TABLE: 0,
    sqlite3.SQLITE_CREATE_VIEW: 0,
    sqlite3.SQLITE_CREATE_VTABLE: 0,
    sqlite3.SQLITE_DROP_TABLE: 0,
    sqlite3.SQLITE_DROP_VIEW: 0,
    sqlite3.SQLITE_DROP_VTABLE: 0,
    sqlite3.SQLITE_CREATE_INDEX: 1,
    sqlite3.SQLITE_CREATE_TRIGGER: 1,
    sqlite3.SQLITE_DROP_INDEX: 1,
    sqlite3.SQLITE_DROP_TRIGGER: 1,
    sqlite3.SQLITE_ALTER_TABLE: 1,
}
_PRAGMAS = frozenset({"table_info", "table_xinfo", "table_list", "index_list", "index_info", "foreign_key_list"})
_SCHEMA_OF_TEMP = frozenset({"sqlite_temp_master", "sqlite_temp_schema"})  # a part of ALTER TABLE; SQLite guards it
_ENDING = frozenset({sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT})


class LentConnection(sqlite3.Connection):
    """A connection whose owner can lend it."""

    lent = False
    refused: str | None = None  # why the last statement that was refused was
    _cursors: WeakSet[sqlite3.Cursor]

    @contextmanager
    def lend(self) -> Iterator[None]:
        """Inside of a transaction: until this ends, only what a user may do can be done.

        A statement outside of the transaction, which some conflicts end by themselves (`INSERT OR ROLLBACK`), would be
        lasting at once. With an isolation level, Python begins a transaction before it, and that is refused. The
        owner sets the level back when the transaction is over: to do so commits.
        """
        kept = self.row_factory, self.text_factory
        self.isolation_level = "IMMEDIATE"
        self._cursors, self.refused = WeakSet(), None
        self.set_authorizer(self._authorize)
        self.lent = True
        try:
            yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH and self.refused is not None:
                raise UsageError(self.refused) from error
            raise
        finally:
            self.lent = False
            self.set_authorizer(None)
            for cursor in self._cursors:
                cursor.close()  # one that is half read would keep its view of the database
            self.row_factory, self.text_factory = kept
        if not self.in_transaction:
            raise UsageError(f"the transaction was rolled back by the function's own SQL; {ENDS}")

    def _authorize(self, action: int, first: str | None, second: str | None, base: str | None, by: str | None) -> int:
        refused = self._refusal(action, (first or "", second or ""), base)
        if refused is None:
            return sqlite3.SQLITE_OK
        self.refused = refused
        return sqlite3.SQLITE_DENY

    def _refusal(self, action: int, names: tuple[str, str], base: str | None) -> str | None:
        """Why a statement may not be made, if so. What is not known to do no harm is refused."""
        if action in _ENDING:
            return f"{names[0]} inside of a transaction: {ENDS}"
        if not self.in_transaction:
            return f"the transaction was rolled back, so nothing more can be done in it; {ENDS}"
        if action in _HARMLESS or (action == sqlite3.SQLITE_PRAGMA and names[0].lower() in _PRAGMAS):
            return None
        if action == sqlite3.SQLITE_PRAGMA:
            return f"PRAGMA {names[0]} inside of a transaction: the settings of the connection are Holdfast's"
        if action not in _BY_TABLE or (base == "temp" and names[0] not in _SCHEMA_OF_TEMP):
            return "only tables of your own can be changed, made or dropped here, and no temporary ones"
        table = names[_BY_TABLE[action]].lower()
        return f"the table {table} is Holdfast's own, and only Holdfast writes to it" if table in OURS else None

    # --- cursors: those of a borrower are closed when it is over

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        return self._noted(super().cursor(*args, **kwargs))

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        return self._noted(super().execute(sql, parameters))

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        return self._noted(super().executemany(sql, parameters))

    def _noted(self, cursor: sqlite3.Cursor) -> sqlite3.Cursor:
        if self.lent:
            self._cursors.add(cursor)
        return cursor


def _kept_from_borrowers(name: str) -> Callable[..., Any]:
    method = getattr(sqlite3.Connection, name)

    @wraps(method)
    def guarded(self: LentConnection, *args: Any, **kwargs: Any) -> Any:
        if self.lent:
            raise UsageError(f"{name.strip('_')}() on a connection that is lent: {ENDS}")
        return method(self, *args, **kwargs)

    return guarded


for _name in (
    *("__enter__", "close", "commit", "rollback", "executescript"),  # end the transaction
    *("blobopen", "deserialize", "set_authorizer", "set_progress_handler", "setlimit"),  # go around the authorizer
    *("enable_load_extension", "load_extension"),
):
    if hasattr(sqlite3.Connection, _name):  # some builds of Python do without extensions
        setattr(LentConnection, _name, _kept_from_borrowers(_name))
