"""What is stored, and how it is got rid of: bytes of a run and of a step, and pruning beside a writer.

A process makes step after step, and says how long each of them took; in every other round another process prunes runs
that ended long ago. Both work in the same store, on PostgreSQL and on SQLite.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from bench import fleet_worker, million
from bench.database import postgres
from bench.harness import Measured, Say, percentile
from holdfast.stores import migrate

ROOT = Path(__file__).parents[1]
OLD = 1_000  # ended runs, for each round
ROUNDS = 5
SECONDS = 2.0  # of steps in each round
MADE = 200  # runs by which the bytes are measured


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    figures: dict[str, float] = {}
    with postgres() as server:
        say("bytes of runs and steps, PostgreSQL")
        figures |= stored("pg", lambda name: schema(f"{server.url}?schema={name}"))
        say("pruning beside a writer, PostgreSQL")
        url = f"{server.url}?schema=prune"
        figures |= pruning("pg", url, million.in_postgres(url), 1 if quick else ROUNDS)
    say("bytes of runs and steps, SQLite")
    figures |= stored("sqlite", lambda name: file(folder / f"{name}.db"))
    say("pruning beside a writer, SQLite")
    path = folder / "prune.db"
    return figures | pruning("sqlite", f"sqlite:///{path}", million.in_sqlite(path), 1 if quick else ROUNDS)


def schema(url: str) -> tuple[str, million.Filled]:
    migrate(url)
    return url, million.in_postgres(url)


def file(path: Path) -> tuple[str, million.Filled]:
    return f"sqlite:///{path}", million.in_sqlite(path)


# --- bytes


def stored(name: str, make: Callable[[str], tuple[str, million.Filled]]) -> dict[str, float]:
    """Bytes of a run without steps, and of each step, by what runs of each kind take that the engine made."""

    async def run_all(url: str, function: Any) -> None:
        async with holdfast.open(url) as hf:
            await asyncio.gather(*[(await hf.start(function)).result() for _ in range(MADE)])

    sizes = {}
    for function in (fleet_worker.empty, fleet_worker.long):
        url, filled = make(f"bytes_{function.name.replace('-', '_')}")
        before = filled.size()
        asyncio.run(run_all(url, function))
        filled.fill(iter(()))  # what it has in its log goes to where it stays
        sizes[function.name] = (filled.size() - before) / MADE
        filled.close()
    run, with_steps = sizes.values()
    return {f"stored_run_bytes_{name}": run, f"stored_step_bytes_{name}": (with_steps - run) / fleet_worker.STEPS}


# --- pruning


class Other:
    """A process that waits for a line, and answers with one."""

    def __init__(self, *given: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.fleet_worker", *given],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> list[float]:
        return list(json.loads(self._read()))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def pruning(name: str, url: str, filled: million.Filled, rounds: int) -> dict[str, float]:
    alone, beside, rate, model = [], [], [], million.one_run()
    try:
        writer = Other("steps", url, str(SECONDS))
        try:
            for n in range(rounds):
                filled.fill(million.copies(model, n * OLD, (n + 1) * OLD))
                writer.go()
                alone.append(sorted(writer.answer()))
                pruner = Other("prune", url)
                try:
                    writer.go()
                    pruner.go()
                    beside.append(sorted(writer.answer()))
                    gone, seconds = pruner.answer()
                finally:
                    pruner.end()
                assert gone >= OLD, gone
                rate.append(gone / seconds)
        finally:
            writer.end()
    finally:
        filled.close()
    without, pruned = ([percentile(each, 99) for each in times] for times in (alone, beside))
    return {
        f"prune_runs_per_s_{name}": Measured.of(rate),
        f"prune_without_p99_ms_{name}": Measured.of(without, 1e3),
        f"prune_beside_p99_ms_{name}": Measured.of(pruned, 1e3),
        f"prune_without_p50_ms_{name}": Measured.of([percentile(each, 50) for each in alone], 1e3),
        f"prune_beside_p50_ms_{name}": Measured.of([percentile(each, 50) for each in beside], 1e3),
        f"prune_p99_over_without_{name}": Measured.of([b / a for a, b in zip(without, pruned, strict=True)]),
    }
