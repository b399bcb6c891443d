"""Noticing that something happened in the store: rung within the process, and looked for across processes.

Whoever posts, enqueues or lets go of a run rings the bell of its own engine. What other processes commit is noticed by
the store's version. On one machine that costs next to nothing to ask for: one look every few milliseconds for the whole
process, however many runs wait, and none while nobody listens. Who listens in a store that is busy is woken no more
often than that. A store across a network tells by itself (`holdfast.stores.protocol.Telling`), and is asked now and
then, in case that was lost.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast.engine.access.offload import aside
from holdfast.stores.protocol import Store, Telling

if TYPE_CHECKING:
    import asyncio

Heard = tuple[int, int]  # the store's version, and how often the bell was rung


class Bell:
    """Rings when something was committed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()  # not the condition: an interrupt in its __enter__ leaves it locked
        self._rung = threading.Condition(self._lock)
        self._count = 0
        self._loops: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._attends = not isinstance(store, Telling)

    def heard(self) -> Heard:
        """What to give to `listen`, asked for before looking at the store."""
        count = self._count
        return self._store.version(), count

    def ring(self) -> None:
        """Wake everybody of this process who listens."""
        with self._lock:
            self._count += 1
            self._rung.notify_all()
            waiting = list(self._loops.items())
        for event, loop in waiting:
            with suppress(RuntimeError):  # its loop is closed, so nobody waits there any longer
                loop.call_soon_threadsafe(event.set)

    def announce(self) -> None:
        """Wake everybody who listens, in other processes too: something was set that workers go by."""
        if isinstance(self._store, Telling):
            self._store.tell()
        self.ring()

    def _attend(self) -> None:
        """From the first time on that somebody listens here, let the store tell."""
        if not self._attends:
            self._attends = True
            assert isinstance(self._store, Telling)
            self._store.listen(lambda uid: self.ring())

    def listen(self, heard: Heard, seconds: float | None) -> None:
        """Return when something was committed since, or after that many seconds."""
        self._attend()
        until = None if seconds is None else time.monotonic() + seconds
        while True:
            every = self._store.look_every
            left = every if until is None else min(every, until - time.monotonic())
            if left <= 0:
                return
            with self._lock:
                rung = self._count != heard[1] or self._rung.wait(left)
            if rung or self.heard() != heard:
                return

    async def listen_async(self, heard: Heard, seconds: float | None, *, here: bool = False) -> None:
        """The same for a caller on an event loop. With ``here``, what other processes commit is of no interest."""
        import asyncio

        self._attend()
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        until = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            self._loops[event] = loop
        try:
            await asyncio.sleep(0)  # the others of this loop get their turn, whatever happens
            while self._count == heard[1]:
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return
                if not here:
                    every = self._store.look_every
                    left = every if left is None else min(every, left)
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):  # wait_for would lose a cancellation that comes with the event
                        await event.wait()
                if not here and await aside(self._store, self.heard) != heard:
                    return
        finally:
            with self._lock:
                del self._loops[event]
