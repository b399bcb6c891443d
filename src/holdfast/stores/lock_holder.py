"""Who keeps a store locked: told to those who waited for it in vain."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from holdfast.errors import StoreBusy
from holdfast.stores.locks import LockFile

FOLDER_SECONDS = 30.0  # how long a store of files is waited for; a write takes milliseconds
WRITE_LOCK = 120  # the byte of the `-shm` file that SQLite locks for a write transaction in WAL mode
MAX_COMMAND = 80


class Holder(NamedTuple):
    """The process that has the writer's lock, or had it last."""

    pid: int
    since: float  # seconds since 1970


def told(holder: Holder | None, waited: float) -> str:
    """Which process has the turn, since when, and what to do about it."""
    if holder is None:
        return f"another process kept the store locked for {waited:.0f} s; try again"
    since = f"{datetime.fromtimestamp(holder.since, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return f"{_named(holder.pid)} has kept the store locked since {since}; {_remedy(holder.pid)}"


def told_of_sqlite(path: str, waited: float) -> str:
    """The same for SQLite's own lock, which a connection of the user's own to the same file may have."""
    pid = _locked_by(path + "-shm", "POSIX", WRITE_LOCK)
    if pid is None:
        return f"another connection kept the file locked for {waited:.0f} s; try again"
    return f"a transaction of {_named(pid)} has kept the file locked for {waited:.0f} s; {_remedy(pid)}"


def take_folder(lock: LockFile, path: str, how: int = fcntl.LOCK_EX) -> None:
    """Take the lock of a folder, whose file is at the path. Raises `StoreBusy`, which names who has it."""
    if lock.take_within(FOLDER_SECONDS, how):
        return
    pid = _locked_by(path, "FLOCK")
    if pid is None:
        raise StoreBusy(path, f"another process kept it locked for {FOLDER_SECONDS:g} s; try again")
    raise StoreBusy(path, f"{_named(pid)} has kept it locked for {FOLDER_SECONDS:g} s; {_remedy(pid)}")


def _named(pid: int) -> str:
    if pid == os.getpid():
        return f"another handle or connection of this process (pid {pid})"
    command = _command(pid)
    return f"process {pid} ({command})" if command else f"process {pid}"


def _remedy(pid: int) -> str:
    if _is_stopped(pid):
        return f"it is stopped: let it continue with `kill -CONT {pid}`, or end it with `kill -KILL {pid}`"
    return "try again, or end it"


def _command(pid: int) -> str:
    """The command line of a process, as far as the system tells."""
    with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode("utf-8", "replace").replace("\0", " ").strip()
        shown = "".join(c if c.isprintable() else "?" for c in words)
        return shown if len(shown) <= MAX_COMMAND else f"{shown[:MAX_COMMAND]}..."
    return ""


def _is_stopped(pid: int) -> bool:
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    return False


def _locked_by(path: str, kind: str, byte: int | None = None) -> int | None:
    """The process that has a file, or a byte of it, locked for writing, as far as the system tells."""
    with suppress(OSError), open("/proc/locks") as file:
        found = os.stat(path)
        place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        for line in file:  # such as "1: POSIX  ADVISORY  WRITE 4711 fe:00:2236951 120 120"
            if "->" in line:  # somebody who waits
                continue
            _, its_kind, _, mode, pid, where, first, _ = line.split()[:8]
            if (its_kind, mode, where) == (kind, "WRITE", place) and (byte is None or first == str(byte)):
                return int(pid)
    return None
