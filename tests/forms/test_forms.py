"""Forms that are made from types: what they ask for, what they refuse, and the objects that answers become."""

from __future__ import annotations

import enum
import gc
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Protocol,
    TypedDict,
    TypeVar,
)
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from holdfast import Field, Holdfast, forms
from holdfast.errors import AnswerRefused, UsageError
from holdfast.forms import Form, Misfit, check_answer, form_of, load_form, store_form, typed

T = TypeVar("T")
SOME_DAY = date(2026, 1, 31)
SOME_ID = UUID("12345678-1234-5678-1234-567812345678")


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Priority(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Corner(enum.Enum):
    ORIGIN = (0, 0)
    FAR = (9, 9)


@dataclass(frozen=True)
class Item:
    name: str
    price: Annotated[Decimal, Meta(title="Price", description="in euros")]
    count: Annotated[int, Meta(ge=1, le=99)] = 1


@dataclass
class Order:
    customer: str
    items: list[Item]
    size: Size = Size.SMALL
    note: str | None = None
    tags: set[str] = field(default_factory=set)
    id: UUID = field(default_factory=uuid.uuid4)
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = len(self.items)
        if self.customer == self.note:
            raise ValueError("the note is not the customer")


class Span(msgspec.Struct, kw_only=True):
    first: date
    last: date = date(2026, 12, 31)
    unset: int | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError("ends before it begins")


class Account(pydantic.BaseModel):
    login: str = pydantic.Field(min_length=3, pattern="^[a-z]+$", title="Login name")
    age: int = pydantic.Field(alias="yearsOld", gt=17, default=18)
    sizes: tuple[Size, ...] = ()

    @pydantic.field_validator("login")
    @classmethod
    def free(cls, login: str) -> str:
        if login == "root":
            raise ValueError("root is taken")
        return login

    @pydantic.field_validator("age")
    @classmethod
    def not_unlucky(cls, age: int) -> int:
        if age == 113:
            raise ValueError("113 is unlucky")
        return age


class Contact(TypedDict):
    name: str
    phone: NotRequired[str]


class Loose(TypedDict, total=False):
    name: str


class Point(NamedTuple):
    x: int
    y: int = 0


class Parcel(msgspec.Struct):
    span: Span | None
    contacts: dict[str, Contact]
    points: list[Point]
    account: Account
    anything: Any = None


ORDER = {"customer": "Ada", "items": [{"name": "pen", "price": "1.50"}]}
PARCEL = {
    "span": {"first": "2026-01-01"},
    "contacts": {"home": {"name": "Ada"}},
    "points": [{"x": 1}],
    "account": {"login": "ada"},
}


def refused(form: Form, answer: Any) -> tuple[str, ...]:
    with pytest.raises(AnswerRefused) as refusal:
        check_answer("run", form, answer)
    for problem in refusal.value.problems:
        assert problem in str(refusal.value)
    return refusal.value.problems


def by_name(form: Form) -> dict[str, Field]:
    return {one.name: one for one in form.fields}


# --- simple types

SIMPLE: list[tuple[Any, str, list[tuple[Any, Any]], list[Any]]] = [
    (str, "text", [("", ""), ("é", "é")], [1, b"x", Size.SMALL, ["x"]]),
    (int, "integer", [(1, 1), (2**70, 2**70)], [1.0, True, "1", Priority.LOW]),
    (float, "number", [(1.5, 1.5), (2, 2)], ["1", True, float("nan"), float("inf"), 10**400]),
    (bool, "boolean", [(True, True)], [1, "true", 0]),
    (
        Decimal,
        "decimal",
        [("1.50", Decimal("1.50")), (Decimal(1), Decimal(1)), (3, Decimal(3))],
        [1.5, True, "x", "NaN", Decimal("inf")],
    ),
    (date, "date", [("2026-01-31", date(2026, 1, 31)), (date(2026, 1, 31),) * 2], ["31.1.", 5, datetime(2026, 1, 31)]),
    (time, "time", [("09:30", time(9, 30)), (time(9),) * 2], ["half past", 9]),
    (
        datetime,
        "datetime",
        [("2026-01-31T09:30Z", datetime(2026, 1, 31, 9, 30, tzinfo=UTC))],
        ["soon", date(2026, 1, 1)],
    ),
    (timedelta, "duration", [("P1DT2H", timedelta(days=1, hours=2)), (timedelta(1),) * 2], ["1 day", 3]),
    (UUID, "uuid", [(str(SOME_ID), SOME_ID), (SOME_ID, SOME_ID)], ["1234", 3]),
    (bytes, "bytes", [("aGk=", b"hi"), (b"hi", b"hi")], ["?", 3, [1]]),
]


@pytest.mark.parametrize(("kind", "type", "good", "bad"), SIMPLE, ids=[row[1] for row in SIMPLE])
def test_simple_types(kind: Any, type: str, good: list[Any], bad: list[Any]) -> None:
    form = form_of(kind)
    assert (form.single, [(one.name, one.type, one.required) for one in form.fields]) == (True, [("value", type, True)])
    for given_, filled in good:
        answer = check_answer("run", form, given_)
        assert (answer, answer.__class__) == (filled, filled.__class__)
        assert typed(kind, answer) == filled
    for wrong in [*bad, None, object()]:
        [problem] = refused(form, wrong)
        assert problem.startswith("value: ")
        with pytest.raises(Misfit):
            typed(kind, wrong)
    assert check_answer("run", form_of(kind | None), None) is None


def test_a_float_is_made_a_float() -> None:
    assert type(typed(float, 2)) is float
    assert type(typed(int | float, 2)) is int


@pytest.mark.parametrize("kind", [None, [], Any])
@pytest.mark.parametrize("value", [None, 1, {"a": (1, 2)}, [Item("a", Decimal(1))]])
def test_anything(kind: Any, value: Any) -> None:
    assert check_answer("run", form_of(kind), value) is value
    assert typed(kind, value) is value


def test_fields_by_hand() -> None:
    fields = [Field("n", "integer", minimum=1), {"name": "c", "options": ["x", "y"], "default": "y"}]
    form = form_of(fields)
    assert (form.single, form.type) == (False, None)
    assert check_answer("run", form, {"n": 1}) == typed(fields, {"n": 1}) == {"n": 1, "c": "y"}
    assert refused(form, {"n": 0}) == ("n: 0 is less than 1",)
    with pytest.raises(Misfit, match="n: is required"):
        typed(fields, {})


@pytest.mark.parametrize(
    ("given_", "told"),
    [
        (Field("a", minimum=1), "field a: minimum=1 is for integer, number, decimal"),
        (Field("a", "integer", minimum="x"), "field a: minimum='x': 'x' is not a number"),
        (Field("a", "integer", multiple_of=0), "multiple_of=0: nothing but 0"),
        (Field("a", max_length=-1), "max_length=-1: it is a whole number"),
        (Field("a", pattern="["), r"pattern='\[': "),
        (Field("a", pattern=3), "pattern=3: "),  # type: ignore[arg-type]
        (Field("a", "integer", minimum=1, default=0), "the default of a: 0 is less than 1"),
        (Field("a", items=Field("b")), "field a: items= is for forms that are made from a type"),
        (Field("a", description=3), "description=3 is not text"),  # type: ignore[arg-type]
    ],
)
def test_fields_by_hand_that_make_no_sense(given_: Field, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        form_of([given_])


# --- choices


def test_literals() -> None:
    form = form_of(Literal["a", 1, True, None])
    assert form.fields == (Field("value", "choice", required=False, options=("a", 1, True)),)
    for value in ("a", 1, True, None):
        assert check_answer("run", form, value) is value
        assert typed(Literal["a", 1, True, None], value) is value
    for wrong in ("A", 2, False, 1.0, ["a"]):
        assert "is none of a, 1, True" in refused(form, wrong)[0]


@pytest.mark.parametrize(
    ("kind", "options", "labels"),
    [
        (Size, ("small", "large"), ("SMALL", "LARGE")),
        (Priority, (1, 2), ("LOW", "HIGH")),
        (Corner, ("ORIGIN", "FAR"), ()),
        (Literal[Size.SMALL], ("small",), ("SMALL",)),
    ],
)
def test_enums(kind: Any, options: tuple[Any, ...], labels: tuple[str, ...]) -> None:
    form = form_of(kind)
    assert (form.fields[0].options, form.fields[0].labels) == (options, labels)
    members = list(kind) if isinstance(kind, type) else [Size.SMALL]
    for option, member in zip(options, members, strict=True):
        for answer in (option, member, member.name):
            assert check_answer("run", form, answer) == option
            assert typed(kind, answer) is member
    for wrong in ("?", 7, Loose, [options[0]]):
        assert "is none of" in refused(form, wrong)[0]


def test_a_member_of_another_enum_is_no_choice() -> None:
    other = enum.Enum("other", {"SMALL": "small"})
    assert refused(form_of(Size), other.SMALL)[0].endswith("is none of small, large")
    assert refused(form_of(Priority), 3) == ("value: 3 is none of 1 (LOW), 2 (HIGH)",)


# --- containers


@pytest.mark.parametrize(
    ("kind", "answer", "plain", "made"),
    [
        (list[int], (1, 2), [1, 2], [1, 2]),
        (list, [1, "x"], [1, "x"], [1, "x"]),
        (Sequence[int | None], [1, None], [1, None], [1, None]),
        (tuple[date, ...], ["2026-01-01"], [date(2026, 1, 1)], (date(2026, 1, 1),)),
        (set[Size], {Size.LARGE}, ["large"], {Size.LARGE}),
        (frozenset[Point], [{"x": 1}], [{"x": 1, "y": 0}], frozenset({Point(1)})),
        (dict[str, float], {"a": 1}, {"a": 1}, {"a": 1.0}),
        (Mapping[str, list[Point]], {"a b": [Point(1)]}, {"a b": [{"x": 1, "y": 0}]}, {"a b": [Point(1)]}),
        (NewType("Ids", list[int]), [1], [1], [1]),
        (Point | None, Point(1), {"x": 1, "y": 0}, Point(1)),
    ],
)
def test_containers(kind: Any, answer: Any, plain: Any, made: Any) -> None:
    form = form_of(kind)
    assert form.single
    assert check_answer("run", form, answer) == plain
    assert typed(kind, plain) == made
    assert type(typed(kind, plain)) is type(made)


def test_problems_inside_of_containers() -> None:
    form = form_of(dict[str, list[Point]])
    assert refused(form, {"a": [{"x": "1"}, 5], "b c": 3, 4: []}) == (
        "value.a[0].x: '1' is not an integer",
        "value.a[1]: is a mapping of field names, not int",
        "value['b c']: 3 is not a list",
        "value: the key 4 is not text",
    )
    assert refused(form, []) == ("value: [] is not a mapping",)
    assert refused(form_of(set[int]), [1, 2, 1]) == ("value[2]: 1 is there already",)
    assert refused(form_of(frozenset[Item]), [Item("a", Decimal(1))] * 2)[0].endswith("is there already")
    assert refused(form_of(list[int]), Point(1, 2))[0].startswith("value: Point(x=1, y=2) is not a list")


# --- classes


def test_a_dataclass() -> None:
    form = form_of(Order)
    assert (form.single, form.type) == (False, f"{__name__}:Order")
    fields = by_name(form)
    assert list(fields) == ["customer", "items", "size", "note", "tags", "id"]
    assert [one.name for one in form.fields if one.required and one.default is None] == ["customer", "items"]
    assert (fields["size"].default, fields["tags"].default, fields["id"].omitted) == ("small", [], True)
    price = by_name(Form(fields["items"].items.fields))["price"]  # type: ignore[union-attr]
    assert (price.type, price.label, price.description) == ("decimal", "Price", "in euros")

    plain = check_answer("run", form, ORDER)
    pen = {"name": "pen", "price": Decimal("1.50"), "count": 1}
    assert plain == {"customer": "Ada", "items": [pen], "size": "small", "note": None, "tags": []}
    made = typed(Order, plain)
    assert made == Order("Ada", [Item("pen", Decimal("1.50"))], id=made.id)
    assert made.total == 1
    assert check_answer("run", form, made) == {**plain, "id": made.id}


def test_every_problem_is_named() -> None:
    item = {"name": 1, "price": 0.5, "count": 0}
    assert refused(form_of(Order), {"items": [ORDER["items"][0], item], "size": "xl", "extra": 1, "tags": [1]}) == (  # type: ignore[index]
        "extra: there is no such field",
        "customer: is required",
        "items[1].name: 1 is not text",
        "items[1].price: 0.5 is not a decimal number, as text such as '9.99'",
        "items[1].count: 0 is less than 1",
        "size: 'xl' is none of small, large",
        "tags[0]: 1 is not text",
    )
    assert refused(form_of(Order), None) == ("the answer: is a mapping of field names, not NoneType",)


def test_a_struct_and_its_own_validator() -> None:
    form = form_of(Span)
    assert by_name(form)["last"].default == "2026-12-31"
    plain = check_answer("run", form, {"first": "2026-01-01"})
    assert plain == {"first": date(2026, 1, 1), "last": date(2026, 12, 31)}
    assert typed(Span, plain) == Span(first=date(2026, 1, 1))
    assert check_answer("run", form, Span(first=date(2026, 1, 1), last=date(2026, 2, 1)))["last"] == date(2026, 2, 1)
    assert refused(form, {"first": "2027-01-01"}) == ("the answer: ends before it begins",)
    assert refused(form_of(list[Span]), [plain, {"first": "2027-01-01"}]) == ("value[1]: ends before it begins",)


def test_a_model_and_its_own_validators() -> None:
    form = form_of(Account)
    fields = by_name(form)
    login = fields["login"]
    assert (login.label, login.min_length, login.pattern) == ("Login name", 3, "^[a-z]+$")
    assert (fields["age"].above, fields["age"].default, fields["sizes"].default) == (17, 18, [])
    plain = check_answer("run", form, {"login": "ada", "sizes": ["large"]})
    assert plain == {"login": "ada", "age": 18, "sizes": ["large"]}
    made = typed(Account, plain)
    assert (made.login, made.age, made.sizes) == ("ada", 18, (Size.LARGE,))
    assert check_answer("run", form, made) == plain
    assert refused(form, {"login": "A", "age": 17}) == (
        "login: 'A' has fewer than 3 characters",
        "login: 'A' does not match ^[a-z]+$",
        "age: 17 is not more than 17",
    )
    assert refused(form, {"login": "root", "age": 113}) == (
        "login: Value error, root is taken",
        "age: Value error, 113 is unlucky",
    )
    with pytest.raises(Misfit, match="login: Value error, root is taken") as misfit:
        typed(Account, {"login": "root"})
    assert misfit.value.problems == ("login: Value error, root is taken",)


def test_what_a_model_holds_beyond_its_fields_is_not_lost_silently() -> None:
    class Open(pydantic.BaseModel, extra="allow"):
        n: int

    assert refused(form_of(Open), Open(n=1, more=2)) == ("more: there is no such field",)  # type: ignore[call-arg]


def test_typed_dicts() -> None:
    form = form_of(Contact)
    assert [(one.name, one.required, one.omitted) for one in form.fields] == [
        ("name", True, False),
        ("phone", False, True),
    ]
    assert check_answer("run", form, {"name": "Ada"}) == typed(Contact, {"name": "Ada"}) == {"name": "Ada"}
    assert check_answer("run", form, {"name": "Ada", "phone": "1"}) == {"name": "Ada", "phone": "1"}
    assert check_answer("run", form_of(Loose), {}) == typed(Loose, {}) == {}
    assert refused(form, {"phone": 1}) == ("name: is required", "phone: 1 is not text")


def test_all_kinds_inside_of_each_other() -> None:
    form = form_of(Parcel)
    made = typed(Parcel, check_answer("run", form, PARCEL))
    assert made == Parcel(
        Span(first=date(2026, 1, 1)), {"home": Contact(name="Ada")}, [Point(1)], Account(login="ada"), None
    )
    assert typed(Parcel, check_answer("run", form, made)) == made
    wrong = {"span": {"first": "2027-01-01"}, "points": 1, "account": {"login": "root"}, "contacts": {"a": {}}}
    assert refused(form, wrong) == (
        "span: ends before it begins",
        "contacts.a.name: is required",
        "points: 1 is not a list",
        "account.login: Value error, root is taken",
    )


def test_an_object_of_another_class_is_no_answer() -> None:
    @dataclass
    class Spot:
        x: int
        y: int

    assert "not " in refused(form_of(Point), Spot(1, 2))[0]
    assert check_answer("run", form_of([Field("x", "integer"), Field("y", "integer")]), Spot(1, 2)) == {"x": 1, "y": 2}


def test_an_object_with_a_field_that_is_not_set() -> None:
    point = Order("a", [])
    del point.customer
    assert refused(form_of(Order), point) == ("customer: the field is not set",)


def test_defaults_that_a_form_cannot_show_are_left_to_the_class() -> None:
    marker = object()

    @dataclass
    class Odd:
        a: int = marker  # type: ignore[assignment]
        b: Any = (1, 2)
        c: int = None  # type: ignore[assignment]
        d: Point = Point(1)  # noqa: RUF009
        e: list[int] = field(default_factory=lambda: [1])

    form = form_of(Odd)
    assert [one.omitted for one in form.fields] == [True, True, False, False, True]
    plain = check_answer("run", form, {})
    assert plain == {"c": None, "d": {"x": 1, "y": 0}}
    assert typed(Odd, plain) == Odd()


# --- bounds


@pytest.mark.parametrize(
    ("kind", "good", "bad", "problem"),
    [
        (Annotated[int, Meta(ge=0, le=9)], [0, 9], [-1, 10], " is (less than 0|more than 9)"),
        (Annotated[float, Meta(gt=0, lt=1)], [0.5], [0, 1], " is not (more than 0|less than 1)"),
        (Annotated[int, Meta(multiple_of=5)], [0, 10], [7], "7 is not a multiple of 5"),
        (Annotated[float, Meta(multiple_of=0.1)], [0.3, 2], [0.25, 1e300], " is not a multiple of 0.1"),
        (Annotated[str, Meta(min_length=1, max_length=2)], ["a", "ab"], ["", "abc"], "(fewer|more) than . characters"),
        (Annotated[str, Meta(pattern="^a")], ["ab"], ["ba"], "'ba' does not match \\^a"),
        (Annotated[bytes, Meta(max_length=1)], [b"a"], [b"ab"], "more than 1 bytes"),
        (Annotated[list[int], Meta(min_length=2)], [[1, 2]], [[1]], "fewer than 2 items"),
        (Annotated[dict[str, int], Meta(max_length=0)], [{}], [{"a": 1}], "more than 0 entries"),
        (Annotated[int | None, Meta(ge=0)], [None, 1], [-1], "-1 is less than 0"),
        (list[Annotated[int, pydantic.Field(ge=0)]], [[0]], [[-1]], r"value\[0\]: -1 is less than 0"),
        (Annotated[Decimal, pydantic.Field(ge=Decimal("0.1"))], ["0.1"], ["0.09"], "0.09 is less than 0.1"),
        (Annotated[Decimal, pydantic.Field(ge=0.1)], ["0.1"], ["0.09"], "0.09 is less than 0.1"),
        (
            Annotated[date, pydantic.Field(gt=date(2026, 1, 1))],
            ["2026-01-02"],
            ["2026-01-01"],
            "2026-01-01 is not more",
        ),
        (
            Annotated[datetime, pydantic.Field(ge=datetime(2026, 1, 1))],
            ["2026-01-01T00:00"],
            ["2026-01-01T00:00Z"],
            "only one of them has a time zone",
        ),
    ],
)
def test_bounds(kind: Any, good: list[Any], bad: list[Any], problem: str) -> None:
    form = load_form(json.loads(json.dumps(store_form(form_of(kind)))))
    for value in good:
        typed(kind, check_answer("run", form, value))
    for value in bad:
        with pytest.raises(AnswerRefused, match=problem):
            check_answer("run", form, value)


# --- what makes no form


@dataclass
class Open(Generic[T]):
    content: T


@dataclass
class Node:
    children: list[Node]


@dataclass
class Unresolved:
    there: Absent  # type: ignore[name-defined]  # noqa: F821


class UnresolvedStruct(msgspec.Struct):
    there: Absent  # type: ignore[name-defined]  # noqa: F821


@dataclass
class WithInitVar:
    a: InitVar[int]


class Speaks(Protocol):
    def speak(self) -> str: ...


class Root(pydantic.RootModel[list[int]]):
    pass


class Paths(pydantic.BaseModel):
    a: int = pydantic.Field(validation_alias=pydantic.AliasPath("b", 0))


@dataclass
class Empty:
    pass


class NoMembers(enum.Enum):
    pass


@pytest.mark.parametrize(
    ("kind", "named", "why"),
    [
        (print, "print", "is not a type"),
        (test_bounds, "test_bounds", "is not a type"),
        (3, "3", "is not a type"),
        (Speaks, "Speaks", "is not a class"),
        (object(), "object", "is not a type"),
        (complex, "complex", "is not a class"),
        (Exception, "Exception", "is not a class"),
        (T, "~T", "is open"),
        (Open, "Open.content: ~T", "is open"),
        (Open[int], "Open", "is generic"),
        (int | str, "int | str", "choice of types"),
        (tuple[int, str], "tuple[int, str]", "NamedTuple"),
        (dict[int, str], "dict[int, str]", "keys that are not text"),
        (set[list[int]], "set[list[int]]", "cannot be in a set"),
        (set[Order], "set[", "cannot be in a set"),
        (Node, "Node.children[]: ", "contains itself"),
        (Unresolved, "Unresolved", "cannot be resolved here (name 'Absent' is not defined)"),
        (UnresolvedStruct, "UnresolvedStruct", "cannot be resolved here (name 'Absent' is not defined)"),
        (WithInitVar, "WithInitVar.a: ", "InitVar"),
        (Empty, "Empty", "no fields to ask for"),
        (NoMembers, "NoMembers", "no members"),
        (Literal[b"x"], "Literal[b'x']", "no text or numbers"),
        (Literal[None], "Literal[None]", "no text or numbers"),
        (Root, "Root", "ask for what it holds"),
        (Paths, "Paths.a: ", "alias that is a path"),
        (Annotated[str, Meta(ge=1)], "str", "minimum=1 is for"),
        (Annotated[datetime, Meta(tz=True)], "datetime", "time zones"),
        ("text", "fields='text'", "is a list of fields"),
        (Field("a"), "fields=", "is a list of fields"),
    ],
)
def test_what_cannot_make_a_form(kind: Any, named: str, why: str) -> None:
    for function in (form_of, lambda kind: typed(kind, 1)):
        with pytest.raises(UsageError) as refusal:
            function(kind)
        assert named in str(refusal.value)
        assert why in str(refusal.value)


# --- forms are stored, and the classes that they name are not imported

KINDS = [
    *(row[0] for row in SIMPLE),
    *(Order, Span, Account, Contact, Loose, Point, Parcel, Size, Priority, Corner),
    *(None, [Field("a", "integer", minimum=1, default=3)], Literal["a", 1, None], dict[str, list[Point]], set[Size]),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_form_comes_back_as_it_was_stored(kind: Any) -> None:
    form = form_of(kind)
    assert load_form(json.loads(json.dumps(store_form(form)))) == form
    assert form_of(kind) == form


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (int, "int"),
        (Any, "Any"),
        (Point, f"{__name__}:Point"),
        (Annotated[Point, "of some kind"], f"{__name__}:Point"),
        (list[Annotated[int, pydantic.AfterValidator(abs)]], "list[int]"),  # the name would have an address in it
        (Optional[tuple[Size, ...]], f"tuple[{__name__}:Size, ...] | None"),  # noqa: UP045
        (Literal["a", Size.SMALL, None], "Literal['a', Size.SMALL, None]"),
        (Mapping[str, Any], "collections.abc:Mapping[str, Any]"),
        (NewType("Count", int), f"{__name__}:Count"),
    ],
)
def test_the_name_of_a_form(kind: Any, name: str) -> None:
    assert form_of(kind).type == name


def test_an_erased_form_takes_anything() -> None:
    assert load_form([]) == Form()
    assert load_form([{"name": "a", "type": "integer"}]) == Form((Field("a", "integer"),))


def test_a_process_without_the_class_checks_all_but_its_validators() -> None:
    """And it imports neither the class nor pydantic."""
    program = """
import json, sys
from holdfast.forms import check_answer, load_form
from holdfast.errors import AnswerRefused
form, good, bad = json.loads(sys.stdin.read())
before = set(sys.modules)
check_answer("run", load_form(form), good)
try:
    check_answer("run", load_form(form), bad)
except AnswerRefused as refused:
    print(json.dumps(refused.problems))
assert "pydantic" not in sys.modules
assert not {name for name in set(sys.modules) - before if "decoy" in name or "test_forms" in name}
"""
    form = store_form(form_of(Parcel))
    form["type"] = "decoy_module:Parcel"
    good = {**PARCEL, "account": {"login": "root"}}  # which only the class itself refuses
    bad = {**PARCEL, "account": {"login": "x"}, "points": [{"x": True}]}
    ran = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps([form, good, bad]), capture_output=True, text=True, check=True
    )
    assert json.loads(ran.stdout) == [
        "points[0].x: True is not an integer",
        "account.login: 'x' has fewer than 3 characters",
    ]


