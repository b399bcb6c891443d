"""Notices that a database file was replaced while it was open: by a backup that was restored over it, say.

Another file that was **renamed** to its path is another inode. One that was **copied** over it (``cp``) is the same
inode with other contents, under the feet of all who have it open: SQLite would go on with pages that it remembers, and
with a write-ahead log that belongs to what was there before.

So the file has a **stamp**, a number that only grows: it is raised and checkpointed when a worker enlists, and raised
again after each checkpoint. Whoever sees that the file was written to (its size or time of change is another one) reads
the stamp from the file alone, without its log. If it is smaller than the one that was seen there before, the contents
are older ones. Else it was a checkpoint, by whomever, or a copy that is no older than the last checkpoint: the log
then has all that came after it, so such a copy changes nothing. Beside the locks stands the stamp that was seen last,
for those who open the store later and find the log of another file beside it. It counts until the file is opened
without any log, such as a backup that was restored as it should be or a new file: the log that comes then is its own.
And it counts until the machine is booted again: after a power failure the file may be older than what was seen of it,
and its log is its own.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from urllib.parse import quote

from holdfast.kernel.clock import SystemClock

READ = "SELECT value FROM meta WHERE name = 'stamp'"
RAISE = (
    "INSERT INTO meta (name, value) VALUES ('stamp', ?) "
    "ON CONFLICT (name) DO UPDATE SET value = max(value + 1, excluded.value)"
)
TRIES = 5  # of reading from a file into which a checkpoint is being written

REMOVED = "its file was removed or replaced while it was open, such as by a backup that was restored"
OLDER = "its contents were replaced by older ones while it was open, such as a backup that was copied over it"
FOREIGN_LOG = (
    "the file is older than the write-ahead log beside it, such as a backup that was restored and the log left there; "
    "close all that have the store open, remove {path}-wal and {path}-shm, and open it again"
)


def is_filled(path: str) -> bool:
    """Whether there is something in a file."""
    try:
        return os.path.getsize(path) > 0
    except OSError:
        return False


class Identity:
    """The file that a path named when it was opened."""

    def __init__(self, path: str, notes: str) -> None:
        self.path = path
        self._notes = notes  # the file with the stamp that was seen last
        self._uri = f"file:{quote(path)}?immutable=1"
        found = os.stat(path)
        self.inode = found.st_dev, found.st_ino
        self._stamp = self._read() or 0

    def foreign_log(self) -> str | None:
        """Why the file may not be used with the log beside it, if so.

        Without one, the log that comes is its own: the note is of contents that were there before, and is put right.
        """
        has_log = is_filled(self.path + "-wal")  # first: whoever makes a log has put the note right before
        noted = self._noted()
        stamp = self._read()
        if stamp is None or stamp >= noted:
            return None
        if has_log:
            return FOREIGN_LOG.format(path=self.path)
        self._note(stamp)
        return None

    def is_older(self) -> bool:
        """Whether the contents are older than those that were seen before."""
        seen = self._stamp  # first: while this thread reads, another one may see a newer stamp
        stamp = self._read()
        if stamp is not None and stamp < seen:
            return True
        if stamp is not None and stamp > self._stamp:
            self._stamp = stamp
            with suppress(OSError):  # it only helps those who open the store later
                self._note(stamp)
        return False

    def _note(self, stamp: int) -> None:
        with open(self._notes, "w") as file:
            file.write(f"{SystemClock().boot} {stamp}")

    def _noted(self) -> int:
        with suppress(FileNotFoundError, ValueError), open(self._notes) as file:
            boot, _, stamp = file.read().partition(" ")
            return int(stamp) if int(boot) and int(boot) == SystemClock().boot else 0
        return 0

    def _read(self) -> int | None:
        """The stamp in the file itself; None if it cannot be told."""
        for _ in range(TRIES):
            try:
                with closing(sqlite3.connect(self._uri, uri=True)) as db:
                    row = db.execute(READ).fetchone()
                return int(row[0]) if row is not None and type(row[0]) is int else 0
            except sqlite3.Error as error:
                if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # there is no such table, so all of it is in the log
                    return 0
            time.sleep(0.01)
        return None
