"""Beginning: a workflow's run is made, held by this worker and driven here (`start`), or left to others (`enqueue`)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.engine.access.client import Client
from holdfast.engine.access.engine import Engine
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Op, Read, Settle
from holdfast.engine.argument_checks import (
    check_dedup,
    check_options,
    check_priority,
    check_queue,
    check_texts,
    moment_of,
    seconds_of,
    tags_of,
)
from holdfast.engine.execute.dedup import find_alike
from holdfast.engine.execute.enqueue_within import finder, join, through
from holdfast.engine.execute.execute import drive_on
from holdfast.engine.workflow.declare import Workflow
from holdfast.engine.workflow.inputs import PLACE, QUEUE, Beginning, Input, Place
from holdfast.engine.workflow.scope import StepScope, current_scope
from holdfast.errors import DefinitionChanged, HoldfastError, UsageError
from holdfast.kernel.fold import Fold
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Create, Entry, Kind, RunRecord, Status
from holdfast.kernel.rules import check_here, check_id

if TYPE_CHECKING:
    from holdfast.engine.access.commit import Ticket
    from holdfast.stores.user_transaction import Connection, Guest


def start(
    client: Client,
    workflow: Workflow[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: float | None = None,
    queue: str = QUEUE,
    **kwargs: Any,
) -> Op[HeldRun]:
    """Run a workflow here until it finishes or pauses; its run.

    The same ``id`` again gives the same run, and goes on with it if nobody else does; another workflow or other
    arguments under that id are refused with `DefinitionChanged`. ``deadline`` is how many seconds it may take. It is
    begun at once, whatever limits the queue has; they hold for what workers take.
    """
    beginning = checked(client, workflow, args, kwargs, deadline)
    place = checked_place(queue, tags=tags)
    run, lease = yield from begin(client, beginning, id, held=True, place=place)
    run.adopted = True
    yield from drive_on(run, lease)
    return run


def enqueue(
    client: Client,
    workflow: Workflow[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: float | None = None,
    queue: str = QUEUE,
    priority: int = 0,
    delay: float | timedelta | datetime | None = None,
    key: str | None = None,
    dedup: str | None = None,
    ttl: float | timedelta | None = None,
    within: Connection | None = None,
    **kwargs: Any,
) -> Op[HeldRun]:
    """Leave a workflow to a worker (``hf.work()``, here or in another process); its run. See `start`.

    Of a queue the highest ``priority`` is taken first. With ``delay`` it is begun that many seconds from now, or at
    that time. ``key`` is what the queue's limit ``per_key`` counts by. ``dedup`` names what is to be done once: while
    there is a run of this workflow with the same text (with ``ttl``, one that is younger than so many seconds), that
    run is given, whatever its arguments and however it ended.

    ``within`` is a connection of your own to the store's database, in a transaction: a `psycopg.Connection` (in async
    code `psycopg.AsyncConnection`), or a `sqlite3.Connection` to the same file. The run is made in that transaction, so
    it is there, and workers are told, if and only if and when you commit; until then its handle knows no such run.
    """
    beginning = checked(client, workflow, args, kwargs, deadline)
    place = checked_place(queue, priority, key, delay, client.store.clock.now(), tags=tags)
    check_dedup(id, dedup, ttl)
    guest = (yield from join(client, within)) if within is not None else None
    if dedup is not None:
        seconds = None if ttl is None else seconds_of("ttl", ttl)
        find = finder(guest) if guest is not None else None
        id, record = yield from find_alike(client.store, beginning.workflow, dedup, ttl=seconds, find=find)
        if record is not None:
            check_here(record)
            return client.run(record.id, record.uid)
    if guest is not None:
        return (yield from _begin_within(client, guest, beginning, id, place, alike=dedup is not None))
    run, _ = yield from begin(client, beginning, id, held=False, place=place, alike=dedup is not None)
    client.engine.bell.ring()
    return run


def _begin_within(
    client: Client, guest: Guest, beginning: Beginning, id: str | None, place: Place, *, alike: bool
) -> Op[HeldRun]:
    """The run of that id, made in a transaction of the user's own if there is none."""
    engine = client.engine
    create, _ = create_of(engine, beginning, check_id(id) if id is not None else None, None, place)
    record = yield from through(guest.create(create))
    run = client.run(record.id, record.uid)
    run.promised = True
    check_here(record)
    if record.uid != create.record.uid and not alike:
        first = yield from through(guest.entry(record.uid, record.base))
        yield Read(_check_same, engine, record, beginning, first)
    return run


def checked_place(
    queue: Any, priority: Any = 0, lane: Any = None, delay: Any = None, now: int = 0, tags: Any = None
) -> Place:
    """Where a run is to stand; raises `UsageError`."""
    check_queue(queue)
    check_priority(priority)
    check_texts(key=lane)
    at = moment_of("delay", delay, now) if delay is not None else 0
    return Place(queue, priority, lane, at if at > now else None, tags_of(tags))


