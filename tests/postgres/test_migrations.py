"""The schema is the sum of its migrations, is made once however many make it, and says who may use it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from pgserver import Schemas

from holdfast.cli import cli
from holdfast.errors import StoreDamaged, StoreError, StoreNotFound, StoreReadOnly, StoreTooNew
from holdfast.kernel.model import Filter, Kind, Limits, Order, Post
from holdfast.stores import open_store
from holdfast.stores.postgres.schema import SQL_FOLDER, migrate, migrations
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.url import settings_of
from holdfast.stores.protocol import READER, WRITER, write_one
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, after, delete, item, make, put

Sql = Callable[..., list[Any]]


@pytest.fixture
def empty(postgres_schemas: Schemas) -> Iterator[str]:
    """The name of a schema that there is not."""
    name = f"{postgres_schemas.name}_not_there_yet"
    postgres_schemas.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    yield name
    postgres_schemas.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def shape(schemas: Schemas, schema: str) -> dict[str, list[Any]]:
    """Everything that makes up a schema."""
    asked = {
        "columns": "SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default, "
        "is_identity FROM information_schema.columns WHERE table_schema = %s ORDER BY 1, ordinal_position",
        "indexes": "SELECT indexname, replace(indexdef, %s, '') FROM pg_indexes WHERE schemaname = %s ORDER BY 1",
        "constraints": "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = (SELECT oid FROM pg_namespace WHERE nspname = %s) ORDER BY 1",
        "storage": "SELECT c.relname, a.attname, a.attstorage FROM pg_attribute a JOIN pg_class c "
        "ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r' "
        "ORDER BY 1, 2",
        "others": "SELECT relname, relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s ORDER BY 1",
        "functions": "SELECT proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s",
        "triggers": "SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema = %s",
    }
    return {what: schemas.execute(query, (schema,) * query.count("%s")) for what, query in asked.items()}


def test_the_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_the_command_line_makes_a_store(postgres_url: str, empty: str) -> None:
    url = f"{postgres_url.partition('schema=')[0]}schema={empty}"
    run = CliRunner().invoke
    missing = run(cli, ["runs", "--store", url])
    assert missing.exit_code == 8
    assert "holdfast migrate" in missing.output
    assert "migrations made: 1" in run(cli, ["migrate", "--store", url]).output
    assert run(cli, ["runs", "--store", url]).output == "No runs.\n"
    assert "up to date" in run(cli, ["migrate", "--store", url]).output


def test_the_schema_is_the_sum_of_the_migrations(postgres_schemas: Schemas, postgres_url: str, empty: str) -> None:
    with open(f"{SQL_FOLDER}/schema.sql", encoding="utf-8") as file:
        postgres_schemas.execute(f"CREATE SCHEMA {empty}; " + file.read().replace("{schema}", empty))
    migrated = postgres_url.partition("schema=")[2]
    assert shape(postgres_schemas, migrated) == shape(postgres_schemas, empty)
    both = [dict(postgres_schemas.execute(f"SELECT * FROM {schema}.meta")) for schema in (migrated, empty)]
    assert both[0] == both[1] == {"schema": len(migrations()), "oldest_reader": READER, "oldest_writer": WRITER}


def test_a_migration_waits_for_the_one_that_is_under_way(postgres_schemas: Schemas, postgres_url: str) -> None:
    made: list[object] = []
    with psycopg.connect(settings_of(postgres_url).conninfo) as other:
        other.execute(f"LOCK TABLE {postgres_url.partition('schema=')[2]}.meta IN SHARE ROW EXCLUSIVE MODE")  # type: ignore[call-overload]
        thread = threading.Thread(target=lambda: made.append(migrate(postgres_url)))
        thread.start()
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        while not postgres_schemas.execute(waits, (f"{postgres_url.partition('schema=')[2]}.meta",)):
            assert thread.is_alive()
        assert made == []
        other.rollback()
    thread.join(20)
    assert made == [()]


def test_migrating_again_does_nothing(postgres_schemas: Schemas, postgres_url: str) -> None:
    before = shape(postgres_schemas, postgres_url.partition("schema=")[2])
    assert migrate(postgres_url) == ()
    assert shape(postgres_schemas, postgres_url.partition("schema=")[2]) == before


def test_a_store_that_is_not_there_says_how_to_make_it(postgres_schemas: Schemas, empty: str) -> None:
    with pytest.raises(StoreNotFound, match=rf"schema {empty} of this database; make it with `holdfast migrate`"):
        open_store(postgres_schemas.url(empty))
    postgres_schemas.execute(f"CREATE SCHEMA {empty}")
    with pytest.raises(StoreNotFound, match="holdfast migrate"):
        open_store(postgres_schemas.url(empty))


def test_a_store_that_vanishes_says_so(postgres_schemas: Schemas, empty: str) -> None:
    migrate(postgres_schemas.url(empty))
    store = open_store(postgres_schemas.url(empty))
    postgres_schemas.execute(f"DROP SCHEMA {empty} CASCADE")
    with pytest.raises(StoreNotFound, match="holdfast migrate"):
        store.get("run")
    store.drop()


def test_a_store_of_an_older_schema_says_how_to_bring_it_up_to_date(postgres_url: str, sql: Sql) -> None:
    newest = len(migrations())
    sql("UPDATE {schema}.meta SET value = %s WHERE name = 'schema'", newest - 1)
    try:
        with pytest.raises(StoreError, match=rf"at migration {newest - 1}, .* needs {newest}; run `holdfast migrate`"):
            open_store(postgres_url)
    finally:
        sql("UPDATE {schema}.meta SET value = %s WHERE name = 'schema'", newest)


@pytest.mark.parametrize(("name", "known"), [("oldest_reader", READER), ("oldest_writer", WRITER)])
@pytest.mark.parametrize("use", [open_store, migrate])
def test_a_store_that_needs_a_newer_holdfast_is_refused(
    postgres_url: str, sql: Sql, name: str, known: int, use: Callable[[str], object]
) -> None:
    sql("UPDATE {schema}.meta SET value = value + 1 WHERE name = %s", name)
    try:
        with pytest.raises(StoreTooNew, match=rf"format {known + 1}.*upgrade Holdfast"):
            use(postgres_url)
    finally:
        sql("UPDATE {schema}.meta SET value = value - 1 WHERE name = %s", name)


def test_a_later_schema_that_allows_us_is_opened(postgres_schemas: Schemas, empty: str) -> None:
    migrate(postgres_schemas.url(empty))
    postgres_schemas.execute(f"ALTER TABLE {empty}.run ADD COLUMN of_the_future text DEFAULT 'x'")
    postgres_schemas.execute(f"UPDATE {empty}.meta SET value = 99 WHERE name = 'schema'")
    clock = ManualClock()
    store, author = PostgresStore(postgres_schemas.url(empty), clock=clock), Author(clock)
    store.beat("east", LEASE)
    held = store.claim(make(store, author.create("run")).uid, "east")
    put(store, author.append(held, Kind.DONE))
    store.close()


def test_a_store_that_does_not_say_what_it_is_is_refused(postgres_schemas: Schemas, empty: str) -> None:
    migrate(postgres_schemas.url(empty))
    postgres_schemas.execute(f"DELETE FROM {empty}.meta WHERE name = 'oldest_writer'")
    with pytest.raises(StoreDamaged, match="which format"):
        open_store(postgres_schemas.url(empty))


def test_a_schema_may_have_any_name(postgres_schemas: Schemas) -> None:
    from urllib.parse import quote

    for name in ('Sch%ema "it\'s quoted"', "ünïcode; DROP", "x" * 63):
        url = postgres_schemas.url(quote(name))
        migrate(url)
        try:
            clock = ManualClock()
            store, author = PostgresStore(url, clock=clock), Author(clock)
            store.beat("east", LEASE)
            held = store.claim(make(store, author.create("run", queue="q", workflow="w")).uid, "east")
            writes = [author.append(held, Kind.DONE)]
            writes.append(author.append(after(held, writes[0]), Kind.SAVED))
            assert store.apply(writes) == [None, None]
            assert write_one(store, Post(held.uid, item("k")))
            assert len(store.find(Filter(tags=()))) == 1
            assert (store.look(["q"], ["w"]).due, store.find(Filter(orphaned=True))) == ([], [])
            store.beat("east", 0)
            assert delete(store, held.uid)
            store.close()
        finally:
            postgres_schemas.execute('DROP SCHEMA "{}" CASCADE'.format(name.replace('"', '""')))


# --- rights


@pytest.fixture
def clerk(postgres_schemas: Schemas) -> Iterator[str]:
    """The name of a user with no rights but to log in."""
    name = f"{postgres_schemas.name}_clerk"
    postgres_schemas.execute(f"CREATE ROLE {name} LOGIN NOSUPERUSER")
    yield name
    postgres_schemas.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def test_no_superuser_is_needed(postgres_schemas: Schemas, clerk: str, empty: str) -> None:
    url = f"{postgres_schemas.elsewhere(user=clerk)}?schema={empty}"
    with pytest.raises(StoreReadOnly, match="permission denied"):
        migrate(url)
    postgres_schemas.execute(f"CREATE SCHEMA {empty} AUTHORIZATION {clerk}")
    assert migrate(url) == tuple(number for number, _ in migrations())
    clock = ManualClock()
    store, author = PostgresStore(url, clock=clock), Author(clock)
    store.beat("east", LEASE)
    held = store.claim(make(store, author.create("run")).uid, "east")
    put(store, author.append(held, Kind.DONE))
    before = store.version()
    assert write_one(store, Post(held.uid, item("k")))
    assert store.version() != before
    store.close()


def test_who_may_not_write_is_told(postgres_schemas: Schemas, clerk: str, empty: str) -> None:
    migrate(postgres_schemas.url(empty))
    postgres_schemas.execute(f"GRANT USAGE ON SCHEMA {empty} TO {clerk}")
    postgres_schemas.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {empty} TO {clerk}")
    store = PostgresStore(f"{postgres_schemas.elsewhere(user=clerk)}?schema={empty}")
    assert store.get("run") is None
    with pytest.raises(StoreReadOnly, match=f"permission denied.*grant this user the rights to the schema {empty}"):
        store.beat("east", LEASE)
    store.drop()


def test_a_database_of_another_encoding_is_refused(postgres_schemas: Schemas) -> None:
    name = f"{postgres_schemas.name}_latin"
    postgres_schemas.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    try:
        with pytest.raises(StoreError, match="encoding is LATIN1; Holdfast needs one made with UTF8"):
            migrate(postgres_schemas.elsewhere(database=name))
    finally:
        postgres_schemas.execute(f"DROP DATABASE {name} WITH (FORCE)")


# --- plans


def test_nothing_that_workers_ask_for_reads_whole_tables(postgres_schemas: Schemas, empty: str) -> None:
    """Of 3,000 finished runs, none is looked at where a few are wanted."""
    url = postgres_schemas.url(empty)
    migrate(url)
    postgres_schemas.execute(
        f"INSERT INTO {empty}.run (uid, id, created_at, root, base, workflow, tags, lineage, queue, priority, status, "
        "epoch, rewinds, hidden, chapter, crashes, crashed_at) SELECT lpad(to_hex(g), 24, '0'), 'run ' || g, g, '', 0, "
        "'w', '{}', '[]', 'q', 0, 'completed', 1, '[]', false, 0, 0, -1 FROM generate_series(1, 3000) g"
    )
    postgres_schemas.execute(
        f"INSERT INTO {empty}.entry SELECT r.n, s, 0, NULL, 'done', '', '' FROM {empty}.run r, generate_series(0, 1) s"
    )
    postgres_schemas.execute(f"ANALYZE {empty}.run; ANALYZE {empty}.entry")
    store = PostgresStore(url)
    asked: list[tuple[str, Any]] = []
    ask = store._link.ask
    store._link.ask = lambda statement, values=(): (asked.append((statement, values)), ask(statement, values))[1]  # type: ignore[method-assign]
    store.look(["p", "q"], [f"w{n}" for n in range(50)])
    store.find(Filter(orphaned=True))
    order = Order(worker="e", queues={"q": Limits(total=3)}, workflows=frozenset({"w"}), limit=5)
    values = store._at(queues=["q"], workflows=["w"], leave=[], full=[], limit=5)
    assert store.take(order) == []
    asked += [(store._q[name], values) for name in ("take_due", "take_waiting", "take_left", "held")]
    store.get("run 7")
    store.get(uid="0" * 24)
    store.find(Filter())
    store.find(Filter(workflow="w"))
    store.find(Filter(parent="p"))
    store.find(Filter(tags=(("a", "b"),)))
    with psycopg.connect(url.partition("?")[0]) as conn:
        for statement, values in asked:
            plan = "\n".join(row[0] for row in conn.execute(f"EXPLAIN {statement}", values))  # type: ignore[call-overload]
            assert "Seq Scan on run" not in plan, plan
            assert "Seq Scan on entry" not in plan, plan
    store.drop()
