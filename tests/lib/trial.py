"""Many runs of a workflow that uses everything, left to worker processes to which something happens.

The workers are processes that have the workflows of `labour.py`. What their steps do to the outside world is a line in
a file of its own, synced by the step itself; transactional steps write rows to a table of the user's. From these two a
trial knows what happened how often: steps at least once, at-most-once steps never twice, transactional ones exactly
once. Every run comes to its end, with the result that it has without any fault, and its journal is sound.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import labour
import pytest
from children import Child

from holdfast import Holdfast, Run, Status
from holdfast.errors import HoldfastError, QuestionClosed
from holdfast.kernel.model import ENDED

AT_LEAST_ONCE = ("accept", "reserve", "left", "pack")
AT_MOST_ONCE = ("deposit", "charge", "postage")
EXACTLY_ONCE = ("book", "close")


class Crew:
    """Workers: who leaves is replaced, until everything is done."""

    def __init__(self, hire: Callable[[], Child], size: int, chance: random.Random) -> None:
        self._hire = hire
        self._size = size
        self._chance = chance
        self._doom: dict[Child, float | None] = {}
        self.killed = 0

    @property
    def members(self) -> list[Child]:
        return list(self._doom)

    def fill(self) -> None:
        """Hire as many as are missing. Each is to be killed at some moment, some while they still start."""
        while len(self._doom) < self._size:
            early = self._chance.random() < 0.15
            worker = self._hire()
            self._doom[worker] = time.monotonic() + self._chance.uniform(0.05, 0.4) if early else None

    def kill(self) -> None:
        """Kill those whose time has come."""
        for worker, doom in list(self._doom.items()):
            if doom is None and worker.ready:
                self._doom[worker] = time.monotonic() + self._chance.uniform(0, 0.4)
            elif doom is not None and doom < time.monotonic():
                self.lose(worker)

    def killing(self, kills: int) -> Callable[[], bool]:
        """For `Trial.go`: hires those who are missing, and kills until so many are dead."""

        def strike() -> bool:
            self.fill()
            if self.killed < kills:
                self.kill()
            return self.killed >= kills

        return strike

    def lose(self, worker: Child) -> None:
        """Kill one."""
        del self._doom[worker]
        worker.clear_away()
        self.killed += 1

    def dismiss(self) -> None:
        """Let all stop in good order."""
        for worker in self._doom:
            worker.process.terminate()
        codes = [worker.process.wait(30) for worker in self._doom]
        self._doom.clear()
        fine = {0, -signal.SIGTERM}  # the latter of one that had only begun to start
        assert set(codes) <= fine, f"workers ended with the statuses {codes}"


class Trial:
    """The runs, and what was done to them."""

    def __init__(
        self, hf: Holdfast, world: str, chance: random.Random, *, rows: Callable[[], Iterable[str]] | None, many: int
    ) -> None:
        """``rows`` gives the user's table, if the store has transactional steps; ``many`` runs are open at a time."""
        self.hf = hf
        self.world = world
        self._chance = chance
        self._rows = rows
        self.many = many
        self.workflows: tuple[Any, Any] = (labour.order, labour.order_async)
        self.bears: tuple[type[HoldfastError], ...] = ()  # what may happen to this process, too
        self.borne = 0
        self.runs: list[Run] = []
        self.open: dict[str, int] = {}
        self.answered: dict[int, int] = {}
        self._closed: set[int] = set()
        self.parked = 0

    def go(self, strike: Callable[[], bool], timeout: float = 240.0) -> None:
        """Have work done while ``strike`` is called again and again, until it says that it is over; then finish."""
        over, until = False, time.monotonic() + timeout
        while not over or self.open:
            over = strike() or over
            try:
                self.tend(enqueue=not over)
            except self.bears:
                self.borne += 1
            assert time.monotonic() < until, f"these did not end: {[self.runs[n].info() for n in self.open.values()]}"
            time.sleep(0.01)

    def tend(self, *, enqueue: bool) -> None:
        """Leave new runs to the workers, answer questions, and see which have ended."""
        while enqueue and len(self.open) < self.many:
            n = len(self.runs)
            workflow = self.workflows[n % 2]
            self.runs.append(self.hf.enqueue(workflow, self.world, n, self._rows is not None, id=f"order {n}"))
            self.open[f"order {n}"] = n
        for info in self.hf.runs(status=["waiting", "blocked"], limit=1_000):
            if info.status is Status.WAITING and info.id in self.open:
                self.answer(self.open[info.id])
            elif info.status is Status.BLOCKED:
                # Chance may kill the process of a run five times at the same place; nothing else may park one.
                assert "its process died" in (info.reason or ""), info.reason
                self.hf.get(info.id).unblock(by="the test")
                self.parked += 1
        for id, n in list(self.open.items()):
            if (status := self.runs[n].status) in ENDED:
                assert status is Status.COMPLETED, self.runs[n].result()
                del self.open[id]

    def answer(self, n: int) -> None:
        run = self.runs[n]
        if n in self._closed or not run.questions():
            return
        again = n in self.answered
        value = self.answered.setdefault(n, self._chance.randrange(1000))
        try:
            run.answer(value)
        except QuestionClosed:
            assert again, "it was answered by nobody"  # else it was made, and the answer to that was lost
        self._closed.add(n)
        with pytest.raises(QuestionClosed):
            run.answer(-1)

    def judge(self) -> dict[str, int]:
        """Everything happened as often as it may, and everybody got what they are to get; what was counted."""
        times = Counter(labour.happened(self.world))
        count = range(len(self.runs))
        assert set(times) == {f"{n} {what}" for n in count for what in AT_LEAST_ONCE + AT_MOST_ONCE}
        twice = [what for what, happened in times.items() if happened > 1 and what.split()[1] in AT_MOST_ONCE]
        assert twice == []
        if self._rows is not None:
            assert Counter(self._rows()) == Counter(f"{n} {what}" for n in count for what in EXACTLY_ONCE)
        for n, run in enumerate(self.runs):
            first, last = ([f"{n} {what}"] if self._rows is not None else [] for what in EXACTLY_ONCE)
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
        return {"runs": len(every), "effects": times.total(), "again": again, "parked": self.parked, "violations": 0}
