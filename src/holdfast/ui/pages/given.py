"""What a run began with: its arguments, by their names where the workflow is known here."""

from __future__ import annotations

from inspect import Parameter
from typing import Any

from msgspec import Struct

from holdfast.cli.flows import FLOW
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.declare import Workflow, registered
from holdfast.views import RunInfo

_PLAIN = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class Given(Struct, frozen=True):
    """What a run began with: ``named`` in order. ``definition`` is the flow that a run of one carries out.

    ``by_names`` has all arguments, if a fork may change them by these names; else it is None.
    """

    seq: int
    named: list[tuple[str, Any]]
    by_names: dict[str, Any] | None = None
    definition: Any = None


def given_to(run: Run, info: RunInfo) -> Given:
    """What the run began with."""
    seq, said = _input(run)
    args, kwargs = list(said.get("args") or []), dict(said.get("kwargs") or {})
    if info.workflow == FLOW and len(args) == 1 and isinstance(args[0], dict) and isinstance(args[0].get("vars"), dict):
        return Given(seq, list(args[0]["vars"].items()), definition=args[0].get("flow"))
    workflow = registered(info.workflow, said.get("version"), said.get("module"))
    bound = _bound(workflow, args, kwargs) if workflow is not None and info.queue is not None else None
    if workflow is None or bound is None:
        return Given(seq, [*((f"argument {n}", one) for n, one in enumerate(args, 1)), *kwargs.items()])
    kinds = {name: one.kind for name, one in workflow.signature.parameters.items()}
    plain = all(kinds[name] in _PLAIN for name in bound)
    return Given(seq, list(bound.items()), bound if plain else None)


def _input(run: Run) -> tuple[int, dict[str, Any]]:
    """The entry that has the input, and what it says: of a fork that began with another one, that it is a fork."""
    first = run.entry(0).contents
    for link in reversed(run.held.read_record().lineage):
        if (given := run.entry(link.upto + 1).contents.get("input")) is not None:
            return link.upto + 1, {**first, **given}
    return 0, first


def _bound(workflow: Workflow[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return dict(workflow.signature.bind_partial(*args, **kwargs).arguments)
    except TypeError:  # the workflow here takes others than when the run began
        return None
