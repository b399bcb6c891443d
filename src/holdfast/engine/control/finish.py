"""How a drive ends: each way is written to the journal in one go with the lease being given up."""

from __future__ import annotations

from typing import Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.control.cancel_requests import cancel_request, cancel_request_keys
from holdfast.engine.control.rollback import REFUSALS, begin_rollback
from holdfast.engine.log import INFO, WARNING, tell
from holdfast.engine.workflow.execution import Execution
from holdfast.engine.workflow.failures import account_of
from holdfast.engine.workflow.inputs import Input
from holdfast.errors import InboxNotEmpty, UndoFailed, ValueRefused
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Change, Kind, Status

# Of the input, when a workflow begins anew.
CARRIED_ON = ("version", "module", "deadline", "seconds", "parent", "depth", "trace")


def suspend(run: HeldRun, execution: Execution) -> Op[Status]:
    lease = execution.lease
    waited = set(execution.waits)
    closed = [
        (Kind.CLOSED, {"question": seq})
        for seq, asked in lease.fold.questions.copy().items()
        if asked.key is not None and asked.key not in waited
    ]
    status = Status.READY if execution.stirred else Status.WAITING
    change = Change(status=status, release=True, wake_at=None if execution.stirred else execution.soonest())
    yield from run.write(lease, closed, change=change)
    run.forget(lease)
    execution.engine.bell.ring()
    record = yield Read(run.read_record)
    return record.status  # type: ignore[no-any-return]


def park(run: HeldRun, lease: Lease, reason: str) -> Op[Status]:
    tell(WARNING, "run.blocked", "run {run}: blocked: {reason}", run=run.id, reason=reason)
    yield from run.release(lease, Change(status=Status.BLOCKED, release=True, reason=reason))
    run.engine.bell.ring()
    return Status.BLOCKED


def fail(run: HeldRun, execution: Execution, error: Exception) -> Op[Status]:
    lease = execution.lease
    data = account_of(error, execution.codec, run.journals.max_bytes)
    text = data["error"]
    data["keys"] = _causes(error, execution.failed)
    data |= next((at for known, at in execution.failed_at if known is error), {})
    tell(WARNING, "run.failed", "run {run}: failed: {error}", run=run.id, error=text)
    if execution.workflow.on_failure == "rollback" or wants_rollback(error):
        try:
            return (yield from end_by_rollback(run, lease, {"failure": data}, Status.FAILED))
        except UndoFailed:
            return Status.BLOCKED
        except REFUSALS as refused:
            why = "" if lease.record.key_id is not None else f" ({text})"  # a reason stands in the clear
            return (yield from park(run, lease, f"it failed{why}, and cannot be rolled back: {refused}"))
    return (yield from end(run, lease, Kind.FAILED, data))


def wants_rollback(error: Exception) -> bool:
    """Whether an error says by itself that what was done is to be undone, as that of a flow's step may."""
    return bool(getattr(error, "wants_rollback", False))


def _causes(error: BaseException, failed: list[tuple[BaseException, str]]) -> list[str]:
    """The keys of the calls whose errors made the run fail.

    What led to a call's own error is not looked at: the workflow had caught it, and called something else.
    """
    found: set[str] = set()
    seen: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or any(one is known for known in seen):
            continue
        seen.append(one)
        keys = {key for known, key in failed if known is one}
        found |= keys
        if not keys:
            pending += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            pending += [one.__cause__ or one.__context__]
    return sorted(found)


def end_by_rollback(
    run: HeldRun, lease: Lease, ending: Data, status: Status, took: tuple[str, ...] = (), *, force: bool = False
) -> Op[Status]:
    try:
        beginning = max(lease.record.chapter, lease.record.base)
        yield from begin_rollback(run, lease, beginning, ending, took, force=force)
    except REFUSALS:  # nothing was done yet
        raise
    except BaseException:  # whatever it is, the run is given up, and it is raised
        yield from run.release(lease)
        raise
    status = lease.fold.ended[0] if lease.fold.ended is not None else status  # somebody may have cancelled it meanwhile
    yield from run.notify_parent(lease)
    yield from run.release(lease)
    _tell_end(run, status)
    run.engine.bell.ring()
    return status


def go_on_anew(run: HeldRun, execution: Execution, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Op[Status]:
    lease = execution.lease
    try:
        given = Input.of(execution.codec, execution.workflow, args, kwargs)
    except ValueRefused as error:
        return (yield from fail(run, execution, error))
    before = lease.fold.input
    data: Data = {"definition": given.digest, "args": given.args, "kwargs": given.kwargs}
    data |= {name: before[name] for name in CARRIED_ON if name in before}
    data["before"] = lease.record.chapter
    data["messages"] = [[one.seq, one.topic, one.value, one.by] for one in lease.fold.mailbox]
    change = Change(status=Status.READY, release=True, chapter=lease.seq + 1)
    try:
        yield from run.write(lease, [(Kind.CONTINUED, data)], change=change)
    except ValueRefused as error:
        return (yield from fail(run, execution, error))
    run.forget(lease)
    return Status.READY


def end(run: HeldRun, lease: Lease, kind: Kind, data: Data, took: tuple[str, ...] = ()) -> Op[Status]:
    """Write that the run has ended, tell its parent, and release the claim.

    An end is refused while the inbox holds something: that was acknowledged, so it comes first. A cancel that was
    acknowledged before the end decides how the run ends.
    """
    status = Status(kind.value)
    is_child = "parent" in lease.fold.input
    released = Change(status=status, release=True)
    change = Change(final=True) if is_child else released
    while True:
        try:
            yield from run.write(lease, [(kind, data)], change=change, took=took, what="result")
            break
        except InboxNotEmpty:
            yield from run.catch_up(lease)
            yield from run.drain(lease)
        if status is Status.CANCELLED:
            took = yield from cancel_request_keys(run)
        elif wish := (yield Read(lambda: cancel_request(run, run.store.inbox(run.uid)))):
            return (yield from run.engine.upcalls.cancel(run, lease, wish))
    if is_child:
        yield from run.notify_parent(lease)
        yield from run.release(lease, released)
    else:
        run.forget(lease)
    _tell_end(run, status)
    run.engine.bell.ring()
    return status


def _tell_end(run: HeldRun, status: Status) -> None:
    if status is not Status.FAILED:  # that was told before, with its error
        tell(INFO, f"run.{status}", "run {run}: {status}", run=run.id, status=str(status))
