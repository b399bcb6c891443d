"""The power fails: what was not synced may be gone, or there, or there in part. What was acknowledged is there."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from scenario import PARTS, FilesSite
from sizes import sample, size
from verdict import power_fails, power_failures

from holdfast.stores.sqlite.store import SqliteStore

CHUNKS = size(1, 2)


def lose_power(folder: Path, name: str, tally: Callable[..., None], chunk: int, *, every: bool) -> None:
    part = PARTS[name]
    moments, found, expected = power_failures(str(folder / "power"), part, every=every)
    site = FilesSite(str(folder / "site"))
    site.wipe()
    chosen = sample(found[chunk::CHUNKS])
    violations = [bad for place, image in chosen if (bad := power_fails(site, part, place, image, expected))]
    tally(
        f"power failures: files{', every combination' if every else ''}",
        points=moments if chunk == 0 else 0,
        tried=len(chosen),
        violations=len(violations),
    )
    assert not violations, "\n".join(violations[:20])
    assert len(found) > moments


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", PARTS)
def test_a_power_failure_at_any_point_loses_nothing(
    name: str, chunk: int, memdir: Path, tally: Callable[..., None]
) -> None:
    lose_power(memdir, name, tally, chunk, every=False)


@pytest.mark.torture
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", PARTS)
def test_whatever_of_the_unsynced_survives_nothing_is_lost(
    name: str, chunk: int, memdir: Path, tally: Callable[..., None]
) -> None:
    lose_power(memdir, name, tally, chunk, every=True)


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_sqlite_syncs_as_it_was_told(durability: str, level: int, memdir: Path) -> None:
    """What SQLite does about power failures is SQLite's own; that it is asked to is ours."""
    store = SqliteStore(str(memdir / "runs.db"), durability=durability)
    try:
        assert store._db.execute("PRAGMA synchronous").fetchone() == (level,)
        assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        store.close()


def test_sqlite_syncs_fully_unless_told_otherwise(memdir: Path) -> None:
    store = SqliteStore(str(memdir / "runs.db"))
    try:
        assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)
        with pytest.raises(sqlite3.OperationalError):
            store._reader.execute("DELETE FROM run")
    finally:
        store.close()
