"""Queues: limits, rates, priorities, delays, keys, and pauses."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, step, workflow
from holdfast.engine.worker.queues import draw
from holdfast.testing import ManualClock

Opener = Callable[..., Holdfast]


class Stage:
    """What runs at the same time, and in which order it was begun."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now = Counter[str]()
        self.most = Counter[str]()
        self.order: list[str] = []
        self.gate = threading.Event()

    def enter(self, *names: str) -> None:
        with self.lock:
            self.now.update(names)
            for name in names:
                self.most[name] = max(self.most[name], self.now[name])

    def leave(self, *names: str) -> None:
        with self.lock:
            self.now.subtract(names)


stage = Stage()


@pytest.fixture(autouse=True)
def new_stage() -> Iterator[Stage]:
    global stage
    stage = Stage()
    yield stage
    stage.gate.set()


@step
async def act(name: str, key: str, seconds: float) -> str:
    stage.order.append(name)
    stage.enter("all", key)
    await asyncio.sleep(seconds)
    stage.leave("all", key)
    return name


@workflow
async def acting(name: str, key: str = "", seconds: float = 0.0) -> str:
    return await act(name, key, seconds)


@workflow
def gated(name: str) -> str:
    stage.order.append(name)
    assert stage.gate.wait(20)
    return name


@workflow
def twice(name: str) -> str:
    stage.order.append(name)
    return name + str(holdfast.ask("and?", str))


