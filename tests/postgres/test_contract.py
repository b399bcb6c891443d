"""The store in PostgreSQL keeps the contract."""

from pathlib import Path

import pytest

from holdfast.stores import Store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract import ProcessStoreContract


class TestPostgres(ProcessStoreContract):
    @pytest.fixture
    def place(self, postgres_url: str) -> Path:
        return Path("/") / postgres_url.partition("://")[2]

    def open_store(self, place: Path, clock: ManualClock) -> Store:
        return PostgresStore(f"postgresql:/{place}", clock=clock)
