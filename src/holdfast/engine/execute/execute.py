"""Driving: a run that is held is carried on until it ends, has to wait, or somebody else has it.

Each drive is one `Execution`: the workflow's function is called from the top, in the way that it and its caller want
(on this thread, on the event loop, in a thread of its own), and `holdfast.engine.control.finish` writes how it ended.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Call, Op, Read, drive
from holdfast.engine.control.cancel import cancel_driven, cancel_losers
from holdfast.engine.control.cancel_requests import cancel_request
from holdfast.engine.control.finish import end, fail, go_on_anew, park, suspend, wants_rollback
from holdfast.engine.log import INFO, WARNING, tell
from holdfast.engine.workflow.declare import Workflow, namesakes, registered
from holdfast.engine.workflow.execution import Execution
from holdfast.engine.workflow.inputs import arguments_of
from holdfast.engine.workflow.outcomes import (
    Aborted,
    Cancelled,
    Continued,
    Expired,
    Outcome,
    Parked,
    Raised,
    Released,
    Returned,
    Suspended,
    Unwind,
)
from holdfast.engine.workflow.replay import DIFFERS, UNCHANGED, leftover
from holdfast.engine.workflow.scope import current_scope, driving
from holdfast.errors import (
    Claimed,
    DeadlinePassed,
    HoldfastError,
    LeaseLost,
    Redacted,
    RunBlocked,
    RunEnded,
    UsageError,
    ValueRefused,
    WorkflowMissing,
)
from holdfast.kernel.fold import Fold
from holdfast.kernel.model import Change, Kind, RunRecord, Status
from holdfast.kernel.rules import tries_alone

PATIENCE = 5.0  # seconds for a thread to come to a safe point, when whoever waits for it is cancelled


def drive_on(run: HeldRun, lease: Lease | None = None) -> Op[None]:
    """Drive the run until it ends, waits, is parked, or somebody else has it. A lease is that of a run just made."""
    is_new = lease is not None
    while True:
        if lease is None:
            try:
                lease = yield from run.claim(alone=not run.engine.executions)
            except (Claimed, RunEnded, RunBlocked, LeaseLost):
                return
        try:
            status = yield from execute(run, lease, is_new=is_new)
        except LeaseLost:  # while it was being cancelled or parked
            return
        if status is not Status.READY:
            return
        lease, is_new = None, False


def drive_taken(run: HeldRun, record: RunRecord) -> Op[None]:
    """Drive a run that was taken from its queue, once. If there is more to do then, it is due, and to be taken again.

    Who would go on with it without asking the queue would have one more than the queue's limits allow.
    """
    try:
        lease = yield from run.take_up(record, Change(status=Status.READY, release=True))
        yield from execute(run, lease)
    except (RunBlocked, RunEnded, LeaseLost):
        return


def unstick(run: HeldRun, record: RunRecord) -> Op[None]:
    """Let go of a run that this process could not let go of, since the store could not be written. Then it is due."""
    stuck = run.engine.stuck.pop(run.uid, None)
    if stuck is not None:
        yield from run.release(*stuck)


def give_back(run: HeldRun, record: RunRecord) -> Op[None]:
    """Give up a run that was taken from its queue, and not begun."""
    lease = Lease(record, run.journals, run.committer, Fold(run.id))
    yield from run.release(lease, Change(status=Status.READY, release=True))


def execute(run: HeldRun, lease: Lease, *, is_new: bool = False) -> Op[Status]:
    """One drive under the lease, which is given up in the end; the status that the run has then.

    Ready means that there is something new to go on with. In the inbox of one that was made just now there is nothing
    yet; of what comes in later it is told.
    """
    record = lease.record
    version = lease.fold.input.get("version")
    workflow = registered(record.workflow, version, lease.fold.input.get("module"))
    reason = missing(record.workflow, version) if workflow is None else None
    try:
        workflow = workflow.of_run(run.codec, lease.fold.input) if workflow is not None else None
    except UsageError as error:
        reason = str(error)
    if workflow is None or reason is not None:
        waits = Change(status=Status.READY, release=True, reason=f"waits for another process: {reason}")
        yield from run.release(lease, waits)
        raise WorkflowMissing(run.id, reason)
    if (tries := tries_alone(record) - 1) >= run.engine.max_crashes:
        reason = (
            f"its process died {tries} times in a row after entry {record.seq} while it executed nothing else; see "
            "what kills it, then run.unblock()"
        )
        return (yield from park(run, lease, reason))
    try:
        args, kwargs = arguments_of(run, lease, workflow)
        cancel = None if is_new else (yield Read(lambda: cancel_request(run, run.store.inbox(run.uid))))
    except (Redacted, UsageError, ValueRefused) as error:
        return (yield from park(run, lease, f"its arguments do not fit workflow {workflow.name} any longer: {error}"))
    except BaseException:  # whatever it is, the claim is given up, and it is raised
        yield from run.release(lease)
        raise
    if cancel is not None:
        return (yield from cancel_driven(run, lease, cancel))
    began = len(lease.fold.log) == 1
    told = "run {run}: begins" if began else "run {run}: goes on at entry {seq}"
    tell(INFO, "run.begun" if began else "run.resumed", told, run=run.id, seq=lease.seq, workflow=workflow.name)
    try:
        execution, outcome = yield Call(call, (run, lease, workflow, args, kwargs), {})
    except BaseException:  # an interrupt of this process says nothing about the run
        if not _left_to_thread(run, lease):
            yield from run.release(lease)
        raise
    try:
        return (yield from finish(run, execution, outcome))
    except LeaseLost:
        return (yield from _refused(run, lease))
    except BaseException:  # how it ended could not be written: a full disk, say
        yield from run.release(lease)
        raise


def missing(name: str | None, version: str | None) -> str:
    """Why a run cannot go on in this process."""
    what = f"workflow {name!r}" + (f" in version {version!r}" if version is not None else "")
    if several := ", ".join(sorted(one.__module__ for one in namesakes(name, version))):
        return f"{what} is declared in {several}, and the run is of neither; name them apart with @workflow(name=...)"
    return f"{what} is not declared in this process; import the module that declares it"


def call(run: HeldRun, lease: Lease, workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the workflow's function, in the way that it and its caller want; the execution, and how it went."""
    if run.is_async:
        if workflow.is_async:
            return _in_loop(run, lease, workflow, args, kwargs)
        return _in_thread(run, lease, workflow, args, kwargs)
    if not workflow.is_async:
        return _here(run, lease, workflow, args, kwargs)
    import asyncio

    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError(f"workflow {workflow.name} is async, and so is this code: use `async with holdfast.open(...)`")
    return asyncio.run(_in_loop(run.for_caller(is_async=True), lease, workflow, args, kwargs))


