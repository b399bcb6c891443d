"""Nodes that may run side by side and would overwrite what each other wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from holdfast.graph.model import END, Definition, Edge
from holdfast.graph.parallel import side_by_side
from holdfast.graph.topology import topology
from holdfast.graph.verify import verify

from .definitions import Plain, graph_of


def together(old: list[int], new: list[int]) -> list[int]:
    return old + new


class State(TypedDict):
    score: int
    notes: Annotated[list[int], together]


WRITERS = [{"name": name, "writes": ("score", "notes")} for name in "abcdef"]


def clashes(definition: Definition) -> list[str]:
    return [str(problem) for problem in verify(definition)]


def one_of(state: Any) -> Literal["b", "c"]:
    raise NotImplementedError


def some_of(state: Any) -> list[Literal["b", "c"]]:
    raise NotImplementedError


def test_what_is_told() -> None:
    assert clashes(graph_of(WRITERS[:3], ["a b", "a c"], state=State)) == [
        "graph.py:3: node 'c' may run side by side with 'b', and both write 'score', which has no reducer, so only one "
        "would stay; give State.score a reducer, such as Annotated[..., append], or join the branches first"
    ]


@pytest.mark.parametrize(
    ("edges", "routers", "pairs"),
    [
        (["a b", "b c"], [], []),
        (["a b", "a c"], [], ["bc"]),
        (["a b", "a c?"], [], ["bc"]),
        (["a b?", "a c?"], [], []),  # conditions may exclude each other, as `if` and `else` do
        ([], [("a", one_of, ["b", "c"])], []),
        ([], [("a", some_of, ["b", "c"])], ["bc"]),
        ([], [("a", len, ["b", "c"])], []),
        (["a d"], [("a", len, ["b", "c"])], ["bd", "cd"]),
        (["a b", "a c", "c d"], [], ["bc"]),  # b and d run in different stages
        (["a b", "a c", "b e", "c d"], [], ["bc", "de"]),
        (["a b", "a c", "b e", "c e", "e f"], [], ["bc"]),
        (["a b", "a c", "c d", "b e", "d e"], [], ["bc"]),  # e waits for d
        (["a b", "a c", "b e", "c d", "d e?", "d f?"], [], ["bc", "ef"]),  # e waits for d, which goes elsewhere
        (["a b", "a c", "b d", "c e", "e d?", "e f?"], [], ["bc", "df"]),
        (["a b", "a c", "c d", "b b?", "b e?"], [], ["bc", "bd", "de"]),  # b may go round
    ],
)
def test_which_nodes_run_side_by_side(edges: list[str], routers: list[Any], pairs: list[str]) -> None:
    used = {name for edge in edges for name in edge.rstrip("?").split()} | {"a", "b"}
    used |= {name for _, _, targets in routers for name in targets}
    definition = graph_of([node for node in WRITERS if node["name"] in used], edges, routers, state=State)
    assert sorted("".join(pair) for pair in side_by_side(definition, topology(definition))) == pairs
    assert len(clashes(definition)) == len({pair[1] for pair in pairs})


def test_two_entries_run_side_by_side() -> None:
    assert len(clashes(graph_of(WRITERS[:2], entries=["a", "b"], state=State))) == 1


def test_a_node_that_is_repeated_may_meet_what_comes_later() -> None:
    nodes = [WRITERS[0], {"name": "b", "until": bool, "writes": ("score",)}, {"name": "c"}, WRITERS[3]]
    assert len(clashes(graph_of(nodes, ["a b", "a c", "c d", f"b {END}"], state=State))) == 1


def test_edges_with_the_same_condition_are_taken_at_once() -> None:
    def ready(state: Any) -> bool:
        raise NotImplementedError

    edges = [Edge(source="a", target=name, place="graph.py:101", when=ready) for name in "bc"]
    made = graph_of(WRITERS[:3], state=State)
    definition = msgspec.structs.replace(made, edges=tuple(edges))
    assert len(clashes(definition)) == 1


# --- what a node is known to write ------------------------------------------------------------------------------------


class Part(TypedDict):
    score: int


class Perhaps(TypedDict):
    score: NotRequired[int]


@dataclass
class Record:
    score: int = 0


class Struct(msgspec.Struct):
    score: int = 0


class Unset(msgspec.Struct):
    score: int | msgspec.UnsetType = msgspec.UNSET


class Model(pydantic.BaseModel):
    score: int


class Defaults(pydantic.BaseModel):
    score: int = 0


@pytest.mark.parametrize(
    ("update", "known"),
    [
        (Part, True),
        (Part | None, True),
        (Annotated[Part, "why"], True),
        (Record, True),
        (Struct, True),
        (Model, True),
        (Perhaps, False),
        (Unset, False),
        (Defaults, False),
        (Plain, False),  # the state itself: often said of a part of it
        (dict[str, int], False),
        (Part | Record, False),
        (None, False),
    ],
)
def test_an_annotation_tells_what_is_written(update: Any, known: bool) -> None:
    def node(state: Any) -> Any:
        raise NotImplementedError

    node.__annotations__["return"] = update
    nodes = [{"name": "a"}, {"name": "b", "function": node}, {"name": "c", "function": node}]
    assert len(clashes(graph_of(nodes, ["a b", "a c"]))) == known


def test_what_is_declared_counts_more_than_an_annotation() -> None:
    def node(state: Any) -> Part:
        raise NotImplementedError

    nodes = [{"name": "a"}, {"name": "b", "function": node}, {"name": "c", "function": node, "writes": ()}]
    assert clashes(graph_of(nodes, ["a b", "a c"])) == []


# --- maps -------------------------------------------------------------------------------------------------------------


def test_the_items_of_a_map_overwrite_each_other() -> None:
    def item(state: Any, item: int) -> Part:
        raise NotImplementedError

    def reduce(state: Any, results: list[Any]) -> Part:
        raise NotImplementedError

    fetch = {"name": "fetch", "kind": "map", "over": "items", "function": item}
    assert clashes(graph_of([fetch])) == [
        "graph.py:1: the items of node 'fetch' all write 'score', which has no reducer, so only one would stay; "
        "give Plain.score a reducer, such as Annotated[..., append], or the map a reduce="
    ]
    assert clashes(graph_of([fetch | {"reduce": reduce}])) == []
    assert clashes(graph_of([fetch | {"writes": ("notes",)}], state=State)) != []  # maps over an unknown field
    assert clashes(graph_of([fetch | {"over": len, "writes": ("notes",)}], state=State)) == []


def test_the_reduce_of_a_map_writes_what_it_says() -> None:
    def reduce(state: Any, results: list[Any]) -> Part:
        raise NotImplementedError

    fetch = {"name": "b", "kind": "map", "over": "items", "reduce": reduce}
    assert len(clashes(graph_of(["a", fetch, {"name": "c", "writes": ("score",)}], ["a b", "a c"]))) == 1
