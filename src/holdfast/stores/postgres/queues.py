"""Taking runs from queues in PostgreSQL, within their limits; and the engine's own documents.

Who takes from a queue without limits locks what it looks at and passes over what others have locked, so that many can
take at once. Who takes from one with limits locks the queue first: then what is held of it is known until the end.
A queue that somebody else has locked is passed over too, and waited for only if there is nothing else to take.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from msgspec.structs import replace

from holdfast.errors import StoreDamaged
from holdfast.kernel.admission import Candidate, Held, admitted, full_lanes, is_limited
from holdfast.kernel.clock import Clock
from holdfast.kernel.model import Backlog, Document, Order, RunRecord, Status
from holdfast.kernel.rules import LIVE, claimed, due_order, new_version
from holdfast.stores.postgres.connections import Connection, Link, begin, together, told
from holdfast.stores.postgres.rows import given, given_or_none, kept, listed

BETWEEN = "\x1f"  # between a queue and a lane
MOST = 10_000  # runs that are looked at to find some that may be taken


class Taking:
    """One attempt to take something, in a transaction that has begun."""

    def __init__(self, queries: dict[str, str], order: Order, at: Callable[..., dict[str, Any]]) -> None:
        self._q = queries
        self._order = order
        self._at = at

    def choose(self, conn: Connection) -> list[RunRecord]:
        """Begin a transaction, and lock what the worker gets; as it is before it is claimed."""
        limited = sorted(kept(name) for name, limits in self._order.queues.items() if is_limited(limits))
        if not limited:
            begin(conn)
            return self._choose(conn, self._order, [])
        _, rows = begin(conn, (self._q["make_queues"], (limited,)), (self._q["lock_free_queues"], (limited,)))
        locked = [name for (name,) in rows]
        passed = {given(name) for name in set(limited) - set(locked)}
        queues = {name: limits for name, limits in self._order.queues.items() if name not in passed}
        if queues:
            chosen = self._choose(conn, replace(self._order, queues=queues), locked)
            if chosen or not passed:
                return chosen
            conn.rollback()  # who waits for a queue keeps nothing for which others could wait
            begin(conn)
        together(conn, (self._q["lock_queues"], (limited,)))
        return self._choose(conn, self._order, limited)

    def _choose(self, conn: Connection, order: Order, locked: list[str]) -> list[RunRecord]:
        held = self._held(conn, locked) if locked else {}
        window = order.limit
        while True:
            records = self._locked(conn, order, held, window)
            damaged = {record.uid for record in records if record.status is Status.BLOCKED}
            order = replace(order, leave=order.leave | damaged)
            chosen = admitted(order, self._by_queue(records), held)
            passed_over = len(records) > len(chosen) + len(damaged)
            if len(chosen) >= order.limit or not passed_over or window >= MOST:
                by_uid = {record.uid: record for record in records}
                return [by_uid[uid] for uid in chosen]
            window *= 4

    def _held(self, conn: Connection, limited: list[str]) -> dict[str, list[Held]]:
        """What live workers hold of these queues, which are locked."""
        [rows] = together(conn, (self._q["held"], self._at(queues=limited)))
        held: dict[str, list[Held]] = {}
        for queue, worker, lane in rows:
            held.setdefault(given(queue), []).append(Held(given(worker), given_or_none(lane)))
        return held

    def _locked(self, conn: Connection, order: Order, held: dict[str, list[Held]], window: int) -> list[RunRecord]:
        """Some that could be taken, of each queue: what the dead left, and what is due."""
        full = [
            kept(name) + BETWEEN + kept(lane)
            for name, limits in order.queues.items()
            for lane in full_lanes(limits, held.get(name, ()))
        ]
        values = self._at(
            queues=[kept(name) for name in order.queues],
            workflows=[kept(name) for name in order.workflows],
            leave=list(order.leave),
            full=full,
            limit=window,
        )
        found = together(conn, *((self._q[name], values) for name in ("take_left", "take_due", "take_waiting")))
        numbers = [row[0] for rows in found for row in rows]
        if not numbers:
            return []
        [rows] = together(conn, (f"{self._q['record']} WHERE r.n = ANY(%s::bigint[])", (numbers,)))
        return sorted((listed(row) for row in rows), key=lambda one: (one.worker is None, due_order(one)))

    @staticmethod
    def _by_queue(records: Collection[RunRecord]) -> dict[str, list[Candidate]]:
        found: dict[str, list[Candidate]] = {}
        for record in records:
            if record.queue is not None and record.status is not Status.BLOCKED:
                found.setdefault(record.queue, []).append(Candidate.of(record))
        return found


def taken(records: Collection[RunRecord], order: Order) -> list[RunRecord]:
    """The records after the worker took the runs, which nobody alive holds."""
    return [claimed(one, one.uid, order.worker, LIVE, holder_alive=False, alone=order.alone) for one in records]


def backlog_of(rows: list[tuple[Any, ...]]) -> dict[str, Backlog]:
    """What the query ``backlog`` tells."""
    found: dict[str, dict[str, Any]] = {}
    for queue, state, count, oldest in rows:
        counts = found.setdefault(given(queue), {})
        counts[state] = count
        if oldest is not None:
            counts["oldest"] = oldest
    return {queue: Backlog(**counts) for queue, counts in found.items()}


class Documents:
    """The documents of a store."""

    def __init__(self, link: Link, queries: dict[str, str], clock: Clock) -> None:
        self._link = link
        self._q = queries
        self._clock = clock

    def all(self, kind: str, name: str | None = None) -> list[Document]:
        """See `holdfast.stores.protocol.Store.documents`."""
        query, names = ("documents", (kind,)) if name is None else ("document", (kind, name))
        rows = self._link.ask(self._q[query], tuple(map(kept, names)))
        found = [_document(self._link.place, row) for row in rows]
        return sorted(found, key=lambda document: document.name)

    def put(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        """See `holdfast.stores.protocol.Store.put_document`. Each version is used once, so it tells who made it."""
        version = new_version(self._clock)
        place = kept(kind), kept(name)
        values: tuple[Any, ...]
        if value is None:
            statement, values = self._q["delete_document"], (*place, expected)
        elif expected is None:
            statement, values = self._q["make_document"], (*place, value, version)
        else:
            statement, values = self._q["replace_document"], (value, version, *place, expected)

        def act(conn: Connection, again: bool) -> bool:
            if value is not None or expected is not None:
                if told(conn, (statement, values)):
                    return True
                if not again:
                    return False
            [rows] = together(conn, (self._q["document"], place))
            return rows[0][2] == version if rows else value is None

        return self._link.call(act)


def _document(place: str, row: tuple[Any, ...]) -> Document:
    name, value, version = row
    if type(value) is not bytes or type(version) is not int:
        raise StoreDamaged(place, f"the document {name!r} was changed by hand; restore it from a backup")
    return Document(given(name), value, version)
