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

from holdfast.stores.postgres.guarded_connection import LentConnection

STALE = 60.0  # seconds without use after which a connection is tried before it is used
IDLE = 300.0  # seconds without use after which it is closed


class PoolEmpty(Exception):
    """All connections were in use, for longer than one could wait."""


class Pool:
    """At most ``size`` connections."""

    def __init__(self, connect: Callable[[], LentConnection], size: int) -> None:
        self._connect = connect
        self._idle: deque[tuple[LentConnection, float]] = deque()  # and when it was used; the last one is at the end
        self._blank: deque[None] = deque([None] * size)  # one for each connection that may still be made
        self._lock = threading.RLock()  # not the condition: an interrupt in its __enter__ leaves it locked
        self._left = threading.Condition(self._lock)
        self._waiting = 0
        self._closed = False

    def get(self, timeout: float) -> LentConnection:
        """A connection that works, as far as is known. Raises `PoolEmpty`, or what is wrong with making one."""
        try:
            idle: tuple[LentConnection, float] | None = self._idle.pop()
        except IndexError:
            idle = self._other(timeout)
        try:
            if idle is not None:
                conn, used = idle
                if time.monotonic() - used < STALE or _works(conn):
                    return conn
                conn.close()
            return self._connect()
        except BaseException:  # whatever it is, there is a place again
            self._leave(None)
            raise

    def _other(self, timeout: float) -> tuple[LentConnection, float] | None:
        """One that is given back meanwhile, or None for one that may be made."""
        with suppress(IndexError):
            return self._blank.pop()
        until = time.monotonic() + timeout
        with self._lock:
            self._waiting += 1  # before it looks again, so that who leaves one after that sees it
            try:
                while True:
                    for places in (self._idle, self._blank):
                        with suppress(IndexError):
                            return places.pop()
                    left = until - time.monotonic()
                    if left <= 0:
                        raise PoolEmpty
                    self._left.wait(left)
            finally:
                self._waiting -= 1

    def _leave(self, idle: tuple[LentConnection, float] | None) -> None:
        self._blank.append(None) if idle is None else self._idle.append(idle)
        if self._waiting:
            with self._lock:
                self._left.notify()

    def put(self, conn: LentConnection) -> None:
        """Give a connection back. A transaction that is under way is rolled back."""
        now, idle = time.monotonic(), None
        try:
            if conn.pgconn.pipeline_status:  # its answers never came
                conn.close()
            elif conn.pgconn.transaction_status != TransactionStatus.IDLE and not conn.closed:
                with suppress(psycopg.OperationalError):  # then it is lost, and with it the transaction
                    conn.rollback()
            if self._closed or conn.closed:
                conn.close()
            else:
                idle = conn, now
        finally:
            self._leave(idle)
        with suppress(IndexError):
            if now - self._idle[0][1] > IDLE:
                self._close(self._idle.popleft())

    def _close(self, idle: tuple[LentConnection, float]) -> None:
        try:
            idle[0].close()
        finally:
            self._leave(None)

    def clear(self) -> None:
        """Close what is not in use: one was lost, and most likely so were the others."""
        with suppress(IndexError):
            while True:
                self._close(self._idle.pop())

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
