"""Taking from queues: as the store in memory does, and within the limits however many take at once."""

import random
import threading
from collections import Counter

import pytest
from msgspec.structs import replace

from holdfast.kernel.model import Change, Kind, Limits, Order, RunRecord, Status
from holdfast.stores.memory import MemoryStore
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import find_document
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, make, put

ENDS = [None, Status.READY, Status.WAITING, Status.COMPLETED]


def limits_of(dice: random.Random) -> Limits | None:
    if dice.random() < 0.3:
        return None
    return Limits(*(dice.choice([None, None, 1, 2, 4]) for _ in range(4)))


@pytest.mark.parametrize("seed", range(6))
def test_it_takes_what_the_store_in_memory_takes(store: PostgresStore, clock: ManualClock, seed: int) -> None:
    dice, memory = random.Random(seed), MemoryStore(clock=clock)
    author, both = Author(clock), (store, memory)
    for worker in ("east", "west", "dead"):
        for one in both:
            one.beat(worker, LEASE)
    for n in range(25):
        write = author.create(
            f"run {n}",
            queue=dice.choice(["p", "q\0", "r", None]),
            workflow=dice.choice(["v", "w"]),
            priority=dice.choice([0, 0, 0, 1, -3]),
            lane=dice.choice([None, "a", "b\0"]),
        )
        for one in both:
            make(one, write)
        if dice.random() < 0.6:
            worker, end = dice.choice(["east", "dead"]), dice.choice(ENDS)
            wake_at = clock.now() + dice.choice([-5, 0, 10**9]) if end is Status.WAITING else None
            for one in both:
                held = one.claim(write.record.uid, worker)
                if end is not None:
                    put(one, author.append(held, change=Change(status=end, release=True, wake_at=wake_at)))
    for one in both:
        one.beat("dead", 0)
    clock.advance(1)
    assert store.backlog() == memory.backlog()
    for _ in range(6):
        order = Order(
            worker=dice.choice(["east", "west"]),
            queues={name: limits_of(dice) for name in dice.sample(["p", "q\0", "r"], dice.choice([1, 2, 3]))},
            workflows=frozenset(dice.sample(["v", "w"], dice.choice([1, 2]))),
            limit=dice.choice([1, 2, 5]),
            suspects=dice.choice([0, 1]),
            alone=dice.random() < 0.3,
        )
        due = [[one.id for one in each.look(order.queues, order.workflows).due] for each in both]
        assert due[0] == due[1]
        taken = [each.take(order) for each in both]
        assert taken[0] == taken[1], (seed, order)
    assert store.backlog() == memory.backlog()


def test_what_is_passed_over_for_a_limit_does_not_hide_what_lies_behind_it(
    store: PostgresStore, author: Author
) -> None:
    for n in range(40):
        make(store, author.create(f"run {n}", queue="q", workflow="w", lane="crowded"))
    last = make(store, author.create("last", queue="q", workflow="w", lane="free"))
    order = Order(worker="east", queues={"q": Limits(per_lane=1)}, workflows=frozenset({"w"}), limit=2)
    assert [record.lane for record in store.take(order)] == ["crowded", "free"]
    assert store.take(order) == []
    assert store.get(uid=last.uid) is not None


@pytest.mark.parametrize("limits", [None, Limits(total=7), Limits(per_lane=2), Limits(per_worker=2)])
def test_many_who_take_at_once_share(
    store: PostgresStore, postgres_url: str, clock: ManualClock, author: Author, limits: Limits | None
) -> None:
    for n in range(30):
        make(store, author.create(f"run {n}", queue="q", workflow="w", lane=f"lane {n % 4}"))
    stores = [PostgresStore(postgres_url, clock=clock) for _ in range(4)]
    taken: list[list[RunRecord]] = []
    start = threading.Barrier(4)

    def take(n: int) -> None:
        worker = f"worker {n}"
        stores[n].beat(worker, LEASE)
        order = Order(worker=worker, queues={"q": limits}, workflows=frozenset({"w"}), limit=3)
        start.wait()
        for _ in range(5):
            taken.append(stores[n].take(order))

    threads = [threading.Thread(target=take, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in stores:
        one.close()
    all_of_them = [record for records in taken for record in records]
    assert len({record.uid for record in all_of_them}) == len(all_of_them)
    if limits is None:
        assert len(all_of_them) == 30
    elif limits.total is not None:
        assert len(all_of_them) == limits.total
    elif limits.per_lane is not None:
        assert Counter(record.lane for record in all_of_them) == {f"lane {n}": 2 for n in range(4)}
    else:
        assert Counter(record.worker for record in all_of_them) == {f"worker {n}": 2 for n in range(4)}


# --- documents


def test_documents_are_replaced_by_compare_and_set(store: PostgresStore, postgres_url: str) -> None:
    assert (find_document(store, "limit", "q\0"), store.documents("limit")) == (None, [])
    assert store.put_document("limit", "q\0", b"\x00one", None)
    assert not store.put_document("limit", "q\0", b"two", None)
    found = find_document(store, "limit", "q\0")
    assert found is not None
    assert (found.name, found.value) == ("q\0", b"\x00one")
    assert not store.put_document("limit", "q\0", b"two", found.version + 1)
    assert store.put_document("limit", "q\0", b"two", found.version)
    assert store.put_document("limit", "a", b"", None)
    assert store.put_document("other", "b", b"", None)
    assert [(one.name, one.value) for one in store.documents("limit")] == [("a", b""), ("q\0", b"two")]
    again = find_document(store, "limit", "q\0")
    assert again is not None
    assert not store.put_document("limit", "q\0", None, found.version)
    assert not store.put_document("limit", "q\0", None, None)
    assert store.put_document("limit", "q\0", None, again.version)
    assert store.put_document("limit", "q\0", None, None)
    assert find_document(store, "limit", "q\0") is None


def test_a_run_that_nobody_holds_may_be_appended_to(store: PostgresStore, author: Author) -> None:
    made = make(store, author.create("run"))
    put(store, author.append(made, Kind.REDACTED))
    made = store.get("run") or made
    writes = [author.append(made, Kind.REDACTED), author.append(replace(made, epoch=1), Kind.REDACTED)]
    outcomes = store.apply(writes)
    assert (outcomes[0], type(outcomes[1]).__name__) == (None, "LeaseLost")
    held = store.claim(made.uid, "east")
    [refused] = store.apply([author.append(replace(held, worker=None), Kind.REDACTED)])
    assert type(refused).__name__ == "LeaseLost"
