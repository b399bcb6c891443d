"""Worker processes: how soon they take up work, what an idle one costs, and what signals and deaths do to them."""

import os
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Status
from holdfast.errors import Claimed

Start = Callable[..., Any]
Until = Callable[..., None]
Say = Callable[[str], None]

LEASE = 0.5


@pytest.fixture
def world(memdir: Path) -> str:
    return str(memdir / "world")


def touch(path: str) -> None:
    Path(path).touch()


# --- how soon, and at what cost


@pytest.mark.slow(covered_by="tests/workflows/test_work.py")
def test_how_soon_work_is_taken_up(
    quick_url: str, world: str, workers: Start, labour: Any, until: Until, kind: str, counts: Say
) -> None:
    worker = workers(quick_url)

    def delay(what: str, began: int) -> float:
        until(lambda: what in labour.happened(world))
        [at] = [at for pid, at, found in labour.lines(world) if found == what and pid == worker.pid]
        return float((at - began) / 1e6)

    enqueued, answered, woken = [], [], []
    with holdfast.open(quick_url) as hf:
        for n in range(15):
            time.sleep(0.02)
            began = time.monotonic_ns()
            hf.enqueue(labour.quick, world, n)
            enqueued.append(delay(f"quick {n}", began))
        runs = [hf.enqueue(labour.asking, world, n) for n in range(15)]
        for n, run in enumerate(runs):
            until(lambda run=run: run.status is Status.WAITING)
            time.sleep(0.02)
            began = time.monotonic_ns()
            run.answer(n)
            answered.append(delay(f"answered {n}", began))
        asleep = [(time.monotonic_ns(), hf.enqueue(labour.sleeping, world, n, 1.2 + n / 20)) for n in range(6)]
        for n, (began, _) in enumerate(asleep):
            woken.append(delay(f"woken {n}", began) - 1200 - n * 50)
    first, second, third = (statistics.median(times) for times in (enqueued, answered, woken))
    counts(
        f"worker's latency: {kind}, from enqueue to step {first:.0f} ms, from answer {second:.0f} ms, timers late by "
        f"{third:.0f} ms (medians)"
    )
    assert min(woken) >= 0


