"""Workflows as parts of workflows: a child is a run of its own, with a link to its parent.

The parent journals that it starts the child, and then drives it in place. If the child has to wait, so does the
parent; whoever goes on with the child leaves word in the parent's inbox when it ends. The child is let go of only
after that, so that a crash in between makes it claimable, and the next claim leaves word again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from holdfast.engine.define import Workflow
from holdfast.engine.drive import Op, Read
from holdfast.engine.execution import Execution, Scope
from holdfast.engine.failures import revive
from holdfast.engine.waits import wait
from holdfast.errors import RunBlocked, RunCancelled, UsageError
from holdfast.journal import Data
from holdfast.model import ENDED, Kind, RunRecord, Status
from holdfast.stores.base import MAX_ID

if TYPE_CHECKING:
    from holdfast.engine.lease import Lease
    from holdfast.engine.run import Run

MAX_DEPTH = 50


def child(scope: Scope, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Op[Any]:
    """The result of a workflow that is called by a workflow."""
    from holdfast.engine.workflows import Input, begin, drive_on

    execution = scope.execution
    name = workflow.name.replace("/", "_").replace("#", "_")
    key, n = scope.allot(name)
    bound = workflow.bind(args, kwargs)
    given = Input.of(execution.codec, workflow, *bound)
    found = yield from execution.recall(scope, key, n, name, given.digest)
    if found is not None:
        return execution.value(found, key, workflow.types().get("return"))
    execution.consumed.add(key)
    depth = execution.lease.fold.input.get("depth", 0) + 1
    if depth > MAX_DEPTH:
        raise UsageError(
            f"workflow {workflow.name} calls workflows {MAX_DEPTH} deep; use a loop, or continue_as_new(), instead"
        )
    known = execution.lease.fold.children.get(key)
    if known is None:
        data: Data = {"key": key, "n": n, "digest": given.digest, "id": _id(execution, key), "tool": name}
        yield from execution.write([(Kind.CHILD, {**data, "reversible": True})])
        known = execution.lease.fold.children[key]
    parent = {"uid": execution.run.uid, "id": execution.run.id, "key": key}
    run, lease = yield from begin(
        execution.engine, type(execution.run), workflow, given, known.id, held=True, parent=parent, depth=depth
    )
    execution.active[key] = time.monotonic()
    try:
        yield from drive_on(run, lease)
    finally:
        execution.active.pop(key, None)

    def ready() -> bool:
        return run._record().status in ENDED

    yield from wait(execution, scope, key, None, ready)
    return (yield from _result(execution, key, {"key": key, "n": n, "digest": given.digest}, run, workflow))


def _id(execution: Execution, key: str) -> str:
    """An id for the child, which is the same if the parent dies before it was made."""
    generation = execution.lease.fold.generation
    tail = f"/{key}" if not generation else f"/{key}~{generation}"
    parent = execution.run.id
    if len(parent) + len(tail) > MAX_ID:
        from hashlib import blake2b

        parent, tail = execution.run.uid, "/" + blake2b(tail.encode(), digest_size=16).hexdigest()
    return parent + tail


def _result(execution: Execution, key: str, data: Data, run: Run, workflow: Workflow[..., Any]) -> Op[Any]:
    """What an ended child gave, which is journaled in the parent."""
    record = yield Read(run._record)
    fold = yield Read(lambda: run._refold(record))
    assert fold.ended is not None
    status, ended = fold.ended
    if status is Status.COMPLETED:
        yield from execution.write([(Kind.DONE, {**data, "result": ended.get("result")})])
        return execution.value(execution.lease.fold.steps[key], key, workflow.types().get("return"))
    error: Exception
    if status is Status.FAILED and "failure" in ended:
        error = revive(ended["failure"], execution.codec)
    else:
        error = RunCancelled(run.id, ended.get("error") or "it was cancelled")
    yield from execution.fail(key, data, error)
    raise error


def notify(run: Run, lease: Lease) -> Op[None]:
    """Leave word with the parent that the run has ended."""
    parent = lease.fold.input.get("parent")
    if parent is None:
        return
    store = run._store
    record = yield Read(lambda: store.journal(parent["uid"]))
    if record is None or record.hidden:
        return
    # Its epoch makes the key a new one each time: a child that was tried again ends again.
    key = f"child:{run.uid}.{lease.record.epoch}"
    item = run._journals.item(record, key, "child", {"key": parent["key"], "id": run.id}, wakes=True)
    yield Read(lambda: store.post(record.uid, item))
    run._engine.watch.tell(record.uid)
    run._engine.bell.ring()


def open_children(run: Run, lease: Lease) -> Op[list[Run]]:
    """The children that the run started and that have not ended."""
    found: list[Run] = []
    for key, known in lease.fold.children.items():
        if key in lease.fold.steps or key in lease.fold.failures:
            continue
        record = yield Read(lambda id=known.id: run._store.get(id))  # type: ignore[misc]
        if record is not None and record.status not in ENDED:
            found.append(run._sibling(record.id, record.uid))
    return found


def take_back(run: Run, id: str) -> Op[None]:
    """Undo a child as a whole: cancel it, and roll it back to its beginning. Raises what it cannot."""
    from holdfast.engine.rollback import rollback
    from holdfast.engine.workflows import cancel

    record: RunRecord | None = yield Read(lambda: run._store.get(id))
    if record is None:
        return
    part = run._sibling(record.id, record.uid)
    if record.status not in ENDED:
        yield from cancel(part, f"run {run.id} is rolled back")
        record = yield Read(part._record)
    if record.status not in ENDED:
        raise RunBlocked(id, "it is held by another worker; it was asked to stop: roll back again when it has")
    report = yield from rollback(part, record.chapter, then=Status.CANCELLED)
    if report.failed:
        raise RunBlocked(id, f"{len(report.failed)} of its effects could not be undone")
