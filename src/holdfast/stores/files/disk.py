"""Every call by which the files store changes the disk, one small method per system call.

A test puts a subclass in its place: it can fail or "crash" at the n-th call, before it, after it or halfway through
a write, and it can keep account of what would survive a power failure. What survives is what was synced: the
contents of a file by `Disk.fsync`, and the names in a folder (made, renamed, removed) by `Disk.fsync_folder`.

Reading does not pass through here, and neither do the locks, which leave nothing behind that anybody relies on.
"""

from __future__ import annotations

import fcntl
import os
import sys


class File:
    """A file that is open for writing at its end."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd


class Disk:
    """The disk as it is. All methods raise `OSError` as the system does."""

    def create(self, path: str) -> File:
        """Open an empty file; one of this name that was left behind is emptied."""
        return File(path, os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_APPEND, 0o666))

    def open(self, path: str) -> File:
        """Open a file that exists."""
        return File(path, os.open(path, os.O_RDWR | os.O_APPEND))

    def write(self, file: File, data: bytes) -> None:
        """Write at the end of the file. After an error a part of the data may stand there."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file.fd, rest) :]

    def truncate(self, file: File, size: int) -> None:
        """Cut the file off."""
        os.ftruncate(file.fd, size)

    def fsync(self, file: File) -> None:
        """Wait until the contents of the file, and its size, are on the disk."""
        if sys.platform == "darwin":
            fcntl.fcntl(file.fd, fcntl.F_FULLFSYNC)  # fsync there does not reach the disk
        else:
            os.fdatasync(file.fd)

    def close(self, file: File) -> None:
        """Let go of the file. Nothing is promised about what was not synced."""
        os.close(file.fd)

    def fsync_folder(self, path: str) -> None:
        """Wait until the names in the folder are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, old: str, new: str) -> None:
        """Give a file another name, in place of the file that had it."""
        os.replace(old, new)

    def rename(self, old: str, new: str) -> None:
        """Give a folder another name, which nothing has."""
        os.rename(old, new)

    def mkdir(self, path: str) -> None:
        """Make a folder."""
        os.mkdir(path)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)


def write_file(disk: Disk, path: str, data: bytes, *, sync: bool = True) -> None:
    """Make a file with these contents. Its name is lasting only when its folder is synced too."""
    file = disk.create(path)
    try:
        disk.write(file, data)
        if sync:
            disk.fsync(file)
    finally:
        disk.close(file)


def replace_file(disk: Disk, path: str, data: bytes, *, sync: bool = True) -> None:
    """Put these contents in the place of the file, so that at any moment it has the old ones or the new ones."""
    write_file(disk, path + ".new", data, sync=sync)
    disk.replace(path + ".new", path)
    if sync:
        disk.fsync_folder(os.path.dirname(path))


def sync_file(disk: Disk, path: str) -> None:
    """Wait until what others wrote into the file is on the disk."""
    file = disk.open(path)
    try:
        disk.fsync(file)
    finally:
        disk.close(file)


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a folder with all that is in it. May be repeated after it was interrupted."""
    with os.scandir(path) as found:
        parts = list(found)
    for part in parts:
        if part.is_dir(follow_symlinks=False):
            remove_tree(disk, part.path)
        else:
            disk.unlink(part.path)
    disk.rmdir(path)
