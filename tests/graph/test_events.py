"""Entries and states of a run as they happen, in sync and in async code."""

import asyncio
import threading
from typing import Annotated, Any, TypedDict

import holdfast
from holdfast import Graph, Holdfast, Status, append


class Log(TypedDict):
    log: Annotated[list[str], append]


def chain(name: str, *, ask: bool = False) -> Graph:
    graph = Graph(Log, name=name)
    graph.node(name="a")(lambda state: {"log": ["a"]})
    graph.node(name="b")(lambda state: {"log": [holdfast.ask("b?") if ask else "b"]})
    graph.entry("a")
    graph.edge("a", "b")
    return graph


def test_the_events_of_a_run(hf: Holdfast) -> None:
    run = hf.start(chain("events"), {})
    events = list(run.events())
    assert [event.kind for event in events] == ["created", "saved", "saved", "saved", "completed"]
    assert [event.contents.get("queue") for event in events[1:4]] == [["a"], ["b"], []]
    assert events[2].contents["node"] == "a"
    assert "state" not in events[2].contents
    assert [event.seq for event in run.events(after=2)] == [3, 4]


def test_the_states_of_a_run(hf: Holdfast) -> None:
    run = hf.start(chain("states"), {})
    states = list(run.states())
    assert [(at.seq, at.state, at.next) for at in states] == [
        (1, {"log": []}, "a"),
        (2, {"log": ["a"]}, "b"),
        (3, {"log": ["a", "b"]}, None),
    ]


def test_they_come_as_they_happen(memory: Holdfast) -> None:
    run = memory.start(chain("live", ask=True), {})
    seen: list[Any] = []
    half = threading.Event()

    def listen() -> None:
        for at in run.states():
            seen.append(at.state["log"])
            if len(seen) == 2:
                half.set()

    listener = threading.Thread(target=listen)
    listener.start()
    assert half.wait(5)
    assert seen == [[], ["a"]]
    run.answer("yes")
    run.wait()
    listener.join(5)
    assert seen == [[], ["a"], ["a", "yes"]]


def test_what_a_rollback_abandoned_is_left_out(memory: Holdfast) -> None:
    run = memory.start(chain("rolled", ask=True), {})
    run.answer("one")
    run.wait()
    run.rollback(to=2)
    run.resume()
    run.answer("two")
    run.wait()
    assert [at.state["log"] for at in run.states()] == [[], ["a"], ["a", "two"]]
    assert "rewound" in [event.kind for event in run.events()]


def test_the_states_of_a_fork(memory: Holdfast) -> None:
    run = memory.start(chain("forked"), {})
    fork = run.fork(at=2, edit={"log": ["edit"]})
    assert fork.resume() is Status.COMPLETED
    assert [at.state["log"] for at in fork.states()] == [[], ["a"], ["a", "edit"], ["a", "edit", "b"]]


def test_in_async_code() -> None:
    async def main() -> tuple[list[Any], list[Any]]:
        async with holdfast.open("memory://") as hf:
            run = await hf.start(chain("async"), {})
            events = [event.kind async for event in run.events()]
            return events, [at.state["log"] async for at in run.states()]

    events, states = asyncio.run(main())
    assert events == ["created", "saved", "saved", "saved", "completed"]
    assert states == [[], ["a"], ["a", "b"]]


def test_the_states_of_a_loop_by_hand(memory: Holdfast) -> None:
    run = memory.run("by-hand")
    with run.claim():
        run.save({"n": 1}, next="x")
        run.save({"n": 2})
    run.complete()
    assert [(at.state, at.next) for at in run.states()] == [({"n": 1}, "x"), ({"n": 2}, None)]
