"""Disks that fail, and a driver that writes to a store as the engine does, for the tests of the files store."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.kernel.clock import SystemClock, new_uid
from holdfast.kernel.journal import fork_lineage, genesis, next_entry
from holdfast.kernel.model import Append, Change, Create, Entry, RunRecord
from holdfast.stores.files.disk import Disk, File
from holdfast.stores.files.store import FilesStore


class Crash(BaseException):
    """The process dies here."""


class CountingDisk(Disk):
    """Counts the calls by name."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if callable(value) and not name.startswith("_"):
            super().__getattribute__("calls").append(name)
        return value


class CrashDisk(Disk):
    """Dies at the n-th call: before it, after it, or halfway through a write. From then on nothing works."""

    def __init__(self, at: int, how: str, *_: object) -> None:
        self.at, self.how, self.count = at, how, 0

    def __getattribute__(self, name: str) -> object:
        value = super().__getattribute__(name)
        if name.startswith("_") or name == "close" or not callable(value):
            return value
        return lambda *args: self._call(name, value, args)

    def _call(self, name: str, do: Callable[..., object], args: tuple[object, ...]) -> object:
        self.count += 1
        if self.count > self.at:
            raise Crash
        if self.count < self.at:
            return do(*args)
        if self.how == "half" and name == "write":
            file, data = args
            assert isinstance(file, File)
            assert isinstance(data, bytes)
            do(file, data[: len(data) // 2])
        if self.how == "after":
            do(*args)
        raise Crash


class Node:
    """A file or folder as it is on the disk: what was synced, and for a folder also what is there now."""

    def __init__(self, folder: bool) -> None:
        self.folder = folder
        self.data = b""
        self.live: dict[str, Node] = {}
        self.kept: dict[str, Node] = {}


class PowerDisk(CrashDisk):
    """A disk of which, after a power failure, only that is left which was synced."""

    def __init__(self, at: int, how: str, root: Path, node: Node | None = None) -> None:
        super().__init__(at, how)
        self._root, self._node = str(root), node or Node(True)
        self.syncs = 0

    def _call(self, name: str, do: Callable[..., object], args: tuple[object, ...]) -> object:
        died = None
        try:
            result = super()._call(name, do, args)
        except Crash as crash:
            died = crash
            if self.count != self.at or self.how != "after":
                raise
        first = args[0].path if isinstance(args[0], File) else str(args[0])
        if name == "create":
            self._parent(first).live.setdefault(os.path.basename(first), Node(False))
        elif name == "mkdir":
            self._parent(first).live[os.path.basename(first)] = Node(True)
        elif name in ("unlink", "rmdir"):
            del self._parent(first).live[os.path.basename(first)]
        elif name in ("rename", "replace"):
            node = self._parent(first).live.pop(os.path.basename(first))
            self._parent(str(args[1])).live[os.path.basename(str(args[1]))] = node
        elif name == "fsync":
            self._find(first).data = Path(first).read_bytes()
            self.syncs += 1
        elif name == "fsync_folder" and first.startswith(self._root):
            node = self._find(first)
            node.kept = dict(node.live)
        if died is not None:
            raise died
        return result

    def _find(self, path: str) -> Node:
        node = self._node
        for name in os.path.relpath(path, self._root).split(os.sep):
            if name != ".":
                node = node.live[name]
        return node

    def _parent(self, path: str) -> Node:
        return self._find(os.path.dirname(path))

    def _after_power_failure(self, into: Path, *, names: bool, data: bool) -> None:
        """What the disk may hold. The names, or the data, may also be as they were last, although nobody synced."""

        def copy(node: Node, to: Path, now: Path | None) -> None:
            to.mkdir()
            for name, part in (node.live if names else node.kept).items():
                there = now / name if now is not None and node.live.get(name) is part else None
                if part.folder:
                    copy(part, to / name, there)
                elif data and there is not None and there.exists():
                    shutil.copy(there, to / name)
                else:
                    (to / name).write_bytes(part.data)

        copy(self._node, into, Path(self._root))


class Driver:
    """Writes to a store, and remembers what was acknowledged."""

    def __init__(self, store: FilesStore, worker: str = "w1") -> None:
        self.store, self.worker = store, worker
        self.clock = SystemClock()

    def enlist(self, seconds: float = 60.0) -> "Driver":
        self.store.beat(self.worker, seconds)
        return self

    def create(self, id: str, *payloads: bytes, uid: str | None = None) -> RunRecord:
        uid = uid or new_uid(self.clock)
        queue = {"queue": "q", "workflow": "w"}
        record = RunRecord(uid=uid, id=id, created_at=self.clock.now(), root=genesis(uid), **queue)
        return self.made(Create(record, tuple(chained(record.root, 0, "created", *(payloads or (b"{}",))))))

    def fork(self, parent: RunRecord, at: int, id: str) -> RunRecord:
        uid = new_uid(self.clock)
        head = self.store.read(parent.uid, at, at)[0].hash
        lineage = fork_lineage(parent, at)
        record = RunRecord(uid=uid, id=id, created_at=1, root=head, base=at + 1, lineage=lineage)
        return self.made(Create(record, tuple(chained(head, at + 1, "forked", b"{}"))))

    def made(self, write: Create) -> RunRecord:
        (outcome,) = self.store.apply([write])
        if isinstance(outcome, HoldfastError):
            raise outcome
        assert outcome is not None
        return outcome

    def claim(self, record: RunRecord) -> RunRecord:
        return self.store.claim(record.uid, self.worker)

    def next(
        self,
        record: RunRecord,
        *payloads: bytes,
        kind: str = "done",
        change: Change | None = None,
        took: tuple[str, ...] = (),
        redact: tuple[tuple[int, bytes], ...] = (),
    ) -> Append:
        entries = tuple(chained(record.hash, record.seq + 1, kind, *payloads))
        return Append(record.uid, record.id, record.epoch, self.worker, entries, change, took, redact)

    def append(self, record: RunRecord, *payloads: bytes, **more: object) -> RunRecord:
        (outcome,) = self.store.apply([self.next(record, *payloads, **more)])  # type: ignore[arg-type]
        if outcome is not None:
            assert isinstance(outcome, HoldfastError)
            raise outcome
        after = self.store.get(uid=record.uid)
        assert after is not None
        return after


def chained(prev: bytes, seq: int, kind: str, *payloads: bytes) -> Iterator[Entry]:
    for n, payload in enumerate(payloads):
        entry = next_entry(prev, seq + n, kind, 1_700_000_000_000_000 + seq + n, None, payload)
        yield entry
        prev = entry.hash


@pytest.fixture
def root(memdir: Path) -> Path:
    return memdir / "store"


@pytest.fixture
def driver(root: Path) -> Iterator[Driver]:
    with_store = Driver(FilesStore(str(root))).enlist()
    yield with_store
    with_store.store.close()


@pytest.fixture(scope="session")
def drive() -> type[Driver]:
    return Driver


@pytest.fixture
def counting() -> type[CountingDisk]:
    return CountingDisk


@pytest.fixture
def crash_disk() -> type[CrashDisk]:
    return CrashDisk


@pytest.fixture(scope="session")
def power_disk() -> type[PowerDisk]:
    return PowerDisk


@pytest.fixture
def crash() -> type[Crash]:
    return Crash
