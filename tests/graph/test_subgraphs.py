"""A graph as a node of another one: it is a child run, and the states are mapped."""

from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import Graph, Holdfast, Status, append


class Outer(TypedDict, total=False):
    text: str
    notes: Annotated[list[str], append]
    score: int


class Inner(TypedDict, total=False):
    text: str
    marks: Annotated[list[int], append]
    score: int


def review(name: str) -> Graph:
    graph = Graph(Inner, name=name)
    graph.node(name="read")(lambda state: {"marks": [len(state["text"])]})
    graph.node(name="judge")(lambda state: {"score": sum(state["marks"]), "text": state["text"].upper()})
    graph.entry("read")
    graph.edge("read", "judge")
    return graph


def test_the_states_are_mapped_in_and_out(hf: Holdfast) -> None:
    graph = Graph(Outer, name="mapped")
    graph.node(name="write")(lambda state: {"text": "hello"})
    graph.subgraph(
        "review",
        review("mapped-review"),
        input=lambda state: {"text": state["text"], "marks": [1]},
        output=lambda state: {"score": state["score"], "notes": [f"marks {state['marks']}"]},
    )
    graph.entry("write")
    graph.edge("write", "review")
    run = hf.start(graph, {})
    assert run.result() == {"text": "hello", "notes": ["marks [1, 5]"], "score": 6}
    child = hf.get(f"{run.id}/review#1/mapped-review#1")
    assert child.info().parent == run.uid
    assert child.result()["score"] == 6


def test_without_mapping_the_fields_of_both_are_given(memory: Holdfast) -> None:
    graph = Graph(Outer, name="plain")
    graph.subgraph("review", review("plain-review"))
    graph.entry("review")
    assert memory.start(graph, {"text": "abc"}).result() == {"text": "ABC", "notes": [], "score": 3}


def test_a_question_in_a_subgraph_lets_the_whole_wait(hf: Holdfast) -> None:
    inner = Graph(Inner, name="asking-part")
    inner.node(name="ask")(lambda state: {"score": holdfast.ask("How good?", int)})
    inner.entry("ask")
    graph = Graph(Outer, name="asking")
    graph.subgraph("part", inner)
    graph.node(name="after")(lambda state: {"notes": [f"scored {state['score']}"]})
    graph.entry("part")
    graph.edge("part", "after")
    run = hf.start(graph, {})
    assert run.status is Status.WAITING
    hf.get(f"{run.id}/part#1/asking-part#1").answer(7)
    assert run.result()["notes"] == ["scored 7"]


def test_an_error_in_a_subgraph_fails_the_whole_and_both_are_tried_again(memory: Holdfast) -> None:
    broken = [True]
    inner = Graph(Inner, name="broken-part")

    @inner.node
    def fail(state: Inner) -> dict[str, Any]:
        if broken:
            raise ValueError("inside")
        return {"score": 1}

    inner.entry(fail)
    graph = Graph(Outer, name="broken")
    graph.subgraph("part", inner)
    graph.entry("part")
    run = memory.start(graph, {})
    with pytest.raises(ValueError, match="inside"):
        run.result()
    broken.clear()
    run.retry()
    assert run.result()["score"] == 1


def test_a_subgraph_of_coroutines_in_a_graph_of_coroutines(memory: Holdfast) -> None:
    inner = Graph(Inner, name="async-part")

    @inner.node
    async def score(state: Inner) -> dict[str, Any]:
        return {"score": 4}

    inner.entry(score)
    graph = Graph(Outer, name="async-whole")

    @graph.node
    async def before(state: Outer) -> dict[str, Any]:
        return {"text": "x"}

    graph.subgraph("part", inner)
    graph.subgraph("plain", review("async-plain"), output=lambda state: {"notes": [state["text"]]})
    graph.entry(before)
    graph.edge(before, "part")
    graph.edge(before, "plain")
    assert memory.start(graph, {}).result() == {"text": "x", "notes": ["X"], "score": 4}