def test_a_known_class_is_asked_for_a_stored_form_and_forgotten_with_its_module() -> None:
    def make() -> Any:
        @dataclass
        class Picky:
            n: int

            def __post_init__(self) -> None:
                raise {1: ValueError("never 1"), 2: ValueError(), 3: KeyError("oops")}[self.n]

        return form_of(Picky), Picky

    form, picky = make()
    assert refused(form, {"n": 1}) == ("the answer: never 1",)
    assert refused(form, {"n": 2}) == ("the answer: ValueError: ",)
    assert refused(form, {"n": 3}) == ("the answer: KeyError: 'oops'",)
    del picky
    gc.collect()
    assert form.type not in forms._known
    assert check_answer("run", form, {"n": 1}) == {"n": 1}


def test_a_class_that_changed_since_it_was_asked_for() -> None:
    def version(*fields: str) -> Form:
        made = msgspec.defstruct("Changing", [(name, int) for name in fields], module=__name__)
        kept.append(made)
        return form_of(made)

    kept: list[Any] = []
    old = version("a")
    version("a", "b")
    assert refused(old, {"a": 1}) == ("b: is required",)


# --- the same, by chance

ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(["small", "a"])
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "name", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    made: list[Callable[[Any], Any]] = [
        lambda kind: list[kind],
        lambda kind: dict[str, kind],
        lambda kind: Optional[kind],  # noqa: UP045
        lambda kind: tuple[kind, ...],
    ]
    return st.builds(lambda make, kind: make(kind), st.sampled_from(made), inner)


