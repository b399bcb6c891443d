"""Questions as forms: the controls of all kinds of fields, what a browser sends for them, and errors at the field."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import pytest

from holdfast import AnswerRefused, Field, Question
from holdfast.forms import Form, check_answer, form_of
from holdfast.ui.forms import Control, controls, placed, read


def question(kind: Any) -> Question:
    made = form_of(kind)
    return Question(
        id="q", run="r", prompt="?", fields=made.fields, output_key="k", seq=1, at=datetime.now(UTC), single=made.single
    )


def names(found: tuple[Control, ...]) -> dict[str, str]:
    """The names of the inputs, by their paths."""
    told = {one.path: one.name for one in found if not one.parts}
    for one in found:
        told |= names(one.parts)
    return told


def checked(kind: Any, sent: dict[str, str]) -> Any:
    """The answer that comes of what was sent, as the question takes it."""
    asked = question(kind)
    return check_answer("r", Form(asked.fields, asked.single), read(asked, sent))


class Size(Enum):
    SMALL = 1
    LARGE = 2


@dataclass
class Street:
    name: str
    number: int


@dataclass
class Everything:
    text: str
    whole: int
    number: float
    sure: bool
    choice: Literal["a", "b"]
    size: Size
    price: Decimal
    day: date
    hour: time
    moment: datetime
    long: timedelta
    uid: UUID
    raw: bytes
    items: list[int]
    names: list[str]
    table: dict[str, int]
    anything: Any
    street: Street
    maybe: Street | None = None
    words: str = "hello"
    tags: list[str] = field(default_factory=list)


SENT = {
    "text": "  two\r\nlines ", "whole": "7", "number": "1.5", "sure": "true", "choice": "1", "size": "1",
    "price": "9.99", "day": "2026-01-31", "hour": "09:30", "moment": "2026-01-31T09:30", "long": "P1D",
    "uid": "12345678-1234-5678-1234-567812345678", "raw": "aGk=", "items": "1\n2\n\n3", "names": "a\nb",
    "table": '{"a": 1}', "anything": "[1, true]", "street.name": "Main", "street.number": "5",
}  # fmt: skip
WANTED = {
    "text": "  two\nlines ", "whole": 7, "number": 1.5, "sure": True, "choice": "b", "size": 2, "price": "9.99",
    "day": "2026-01-31", "hour": "09:30", "moment": "2026-01-31T09:30", "long": "P1D", "items": [1, 2, 3],
    "names": ["a", "b"], "table": {"a": 1}, "anything": [1, True], "street": {"name": "Main", "number": 5},
}  # fmt: skip


def test_every_kind_of_field_is_sent_and_read() -> None:
    by_path = names(controls(question(Everything)))
    got = read(question(Everything), {by_path[path]: text for path, text in SENT.items()} | {by_path["words"]: ""})
    assert {name: got[name] for name in WANTED} == WANTED
    assert got["words"] == ""  # the default was taken out
    assert "maybe" not in got
    assert checked(Everything, {by_path[path]: text for path, text in SENT.items()})["words"] == "hello"


def test_what_a_control_shows_at_first_is_read_as_the_default() -> None:
    @dataclass
    class Defaults:
        sure: bool = False
        choice: Literal["a", "b"] = "b"
        count: int = 3
        words: str = "hi"
        day: date = date(2026, 1, 31)

    shown = controls(question(Defaults))
    got = checked(Defaults, {one.name: one.value for one in shown})
    assert got | {"day": str(got["day"])} == {
        "sure": False, "choice": "b", "count": 3, "words": "hi", "day": "2026-01-31",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "sent", "answer"),
    [
        (bool, {"f0": "false"}, False),
        (int, {"f0": " 12 "}, 12),
        (str, {"f0": "yes"}, "yes"),
        (list[int], {"f0": "[1, 2]"}, [1, 2]),
        (None, {"f0": '{"a": 1}'}, {"a": 1}),
        (None, {"f0": "just words"}, "just words"),
        ([Field("a.b", "integer"), Field("ä[0]")], {"f0": "1", "f1": "x"}, {"a.b": 1, "ä[0]": "x"}),
    ],
)
def test_single_and_hand_made_forms(kind: Any, sent: dict[str, str], answer: Any) -> None:
    assert checked(kind, sent) == answer


def test_each_problem_stands_at_its_field() -> None:
    asked = question(Everything)
    by_path = names(controls(asked))
    sent = {by_path[path]: text for path, text in SENT.items()}
    sent |= {by_path["whole"]: "many", by_path["street.number"]: "", by_path["items"]: "1\nx", by_path["choice"]: "9"}
    with pytest.raises(AnswerRefused) as refused:
        check_answer("r", Form(asked.fields), read(asked, sent))
    shown, rest = placed(controls(asked, sent), refused.value.problems)
    flat = {one.path: one.errors for one in [*shown, *(part for one in shown for part in one.parts)] if one.errors}
    assert flat == {
        "whole": ("'many' is not an integer",),
        "street.number": ("is required",),
        "items": ("items[1]: 'x' is not an integer",),
        "choice": ("'9' is none of a, b",),
    }
    assert rest == ()
    assert next(one for one in shown if one.path == "whole").value == "many"


def test_a_problem_of_no_field_is_not_lost() -> None:
    shown, rest = placed(controls(question(Street)), ["the answer: too far away", "name: too long"])
    assert (shown[0].errors, rest) == (("too long",), ("the answer: too far away",))


def test_few_options_are_shown_at_once_and_many_in_a_list() -> None:
    few, many = controls(question([Field("a", options=("x", "y")), Field("b", options=tuple("abcdefgh"))]))
    assert (few.widget, many.widget) == ("radio", "select")
    assert [option.label for option in few.options] == ["x", "y"]
