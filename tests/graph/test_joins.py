"""Joins: all, any, a quorum; nothing waits for ever, and what nobody needs any more is given up."""

import asyncio
import threading
from typing import Annotated, Any, TypedDict

import pytest

import holdfast
from holdfast import END, Graph, Holdfast, RunBlocked, Status, append, quorum
from holdfast.engine.workflow.concurrency.branches import MAX_THREADS
from holdfast.graph.draw.run_path import path_of


class Log(TypedDict):
    log: Annotated[list[str], append]


def logging(name: str) -> Any:
    return lambda state: {"log": [name]}


def graph_of(name: str, nodes: str, edges: str, *, joins: dict[str, Any] | None = None, entry: str = "a") -> Graph:
    """A graph of nodes that log their names; edges are written ``ab ac``, and ``$`` is the end."""
    graph = Graph(Log, name=name)
    for node in nodes:
        graph.node(name=node, join=(joins or {}).get(node, "all"))(logging(node))
    graph.entry(*entry)
    for source, target in edges.split():
        graph.edge(source, END if target == "$" else target)
    return graph


def test_all_waits_for_branches_of_different_lengths(memory: Holdfast) -> None:
    graph = graph_of("lengths", "abcdj", "ab ac bj cd dj j$")
    assert memory.start(graph, {}).result()["log"] == ["a", "b", "c", "d", "j"]


def test_a_join_is_one_edge_from_each() -> None:
    graph = graph_of("listed", "abc", "ab", entry="a")
    for source, target in ((["a", "b"], "c"), ("a", ("b", "c"))):
        with pytest.raises(holdfast.UsageError, match="several nodes where one is named; write one edge for each of"):
            graph.edge(source, target)  # type: ignore[arg-type]


def test_all_does_not_wait_for_a_branch_that_does_not_come(memory: Holdfast) -> None:
    graph = Graph(Log, name="one-sided")
    for node in "abcj":
        graph.node(name=node)(logging(node))
    graph.entry("a")
    graph.edge("a", "b")
    graph.edge("a", "c", when=lambda state: False)
    graph.edge("b", "j")
    graph.edge("c", "j")
    assert memory.start(graph, {}).result()["log"] == ["a", "b", "j"]


def test_joins_that_wait_for_each_other_fire_in_the_order_of_declaration(memory: Holdfast) -> None:
    # x and y each wait for the other: a leads to both, and each leads to the other once.
    graph = Graph(Log, name="mutual")
    for node in "axy":
        graph.node(name=node)(logging(node))
    graph.entry("a")
    graph.edge("a", "x")
    graph.edge("a", "y")
    graph.edge("x", "y", when=lambda state: state["log"].count("y") < 1)
    graph.edge("y", "x", when=lambda state: state["log"].count("x") < 1)
    graph.edge("x", END)
    graph.edge("y", END)
    assert memory.start(graph, {}).result()["log"] == ["a", "x", "y"]


def test_a_loop_back_to_a_join_does_not_hold_it_up(memory: Holdfast) -> None:
    graph = Graph(Log, name="loop")
    for node in "ab":
        graph.node(name=node)(logging(node))
    graph.entry("a")
    graph.edge("a", "b")
    graph.edge("b", "a", when=lambda state: len(state["log"]) < 5)
    assert memory.start(graph, {}).result()["log"] == ["a", "b", "a", "b", "a", "b"]


def test_any_fires_at_once_and_the_others_are_given_up(memory: Holdfast) -> None:
    go_on = threading.Event()
    graph = Graph(Log, name="any")

    @graph.node
    def slow(state: Log) -> dict[str, Any]:
        assert go_on.wait(5)
        return {"log": ["slow"]}

    graph.node(name="quick")(logging("quick"))

    @graph.node(join="any")
    def join(state: Log) -> dict[str, Any]:
        go_on.set()
        return {"log": ["join"]}

    graph.entry(slow, "quick")
    graph.edge(slow, join)
    graph.edge("quick", join)
    assert memory.start(graph, {}).result()["log"] == ["quick", "join"]


