"""The connections of a PostgreSQL store: a pool, transactions, and what becomes of a connection that is lost.

Nothing is kept in a session: each call takes any connection and gives it back, so a pooler in transaction mode may
stand in between. What must hold for a transaction is set inside of it.

A call that loses its connection is made again on another one, for some seconds. It is told that it is (``again``):
then what it wanted to write may be there already, and it looks before it writes. The rows that it locks for that are
those that the lost transaction had locked, so what it sees is final.

A process that stands still in the middle of a transaction, or that the network has cut off, must not keep its locks:
the server ends a session that idles in a transaction, and whoever waits too long for a lock, and every heartbeat, ends
the sessions of Holdfast that keep locks and send nothing (the query ``stale``).
"""

from __future__ import annotations

import logging
import os
import random
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from holdfast.errors import (
    HoldfastError,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreNotFound,
    StoreReadOnly,
    StoreReplaced,
    StoreUnreachable,
    StoreUnusable,
)
from holdfast.stores.postgres.guarded_connection import LentConnection
from holdfast.stores.postgres.pool import Pool, PoolEmpty
from holdfast.stores.postgres.stuck_calls import patrol
from holdfast.stores.postgres.url import Settings

T = TypeVar("T")
Connection = LentConnection
Rows = list[tuple[Any, ...]]
Statement = tuple[str, Any]

PATIENCE = 15.0  # seconds for which a lost connection is replaced by another one
TRIES = 20  # of a transaction that met another one
CLOSED = "it is closed"
FORKED = "it was opened before os.fork()"
REPLACED = "its contents were replaced by older ones while it was open, such as by a backup that was restored"
BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
COMMITTED = "COMMIT"  # the tag that proves a commit; a transaction that failed is answered with ROLLBACK
# Whoever stands still in the middle of a transaction must not hold up the others for ever.
_LIMITS = {"idle_in_transaction_session_timeout": "10s", "lock_timeout": "5s", "statement_timeout": "60s"}
_TRANSACTION = "transaction_timeout", "90s"  # which PostgreSQL 17 is the first to know; a call takes no longer either
# How the server notices a dead client; `holdfast.stores.postgres.url` has the same for the client's side.
_NETWORK = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
# A commit waits until it is on disk, also where a role or a database turned that off; more than that stays as it is.
SYNCED = "set_config('synchronous_commit', replace(current_setting('synchronous_commit'), 'off', 'on'), {local})"

_FLEETING = (errors.DeadlockDetected, errors.SerializationFailure, errors.TransactionRollback, errors.UniqueViolation)
_NO_TRANSACTION = "25P01"  # a warning: COMMIT outside of a transaction
_UNPREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)
_GONE = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.IdleInTransactionSessionTimeout,
    errors.TransactionTimeout,
    errors.IdleSessionTimeout,
)


# A connection that is refused has no code; also a pooler's words.
_TOO_MANY = ("too many clients", "too many connections", "remaining connection slots", "no more connections allowed")


