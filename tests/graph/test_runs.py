"""Graphs end to end: nodes one after the other, ways between them, and going on after a crash."""

import dataclasses
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import END, Graph, Holdfast, NodeContext, Status, append, step
from holdfast.errors import HoldfastError, StepFailed, UsageError
from holdfast.testing.crash import Crash

calls: list[Any] = []


@pytest.fixture(autouse=True)
def forget() -> None:
    calls.clear()


class Talk(TypedDict):
    said: Annotated[list[str], append]
    score: int


@step
def look(what: int) -> int:
    calls.append(what)
    return what * 2


def rounds(name: str, *, until: int = 3) -> Graph:
    graph = Graph(Talk, name=name)

    @graph.node
    def plan(state: Talk) -> dict[str, Any]:
        return {"said": ["plan"], "score": state["score"] + 1}

    @graph.node
    def check(state: Talk, context: NodeContext) -> dict[str, Any]:
        return {"said": f"check {context.visit}: {look(state['score'])}"}

    graph.entry(plan)
    graph.edge(plan, check)
    graph.route(check, lambda state: plan if state["score"] < until else END, to=[plan, END])
    return graph


def test_a_graph_goes_its_way_and_its_result_is_the_state(hf: Holdfast) -> None:
    run = hf.start(rounds("goes"), {"said": [], "score": 1})
    assert run.result() == {"said": ["plan", "check 1: 4", "plan", "check 2: 6"], "score": 3}
    assert run.status is Status.COMPLETED
    assert calls == [2, 3]


def test_each_node_is_one_entry_with_state_node_queue_and_step(hf: Holdfast) -> None:
    run = hf.start(rounds("entries", until=1), {"score": 0})
    kinds = [entry.kind for entry in run.history()]
    assert kinds == ["created", "saved", "saved", "done", "saved", "completed"]
    shown = [(at.state, at.node, at.next, at.queue, at.step) for at in map(run.checkpoint, (1, 2, 4))]
    assert shown == [
        ({"said": [], "score": 0}, None, "plan", ["plan"], 0),
        ({"said": ["plan"], "score": 1}, "plan", "check", ["check"], 1),
        ({"said": ["plan", "check 1: 2"], "score": 1}, "check", None, [], 2),
    ]


def test_the_result_is_not_stored_a_second_time(hf: Holdfast) -> None:
    run = hf.start(rounds("once", until=1), {"score": 0})
    ended = run.entry(5)
    assert ended.kind == "completed"
    assert ended.contents == {"saved": 4}
    assert run.checkpoint().result == run.result() == {"said": ["plan", "check 1: 2"], "score": 1}


def test_after_a_crash_only_what_was_not_done_is_done(
    opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None]
) -> None:
    graph = Graph(Talk, name="crashing")
    handles = [opened(), opened()]
    alive = [False, True]

    @graph.node
    def first(state: Talk) -> dict[str, Any]:
        calls.append("first")
        return {"said": "first"}

    @graph.node
    def second(state: Talk) -> dict[str, Any]:
        found = look(1)
        if alive.pop():
            kill(handles[0])
            raise Crash
        return {"said": f"second {found}"}

    graph.entry(first)
    graph.edge(first, second)
    with suppress(Crash, HoldfastError):
        handles[0].start(graph, {"score": 0}, id="one")
    run = handles[1].get("one")
    run.resume()
    assert run.result() == {"said": ["first", "second 2"], "score": 0}
    assert calls == ["first", 1]


def test_the_same_id_goes_on_with_the_same_run(hf: Holdfast) -> None:
    graph = rounds("same")
    run = hf.start(graph, {"score": 1}, id="it")
    assert hf.start(graph, {"score": 1}, id="it").uid == run.uid
    with pytest.raises(holdfast.errors.DefinitionChanged, match="other arguments"):
        hf.start(graph, {"score": 2}, id="it")


def test_a_worker_drives_it(hf: Holdfast) -> None:
    run = hf.enqueue(rounds("worked"), {"score": 2})
    assert run.checkpoint().state is None
    hf.work(until_idle=True)
    assert run.result()["score"] == 3


def test_a_failed_run_is_tried_again_at_the_node_that_failed(hf: Holdfast) -> None:
    graph = Graph(Talk, name="failing")
    broken = [True]

    @graph.node
    def first(state: Talk) -> dict[str, Any]:
        calls.append("first")
        return {"said": "first"}

    @graph.node
    def second(state: Talk) -> dict[str, Any]:
        look(1)
        if broken:
            raise ValueError("not today")
        return {"said": "second"}

    graph.entry(first)
    graph.edge(first, second)
    run = hf.start(graph, {"score": 0})
    with pytest.raises(ValueError, match="not today") as raised:
        run.result()
    assert "in node second#1 of graph failing" in raised.value.__notes__
    broken.clear()
    run.retry()
    assert run.result()["said"] == ["first", "second"]
    assert calls == ["first", 1]


