"""What a run was begun with, for people: its arguments by name where its workflow is known, the variables of a flow."""

from __future__ import annotations

from typing import Any

from holdfast.cli.flows import FLOW
from holdfast.cli.targets import is_graph
from holdfast.engine.run.handle import Run
from holdfast.kernel.model import Kind
from holdfast.views import RunInfo


def input_of(run: Run, info: RunInfo) -> Any:
    """The input in values that JSON can hold; None if it has none, or if it was erased."""
    given = _given(run, info)
    args, kwargs = given.get("args"), given.get("kwargs")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return None
    if info.workflow == FLOW:
        return args[0].get("vars") if args and isinstance(args[0], dict) else None
    workflow = run.declared()
    if is_graph(workflow) and len(args) == 1:
        return args[0]
    if workflow is not None:
        try:
            return dict(workflow.signature.bind_partial(*args, **kwargs).arguments) or None
        except TypeError:  # it takes others since; they are shown as they were given
            pass
    return ({"args": args, **kwargs} if kwargs else args) if args else kwargs or None


def _given(run: Run, info: RunInfo) -> dict[str, Any]:
    """What the entries say that the workflow begins with: the first, that of a fork, or of the newest chapter."""
    given: dict[str, Any] = {}
    kinds = (Kind.CREATED, *((Kind.FORKED,) if info.forked_from else ()), Kind.CONTINUED)
    for seq in sorted(seq for kind in kinds for seq in _entries(run, kind)):
        entry = run.entry(seq)
        given = {**given, **entry.contents.get("input", {})} if entry.kind == Kind.FORKED else entry.contents
    return given


def _entries(run: Run, kind: Kind) -> list[int]:
    """The numbers of the entries of a kind that count."""
    if kind is Kind.CREATED:
        return [0]
    found: list[int] = []
    after: str | None = None
    while True:
        page = run.history(kind=kind, limit=500, after=after)
        found += [info.seq for info in page if info.live]
        if (after := page.next) is None:
            return found
