"""What the tests of the store in PostgreSQL share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pgserver import Schemas, Server, new_folder

from holdfast.kernel.model import RunRecord
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, make

Sql = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def store_url(postgres_url: str) -> str:
    return postgres_url


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def author(clock: ManualClock) -> Author:
    return Author(clock)


@pytest.fixture
def store(postgres_url: str, clock: ManualClock) -> Iterator[PostgresStore]:
    """A store with a worker ``east``."""
    store = PostgresStore(postgres_url, clock=clock)
    store.beat("east", LEASE)
    yield store
    store.close()


@pytest.fixture
def held(store: PostgresStore, author: Author) -> RunRecord:
    """A run that east holds."""
    return store.claim(make(store, author.create("run")).uid, "east")


@pytest.fixture
def sql(postgres_schemas: Schemas, postgres_url: str) -> Sql:
    """Carries out a statement beside the store; ``{schema}`` is the store's."""

    def execute(statement: str, *values: object) -> list[tuple[object, ...]]:
        return postgres_schemas.execute(statement.replace("{schema}", postgres_url.partition("schema=")[2]), values)

    return execute


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server of this test alone, which it may stop and start. Its commits are synced."""
    server = Server(new_folder())
    server.make()
    server.start(fsync="on", synchronous_commit="on", full_page_writes="on", max_connections="40")
    yield server
    server.remove()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
