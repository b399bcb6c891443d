"""Types of states, reducers, what is refused, and that nobody changes a state behind the journal's back."""

import copy
import dataclasses
import json
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

import holdfast
from holdfast import Graph, Holdfast, add, append, keep_last, merge, step, union
from holdfast.errors import StateReadOnly, UpdateRefused, UsageError


class Color(Enum):
    RED = 1


class Deep(TypedDict, total=False):
    items: Annotated[list[Any], append]
    table: Annotated[dict[str, Any], merge]
    names: Annotated[set[str], union]
    count: Annotated[int, add]
    money: Annotated[Decimal, add]
    last: Annotated[str, keep_last]
    best: Annotated[int, max]
    plain: dict[str, Any]
    color: Color
    pair: tuple[int, str]


@dataclasses.dataclass
class Data:
    items: Annotated[list[str], append] = dataclasses.field(default_factory=list)
    score: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    items: Annotated[list[str], append]
    score: int = 0


class Record(msgspec.Struct):
    items: Annotated[list[str], append] = []
    score: int = 0


class Model(pydantic.BaseModel):
    items: Annotated[list[str], append] = []
    score: Annotated[int, pydantic.Field(ge=0)] = 0


def one_node(name: str, state: Any, function: Callable[..., Any], *, again: int = 1) -> Graph:
    graph = Graph(state, name=name)
    graph.node(name="n")(function)
    graph.node(name="m")(lambda state: None)
    graph.entry("n")
    graph.edge("n", "m")
    return graph


@pytest.mark.parametrize("kind", [Data, Slotted, Record, Model], ids=lambda kind: kind.__name__)
def test_the_state_is_what_it_was_declared_as(hf: Holdfast, kind: Any) -> None:
    seen: list[Any] = []

    def node(state: Any) -> dict[str, Any]:
        seen.append((isinstance(state, kind), list(state.items), state.score))
        with pytest.raises((StateReadOnly, dataclasses.FrozenInstanceError)):
            state.score = 9
        with pytest.raises(StateReadOnly, match="return an update instead"):
            state.items.append("x")
        return {"items": ["new"], "score": state.score + 1}

    run = hf.start(one_node(f"kinds-{kind.__name__}", kind, node), kind(items=["old"], score=1))
    assert run.result() == kind(items=["old", "new"], score=2)
    assert type(run.result()) is kind
    assert type(run.checkpoint().state) is kind
    assert seen == [(True, ["old"], 1)]


@pytest.mark.parametrize("kind", [Data, Record, Model], ids=lambda kind: kind.__name__)
def test_a_run_may_begin_with_a_dict_of_its_fields(memory: Holdfast, kind: Any) -> None:
    run = memory.start(one_node(f"dicts-{kind.__name__}", kind, lambda state: {"items": "a"}), {"score": 3})
    assert run.result() == kind(items=["a"], score=3)


@pytest.mark.parametrize("kind", [Data, Record, Model], ids=lambda kind: kind.__name__)
def test_an_update_may_be_an_object_with_fields(memory: Holdfast, kind: Any) -> None:
    class Part(msgspec.Struct):
        score: int
        items: list[str] | msgspec.UnsetType = msgspec.UNSET

    run = memory.start(one_node(f"parts-{kind.__name__}", kind, lambda state: Part(score=5)), kind(items=["a"]))
    assert run.result() == kind(items=["a"], score=5)


def test_of_a_model_only_what_was_set_is_an_update(memory: Holdfast) -> None:
    graph = one_node("model-part", Model, lambda state: Model(score=4))
    result = memory.start(graph, Model(items=["a"])).result()
    assert result == Model(items=["a"], score=4)
    assert result.model_fields_set == {"items", "score"}


