"""What stands on the disk: the schema is the sum of its migrations, and what is not ours or too new is refused."""

import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import StoreDamaged, StoreError, StoreTooNew
from holdfast.kernel.model import Filter, Kind, Limits, Order, Status
from holdfast.stores import open_store
from holdfast.stores.files.store import FilesStore
from holdfast.stores.protocol import READER, WRITER
from holdfast.stores.sqlite import store as sqlite_store
from holdfast.stores.sqlite.file import APPLICATION_ID
from holdfast.stores.sqlite.statements import migrations
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, after, make, put

FOLDER = Path(sqlite_store.__file__).parent / "sql"
SCHEMA = FOLDER / "schema.sql"
WRITES = (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)


def normalised(sql: str) -> str:
    plain = re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", sql))
    return re.sub(r" ?([,()]) ?", r"\1", plain).strip().rstrip(";").strip()  # a column that was added stands closer


def statements(db: sqlite3.Connection) -> set[str]:
    """What makes the schema of a database."""
    found = db.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_stat%'")
    return {normalised(sql) for (sql,) in found}


@pytest.fixture
def path(memdir: Path) -> Path:
    return memdir / "runs.db"


# --- SQLite


def test_the_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_the_schema_is_the_sum_of_the_migrations(path: Path) -> None:
    SqliteStore(str(path)).close()
    with closing(sqlite3.connect(path)) as migrated, closing(sqlite3.connect(":memory:")) as written:
        written.executescript(SCHEMA.read_text(encoding="utf-8"))
        assert statements(migrated) == statements(written)
        assert migrated.execute("PRAGMA user_version").fetchone() == (len(migrations()),)
        assert migrated.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert dict(migrated.execute("SELECT name, value FROM meta")) == dict(
            written.execute("SELECT name, value FROM meta")
        )


def test_opening_again_migrates_nothing(path: Path) -> None:
    SqliteStore(str(path)).close()
    with closing(sqlite3.connect(path)) as db:
        before = db.execute("PRAGMA schema_version").fetchone()
    SqliteStore(str(path)).close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA schema_version").fetchone() == before


