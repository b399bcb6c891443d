"""Operating-system locks: on what is written together, and those that tell whether a worker on this machine is alive.

A worker holds a lock on a file of its own for as long as its process lives. When the process is killed the system
frees the lock at once, so that its runs can be claimed without waiting for the time limit of the lease.

A lock belongs to the open file, and a forked child gets a copy of every open file; its copy would keep the lock of a
parent that was killed. So the child closes the copies first of all.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from contextlib import suppress
from typing import NamedTuple

_flock, _AT_ONCE, _FREE = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN  # at hand: each write needs them
_open: set[LockFile] = set()
_PID, _TIME = struct.Struct("<q"), struct.Struct("<d")


class LockFile:
    """An open file to be locked. In a forked child it is closed."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        _open.add(self)

    def take(self, how: int = fcntl.LOCK_EX) -> None:
        """Wait for the lock and take it."""
        fcntl.flock(self.fd, how)

    def take_within(self, seconds: float) -> bool:
        """Wait for the lock this long and take it. False if it could not be had: its holder stands still."""
        try:
            _flock(self.fd, _AT_ONCE)
            return True
        except BlockingIOError:
            pass
        wait, until = 0.0001, time.monotonic() + seconds
        while time.monotonic() <= until:
            time.sleep(wait)
            if self._try():
                return True
            wait = min(wait * 1.5, 0.005)
        return False

    def _try(self) -> bool:
        try:
            _flock(self.fd, _AT_ONCE)
        except BlockingIOError:
            return False
        return True

    def free(self) -> None:
        """Give the lock up."""
        if self.fd >= 0:
            _flock(self.fd, _FREE)

    def close(self) -> None:
        """Close the file, which gives the lock up. May be repeated."""
        _open.discard(self)
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class Holder(NamedTuple):
    """The process that has a turn, or had the last one."""

    pid: int
    since: float  # seconds since 1970


class Turns(LockFile):
    """A lock by which several take turns, and which tells whether another one had a turn meanwhile.

    Who has the lock leaves a mark in its file: its process and a random number. While the mark is one's own, nobody
    else has had it. Behind the mark is the time of the last turn, for those who wait in vain.
    """

    def __init__(self, path: str) -> None:
        super().__init__(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self.in_a_row = False  # whether nobody else had a turn before the present one
        self._name = _PID.pack(os.getpid()) + os.urandom(8)
        os.ftruncate(self.fd, len(self._name) + _TIME.size)
        # Python keeps a copy of the file that it maps. A copy of the locked one would keep the lock in a forked child.
        other = os.open(path, os.O_RDWR)
        try:
            self._mark = mmap.mmap(other, len(self._name))
        finally:
            os.close(other)

    def take_within(self, seconds: float) -> bool:
        try:
            _flock(self.fd, _AT_ONCE)
        except BlockingIOError:
            if not super().take_within(seconds):
                return False
        self.in_a_row = self._mark[:] == self._name
        if not self.in_a_row:
            self._mark[:] = self._name
        os.pwrite(self.fd, _TIME.pack(time.time()), len(self._name))
        return True

    def holder(self) -> Holder | None:
        """Who has the turn, or had the last one; None if nobody had any."""
        mark = os.pread(self.fd, len(self._name) + _TIME.size, 0)
        if len(mark) < len(self._name) + _TIME.size or not any(mark):
            return None
        return Holder(*_PID.unpack_from(mark), *_TIME.unpack_from(mark, len(self._name)))

    def close(self) -> None:
        super().close()
        self._mark.close()


def _close_copies() -> None:
    for lock in list(_open):
        lock.close()


os.register_at_fork(after_in_child=_close_copies)


class WorkerLocks:
    """One file per worker in a folder; the file is locked while the worker lives."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._held: dict[str, LockFile] = {}

    def hold(self, worker: str) -> None:
        """Take the lock. The file gets its name only when it is locked, so nobody ever sees it unlocked before."""
        if worker in self._held:
            return
        os.makedirs(self.folder, exist_ok=True)
        path = self._path(worker)
        lock = LockFile(os.open(path + ".new", os.O_CREAT | os.O_RDWR, 0o600))
        lock.take()
        os.rename(path + ".new", path)
        self._held[worker] = lock

    def _path(self, worker: str) -> str:
        return os.path.join(self.folder, f"{worker}.lock")

    def is_held(self, worker: str) -> bool:
        """Whether the worker's process lives."""
        if worker in self._held:
            return True
        try:
            fd = os.open(self._path(worker), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def sweep(self) -> list[str]:
        """Remove the files of workers that are gone; their names."""
        gone = []
        for name in os.listdir(self.folder):
            worker = name.removesuffix(".lock")
            if worker != name and not self.is_held(worker):
                self.release(worker)
                gone.append(worker)
        return gone

    def workers(self) -> list[str]:
        """The workers that this handle holds locks for."""
        return list(self._held)

    def release(self, worker: str) -> None:
        """Give up the lock and remove its file."""
        lock = self._held.pop(worker, None)
        with suppress(FileNotFoundError):
            os.unlink(self._path(worker))
        if lock is not None:
            lock.close()

    def drop(self) -> None:
        """Let go of all locks and leave the files, as a killed process does."""
        for lock in self._held.values():
            lock.close()
        self._held.clear()
