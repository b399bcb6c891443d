"""Simulated servers: one machine with its workers, and one of many servers among which runs are shared out.

Nothing here is measured, and nothing waits: time is a number. The numbers that go in are those of bench/fleet.py; see
bench/scale.py.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

SLOTS = 10  # runs that a worker process has at a time
FAMILY = 1.5  # the exponent by which families are large: most have one or two runs, some a great many
LARGEST = 1_000  # runs of a family

# --- one machine


class Demand(NamedTuple):
    """Seconds that one commit takes of each."""

    worker: float
    server: float
    sync: float
    between: float = 0.0  # of nobody: until threads are woken, and messages have come over


class Machine:
    """Worker processes and a database server on the cores of one machine.

    A process has some runs under way, and one thread to think: each run is thought about, then it waits for a commit.
    A process has one commit under way at a time, with all that waited for it. The server works on it, then it waits for
    the log. Whoever waits for the log when a sync begins is synced with it.
    """

    def __init__(self, workers: int, cores: int, demand: Demand, seed: int) -> None:
        self._demand = demand
        self._dice = random.Random(seed)
        self._now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._free = cores
        self._queue: list[tuple[float, Callable[[], None]]] = []
        self._to_sync: list[Callable[[], None]] = []
        self._syncing = False
        self._thinks = [SLOTS] * workers  # runs of each process that have to be thought about
        self._busy = [False] * workers
        self._waits = [0] * workers  # runs of each process that wait for a commit
        self._commits = [False] * workers
        self.done = 0

    def run(self, seconds: float) -> float:
        """How many commits of a run were made in a second."""
        for worker in range(len(self._thinks)):
            self._think(worker)
        while self._events and self._events[0][0] <= seconds:
            self._now, _, then = heapq.heappop(self._events)
            then()
        return self.done / seconds

    def _after(self, seconds: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), then))

    def _some(self, mean: float) -> float:
        return self._dice.expovariate(1 / mean) if mean > 0 else 0.0

    def _compute(self, seconds: float, then: Callable[[], None]) -> None:
        """Use a core, as soon as there is one."""
        if not self._free:
            self._queue.append((seconds, then))
            return
        self._free -= 1

        def done() -> None:
            self._free += 1
            then()
            if self._queue and self._free:
                self._compute(*self._queue.pop(0))

        self._after(seconds, done)

    def _think(self, worker: int) -> None:
        if self._busy[worker] or not self._thinks[worker]:
            return
        self._busy[worker] = True
        self._thinks[worker] -= 1

        def thought() -> None:
            self._busy[worker] = False
            self._waits[worker] += 1
            self._commit(worker)
            self._think(worker)

        self._compute(self._some(self._demand.worker), thought)

    def _commit(self, worker: int) -> None:
        if self._commits[worker] or not self._waits[worker]:
            return
        self._commits[worker] = True
        size, self._waits[worker] = self._waits[worker], 0

        def committed() -> None:
            self.done += size
            self._commits[worker] = False
            self._thinks[worker] += size
            self._commit(worker)
            self._think(worker)

        def written() -> None:
            self._to_sync.append(committed)
            self._sync()

        work = sum(self._some(self._demand.server) for _ in range(size))
        self._after(self._some(self._demand.between), lambda: self._compute(work, written))

    def _sync(self) -> None:
        if self._syncing or not self._to_sync:
            return
        self._syncing = True
        synced, self._to_sync = self._to_sync, []

        def done() -> None:
            self._syncing = False
            for then in synced:
                then()
            self._sync()

        self._after(self._demand.sync, done)


# --- one of many servers


def jump(key: int, shards: int) -> int:
    """The shard of a key (jump consistent hash): when a shard is added, keys move to it and nowhere else."""
    place, after = -1, 0
    while after < shards:
        place = after
        key = (key * 2862933555777941757 + 1) & ((1 << 64) - 1)
        after = int((place + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return place


def families(dice: random.Random) -> Iterator[int]:
    """How many runs come at once, to stay together: a parent and its children."""
    while True:
        yield min(int(dice.paretovariate(FAMILY)), LARGEST)


def mean_family() -> float:
    """How many runs a family has on the average."""
    return sum(n**-FAMILY for n in range(1, LARGEST + 1))


def arrivals(each_second: float, span: float, dice: random.Random) -> Iterator[float]:
    """The moments at which the runs of one shard come: families come at random, and all runs of one at once."""
    at, sizes, each = 0.0, families(dice), each_second / mean_family()
    while (at := at + dice.expovariate(each)) <= span:
        for _ in range(next(sizes)):
            yield at


class Served(NamedTuple):
    """What a server did."""

    seconds: list[float]  # how long each run took, from its arrival to its end
    busy: float  # seconds
    late: int  # runs that came while it was away, or before it had caught up
    caught_up: float  # when it had done what came while it was away


def serve(moments: Sequence[float], service: float, alone: float, away: tuple[float, float] | None = None) -> Served:
    """A server that does its runs in the order in which they come, and may be away for a while.

    ``service`` is what a run takes of it, ``alone`` how long a run takes beside that. What it was at when it went away
    goes on when it is back.
    """
    free, late, caught_up, behind = 0.0, 0, 0.0, False
    seconds: list[float] = []
    for at in moments:
        start = max(at, free)
        if away is not None and start < away[1] and start + service > away[0]:
            start, behind = away[1], True
        if behind:
            if start > at:
                late, caught_up = late + 1, start + service
            else:
                behind = False
        free = start + service
        seconds.append(free - at + alone)
    return Served(seconds, service * len(seconds), late, caught_up)
