"""What a durable step costs, against a bare INSERT.

`Raw` is the limit: Python's own sqlite3 that writes one row of the same columns and bytes, under the same key, into a
file with the same settings, and commits it. Its log is past the first checkpoint before anything is measured. Holdfast
and raw take turns in small blocks within one run, and a figure is the median of the blocks' ratios, so that a busy
machine slows both. The steps return their argument.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast
from holdfast import ask, step, workflow
from holdfast.engine import lease
from holdfast.stores.sqlite_file import PAGE_SIZE, SqliteFile, migrations

WARM = 800  # commits of two pages each: more than the 1,000 pages after which SQLite makes a checkpoint
BLOCKS = 60
LONG = 10_000
RUNS = 100

GOALS: dict[str, float] = {
    "step_over_raw_full": 1.3,
    "step_over_raw_normal": 2.0,
    "step_async_over_raw_full": 1.5,
    "step_async_over_raw_normal": 2.5,
    "runs_100_over_raw_full": 0.2,
    "runs_100_lag_p99_ms": 5.0,
    "replay_us": 20.0,
    "replay_async_us": 20.0,
    "one_step_commits": 3,
    "step_last_over_first_10000": 1.3,
}


def measure(folder: Path, say: Callable[[str], None]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for durability, steps in (("normal", 50), ("full", 20)):
        say(f"steps one after the other, durability={durability}")
        figures |= sequential(folder, durability, steps)
    say(f"{RUNS} runs at once")
    figures |= asyncio.run(concurrent(folder))
    say(f"a run of {LONG:,} steps, and its replay")
    figures |= long_run(folder)
    figures |= one_step(folder)
    say("where the time of a step goes")
    return figures | where(folder)


# --- the workflows


@step
def same(x: int) -> int:
    return x


@step
async def same_async(x: int) -> int:
    return x


@step
async def waits(x: int) -> int:
    await asyncio.sleep(random.random() * 0.02)
    return x


@workflow
def one() -> int:
    return same(1)


@workflow
async def many(steps: int) -> None:
    for n in range(steps):
        await same_async(n)


@workflow
async def many_with_waits(steps: int) -> None:
    for n in range(steps):
        await waits(n)


@workflow
def long(steps: int) -> None:
    for n in range(steps):
        same(n)
    while ask("Once more?", bool):
        pass


@workflow
async def long_async(steps: int) -> None:
    for n in range(steps):
        await same_async(n)
    while await ask("Once more?", bool):
        pass


# --- raw


class Raw:
    """One INSERT and its commit, by Python's sqlite3."""

    INSERT = "INSERT INTO entry (run, seq, kind, at, state, hash, payload) VALUES (?, ?, ?, ?, ?, ?, ?)"

    def __init__(self, file: Path, durability: str) -> None:
        self._db = sqlite3.connect(file, isolation_level=None)  # each statement is a transaction
        settings = (f"page_size = {PAGE_SIZE}", "journal_mode = WAL", f"synchronous = {durability}")
        for setting in (*settings, "secure_delete = 1", "cell_size_check = 1"):
            self._db.execute(f"PRAGMA {setting}")
        self._db.executescript(migrations()[0][1])
        self._seq = 0
        self.block(WARM)

    def block(self, rows: int) -> float:
        """Seconds for each of so many rows."""
        made = [self._row() for _ in range(rows)]
        insert = self._db.cursor().execute
        started = time.perf_counter()
        for row in made:
            insert(self.INSERT, row)
        return (time.perf_counter() - started) / rows

    def _row(self) -> tuple[Any, ...]:
        self._seq += 1
        n = self._seq % LONG
        payload = b'{"key":"same#%d","n":%d,"digest":"%b","result":%d}' % (n, n, os.urandom(16).hex().encode(), n)
        return 1, self._seq, "done", time.time_ns() // 1000, None, os.urandom(32), payload

    def close(self) -> None:
        self._db.close()


# --- steps one after the other


