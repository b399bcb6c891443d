"""The only source of time, ids and randomness, so that tests can put their own in its place."""

from __future__ import annotations

import os
import time
from functools import cache
from hashlib import blake2b


class Clock:
    """What the rest of Holdfast asks for time, sleep and randomness."""

    @property
    def boot(self) -> int:
        """Names this boot of the machine. Two readings of `monotonic` can be compared only if it is the same."""
        raise NotImplementedError

    def now_ns(self) -> int:
        """Nanoseconds since 1970, UTC."""
        raise NotImplementedError

    def monotonic_ns(self) -> int:
        """Nanoseconds on a clock that nobody can set. It stands still while the machine sleeps."""
        raise NotImplementedError

    def sleep(self, seconds: float) -> None:
        """Wait."""
        raise NotImplementedError

    def random_bytes(self, n: int) -> bytes:
        """Unpredictable bytes, for ids, keys and nonces."""
        raise NotImplementedError

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        return self.now_ns() // 1000

    def monotonic(self) -> int:
        """Microseconds on the clock that nobody can set."""
        return self.monotonic_ns() // 1000


class SystemClock(Clock):
    """The machine's clock and its random source."""

    now_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)

    @property
    def boot(self) -> int:
        return _boot()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def random_bytes(self, n: int) -> bytes:
        return os.urandom(n)


BOOT_ID = "/proc/sys/kernel/random/boot_id"  # of Linux; every container of a machine sees the same one


@cache
def _boot() -> int:
    """The number of this boot; 0 where the system does not name its boots. Then only locks tell that a worker ended."""
    try:
        with open(BOOT_ID, "rb") as file:
            name = file.read()
    except OSError:
        name = _sysctl(b"kern.bootsessionuuid") or _sysctl(b"kern.boot_id")  # of macOS, of FreeBSD
    return int.from_bytes(blake2b(name, digest_size=7).digest()) if name else 0


def _sysctl(name: bytes) -> bytes:
    """A setting of a BSD system, as text; nothing if there is none of that name."""
    import ctypes

    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if ask is None:
        return b""
    text, size = ctypes.create_string_buffer(64), ctypes.c_size_t(64)
    return text.value if ask(name, text, ctypes.byref(size), None, ctypes.c_size_t(0)) == 0 else b""


def new_uid(clock: Clock, now: int | None = None) -> str:
    """A journal's uid: 24 hexadecimal digits that sort by the time they were made, which may be told.

    A run is made at the time that its uid begins with, so that runs of some time are found by their uids.
    """
    return f"{clock.now() if now is None else now:013x}{clock.random_bytes(6).hex()[:11]}"
