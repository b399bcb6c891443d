"""Graphs with nodes that can be undone, that fail and that ask, for the tests of the command line and of the page."""

from __future__ import annotations

import time
from typing import Annotated, Any, TypedDict

from holdfast import END, Graph, append, ask


class Voyage(TypedDict):
    log: Annotated[list[str], append]


class Dies(BaseException):
    """Like the end of a process in the middle of an undo."""


deadly: list[str] = []  # whether an undo dies


def unsend(update: dict[str, Any]) -> None:
    if deadly:
        raise Dies


def voyage(name: str, **how: Any) -> Graph:
    """A graph that sends something, asks by what it goes, and fails if that is a pigeon."""
    graph = Graph(Voyage, name=name, **how)

    @graph.node(undo=unsend)
    def send(state: Voyage) -> dict[str, list[str]]:
        time.sleep(0.06)  # which is worth telling
        return {"log": ["sent"]}

    @graph.node
    def choose(state: Voyage) -> dict[str, list[str]]:
        return {"log": [ask("By what?", str)]}

    @graph.node
    def check(state: Voyage) -> dict[str, list[str]]:
        if state["log"][-1] == "pigeon":
            raise RuntimeError("no pigeons")
        return {"log": ["checked"]}

    graph.entry("send")
    graph.edge("send", "choose")
    graph.edge("choose", "check")
    graph.edge("check", END)
    return graph


ship = voyage("voyages.ship")
there_and_back = voyage("voyages.back", on_failure="rollback")
