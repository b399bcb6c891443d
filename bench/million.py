"""A store with a million finished runs beside one with a thousand: taking, getting and listing cost about the same.

The runs are copies of one that the engine made: each has an id, a uid, tags and times of its own, and its journal is
chained anew, so that it verifies. They are written by the stores' own statements, many to a transaction.

The two stores are asked in turn, call by call, and a figure is the ratio of the medians. Every question has the same
answer in both as far as its length goes: a page is full, or has the same few runs. So what is compared is the finding.
"""

from __future__ import annotations

import itertools
import random
import re
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from msgspec.structs import replace

import holdfast
from bench.database import postgres
from bench.harness import Measured
from holdfast import step, workflow
from holdfast.kernel.journal import genesis, next_entry
from holdfast.kernel.model import Entry, Filter, Order, RunRecord, Status
from holdfast.stores import migrate
from holdfast.stores.postgres import rows as postgres_rows
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sqlite import rows as sqlite_rows
from holdfast.stores.sqlite.statements import Q
from holdfast.stores.sqlite.store import SqliteStore

SMALL, LARGE = 1_000, 1_000_000
PAGE = 50
STEPS = 2
EACH = 60  # runs of a customer
WINDOW = 100  # seconds, and a run is made each second
CALLS, PAGES = 400, 120
BLOCK = 40  # calls, of which the medians are compared
TAKEN = 450  # runs that lie ready for that many calls
CROWD = 10_000  # more of them, as many whose time to wait is over, and as many that wait for a later time
EPOCH = 1_700_000_000_000_000
LATER = 2 * EPOCH
SEED = 11
ENDS = (Status.COMPLETED,) * 8 + (Status.FAILED, Status.CANCELLED)
WORKFLOWS = tuple(f"flow-{n}" for n in range(10))
REGIONS = tuple(f"region-{n}" for n in range(10))

ASKED = ("take", "take_crowded", "get", "newest", "status", "statuses", "workflow", "tag", "rare_tag", "prefix", "time")
ASKED += ("page", "api")  # of the web page, and of the list that other programs ask for
GOALS: dict[str, float] = {f"list_1m_over_1k_{store}_{what}": 2.0 for store in ("pg", "sqlite") for what in ASKED}
GOALS["list_1m_over_1k"] = 2.0


def measure(folder: Path, say: Callable[[str], None]) -> dict[str, float]:
    figures = {}
    with postgres() as server:
        figures |= compared("pg", lambda runs: in_postgres(f"{server.url}?schema=of_{runs}"), say)
    figures |= compared("sqlite", lambda runs: in_sqlite(folder / f"of-{runs}.db"), say)
    for runs in (SMALL, LARGE):
        for file in folder.glob(f"of-{runs}.db*"):
            if file.is_file():
                file.unlink()
    others = ("_take", "_take_crowded", "_get")  # which list nothing
    figures["list_1m_over_1k"] = max(figures[name] for name in GOALS if name in figures and not name.endswith(others))
    return figures


# --- runs as the engine leaves them


@step
def act(n: int) -> str:
    return f"receipt {n:08}"


@workflow(name=WORKFLOWS[0])
def order(customer: str) -> str:
    return " ".join(act(n) for n in range(STEPS))


class Made(NamedTuple):
    """A run to be stored, with its journal."""

    record: RunRecord
    entries: tuple[Entry, ...]


def one_run() -> Made:
    """A run that the engine made from its beginning to its end."""
    with holdfast.open("memory://") as hf:
        run = hf.start(order, "c", id="c", tags={"region": "r", "customer": "c"})
        run.result()
        record = hf.client.store.get(uid=run.uid)
        assert record is not None
        return Made(record, tuple(hf.client.store.read(run.uid, 0, record.seq)))


