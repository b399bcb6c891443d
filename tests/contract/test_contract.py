"""Every store of Holdfast keeps the contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores import Store, open_store
from holdfast.stores.files.store import FilesStore
from holdfast.stores.memory import MemoryStore, _shared
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract import FileStoreContract, StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    def place(self, request: pytest.FixtureRequest) -> Iterator[Path]:
        name = Path("/contract") / request.node.name
        yield name
        _shared.pop(str(name), None)

    def open_store(self, place: Path, clock: ManualClock) -> Store:
        return MemoryStore(str(place), clock=clock)


class OnDisk(FileStoreContract):
    @pytest.fixture
    def place(self, memdir: Path) -> Path:
        folder = memdir / "around" / "store"
        folder.mkdir(parents=True)
        return folder


class TestSqlite(OnDisk):
    def open_store(self, place: Path, clock: ManualClock) -> Store:
        return SqliteStore(str(place / "runs.db"), clock=clock)


@pytest.mark.slow(covered_by="tests/contract/test_contract.py::TestSqlite")
class TestSqliteNormal(OnDisk):
    def open_store(self, place: Path, clock: ManualClock) -> Store:
        return SqliteStore(str(place / "runs.db"), durability="normal", clock=clock)


class TestFiles(OnDisk):
    def open_store(self, place: Path, clock: ManualClock) -> Store:
        return FilesStore(str(place), clock=clock)


@pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/runs.db", "files:///{}/runs"])
def test_a_store_is_opened_by_its_url(memdir: Path, url: str) -> None:
    clock = ManualClock()
    store = open_store(url.format(memdir), clock=clock)
    assert store.clock is clock
    assert store.get("nothing") is None
    store.close()