def test_a_failed_step_in_a_node_is_made_again_by_a_retry(hf: Holdfast) -> None:
    graph = Graph(Talk, name="failing-step")
    broken = [True]

    @step
    def act() -> str:
        calls.append("act")
        if broken:
            raise OSError("no")
        return "yes"

    @graph.node
    def only(state: Talk) -> dict[str, Any]:
        return {"said": act()}

    graph.entry(only)
    run = hf.start(graph, {"score": 0})
    with pytest.raises((OSError, StepFailed), match="no"):
        run.result()
    broken.clear()
    run.retry()
    assert run.result()["said"] == ["yes"]
    assert calls == ["act", "act"]


def test_a_branch_ends_where_no_edge_is_taken(hf: Holdfast) -> None:
    graph = Graph(Talk, name="edges")
    graph.node(name="a")(lambda state: {"score": 5})
    graph.node(name="b")(lambda state: {"said": "b"})
    graph.node(name="c")(lambda state: {"said": "c"})
    graph.entry("a")
    graph.edge("a", "b", when=lambda state: state["score"] > 4, label="high")
    graph.edge("a", "c", when=lambda state: state["score"] > 9)
    assert hf.start(graph, {"score": 0}).result() == {"said": ["b"], "score": 5}


def test_until_a_condition_holds_a_node_is_called_again(hf: Holdfast) -> None:
    graph = Graph(Talk, name="until")

    @graph.node(until=lambda state: state["score"] >= 3)
    def more(state: Talk) -> dict[str, Any]:
        return {"score": state["score"] + 1}

    graph.node(name="last")(lambda state: {"said": f"{state['score']}"})
    graph.entry(more)
    graph.edge(more, "last")
    assert hf.start(graph, {"score": 0}).result() == {"said": ["3"], "score": 3}


def test_the_goal_ends_a_run(hf: Holdfast) -> None:
    graph = Graph(Talk, name="goal")

    @graph.node
    def more(state: Talk) -> dict[str, Any]:
        return {"score": state["score"] + 1}

    graph.entry(more)
    graph.edge(more, more, when=lambda state: state["score"] < 100)
    graph.goal(lambda state: state["score"] == 4)
    run = hf.start(graph, {"score": 0})
    assert run.result()["score"] == 4
    assert run.checkpoint().queue == []


def test_a_router_that_gives_something_else_fails_the_run(hf: Holdfast) -> None:
    graph = Graph(Talk, name="astray")
    graph.node(name="a")(lambda state: None)
    graph.node(name="b")(lambda state: None)
    graph.entry("a")
    graph.route("a", lambda state: "nowhere", to=["b", END])
    run = hf.start(graph, {"score": 0})
    with pytest.raises(UsageError, match=r"graph astray: the router of node a gave 'nowhere'.*: b, END; add it to to="):
        run.result()


def test_a_graph_as_a_child_of_a_workflow(hf: Holdfast) -> None:
    graph = rounds("part")

    @holdfast.workflow
    def whole() -> int:
        return int(graph({"score": 1})["score"])

    assert hf.start(whole).result() == 3


def test_a_graph_is_not_simply_called() -> None:
    with pytest.raises(UsageError, match=r"start a run of it with hf\.start"):
        rounds("called")({"score": 1})


def test_a_router_cannot_call_a_step(hf: Holdfast) -> None:
    graph = Graph(Talk, name="impure")
    graph.node(name="a")(lambda state: None)
    graph.entry("a")
    graph.route("a", lambda state: END if look(1) else "a", to=["a", END])
    with pytest.raises(UsageError, match="step look is called inside of"):
        hf.start(graph, {"score": 0}).result()


@dataclasses.dataclass
class Says:
    """A node that is an object, which has no hash."""

    word: str

    def __call__(self, state: Any) -> dict[str, Any]:
        return {"said": [self.word]}


def test_a_node_may_be_any_object_that_is_called(memory: Holdfast) -> None:
    graph = Graph(Talk, name="objects")
    one, two = Says("x"), Says("x")
    graph.node(name="one")(one)
    graph.node(name="two")(two)
    graph.entry(one)
    graph.route(one, lambda state: two, to=[two])
    run = memory.start(graph, {})
    assert run.result()["said"] == ["x", "x"]
    assert run.checkpoint().node == "two"
