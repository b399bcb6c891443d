"""The workflow of an imported CAR run as a graph, to be looked at.

The source document names a workflow's stages, edges, start and goal, and does not show what a stage or an edge looks
like. A stage is drawn if it is a text, or an object with an ``id``; an edge, if it is an object with ``from`` and
``to``, or ``source`` and ``target``. The stages that are named elsewhere are drawn in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.engine.run.handle import Run
from holdfast.errors import Redacted, UsageError
from holdfast.graph.draw.mermaid import mermaid
from holdfast.graph.draw.svg import svg
from holdfast.graph.draw.svg_path import Path
from holdfast.graph.model import END
from holdfast.importers.origins import origin

if TYPE_CHECKING:
    from holdfast.graph.draw.svg_path import Path

_ENDS = (("from", "to"), ("source", "target"))
_CONDITIONS = ("condition", "when", "label")
_LABEL = 40  # characters


def drawing(run: Run, form: Literal["mermaid", "svg"] = "mermaid") -> str:
    """The workflow of a run that was imported from CAR, with where the run was then.

    As Mermaid text, or as an SVG picture. Raises `UsageError` for a run that has no such workflow.
    """
    if form not in ("mermaid", "svg"):
        raise UsageError(f"form={form!r}: a drawing is 'mermaid' or 'svg'")
    came = origin(run)
    if came is None or came.system != "car":
        raise UsageError(f"run {run.id!r} was not imported from CAR, so there is no workflow of it to draw")
    path = _path(run)
    topology = topology_of(came.kept["workflow"], [*path.visits, *path.current])
    return (svg if form == "svg" else mermaid)(topology, path)


def _path(run: Run) -> Path:
    """Where the run had been when it was imported; nowhere, if that was erased."""
    try:
        then = run.checkpoint(2)  # the first entry after the run's creation and its origin
    except Redacted:
        return Path()
    completed = [stage for stage in then.variables["completed_stage_ids"] if isinstance(stage, str)]
    return Path(
        visits={stage: completed.count(stage) for stage in completed},
        current=frozenset({then.node} if then.node is not None else ()),
    )


def topology_of(workflow: dict[str, Any], also: Iterable[str] = ()) -> dict[str, Any]:
    """The stages and edges of a workflow, in the form in which `holdfast.graph` draws them."""
    edges = [edge for edge in map(_edge, workflow["edges"]) if edge is not None]
    names = [stage for stage in map(_stage, workflow["stages"]) if stage is not None]
    names += [workflow["start"], *also]
    names += [end for edge in edges for end in (edge["source"], edge["target"])]
    goal = workflow.get("goal")
    if goal in names and any(edge["source"] == goal for edge in edges):
        edges.append({"source": goal, "target": END, "conditional": True, "label": "goal"})
    return {
        "name": workflow["name"] or workflow["id"],
        "nodes": [{"name": name} for name in dict.fromkeys(names)],
        "edges": edges,
        "routers": [],
        "entries": [workflow["start"]],
        "before": [],
        "after": [],
        "goal": goal is not None and goal not in names,
    }


def undrawn(workflow: dict[str, Any]) -> list[str]:
    """What of a workflow is kept and not drawn."""
    stages = sum(_stage(one) is None for one in workflow["stages"])
    edges = sum(_edge(one) is None for one in workflow["edges"])
    return [
        f"{count} of its {what} are of a form that is not known: kept, and not drawn"
        for count, what in ((stages, "stages"), (edges, "edges"))
        if count
    ]


def _stage(given: Any) -> str | None:
    name = given.get("id") if isinstance(given, dict) else given
    return name if isinstance(name, str) else None


def _edge(given: Any) -> dict[str, Any] | None:
    if not isinstance(given, dict):
        return None
    for source, target in _ENDS:
        if isinstance(given.get(source), str) and isinstance(given.get(target), str):
            conditions = [given[name] for name in _CONDITIONS if given.get(name) is not None]
            label = _label(conditions[0]) if conditions else ""
            conditional = any(given.get(name) is not None for name in ("condition", "when"))
            return {"source": given[source], "target": given[target], "conditional": conditional, "label": label}
    return None


def _label(condition: Any) -> str:
    text = condition if isinstance(condition, str) else msgspec.json.encode(condition).decode()
    return text if len(text) <= _LABEL else text[: _LABEL - 1] + "…"
