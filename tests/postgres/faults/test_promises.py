"""What was acknowledged to many clients is there, whatever happened to the server meanwhile, and no run is stranded.

Each client is a process that writes down what was acknowledged to it, which is compared with the tables in the end,
while the clients are still alive: a run that one of them holds and has forgotten stays in that state.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import client
import psycopg
import pytest
from children import Child
from pgbouncer import Bouncer
from pgserver import Server

CLIENTS = 2
SETTINGS = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "60"}
ANY = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type = 'client backend' ORDER BY random() LIMIT %s"
)
SERIALIZABLE = "ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'"
LOST = """
SELECT id FROM unnest(%s::text[]) id WHERE NOT EXISTS (SELECT 1 FROM holdfast.run r WHERE r.id = id.id {more})
"""
ENDED = """AND r.status = 'completed' AND r.worker IS NULL AND EXISTS (
    SELECT 1 FROM holdfast.entry e WHERE e.run = r.n AND e.kind = 'completed')"""


class Clients:
    """Processes that make and end runs."""

    def __init__(self, url: str, runs: int, folder: Path) -> None:
        self._file = folder / "acknowledged"
        script, each = str(client.__file__), str(runs // CLIENTS)
        errors = folder / "errors"
        self._all = [Child(script, url, f"client-{n}", each, str(self._file), errors=errors) for n in range(CLIENTS)]

    def wait(self, word: str, strike: Callable[[], None], timeout: float) -> None:
        """Wait until all have said this, and strike meanwhile."""
        until, said = time.monotonic() + timeout, set[Child]()
        while len(said) < len(self._all):
            assert time.monotonic() < until, f"not all of them said {word!r} in time"
            strike()
            for one in self._all:
                line = one.line(0.005) if one not in said else None
                assert not one.ended, "a client has died"
                if line is not None:
                    assert line == word
                    said.add(one)

    def work(self, strike: Callable[[], None], timeout: float) -> None:
        for one in self._all:
            one.say("work")
        self.wait("idle", strike, timeout)

    def acknowledged(self) -> dict[str, list[str]]:
        told: dict[str, list[str]] = {"made": [], "ended": [], "failed": [], "raised": []}
        for line in self._file.read_text().splitlines():
            what, _, which = line.partition(" ")
            told[what].append(which)
        return told

    def end(self) -> None:
        for one in self._all:
            one.clear_away()


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Callable[[str, int], Clients]]:
    """Starts clients; none outlives the test."""
    made: list[Clients] = []

    def start(url: str, runs: int) -> Clients:
        made.append(Clients(url, runs, tmp_path))
        return made[-1]

    yield start
    for one in made:
        one.end()


class Faults:
    """What happens to the server, again and again."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self.made: Counter[str] = Counter()
        self._server = server
        self._chance = chance
        self._next = time.monotonic() + 1.0

    def strike(self, act: Callable[[], None], least: float, most: float) -> None:
        if time.monotonic() > self._next:
            act()
            self._next = time.monotonic() + self._chance.uniform(least, most)

    def end_sessions(self) -> None:
        with psycopg.connect(self._server.url, autocommit=True) as conn:
            self.made["sessions"] += conn.execute(ANY, (self._chance.choice([1, 2, 20]),)).rowcount

    def restart(self) -> None:
        how = "immediate" if self.made["restarts_fast"] > self.made["restarts_immediate"] else "fast"
        self._server.stop(how)
        self._server.start(**SETTINGS)
        self.made[f"restarts_{how}"] += 1

    def nothing(self) -> None:
        """The server is sound."""


PAUSES = {"end_sessions": (0.0, 0.4), "restart": (0.5, 5.0), "nothing": (0.0, 0.0)}


def judge(
    server: Server, made: Clients, runs: int, fault: str, seed: int, tally: Callable[..., None], name: str
) -> None:
    faults, long = Faults(server, random.Random(seed)), 60 + runs / 10

    def strike() -> None:
        faults.strike(getattr(faults, fault), *PAUSES[fault])

    made.wait("ready", faults.nothing, long)
    made.wait("made", strike, long)
    made.work(strike, long)
    made.work(faults.nothing, long)
    told = made.acknowledged()
    with psycopg.connect(server.url, autocommit=True) as conn:
        lost = conn.execute(LOST.format(more=""), (told["made"],)).fetchall()  # type: ignore[call-overload]
        unended = conn.execute(LOST.format(more=ENDED), (told["ended"],)).fetchall()  # type: ignore[call-overload]
        states = conn.execute("SELECT status, worker IS NOT NULL, count(*) FROM holdfast.run GROUP BY 1, 2").fetchall()
    counts = {"lost": len(lost), "ends_lost": len(unended), "stranded": sum(n for *state, n in states if state != DONE)}
    ends = sum(n for _, _, n in states)
    acknowledged = {"created": len(told["made"]), "ended": len(told["ended"]), "all_ends": ends}
    tally(f"PostgreSQL, {name}", **acknowledged, failed=len(told["failed"]), **faults.made, **counts)
    assert told["raised"] == []
    assert (lost, unended) == ([], [])
    assert counts["stranded"] == 0, states


DONE = ["completed", False]
COVERED = "tests/postgres/test_acknowledged.py"


@pytest.mark.slow(covered_by=COVERED)
@pytest.mark.parametrize("runs", [400, pytest.param(40_000, marks=pytest.mark.torture)])
@pytest.mark.parametrize("fault", ["end_sessions", "restart"])
def test_what_was_acknowledged_is_there_after_ended_sessions_and_restarts(
    own_server: Server,
    own_url: str,
    clients: Callable[[str, int], Clients],
    fault: str,
    runs: int,
    seed: int,
    tally: Callable[..., None],
) -> None:
    judge(own_server, clients(own_url, runs), runs, fault, seed, tally, f"promises under {fault.replace('_', ' ')}")


@pytest.mark.slow(covered_by=COVERED)
@pytest.mark.parametrize("runs", [400, pytest.param(12_000, marks=pytest.mark.torture)])
@pytest.mark.parametrize("pooled", [False, pytest.param(True, marks=pytest.mark.needs("pgbouncer"))])
def test_what_was_acknowledged_is_there_with_serializable_isolation(
    own_server: Server,
    own_url: str,
    clients: Callable[[str, int], Clients],
    runs: int,
    pooled: bool,
    seed: int,
    tally: Callable[..., None],
) -> None:
    """Also behind a pooler, which takes no settings of a session."""
    with psycopg.connect(own_url, autocommit=True) as conn:
        conn.execute(SERIALIZABLE)
    bouncer: Any = Bouncer(own_url) if pooled else None
    try:
        url = bouncer.url(own_url) if pooled else own_url
        name = "promises with serializable isolation" + (" behind PgBouncer" if pooled else "")
        judge(own_server, clients(url, runs), runs, "nothing", seed, tally, name)
    finally:
        if bouncer is not None:
            bouncer.end()
