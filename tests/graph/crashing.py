"""Graphs with everything in them, to be interrupted anywhere."""

import asyncio
from typing import Annotated, Any, TypedDict

import holdfast
from holdfast import END, Graph, add, append, merge, step, this_step, union
from holdfast.testing import Effects

effects = Effects()


class Inner(TypedDict, total=False):
    text: str
    said: Annotated[list[str], append]


class Outer(TypedDict, total=False):
    log: Annotated[list[str], append]
    table: Annotated[dict[str, int], merge]
    names: Annotated[set[str], union]
    total: Annotated[int, add]
    text: str
    rounds: int


def note(what: str) -> str:
    effects.add(what, key=this_step().idempotency_key)
    return what


@step
def act(what: str) -> str:
    return note(what)


@step
async def fetch(what: str) -> str:
    await asyncio.sleep(0)
    return note(what)


def take_back(update: dict[str, Any]) -> None:
    """Undoes the node that deploys."""


def inner(name: str) -> Graph:
    """A part that asks. Of coroutines, so that each run of it has the same points."""
    graph = Graph(Inner, name=name)

    @graph.node
    async def read(state: Inner) -> dict[str, Any]:
        return {"said": [await fetch(f"{name} reads {state['text']}")]}

    @graph.node
    async def ask(state: Inner) -> dict[str, Any]:
        return {"said": [await holdfast.ask("inner?")]}

    graph.entry(read)
    graph.edge(read, ask)
    return graph


def summed(state: Outer, results: list[int]) -> dict[str, Any]:
    return {"total": sum(results), "log": [f"summed {results}"]}


def everything(name: str) -> Graph:
    """A loop around branches: two functions, one of which asks, two maps, and a subgraph; then an effect."""
    graph = Graph(Outer, name=name, max_visits=10)

    @graph.node
    async def begin(state: Outer) -> dict[str, Any]:
        return {"rounds": state.get("rounds", 0) + 1, "log": [await fetch(f"begin {state.get('rounds', 0)}")]}

    @graph.node
    async def left(state: Outer) -> dict[str, Any]:
        return {"log": await asyncio.gather(fetch("left 1"), fetch("left 2")), "names": {"left"}}

    @graph.node
    async def right(state: Outer) -> dict[str, Any]:
        await fetch("right before")
        return {"log": [f"right {await holdfast.ask('right?')}", await fetch("right after")], "names": ["right"]}

    @graph.map(over=lambda state: range(2), limit=1, reduce=summed)
    async def each(state: Outer, item: int) -> int:
        return len(await fetch(f"item {item}")) + item

    @graph.map(over=lambda state: ["x", "y"])
    async def table(state: Outer, item: str) -> dict[str, Any]:
        return {"table": {item: state["rounds"]}}

    part = inner(f"{name}-inner")
    graph.subgraph("part", part, input=lambda state: {"text": "t"}, output=lambda state: {"log": list(state["said"])})

    @graph.node(until=lambda state: state["total"] % 3 == 0)
    async def settle(state: Outer) -> dict[str, Any]:
        return {"total": 1}

    @graph.node(undo=take_back)
    async def deploy(state: Outer) -> dict[str, Any]:
        return {"log": [await fetch("deployed"), f"total {state['total']}"]}

    graph.entry(begin)
    for branch in (left, right, each, table, "part"):
        graph.edge(begin, branch)
        graph.edge(branch, settle)
    graph.route(settle, lambda state: begin if state["rounds"] < 2 else deploy, to=[begin, deploy])
    graph.edge(deploy, END)
    graph.interrupt(before=[deploy], after=[begin])
    return graph


def straight(name: str) -> Graph:
    """Plain functions, one at a time, so that each run of it has the same points."""
    graph = Graph(Outer, name=name)
    graph.node(name="begin")(lambda state: {"rounds": state.get("rounds", 0) + 1, "log": [act("begin")]})
    graph.map(over=lambda state: ["x", "y"], limit=1, name="table")(lambda state, item: {"table": {act(item): 1}})
    graph.node(name="ask")(lambda state: {"log": [act("asks"), holdfast.ask("right?")]})
    graph.node(name="deploy", undo=take_back)(lambda state: {"log": [act("deployed")]})
    graph.entry("begin")
    graph.edge("begin", "table")
    graph.edge("table", "ask")
    graph.route("ask", lambda state: "begin" if state["rounds"] < 2 else "deploy", to=["begin", "deploy"])
    graph.interrupt(after=["deploy"])
    return graph


def racing(name: str) -> Graph:
    """Branches of which one asks, one is quick; whoever comes first is enough."""
    graph = Graph(Outer, name=name)

    @graph.node
    async def asks(state: Outer) -> dict[str, Any]:
        await fetch("asks")
        return {"log": [await holdfast.ask("never?")]}

    @graph.node
    async def quick(state: Outer) -> dict[str, Any]:
        return {"log": [await fetch("quick 1"), await fetch("quick 2")]}

    @graph.node
    async def slow(state: Outer) -> dict[str, Any]:
        await holdfast.sleep(3600)
        return {"log": ["slow"]}

    graph.subgraph("part", inner(f"{name}-inner"), input=lambda state: {"text": "x"}, output=lambda state: {})
    graph.node(name="join", join="any")(lambda state: {"log": [act("join")]})
    graph.node(name="last", join=holdfast.quorum(2))(lambda state: {"log": [act("last")]})
    graph.node(name="more")(lambda state: {"log": ["more"]})
    graph.entry(asks, quick, slow, "part")
    for branch in (asks, quick, slow, "part"):
        graph.edge(branch, "join")
    graph.edge("join", "last")
    graph.edge("join", "more")
    graph.edge("more", "last")
    return graph
