"""Through PgBouncer in transaction mode: the contract of the stores, and a fleet whose workers are killed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pgbouncer import Bouncer

import holdfast
from holdfast.kernel.model import Change, Kind, Post, Status
from holdfast.stores import Store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import write_one
from holdfast.testing import ManualClock
from holdfast.testing.contract import ProcessStoreContract
from holdfast.testing.contract_author import LEASE, Author, after, item, make

pytestmark = pytest.mark.needs("pgbouncer")


@pytest.fixture(scope="module")
def bouncer(postgres_server: str) -> Iterator[Bouncer]:
    bouncer = Bouncer(postgres_server)
    yield bouncer
    bouncer.end()


@pytest.mark.slow(covered_by="tests/postgres/test_contract.py::TestPostgres")
class TestThroughPgBouncer(ProcessStoreContract):
    """Queues are a part of it."""

    @pytest.fixture
    def place(self, postgres_url: str, bouncer: Bouncer) -> Path:
        return Path("/") / bouncer.url(postgres_url).partition("://")[2]

    def open_store(self, place: Path, clock: ManualClock) -> Store:
        return PostgresStore(f"postgresql:/{place}", clock=clock)


IGNORING = "ignore_startup_parameters = options"


@pytest.mark.parametrize("more", ["", IGNORING], ids=["options are refused", "options are ignored"])
def test_settings_of_ours_hold_in_every_transaction_that_writes(
    database: str, author: Author, clock: ManualClock, more: str
) -> None:
    """Whatever the database has been told: a trigger looks at each run and each entry that is written."""
    looked = """
    ALTER DATABASE {database} SET default_transaction_isolation = 'serializable';
    ALTER DATABASE {database} SET synchronous_commit = off;
    CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('lock_timeout') <> '5s'
        OR current_setting('synchronous_commit') <> 'on' THEN RAISE EXCEPTION 'not as it should be'; END IF;
        RETURN NULL;
    END $$;
    """
    watched = "CREATE TRIGGER look AFTER INSERT OR UPDATE ON holdfast.{table} FOR EACH ROW EXECUTE FUNCTION look();"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(looked.format(database=conn.info.dbname))
        for table in ("run", "entry", "inbox", "document"):
            conn.execute(watched.format(table=table))
    bouncer = Bouncer(database, more)
    store = PostgresStore(bouncer.url(database), clock=clock)
    try:
        store.beat("east", LEASE)
        runs = [store.claim(make(store, author.create(f"run {n}")).uid, "east") for n in range(3)]
        for some in (runs[:1], runs):
            writes = [author.append(run, Kind.DONE) for run in some]
            assert store.apply(writes) == [None] * len(some)
            runs = [after(run, write) for run, write in zip(some, writes, strict=True)] + runs[len(some) :]
        assert write_one(store, Post(runs[0].uid, item("k")))
        assert store.put_document("kind", "name", b"value", None)
        end = author.append(runs[1], Kind.COMPLETED, change=Change(status=Status.COMPLETED, release=True))
        assert store.apply([end]) == [None]
    finally:
        store.close()
        bouncer.end()


def test_it_is_noticed(fleet: Any, bouncer: Bouncer) -> None:
    """And then no statement is prepared, nothing listens, and limits are set in each transaction."""
    with holdfast.open(bouncer.url(fleet.url)) as hf, hf.client.store._link.connect() as conn:
        assert conn.pooled
        assert not conn.limited
        assert conn.prepare_threshold is None
        hf.client.store.listen(lambda uid: None)
        assert not hf.client.store.hears


@pytest.mark.slow(
    covered_by="tests/processes/test_workflow_kills.py::test_workers_that_are_killed_lose_nothing_and_do_nothing_twice"
)
@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.torture)])
def test_a_fleet_whose_workers_are_killed_loses_nothing_and_does_nothing_twice(
    fleet: Any, bouncer: Bouncer, kills: int, verdict: Callable[..., None]
) -> None:
    crew = fleet.crew(lambda: fleet.worker(bouncer.url(fleet.url)), 2)

    fleet.trial.go(crew.killing(kills), timeout=900 if kills > 8 else 90)
    crew.dismiss()
    verdict(fleet, "workers killed behind PgBouncer", kills=crew.killed)
