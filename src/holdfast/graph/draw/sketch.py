"""What is drawn of a graph, whatever it is drawn with: marks, and the lines between them."""

from __future__ import annotations

import unicodedata
from typing import Any, Literal

from msgspec import Struct

from holdfast.graph.draw.svg_path import Path
from holdfast.graph.model import END
from holdfast.graph.topology import Topology, ends_by_itself, ways_in

Kind = Literal["start", "node", "map", "graph", "router", "end"]
Part = Literal["plain", "done", "here", "failed"]  # what a mark or a line was in a run

START, STOP = "start", "stop"  # ids of marks; Mermaid takes no `end`
_UNREADABLE = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufffe\uffff")  # would turn text round


class Mark(Struct, frozen=True, kw_only=True):
    """Something with a place: a node, the router of a node, the start or the end."""

    id: str
    kind: Kind
    name: str
    notes: tuple[str, ...] = ()
    badge: str = ""  # what a run did here, in a word
    part: Part = "plain"


class Line(Struct, frozen=True, kw_only=True):
    """A way from one mark to another."""

    source: str
    target: str
    label: str = ""
    dashed: bool = False  # it is not always taken
    taken: bool = False


class Sketch(Struct, frozen=True, kw_only=True):
    """A graph as marks and lines, in the order of declaration. The first mark is the start, the last one the end."""

    name: str
    marks: tuple[Mark, ...]
    lines: tuple[Line, ...]
    path: bool  # whether it shows a run


def sketch(topology: Topology, path: Path | None = None) -> Sketch:
    """What is to be drawn, with the path that a run took if one is given."""
    ids = {node["name"]: f"n{number}" for number, node in enumerate(topology["nodes"])} | {END: STOP}
    taken = path.edges if path is not None else frozenset[tuple[str, str]]()
    marks, lines = _routers(topology, ids, taken)
    begun = path is not None and bool(path.visits or path.current or path.failed)
    ended = any(target == END for _, target in taken)
    arrivals = {name: len(sources) for name, sources in ways_in(topology).items()}
    nodes = [_node(node, ids[node["name"]], topology, arrivals, path) for node in topology["nodes"]]
    touched = {mark.name for mark in nodes if mark.part != "plain"}
    entries = [
        Line(source=START, target=ids[name], taken=name in touched) for name in topology["entries"] if name in ids
    ]
    return Sketch(
        name=readable(topology["name"]),
        marks=(
            Mark(id=START, kind="start", name="start", part="done" if begun else "plain"),
            *nodes,
            *marks,
            Mark(
                id=STOP,
                kind="end",
                name="end or goal" if topology["goal"] else "end",
                part="done" if ended else "plain",
            ),
        ),
        lines=(*entries, *_edges(topology, ids, taken), *lines, *_ends(topology, ids, taken)),
        path=path is not None,
    )


def readable(text: str) -> str:
    """The text without what cannot be drawn: control characters and the like are shown as a replacement mark."""
    return "".join("\ufffd" if c in _UNREADABLE or unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def _node(node: dict[str, Any], id: str, topology: Topology, arrivals: dict[str, int], path: Path | None) -> Mark:
    name = node["name"]
    badge, part = _badge(name, path)
    return Mark(
        id=id,
        kind=node.get("kind", "node"),
        name=readable(name),
        notes=tuple(_notes(node, topology, arrivals.get(name, 0) + (name in topology["entries"]))),
        badge=badge,
        part=part,
    )


def _notes(node: dict[str, Any], topology: Topology, arrivals: int) -> list[str]:
    notes = []
    if node.get("kind") == "map":
        notes.append(f"for each of {readable(over)}" if (over := node.get("over")) else "for each item")
        if limit := node.get("limit"):
            notes.append(f"{limit} at once")
    if node.get("kind") == "graph":
        notes.append("graph")
    if (join := node.get("join", "all")) != "all":
        notes.append("first to arrive" if join == "any" else f"{join} of {arrivals} to arrive")
    if node.get("until"):
        notes.append("repeated until done")
    notes += [f"pauses {when}" for when in ("before", "after") if node["name"] in topology[when]]
    if node.get("undo"):
        notes.append("can be undone")
    return notes


def _badge(name: str, path: Path | None) -> tuple[str, Part]:
    if path is None:
        return "", "plain"
    visits = path.visits.get(name, 0)
    times = f"×{visits}" if visits > 1 else ""
    if name in path.failed:
        return f"failed {times}".strip(), "failed"
    if name in path.current:
        return f"here {times}".strip(), "here"
    return times, "done" if visits else "plain"


def _edges(topology: Topology, ids: dict[str, str], taken: frozenset[tuple[str, str]]) -> list[Line]:
    """One line for all edges between the same two nodes."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for edge in topology["edges"]:
        if edge["source"] in ids and edge["source"] != END and edge["target"] in ids:
            found.setdefault((edge["source"], edge["target"]), []).append(edge)
    return [
        Line(
            source=ids[source],
            target=ids[target],
            label=" or ".join(readable(edge["label"]) for edge in edges if edge["label"]),
            dashed=all(edge["conditional"] for edge in edges),
            taken=(source, target) in taken,
        )
        for (source, target), edges in found.items()
    ]


def _routers(
    topology: Topology, ids: dict[str, str], taken: frozenset[tuple[str, str]]
) -> tuple[list[Mark], list[Line]]:
    """A mark for each router, between its node and the targets."""
    marks, lines = [], []
    for number, router in enumerate(topology["routers"]):
        source, targets = router["source"], [name for name in router["targets"] if name in ids]
        if source not in ids or source == END:
            continue
        used = any((source, target) in taken for target in targets)
        mark = Mark(id=f"r{number}", kind="router", name=readable(router["label"]), part="done" if used else "plain")
        marks.append(mark)
        lines.append(Line(source=ids[source], target=mark.id, taken=used))
        for target in sorted(targets, key=list(ids).index):
            lines.append(Line(source=mark.id, target=ids[target], dashed=True, taken=(source, target) in taken))
    return marks, lines


def _ends(topology: Topology, ids: dict[str, str], taken: frozenset[tuple[str, str]]) -> list[Line]:
    """Lines to the end from where a branch ends by itself."""
    conditional = {edge["source"] for edge in topology["edges"]}
    to_end = {edge["source"] for edge in topology["edges"] if edge["target"] == END}
    return [
        Line(
            source=ids[name],
            target=STOP,
            label="otherwise" if name in conditional else "",
            dashed=name in conditional,
            taken=(name, END) in taken,
        )
        for name in ids
        if name in ends_by_itself(topology) and name not in to_end
    ]
