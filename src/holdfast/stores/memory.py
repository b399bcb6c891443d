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

from holdfast.errors import HoldfastError, RunExists, RunNotFound, StoreUnusable
from holdfast.kernel.admission import Candidate, Held, admitted, counted, is_left
from holdfast.kernel.clock import Clock, SystemClock
from holdfast.kernel.model import (
    Adopt,
    Append,
    Backlog,
    Create,
    Document,
    EndMove,
    Enlisted,
    Entry,
    Filter,
    Item,
    Kind,
    Order,
    Outlook,
    Post,
    Rewrap,
    RunRecord,
    Status,
    Write,
)
from holdfast.kernel.rules import (
    LIVE,
    Outcome,
    Term,
    adoptable,
    appended,
    check_takes,
    claimed,
    conflict,
    continues,
    due_order,
    each_deleted,
    end_refusal,
    ending,
    is_due,
    matches,
    may_delete,
    move_ended,
    new_version,
    outlook,
    refusal,
    taken_item,
    woken,
)
from holdfast.stores.protocol import LOOK_EVERY

_FIRST = -(1 << 70)  # before any priority


class _Journal:
    def __init__(self, record: RunRecord, entries: Sequence[Entry]) -> None:
        self.record = record
        self.entries = list(entries)
        self.inbox: dict[str, Item] = {}
        self.taken: set[str] = set()


