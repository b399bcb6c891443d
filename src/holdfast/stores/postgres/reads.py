"""The questions that a schema of PostgreSQL answers. Each is one round trip, or two where records are looked up."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from holdfast.errors import RunDamaged, StoreDamaged
from holdfast.kernel.clock import Clock
from holdfast.kernel.model import Backlog, Enlisted, Entry, Filter, Item, Outlook, RunRecord, Status
from holdfast.kernel.rules import due_order, taken_item
from holdfast.stores.postgres.connections import Link, Rows, together
from holdfast.stores.postgres.queues import backlog_of
from holdfast.stores.postgres.rows import entry_of, given, is_time, kept, listed, page, page_of_tag, record_of
from holdfast.stores.sql_rows import item_of

_AWAITED = frozenset({Status.READY, Status.WAITING})
MOST = 10_000  # runs of a tag that are looked at in one statement


class PostgresReads:
    """The reads of a store in PostgreSQL. See `holdfast.stores.protocol.Store`."""

    place: str
    clock: Clock
    _given_clock: Clock | None  # of a test; else the server says what time it is
    _link: Link
    _q: dict[str, str]
    _news_tables: list[int]

    def get(self, id: str | None = None, *, uid: str | None = None) -> RunRecord | None:
        where = "WHERE r.uid = %s" if uid is not None else "WHERE r.id = %s AND NOT r.hidden"
        rows = self._link.ask(f"{self._q['record']} {where}", (kept(id or "") if uid is None else uid,))
        return record_of(rows[0]) if rows else None

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> list[RunRecord]:
        if filter.tags:
            return self._find_tagged(filter, before, limit)
        return [listed(row) for row in self._link.ask(*page(self._q, filter, before, limit, self.clock.now()))]

    def _find_tagged(self, filter: Filter, before: str | None, limit: int) -> list[RunRecord]:
        found: list[RunRecord] = []
        window = limit
        while True:
            rows = self._link.ask(*page_of_tag(self._q, filter, before, window, self.clock.now()))
            found += [listed(row[1:]) for row in rows if row[1] is not None]
            if len(rows) < window or len(found) >= limit:
                return found[:limit]
            before, window = rows[-1][0], min(window * 4, MOST)

    def counts(self, upto: int) -> dict[Status, int]:
        rows = self._link.ask(self._q["counts"], {"statuses": [str(status) for status in Status], "upto": upto})
        return {Status(status): count for status, count in rows}

    def workers(self) -> list[Enlisted]:
        rows = self._link.ask(self._q["workers"], self._at())
        if not all(is_time(until) for _, until, _ in rows):
            raise StoreDamaged(self.place, "what it says of a worker was changed by hand; start that worker again")
        return [Enlisted(given(name), until, alive, running=alive) for name, until, alive in rows]

    def look(self, queues: Collection[str], workflows: Collection[str], *, limit: int = 100) -> Outlook:
        names = {"queues": [kept(name) for name in set(queues)], "workflows": [kept(name) for name in workflows]}
        # In this order: what becomes due between two of them is found by both, and not by neither.
        asked = [(self._q["lapse"], self._at()), (self._q["next_wake"], self._at(**names))]
        if limit:
            asked.append((self._q["due"], self._at(limit=limit, **names)))
        [(lapse,)], wake, *due = self._link.call(lambda conn, again: together(conn, *asked))
        numbers = [number for rows in due for (number,) in rows]
        query = f"{self._q['record']} WHERE r.n = ANY(%s::bigint[])"
        found = map(listed, self._link.ask(query, (numbers,)) if numbers else ())
        still = (record for record in found if record.worker is None and record.status in _AWAITED)
        return Outlook(sorted(still, key=due_order)[:limit], wake[0][0] if wake else None, lapse)

    def version(self) -> int:
        [(pulse, writing)] = self._link.ask(self._q["version"], (self._news_tables,))
        return int(pulse) if writing is None else hash((pulse, writing))

    def _at(self, **values: Any) -> dict[str, Any]:
        """The values for a statement that needs the time."""
        return values if self._given_clock is None else {**values, "now": self._given_clock.now()}

    def read(
        self, uid: str, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        only = "" if saved is None else "AND e.kind = 'saved'" if saved else "AND e.kind <> 'saved'"
        query = self._q["read" if payloads else "read_headers"]
        statements: list[tuple[str, Any]] = [(f"{query} {only} ORDER BY e.seq LIMIT %s", (uid, lo, hi, limit))]
        if saved is not None and limit is None:  # where only some are read, nobody else would notice a missing one
            statements.append((self._q["count"], (lo, hi, uid)))
        rows, *counted = self._link.call(lambda conn, again: together(conn, *statements))
        for id, base, newest, found in counted[0] if counted else ():
            if type(base) is not int or type(id) is not str:
                raise RunDamaged(str(id), "its record was changed by hand; restore the run from a backup")
            lowest, highest = max(lo, base), min(hi, newest)
            if found != max(highest - lowest + 1, 0):
                problem = f"entries between {lowest} and {highest} are missing; restore the run from a backup"
                raise RunDamaged(given(id), problem)
        return [entry_of(uid, row) for row in rows]

    def inbox(self, uid: str, *, taken: bool = False) -> list[Item]:
        if not taken:
            return items_of(uid, self._link.ask(self._q["inbox"], (uid,)))
        keys = [key for (key,) in self._link.ask(self._q["taken"], (uid,))]
        if not all(type(key) is str for key in keys):
            raise RunDamaged(uid, "an inbox item was changed by hand; restore the run from a backup")
        return [taken_item(key) for key in sorted(map(given, keys))]

    def backlog(self) -> dict[str, Backlog]:
        return backlog_of(self._link.ask(self._q["backlog"]))


def items_of(uid: str, rows: Rows) -> list[Item]:
    """What the query ``inbox`` tells."""
    found: list[Item] = []
    for key, kind, at, data, wakes in rows:
        if type(key) is not str or type(kind) is not str or type(wakes) is not bool:
            raise RunDamaged(uid, f"the inbox item {key!r} was changed by hand; restore the run from a backup")
        found.append(item_of(uid, given(key), given(kind), at, data, int(wakes)))
    return found