def test_reducers(hf: Holdfast) -> None:
    updates: list[dict[str, Any]] = [
        {"items": [1, [2]], "table": {"a": 1, "b": 2}, "names": {"x"}, "count": 2, "best": 3, "last": "p"},
        {"items": (3,), "table": {"a": 5, "c": [1]}, "names": ["y", "x"], "count": -1, "best": 1, "last": "q"},
        {"items": "one", "money": Decimal("1.5"), "names": (), "plain": {"k": {"v": [1]}}, "pair": (1, "a")},
        {"items": [], "table": {}, "money": Decimal("2"), "plain": {"k": {"v": [1, 2]}}, "color": Color.RED},
    ]
    graph = Graph(Deep, name="reducers")

    @graph.node(until=lambda state: state["count"] == 100)
    def n(state: Deep, context: holdfast.NodeContext) -> dict[str, Any]:
        return updates[context.visit - 1] if context.visit <= 4 else {"count": 99}

    graph.entry(n)
    run = hf.start(graph, {})
    assert run.result() == {
        "items": [1, [2], 3, "one"],
        "table": {"a": 5, "b": 2, "c": [1]},
        "names": {"x", "y"},
        "count": 100,
        "best": 3,
        "last": "q",
        "money": Decimal("3.5"),
        "plain": {"k": {"v": [1, 2]}},
        "pair": (1, "a"),
        "color": Color.RED,
    }
    assert type(run.result()["pair"]) is tuple


def test_a_fold_of_the_reducers_is_what_is_held(hf: Holdfast) -> None:
    """What the nodes see, step by step, is what was saved."""
    seen: list[Any] = []
    graph = Graph(Deep, name="held")

    @graph.node(until=lambda state: state["count"] == 12)
    def n(state: Deep) -> dict[str, Any]:
        seen.append(copy.deepcopy(dict(state)))
        k = state["count"]
        return {"items": [k], "table": {f"{k % 3}": k}, "names": {f"{k % 5}"}, "count": 1, "plain": {"k": [k] * k}}

    graph.entry(n)
    run = hf.start(graph, {})
    saved = [at.state for at in run.states()]
    assert saved[:-1] == seen


@pytest.mark.parametrize(
    ("update", "field", "told"),
    [
        ({"nothing": 1}, "nothing", r"there is no such field; the state has items, table"),
        ({"count": "x"}, "count", r"got str 'x', wants int"),
        ({"table": [1]}, "table", r"got list \[1\], wants dict\[str, .*Any\]"),
        ({"names": [1]}, "names", r"got int 1, wants str"),
        ({"names": "text"}, "names", r"got str 'text', wants set\[str\]"),
        ({"pair": (1, 2)}, "pair", r"got tuple \(1, 2\), wants tuple\[int, str\]"),
        ({"color": 1}, "color", r"got int 1, wants Color"),
        ({"plain": {"a": object()}}, "plain", r"it cannot be stored: plain\.a: object"),
        ({"best": "x"}, None, "'>' not supported"),
        (5, None, r"a node returns a dict of fields, or None, and not int"),
        ([("count", 1)], None, r"not list"),
    ],
)
def test_what_does_not_fit_is_refused_naming_node_and_field(
    memory: Holdfast, update: Any, field: str | None, told: str
) -> None:
    mended: list[Any] = []
    graph = one_node("refused", Deep, lambda state: mended[0] if mended else update)
    run = memory.start(graph, {"best": 1})
    with pytest.raises((UpdateRefused, TypeError), match=told) as refused:
        run.result()
    if isinstance(refused.value, UpdateRefused):
        assert (refused.value.graph, refused.value.node, refused.value.field) == ("refused", "n", field)
        assert str(refused.value).startswith("graph refused, node n: the update")
    assert run.checkpoint().step == 0
    mended.append({"count": 1})
    run.retry()
    assert run.result()["count"] == 1


def test_constraints_of_a_model_are_kept(memory: Holdfast) -> None:
    with pytest.raises(UpdateRefused, match=r"node n: the update of field 'score': Input should be greater than"):
        memory.start(one_node("model-bounds", Model, lambda state: {"score": -1}), {}).result()


def test_what_a_reducer_gives_must_fit_too(memory: Holdfast) -> None:
    class Odd(TypedDict):
        total: Annotated[int, lambda old, new: f"{old}{new}"]

    with pytest.raises(UpdateRefused, match=r"'total': what its reducer gave does not fit: got str '12', wants int"):
        memory.start(one_node("odd", Odd, lambda state: {"total": 2}), {"total": 1}).result()


