"""What is kept of a graph, and what joins ask of it."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from holdfast.graph.model import END, Definition, Edge, Quorum
from holdfast.graph.topology import (
    captives,
    differences,
    digest,
    ends_by_itself,
    feeders,
    loops,
    reachable,
    topology,
    ways_in,
    ways_out,
)

from .definitions import definitions, graph_of


def choose(state: Any) -> str:
    raise NotImplementedError


def ready(state: Any) -> bool:
    raise NotImplementedError


FULL = graph_of(
    ["plan", {"name": "fetch", "kind": "map", "over": "items", "limit": 8}, {"name": "join", "join": Quorum(2)}],
    ["plan fetch?many", "plan join", "fetch join"],
    [("join", choose, [END, "plan"])],
    before=frozenset(["join"]),
    goal=bool,
)


def test_a_topology() -> None:
    assert topology(FULL) == {
        "name": "research",
        "nodes": [
            {"name": "plan"},
            {"name": "fetch", "kind": "map", "over": "items", "limit": 8},
            {"name": "join", "join": 2},
        ],
        "edges": [
            {"source": "fetch", "target": "join", "conditional": False, "label": ""},
            {"source": "plan", "target": "fetch", "conditional": True, "label": "many"},
            {"source": "plan", "target": "join", "conditional": False, "label": ""},
        ],
        "routers": [{"source": "join", "targets": [END, "plan"], "label": "choose"}],
        "entries": ["plan"],
        "before": ["join"],
        "after": [],
        "goal": True,
    }


def test_the_label_of_an_edge_is_the_name_of_its_condition() -> None:
    edge = Edge(source="a", target="a", place="graph.py:1", when=ready)
    assert topology(replace(graph_of(["a"]), edges=(edge,)))["edges"][0]["label"] == "ready"
    unnamed = Edge(source="a", target="a", place="graph.py:1", when=lambda state: True)
    assert topology(replace(graph_of(["a"]), edges=(unnamed,)))["edges"][0]["label"] == ""


def test_the_order_of_edges_and_entries_means_nothing() -> None:
    one = graph_of(["a", "b", "c"], ["a b", "a c", "b c"], entries=["a", "b"])
    two = graph_of(["a", "b", "c"], ["b c", "a c", "a b"], entries=["b", "a"])
    assert digest(topology(one), {}) == digest(topology(two), {})


def test_the_order_of_nodes_means_something() -> None:
    one, two = graph_of(["a", "b"], ["a b"]), graph_of(["b", "a"], ["a b"], entries=["a"])
    assert digest(topology(one), {}) != digest(topology(two), {})
    assert differences(topology(one), topology(two)) == ["the nodes are declared in another order"]


@settings(max_examples=30, deadline=None)
@given(definitions(), definitions())
def test_any_topology_can_be_stored_and_told_from_others(one: Definition, two: Definition) -> None:
    first, second = topology(one), topology(two)
    assert json.loads(json.dumps(first)) == first
    assert (digest(first, {}) == digest(second, {})) == (first == second)
    assert (differences(first, second) == []) == (first == second)
    assert differences(first, first) == []


# --- differences ------------------------------------------------------------------------------------------------------

CHOICE = [("b", choose, ["a", END])]
BASE = graph_of(["a", "b"], ["a b"], CHOICE)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (
            graph_of(["a"], [], []),
            ["node b was removed", "edge a → b was removed", "the router choose of b was removed"],
        ),
        (
            graph_of(["a", "b", "c"], ["a b", "b c"], CHOICE),
            ["node c is new", "edge b → c is new"],
        ),
        (
            graph_of(["a", {"name": "b", "kind": "map", "limit": 2, "over": "items"}], ["a b"], CHOICE),
            [
                "node b was a node, and is now a map",
                "node b mapped over a function, and now over items",
                "the limit of node b was none, and is now 2",
            ],
        ),
        (
            graph_of(
                ["a", {"name": "b", "join": Quorum(2), "until": ready, "undo": "m:f"}],
                ["a b"],
                CHOICE,
            ),
            [
                "node b joined all, and now a quorum of 2",
                "node b is now repeated until it is done",
                "the undo of node b was none, and is now m:f",
            ],
        ),
        (
            graph_of(["a", "b"], ["a b?late"], CHOICE),
            ["edge a → b was certain, and is now conditional (late)"],
        ),
        (
            graph_of(["a", "b"], ["a b"], [("b", choose, ["b", END])]),
            ["the router choose of b no longer leads to a", "the router choose of b now leads to b"],
        ),
        (
            graph_of(["a", "b"], ["a b"], CHOICE, ["b"], after=frozenset("a"), goal=bool, name="other"),
            [
                "entry a was removed",
                "entry b is new",
                "interrupt after a is new",
                "the goal is new",
                "the graph was called research, and is now other",
            ],
        ),
    ],
)
def test_differences_in_words(new: Definition, words: list[str]) -> None:
    assert differences(topology(BASE), topology(new)) == words


def test_an_edge_to_the_end_is_told_as_such() -> None:
    old, new = graph_of(["a"], [f"a {END}"]), graph_of(["a"])
    assert differences(topology(old), topology(new)) == ["edge a → the end was removed"]


# --- ways -------------------------------------------------------------------------------------------------------------


def test_a_branch_ends_where_no_way_out_is_taken() -> None:
    shape = topology(graph_of(["a", "b", "c", "d"], ["a b?", "b c", "b d?"], [("c", choose, ["a"])]))
    assert ends_by_itself(shape) == {"a", "d"}
    assert ways_out(shape) == {"a": {"b", END}, "b": {"c", "d"}, "c": {"a"}, "d": {END}}
    assert ways_in(shape)[END] == {"a", "d"}


@pytest.mark.parametrize(
    ("edges", "fed_by", "held"),
    [
        (["a b", "a c", "b j", "c j"], "abc", "abc"),
        (["a b", "a c", "b j", "c j", f"c {END}"], "abc", "b"),
        (["a b", "a c", "b j?", "c j"], "abc", "c"),
        (["a b", "b j", "j c", "c a"], "abcj", "abc"),  # all of the loop leads to j, and j itself
        (["a b", "b j", "j c", "c a?"], "abcj", "ab"),
        (["a j", "j b", "b c"], "a", "a"),
        (["a b", "b a?", "b j"], "ab", "ab"),
        (["j a"], "", ""),
    ],
)
def test_feeders_and_captives_of_a_join(edges: list[str], fed_by: str, held: str) -> None:
    shape = topology(graph_of(["a", "b", "c", "j"], edges))
    assert feeders(shape, "j") == set(fed_by)
    assert captives(shape, "j") == set(held)


def walks(ways: dict[str, frozenset[str]], start: str, goal: str, without: str | None) -> bool:
    """Whether some walk of one or more steps leads there: tried step by step, as a check of the clever way."""
    here = set(ways.get(start, ()))
    for _ in ways:
        here |= {target for name in here if name not in (without, END) for target in ways.get(name, ())}
    return goal in here


@settings(max_examples=30, deadline=None)
@given(definitions(sound=True))
def test_feeders_and_captives_are_as_defined(definition: Definition) -> None:
    shape = topology(definition)
    ways = ways_out(shape)
    for join in definition.nodes:
        fed_by = {name for name in definition.nodes if walks(ways, name, join, join)}
        assert feeders(shape, join) == fed_by
        free = {name for name in fed_by if name != join and walks(ways, name, END, join)}
        assert captives(shape, join) == fed_by - free - {join}


@settings(max_examples=30, deadline=None)
@given(definitions(sound=True))
def test_loops_are_what_can_reach_each_other(definition: Definition) -> None:
    ways = {name: out - {END} for name, out in ways_out(topology(definition)).items()}
    knots = {
        frozenset(other for other in ways if walks(ways, name, other, None) and walks(ways, other, name, None))
        for name in ways
        if walks(ways, name, name, None)
    }
    assert set(loops(ways)) == knots


def test_a_long_chain_is_no_trouble() -> None:
    names = [f"n{number}" for number in range(5000)]
    shuffled = random.Random(4).sample(names, len(names))
    shape = topology(graph_of(shuffled, [f"{one} {two}" for one, two in pairwise(names)]))
    assert len(reachable(ways_out(shape), ["n0"])) == 5001
    assert loops(ways_out(shape)) == []