class _Shelf:
    """What all handles of one memory store share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.journals: dict[str, _Journal] = {}
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
        with self._lock:
            self._check_open()
            found = self._shelf.journals.get(uid or self._shelf.ids.get(id or "", ""))
            return found.record if found else None

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> list[RunRecord]:
        with self._lock:
            self._check_open()
            found = [
                journal.record
                for uid, journal in self._shelf.journals.items()
                if (before is None or uid < before) and matches(journal.record, filter, self._alive)
            ]
        return sorted(found, key=lambda record: record.uid, reverse=True)[:limit]

    def read(
        self, uid: str, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        with self._lock:
            self._check_open()
            journal = self._shelf.journals.get(uid)
            if journal is None:
                return []
            base = journal.record.base
            found = journal.entries[max(lo - base, 0) : max(hi - base + 1, 0)]
        if saved is not None:
            found = [entry for entry in found if (entry.kind == Kind.SAVED) is saved]
        if not payloads:
            found = [replace(entry, payload=b"") for entry in found]
        return found[:limit]

    def inbox(self, uid: str, *, taken: bool = False) -> list[Item]:
        with self._lock:
            self._check_open()
            journal = self._shelf.journals.get(uid)
            if journal is None:
                return []
            return [taken_item(key) for key in sorted(journal.taken)] if taken else list(journal.inbox.values())

    def look(self, queues: Collection[str], workflows: Collection[str], *, limit: int = 100) -> Outlook:
        with self._lock:
            self._check_open()
            records, now = [journal.record for journal in self._shelf.journals.values()], self.clock.now()
        return outlook(records, queues, workflows, now, limit)

    def take(self, order: Order) -> list[RunRecord]:
        with self._lock:
            self._check_open()
            chosen = self._choose(order)
            return [self.claim(uid, order.worker, alone=order.alone) for uid in chosen]

    def _choose(self, order: Order) -> list[str]:
        records, now = [journal.record for journal in self._shelf.journals.values()], self.clock.now()
        found: dict[str, list[Candidate]] = {}
        held: dict[str, list[Held]] = {}
        for record in sorted(records, key=lambda one: due_order(one) if one.worker is None else (_FIRST, 0, one.uid)):
            queue = record.queue
            if queue is None:
                continue
            if record.worker is not None and self._alive(record.worker):
                held.setdefault(queue, []).append(Held(record.worker, record.lane))
            elif is_left(record, order.queues, order.workflows) or is_due(record, order.queues, order.workflows, now):
                found.setdefault(queue, []).append(Candidate.of(record))
        return admitted(order, found, held)

    def backlog(self) -> dict[str, Backlog]:
        with self._lock:
            self._check_open()
            return counted([journal.record for journal in self._shelf.journals.values()])

    def counts(self, upto: int) -> dict[Status, int]:
        with self._lock:
            self._check_open()
            found = Counter(
                journal.record.status for journal in self._shelf.journals.values() if not journal.record.hidden
            )
        return {status: min(found[status], upto) for status in Status}

    def version(self) -> int:
        self._check_open()
        return self._shelf.version

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        with self._changing():
            return [self._make(write) for write in batch]

    def _make(self, write: Write) -> Outcome:
        try:
            match write:
                case Create():
                    return self._create(write)
                case Append():
                    return self._append(write)
                case Post():
                    return self._post(write)
                case EndMove():
                    return self._end_move(write)
                case Rewrap():
                    return self._rewrap(write)
                case Adopt():
                    return self._adopt(write)
        except HoldfastError as refused:
            return refused

    def _create(self, write: Create) -> RunRecord | HoldfastError:
        record = write.record
        existing = self.get(record.id)
        if existing is not None:
            return existing
        if record.uid in self._shelf.journals:
            return RunExists(record.id)
        for link in record.lineage:
            if link.uid not in self._shelf.journals:
                return RunNotFound(link.id, "it was deleted, so it cannot be forked")
        record = ending(record, write.entries)
        self._shelf.journals[record.uid] = _Journal(record, write.entries)
        self._shelf.ids[record.id] = record.uid
        return record

    def _append(self, write: Append) -> HoldfastError | None:
        journal = self._shelf.journals.get(write.uid)
        refused = refusal(journal.record if journal else None, write)
        if refused is not None or journal is None:
            return refused
        if write.entries and not continues(journal.record, write):
            return conflict(write, self.read(write.uid, write.entries[-1].seq, write.entries[-1].seq))
        if (unread := end_refusal(write, journal.inbox)) is not None:
            return unread
        journal.entries.extend(write.entries)
        for key in write.took:
            journal.inbox.pop(key, None)
            journal.taken.add(key)
        mail = any(item.wakes for item in journal.inbox.values())
        journal.record = appended(journal.record, write, mail=mail)
        for seq, payload in write.redact:
            place = seq - journal.record.base
            journal.entries[place] = replace(journal.entries[place], payload=payload)
        return None

    def _post(self, write: Post) -> bool:
        journal, item = self._shelf.journals.get(write.uid), write.item
        if journal is None or journal.record.hidden or item.key in journal.inbox or item.key in journal.taken:
            return False
        check_takes(journal.record)
        journal.inbox[item.key] = item
        if item.wakes:
            journal.record = woken(journal.record)
        return True

    def _end_move(self, write: EndMove) -> bool:
        journal = self._shelf.journals.get(write.uid)
        if journal is None:
            return False
        record = move_ended(journal.record, write, {item.key: item.wakes for item in journal.inbox.values()})
        journal.record = record or journal.record
        return record is not None

    def _rewrap(self, write: Rewrap) -> bool:
        journal = self._shelf.journals.get(write.uid)
        if journal is None or journal.record.key_blob != write.old:
            return False
        journal.record = replace(journal.record, key_id=write.key_id, key_blob=write.key_blob)
        return True

    def _adopt(self, write: Adopt) -> HoldfastError | None:
        record, here = write.record, self._shelf.journals.get(write.record.uid)
        adoptable(here.record if here else None, record, write.entries)
        if not record.hidden and self._shelf.ids.get(record.id, record.uid) != record.uid:
            return RunExists(record.id)
        if any(link.uid not in self._shelf.journals for link in record.lineage):
            return RunNotFound(record.id, "the run that it was forked from is not in this store")
        journal = self._shelf.journals[record.uid] = _Journal(record, write.entries)
        journal.inbox = {item.key: item for item in write.items}
        journal.taken = set(write.taken)
        if not record.hidden:
            self._shelf.ids[record.id] = record.uid
        return None

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE, *, alone: bool = False) -> RunRecord:
        with self._changing():
            journal = self._shelf.journals.get(uid)
            record = journal.record if journal else None
            alive = record is not None and record.worker is not None and self._alive(record.worker)
            record = claimed(record, uid, worker, allow, holder_alive=alive, alone=alone)
            self._shelf.journals[uid].record = record
            return record

    def beat(self, worker: str, lease: float) -> None:
        with self._lock:
            self._check_open()
            self._enlisted.add(worker)
            self._shelf.workers[worker] = Term.of(self.clock, lease)
            if not lease:
                self._retire(worker)

    def workers(self) -> list[Enlisted]:
        with self._lock:
            self._check_open()
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
        with self._changing():
            return each_deleted(records, self._delete)

    def _delete(self, expected: RunRecord) -> bool:
        journal = self._shelf.journals.get(expected.uid)
        if journal is None or journal.record.hidden:
            return False
        record = journal.record
        alive = record.worker is not None and self._alive(record.worker)
        if not may_delete(record, expected, holder_alive=alive):
            return False
        del self._shelf.ids[record.id]
        journal.record = replace(record, hidden=True, worker=None)
        journal.inbox.clear()
        journal.taken.clear()
        self._sweep(record.uid, *(link.uid for link in reversed(record.lineage)))
        return True

    def _sweep(self, *uids: str) -> None:
        """Remove those of the journals that are hidden and that no fork shares any longer."""
        for uid in uids:
            journal = self._shelf.journals.get(uid)
            shared = any(link.uid == uid for other in self._shelf.journals.values() for link in other.record.lineage)
            if journal is not None and journal.record.hidden and not shared:
                del self._shelf.journals[uid]

    def documents(self, kind: str, name: str | None = None) -> list[Document]:
        with self._lock:
            self._check_open()
            known = sorted(self._shelf.documents.items())
            return [found for (its, named), found in known if its == kind and name in (None, named)]

    def put_document(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        with self._changing():
            known = self._shelf.documents.pop((kind, name), None)
            fits = (known.version if known else None) == expected
            kept = (Document(name, value, new_version(self.clock)) if value is not None else None) if fits else known
            if kept is not None:
                self._shelf.documents[kind, name] = kept
            return fits

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Around every change of a run."""
        with self._lock:
            self._check_open()
            try:
                yield
            finally:
                self._shelf.version += 1

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnusable(self.place, "the store is closed; open it again")

    def close(self) -> None:
        with self._lock:
            for worker in list(self._enlisted):
                self._retire(worker)
            self._closed = True

    def drop(self) -> None:
        """Close it: this process cannot die and leave it behind."""
        self.close()
