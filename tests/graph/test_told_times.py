"""What the journal of a graph says of its nodes for people: how long each call took, and which of them failed."""

import time
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from holdfast import Graph, Holdfast, append
from holdfast.kernel.journal import NOTED_FROM
from holdfast.kernel.model import Kind


class Log(TypedDict):
    items: list[int]
    log: Annotated[list[str], append]


def forget(update: dict[str, Any]) -> None:
    """There is nothing to take back."""


def slowly(name: str) -> Graph:
    """A quick node, one that takes its time and can be undone, and a map of items that do."""
    graph = Graph(Log, name=name)
    graph.node(name="quick")(lambda state: {"log": ["quick"]})

    @graph.node(undo=forget)
    def slow(state: Log) -> dict[str, list[str]]:
        time.sleep(NOTED_FROM + 0.01)
        return {"log": ["slow"]}

    @graph.map(over="items")
    def each(state: Log, item: int) -> dict[str, list[str]]:
        time.sleep(NOTED_FROM + 0.01)
        return {"log": [str(item)]}

    graph.entry("quick")
    graph.edge("quick", "slow")
    graph.edge("slow", "each")
    return graph


def test_a_save_says_how_long_its_node_took_if_that_is_worth_telling(hf: Holdfast) -> None:
    run = hf.start(slowly("times"), {"items": [1, 2], "log": []})
    assert run.result()["log"] == ["quick", "slow", "1", "2"]
    told = [one.contents["node"] for one in run.entries() if one.kind == Kind.SAVED and "seconds" in one.contents]
    assert [node for node in told if node != "quick"] == ["slow", "each", "each"]
    [event] = [one for one in run.events() if one.kind == Kind.SAVED and one.contents.get("node") == "slow"]
    assert event.contents["seconds"] >= NOTED_FROM
    assert run.entry(event.seq).contents["seconds"] == event.contents["seconds"]
    [done] = [one for one in run.entries() if one.kind == Kind.DONE]
    assert done.contents["seconds"] == event.contents["seconds"]
    assert run.audit().entries == run.info().seq + 1
    assert run.checkpoint().raw_state == {"items": [1, 2], "log": ["quick", "slow", "1", "2"]}


@pytest.mark.parametrize("on_failure", [None, "rollback"])
def test_a_failure_says_at_which_node(hf: Holdfast, on_failure: str | None) -> None:
    graph = Graph(Log, name=f"fails {on_failure}", **({"on_failure": on_failure} if on_failure else {}))
    graph.node(name="first")(lambda state: {"log": ["first"]})

    @graph.node
    def check(state: Log) -> None:
        raise RuntimeError("no pigeons")

    graph.entry("first")
    graph.edge("first", "check")
    run = hf.start(graph, {"items": [], "log": []})
    assert (run.status, run.checkpoint().error, run.checkpoint().failed_at) == (
        "failed",
        "RuntimeError: no pigeons",
        "check#1",
    )
    assert run.checkpoint(2).failed_at is None


def test_of_parallel_nodes_the_one_whose_error_is_raised_is_named(memory: Holdfast) -> None:
    graph = Graph(Log, name="parallel failures")

    def raising(text: str) -> Callable[[Log], None]:
        def fails(state: Log) -> None:
            raise RuntimeError(text)

        return fails

    for name in ("a", "b"):
        graph.node(raising(name), name=name)
    graph.entry("a", "b")
    checkpoint = memory.start(graph, {"items": [], "log": []}).checkpoint()
    assert (checkpoint.error, checkpoint.failed_at) == ("RuntimeError: a", "a#1")
