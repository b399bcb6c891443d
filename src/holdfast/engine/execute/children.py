"""Workflows as parts of workflows: a child is a run of its own, with a link to its parent.

The parent journals that it starts the child, and then drives it in place. If the child has to wait, so does the
parent; whoever goes on with the child leaves word in the parent's inbox when it ends. The child is let go of only
after that, so that a crash in between makes it claimable, and the next claim leaves word again.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import Any

from holdfast.engine.access.client import Client
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.control.cancel import cancel
from holdfast.engine.control.rollback import rollback
from holdfast.engine.execute.execute import drive_on
from holdfast.engine.execute.result import wait as wait_for_end
from holdfast.engine.execute.start import begin
from holdfast.engine.workflow.declare import Workflow
from holdfast.engine.workflow.execution import Execution
from holdfast.engine.workflow.failures import fail, revive
from holdfast.engine.workflow.inputs import QUEUE, Beginning, Input, Place
from holdfast.engine.workflow.outcomes import Aborted
from holdfast.engine.workflow.replay import DIFFERS
from holdfast.engine.workflow.scope import Scope, child_name
from holdfast.engine.workflow.waiting import wait
from holdfast.errors import (
    DefinitionChanged,
    HoldfastError,
    Moved,
    Redacted,
    RunBlocked,
    RunCancelled,
    RunDamaged,
    RunEnded,
    RunError,
    RunNotFound,
    UsageError,
    WorkflowMissing,
)
from holdfast.kernel.journal import Data
from holdfast.kernel.model import ENDED, Kind, RunRecord, Status
from holdfast.kernel.rules import MAX_ID

MAX_DEPTH = 20  # a child of a sync workflow is driven in place, so each costs some of Python's own depth
STOPS_WITHIN = 10.0  # seconds that a rollback waits for a child that another worker drives
_NOT_UNDONE = {
    "undo_failed": "could not be undone",
    "left": "irreversible",
    "uncertain": "uncertain",
    "repeated": "uncertain",
}


def child(
    scope: Scope, call: tuple[str, int], workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Op[Any]:
    """The result of a workflow that is called by a workflow."""
    execution = scope.execution
    name, (key, n) = child_name(workflow), call
    bound = workflow.bind(args, kwargs)
    given = Input.of(execution.codec, workflow, *bound)
    found = yield from execution.recall(scope, key, n, name, given.digest)
    if found is not None:
        return execution.value(found, key, workflow.types().get("return"))
    execution.consume(key)
    yield from execution.admit(scope, key, name, given.digest)
    depth = execution.lease.fold.input.get("depth", 0) + 1
    if depth > MAX_DEPTH:
        raise UsageError(
            f"workflow {workflow.name} calls workflows {MAX_DEPTH} deep; use a loop, or continue_as_new(), instead"
        )
    known = execution.lease.fold.children.get(key)
    if known is None:
        id = yield from _free_id(execution, key)
        data: Data = {"key": key, "n": n, "digest": given.digest, "id": id, "tool": name}
        yield from execution.write([(Kind.CHILD, {**data, "reversible": True})])
        known = execution.lease.fold.children[key]
    execution.active[key] = time.monotonic()
    try:
        run = yield from _drive(execution, workflow, given, known.id, key, depth)
    finally:
        execution.active.pop(key, None)

    ended = False

    def look() -> None:
        nonlocal ended
        try:
            record = run.read_record()  # of one that leaves word just now, the status does not tell yet
            ended = record.status in ENDED or run.refold(record).ended is not None
        except RunDamaged:
            ended = False  # until a person has seen to it
        except HoldfastError as error:
            execution.unwind(Aborted(error))

    yield from wait(execution, scope, key, None, lambda: ended, look)
    return (yield from _result(execution, key, {"key": key, "n": n, "digest": given.digest}, run, workflow))


def _drive(
    execution: Execution, workflow: Workflow[..., Any], given: Input, id: str, key: str, depth: int
) -> Op[HeldRun]:
    """Make the child if there is none yet, and drive it until it ends or has to wait.

    What is wrong with the store says nothing about the workflow, so it is not raised there.
    """
    parent = {"uid": execution.run.uid, "id": execution.run.id, "key": key}
    record = execution.lease.record
    place = Place(record.queue or QUEUE, record.priority, parent=parent, depth=depth)
    try:
        run, lease = yield from begin(
            Client(execution.engine, is_async=execution.run.is_async),
            Beginning.of(workflow, given, None),
            id,
            held=True,
            place=place,
        )
        if lease is None and (yield Read(run.read_record)).parent != execution.run.uid:
            raise DefinitionChanged(id, f"it is not a child of run {execution.run.id!r}")
        with suppress(WorkflowMissing, RunDamaged):  # it waits for another process, or for a person
            yield from drive_on(run, lease)
    except DefinitionChanged as error:
        execution.park(
            f"{DIFFERS}: {key!r} cannot be gone on with ({error}). Put back what it "
            "did; then run.unblock(), or fork the run before it"
        )
    except Moved as elsewhere:  # the move of both was broken off; that this run is held by us is not in doubt
        execution.unwind(Aborted(RunError(execution.run.id, f"it cannot go on without its part: {elsewhere}")))
    except HoldfastError as error:
        execution.unwind(Aborted(error))
    return run


def _free_id(execution: Execution, key: str) -> Op[str]:
    """An id for a new child. A run that has it already is somebody else's, such as a deleted parent's of this id."""
    id = _id(execution, key)
    if (yield Read(execution.engine.store.get, id)) is None:
        return id
    from hashlib import blake2b

    return f"{execution.run.uid}/" + blake2b(id.encode(), digest_size=16).hexdigest()


def _id(execution: Execution, key: str) -> str:
    """The id that tells people most: that of the parent, and the key of the call."""
    era = execution.era(execution.lease.fold.generation)
    tail = f"/{key}" if era == "0" else f"/{key}~{era}"
    parent = execution.run.id
    if len(parent) + len(tail) > MAX_ID:
        from hashlib import blake2b

        parent, tail = execution.run.uid, "/" + blake2b(tail.encode(), digest_size=16).hexdigest()
    return parent + tail


def _result(execution: Execution, key: str, data: Data, run: HeldRun, workflow: Workflow[..., Any]) -> Op[Any]:
    """What an ended child gave, which is journaled in the parent."""
    try:
        record = yield Read(run.read_record)
        fold = yield Read(run.refold, record)
    except RunDamaged as damage:
        execution.park(f"what {key!r} gave cannot be read: {damage}; then run.unblock()")
    except HoldfastError as error:
        execution.unwind(Aborted(error))
    assert fold.ended is not None
    status, ended = fold.ended
    if "erased" in ended:
        execution.park_erased(key, "result")
    if status is Status.COMPLETED:
        try:
            result = yield Read(run.journals.result, record, ended)
        except Redacted:
            execution.park_erased(key, "result")
        except RunDamaged as damage:
            execution.park(f"what {key!r} gave cannot be read: {damage}; then run.unblock()")
        seq = yield from execution.write([(Kind.DONE, {**data, "result": result})])
        yield from execution.in_turn(seq)
        return execution.value(execution.lease.fold.steps[key], key, workflow.types().get("return"))
    failed: Exception
    if status is Status.FAILED and "failure" in ended:
        failed = revive(ended["failure"], execution.codec)
    else:
        failed = RunCancelled(run.id, ended.get("error") or "it was cancelled")
    yield from execution.in_turn((yield from fail(execution, key, data, failed)))
    raise failed


def undo_child(run: HeldRun, id: str, *, force: bool = False) -> Op[str | None]:
    """Undo a child as a whole: cancel it, and roll it back to its beginning. Raises what it cannot.

    What of it is irreversible, if anything, is returned.
    """
    record: RunRecord | None = yield Read(run.store.get, id)
    if record is None or record.parent != run.uid:  # what has the id now may be anybody's
        raise RunNotFound(id, "it was deleted, so what it did cannot be undone any more")
    part = run.sibling(record.id, record.uid)
    if record.status not in ENDED and record.rollback is None:
        with suppress(RunEnded):  # just now, by itself; it is rolled back all the same
            yield from cancel(part, f"run {run.id} is rolled back")
        yield from wait_for_end(part, timeout=STOPS_WITHIN)
        record = yield Read(part.read_record)
    if record.status not in ENDED and record.rollback is None:
        raise RunBlocked(id, "it is held by another worker; it was asked to stop: roll back again when it has")
    if not _is_taken_back(record):
        yield from rollback(part, record.chapter, then=Status.CANCELLED, force=force)
        record = yield Read(part.read_record)
    fold = yield Read(part.refold, record)
    left = Counter(mark.status for mark in fold.ledger.values() if mark.status in _NOT_UNDONE)
    if not left:
        return None
    what = ", ".join(f"{count} {_NOT_UNDONE[status]}" for status, count in left.items())
    return f"of the effects of its run {id!r}, {what}; see run.effects()"


def _is_taken_back(record: RunRecord) -> bool:
    """Whether the last that happened to a run is that it was rolled back to its beginning, and so cancelled."""
    last = record.rewinds[-1] if record.rewinds else None
    return last is not None and last.to == record.chapter and last.at == record.seq - 1
