"""Editing a run's state, in nobody's place or in a node's; and forks that begin with an edit."""

from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import END, Graph, Holdfast, Status, append, quorum
from holdfast.errors import RunEnded, UpdateRefused, UsageError, WorkflowMissing


class Log(TypedDict, total=False):
    log: Annotated[list[str], append]
    score: int


def asking(name: str) -> Graph:
    """a, then b and c side by side, which ask; then d."""
    graph = Graph(Log, name=name)
    graph.node(name="a")(lambda state: {"log": ["a"]})
    graph.node(name="b")(lambda state: {"log": [f"b {holdfast.ask('b?')}"]})
    graph.node(name="c")(lambda state: {"log": [f"c {holdfast.ask('c?')}"]})
    graph.node(name="d")(lambda state: {"log": [f"d {state.get('score')}"]})
    graph.entry("a")
    for node in "bc":
        graph.edge("a", node)
        graph.edge(node, "d")
    return graph


def answer(run: Any, prompt: str, value: str) -> None:
    [question] = [one for one in run.questions() if one.prompt == prompt]
    run.answer(value, question=question)


def test_an_edit_goes_through_the_reducers_and_keeps_what_is_queued(hf: Holdfast) -> None:
    run = hf.start(asking("edited"), {})
    seq = run.edit({"log": ["by hand"], "score": 5})
    at = run.checkpoint(seq)
    assert at.state == {"log": ["a", "by hand"], "score": 5}
    assert at.queue == ["b", "c"]
    answer(run, "b?", "1")
    answer(run, "c?", "2")
    assert run.result() == {"log": ["a", "by hand", "b 1", "c 2", "d 5"], "score": 5}


def test_as_a_queued_node_it_is_done_by_that(hf: Holdfast) -> None:
    run = hf.start(asking("as-queued"), {})
    run.edit({"log": "b by hand"}, as_node="b")
    assert run.checkpoint().queue == ["c"]
    run.resume()
    assert [one.prompt for one in run.questions()] == ["c?"]
    answer(run, "c?", "2")
    assert run.result()["log"] == ["a", "b by hand", "c 2", "d None"]


def test_as_another_node_its_successors_are_queued_too(memory: Holdfast) -> None:
    graph = asking("as-other")
    graph.node(name="e")(lambda state: {"log": ["e"]})
    graph.edge("d", "e", when=lambda state: state.get("score") == 9)
    run = memory.start(graph, {})
    run.edit({"log": "d by hand", "score": 9}, as_node="d")
    assert run.checkpoint().state["log"] == ["a", "d by hand"]
    assert run.checkpoint().queue == ["b", "c", "e"]
    assert run.checkpoint().node == "d"
    answer(run, "b?", "1")
    answer(run, "c?", "2")
    assert run.result()["log"] == ["a", "d by hand", "b 1", "c 2", "e", "d 9", "e"]


def test_as_a_map_all_its_items_are_done(memory: Holdfast) -> None:
    graph = Graph(Log, name="as-map")
    graph.map(over=lambda state: range(3), reduce=lambda state, results: {"score": sum(results)}, name="m")(
        lambda state, item: holdfast.ask("?", int) if item else 1
    )
    graph.entry("m")
    run = memory.start(graph, {})
    assert len(run.checkpoint().queue) == 2
    run.edit({"score": 99}, as_node="m")
    assert run.result()["score"] == 99


def test_the_last_queued_node_by_hand_ends_the_stage(memory: Holdfast) -> None:
    graph = Graph(Log, name="ends")
    graph.node(name="a")(lambda state: {"log": [holdfast.ask("?")]})
    graph.node(name="b")(lambda state: {"log": ["b"]})
    graph.entry("a")
    graph.route("a", lambda state: "b" if state["log"] == ["hand"] else END, to=["b", END])
    run = memory.start(graph, {})
    run.edit({"log": "hand"}, as_node="a")
    assert run.checkpoint().queue == ["b"]
    assert run.result()["log"] == ["hand", "b"]


def test_an_edit_before_the_first_node(memory: Holdfast) -> None:
    run = memory.enqueue(asking("early"), {"score": 1})
    run.edit({"score": 2})
    assert run.checkpoint().state == {"score": 2, "log": []}
    memory.work(until_idle=True)
    assert run.checkpoint().state == {"score": 2, "log": ["a"]}


