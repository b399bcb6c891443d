"""Values come back as LangGraph's own serializer would have given them, byte for byte."""

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt, Send
from pydantic import BaseModel, field_serializer

from holdfast.codec import from_text, to_text
from holdfast.integrations.langgraph.grown_list import Marks
from holdfast.integrations.langgraph.values import Cells, typed


@dataclass
class Point:
    x: int
    y: Any = None


class Colour(enum.Enum):
    RED = 1


class Plain(BaseModel):
    a: Any


class Masked(BaseModel):
    a: int

    @field_serializer("a")
    def mask(self, value: int) -> str:
        return "*" * value


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.just(float("nan"))  # one of them: which of the many NaNs it was is not kept
    | st.text()
    | st.binary(max_size=20)
    | st.datetimes()
    | st.uuids()
    | st.decimals()
    | st.just(Colour.RED)
    | st.builds(Point, st.integers(-5, 5))
    | st.builds(Plain, a=st.text())
    | st.builds(HumanMessage, content=st.text(), id=st.none() | st.text())
)
keys = st.text() | st.integers(-5, 5) | st.sampled_from(["$", "v", "f"]) | st.tuples(st.integers(0, 3), st.text())
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.builds(Send, st.text(), inner)
        | st.builds(Interrupt, inner)
        | st.builds(Point, st.integers(-5, 5), inner)
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def cells() -> Cells:
    return Cells(JsonPlusSerializer())


@given(values)
def test_the_same_bytes_come_back(value: Any) -> None:
    cells = Cells(JsonPlusSerializer())
    kind, data = cells.serde.dumps_typed(value)
    stored = from_text(to_text(cells.tree(value, "x")))
    assert typed(stored) == (kind, bytes(data))


def marked(cells: Cells, values: list[Any]) -> Marks:
    marks = cells.marks()
    marks.add(values, 0)
    return marks


@given(st.lists(values, max_size=5), st.lists(values, max_size=5))
def test_a_list_begins_another_if_it_is_dumped_the_same(one: list[Any], other: list[Any]) -> None:
    cells = Cells(JsonPlusSerializer())
    marks = marked(cells, one)
    if marks.begin(other):
        assert cells.serde.dumps_typed(one) == cells.serde.dumps_typed(other[: len(one)])
    assert marks.begin(one + other)
    marks.add(one + other, len(one))
    assert marks.begin(one + other)
    assert marks.length == len(one + other)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (AIMessage("a"), HumanMessage("a")),
        (Plain(a=1), Plain(a=True)),
        (Plain(a=1), Plain(a=1.0)),
        (Plain(a={"x": [1]}), Plain(a={"x": [2]})),
        (Plain(a=Point(1)), Plain(a=Point(2))),
        (Masked(a=1), Masked(a=2)),
        (HumanMessage("a"), HumanMessage("a", extra_field=1)),
        (Point(1), Point(2)),
        (0.0, -0.0),
        (b"a", "a"),
        (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
        (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)),
        (uuid.UUID(int=1), uuid.UUID(int=2)),
    ],
)
def test_what_differs_is_seen(cells: Cells, before: Any, after: Any) -> None:
    assert not marked(cells, [before]).begin([after])
    assert not marked(cells, [after, 1]).begin([before, 1])


def test_what_is_changed_in_place_is_seen(cells: Cells) -> None:
    changes: list[Any] = [
        lambda one: setattr(one, "content", "other"),
        lambda one: setattr(one, "id", None),
        lambda one: one.additional_kwargs.update(a=1),
        lambda one: setattr(one, "extra", 1),
        lambda one: setattr(one, "content", object()),
    ]
    for change in changes:
        for made in (HumanMessage("a", id="1"), AIMessage("a", id="1", response_metadata={"n": 1})):
            same = HumanMessage("b")
            marks = marked(cells, [same, made])
            assert marks.begin([same, made])
            assert marks.begin([HumanMessage("b"), made]), "another object that says the same"
            change(made)
            assert not marks.begin([same, made])
            assert not marks.begin([HumanMessage("b"), made])


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 50])
def test_where_a_list_begins_another(cells: Cells, length: int) -> None:
    values: list[Any] = [HumanMessage(str(n)) if n % 3 else n for n in range(length)]
    marks = marked(cells, values)
    for more in (0, 1, 16):
        assert marks.begin([*values, *range(more)])
    for place in range(length):
        assert not marks.begin([*values[:place], HumanMessage("other"), *values[place + 1 :], 1])
        assert not marks.begin(values[:place])


def test_text_that_is_not_text_is_replaced_as_langgraph_does(cells: Cells) -> None:
    for value in ("a\ud800", ["\ud800"], {"k": "\ud800"}):
        stored = from_text(to_text(cells.tree(value, "x")))
        assert typed(stored) == cells.serde.dumps_typed(value)


def test_top_level_bytes_and_nothing(cells: Cells) -> None:
    for value in (None, b"", b"abc", bytearray(b"abc")):
        found = cells.value(from_text(to_text(cells.tree(value, "x"))), "x")
        assert (type(found), found) == (type(value), value)
