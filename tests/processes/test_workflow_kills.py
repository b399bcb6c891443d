"""Workers that are killed with SIGKILL at any moment, while they drive many runs of a workflow that uses everything.

What is done and how it is judged: see tests/lib/trial.py. The same on PostgreSQL: tests/postgres/faults.
"""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sizes import size
from trial import Crew, Trial

import holdfast


@pytest.mark.parametrize("kills", [size(5, 30), pytest.param(400, marks=pytest.mark.torture)])
def test_workers_that_are_killed_lose_nothing_and_do_nothing_twice(
    url: str,
    kills: int,
    seed: int,
    disk: Path,
    workers: Callable[..., Any],
    kind: str,
    counts: Callable[[str], None],
) -> None:
    chance, path = random.Random(seed), url.removeprefix("sqlite:///")

    def rows() -> list[str]:
        with closing(sqlite3.connect(path)) as db:
            return [what for (what,) in db.execute("SELECT what FROM ledger")]

    # The lease lasts for an hour: who comes next does not get a run by waiting for its end.
    crew = Crew(lambda: workers(url, wait=False, lease=3600, concurrency=6), 3, chance)

    with holdfast.open(url) as hf:
        if kind == "sqlite":
            with closing(sqlite3.connect(path)) as db:
                db.execute("CREATE TABLE ledger (what TEXT)")
        trial = Trial(hf, str(disk / "world"), chance, rows=rows if kind == "sqlite" else None, many=24)
        trial.go(crew.killing(kills), timeout=3600 if kills > 30 else 200)
        found = ", ".join(f"{name} {n}" for name, n in trial.judge().items())
    counts(f"workers killed: {kind} {crew.killed}, {found} (seed {seed})")
