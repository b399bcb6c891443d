"""Operating-system locks that tell whether a worker on this machine is alive.

A worker holds a lock on a file of its own for as long as its process lives. When the process is killed the system
frees the lock at once, so that its runs can be claimed without waiting for the time limit of the lease.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress


class WorkerLocks:
    """One file per worker in a folder; the file is locked while the worker lives."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._held: dict[str, int] = {}

    def hold(self, worker: str) -> None:
        """Take the lock. The file gets its name only when it is locked, so nobody ever sees it unlocked before."""
        if worker in self._held:
            return
        os.makedirs(self.folder, exist_ok=True)
        path = os.path.join(self.folder, worker)
        fd = os.open(path + ".new", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.rename(path + ".new", path)
        self._held[worker] = fd

    def is_held(self, worker: str) -> bool:
        """Whether the worker's process lives."""
        if worker in self._held:
            return True
        try:
            fd = os.open(os.path.join(self.folder, worker), os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def workers(self) -> list[str]:
        """The workers that this handle holds locks for."""
        return list(self._held)

    def release(self, worker: str) -> None:
        """Give up the lock and remove its file."""
        fd = self._held.pop(worker, None)
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, worker))
        if fd is not None:
            os.close(fd)

    def drop(self) -> None:
        """Let go of all locks and leave the files, as a killed process does."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()
