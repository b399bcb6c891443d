"""Branches side by side: what they see, in which order their updates count, and what a crash leaves of them."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import END, Graph, Holdfast, Status, add, append, step
from holdfast.errors import HoldfastError
from holdfast.testing.crash import Crash

calls: list[Any] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    calls.clear()


class Work(TypedDict, total=False):
    log: Annotated[list[str], append]
    total: Annotated[int, add]
    last: str


@step
def act(what: str) -> str:
    calls.append(what)
    return what.upper()


def fan(name: str, branches: dict[str, Callable[[Any], Any]]) -> Graph:
    """begin, then the branches, then end."""
    graph = Graph(Work, name=name)
    graph.node(name="begin")(lambda state: {"log": ["begin"], "total": 1})
    for branch, function in branches.items():
        graph.node(name=branch)(function)
    graph.node(name="end")(lambda state: {"log": [f"end {state['total']}"]})
    graph.entry("begin")
    for branch in branches:
        graph.edge("begin", branch)
        graph.edge(branch, "end")
    graph.edge("end", END)
    return graph


def test_updates_count_in_the_order_of_declaration_and_not_of_finishing(memory: Holdfast) -> None:
    b_is_done = threading.Event()

    def slow(state: Work) -> dict[str, Any]:
        assert b_is_done.wait(5)
        return {"log": ["a"], "total": 10}

    def quick(state: Work) -> dict[str, Any]:
        b_is_done.set()
        return {"log": ["b"], "total": 100}

    run = memory.start(fan("ordered", {"a": slow, "b": quick}), {})
    assert run.result() == {"log": ["begin", "a", "b", "end 111"], "total": 111}


def test_each_branch_sees_the_state_as_the_stage_began(memory: Holdfast) -> None:
    seen: list[Any] = []

    def look(state: Work) -> dict[str, Any]:
        seen.append((list(state["log"]), state["total"]))
        return {"log": ["x"], "total": 1}

    memory.start(fan("seen", {"a": look, "b": look, "c": look}), {}).result()
    assert seen == [(["begin"], 1)] * 3


def test_each_finished_branch_is_one_entry_and_the_last_carries_the_state(hf: Holdfast) -> None:
    branches = {name: lambda state, name=name: {"log": [name]} for name in "abc"}
    run = hf.start(fan("entries", branches), {})
    assert [entry.kind for entry in run.history()].count("saved") == 1 + 5
    half = run.checkpoint(3)
    assert half.state == {"log": ["begin"], "total": 1}
    assert len(half.queue) == 2
    assert run.checkpoint(5).state["log"] == ["begin", "a", "b", "c"]


def test_a_crash_reruns_only_the_branches_that_did_not_finish(
    opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None]
) -> None:
    first, second = opened(), opened()
    deadly = threading.Event()
    deadly.set()

    def branch(name: str) -> Callable[[Any], Any]:
        def call(state: Work) -> dict[str, Any]:
            return {"log": [act(name)]}

        return call

    def dies(state: Work) -> dict[str, Any]:
        if deadly.is_set():
            while len(first.get("one").checkpoint().queue) > 1:  # until the others are through
                pass
            deadly.clear()
            kill(first)
            raise Crash
        return {"log": [act("b")]}

    graph = fan("crashes", {"a": branch("a"), "b": dies, "c": branch("c")})
    with suppress(Crash, HoldfastError):
        first.start(graph, {}, id="one")
    run = second.get("one")
    run.resume()
    assert run.result() == {"log": ["begin", "A", "B", "C", "end 1"], "total": 1}
    assert sorted(calls) == ["a", "b", "c"]


def test_a_branch_that_waits_does_not_hold_up_the_others(hf: Holdfast) -> None:
    def asks(state: Work) -> dict[str, Any]:
        return {"log": [f"yes: {holdfast.ask('Really?', bool)}"]}

    graph = fan("asks", {"a": asks, "b": lambda state: {"log": [act("b")]}})
    run = hf.start(graph, {})
    assert run.status is Status.WAITING
    assert run.checkpoint().queue == ["a"]
    [question] = run.questions()
    assert question.output_key == "a#1/ask#1"
    run.answer(True)
    assert run.result()["log"] == ["begin", "yes: True", "B", "end 1"]
    assert calls == ["b"]


def test_an_error_of_one_branch_is_raised_when_the_others_are_through(memory: Holdfast) -> None:
    broken = [True]

    def fails(state: Work) -> dict[str, Any]:
        if broken:
            raise ValueError("a is broken")
        return {"log": ["a"]}

    graph = fan("fails", {"a": fails, "b": lambda state: {"log": [act("b")]}})
    run = memory.start(graph, {})
    with pytest.raises(ValueError, match="a is broken"):
        run.result()
    assert run.checkpoint().queue == ["a"]
    broken.clear()
    run.retry()
    assert run.result()["log"] == ["begin", "a", "B", "end 1"]
    assert calls == ["b"]


def test_steps_of_the_same_name_in_different_branches_do_not_meet(memory: Holdfast) -> None:
    branches = {name: lambda state, name=name: {"log": [act(name) + act(name * 2)]} for name in "ab"}
    run = memory.start(fan("keys", branches), {})
    assert run.result()["log"] == ["begin", "AAA", "BBB", "end 1"]
    assert {"a#1/act#1", "a#1/act#2", "b#1/act#1", "b#1/act#2"} == run.checkpoint().completed


def test_a_router_may_give_several_targets(memory: Holdfast) -> None:
    graph = Graph(Work, name="routed")
    for name in "abc":
        graph.node(name=name)(lambda state, name=name: {"log": [name]})
    graph.node(name="start")(lambda state: None)
    graph.entry("start")
    graph.route("start", lambda state: ["c", "a"], to=["a", "b", "c"])
    assert memory.start(graph, {}).result() == {"log": ["a", "c"], "total": 0}


def test_several_entries_are_the_first_stage(memory: Holdfast) -> None:
    graph = Graph(Work, name="entries")
    for name in "abc":
        graph.node(name=name)(lambda state, name=name: {"log": [name]})
        graph.entry(name)
    assert memory.start(graph, {}).result() == {"log": ["a", "b", "c"], "total": 0}
