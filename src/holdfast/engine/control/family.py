"""The children of a run: which there are, and which one keeps their parent waiting."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Op, Read
from holdfast.kernel.model import ENDED, Filter, RunRecord, Status
from holdfast.kernel.rules import LIVE
from holdfast.stores.protocol import Store

if TYPE_CHECKING:
    pass


def open_children(run: HeldRun) -> Op[list[HeldRun]]:
    """The children that the run started, also before it began anew, and that have not ended."""
    going = Filter(parent=run.uid, statuses=tuple(frozenset(Status) - ENDED - {Status.AWAY}))
    found = yield Read(run.store.find, going, limit=100_000)
    return [run.sibling(record.id, record.uid) for record in found]


def broken_children(run: HeldRun, lease: Lease, keys: list[str]) -> Op[list[HeldRun]]:
    """The children to try again together with the run: those that made it fail, and those cancelled with it."""
    return (yield from _children(run, lease, keys, {Status.FAILED, Status.CANCELLED}))


def _children(run: HeldRun, lease: Lease, keys: list[str], statuses: Collection[Status]) -> Op[list[HeldRun]]:
    """The children of these statuses whose end the workflow did not see yet, or is to forget: those of the keys."""
    found: list[HeldRun] = []
    for key, known in lease.fold.children.items():
        if key not in keys and lease.fold.is_settled(key):
            continue
        record = yield Read(run.store.get, known.id)
        if record is not None and record.parent == run.uid and record.status in statuses:
            found.append(run.sibling(record.id, record.uid))
    return found


def next_move(run: HeldRun) -> Op[int | None]:
    """When the first of the run's descendants that have not ended can go on; None if none can by itself."""
    moments: list[int] = []
    held: set[str] = set()
    pending = [run.uid]
    while pending:
        live = Filter(parent=pending.pop(), statuses=tuple(LIVE))
        for record in (yield Read(run.store.find, live, limit=100_000)):
            pending.append(record.uid)
            if record.status is Status.RUNNING:
                held.add(record.uid)
            elif record.wake_at is not None:
                moments.append(record.wake_at)
            elif record.status is Status.READY and record.reason is None:  # with one, it waits for another process
                moments.append(record.created_at)
    if held:
        dead = yield Read(run.store.find, Filter(orphaned=True), limit=100_000)
        moments += [record.created_at for record in dead if record.uid in held]
    return min(moments, default=None)


def blocked_below(store: Store, uid: str) -> RunRecord | None:
    """A blocked run among the descendants of one that waits, if there is one: it waits for that."""
    pending = [uid]
    while pending:
        waits = Filter(parent=pending.pop(), statuses=(Status.BLOCKED, Status.WAITING))
        for record in store.find(waits, limit=100_000):
            if record.status is Status.BLOCKED:
                return record
            pending.append(record.uid)
    return None


def blocked_child(run: HeldRun, record: RunRecord) -> Op[RunRecord | None]:
    """The blocked child that a waiting run waits for, if there is one."""
    if record.status is not Status.WAITING or record.queue is None:
        return None
    return (yield Read(blocked_below, run.store, record.uid))  # type: ignore[no-any-return]


def waits_for_blocked(child: RunRecord) -> str:
    """Why a run waits whose child is blocked."""
    return f"waits for its child {child.id!r}, which is blocked: {child.reason}"