class Link:
    """The way to the database."""

    def __init__(self, settings: Settings, look: Callable[[Link, Connection], None] | None = None) -> None:
        """``look`` is given the first connection, to see whether the store can be used."""
        self.settings = settings
        self.place = settings.place
        self.unusable: str | None = None
        self.prepares = settings.prepare
        self.end_stale: Callable[[], None] = lambda: None  # what to do about locks for which one waits in vain
        self._conninfo, self._limits = limited(settings.conninfo), True
        with self.connect() as conn:  # at once, so that what is wrong is told as it is
            if look is not None:
                look(self, conn)
        self._pool = Pool(self._connect, settings.pool)
        self._spare = Pool(self._connect, 1)  # for what must not wait until somebody else is done
        _links.add(self)

    def connect(self) -> Connection:
        """A connection beside the pool; raises what is wrong in words of ours."""
        try:
            return self._connect()
        except psycopg.Error as error:
            raise self.translated(error, connecting=True) from None

    def _connect(self) -> Connection:
        try:
            conn = LentConnection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            if not (self._limits and "startup parameter" in str(error)):
                raise
            self._conninfo, self._limits = self.settings.conninfo, False  # a pooler, which takes no options
            return self._connect()
        conn.prepared, conn.warnings = set(), []
        conn.add_notice_handler(partial(_note, conn.warnings))
        wanted = [_set(*_TRANSACTION, "false")]
        if "synchronous_commit" not in self._conninfo:  # which the URL may turn off
            wanted.append(SYNCED.format(local="false"))
        # Behind a pooler, who answers is not who was connected to: what was prepared there may be something else here,
        # and settings are those of a session that serves others too. It may also take settings and ignore them.
        own, limit = "pg_backend_pid() = %(pid)s", "current_setting('lock_timeout')"
        query = f"SELECT {own}, {limit}, CASE WHEN {own} THEN ({', '.join([*wanted, 'true'])})::text END"
        [(direct, kept, _)] = execute(conn, query, {"pid": conn.info.backend_pid}).fetchall()
        conn.pooled, conn.limited = not direct, direct and self._limits and kept != "0"
        if conn.pooled:
            conn.prepare_threshold = None
        return conn

    # --- calls

    def call(self, act: Callable[[Connection, bool], T], *, keep: bool = False, urgent: bool = False) -> T:
        """Carry out ``act``, on another connection if one is lost. It is told whether it may have been made before.

        With ``keep``, the connection on which it succeeded is not given back. What is ``urgent`` has one of its own
        where all the others are in use.
        """
        again, tries, until = False, 0, 0.0
        while True:
            conn, pool = None, self._pool
            try:
                conn, pool = self._get(until, urgent)
                patrol.begin(conn)
                try:
                    value = act(conn, again)
                finally:
                    patrol.end(conn)
                conn = None if keep else conn
                return value
            except psycopg.Error as error:
                lost = self.is_lost(conn, error)
                blocked = isinstance(error, errors.LockNotAvailable)
                if not lost and not blocked and not isinstance(error, _FLEETING + _UNPREPARED):
                    raise self.translated(error) from error
                again, tries, until = again or (lost and conn is not None), tries + 1, until or self._deadline()
                if time.monotonic() > until or (not lost and tries > TRIES):
                    raise self._given_up(error, conn) from None
                if isinstance(error, _UNPREPARED):  # somebody made the session forget them
                    self.prepares = False
                if blocked:
                    self.end_stale()
            finally:
                if conn is not None:
                    pool.put(conn)
            if lost:
                self._pool.clear()
            time.sleep(random.uniform(0, min(0.01 * 2**tries, 0.5)))

    def _deadline(self) -> float:
        return time.monotonic() + PATIENCE

    def _given_up(self, error: psycopg.Error, conn: Connection | None) -> HoldfastError:
        if conn is None:
            return self.translated(error, connecting=True)
        told = self.settings.scrubbed(str(error))
        if self.is_lost(conn, error):
            return StoreUnreachable(self.place, f"the connection was lost again and again ({told}); check the server")
        return StoreBusy(self.place, f"{told}; try again")

    @contextmanager
    def once(self, begin: Callable[[Connection], T]) -> Iterator[tuple[Connection, T]]:
        """A connection on which ``begin`` was carried out, for what cannot be made again by itself.

        The errors of PostgreSQL are left as they are.
        """
        conn, value = self.call(lambda conn, again: (conn, begin(conn)), keep=True)
        try:
            yield conn, value
        finally:
            self._pool.put(conn)

    def is_lost(self, conn: Connection | None, error: Exception) -> bool:
        """Whether the error means that the connection is gone, and with it the answer."""
        if conn is None or conn.closed or isinstance(error, _GONE):
            return True
        return bool(conn.pgconn.pipeline_status)  # stuck in a pipeline whose answers never came: it ended in its midst

    def ask(self, statement: str, values: Any = (), *, urgent: bool = False) -> Rows:
        """The rows that a query gives."""
        return self.call(lambda conn, again: execute(conn, statement, values).fetchall(), urgent=urgent)

    # --- connections

    def _get(self, until: float, urgent: bool) -> tuple[Connection, Pool]:
        """A connection, and where it is to be given back."""
        self.check_usable()
        seconds = max(until - time.monotonic(), 0.5) if until else PATIENCE
        pools = [(self._pool, 0.0), (self._spare, seconds)] if urgent else [(self._pool, seconds)]
        for pool, patience in pools:
            with suppress(PoolEmpty):
                conn = pool.get(patience)
                if not self.prepares:
                    conn.prepare_threshold = None
                return conn, pool
        raise StoreBusy(self.place, f"all {self.settings.pool} connections are in use; raise ?pool=, or try again")

    def check_usable(self) -> None:
        """Raise `StoreUnusable` if it was closed, was replaced, or is another process's."""
        if self.unusable is not None:
            kind = StoreReplaced if self.unusable == REPLACED else StoreUnusable
            raise kind(self.place, f"{self.unusable}; open the store again")

    def close(self) -> None:
        """Close all connections. May be repeated."""
        if self.unusable in (None, REPLACED):
            self.unusable = CLOSED
            self._pool.close()
            self._spare.close()

    # --- errors

    def translated(self, error: psycopg.Error, *, connecting: bool = False) -> HoldfastError:
        """An error of PostgreSQL in words of ours, which name the place and the remedy."""
        told = self.settings.scrubbed(str(error))
        code = error.sqlstate or ""
        schema = self.settings.schema
        if code in ("42P01", "3F000"):
            return StoreNotFound(self.place, missing(schema))
        if code == "3D000" or (connecting and "does not exist" in told and "database" in told):
            return StoreNotFound(self.place, f"{told}; create it with createdb, or name another one")
        if code == "42501":
            return StoreReadOnly(self.place, f"{told}; grant this user the rights to the schema {schema}")
        if code == "25006":
            return StoreReadOnly(self.place, f"{told}; connect to the primary server")
        if code == "53100":
            return StoreFull(self.place)
        if code.startswith("XX0"):
            return StoreDamaged(self.place, f"{told}; restore it from a backup")
        if code in ("40001", "40P01", "53300", "55P03", "57014"):
            return StoreBusy(self.place, f"{told}; try again")
        if connecting and any(text in told for text in _TOO_MANY):
            return StoreBusy(
                self.place,
                f"{told}; raise max_connections there, or give each process fewer with ?pool=, and try again",
            )
        if connecting:
            return StoreUnreachable(self.place, f"{told}; check the server, the user and the password")
        return StoreError(self.place, told)


