"""The input of a run: its arguments by name where the workflow is declared here, the variables of a flow."""

from __future__ import annotations

import sys
from inspect import Parameter
from typing import Any

from msgspec import Struct

from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.declare import registered
from holdfast.present.words import FLOW
from holdfast.views import RunInfo

_PLAIN = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Input(Struct, frozen=True, kw_only=True):
    """The input that a run works with now: after a fork with another one, or after ``continue_as_new``, the new one.

    ``named`` has its parts in order, and ``value`` the same as one JSON value, None if there is none or if it was
    erased. ``by_names`` has all arguments if a fork may change them by these names. ``definition`` is the flow that a
    run of one executes. ``seq`` is the entry that holds the input.
    """

    seq: int
    named: list[tuple[str, Any]] = []
    value: Any = None
    by_names: dict[str, Any] | None = None
    definition: Any = None


def input_of(run: Run, info: RunInfo) -> Input:
    """The input of a run, in values that JSON can hold."""
    seq, given = _given(run)
    args, kwargs = given.get("args"), given.get("kwargs")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return Input(seq=seq)
    if info.workflow == FLOW:
        started = args[0] if args and isinstance(args[0], dict) else {}
        variables = started.get("vars")
        named = list(variables.items()) if isinstance(variables, dict) else []
        return Input(seq=seq, named=named, value=variables, definition=started.get("flow"))
    driven = info.queue is not None
    workflow = registered(info.workflow, given.get("version"), given.get("module")) if driven else None
    try:
        bound = dict(workflow.signature.bind_partial(*args, **kwargs).arguments) if workflow is not None else None
    except TypeError:  # it takes other parameters by now; the arguments are shown as they were given
        bound = None
    if workflow is None or bound is None:
        value = ({"args": args, **kwargs} if kwargs else args) if args else kwargs or None
        named = [*((f"argument {n}", one) for n, one in enumerate(args, 1)), *kwargs.items()]
        return Input(seq=seq, named=named, value=value)
    kinds = {name: one.kind for name, one in workflow.signature.parameters.items()}
    by_names = bound if all(kinds[name] in _PLAIN for name in bound) else None
    value = args[0] if is_graph(workflow) and len(args) == 1 else bound or None
    return Input(seq=seq, named=list(bound.items()), value=value, by_names=by_names)


def _given(run: Run) -> tuple[int, dict[str, Any]]:
    """The entry that holds the input, and what was given: by the first of the chapter, or by the last fork after it."""
    record = run.held.read_record()
    seq, given = record.chapter, run.entry(record.chapter).contents
    for link in record.lineage:
        if link.upto >= record.chapter and "args" in (changed := run.entry(link.upto + 1).contents.get("input", {})):
            seq, given = link.upto + 1, {**given, **changed}
    return seq, given


def is_graph(workflow: Any) -> bool:
    """Whether it is a graph. If nobody has imported `holdfast.graph`, there are none."""
    graphs = sys.modules.get("holdfast.graph")
    return graphs is not None and isinstance(workflow, graphs.Graph)
