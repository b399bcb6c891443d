"""Columns of every table hold a value that was not written: only typed errors come of it.

The columns are those of the database, so a new one is tried, too. Its types allow less than SQLite's; what they allow,
and NULL, is tried.
"""

from collections.abc import Callable

import pytest
import stocked
from pgserver import Schemas
from sizes import draw
from stocked import attempts, outcome, questions, stock, uids

import holdfast
from holdfast.errors import HoldfastError, RunDamaged

TABLES = ("meta", "run", "run_tag", "entry", "link", "inbox", "worker", "queue", "document")
VALUES = {
    "text": ["NULL", "''", "'other'", r"E'\x1b'", r"E'\x1b9'"],
    "bigint": ["NULL", "-1", "77", "9223372036854775807"],
    "bytea": ["NULL", "''", r"'\x00ff'"],
    "boolean": ["NULL", "NOT {column}"],
    "jsonb": ["NULL", "'[]'", "'null'", """'{"a": 1}'"""],
}
ROWS = {
    "meta": ["name = 'oldest_reader'"],
    "run": ["id = 'victim'", "id = 'queued-1'", "id = 'left'", "id = 'answered'"],
    "entry": ["run = (SELECT n FROM {schema}.run WHERE id = 'victim') AND seq = 1"],
    "inbox": ["run = (SELECT n FROM {schema}.run WHERE id = 'answered')", "taken"],
    "document": ["kind = 'queue' AND name = 'post'", "kind = 'schedule' AND name = 'nightly'"],
    "link": ["child = (SELECT n FROM {schema}.run WHERE id = 'fork')"],
    "run_tag": ["uid = (SELECT uid FROM {schema}.run WHERE id = 'victim')"],
    "worker": ["name = 'ghost'"],
    "queue": ["name = 'post'"],
}


class Templates:
    """A store that has something of every kind, and another one that is made like it again and again."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.whole, self.copy = schemas.take(), schemas.take()  # not given back: they have no constraints any more
        stock(lambda: holdfast.open(schemas.url(self.whole)))
        schemas.execute(f"INSERT INTO {self.whole}.queue (name) VALUES ('post') ON CONFLICT DO NOTHING")
        with holdfast.open(schemas.url(self.whole)) as hf:
            self.known = uids(hf)
        columns = "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = %s"
        found = schemas.execute(f"{columns} AND table_name = ANY(%s)", (self.copy, list(TABLES)))
        self.columns: list[tuple[str, str, str]] = sorted((str(a), str(b), str(c)) for a, b, c in found)

    def renew(self) -> str:
        """Make the copy what the other one is; the URL of it."""
        self._schemas.execute("TRUNCATE " + ", ".join(f"{self.copy}.{table}" for table in TABLES))
        for table in TABLES:
            insert = f"INSERT INTO {self.copy}.{table} OVERRIDING SYSTEM VALUE SELECT * FROM {self.whole}.{table}"
            self._schemas.execute(f"{insert} ON CONFLICT DO NOTHING")
        return self._schemas.url(self.copy)

    def put(self, table: str, column: str, row: str, value: str) -> bool:
        """Store a value in a row; False if the database allows it in no way."""
        from psycopg.errors import GeneratedAlways, IntegrityError, InvalidTableDefinition, SyntaxError

        try:
            self._schemas.execute(f"ALTER TABLE {self.copy}.{table} ALTER COLUMN {column} DROP NOT NULL")
        except (InvalidTableDefinition, SyntaxError):  # a primary key, which is never NULL; or one the server counts
            if value == "NULL":
                return False
        where = row.replace("{schema}", self.copy)
        change = f"UPDATE {self.copy}.{table} SET {column} = {value.format(column=column)} WHERE {where}"
        try:
            assert self._schemas.execute(f"{change} RETURNING 1"), change
        except (GeneratedAlways, IntegrityError):
            return False
        return True


@pytest.fixture(scope="module")
def templates(postgres_schemas: Schemas) -> Templates:
    return Templates(postgres_schemas)


def test_every_table_has_a_row_to_be_damaged(templates: Templates) -> None:
    assert {table for table, _, _ in templates.columns} == set(ROWS)


@pytest.mark.parametrize("table", TABLES)
def test_only_typed_errors_come_of_another_value(
    table: str, templates: Templates, seed: int, tally: Callable[..., None]
) -> None:
    cases = [
        (column, row, value)
        for name, column, kind in templates.columns
        for value in VALUES[kind]
        for row in ROWS[table]
        if name == table
    ]
    tried, wrong = 0, []
    for column, row, value in draw(cases, seed, 2, 2 + len(cases) // 30):
        url = templates.renew()
        if templates.put(table, column, row, value):
            tried += 1
            wrong += [f"{table}.{column} of {row} is {value}: {one}" for one in examined(url, templates.known)]
    tally("damage: postgres, columns of another value", tried=tried, wrong=len(wrong))
    assert not wrong, "\n".join(wrong[:20])


def examined(url: str, known: dict[str, str]) -> list[str]:
    """What is wrong with the answers of a damaged store."""
    try:
        hf = holdfast.open(url)
    except HoldfastError:
        return []
    wrong: list[str] = []
    stocked.EXECUTED.clear()
    for name, call in [*questions(hf, known), *attempts(hf, known), ("close", hf.close)]:
        kind, value = outcome(call)
        if kind == "bare":
            wrong.append(f"{name}: {type(value).__name__}: {value}")
    return wrong


def test_a_rollback_that_the_journal_does_not_have_is_damage(postgres_url: str, postgres_schemas: Schemas) -> None:
    with holdfast.open(postgres_url) as hf:
        hf.run("run").save({})
        schema = postgres_url.partition("schema=")[2]
        postgres_schemas.execute(f"UPDATE {schema}.run SET rollback = 1")
        with pytest.raises(RunDamaged, match="rollback"):
            hf.get("run").save({})
