"""Workers that are killed with SIGKILL at any moment, while they drive many runs of a workflow that uses everything.

The workers are processes of `labour.py`. What their steps do to the outside world is a line in a file of its own,
synced by the step itself; transactional steps write rows to a table of the user's. From these two this test knows what
happened how often: steps at least once, at-most-once steps never twice, transactional ones exactly once.
"""

import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Run, Status
from holdfast.errors import QuestionClosed

CREW = 3  # workers at a time
OPEN = 24  # runs at a time

AT_LEAST_ONCE = ("accept", "reserve", "left", "pack")
AT_MOST_ONCE = ("deposit", "charge", "postage")
EXACTLY_ONCE = ("book", "close")


class Trial:
    """The runs, the workers, and what was done to both."""

    def __init__(self, url: str, world: str, chance: random.Random, labour: Any, start: Callable[..., Any]) -> None:
        self.url = url
        self.world = world
        self.chance = chance
        self.labour = labour
        self.start = start
        self.sql = url.startswith("sqlite")
        self.hf = holdfast.open(url)
        self.runs: list[Run] = []
        self.open: dict[str, int] = {}
        self.answered: dict[int, int] = {}
        self.workers: list[Any] = []
        self.parked = 0

    def go(self, kills: int) -> None:
        """Kill so many workers, and then let the rest come to its end."""
        while kills or self.open:
            while len(self.workers) < CREW:
                self.workers.append(self.hire())
            self.tend(enqueue=kills > 0)
            for worker in list(self.workers):
                if worker.doom is None and worker.line(0) == "ready":
                    worker.doom = time.monotonic() + self.chance.uniform(0, 0.4)
                if kills and worker.doom is not None and worker.doom < time.monotonic():
                    self.workers.remove(worker)
                    worker.clear_away()
                    kills -= 1

    def hire(self) -> Any:
        """A worker that is to be killed at some moment, while it still starts or after that."""
        # The lease lasts for an hour: who comes next does not get a run by waiting for its end.
        worker = self.start(self.url, wait=False, lease=3600, concurrency=6)
        early = self.chance.random() < 0.15
        worker.doom = time.monotonic() + self.chance.uniform(0.05, 0.4) if early else None
        return worker

    def tend(self, *, enqueue: bool) -> None:
        """Leave new runs to the workers, answer questions, and see which have ended."""
        while enqueue and len(self.open) < OPEN:
            n = len(self.runs)
            workflow = self.labour.order_async if n % 2 else self.labour.order
            self.runs.append(self.hf.enqueue(workflow, self.world, n, self.sql, id=f"order {n}"))
            self.open[f"order {n}"] = n
        for info in self.hf.runs(status=["waiting", "blocked", "completed", "failed", "cancelled"], limit=100_000):
            if info.status is Status.WAITING and info.id in self.open:
                self.answer(self.open[info.id])
            elif info.status is Status.BLOCKED:
                # Chance may kill the process of a run five times at the same place; nothing else may park one.
                assert "its process died" in (info.reason or ""), info.reason
                self.hf.get(info.id).unblock(by="the test")
                self.parked += 1
            elif info.status is not Status.WAITING:
                assert info.status is Status.COMPLETED, self.hf.get(info.id).result()
                self.open.pop(info.id, None)
        time.sleep(0.01)

    def answer(self, n: int) -> None:
        run = self.runs[n]
        if n in self.answered or not run.questions():
            return
        self.answered[n] = self.chance.randrange(1000)
        run.answer(self.answered[n])
        with pytest.raises(QuestionClosed):
            run.answer(-1)

    def judge(self) -> str:
        """Everything happened as often as it may, and everybody got what they are to get."""
        times = Counter(self.labour.happened(self.world))
        count = range(len(self.runs))
        assert set(times) == {f"{n} {what}" for n in count for what in AT_LEAST_ONCE + AT_MOST_ONCE}
        twice = [what for what, happened in times.items() if happened > 1 and what.split()[1] in AT_MOST_ONCE]
        assert twice == []
        if self.sql:
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as db:
                rows = Counter(what for (what,) in db.execute("SELECT what FROM ledger"))
            assert rows == Counter(f"{n} {what}" for n in count for what in EXACTLY_ONCE)
        for n, run in enumerate(self.runs):
            first, last = ([f"{n} {what}"] if self.sql else [] for what in EXACTLY_ONCE)
            assert run.result(timeout=0) == [
                *(f"{n} accept", f"{n} reserve", *first, f"{n} left", f"{n} deposit"),
                *(self.answered[n], f"{n} charge", f"{n} pack, {n} postage", *last),
            ]
        every = self.hf.runs(limit=100_000)
        assert len(every) == 2 * len(self.runs), "each has one child"
        for info in every:
            assert (info.status, info.holder) == (Status.COMPLETED, None)
            self.hf.audit(info.id)
        again = times.total() - len(times)
        return (
            f"runs {len(self.runs)} and as many children, effects {times.total()}, run again {again}, parked by chance "
            f"{self.parked}; missing 0, at-most-once twice 0, transactional not once 0"
        )


@pytest.mark.parametrize("kills", [30, pytest.param(400, marks=pytest.mark.torture)])
def test_workers_that_are_killed_lose_nothing_and_do_nothing_twice(
    url: str,
    kills: int,
    seed: int,
    disk: Path,
    labour: Any,
    workers: Callable[..., Any],
    kind: str,
    counts: Callable[[str], None],
) -> None:
    trial = Trial(url, str(disk / "world"), random.Random(seed), labour, workers)
    with trial.hf:
        if trial.sql:
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as db:
                db.execute("CREATE TABLE ledger (what TEXT)")
        trial.go(kills)
        found = trial.judge()
    counts(f"workers killed: {kind} {kills}, {found} (seed {seed})")
