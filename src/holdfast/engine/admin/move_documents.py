"""Moving schedules into another store, and copying what is set about queues.

A schedule goes as a run does: a copy that begins nothing, the mark at the source (the moment at which it has moved),
then the copy becomes what it was. It departs only when its next tick is still to come: who read it before that moment,
however slow, has nothing to begin. What is due is begun at the source first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.engine.access.client import Client
from holdfast.engine.access.offload import aside
from holdfast.engine.access.operations import Call, Nap, Op, Read, Request
from holdfast.engine.worker import queues, schedules
from holdfast.engine.worker.schedules import Plan
from holdfast.errors import HoldfastError, ScheduleMoved, StoreDamaged, StoreError
from holdfast.kernel.clock import new_uid
from holdfast.kernel.model import Document
from holdfast.stores.protocol import Store, find_document
from holdfast.views import LeftBehind, MoveReport

AHEAD = 500_000  # microseconds that a tick must be away: more than clocks on the way to a store differ
SOON = 0.1  # seconds until one that is too near is looked at again


def move_documents(client: Client, to: Client, *, timeout: float | None, dry_run: bool) -> Op[MoveReport]:
    """Move all schedules, and copy what is set about queues where nothing is; what was moved, and what was left."""
    source, target = client.store, to.store
    names = yield beside(client, to, lambda: _copy_queues(source, target, dry_run))
    found = yield Read(source.documents, schedules.KIND)
    moved: list[str] = []
    left: list[LeftBehind] = []
    until = None if timeout is None else time.monotonic() + timeout
    for document in found:
        id = document.name
        try:
            plan = schedules.read_plan(source, document)
            if plan.away is not None and (plan.was_paused is None or plan.arriving):
                continue  # it is not here: it was moved, or is on its way here
            if dry_run or (yield from _move(client, to, id, until)):
                moved.append(id)
        except HoldfastError as error:  # of this one schedule; the others go on
            if isinstance(error, StoreError) and not isinstance(error, StoreDamaged):
                raise
            left.append(LeftBehind(id, str(error), type(error).__name__))
    if not dry_run:
        yield beside(client, to, lambda: _tidy(source, target))
    return MoveReport(queues=names, schedules=tuple(moved), left=tuple(left), dry_run=dry_run)


def beside(client: Client, to: Client, act: Callable[[], Any]) -> Request:
    """Do something with both stores, off the event loop if one of them is across a network."""
    if not client.is_async:
        return Read(act)
    return Call(aside, (to.store if to.store.networked else client.store, act), {})


def _copy_queues(source: Store, target: Store, dry_run: bool) -> tuple[str, ...]:
    """Copy what is set about queues, where nothing is; of which."""
    copied: list[str] = []
    for document in source.documents(queues.KIND):
        if find_document(target, queues.KIND, document.name) is None and (
            dry_run or target.put_document(queues.KIND, document.name, document.value, None)
        ):
            copied.append(document.name)
    return tuple(copied)


def _move(client: Client, to: Client, id: str, until: float | None) -> Op[bool]:
    """Move a schedule; False if it is gone."""
    source, target = client.store, to.store
    while True:
        document = yield Read(find_document, source, schedules.KIND, id)
        if document is None:
            return False
        plan, now = schedules.read_plan(source, document), source.clock.now()
        if plan.away is not None or plan.paused or plan.next_at > now + AHEAD:
            hand_over = partial(_hand_over, source, target, document, plan)
            if (yield beside(client, to, hand_over)):
                return True
        elif plan.next_at <= now:
            yield from schedules.fire_one(client.engine, document)
        else:
            yield Nap(source.clock, SOON)
        if until is not None and time.monotonic() > until:
            raise HoldfastError(f"schedule {id!r} is too busy to be moved now; move it again")


def _hand_over(source: Store, target: Store, document: Document, plan: Plan) -> bool:
    """Copy, mark, let it live there, settle. False if it was changed at the source meanwhile."""
    id = document.name
    if plan.away is None:
        gone = replace(plan, paused=True, away=target.place, was_paused=plan.paused, move=new_uid(source.clock))
        _put_copy(target, id, replace(gone, away=source.place, arriving=True))
        if not source.put_document(schedules.KIND, id, msgspec.json.encode(gone), document.version):
            return False
        plan = gone
    elif plan.away != target.place and find_document(target, schedules.KIND, id) is None:
        raise ScheduleMoved(id, plan.away, settled=False)  # to somewhere else, which is to be finished first
    schedules.change(target, id, partial(_arrived, plan))
    schedules.change(source, id, partial(_settled, plan))
    return True


def _put_copy(target: Store, id: str, copy: Plan) -> None:
    def put(here: Plan | None) -> Plan:
        if here is not None and here.away is None:
            raise HoldfastError(f"schedule {id!r}: one of this id is in {target.place} already; delete one of them")
        return copy

    schedules.change(target, id, put)


def _arrived(gone: Plan, copy: Plan | None) -> Plan | None:
    if copy is None or not copy.arriving or copy.move != gone.move:
        return None  # it has arrived before
    return replace(copy, paused=bool(copy.was_paused), away=None, was_paused=None, move=None, arriving=False)


def _settled(gone: Plan, now: Plan | None) -> Plan | None:
    if now is None or now.arriving or now.move != gone.move:
        return None  # somebody else has settled it, and it may even be back
    return replace(now, was_paused=None, move=None)


def _tidy(source: Store, target: Store) -> None:
    """Remove copies of schedules that were deleted at the source before they were moved."""
    for document in target.documents(schedules.KIND):
        plan = schedules.read_plan(target, document)
        ours = plan.arriving and plan.away == source.place
        if ours and find_document(source, schedules.KIND, document.name) is None:
            target.put_document(schedules.KIND, document.name, None, document.version)