def sequential(folder: Path, durability: str, steps: int) -> dict[str, float]:
    raw = Raw(folder / f"raw-{durability}.db", durability)
    ours: list[float] = []
    base: list[float] = []

    @workflow(name=f"sequential-{durability}")
    def blocks() -> None:
        for n in range(WARM):
            same(n)
        for _ in range(BLOCKS):
            base.append(raw.block(steps))
            started = time.perf_counter()
            for n in range(steps):
                same(n)
            ours.append((time.perf_counter() - started) / steps)

    @workflow(name=f"sequential-async-{durability}")
    async def blocks_async() -> None:
        for n in range(WARM):
            await same_async(n)
        for _ in range(BLOCKS):
            base.append(raw.block(steps))
            started = time.perf_counter()
            for n in range(steps):
                await same_async(n)
            ours.append((time.perf_counter() - started) / steps)

    async def start_async(url: str) -> None:
        async with holdfast.open(url) as hf:
            await (await hf.start(blocks_async)).result()

    url = f"sqlite:///{folder / f'sequential-{durability}.db'}?durability={durability}"
    with holdfast.open(url) as hf:
        hf.start(blocks).result()
    figures = {f"raw_us_{durability}": statistics.median(base) * 1e6}
    figures |= compared("step", durability, ours, base)
    ours.clear()
    base.clear()
    asyncio.run(start_async(url))
    raw.close()
    return figures | compared("step_async", durability, ours, base)


def compared(name: str, durability: str, ours: list[float], base: list[float]) -> dict[str, float]:
    return {
        f"{name}_over_raw_{durability}": statistics.median(a / b for a, b in zip(ours, base, strict=True)),
        f"{name}_us_{durability}": statistics.median(ours) * 1e6,
    }


# --- many at once