def missing(schema: str) -> str:
    """What to say where there is no store yet."""
    return f"there is no store in the schema {schema} of this database; make it with `holdfast migrate`"


def limited(conninfo: str) -> str:
    """The same, with settings for all that is done on the connection. Poolers do not take them."""
    options = conninfo_to_dict(conninfo).get("options", "")
    # Whatever the server's default is.
    settings = {**_LIMITS, **_NETWORK, "default_transaction_isolation": r"read\ committed"}
    limits = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return make_conninfo(conninfo, options=f"{limits} {options}".strip())


def _set(name: str, value: str, local: str) -> str:
    """An expression that sets a parameter, if the server knows it."""
    known = "current_setting('server_version_num')::integer >= 170000"
    setting = f"set_config('{name}', '{value}', {local})"
    return f"CASE WHEN {known} THEN {setting} END" if name == _TRANSACTION[0] else setting


def limits(**others: str) -> str:
    """A statement that sets the limits of a transaction; some of them may be others."""
    chosen = {**_LIMITS, **dict([_TRANSACTION]), **others}
    settings = [_set(name, value, "true") for name, value in chosen.items()]
    return f"SELECT {', '.join([*settings, SYNCED.format(local='true')])}"


LIMITED = limits()
UNLIMITED = "SELECT " + ", ".join(_set(name, "0", "true") for name in (*_LIMITS, _TRANSACTION[0]))  # for a user's step


def _note(warnings: list[str], notice: errors.Diagnostic) -> None:
    if notice.sqlstate == _NO_TRANSACTION:
        warnings.append(notice.message_primary or _NO_TRANSACTION)


# --- statements


