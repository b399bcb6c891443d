"""The only source of time, ids and randomness, so that tests can put their own in its place."""

from __future__ import annotations

import os
import time
from typing import Protocol


class Clock(Protocol):
    """What the rest of Holdfast asks for time, sleep and randomness."""

    def now(self) -> int:
        """Microseconds since 1970, UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def random_bytes(self, n: int) -> bytes:
        """Unpredictable bytes, for ids, keys and nonces."""


class SystemClock:
    """The machine's clock and its random source."""

    def now(self) -> int:
        return time.time_ns() // 1000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def random_bytes(self, n: int) -> bytes:
        return os.urandom(n)


def new_uid(clock: Clock, now: int | None = None) -> str:
    """A journal's uid: 24 hexadecimal digits that sort by the time they were made, which may be told.

    A run is made at the time that its uid begins with, so that runs of some time are found by their uids.
    """
    return f"{clock.now() if now is None else now:013x}{clock.random_bytes(6).hex()[:11]}"
