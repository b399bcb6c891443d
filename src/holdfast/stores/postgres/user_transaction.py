"""A PostgreSQL store inside of a transaction of the user's own, on the user's own connection.

What it does there is a few statements that name the schema, and change nothing about the session. Of two who make a run
of the same id at once, the second waits until the first has ended its transaction, as two inserts of one key do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from holdfast.errors import RunExists, StoreReadOnly, UsageError, shown
from holdfast.kernel.model import Create, Entry, Filter, RunRecord
from holdfast.kernel.rules import ending
from holdfast.stores.postgres.connections import Link, Rows, Statement
from holdfast.stores.postgres.rows import entry_of, kept, listed, page, record_of, row_of
from holdfast.stores.user_transaction import Ask, Asking

TRIES = 5  # of finding the run that has an id, while others make and delete runs of it
SERVER = "SELECT current_database(), pg_postmaster_start_time()::text"


class Host:
    """What a store tells its guests: its statements, and how one knows its database again."""

    def __init__(self, link: Link, queries: dict[str, str], notice: Callable[[], Statement]) -> None:
        self.link = link
        self.queries = queries
        self.notice = notice
        self.known: WeakSet[Any] = WeakSet()  # connections to the same database
        self._server: list[tuple[Any, ...]] = []

    def learn(self) -> None:
        """Find out what database it is, if that is not known yet."""
        if not self._server:
            self._server = self.link.ask(SERVER)

    def is_same(self, server: Rows) -> bool:
        """Whether that is what the store's own connections say, also after a restart of the server."""
        if server != self._server:
            self._server = self.link.ask(SERVER)
        return server == self._server


class PlainCursor(psycopg.Cursor[Any]):
    """A cursor that gives values as psycopg does, whatever the user's connection makes of its own."""

    adapters = psycopg.adapters


class PlainAsyncCursor(psycopg.AsyncCursor[Any]):
    """The same to be awaited."""

    adapters = psycopg.adapters


class PostgresGuest:
    """See `holdfast.stores.user_transaction.Guest`."""

    def __init__(self, connection: Any, host: Host, *, awaited: bool) -> None:
        check_connection(connection, awaited=awaited)
        self._connection = connection
        self._awaited = awaited
        self._host = host
        self._q = host.queries
        host.learn()

    def _ask(self, statement: str, values: Any = ()) -> Ask:
        """A call that gives the rows as they are, whatever the user's connection makes of its own."""
        conn = self._connection

        def called() -> Rows:
            cursor = PlainCursor(conn, row_factory=tuple_row)
            return cursor.execute(statement, values).fetchall()

        async def awaited() -> Rows:
            cursor = PlainAsyncCursor(conn, row_factory=tuple_row)
            await cursor.execute(statement, values)
            return await cursor.fetchall()

        return awaited if self._awaited else called

    def _meet(self) -> Asking[None]:
        """Refuse a connection to another database; that is asked once."""
        if self._connection in self._host.known:
            return
        server = yield self._ask(SERVER)
        if not self._host.is_same(server):
            name = server[0][0]
            raise UsageError(
                f"within= is connected to the database {name!r} of another server, or to another one of this server; "
                f"the runs of this store are in {self._host.link.place}, and one transaction cannot write to both"
            )
        self._host.known.add(self._connection)

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> Asking[list[RunRecord]]:
        yield from self._meet()
        query, values = page(self._q, filter, before, limit)
        return [listed(row) for row in (yield self._ask(query, values))]

    def entry(self, uid: str, seq: int) -> Asking[Entry | None]:
        rows = yield self._ask(self._q["read"], (uid, seq, seq))
        return entry_of(uid, rows[0]) if rows else None

    def create(self, write: Create) -> Asking[RunRecord]:
        yield from self._meet()
        record, [entry] = write.record, write.entries
        first = (entry.seq, entry.at, entry.state, kept(entry.kind), entry.hash, entry.payload)
        statement = f"WITH made AS ({self._q['insert_run']} ON CONFLICT DO NOTHING RETURNING n) {self._q['made']}"
        _, notice = self._host.notice()
        for _ in range(TRIES):
            try:
                made = yield self._ask(statement, (*row_of(record), *first, *notice))
            except psycopg.errors.InsufficientPrivilege as error:
                schema, user = self._host.link.settings.schema, self._connection.info.user
                remedy = f"grant the user {user} of within= the rights to the schema {schema}, its tables and sequences"
                raise StoreReadOnly(self._host.link.place, f"{error}; {remedy}") from error
            if made:
                return ending(record, write.entries)
            found = yield self._ask(f"{self._q['record']} WHERE r.id = %s AND NOT r.hidden", (kept(record.id),))
            if found:
                return record_of(found[0])
        raise RunExists(record.id, "others make and delete runs of this id at the same time; try again")


def check_connection(connection: Any, *, awaited: bool) -> None:
    """Refuse what is no connection in a transaction, with what to do about it."""
    wanted = psycopg.AsyncConnection if awaited else psycopg.Connection
    if isinstance(connection, psycopg.Connection if awaited else psycopg.AsyncConnection):
        remedy = (
            "give a psycopg.AsyncConnection in async code" if awaited else "open the store with `async with` for it"
        )
        raise UsageError(f"within= is a psycopg.{type(connection).__name__}; {remedy}")
    if not isinstance(connection, wanted):
        raise UsageError(
            f"{shown('within', connection)}: takes a psycopg.{wanted.__name__}; that of SQLAlchemy is "
            "session.connection().connection.driver_connection"
        )
    if connection.closed:
        raise UsageError("within= is a connection that is closed or lost, so nothing can be committed on it")
    status = connection.info.transaction_status
    if status is TransactionStatus.IDLE and connection.autocommit:
        raise UsageError(
            "within= is in no transaction (it is in autocommit mode), so there is nothing to commit; begin one: "
            "with connection.transaction(): ..."
        )
    if status is TransactionStatus.INERROR:
        raise UsageError("the transaction of within= has failed, so it cannot be committed; roll it back first")
    if status is TransactionStatus.ACTIVE:
        raise UsageError("within= is busy with something else; finish that first")
