"""What a durable step costs on PostgreSQL, against a bare INSERT by psycopg over the same kind of connection.

The server syncs every commit (fsync, synchronous_commit and full_page_writes are on; bench/database.py asks it). The
bare INSERT is prepared, in autocommit, and writes a row of the same columns and bytes into a table like that of the
store, under the same key. Holdfast and the bare INSERT take turns, as in bench/steps.py.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import psycopg

from bench.database import postgres
from bench.harness import AtLeast, Measured, Say
from bench.steps import RUNS, Limit, concurrent, sequential
from holdfast.stores import migrate

WARM = 200

GOALS: dict[str, float] = {
    "pg_step_vs_raw": 1.5,
    "pg_concurrent_vs_raw_rate": AtLeast(5),
}


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    blocks, rounds, steps = (12, 5, 40) if quick else (60, 9, 100)
    say("PostgreSQL: a server")
    with postgres() as server:
        url = f"{server.url}?schema=steps"
        migrate(url)
        raw = Raw(server.url)
        say("PostgreSQL: steps one after the other")
        found = sequential(url, raw, 20, blocks, WARM)
        say(f"PostgreSQL: {RUNS} runs at once")
        found |= asyncio.run(concurrent(url, raw, rounds, steps))
        trip = raw.round_trip()
        raw.close()
    return {
        "pg_raw_us": found["raw"],
        "pg_round_trip_us": trip,
        "pg_step_us": found["step"],
        "pg_step_vs_raw": found["step_vs_raw"],
        "pg_async_step_us": found["async_step"],
        "pg_async_step_vs_raw": found["async_step_vs_raw"],
        "pg_concurrent_vs_raw_rate": found["rate"],
        "pg_concurrent_waiting_vs_raw_rate": found["waiting_rate"],
        "pg_concurrent_steps_per_second": found["per_second"],
        "pg_concurrent_waiting_steps_per_commit": found["batch"],
        "pg_loop_lag_p50_ms": found["lag_p50"],
        "pg_loop_lag_p99_ms": found["lag_p99"],
        "pg_loop_lag_in_step_p99_ms": found["lag_in_step_p99"],
    }


class Raw(Limit):
    """One INSERT and its commit, by psycopg."""

    def __init__(self, url: str) -> None:
        db = psycopg.connect(url, autocommit=True, prepare_threshold=0)
        db.execute("CREATE SCHEMA raw")
        db.execute("CREATE TABLE raw.entry (LIKE steps.entry INCLUDING ALL)")
        columns = "run, seq, at, state, kind, hash, payload"
        super().__init__(db, f"INSERT INTO raw.entry ({columns}) VALUES (%s, %s, %s, %s, %s, %b, %b)", WARM)

    def _row(self, seq: int, at: int, digest: bytes, payload: bytes) -> tuple[object, ...]:
        return 1, seq, at, None, "done", digest, payload

    def round_trip(self, times: int = 500) -> float:
        """Microseconds of `SELECT 1`."""
        ask, found = self._db.cursor().execute, []
        for _ in range(times):
            started = time.perf_counter()
            ask("SELECT 1").fetchone()
            found.append(time.perf_counter() - started)
        return Measured.of(found, 1e6)