async def _in_loop(
    run: HeldRun, lease: Lease, workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Execution, Outcome]:
    from holdfast.engine.workflow.concurrency.async_execution import AsyncExecution

    execution = AsyncExecution(run, lease, workflow)
    with run.engine.watch.watching(execution):
        try:
            return execution, await execution.drive(tuple(args), kwargs)
        finally:  # before anything is written on how it ended, or undone: no task of it may still be at work
            await execution.dismantle()


async def _in_thread(
    run: HeldRun, lease: Lease, workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Execution, Outcome]:
    import asyncio

    loop = asyncio.get_running_loop()
    driven = asyncio.ensure_future(run.engine.in_thread(partial(_here, run, lease, workflow, args, kwargs)))
    try:
        await asyncio.wait({driven})
    except asyncio.CancelledError:  # the thread goes on until its next safe point; then the run can be let go of
        until, told = loop.time() + PATIENCE, False
        while not driven.done() and loop.time() < until:
            execution = run.engine.executions.get(run.uid)
            if execution is not None and not told:
                if execution.outcome is not None:
                    break  # it was told before, and had its time
                execution.release()
                told = True
            with suppress(asyncio.CancelledError):
                await asyncio.wait({driven}, timeout=0.05)
        raise
    return driven.result()


def _here(
    run: HeldRun, lease: Lease, workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Execution, Outcome]:
    if run.is_async:  # this is a thread of an async caller
        run = run.for_caller(is_async=False)
    execution = Execution(run, lease, workflow)
    token = current_scope.set(execution.root)
    thread = threading.get_ident()
    nested = thread in driving
    driving.add(thread)
    outcome: Outcome
    try:
        with run.engine.watch.watching(execution):
            outcome = Returned(_traced(execution, args, kwargs))
    except Unwind:
        outcome = Suspended()
    except Exception as error:  # of the user's function, which may raise anything
        outcome = Raised(error)
    except GeneratorExit:  # which would end the operation that drives this, and not the workflow
        outcome = Raised(RuntimeError("the workflow raised GeneratorExit"))
    except BaseException:  # an interrupt: what its branches do must not be done by another process at the same time
        execution.interrupt()
        raise
    finally:
        if not nested:
            driving.discard(thread)
        current_scope.reset(token)
    with lease.lock:
        execution.over = True
    if execution.abandoned:
        with suppress(HoldfastError):  # of a store that was closed, which gave up the lease too
            drive(run.release(lease), run.committer)
    if execution.outcome is not None:
        return execution, execution.outcome
    return execution, Suspended() if execution.root.stopped else outcome


