"""Workers within one process: what they take up, what they leave alone, and that nothing keeps them from the rest."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Keyring, Status, step, workflow
from holdfast.engine.worker import worker
from holdfast.engine.workflow import declare
from holdfast.errors import RunDamaged, StoreBusy, StoreFull, StoreUnusable, UsageError
from holdfast.kernel.rules import ANY
from holdfast.stores import open_store
from holdfast.testing import ManualClock

DAY = 86_400
KEYS = Keyring({"one": b"k" * 32}, current="one")
Opener = Callable[..., Holdfast]


class Stage:
    """What the steps of a test do and wait for."""

    def __init__(self) -> None:
        self.acted: list[str] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.now = Counter[str]()
        self.most = 0
        self.lock = threading.Lock()

    @contextmanager
    def on(self) -> Iterator[None]:
        with self.lock:
            self.now["on"] += 1
            self.most = max(self.most, self.now["on"])
        try:
            yield
        finally:
            with self.lock:
                self.now["on"] -= 1


stage = Stage()


@pytest.fixture(autouse=True)
def new_stage() -> Iterator[Stage]:
    global stage
    stage = Stage()
    yield stage
    stage.gate.set()


@step
def double(n: int) -> int:
    with stage.on():
        time.sleep(0.005)
        return n * 2


@step
async def double_async(n: int) -> int:
    with stage.on():
        await asyncio.sleep(0.005)
        return n * 2


@workflow
def plain(n: int) -> int:
    return double(n)


@workflow
async def flowing(n: int) -> int:
    return await double_async(n)


@workflow
def questioning(n: int) -> int:
    return double(n) + int(holdfast.ask("how many?", int))


@workflow
def sleepy(days: float) -> str:
    holdfast.sleep(days * DAY)
    return "rested"


@step
def act(name: str) -> str:
    stage.acted.append(name)
    stage.entered.release()
    assert stage.gate.wait(20)
    return name


@step
async def act_async(name: str) -> str:
    stage.acted.append(name)
    stage.entered.release()
    while not stage.gate.is_set():
        await asyncio.sleep(0.005)
    return name


@workflow
def acting() -> list[str]:
    return [act("first"), act("second")]


@workflow
async def acting_async() -> list[str]:
    return [await act_async("first"), await act_async("second")]


@workflow
def parent() -> list[str]:
    return [*acting(), act("third")]


@step(retries=1000, delay=0.01, backoff=1, jitter=False)
def failing() -> None:
    stage.acted.append("tried")
    stage.entered.release()
    raise ValueError("not yet")


@workflow
def trying() -> None:
    failing()


def done(*runs: Any) -> bool:
    return all(run.status is Status.COMPLETED for run in runs)


# --- what it takes up


def test_it_drives_sync_and_async_workflows_never_more_than_allowed(hf: Holdfast) -> None:
    runs = [hf.enqueue(plain if n % 2 else flowing, n) for n in range(30)]
    hf.work(concurrency=4, until_idle=True)
    assert [run.result(timeout=0) for run in runs] == [n * 2 for n in range(30)]
    assert 2 <= stage.most <= 4


def test_the_same_from_async_code(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            runs = [await hf.enqueue(plain if n % 2 else flowing, n) for n in range(10)]
            await hf.work(concurrency=3, until_idle=True)
            assert [await run.result(timeout=0) for run in runs] == [n * 2 for n in range(10)]

    asyncio.run(main())
    assert stage.most <= 3


def test_it_goes_on_with_what_was_answered(hf: Holdfast, opened: Opener) -> None:
    run = hf.enqueue(questioning, 4)
    hf.work(until_idle=True)
    assert run.status is Status.WAITING
    opened().get(run.id).answer(5)
    hf.work(until_idle=True)
    assert run.result(timeout=0) == 13


def manual(url: str, clock: ManualClock) -> Holdfast:
    return holdfast.open(url, store=open_store(url, clock=clock))


def test_timers_wake_runs_at_their_time_and_those_of_others_do_not_matter(store_url: str) -> None:
    clock = ManualClock()
    with manual(store_url, clock) as hf:
        began = clock.now()
        runs = [hf.enqueue(sleepy, days) for days in (3, 1, 2)]
        other = hf.enqueue(sleepy, 50, queue="another")
        hf.work(until_idle=True, queues=["default", "another"], concurrency=1)
        assert done(*runs, other)
        assert clock.now() - began == pytest.approx(50 * DAY * 1_000_000, abs=1_000_000)
        foreign = hf.start(sleepy, 7, queue="another")
        mine = hf.start(sleepy, 2)
        hf.work(until_idle=True)
        assert (mine.status, foreign.status) == (Status.COMPLETED, Status.WAITING)
        assert clock.now() - began == pytest.approx(52 * DAY * 1_000_000, abs=2_000_000)


def works_until_killed(hf: Holdfast, queues: Sequence[str] = ("default",)) -> None:
    with suppress(StoreUnusable):
        hf.work(queues=queues)


def test_it_takes_over_from_a_holder_that_died(
    opened: Opener, kill: Callable[[Holdfast], None], new_stage: Stage
) -> None:
    first, second = opened(), opened()
    for n in range(30):  # of people with their own loop, whose process died too: not for a worker to go on with
        first.run(f"by hand {n}").claim()
    run = first.enqueue(acting)
    threading.Thread(target=works_until_killed, args=(first,), daemon=True).start()
    assert new_stage.entered.acquire(timeout=20)
    kill(first)
    new_stage.gate.set()
    second.work(until_idle=True, concurrency=2)
    assert second.get(run.id).result(timeout=0) == ["first", "second"]
    assert {info.status for info in second.runs(prefix="by hand", limit=100)} == {Status.RUNNING}


def test_it_works_in_its_queues_only(hf: Holdfast) -> None:
    here, there, default = (hf.enqueue(plain, n, queue=queue) for n, queue in enumerate(("a", "b", "default")))
    hf.work(queues=["a", "c"], until_idle=True)
    assert [done(run) for run in (here, there, default)] == [True, False, False]
    hf.work(queues=["b"], until_idle=True)
    assert [done(run) for run in (here, there, default)] == [True, True, False]


def test_what_a_dead_holder_left_is_for_workers_of_its_queue_only(
    opened: Opener, kill: Callable[[Holdfast], None], new_stage: Stage
) -> None:
    first, second = opened(), opened()
    run = first.enqueue(acting, queue="a")
    dying = threading.Thread(target=works_until_killed, args=(first, ["a"]), daemon=True)
    dying.start()
    assert new_stage.entered.acquire(timeout=20)
    kill(first)
    new_stage.gate.set()
    dying.join(20)
    new_stage.acted.clear()
    second.work(queues=["b"], until_idle=True)
    assert new_stage.acted == []
    second.work(queues=["a"], until_idle=True)
    assert second.get(run.id).result(timeout=0) == ["first", "second"]


# --- what it leaves alone


def forget_first(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As in a process that does not have the workflow's version 1."""
    [first] = [one for one in declare._workflows[name] if one[0] == "1"]
    monkeypatch.delitem(declare._workflows[name], first)


