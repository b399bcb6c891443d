"""Moving runs into another store, while others work.

1. A run is **claimed** at the source, so that nobody drives it meanwhile. One that has ended, or was never begun, is
   not: then it departs only if nobody has claimed it since it was read, and is copied again if somebody has.
2. It is **copied** into the target as it is stored, payloads, keys and all, as a run that is `Status.AWAY`: nobody can
   claim it there or write to it, and whoever moves runs from there leaves it alone.
3. The copy is read back, and **verified** by its hash chain.
4. The run **departs**: at the source it is marked as away. That is the moment at which it has moved. From then on
   nothing can be written to it there, also not into its inbox.
5. It **arrives**: what came into its inbox during the copying is copied, too, and the copy becomes what the run was.
6. The mark at the source is **settled**, so that it may be deleted.

Who dies before 4 leaves the run where it was, and beside it a copy that nobody lives in. Who dies after it leaves two
that nobody lives in, and whoever moves next from here to there goes on with 5. So there are never two that live.

Runs that were started as parts of others move together with them: all of them are claimed first; parts depart before,
and arrive after, what they are parts of. So whoever drives a run finds its parts, and a part the run to be told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.access.client import Client, OpenStore
from holdfast.engine.access.engine import Engine
from holdfast.engine.access.operations import Listen, Op, Read
from holdfast.engine.admin.backup import Archived, archived_run
from holdfast.engine.admin.move_documents import beside, move_documents
from holdfast.engine.argument_checks import check_options, check_texts, micros_of, statuses_of, tags_of
from holdfast.errors import (
    Claimed,
    HoldfastError,
    InboxNotEmpty,
    LeaseLost,
    Moved,
    RunBlocked,
    RunDamaged,
    StoreError,
    UsageError,
    shown,
)
from holdfast.kernel.model import ENDED, Adopt, Append, Change, EndMove, Filter, Kind, RunRecord, Status
from holdfast.kernel.rules import ANY, departed, matches, moved
from holdfast.stores.protocol import Store, write_one
from holdfast.views import LeftBehind, MoveReport

LOOK_AGAIN = 1.0  # seconds after which runs that somebody held are tried again, at the latest
PAGE = 500

Progress = Callable[[int, int, str], None]


class Family(Struct, frozen=True):
    """Runs that move together, those before their parts: uids and ids."""

    uids: tuple[str, ...]
    ids: tuple[str, ...]


class Mover:
    """Moves runs from the store of an engine into another one."""

    def __init__(self, engine: Engine, target: Store) -> None:
        self._engine = engine
        self._source = engine.store
        self._target = target

    # --- which runs

    def plan(self, filter: Filter) -> list[Family]:
        """The runs that the filter finds, with their families, oldest first; and those whose move was broken off."""
        ids: dict[str, str] = {}
        parents: dict[str, str] = {}
        wanted: list[str] = []
        for record in _all(self._source, Filter()):
            ids[record.uid] = record.id
            if record.parent is not None:
                parents[record.uid] = record.parent
            if departed(record) or (record.status is not Status.AWAY and matches(record, filter)):
                wanted.append(record.uid)
        parts: dict[str, list[str]] = {}
        for uid in sorted(parents):
            parts.setdefault(parents[uid], []).append(uid)
        roots = dict.fromkeys(_root(uid, parents, ids) for uid in sorted(wanted))
        families = [_with_parts(root, parts) for root in roots]
        return [Family(tuple(uids), tuple(ids[uid] for uid in uids)) for uids in families]

    def tidy(self) -> None:
        """Remove copies from the target that a move left there, and whose runs were deleted, or went elsewhere."""
        for record in list(_all(self._target, Filter(statuses=(Status.AWAY,)))):
            if record.was is Status.AWAY and record.away == self._source.place:
                there = self._source.get(uid=record.uid)
                gone = there is not None and there.status is Status.AWAY and there.was is None
                if there is None or there.hidden or (gone and there.away != self._target.place):
                    self._target.delete([record])  # unless it was let live there just now

    # --- one family

    def move(self, family: Family) -> list[str]:
        """Move the runs of a family; the ids of those that were. Raises `Claimed` if somebody holds one of them."""
        held: dict[str, tuple[RunRecord, RunRecord]] = {}  # each as it was before it was claimed, and since
        try:
            uids = self._claim_all(family.uids, held)
            for uid in uids:
                self._copy(uid, *held.get(uid, (None, None)))
            for uid in reversed(uids):
                if uid in held:
                    self._depart(*held[uid])
                    del held[uid]
        finally:
            self._give_back(held)
        found = [self._source.get(uid=uid) for uid in uids]
        gone = [record for record in found if record is not None and departed(record)]
        arrived = [self._arrive(record) for record in gone]
        for record in reversed(gone):
            write_one(self._source, EndMove(record.uid, epoch=record.epoch))
        return [id for id in arrived if id is not None]

    def _claim_all(self, uids: Sequence[str], held: dict[str, tuple[RunRecord, RunRecord]]) -> list[str]:
        """Claim these and the parts that they got meanwhile; the uids of all that are to be moved."""
        worker, pending, found = self._engine.worker.ready(), list(uids), dict[str, None]()
        while pending:
            uid = pending.pop(0)
            before = self._source.get(uid=uid)
            if uid in found or before is None or before.hidden:
                continue
            if before.status is Status.AWAY:
                if before.was is None:
                    continue  # it was moved already
                if not departed(before):
                    raise RunBlocked(before.id, f"it is on its way here from {before.away}; move it from there first")
                if before.away != self._target.place and self._target.get(uid=uid) is None:
                    raise moved(before)  # to somewhere else, which is to be finished first
            elif before.status in ENDED or (before.epoch == 0 and before.worker is None):
                held[uid] = before, before
            else:
                held[uid] = before, self._source.claim(uid, worker, ANY)
                if held[uid][1].epoch != before.epoch + 1:
                    raise Claimed(before.id, "somebody held it just now")
            found[uid] = None
            if self._has_parts(before):
                pending += [part.uid for part in _all(self._source, Filter(parent=uid))]
        return list(found)

    def _has_parts(self, record: RunRecord) -> bool:
        newest = self._source.read(record.uid, record.base, record.seq, saved=False, payloads=False)
        return any(entry.kind == Kind.CHILD for entry in newest)

    def _copy(self, uid: str, before: RunRecord | None, claimed: RunRecord | None) -> None:
        """Put a copy of the run into the target, in which nobody lives, and verify it there."""
        here = self._target.get(uid=uid)
        if before is None and not self._is_waiting(here):
            return  # it departed before, and it has arrived
        whole = self._whole(uid)
        record = whole.record if before is None or claimed is None else _departed(before, claimed, "")
        self._adopt(self._as_copy(record), whole)

    def _adopt(self, record: RunRecord, whole: Archived) -> None:
        for link in record.lineage:
            self._bring_ancestor(record, link.uid, link.upto)
        write_one(self._target, Adopt(record, whole.entries, whole.items, whole.taken))
        there = archived_run(self._target, record.uid)  # it verifies what it reads
        root = self._target.read(record.lineage[-1].uid, record.base - 1, record.base - 1) if record.lineage else []
        roots = [entry.hash for entry in root] if record.lineage else [record.root]
        if there is None or there.record.hash != whole.record.hash or roots != [record.root]:
            raise RunDamaged(record.id, f"its copy in {self._target.place} is not what was copied; move it again")

    def _bring_ancestor(self, record: RunRecord, uid: str, upto: int) -> None:
        """Bring a journal along that the run's history begins in; hidden, where that run itself does not live."""
        here = self._target.get(uid=uid)
        if here is not None and here.seq >= upto:
            return
        whole = archived_run(self._source, uid)
        if whole is None:
            raise RunDamaged(record.id, "a run that its history begins in is missing; restore it from a backup")
        stub = replace(whole.record, worker=None, hidden=True, was=None)
        if here is not None and not here.hidden:  # where it went from here is still to be told
            stub = replace(stub, hidden=False, status=here.status, away=here.away, was=here.was)
        write_one(self._target, Adopt(stub, whole.entries))

    def _depart(self, before: RunRecord, claimed: RunRecord) -> None:
        """Mark the run at the source, for good: from now on it does not live there."""
        after = _departed(before, claimed, self._target.place)
        change = Change(
            status=after.status,
            release=True,
            wake_at=after.wake_at,
            reason=after.reason,
            away=after.away,
            was=after.was,
        )
        self._write(claimed, change)

    def _give_back(self, held: Mapping[str, tuple[RunRecord, RunRecord]]) -> None:
        """Leave the runs that did not depart as they were."""
        for before, claimed in held.values():
            if claimed.worker is None:
                continue
            status = Status.READY if before.status is Status.RUNNING else before.status
            change = Change(status=status, release=True, wake_at=before.wake_at, reason=before.reason)
            try:
                self._write(claimed, change)
            except InboxNotEmpty:  # it came while the run was held here: whoever claims it takes it in
                self._write(claimed, Change(status=Status.READY, release=True))
            except LeaseLost:
                continue  # somebody else has it now

    def _write(self, claimed: RunRecord, change: Change) -> None:
        write_one(self._source, Append(claimed.uid, claimed.id, claimed.epoch, claimed.worker or "", (), change))

    def _arrive(self, record: RunRecord) -> str | None:
        """Let a run that departed live in the target; its id, if it does. At the source it can no longer change."""
        uid, arriving = record.uid, self._as_copy(record)
        mail = [item.key for item in self._source.inbox(uid)]
        while self._is_waiting(self._target.get(uid=uid)):
            if not self._is_copy(arriving):
                self._adopt(arriving, self._whole(uid))
            if write_one(self._target, EndMove(uid, epoch=record.epoch, here=record.was, mail=mail)):
                return record.id
        return None  # somebody else let it

    def _as_copy(self, record: RunRecord) -> RunRecord:
        """What the target has until the run arrives. Whoever moves runs from there does not take it for one of them."""
        return replace(record, away=self._source.place, was=Status.AWAY)

    def _is_waiting(self, copy: RunRecord | None) -> bool:
        """Whether it is a copy from here, that is to become the run."""
        if copy is None or copy.hidden or copy.status is not Status.AWAY:
            return False
        return copy.was is Status.AWAY and copy.away == self._source.place

    def _is_copy(self, record: RunRecord) -> bool:
        """Whether the target has just this, with the same inbox."""
        uid, source, target = record.uid, self._source, self._target
        same = target.get(uid=uid) == record and target.inbox(uid) == source.inbox(uid)
        return same and target.inbox(uid, taken=True) == source.inbox(uid, taken=True)

    def _whole(self, uid: str) -> Archived:
        whole = archived_run(self._source, uid)
        assert whole is not None, "what is held, or away, is not deleted"
        return whole


