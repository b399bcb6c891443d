"""The disk is full, fails, or may not be written: a clear error, nothing acknowledged is lost, and it goes on after."""

import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sizes import sample

import holdfast
from holdfast import Holdfast
from holdfast.errors import HoldfastError, StoreFull, StoreReadOnly, StoreUnusable
from holdfast.stores.files.disk import Disk, File
from holdfast.stores.files.store import FilesStore
from holdfast.stores.sqlite.store import SqliteStore


class FailingDisk(Disk):
    """A disk on which the n-th call of some kinds fails. A write that fails has written the first half."""

    def __init__(self, code: int, kinds: frozenset[str], *, lasting: bool = True) -> None:
        self.code, self.kinds, self.lasting = code, kinds, lasting
        self.at: int | None = None
        self.calls = 0

    def _call(self, kind: str, path: str) -> None:
        if kind not in self.kinds:
            return
        self.calls += 1
        if self.at is not None and (self.calls == self.at + 1 or (self.lasting and self.calls > self.at)):
            raise OSError(self.code, os.strerror(self.code), path)

    def create(self, path: str) -> File:
        self._call("create", path)
        return super().create(path)

    def write(self, file: File, data: bytes) -> None:
        try:
            self._call("write", file.path)
        except OSError:
            super().write(file, data[: len(data) // 2])
            raise
        super().write(file, data)

    def truncate(self, file: File, size: int) -> None:
        self._call("truncate", file.path)
        super().truncate(file, size)

    def fsync(self, file: File) -> None:
        self._call("fsync", file.path)
        super().fsync(file)

    def fsync_folder(self, path: str) -> None:
        self._call("fsync_folder", path)
        super().fsync_folder(path)

    def replace(self, old: str, new: str) -> None:
        self._call("replace", new)
        super().replace(old, new)

    def rename(self, old: str, new: str) -> None:
        self._call("rename", new)
        super().rename(old, new)

    def mkdir(self, path: str) -> None:
        self._call("mkdir", path)
        super().mkdir(path)


TAKES_SPACE = frozenset({"create", "write", "mkdir", "replace", "rename"})
SYNCS = frozenset({"fsync", "fsync_folder"})


class Told:
    """What was acknowledged: states by run and number."""

    def __init__(self) -> None:
        self.states: list[tuple[str, int, Any]] = []

    def save(self, hf: Holdfast, id: str, state: Any) -> None:
        seq = hf.run(id).save(state)
        self.states.append((id, seq, state))

    def check(self, hf: Holdfast) -> None:
        for id, seq, state in self.states:
            assert hf.get(id).checkpoint(seq).state == state
        for id in {id for id, _, _ in self.states}:
            hf.get(id).audit()


def work(hf: Holdfast, told: Told) -> None:
    """Some of everything that takes space. May be repeated."""
    told.save(hf, "one", {"n": 1})
    hf.get("one").mark("seen", "eye")
    with hf.get("one").claim():
        hf.get("one").mark("heard", "ear")  # of another handle: by way of the inbox
    copy = hf.get("one").fork()
    told.save(hf, copy.id, {"n": 2})
    copy.complete("done")


def at_each_call(
    folder: Path, code: int, kinds: frozenset[str], *, lasting: bool
) -> Iterator[tuple[FailingDisk, Holdfast, Told]]:
    """The work, failing at its first such call, then at its second, and so on."""
    disk = FailingDisk(code, kinds)
    with holdfast.open("", store=FilesStore(str(folder / "dry"), disk=disk)) as hf:
        disk.calls = 0
        work(hf, Told())
        total = disk.calls
    assert total > 5
    for at in sample(range(total), 12):
        disk = FailingDisk(code, kinds, lasting=lasting)
        hf = holdfast.open("", store=FilesStore(str(folder / "store"), disk=disk))
        disk.calls, disk.at = 0, at
        try:
            yield disk, hf, Told()
        finally:
            disk.at = None
            with suppress(HoldfastError):
                hf.close()
            hf.client.store.drop()
            shutil.rmtree(folder / "store")


@pytest.mark.parametrize("lasting", [True, False], ids=["full", "full for a moment"])
def test_a_full_disk_loses_nothing_and_goes_on_when_there_is_space(
    lasting: bool, memdir: Path, tally: Callable[..., None]
) -> None:
    tried = 0
    for disk, hf, told in at_each_call(memdir, errno.ENOSPC, TAKES_SPACE, lasting=lasting):
        tried += 1
        with pytest.raises(StoreFull, match="Free some space") if lasting else suppress(StoreFull):
            work(hf, told)
            work(hf, told)  # what could be put off was, up to here
        told.check(hf)
        disk.at = None
        for id in ("one", "three"):
            told.save(hf, id, {"space": "again"})
        told.check(hf)
        with holdfast.open(f"files:///{memdir / 'store'}") as again:
            told.check(again)
    tally("full disk: files", tried=tried)


@pytest.mark.parametrize("lasting", [True, False], ids=["broken", "broken for a moment"])
def test_after_a_failed_sync_the_handle_is_given_up(lasting: bool, memdir: Path, tally: Callable[..., None]) -> None:
    tried = 0
    for _, hf, told in at_each_call(memdir, errno.EIO, SYNCS, lasting=lasting):
        tried += 1
        with pytest.raises(StoreUnusable, match="open the store again"):
            work(hf, told)
            hf.run("one").save({"after": True})
        with pytest.raises(StoreUnusable):
            hf.run("one")
        hf.client.store.drop()
        with holdfast.open(f"files:///{memdir / 'store'}") as again:
            told.check(again)
            again.recover()
            told.save(again, "one", {"space": "again"})
            told.check(again)
    tally("failed sync: files", tried=tried)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_that_may_not_be_written_is_named(code: int, memdir: Path) -> None:
    for disk, hf, told in at_each_call(memdir, code, TAKES_SPACE, lasting=True):
        with pytest.raises(StoreReadOnly, match=rf"{memdir / 'store'}.* permissions"):
            work(hf, told)
            work(hf, told)
        told.check(hf)
        disk.at = None
        told.save(hf, "one", {"writable": True})
        told.check(hf)


# --- SQLite


@pytest.fixture
def little_space(memdir: Path) -> Iterator[tuple[Path, Callable[[SqliteStore, bool], None]]]:
    """A folder with little space, and what frees or takes it: a small file system, or a limit of SQLite's own."""
    folder = memdir / "small"
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], capture_output=True, check=False
        ).returncode
    )

    def squeeze(store: SqliteStore, full: bool) -> None:
        if mounted:
            size = "1m" if full else "32m"
            subprocess.run(["mount", "-o", f"remount,size={size}", folder], check=True)
        else:
            [pages] = store._db.execute("PRAGMA page_count").fetchone()
            store._db.execute(f"PRAGMA max_page_count = {pages + (1 if full else 100_000)}")

    yield folder, squeeze
    if mounted:
        subprocess.run(["umount", folder], check=True)


