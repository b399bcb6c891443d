"""Crashes at every point where it matters: counted first, then made, one after the other.

A `Fuse` counts the points of a piece of work. With a number it **blows** at that point: `Crash` is raised there, and
by every later use of the same store, since a dead process does nothing more. What counts as a point depends on the
store, and each has a form that is watched by a fuse:

- `CrashDisk`, for the files store: before and after each call that changes the disk, and halfway through each write;
- `CrashSqliteStore`: before each commit (the transaction is lost) and after it (nobody learns that it was made);
- `CrashStore`, around any store at all: before and after each method that changes something.

`distinct` picks, of points between which nothing changed, the last one: what the next process finds is the same, and
the most has been acknowledged.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from holdfast.errors import HoldfastError
from holdfast.kernel.clock import Clock
from holdfast.kernel.model import (
    Backlog,
    Document,
    Enlisted,
    Entry,
    Filter,
    Item,
    Order,
    Outlook,
    RunRecord,
    Status,
    Write,
)
from holdfast.kernel.rules import LIVE, Outcome
from holdfast.stores.files.disk import Disk, File
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite.store import SqliteStore

T = TypeVar("T")


class Crash(BaseException):
    """The process is dead."""


class Fuse:
    """Counts crash points, and blows at one of them. ``at`` is the number of that point, from 0; None: never."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.dead = False
        self.points: list[tuple[str, int]] = []  # what each one was, and how many changes had been made by then
        self.changes = 0

    def check(self) -> None:
        """Raise `Crash` if the process is dead already."""
        if self.dead:
            raise Crash

    def strikes(self, what: str) -> bool:
        """Count a point; whether this is the one at which to crash. The caller then calls `blow`."""
        self.check()
        self.points.append((what, self.changes))
        return len(self.points) - 1 == self.at

    def blow(self) -> None:
        """Die."""
        self.dead = True
        raise Crash

    def point(self, what: str) -> None:
        """Count a point, and die if it is the one."""
        if self.strikes(what):
            self.blow()

    def changed(self) -> None:
        """Something changed that the next process can see."""
        self.changes += 1

    def distinct(self) -> list[int]:
        """The last of each stretch of points between which nothing changed."""
        return [
            n
            for n, (_, changes) in enumerate(self.points)
            if n + 1 == len(self.points) or self.points[n + 1][1] != changes
        ]


class CrashDisk(Disk):
    """A disk for `FilesStore` on which the fuse can blow at every call."""

    def __init__(self, fuse: Fuse) -> None:
        self.fuse = fuse

    def create(self, path: str) -> File:
        self.fuse.point(f"before create {_short(path)}")
        file = super().create(path)
        self.fuse.changed()
        if self.fuse.strikes(f"after create {_short(path)}"):
            super().close(file)
            self.fuse.blow()
        return file

    def open(self, path: str) -> File:
        self.fuse.check()
        return super().open(path)

    def write(self, file: File, data: bytes) -> None:
        self.fuse.point(f"before write {_short(file.path)}")
        half = len(data) // 2
        self.fuse.changed()
        if self.fuse.strikes(f"half of write {_short(file.path)}"):
            super().write(file, data[:half])
            self.fuse.blow()
        super().write(file, data)
        self.fuse.changed()
        self.fuse.point(f"after write {_short(file.path)}")

    def truncate(self, file: File, size: int) -> None:
        self.fuse.point(f"before truncate {_short(file.path)}")
        super().truncate(file, size)
        self._done(f"truncate {_short(file.path)}")

    def fsync(self, file: File) -> None:
        self.fuse.point(f"before fsync {_short(file.path)}")
        super().fsync(file)
        self.fuse.point(f"after fsync {_short(file.path)}")

    def close(self, file: File) -> None:
        super().close(file)  # also when dead: the system closes a dead process's files
        self.fuse.check()

    def fsync_folder(self, path: str) -> None:
        self.fuse.point(f"before fsync {_short(path)}/")
        super().fsync_folder(path)
        self.fuse.point(f"after fsync {_short(path)}/")

    def replace(self, old: str, new: str) -> None:
        self.fuse.point(f"before replace {_short(new)}")
        super().replace(old, new)
        self._done(f"replace {_short(new)}")

    def rename(self, old: str, new: str) -> None:
        self.fuse.point(f"before rename {_short(old)}")
        super().rename(old, new)
        self._done(f"rename {_short(old)}")

    def mkdir(self, path: str) -> None:
        self.fuse.point(f"before mkdir {_short(path)}")
        super().mkdir(path)
        self._done(f"mkdir {_short(path)}")

    def unlink(self, path: str) -> None:
        self.fuse.point(f"before unlink {_short(path)}")
        super().unlink(path)
        self._done(f"unlink {_short(path)}")

    def rmdir(self, path: str) -> None:
        self.fuse.point(f"before rmdir {_short(path)}")
        super().rmdir(path)
        self._done(f"rmdir {_short(path)}")

    def _done(self, what: str) -> None:
        self.fuse.changed()
        self.fuse.point(f"after {what}")


