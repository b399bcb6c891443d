"""Mistakes in graphs: what is found, where, and what is said; and what is no mistake."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings

from holdfast.graph.model import END, Definition, Quorum
from holdfast.graph.verify import verify

from .definitions import definitions, graph_of


def told(definition: Definition) -> list[str]:
    return [str(problem) for problem in verify(definition)]


# --- names and ways ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "definition",
    [
        graph_of(["a"]),
        graph_of(["a", "b"], ["a b"]),
        graph_of(["a", "b"], ["a b?", f"a {END}?"]),
        graph_of(["a"], ["a a?"]),
        graph_of(["a", "b"], ["a b", "b a?"]),
        graph_of(["a", "b"], ["a b", "b a"], goal=bool),
        graph_of(["a", "b", "c", {"name": "j", "join": "any"}], ["a b", "a c", "b j", "c c", "c j?", f"j {END}"]),
        graph_of(["a", "b"], [], [("a", len, ["b", "a", END])]),
        graph_of(["a", "b", {"name": "j", "join": Quorum(2)}], ["a j", "b j"], entries=["a", "b"]),
        graph_of(["a", {"name": "j", "join": Quorum(1)}], ["a j"]),
        graph_of(["a", {"name": "j", "join": "any"}], ["a j"]),
    ],
)
def test_what_is_no_mistake(definition: Definition) -> None:
    assert told(definition) == []


@pytest.mark.parametrize(
    ("definition", "problems"),
    [
        (graph_of([], entries=["a"]), ["900: the entry 'a' is not a node; the graph has no nodes; add one with"]),
        (graph_of(["a"], entries=[]), ["900: graph research has no entry; say where it begins with graph.entry(...)"]),
        (graph_of(["a"], entries=["b"]), ["900: the entry 'b' is not a node; the nodes are 'a'"]),
        (graph_of(["a"], entries=["a", END]), ["900: the entry END is not a node"]),
        (
            graph_of(["a", "b"], ["a b", "a x"]),
            ["102: an edge leads to 'x', which is not a node; the nodes are 'a' and 'b'"],
        ),
        (graph_of(["a", "b"], ["a b", "x b"]), ["102: an edge begins at 'x', which is not a node"]),
        (graph_of(["a"], [f"{END} a"]), ["101: an edge to 'a' begins at the end, which nothing leaves"]),
        (graph_of(["a"], before=frozenset("xy")), ["900: the interrupt before 'x'", "900: the interrupt before 'y'"]),
        (graph_of(["a"], after=frozenset([END])), ["900: the interrupt after END can never come"]),
        (graph_of(["a", "b"]), ["2: node 'b' cannot be reached from the entry; lead an edge or a router to it"]),
        (graph_of(["a", END]), [f"2: a node cannot be called {END}"]),
        (graph_of(["a"], ["a a"]), ["1: node 'a' leads to itself: there is no way to the end; add an edge to END"]),
        (graph_of(["a", "b"], ["a b", "b a"]), ["1: nodes 'a' and 'b' go round: there is no way to the end"]),
        (graph_of(["s", "a", "b"], ["s a", "a b", "b a"]), ["2: nodes 'a' and 'b' go round: there is no way"]),
        (
            graph_of(["a", "b"], ["a a", "a b"]),
            ["1: node 'a' leads to itself for ever: these edges are always taken; give"],
        ),
        (graph_of(["a", "b", "c"], ["a b", "b a", "b c"]), ["1: nodes 'a' and 'b' go round for ever: these edges are"]),
        (graph_of(["a", "b"], [], [("a", len, ["b"]), ("b", len, ["a"])]), ["1: nodes 'a' and 'b' go round: there is"]),
    ],
)
def test_names_and_ways(definition: Definition, problems: list[str]) -> None:
    found = told(definition)
    assert [line.startswith(f"graph.py:{wanted}") for line, wanted in zip(found, problems, strict=True)] == [
        True for _ in problems
    ], found


def test_all_problems_are_told_at_once_in_the_order_of_places() -> None:
    definition = graph_of(
        ["a", "lost", {"name": "j", "join": Quorum(0)}, {"name": "m", "kind": "map", "over": "gone", "limit": 0}],
        ["a j", "a m", "a nowhere"],
        [("a", len, [])],
        before=frozenset(["x"]),
        state=int,
    )
    assert [problem.place for problem in verify(definition)] == [
        f"graph.py:{line}" for line in (2, 3, 103, 201, 900, 900)
    ]


def test_of_very_many_names_some_are_told() -> None:
    names = [f"n{number}" for number in range(20)]
    [line] = told(graph_of(names, [f"n0 {name}" for name in names[1:]] + ["n0 x"]))
    assert line.endswith("the nodes are 'n0', 'n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7' and 12 more")


def test_what_follows_from_another_mistake_is_not_told() -> None:
    assert len(verify(graph_of(["a", "b"], [f"a {END}", "aa b"]))) == 1
    assert len(verify(graph_of(["a"], ["a aa", "a a?"]))) == 1
    assert len(verify(graph_of(["a", "b"], ["a b"], entries=["aa"]))) == 1


# --- joins ------------------------------------------------------------------------------------------------------------


def one_of(state: Any) -> Literal["b", "c"]:
    raise NotImplementedError


def some_of(state: Any) -> list[Literal["b", "c"]]:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("edges", "routers", "wanted", "most"),
    [
        (["a b", "a c", "b j", "c j"], [], 2, None),
        (["a b", "a c", "b j", "c j"], [], 3, 2),
        (["a b?", "a c?", "b j", "c j"], [], 2, None),
        (["a b", "b c", "c j"], [], 2, 1),
        (["a b", "b j", "b c", "c j"], [], 2, None),
        (["b j", "c j"], [("a", one_of, ["b", "c"])], 2, 1),
        (["b j", "c j", "a j"], [("a", one_of, ["b", "c"])], 2, None),
        (["b j", "c j", "a j"], [("a", one_of, ["b", "c"])], 3, 2),
        (["b j", "c j"], [("a", some_of, ["b", "c"])], 2, None),
        (["b j", "c j"], [("a", len, ["b", "c"])], 2, None),
        (["a b", "a c", "b j", "c j", "j a?"], [], 3, 2),
    ],
)
def test_a_quorum_that_can_never_come(edges: list[str], routers: list[Any], wanted: int, most: int | None) -> None:
    definition = graph_of(["a", "b", "c", {"name": "j", "join": Quorum(wanted)}], edges, routers)
    expected = (
        f"graph.py:4: the join of node 'j' can never fire: it waits for {wanted} branches, and at most {most} can"
    )
    assert [line.startswith(expected) for line in told(definition)] == ([True] if most is not None else [])


# --- routers ----------------------------------------------------------------------------------------------------------


class Text(enum.StrEnum):
    B = "b"
    C = "c"


class Plain(enum.Enum):
    B = "b"


def to_text(state: Any) -> Text:
    raise NotImplementedError


def to_plain(state: Any) -> Plain:
    raise NotImplementedError


def to_maybe(state: Any) -> Literal["b"] | None:
    raise NotImplementedError


def to_truth(state: Any) -> bool:
    raise NotImplementedError


def to_name(state: Any) -> str:
    raise NotImplementedError


def to_some_name(state: Any) -> Literal["b"] | str:
    raise NotImplementedError


def to_many(state: Any) -> Annotated[tuple[Literal["b", "c"], ...] | Literal["b"], "why"]:
    raise NotImplementedError


async def to_unreadable(state: Any) -> Missing:  # noqa: F821
    raise NotImplementedError


class Chooser:
    def __call__(self, state: Any) -> Literal["b", "c"]:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("router", "targets", "problems"),
    [
        (one_of, ["b", "c"], []),
        (one_of, ["b"], ["the router one_of of 'a' may give 'c', which is not among its targets; add it to `to`"]),
        (one_of, ["b", "c", END], ["the router one_of of 'a' never gives END, as annotated; take it out of `to`"]),
        (some_of, ["b"], ["the router some_of of 'a' may give 'c'"]),
        (to_text, ["b", END], ["the router to_text of 'a' may give 'c'", "the router to_text of 'a' never gives END"]),
        (
            to_plain,
            ["b"],
            ["the router to_plain of 'a' may give Plain.B; it must give the name of a node, END, or a list"],
        ),
        (to_maybe, ["b"], ["the router to_maybe of 'a' may give None; it must give"]),
        (to_truth, ["b"], ["the router to_truth of 'a' may give bool; it must give"]),
        (to_name, ["b"], []),
        (to_some_name, ["b", "c"], []),
        (to_many, ["b"], ["the router to_many of 'a' may give 'c'"]),
        (to_unreadable, ["b"], []),
        (partial(one_of), ["b"], ["the router of 'a' may give 'c'"]),
        (Chooser(), ["b"], ["the router of 'a' may give 'c'"]),
        (lambda state: "b", ["b", "x"], ["the router of 'a' may lead to 'x', which is not a node"]),
        (len, [], ["the router len of 'a' has no targets; list where it may lead"]),
    ],
)
def test_routers(router: Callable[..., Any], targets: list[str], problems: list[str]) -> None:
    definition = graph_of(["a", "b", "c"], ["a b?", "a c?"], [("a", router, targets)])
    found = told(definition)
    assert len(found) == len(problems), found
    assert all(line.startswith(f"graph.py:201: {wanted}") for line, wanted in zip(found, problems, strict=True)), found


def test_a_router_of_an_unknown_node() -> None:
    [line] = told(graph_of(["a"], [], [("x", len, ["a"])]))
    assert line == "graph.py:201: the router len of 'x': there is no such node; declare it, or mend the name"


# --- the state --------------------------------------------------------------------------------------------------------


def three(old: int, new: int, more: int) -> int:
    raise NotImplementedError


async def later(old: int, new: int) -> int:
    raise NotImplementedError


class Marker:
    """Says something about a field, and reduces nothing."""


class Sound(TypedDict):
    a: Annotated[int, operator.add]
    b: NotRequired[Annotated[int, max, "text"]]
    c: Annotated[int, Marker, Marker(), msgspec.Meta(gt=1)]
    d: Annotated[int, pydantic.AfterValidator(abs), pydantic.Field(gt=1)]


class Faulty(TypedDict):
    two: Annotated[int, operator.add, max]
    three: Annotated[int, three]
    later: Annotated[int, later]
    text: Annotated[list[int], "append"]


def test_reducers() -> None:
    assert told(graph_of(["a"], state=Sound)) == []
    assert told(graph_of(["a"], state=Faulty)) == [
        f"graph.py:900: field {line}"
        for line in (
            "'later' of Faulty: its reducer later is async, and must be a plain function; "
            "write it as def f(old, new): ...",
            "'text' of Faulty: 'append' is text; write the reducer itself: holdfast.append",
            "'three' of Faulty: its reducer three does not take two arguments; write it as def f(old, new): ...",
            "'two' of Faulty has 2 reducers (add, max); leave one",
        )
    ]


def test_a_state_that_cannot_be_one() -> None:
    [line] = told(graph_of(["a"], state=dict[str, int]))
    assert line.startswith("graph.py:900: graph research: ")
    assert "cannot be a state; use a TypedDict, dataclass, msgspec.Struct or pydantic model" in line


def test_a_state_whose_annotations_cannot_be_read() -> None:
    class Unreadable(TypedDict):
        a: Missing  # noqa: F821

    [line] = told(graph_of(["a"], state=Unreadable))
    assert "cannot be read: name 'Missing' is not defined; declare the names they use at module level" in line


class Foreign(TypedDict):
    score: int
    other: int


def gives_foreign(state: Any) -> Foreign:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ({"writes": ("score", "x")}, "node 'n' writes 'x', which is not a field; Plain has 'score' and 'items'"),
        ({"kind": "map", "over": "x"}, "node 'n' maps over 'x', which is not a field"),
        ({"kind": "map", "over": "score"}, "node 'n' maps over 'score', which is int; map over a list"),
        ({"kind": "map", "over": "items", "limit": 0}, "node 'n' has limit=0; let it be 1 or more"),
        ({"function": gives_foreign}, "node 'n' gives Foreign.other, which is not a field"),
    ],
)
def test_fields_of_nodes(node: dict[str, Any], problem: str) -> None:
    [line] = told(graph_of([{"name": "n"} | node]))
    assert line.startswith(f"graph.py:1: {problem}")


# --- any graph --------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(definitions())
def test_verification_never_crashes_and_every_problem_has_a_place(definition: Definition) -> None:
    problems = verify(definition)
    assert all(problem.place.startswith("graph.py:") and problem.message for problem in problems)
    assert len({str(problem) for problem in problems}) == len(problems)