TYPES = st.recursive(st.sampled_from([int, str, bool, Size, Literal["a", "b", 1], Annotated[int, Meta(ge=0)]]), grown)


@given(TYPES, VALUES)
def test_plain_types_are_checked_as_msgspec_does(kind: Any, value: Any) -> None:
    """msgspec is the oracle for values as JSON has them."""
    form = load_form(json.loads(json.dumps(store_form(form_of(kind)))))
    try:
        expected = msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError:
        with pytest.raises(AnswerRefused):
            check_answer("run", form, value)
        with pytest.raises(Misfit):
            typed(kind, value)
    else:
        assert typed(kind, check_answer("run", form, value)) == typed(kind, value) == expected


@given(st.from_type(Point) | st.from_type(Item) | st.from_type(Contact) | st.from_type(Size))  # type: ignore[arg-type]
def test_an_object_comes_back_from_its_answer(value: Any) -> None:
    kind = Contact if isinstance(value, dict) else type(value)
    try:
        plain = check_answer("run", form_of(kind), value)
    except AnswerRefused:
        with pytest.raises(Misfit):
            typed(kind, value)
    else:
        assert typed(kind, plain) == value
        assert check_answer("run", form_of(kind), plain) == plain


# --- through a run


def test_a_stored_question_knows_its_form(hf: Holdfast) -> None:
    run = hf.run("run")
    question = run.pause("Well?", [Field("n", "integer", maximum=3, description="not many")])
    assert (question.single, question.type) == (False, None)
    [asked] = run.questions()
    assert asked.fields == question.fields
    with pytest.raises(AnswerRefused, match="n: 4 is more than 3"):
        run.answer({"n": 4})
    run.answer({"n": 3})
