"""Every column of every table holds a value of every storage class in turn: only typed errors come of it.

The columns are those of the schema, so a new one is tried, too. SQLite stores a value of any class in any column (one
bit of a row says which), so the file is made to take them: for the change, its columns lose their types.
"""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import stocked
from sizes import draw
from stocked import IDS, attempts, outcome, questions, stock, uids

import holdfast
from holdfast import Holdfast
from holdfast.errors import HoldfastError, RunDamaged, StoreDamaged
from holdfast.stores.sqlite.guarded_connection import OURS
from holdfast.stores.sqlite.statements import SQL_FOLDER

VALUES = {
    "NULL": "NULL",
    "an integer": "77",
    "a real": "1.5",
    "a text": "'other'",
    "a blob": "x'00ff'",
    "no UTF-8": "CAST(x'ff41' AS TEXT)",
    "an empty text": "''",
    "a large integer": "9223372036854775807",
    "a negative integer": "-1",
}
# Which row is damaged: one whose loss would be felt.
ROWS = {
    "run": ["id = 'victim'", "id = 'queued-1'", "id = 'left'", "id = 'answered'"],
    "entry": ["run = (SELECT n FROM run WHERE id = 'victim') AND seq = 1", "n = (SELECT max(n) FROM entry)"],
    "inbox": ["run = (SELECT n FROM run WHERE id = 'answered')", "taken = 1"],
    "document": ["kind = 'queue' AND name = 'post'", "kind = 'schedule' AND name = 'nightly'"],
    "link": ["child = (SELECT n FROM run WHERE id = 'fork')"],
    "run_tag": ["name = 'team' AND uid = (SELECT uid FROM run WHERE id = 'victim')"],
    "worker": ["name = 'ghost'"],
    "meta": ["name = 'oldest_reader'"],
}


def columns() -> list[tuple[str, str]]:
    """All columns of the schema."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(Path(SQL_FOLDER, "schema.sql").read_text(encoding="utf-8"))
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return [(table, row[1]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")]


def put(path: Path, table: str, column: str, row: str, value: str) -> bool:
    """Store a value of whatever class in a row; False if SQLite allows it in no way."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        schema = db.execute("SELECT rowid, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
        db.execute("PRAGMA writable_schema = 1")
        for number, sql in schema:
            bare = sql.replace("INTEGER PRIMARY KEY", "~").replace(" NOT NULL", "")
            for kind in (" TEXT", " INTEGER"):
                bare = bare.replace(kind, " BLOB")
            bare = bare.replace("~", "INTEGER PRIMARY KEY")
            if sql.startswith("CREATE TABLE"):
                db.execute("UPDATE sqlite_schema SET sql = ? WHERE rowid = ?", (bare, number))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        try:
            assert db.execute(f"UPDATE {table} SET {column} = {value} WHERE {row}").rowcount > 0, (table, row)
            done = True
        except sqlite3.IntegrityError:  # a primary key is never NULL
            done = False
        db.execute("PRAGMA writable_schema = 1")
        db.executemany("UPDATE sqlite_schema SET sql = ? WHERE rowid = ?", [(sql, n) for n, sql in schema])
    return done


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The file of a store that has something of every kind, and the uids of its runs."""
    path = tmp_path_factory.mktemp("sound") / "runs.db"
    stock(lambda: holdfast.open(f"sqlite:///{path}?durability=normal"))
    shutil.copy(path, path.with_name("copy.db"))
    with holdfast.open(f"sqlite:///{path.with_name('copy.db')}") as hf:
        known = uids(hf)
    return path, known


def test_every_table_has_a_row_to_be_damaged() -> None:
    assert {table for table, _ in columns()} == set(ROWS) == OURS


@pytest.mark.parametrize(("table", "column"), columns())
def test_only_typed_errors_come_of_a_value_of_another_class(
    table: str,
    column: str,
    memdir: Path,
    sound: tuple[Path, dict[str, str]],
    seed: int,
    tally: Callable[..., None],
) -> None:
    path, known = sound
    tried, wrong = 0, []
    cases = [(row, kind) for row in ROWS[table] for kind in VALUES]
    for row, kind in draw(cases, seed, 1, 2):
        target = memdir / f"{tried}.db"
        shutil.copy(path, target)
        if not put(target, table, column, row, VALUES[kind]):
            continue
        tried += 1
        found = examined(target, known, row)
        if (table, column) == (
            "run",
            "id",
        ):  # one that is changed in the indexes, too, is another run: no damage does that
            found = [one for one in found if "executed again" not in one]
        wrong += [f"{table}.{column} of {row} is {kind}: {one}" for one in found]
    tally("damage: sqlite, columns of another class", tried=tried, wrong=len(wrong))
    assert not wrong, "\n".join(wrong[:20])


def examined(path: Path, known: dict[str, str], row: str) -> list[str]:
    """What is wrong with the answers of a damaged store."""
    try:
        hf = holdfast.open(f"sqlite:///{path}?durability=normal")
    except HoldfastError:
        return []
    wrong: list[str] = []
    stocked.EXECUTED.clear()
    with hf:
        for name, call in [*questions(hf, known), *others(hf, row), *attempts(hf, known)]:
            kind, value = outcome(call)
            if kind == "bare":
                wrong.append(f"{name}: {type(value).__name__}: {value}")
            elif kind == "error" and isinstance(value, RunDamaged | StoreDamaged) and not str(value):
                wrong.append(f"{name}: it does not say where")
    if again := stocked.executed_again():
        wrong.append(f"executed again: {again}")
    return wrong


def others(hf: Holdfast, row: str) -> list[tuple[str, Callable[[], None]]]:
    """A run that is not the damaged one goes on as if nothing had happened."""

    def go_on() -> None:
        run = hf.get("other")
        assert run.checkpoint(1).state == {"mine": "all mine"}
        seq = run.save({"more": 1})
        assert run.checkpoint(seq).state == {"more": 1}
        assert "other" in [info.id for info in hf.runs(limit=99)]

    def unharmed() -> None:
        try:
            go_on()
        except HoldfastError as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error

    return [("the other run", unharmed)] if "max(n)" not in row else []


def test_the_store_is_as_it_should_be_without_damage(memdir: Path, sound: tuple[Path, dict[str, str]]) -> None:
    """What the others say is not said of a sound store."""
    shutil.copy(sound[0], memdir / "runs.db")
    assert examined(memdir / "runs.db", sound[1], "") == []
    assert set(sound[1]) == set(IDS)
