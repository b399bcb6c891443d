"""The root folder of a files store: whose it is, the lock on it, and what the system's errors mean there."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import msgspec

from holdfast.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreReplaced,
    StoreTooNew,
    StoreUnusable,
)
from holdfast.stores.files.disk import Disk, replace_file
from holdfast.stores.lock_holder import take_folder
from holdfast.stores.locks import LockFile
from holdfast.stores.mounts import check_disk
from holdfast.stores.protocol import READER, WRITER

FORMAT = "holdfast files"
FOLDERS = ("runs", "hidden", "workers")
REPLACED = (
    "another folder was put in its place while it was open, such as a restored backup, or it was removed; "
    "open the store again"
)

_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)
_NO_PLACE = (errno.ENOENT, errno.ENAMETOOLONG, errno.EINVAL, errno.ELOOP)  # for a folder
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # the process has too much of something; the disk is well


class _About(msgspec.Struct):
    """What holdfast.json says."""

    format: str
    oldest_reader: int
    oldest_writer: int


class Root:
    """A handle on the root folder. After a failure of the disk, or in a forked child, it can no longer be used."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = os.path.abspath(path)
        self.place = f"files:///{self.path}"
        self._disk = disk
        self._pid = os.getpid()
        self._unusable: str | None = None
        self._synced = False
        self._rung = 0
        self._inode: tuple[int, int] | None = None  # of the folder that was opened

    def within(self, *names: str) -> str:
        """The path of something in the folder."""
        return os.path.join(self.path, *names)

    # --- opening

    def open(self) -> None:
        """Check that the folder is a store that this code can use; make it one if it is new or empty."""
        with self.translated():
            check_disk(self.place, self.path)
            if os.path.exists(self.path) and not os.path.isdir(self.path):
                raise StoreError(self.place, "it is a file, not a folder; choose another path")
            if not os.path.exists(self.within("holdfast.json")):
                self._found()
            self._check_format()
            self._inode = self._present()

    def _present(self) -> tuple[int, int] | None:
        """Which folder the path names now."""
        try:
            found = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def _found(self) -> None:
        try:
            self.make(self.path)
        except OSError as error:
            if error.errno not in _NO_PLACE:
                raise
            raise StoreError(
                self.place, f"the folder cannot be made there ({error.strerror}: {error.filename}); choose another path"
            ) from error
        if not self._is_blank() and not os.path.exists(self.within("holdfast.json")):
            raise StoreError(self.place, "the folder is not empty and belongs to something else; choose another path")
        with self.locked():
            if os.path.exists(self.within("holdfast.json")):
                return  # another process was faster
            for name in FOLDERS:
                self.make(self.within(name))
            about = msgspec.json.encode(_About(FORMAT, READER, WRITER))
            replace_file(self._disk, self.within("holdfast.json"), msgspec.json.format(about, indent=2) + b"\n")

    def make(self, path: str) -> None:
        """Make a folder, and those above it, lasting."""
        if not os.path.isdir(path):
            self.make(os.path.dirname(path))
            with suppress(FileExistsError):
                self._disk.mkdir(path)
            self._disk.fsync_folder(os.path.dirname(path))

    def _is_blank(self) -> bool:
        """Whether there is nothing but what an interrupted founding leaves."""
        names = set(os.listdir(self.path))
        ours = names <= {"lock", "holdfast.json.new", *FOLDERS}
        return ours and not any(os.listdir(self.within(name)) for name in names.intersection(FOLDERS))

    def _check_format(self) -> None:
        with open(self.within("holdfast.json"), "rb") as file:
            text = file.read()
        try:
            about = msgspec.json.decode(text, type=_About)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreDamaged(
                self.place, f"{self.within('holdfast.json')} is damaged ({error}); restore it from a backup"
            ) from None
        if about.format != FORMAT:
            raise StoreError(self.place, f"the folder belongs to something else ({about.format}); choose another path")
        if about.oldest_reader > READER or about.oldest_writer > WRITER:
            raise StoreTooNew(
                self.place,
                f"it needs a Holdfast that reads format {about.oldest_reader} and writes format "
                f"{about.oldest_writer}, this one has {READER} and {WRITER}; upgrade Holdfast",
            )

    # --- use

    @property
    def usable(self) -> bool:
        return self._unusable is None and os.getpid() == self._pid

    def give_up(self, reason: str) -> None:
        """From now on every use is refused for this reason."""
        self._unusable = reason

    def check_usable(self) -> None:
        """Raise `StoreUnusable` if this handle is closed, poisoned, or carried over a fork."""
        if self._unusable is not None:
            raise StoreUnusable(self.place, f"{self._unusable}; open the store again")
        if os.getpid() != self._pid:
            raise StoreUnusable(self.place, "it was opened before os.fork(); open the store again in the child")
        if self._inode is not None and self._present() != self._inode:
            raise StoreReplaced(self.place, REPLACED)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Turn the system's errors into ours, which name the place and the remedy."""
        self.check_usable()
        try:
            yield
        except OSError as error:
            self.refuse(error)

    def refuse(self, error: OSError) -> NoReturn:
        """Raise our error in place of the system's."""
        problem = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        if error.errno in _FULL:
            raise StoreFull(self.place) from error
        if error.errno in _REFUSED:
            raise StoreReadOnly(self.place, f"{problem}; check the permissions of the folder") from error
        if error.errno in _PASSING:
            raise StoreError(self.place, f"{problem}; try again") from error
        if error.errno == errno.ENOENT and not os.path.exists(self.within("holdfast.json")):
            self.give_up("its folder was removed while it was open")
            raise StoreUnusable(self.place, f"{self._unusable}; open the store again") from error
        # What the system holds of a file after a failed write or sync is not known, so nothing is built upon it.
        self.give_up(f"the disk failed ({problem})")
        raise StoreUnusable(self.place, f"{self._unusable}; check the disk, then open the store again") from error

    # --- the bell

    def ring(self) -> None:
        """Tell whoever asks for `heard` that something was committed.

        Nothing depends on it but how soon others look: it is not synced, and no call of the `Disk`. Where it cannot be
        done (a full disk, a file of another owner), the write that it tells about is made all the same, and the others
        find it when they look without being told.
        """
        self._rung += 1
        bell = self.within("bell")
        with suppress(OSError):
            now = time.time_ns()  # the system's own stamp is too coarse: two in a row would be the same
            try:
                os.utime(bell, ns=(now, now))
            except FileNotFoundError:
                os.close(os.open(bell, os.O_CREAT | os.O_WRONLY, 0o666))
                os.utime(bell, ns=(now, now))

    def heard(self) -> int:
        """A number that is another one after each `ring`, of this handle or of others."""
        self.check_usable()
        try:
            return os.stat(self.within("bell")).st_mtime_ns + self._rung
        except OSError:
            return self._rung

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock for what concerns more than one run. It is always taken before the lock of a run."""
        with self.holding("lock"):
            if not self._synced:
                self._sync()
            yield

    @contextmanager
    def holding(self, *names: str) -> Iterator[None]:
        """Hold a lock of the whole folder, by its file. One that was removed meanwhile keeps nobody out."""
        path, held = self.within(*names), False
        while not held:
            lock = LockFile(self._open_lock(path))
            try:
                take_folder(lock, path)
                held = lock.is_at(path)
                if held:
                    yield
            finally:
                lock.free()  # closing is not enough: a child that was forked just now may have the descriptor too
                lock.close()

    def _sync(self) -> None:
        """Make lasting what others made or moved here, who may have died before they did so."""
        for path in (self.path, self.within("hidden"), self.within("runs")):
            if os.path.isdir(path):
                self._disk.fsync_folder(path)
        self._synced = True

    def _open_lock(self, path: str) -> int:
        try:
            return os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return self._disk.create(path).fd
