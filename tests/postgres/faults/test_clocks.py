"""The clocks of the workers' machines are five minutes off, both ways: leases and timers go by the server's."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import labour
import psycopg
import pytest
from children import wait_until
from wall_clock import check_ahead, env_of

pytestmark = pytest.mark.needs("faketime")

SKEWS = ["-300s", "+300s"]
FAST = "tests/postgres/faults/test_clocks.py::test_no_lease_ends_early_or_late_and_no_timer_fires_early_or_late"


def skewed(offset: str) -> dict[str, str]:
    """The environment of a process whose clock is so far off. Its monotonic clock is right."""
    env = env_of(FAKETIME=offset)
    check_ahead(env, float(offset.rstrip("s")))
    return env


@pytest.fixture
def server_time(database: str) -> Callable[[], float]:
    def ask() -> float:
        with closing(psycopg.connect(database)) as conn:
            [found] = conn.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone() or (0,)
            return float(found)

    return ask


@pytest.mark.parametrize("held_by", ["+300s", pytest.param("-300s", marks=pytest.mark.slow(covered_by=FAST))])
def test_no_lease_ends_early_or_late_and_no_timer_fires_early_or_late(
    fleet: Any, held_by: str, server_time: Callable[[], float], tally: Callable[..., None]
) -> None:
    """One holds a run in a step for three times its lease; the other one's clock says that it is long over."""
    [other] = [skew for skew in SKEWS if skew != held_by]
    world = fleet.trial.world
    holder = fleet.worker(env=skewed(held_by), concurrency=1)
    assert holder.line() == "ready"
    held = fleet.hf.enqueue(labour.holding, world, id="held")
    wait_until(lambda: "first" in labour.happened(world))
    peer = fleet.worker(env=skewed(other), concurrency=5)
    assert peer.line() == "ready"

    # Timers: one is set by the peer, and fires when the server's clock says so.
    began = server_time()
    timers = [fleet.hf.enqueue(labour.sleeping, world, n, 1.5, id=f"timer {n}") for n in range(3)]
    assert [run.result(timeout=20) for run in timers] == [0, 1, 2]
    for run in timers:
        at = {entry.kind: entry.at.timestamp() for entry in run.history()}
        assert began - 0.5 < at["created"] < at["completed"] < server_time() + 0.5  # of the server's clock, all of them
        assert at["completed"] - at["created"] > 1.4
    # Leases: three times as long as it lasts, nobody else has begun it.
    wait_until(lambda: server_time() > began + 3.0, pause=0.1)
    assert labour.happened(world).count("first") == 1
    assert f".{holder.pid}." in str(held.info().holder)

    holder.kill()  # now it does end, by the server's clock
    wait_until(lambda: labour.happened(world).count("first") == 2, timeout=20)
    assert f".{peer.pid}." in str(held.info().holder)
    (fleet.folder / "world.first").touch()
    assert held.result(timeout=20) == ["first", "second", "third"]
    for run in (held, *timers):
        run.audit()
    tally("PostgreSQL, clocks 10 minutes apart", workers=2, kills=1, runs=4, early_takeovers=0, violations=0)


@pytest.mark.slow(covered_by="tests/postgres/test_store.py")
@pytest.mark.parametrize("kills", [6, pytest.param(150, marks=pytest.mark.torture)])
def test_workers_with_wrong_clocks_that_are_killed_lose_nothing_and_do_nothing_twice(
    fleet: Any, kills: int, verdict: Callable[..., None]
) -> None:
    clocks = [None, *(skewed(offset) for offset in SKEWS)]
    crew = fleet.crew(lambda: fleet.worker(env=fleet.chance.choice(clocks)))

    fleet.trial.go(crew.killing(kills), timeout=900 if kills > 6 else 90)
    crew.dismiss()
    verdict(fleet, "workers with clocks ± 5 minutes killed", kills=crew.killed)
