"""Looking at runs: what the operations of the API do that change nothing."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.declare import registered_names
from holdfast.errors import KeyMissing, RunError, UsageError
from holdfast.graph.draw.mermaid import mermaid
from holdfast.graph.draw.run_path import drawn
from holdfast.kernel.model import Filter, Status
from holdfast.present.diff import State, changes, state_of
from holdfast.present.outcome import outcome_of
from holdfast.ui import shapes
from holdfast.ui.api.calls import Call, Plain
from holdfast.ui.api.problems import problem_of
from holdfast.views import EntryContents, Question

UPTO = 1_000  # as many runs of a status are counted
KIN = 100  # children and forks that are shown
_ASKING = (Status.WAITING, Status.READY, Status.RUNNING)


def filter_of(query: shapes.RunQuery) -> Filter:
    """Which runs are asked for, as stores take it."""
    tags = [(name, value) for name, _, value in (tag.partition("=") for tag in query.tag)]
    times = [
        None if at is None else int(at.timestamp() * 1_000_000) for at in (query.created_from, query.created_before)
    ]
    return Filter(
        statuses=tuple(sorted(set(query.status))),
        workflow=query.workflow,
        tags=tuple(sorted(tags)),
        prefix=query.prefix,
        created_from=times[0],
        created_before=times[1],
    )


def list_runs(call: Call[shapes.RunQuery, None]) -> shapes.RunPage:
    """List runs, newest first."""
    limit = call.query.limit
    found = call.hf.client.store.find(filter_of(call.query), before=call.query.after, limit=limit + 1)
    page = call.views(found[:limit])
    return shapes.RunPage(page, page[-1].uid if len(found) > limit else None)


def count_runs(call: Plain) -> shapes.Counts:
    """Count the runs of each status."""
    counts = call.hf.client.store.counts(UPTO)
    return shapes.Counts(counts={str(status): count for status, count in counts.items()}, upto=UPTO)


def show_run(call: Plain) -> shapes.RunDetail:
    """Show a run, what it asks, and what came of it."""
    run, view = call.run, call.view()
    try:
        checkpoint = run.checkpoint()
        ended = outcome_of(run, run.info())
        return shapes.RunDetail(
            run=view,
            questions=list(run.questions()),
            node=checkpoint.node,
            next=checkpoint.next,
            queue=checkpoint.queue,
            result=ended.result,
            error=ended.error,
        )
    except KeyMissing:
        return shapes.RunDetail(run=view, readable=False)


def list_entries(call: Call[shapes.HistoryQuery, None]) -> shapes.EntryPage:
    """List the entries of its journal."""
    query = call.query
    page = call.run.history(limit=query.limit, after=query.after, kind=query.kind)
    return shapes.EntryPage(list(page), page.next)


def show_entry(call: Plain) -> EntryContents:
    """Show an entry with its contents."""
    return call.run.entry(call.seq)


def show_state(call: Call[shapes.AtQuery, None]) -> State:
    """Show its state, now or at an entry."""
    return state_of(call.run, call.query.at)


def compare_runs(call: Call[shapes.CompareQuery, None]) -> shapes.Comparison:
    """Compare it with another run, or at two entries."""
    query, run = call.query, call.run
    other = call.hf.get(query.run) if query.run is not None else run
    a, b = state_of(run, query.at), state_of(other, query.to)
    return shapes.Comparison(shapes.Point(a.run, a.seq), shapes.Point(b.run, b.seq), list(changes(a, b)))


def list_steps(call: Plain) -> shapes.Steps:
    """List its steps."""
    return shapes.Steps(list(call.run.steps()))


def list_effects(call: Plain) -> shapes.Effects:
    """List what it did to the outside world."""
    return shapes.Effects(list(call.run.effects()))


def list_outputs(call: Call[shapes.OutputQuery, None]) -> shapes.OutputPage:
    """List what it emitted."""
    query, codec = call.query, call.hf.client.codec
    page = call.run.outputs(query.stream, limit=query.limit, after=query.after)
    found = [
        shapes.OutputView(one.seq, one.at, one.stream, codec.raw(codec.encode(one.value, "output"))) for one in page
    ]
    return shapes.OutputPage(found, page.next)


def list_run_questions(call: Plain) -> shapes.Questions:
    """List what it asks."""
    return shapes.Questions(list(call.run.questions()))


def list_questions(call: Call[shapes.QuestionQuery, None]) -> shapes.Questions:
    """List the questions that wait for an answer."""
    limit, hf = call.query.limit, call.hf
    records = hf.client.store.find(Filter(statuses=_ASKING), before=call.query.after, limit=limit + 1)
    found, unread = list[Question](), list[shapes.Unread]()
    for record in records[:limit]:
        try:
            found += Run(hf.client.run(record.id, record.uid)).questions()
        except (RunError, KeyMissing) as error:
            unread.append(shapes.Unread(record.id, problem_of(error, hf.place).detail))
    return shapes.Questions(found, unread, records[limit - 1].uid if len(records) > limit else None)


def plan_rollback(call: Call[shapes.ToQuery, None]) -> shapes.Plan:
    """Show what a rollback would do."""
    plan = call.run.plan_rollback(call.query.to)
    return shapes.Plan(plan.to, list(plan.steps))


def show_family(call: Plain) -> shapes.Family:
    """Show what it was forked from, its parent, children and forks."""
    store, record = call.hf.client.store, call.record()
    parent = store.get(uid=record.parent) if record.parent is not None else None
    return shapes.Family(
        run=call.view(),
        forked_from=[shapes.Point(link.id, link.upto) for link in record.lineage],
        parent=call.views([parent])[0] if parent is not None and not parent.hidden else None,
        children=call.views(store.find(Filter(parent=record.uid), limit=KIN)),
        forks=call.views(store.find(Filter(shares=record.uid), limit=KIN)),
    )


def draw_run(call: Plain) -> shapes.Picture:
    """Draw its graph with the path that it took."""
    found = drawn(call.run)
    if found is None:
        raise UsageError(f"run {call.params['run']!r} has no picture: it is of no graph, or has not begun")
    return shapes.Picture(mermaid(*found))


def export_run(call: Plain) -> bytes:
    """Copy a run, and what it needs, as `holdfast import` takes it in."""
    with TemporaryDirectory(prefix="holdfast-export-") as folder:
        path = Path(folder) / "run.jsonl"
        call.hf.backup(str(path), runs=[call.record().id])
        return path.read_bytes()


def audit_run(call: Call[shapes.AuditQuery, None]) -> shapes.Audit:
    """Verify its journal."""
    report = call.run.audit(head=call.query.head)
    return shapes.Audit(report.run, report.entries, list(report.redacted), report.head)


def list_workflows(call: Plain) -> shapes.Workflows:
    """List the workflows that can be begun."""
    return shapes.Workflows(sorted(registered_names()))