def test_a_question_of_a_branch_that_was_given_up_is_closed(hf: Holdfast) -> None:
    graph = Graph(Log, name="any-question")
    graph.node(name="asks")(lambda state: {"log": [holdfast.ask("Who?")]})
    graph.node(name="waits")(lambda state: {"log": [holdfast.ask("What?")]})
    graph.node(name="join", join="any")(lambda state: {"log": [holdfast.ask("Then?")]})
    graph.entry("asks", "waits")
    graph.edge("asks", "join")
    graph.edge("waits", "join")
    run = hf.start(graph, {})
    who, _ = sorted(run.questions(), key=lambda question: question.prompt, reverse=True)
    run.answer("me", question=who)
    run.resume()
    [then] = run.questions()
    assert then.prompt == "Then?"
    run.answer("x")
    assert run.result()["log"] == ["me", "x"]


def test_a_quorum_fires_when_enough_have_arrived(memory: Holdfast) -> None:
    graph = graph_of("quorum", "abcdej", "ab ac ad de bj cj ej j$", joins={"j": quorum(2)})
    log = memory.start(graph, {}).result()["log"]
    assert log in (["a", "b", "c", "j"], ["a", "b", "c", "d", "j"])  # d may have been done before c was


def test_a_quorum_that_cannot_be_met_parks_the_run_and_says_so(memory: Holdfast) -> None:
    graph = Graph(Log, name="too-few")
    for node in "abc":
        graph.node(name=node)(logging(node))
    graph.node(name="j", join=quorum(2))(logging("j"))
    graph.entry("a")
    graph.edge("a", "b")
    graph.edge("a", "c")
    graph.edge("b", "j")
    graph.edge("c", "j", when=lambda state: False)
    run = memory.start(graph, {})
    with pytest.raises(RunBlocked, match=r"node j waits for 2 branches, and only b arrived; nothing else can come"):
        run.result()
    run.edit({"log": "by hand"}, as_node="c")
    assert run.status is Status.BLOCKED


def test_what_is_queued_and_only_leads_to_a_join_that_fired_is_dropped(memory: Holdfast) -> None:
    graph = graph_of("dropped", "abcj", "aj ab bc cj j$", joins={"j": "any"})
    assert memory.start(graph, {}).result()["log"] == ["a", "j"]


def test_what_can_also_go_elsewhere_is_not_given_up(memory: Holdfast) -> None:
    graph = graph_of("elsewhere", "abj", "aj ab bj b$ j$", joins={"j": "any"})
    assert memory.start(graph, {}).result()["log"] == ["a", "b", "j", "j"]


def test_any_among_coroutines_cancels_the_others(memory: Holdfast) -> None:
    ended: list[str] = []
    graph = Graph(Log, name="any-async")

    @graph.node
    async def slow(state: Log) -> dict[str, Any]:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return {"log": ["slow"]}

    @graph.node
    async def quick(state: Log) -> dict[str, Any]:
        return {"log": ["quick"]}

    graph.node(name="join", join="any")(logging("join"))
    graph.entry(slow, quick)
    graph.edge(slow, "join")
    graph.edge(quick, "join")
    assert memory.start(graph, {}).result()["log"] == ["quick", "join"]
    assert ended == ["cancelled"]


def test_a_branch_that_was_given_up_before_its_thread_began_is_not_called(memory: Holdfast) -> None:
    all_have_begun, go_on, called = threading.Barrier(MAX_THREADS), threading.Event(), list[str]()
    graph = Graph(Log, name="never-begun")

    @graph.node
    def quick(state: Log) -> dict[str, Any]:
        all_have_begun.wait(5)
        return {"log": ["quick"]}

    graph.entry(quick)

    def waits(state: Log) -> dict[str, Any]:
        all_have_begun.wait(5)
        assert go_on.wait(5)
        return {"log": ["slow"]}

    for n in range(1, MAX_THREADS):
        graph.node(name=f"slow{n}")(waits)
        graph.entry(f"slow{n}")

    @graph.node
    def late(state: Log) -> dict[str, Any]:
        called.append("late")
        return {"log": ["late"]}

    graph.entry(late)

    @graph.node(join="any")
    def join(state: Log) -> dict[str, Any]:
        go_on.set()
        return {"log": ["join"]}

    for name in ["quick", "late", *(f"slow{n}" for n in range(1, MAX_THREADS))]:
        graph.edge(name, join)
    assert memory.start(graph, {}).result()["log"] == ["quick", "join"]
    assert called == []


