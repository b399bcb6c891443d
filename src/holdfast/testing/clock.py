"""A clock that moves only when it is told to, with randomness that can be repeated."""

from __future__ import annotations

import random
import threading
from typing import Any

from holdfast.kernel.clock import Clock

START = 1_700_000_000_000_000  # in November 2023


class ManualClock(Clock):
    """A `holdfast.kernel.clock.Clock` for tests. It may be shared by many handles and threads.

    Two clocks with the same seed give the same bytes, so a test that uses one is the same each time.
    """

    def __init__(self, start: int = START, *, seed: int = 0) -> None:
        self._now = start
        self._ahead = 0  # of the monotonic clock, by as much as this one was set
        self._boot = 1
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._began = self.mark()

    def __repr__(self) -> str:
        return f"<ManualClock at {self._now}>"

    @property
    def boot(self) -> int:
        """Which boot of the machine it is; see `reboot`."""
        return self._boot

    def now_ns(self) -> int:
        """Nanoseconds since 1970, UTC."""
        return self._now * 1000

    def monotonic_ns(self) -> int:
        """Nanoseconds that pass as this clock advances, and not when it is set."""
        return (self._now - self._ahead) * 1000

    def set_ahead(self, seconds: float) -> None:
        """Set the clock forward, or back, while no time passes: as a person does, or a machine that has slept."""
        with self._lock:
            self._now += round(seconds * 1_000_000)
            self._ahead += round(seconds * 1_000_000)

    def reboot(self) -> None:
        """The machine begins anew, and its monotonic clock too."""
        with self._lock:
            self._boot += 1
            self._ahead = self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back: advance({seconds})")
        with self._lock:
            self._now += round(seconds * 1_000_000)

    def sleep(self, seconds: float) -> None:
        """Return at once, that much later."""
        self.advance(max(seconds, 0))

    def mark(self) -> Any:
        """The moment, and what comes of chance after it, to be given to `reset`."""
        return self._now, self._ahead, self._boot, self._random.getstate()

    def reset(self, mark: Any = None) -> None:
        """Go back to a moment that `mark` gave, or to the beginning. Only for a store that goes back too."""
        with self._lock:
            self._now, self._ahead, self._boot, state = mark or self._began
            self._random.setstate(state)

    def random_bytes(self, n: int) -> bytes:
        """Bytes that depend on the seed alone."""
        with self._lock:
            return self._random.randbytes(n)