@pytest.mark.parametrize(("name", "known"), [("oldest_reader", READER), ("oldest_writer", WRITER)])
def test_a_database_that_needs_a_newer_holdfast_is_refused(path: Path, name: str, known: int) -> None:
    SqliteStore(str(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE meta SET value = ? WHERE name = ?", (known + 1, name))
        db.commit()
    with pytest.raises(StoreTooNew, match=rf"format {known + 1}.*upgrade Holdfast"):
        SqliteStore(str(path))


def test_a_database_of_a_later_schema_that_allows_us_is_opened(path: Path) -> None:
    SqliteStore(str(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("ALTER TABLE run ADD COLUMN of_the_future TEXT")
        db.execute("PRAGMA user_version = 99")
        db.commit()
    store = SqliteStore(str(path))
    assert store.get("nothing") is None
    store.close()


def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (name TEXT)")
        db.execute("PRAGMA application_id = 12345")
        db.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(str(path))
    assert path.read_bytes() == before
    assert not os.path.exists(f"{path}-wal")


def test_a_text_file_is_no_database(path: Path) -> None:
    text = "this is a letter to somebody, and not a database\n" * 100
    path.write_text(text)
    with pytest.raises(StoreDamaged, match=r"runs\.db"):
        SqliteStore(str(path))
    assert path.read_text() == text


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.touch()
    store = SqliteStore(str(path))
    assert store.get("nothing") is None
    store.close()


def plan(store: SqliteStore, ask: Callable[[], object]) -> list[str]:
    """How SQLite carries out the statements by which the store is asked something."""
    asked: list[str] = []
    store._reader.set_trace_callback(asked.append)
    ask()
    store._reader.set_trace_callback(None)
    return [step[3] for sql in asked for step in store._reader.execute(f"EXPLAIN QUERY PLAN {sql}")]


def test_what_is_due_is_found_without_looking_at_other_runs(path: Path) -> None:
    clock = ManualClock()
    store, author = SqliteStore(str(path), clock=clock), Author(clock)
    make(store, author.create("ready", queue="q", workflow="other"))
    make(store, author.create("waiting", queue="q", workflow="other", status=Status.WAITING, wake_at=1))
    names = [f"w{n}" for n in range(300)]
    steps = plan(store, lambda: store.look(["p", "q"], names))
    assert {step for step in steps if step.startswith("SEARCH run ")} == {
        "SEARCH run USING COVERING INDEX run_ready (queue=? AND priority<?)",
        "SEARCH run USING COVERING INDEX run_ready (queue=? AND priority=?)",
        "SEARCH run USING COVERING INDEX run_waiting (queue=? AND priority<?)",
        "SEARCH run USING COVERING INDEX run_waiting (queue=? AND priority=? AND wake_at<?)",
        "SEARCH run USING INDEX run_wakes (wake_at>?)",
    }
    assert not [step for step in steps if "SCAN" in step or "TEMP B-TREE" in step]
    limited = dict.fromkeys(["p", "q"], Limits(total=1, per_lane=1))
    order = Order(worker="east", queues=limited, workflows=frozenset(names), limit=9)
    steps = plan(store, lambda: store.take(order))
    assert "SEARCH run USING COVERING INDEX run_held (queue=? AND worker>?)" in steps
    assert not [step for step in steps if step.startswith("SCAN run") and "run_by_worker" not in step]
    steps = plan(store, store.backlog)
    assert not [step for step in steps if step.startswith("SCAN run") and " INDEX run_" not in step]
    steps = plan(store, lambda: store.find(Filter(prefix="a(b)#"), limit=1))
    assert "SEARCH r USING INDEX run_by_id (id>? AND id<?)" in steps
    steps = plan(store, lambda: store.find(Filter(shares="u")))
    assert not [step for step in steps if "SCAN" in step or "sqlite_autoindex_run_1 (uid<" in step]
    held = make(store, author.create("held", worker="nobody"))
    steps = plan(store, lambda: store.find(Filter(orphaned=True)))
    assert store.find(Filter(orphaned=True)) == [held]
    assert "SEARCH r USING INDEX run_by_worker (worker=?)" in steps
    store.close()


def test_the_children_of_a_run_are_found_without_looking_at_other_runs(path: Path) -> None:
    store = SqliteStore(str(path))
    steps = plan(store, lambda: store.find(Filter(parent="p")))
    assert steps[0] == "SEARCH r USING INDEX run_by_parent (parent=?)"
    assert not [step for step in steps if "SCAN" in step or "TEMP B-TREE" in step]
    store.close()


def test_a_plain_step_does_not_touch_the_record(path: Path) -> None:
    clock = ManualClock()
    store, author = SqliteStore(str(path), clock=clock), Author(clock)
    store.beat("east", LEASE)
    held = store.claim(make(store, author.create("run")).uid, "east")
    tables: set[str | None] = set()

    def note(action: int, table: str | None, *_: object) -> int:
        if action in WRITES:
            tables.add(table)
        return sqlite3.SQLITE_OK

    store._db.set_authorizer(note)
    for _ in range(2):  # the first one of a handle looks the run up
        write = author.append(held, Kind.DONE)
        put(store, write)
        held = after(held, write)
    assert tables == {"entry"}
    store.close()


# --- files


@pytest.fixture
def folder(memdir: Path) -> Path:
    return memdir / "runs"


@pytest.mark.parametrize(("name", "known"), [("oldest_reader", READER), ("oldest_writer", WRITER)])
def test_a_folder_that_needs_a_newer_holdfast_is_refused(folder: Path, name: str, known: int) -> None:
    FilesStore(str(folder)).close()
    about = folder / "holdfast.json"
    about.write_text(json.dumps({**json.loads(about.read_text()), name: known + 1}))
    with pytest.raises(StoreTooNew, match=rf"format {known + 1}.*upgrade Holdfast"):
        FilesStore(str(folder))


def test_a_folder_of_something_else_is_refused_and_left_as_it_is(folder: Path) -> None:
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(StoreError, match="belongs to something else"):
        FilesStore(str(folder))
    assert [path.name for path in folder.iterdir()] == ["letter.txt"]


def test_a_folder_whose_description_is_damaged_is_refused(folder: Path) -> None:
    FilesStore(str(folder)).close()
    (folder / "holdfast.json").write_text("{")
    with pytest.raises(StoreDamaged, match=r"holdfast\.json"):
        FilesStore(str(folder))


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
def test_the_error_names_the_place(memdir: Path, scheme: str) -> None:
    place = memdir / "place"
    if scheme == "files":
        place.write_text("a file\n" * 200)
    else:
        place.mkdir()
    with pytest.raises(StoreError) as caught:
        open_store(f"{scheme}:///{place}")
    assert str(place) in caught.value.place


def test_a_store_that_is_opened_by_a_link_is_the_same_store(tmp_path: Path) -> None:
    """Its locks, which tell who lives and who writes, are beside the file itself."""
    (tmp_path / "elsewhere").mkdir()
    file, link = tmp_path / "runs.db", tmp_path / "elsewhere" / "link.db"
    with holdfast.open(f"sqlite:///{file}") as hf:
        link.symlink_to(file)
        with hf.run("r").claim(), holdfast.open(f"sqlite:///{link}") as other, pytest.raises(holdfast.Claimed):
            other.get("r").claim().__enter__()
    assert os.listdir(link.parent) == ["link.db"]
