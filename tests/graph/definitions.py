"""Graphs for the tests, made of the records that `holdfast.graph.Graph` makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict

from hypothesis import strategies as st

from holdfast.graph.model import END, Definition, Edge, Node, Quorum, Router


class Plain(TypedDict):
    """A state that says nothing of note."""

    score: int
    items: list[int]


def nothing(state: Any) -> Any:
    return None


def graph_of(
    nodes: Iterable[str | dict[str, Any]],
    edges: Iterable[str | tuple[str, str]] = (),
    routers: Iterable[tuple[str, Callable[..., Any], list[str]]] = (),
    entries: Iterable[str] | None = None,
    **more: Any,
) -> Definition:
    """A definition. Nodes are declared in lines 1, 2, … of graph.py, edges in 101, …, routers in 201, …

    An edge is ``"a b"``, ``"a b?"`` if it is conditional, or ``"a b?ready"`` with a label; a node is a name or, for a
    node with properties, a dict.
    """
    told = [{"name": node} if isinstance(node, str) else node for node in nodes]
    made = [
        Node(**{"function": nothing, "place": f"graph.py:{line}"} | node) for line, node in enumerate(told, start=1)
    ]
    starts = [node.name for node in made[:1]] if entries is None else entries
    return Definition(
        **{"name": "research", "state": Plain, "place": "graph.py:900"} | more,
        nodes={node.name: node for node in made},
        edges=tuple(edge_of(edge, 101 + line) for line, edge in enumerate(edges)),
        routers=tuple(
            Router(source=source, function=function, targets=tuple(targets), place=f"graph.py:{201 + line}")
            for line, (source, function, targets) in enumerate(routers)
        ),
        entries=tuple(starts),
    )


def edge_of(edge: str | tuple[str, str], line: int) -> Edge:
    source, target = edge if isinstance(edge, tuple) else edge.split(" ", 1)
    target, conditional, label = target.partition("?")
    when = (lambda state: True) if conditional else None
    return Edge(source=source, target=target, place=f"graph.py:{line}", when=when, label=label or None)


@st.composite
def definitions(draw: st.DrawFn, *, sound: bool = False) -> Definition:
    """Any definition, with names of all kinds; or, if it must be ``sound``, one in which all names are known."""
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
    names = draw(st.lists(text.filter(lambda name: name != END), min_size=1, max_size=7, unique=True))
    known = st.sampled_from([*names, END])
    some = known if sound else known | text
    nodes = [
        {
            "name": name,
            "kind": draw(st.sampled_from(["node", "map", "graph"])),
            "join": draw(st.sampled_from(["all", "any", Quorum(2), Quorum(3)])),
            "until": draw(st.sampled_from([None, bool])),
            "writes": draw(st.sampled_from([None, ("score",), ("score", "items"), ("gone",)])),
            "over": draw(st.sampled_from([None, "items", "gone", len])),
            "limit": draw(st.sampled_from([None, 0, 8])),
        }
        for name in names
    ]
    edges = [
        Edge(
            source=source,
            target=target,
            place=f"graph.py:{line}",
            when=draw(st.sampled_from([None, bool])),
            label=label,
        )
        for line, (source, target, label) in enumerate(
            draw(st.lists(st.tuples(st.sampled_from(names) if sound else some, some, st.none() | text), max_size=12)),
            101,
        )
    ]
    source = st.sampled_from(names) if sound else some
    routers = draw(st.lists(st.tuples(source, st.sampled_from([nothing, len]), st.lists(some, max_size=4)), max_size=3))
    made = graph_of(nodes, (), routers, draw(st.lists(st.sampled_from(names) if sound else some, max_size=3)))
    interrupts = draw(st.frozensets(some, max_size=2))
    fields = {name: getattr(made, name) for name in made.__struct_fields__}
    return Definition(**fields | {"edges": tuple(edges), "before": interrupts, "after": interrupts})
