"""What a durable step costs on SQLite, against a bare INSERT.

`Raw` is the limit: Python's own sqlite3 that writes one row of the same columns and bytes, under the same key, into a
file with the same settings, and commits it. Its log is past the first checkpoint before anything is measured. Holdfast
and raw take turns in small blocks within one run, and a figure is the median of the blocks' ratios, so that a busy
machine slows both. The steps return their argument.

`sequential` and `concurrent` serve bench/pg.py too, with another limit.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import holdfast
from bench.harness import AtLeast, Measured, Say, percentile, ratio
from holdfast import ask, step, workflow
from holdfast.stores.sqlite.file import PAGE_SIZE, SqliteFile
from holdfast.stores.sqlite.statements import migrations

WARM = 800  # commits of two pages each: more than the 1,000 pages after which SQLite makes a checkpoint
LONG = 10_000
RUNS = 100
FIRST = 200  # steps in a new file: fewer than its log takes before the first checkpoint

GOALS: dict[str, float] = {
    "step_full_vs_raw": 1.3,
    "step_normal_vs_raw": 2.0,
    "async_step_full_vs_raw": 1.5,
    "async_step_normal_vs_raw": 2.5,
    "concurrent_full_vs_raw_rate": AtLeast(5),
    "loop_lag_p99_ms": 5.0,
    "replay_us_per_step": 20.0,
    "replay_async_us_per_step": 20.0,
    "one_step_commits": 3,
    "step_last_over_first_10000": 1.3,
}


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    blocks, rounds, long = (15, 5, 2_000) if quick else (60, 9, LONG)
    figures: dict[str, float] = {}
    for durability, steps in (("normal", 50), ("full", 20)):
        say(f"steps one after the other, durability={durability}")
        raw = Raw(folder / f"raw-{durability}.db", durability)
        url = f"sqlite:///{folder / f'sequential-{durability}.db'}?durability={durability}"
        found = sequential(url, raw, steps, blocks)
        raw.close()
        figures |= {
            f"raw_us_{durability}": found["raw"],
            f"step_us_{durability}": found["step"],
            f"step_{durability}_vs_raw": found["step_vs_raw"],
            f"async_step_us_{durability}": found["async_step"],
            f"async_step_{durability}_vs_raw": found["async_step_vs_raw"],
        }
    say("steps in new files")
    figures |= in_new_files(folder, rounds)
    say(f"{RUNS} runs at once")
    raw = Raw(folder / "raw-concurrent.db", "full")
    found = asyncio.run(concurrent(f"sqlite:///{folder / 'concurrent.db'}", raw, rounds))
    raw.close()
    figures |= {
        "runs_at_once": RUNS,
        "concurrent_full_vs_raw_rate": found["rate"],
        "concurrent_waiting_full_vs_raw_rate": found["waiting_rate"],
        "concurrent_steps_per_second_full": found["per_second"],
        "concurrent_waiting_steps_per_commit": found["batch"],
        "loop_lag_p50_ms": found["lag_p50"],
        "loop_lag_p99_ms": found["lag_p99"],
        "loop_lag_in_step_p99_ms": found["lag_in_step_p99"],
    }
    say(f"a run of {long:,} steps, and its replay")
    return figures | long_run(folder, long) | one_step(folder)


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


def payload(n: int) -> bytes:
    """What Holdfast stores for a step that returns its argument."""
    return b'{"key":"same#%d","n":%d,"digest":"%b","result":%d}' % (n, n, os.urandom(16).hex().encode(), n)


class Limit(ABC):
    """What a step is compared with: a row of the same bytes, committed."""

    def __init__(self, db: Any, insert: str, warm: int) -> None:
        self._db, self._insert, self._seq = db, insert, 0
        self.block(warm)

    @abstractmethod
    def _row(self, seq: int, at: int, digest: bytes, payload: bytes) -> tuple[object, ...]:
        """The values in the order in which the statement wants them."""

    def block(self, rows: int) -> float:
        """Seconds for each of so many rows."""
        made = []
        for _ in range(rows):
            self._seq += 1
            made.append(self._row(self._seq, time.time_ns() // 1000, os.urandom(32), payload(self._seq % LONG)))
        insert = self._db.cursor().execute
        started = time.perf_counter()
        for row in made:
            insert(self._insert, row)
        return (time.perf_counter() - started) / rows

    def close(self) -> None:
        self._db.close()


class Raw(Limit):
    """One INSERT and its commit, by Python's sqlite3."""

    def __init__(self, file: Path, durability: str, warm: int = WARM) -> None:
        db = sqlite3.connect(file, isolation_level=None)  # each statement is a transaction
        settings = (f"page_size = {PAGE_SIZE}", "journal_mode = WAL", f"synchronous = {durability}")
        for setting in (*settings, "secure_delete = 1", "cell_size_check = 1"):
            db.execute(f"PRAGMA {setting}")
        db.executescript(migrations()[0][1])
        insert = "INSERT INTO entry (run, seq, kind, at, state, hash, payload) VALUES (?, ?, ?, ?, ?, ?, ?)"
        super().__init__(db, insert, warm)

    def _row(self, seq: int, at: int, digest: bytes, payload: bytes) -> tuple[object, ...]:
        return 1, seq, "done", at, None, digest, payload


# --- steps in new files