def work_in_threads(handles: list[Holdfast], **how: Any) -> None:
    threads = [threading.Thread(target=hf.work, kwargs={"until_idle": True, **how}) for hf in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def at_work(hf: Holdfast, **how: Any) -> Iterator[None]:
    """A worker in a thread, which is told to stop at the end."""
    thread = threading.Thread(target=hf.work, kwargs=how, daemon=True)
    thread.start()
    until(lambda: hf.client.engine.crews)
    try:
        yield
    finally:
        for crew in list(hf.client.engine.crews):
            crew.stop()
        thread.join(20)
        assert not thread.is_alive()


def until(is_so: Callable[[], Any]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


# --- limits


def test_never_more_than_the_limits_run_at_once(opened: Opener) -> None:
    handles = [opened() for _ in range(3)]
    handles[0].queue("default", limit=4, per_worker=2, per_key=1)
    keys = "abcde"
    runs = [handles[0].enqueue(acting, f"{n}", keys[n % 5], 0.01, key=keys[n % 5]) for n in range(30)]
    work_in_threads(handles, concurrency=5)
    assert all(run.status is Status.COMPLETED for run in runs)
    assert stage.most["all"] <= 4
    assert max(stage.most[key] for key in keys) == 1
    assert sorted(stage.order, key=int) == [f"{n}" for n in range(30)]


def test_a_worker_has_no_more_than_it_may(opened: Opener) -> None:
    hf, other = opened(), opened()
    hf.queue("default", per_worker=2)
    for n in range(6):
        hf.enqueue(gated, f"{n}")
    with at_work(hf), at_work(other):
        until(lambda: len(stage.order) == 4)
        assert Counter(info.holder for info in hf.runs(status="running")) == {
            hf.client.engine.worker.name: 2,
            other.client.engine.worker.name: 2,
        }
        stage.gate.set()
        until(lambda: len(hf.runs(status="completed")) == 6)


def test_a_full_key_hides_no_other(hf: Holdfast) -> None:
    hf.queue("default", per_key=1)
    slow = [hf.enqueue(gated, f"slow {n}", key="slow") for n in range(20)]
    quick = hf.enqueue(acting, "quick", key="quick")
    free = hf.enqueue(acting, "free")
    with at_work(hf, concurrency=5):
        until(lambda: free.status is quick.status is Status.COMPLETED)
        assert [run.status for run in slow] == [Status.RUNNING] + [Status.READY] * 19
        stage.gate.set()


def test_a_raised_limit_reaches_those_at_work(opened: Opener) -> None:
    hf, other = opened(), opened()
    hf.queue("default", limit=1)
    for n in range(3):
        hf.enqueue(gated, f"{n}")
    with at_work(hf):
        until(lambda: stage.order)
        other.queue("default", limit=2)
        until(lambda: len(stage.order) == 2)
        other.queue("default", limit=None)
        until(lambda: len(stage.order) == 3)
        stage.gate.set()


def test_a_slot_that_becomes_free_elsewhere_is_taken(opened: Opener) -> None:
    hf, other = opened(), opened()
    hf.queue("default", limit=1)
    first = hf.start(twice, "first")
    with first.claim():  # by hand: it counts all the same
        second = hf.enqueue(acting, "second")
        with at_work(other):
            time.sleep(0.1)
            assert second.status is Status.READY
            first.release()
            until(lambda: second.status is Status.COMPLETED)


def test_what_waits_takes_no_room(hf: Holdfast) -> None:
    hf.queue("default", limit=1)
    waiting = [hf.enqueue(twice, f"{n}") for n in range(3)]
    hf.work(until_idle=True)
    assert {run.status for run in waiting} == {Status.WAITING}
    for run in waiting:
        run.answer("!")
    hf.work(until_idle=True)
    assert [run.result(timeout=0) for run in waiting] == ["0!", "1!", "2!"]


# --- rates


def test_a_rate_is_a_bucket_of_tokens(hft: Holdfast, clock: ManualClock) -> None:
    hft.queue("default", rate=(3, 60.0))
    start = clock.now()
    for n in range(8):
        hft.enqueue(acting, f"{n}", tags={"n": f"{n}"})
    hft.work(until_idle=True)  # the clock is moved to when the next may begin
    begun = sorted((info.updated_at.timestamp() - start / 1_000_000) for info in hft.runs())
    assert [round(at) for at in begun] == [0, 0, 0, 20, 40, 60, 80, 100]


def test_tokens_that_were_not_needed_are_put_back(hft: Holdfast, clock: ManualClock) -> None:
    hft.queue("default", rate=(2, 60.0), limit=1)
    start = clock.now()
    for n in range(3):
        hft.enqueue(acting, f"{n}")
    hft.work(until_idle=True, concurrency=10)
    begun = sorted((info.updated_at.timestamp() - start / 1_000_000) for info in hft.runs())
    assert [round(at) for at in begun] == [0, 0, 30]


def test_to_go_on_costs_no_token(hft: Holdfast, clock: ManualClock) -> None:
    hft.queue("default", rate=(1, 3600.0))
    run, before = hft.enqueue(twice, "a"), clock.now()
    hft.work(until_idle=True)
    run.answer("!")
    hft.work(until_idle=True)
    assert (run.result(timeout=0), clock.now()) == ("a!", before)


def test_who_draws_at_once_gets_no_more_tokens_than_there_are(timed: Opener) -> None:
    handles = [timed() for _ in range(4)]
    handles[0].queue("q", rate=(40, 3600.0))
    drawn: list[int] = []
    start = threading.Barrier(4)

    def draw_some(hf: Holdfast) -> None:
        start.wait()
        drawn.extend(draw(hf.client.store, "q", 1)[0] for _ in range(20))

    threads = [threading.Thread(target=draw_some, args=(hf,)) for hf in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(drawn), sum(drawn)) == (80, 40)


def test_a_rate_holds_for_many_workers_together(timed: Opener, clock: ManualClock) -> None:
    handles = [timed() for _ in range(3)]
    handles[0].queue("default", rate=(5, 3600.0))
    for n in range(12):
        handles[0].enqueue(acting, f"{n}")
    for hf in handles:
        with at_work(hf):
            until(lambda: len(stage.order) == 5)
            time.sleep(0.05)
    assert len(stage.order) == 5
    clock.advance(1440)
    for hf in handles:
        with at_work(hf):
            until(lambda: len(stage.order) == 7)
    assert len(stage.order) == 7


# --- order


def test_the_highest_priority_goes_first(hf: Holdfast) -> None:
    for n, priority in enumerate((0, 5, -1, 5, 0)):
        hf.enqueue(acting, f"{n}", priority=priority)
    hf.work(until_idle=True, concurrency=1)
    assert stage.order == ["1", "3", "0", "4", "2"]


def test_queues_are_served_in_turn(hf: Holdfast) -> None:
    for name in ("a1", "a2", "a3", "a4", "b1", "c1", "c2"):
        hf.enqueue(acting, name, queue=name[0])
    hf.work(until_idle=True, concurrency=1, queues=["a", "b", "c"])
    assert stage.order == ["a1", "b1", "c1", "a2", "c2", "a3", "a4"]


@pytest.mark.parametrize("how", ["seconds", "timedelta", "datetime"])
def test_a_delayed_run_begins_at_its_time(hft: Holdfast, clock: ManualClock, how: str) -> None:
    start = clock.now()
    at = datetime.fromtimestamp(start / 1_000_000 + 3600, UTC)
    delay: Any = {"seconds": 3600, "timedelta": timedelta(hours=1), "datetime": at}[how]
    run = hft.enqueue(acting, "late", delay=delay, deadline=10)
    soon = hft.enqueue(acting, "soon", delay=-1 if how == "seconds" else None) if how != "seconds" else None
    assert run.status is Status.WAITING
    assert run.info().wake_at == at
    hft.work(until_idle=True)
    assert run.result(timeout=0) == "late"
    assert clock.now() - start == pytest.approx(3_600_000_000, abs=1_000_000)
    assert stage.order == (["soon", "late"] if soon else ["late"])


def test_a_delayed_run_can_be_cancelled_and_is_not_begun_by_a_message(hft: Holdfast, clock: ManualClock) -> None:
    run, other = hft.enqueue(acting, "a", delay=60), hft.enqueue(acting, "b", delay=60)
    run.send("hello")
    other.cancel("not needed")
    assert (run.status, other.status) == (Status.WAITING, Status.CANCELLED)
    clock.advance(60)
    hft.work(until_idle=True)
    assert stage.order == ["a"]


# --- pause and resume


def test_a_paused_queue_is_left_and_what_runs_goes_on(opened: Opener) -> None:
    hf, other = opened(), opened()
    first = hf.enqueue(gated, "first")
    with at_work(hf, queues=["default", "other"]):
        until(lambda: stage.order)
        queue = other.queue("default")
        queue.pause()
        second, elsewhere = other.enqueue(acting, "second"), other.enqueue(acting, "elsewhere", queue="other")
        until(lambda: elsewhere.status is Status.COMPLETED)
        stage.gate.set()
        until(lambda: first.status is Status.COMPLETED)
        assert second.status is Status.READY
        queue.resume()
        until(lambda: second.status is Status.COMPLETED)


def test_what_the_dead_left_in_a_paused_queue_waits(
    opened: Opener, kill: Callable[[Holdfast], None], new_stage: Stage
) -> None:
    dead, hf = opened(), opened()
    run = dead.start(twice, "x")
    dead.client.store.claim(run.uid, dead.client.engine.worker.ready())
    hf.queue("default", paused=True)
    kill(dead)
    hf.work(until_idle=True)
    assert hf.get(run.id).status is Status.RUNNING
    hf.queue("default").resume()
    hf.work(until_idle=True)
    assert hf.get(run.id).status is Status.WAITING


def test_who_works_until_idle_does_not_wait_for_what_is_paused(hft: Holdfast, clock: ManualClock) -> None:
    hft.queue("default", paused=True)
    run, before = hft.enqueue(acting, "a", delay=3600), clock.now()
    hft.work(until_idle=True)
    assert (run.status, clock.now()) == (Status.WAITING, before)


@workflow
def rounds(left: int) -> str:
    stage.order.append(f"round {left}")
    if left:
        assert stage.gate.wait(20)
        holdfast.continue_as_new(left - 1)
    return "over"


def test_what_goes_on_at_once_asks_the_queue_again(hf: Holdfast) -> None:
    hf.queue("default", limit=1)
    run = hf.enqueue(rounds, 1)
    with at_work(hf):
        until(lambda: stage.order)
        urgent = hf.enqueue(acting, "urgent", priority=1)
        stage.gate.set()
        until(lambda: run.status is urgent.status is Status.COMPLETED)
    assert stage.order == ["round 1", "urgent", "round 0"]
