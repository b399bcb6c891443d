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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

LIMIT = 90.0  # seconds; longer than any limit that the server is given
SWEEP = 1.0  # seconds between two rounds


class Patrol:
    """Looks after the calls of a process."""

    def __init__(self) -> None:
        self._until: dict[psycopg.Connection[Any], float] = {}
        self._some = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @contextmanager
    def watch(self, conn: psycopg.Connection[Any]) -> Iterator[None]:
        """Cut the connection off if this takes too long."""
        self._until[conn] = time.monotonic() + LIMIT
        if not self._some.is_set():
            self._wake()
        try:
            yield
        finally:
            del self._until[conn]

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
            for conn, until in list(self._until.items()):
                if until < now:
                    cut(conn)
            with self._lock:
                if not self._until:
                    self._some.clear()


def cut(conn: psycopg.Connection[Any]) -> None:
    """End a connection under the hands of whoever waits for it."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


patrol = Patrol()
os.register_at_fork(after_in_child=patrol.__init__)  # type: ignore[misc]
