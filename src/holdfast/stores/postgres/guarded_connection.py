"""A connection to PostgreSQL that can be lent to a user's function inside of a transaction.

While it is **lent**, the function may read everything and write to its own tables. The transaction and the settings of
the session are not its business: the methods that end or change them refuse, and so do statements that begin with
such a word. What gets past that (a COMMIT behind another statement, a function of the database that writes to
Holdfast's tables) is found out before the entry is written, by the number of the transaction and by its locks.

``with connection.transaction():`` is a savepoint there, and may be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

import psycopg
from psycopg import sql
from psycopg.adapt import AdaptersMap

from holdfast.errors import UsageError
from holdfast.stores.postgres.stuck_calls import patrol

ENDS = "Holdfast ends the transaction itself, together with the step's entry"
SETS = "the settings of the session are Holdfast's"
_ENDING = frozenset({"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "PREPARE"})
_SETTING = frozenset({"SET", "RESET", "DISCARD", "LISTEN", "UNLISTEN", "LOAD", "DEALLOCATE"})
_BLANK = re.compile(r"(?:\s|;|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)


def refusal(statement: str) -> str | None:
    """Why a statement may not be made by whom a connection is lent, if so."""
    words = statement[_BLANK.match(statement).end() :].split(None, 2)  # type: ignore[union-attr]
    first, second = (*(word.rstrip(";").upper() for word in words[:2]), "", "")[:2]
    if first in _ENDING and not (first == "ROLLBACK" and second == "TO"):
        return f"{first} inside of a transaction: {ENDS}"
    if first in _SETTING and not (first == "SET" and second == "LOCAL"):
        return f"{first} inside of a transaction: {SETS}"
    return None


class LentCursor(psycopg.Cursor[Any]):
    """A cursor of a connection that is lent."""

    def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
        self._check(query)
        with self.connection.watched():  # type: ignore[attr-defined]
            return super().execute(query, *args, **kwargs)

    def executemany(self, query: Any, *args: Any, **kwargs: Any) -> None:
        self._check(query)
        with self.connection.watched():  # type: ignore[attr-defined]
            super().executemany(query, *args, **kwargs)

    def _check(self, query: Any) -> None:
        text = query.as_string(self.connection) if isinstance(query, sql.Composable) else query
        refused = refusal(text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text))
        if refused is not None:
            raise UsageError(refused)


class Pipeline(psycopg.Pipeline):
    """A pipeline that ends with Sync, and that knows a transaction which fails there.

    psycopg sends Flush behind Sync. The server, which begins to count how long the session idles in its transaction
    when it answers Sync, stops counting at the next message, so that it would never end a session of a process that
    stands still. Flush is needed only for answers that are read before a Sync.

    A transaction without BEGIN is committed at Sync. If that fails there is an answer more than psycopg expects.
    """

    def _fetch_gen(self, *, flush: bool) -> Any:
        return super()._fetch_gen(flush=False)

    def _communicate_gen(self) -> Any:
        try:
            yield from super()._communicate_gen()
        except IndexError:
            self.pgconn.finish()  # which answer belongs to what is no longer known
            raise psycopg.OperationalError("the transaction failed at its end, when it was committed") from None


class LentConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose owner can lend it."""

    lent = False
    limited = False  # whether the session itself limits how long a statement may take
    session = 0  # the number of the server's process in which the present transaction is
    prepared: set[bytes]  # the statements of ours that it has prepared
    warnings: list[str]  # of a COMMIT outside of a transaction
    pooled = False  # whether a pooler stands in between, so that each transaction may be in another session
    _lent_adapters: AdaptersMap | None = None
    _at_work: Callable[[], bool] | None = None

    @contextmanager
    def lend(self, at_work: Callable[[], bool]) -> Iterator[None]:
        """Inside of a transaction: until this ends, only what a user may do can be done. No setting of it stays.

        A statement may take as long as it likes, while the server is ``at_work`` on it.
        """
        self._at_work = at_work
        kept = self.row_factory, self.cursor_factory, self.prepare_threshold
        self._lent_adapters = AdaptersMap(super().adapters)
        self.cursor_factory = LentCursor
        self.lent = True
        try:
            yield
        finally:
            self.lent = False
            self.row_factory, self.cursor_factory, self.prepare_threshold = kept
            self._lent_adapters = None

    @contextmanager
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        with super().pipeline() as pipeline:
            pipeline.__class__ = Pipeline
            yield pipeline

    def watched(self) -> AbstractContextManager[None]:
        """Whoever waits for an answer in here learns if it was lost."""
        return patrol.watch(self, self._at_work)

    @property
    def adapters(self) -> AdaptersMap:
        return self._lent_adapters or super().adapters


def _kept_from_borrowers(name: str) -> Callable[..., Any]:
    method = getattr(LentConnection, name)

    @wraps(method)
    def guarded(self: LentConnection, *args: Any, **kwargs: Any) -> Any:
        if self.lent:
            raise UsageError(f"{name.strip('_')}() on a connection that is lent: {ENDS}")
        return method(self, *args, **kwargs)

    return guarded


for _name in (
    *("__enter__", "close", "commit", "rollback", "pipeline"),
    *("set_autocommit", "set_isolation_level", "set_read_only", "set_deferrable"),
    *("tpc_begin", "tpc_prepare", "tpc_commit", "tpc_rollback"),
):
    setattr(LentConnection, _name, _kept_from_borrowers(_name))
