"""Driving a run by hand: states are saved, and its end is declared, by the caller."""

from __future__ import annotations

from typing import Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op
from holdfast.engine.argument_checks import check_texts
from holdfast.engine.control.cancel import end_by_hand
from holdfast.engine.workflow.failures import one_line
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Status


def release(run: HeldRun) -> Op[None]:
    """Give up the claim, so that another holder may go on. May be repeated."""
    if run.lease is not None:
        yield from run.release(run.lease)


def save(
    run: HeldRun,
    state: Any,
    *,
    next: str | None = None,
    queue: Any = None,
    variables: Any = None,
    node: str | None = None,
) -> Op[int]:
    """Checkpoint the state, and what comes next; returns its sequence number.

    Only what changed since the save before is stored. The state may be changed or thrown away afterwards. A
    checkpoint is what was given to its save: leave out ``next`` or ``queue``, and it has none. To change the
    state alone, use `edit`.
    """
    check_texts(next=next, node=node)
    tree: Data = {"state": run.codec.encode(state, "state")}
    for name, value in (("node", node), ("next", next), ("queue", queue), ("variables", variables)):
        if value is not None:
            tree[name] = run.codec.encode(value, name)
    return (yield from run.save_tree(tree, keep=False))


def complete(run: HeldRun, result: Any = None) -> Op[None]:
    """The run is done; its lease is given up. Completing twice changes nothing.

    If somebody had asked to cancel the run before, it is cancelled instead, and `RunEnded` is raised.
    """
    yield from end_by_hand(run, Status.COMPLETED, {"result": run.codec.encode(result, "result")})


def fail(run: HeldRun, error: str | BaseException) -> Op[None]:
    """The run has failed; its lease is given up. It can still be forked, or rolled back and go on.

    If somebody had asked to cancel the run before, it is cancelled instead, and `RunEnded` is raised.
    """
    told = run.codec.scrub(error) if isinstance(error, str) else one_line(error, run.codec)
    yield from end_by_hand(run, Status.FAILED, {"error": told})
