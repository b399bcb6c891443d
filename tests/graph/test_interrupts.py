"""Interrupts before and after nodes: the run waits with no lease, goes on when it is resumed, and never fires twice."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

import pytest

from holdfast import Graph, Holdfast, Status, append
from holdfast.errors import AnswerRefused, HoldfastError
from holdfast.testing.crash import Crash


class Log(TypedDict):
    log: Annotated[list[str], append]


def chain(name: str, *, before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> Graph:
    graph = Graph(Log, name=name)
    for node in "abc":
        graph.node(name=node)(lambda state, node=node: {"log": [node]})
    graph.entry("a")
    graph.edge("a", "b")
    graph.edge("b", "c")
    graph.interrupt(before=before, after=after)
    return graph


def test_before_a_node(hf: Holdfast) -> None:
    run = hf.start(chain("before", before=("b",)), {})
    assert run.status is Status.WAITING
    assert run.info().holder is None
    assert run.checkpoint().state == {"log": ["a"]}
    assert run.checkpoint().next == "b"
    [question] = run.questions()
    assert question.output_key == "interrupt:before:b#1"
    assert "before b#1" in question.prompt
    assert run.resume() is Status.COMPLETED
    assert run.result() == {"log": ["a", "b", "c"]}


def test_after_a_node(hf: Holdfast) -> None:
    run = hf.start(chain("after", after=("b",)), {})
    assert run.checkpoint().state == {"log": ["a", "b"]}
    assert run.resume() is Status.COMPLETED
    assert run.result() == {"log": ["a", "b", "c"]}


def test_after_the_last_node(memory: Holdfast) -> None:
    run = memory.start(chain("last", after=("c",)), {})
    assert run.status is Status.WAITING
    assert run.checkpoint().queue == []
    assert run.resume() is Status.COMPLETED


def test_an_answer_lets_it_go_on_too(memory: Holdfast) -> None:
    run = memory.start(chain("answered", before=("a",)), {})
    run.answer(True)
    assert run.result() == {"log": ["a", "b", "c"]}


def test_no_leaves_it_waiting(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.start(chain("declined", before=("b",)), {}, id="run")
    other = opened().get("run")
    for _ in range(2):  # as often as one likes
        other.answer(False, by="Ann")
        assert run.status is Status.WAITING
        [question] = run.questions()
        assert question.declined
        [*_, last] = run.history()
        assert (last.kind, run.entry(last.seq).contents["by"]) == ("declined", "Ann")
        opened().work(until_idle=True)
        assert run.resume() is Status.WAITING  # nobody goes over that
        assert run.checkpoint().state == {"log": ["a"]}
        assert len(run.history(kind="asked")) == 1
    fork = run.fork()
    assert [one.declined for one in fork.questions()] == [True]
    assert fork.resume() is Status.WAITING
    other.answer(True)
    assert run.result() == {"log": ["a", "b", "c"]}


def test_no_after_a_node_while_it_is_held(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.start(chain("declined after", after=("b",)), {}, id="run")
    with run.claim():
        opened().get("run").answer(False)
        assert [one.declined for one in run.questions()] == [True]
    assert run.resume() is Status.WAITING
    run.cancel("no")
    assert run.status is Status.CANCELLED


@pytest.mark.parametrize("value", [None, "no", 0, {}])
def test_an_answer_is_yes_or_no(hf: Holdfast, value: Any) -> None:
    run = hf.start(chain("yes or no", before=("b",)), {})
    with pytest.raises(AnswerRefused):
        run.answer(value)
    assert [one.declined for one in run.questions()] == [False]


def test_each_of_several_is_waited_for(memory: Holdfast) -> None:
    run = memory.start(chain("several", before=("a", "b"), after=("a", "b")), {})
    seen = []
    while run.status is Status.WAITING:
        seen.append((run.checkpoint().state["log"], sorted(one.output_key for one in run.questions())))
        run.resume()
    assert seen == [
        ([], ["interrupt:before:a#1"]),
        (["a"], ["interrupt:after:a#1", "interrupt:before:b#1"]),
        (["a", "b"], ["interrupt:after:b#1"]),
    ]
    assert run.result() == {"log": ["a", "b", "c"]}


def test_each_visit_is_interrupted_once(memory: Holdfast) -> None:
    graph = Graph(Log, name="visits")
    graph.node(name="a", until=lambda state: len(state["log"]) == 3)(lambda state: {"log": ["a"]})
    graph.entry("a")
    graph.interrupt(before=["a"])
    run = memory.start(graph, {})
    for visit in (1, 2, 3):
        [question] = run.questions()
        assert question.output_key == f"interrupt:before:a#{visit}"
        run.resume()
    assert run.status is Status.COMPLETED


def test_it_does_not_fire_again_after_a_crash(
    opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None]
) -> None:
    first, second = opened(), opened()
    graph = Graph(Log, name="crashed")
    deadly = [True]

    @graph.node
    def a(state: Log) -> dict[str, Any]:
        if deadly:
            deadly.clear()
            kill(first)
            raise Crash
        return {"log": ["a"]}

    graph.entry(a)
    graph.interrupt(before=[a])
    run = first.start(graph, {}, id="one")
    with suppress(Crash, HoldfastError):
        run.resume()
    again = second.get("one")
    assert again.questions() == ()
    second.work(until_idle=True)
    assert again.result() == {"log": ["a"]}


def test_it_does_not_fire_again_in_a_fork(memory: Holdfast) -> None:
    run = memory.start(chain("forked", before=("b",)), {})
    run.resume()
    [answered] = [entry.seq for entry in run.history() if entry.kind == "answered"]
    fork = run.fork(answered)
    assert fork.resume() is Status.COMPLETED
    waiting = run.fork(answered - 1)
    memory.work(until_idle=True)
    assert waiting.status is Status.WAITING
    assert waiting.resume() is Status.COMPLETED


def test_it_fires_again_when_the_run_was_rolled_back_before_it(memory: Holdfast) -> None:
    run = memory.start(chain("rolled", before=("b",)), {})
    run.resume()
    run.rollback(to=1)
    run.wait(timeout=0)
    memory.work(until_idle=True)
    assert [question.output_key for question in run.questions()] == ["interrupt:before:b#1"]


@pytest.mark.parametrize("how", ["edit", "as_node"])
def test_the_state_may_be_edited_meanwhile(hf: Holdfast, how: str) -> None:
    run = hf.start(chain(f"edited-{how}", before=("b",)), {})
    run.edit({"log": ["by hand"]}, as_node="b" if how == "as_node" else None)
    run.resume()
    assert run.result() == {"log": ["a", "by hand", "b", "c"] if how == "edit" else ["a", "by hand", "c"]}
