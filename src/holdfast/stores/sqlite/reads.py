"""The questions that a SQLite file answers. Each is one look at the file, through a connection that only reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from holdfast.errors import RunDamaged, StoreDamaged
from holdfast.kernel.clock import Clock
from holdfast.kernel.model import Backlog, Document, Enlisted, Entry, Filter, Item, Outlook, RunRecord, Status
from holdfast.kernel.rules import due_order, taken_item
from holdfast.stores.sql_rows import is_stored_entry, item_of
from holdfast.stores.sqlite.damage import (
    REMEDY,
    check_documents,
    check_inbox,
    check_no_id,
    is_known_document,
    is_known_id,
    is_known_uid,
)
from holdfast.stores.sqlite.file import SqliteFile
from holdfast.stores.sqlite.queues import due_in
from holdfast.stores.sqlite.rows import document_of, listed, page, record_of, rows_of, taken_of, term_of
from holdfast.stores.sqlite.statements import Q

RECORD_BY_ID = f"{Q['record']} WHERE r.id = ? AND r.hidden = 0"
RECORD_BY_UID = f"{Q['record']} WHERE r.uid = ?"


class SqliteReads(SqliteFile):
    """The reads of a store in SQLite. See `holdfast.stores.protocol.Store`."""

    clock: Clock

    def get(self, id: str | None = None, *, uid: str | None = None) -> RunRecord | None:
        with self._reading() as db:
            return self._by_id(db, id or "") if uid is None else self._by_uid(db, uid)

    def _by_id(self, db: sqlite3.Connection, id: str) -> RunRecord | None:
        """The record of a visible run. That there is none is said by two indexes."""
        row = db.execute(RECORD_BY_ID, (id,)).fetchone()
        if row is None and is_known_id(db, id):
            with _at_once(db):  # it was made just now; or is hidden; or the first index is damaged
                row = db.execute(RECORD_BY_ID, (id,)).fetchone()
                if row is None:
                    check_no_id(db, Q["record"], self.place, id)
        return record_of(row) if row else None

    def _by_uid(self, db: sqlite3.Connection, uid: str) -> RunRecord | None:
        """The record of a run, hidden or not. That there is none is said by two indexes."""
        row = db.execute(RECORD_BY_UID, (uid,)).fetchone()
        if row is None and self._number_in(db, uid) is not None:  # it was made just now
            row = db.execute(RECORD_BY_UID, (uid,)).fetchone()
        return record_of(row) if row else None

    def _number_in(self, db: sqlite3.Connection, uid: str) -> int | None:
        """The number of a run. That there is none is said by two indexes."""
        row = db.execute(Q["run_number"], (uid,)).fetchone()
        if row is None and is_known_uid(db, uid):
            with _at_once(db):
                row = db.execute(Q["run_number"], (uid,)).fetchone()
                if row is None and is_known_uid(db, uid):
                    problem = f"an index is damaged and does not have the run of uid {uid}"
                    raise StoreDamaged(self.place, f"{problem}; {REMEDY}")
        return int(row[0]) if row else None

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> list[RunRecord]:
        with self._reading() as db:
            dead = self._dead_holders(db) if filter.orphaned else None
            if dead == []:
                return []
            rows = rows_of(db, *page(Q, filter, before, limit, dead))
        return [listed(row) for row in rows]

    def _dead_holders(self, db: sqlite3.Connection) -> list[Any]:
        return [worker for (worker,) in rows_of(db, Q["holders"]) if not self._alive(db, worker)]

    def counts(self, upto: int) -> dict[Status, int]:
        with self._reading() as db:
            return {status: db.execute(Q["count"], (status, upto)).fetchone()[0] for status in Status}

    def look(self, queues: Collection[str], workflows: Collection[str], *, limit: int = 100) -> Outlook:
        found: list[RunRecord] = []
        now = self.clock.now()
        with self._reading() as db:
            for queue in set(queues) if limit else ():
                for one in list(islice(due_in(db, queue, workflows, now), limit)):
                    found += [listed(row) for row in rows_of(db, RECORD_BY_UID, (one.uid,))]
            names = ", ".join("?" * len(queues)) or "NULL", ", ".join("?" * len(workflows)) or "NULL"
            wake = db.execute(Q["next_wake"] % names, (now, *queues, *workflows)).fetchone()
        sound = (record for record in found if record.status is not Status.BLOCKED)
        return Outlook(sorted(sound, key=due_order)[:limit], wake[0] if wake and type(wake[0]) is int else None)

    def backlog(self) -> dict[str, Backlog]:
        with self._reading() as db:
            rows = rows_of(db, Q["backlog"])
        found: dict[str, dict[str, Any]] = {}
        for queue, state, count, oldest in rows:
            if type(queue) is not str:
                continue  # that of a damaged run, which is in none
            found.setdefault(queue, {})[state] = count
            if type(oldest) is int:
                found[queue]["oldest"] = oldest
        return {queue: Backlog(**counts) for queue, counts in found.items()}

    def read(
        self, uid: str, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        with self._reading() as db:
            run = db.execute("SELECT n, root, id, base FROM run WHERE uid = ?", (uid,)).fetchone()
            if run is None:
                self._number_in(db, uid)  # raises, if it is there all the same
                return []
            only = "" if saved is None else "AND e.kind = 'saved'" if saved else "AND e.kind <> 'saved'"
            values = (run[0], lo, hi, -1 if limit is None else limit)
            query = Q["read"] if payloads else Q["read_headers"]
            rows = db.execute(f"{query} {only} ORDER BY e.seq LIMIT ?", values).fetchall()
            if saved is not None and limit is None:
                self._check_gapless(db, run, lo, hi)
        root = run[1]
        if type(root) is not bytes or not all(map(is_stored_entry, rows)):
            raise RunDamaged(str(run[2]), "an entry is not what was written; restore the run from a backup")
        return [Entry(seq, kind, at, state, prev or root, own, data) for seq, kind, at, state, prev, own, data in rows]

    def _check_gapless(self, db: sqlite3.Connection, run: tuple[Any, ...], lo: int, hi: int) -> None:
        """Where only some kinds of entries are read, nobody else would notice that one is missing."""
        number, _, id, base = run
        [newest] = db.execute("SELECT max(seq) FROM entry WHERE run = ?", (number,)).fetchone()
        if type(newest) is not int or type(base) is not int:
            raise RunDamaged(str(id), "its record or its entries are damaged; restore the run from a backup")
        lo, hi = max(lo, base), min(hi, newest)
        counting = "SELECT count(*) FROM entry WHERE run = ? AND seq BETWEEN ? AND ?"
        [found] = db.execute(counting, (number, lo, hi)).fetchone()
        if found != max(hi - lo + 1, 0):
            raise RunDamaged(str(id), f"entries between {lo} and {hi} are missing; restore the run from a backup")

    def inbox(self, uid: str, *, taken: bool = False) -> list[Item]:
        with self._reading() as db:
            return self._items(db, uid, taken=taken)

    def _items(self, db: sqlite3.Connection, uid: str, *, taken: bool = False) -> list[Item]:
        number = self._filled_inbox(db, uid)
        if number is None:
            return []
        rows = rows_of(db, Q["taken" if taken else "inbox"], (number,))
        check_inbox(db, number, uid)
        return [taken_item(taken_of(uid, *row)) if taken else item_of(uid, *row) for row in rows]

    def _filled_inbox(self, db: sqlite3.Connection, uid: str) -> int | None:
        """The number of the run, if its inbox ever had an item."""
        row = db.execute(Q["inbox_sizes"], (uid,)).fetchone()
        if row is None:
            return self._number_in(db, uid)
        return int(row[0]) if row[1] or row[2] else None

    def workers(self) -> list[Enlisted]:
        with self._reading() as db:
            terms = {row[0]: term_of(self.place, *row) for row in rows_of(db, Q["workers"])}
        return [term.enlisted(name, self.clock, self._locks.is_running(name)) for name, term in terms.items()]

    def _alive(self, db: sqlite3.Connection, worker: Any) -> bool:
        """Whether a worker lives. If its row is missing or damaged, only the lock that it holds says so."""
        running = self._locks.is_running(worker) if type(worker) is str else False
        rows = rows_of(db, Q["term"], (worker,))
        try:
            term = term_of(self.place, *rows[0]) if rows else None
        except StoreDamaged:
            term = None
        return bool(running) if term is None else term.is_live(self.clock, running)

    def _document(self, db: sqlite3.Connection, kind: str, name: str) -> Document | None:
        """A document. That there is none is said by two indexes."""
        row = db.execute(Q["document"], (kind, name)).fetchone()
        if row is None and is_known_document(db, kind, name):
            with _at_once(db):
                row = db.execute(Q["document"], (kind, name)).fetchone()
                if row is None and is_known_document(db, kind, name):
                    problem = f"the {kind} {name!r} is missing, and an index says that there is one"
                    raise StoreDamaged(self.place, f"{problem}; {REMEDY}")
        return document_of(kind, self.place, *row) if row else None

    def documents(self, kind: str, name: str | None = None) -> list[Document]:
        with self._reading() as db:
            if name is not None:
                found = self._document(db, kind, name)
                return [found] if found else []
            rows = rows_of(db, Q["documents"], (kind,))
            check_documents(db, self.place, kind)
        return [document_of(kind, self.place, *row) for row in rows]


@contextmanager
def _at_once(db: sqlite3.Connection) -> Iterator[None]:
    """Around statements that must see the same commits."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")  # nothing was written