def copies(model: Made, begin: int, end: int) -> Iterator[Made]:
    """Copies of a run with these numbers, as if one had been made each second."""
    dice = random.Random(SEED)
    first = model.record.created_at
    for n in range(begin, end):
        at = EPOCH + n * 1_000_000
        uid = f"{at:013x}{dice.getrandbits(44):011x}"
        customer = f"customer-{n // EACH:06}"
        ends = ENDS[n * 7 % 10]
        prev, entries = genesis(uid), []
        for old in model.entries:
            kind = str(ends) if old is model.entries[-1] else old.kind
            entry = next_entry(prev, old.seq, kind, at + old.at - first, old.state, old.payload)
            prev = entry.hash
            entries.append(entry)
        record = replace(
            model.record,
            uid=uid,
            id=f"{customer}/order-{n:08}",
            created_at=at,
            root=genesis(uid),
            workflow=WORKFLOWS[n % 10],
            tags={"region": REGIONS[n // 10 % 10], "customer": customer},
            queue="default",
            status=ends,
        )
        yield Made(record, tuple(entries))


def due(model: Made, begin: int, end: int, *, wake_at: int | None = None) -> Iterator[Made]:
    """Copies that nobody has begun: they lie ready, or wait for a time."""
    status = Status.READY if wake_at is None else Status.WAITING
    for record, entries in copies(model, begin, end):
        waiting = replace(record, status=status, epoch=0, worker=None, wake_at=wake_at)
        yield Made(waiting, entries[:1])


# --- written by the stores' own statements


class Filled(NamedTuple):
    """A store, how to write many runs to it at once, how to ask for its size, and how it finds what a query wants."""

    url: str
    store: Any
    fill: Callable[[Iterator[Made]], None]
    size: Callable[[], int]
    close: Callable[[], None]


def in_postgres(url: str) -> Filled:
    migrate(url)
    store = PostgresStore(url)
    conn = psycopg.connect(store._link.settings.conninfo, autocommit=True)
    schema = store._link.settings.schema
    into_run = re.match(r"INSERT INTO (\S+ \([^)]*\))", store._q["insert_run"])
    assert into_run is not None

    def fill(runs: Iterator[Made]) -> None:
        for some in batches(runs, 20_000):
            with conn.transaction(), conn.cursor() as cursor:
                with cursor.copy(f"COPY {into_run[1]} FROM STDIN") as copy:
                    for made in some:
                        copy.write_row(postgres_rows.row_of(made.record))
                found = cursor.execute(
                    f"SELECT uid, n FROM {schema}.run WHERE uid = ANY(%s)", ([made.record.uid for made in some],)
                )
                numbers = dict(found.fetchall())
                with cursor.copy(
                    f"COPY {schema}.entry (run, seq, at, state, kind, hash, payload) FROM STDIN (FORMAT binary)"
                ) as copy:
                    copy.set_types(["int8", "int8", "int8", "int8", "text", "bytea", "bytea"])
                    for made in some:
                        n = numbers[made.record.uid]
                        for e in made.entries:
                            copy.write_row((n, e.seq, e.at, e.state, e.kind, e.hash, e.payload))
        for table in ("run", "entry", "run_tag"):  # as autovacuum does it, sooner or later
            conn.execute(f"VACUUM (ANALYZE) {schema}.{table}")
        conn.execute("CHECKPOINT")

    def size() -> int:
        tables = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c WHERE relnamespace = %s::regnamespace"
        [(found,)] = conn.execute(f"{tables} AND relkind = 'r'", (schema,)).fetchall()
        return int(found)

    def close() -> None:
        store.close()
        conn.close()

    return Filled(url, store, fill, size, close)


def in_sqlite(file: Path) -> Filled:
    store = SqliteStore(str(file))
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")  # while it is filled; the store's own connection syncs

    def fill(runs: Iterator[Made]) -> None:
        [(number,)] = db.execute("SELECT coalesce(max(n), 0) FROM run").fetchall()
        for some in batches(runs, 20_000):
            db.execute("BEGIN IMMEDIATE")
            db.executemany(Q["insert_run"], (sqlite_rows.row_of(made.record) for made in some))
            numbered = zip(itertools.count(number + 1), some)
            rows = ((n, e.seq, e.kind, e.at, e.state, e.hash, e.payload) for n, made in numbered for e in made.entries)
            db.executemany(Q["insert_entry"], rows)
            number += len(some)
            db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close() -> None:
        db.close()
        store.close()

    return Filled(f"sqlite:///{file}", store, fill, lambda: file.stat().st_size, close)


def batches(runs: Iterator[Made], size: int) -> Iterator[list[Made]]:
    while some := list(itertools.islice(runs, size)):
        yield some


# --- asked in turn


def compared(name: str, make: Callable[[int], Filled], say: Callable[[str], None]) -> dict[str, float]:
    """The figures of one kind of store."""
    model, stores, figures = one_run(), {}, dict[str, float]()
    try:
        for runs in (SMALL, LARGE):
            say(f"{runs:,} finished runs, {name}")
            stores[runs] = filled = make(runs)
            started, before = time.perf_counter(), filled.size()
            filled.fill(copies(model, 0, runs))
            if runs == LARGE:
                figures[f"million_fill_s_{name}"] = time.perf_counter() - started
                figures[f"million_gb_{name}"] = filled.size() / 1e9
                figures[f"million_bytes_per_run_{name}"] = (filled.size() - before) / runs
            filled.fill(due(model, runs, runs + TAKEN))
            check(filled.store, runs)
        say(f"asking both in turn, {name}")
        times = {runs: questions(filled.store, runs) for runs, filled in stores.items()}
        found = in_turn(times)
        say(f"the page of runs, and the list of the API, {name}")
        with ExitStack() as stack:
            found |= in_turn({runs: shown(stack, filled.url) for runs, filled in stores.items()}, PAGES)
        say(f"{CROWD:,} that lie ready and {2 * CROWD:,} that wait, {name}")
        first = LARGE + TAKEN
        for n, wake_at in enumerate((None, EPOCH, LATER)):
            stores[LARGE].fill(due(model, first + n * CROWD, first + (n + 1) * CROWD, wake_at=wake_at))
        stores[SMALL].fill(due(model, SMALL + TAKEN, SMALL + 2 * TAKEN))
        found |= in_turn({runs: {"take_crowded": take(filled.store)} for runs, filled in stores.items()})
    finally:
        for filled in stores.values():
            filled.close()
    for what, (small, large) in found.items():
        both = zip(blocks(small), blocks(large), strict=True)
        ratios = [statistics.median(many) / statistics.median(few) for few, many in both]
        figures[f"list_1m_over_1k_{name}_{what}"] = Measured.of(ratios)
        figures[f"million_{name}_{what}_us"] = Measured.of(large, 1e6)
    return figures


def blocks(times: list[float]) -> Iterator[list[float]]:
    """Times of calls that were made one after the other, so many at a time."""
    return (times[begin : begin + BLOCK] for begin in range(0, len(times), BLOCK))


def check(store: Any, runs: int) -> None:
    """That a run out of the middle is a run: its journal verifies, and the engine reads its result."""
    [record] = store.find(Filter(prefix=f"customer-{runs // 2 // EACH:06}/"), limit=1)
    holdfast.kernel.journal.verify(record.id, store.read(record.uid, 0, record.seq))
    assert record.seq == STEPS + 1


def in_turn(
    asked: dict[int, dict[str, Callable[[], int]]], calls: int = CALLS
) -> dict[str, tuple[list[float], list[float]]]:
    """The times of each question in the small store and in the large one."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for what in asked[SMALL]:
        times: dict[int, list[float]] = {SMALL: [], LARGE: []}
        for n in range(calls + 10):
            for runs in (SMALL, LARGE):
                started = time.perf_counter()
                answer = asked[runs][what]()
                elapsed = time.perf_counter() - started
                if n >= 10:  # the first ones prepare the statements
                    times[runs].append(elapsed)
                assert answer, what
        found[what] = times[SMALL], times[LARGE]
    return found


def questions(store: Any, runs: int) -> dict[str, Callable[[], int]]:
    """What is asked of a store with so many runs; each gives how many it found."""
    dice = random.Random(SEED)
    customers = runs // EACH

    def a_run() -> int:
        n = dice.randrange(runs)
        return store.get(f"customer-{n // EACH:06}/order-{n:08}") is not None

    def listed(some: Callable[[], Filter]) -> Callable[[], int]:
        def call() -> int:
            found = len(store.find(some(), limit=PAGE))
            assert found == PAGE, found
            return found

        return call

    def window() -> Filter:
        begin = EPOCH + dice.randrange(runs - WINDOW) * 1_000_000
        return Filter(created_from=begin, created_before=begin + WINDOW * 1_000_000)

    return {
        "take": take(store),
        "get": a_run,
        "newest": listed(Filter),
        "status": listed(lambda: Filter(statuses=(Status.FAILED,))),
        "statuses": listed(lambda: Filter(statuses=(Status.FAILED, Status.CANCELLED))),
        "workflow": listed(lambda: Filter(workflow=dice.choice(WORKFLOWS))),
        "tag": listed(lambda: Filter(tags=(("region", dice.choice(REGIONS)),))),
        "rare_tag": listed(lambda: Filter(tags=(("customer", f"customer-{dice.randrange(customers):06}"),))),
        "prefix": listed(lambda: Filter(prefix=f"customer-{dice.randrange(customers):06}/")),
        "time": listed(window),
    }


def shown(stack: ExitStack, url: str) -> dict[str, Callable[[], int]]:
    """The first page of the web page, and of the list of the API, with all that they ask the store for."""
    from starlette.testclient import TestClient

    from holdfast.ui import create_app
    from holdfast.ui.security import Tokens, new_token

    token = new_token()
    app = create_app(url, tokens=Tokens(token))
    signed = {"Authorization": f"Bearer {token}"}
    client = stack.enter_context(TestClient(app, "http://127.0.0.1", headers=signed))

    def got(path: str) -> Callable[[], int]:
        def call() -> int:
            answer = client.get(path)
            return answer.status_code == 200 and len(answer.content)

        return call

    return {"page": got("/"), "api": got(f"/api/v1/runs?limit={PAGE}")}


def take(store: Any) -> Callable[[], int]:
    store.beat("bench", 600.0)
    wanted = Order(worker="bench", queues={"default": None}, workflows=frozenset(WORKFLOWS), limit=1)
    return lambda: len(store.take(wanted))
