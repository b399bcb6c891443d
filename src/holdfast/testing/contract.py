"""What every store promises, one test per promise.

To prove a store of your own, subclass `StoreContract` in a test module and say how the store is opened:

    from holdfast.testing.contract import StoreContract

    class TestMyStore(StoreContract):
        def open_store(self, place, clock):
            return MyStore(place / "mine.db", clock=clock)

pytest does the rest. ``place`` is a path that no other test uses; opening it twice must give two independent handles
on the same runs, as two processes would have them. What a store keeps in files has to stay under it. ``clock`` is a
`ManualClock`: leases are to be measured by it. Override the fixture ``place`` if your store lives somewhere else.

A store whose handle is bound to its process subclasses `ProcessStoreContract`: it has the same promises, and those
about `os.fork`. One that keeps files on this machine subclasses `FileStoreContract`, which adds those about processes
that are killed.

The tests use payloads of plain bytes: to a store they are opaque.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import Claimed, StoreUnusable
from holdfast.kernel.model import Adopt, EndMove, Filter, Kind, Post, Rewrap, RunRecord
from holdfast.stores.protocol import Store, write_one
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract_author import ALL, LEASE, Author, after, ids, item, make, put, snapshot, whole
from holdfast.testing.contract_finding import FindingContract
from holdfast.testing.contract_holding import HoldingContract
from holdfast.testing.contract_keeping import KeepingContract
from holdfast.testing.contract_moving import MovingContract
from holdfast.testing.contract_queues import QueueContract, order
from holdfast.testing.contract_waiting import WaitingContract
from holdfast.testing.contract_writing import WritingContract

USES = (
    *("get", "get by uid", "find", "orphans", "read", "inbox", "taken", "look", "backlog", "counts", "version"),
    *("workers", "document", "documents", "put_document"),
    *("create", "append", "post", "rewrap", "adopt", "end move"),
    *("claim", "take", "first beat", "beat", "retire", "delete", "delete many"),
)


class StoreContract(
    WritingContract, HoldingContract, WaitingContract, KeepingContract, FindingContract, QueueContract, MovingContract
):
    """The promises. See the module's text for how to use it."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """Where the store of this test lives. Its parent folder belongs to the test too."""
        folder = tmp_path / "around" / "store"
        folder.mkdir(parents=True)
        return folder

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def author(self, clock: ManualClock) -> Author:
        return Author(clock)

    @pytest.fixture
    def store(self, place: Path, clock: ManualClock) -> Iterator[Store]:
        """A handle, with two workers: ``east`` and ``west``."""
        store = self.open_store(place, clock)
        store.beat("east", LEASE)
        store.beat("west", LEASE)
        yield store
        store.close()

    @pytest.fixture
    def other(self, store: Store, place: Path, clock: ManualClock) -> Iterator[Store]:
        """A second handle on the same place, as another process would have, with the worker ``north``."""
        other = self.open_store(place, clock)
        other.beat("north", LEASE)
        yield other
        other.close()

    @pytest.fixture
    def run(self, store: Store, author: Author) -> RunRecord:
        """A run that nobody holds."""
        return make(store, author.create("run"))

    @pytest.fixture
    def held(self, store: Store, run: RunRecord) -> RunRecord:
        """The same, held by east."""
        return store.claim(run.uid, "east")

    # --- closing

    def test_close_may_be_repeated(self, store: Store) -> None:
        store.close()
        store.close()

    def test_a_closed_handle_does_not_close_the_others(
        self, store: Store, other: Store, author: Author, run: RunRecord
    ) -> None:
        other.close()
        assert store.get("run") == run
        make(store, author.create("still open"))

    @pytest.mark.parametrize("use", USES)
    def test_a_closed_handle_refuses_everything(self, store: Store, author: Author, held: RunRecord, use: str) -> None:
        store.close()
        with pytest.raises(StoreUnusable):
            self.use(store, author, held, use)

    def use(self, store: Store, author: Author, held: RunRecord, use: str) -> None:
        """Call one method of the store."""
        record, entries = whole(author)
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: store.get("run"),
            "get by uid": lambda: store.get(uid=held.uid),
            "find": lambda: store.find(Filter()),
            "read": lambda: store.read(held.uid, 0, ALL),
            "inbox": lambda: store.inbox(held.uid),
            "taken": lambda: store.inbox(held.uid, taken=True),
            "orphans": lambda: store.find(Filter(orphaned=True)),
            "look": lambda: store.look(["q"], ["w"]),
            "version": lambda: store.version(),
            "take": lambda: store.take(order("q")),
            "backlog": lambda: store.backlog(),
            "counts": lambda: store.counts(9),
            "workers": lambda: store.workers(),
            "document": lambda: store.documents("k", "n"),
            "documents": lambda: store.documents("k"),
            "put_document": lambda: store.put_document("k", "n", b"1", None),
            "create": lambda: store.apply([author.create("new")]),
            "append": lambda: store.apply([author.append(held, Kind.DONE)]),
            "claim": lambda: store.claim(held.uid, "west"),
            "post": lambda: write_one(store, Post(held.uid, item("k"))),
            "first beat": lambda: store.beat("south", LEASE),
            "beat": lambda: store.beat("east", LEASE),
            "retire": lambda: store.beat("east", 0),
            "delete": lambda: store.delete([held]),
            "delete many": lambda: store.delete([held, replace(held, uid="0")]),
            "rewrap": lambda: write_one(store, Rewrap(held.uid, b"", "k", b"")),
            "adopt": lambda: write_one(store, Adopt(record, entries)),
            "end move": lambda: write_one(store, EndMove(held.uid, epoch=held.epoch)),
        }
        calls[use]()

    # --- many at once

    def test_writers_of_different_runs_do_not_disturb_each_other(
        self, store: Store, other: Store, author: Author
    ) -> None:
        failed: list[BaseException] = []

        def write(handle: Store, held: RunRecord) -> None:
            try:
                for _ in range(10):
                    append = author.append(held, Kind.DONE)
                    put(handle, append)
                    held = after(held, append)
                    write_one(handle, Post(held.uid, item(f"k{held.seq}")))
            except BaseException as error:  # it is raised by whoever joins the threads
                failed.append(error)

        handles = {"east": store, "west": store, "north": other}
        held = {worker: handles[worker].claim(make(store, author.create(worker)).uid, worker) for worker in handles}
        threads = [threading.Thread(target=write, args=(handles[worker], held[worker])) for worker in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        for record in held.values():
            assert [entry.seq for entry in store.read(record.uid, 0, ALL)] == list(range(11))
            assert [found.key for found in store.inbox(record.uid)] == [f"k{n}" for n in range(1, 11)]

    def test_a_key_that_many_post_at_once_is_used_once(self, store: Store, other: Store, run: RunRecord) -> None:
        accepted: list[bool] = []
        start = threading.Barrier(4)

        def post(handle: Store, n: int) -> None:
            start.wait()
            accepted.append(write_one(handle, Post(run.uid, item("k", payload=str(n).encode()))))

        threads = [threading.Thread(target=post, args=((store, other)[n % 2], n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(accepted) == [False, False, False, True]
        assert len(store.inbox(run.uid)) == 1


class ProcessStoreContract(StoreContract):
    """The promises of a store whose handle is bound to its process: about `os.fork`."""

    @pytest.mark.parametrize("use", USES)
    def test_a_handle_refuses_everything_in_a_forked_child(
        self, store: Store, author: Author, held: RunRecord, use: str
    ) -> None:
        before = snapshot(store, held.uid)

        def child() -> None:
            with pytest.raises(StoreUnusable):
                self.use(store, author, held, use)

        assert in_child(child) == 0
        assert snapshot(store, held.uid) == before

    def test_a_forked_child_that_closes_the_handle_leaves_its_parent_alone(
        self, store: Store, other: Store, author: Author, held: RunRecord
    ) -> None:
        assert in_child(store.close) == 0
        with pytest.raises(Claimed):
            other.claim(held.uid, "north")
        put(store, author.append(held, Kind.DONE))
        assert [entry.seq for entry in other.read(held.uid, 0, ALL)] == [0, 1]


class FileStoreContract(ProcessStoreContract):
    """The promises of a store that keeps files: also about processes that are killed."""

    def test_what_a_killed_process_held_may_be_claimed_at_once(
        self, store: Store, place: Path, clock: ManualClock, author: Author, run: RunRecord
    ) -> None:
        def child() -> None:
            again = self.open_store(place, clock)
            again.beat("south", LEASE)
            held = again.claim(run.uid, "south")
            put(again, author.append(held, Kind.DONE))
            os._exit(0)  # as if it was killed: nothing is given up

        assert in_child(child) == 0
        assert len(store.read(run.uid, 0, ALL)) == 2
        assert ids(store.find(Filter(orphaned=True))) == ["run"]
        assert store.claim(run.uid, "east").epoch == run.epoch + 2


def in_child(act: Callable[[], object]) -> int:
    """Call something in a forked child; its exit status, 0 if it returned."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
