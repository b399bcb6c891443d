"""Every store of Holdfast keeps the contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import StoreUnusable
from holdfast.kernel.model import Filter, RunRecord
from holdfast.stores import Store, open_store
from holdfast.stores.files.store import FilesStore
from holdfast.stores.memory import MemoryStore, _shared
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract import USES, FileStoreContract, StoreContract
from holdfast.testing.contract_author import LEASE, Author, make


def dropped(contract: StoreContract, store: MemoryStore | SqliteStore | FilesStore, author: Author) -> None:
    held = store.claim(make(store, author.create("run")).uid, "east")
    store.drop()
    for use in USES:
        with pytest.raises(StoreUnusable):
            contract.use(store, author, held, use)
    store.drop()
    store.close()
    store.drop()


class TestMemory(StoreContract):
    @pytest.fixture
    def place(self, request: pytest.FixtureRequest) -> Iterator[Path]:
        name = Path("/contract") / request.node.name
        yield name
        _shared.pop(str(name), None)

    def open_store(self, place: Path, clock: ManualClock) -> Store:
        return MemoryStore(str(place), clock=clock)

    def test_a_dropped_handle_is_closed(self, store: MemoryStore, author: Author) -> None:
        dropped(self, store, author)


class OnDisk(FileStoreContract):
    def test_a_dropped_handle_is_closed(self, store: SqliteStore | FilesStore, author: Author) -> None:
        dropped(self, store, author)

    def test_whatever_a_dropped_handle_held_may_be_claimed_at_once(
        self, store: Store, other: SqliteStore | FilesStore, run: RunRecord
    ) -> None:
        held = other.claim(run.uid, "north")
        other.drop()
        with pytest.raises(StoreUnusable):  # a heartbeat that was under way takes no lock again
            other.beat("north", LEASE)
        assert store.find(Filter(orphaned=True)) == [held]
        assert store.claim(run.uid, "east").epoch == held.epoch + 1

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
