"""Graphs that were checked, as they run; and their pictures."""

from __future__ import annotations

import inspect
from contextlib import suppress
from itertools import combinations
from typing import Annotated, Any, TypedDict
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Status
from holdfast.errors import GraphInvalid, RunBlocked, RunNotFound, UsageError
from holdfast.graph import END, Graph, append, quorum
from holdfast.graph.parallel import side_by_side
from holdfast.graph.topology import topology
from holdfast.graph.verify import verify


class State(TypedDict):
    trail: Annotated[list[str], append]
    goes: int


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def noted(name: str) -> Any:
    def node(state: State) -> dict[str, Any]:
        return {"trail": [name]}

    node.__name__ = name
    return node


def test_each_declaration_has_its_place() -> None:
    graph, at = Graph(State, name="places"), line()
    graph.node(noted("a"))
    graph.edge("a", "x")
    graph.route("a", len, to=[])
    graph.interrupt(before=["y"])
    with pytest.raises(GraphInvalid) as raised:
        graph.check()
    assert [problem.place for problem in raised.value.problems] == [
        f"{__file__}:{number}" for number in (at, at, at + 2, at + 3)
    ]
    assert f"{__file__}:{at + 2}: an edge leads to 'x', which is not a node" in str(raised.value)


def test_nothing_is_run_of_a_graph_with_problems() -> None:
    graph = Graph(State, name="unsound")
    graph.node(noted("a"))
    with holdfast.open("memory://") as hf:
        with pytest.raises(GraphInvalid, match="has no entry"):
            hf.start(graph, {"trail": [], "goes": 0}, id="r")
        with pytest.raises(RunNotFound):
            hf.get("r")


# --- any graph that is sound ------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn, *, loops: bool) -> Graph:
    """A graph in which every node can be reached; without loops, its edges are all certain."""
    names = [f"n{number}" for number in range(draw(st.integers(2, 7)))]
    graph = Graph(State, name="any", max_steps=25)
    for name in names:
        graph.node(name=name, join=draw(st.sampled_from(["all", "all", "any", quorum(1), quorum(2)])))(noted(name))
    graph.entry(names[0], *draw(st.lists(st.sampled_from(names), max_size=1)))
    for number in range(1, len(names)):
        graph.edge(names[draw(st.integers(0, number - 1))], names[number])
    for _ in range(draw(st.integers(0, 5))):
        one, two = sorted(draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)))
        graph.edge(one, two)
        if loops and draw(st.booleans()):
            odd = draw(st.integers(0, 1))
            graph.edge(two, one, when=lambda state, odd=odd: len(state["trail"]) % 2 == odd)
    if loops and draw(st.booleans()):
        targets = draw(st.lists(st.sampled_from([*names, END]), min_size=1, max_size=3, unique=True))
        graph.route(names[-1], lambda state: targets[len(state["trail"]) % len(targets)], to=targets)
    return graph


def stages(run: holdfast.Run) -> list[list[str]]:
    """The nodes of each stage of a run."""
    found: list[list[str]] = []
    visits: dict[str, int] = {}
    for entry in run.history(limit=1000).items:
        if entry.kind == "saved":
            tree = run.entry(entry.seq).contents
            if tree["graph"]["visits"] != visits and "pending" not in tree["graph"]:
                visits = tree["graph"]["visits"]
                found.append(tree["queue"])
    return found


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(loops=True))
def test_a_graph_without_problems_meets_no_unknown_node(graph: Graph) -> None:
    if verify(graph.definition):
        with pytest.raises(GraphInvalid):
            graph.check()
        return
    with holdfast.open("memory://") as hf:
        run = hf.start(graph, {"trail": [], "goes": 0})
        assert driven(run) in (Status.COMPLETED, Status.BLOCKED)  # by a guard, or a quorum that did not come
        assert set().union(*stages(run)) <= graph.definition.nodes.keys()
        assert ElementTree.fromstring(graph.svg(run)).get("role") == "img"
        assert "class start" in graph.mermaid(run)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(loops=False))
def test_nodes_run_side_by_side_only_where_that_was_foreseen(graph: Graph) -> None:
    if verify(graph.definition):
        return
    foreseen = side_by_side(graph.definition, topology(graph.definition))
    with holdfast.open("memory://") as hf:
        run = hf.start(graph, {"trail": [], "goes": 0})
        driven(run)
        for stage in stages(run):
            assert set(combinations(sorted(stage), 2)) <= foreseen


def driven(run: holdfast.Run) -> Status:
    with suppress(RunBlocked):
        run.result()
    return run.status


def test_a_join_that_is_repeated_waits_for_nobody() -> None:
    graph = Graph(State, name="again")
    for name in ("split", "left", "right"):
        graph.node(noted(name))
    graph.node(name="join", join=quorum(2), until=lambda state: state["trail"].count("join") == 3)(noted("join"))
    graph.entry("split")
    for source, target in (("split", "left"), ("split", "right"), ("left", "join"), ("right", "join")):
        graph.edge(source, target)
    with holdfast.open("memory://") as hf:
        ended = hf.start(graph, {"trail": [], "goes": 0}).result()
    assert ended["trail"] == ["split", "left", "right", "join", "join", "join"]


# --- pictures of runs -------------------------------------------------------------------------------------------------


def research() -> Graph:
    graph = Graph(State, name="research")
    for name in ("plan", "left", "right", "check"):
        graph.node(noted(name))
    graph.entry("plan")
    for source, target in (("plan", "left"), ("plan", "right"), ("left", "check"), ("right", "check")):
        graph.edge(source, target)
    graph.edge("check", "plan", when=lambda state: len(state["trail"]) < 8, label="again")
    return graph


def test_the_path_of_a_run_that_is_done() -> None:
    graph = research()
    with holdfast.open("memory://") as hf:
        run = hf.start(graph, {"trail": [], "goes": 0})
        run.result()
        chart = graph.mermaid(run)
    assert 'n0("plan<br/>×2")' in chart
    assert "class start,n0,n1,n2,n3,stop done" in chart
    assert "linkStyle 0,1,2,3,4,5,6 " in chart


def test_the_path_of_a_run_that_has_failed() -> None:
    graph = research()

    @graph.node(name="broken")
    def broken(state: State) -> None:
        raise OSError("no such thing")

    graph.edge("check", "broken")
    with holdfast.open("memory://") as hf:
        run = hf.start(graph, {"trail": ["x"] * 9, "goes": 0})
        with pytest.raises(OSError, match="no such thing"):
            run.result()
        chart = graph.mermaid(run)
    assert "class n4 failed" in chart
    assert "class start,n0,n1,n2,n3 done" in chart


def test_the_path_of_a_run_that_waits() -> None:
    graph = research()
    graph.interrupt(before=["right"])
    with holdfast.open("memory://") as hf:
        run = hf.start(graph, {"trail": [], "goes": 0})
        hf.work(until_idle=True)
        chart = graph.mermaid(run)
    assert "class n1,n2 here" in chart
    assert "class start,n0 done" in chart


def test_only_a_run_of_the_graph_is_drawn() -> None:
    graph, other = research(), Graph(State, name="other")
    other.node(noted("a"))
    other.entry("a")
    with holdfast.open("memory://") as hf:
        run = hf.start(other, {"trail": [], "goes": 0}, id="r")
        with pytest.raises(UsageError, match="run 'r' is not a run of graph research"):
            graph.svg(run)
