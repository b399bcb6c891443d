"""What a graph is made of: frozen records, as its declarations gave them. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Struct

END: Final = "__end__"  # where a branch of a graph ends


class Quorum(Struct, frozen=True):
    """A join that fires when so many branches have arrived."""

    count: int


Join = Literal["all", "any"] | Quorum


class Node(Struct, frozen=True, kw_only=True):
    """A node: what is called, and when. ``place`` is the line that declared it."""

    name: str
    kind: Literal["node", "map", "graph"] = "node"
    function: Callable[..., Any]
    place: str
    is_async: bool = False
    takes_context: bool = False
    join: Join = "all"
    undo: str | None = None  # the name of the function, as steps keep it
    until: Callable[[Any], bool] | None = None
    writes: tuple[str, ...] | None = None  # the fields that it may change; None: not said
    over: Callable[[Any], Any] | str | None = None  # of a map: the items, or the field that has them
    limit: int | None = None  # of a map: how many at once
    reduce: Callable[[Any, list[Any]], Any] | None = None  # of a map: what its results make of the state


class Edge(Struct, frozen=True, kw_only=True):
    """A way from one node to another, taken if ``when`` holds."""

    source: str
    target: str
    place: str
    when: Callable[[Any], bool] | None = None
    label: str | None = None


class Router(Struct, frozen=True, kw_only=True):
    """A function that says where to go from a node: one of ``targets``, or several."""

    source: str
    function: Callable[[Any], Any]
    targets: tuple[str, ...]
    place: str


class Definition(Struct, frozen=True, kw_only=True):
    """A graph as it was declared, which is what is checked, drawn and run."""

    name: str
    state: Any
    nodes: dict[str, Node]  # in the order of declaration
    edges: tuple[Edge, ...] = ()
    routers: tuple[Router, ...] = ()
    entries: tuple[str, ...] = ()
    before: frozenset[str] = frozenset()  # nodes to interrupt at
    after: frozenset[str] = frozenset()
    goal: Callable[[Any], bool] | None = None
    place: str = ""


class Problem(Struct, frozen=True):
    """A mistake in a graph: the line that made it, what is wrong, and what to do."""

    place: str  # "file:line"
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message