def checked(client: Client, workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any], deadline: Any) -> Beginning:
    """What a run is to begin with, where it may; raises `UsageError`, or says why a value cannot be stored."""
    if not isinstance(workflow, Workflow):
        how = "" if callable(workflow) else ", and give it here uncalled, then its arguments"
        raise UsageError(f"{workflow!r} is not a workflow; declare the function with @holdfast.workflow{how}")
    scope = current_scope.get()
    if scope is not None:
        where = f"step {scope.key!r}" if isinstance(scope, StepScope) else "a workflow"
        raise UsageError(
            f"workflow {workflow.name} is started inside of {where} of run {scope.execution.run.id!r}; call it from "
            "the workflow as a function, and it becomes a child of that run"
        )
    check_options(deadline=deadline)
    return Beginning.of(workflow, Input.of(client.codec, workflow, *workflow.bind(args, kwargs)), deadline)


def begin(
    client: Client,
    beginning: Beginning,
    id: str | None,
    *,
    held: bool,
    place: Place = PLACE,
    alike: bool = False,
) -> Op[tuple[HeldRun, Lease | None]]:
    """The run of that id, made if there is none; with the lease, if it was made to be held.

    One that is there must have the same input, unless it is enough that it is ``alike``.
    """
    engine, store = client.engine, client.store
    if id is not None:
        record = yield Read(lambda: store.get(check_id(id)))
        if record is not None:
            check_here(record)
            if not alike:
                yield Read(_check_same, engine, record, beginning)
            return client.run(record.id, record.uid), None
    worker = (yield Read(engine.worker.ready)) if held else None
    create, data = create_of(engine, beginning, id, worker, place)
    ticket = engine.committer.submit(create)
    try:
        record = yield Settle(ticket)
    except HoldfastError:
        raise
    except BaseException as interrupt:  # it is made all the same, and nobody knows of it
        if held:
            yield from _let_go_unseen(client, create.record, ticket, interrupt)
        raise
    run = client.run(record.id, record.uid)
    if record.uid != create.record.uid:  # somebody made it in the same moment
        if not alike:
            yield Read(_check_same, engine, record, beginning)
        return run, None
    if not held:
        return run, None
    fold = Fold(record.id)
    fold.add(0, Kind.CREATED, record.created_at, data)
    return run, Lease(record, engine.journals, engine.committer, fold)


def _let_go_unseen(client: Client, record: RunRecord, ticket: Ticket, interrupt: BaseException) -> Op[None]:
    """Give up a run that is being made by a caller who was broken off: it is ready for anybody."""
    lease = Lease(record, client.journals, client.committer, Fold(record.id))
    lease.pending = ticket
    lease.refresh()
    if isinstance(interrupt, GeneratorExit):  # nothing can be waited for
        client.engine.stuck[record.uid] = lease, None
    else:
        yield from client.run(record.id, record.uid).release(lease)


def create_of(
    engine: Engine, beginning: Beginning, id: str | None, worker: str | None, place: Place
) -> tuple[Create, Data]:
    """What makes the run, and what its first entry says."""
    now, given = engine.store.clock.now(), beginning.given
    data: Data = {"definition": given.digest, "args": given.args, "kwargs": given.kwargs, "version": beginning.version}
    data["module"] = beginning.module
    seconds = beginning.deadline
    if seconds is not None:
        data |= {"deadline": (place.wake_at or now) + round(seconds * 1_000_000), "seconds": seconds}
    if place.parent is not None:
        data |= {"parent": place.parent, "depth": place.depth}
    if engine.tracer is not None:
        data["trace"] = engine.tracer.context()
    record = engine.journals.new_record(
        now,
        id if id is not None else lambda uid: f"{beginning.workflow[:480]}-{uid}",
        workflow=beginning.workflow,
        tags=place.tags,
        queue=place.queue,
        priority=place.priority,
        lane=place.lane,
        parent=place.parent["uid"] if place.parent else None,
        status=Status.RUNNING if worker else Status.WAITING if place.wake_at is not None else Status.READY,
        epoch=1 if worker else 0,
        worker=worker,
        wake_at=place.wake_at,
    )
    first = engine.journals.first_entry(record, Kind.CREATED, data, f"arguments of {beginning.workflow}")
    return engine.journals.create(record, (first,)), data


def _check_same(engine: Engine, record: RunRecord, beginning: Beginning, first: Entry | None = None) -> None:
    """Refuse a run that was made for something else. ``first`` is its first entry, if it was read already."""
    if record.workflow != beginning.workflow or record.queue is None:
        what = f"workflow {record.workflow!r}" if record.queue is not None else "a loop that is driven by hand"
        raise DefinitionChanged(record.id, f"it is a run of {what}, not of {beginning.workflow!r}; use another id")
    if record.lineage:
        return  # a fork's input is what it was forked with
    if first is None:
        _, first = engine.journals.entry(record, record.base)
    if engine.journals.data(record.id, record.uid, first).get("definition") != beginning.given.digest:
        raise DefinitionChanged(
            record.id, f"it was started with other arguments for {beginning.workflow}; use another id, or fork it"
        )