def _left_to_thread(run: HeldRun, lease: Lease) -> bool:
    """Whether the workflow's function is still being called by a thread, which cannot be stopped.

    Then the run stays held until the thread comes to a durable call, or the process ends: what it is doing must not
    be done by another one at the same time.
    """
    execution = run.engine.executions.get(run.uid)
    if execution is None or execution.workflow.is_async or execution.lease is not lease:
        return False
    with lease.lock:
        if execution.over:
            return False
        execution.abandoned = True
    execution.release()
    steps = ", ".join(execution.active) or "the workflow's own code"
    text = "run {run}: {steps} cannot be broken off, so the run is held until that has ended"
    tell(WARNING, "run.abandoned", text, run=run.id, steps=steps)
    return True


def _traced(execution: Execution, args: list[Any], kwargs: dict[str, Any]) -> Any:
    call = partial(execution.workflow.function, *args, **kwargs)
    tracer = execution.engine.tracer
    return call() if tracer is None else tracer.drive(execution, call)


def finish(run: HeldRun, execution: Execution, outcome: Outcome) -> Op[Status]:
    """Write how a drive ended, and give up the lease; the status that the run has then."""
    lease, workflow = execution.lease, execution.workflow
    if execution.in_flight and _rolls_back(workflow, outcome):
        yield from execution.land()
    if isinstance(outcome, Returned | Raised | Continued | Suspended):
        outcome = yield from execution.passed(outcome)
    if lease.fold.lost and isinstance(outcome, Returned | Raised | Continued | Suspended):
        yield from cancel_losers(run, lease)
    match outcome:
        case Returned(value):
            if (left := leftover(execution)) is not None:
                return (yield from park(run, lease, left_out(left)))
            try:
                result = workflow.completed(execution, value)
                return (yield from end(run, lease, Kind.COMPLETED, result))
            except ValueRefused as error:
                return (yield from fail(run, execution, error))
        case Raised(error):
            return (yield from fail(run, execution, error))
        case Expired(seconds):
            late = DeadlinePassed(run.id, f"it took longer than its deadline of {seconds:g} s")
            return (yield from fail(run, execution, late))
        case Cancelled():
            return (yield from cancel_driven(run, lease, outcome))
        case Continued(args, kwargs):
            return (yield from go_on_anew(run, execution, args, kwargs))
        case Parked(reason):
            return (yield from park(run, lease, reason))
        case Released():
            yield from run.release(lease, Change(status=Status.READY, release=True))
            return Status.WAITING  # not for this process to go on with
        case Aborted(error):
            if not isinstance(error, LeaseLost):
                yield from run.release(lease)
                raise error
            return (yield from _refused(run, lease))
        case Suspended():
            return (yield from suspend(run, execution))


def _rolls_back(workflow: Workflow[..., Any], outcome: Outcome) -> bool:
    """Whether the effects of a run are undone after a drive that ended like that."""
    match outcome:
        case Raised(error):
            return workflow.on_failure == "rollback" or wants_rollback(error)
        case Expired():
            return workflow.on_failure == "rollback"
        case Cancelled():
            return outcome.undo
    return False


def _refused(run: HeldRun, lease: Lease) -> Op[Status]:
    """A write was refused: somebody else has the run, or it was built on a write that had failed.

    In the latter case (a full disk) the run is still ours, and nobody else would go on with it as long as we live.
    """
    if (yield Read(lease.is_current)):
        yield from run.release(lease)
        return Status.READY
    run.forget(lease)
    tell(WARNING, "run.lost", "run {run}: another worker took it over, so this one stopped", run=run.id)
    return Status.RUNNING


def left_out(key: str) -> str:
    return (
        f"{DIFFERS}: {key!r} was recorded, and the workflow returned without calling "
        f'it. {UNCHANGED} put back what it did, or guard the change with holdfast.patched("name"); then run.unblock()'
    )
