"""Letting a blocked run continue."""

from __future__ import annotations

from holdfast.engine.access.held_run import HeldRun, as_before, resting_status
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.control.rollback import roll_back
from holdfast.engine.workflow.replay import DIFFERS
from holdfast.errors import UsageError
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Change, Kind, Status
from holdfast.kernel.rules import ANY


def unblock(run: HeldRun, *, accept: bool = False, by: str | None = None) -> Op[None]:
    """Let a blocked run continue; who did it is journaled. One that is blocked in its rollback retries that.

    ``accept`` is for a run that is blocked because its code no longer does what was recorded: it continues with
    what the code does now. Recorded calls that the code still asks for keep their results, all others are left
    aside; a finished step that is called under another key is executed again.
    """
    record = yield Read(run.read_record)
    if record.status is not Status.BLOCKED:
        raise UsageError(f"run {run.id!r} is {record.status}, not blocked")
    if accept and not (record.reason or "").startswith(DIFFERS):
        raise UsageError(
            f"run {run.id!r} is blocked for another reason than code that differs from what was recorded "
            f"({record.reason}), so there is nothing to accept; call run.unblock()"
        )
    if record.rollback is not None:
        yield from roll_back(run, None, {}, by=by)
        return
    lease = yield from run.claim(ANY)
    change = Change(status=resting_status(lease.fold, lease.record), release=True)
    try:
        data: Data = {"by": by, "reason": record.reason and run.codec.scrub(record.reason)} | (
            {"accepted": True} if accept else {}
        )
        yield from run.write_last(lease, [(Kind.UNBLOCKED, data)], change)
    except BaseException:  # also an interrupt: whatever it is, the claim is given up
        yield from run.release(lease, as_before(record))
        raise
    run.forget(lease)
