"""How SQLite finds what is asked for among many runs: by an index that has it in order, and with no sorting of it."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.kernel.model import Filter, Status
from holdfast.stores.sqlite.file import APPLICATION_ID
from holdfast.stores.sqlite.statements import migrations
from holdfast.stores.sqlite.store import SqliteStore

ORDERED = {
    "newest": (Filter(), "r USING INDEX sqlite_autoindex_run_1"),
    "status": (Filter(statuses=(Status.FAILED,)), "r USING INDEX run_by_status (status=?)"),
    "workflow": (Filter(workflow="w"), "r USING INDEX run_by_workflow (workflow=?)"),
    "parent": (Filter(parent="p"), "r USING INDEX run_by_parent (parent=?)"),
    "tag": (Filter(tags=(("a", "b"),)), "t USING PRIMARY KEY (name=? AND value=?)"),
    "tags": (Filter(tags=(("a", "b"), ("c", "d"))), "t USING PRIMARY KEY (name=? AND value=?)"),
    "time": (Filter(created_from=5, created_before=9), "r USING INDEX sqlite_autoindex_run_1 (uid>? AND uid<?)"),
    "time of a tag": (
        Filter(tags=(("a", "b"),), created_from=5),
        "t USING PRIMARY KEY (name=? AND value=? AND uid>?)",
    ),
    "time of a workflow": (
        Filter(workflow="w", created_before=9),
        "r USING INDEX run_by_workflow (workflow=? AND uid<?)",
    ),
}


def plan(store: SqliteStore, filter: Filter) -> list[str]:
    """How SQLite carries out the statement of a list."""
    asked: list[str] = []
    store._reader.set_trace_callback(asked.append)
    store.find(filter)
    store._reader.set_trace_callback(None)
    return [step[3] for sql in asked for step in store._reader.execute(f"EXPLAIN QUERY PLAN {sql}")]


def found_by(steps: list[str]) -> list[str]:
    """Where runs or their tags are looked for first."""
    return [step for step in steps if re.match(r"(SCAN|SEARCH) [rt] ", step) and "uid=?" not in step]


@pytest.fixture
def path(memdir: Path) -> Path:
    return memdir / "runs.db"


@pytest.mark.parametrize("name", ORDERED)
def test_an_index_has_a_list_in_order(path: Path, name: str) -> None:
    filter, expected = ORDERED[name]
    store = SqliteStore(str(path))
    steps = plan(store, filter)
    assert [step.partition(" ")[2] for step in found_by(steps)] == [expected], steps
    assert not [step for step in steps if "TEMP B-TREE" in step], steps
    store.close()


def test_of_several_statuses_each_is_found_in_order(path: Path) -> None:
    store = SqliteStore(str(path))
    steps = plan(store, Filter(statuses=(Status.FAILED, Status.CANCELLED)))
    assert found_by(steps) == ["SEARCH r USING INDEX run_by_status (status=?)"] * 2, steps
    store.close()


def test_a_prefix_is_found_by_the_ids(path: Path) -> None:
    store = SqliteStore(str(path))
    steps = plan(store, Filter(prefix="order-"))
    assert found_by(steps) == ["SEARCH r USING INDEX run_by_id (id>? AND id<?)"], steps
    store.close()


def test_runs_that_were_there_before_are_found_by_their_tags(path: Path) -> None:
    """The migration that adds the table of tags fills it; one whose tags are damaged does not stop it."""
    number, sql = migrations()[0]
    columns = "uid, id, created_at, root, base, tags, lineage, priority, status, epoch, rewinds, hidden, chapter"
    with closing(sqlite3.connect(path)) as db:
        db.executescript(f"{sql}; PRAGMA user_version = {number}; PRAGMA application_id = {APPLICATION_ID}")
        for uid, tags in (("a", '{"colour":"réd","size":"1"}'), ("b", "{damaged"), ("c", "{}")):
            values = (uid, uid, 1, b"", 0, tags, "[]", 0, "completed", 1, "[]", 0, 0, 0, -1, b"")
            db.execute(
                f"INSERT INTO run ({columns}, crashes, crashed_at, checksum) VALUES ({', '.join('?' * len(values))})",
                values,
            )
        db.commit()
    store = SqliteStore(str(path))
    found = store._db.execute("SELECT name, value, uid FROM run_tag ORDER BY name").fetchall()
    assert found == [("colour", "réd", "a"), ("size", "1", "a")]
    assert [record.id for record in store.find(Filter(tags=(("colour", "réd"),)))] == ["a"]
    store._db.execute("DELETE FROM run")
    assert store._db.execute("SELECT count(*) FROM run_tag").fetchall() == [(0,)]
    store.close()
