"""Reducers: of which containers, of what was never set, and of branches that write the same field."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest

from holdfast import Graph, Holdfast, Status, append, keep_last, merge, union
from holdfast.errors import UpdateRefused


class Kinds(TypedDict, total=False):
    several: Annotated[tuple[int, ...], append]
    names: Annotated[frozenset[str], union]
    maybe: Annotated[list[str] | None, append]
    table: Annotated[dict[str, int] | None, merge]
    any_order: Annotated[Sequence[int], append]


def chain(state: Any, name: str, *updates: dict[str, Any]) -> Graph:
    graph = Graph(state, name=name)
    for n, update in enumerate(updates):
        graph.node(name=f"n{n}")(lambda state, update=update: update)
        if n:
            graph.edge(f"n{n - 1}", f"n{n}")
    graph.entry("n0")
    return graph


def test_each_begins_with_what_its_type_says(memory: Holdfast) -> None:
    run = memory.start(chain(Kinds, "begins", {}), {})
    assert run.result() == {"several": (), "names": frozenset(), "maybe": [], "table": {}, "any_order": []}


def test_tuples_and_frozensets_stay_what_they_are(hf: Holdfast) -> None:
    graph = chain(Kinds, "stays", {"several": [1], "names": ["a"]}, {"several": (2, 3), "names": {"b"}})
    assert hf.start(graph, {"several": (0,)}).result() | {"maybe": 0, "table": 0, "any_order": 0} == {
        "several": (0, 1, 2, 3),
        "names": frozenset("ab"),
        "maybe": 0,
        "table": 0,
        "any_order": 0,
    }


def test_none_is_as_good_as_nothing(memory: Holdfast) -> None:
    graph = chain(Kinds, "none", {"maybe": "a", "table": {"x": 1}}, {"maybe": ["b"]})
    ended = memory.start(graph, {"maybe": None, "table": None}).result()
    assert (ended["maybe"], ended["table"]) == (["a", "b"], {"x": 1})
    with pytest.raises(UpdateRefused, match="field 'maybe': got int 3, wants str"):
        memory.start(chain(Kinds, "none-int", {"maybe": [3]}), {}).result()
    with pytest.raises(UpdateRefused, match="field 'table': got NoneType None, wants dict"):
        memory.start(chain(Kinds, "none-table", {"table": None}), {}).result()


@dataclasses.dataclass
class Noted:
    notes: Annotated[list[str], append] = dataclasses.field(default_factory=lambda: ["from the start"])


def test_a_default_counts_before_the_reducer(memory: Holdfast) -> None:
    assert memory.start(chain(Noted, "default", {"notes": "b"}), {}).result() == Noted(["from the start", "b"])


def fussy(old: int, new: int) -> int:
    raise ValueError("never pleased")


class Fussy(TypedDict, total=False):
    score: Annotated[int, fussy]


def test_a_reducer_that_raises_is_named(memory: Holdfast) -> None:
    with pytest.raises(ValueError, match="never pleased") as failed:
        memory.start(chain(Fussy, "fussy", {"score": 2}), {"score": 1}).result()
    assert any("in the reducer of field 'score', for the update of node n0" in note for note in failed.value.__notes__)


class Winner(TypedDict, total=False):
    who: str
    last: Annotated[str, keep_last]


def both(name: str, field: str) -> Graph:
    """Two edges whose conditions both hold, to nodes that write the same field."""
    graph = Graph(Winner, name=name)
    graph.node(name="begin")(lambda state: None)
    for node in ("one", "two"):
        graph.node(name=node, writes=[field])(lambda state, node=node: {field: node})
        graph.edge("begin", node, when=lambda state: True)
    graph.entry("begin")
    return graph


def test_branches_that_overwrite_each_other_are_refused(hf: Holdfast) -> None:
    run = hf.start(both("both", "who"), {})
    assert run.status is Status.FAILED
    with pytest.raises(UpdateRefused, match=r"graph both, node two: .*field 'who': node one wrote it too") as refused:
        run.result()
    assert "keep_last" in str(refused.value)
    assert (refused.value.node, refused.value.field) == ("two", "who")
    assert "who" not in run.checkpoint().state, "nothing of it is kept"


def test_of_keep_last_the_one_declared_last_counts(memory: Holdfast) -> None:
    assert memory.start(both("both-last", "last"), {}).result() == {"last": "two"}


def test_with_a_reducer_it_goes_on_where_it_was(memory: Holdfast) -> None:
    class Mended(TypedDict, total=False):
        who: Annotated[str, keep_last]
        last: Annotated[str, keep_last]

    run = memory.start(both("mended", "who"), {})
    graph = Graph(Mended, name="mended")
    graph.node(name="begin")(lambda state: pytest.fail("it was done"))
    graph.node(name="one")(lambda state: {"who": "one"})
    graph.node(name="two")(lambda state: {"who": "two"})
    graph.edge("begin", "one")
    graph.edge("begin", "two")
    graph.entry("begin")
    run.retry()
    assert run.result() == {"who": "two"}


def test_items_of_a_map_that_overwrite_each_other_are_refused(memory: Holdfast) -> None:
    graph = Graph(Winner, name="items-who")
    graph.map(over=lambda state: ["a", "b"], name="m")(lambda state, item: {"who": item})
    graph.entry("m")
    with pytest.raises(UpdateRefused, match=r"node m: .*field 'who': several of its items wrote it"):
        memory.start(graph, {}).result()
