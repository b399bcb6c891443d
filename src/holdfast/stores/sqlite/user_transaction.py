"""A SQLite store inside of a transaction of the user's own, on a connection of the user's own to the same file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast.errors import RunDamaged, UsageError, shown
from holdfast.kernel.model import Create, Entry, Filter, RunRecord
from holdfast.kernel.rules import ending
from holdfast.stores.sql_rows import is_stored_entry
from holdfast.stores.sqlite.connect import damage_of
from holdfast.stores.sqlite.damage import check_no_id
from holdfast.stores.sqlite.rows import listed, page, record_of, row_of
from holdfast.stores.sqlite.statements import Q
from holdfast.stores.user_transaction import Asking

MAKE = Q["insert_run"].replace("INSERT INTO", "INSERT OR IGNORE INTO", 1)


class SqliteGuest:
    """See `holdfast.stores.user_transaction.Guest`."""

    def __init__(self, connection: Any, path: str) -> None:
        if not isinstance(connection, sqlite3.Connection):
            raise UsageError(
                f"{shown('within', connection)}: takes a sqlite3.Connection to {path}; one of SQLAlchemy is "
                "session.connection().connection.driver_connection"
            )
        self._db = connection
        self._place = f"sqlite:///{path}"
        with self._cursor() as cursor:
            [file] = [file for _, name, file in cursor.execute("PRAGMA database_list") if name == "main"]
        if not file or not os.path.samefile(file, path):
            raise UsageError(
                f"within= is connected to {file or 'a database in memory'}, and the runs of this store are in {path}; "
                "one transaction cannot write to both"
            )
        # With isolation_level=None, and with autocommit=True of later versions, nothing begins one by itself.
        begins = connection.isolation_level is not None and getattr(connection, "autocommit", -1) is not True
        if not (connection.in_transaction or begins):
            raise UsageError("within= is in no transaction, so there is nothing to commit; begin one: execute('BEGIN')")

    @contextmanager
    def _cursor(self) -> Iterator[sqlite3.Cursor]:
        """A cursor that gives plain rows, whatever the user's connection makes of them."""
        cursor, kept = sqlite3.Cursor(self._db), self._db.text_factory
        cursor.row_factory, self._db.text_factory = None, str
        try:
            yield cursor
        except sqlite3.DatabaseError as error:
            raise damage_of(error, self._place) or error from error
        finally:
            self._db.text_factory = kept
            cursor.close()

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        with self._cursor() as cursor:
            return cursor.execute(statement, values).fetchall()

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> Asking[list[RunRecord]]:
        query, values = page(Q, filter, before, limit)
        return [listed(row) for row in (yield lambda: self._rows(query, *values))]

    def entry(self, uid: str, seq: int) -> Asking[Entry | None]:
        query = f"{Q['read']} LIMIT 1"
        number = "(SELECT n FROM run WHERE uid = ?)"
        rows = yield lambda: self._rows(query.replace("e.run = ?", f"e.run = {number}"), uid, seq, seq)
        if not rows:
            return None
        if not is_stored_entry(rows[0]):
            raise RunDamaged(uid, f"entry {seq} is not what was written; restore the run from a backup")
        [(number, kind, at, state, prev, hash, payload)] = rows
        return Entry(number, kind, at, state, prev or b"", hash, payload)

    def create(self, write: Create) -> Asking[RunRecord]:
        return (yield lambda: self._create(write))  # type: ignore[no-any-return]

    def _create(self, write: Create) -> RunRecord:
        record, [entry] = write.record, write.entries
        with self._cursor() as cursor:
            query = f"{Q['record']} WHERE r.id = ? AND r.hidden = 0"
            row = cursor.execute(query, (record.id,)).fetchone()
            if row is None:
                check_no_id(cursor, Q["record"], self._place, record.id)
            if cursor.execute(MAKE, row_of(record)).rowcount == 1:
                first = (cursor.lastrowid, entry.seq, entry.kind, entry.at, entry.state, entry.hash, entry.payload)
                cursor.execute(Q["insert_entry"], first)
                return ending(record, write.entries)
            return record_of(cursor.execute(query, (record.id,)).fetchone())
