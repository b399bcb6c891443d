"""Making a run inside of a transaction of the user's own, on the user's own connection.

What is to be done on that connection is told by a generator: it yields one call after the other, and is sent what each
of them gave. So it is written once, for connections that are called and for those that are awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from holdfast.kernel.model import Create, Entry, Filter, RunRecord

if TYPE_CHECKING:
    import sqlite3

    import psycopg

T = TypeVar("T")

Connection: TypeAlias = "sqlite3.Connection | psycopg.Connection[Any] | psycopg.AsyncConnection[Any]"
Ask = Callable[[], Any]  # gives rows, or something to await that does
Asking = Generator[Ask, Any, T]


class Guest(Protocol):
    """A store as it is seen and written to in a transaction of the user's own, which only the user ends."""

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> Asking[list[RunRecord]]:
        """See `holdfast.stores.protocol.Store.find`."""

    def entry(self, uid: str, seq: int) -> Asking[Entry | None]:
        """One entry of a journal."""

    def create(self, write: Create) -> Asking[RunRecord]:
        """Make the run, or find the one that has its id; others see it, and are told, when the user commits."""


@runtime_checkable
class Joining(Protocol):
    """A store that can join in a transaction of the user's own."""

    def join(self, connection: Any, *, awaited: bool) -> Guest:
        """Be a guest on the connection, which is to be ``awaited``, or not. Raises `UsageError` if it does not fit."""