def _departed(before: RunRecord, claimed: RunRecord, place: str) -> RunRecord:
    """The record after the run departed, as it was before it was claimed for that."""
    was = Status.READY if before.status is Status.RUNNING else before.status
    kept = replace(claimed, wake_at=before.wake_at, reason=before.reason, worker=None, crashes=0)
    return replace(kept, status=Status.AWAY, away=place, was=was)


def _root(uid: str, parents: Mapping[str, str], known: Collection[str]) -> str:
    while uid in parents and parents[uid] in known:
        uid = parents[uid]
    return uid


def _with_parts(root: str, parts: Mapping[str, Sequence[str]]) -> list[str]:
    found = [root]
    for uid in found:  # which grows
        found += parts.get(uid, ())
    return found


def _all(store: Store, filter: Filter) -> Iterator[RunRecord]:
    before = None
    while page := store.find(filter, before=before, limit=PAGE):
        before = page[-1].uid
        yield from page


# --- what users call


def move(
    client: Client,
    to: OpenStore,
    *,
    status: Status | str | Collection[Status | str] | None = None,
    workflow: str | None = None,
    tags: Mapping[str, str] | None = None,
    prefix: str | None = None,
    created_from: datetime | None = None,
    created_before: datetime | None = None,
    timeout: float | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Op[MoveReport]:
    """Move runs into another open store, one after the other, while others work; all, or those that are asked for.

    With a run go its children and what started it, and the journals that its history begins in. From then on it is
    ``away`` here: it can be read, and whatever else is wanted of it raises `Moved`. A run that somebody holds is waited
    for, up to ``timeout`` seconds. Where all runs are moved, schedules are moved, too, and what is set about queues is
    copied. A move that was broken off is finished by the next one. ``progress(done, total, id)`` is called for each.
    """
    target = _target(client, to)
    check_texts(workflow=workflow, prefix=prefix)
    check_options(timeout=timeout)
    filter = Filter(
        statuses=statuses_of("status", status),
        workflow=workflow,
        tags=tuple(sorted(tags_of(tags).items())),
        prefix=prefix,
        created_from=micros_of("created_from", created_from),
        created_before=micros_of("created_before", created_before),
    )
    mover, everything = Mover(client.engine, target.store), filter == Filter()
    report = MoveReport(dry_run=dry_run)
    if everything:
        report = yield from move_documents(client, target, timeout=timeout, dry_run=dry_run)
    families = yield beside(client, target, lambda: mover.plan(filter))
    if dry_run:
        return replace(report, moved=tuple(id for family in families for id in family.ids))
    yield beside(client, target, mover.tidy)
    return (yield from _move_all(client, target, mover, families, report, timeout, progress or _unseen))


def _move_all(
    client: Client,
    to: Client,
    mover: Mover,
    families: list[Family],
    report: MoveReport,
    timeout: float | None,
    progress: Progress,
) -> Op[MoveReport]:
    """Move the families; those that somebody holds are tried again until the time is over."""
    gone: list[str] = []
    left = list(report.left)
    total, done = sum(len(family.ids) for family in families), 0
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        heard = yield Read(client.engine.bell.heard)
        held: list[tuple[Family, HoldfastError]] = []
        for family in families:
            try:
                gone += yield beside(client, to, lambda family=family: mover.move(family))  # type: ignore[misc]
            except StoreError:
                raise
            except HoldfastError as error:  # of this one run, and it says what to do; the others go on
                elsewhere = isinstance(error, Moved) and error.place != to.place
                if isinstance(error, Claimed | LeaseLost) and not elsewhere:
                    held.append((family, error))
                    continue
                left += _left(family, error)
            to.engine.bell.ring()
            done += len(family.ids)
            progress(done, total, family.ids[0])
        families = [family for family, _ in held]
        wait = LOOK_AGAIN if until is None else min(LOOK_AGAIN, until - time.monotonic())
        if not families or wait <= 0:
            left += [one for family, error in held for one in _left(family, error)]
            return replace(report, moved=tuple(gone), left=tuple(left))
        yield Listen(client.engine.bell, heard, wait)


def _left(family: Family, error: HoldfastError) -> list[LeftBehind]:
    return [LeftBehind(id, str(error), type(error).__name__) for id in family.ids]


def _unseen(done: int, total: int, id: str) -> None:
    """The progress of a move that nobody watches."""


def _target(client: Client, to: Any) -> Client:
    """What is moved to; ``to`` is the handle that `holdfast.open` gave."""
    target = getattr(to, "client", None)
    if not isinstance(target, Client):
        raise UsageError(f"{shown('to', to)}: takes another open store, as holdfast.open gives it")
    alone = client.place == "memory://"  # which many stores are called
    if target.store is client.store or (target.place == client.place and not alone):
        raise UsageError(f"runs cannot be moved from {client.place} to itself")
    return target