async def concurrent(folder: Path, rounds: int = 9, steps: int = 100) -> dict[str, float]:
    """Many runs on one loop: how much faster than one raw INSERT after the other, and whether the loop stays free."""
    raw = Raw(folder / "raw-concurrent.db", "full")
    ratios, ours = [], []
    async with holdfast.open(f"sqlite:///{folder / 'concurrent.db'}") as hf:
        await asyncio.gather(*(hf.start(many, 10) for _ in range(RUNS)))
        for _ in range(rounds):
            base = raw.block(300)
            started = time.perf_counter()
            await asyncio.gather(*(hf.start(many, steps) for _ in range(RUNS)))
            ours.append((time.perf_counter() - started) / (RUNS * steps))
            ratios.append(ours[-1] / base)
        lags: list[float] = []
        watcher = asyncio.create_task(watch(lags))
        before = hf._committer.commits
        await asyncio.gather(*(hf.start(many_with_waits, steps) for _ in range(RUNS)))
        watcher.cancel()
        batch = RUNS * steps / (hf._committer.commits - before)
    raw.close()
    lags.sort()
    return {
        "runs_at_once": RUNS,
        "runs_100_over_raw_full": statistics.median(ratios),
        "runs_100_faster_than_raw_full": 1 / statistics.median(ratios),
        "runs_100_steps_per_second_full": 1 / statistics.median(ours),
        "runs_100_lag_p50_ms": lags[len(lags) // 2] * 1e3,
        "runs_100_lag_p99_ms": lags[len(lags) * 99 // 100] * 1e3,
        "runs_100_waiting_steps_per_commit": batch,
    }


async def watch(lags: list[float]) -> None:
    """How much later than it should a task is woken that sleeps for five milliseconds."""
    while True:
        started = time.perf_counter()
        await asyncio.sleep(0.005)
        lags.append(max(time.perf_counter() - started - 0.005, 0.0))


# --- long runs


def long_run(folder: Path, rounds: int = 5) -> dict[str, float]:
    """Whether the last steps of a long run cost more than the first; and what it costs to come to its end again."""
    url = f"sqlite:///{folder / 'long.db'}?durability=normal"
    times: list[float] = []

    @workflow(name="growing")
    def growing() -> None:
        for _ in range(LONG // 100):
            started = time.perf_counter()
            for n in range(100):
                same(n)
            times.append((time.perf_counter() - started) / 100)

    found: dict[str, list[float]] = {"replay_us": [], "replay_async_us": []}
    with holdfast.open(url) as hf:
        hf.start(growing)
        times.clear()
        hf.start(growing)
        hf.start(long, LONG, id="long")
        hf.start(long_async, LONG, id="long-async")
    for _ in range(rounds):
        for name, id in (("replay_us", "long"), ("replay_async_us", "long-async")):
            with holdfast.open(url) as hf:  # it knows nothing of the run
                run = hf.get(id)
                run.answer(True)
            with holdfast.open(url) as hf:
                run = hf.get(id)
                started = time.perf_counter()
                assert run.resume() == "waiting"
                found[name].append((time.perf_counter() - started) / LONG * 1e6)
    tenth = len(times) // 10
    grown = statistics.median(times[-tenth:]) / statistics.median(times[:tenth])
    return {"long_steps": LONG, "step_last_over_first_10000": grown} | {
        name: statistics.median(each) for name, each in found.items()
    }


def one_step(folder: Path) -> dict[str, float]:
    """The commits of a workflow of one step, all of them."""
    commits: list[str] = []
    with holdfast.open(f"sqlite:///{folder / 'one.db'}") as hf, counted(commits):
        hf.start(one)  # with what the first run of a process does once
        commits.clear()
        assert hf.start(one).result() == 1
    return {"one_step_commits": len(commits)}


@contextmanager
def counted(commits: list[str]) -> Iterator[None]:
    plain = SqliteFile._commit

    def counting(self: SqliteFile, statement: str = "COMMIT", values: Any = ()) -> sqlite3.Cursor:
        commits.append(statement)
        return plain(self, statement, values)

    SqliteFile._commit = counting  # type: ignore[method-assign]
    try:
        yield
    finally:
        SqliteFile._commit = plain  # type: ignore[method-assign]


# --- where the time goes


class Watches:
    """Adds up the time that is spent in some functions, without what it takes to measure it."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._calls: dict[str, int] = {}  # in each step
        self._undo: list[Callable[[], None]] = []
        empty = self._timed("", lambda: None)
        started = time.perf_counter()
        for _ in range(10_000):
            empty()
        self._around = (time.perf_counter() - started) / 10_000  # what a measurement takes,
        self._inside = self._seconds.pop("") / 10_000  # and what of it is measured

    def put(self, part: str, owner: Any, name: str, *, calls: int = 1) -> None:
        """Measure a function that each step calls so often."""
        plain = getattr(owner, name)
        setattr(owner, name, self._timed(part, plain))
        self._calls[part] = self._calls.get(part, 0) + calls
        self._undo.append(lambda: setattr(owner, name, plain))

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        clock, seconds = time.perf_counter, self._seconds
        seconds[part] = 0.0

        def call(*args: Any, **kwargs: Any) -> Any:
            started = clock()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[part] += clock() - started

        return call

    def take_away(self) -> None:
        for undo in reversed(self._undo):
            undo()

    def clear(self) -> None:
        self._seconds.update(dict.fromkeys(self._seconds, 0.0))

    def told(self, total: float, steps: int) -> dict[str, float]:
        """Microseconds of each part of a step; what is in none of them is the engine's."""
        parts = {part: self._seconds[part] / steps - calls * self._inside for part, calls in self._calls.items()}
        parts["engine"] = total / steps - sum(self._calls.values()) * self._around - sum(parts.values())
        return {f"where_{part}_us": seconds * 1e6 for part, seconds in parts.items()}


def where(folder: Path) -> dict[str, float]:
    """The parts of a step at durability=normal; and what the sync adds at full."""
    figures, synced = where_at(folder, "normal"), where_at(folder, "full")
    return figures | {"where_sync_us": synced["where_sql_us"] - figures["where_sql_us"]}


def where_at(folder: Path, durability: str, steps: int = 200, rounds: int = 15) -> dict[str, float]:
    watches = Watches()
    found: list[dict[str, float]] = []

    @workflow(name=f"where-{durability}")
    def parts() -> None:
        for _ in range(rounds):
            watches.clear()
            started = time.perf_counter()
            for n in range(steps):
                same(n)
            found.append(watches.told(time.perf_counter() - started, steps))

    with holdfast.open(f"sqlite:///{folder / f'where-{durability}.db'}?durability={durability}") as hf:
        store: Any = hf._store
        watches.put("encode", hf._codec, "encode", calls=2)
        watches.put("encode", hf._codec, "digest")
        watches.put("encode", lease, "to_text")
        watches.put("hash", lease, "next_entry")
        watches.put("sql", store, "_commit")
        watches.put("lock", store._writer_lock, "take_within")
        watches.put("lock", store._writer_lock, "free")
        try:
            hf.start(parts).result()
        finally:
            watches.take_away()
    return {name: statistics.median(each[name] for each in found) for name in found[0]}
