"""Deleting a run."""

from __future__ import annotations

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read
from holdfast.errors import HoldfastError, RunBlocked
from holdfast.kernel.model import Status
from holdfast.kernel.rules import moved


def delete(run: HeldRun) -> Op[bool]:
    """Delete the run; False if it was gone already. While forks share its history, the entries stay for them.

    Raises `Claimed` while a live worker holds it, and `RunBlocked` in the middle of a rollback: its journal says
    which effects are still there.
    """
    while (record := (yield Read(run.store.get, uid=run.uid))) is not None:
        if record.rollback is not None and record.status is Status.BLOCKED:
            raise RunBlocked(run.id, f"{record.reason}. Deleting it would forget what was not undone")
        if record.was is not None and not record.hidden:
            raise moved(record)
        [outcome] = yield Read(run.store.delete, [record])
        if isinstance(outcome, HoldfastError):
            raise outcome
        if outcome or record.hidden:
            return bool(outcome)
    return False
