"""Who holds runs: one worker per open engine, and the one heartbeat that keeps all its leases."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from holdfast.errors import StoreUnusable
from holdfast.stores.base import Store

DEFAULT_LEASE = 30.0


class Worker:
    """A name under which runs are held. It enlists at the first claim and beats until it is stopped."""

    def __init__(self, store: Store, lease: float) -> None:
        self.store = store
        self.lease = lease
        host = "".join(c if c.isalnum() else "-" for c in os.uname().nodename)[:40]
        self.name = f"{host}.{os.getpid()}.{store.clock.random_bytes(5).hex()}"
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._until = 0
        self.lapses = 0  # how often a beat came too late, so that others may have claimed what is held here
        self.at_beat: Callable[[], None] = lambda: None

    def ready(self) -> str:
        """The worker's name, registered with the store."""
        with self._lock:
            if self._thread is None:
                self.store.enlist(self.name, self.lease)
                self._until = self.store.clock.now() + round(self.lease * 1_000_000)
                self._thread = threading.Thread(target=self._beat, name="holdfast-heartbeat", daemon=True)
                self._thread.start()
        return self.name

    @property
    def enlisted(self) -> bool:
        """Whether it has registered, and beats."""
        return self._thread is not None

    def keep(self) -> None:
        """Beat now, if the leases are about to end: this process may have been asleep."""
        with self._lock:
            if self._thread is not None and self._is_ending():
                self._extend()

    def _is_ending(self) -> bool:
        return self.store.clock.now() > self._until - round(self.lease * 500_000)

    def _extend(self) -> None:
        now = self.store.clock.now()
        self.store.beat(self.name, self.lease)
        self.lapses += now > self._until
        self._until = now + round(self.lease * 1_000_000)

    def _beat(self) -> None:
        while not self._stop.wait(self.lease / 3):
            try:
                with self._lock:
                    self._extend()
                self.at_beat()
            except StoreUnusable:
                return
            except Exception as error:  # whatever it is, the next beat may succeed
                import logging

                logging.getLogger("holdfast").warning("heartbeat of %s failed, will try again: %s", self.name, error)

    def stop(self) -> None:
        """End the heartbeat. What is still held may be claimed by others once the store retires the worker."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
