"""Journals in this process's memory: the reference for the other stores, and a place for tests.

``memory://`` is a store of its own; ``memory://name`` is shared by all who open that name in this process. Nothing
is left when the process ends.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from holdfast.errors import HoldfastError, StoreUnusable
from holdfast.kernel.admission import chosen, counted
from holdfast.kernel.clock import Clock, SystemClock
from holdfast.kernel.model import (
    Adopt,
    Backlog,
    Create,
    Document,
    Enlisted,
    Entry,
    Filter,
    Item,
    Order,
    Outlook,
    RunRecord,
    Status,
    Write,
)
from holdfast.kernel.rules import LIVE, Outcome, Term, claimed, each_deleted, matches, may_delete, new_version, outlook
from holdfast.kernel.whole_run import WholeRun, missing, new_run
from holdfast.stores.protocol import LOOK_EVERY


class _Shelf:
    """What all handles of one memory store share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runs: dict[str, WholeRun] = {}
        self.ids: dict[str, str] = {}
        self.workers: dict[str, Term] = {}
        self.documents: dict[tuple[str, str], Document] = {}
        self.version = 0


_shared: dict[str, _Shelf] = {}


class MemoryStore:
    """A store in memory. See `holdfast.stores.protocol.Store` for what each method promises."""

    compress_over: int | None = None
    networked = False
    look_every = LOOK_EVERY

    def __init__(self, name: str = "", *, clock: Clock | None = None, beside: MemoryStore | None = None) -> None:
        self.place = f"memory://{name}"
        self.clock = clock or SystemClock()
        if beside is not None:  # another handle on the same store
            self._shelf: _Shelf = beside._shelf  # noqa: SLF001 - of this same class
        else:
            self._shelf = _shared.setdefault(name, _Shelf()) if name else _Shelf()
        self._lock = self._shelf.lock
        self._enlisted: set[str] = set()
        self._closed = False

    def get(self, id: str | None = None, *, uid: str | None = None) -> RunRecord | None:
        with self._open():
            found = self._shelf.runs.get(uid or self._shelf.ids.get(id or "", ""))
            return found.record if found else None

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> list[RunRecord]:
        with self._open():
            found = [
                run.record
                for uid, run in self._shelf.runs.items()
                if (before is None or uid < before) and matches(run.record, filter, self._alive)
            ]
        return sorted(found, key=lambda record: record.uid, reverse=True)[:limit]

    def read(
        self, uid: str, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        with self._open():
            run = self._shelf.runs.get(uid)
            return run.read(lo, hi, saved=saved, payloads=payloads, limit=limit) if run else []

    def inbox(self, uid: str, *, taken: bool = False) -> list[Item]:
        with self._open():
            run = self._shelf.runs.get(uid)
            return run.items(taken=taken) if run else []

    def look(self, queues: Collection[str], workflows: Collection[str], *, limit: int = 100) -> Outlook:
        with self._open():
            records, now = [run.record for run in self._shelf.runs.values()], self.clock.now()
        return outlook(records, queues, workflows, now, limit)

    def take(self, order: Order) -> list[RunRecord]:
        with self._open():
            records = [run.record for run in self._shelf.runs.values()]
            uids = chosen(order, records, self._alive, self.clock.now())
            return [self.claim(uid, order.worker, alone=order.alone) for uid in uids]

    def backlog(self) -> dict[str, Backlog]:
        with self._open():
            return counted([run.record for run in self._shelf.runs.values()])

    def counts(self, upto: int) -> dict[Status, int]:
        with self._open():
            found = Counter(run.record.status for run in self._shelf.runs.values() if not run.record.hidden)
        return {status: min(found[status], upto) for status in Status}

    def version(self) -> int:
        with self._open():
            return self._shelf.version

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        with self._open(changes=True):
            return [self._make(write) for write in batch]

    def _make(self, write: Write) -> Outcome:
        if isinstance(write, Create | Adopt):
            return self._insert(write)
        run = self._shelf.runs.get(write.uid)
        return run.make(write) if run else missing(write)

    def _insert(self, write: Create | Adopt) -> Outcome:
        id, uid = write.record.id, write.record.uid
        run = new_run(write, self.get(id), self.get(uid=uid), self._shelf.runs.__contains__)
        if not isinstance(run, WholeRun):
            return run
        self._shelf.runs[uid] = run
        if not run.record.hidden:
            self._shelf.ids[id] = uid
        return run.record if isinstance(write, Create) else None

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE, *, alone: bool = False) -> RunRecord:
        with self._open(changes=True):
            run = self._shelf.runs.get(uid)
            record = run.record if run else None
            alive = record is not None and record.worker is not None and self._alive(record.worker)
            record = claimed(record, uid, worker, allow, holder_alive=alive, alone=alone)
            self._shelf.runs[uid].record = record
            return record

    def beat(self, worker: str, lease: float) -> None:
        with self._open():
            self._enlisted.add(worker)
            self._shelf.workers[worker] = Term.of(self.clock, lease)
            if not lease:
                self._retire(worker)

    def workers(self) -> list[Enlisted]:
        with self._open():
            known = sorted(self._shelf.workers.items())
            return [term.enlisted(name, self.clock, running=True) for name, term in known]

    def _retire(self, worker: str) -> None:
        self._shelf.version += 1
        self._enlisted.discard(worker)
        self._shelf.workers.pop(worker, None)

    def _alive(self, worker: str) -> bool:
        term = self._shelf.workers.get(worker)
        return term is not None and term.is_live(self.clock, running=True)

    def delete(self, records: Sequence[RunRecord]) -> list[bool | HoldfastError]:
        with self._open(changes=True):
            return each_deleted(records, self._delete)

    def _delete(self, expected: RunRecord) -> bool:
        run = self._shelf.runs.get(expected.uid)
        if run is None or run.record.hidden:
            return False
        record = run.record
        alive = record.worker is not None and self._alive(record.worker)
        if not may_delete(record, expected, holder_alive=alive):
            return False
        del self._shelf.ids[record.id]
        run.record = replace(record, hidden=True, worker=None)
        run.inbox.clear()
        run.taken.clear()
        self._sweep(record.uid, *(link.uid for link in reversed(record.lineage)))
        return True

    def _sweep(self, *uids: str) -> None:
        """Remove those of the runs that are hidden and that no fork shares any longer."""
        for uid in uids:
            run = self._shelf.runs.get(uid)
            shared = any(link.uid == uid for other in self._shelf.runs.values() for link in other.record.lineage)
            if run is not None and run.record.hidden and not shared:
                del self._shelf.runs[uid]

    def documents(self, kind: str, name: str | None = None) -> list[Document]:
        with self._open():
            known = sorted(self._shelf.documents.items())
            return [found for (its, named), found in known if its == kind and name in (None, named)]

    def put_document(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        with self._open(changes=True):
            known = self._shelf.documents.pop((kind, name), None)
            fits = (known.version if known else None) == expected
            kept = (Document(name, value, new_version(self.clock)) if value is not None else None) if fits else known
            if kept is not None:
                self._shelf.documents[kind, name] = kept
            return fits

    @contextmanager
    def _open(self, *, changes: bool = False) -> Iterator[None]:
        """Around every use. One that changes a run is another version."""
        with self._lock:
            if self._closed:
                raise StoreUnusable(self.place, "the store is closed; open it again")
            try:
                yield
            finally:
                self._shelf.version += changes

    def close(self) -> None:
        with self._lock:
            for worker in list(self._enlisted):
                self._retire(worker)
            self._closed = True

    def drop(self) -> None:
        """Close it: this process cannot die and leave it behind."""
        self.close()
