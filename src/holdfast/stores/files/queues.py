"""What a worker may take from queues in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.kernel.admission import Candidate, Held, admitted, is_left
from holdfast.kernel.model import Order, RunRecord
from holdfast.kernel.rules import due_order, is_due
from holdfast.stores.files.text import Sketch


def choose(
    order: Order,
    found: Iterable[tuple[str, Sketch]],
    listed: Callable[[str], RunRecord | None],
    alive: Callable[[str], bool],
    now: int,
) -> list[str]:
    """The uids of what the worker may take, of these runs of its queues.

    A run.json that says that nobody holds the run is right. Of the others the whole record is asked for by ``listed``,
    since the last line of a holder can be ahead of it.
    """
    due: list[Sketch | RunRecord] = []
    left: list[RunRecord] = []
    held: dict[str, list[Held]] = {name: [] for name in order.queues}
    living: dict[str, bool] = {}
    for path, sketch in found:
        one = sketch if sketch.worker is None else listed(path)
        if one is None or one.queue is None:
            continue
        if one.worker is None:
            if is_due(one, order.queues, order.workflows, now):
                due.append(one)
            continue
        assert isinstance(one, RunRecord)
        if one.worker not in living:
            living[one.worker] = alive(one.worker)
        if living[one.worker]:
            held[one.queue].append(Held(one.worker, one.lane))
        elif is_left(one, order.queues, order.workflows):
            left.append(one)
    candidates: dict[str, list[Candidate]] = {name: [] for name in order.queues}
    for run in (*sorted(left, key=lambda run: run.uid), *sorted(due, key=due_order)):
        candidates[run.queue or ""].append(Candidate.of(run))
    return admitted(order, candidates, held)
