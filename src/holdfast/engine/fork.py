"""Forking: a new run that shares the past of another one. Nothing is copied, and no lease is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.clock import new_uid
from holdfast.engine.checks import check_seq
from holdfast.engine.drive import Op, Read, Settle
from holdfast.errors import RunExists
from holdfast.journal import Data, fork_lineage, fork_rewinds, next_entry
from holdfast.model import Create, Kind, RunRecord, Status
from holdfast.stores.base import check_id

if TYPE_CHECKING:
    from holdfast.engine.run import Run


def fork(run: Run, at: int | None = None, *, id: str | None = None) -> Op[Run]:
    """A new run that shares this one's history up to ``at`` (by default: all of it) and then goes its own way."""
    check_seq("at", 0 if at is None else at)
    record = yield Read(run._record)
    point = record.seq if at is None else at
    origin, shared = yield Read(lambda: run._journals.entry(record, point))
    uid = new_uid(run._store.clock)
    fork_id = check_id(id if id is not None else f"{run.id[:490]}.fork-{uid[-8:]}")
    state = shared.seq if shared.kind == Kind.SAVED else shared.state
    now = run._store.clock.now()
    key = run._journals.new_key(uid)
    data: Data = {"from": record.id, "origin": origin, "at": point}
    payload = run._journals.seal(uid, key is not None, f"{point + 1}/{Kind.FORKED}", data, "fork")
    entry = next_entry(shared.hash, point + 1, Kind.FORKED, now, state, payload)
    waiting = shared.kind == Kind.ASKED or (point == record.seq and record.status is Status.WAITING)
    child = RunRecord(
        uid=uid,
        id=fork_id,
        created_at=now,
        root=shared.hash,
        base=point + 1,
        workflow=record.workflow,
        tags=record.tags,
        lineage=fork_lineage(record, point),
        key_id=key.key_id if key else None,
        key_blob=key.blob if key else None,
        status=Status.WAITING if waiting else Status.READY,
        rewinds=fork_rewinds(record, point),
    )
    made = yield Settle(run._committer.submit(Create(child, (entry,))))
    if made.uid != uid:
        raise RunExists(fork_id, "a run with this id exists already; choose another id")
    return run._sibling(fork_id, uid)
