"""The effects of a run, as users see them."""

from __future__ import annotations

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op
from holdfast.kernel.fold import Mark
from holdfast.views import Effect, moment


def effects(run: HeldRun) -> Op[tuple[Effect, ...]]:
    """Everything that the run did to the outside world, oldest first, with what became of it."""
    fold = yield from run.seen()
    return tuple(effect(mark) for mark in sorted(fold.ledger.values(), key=lambda mark: mark.seq))


def effect(mark: Mark) -> Effect:
    """An effect of the ledger as users see it."""
    data = mark.data
    return Effect(
        seq=mark.seq,
        key=data["key"],
        tool=data["tool"],
        target=data.get("target"),
        reversible=bool(data.get("reversible")),
        status=mark.status,  # type: ignore[arg-type]
        at=moment(mark.at),
        undo=data.get("undo"),
        error=mark.error,
    )
