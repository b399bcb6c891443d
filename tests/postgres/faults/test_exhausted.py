"""There are fewer connections than are wanted: in a process's own pool, and at the server. It waits, and goes on."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import labour
import psycopg
import pytest
from children import wait_until

import holdfast
from holdfast.errors import StoreBusy
from holdfast.stores.postgres import connections

# --- the pool

WAITING = (
    "tests/postgres/faults/test_exhausted.py"
    "::test_who_waits_too_long_for_a_connection_is_told_and_the_next_call_succeeds"
)


@pytest.mark.slow(covered_by=WAITING)
@pytest.mark.parametrize("pool", [1, 2])
def test_a_small_pool_serves_fifty_runs_at_a_time(fleet: Any, pool: int, verdict: Callable[..., None]) -> None:
    fleet.trial.many = 50
    crew = fleet.crew(lambda: fleet.worker(fleet.way(f"pool={pool}"), concurrency=50), 1)
    crew.fill()
    fleet.trial.go(lambda: len(fleet.trial.runs) >= 50)
    crew.dismiss()
    verdict(fleet, f"pool of {pool} for 50 runs at a time")


@pytest.mark.slow(covered_by=WAITING)
def test_a_step_that_keeps_the_only_connection_for_longer_than_the_lease_is_made_once(
    fleet: Any, tally: Callable[..., None]
) -> None:
    """The worker's lease is kept all the same, so nobody takes the run over, though somebody is there to do it."""
    assert fleet.worker(fleet.way("pool=1")).line() == "ready"
    run = fleet.hf.enqueue(labour.booking, fleet.trial.world, 7, 4.0, id="run")
    wait_until(lambda: labour.happened(fleet.trial.world))
    assert fleet.worker().line() == "ready"
    assert run.result(timeout=40) == "7 booking"
    assert labour.happened(fleet.trial.world) == fleet.rows() == ["7 booking"]
    tally("PostgreSQL, steps that keep the only connection", runs=1, violations=0)


def test_who_waits_too_long_for_a_connection_is_told_and_the_next_call_succeeds(
    fleet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.3)
    with holdfast.open(fleet.way("pool=1")) as hf:
        run = hf.enqueue(labour.booking, fleet.trial.world, 7, 2.0, id="slow")
        thread = threading.Thread(target=run.resume)
        thread.start()
        wait_until(lambda: labour.happened(fleet.trial.world))
        with pytest.raises(StoreBusy, match=r"all 1 connections are in use; raise \?pool=, or try again"):
            hf.get("slow")
        thread.join(30)
        assert hf.get("slow").result(timeout=0) == "7 booking"


# --- the server

OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND application_name <> 'crowd'"
)


class Crowd:
    """Somebody else who takes all connections that a server has."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._own = psycopg.connect(url, autocommit=True, application_name="crowd")
        self._all = int(self._own.execute("SHOW max_connections").fetchone()[0])  # type: ignore[index]  # one row
        self._taken: list[psycopg.Connection[Any]] = []

    def come(self) -> None:
        """End the sessions of all others and take their places, as fast as they try to get them back, until all are
        taken: a session that is told to end may still be there, and leave its place to whoever comes next."""
        deadline = time.monotonic() + 30
        while 1 + len(self._taken) < self._all:
            assert time.monotonic() < deadline, f"only {len(self._taken)} of {self._all} places could be taken"
            try:
                self._taken.append(psycopg.connect(self._url, application_name="crowd"))
            except psycopg.OperationalError as error:
                if "too many clients" not in str(error):
                    raise
                self._own.execute(OTHERS)

    def go(self) -> None:
        while self._taken:
            self._taken.pop().close()

    def end(self) -> None:
        self.go()
        self._own.close()


@pytest.fixture
def crowd(own_url: str) -> Iterator[Crowd]:
    crowd = Crowd(own_url)
    yield crowd
    crowd.end()


@pytest.mark.slow(covered_by=WAITING)
@pytest.mark.parametrize("times", [2, pytest.param(30, marks=pytest.mark.torture)])
def test_a_server_without_a_free_connection_holds_nothing_up_for_good(
    own_url: str,
    crowd: Crowd,
    fleets: Callable[[str], Any],
    times: int,
    monkeypatch: pytest.MonkeyPatch,
    verdict: Callable[..., None],
) -> None:
    fleet = fleets(own_url)
    fleet.trial.bears = (StoreBusy,)
    monkeypatch.setattr(connections, "PATIENCE", 0.5)  # of this process, which is to make room
    crew = fleet.crew(fleet.command, 2)
    crew.fill()
    made, until = 0, 0.0

    def strike() -> bool:
        nonlocal made, until
        if not until and made < times and fleet.at_work() == 2:
            crowd.come()
            until = time.monotonic() + 1.0
            with pytest.raises(StoreBusy, match=r"too many clients.*raise max_connections there, or give each"):
                holdfast.open(own_url)
        elif until and time.monotonic() > until:
            crowd.go()
            made, until = made + 1, 0.0
        return made == times

    fleet.trial.go(strike, timeout=900 if times > 2 else 90)
    crew.dismiss()
    verdict(fleet, "server without a free connection", times=made, refused=fleet.trial.borne)
