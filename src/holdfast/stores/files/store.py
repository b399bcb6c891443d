"""Journals in a folder that a person can read: one folder per run, JSON inside.

    holdfast.json              whose folder this is, and which format
    lock                       held while runs are created, adopted or deleted
    bell                       touched at each commit, so that others know when to look
    workers/                   who may hold runs, and until when
    documents/<kind>/          what the engine itself remembers (limits of queues, schedules), a file each
    documents/.lock            held while one of them is changed, and while workers take runs from queues
    runs/<name>/run.json       the record of a run, replaced as a whole
    runs/<name>/journal.jsonl  its journal: one line per transaction
    runs/<name>/lock           held while it is read (shared) or written
    runs/<name>/inbox/         what others left for it; inbox/taken/ has a marker for each item that was taken
    runs/<name>/forks/         a marker for each run that shares its entries
    hidden/<uid>/              the same, of a deleted run whose entries forks still share

The life of a run folder: it is made under a passing name (``.new-...``) with all that is in it and then renamed. Each
step is one line at the end of its journal.jsonl, and one sync. Claims, wakes and posted items replace run.json. When
the run is deleted, the folder is renamed (``.gone-...``) and then removed; or, while forks share its entries, renamed
into ``hidden`` until the last of them is deleted. Passing names that a crash left behind mean nothing, and are
removed by the next one who creates or deletes a run.

`holdfast.stores.files.folder` has what happens inside of a run's folder. The name of a folder is a readable form of
the id with a digest of it, so that no two ids meet and none leaves the root. The store is meant for local disks and
for up to about 10,000 runs: to list or to look for runs, their run.json files are read.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from holdfast.errors import (
    Claimed,
    HoldfastError,
    Moved,
    RunBlocked,
    RunDamaged,
    RunEnded,
    RunExists,
    RunNotFound,
    StoreDamaged,
    StoreError,
)
from holdfast.kernel.admission import chosen, counted
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
    check_takes,
    claimed,
    each_deleted,
    ending,
    matches,
    may_delete,
    move_ended,
    outlook,
    refusal,
    taken_item,
    woken,
)
from holdfast.stores.files.disk import Disk, replace_file
from holdfast.stores.files.documents import Documents
from holdfast.stores.files.root import Root
from holdfast.stores.files.run_folders import RunFolders, text_of, uid_at
from holdfast.stores.files.text import Damage, RunFile, Sketch, line_text, read_term, sketch_in, term_text
from holdfast.stores.locks import WorkerLocks
from holdfast.stores.protocol import LOOK_EVERY

_AWAITED = frozenset({Status.READY, Status.WAITING})


class FilesStore(RunFolders):
    """A store in a folder. See `holdfast.stores.protocol.Store` for what each method promises."""

    compress_over: int | None = None  # a person reads it
    networked = False
    look_every = LOOK_EVERY

    def __init__(self, path: str, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.clock = clock or SystemClock()
        disk = disk or Disk()
        super().__init__(Root(path, disk), disk)
        self.path, self.place = self._root.path, self._root.place
        self._locks = WorkerLocks(self._in("workers"))
        self._beating = threading.Lock()  # one beat at a time: two of one worker would use the same new file
        self._root.open()
        self._documents = Documents(self._root, self._disk, self.clock)

    def close(self) -> None:
        try:
            if self._root.usable:
                for worker in self._locks.workers():
                    self._retire(worker)
        finally:
            self.drop()

    def drop(self) -> None:
        """Give up all resources as a killed process does: nothing is written, and its workers are dead."""
        self._root.give_up("it is closed")
        self._locks.drop()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Around every change of a run, or of who may be claimed from."""
        with self._root.translated():
            yield
        self._root.ring()

    # --- records

    def get(self, id: str | None = None, *, uid: str | None = None) -> RunRecord | None:
        with self._root.translated():
            if uid is None:
                return self._get(id or "")
            with self._run(uid, exclusive=False) as folder:
                return folder.load().record if folder else None

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> list[RunRecord]:
        with self._root.translated():
            kinds = ("runs",) if filter.hidden is False else ("runs", "hidden")
            paths = self._held_ones() if filter.orphaned else self._all(*kinds)
            uids = {uid_at(path) or os.path.basename(path): path for path in paths}
            found: list[RunRecord] = []
            for uid, path in sorted(uids.items(), reverse=True):
                if len(found) >= limit:
                    break
                if before is None or uid < before:
                    record = self._listed(path)
                    if record is not None and matches(record, filter, self._alive):
                        found.append(record)
            return found

    def look(self, queues: Collection[str], workflows: Collection[str], *, limit: int = 100) -> Outlook:
        with self._root.translated():
            return outlook(self._awaited(queues, workflows), queues, workflows, self.clock.now(), limit)

    def take(self, order: Order) -> list[RunRecord]:
        """See `Store.take`. Each run is claimed by itself: who dies meanwhile holds some of them, and is dead."""
        with self._root.translated(), self._documents.locked():
            uids = self._choose(order)
            while damaged := {uid for uid in uids if self._is_damaged(uid)}:
                order = replace(order, leave=order.leave | damaged)
                uids = self._choose(order)
            taken: list[RunRecord] = []
            for uid in uids:
                with suppress(Claimed, Moved, RunNotFound, RunEnded, RunBlocked):  # somebody was faster
                    taken.append(self.claim(uid, order.worker, alone=order.alone))
            return taken

    def _is_damaged(self, uid: str) -> bool:
        try:
            with self._run(uid, exclusive=False) as folder:
                return folder is not None and folder.load().damage is not None
        except RunDamaged:
            return True

    def _choose(self, order: Order) -> list[str]:
        # A run.json that says that nobody holds the run is right. Else its last line can be ahead of it.
        found = (
            sketch if sketch.worker is None else self._listed(path) for path, sketch in self._sketches(order.queues)
        )
        return chosen(order, (one for one in found if one is not None), self._alive, self.clock.now())

    def backlog(self) -> dict[str, Backlog]:
        with self._root.translated():
            return counted(self._awaited())

    def counts(self, upto: int) -> dict[Status, int]:
        with self._root.translated():
            records = [self._listed(path) for path in self._all("runs")]
        found = Counter(record.status for record in records if record is not None)
        return {status: min(found[status], upto) for status in Status}

    def _awaited(
        self, queues: Collection[str] | None = None, workflows: Collection[str] | None = None
    ) -> Iterator[RunRecord]:
        """Runs of these queues and workflows (of all, if not given) that may be due now or later.

        A run.json that says that nobody holds the run is right about its status; only the last line of a holder can be
        ahead of it.
        """
        for path, sketch in self._sketches(queues):
            if workflows is None or sketch.workflow in workflows:
                record = self._listed(path)
                if record is not None:
                    yield record

    def _sketches(self, queues: Collection[str] | None = None) -> Iterator[tuple[str, Sketch]]:
        """The folders of runs of these queues that are held, or may be due now or later."""
        for path in self._all("runs"):
            sketch = sketch_in(text_of(path))
            if (
                sketch is not None
                and sketch.queue is not None
                and (queues is None or sketch.queue in queues)
                and (sketch.worker is not None or sketch.status in _AWAITED)
            ):
                yield path, sketch

    def version(self) -> int:
        return self._root.heard()

    # --- documents

    def documents(self, kind: str, name: str | None = None) -> list[Document]:
        with self._root.translated():
            if name is None:
                return self._documents.all(kind)
            found = self._documents.get(kind, name)
            return [found] if found else []

    def put_document(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        with self._changing():
            return self._documents.put(kind, name, value, expected)

    # --- journals

    def read(
        self, uid: str, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        with self._root.translated(), self._run(uid, exclusive=False) as folder:
            return folder.entries(lo, hi, saved=saved, payloads=payloads, limit=limit) if folder else []

    def inbox(self, uid: str, *, taken: bool = False) -> list[Item]:
        with self._root.translated(), self._run(uid, exclusive=False) as folder:
            if folder is None:
                return []
            return [taken_item(key) for key in folder.taken()] if taken else folder.items()

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        """See `Store.apply`. Each write is a transaction of its own; if all of them fail, that is raised."""
        self._root.check_usable()
        outcomes: list[Outcome] = []
        failed: dict[str, StoreError] = {}
        for write in batch:
            uid = write.record.uid if isinstance(write, Create | Adopt) else write.uid
            outcome = failed.get(uid) or self._apply(write)
            if isinstance(outcome, StoreError):
                failed[uid] = outcome  # what follows would not continue the journal
            outcomes.append(outcome)
        errors = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
        if errors and len(errors) == len(outcomes):
            raise errors[0]
        return outcomes

    def _apply(self, write: Write) -> Outcome:
        try:
            with self._changing():
                match write:
                    case Create():
                        return self._create(write)
                    case Append():
                        return self._append(write)
                    case Post():
                        return self._post(write.uid, write.item)
                    case EndMove():
                        return self._end_move(write)
                    case Rewrap():
                        return self._rewrap(write)
                    case Adopt():
                        return self._adopt(write.record, write.entries, write.items, write.taken)
        except HoldfastError as error:
            return error

    def _append(self, write: Append) -> HoldfastError | None:
        with self._run(write.uid, exclusive=True) as folder:
            if folder is None:
                return refusal(None, write)
            contents = folder.settle()
            refused = refusal(contents.record, write) or folder.commit(contents, write)
            if refused is None and (write.change or write.took or write.redact):
                try:
                    folder.settle()
                except OSError as error:
                    # The write is made whatever happens here, and whoever writes next finishes it.
                    with suppress(StoreError):
                        self._root.refuse(error)
            return refused

    # --- claims, inboxes, workers

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE, *, alone: bool = False) -> RunRecord:
        with self._changing(), self._run(uid, exclusive=True) as folder:
            contents = folder.settle() if folder else None
            record = contents.record if contents else None
            alive = record is not None and record.worker is not None and self._alive(record.worker)
            record = claimed(record, uid, worker, allow, holder_alive=alive, alone=alone)
            assert folder is not None
            assert contents is not None
            folder.put(RunFile(record, contents.posted))
            return record

    def _post(self, uid: str, item: Item) -> bool:
        with self._run(uid, exclusive=True) as folder:
            if folder is None:
                return False
            contents = folder.settle()
            if contents.record.hidden or folder.is_used(contents, item.key):
                return False
            check_takes(contents.record)
            folder.post(contents, item, woken(contents.record) if item.wakes else contents.record)
            return True

    def _rewrap(self, write: Rewrap) -> bool:
        with self._run(write.uid, exclusive=True) as folder:
            contents = folder.settle() if folder else None
            if folder is None or contents is None or contents.record.key_blob != write.old:
                return False
            record = replace(contents.record, key_id=write.key_id, key_blob=write.key_blob)
            folder.put(RunFile(record, contents.posted))
            return True

    def beat(self, worker: str, lease: float) -> None:
        if not lease:
            self._retire(worker)
            return
        with self._root.translated(), self._beating:
            if worker in self._locks.workers():
                self._locks.restore(worker)
            else:
                self._enlist(worker)
            # Not synced: no worker lives on after a power failure.
            term = term_text(Term.of(self.clock, lease))
            replace_file(self._disk, self._in("workers", worker + ".json"), term, sync=False)

    def _enlist(self, worker: str) -> None:
        """Take the lock of a new worker, and forget those whose processes have ended."""
        self._locks.hold(worker)
        for gone in self._locks.ended():
            with suppress(FileNotFoundError):
                self._disk.unlink(self._in("workers", gone + ".json"))
            self._locks.release(gone)

    def workers(self) -> list[Enlisted]:
        with self._root.translated():
            found = sorted(os.listdir(self._in("workers"))) if os.path.isdir(self._in("workers")) else []
            names = [name.removesuffix(".json") for name in found if name.endswith(".json")]
            try:
                terms = {name: term for name in names if (term := self._term(name)) is not None}
            except Damage as damage:
                raise StoreDamaged(self.place, f"a file in workers/ is damaged ({damage}); remove it") from None
            return [term.enlisted(name, self.clock, self._locks.is_running(name)) for name, term in terms.items()]

    def _retire(self, worker: str) -> None:
        with self._changing():
            with suppress(FileNotFoundError):
                self._disk.unlink(self._in("workers", worker + ".json"))
            self._locks.release(worker)

    def _term(self, worker: str) -> Term | None:
        """Until when the leases of a worker hold, if it has any; raises `Damage`."""
        try:
            with open(self._in("workers", worker + ".json"), "rb") as file:
                return read_term(file.read())
        except FileNotFoundError:
            return None

    def _alive(self, worker: str) -> bool:
        """Whether a worker lives. If its file is missing or damaged, only the lock that it holds says so."""
        running = self._locks.is_running(worker)
        try:
            term = self._term(worker)
        except Damage:
            term = None
        return bool(running) if term is None else term.is_live(self.clock, running)

    # --- whole runs

    def _create(self, write: Create) -> RunRecord | HoldfastError:
        record = _ending(write.record, write.entries)
        with self._root.locked():
            self._tidy()
            existing = self._get(record.id)
            if existing is not None:
                with self._named(record.id).lock(exclusive=True):
                    self._named(record.id).settle()  # its creator may have died before it was lasting
                return existing
            if record.uid in self._paths and self._exists(record.uid):
                return RunExists(record.id, f"the uid {record.uid} is that of another run")
            for link in record.lineage:
                if not self._exists(link.uid):
                    return RunNotFound(link.id, "it was deleted, so it cannot be forked")
            self._settle_in(record, [line_text(record.epoch, record.worker, write.entries)], (), ())
            return record

    def _adopt(
        self, record: RunRecord, entries: Sequence[Entry], items: Sequence[Item], taken: Sequence[str]
    ) -> HoldfastError | None:
        with self._root.locked():
            self._tidy()
            named = None if record.hidden else self._get(record.id)
            if named is not None and named.uid != record.uid:
                return RunExists(record.id)
            if not all(self._exists(link.uid) for link in record.lineage):
                return RunNotFound(record.id, "the run that it was forked from is not in this store")
            lines = [line_text(record.epoch, record.worker, [entry]) for entry in entries]
            with self._run(record.uid, exclusive=True) as folder:
                here = folder.settle().record if folder is not None else None
                if folder is not None and adoptable(here, record, entries):
                    self._unhide(folder, record)
                    folder.replace(_ending(record, entries), lines, items, taken)
                    return None
            self._settle_in(_ending(record, entries), lines, items, taken)
            return None

    def _end_move(self, write: EndMove) -> bool:
        with self._run(write.uid, exclusive=True) as folder:
            contents = folder.settle() if folder else None
            if folder is None or contents is None:
                return False
            record = move_ended(contents.record, write, {item.key: item.wakes for item in folder.items()})
            if record is not None:
                folder.put(RunFile(record, contents.posted))
            return record is not None

    def delete(self, records: Sequence[RunRecord]) -> list[bool | HoldfastError]:
        """See `Store.delete`. Each is deleted by itself, so that others can go on in between."""
        self._root.check_usable()
        return each_deleted(records, self._delete)

    def _delete(self, expected: RunRecord) -> bool:
        uid = expected.uid
        with self._changing(), self._root.locked():
            self._tidy()
            with self._run(uid, exclusive=True) as folder:
                if folder is None:
                    return False
                contents = folder.settle()
                record, wanted = contents.record, False
                if not record.hidden:
                    alive = record.worker is not None and self._alive(record.worker)
                    wanted = may_delete(record, expected, holder_alive=alive)
                    if not wanted:
                        return False
                if not self._is_shared(folder, uid):
                    self._remove(folder)
                else:
                    if wanted:
                        folder.put(RunFile(replace(record, hidden=True, worker=None), contents.posted))
                    self._hide(folder)
            self._sweep()
            return wanted


def _ending(record: RunRecord, entries: Sequence[Entry]) -> RunRecord:
    """The record of a run that has these entries."""
    if not entries:
        return replace(record, seq=record.base - 1, hash=record.root, updated_at=record.created_at, state=None)
    return ending(record, entries)
