"""Fleets of real worker processes on PostgreSQL, to which something happens. How they are judged: tests/lib/trial.py.

Each test has a database of its own, with the store in a schema and the user's table `ledger` beside it. A test is
short; with `-m torture` the same goes on for minutes.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import labour
import psycopg
import pytest
from children import Child
from pgproxy import Proxy
from pgserver import Schemas, Server
from trial import Crew, Trial

import holdfast
from holdfast.stores.postgres.schema import migrate
from holdfast.testing.contract_queues import QueueContract

LEASE = 1.0  # seconds, of workers that are killed or stopped


CORE = re.compile("claim|append|batch|lease|epoch|retire|orphan")  # of the contract, beside queues


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Through a pooler, leave all but the core of the contract to the long runs."""
    for item in items:
        if not isinstance(item, pytest.Function) or getattr(item.cls, "__name__", "") != "TestThroughPgBouncer":
            continue
        if not (hasattr(QueueContract, item.originalname) or CORE.search(item.originalname)):
            item.add_marker(pytest.mark.torture)


@pytest.fixture
def database(postgres_schemas: Schemas, furnished: Callable[[str], str]) -> Iterator[str]:
    """The URL of a database of this test alone, with an empty store and an empty table `ledger`."""
    name = f"{postgres_schemas.name}_faults"
    postgres_schemas.execute(f"CREATE DATABASE {name}")
    yield furnished(postgres_schemas.elsewhere(database=name))
    postgres_schemas.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def own_url(own_server: Server, furnished: Callable[[str], str]) -> str:
    """The same on a server of this test alone, which it may stop and start. Its commits are synced."""
    return furnished(own_server.url)


@pytest.fixture
def furnished() -> Callable[[str], str]:
    """Makes a store and a table `ledger` in a database; its URL."""

    def furnish(url: str) -> str:
        migrate(url)
        with closing(psycopg.connect(url, autocommit=True)) as conn:
            conn.execute("CREATE TABLE ledger (what text NOT NULL)")
        return url

    return furnish


class Fleet:
    """A trial on a database, with the processes that work for it. ``url`` is the way to it that no fault is on."""

    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url = url
        self.folder = folder
        self.seed = seed
        self.chance = random.Random(seed)
        self.hf = holdfast.open(url)
        self.trial = Trial(self.hf, str(folder / "world"), self.chance, rows=self.rows, many=24)
        self._started: list[Child] = []
        self._errors = folder / "errors"

    def rows(self) -> list[str]:
        with closing(psycopg.connect(self.url)) as conn:
            return [what for (what,) in conn.execute("SELECT what FROM ledger")]

    def way(self, option: str) -> str:
        """The URL with an option more."""
        return f"{self.url}{'&' if '?' in self.url else '?'}{option}"

    def worker(self, url: str = "", env: dict[str, str] | None = None, **options: Any) -> Child:
        """A worker that says ``ready``, with a short lease; ``options`` are those of `labour.py`."""
        chosen = {"lease": LEASE, "concurrency": 6, **options}
        return self._begin(Child(labour.__file__, url or self.url, json.dumps(chosen), env=env, errors=self._errors))

    def command(self, url: str = "", *arguments: str) -> Child:
        """A worker as users start it: `holdfast worker`."""
        how = ("worker", labour.__file__, "--store", url or self.url, "--concurrency", "6", *arguments)
        return self._begin(Child("-m", "holdfast", *how, errors=self._errors))

    def _begin(self, child: Child) -> Child:
        self._started.append(child)
        return child

    def told(self, text: str) -> int:
        """How often its workers have said this so far."""
        return self._errors.read_text().count(text)

    def at_work(self) -> int:
        """How many workers of `command` have begun so far."""
        return self.told("the worker is at work")

    def crew(self, hire: Callable[[], Child], size: int = 3) -> Crew:
        return Crew(hire, size, self.chance)

    def end(self) -> None:
        for child in self._started:
            child.clear_away()
        self.hf.close()
        if self._errors.exists():  # shown if the test failed
            print(self._errors.read_text()[-20_000:])


@pytest.fixture
def fleets(tmp_path: Path, seed: int) -> Iterator[Callable[[str], Fleet]]:
    """Makes fleets; at the end none of their processes is left."""
    made: list[Fleet] = []

    def make(url: str) -> Fleet:
        made.append(Fleet(url, tmp_path, seed))
        return made[-1]

    yield make
    for fleet in made:
        fleet.end()


@pytest.fixture
def fleet(fleets: Callable[[str], Fleet], database: str) -> Fleet:
    """A fleet on the database of this test."""
    return fleets(database)


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    """Stands before the server of `database`."""
    parts = urlsplit(database)
    proxy = Proxy(str(parts.hostname), parts.port or 5432)
    yield proxy
    proxy.close()


@pytest.fixture
def detour(database: str, proxy: Proxy) -> str:
    """The URL of `database`, by way of the proxy."""
    parts = urlsplit(database)
    user = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{proxy.port}"))


@pytest.fixture
def verdict(tally: Callable[..., None], request: pytest.FixtureRequest) -> Callable[..., None]:
    """Judges a fleet, and counts: `verdict(fleet, "workers killed", kills=12)`."""

    def judge(fleet: Fleet, fault: str, **counted: int) -> None:
        tally(f"PostgreSQL, {fault}", **counted, **fleet.trial.judge())
        request.node.user_properties.append(("counts", f"PostgreSQL, {fault}: seed {fleet.seed}"))

    return judge
