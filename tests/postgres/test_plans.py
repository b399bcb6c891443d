"""How the server finds what is asked for among many runs: by an index, and without looking at more than it gives."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from pgserver import Schemas

from holdfast.kernel.model import Filter, Limits, Order, Status
from holdfast.stores.postgres import reads as module
from holdfast.stores.postgres.schema import SQL_FOLDER, migrate
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.contract_author import delete

RUNS = 20_000
PAGE = 50
READ = 8 * PAGE  # rows that may be read for a page: of the run, its tags, its newest entry

FILTERS = {
    "newest": Filter(),
    "status": Filter(statuses=(Status.FAILED,)),
    "statuses": Filter(statuses=(Status.FAILED, Status.CANCELLED, Status.COMPLETED)),
    "rare statuses": Filter(statuses=(Status.BLOCKED, Status.CANCELLED)),
    "workflow": Filter(workflow="w3"),
    "parent": Filter(parent="p"),
    "common tag": Filter(tags=(("all", "yes"),)),
    "tag": Filter(tags=(("region", "7"),)),
    "rare tag": Filter(tags=(("customer", "100"),)),
    "no such tag": Filter(tags=(("customer", "nobody"),)),
    "prefix": Filter(prefix="c100/"),
    "time": Filter(created_from=500_000_000, created_before=500_000_000 + 40_000_000),
    "time of a tag": Filter(tags=(("all", "yes"),), created_from=500_000_000, created_before=500_000_000 + 40_000_000),
    "since": Filter(created_before=500_000_000, workflow="w3"),
}


@pytest.fixture(scope="module")
def url(postgres_schemas: Schemas) -> Iterator[str]:
    """A store with many finished runs, some that wait for a later time, and one that can be taken."""
    schema = f"{postgres_schemas.name}_plans"
    made = postgres_schemas.url(schema)
    migrate(made)
    columns = (
        "uid, id, created_at, root, base, workflow, tags, lineage, queue, priority, status, epoch, rewinds, hidden"
    )
    postgres_schemas.execute(
        f"INSERT INTO {schema}.run ({columns}, chapter, crashes, crashed_at, wake_at) SELECT "
        "lpad(to_hex(g::bigint * 1000000), 13, '0') || 'aaaaaaaaaaa', 'c' || g / 60 || '/' || g, g::bigint * 1000000, "
        "'', 0, 'w' || g % 10, jsonb_build_object('all', 'yes', 'region', (g % 10)::text, 'customer', (g / 60)::text), "
        "'[]', 'q', g % 3, CASE WHEN g = 20000 THEN 'ready' WHEN g > 15000 THEN 'waiting' "
        "WHEN g % 10 = 3 THEN 'failed' WHEN g % 1000 = 1 THEN 'cancelled' ELSE 'completed' END, "
        "1, '[]', false, 0, 0, -1, CASE WHEN g > 15000 AND g < 20000 THEN 1152921504606846976 END "
        f"FROM generate_series(1, {RUNS}) g"
    )
    entries = f"SELECT r.n, s, 0, NULL, 'done', '', '' FROM {schema}.run r, generate_series(0, 1) s"
    postgres_schemas.execute(f"INSERT INTO {schema}.entry {entries}")
    for table in ("run", "entry", "run_tag"):
        postgres_schemas.execute(f"VACUUM (ANALYZE) {schema}.{table}")
    yield made
    postgres_schemas.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.drop()


@pytest.fixture
def explained(store: PostgresStore, url: str) -> Callable[[Callable[[], object]], list[dict[str, Any]]]:
    """The nodes of the plans by which a question is answered, as they were carried out."""

    def explain(ask: Callable[[], object]) -> list[dict[str, Any]]:
        asked: list[tuple[str, Any]] = []
        plain, together = store._link.ask, module.together
        store._link.ask = lambda statement, values=(): (asked.append((statement, values)), plain(statement, values))[1]  # type: ignore[method-assign]
        module.together = lambda conn, *some: (asked.extend(some), together(conn, *some))[1]
        try:
            ask()
        finally:
            store._link.ask, module.together = plain, together  # type: ignore[method-assign]
        assert asked
        return [node for each in asked for node in carried_out(url, *each)]

    return explain


def carried_out(url: str, statement: str, values: Any) -> Iterator[dict[str, Any]]:
    with psycopg.connect(url.partition("?")[0]) as conn:
        told = conn.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values).fetchone()  # type: ignore[call-overload]
        conn.rollback()
    assert told is not None
    yield from nodes(told[0][0]["Plan"] if not isinstance(told[0], str) else json.loads(told[0])[0]["Plan"])


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def read(node: dict[str, Any]) -> float:
    """How many rows a node looked at."""
    passed_over = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return float((node["Actual Rows"] + passed_over) * node["Actual Loops"])


def check(found: list[dict[str, Any]], most: int) -> None:
    for node in found:
        assert node["Node Type"] != "Seq Scan" or node["Relation Name"] in ("worker", "pulse"), node
        assert read(node) <= most, node


@pytest.mark.parametrize("name", FILTERS)
def test_a_list_is_found_by_an_index(
    store: PostgresStore, explained: Callable[[Callable[[], object]], list[dict[str, Any]]], name: str
) -> None:
    check(explained(lambda: store.find(FILTERS[name], limit=PAGE)), READ)


@pytest.mark.parametrize("name", FILTERS)
def test_so_is_the_page_after_it(
    store: PostgresStore, explained: Callable[[Callable[[], object]], list[dict[str, Any]]], name: str
) -> None:
    page = store.find(FILTERS[name], limit=PAGE)
    if page:
        check(explained(lambda: store.find(FILTERS[name], before=page[-1].uid, limit=PAGE)), READ)


def test_so_is_a_run(store: PostgresStore, explained: Callable[[Callable[[], object]], list[dict[str, Any]]]) -> None:
    check(explained(lambda: store.get("c100/6000")), 2)
    check(explained(lambda: store.get(uid="0" * 24)), 2)


def test_what_is_due_is_found_without_what_waits_for_later(
    store: PostgresStore, explained: Callable[[Callable[[], object]], list[dict[str, Any]]]
) -> None:
    names = [f"w{n}" for n in range(10)]
    assert [record.id for record in store.look(["p", "q"], names).due] == ["c333/20000"]
    check(explained(lambda: store.look(["p", "q"], names)), 20)
    check(explained(lambda: store.find(Filter(orphaned=True))), 2)


def test_so_is_what_can_be_taken(store: PostgresStore, url: str) -> None:
    order = Order(worker="e", queues={"q": Limits(total=3)}, workflows=frozenset({"none of them"}), limit=5)
    assert store.take(order) == []
    values = store._at(queues=["p", "q"], workflows=["w0"], leave=[], full=[], limit=5)
    for name in ("take_due", "take_waiting", "take_left", "held"):
        check(list(carried_out(url, store._q[name], values)), 20)


def test_runs_that_were_there_before_are_found_by_their_tags(postgres_schemas: Schemas) -> None:
    """The migration that adds the table of tags fills it."""
    schema = f"{postgres_schemas.name}_older"
    with open(f"{SQL_FOLDER}/0001_journal.sql", encoding="utf-8") as file:
        postgres_schemas.execute(
            f'CREATE SCHEMA {schema}; CREATE TABLE {schema}.meta (name text COLLATE "C" PRIMARY KEY, value bigint NOT '
            f"NULL); INSERT INTO {schema}.meta VALUES ('schema', 1), ('oldest_reader', 1), ('oldest_writer', 1); "
            + file.read().replace("{schema}", schema)
        )
    try:
        postgres_schemas.execute(
            f"INSERT INTO {schema}.run (uid, id, created_at, root, base, tags, lineage, priority, status, epoch, "
            "rewinds, hidden, chapter, crashes, crashed_at) "
            "VALUES ('a', 'run', 1, '', 0, %s, '[]', 0, 'completed', 1, '[]', false, 0, 0, -1)",
            ('{"colour": "r\\u00e9d", "size": "1"}',),
        )
        postgres_schemas.execute(f"INSERT INTO {schema}.entry VALUES (1, 0, 1, NULL, 'created', '', '')")
        url = postgres_schemas.url(schema)
        assert migrate(url)[0] == 2
        store = PostgresStore(url)
        assert [record.id for record in store.find(Filter(tags=(("colour", "réd"), ("size", "1"))))] == ["run"]
        assert store.find(Filter(tags=(("colour", "1"),))) == []
        assert delete(store, "a")
        assert postgres_schemas.execute(f"SELECT count(*) FROM {schema}.run_tag") == [(0,)]
        store.close()
    finally:
        postgres_schemas.execute(f"DROP SCHEMA {schema} CASCADE")
