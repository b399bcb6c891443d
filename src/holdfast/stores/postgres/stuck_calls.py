"""Calls that take too long are cut off, so that nobody waits for ever for an answer that was lost on its way.

The server has limits of its own, and the system notices when the other machine is gone. This is for what neither can
see: something in between that accepts what is sent, and gives nothing back. One thread looks after all calls of this
process, and only while there are some.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from msgspec import Struct

from holdfast.errors import HoldfastError

LIMIT = 90.0  # seconds; longer than any limit that the server is given
SWEEP = 1.0  # seconds between two rounds


class Round(Struct, eq=False):
    """A call that is under way."""

    until: float
    at_work: Callable[[], bool] | None  # whether the server is, where nobody can say how long it may take


class Patrol:
    """Looks after the calls of a process."""

    def __init__(self) -> None:
        self._calls: dict[psycopg.Connection[Any], Round] = {}
        self._some = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @contextmanager
    def watch(self, conn: psycopg.Connection[Any], at_work: Callable[[], bool] | None = None) -> Iterator[None]:
        """Cut the connection off if this takes too long; with ``at_work``, if the server is not, or cannot be asked."""
        self.begin(conn, at_work)
        try:
            yield
        finally:
            self.end(conn)

    def begin(self, conn: psycopg.Connection[Any], at_work: Callable[[], bool] | None = None) -> None:
        """A call is under way. See `watch`."""
        self._calls[conn] = Round(time.monotonic() + LIMIT, at_work)
        if not self._some.is_set():
            self._wake()

    def end(self, conn: psycopg.Connection[Any]) -> None:
        """It is over."""
        del self._calls[conn]

    def _wake(self) -> None:
        with self._lock:
            self._some.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._walk, name="holdfast-patrol", daemon=True)
                self._thread.start()

    def _walk(self) -> None:
        while True:
            self._some.wait()
            time.sleep(SWEEP)
            now = time.monotonic()
            for conn, call in list(self._calls.items()):
                if call.until >= now:
                    continue
                if call.at_work is None:
                    cut(conn)
                else:
                    call.until = now + LIMIT
                    threading.Thread(
                        target=self._inquire, args=(conn, call), name="holdfast-inquiry", daemon=True
                    ).start()
            with self._lock:
                if not self._calls:
                    self._some.clear()

    def _inquire(self, conn: psycopg.Connection[Any], call: Round) -> None:
        """Cut off a call whose answer is lost: the server is done with it, or cannot be reached in any way."""
        assert call.at_work is not None
        try:
            lost = not call.at_work()
        except HoldfastError:
            lost = True
        if lost and self._calls.get(conn) is call:
            cut(conn)


def cut(conn: psycopg.Connection[Any]) -> None:
    """End a connection under the hands of whoever waits for it."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


patrol = Patrol()
os.register_at_fork(after_in_child=patrol.__init__)  # type: ignore[misc]
