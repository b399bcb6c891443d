"""What all tests share: stores of every kind, folders to work in, and the profiles of Hypothesis."""

import os
import random
import signal
import sqlite3
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
import sizes
from hypothesis import HealthCheck, settings
from msgspec.structs import replace
from pgserver import Schemas, Shared, found
from pgserver import programs as postgres_programs

import holdfast
from holdfast import Holdfast, secret
from holdfast.errors import StoreUnusable
from holdfast.stores import memory, open_store
from holdfast.stores.postgres.store import TABLES, PostgresStore
from holdfast.stores.sqlite import file as sqlite_file
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash

# A shell has what it starts in the background ignore Ctrl-C, and so would all processes that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["selection"]  # tests/lib/selection.py


def pytest_configure() -> None:
    """Refuse to start where the server that HOLDFAST_POSTGRES names is not installed."""
    try:
        postgres_programs()
    except RuntimeError as missing:
        raise pytest.UsageError(str(missing)) from None


# --- Hypothesis: HOLDFAST_PROFILE chooses; a failure prints the blob that repeats it ----------------------------------

settings.register_profile(
    "all",
    deadline=None,
    derandomize=True,  # the same examples each time; `make torture` looks for others
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("quick", parent=settings.get_profile("all"), max_examples=25)
settings.register_profile("torture", parent=settings.get_profile("all"), max_examples=2_000, derandomize=False)
settings.load_profile(sizes.PROFILE)


@pytest.fixture(autouse=True)
def _closed_stores() -> Iterator[None]:
    """See that a test closes what it opens: some Pythons warn of it only when they collect garbage, in another test."""
    before = set(sqlite_file._stores)
    yield
    left = set(sqlite_file._stores) - before
    for store in left:
        store.drop()
    assert not left, "the test has left SQLite stores open; open them with `with`, or close them"


@pytest.fixture(autouse=True)
def _forgotten_secrets() -> Iterator[None]:
    """Forget the secrets of a test: while one is in memory, no other test can store its value."""
    before = set(secret._made_here)
    yield
    for token in set(secret._made_here) - before:
        secret._made_here.pop(token, None)


# --- Folders ----------------------------------------------------------------------------------------------------------

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def memdir(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of this test alone, in memory where the system has such a place: syncing costs nothing there."""
    if not (SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK | os.X_OK)):
        yield request.getfixturevalue("tmp_path")
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=SHARED_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A folder of this test alone on a real disk, for what depends on real syncing."""
    return tmp_path


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server for all tests: HOLDFAST_TEST_POSTGRES, or one that is started for them."""
    base = tmp_path_factory.getbasetemp()
    server = found() or Shared(base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base)
    yield server.url
    server.leave()


@pytest.fixture(scope="session")
def postgres_schemas(postgres_server: str) -> Iterator[Schemas]:
    """Gives out schemas that are empty."""
    schemas = Schemas(postgres_server)
    yield schemas
    schemas.remove()


@pytest.fixture
def postgres_url(postgres_schemas: Schemas) -> Iterator[str]:
    """The URL of a store in PostgreSQL that is empty, and of this test alone."""
    schema = postgres_schemas.take()
    yield postgres_schemas.url(schema)
    postgres_schemas.give_back(schema)


@pytest.fixture
def deaths_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Across machines a death is known when the lease is over. Tests that run on all stores do not wait for that."""
    drop = PostgresStore.drop

    def die(store: PostgresStore) -> None:
        if store._link.unusable is None:
            store._retire(list(store._enlisted))
        drop(store)

    monkeypatch.setattr(PostgresStore, "drop", die)


@pytest.fixture
def in_postgres(postgres_schemas: Schemas, store_url: str) -> Callable[..., list[Any]]:
    """Carries out a statement in the schema of the test's store, by another way than the store's own."""

    def execute(statement: str, *values: Any) -> list[Any]:
        return postgres_schemas.execute(statement.replace("{schema}", store_url.partition("schema=")[2]), values)

    return execute


# --- Stores -----------------------------------------------------------------------------------------------------------


KINDS = tuple(os.environ.get("HOLDFAST_STORES", "memory,files,sqlite,postgres").split(","))
ON_POSTGRES = frozenset({"engine", "seeds"})  # the others take long there: HOLDFAST_STORES=postgres make test


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Unless HOLDFAST_STORES says on which stores tests run, leave most of them out on PostgreSQL."""
    if "HOLDFAST_STORES" in os.environ:
        return
    left_out = [item for item in items if _is_on_postgres(item) and item.path.parent.name not in ON_POSTGRES]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        out = set(left_out)
        items[:] = [item for item in items if item not in out]


def _is_on_postgres(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("store_url") == "postgres"


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, memdir: Path) -> str:
    """The URL of a store that is empty, and that may be opened more than once. The test runs on every kind of store.

    On PostgreSQL, which takes longer, by default only those of some folders do.
    """
    match request.param:
        case "postgres":
            request.getfixturevalue("deaths_are_known")
            return str(request.getfixturevalue("postgres_url"))
        case "memory":
            return f"memory://{memdir.name}"
        case "files":
            return f"files:///{memdir / 'runs'}"
        case _:
            return f"sqlite:///{memdir / 'runs.db'}"


@pytest.fixture
def beside(store_url: str, request: pytest.FixtureRequest) -> Iterator[Callable[[object], str]]:
    """Gives the URLs of more stores of the same kind, by any names; they are empty at first."""
    schemas: dict[object, str] = {}

    def another(name: object) -> str:
        if not store_url.startswith("postgresql"):
            return f"{store_url}-{name}"
        given = request.getfixturevalue("postgres_schemas")
        if name not in schemas:
            schemas[name] = given.take()
        return str(given.url(schemas[name]))

    yield another
    for schema in schemas.values():
        request.getfixturevalue("postgres_schemas").give_back(schema)


Opener = Callable[..., Holdfast]


@pytest.fixture
def opened(store_url: str) -> Iterator[Opener]:
    """Opens the store; each call is another holder. All are closed at the end."""
    handles: list[Holdfast] = []

    def opener(url: str = store_url, **how: Any) -> Holdfast:
        handles.append(holdfast.open(url, **how))
        return handles[-1]

    yield opener
    for handle in handles:
        with suppress(StoreUnusable):  # of one that was killed
            handle.close()


@pytest.fixture
def hf(opened: Opener) -> Holdfast:
    """The store, open."""
    return opened()


@pytest.fixture
def kill() -> Callable[[Holdfast], None]:
    """Ends a handle as the death of its process does: its locks are free, and nothing more is written."""

    def killer(handle: Holdfast) -> None:
        handle.client.engine.worker.stop()
        handle.client.store.drop()

    return killer


@pytest.fixture
def raw_bytes(store_url: str, request: pytest.FixtureRequest) -> Callable[..., bytes]:
    """Everything that stands in the files of a store; of a memory store, in its records; of a database, in its rows."""

    def read(url: str = store_url) -> bytes:
        scheme, _, place = url.partition("://")
        if scheme == "memory":
            shelf = memory._shared[place]
            journals = [(one.record, one.entries, one.inbox, one.taken) for one in shelf.runs.values()]
            return repr((journals, shelf.documents)).encode()
        if scheme == "postgresql":
            execute = request.getfixturevalue("in_postgres")
            tables = [execute(f"SELECT * FROM {{schema}}.{name}") for name in TABLES]
            return b"\n".join(
                bytes(value) if isinstance(value, bytes) else str(value).encode()
                for rows in tables
                for row in rows
                for value in row
            )
        path = Path(place.removeprefix("/"))
        found = path.rglob("*") if scheme == "files" else path.parent.glob(path.name + "*")
        everything = list(found)
        return b"\n".join(
            [str(one).encode() for one in everything] + [p.read_bytes() for p in everything if p.is_file()]
        )

    return read


@pytest.fixture
def journal_file(store_url: str) -> Callable[[str], Path]:
    """The journal of a run in a files store."""

    def find(id: str) -> Path:
        root = Path(store_url.removeprefix("files:///"))
        wanted = f'"id": "{id}"'.encode()
        [found] = [path.parent for path in root.rglob("run.json") if wanted in path.read_bytes()]
        return found / "journal.jsonl"

    return find


@pytest.fixture
def damage(
    store_url: str, journal_file: Callable[[str], Path], request: pytest.FixtureRequest
) -> Callable[[Any, int], None]:
    """Changes the stored payload of one entry, as a failing disk does."""

    def change(run: Any, seq: int) -> None:
        if store_url.startswith("memory"):
            journal = memory._shared[store_url.removeprefix("memory://")].runs[run.uid]
            place = seq - journal.record.base
            journal.entries[place] = replace(journal.entries[place], payload=b'{"damaged": 1}')
        elif store_url.startswith("sqlite"):
            with sqlite3.connect(store_url.removeprefix("sqlite:///")) as db:
                one = "run = (SELECT n FROM run WHERE uid = ?) AND seq = ?"
                assert db.execute(
                    f"UPDATE entry SET payload = ? WHERE {one}", (b'{"damaged": 1}', run.uid, seq)
                ).rowcount
            db.close()
        elif store_url.startswith("postgresql"):
            one = "run = (SELECT n FROM {schema}.run WHERE uid = %s) AND seq = %s"
            changed = f"UPDATE {{schema}}.entry SET payload = %s WHERE {one} RETURNING 1"
            assert request.getfixturevalue("in_postgres")(changed, b'{"damaged": 1}', run.uid, seq)
        else:
            path = journal_file(run.id)
            lines = path.read_bytes().splitlines(keepends=True)
            [number] = [n for n, line in enumerate(lines) if b'"seq":%d,' % seq in line.replace(b": ", b":")]
            line = bytearray(lines[number])
            line[len(line) // 2] ^= 1
            lines[number] = bytes(line)
            path.write_bytes(b"".join(lines))

    return change


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a test's chance: the same each time, and in `make torture` another one each time.

    Set HOLDFAST_SEED to repeat a run; a failing test shows the seed that it had.
    """
    own = zlib.crc32(request.node.nodeid.encode())
    if sizes.PROFILE == "torture":
        own = random.SystemRandom().randrange(1 << 32)
    chosen = int(os.environ.get("HOLDFAST_SEED") or own)
    print(f"HOLDFAST_SEED={chosen}")
    return chosen


# --- Counts -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Adds to the counts that are shown at the end: `tally("crash points", found=7, violations=0)`."""

    def add(what: str, **numbers: int) -> None:
        request.node.user_properties.append(("sums", [what, numbers]))
        print(f"{what}: {', '.join(f'{name} {n:,}' for name, n in numbers.items())} ({request.node.name})")

    return add


# Here and not beside the tests that count: with xdist the process that prints the summary collects no tests itself.
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what the tests have counted: `request.node.user_properties.append(("counts", line))`."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.stats.get(name, [])]
    told = [noted for report in reports for noted in getattr(report, "user_properties", [])]
    lines = {value for name, value in told if name == "counts"}
    sums: dict[str, Counter[str]] = {}
    for name, value in told:
        if name == "sums":
            sums.setdefault(value[0], Counter()).update(value[1])
    lines |= {f"{what}: {', '.join(f'{name} {n:,}' for name, n in sum.items())}" for what, sum in sums.items()}
    if lines:
        terminalreporter.section("counted")
        for line in sorted(lines):
            terminalreporter.write_line(line)


# --- for workflows and graphs


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(store_url: str, clock: ManualClock) -> Iterator[Callable[..., Holdfast]]:
    """Opens the store with the clock of this test; each call is another holder."""
    handles: list[Holdfast] = []

    def opener(**how: Any) -> Holdfast:
        handles.append(holdfast.open(store_url, store=open_store(store_url, clock=clock), **how))
        return handles[-1]

    yield opener
    for handle in handles:
        with suppress(StoreUnusable):  # of one that was killed
            handle.close()


@pytest.fixture
def die(kill: Callable[[Holdfast], None]) -> Callable[[Holdfast], NoReturn]:
    """Called inside of a step: the process that has the handle is dead from here on. `Crash` or StoreUnusable comes."""

    def dying(handle: Holdfast) -> NoReturn:
        kill(handle)
        raise Crash

    return dying
