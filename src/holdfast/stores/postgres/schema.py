"""The schema of a PostgreSQL store: its statements, its numbered migrations, and who may use what they made.

A migration only adds (expand); what is no longer used is removed by a later release (contract). So the release before
and this one work side by side, and the table ``meta`` says which is the oldest that can.
"""

from __future__ import annotations

import os
from functools import lru_cache

import psycopg

from holdfast.errors import StoreDamaged, StoreError, StoreNotFound, StoreTooNew
from holdfast.kernel.rules import SUSPECT
from holdfast.stores.postgres.connections import Connection, Link, begin, commit, execute, missing
from holdfast.stores.postgres.url import settings_of
from holdfast.stores.protocol import READER, WRITER

SQL_FOLDER = os.path.join(os.path.dirname(__file__), "sql")
TRIES = 100  # of making the schema, while others make it too
SERVER_TIME = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
PATIENTLY = "SELECT set_config('lock_timeout', '300s', true), set_config('statement_timeout', '0', true)"
META = 'CREATE TABLE IF NOT EXISTS {schema}.meta (name text COLLATE "C" PRIMARY KEY, value bigint NOT NULL)'


def quoted(name: str) -> str:
    """A name as PostgreSQL takes it, in a statement with placeholders."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


PARTS = ("orphans", "ready", "waiting", "levels", "entries", "insert_run", "stale")  # that stand in other statements


@lru_cache(maxsize=64)
def queries(schema: str, now: str) -> dict[str, str]:
    """The statements by their names, for one schema. ``now`` says where they have the time from."""
    with open(os.path.join(SQL_FOLDER, "queries.sql"), encoding="utf-8") as file:
        text = file.read()
    pulse = "'" + f"{quoted(schema)}.pulse".replace("'", "''") + "'"
    text = text.replace("{schema}", quoted(schema)).replace("{pulse}", pulse).replace("{now}", now)
    text = text.replace("{suspect}", str(SUSPECT))
    parts = (part.partition("\n") for part in text.split("-- name: ")[1:])
    found = {name.strip(): "\n".join(_code(sql)) for name, _, sql in parts}
    for part in PARTS:
        found = {name: sql.replace(f"{{{part}}}", found[part]) for name, sql in found.items()}
    return found


def _code(sql: str) -> list[str]:
    return [line for line in sql.strip().splitlines() if not line.startswith("--")]


def migrations() -> list[tuple[int, str]]:
    """The numbered migrations, as (number, SQL)."""
    found = []
    for name in sorted(os.listdir(SQL_FOLDER)):
        if name[:4].isdigit():
            with open(os.path.join(SQL_FOLDER, name), encoding="utf-8") as file:
                found.append((int(name[:4]), file.read()))
    return found


def migrate(url: str) -> tuple[int, ...]:
    """Make the schema that a URL names, or bring it up to date; the numbers of the migrations that were made.

    May be called by any number of processes at once: one does it, the others wait for it and find it done.
    """
    link = Link(settings_of(url))
    try:
        return link.call(lambda conn, again: _migrate(link, conn))
    finally:
        link.close()


def _migrate(link: Link, conn: Connection) -> tuple[int, ...]:
    schema = quoted(link.settings.schema)
    _check_encoding(link, conn)
    exists = "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %s)"
    for _ in range(TRIES):
        try:
            [[(there,)], *_] = begin(conn, (exists, (link.settings.schema,)), (PATIENTLY, ()))
            if not there:  # asked first, since even IF NOT EXISTS needs the right to make one
                execute(conn, f"CREATE SCHEMA {schema}")
            execute(conn, META.replace("{schema}", schema))
            execute(conn, f"LOCK TABLE {schema}.meta IN SHARE ROW EXCLUSIVE MODE")
            return _make(link, conn)
        except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema, psycopg.errors.DuplicateTable):
            conn.rollback()  # somebody was faster
    raise StoreError(link.place, f"the schema {link.settings.schema} could not be made; try again")


def _make(link: Link, conn: Connection) -> tuple[int, ...]:
    """Make what is missing. The table ``meta`` is locked, so nobody else does."""
    schema = quoted(link.settings.schema)
    known = _known(link, conn)
    if known:
        _check(link, known)
    pending = [(number, sql) for number, sql in migrations() if number > known.get("schema", 0)]
    for number, sql in pending:
        conn.execute(sql.replace("{schema}", schema.replace("%%", "%")))
        known_as = "ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        note = f"INSERT INTO {schema}.meta VALUES ('schema', %s) {known_as}"
        execute(conn, note, (number,))
    if not known:
        names = f"INSERT INTO {schema}.meta VALUES ('oldest_reader', %s), ('oldest_writer', %s)"
        execute(conn, names, (READER, WRITER))
    commit(conn, [])
    return tuple(number for number, _ in pending)


def check_schema(link: Link, conn: Connection) -> None:
    """Whether the store is there, and is one that this release can use; raises what is wrong."""
    _check_encoding(link, conn)
    try:
        known = _known(link, conn)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise StoreNotFound(link.place, missing(link.settings.schema)) from None
    except psycopg.Error as error:
        raise link.translated(error) from error
    _check(link, known)
    newest = migrations()[-1][0]
    if known["schema"] < newest:
        raise StoreError(
            link.place,
            f"its schema is at migration {known['schema']}, and this Holdfast needs {newest}; run `holdfast migrate`",
        )


def _known(link: Link, conn: Connection) -> dict[str, int]:
    return dict(execute(conn, f"SELECT name, value FROM {quoted(link.settings.schema)}.meta").fetchall())


def _check(link: Link, known: dict[str, int]) -> None:
    if not all(type(known.get(name)) is int for name in ("oldest_reader", "oldest_writer", "schema")):
        raise StoreDamaged(link.place, "it does not say which format it has; restore it from a backup")
    if known["oldest_reader"] > READER or known["oldest_writer"] > WRITER:
        raise StoreTooNew(
            link.place,
            f"it needs a Holdfast that reads format {known['oldest_reader']} and writes format "
            f"{known['oldest_writer']}, this one has {READER} and {WRITER}; upgrade Holdfast",
        )


def _check_encoding(link: Link, conn: Connection) -> None:
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StoreError(link.place, f"the database's encoding is {encoding}; Holdfast needs one made with UTF8")
