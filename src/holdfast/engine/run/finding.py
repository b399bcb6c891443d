"""Finding runs: by id, by filters, and made if there is none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from holdfast.engine.access.client import Client, RunHandle
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read, Settle
from holdfast.engine.argument_checks import check_runs_page, check_texts, micros_of, statuses_of, tags_of
from holdfast.engine.control.audit import audit as audit_run
from holdfast.engine.run.reading import run_info
from holdfast.errors import DefinitionChanged, RunNotFound
from holdfast.kernel.model import Create, Filter, Kind, RunRecord, Status
from holdfast.kernel.rules import check_id
from holdfast.views import AuditReport, Page, RunInfo, WorkerInfo, moment

HELD_PAGE = 500  # runs that are read at a time to find who holds which
BLOCKED_SEEN = 1000  # runs that are looked at to find the children which others of a page wait for


def run(
    client: Client,
    id: str,
    *,
    workflow: str | None = None,
    definition: Any = None,
    tags: Mapping[str, str] | None = None,
) -> Op[HeldRun]:
    """The run of this id, made if there is none.

    ``workflow`` names what the run is a run of, and ``definition`` is anything that describes it (its steps,
    its version): a run that was made for another one is refused with `DefinitionChanged`.
    """
    check_id(id)
    check_texts(workflow=workflow)
    labels = tags_of(tags)
    digest = client.codec.digest(client.codec.encode(definition, "definition")) if definition is not None else None
    record = yield Read(client.store.get, id)
    if record is None:
        create = creation(client, id, workflow, digest, labels)
        record = yield Settle(client.committer.submit(create))
    _check_same(client, record, workflow, digest)
    return client.run(record.id, record.uid)


def creation(client: Client, id: str, workflow: str | None, digest: str | None, tags: dict[str, str]) -> Create:
    """What makes a run that is driven by hand."""
    record = client.journals.new_record(client.store.clock.now(), id, workflow=workflow, tags=tags)
    first = client.journals.first_entry(record, Kind.CREATED, {"definition": digest}, "run")
    return client.journals.create(record, (first,))


def _check_same(client: Client, record: RunRecord, workflow: str | None, digest: str | None) -> None:
    if workflow is not None and record.workflow != workflow:
        raise DefinitionChanged(
            record.id, f"it is a run of workflow {record.workflow!r}, not of {workflow!r}; use another id"
        )
    if digest is not None:
        uid, first = client.journals.entry(record, 0)
        made_for = client.journals.data(record.id, uid, first).get("definition")
        if made_for != digest:
            raise DefinitionChanged(
                record.id,
                "it was made for another definition; open it without definition= to go on all the same, or use "
                "another id",
            )


def get(client: Client, id: str) -> Op[HeldRun]:
    """The run of this id; raises `RunNotFound` if there is none."""
    record = yield Read(lambda: client.store.get(check_id(id)))
    if record is None:
        raise RunNotFound(
            id,
            f"there is no such run in {client.store.place}; hf.start(workflow, ..., id={id!r}) would make it, or "
            f"hf.run({id!r}) for a loop of your own",
        )
    return client.run(record.id, record.uid)


def runs(
    client: Client,
    *,
    status: Status | str | Collection[Status | str] | None = None,
    workflow: str | None = None,
    tags: Mapping[str, str] | None = None,
    prefix: str | None = None,
    created_from: datetime | None = None,
    created_before: datetime | None = None,
    limit: int = 50,
    after: str | None = None,
) -> Op[Page[RunInfo]]:
    """Runs, newest first, filtered and paged: give the page's ``next`` as ``after=``."""
    check_texts(workflow=workflow, prefix=prefix)
    check_runs_page(limit, after)
    filter = Filter(
        statuses=statuses_of("status", status),
        workflow=workflow,
        tags=tuple(sorted(tags_of(tags).items())),
        prefix=prefix,
        created_from=micros_of("created_from", created_from),
        created_before=micros_of("created_before", created_before),
    )
    found = yield Read(lambda: client.store.find(filter, before=after, limit=limit + 1))
    blocked: dict[str | None, RunRecord] = {}  # by the parents that wait for them
    if any(record.status is Status.WAITING and record.queue is not None for record in found[:limit]):
        stuck = Filter(statuses=(Status.BLOCKED,))
        blocked = {one.parent: one for one in (yield Read(client.store.find, stuck, limit=BLOCKED_SEEN))}
    page = [
        run_info(record, blocked.get(record.uid) if record.status is Status.WAITING else None)
        for record in found[:limit]
    ]
    return Page(tuple(page), page[-1].uid if len(found) > limit else None)


def workers(client: Client) -> Op[tuple[WorkerInfo, ...]]:
    """The processes that execute runs, by name, and the runs that each of them holds.

    The store knows a process from the first run that it takes until it ends in good order. A process that died stays as
    long as it holds runs. This one is among them only while it holds a run.
    """
    held: dict[str, list[str]] = {}
    before: str | None = None
    while True:
        found = yield Read(client.store.find, Filter(statuses=(Status.RUNNING,)), before=before, limit=HELD_PAGE)
        for record in found:
            if record.worker is not None:
                held.setdefault(record.worker, []).append(record.id)
        if len(found) < HELD_PAGE:
            break
        before = found[-1].uid
    here = client.engine.worker.name
    enlisted = yield Read(client.store.workers)
    known = {one.worker: one for one in enlisted if one.worker != here or here in held}
    return tuple(
        WorkerInfo(
            name=name,
            alive=name in known and known[name].alive,
            until=moment(known[name].until) if name in known else None,
            runs=tuple(sorted(held.get(name, ()))),
        )
        for name in sorted({*known, *held})
    )


def audit(client: Client, run: str | RunHandle, *, head: str | None = None) -> Op[AuditReport]:
    """Verify a run's journal; ``run`` is its id or its handle. See `Run.audit`."""
    held = (yield from get(client, run)) if isinstance(run, str) else run.held
    return (yield from audit_run(held, head=head))