@pytest.mark.slow(covered_by="tests/workflows/test_work.py::test_it_does_not_spin_on_what_it_cannot_have")
@pytest.mark.parametrize("waiting", [0, 5_000])
def test_what_an_idle_worker_costs(
    quick_url: str, world: str, waiting: int, workers: Start, labour: Any, kind: str, counts: Say
) -> None:
    with holdfast.open(quick_url) as hf:
        for n in range(waiting if kind == "sqlite" else waiting // 5):
            hf.start(labour.sleeping, world, n, 30 * 86_400)
    worker = workers(quick_url, count=0.5)
    seen = [tuple(map(float, worker.line().split())) for _ in range(7)][2:]
    seconds, statements, busy = (last - first for first, last in zip(seen[0], seen[-1], strict=True))
    waited = waiting if kind == "sqlite" else waiting // 5
    counts(
        f"idle worker: {kind}, {waited} runs wait, SQL statements per second {statements / seconds:.0f}, "
        f"CPU {100 * busy / seconds:.1f} %"
    )
    assert statements / seconds < 60


def kinds(test: str) -> list[Any]:
    """A workflow and an async one, which the slower tests leave to `make test-all`."""
    quick = f"tests/processes/test_workers.py::{test}"
    return ["holding", pytest.param("holding_async", marks=pytest.mark.slow(covered_by=quick))]


# --- told to stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("what", ["holding", "holding_async"])
def test_told_to_stop_it_ends_its_step_and_releases_the_run(
    quick_url: str, world: str, number: signal.Signals, what: str, workers: Start, labour: Any, until: Until
) -> None:
    worker = workers(quick_url, log=world + ".log")
    with holdfast.open(quick_url) as hf:
        run = hf.enqueue(getattr(labour, what), world)
        until(lambda: labour.happened(world) == ["first"])
        worker.signal(number)
        later = hf.enqueue(labour.quick, world, 1)
        until(lambda: "the worker stops" in Path(world + ".log").read_text())
        assert run.status is Status.RUNNING
        touch(world + ".first")
        assert worker.process.wait(30) == 0
        assert (run.status, later.status) == (Status.READY, Status.READY)
        assert run.info().holder is None
        assert labour.happened(world) == ["first"]
        hf.work(until_idle=True)
        assert run.result(timeout=0) == ["first", "second", "third"]
        assert labour.happened(world).count("first") == 1
        assert done_steps(run) == {"hold#1", "mark#1", "charge#1"} or what == "holding_async"
        run.audit()


def done_steps(run: Any) -> set[str]:
    return {one.key for one in run.steps() if one.status == "done"}


@pytest.mark.parametrize("twice", [False, True], ids=["after-the-grace", "told-twice"])
@pytest.mark.parametrize("what", kinds("test_a_step_that_takes_too_long_is_broken_off"))
def test_a_step_that_takes_too_long_is_broken_off(
    quick_url: str, world: str, twice: bool, what: str, workers: Start, labour: Any, until: Until
) -> None:
    worker = workers(quick_url, log=world + ".log", grace=600 if twice else 0.1)
    with holdfast.open(quick_url) as hf:
        run = hf.enqueue(getattr(labour, what), world)
        until(lambda: labour.happened(world) == ["first"])
        worker.signal(signal.SIGTERM)
        if twice:
            until(lambda: "the worker stops" in Path(world + ".log").read_text())
            worker.signal(signal.SIGTERM)
        assert worker.process.wait(30) == 0
        with run.claim():  # at once
            pass
        touch(world + ".first")
        hf.work(until_idle=True)
        assert run.result(timeout=0) == ["first", "second", "third"]
        assert labour.happened(world) == ["first", "first", "second", "third"]
        run.audit()


# --- killed, or asleep


@pytest.mark.parametrize("what", kinds("test_when_one_is_killed_another_goes_on_at_once"))
def test_when_one_is_killed_another_goes_on_at_once(
    quick_url: str, world: str, what: str, workers: Start, labour: Any, until: Until, kind: str, counts: Say
) -> None:
    first = workers(quick_url, lease=3600)
    with holdfast.open(quick_url) as hf:
        run = hf.enqueue(getattr(labour, what), world)
        until(lambda: labour.happened(world) == ["first"])
        second = workers(quick_url, lease=3600)
        began = time.monotonic_ns()
        first.kill()
        until(lambda: len(labour.lines(world)) == 2)
        [(pid, _, _), (other, at, _)] = labour.lines(world)
        assert (pid, other) == (first.pid, second.pid)
        counts(f"a killed worker's run goes on elsewhere: {kind}, {what}, after {(at - began) / 1e6:.0f} ms")
        touch(world + ".first")
        assert run.result(timeout=30) == ["first", "second", "third"]
        run.audit()


@pytest.mark.parametrize("what", kinds("test_one_that_slept_past_its_lease_writes_nothing_and_goes_no_further"))
def test_one_that_slept_past_its_lease_writes_nothing_and_goes_no_further(
    quick_url: str, world: str, what: str, workers: Start, labour: Any, until: Until
) -> None:
    log = Path(world + ".log")
    zombie = workers(quick_url, lease=LEASE, log=str(log))
    with holdfast.open(quick_url, lease=LEASE) as hf:
        run = hf.enqueue(getattr(labour, what), world)
        until(lambda: labour.happened(world) == ["first"])
        zombie.signal(signal.SIGSTOP)
        other = workers(quick_url, lease=LEASE)
        until(lambda: len(labour.lines(world)) == 2)
        touch(world + ".first")
        assert run.result(timeout=30) == ["first", "second", "third"]
        before = [(entry.seq, entry.kind) for entry in run.history()]
        zombie.signal(signal.SIGCONT)
        until(lambda: "another worker took it over" in log.read_text())
        assert [(entry.seq, entry.kind) for entry in run.history()] == before
        assert [(pid, found) for pid, _, found in labour.lines(world)] == [
            (zombie.pid, "first"),
            *((other.pid, found) for found in ("first", "second", "third")),
        ]
        other.kill()
        again = hf.enqueue(labour.quick, world, 1)  # it is a worker like any other from now on
        assert again.result(timeout=30) == 1
        assert labour.lines(world)[-1][0] == zombie.pid
        run.audit()


def test_an_act_is_not_made_by_one_that_slept_between_intent_and_act(
    quick_url: str, world: str, workers: Start, labour: Any, until: Until
) -> None:
    log = Path(world + ".log")
    touch(world + ".first")
    zombie = workers(quick_url, lease=LEASE, log=str(log), stop_at="charge")
    with holdfast.open(quick_url, lease=LEASE) as hf:
        run = hf.enqueue(labour.holding, world)
        until(lambda: _is_stopped(zombie.pid))
        assert labour.happened(world) == ["first", "second"]
        other = workers(quick_url, lease=LEASE)
        with pytest.raises(holdfast.RunBlocked, match="whose process still runs and may be acting"):
            run.result(timeout=30)
        zombie.signal(signal.SIGCONT)
        until(lambda: "another worker took it over" in log.read_text())
        assert labour.happened(world) == ["first", "second"]
        zombie.kill()
        run.unblock()
        assert run.result(timeout=30) == ["first", "second", "third"]
        assert [pid for pid, _, found in labour.lines(world) if found == "third"] == [other.pid]
        run.audit()


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_run_of_a_sleeper_that_nobody_took_goes_on_there(
    quick_url: str, world: str, workers: Start, labour: Any, until: Until
) -> None:
    touch(world + ".first")
    zombie = workers(quick_url, lease=LEASE, stop_at="charge")
    with holdfast.open(quick_url) as hf:
        run = hf.enqueue(labour.holding, world)
        until(lambda: _is_stopped(zombie.pid))
        time.sleep(LEASE + 0.1)
        zombie.signal(signal.SIGCONT)
        assert run.result(timeout=30) == ["first", "second", "third"]
        assert {pid for pid, _, _ in labour.lines(world)} == {zombie.pid}


# --- runs that kill their process


def live_and_die(workers: Start, url: str, **options: Any) -> bool:
    """Start a worker; whether it died of a run."""
    worker = workers(url, wait=False, until_idle=True, **options)
    code = worker.process.wait(60)
    assert code in (0, 7)
    return bool(code == 7)


KILLING = "tests/processes/test_workers.py::test_a_run_that_keeps_killing_its_process_is_parked"
OTHERS = [pytest.param(how, marks=pytest.mark.slow(covered_by=KILLING)) for how in ("meant", "careful")]


@pytest.mark.parametrize("how", ["plain", *OTHERS])
def test_a_run_that_keeps_killing_its_process_is_parked(
    quick_url: str, world: str, how: str, workers: Start, labour: Any
) -> None:
    with holdfast.open(quick_url) as hf:
        run = hf.enqueue(labour.deadly, world, how, 9, 1, id="deadly")
        deaths = 0
        while live_and_die(workers, quick_url):
            deaths += 1
            assert deaths <= 8
        info = run.info()
        # The first three may have had other reasons. From then on it is executed alone.
        assert (deaths, info.status) == (3 + 5, Status.BLOCKED)
        assert "its process died 5 times in a row" in (info.reason or "")
        assert "executed nothing else" in (info.reason or "")
        assert "unblock" in (info.reason or "")
        other = hf.enqueue(labour.quick, world, 1)
        assert not live_and_die(workers, quick_url)
        assert other.result(timeout=0) == 1
        run.unblock(by="somebody")
        assert live_and_die(workers, quick_url)  # it is given as many tries as at first
        assert not live_and_die(workers, quick_url)
        assert run.result(timeout=0) == ["place 0"]
        run.audit()


def test_the_limit_can_be_set(quick_url: str, world: str, workers: Start, labour: Any) -> None:
    with holdfast.open(quick_url) as hf:
        run = hf.enqueue(labour.deadly, world, "plain", 99, 1)
        deaths = 0
        while live_and_die(workers, quick_url, max_crashes=1):
            deaths += 1
        assert (deaths, run.status) == (3 + 1, Status.BLOCKED)


def test_honest_runs_of_a_worker_that_is_killed_again_and_again_are_not_blocked(
    quick_url: str, world: str, workers: Start, labour: Any, until: Until
) -> None:
    """None of them gets further before the last one, as with steps that take longer than the worker ever lives."""
    kills, at_once = 9, 10
    with holdfast.open(quick_url) as hf:
        runs = [hf.enqueue(labour.patient, world, n) for n in range(20)]
        for kill in range(kills):
            worker = workers(quick_url, concurrency=at_once)
            # Three times as many as it may; then those that were there, one at a time.
            count = at_once if kill < 3 else 1
            until(lambda pid=worker.pid, count=count: _waiting(labour, world, pid) >= count)
            assert _waiting(labour, world, worker.pid) == count
            worker.kill()
        assert [run.status for run in runs if run.status is Status.BLOCKED] == []
        touch(world + ".go")
        assert not live_and_die(workers, quick_url, concurrency=at_once)
        assert [run.result(timeout=0) for run in runs] == list(range(20))


def _waiting(labour: Any, world: str, pid: int) -> int:
    return sum(one == pid for one, _, _ in labour.lines(world))


def test_those_that_were_driven_beside_it_are_not_parked(
    quick_url: str, world: str, workers: Start, labour: Any
) -> None:
    with holdfast.open(quick_url) as hf:
        others = [hf.enqueue(labour.slow, world, n) for n in range(2)]
        run = hf.enqueue(labour.deadly, world, "plain", 99, 1)
        others += [hf.enqueue(labour.slow, world, n) for n in range(2, 5)]
        deaths = 0
        while live_and_die(workers, quick_url):
            deaths += 1
            assert deaths <= 10
        assert run.status is Status.BLOCKED
        assert [other.result(timeout=0) for other in others] == [f"slow {n}" for n in range(5)]


def test_progress_in_between_counts(quick_url: str, world: str, workers: Start, labour: Any) -> None:
    with holdfast.open(quick_url) as hf:
        run = hf.enqueue(labour.deadly, world, "meant", 2, 4)
        deaths = 0
        while live_and_die(workers, quick_url):
            deaths += 1
        assert deaths == 8
        assert run.result(timeout=0) == [f"place {n}" for n in range(4)]


def test_a_live_workers_run_cannot_be_claimed(
    quick_url: str, world: str, workers: Start, labour: Any, until: Until
) -> None:
    worker = workers(quick_url)
    with holdfast.open(quick_url) as hf:
        run = hf.enqueue(labour.holding, world)
        until(lambda: labour.happened(world) == ["first"])
        with pytest.raises(Claimed):
            run.claim()
        hf.work(until_idle=True)
        assert labour.happened(world) == ["first"]
        assert (run.info().holder or "").split(".")[-2] == str(worker.pid)
    assert os.path.exists(f"/proc/{worker.pid}")
