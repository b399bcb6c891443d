"""Guards: a run that takes too many steps, visits or too much time is parked, and goes on when a person says so."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypedDict

import pytest

from holdfast import Graph, Holdfast, RunBlocked, Status
from holdfast.errors import DeadlinePassed, HoldfastError, UsageError
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash


class Count(TypedDict):
    count: int


def counting(name: str, **guards: Any) -> Graph:
    graph = Graph(Count, name=name, **guards)
    graph.node(name="one")(lambda state: {"count": state["count"] + 1})
    graph.node(name="two")(lambda state: {"count": state["count"] + 1})
    graph.entry("one")
    graph.edge("one", "two")
    graph.edge("two", "one", when=lambda state: state["count"] < 20)
    return graph


def test_max_steps_parks_before_the_next_and_unblock_gives_a_new_allowance(hf: Holdfast) -> None:
    run = hf.start(counting("steps", max_steps=7), {"count": 0})
    with pytest.raises(RunBlocked, match=r"it took 7 steps, .*max_steps of graph steps allows; next is two"):
        run.result()
    assert run.checkpoint().state == {"count": 7}
    seen = [7]
    while run.status is Status.BLOCKED:
        run.unblock()
        run.resume()
        seen.append(run.checkpoint().state["count"])
    assert seen == [7, 14, 20]
    assert run.result() == {"count": 20}


def test_max_visits_names_the_node(hf: Holdfast) -> None:
    run = hf.start(counting("visits", max_visits=3), {"count": 0})
    with pytest.raises(RunBlocked, match=r"it came to node one 3 times, .*max_visits"):
        run.result()
    assert run.checkpoint().state == {"count": 6}
    run.unblock()
    run.resume()
    assert run.checkpoint().state == {"count": 12}


def test_a_crash_gives_no_new_allowance(opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None]) -> None:
    first, second = opened(), opened()
    graph = Graph(Count, name="crash", max_steps=5)
    deadly = [True]

    @graph.node(until=lambda state: state["count"] == 12)
    def more(state: Count) -> dict[str, Any]:
        if state["count"] == 3 and deadly:
            deadly.clear()
            kill(first)
            raise Crash
        return {"count": state["count"] + 1}

    graph.entry(more)
    with suppress(Crash, HoldfastError):
        first.start(graph, {"count": 0}, id="one")
    run = second.get("one")
    run.resume()
    assert run.status is Status.BLOCKED
    assert run.checkpoint().state == {"count": 5}


def test_max_time_counts_the_time_at_work_and_not_that_of_waiting(
    timed: Callable[..., Holdfast], clock: ManualClock
) -> None:
    handle = timed()
    graph = Graph(Count, name="time", max_time=10)

    @graph.node(until=lambda state: state["count"] == 6)
    def slow(state: Count) -> dict[str, Any]:
        clock.advance(4)
        return {"count": state["count"] + 1}

    graph.entry(slow)
    graph.interrupt(after=[slow])
    run = handle.start(graph, {"count": 0})
    for count in (1, 2):
        assert run.checkpoint().state == {"count": count}
        clock.advance(1000)
        run.resume()
    run.resume()
    with pytest.raises(RunBlocked, match=r"it was at work for 10 s, .*max_time"):
        run.result(timeout=0)
    assert run.checkpoint().state == {"count": 3}
    run.unblock()
    run.resume()
    assert run.checkpoint().state == {"count": 4}


def test_a_map_is_one_step(memory: Holdfast) -> None:
    graph = Graph(Count, name="map", max_steps=1)
    graph.map(over=lambda state: range(20), reduce=lambda state, found: {"count": len(found)}, name="m")(
        lambda state, item: item
    )
    graph.entry("m")
    assert memory.start(graph, {"count": 0}).result() == {"count": 20}


@pytest.mark.parametrize("how", [{"max_steps": 0}, {"max_visits": -1}, {"max_time": -1}, {"max_steps": "many"}])
def test_what_is_no_guard_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Graph(Count, name="odd", **how)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_deadline_holds_between_nodes_that_call_nothing(
    timed: Callable[..., Holdfast], clock: ManualClock, is_async: bool
) -> None:
    graph = Graph(Count, name=f"late-{is_async}", deadline=10)

    def later(state: Count) -> dict[str, Any]:
        clock.advance(4)
        return {"count": state["count"] + 1}

    async def later_on_the_loop(state: Count) -> dict[str, Any]:
        return later(state)

    graph.node(name="more", until=lambda state: state["count"] == 5)(later_on_the_loop if is_async else later)
    graph.entry("more")
    run = timed().start(graph, {"count": 0})
    with pytest.raises(DeadlinePassed, match="longer than its deadline of 10 s"):
        run.result()
    assert run.checkpoint().state == {"count": 3}


@pytest.mark.parametrize("guard", ["max_steps", "max_visits"])
def test_true_is_no_number(guard: str) -> None:
    with pytest.raises(UsageError, match=f"{guard}=True: takes a number from 1"):
        Graph(Count, name="true", **{guard: True})
