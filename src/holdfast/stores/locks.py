"""Operating-system locks: on what is written together, and those that tell whether a worker on this machine is alive.

A worker holds a lock on a file of its own for as long as its process lives. When the process is killed the system
frees the lock at once, so that its runs can be claimed without waiting for the time limit of the lease.

A lock belongs to the open file, and a forked child gets a copy of every open file; its copy would keep the lock of a
parent that was killed. So the child closes the copies first of all.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress

_flock, _AT_ONCE, _FREE = fcntl.flock, fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN  # at hand: each write needs them
_open: set[LockFile] = set()
MAX_NAME = 200  # of a worker, in characters
_MARK = struct.Struct("<qd")  # process, time


class LockFile:
    """An open file to be locked. In a forked child it is closed."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        _open.add(self)

    def take_within(self, seconds: float, how: int = fcntl.LOCK_EX) -> bool:
        """Wait for the lock this long and take it. False if it could not be had: its holder stands still."""
        at_once = how | fcntl.LOCK_NB
        if self._try(at_once):
            return True
        wait, until = 0.0001, time.monotonic() + seconds
        while time.monotonic() <= until:
            time.sleep(wait)
            if self._try(at_once):
                return True
            wait = min(wait * 1.5, 0.005)
        return False

    def _try(self, at_once: int = _AT_ONCE) -> bool:
        try:
            _flock(self.fd, at_once)
        except BlockingIOError:
            return False
        return True

    def free(self) -> None:
        """Give the lock up."""
        if self.fd >= 0:
            _flock(self.fd, _FREE)

    def is_at(self, path: str) -> bool:
        """Whether this is still the file that others find at the path."""
        try:
            return os.path.samestat(os.fstat(self.fd), os.stat(path))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file, which gives the lock up. May be repeated."""
        _open.discard(self)
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


class Presence(LockFile):
    """A lock that all who have something open share, and whose file says whether the last of them closed it."""

    def __init__(self, path: str) -> None:
        super().__init__(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        self.alone = self._try()
        self.left_open = self.alone and os.fstat(self.fd).st_size > 0
        fcntl.flock(self.fd, fcntl.LOCK_SH)  # at once: a process that is stopped while it opens keeps nobody out

    def come_in(self) -> None:
        """From now on somebody has it open."""
        os.pwrite(self.fd, b"open", 0)

    def leave(self) -> None:
        """Note that it was closed, if nobody else has it open; and close the file."""
        if self.fd >= 0 and self._try():
            os.ftruncate(self.fd, 0)
        self.close()


def _close_copies() -> None:
    for lock in list(_open):
        lock.close()


os.register_at_fork(after_in_child=_close_copies)


class WorkerLocks:
    """One file per worker in a folder; the file is locked while the worker lives.

    The lock of a worker can be held, free, or missing. Free means that its process has ended. Missing means nothing:
    somebody may have tidied the folder away, and the worker makes its lock again at its next heartbeat.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._held: dict[str, LockFile] = {}

    def hold(self, worker: str) -> None:
        """Take the lock. The file gets its name only when it is locked, so nobody ever sees it unlocked before."""
        if worker not in self._held:
            self._make(worker)

    def restore(self, worker: str) -> None:
        """Make a lock that is held here again if its file was removed."""
        held = self._held.get(worker)
        if held is not None and not held.is_at(self._path(worker)):
            self._make(worker)
            held.close()

    def _make(self, worker: str) -> None:
        path = self._path(worker)
        with suppress(FileExistsError):
            os.mkdir(self.folder)  # and not what is above it: a store that was removed is not to come back
        lock = LockFile(os.open(path + ".new", os.O_CREAT | os.O_RDWR, 0o600))
        fcntl.flock(lock.fd, fcntl.LOCK_EX)
        os.rename(path + ".new", path)
        self._held[worker] = lock

    def _path(self, worker: str) -> str:
        return os.path.join(self.folder, f"{worker}.lock")

    def is_running(self, worker: str) -> bool | None:
        """Whether the worker's process runs, stopped or not.

        None if that cannot be known: its lock is missing, or belongs to another user. Then its term alone decides.
        """
        if worker in self._held:
            return True
        if "/" in worker or "\0" in worker or len(worker) > MAX_NAME:
            return False  # no worker has such a name, so where it stands is damaged
        try:
            fd = os.open(self._path(worker), os.O_RDONLY)
        except (FileNotFoundError, PermissionError):
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def ended(self) -> list[str]:
        """The workers whose processes have ended. Forget their leases first, and only then `release` their locks."""
        names = [name.removesuffix(".lock") for name in os.listdir(self.folder) if name.endswith(".lock")]
        return [worker for worker in names if self.is_running(worker) is False]

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
