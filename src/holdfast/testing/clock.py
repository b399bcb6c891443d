"""A clock that moves only when it is told to, with randomness that can be repeated."""

from __future__ import annotations

import random
import threading
from typing import Any

START = 1_700_000_000_000_000  # in November 2023


class ManualClock:
    """A `holdfast.clock.Clock` for tests. It may be shared by many handles and threads.

    Two clocks with the same seed give the same bytes, so a test that uses one is the same each time.
    """

    def __init__(self, start: int = START, *, seed: int = 0) -> None:
        self._now = start
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._began = self.mark()

    def __repr__(self) -> str:
        return f"<ManualClock at {self._now}>"

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        return self._now

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
        return self._now, self._random.getstate()

    def reset(self, mark: Any = None) -> None:
        """Go back to a moment that `mark` gave, or to the beginning. Only for a store that goes back too."""
        with self._lock:
            self._now, state = mark or self._began
            self._random.setstate(state)

    def random_bytes(self, n: int) -> bytes:
        """Bytes that depend on the seed alone."""
        with self._lock:
            return self._random.randbytes(n)
