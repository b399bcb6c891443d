"""Through PgBouncer in transaction mode: the contract of the stores, and a fleet whose workers are killed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pgbouncer import Bouncer

import holdfast
from holdfast.stores import Store
from holdfast.stores.postgres import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract import ProcessStoreContract

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


def test_it_is_noticed(fleet: Any, bouncer: Bouncer) -> None:
    """And then no statement is prepared, nothing listens, and limits are set in each transaction."""
    with holdfast.open(bouncer.url(fleet.url)) as hf, hf._store._link.connect() as conn:
        assert conn.pooled
        assert not conn.limited
        assert conn.prepare_threshold is None
        hf._store.listen(lambda uid: None)
        assert not hf._store.hears


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
