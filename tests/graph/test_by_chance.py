"""Graphs by chance: what they come to is what a plain interpreter says; after any crash; and from any entry on.

The seed of each graph is a part of the test's name.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from sizes import size

import holdfast
from holdfast import END, Graph, Holdfast, Status, add, append, merge, step, union
from holdfast.graph.model import Definition
from holdfast.testing import crash_everywhere

SEEDS = range(size(6, 24))
CRASHED = range(100, 100 + size(2, 6))


class State(TypedDict, total=False):
    log: Annotated[list[str], append]
    table: Annotated[dict[str, int], merge]
    names: Annotated[set[str], union]
    count: Annotated[int, add]
    word: str
    longest: Annotated[str, lambda old, new: max(old, new, key=len)]


@step
async def think(what: str) -> str:
    return what.upper()


def node_of(source: random.Random, name: str) -> Callable[[Any], dict[str, Any]]:
    """What a node brings: the count, by which loops end, and some other fields, by what it is given."""
    fields = ["count", *source.sample(["log", "table", "names", "longest"], k=source.randint(1, 4))]

    def update(state: Any) -> dict[str, Any]:
        count = state["count"]
        values = {
            "log": [f"{name}{count}"] * (count % 3),
            "table": {f"{name}{count % 2}": count},
            "names": {name, f"{count % 4}"},
            "count": 1 + count % 2,
            "longest": name * (count % 5),
        }
        return {field: values[field] for field in fields}

    return update


def graph_of(seed: int, kind: str) -> Graph:
    """A graph with branches, joins, loops that end, maps and questions. Each node is reached from one before it."""
    source = random.Random(seed)
    graph = Graph(State, name=f"chance-{kind}-{seed}", max_steps=500)
    names = [f"n{n}" for n in range(source.randint(3, 7))]
    for name in names:
        add_node(graph, source, name, kind)
    graph.entry(names[0], *(names[1:2] if source.random() < 0.3 else ()))
    for n, name in enumerate(names[1:], 1):
        before = source.choice(names[:n])
        for origin in {before, *(other for other in names[:n] if source.random() < 0.3)}:
            k = source.randint(2, 4)
            graph.edge(origin, name, when=source.choice([None, None, lambda state, k=k: state["count"] % k != 0]))
        if source.random() < 0.4:  # a way back, a few times
            limit = source.randint(3, 25)
            graph.edge(name, source.choice(names[:n]), when=lambda state, limit=limit: state["count"] < limit)
        if source.random() < 0.3:
            graph.edge(name, END)
    return graph


def add_node(graph: Graph, source: random.Random, name: str, kind: str) -> None:
    function = node_of(source, name)
    chance, size = source.random(), source.randint(1, 3)  # without items nothing is counted, and a loop never ends
    if chance < 0.2:
        graph.map(over=lambda state: range(size), name=name)(lambda state, item: function(state))
    elif chance < 0.4 and kind != "plain":

        @graph.node(name=name)
        async def thinks(state: State) -> dict[str, Any]:
            return {**function(state), "log": [await think(name)]}
    elif chance < 0.5 and kind == "asking":

        @graph.node(name=name)
        async def asks(state: State) -> dict[str, Any]:
            await holdfast.ask("go on?")
            return function(state)
    elif chance < 0.6:
        graph.node(name=name, until=lambda state: state["count"] > size * 4)(function)
    else:
        graph.node(name=name)(function)


def plainly(definition: Definition, state: dict[str, Any]) -> dict[str, Any]:
    """The same graph, run by the shortest program that does what the documentation says."""
    ways: dict[str, set[str]] = {name: set() for name in definition.nodes}
    for edge in definition.edges:
        ways[edge.source].add(edge.target)
    entries = Counter(edge.target for edge in definition.edges) + Counter(definition.entries)
    order = list(definition.nodes)

    def reach(start: str, seen: set[str]) -> set[str]:
        for target in ways.get(start, ()):
            if target not in seen:
                seen.add(target)
                reach(target, seen)
        return seen

    queue, waiting = sorted(set(definition.entries), key=order.index), set[str]()
    reducers = {"log": append, "table": merge, "names": union, "count": add, "longest": lambda a, b: max(a, b, key=len)}
    while queue:
        brought: list[dict[str, Any]] = []
        for name in queue:
            node = definition.nodes[name]
            items = list(node.over(state)) if node.kind == "map" else [None]  # type: ignore[operator]
            for item in items:
                returned = node.function(*([state, item] if node.kind == "map" else [state]))
                if hasattr(returned, "send"):
                    returned = finished(returned)
                brought.append(returned)
        for update in brought:
            for field, value in update.items():
                state = {**state, field: reducers[field](state[field], value) if field in state else value}
        arrived, again = set(waiting), set[str]()
        for name in queue:
            until = definition.nodes[name].until
            if until is not None and not until(state):
                again.add(name)
                continue
            out = [edge for edge in definition.edges if edge.source == name]
            arrived |= {edge.target for edge in out if edge.when is None or edge.when(state)} - {END}
        joins = {name for name in arrived if len({e.source for e in definition.edges if e.target == name}) > 1}
        joins |= {name for name in arrived if name in definition.entries and entries[name] > 1}
        arrived |= again
        held = {name for name in joins - again if any(name in reach(other, set()) for other in arrived - {name})}
        firing = arrived - held or set(sorted(held, key=order.index)[:1])
        queue, waiting = sorted(firing, key=order.index), arrived - firing
    return state


def finished(coroutine: Any) -> Any:
    """What a coroutine gives that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["plain", "coroutines"])
def test_it_comes_to_what_a_plain_interpreter_says(memory: Holdfast, kind: str, seed: int) -> None:
    graph = graph_of(seed, kind)
    begins: dict[str, Any] = {"log": [], "table": {}, "names": set(), "count": 0}
    run = memory.start(graph, {})
    assert run.result() == plainly(graph.definition, begins)


@pytest.mark.parametrize("seed", CRASHED)
def test_after_any_crash_it_comes_to_the_same(seed: int, tally: Callable[..., None]) -> None:
    graph = graph_of(seed, "asking")
    report = crash_everywhere(graph, {}, answers=lambda question: None, check=False)
    tally("crash points of graphs by chance", points=report.points, tried=report.tried)
    assert report.ok, str(report)


@pytest.mark.parametrize("seed", range(200, 200 + size(2, 6)))
def test_forks_and_rollbacks_at_every_entry_agree_with_the_fold(memory: Holdfast, seed: int) -> None:
    graph = graph_of(seed, "coroutines")
    run = memory.start(graph, {})
    result = run.result()
    for seq in range(run.info().seq):
        at = run.checkpoint(seq)
        fork = run.fork(seq)
        assert seen(fork.checkpoint()) == seen(at)
        assert fork.resume() is Status.COMPLETED
        assert fork.result() == result
        again = memory.start(graph, {})
        again.rollback(to=seq)
        assert seen(again.checkpoint()) == seen(at)
        assert again.resume() is Status.COMPLETED
        assert again.result() == result
        assert seen(again.checkpoint()) == seen(run.checkpoint())
    assert [at.state for at in run.states()] == [
        run.checkpoint(entry.seq).state for entry in run.history(kind="saved", limit=1000)
    ]


def seen(at: Any) -> Any:
    return at.state, at.node, at.queue, at.step
