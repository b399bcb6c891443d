"""Room in SQLite's write-ahead log, made before a commit needs it.

A commit that makes the log longer takes about twice as long as one that writes over what is there: its sync has to
note the file's new length and blocks, too. SQLite begins the log anew after a thousand pages and from then on writes
over it, but a process that makes a few hundred commits never gets that far.

So after a commit that made the log longer, the log is doubled with zeros, by a megabyte at most. SQLite takes them
for no frame of its own, since it finds the end of the log by checksums and not by the length of the file. The system
puts them behind whatever is there at that moment, so nothing that others write meanwhile is lost, without any lock.
"""

from __future__ import annotations

import logging
import os
import weakref

AT_ONCE = 1 << 20  # bytes: the next sync has to write them, too


class Log:
    """The write-ahead log of a database that is open."""

    def __init__(self, file: int) -> None:
        self.fd = file
        self._close = weakref.finalize(self, os.close, file)  # a log that was removed keeps its space while it is open

    def length(self) -> int:
        """Bytes, with the room in it."""
        return os.lseek(self.fd, 0, os.SEEK_END)

    def lengthen(self) -> None:
        """Make room in it. Where that fails, there is none, and the next commit says what is wrong, if it still is."""
        try:
            os.write(self.fd, bytes(min(self.length(), AT_ONCE)))
        except OSError as error:
            logging.getLogger("holdfast").debug("no room was made in the write-ahead log: %s", error)

    def empty(self) -> None:
        """Throw away all that is in it. Whoever has the database open with it can no longer use it."""
        os.ftruncate(self.fd, 0)

    def close(self) -> None:
        """It has no locks that would be lost with it: SQLite's are on other files."""
        self._close()


def log_of(database: str) -> Log | None:
    """The log of a database that is open; none, where its file system is not fit for one, or it may only be read."""
    try:
        return Log(os.open(database + "-wal", os.O_WRONLY | os.O_APPEND))
    except (FileNotFoundError, PermissionError):
        return None
