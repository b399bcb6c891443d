"""Acting on runs: what the operations of the API do that change something. Who did it is journaled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.declare import Workflow, namesakes, registered
from holdfast.errors import HoldfastError, RunExists, UsageError
from holdfast.kernel.model import RunRecord, Status
from holdfast.present.arguments import declare, fitted
from holdfast.ui import shapes
from holdfast.ui.api.calls import TURNS, Call
from holdfast.ui.api.problems import Refused, problem_of
from holdfast.ui.api.read_ops import filter_of

Act = Callable[[Run], object]
Runs = TypeVar("Runs", bound=shapes.Several)


def start_run(call: Call[None, shapes.Start]) -> shapes.RunView:
    """Begin a workflow."""
    given = call.body
    workflow, args, kwargs = to_begin(given.workflow, given.input)
    id = given.id
    if id is None and given.dedup is None and call.key is not None:
        id = f"{given.workflow[:450]}-{call.key}"
    run = call.hf.enqueue(
        workflow,
        *args,
        id=id,
        tags=given.tags,
        deadline=given.deadline,
        queue=given.queue,
        priority=given.priority,
        delay=given.delay,
        key=given.key,
        dedup=given.dedup,
        ttl=given.ttl,
        **kwargs,
    )
    return call.view(run)


def to_begin(name: str, input: Any) -> tuple[Workflow[..., Any], list[Any], dict[str, Any]]:
    """The workflow of this name, and the arguments for it; raises `UsageError`."""
    workflow = registered(name)
    if workflow is None:
        several = len(namesakes(name, None)) > 1
        why = "is declared by several modules here" if several else "is not declared in this server (--module)"
        raise UsageError(f"workflow {name!r} {why}; GET /workflows lists those that can be begun")
    try:
        return workflow, *fitted(workflow, input)
    except UsageError as error:
        raise UsageError(str(error).replace("--input", "input")) from None


def answer_question(call: Call[None, shapes.Answer]) -> shapes.RunView:
    """Answer a question."""
    call.run.answer(call.body.value, question=call.params["question"], by=call.person.name)
    return call.view()


def send_message(call: Call[None, shapes.Message]) -> shapes.Sent:
    """Send it a message."""
    given = call.body
    key = given.key if given.key is not None else call.key
    sent = call.run.send(given.value, topic=given.topic, key=key, by=call.person.name)
    return shapes.Sent(call.view(), sent)


def fork_run(call: Call[None, shapes.Fork]) -> shapes.RunView:
    """Make a new run that shares its past."""
    given, run = call.body, call.run
    declare(run)
    id = given.id if given.id is not None or call.key is None else f"{run.id[:450]}.fork-{call.key}"
    try:
        made = run.fork(
            given.at,
            id=id,
            input=given.input,
            results=given.results,
            answers=given.answers,
            edit=given.edit,
            by=call.person.name,
        )
    except RunExists:
        if given.id is not None or id is None:
            raise
        made = call.hf.get(id)  # made by the same request, by a server that died before it could say so
    return call.view(made)


def roll_back_run(call: Call[None, shapes.Rollback]) -> shapes.RolledBack:
    """Go back to an entry, and undo what came after it."""
    run = call.run
    declare(run)
    then = None if call.body.then == "go-on" else call.body.then
    report = run.rollback(call.body.to, then=then, force=call.body.force, by=call.person.name)
    return shapes.RolledBack(call.view(), report)


def cancel_run(call: Call[None, shapes.Cancel]) -> shapes.RunView:
    """Give it up."""
    _cancel(call.run, call.body, call.person.name)
    return call.view()


def _cancel(run: Run, given: shapes.Cancel | shapes.CancelSeveral, by: str) -> None:
    if given.undo or given.force:
        declare(run)
    run.cancel(given.why, undo=given.undo, force=given.force, by=by)


def retry_run(call: Call[None, shapes.Nothing]) -> shapes.RunView:
    """Try it again."""
    call.run.retry(by=call.person.name)
    return call.view()


def unblock_run(call: Call[None, shapes.Nothing]) -> shapes.RunView:
    """Let it go on."""
    call.run.unblock(by=call.person.name)
    return call.view()


def resolve_step(call: Call[None, shapes.Resolve]) -> shapes.RunView:
    """Say what became of a step that died in the act."""
    given = call.body
    call.run.resolve(given.key, done=given.done, result=given.result, by=call.person.name)
    return call.view()


def redact_run(call: Call[None, shapes.Redact]) -> shapes.RunView:
    """Erase what entries hold."""
    call.run.redact(*call.body.seqs, by=call.person.name, why=call.body.why)
    return call.view()


def delete_run(call: Call[None, None]) -> shapes.Deleted:
    """Delete it."""
    return shapes.Deleted(call.run.delete())


# --- several runs


def cancel_runs(call: Call[None, shapes.CancelSeveral]) -> shapes.Outcomes:
    """Give up several runs."""
    given, by = call.body, call.person.name
    live = (Status.READY, Status.RUNNING, Status.WAITING, Status.BLOCKED)
    return _each(call, live, lambda run: _cancel(run, given, by))


def retry_runs(call: Call[None, shapes.Several]) -> shapes.Outcomes:
    """Try several failed runs again."""
    return _each(call, (Status.FAILED,), lambda run: run.retry(by=call.person.name))


def unblock_runs(call: Call[None, shapes.Several]) -> shapes.Outcomes:
    """Let several blocked runs go on."""
    return _each(call, (Status.BLOCKED,), lambda run: run.unblock(by=call.person.name))


def _each(call: Call[None, Runs], default: tuple[Status, ...], act: Act) -> shapes.Outcomes:
    """Do it to each run; what goes wrong with one is told, and the others are still done."""
    given, hf = call.body, call.hf
    if bool(given.runs) is (given.where is not None):
        raise UsageError("say which runs: name them in runs, or find them by where; one of the two")
    if given.where is None:
        found = [call.record(id) for id in given.runs]
    else:
        filter = filter_of(given.where)
        statuses = filter.statuses or default
        found = hf.client.store.find(
            type(filter)(**{**_fields(filter), "statuses": statuses}), before=given.where.after, limit=given.where.limit
        )
    if given.dry_run:
        return shapes.Outcomes([shapes.Outcome(run=one.id, status=one.status) for one in found], True)
    return shapes.Outcomes([_one(call, record, act) for record in found], False)


def _fields(filter: Any) -> dict[str, Any]:
    return {name: getattr(filter, name) for name in filter.__struct_fields__}


def _one(call: Call[None, Runs], record: RunRecord, act: Act) -> shapes.Outcome:
    try:
        with TURNS.turn(record.id):
            act(call.hf.get(record.id))
        return shapes.Outcome(run=record.id, status=call.record(record.id).status)
    except (HoldfastError, Refused) as error:
        return shapes.Outcome(run=record.id, status=record.status, error=problem_of(error, call.hf.place).detail)


def prune_runs(call: Call[None, shapes.Prune]) -> shapes.Pruned:
    """Delete old runs."""
    given = call.body
    runs = call.hf.prune(
        older_than=timedelta(seconds=given.older_than) if given.older_than is not None else None,
        keep_last=given.keep_last,
        statuses=given.statuses,
        dry_run=given.dry_run,
    )
    return shapes.Pruned(list(runs), given.dry_run)
