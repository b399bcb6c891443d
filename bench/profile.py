"""Where the time of a step goes: `make profile`.

Functions on the way of a step are wrapped in stopwatches, whose own cost is taken off. What is in none of them is the
engine's. What the sync to the disk takes is what SQL takes longer with it than without: SQLite at `full` against
`normal`, PostgreSQL with `synchronous_commit` on against off. All other parts are those of a step without the sync;
what they take longer after one, when the processor has forgotten what it had at hand, is called cold. Each part has a
budget, which stands beside it in docs/explanation/performance.md.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import holdfast
from bench.database import ask, postgres
from bench.harness import Say
from bench.steps import same
from holdfast import workflow
from holdfast.engine.access import lease
from holdfast.stores import migrate
from holdfast.stores.postgres.append import Statement

STEPS = 200
ROUNDS = 15

GOALS: dict[str, float] = {}

# Microseconds that a part of a step may take, on a machine like that of bench/results.json.
BUDGETS = {
    "sqlite": {"encode": 1.0, "hash": 3.0, "lock": 3.0, "sql": 32.0, "engine": 14.0, "commit": 160.0, "cold": 30.0},
    "pg": {"encode": 2.0, "hash": 6.0, "driver": 25.0, "sql": 160.0, "engine": 25.0, "commit": 200.0, "cold": 40.0},
}


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    rounds = 5 if quick else ROUNDS
    say("where the time of a step goes, SQLite")
    levels = {level: f"sqlite:///{folder / f'where-{level}.db'}?durability={level}" for level in ("normal", "full")}
    figures = parted("sqlite", levels, rounds)
    say("where the time of a step goes, PostgreSQL")
    with postgres() as server:
        levels = {level: f"{server.url}?schema=where_{level}" for level in ("normal", "full")}
        for url in levels.values():
            migrate(url)
        ask(server.url, "CREATE ROLE hasty SUPERUSER LOGIN")
        ask(server.url, "ALTER ROLE hasty SET synchronous_commit = off")
        levels["normal"] = levels["normal"].replace("//postgres@", "//hasty@")
        figures |= parted("pg", levels, rounds)
    for store, budgets in BUDGETS.items():
        figures |= {f"budget_{store}_{part}_us": budget for part, budget in budgets.items()}
    return figures


def parted(store: str, levels: dict[str, str], rounds: int) -> dict[str, float]:
    """The parts of a step without the sync, and what the sync adds."""
    found = {level: where(url, level, rounds) for level, url in levels.items()}
    parts = found["normal"] | {"commit": found["full"]["sql"] - found["normal"]["sql"]}
    whole = sum(found["full"].values())
    parts |= {"cold": whole - sum(parts.values()), "whole": whole}
    return {f"profile_{store}_{part}_us": took * 1e6 for part, took in parts.items()}


class Watches:
    """Adds up the time that is spent in some functions, without what it takes to measure it."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._calls: dict[str, int] = {}
        self._undo: list[Callable[[], None]] = []
        empty = self._timed("", lambda: None)
        started = time.perf_counter()
        for _ in range(10_000):
            empty()
        self._around = (time.perf_counter() - started) / 10_000  # what a measurement takes,
        self._inside = self._seconds.pop("") / 10_000  # and what of it is measured
        del self._calls[""]

    def put(self, part: str, owner: Any, name: str) -> None:
        """Measure a function that belongs to a part."""
        plain = getattr(owner, name)
        setattr(owner, name, self._timed(part, plain))
        self._undo.append(lambda: setattr(owner, name, plain))

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        clock, seconds, calls = time.perf_counter, self._seconds, self._calls
        seconds[part], calls[part] = 0.0, 0

        def call(*args: Any, **kwargs: Any) -> Any:
            calls[part] += 1
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
        for part in self._seconds:
            self._seconds[part], self._calls[part] = 0.0, 0

    def told(self, total: float) -> dict[str, float]:
        """Seconds of each part; what is in none of them is the engine's."""
        parts = {part: took - self._calls[part] * self._inside for part, took in self._seconds.items()}
        if "store" in parts:  # of which SQL is a part, with what it takes to measure that
            if not self._calls["sql"]:
                raise RuntimeError("no step was written by a Statement: watch what writes them now")
            parts["driver"] = parts.pop("store") - parts["sql"] - self._calls["sql"] * self._around
        cost = sum(self._calls.values()) * self._around
        return parts | {"engine": total - cost - sum(parts.values())}


def where(url: str, level: str, rounds: int) -> dict[str, float]:
    """Seconds of each part of a step: the medians of rounds."""
    watches = Watches()
    found: list[dict[str, float]] = []

    @workflow(name=f"where-{level}")
    def parts() -> None:
        for n in range(STEPS):
            same(n)
        for _ in range(rounds):
            watches.clear()
            started = time.perf_counter()
            for n in range(STEPS):
                same(n)
            took = watches.told(time.perf_counter() - started)
            found.append({part: seconds / STEPS for part, seconds in took.items()})

    with holdfast.open(url) as hf:
        store: Any = hf.client.store
        watches.put("encode", hf.client.codec, "encode")
        watches.put("encode", hf.client.codec, "digest")
        watches.put("encode", lease, "to_text")
        watches.put("hash", lease, "next_entry")
        if url.startswith("sqlite:"):
            watches.put("sql", store, "_commit")
            watches.put("lock", store._writer_lock, "take_within")
            watches.put("lock", store._writer_lock, "free")
        else:
            watches.put("store", store, "apply")
            watches.put("sql", Statement, "__call__")
        try:
            hf.start(parts).result()
        finally:
            watches.take_away()
    return {part: statistics.median(each[part] for each in found) for part in found[0]}


def main() -> None:
    """Measure, and show it as a table."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="holdfast-profile-") as name, console.status("") as status:
        figures = measure(Path(name), status.update)
    table = Table("µs of a step", "SQLite", "budget", "PostgreSQL", "budget")
    for part in dict.fromkeys((*BUDGETS["sqlite"], *BUDGETS["pg"], "whole")):
        cells = [figures.get(f"{kind}_{store}_{part}_us") for store in BUDGETS for kind in ("profile", "budget")]
        table.add_row(part, *("" if cell is None else f"{cell:,.1f}" for cell in cells))
    console.print(table)


if __name__ == "__main__":
    main()