def fill_up(hf: Holdfast, told: Told) -> None:
    for n in range(1000):
        told.save(hf, "one", {"n": n, "text": os.urandom(20_000).hex()})


def test_a_full_disk_loses_nothing_in_sqlite(little_space: Any) -> None:
    folder, squeeze = little_space
    store, told = SqliteStore(str(folder / "runs.db")), Told()
    with holdfast.open("", store=store) as hf:
        told.save(hf, "one", {"n": 0})
        squeeze(store, True)
        with pytest.raises(StoreFull, match="Free some space"):
            fill_up(hf, told)
        told.check(hf)
        squeeze(store, False)
        told.save(hf, "one", {"space": "again"})
        told.save(hf, "two", {"space": "again"})
        told.check(hf)
    with holdfast.open(f"sqlite:///{folder / 'runs.db'}") as again:
        told.check(again)


def test_a_limit_of_pages_is_a_full_disk(memdir: Path) -> None:
    store, told = SqliteStore(str(memdir / "runs.db")), Told()
    with holdfast.open("", store=store) as hf:
        told.save(hf, "one", {"n": 0})
        [pages] = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(StoreFull):
            fill_up(hf, told)
        told.check(hf)
        store._db.execute("PRAGMA max_page_count = 1000000")
        told.save(hf, "one", {"space": "again"})
        told.check(hf)


def test_after_a_failed_sync_sqlite_is_given_up(memdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, told = SqliteStore(str(memdir / "runs.db")), Told()
    hf = holdfast.open("", store=store)
    told.save(hf, "one", {"n": 0})

    def fail(*statement: Any) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    monkeypatch.setattr(store, "_commit", fail)
    with pytest.raises(StoreUnusable, match="open the store again"):
        hf.get("one").save({"n": 1})
    monkeypatch.undo()
    with pytest.raises(StoreUnusable):
        hf.get("one")
    hf.client.engine.worker.stop()
    store.drop()
    with holdfast.open(f"sqlite:///{memdir / 'runs.db'}") as again:
        told.check(again)
        told.save(again, "one", {"n": 2})
        told.check(again)


# --- permissions, as a user who has none


def as_nobody(function: Callable[[], str]) -> str:
    """Call a function in a child process for which permissions count, unlike for root; what it gave."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(receive)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            try:
                told = function()
            except BaseException as error:
                told = f"{type(error).__name__}: {error}"
            os.write(send, told.encode())
        finally:
            os._exit(0)
    os.close(send)
    with open(receive, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    return told


@pytest.fixture(params=["files", "sqlite"])
def locked(request: pytest.FixtureRequest, memdir: Path) -> Iterator[str]:
    """The URL of a store that others may read and nobody may write."""
    url = f"{request.param}:///{memdir / 'store'}" + ("/runs.db" if request.param == "sqlite" else "")
    (memdir / "store").mkdir()
    with holdfast.open(url) as hf:
        hf.run("one").save({"n": 1})
    paths = [memdir / "store", *(memdir / "store").rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    memdir.chmod(0o755)
    yield url
    for path in paths:
        path.chmod(0o755)


def test_a_store_without_permission_to_write_says_so(locked: str) -> None:
    def write() -> str:
        hf = holdfast.open(locked)
        hf.run("two").save({"n": 2})
        return "written"

    told = as_nobody(write)
    assert told.startswith("StoreReadOnly")
    assert locked.partition(":///")[2] in told
    assert "permissions" in told


@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_a_run_that_another_user_holds_can_be_looked_at(memdir: Path, kind: str) -> None:
    """The lock of its holder cannot be read, so the term of its lease decides."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user")
    memdir.chmod(0o755)
    url = f"{kind}:///{memdir / 'store'}"

    def look() -> str:
        hf = holdfast.open(url)
        [worker] = hf.client.store.workers()
        return f"{hf.get('one').status} {worker.alive} {worker.running} {hf.recover(dry_run=True)}"

    with holdfast.open(url) as hf, hf.run("one").claim():
        assert as_nobody(look) == "running True True ()"


def test_a_place_that_may_not_be_made_says_so(memdir: Path) -> None:
    for kind in ("files", "sqlite"):
        memdir.chmod(0o555)
        told = as_nobody(lambda kind=kind: str(holdfast.open(f"{kind}:///{memdir / kind}")))
        memdir.chmod(0o755)
        assert told.startswith("StoreReadOnly"), told
        assert "permissions" in told