def test_what_this_process_does_not_have_is_left_and_keeps_nobody_waiting(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (workflow(name="elsewhere", version=version)(lambda: None) for version in ("1", "2"))
    gone = workflow(name="gone")(lambda: None)
    strangers = [hf.enqueue(one) for one in [gone, old] * 15]
    monkeypatch.delitem(declare._workflows, "gone")
    forget_first(monkeypatch, "elsewhere")
    ours = [hf.enqueue(new), hf.enqueue(plain, 1)]
    hf.work(concurrency=2, until_idle=True)
    assert done(*ours)
    assert {run.status for run in strangers} == {Status.READY}
    before = [run.info().seq for run in strangers]
    hf.work(concurrency=2, until_idle=True)
    assert [run.info().seq for run in strangers] == before
    assert "gone" in (strangers[0].info().reason or "")


def test_it_does_not_spin_on_what_it_cannot_have(
    opened: Opener,
    kill: Callable[[Holdfast], None],
    damage: Callable[[Any, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hf, dead = opened(), opened()
    overdue = hf.start(sleepy, 2 / DAY, queue="another")  # a timer that nobody here will ever see to
    assert overdue.status is Status.WAITING
    sealed = opened(keys=KEYS).start(sleepy, 2 / DAY)  # nor this one's, for want of its key
    parked = dead.enqueue(plain, 1)  # a parked run whose holder died, on the way to unblock it
    damage(parked, 0)
    dead.work(until_idle=True)
    with suppress(RunDamaged):  # a files store would have to write to its journal
        dead.client.store.claim(parked.uid, dead.client.engine.worker.ready(), ANY)
    old = workflow(name="left", version="1")(lambda: None)
    strange = hf.enqueue(old)
    forget_first(monkeypatch, "left")
    kill(dead)
    clock = hf.client.store.clock
    monkeypatch.setattr(clock, "now", lambda: time.time_ns() // 1000 + 10_000_000)
    looks = Counter[str]()
    real = hf.client.store.take
    monkeypatch.setattr(hf.client.store, "take", lambda order: looks.update(["take"]) or real(order))

    async def main() -> None:
        async with hf as ahf:
            task = asyncio.create_task(ahf.work())
            await asyncio.sleep(0.5)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert (await ahf.get(strange.id)).status is Status.READY
            assert (await ahf.get(overdue.id)).status is Status.WAITING
            assert (await ahf.get(sealed.id)).status is Status.READY  # it is due, for who has the key

    asyncio.run(main())
    assert 1 <= looks["take"] <= 12


def test_a_damaged_run_does_not_stop_it(hf: Holdfast, damage: Callable[[Any, int], None]) -> None:
    bad, good = hf.enqueue(plain, 1, id="bad"), hf.enqueue(plain, 2, id="good")
    damage(bad, 0)
    hf.work(until_idle=True, concurrency=1)
    assert done(hf.get("good"))
    assert good.result() == 4
    assert [info.status for info in hf.runs() if info.id == "bad"] == [Status.BLOCKED]


def test_a_run_whose_key_is_not_here_does_not_stop_it(opened: Opener) -> None:
    sealed = opened(keys=KEYS).enqueue(plain, 1)
    hf = opened()
    open_one = hf.enqueue(plain, 2)
    hf.work(until_idle=True, concurrency=1)
    assert open_one.result(timeout=0) == 4
    assert hf.get(sealed.id).status is Status.READY
    other = opened(keys=KEYS)
    other.work(until_idle=True)
    assert other.get(sealed.id).result(timeout=0) == 2


# --- errors of the store


@pytest.mark.parametrize("failures", [1, 2, 5], ids=lambda n: f"{n}-writes")
def test_a_full_disk_delays_the_run_that_met_it_and_no_other(
    hf: Holdfast, failures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more than one failed write, not even giving the run up succeeds."""
    monkeypatch.setattr(worker, "REST", (0.02, 0.05))
    unlucky, lucky = hf.enqueue(plain, 1), hf.enqueue(plain, 2)
    real, left = hf.client.store.apply, [failures]

    def apply(batch: Any) -> Any:
        if left[0] and any(getattr(write, "uid", None) == unlucky.uid for write in batch):
            left[0] -= 1
            raise StoreFull(hf.client.store.place)
        return real(batch)

    monkeypatch.setattr(hf.client.store, "apply", apply)
    hf.work(until_idle=True, concurrency=1)
    assert left == [0]
    assert lucky.result(timeout=0) == 4
    assert unlucky.result(timeout=0) == 2


def test_a_look_that_fails_is_repeated(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "LISTEN", 0.01)
    run = hf.enqueue(plain, 1)
    real, left = hf.client.store.take, [3]

    def take(order: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise StoreBusy(hf.client.store.place)
        return real(order)

    monkeypatch.setattr(hf.client.store, "take", take)
    hf.work(until_idle=True)
    assert left == [0]
    assert run.result(timeout=0) == 2


def test_a_store_that_failed_for_good_ends_it(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    hf.enqueue(plain, 1)

    def apply(batch: Any) -> Any:
        raise StoreUnusable(hf.client.store.place, "the disk failed; open the store again")

    monkeypatch.setattr(hf.client.store, "apply", apply)
    with pytest.raises(StoreUnusable, match="the disk failed"):
        hf.work()


# --- stopping it


@contextmanager
def at_work(hf: Holdfast, **how: Any) -> Iterator[threading.Thread]:
    """A worker in a thread, which is told to stop at the end."""
    thread = threading.Thread(target=hf.work, kwargs=how, daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop(hf)
        thread.join(20)
        assert not thread.is_alive()


def stop(hf: Holdfast) -> None:
    for crew in list(hf.client.engine.crews):
        crew.stop()


@pytest.mark.parametrize("what", [acting, acting_async, parent], ids=["sync", "async", "child"])
def test_a_step_may_end_and_is_kept_and_nothing_new_begins(
    hf: Holdfast, opened: Opener, what: Any, new_stage: Stage
) -> None:
    run, later = hf.enqueue(what), None
    with at_work(hf, concurrency=1) as thread:
        assert new_stage.entered.acquire(timeout=20)
        later = hf.enqueue(plain, 1)
        stop(hf)
        new_stage.gate.set()
        thread.join(20)
        assert new_stage.acted == ["first"]
    assert (run.status, later.status) == (Status.READY, Status.READY)
    other = opened()
    other.work(until_idle=True)
    assert other.get(run.id).result(timeout=0) == ["first", "second", "third"][: 3 if what is parent else 2]
    assert new_stage.acted == ["first", "second", "third"][: len(new_stage.acted)], "the first was not done again"


def test_an_async_step_that_outlasts_the_grace_is_broken_off(hf: Holdfast, opened: Opener, new_stage: Stage) -> None:
    run = hf.enqueue(acting_async)
    with at_work(hf, grace=0.02):
        assert new_stage.entered.acquire(timeout=20)
    assert run.status is Status.READY
    new_stage.gate.set()
    opened().work(until_idle=True)
    assert new_stage.acted == ["first", "first", "second"]


def test_a_sync_step_that_outlasts_the_grace_keeps_its_run_until_it_ends(
    hf: Holdfast, opened: Opener, new_stage: Stage
) -> None:
    run = hf.enqueue(acting)
    with at_work(hf, grace=0.02):
        assert new_stage.entered.acquire(timeout=20)
    other = opened()
    other.work(until_idle=True)
    assert run.status is Status.RUNNING, "what its thread does must not be done by another one meanwhile"
    new_stage.gate.set()
    for _ in range(200):
        if other.get(run.id).status is Status.READY:
            break
        time.sleep(0.02)
    other.work(until_idle=True)
    assert new_stage.acted == ["first", "second"], "what it gave in the end was kept"
    assert other.get(run.id).result(timeout=0) == ["first", "second"]


def test_told_twice_it_waits_for_no_step(hf: Holdfast, new_stage: Stage) -> None:
    run = hf.enqueue(acting_async)
    with at_work(hf, grace=600) as thread:
        assert new_stage.entered.acquire(timeout=20)
        stop(hf)
        stop(hf)
        thread.join(20)
        assert not thread.is_alive()
    assert run.status is Status.READY


def test_a_step_that_is_tried_again_and_again_is_released_between_two_attempts(hf: Holdfast, new_stage: Stage) -> None:
    run = hf.enqueue(trying)
    with at_work(hf) as thread:
        assert new_stage.entered.acquire(timeout=20)
        assert new_stage.entered.acquire(timeout=20)
        stop(hf)
        thread.join(20)
    assert run.status is Status.READY
    tries = len(new_stage.acted)
    assert tries < 1000
    time.sleep(0.1)
    assert len(new_stage.acted) == tries


def test_closing_the_store_ends_it(hf: Holdfast, opened: Opener, new_stage: Stage) -> None:
    run = hf.enqueue(acting_async)
    with at_work(hf, grace=0) as thread:
        assert new_stage.entered.acquire(timeout=20)
        hf.close()
        thread.join(20)
        assert not thread.is_alive()
    new_stage.gate.set()
    other = opened()
    other.work(until_idle=True)
    assert other.get(run.id).result(timeout=0) == ["first", "second"]


def test_cancelling_the_task_releases_what_it_drives(store_url: str, new_stage: Stage) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.enqueue(acting_async)
            task = asyncio.create_task(hf.work(grace=0.02))
            while not new_stage.acted:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert run.status is Status.READY

    asyncio.run(main())


@pytest.mark.parametrize(
    "how", [{"concurrency": 0}, {"concurrency": 1.5}, {"queues": "default"}, {"queues": []}, {"grace": -1}], ids=str
)
def test_wrong_options_are_refused(hf: Holdfast, how: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(how))):
        hf.work(**how)


def test_it_says_that_it_would_block_an_event_loop(hf: Holdfast) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match="await"):
            hf.work()

    asyncio.run(main())
