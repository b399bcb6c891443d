"""Room in SQLite's write-ahead log: made in time, never in anybody's way, and never taken for what was written."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.stores.sqlite.file import PAGE_SIZE, SqliteFile
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.stores.sqlite.wal import AT_ONCE, Log, log_of

COMMITS = 300


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    """A database with a log of two frames."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text)")
        yield db


def lengths(path: Path, durability: str) -> list[int]:
    """How long the log is after each of some commits."""
    found = []
    with holdfast.open(f"sqlite:///{path}?durability={durability}") as hf, hf.run("r").claim() as run:
        for n in range(COMMITS):
            run.once(f"step-{n}", int, n)
            found.append(Path(f"{path}-wal").stat().st_size)
    return found


def test_few_commits_make_the_log_longer(path: Path) -> None:
    found = lengths(path, "full")
    assert len(set(found)) < 15
    assert found[-1] < 2 * COMMITS * 2 * (PAGE_SIZE + 24) + found[0]  # a step is two pages; twice that, and no more
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_where_no_commit_is_synced_no_room_is_made(path: Path) -> None:
    assert len(set(lengths(path, "normal"))) > COMMITS // 2


def test_what_a_killed_process_leaves_is_whole(tmp_path: Path, path: Path) -> None:
    """The files as they are in the midst of it, at each length of the log, with all that was acknowledged."""
    copy, last = tmp_path / "copy.db", 0
    with holdfast.open(f"sqlite:///{path}") as hf, hf.run("r").claim() as run:
        for n in range(COMMITS):
            run.once(f"step-{n}", int, n)
            length = Path(f"{path}-wal").stat().st_size
            if length != last:
                last = length
                shutil.copy(path, copy)
                shutil.copy(f"{path}-wal", f"{copy}-wal")
                Path(f"{copy}-shm").unlink(missing_ok=True)
                with holdfast.open(f"sqlite:///{copy}") as other:
                    assert other.get("r").info().seq == n + 1


@pytest.fixture
def log(db: sqlite3.Connection, path: Path) -> Iterator[Log]:
    log = log_of(str(path))
    assert log is not None
    yield log
    log.close()


def test_room_is_made_behind_what_is_there(log: Log, path: Path) -> None:
    before = Path(f"{path}-wal").read_bytes()
    log.lengthen()
    assert Path(f"{path}-wal").read_bytes() == before + bytes(len(before))


def test_what_others_write_while_room_is_made_is_not_written_over(
    db: sqlite3.Connection, log: Log, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the length and the writing of zeros, others write."""
    length = log.length

    def late() -> int:
        found = length()
        db.execute("INSERT INTO t (text) VALUES ('well')")
        return found

    monkeypatch.setattr(log, "length", late)
    log.lengthen()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT text FROM t").fetchall() == [("well",)]
    frames = Path(f"{path}-wal").read_bytes().rstrip(b"\0")
    assert b"well" in frames


def test_room_is_made_by_a_megabyte_at_most(db: sqlite3.Connection, log: Log) -> None:
    db.execute("INSERT INTO t (text) VALUES (zeroblob(3000000))")
    before = log.length()
    assert before > 2 * AT_ONCE
    log.lengthen()
    assert log.length() == before + AT_ONCE


def test_a_commit_does_not_fail_where_no_room_can_be_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", refuse)
    with holdfast.open(f"sqlite:///{path}") as hf, hf.run("r").claim() as run:
        assert [run.once(f"step-{n}", int, n) for n in range(20)] == list(range(20))


def test_a_log_that_may_only_be_read_gets_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(os, "open", refuse)
    assert log_of(str(tmp_path / "runs.db")) is None


def descriptors() -> list[str]:
    """The logs that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [one for one in found if "-wal" in one]


# From Python 3.13 on, a connection that is forgotten says so.
IS_TOLD = pytest.mark.filterwarnings("ignore:Exception ignored in.*Connection:pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize(
    "end", ["closed", "closed on a full disk", pytest.param("forgotten", marks=IS_TOLD), "not opened"]
)
def test_a_log_is_not_kept_open(path: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the space of one that was removed would stay in use."""
    before = descriptors()
    if end == "not opened":
        monkeypatch.setattr(SqliteFile, "_connect", failing_the_second_time(SqliteFile._connect))
        with pytest.raises(holdfast.errors.StoreError, match="no more"):
            SqliteStore(str(path))
    else:
        store = SqliteStore(str(path))
        assert len(descriptors()) > len(before)
        if end == "closed":
            store.close()
        elif end == "closed on a full disk":
            store.beat("worker", 60)
            monkeypatch.setattr(SqliteStore, "_retire", full_disk)
            with pytest.raises(holdfast.errors.StoreFull):
                store.close()
            assert descriptors() == before
        del store
    gc.collect()
    assert descriptors() == before


def full_disk(store: SqliteStore, worker: str) -> None:
    raise holdfast.errors.StoreFull(store.place)


def failing_the_second_time(connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
    """After the first one the log is open."""
    calls: list[int] = []

    def connecting(*given: Any) -> sqlite3.Connection:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.EMFILE, "no more")
        return connect(*given)

    return connecting


def test_a_file_system_without_logs_has_none(tmp_path: Path) -> None:
    assert log_of(str(tmp_path / "nothing.db")) is None
