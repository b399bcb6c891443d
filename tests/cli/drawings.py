"""Graphs for the tests of the command line, which are named by the path of this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypedDict

from holdfast import END, Graph, append, ask, step


@dataclass
class Source:
    url: str
    weight: int = 1


class State(TypedDict):
    found: Annotated[list[str], append]
    sources: list[Source]
    rounds: int


@step
def look_up(url: str) -> str:
    return url.upper()


research = Graph(State, name="drawings.research")


@research.node
def plan(state: State) -> dict[str, int]:
    return {"rounds": state["rounds"] + 1}


@research.map(over="sources", limit=2)
def fetch(state: State, item: Source) -> dict[str, list[str]]:
    return {"found": [look_up(item.url)]}


@research.node
def judge(state: State) -> dict[str, list[str]]:
    return {"found": [ask("Enough?", str)]}


research.entry("plan")
research.edge("plan", "fetch")
research.edge("fetch", "judge")
research.route("judge", lambda state: END, to=["plan", END])

stopping = Graph(State, name="drawings.stopping")
stopping.node(name="plan")(lambda state: {"rounds": 1})
stopping.node(name="end")(lambda state: {"rounds": 2})
stopping.entry("plan")
stopping.edge("plan", "end")
stopping.edge("end", END)
stopping.interrupt(before=["end"])

broken = Graph(State, name="drawings.broken")
broken.node(name="lonely")(lambda state: {})
broken.node(name="plan")(lambda state: {})
broken.entry("plan")
broken.edge("plan", "nowhere")
