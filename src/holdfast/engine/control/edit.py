"""Editing: a person changes what a run has saved, in place of the run itself."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast.codec import to_text
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease, Overtaken
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.argument_checks import check_texts
from holdfast.engine.workflow.declare import Edited, registered
from holdfast.errors import UsageError, WorkflowMissing
from holdfast.kernel.fold import Fold
from holdfast.kernel.model import Change, RunRecord, Status
from holdfast.kernel.rules import LIVE

if TYPE_CHECKING:
    from holdfast.engine.access.commit import Ticket
    from holdfast.engine.access.journal_reader import Saved

_ALLOWED = LIVE | {Status.BLOCKED, Status.FAILED}


def edit(run: HeldRun, state: Any, *, as_node: str | None = None) -> Op[int]:
    """Save another state in place of the current one; node, next, queue and variables stay as they are.

    Of a graph's run, give an update: it goes through the reducers, and what is queued stays. With ``as_node`` it counts
    as the update of that node: if that is queued, it is done by this; else its successors are queued too.
    """
    check_texts(as_node=as_node)
    held = run.lease
    record = held.record if held is not None else (yield Read(run.read_record))
    if record.queue is None:
        if as_node is not None:
            raise UsageError(f"run {run.id!r} is driven by hand, so it has no nodes; leave out as_node=")
        return (yield from run.save_tree({"state": run.codec.encode(state, "state")}, keep=True))
    lease, owned, end_turn = yield from run.enter_in_turn(allow=_ALLOWED)
    try:
        try:
            ticket = yield Read(_submit, run, record, lease, state, as_node)
        finally:
            end_turn()
        return (yield from run.settle(lease, ticket))
    finally:
        if owned:
            rests = record.status if record.status in (Status.BLOCKED, Status.FAILED) else Status.READY
            yield from run.release(lease, Change(status=rests, release=True, reason=record.reason))
            run.engine.bell.ring()


def _submit(run: HeldRun, record: RunRecord, lease: Lease, state: Any, as_node: str | None) -> Ticket:
    """Submit the edit. Compute it again if another write has replaced the state that it was computed for."""
    while True:
        lease.check()
        saved = lease.saved()
        edited = _edited(
            run, record, lease.fold, saved, state, as_node
        )  # without the lock: it calls the user's reducers
        with suppress(Overtaken):
            if edited is None:
                return lease.save({"state": run.codec.encode(state, "state")}, keep=True)
            if edited.delta is not None:
                return lease.change(edited.delta, on=saved)
            return lease.save(edited.tree, on=saved)


def _edited(run: HeldRun, record: RunRecord, fold: Fold, saved: Saved | None, update: Any, as_node: str | None) -> Any:
    workflow = registered(record.workflow, fold.input.get("version"), fold.input.get("module"))
    if workflow is None:
        raise WorkflowMissing(run.id, f"an edit needs {record.workflow!r}; import the module that declares it")
    edited = workflow.edit(run.codec, fold.input, saved, update, as_node)
    if edited is None and as_node is not None:
        raise UsageError(f"workflow {workflow.name} is a function, so it has no nodes; leave out as_node=")
    return edited


def edited_text(run: HeldRun, record: RunRecord, at: int, update: Any) -> tuple[bytes, int | None]:
    """What a fork at this entry saves to begin with: the text, and the snapshot that it builds on, if it does."""
    saved = run.journals.state(record, at)
    if record.queue is None:
        kept = {**saved.tree, "step": int(saved.tree["step"]) + 1} if saved is not None else {"step": 0}  # type: ignore[arg-type]
        return to_text({"s": {**kept, "state": run.codec.encode(update, "state")}}), None
    edited: Edited | None = _edited(run, record, run.journals.fold(record, at), saved, update, None)
    if edited is None:
        raise UsageError(
            f"run {run.id!r} is not the run of a graph, so edit= says nothing to it; use results= or input="
        )
    if edited.delta is None or saved is None:
        return to_text({"s": {**(edited.tree or {}), "step": 0}}), None
    delta = {**edited.delta, "s": {**edited.delta.get("s", {}), "step": int(saved.tree["step"]) + 1}}  # type: ignore[arg-type]
    return to_text({"d": delta}), saved.snapshot