def test_a_node_writes_only_what_it_was_declared_to(memory: Holdfast) -> None:
    graph = Graph(Data, name="writes")
    graph.node(name="n", writes=["items"])(lambda state: {"score": 1})
    graph.entry("n")
    with pytest.raises(UpdateRefused, match="field 'score': the node was declared to write items"):
        memory.start(graph, {}).result()


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"nothing": 1}, "graph begins: the state has no field 'nothing'; it has items"),
        ({"count": "x"}, "graph begins: field 'count' of the state does not fit: got str 'x', wants int"),
        (7, "graph begins begins with a Deep, or a dict of its fields, and not with 7"),
    ],
)
def test_what_a_run_begins_with_is_checked(memory: Holdfast, state: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        memory.start(one_node("begins", Deep, lambda state: None), state)


def test_a_state_cannot_be_changed_behind_the_journal(memory: Holdfast) -> None:
    refused: list[str] = []

    def node(state: Deep) -> dict[str, Any]:
        attempts: list[Callable[[], Any]] = [
            lambda: state.update(count=5),
            lambda: state.__setitem__("count", 5),
            lambda: state["items"].append(1),
            lambda: state["items"].sort(),
            lambda: state["plain"]["k"].append(1),
            lambda: state["plain"].pop("k"),
            lambda: state["names"].add("z"),
            lambda: state["pair"][0].append(1),
        ]
        for attempt in attempts:
            with pytest.raises(StateReadOnly, match="return an update instead, or change a copy of it") as error:
                attempt()
            refused.append(str(error.value))
        mine = state["items"].copy()
        mine.append("mine")
        assert [*state["items"], 1] == state["items"] + [1]
        assert type(state["items"] + [1]) is list
        assert type(copy.deepcopy(state)) is dict
        assert json.loads(json.dumps(state["plain"])) == {"k": [1]}
        return {"plain": {**state["plain"], "new": mine}}

    class Free(Deep, total=False):
        pair: Any  # type: ignore[misc]

    begins = {"items": [3, 1], "plain": {"k": [1]}, "names": {"a"}, "pair": ([1], 2)}
    run = memory.start(one_node("frozen", Free, node), begins)
    assert run.result()["plain"] == {"k": [1], "new": [3, 1, "mine"]}
    assert len(refused) == 8


def test_what_a_node_keeps_and_changes_later_is_not_in_the_state(memory: Holdfast) -> None:
    kept: list[Any] = []

    def node(state: Deep) -> dict[str, Any]:
        kept.append({"k": [1]})
        return {"plain": kept[0]}

    def change(state: Deep) -> dict[str, Any]:
        kept[0]["k"].append(2)
        return {"items": [state["plain"]["k"]]}

    graph = one_node("kept", Deep, node)
    graph.node(name="change")(change)
    graph.edge("m", "change")
    assert memory.start(graph, {}).result()["items"] == [[1]]


def test_parts_of_a_state_can_be_given_to_steps(memory: Holdfast) -> None:
    @step
    def count(items: list[Any], state: Any) -> int:
        return len(items) + len(state.items)

    run = memory.start(one_node("given", Data, lambda state: {"score": count(state.items, state)}), {"items": ["a"]})
    assert run.result().score == 2


def test_returning_the_state_itself_is_refused(memory: Holdfast) -> None:
    for kind in (Deep, Data):
        with pytest.raises(UpdateRefused, match="it is the state that the node was given; return only what changes"):
            memory.start(one_node(f"itself-{kind.__name__}", kind, lambda state: state), {}).result()


class Nested(TypedDict):
    a: int
    b: NotRequired[str]


class Fits(TypedDict, total=False):
    either: int | None
    literal: Literal["x", "y"]
    nested: Nested
    many: tuple[int, ...]
    real: float
    deep: dict[str, list[int]]


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("either", None, "x"),
        ("literal", "x", "z"),
        ("nested", {"a": 1}, {"b": "x"}),
        ("nested", {"a": 1, "b": "x"}, {"a": 1, "c": 2}),
        ("many", (1, 2), (1, "x")),
        ("real", 1, "1"),
        ("deep", {"a": [1]}, {"a": ["x"]}),
    ],
)
def test_types_of_fields(memory: Holdfast, field: str, good: Any, bad: Any) -> None:
    assert memory.start(one_node("fits", Fits, lambda state: {field: good}), {}).result() == {field: good}
    with pytest.raises(UpdateRefused, match=f"field '{field}'"):
        memory.start(one_node("fits", Fits, lambda state: {field: bad}), {}).result()
