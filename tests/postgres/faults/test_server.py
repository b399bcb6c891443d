"""The server stops in the middle, as in a power failure, and comes back; its sessions are ended at random."""

import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from pgserver import Server

LONG = pytest.mark.torture


@pytest.mark.slow(covered_by="tests/postgres/test_restart.py::test_a_server_that_is_restarted_loses_nothing")
@pytest.mark.parametrize("restarts", [4, pytest.param(100, marks=LONG)])
def test_a_server_that_stops_again_and_again_loses_nothing_and_doubles_nothing(
    own_server: Server, own_url: str, fleets: Callable[[str], Any], restarts: int, verdict: Callable[..., None]
) -> None:
    fleet = fleets(own_url)
    crew = fleet.crew(fleet.command, 2)
    crew.fill()
    made, when = 0, 0.0

    def strike() -> bool:
        nonlocal made, when
        if made < restarts and time.monotonic() > when and fleet.at_work() == 2:
            own_server.stop("immediate")
            time.sleep(fleet.chance.uniform(0, 0.2))  # some calls find nobody there
            own_server.start(fsync="on", synchronous_commit="on", full_page_writes="on", max_connections="40")
            made, when = made + 1, time.monotonic() + fleet.chance.uniform(0.1, 1.5)
        return made == restarts

    fleet.trial.go(strike, timeout=900 if restarts > 4 else 90)
    crew.dismiss()
    verdict(fleet, "server restarts", restarts=made)


ANY = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY random() LIMIT %s"
)


@pytest.mark.slow(
    covered_by="tests/postgres/test_restart.py::test_sessions_that_are_ended_at_random_lose_nothing_and_double_nothing"
)
@pytest.mark.parametrize("sessions", [200, pytest.param(20_000, marks=LONG)])
def test_sessions_that_are_ended_at_random_lose_nothing_and_double_nothing(
    fleet: Any, database: str, sessions: int, verdict: Callable[..., None]
) -> None:
    """Also those of this test, and those in the middle of a transactional step, or of a commit."""
    crew = fleet.crew(fleet.command, 2)
    crew.fill()
    ended = 0
    with psycopg.connect(database, autocommit=True) as conn:

        def strike() -> bool:
            nonlocal ended
            if ended < sessions and fleet.at_work() == 2:
                ended += conn.execute(ANY, (fleet.chance.choice([1, 1, 2, 20]),)).rowcount
            return ended >= sessions

        fleet.trial.go(strike, timeout=900 if sessions > 200 else 90)
    crew.dismiss()
    verdict(fleet, "sessions ended", sessions=ended)