def in_new_files(folder: Path, rounds: int) -> dict[str, float]:
    """The first steps of a process in a store that it makes, against bare INSERTs into a file that is as new."""
    ours: list[float] = []
    base: list[float] = []

    @workflow(name="first")
    def first() -> None:
        started = time.perf_counter()
        for n in range(FIRST):
            same(n)
        ours.append((time.perf_counter() - started) / FIRST)

    for round in range(rounds):
        raw = Raw(folder / f"raw-new-{round}.db", "full", warm=1)
        base.append(raw.block(FIRST))
        raw.close()
        with holdfast.open(f"sqlite:///{folder / f'new-{round}.db'}") as hf:
            hf.start(first).result()
    return {
        "first_steps": FIRST,
        "first_raw_us": Measured.of(base, 1e6),
        "first_step_us": Measured.of(ours, 1e6),
        "first_step_vs_raw": ratio(ours, base),
    }


# --- steps one after the other


def sequential(url: str, raw: Limit, steps: int, blocks: int, warm: int = WARM) -> dict[str, float]:
    """Microseconds of a step of a sync and of an async workflow, in turn with the limit."""
    ours: list[float] = []
    base: list[float] = []

    @workflow(name="sequential")
    def sync() -> None:
        for n in range(warm):
            same(n)
        for _ in range(blocks):
            base.append(raw.block(steps))
            started = time.perf_counter()
            for n in range(steps):
                same(n)
            ours.append((time.perf_counter() - started) / steps)

    @workflow(name="sequential-async")
    async def not_sync() -> None:
        for n in range(warm):
            await same_async(n)
        for _ in range(blocks):
            base.append(raw.block(steps))
            started = time.perf_counter()
            for n in range(steps):
                await same_async(n)
            ours.append((time.perf_counter() - started) / steps)

    async def start_async() -> None:
        async with holdfast.open(url) as hf:
            await (await hf.start(not_sync)).result()

    with holdfast.open(url) as hf:
        hf.start(sync).result()
    figures: dict[str, float] = {
        "raw": Measured.of(base, 1e6),
        "step": Measured.of(ours, 1e6),
        "step_vs_raw": ratio(ours, base),
    }
    ours.clear()
    base.clear()
    asyncio.run(start_async())
    return figures | {"async_step": Measured.of(ours, 1e6), "async_step_vs_raw": ratio(ours, base)}


# --- many at once


async def concurrent(url: str, raw: Limit, rounds: int, steps: int = 100) -> dict[str, float]:
    """Many runs on one loop: how much faster than one raw INSERT after the other, and whether the loop stays free.

    They march in step, and again with random waits in their steps, as real ones do.
    """
    rates, per_second, waiting, lags, lags_in_step = [], [], [], [], []  # type: ignore[var-annotated]
    async with holdfast.open(url) as hf:
        await asyncio.gather(*(hf.start(many, 10) for _ in range(RUNS)))
        for _ in range(rounds):
            base = raw.block(300)
            started = time.perf_counter()
            await asyncio.gather(*(hf.start(many, steps) for _ in range(RUNS)))
            per_second.append(RUNS * steps / (time.perf_counter() - started))
            rates.append(per_second[-1] * base)
        async with watched(lags_in_step):
            await asyncio.gather(*(hf.start(many, steps) for _ in range(RUNS)))
        before = hf.client.committer.commits
        async with watched(lags):
            for _ in range(max(rounds // 3, 1)):
                base, started = raw.block(100), time.perf_counter()
                await asyncio.gather(*(hf.start(many_with_waits, steps) for _ in range(RUNS)))
                waiting.append(RUNS * steps / (time.perf_counter() - started) * base)
        batch = len(waiting) * RUNS * steps / (hf.client.committer.commits - before)
    return {
        "rate": Measured.of(rates),
        "per_second": Measured.of(per_second),
        "waiting_rate": Measured.of(waiting),
        "batch": batch,
        "lag_p50": percentile(sorted(lags), 50) * 1e3,
        "lag_p99": percentile(sorted(lags), 99) * 1e3,
        "lag_in_step_p99": percentile(sorted(lags_in_step), 99) * 1e3,
    }


class watched:
    """Notes how much later than it should a task is woken that sleeps for five milliseconds."""

    def __init__(self, lags: list[float]) -> None:
        self._lags = lags

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(0.005)
            self._lags.append(max(time.perf_counter() - started - 0.005, 0.0))


# --- long runs


def long_run(folder: Path, steps: int, rounds: int = 5) -> dict[str, float]:
    """Whether the last steps of a long run cost more than the first; and what it costs to come to its end again."""
    url = f"sqlite:///{folder / 'long.db'}?durability=normal"
    times: list[float] = []

    @workflow(name="growing")
    def growing() -> None:
        for _ in range(steps // 100):
            started = time.perf_counter()
            for n in range(100):
                same(n)
            times.append((time.perf_counter() - started) / 100)

    found: dict[str, list[float]] = {"replay_us_per_step": [], "replay_async_us_per_step": []}
    ids = dict(zip(found, ("long", "long-async"), strict=True))
    with holdfast.open(url) as hf:
        hf.start(growing)
        times.clear()
        hf.start(growing)
        hf.start(long, steps, id="long")
        hf.start(long_async, steps, id="long-async")
    for _ in range(rounds):
        for name, id in ids.items():
            with holdfast.open(url) as hf:  # it knows nothing of the run
                run = hf.get(id)
                run.answer(True)
            with holdfast.open(url) as hf:
                run = hf.get(id)
                started = time.perf_counter()
                assert run.resume() == "waiting"
                found[name].append((time.perf_counter() - started) / steps)
    tenth = len(times) // 10
    grown = Measured.of(times[-tenth:]) / Measured.of(times[:tenth])
    return {"long_steps": steps, "step_last_over_first_10000": grown} | {
        name: Measured.of(each, 1e6) for name, each in found.items()
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