@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_what_a_thread_that_was_given_up_gives_later_is_nobodys_business(memory: Holdfast, ending: str) -> None:
    has_begun, go_on, has_ended = threading.Event(), threading.Event(), threading.Event()
    graph = Graph(Log, name=f"late-{ending}")

    @graph.node
    def slow(state: Log) -> dict[str, Any]:
        has_begun.set()
        try:
            assert go_on.wait(5)
            if ending == "raises":
                raise ValueError("too late")
            return {"log": ["slow"]}
        finally:
            has_ended.set()

    @graph.node
    def quick(state: Log) -> dict[str, Any]:
        assert has_begun.wait(5)
        return {"log": ["quick"]}

    @graph.node(join="any")
    def join(state: Log) -> dict[str, Any]:
        go_on.set()
        assert has_ended.wait(5)
        return {"log": ["join"]}

    graph.node(name="last")(logging("last"))
    graph.entry(slow, quick)
    graph.edge(slow, join)
    graph.edge(quick, join)
    graph.edge(join, "last")
    run = memory.start(graph, {})
    assert run.result()["log"] == ["quick", "join", "last"]
    assert [entry.kind for entry in run.history()].count("saved") == 4


def test_a_coroutine_that_cancels_itself_fails_the_run(memory: Holdfast) -> None:
    graph = Graph(Log, name="self-cancelled")

    @graph.node
    async def gives_up(state: Log) -> dict[str, Any]:
        raise asyncio.CancelledError

    graph.node(name="other")(logging("other"))
    graph.entry(gives_up, "other")
    with pytest.raises(RuntimeError, match="cancelled itself"):
        memory.start(graph, {}).result()


@pytest.mark.parametrize("reduced", [False, True])
def test_a_map_that_is_given_up_half_done_brings_nothing(memory: Holdfast, reduced: bool) -> None:
    graph = Graph(Log, name=f"half-{reduced}")
    first_is_done = threading.Event()

    def item(state: Log, item: int) -> Any:
        if item == 2:
            first_is_done.set()
            holdfast.ask("?")
        return {"log": [f"item {item}"]}

    def quick(state: Log) -> dict[str, Any]:
        assert first_is_done.wait(5)
        return {"log": ["quick"]}

    reduce = (lambda state, results: {"log": [f"{len(results)} results"]}) if reduced else None
    graph.map(over=lambda state: [1, 2], name="m", limit=1, reduce=reduce)(item)
    graph.node(name="quick")(quick)
    graph.node(name="join", join="any")(lambda state: {"log": ["join"]})
    graph.entry("m", "quick")
    graph.edge("m", "join")
    graph.edge("quick", "join")
    assert memory.start(graph, {}).result() == {"log": ["quick", "join"]}


def test_what_was_given_up_is_not_drawn_as_done(memory: Holdfast) -> None:
    graph = Graph(Log, name="drawn")
    graph.node(name="asker")(lambda state: {"log": [holdfast.ask("?")]})
    graph.node(name="quick")(logging("quick"))
    graph.node(name="join", join="any")(logging("join"))
    graph.entry("asker", "quick")
    graph.edge("asker", "join")
    graph.edge("quick", "join")
    run = memory.start(graph, {})
    assert run.status is Status.COMPLETED
    saved = run.held.journals.state(run.held.read_record())
    assert saved is not None
    assert path_of(saved.tree).visits == {"quick": 1, "join": 1}
