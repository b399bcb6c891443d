"""Queues in a folder: who takes from them takes turns, and a damaged run or document is told and hides no other."""

import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import StoreDamaged
from holdfast.kernel.model import Change, Kind, Limits, Order, Status
from holdfast.stores.files.store import FilesStore
from holdfast.stores.protocol import find_document
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, ids, make


def order(worker: str, workflow: str = "w", limits: Limits | None = None) -> Order:
    return Order(worker=worker, queues={"q": limits}, workflows=frozenset({workflow}), limit=9)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def place(memdir: Path) -> Path:
    return memdir / "store"


def opened(place: Path, clock: ManualClock, worker: str) -> FilesStore:
    store = FilesStore(str(place), clock=clock)
    store.beat(worker, LEASE)
    return store


def test_who_takes_waits_until_the_other_has_claimed_what_it_chose(place: Path, clock: ManualClock) -> None:
    one, two = opened(place, clock, "one"), opened(place, clock, "two")
    author = Author(clock)
    for workflow in ("v", "w"):
        make(one, author.create(workflow, queue="q", workflow=workflow))
    chosen, over = threading.Event(), threading.Event()
    real, taken = one._choose, []

    def choose(wanted: Order) -> list[str]:
        found = real(wanted)
        chosen.set()
        over.wait(0.15)  # long enough for the other, if it does not wait
        return found

    def take(store: FilesStore, worker: str, workflow: str) -> None:
        taken.extend(store.take(order(worker, workflow, Limits(total=1))))

    def take_second() -> None:
        assert chosen.wait(20)
        take(two, "two", "w")
        over.set()

    one._choose = choose  # type: ignore[method-assign]
    threads = [threading.Thread(target=take, args=(one, "one", "v")), threading.Thread(target=take_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ids(taken) == ["v"]
    one.close()
    two.close()


def test_a_damaged_run_is_not_taken_and_takes_no_place(place: Path, clock: ManualClock) -> None:
    store, author = opened(place, clock, "one"), Author(clock)
    for id in ("bad", "good", "better"):
        make(store, author.create(id, queue="q", workflow="w"))
    [journal] = [path for path in place.rglob("journal.jsonl") if path.parent.name.startswith("bad-")]
    journal.write_bytes(journal.read_bytes().replace(b'"seq":0', b'"seq":9'))
    store.close()
    again = opened(place, clock, "two")
    wanted = Order(worker="two", queues={"q": Limits(total=2, starts=2)}, workflows=frozenset({"w"}), limit=2)
    assert ids(again.take(wanted)) == ["good", "better"]
    again.close()


@pytest.mark.parametrize("how", ["flipped", "cut off", "emptied"])
def test_a_damaged_document_is_told_with_its_place(place: Path, clock: ManualClock, how: str) -> None:
    store = opened(place, clock, "one")
    store.put_document("queue", "mail", b'{"limit":3}', None)
    [path] = (place / "documents" / "queue").glob("*.json")
    text = path.read_bytes()
    damaged: dict[str, Any] = {"flipped": text.replace(b"3", b"4"), "cut off": text[:-9], "emptied": b""}
    path.write_bytes(damaged[how])
    for use in (lambda: find_document(store, "queue", "mail"), lambda: store.documents("queue")):
        with pytest.raises(StoreDamaged, match=r"documents/queue/.*restore"):
            use()
    store.close()


def test_what_was_let_go_of_before_run_json_said_so_is_taken(place: Path, clock: ManualClock) -> None:
    store, author = opened(place, clock, "one"), Author(clock)
    held = store.claim(make(store, author.create("run", queue="q", workflow="w")).uid, "one")
    [path] = place.rglob("run.json")
    before = path.read_bytes()
    write = author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True))
    assert store.apply([write]) == [None]
    store.close()
    path.write_bytes(before)  # as if the process had died right after the line was written
    again = opened(place, clock, "two")
    assert ids(again.look(["q"], ["w"]).due) == ids(again.take(order("two"))) == ["run"]
    again.close()
