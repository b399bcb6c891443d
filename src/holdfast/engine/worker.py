"""Who holds runs: one worker per open engine, and the one heartbeat that keeps all its leases."""

from __future__ import annotations

import os
import threading

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

    def ready(self) -> str:
        """The worker's name, registered with the store."""
        with self._lock:
            if self._thread is None:
                self.store.enlist(self.name, self.lease)
                self._thread = threading.Thread(target=self._beat, name="holdfast-heartbeat", daemon=True)
                self._thread.start()
        return self.name

    def _beat(self) -> None:
        while not self._stop.wait(self.lease / 3):
            try:
                self.store.beat(self.name, self.lease)
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
