"""Who holds runs: one worker per open engine, and the one heartbeat that keeps all its leases."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.errors import LeaseLost, StoreUnusable
from holdfast.stores.protocol import Store

if TYPE_CHECKING:
    from holdfast.engine.access.lease import Lease

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
        self._clock = store.clock
        self.until = 0  # by the monotonic clock
        self.lapses = 0  # how often a beat came too late, so that others may have claimed what is held here
        self.at_beat: Callable[[], None] = lambda: None

    def ready(self) -> str:
        """The worker's name, registered with the store."""
        with self._lock:
            if self._thread is None:
                now = self._clock.monotonic()
                self.store.beat(self.name, self.lease)
                self.until = now + int(self.lease * 1_000_000)
                self._thread = threading.Thread(target=self._beat, name="holdfast-heartbeat", daemon=True)
                self._thread.start()
        return self.name

    @property
    def enlisted(self) -> bool:
        """Whether it has registered, and beats."""
        return self._thread is not None

    def is_sure_of(self, lease: Lease) -> bool:
        """Whether nobody can have claimed the run since this was known: the leases held all the time, and hold now."""
        return self._clock.monotonic() < self.until and lease.lapses == self.lapses  # see the order in `_extend`

    def confirm(self, lease: Lease) -> None:
        """Beat if the leases are about to end, and ask the store whether the run is still held here.

        Raises `LeaseLost` if it is not: this process was stopped for too long, and another one claimed the run.
        """
        self.keep()
        lapses = self.lapses
        if not lease.is_current():
            raise LeaseLost(lease.record.id)
        lease.lapses = lapses

    def keep(self) -> None:
        """Beat now, if the leases are about to end: this process may have been stopped."""
        with self._lock:
            if self._thread is not None and self._is_ending():
                self._extend()

    def _is_ending(self) -> bool:
        return self._clock.monotonic() > self.until - int(self.lease * 500_000)

    def _extend(self) -> None:
        now = self._clock.monotonic()
        self.store.beat(self.name, self.lease)
        self.lapses += self._clock.monotonic() >= self.until  # it is known only now that the beat was made
        self.until = now + int(self.lease * 1_000_000)

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
