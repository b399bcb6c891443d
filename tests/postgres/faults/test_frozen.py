"""A worker stands still, or is cut off, in the middle of a transaction: it keeps nobody from work, and loses nothing.

The proxy holds back what would end the transaction, so that the worker is always stopped inside of it, with locks.
"""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import labour
import pytest
from children import Child, wait_until
from pgproxy import Proxy

STOPPED = "tests/postgres/faults/test_frozen.py::test_a_worker_that_is_stopped_in_a_transaction_stops_nobody_else"
RUNS = 20
POINTS = {
    "with the queue locked": b"SELECT r.queue, r.worker, r.lane FROM",
    "with runs claimed": b"COMMIT\0",
}


def locks(fleet: Any) -> list[tuple[Any, ...]]:
    """The transactions of workers that wait for them."""
    import psycopg

    with psycopg.connect(fleet.url) as conn:
        return conn.execute(
            "SELECT pid, state FROM pg_stat_activity WHERE application_name = 'holdfast' AND xact_start IS NOT NULL "
            "AND wait_event_type = 'Client' AND datname = current_database()"
        ).fetchall()


def freeze(proxy: Proxy, victim: Child, how: str) -> None:
    """Stop a worker, which the proxy has caught inside of a transaction."""
    assert proxy.struck.wait(120)
    if how == "stopped":
        victim.signal(signal.SIGSTOP)
        stat = Path(f"/proc/{victim.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    else:
        proxy.stall()


def thaw(proxy: Proxy, victim: Child, how: str) -> None:
    """Let it go on: it finds its session ended, does nothing twice, and stops when it is told to."""
    if how == "stopped":
        victim.signal(signal.SIGCONT)
    else:
        proxy.go_on()
    proxy.deliver()
    victim.process.terminate()
    assert victim.process.wait(120) == 0


def judge(fleet: Any, proxy: Proxy, detour: str, how: str, point: str, tally: Callable[..., None]) -> None:
    world = fleet.trial.world
    fleet.hf.queue("q", limit=2)
    runs = [fleet.hf.enqueue(labour.quick, world, n, id=f"quick-{n}", queue="q") for n in range(RUNS)]
    proxy.lose(POINTS[point], "hold")
    victim = fleet.worker(detour, queues=["q"], lease=3.0)
    freeze(proxy, victim, how)
    assert locks(fleet)
    healthy = fleet.worker(queues=["q"], lease=3.0)
    assert [run.result(timeout=120) for run in runs] == list(range(RUNS))
    thaw(proxy, victim, how)
    healthy.process.terminate()
    assert healthy.process.wait(120) == 0
    assert sorted(labour.happened(world)) == sorted(f"quick {n}" for n in range(RUNS))
    for run in runs:
        run.audit()
    tally(f"PostgreSQL, workers {how} in a transaction", workers=1, runs=RUNS, violations=0)


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_is_stopped_in_a_transaction_stops_nobody_else(
    fleet: Any, proxy: Proxy, detour: str, point: str, tally: Callable[..., None]
) -> None:
    judge(fleet, proxy, detour, "stopped", point, tally)


@pytest.mark.slow(covered_by=STOPPED)
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_is_cut_off_in_a_transaction_stops_nobody_else(
    fleet: Any, proxy: Proxy, detour: str, point: str, tally: Callable[..., None]
) -> None:
    judge(fleet, proxy, detour, "cut off", point, tally)


@pytest.mark.slow(covered_by=STOPPED)
@pytest.mark.parametrize("how", ["stopped", "cut off"])
def test_a_run_whose_worker_stands_still_while_it_ends_it_is_ended_by_another(
    fleet: Any, proxy: Proxy, detour: str, how: str
) -> None:
    """Its row is locked, and who takes passes over what is locked."""
    world = fleet.trial.world
    run = fleet.hf.enqueue(labour.holding, world, id="holding")
    victim = fleet.worker(detour, lease=3.0)
    wait_until(lambda: labour.happened(world) == ["first"])
    healthy = fleet.worker(lease=3.0)
    assert healthy.line() == "ready"
    proxy.lose(b"COMMIT\0", "hold")
    Path(f"{world}.first").touch()
    freeze(proxy, victim, how)
    assert run.result(timeout=120) == ["first", "second", "third"]
    thaw(proxy, victim, how)
    assert labour.happened(world) == ["first", "second", "third"]
    run.audit()
