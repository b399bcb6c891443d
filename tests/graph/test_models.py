"""States that are pydantic models are validated by their own rules, when a run begins and by every update."""

from typing import Annotated, Any, ClassVar

import pydantic
import pytest

from holdfast import Graph, Holdfast, UsageError, add, append
from holdfast.errors import UpdateRefused


class Range(pydantic.BaseModel):
    low: int = pydantic.Field(default=0, ge=0)
    high: int = 10
    even: int = 2
    total: Annotated[int, add] = pydantic.Field(default=0, le=5)
    notes: Annotated[list[str], append] = []

    @pydantic.field_validator("even")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("must be even")
        return value

    @pydantic.model_validator(mode="after")
    def is_a_range(self) -> "Range":
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    kinds: ClassVar[list[Any]] = []
    size: int = pydantic.Field(default=0, alias="Size")

    @classmethod
    def __pydantic_init_subclass__(cls, **how: Any) -> None:
        Aliased.kinds.append(cls)


def updated(hf: Holdfast, kind: Any, given: Any, *updates: dict[str, Any]) -> Any:
    graph = Graph(kind, name="validated")
    for n, update in enumerate(updates):
        graph.node(name=f"n{n}")(lambda state, update=update: update)
    graph.entry(*(f"n{n}" for n in range(len(updates))))
    return hf.start(graph, given).result()


@pytest.mark.parametrize(
    ("update", "told"),
    [
        ({"low": -1}, r"field 'low': Input should be greater than or equal to 0; got -1"),
        ({"even": 3}, r"field 'even': Value error, must be even; got 3"),
        ({"total": 6}, r"field 'total': Input should be less than or equal to 5"),
        ({"low": 11}, r"node n0: the update: the state does not fit with it: Value error, low is above high"),
    ],
)
def test_an_update_is_validated(memory: Holdfast, update: dict[str, Any], told: str) -> None:
    with pytest.raises(UpdateRefused, match=told):
        updated(memory, Range, {}, update)


def test_the_whole_is_validated_with_all_updates_of_a_stage(memory: Holdfast) -> None:
    assert updated(memory, Range, {}, {"low": 20}, {"high": 30, "notes": ["x"]}) == Range(low=20, high=30, notes=["x"])


def test_what_it_converts_is_kept(memory: Holdfast) -> None:
    assert updated(memory, Range, {"low": "1"}, {"high": "7"}) == Range(low=1, high=7)


def test_a_beginning_that_is_refused_is_told_in_one_line(memory: Holdfast) -> None:
    with pytest.raises(UsageError) as refused:
        updated(memory, Range, {"low": -1, "even": 3}, {})
    assert str(refused.value) == (
        "graph validated: Range cannot be made of this: low: Input should be greater than or equal to 0; "
        "even: Value error, must be even"
    )


def test_fields_go_by_their_names_and_not_by_their_aliases(memory: Holdfast) -> None:
    assert updated(memory, Aliased, {"size": 3}, {}).size == 3
    assert updated(memory, Aliased, {"size": 3}, {"size": 4}).size == 4
    with pytest.raises(UsageError, match="the state has no field 'Size'; it has size"):
        updated(memory, Aliased, {"Size": 3}, {})
    assert Aliased.kinds == [], "nobody derived from it, as far as it knows"
