"""Deleting old runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from holdfast.engine.access.client import Client
from holdfast.engine.access.operations import Nap, Op, Read
from holdfast.engine.argument_checks import check_retention, statuses_of
from holdfast.errors import UsageError
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.model import ENDED, Filter, RunRecord, Status

IN_A_ROW, TURN = 4, 0.005  # how many runs are deleted before a pause of so many seconds, on this machine
SWEPT = 100  # and how many at once, across a network


def prune(
    client: Client,
    *,
    older_than: timedelta | None = None,
    keep_last: int = 0,
    statuses: Collection[Status | str] | None = None,
    dry_run: bool = False,
) -> Op[tuple[str, ...]]:
    """Delete runs of these statuses (by default: ended ones), but for the newest few; returns their ids.

    ``older_than`` spares those that were written to within that time. A run that somebody holds, or that is in the
    middle of its rollback, is never touched, nor are children of a run that has not ended, nor entries that a fork
    shares. With ``dry_run`` nothing is deleted. A moved run has the status ``away``.
    """
    if older_than is None and not keep_last and statuses is None:
        raise UsageError("prune() would delete every ended run: say older_than=, keep_last= or statuses=")
    check_retention(older_than, keep_last)
    now = client.store.clock.now()
    limit = now - older_than // timedelta(microseconds=1) if older_than is not None else now
    # What was made later was written to later; but if some are spared by their number, all are counted.
    made_by = None if keep_last else limit + 1
    wanted = statuses_of("statuses", ENDED if statuses is None else statuses)
    filter = Filter(statuses=wanted, created_before=made_by)
    pruned: list[str] = []
    at_once = SWEPT if client.store.networked else IN_A_ROW
    seen, before = 0, None
    while page := (yield Read(client.store.find, filter, before=before, limit=500)):
        before = page[-1].uid
        doomed: list[RunRecord] = []
        for record in page:
            seen += 1
            kept = seen <= keep_last or record.updated_at > limit
            if kept or record.worker is not None or record.was is not None or record.rollback is not None:
                continue
            if record.parent is None or not (yield Read(_is_needed, client, record)):
                doomed.append(record)
        for n in range(0, len(doomed), at_once):
            some = doomed[n : n + at_once]
            gone = some if dry_run else (yield Read(_deleted, client, some))
            pruned += [record.id for record in gone]
            if not dry_run and _is_others_turn(client):
                yield Nap(client.store.clock, TURN)
    return tuple(pruned)


def _deleted(client: Client, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Delete these, if they are as they were; which ones were."""
    outcomes = client.store.delete(records)
    return [record for record, outcome in zip(records, outcomes, strict=True) if outcome is True]


def _is_others_turn(client: Client) -> bool:
    """Whether one who writes much should pause, so that others on this machine can: they wait for one lock."""
    return not client.store.networked and isinstance(client.store.clock, SystemClock)


def _is_needed(client: Client, record: RunRecord) -> bool:
    """Whether the run is a part of one that has not ended, and may still ask for its result or take it back."""
    parent = client.store.get(uid=record.parent) if record.parent is not None else None
    return parent is not None and not parent.hidden and parent.status not in ENDED | {Status.AWAY}
