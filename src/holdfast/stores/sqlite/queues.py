"""What a worker may take from queues in SQLite: read row by row, in the order in which it is to be taken."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from heapq import merge
from itertools import chain
from typing import Any

from msgspec.structs import replace

from holdfast.kernel.admission import Candidate, Held, admitted, full_lanes, is_limited
from holdfast.kernel.model import Order, Status
from holdfast.kernel.rules import SUSPECT
from holdfast.stores.sqlite.rows import listed, rows_of
from holdfast.stores.sqlite.statements import Q

_HIGHEST = (1 << 63) - 1


def choose(db: sqlite3.Connection, order: Order, now: int, alive: Callable[[str], bool]) -> list[str]:
    """The uids of what the worker may take, of runs whose rows are sound."""
    held = {name: _held(db, name, alive) for name, limits in order.queues.items() if is_limited(limits)}
    while True:
        chosen = admitted(order, _candidates(db, order, held, now, alive), held)
        rows = [rows_of(db, f"{Q['record']} WHERE r.uid = ?", (uid,)) for uid in chosen]
        # One that is gone was deleted while this looked, outside of a transaction.
        damaged = {
            uid for uid, row in zip(chosen, rows, strict=True) if not row or listed(row[0]).status is Status.BLOCKED
        }
        if not damaged:
            return chosen
        order = replace(order, leave=order.leave | damaged)


def _held(db: sqlite3.Connection, queue: str, alive: Callable[[str], bool]) -> list[Held]:
    """What live workers hold of a queue."""
    rows = rows_of(db, Q["held"], (queue,))
    living = {worker for worker in {row[0] for row in rows} if alive(worker)}
    return [Held(worker, lane) for worker, lane in rows if worker in living]


def _candidates(
    db: sqlite3.Connection,
    order: Order,
    held: Mapping[str, Sequence[Held]],
    now: int,
    alive: Callable[[str], bool],
) -> dict[str, Iterable[Candidate]]:
    """What each queue has for the worker: first what the dead left, then what is due."""
    left: dict[str, list[Candidate]] = {}
    for (worker,) in rows_of(db, Q["holders"]):
        if not alive(worker):
            for queue, candidate in _left_by(db, worker, order):
                left.setdefault(queue, []).append(candidate)
    found: dict[str, Iterable[Candidate]] = {}
    for name, limits in order.queues.items():
        full = full_lanes(limits, held.get(name, ()))
        found[name] = chain(left.get(name, ()), due_in(db, name, order.workflows, now, full))
    return found


def due_in(
    db: sqlite3.Connection, queue: str, workflows: Collection[str], now: int, without: Collection[str] = ()
) -> Iterator[Candidate]:
    """Runs of a queue that are due, but for those in some lanes. No more rows are read than are asked for."""
    names = tuple(workflows)
    lanes = f" AND (lane IS NULL OR lane NOT IN ({_marks(without)}))" if without else ""
    ready, waiting = (Q[name] % (_marks(names), lanes) for name in ("ready", "waiting"))
    for priority in _priorities(db, queue):
        values = (*names, *without)
        with (
            closing(db.execute(ready, (queue, priority, *values))) as these,  # else what is read would stay as it is
            closing(db.execute(waiting, (queue, priority, now, *values))) as those,
        ):
            for uid, lane, epoch, _ in merge(these, those, key=_since):
                yield Candidate(_text(uid) or "", _text(lane), epoch != 0)


def _text(stored: Any) -> str | None:
    return stored.decode(errors="backslashreplace") if type(stored) is bytes else None


def _since(row: tuple[Any, ...]) -> tuple[int, str]:
    """Since when it is due. A damaged row may have anything there, and is found out when it is read as a whole."""
    return row[3] if type(row[3]) is int else 0, str(row[0])


def _priorities(db: sqlite3.Connection, queue: str) -> Iterator[int]:
    """The priorities that runs of the queue have, the highest first."""
    before = _HIGHEST
    while True:
        below = [
            db.execute(Q[name], (queue, before)).fetchone() for name in ("priority_of_ready", "priority_of_waiting")
        ]
        found = [row[0] for row in below if row is not None]
        if not found:
            return
        before = max(found)
        yield before


def _left_by(db: sqlite3.Connection, worker: str, order: Order) -> Iterator[tuple[str, Candidate]]:
    """What a dead worker left of what is ordered, each with its queue."""
    queues, names = tuple(order.queues), tuple(order.workflows)
    rows = rows_of(db, Q["left"] % (_marks(queues), _marks(names)), (worker, *queues, *names))
    for uid, lane, queue, epoch, crashes, crashed_at, seq in rows:
        suspect = crashed_at == seq and type(crashes) is int and crashes >= SUSPECT
        yield queue, Candidate(uid, lane, epoch != 0, suspect, True, crashes if suspect else 0)


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values)) or "NULL"
