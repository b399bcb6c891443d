"""Requests to cancel a run, which stand in its inbox until whoever holds the run takes them in."""

from __future__ import annotations

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.workflow.outcomes import Cancelled
from holdfast.kernel.model import Item, Post, RunRecord
from holdfast.stores.protocol import write_one


def cancel_request(run: HeldRun, items: list[Item]) -> Cancelled | None:
    """The first request to cancel the run among these items of its inbox."""
    for item in items:
        if item.kind == "cancel":
            data = run.journals.item_data(run.id, run.uid, item)
            return Cancelled(data["why"], data["undo"], data["by"], data.get("force", False))
    return None


def cancel_request_keys(run: HeldRun) -> Op[tuple[str, ...]]:
    """The keys of all requests to cancel the run, to be taken when it is cancelled or resumed after its end."""
    items = yield Read(run.store.inbox, run.uid)
    return tuple(item.key for item in items if item.kind == "cancel")


def post_cancel_request(run: HeldRun, record: RunRecord, wish: Cancelled) -> Op[None]:
    """Leave a request to cancel the run in its inbox."""
    data = {"why": wish.why, "undo": wish.undo, "by": wish.by, "force": wish.force}
    key = f"cancel:{record.epoch}.{run.store.clock.random_bytes(4).hex()}"
    item = run.journals.item(record, key, "cancel", data, wakes=True)
    yield Read(write_one, run.store, Post(record.uid, item))
