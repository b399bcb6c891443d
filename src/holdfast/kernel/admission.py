"""Which of the runs that are due a worker gets, within the limits of their queues. No I/O.

Every store calls `admitted` inside of the transaction in which it claims what was admitted, so that the rules about
limits, turns and lanes stand in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Protocol

from msgspec import Struct

from holdfast.kernel.model import Backlog, Limits, Order, RunRecord, Status
from holdfast.kernel.rules import LIVE, SUSPECT, Awaited, due_order, is_due


class Known(Awaited, Protocol):
    """What says whether a run that is due may be taken."""

    @property
    def lane(self) -> str | None: ...
    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def crashes(self) -> int: ...
    @property
    def crashed_at(self) -> int: ...


class Candidate(Struct, frozen=True):
    """A run that could be taken: as much of it as decides whether it is."""

    uid: str
    lane: str | None
    begun: bool
    suspect: bool = False
    left: bool = False  # by a holder that died
    crashes: int = 0

    @classmethod
    def of(cls, record: Known) -> Candidate:
        left = record.worker is not None
        return cls(record.uid, record.lane, record.epoch > 0, is_suspect(record), left, record.crashes)


class Held(Struct, frozen=True):
    """A run of a queue that a live worker holds."""

    worker: str
    lane: str | None


def is_suspect(record: Known) -> bool:
    """Whether the run may be what killed its holders: they died again and again, at the same place."""
    return record.worker is not None and record.crashes >= SUSPECT and record.crashed_at == record.seq


def is_left(record: Known, queues: Collection[str], workflows: Collection[str]) -> bool:
    """Whether the run is one of these queues and workflows, and held; so it may be taken if its holder is dead."""
    ours = record.queue in queues and record.workflow in workflows
    return ours and record.worker is not None and record.status in LIVE and not record.hidden


class _Room:
    """How much of one queue may still be taken."""

    def __init__(self, limits: Limits, held: Iterable[Held], worker: str) -> None:
        workers = Counter[str]()
        self._lanes = Counter[str | None]()
        for one in held:
            workers[one.worker] += 1
            self._lanes[one.lane] += 1
        used = ((limits.total, workers.total()), (limits.per_worker, workers[worker]))
        self._left = min((most - now for most, now in used if most is not None), default=None)
        self._per_lane = limits.per_lane
        self._starts = limits.starts

    @property
    def full(self) -> bool:
        return self._left is not None and self._left <= 0

    def admits(self, one: Candidate) -> bool:
        has_lane = self._per_lane is not None and one.lane is not None
        crowded = has_lane and self._lanes[one.lane] >= (self._per_lane or 0)
        late = not one.begun and self._starts is not None and self._starts <= 0
        return not (self.full or crowded or late)

    def add(self, one: Candidate) -> None:
        if self._left is not None:
            self._left -= 1
        self._lanes[one.lane] += 1
        if not one.begun and self._starts is not None:
            self._starts -= 1


def admitted(
    order: Order, candidates: Mapping[str, Iterable[Candidate]], held: Mapping[str, Iterable[Held]]
) -> list[str]:
    """The uids of the runs that the worker gets: one from each queue in turn, in the order of its queues.

    ``candidates`` are what each queue has, in the order in which it is to be taken; no more of them are asked for than
    needed. ``held`` is what live workers hold of the queues that have limits. What is passed over for a limit does not
    hide what lies behind it.
    """
    rooms = {name: _Room(limits or Limits(), held.get(name, ()), order.worker) for name, limits in order.queues.items()}
    waiting: dict[str, Iterator[Candidate]] = {name: iter(candidates.get(name, ())) for name in order.queues}
    if order.alone and order.limit > 0 and (suspect := _suspect(order, rooms, waiting)) is not None:
        return [suspect]
    suspects, chosen = order.suspects, dict[str, None]()
    while waiting and len(chosen) < order.limit:
        for name, others in list(waiting.items()):
            if len(chosen) >= order.limit:
                break
            for one in () if rooms[name].full else others:
                if one.uid in order.leave or one.uid in chosen or (one.suspect and suspects <= 0):
                    continue
                if rooms[name].admits(one):
                    rooms[name].add(one)
                    suspects -= one.suspect
                    chosen[one.uid] = None
                    break
            else:
                del waiting[name]
    return list(chosen)


def chosen(order: Order, runs: Iterable[Known], is_alive: Callable[[str], bool], now: int) -> list[str]:
    """The uids of the runs that the worker gets, for a store that looks at all runs of the queues."""
    left: list[Known] = []
    due: list[Known] = []
    held: dict[str, list[Held]] = {name: [] for name in order.queues}
    living: dict[str, bool] = {}
    for one in runs:
        if one.queue not in held:
            continue
        if one.worker is None:
            if is_due(one, order.queues, order.workflows, now):
                due.append(one)
            continue
        if one.worker not in living:
            living[one.worker] = is_alive(one.worker)
        if living[one.worker]:
            held[one.queue].append(Held(one.worker, one.lane))
        elif is_left(one, order.queues, order.workflows):
            left.append(one)
    candidates: dict[str, list[Candidate]] = {name: [] for name in order.queues}
    for one in (*sorted(left, key=lambda one: one.uid), *sorted(due, key=due_order)):
        candidates[one.queue or ""].append(Candidate.of(one))
    return admitted(order, candidates, held)


def _suspect(order: Order, rooms: Mapping[str, _Room], waiting: dict[str, Iterator[Candidate]]) -> str | None:
    """The suspect that is to be executed alone now: the one that was least often, so that a worker which is killed by
    somebody else does not incriminate the same run each time. Nothing is consumed of what waits.
    """
    found: list[Candidate] = []
    for name, others in waiting.items():
        left: list[Candidate] = []
        for one in others:
            left.append(one)
            if not one.left:
                break  # what a dead holder left comes first
        waiting[name] = chain(left, others)
        found += [one for one in left if one.suspect and one.uid not in order.leave and rooms[name].admits(one)]
    return min(found, key=lambda one: (one.crashes, one.uid)).uid if found else None


def is_limited(limits: Limits | None) -> bool:
    """Whether one has to know what is held of the queue."""
    return limits is not None and (limits.total, limits.per_worker, limits.per_lane) != (None, None, None)


def full_lanes(limits: Limits | None, held: Iterable[Held]) -> list[str]:
    """The lanes of which no run can be taken, so that it need not be looked at those that wait there."""
    if limits is None or limits.per_lane is None:
        return []
    lanes = Counter(one.lane for one in held if one.lane is not None)
    return [lane for lane, count in lanes.items() if count >= limits.per_lane]


def counted(records: Iterable[RunRecord]) -> dict[str, Backlog]:
    """What there is in each queue, counted."""
    counts: dict[str, Counter[str]] = {}
    oldest: dict[str, int] = {}
    for record in records:
        if record.queue is None or record.hidden:
            continue
        if record.worker is not None:
            state = "running"
        elif record.status in (Status.READY, Status.WAITING):
            state = str(record.status)
        else:
            continue
        counts.setdefault(record.queue, Counter())[state] += 1
        if state == Status.READY:
            oldest[record.queue] = min(oldest.get(record.queue, record.created_at), record.created_at)
    return {name: Backlog(**count, oldest=oldest.get(name)) for name, count in counts.items()}