def _short(path: str) -> str:
    return os.path.join(*path.rsplit(os.sep, 2)[-2:])


class CrashSqliteStore(SqliteStore):
    """A SQLite store on which the fuse can blow at every commit.

    After that `drop` leaves the files as a killed process does, with the log of the last commits not yet merged.
    """

    def __init__(self, path: str, fuse: Fuse, *, durability: str = "full", clock: Clock | None = None) -> None:
        self.fuse = fuse
        super().__init__(path, durability=durability, clock=clock)

    def _commit(self, statement: str = "COMMIT", values: Sequence[Any] = ()) -> sqlite3.Cursor:
        self.fuse.point("before commit")
        cursor = super()._commit(statement, values)
        self.fuse.changed()
        self.fuse.point("after commit")
        return cursor

    def _check_usable(self) -> None:
        self.fuse.check()
        super()._check_usable()

    def drop(self) -> None:
        kept = {path: _bytes_of(path) for path in (self.path, self.path + "-wal")} if self.fuse.dead else {}
        super().drop()
        for path, data in kept.items():
            if data is not None:
                with open(path, "wb") as file:
                    file.write(data)


def _bytes_of(path: str) -> bytes | None:
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return file.read()


class CrashStore:
    """Any store, with a fuse that can blow before and after each of its changes."""

    def __init__(self, store: Store, fuse: Fuse) -> None:
        self.store = store
        self.fuse = fuse
        self.place = store.place
        self.clock = store.clock
        self.compress_over = store.compress_over
        self.networked = store.networked
        self.look_every = store.look_every

    # --- reads: the dead read nothing

    def _alive(self) -> Store:
        self.fuse.check()
        return self.store

    def get(self, id: str | None = None, *, uid: str | None = None) -> RunRecord | None:
        return self._alive().get(id, uid=uid)

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> list[RunRecord]:
        return self._alive().find(filter, before=before, limit=limit)

    def read(
        self, uid: str, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        return self._alive().read(uid, lo, hi, saved=saved, payloads=payloads, limit=limit)

    def inbox(self, uid: str, *, taken: bool = False) -> list[Item]:
        return self._alive().inbox(uid, taken=taken)

    def look(self, queues: Collection[str], workflows: Collection[str], *, limit: int = 100) -> Outlook:
        return self._alive().look(queues, workflows, limit=limit)

    def backlog(self) -> dict[str, Backlog]:
        return self._alive().backlog()

    def documents(self, kind: str, name: str | None = None) -> list[Document]:
        return self._alive().documents(kind, name)

    def counts(self, upto: int) -> dict[Status, int]:
        return self._alive().counts(upto)

    def workers(self) -> list[Enlisted]:
        return self._alive().workers()

    def version(self) -> int:
        return self._alive().version()

    # --- changes

    def _change(self, what: str, make: Callable[[], T]) -> T:
        self.fuse.point(f"before {what}")
        made = make()
        self.fuse.changed()
        self.fuse.point(f"after {what}")
        return made

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        return self._change("apply", lambda: self.store.apply(batch))

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE, *, alone: bool = False) -> RunRecord:
        return self._change("claim", lambda: self.store.claim(uid, worker, allow, alone=alone))

    def take(self, order: Order) -> list[RunRecord]:
        return self._change("take", lambda: self.store.take(order))

    def put_document(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        return self._change("put_document", lambda: self.store.put_document(kind, name, value, expected))

    def beat(self, worker: str, lease: float) -> None:
        self._change("beat", lambda: self.store.beat(worker, lease))

    def delete(self, records: Sequence[RunRecord]) -> list[bool | HoldfastError]:
        return self._change("delete", lambda: self.store.delete(records))

    def close(self) -> None:
        self._change("close", self.store.close)

    def drop(self) -> None:
        """Give the store up as a killed process does, if it can; else close it."""
        getattr(self.store, "drop", self.store.close)()