def test_a_failed_run_is_edited_and_tried_again(memory: Holdfast) -> None:
    graph = Graph(Log, name="mended")

    @graph.node
    def needs(state: Log) -> dict[str, Any]:
        return {"log": [f"{100 // state['score']}"]}

    graph.entry(needs)
    run = memory.start(graph, {"score": 0})
    assert run.status is Status.FAILED
    run.edit({"score": 5})
    assert run.status is Status.FAILED
    run.retry()
    assert run.result()["log"] == ["20"]


def test_what_does_not_fit_is_refused_and_changes_nothing(memory: Holdfast) -> None:
    run = memory.start(asking("refused"), {})
    before = run.info().seq
    with pytest.raises(UpdateRefused, match="graph refused, node edit: the update of field 'score': got str 'x'"):
        run.edit({"score": "x"})
    with pytest.raises(UsageError, match=r"graph refused has no node 'z'; it has a, b, c, d"):
        run.edit({}, as_node="z")
    assert run.info().seq == before


def test_an_ended_run_is_not_edited(memory: Holdfast) -> None:
    graph = Graph(Log, name="over")
    graph.node(name="a")(lambda state: None)
    graph.entry("a")
    run = memory.start(graph, {})
    with pytest.raises(RunEnded):
        run.edit({"score": 1})


def test_an_edit_needs_the_graph(memory: Holdfast) -> None:
    from holdfast.engine.workflow.declare import _workflows

    run = memory.start(asking("gone"), {})
    del _workflows["gone"]
    with pytest.raises(WorkflowMissing, match="an edit needs 'gone'; import the module"):
        run.edit({"score": 1})


def test_a_run_by_hand_and_one_of_a_function_have_no_nodes(memory: Holdfast) -> None:
    @holdfast.workflow
    def function() -> Any:
        return holdfast.ask("?")

    with pytest.raises(UsageError, match="leave out as_node="):
        memory.run("by-hand").edit(1, as_node="x")
    with pytest.raises(UsageError, match="is a function, so it has no nodes"):
        memory.start(function).edit(1, as_node="x")


def test_a_fork_with_an_edit_goes_its_own_way_from_there(hf: Holdfast) -> None:
    graph = Graph(Log, name="forked")
    for node in "abc":
        graph.node(name=node)(lambda state, node=node: {"log": [f"{node} {state['score']}"]})
    graph.entry("a")
    graph.edge("a", "b")
    graph.edge("b", "c")
    run = hf.start(graph, {"score": 1})
    fork = run.fork(at=2, edit={"score": 7, "log": "edited"})
    assert fork.resume() is Status.COMPLETED
    assert fork.result() == {"score": 7, "log": ["a 1", "edited", "b 7", "c 7"]}
    assert run.result() == {"score": 1, "log": ["a 1", "b 1", "c 1"]}
    assert fork.checkpoint(4).state == {"score": 7, "log": ["a 1", "edited"]}
    first = run.fork(at=0, edit={"score": 3})
    assert first.resume() is Status.COMPLETED
    assert first.result() == {"score": 3, "log": ["a 3", "b 3", "c 3"]}
    assert hf.audit(fork).entries == fork.info().seq + 1


def test_a_fork_of_a_function_takes_no_edit(memory: Holdfast) -> None:
    @holdfast.workflow
    def plain() -> int:
        return 1

    with pytest.raises(UsageError, match="is not the run of a graph"):
        memory.start(plain).fork(edit={"a": 1})


def test_as_a_join_that_waits_it_waits_no_longer(memory: Holdfast) -> None:
    graph = Graph(Log, name="as-join")
    graph.node(name="a")(lambda state: {"log": ["a"]})
    graph.node(name="b")(lambda state: {"log": ["b"]})
    graph.node(name="j", join=quorum(2))(lambda state: {"log": ["j"]})
    graph.node(name="k")(lambda state: {"log": ["k"]})
    graph.entry("a")
    graph.edge("a", "b", when=lambda state: False)
    for source, target in ("aj", "bj", "jk"):
        graph.edge(source, target)
    run = memory.start(graph, {})
    assert run.status is Status.BLOCKED
    run.edit({"log": "by hand"}, as_node="j")
    run.unblock()
    assert run.result()["log"] == ["a", "by hand", "k"]
