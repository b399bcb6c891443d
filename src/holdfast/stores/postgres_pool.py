"""The open connections of a handle. They are made by whoever needs one, and kept for the next.

There is no thread that makes them beforehand: so who cannot have one learns why, and when a server comes back, the
next call finds it at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import psycopg
from psycopg.pq import TransactionStatus

from holdfast.stores.postgres_lent import LentConnection

STALE = 15.0  # seconds without use after which a connection is tried before it is used
IDLE = 300.0  # seconds without use after which it is closed


class PoolEmpty(Exception):
    """All connections were in use, for longer than one could wait."""


class Pool:
    """At most ``size`` connections."""

    def __init__(self, connect: Callable[[], LentConnection], size: int) -> None:
        self._connect = connect
        self._free = threading.BoundedSemaphore(size)
        self._idle: deque[tuple[LentConnection, float]] = deque()  # the one that was used last is at its end
        self._closed = False

    def get(self, timeout: float) -> LentConnection:
        """A connection that works, as far as is known. Raises `PoolEmpty`, or what is wrong with making one."""
        if not self._free.acquire(timeout=timeout):
            raise PoolEmpty
        try:
            while True:
                try:
                    conn, used = self._idle.pop()
                except IndexError:
                    return self._connect()
                if time.monotonic() - used < STALE or _works(conn):
                    return conn
                conn.close()
        except BaseException:  # whatever it is, the place is free again
            self._free.release()
            raise

    def put(self, conn: LentConnection) -> None:
        """Give a connection back. A transaction that is under way is rolled back."""
        try:
            if not conn.closed and conn.info.transaction_status != TransactionStatus.IDLE:
                with suppress(psycopg.OperationalError):  # then it is lost, and with it the transaction
                    conn.rollback()
            now = time.monotonic()
            if self._closed or conn.closed:
                conn.close()
            else:
                self._idle.append((conn, now))
            with suppress(IndexError):
                if now - self._idle[0][1] > IDLE:
                    self._idle.popleft()[0].close()
        finally:
            self._free.release()

    def clear(self) -> None:
        """Close what is not in use: one was lost, and most likely so were the others."""
        with suppress(IndexError):
            while True:
                self._idle.pop()[0].close()

    def close(self) -> None:
        """Close all connections; those that are in use, when they are given back."""
        self._closed = True
        self.clear()


def _works(conn: LentConnection) -> bool:
    try:
        conn.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True
