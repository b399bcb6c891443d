"""Worker processes and queues: never more at once than a queue allows, though some are killed; one run per tick."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Status

Start = Callable[..., Any]
Until = Callable[..., None]
Say = Callable[[str], None]

LIMIT, PER_WORKER, PER_KEY = 3, 2, 1


@pytest.fixture
def world(memdir: Path) -> str:
    return str(memdir / "world")


@pytest.fixture(params=["sqlite", "files", "postgres"])
def any_url(request: pytest.FixtureRequest, memdir: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{memdir / 'runs.db'}" if request.param == "sqlite" else f"files:///{memdir / 'runs'}"


def most_at_once(lines: list[tuple[int, int, str]]) -> tuple[int, int, int]:
    """How many were there at once: in all, of one process, of one key. Who is told to be dead is there no longer."""
    there: dict[str, tuple[int, str]] = {}
    most = [0, 0, 0]
    for pid, _, what in lines:
        verb, name, *rest = what.split()
        if verb == "dies":
            there = {one: where for one, where in there.items() if where[0] != int(name)}
        elif verb == "enters":
            there[name] = pid, rest[0]
        else:
            assert there.pop(name, None) is not None, f"{name} left, and was not there"
        for n, counted in enumerate((Counter(dict.fromkeys("a", len(there))), *_counts(there))):
            most[n] = max([most[n], *counted.values()])
    return most[0], most[1], most[2]


def _counts(there: dict[str, tuple[int, str]]) -> tuple[Counter[Any], Counter[Any]]:
    return Counter(pid for pid, _ in there.values()), Counter(key for _, key in there.values())


@pytest.mark.slow(covered_by="tests/workflows/test_queue_settings.py")
def test_no_more_at_once_than_allowed_though_workers_are_killed(
    any_url: str, world: str, workers: Start, labour: Any, until: Until, kind: str, counts: Say, seed: int
) -> None:
    dice, runs, kills = random.Random(seed), 60, 0
    with holdfast.open(any_url) as hf:
        hf.queue("default", limit=LIMIT, per_worker=PER_WORKER, per_key=PER_KEY)
        for n in range(runs):
            key = dice.choice("abcde")
            hf.enqueue(labour.counted, world, n, key, dice.choice([0.001, 0.01, 0.03]), key=key, priority=n % 3)
        at_work = [workers(any_url, lease=1.0, concurrency=5) for _ in range(3)]
        while hf.runs(status="completed", limit=1).items == () or kills < 4:
            time.sleep(dice.uniform(0.0, 0.1))
            if not labour.lines(world):
                continue
            victim = at_work.pop(dice.randrange(3))
            victim.signal(signal.SIGSTOP)  # from here on it does nothing, and still holds what it has
            os.waitid(os.P_PID, victim.pid, os.WSTOPPED)
            labour.write(world, f"dies {victim.pid}")
            victim.kill()
            kills += 1
            at_work.append(workers(any_url, lease=1.0, concurrency=5))
        until(lambda: len(hf.runs(status="completed", limit=500)) == runs)
    found = labour.lines(world)
    at_once, of_one, of_key = most_at_once(found)
    counts(
        f"limits of a queue: {kind}, seed {seed}, kills {kills}, runs {runs}, begun {len(found)}, at once {at_once} of "
        f"{LIMIT}, of one worker {of_one} of {PER_WORKER}, of one key {of_key} of {PER_KEY}"
    )
    assert (at_once, of_one, of_key) <= (LIMIT, PER_WORKER, PER_KEY)
    assert at_once <= LIMIT
    assert of_one <= PER_WORKER
    assert of_key <= PER_KEY
    assert {what.split()[1] for _, _, what in found if what.startswith("leaves")} == {f"{n}" for n in range(runs)}


@pytest.mark.slow(covered_by="tests/workflows/test_schedules.py")
def test_one_run_per_tick_with_many_processes(
    any_url: str, world: str, workers: Start, labour: Any, until: Until, kind: str, counts: Say
) -> None:
    with holdfast.open(any_url) as hf:
        at_work = [workers(any_url) for _ in range(4)]
        hf.schedule(labour.ticking, world, cron="* * * * * *", id="each second")
        until(lambda: len(set(labour.happened(world))) >= 3)
        hf.get_schedule("each second").pause()
        until(lambda: {info.status for info in hf.runs()} == {Status.COMPLETED})
        made = [info.id for info in hf.runs()]
    happened = Counter(labour.happened(world))
    counts(f"ticks with {len(at_work)} worker processes: {kind}, ticks {len(made)}, runs {sum(happened.values())}")
    assert happened == Counter(made)
    assert max(happened.values()) == 1
