"""Beginning: a workflow's run is made, held by this worker and driven here (`start`), or left to others (`enqueue`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.clock import new_uid
from holdfast.engine.checks import check_options, tags_of
from holdfast.engine.define import Workflow, current_scope
from holdfast.engine.drive import Op, Read, Settle
from holdfast.engine.driving import drive_on
from holdfast.engine.inputs import QUEUE, Input
from holdfast.engine.lease import Lease
from holdfast.errors import (
    DefinitionChanged,
    HoldfastError,
    UsageError,
)
from holdfast.fold import Fold
from holdfast.journal import Data, genesis, next_entry
from holdfast.model import Create, Kind, RunRecord, Status
from holdfast.stores.base import check_id

if TYPE_CHECKING:
    from holdfast.commit import Ticket
    from holdfast.engine import Engine, Holdfast
    from holdfast.engine.run import Run


def start(
    hf: Holdfast,
    workflow: Workflow[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: float | None = None,
    queue: str = QUEUE,
    **kwargs: Any,
) -> Op[Run]:
    """Run a workflow here until it finishes or pauses; its run.

    The same ``id`` again gives the same run, and goes on with it if nobody else does; another workflow or other
    arguments under that id are refused with `DefinitionChanged`. ``deadline`` is how many seconds it may take.
    """
    given = _checked(hf, workflow, args, kwargs, deadline, queue)
    run, lease = yield from begin(
        hf._engine, hf._run_class, workflow, given, id, held=True, tags=tags_of(tags), deadline=deadline, queue=queue
    )
    run._adopted = True
    yield from drive_on(run, lease)
    return run


def enqueue(
    hf: Holdfast,
    workflow: Workflow[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: float | None = None,
    queue: str = QUEUE,
    **kwargs: Any,
) -> Op[Run]:
    """Leave a workflow to a worker (``hf.work()``, here or in another process); its run. See `start`."""
    given = _checked(hf, workflow, args, kwargs, deadline, queue)
    run, _ = yield from begin(
        hf._engine, hf._run_class, workflow, given, id, held=False, tags=tags_of(tags), deadline=deadline, queue=queue
    )
    hf._engine.bell.ring()
    return run


def _checked(
    hf: Holdfast, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], deadline: Any, queue: Any
) -> Input:
    if not isinstance(workflow, Workflow):
        how = "" if callable(workflow) else ", and give it here uncalled, then its arguments"
        raise UsageError(f"{workflow!r} is not a workflow; declare the function with @holdfast.workflow{how}")
    scope = current_scope.get()
    if scope is not None:
        where = f"step {scope.step[0]!r}" if scope.step else "a workflow"
        raise UsageError(
            f"workflow {workflow.name} is started inside of {where} of run {scope.execution.run.id!r}; call it from "
            "the workflow as a function, and it becomes a child of that run"
        )
    check_options(deadline=deadline)
    if not isinstance(queue, str) or not queue:
        raise UsageError(f"queue={queue!r}: a queue has a name, which is text")
    return Input.of(hf._codec, workflow, *workflow.bind(args, kwargs))


def begin(
    engine: Engine,
    run_class: type[Run],
    workflow: Workflow[..., Any],
    given: Input,
    id: str | None,
    *,
    held: bool,
    tags: dict[str, str] | None = None,
    deadline: float | None = None,
    queue: str = QUEUE,
    parent: Data | None = None,
    depth: int = 0,
) -> Op[tuple[Run, Lease | None]]:
    """The run of that id, made if there is none; with the lease, if it was made to be held."""
    store = engine.store
    if id is not None:
        record = yield Read(lambda: store.get(check_id(id)))
        if record is not None:
            yield Read(lambda: _check_same(engine, record, workflow, given))
            return run_class(engine, record.id, record.uid), None
    worker = (yield Read(engine.worker.ready)) if held else None
    create, data = _create(engine, workflow, given, id, worker, tags or {}, deadline, queue, parent, depth)
    ticket = engine.committer.submit(create)
    try:
        record = yield Settle(ticket)
    except HoldfastError:
        raise
    except BaseException as interrupt:  # it is made all the same, and nobody knows of it
        if held:
            yield from _let_go_unseen(engine, run_class, create.record, ticket, interrupt)
        raise
    run = run_class(engine, record.id, record.uid)
    if record.uid != create.record.uid:  # somebody made it in the same moment
        yield Read(lambda: _check_same(engine, record, workflow, given))
        return run, None
    if not held:
        return run, None
    fold = Fold(record.id)
    fold.add(0, Kind.CREATED, record.created_at, data)
    return run, Lease(record, engine.journals, engine.committer, fold)


def _let_go_unseen(
    engine: Engine, run_class: type[Run], record: RunRecord, ticket: Ticket, interrupt: BaseException
) -> Op[None]:
    """Give up a run that is being made by a caller who was broken off: it is ready for anybody."""
    lease = Lease(record, engine.journals, engine.committer, Fold(record.id))
    lease.pending = ticket
    lease.refresh()
    if isinstance(interrupt, GeneratorExit):  # nothing can be waited for
        engine.stuck[record.uid] = lease, None
    else:
        yield from run_class(engine, record.id, record.uid)._let_go(lease)


def _create(
    engine: Engine,
    workflow: Workflow[..., Any],
    given: Input,
    id: str | None,
    worker: str | None,
    tags: dict[str, str],
    deadline: float | None,
    queue: str,
    parent: Data | None,
    depth: int,
) -> tuple[Create, Data]:
    clock = engine.store.clock
    uid, now = new_uid(clock), clock.now()
    key = engine.journals.new_key(uid)
    data: Data = {"definition": given.digest, "args": given.args, "kwargs": given.kwargs, "version": workflow.version}
    data["module"] = workflow.__module__
    seconds = workflow.deadline if deadline is None else deadline
    if seconds is not None:
        data |= {"deadline": now + round(seconds * 1_000_000), "seconds": seconds}
    if parent is not None:
        data |= {"parent": parent, "depth": depth}
    if engine.tracer is not None:
        data["trace"] = engine.tracer.context()
    payload = engine.journals.seal(uid, key is not None, f"0/{Kind.CREATED}", data, f"arguments of {workflow.name}")
    root = genesis(uid)
    record = RunRecord(
        uid=uid,
        id=id if id is not None else f"{workflow.name[:480]}-{uid}",
        created_at=now,
        root=root,
        workflow=workflow.name,
        tags=tags,
        key_id=key.key_id if key else None,
        key_blob=key.blob if key else None,
        queue=queue,
        parent=parent["uid"] if parent else None,
        status=Status.RUNNING if worker else Status.READY,
        epoch=1 if worker else 0,
        worker=worker,
    )
    return Create(record, (next_entry(root, 0, Kind.CREATED, now, None, payload),)), data


def _check_same(engine: Engine, record: RunRecord, workflow: Workflow[..., Any], given: Input) -> None:
    if record.workflow != workflow.name or record.queue is None:
        what = f"workflow {record.workflow!r}" if record.queue is not None else "a loop that is driven by hand"
        raise DefinitionChanged(record.id, f"it is a run of {what}, not of {workflow.name!r}; use another id")
    uid, first = engine.journals.entry(record, record.base)
    if record.lineage:
        return  # a fork's input is what it was forked with
    if engine.journals.data(record.id, uid, first).get("definition") != given.digest:
        raise DefinitionChanged(
            record.id, f"it was started with other arguments for {workflow.name}; use another id, or fork it"
        )
