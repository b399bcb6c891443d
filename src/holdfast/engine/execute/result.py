"""A workflow's run from outside: go on with it, wait for it, have its result."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Listen, Op, Read
from holdfast.engine.argument_checks import check_options
from holdfast.engine.control import family
from holdfast.engine.control.family import blocked_child
from holdfast.engine.control.questions import let_go_on, questions
from holdfast.engine.execute.execute import drive_on
from holdfast.engine.log import WARNING, tell
from holdfast.engine.workflow.declare import registered
from holdfast.engine.workflow.failures import revive
from holdfast.errors import Redacted, RunBlocked, RunCancelled, RunEnded, TimedOut, UsageError
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.model import ENDED, RunRecord, Status
from holdfast.kernel.rules import check_here

LOOK_FOR_DEAD = 1.0  # seconds
WONDER = 5.0  # seconds of waiting, until it is told what for


def resume(run: HeldRun) -> Op[Status]:
    """Go on with the run here until it finishes or pauses, if nobody else does; the status it has then.

    From then on this handle drives it, like one that `start` gave. A graph that was interrupted goes on,
    unless somebody has said no there: then answer its question.
    """
    record = yield Read(run.read_record)
    if record.queue is None:
        raise UsageError(f"run {run.id!r} is driven by hand: claim it, and go on in your own loop")
    run.adopted = True
    if record.status in (Status.WAITING, Status.READY):
        yield from let_go_on(run)
    yield from drive_on(run)
    return (yield Read(run.read_record)).status  # type: ignore[no-any-return]


def wait(run: HeldRun, *, timeout: float | None = None) -> Op[Status]:
    """Wait until the run has ended or is blocked; its status. After ``timeout`` seconds, the status it has then.

    A handle that started or resumed the run drives it on, when its time has come or an answer is there. Any other
    only waits, until a worker has done so. An open question does not end the waiting.
    """
    return (yield from _waited(run, timeout)).status


def _waited(run: HeldRun, timeout: float | None) -> Op[RunRecord]:
    """The run as it is then."""
    check_options(timeout=timeout)
    record = yield Read(run.read_record)
    check_here(record)
    if _is_over(record):
        return record  # type: ignore[no-any-return]
    clock, engine = run.store.clock, run.engine
    until = None if timeout is None else clock.now() + round(timeout * 1_000_000)
    try_at = 0.0  # when to try to claim the run from somebody who drives it, and may have died
    wonder_at: float | None = time.monotonic() + WONDER
    while True:
        heard = yield Read(engine.bell.heard)
        record = yield Read(run.read_record)
        check_here(record)
        if _is_over(record):
            return record  # type: ignore[no-any-return]
        now = clock.now()
        wake = (yield from _next_move(run, record)) if run.adopted else None
        if wake is not None and wake <= now and (record.status is not Status.RUNNING or time.monotonic() >= try_at):
            try_at = time.monotonic() + LOOK_FOR_DEAD
            before = record.epoch
            yield from drive_on(run)
            if (yield Read(run.read_record)).epoch != before:
                continue
        moments = [at for at in (until, wake if record.status is Status.WAITING else None) if at is not None]
        left = None if not moments else (min(moments) - now) / 1_000_000
        if until is not None and now >= until:
            return record  # type: ignore[no-any-return]
        if left is not None and not isinstance(clock, SystemClock):
            yield Read(partial(clock.sleep, max(left, 0)))
        else:
            yield Listen(engine.bell, heard, _patience(record, left, wonder_at))
            if wonder_at is not None and time.monotonic() >= wonder_at:
                wonder_at = None
                _tell_why(run, record)


def _is_over(record: RunRecord) -> bool:
    return record.status in ENDED or record.status is Status.BLOCKED


def _tell_why(run: HeldRun, record: RunRecord) -> None:
    """Say once what is waited for, if it may be for ever."""
    if record.status is Status.READY and not run.adopted:
        told = "run {run}: it could go on, and this handle only waits: have a worker, or call run.resume()"
        tell(WARNING, "run.unattended", told, run=run.id)
    elif record.status is Status.WAITING and record.wake_at is None and not isinstance(run.store.clock, SystemClock):
        told = (
            "run {run}: it waits for an answer, a message or a child, and not for the clock: give it what it waits for"
        )
        tell(WARNING, "run.unattended", told, run=run.id)


def _next_move(run: HeldRun, record: RunRecord) -> Op[int | None]:
    """When the run can go on by itself; since long, if it can now. Driving it drives its children, too."""
    if record.status is not Status.WAITING:
        return record.created_at  # ready; or running, by somebody who may have died
    part = yield from family.next_move(run)
    return min((at for at in (part, record.wake_at) if at is not None), default=None)


def _patience(record: RunRecord, left: float | None, wonder_at: float | None) -> float | None:
    """How long to listen. The death of a holder makes no sound."""
    limits = [left, LOOK_FOR_DEAD if record.status is Status.RUNNING else None]
    limits.append(max(wonder_at - time.monotonic(), 0.0) if wonder_at is not None else None)
    return min((limit for limit in limits if limit is not None), default=None)


def result(run: HeldRun, *, timeout: float | None = None, type: Any = None) -> Op[Any]:
    """What the workflow returned; waits for it (see `wait`). Raises what it raised.

    Raises `RunCancelled`, `RunBlocked`, or `TimedOut` after ``timeout`` seconds. ``type`` is what the result is read
    as, if its class is not registered and the workflow is not declared here.
    """
    record = yield from _waited(run, timeout)
    status = record.status
    if status is Status.BLOCKED:
        remedy = "" if "run.unblock()" in (record.reason or "") else "; run.unblock() lets it go on"
        raise RunBlocked(run.id, f"{record.reason}{remedy}")
    if status not in ENDED:
        why = f"; it {record.reason}" if record.reason else ""
        if status is Status.READY and not why:
            why = "; a worker goes on with it, or run.resume()"
        elif status is Status.WAITING and (child := (yield from blocked_child(run, record))) is not None:
            why = f"; it {family.waits_for_blocked(child)}"
        elif status is Status.WAITING and (yield from questions(run)):
            why = "; it waits for an answer, see run.questions()"
        raise TimedOut(run.id, f"it is {status} after {timeout:g} s{why}")
    fold = yield Read(run.refold, record)
    assert fold.ended is not None
    ended = fold.ended[1]
    if "erased" in ended:
        raise Redacted(run.id, "its result was erased on request")
    if status is Status.COMPLETED:
        workflow = registered(record.workflow, fold.input.get("version"), fold.input.get("module"))
        kind = type if type is not None or workflow is None else workflow.types().get("return")
        tree = yield Read(run.journals.result, record, ended)
        return run.journals.value(run.id, tree, "result", kind)
    if status is Status.CANCELLED:
        raise RunCancelled(run.id, ended.get("error") or None)
    if "failure" in ended:
        error = revive(ended["failure"], run.codec)
        error.add_note(f"run {run.id!r} failed with it; run.retry() tries again, run.fork() goes another way")
        raise error
    raise RunEnded(run.id, f"it failed: {ended.get('error')}")
