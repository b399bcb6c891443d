"""Who commits something of interest tells it with NOTIFY; one thread and one connection of a handle listen for it.

It is a convenience: nothing is lost if a notice is, since everybody looks now and then anyway. So the thread takes a
connection of its own, and when it is lost it is made again after a while. Through a pooler it would hear nothing, so
there it does without.
"""

from __future__ import annotations

import os
import random
import select
import threading
from collections.abc import Callable
from hashlib import blake2b

import psycopg

from holdfast.errors import HoldfastError
from holdfast.stores.postgres.connections import Connection, Link, Statement

PATIENCE = 1.0, 30.0  # seconds until a lost connection is made again: at first, and at most
TURN = 120.0  # seconds after which a silent connection is tried

ANYBODY = "-"  # the name under which something is told to all, also to the handle that tells it
TELL = "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, %s)"


def channel(schema: str) -> str:
    """Under what name the news of a store are told."""
    return f"holdfast_{blake2b(schema.encode(), digest_size=12).hexdigest()}"


class News:
    """The news of one handle: what it tells the others, and what it hears from them."""

    def __init__(self, link: Link, name: str) -> None:
        self._link = link
        self._name = name
        self._channel = channel(link.settings.schema)
        self._heard: list[Callable[[str | None], None]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._awake: tuple[int, int] | None = None  # a pipe, by which the thread is told to stop
        self.hears = False  # whether a connection listens now

    def of(self, uid: str | None = None) -> Statement:
        """A statement that tells the others that something was committed: an item for a run, or something else.

        It belongs after the commit, in a transaction of its own: those that tell something are committed one after the
        other, so they had better be short. What it tells need not outlive a crash, so it waits for no disk.
        """
        return TELL, (self._channel, f"{self._name} {uid or ''}")

    def at_commit(self) -> Statement:
        """The same, for a transaction that somebody else commits: all are told then, and this handle too."""
        return "SELECT pg_notify(%s, %s)", (self._channel, f"{ANYBODY} ")

    def listen(self, heard: Callable[[str | None], None]) -> None:
        """See `holdfast.stores.protocol.Telling`."""
        with self._lock:
            self._heard.append(heard)
            if self._thread is None and self._link.settings.listen:
                self._awake = os.pipe()
                self._thread = threading.Thread(
                    target=self._listen, args=(self._awake[0],), name="holdfast-news", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Listen no longer."""
        with self._lock:
            self._stopped.set()
            thread, self._thread = self._thread, None
            pipe, self._awake = self._awake, None
        if thread is None or pipe is None:
            return
        os.close(pipe[1])  # which is seen at its other end
        if thread is not threading.current_thread():
            thread.join(5.0)

    def _listen(self, stop: int) -> None:
        wait = PATIENCE[0]
        while not self._stopped.is_set():
            try:
                with self._link.connect() as conn:
                    if conn.pooled:  # which says yes, and tells nothing
                        break
                    conn.execute(f'LISTEN "{self._channel}"')
                    self.hears, wait = True, PATIENCE[0]
                    self._tell(None)  # something may have been missed
                    self._hear(conn, stop)
            except (psycopg.Error, HoldfastError):
                pass  # everybody looks now and then, until there is a connection again
            finally:
                self.hears = False
            self._stopped.wait(random.uniform(0.5, 1.0) * wait)
            wait = min(wait * 2, PATIENCE[1])
        os.close(stop)

    def _hear(self, conn: Connection, stop: int) -> None:
        while not self._stopped.is_set():
            ready, _, _ = select.select([conn.fileno(), stop], [], [], TURN)
            if not ready:
                conn.execute("SELECT 1")
            for notice in conn.notifies(timeout=0):
                name, _, uid = notice.payload.partition(" ")
                if name != self._name:
                    self._tell(uid or None)

    def _tell(self, uid: str | None) -> None:
        for heard in list(self._heard):
            heard(uid)
