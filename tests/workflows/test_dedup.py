"""What is enqueued with the same text is done once: for ever, or for a time."""

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import Holdfast, workflow
from holdfast.testing import ManualClock

Opener = Callable[..., Holdfast]


@workflow
def acting(name: str) -> str:
    return name


@workflow
def other(name: str) -> str:
    return name


def test_the_same_dedup_gives_the_same_run_for_ever(hft: Holdfast, clock: ManualClock) -> None:
    first = hft.enqueue(acting, "a", dedup="invoice 17")
    assert first.id == "acting(invoice 17)#1"
    assert hft.enqueue(acting, "b", dedup="invoice 17").uid == first.uid
    hft.work(until_idle=True)
    clock.advance(1e9)
    assert hft.enqueue(acting, "c", dedup="invoice 17").uid == first.uid
    assert hft.enqueue(other, "c", dedup="invoice 17").uid != first.uid, "another workflow's"
    assert first.result(timeout=0) == "a"
    first.delete()
    assert hft.enqueue(acting, "d", dedup="invoice 17").uid != first.uid


def test_a_run_counts_for_its_time_to_live(hft: Holdfast, clock: ManualClock) -> None:
    first = hft.enqueue(acting, "a", dedup="k", ttl=60)
    clock.advance(59)
    assert hft.enqueue(acting, "b", dedup="k", ttl=60).uid == first.uid
    clock.advance(1)
    second = hft.enqueue(acting, "c", dedup="k", ttl=timedelta(minutes=1))
    assert second.id == "acting(k)#2"
    assert hft.enqueue(acting, "d", dedup="k").uid == second.uid
    first.delete()
    clock.advance(61)
    assert hft.enqueue(acting, "e", dedup="k", ttl=60).id == "acting(k)#3"


@pytest.mark.parametrize("ttl", [None, 60.0])
def test_many_who_come_at_once_get_the_same_run(timed: Opener, clock: ManualClock, ttl: float | None) -> None:
    handles = [timed() for _ in range(4)]
    if ttl is not None:
        handles[0].enqueue(acting, "old", dedup="k", ttl=ttl)
        clock.advance(61)
    runs: list[str] = []
    start = threading.Barrier(8)

    def enqueue(hf: Holdfast, n: int) -> None:
        start.wait()
        runs.append(hf.enqueue(acting, f"{n}", dedup="k", ttl=ttl).uid)

    threads = [threading.Thread(target=enqueue, args=(handles[n % 4], n)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs) == 8
    assert len(set(runs)) == 1
    assert len(handles[0].runs()) == (1 if ttl is None else 2)


def test_ids_that_only_look_alike_do_not_count(hf: Holdfast) -> None:
    for id in ("acting(k)#x", "acting(k)#", "acting(k)#²"):
        hf.enqueue(acting, "a", id=id)
    assert hf.enqueue(acting, "a", dedup="k").id == "acting(k)#1"
