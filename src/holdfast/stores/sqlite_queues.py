"""What a queue has for a worker, read from SQLite row by row, in the order in which it is to be taken."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from heapq import merge
from typing import Any

from holdfast.model import Order
from holdfast.stores.admission import SUSPECT, Candidate
from holdfast.stores.sqlite_file import Q

_HIGHEST = (1 << 63) - 1


def due_in(
    db: sqlite3.Connection, queue: str, workflows: Collection[str], now: int, without: Collection[str] = ()
) -> Iterator[Candidate]:
    """Runs of a queue that are due, but for those in some lanes. No more rows are read than are asked for."""
    names = tuple(workflows)
    lanes = f" AND (lane IS NULL OR lane NOT IN ({_marks(without)}))" if without else ""
    ready, waiting = (Q[name] % (_marks(names), lanes) for name in ("ready", "waiting"))
    for priority in _priorities(db, queue):
        values = (*names, *without)
        rows = merge(
            db.execute(ready, (queue, priority, *values)),
            db.execute(waiting, (queue, priority, now, *values)),
            key=_since,
        )
        for uid, lane, epoch, _ in rows:
            yield Candidate(uid, lane, epoch != 0)


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


def left_by(db: sqlite3.Connection, worker: str, order: Order) -> Iterator[tuple[str, Candidate]]:
    """What a dead worker left of what is ordered, each with its queue."""
    queues, names = tuple(order.queues), tuple(order.workflows)
    rows = db.execute(Q["left"] % (_marks(queues), _marks(names)), (worker, *queues, *names))
    for uid, lane, queue, epoch, crashes, crashed_at, seq in rows.fetchall():
        suspect = crashed_at == seq and type(crashes) is int and crashes >= SUSPECT
        yield queue, Candidate(uid, lane, epoch != 0, suspect)


def _marks(values: Collection[str]) -> str:
    return ", ".join("?" * len(values)) or "NULL"
