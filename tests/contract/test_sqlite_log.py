"""Room in SQLite's write-ahead log: made in time, never in anybody's way, and never taken for what was written."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.stores.sqlite_file import PAGE_SIZE
from holdfast.stores.sqlite_log import log_of

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


def test_room_is_made_behind_what_is_there(db: sqlite3.Connection, path: Path) -> None:
    log = log_of(str(path))
    assert log is not None
    before = Path(f"{path}-wal").read_bytes()
    log.lengthen(db)
    log.close()
    assert Path(f"{path}-wal").read_bytes() == before + bytes(len(before))


def test_it_does_not_wait_for_another_writer(db: sqlite3.Connection, path: Path) -> None:
    log = log_of(str(path))
    assert log is not None
    before = log.length()
    [patience] = db.execute("PRAGMA busy_timeout").fetchone()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        log.lengthen(db)
        assert log.length() == before
        other.execute("ROLLBACK")
    assert db.execute("PRAGMA busy_timeout").fetchone() == (patience,)
    log.lengthen(db)
    assert log.length() == 2 * before
    log.close()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_room_that_cannot_be_made_leaves_the_connection_as_it_was(
    db: sqlite3.Connection, path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    log = log_of(str(path))
    assert log is not None

    def refuse(*_: object) -> int:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        if isinstance(error, OSError):
            log.lengthen(db)
        else:
            with pytest.raises(KeyboardInterrupt):
                log.lengthen(db)
    log.close()
    assert not db.in_transaction
    db.execute("INSERT INTO t (text) VALUES ('well')")


def test_a_file_system_without_logs_has_none(tmp_path: Path) -> None:
    assert log_of(str(tmp_path / "nothing.db")) is None