def execute(conn: Connection, statement: str, values: Any = ()) -> psycopg.Cursor[tuple[Any, ...]]:
    """Carry out a statement that comes from a file of ours, and from nobody else."""
    return conn.execute(statement, values)


def begin(conn: Connection, *statements: Statement) -> list[Rows]:
    """Begin a transaction and carry out these, in one round trip; the rows of each."""
    with conn.pipeline():
        _begin(conn)
        cursors = [execute(conn, *statement) for statement in statements]
    return _fetched(cursors)


def _fetched(cursors: Sequence[psycopg.Cursor[tuple[Any, ...]]]) -> list[Rows]:
    return [cursor.fetchall() if cursor.description else [] for cursor in cursors]


def _begin(conn: Connection) -> None:
    conn.execute(BEGIN)
    if not conn.limited:
        conn.execute(LIMITED)


def together(conn: Connection, *statements: Statement) -> list[Rows]:
    """Carry out these in one round trip; the rows of each. Inside of a transaction it goes on."""
    with conn.pipeline():
        cursors = [execute(conn, *statement) for statement in statements]
    return _fetched(cursors)


def commit(conn: Connection, statements: Sequence[Statement], news: Statement | None = None) -> None:
    """Carry out these and commit, in one round trip; and tell the others, which is no part of it."""
    committed: psycopg.Cursor[tuple[Any, ...]] | None = None
    try:
        with conn.pipeline() as pipeline:
            for statement in statements:
                execute(conn, *statement)
            committed = conn.execute("COMMIT")
            if news is not None:
                pipeline.sync()
                execute(conn, *news)
    except psycopg.Error as error:
        if committed is None or committed.statusmessage != COMMITTED:
            raise
        _untold(conn, error)
    _check_committed(conn, committed)


def _check_committed(conn: Connection, committed: psycopg.Cursor[tuple[Any, ...]]) -> None:
    """Raise unless the answer to COMMIT says that a transaction was committed."""
    if committed.statusmessage != COMMITTED:
        raise errors.TransactionRollback(f"COMMIT was answered with {committed.statusmessage}")
    if conn.warnings:
        conn.close()  # what became of the transaction is not known
        raise psycopg.OperationalError("COMMIT was answered with a warning: the transaction had ended before")


def told(
    conn: Connection, statement: Statement, news: Statement | None = None, *, lock: Statement | None = None
) -> Rows:
    """Execute a statement in its own transaction, commit, and notify the others, in one round trip. Return its rows.

    With ``lock``, that statement comes first, so that the other one sees whatever the lock had to wait for.

    The tag of a statement does not prove a commit: an implicit transaction commits at Sync, after the tag, and the
    commit may fail. Only the tag of an explicit COMMIT proves it.
    """
    committed: psycopg.Cursor[tuple[Any, ...]] | None = None
    try:
        with conn.pipeline() as pipeline:
            _begin(conn)
            if lock is not None:
                execute(conn, *lock)
            cursor = execute(conn, *statement)
            committed = conn.execute("COMMIT")
            if news is not None:
                pipeline.sync()
                execute(conn, *news)
    except psycopg.Error as error:
        if committed is None or committed.statusmessage != COMMITTED:
            if not conn.closed and conn.pgconn.transaction_status == TransactionStatus.INERROR:
                conn.rollback()  # the next attempt uses the same connection
            raise
        _untold(conn, error)
    _check_committed(conn, committed)
    return cursor.fetchall()


def announce(conn: Connection, news: Statement) -> None:
    """Tell the others what was committed before."""
    try:
        execute(conn, *news)
    except psycopg.Error as error:
        _untold(conn, error)


def _untold(conn: Connection, error: psycopg.Error) -> None:
    """The others could not be told (on a full disk not even that is possible). They look by themselves, too."""
    logging.getLogger("holdfast").debug("what was committed could not be told to others: %s", error)
    conn.close()  # who knows in which state it is


# --- forks

_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a forked child: the connections are the parent's. psycopg closes none of another process."""
    for link in _links:
        if link.unusable is None:
            link.unusable = FORKED


os.register_at_fork(after_in_child=_leave_to_parent)
