"""Where classes come from when reading, and what happens when they change."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pydantic
import pytest

from holdfast.codec import Codec
from holdfast.errors import TypeMissing, UsageError

if TYPE_CHECKING:
    from nowhere import Absent  # type: ignore[import-not-found]

T = TypeVar("T")


@dataclass
class Leaf:
    value: int


class Kind(Enum):
    A = 1
    B = 2


class Branch(msgspec.Struct):
    leaves: list[Leaf | None]


class Tree(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    branches: dict[str, Branch] = {}


class Bag(TypedDict, total=False):
    tree: Tree
    kind: Annotated[Kind, ["cannot be hashed"]]


class Holder(NamedTuple):
    leaf: Leaf


@dataclass
class Generically(Generic[T]):
    content: T


@dataclass
class Leaves(Generically[Leaf]):
    pass


@dataclass
class Partly:
    absent: Absent | None
    leaf: Leaf


LeafId = NewType("LeafId", Leaf)
LEAF = Leaf(1)


@pytest.mark.parametrize(
    ("value", "as_type"),
    [
        (LEAF, Leaf),
        (LEAF, Leaf | None),
        ([LEAF], list[Leaf]),
        ({"a": (LEAF, 1)}, dict[str, tuple[Leaf, int]]),
        (LEAF, Annotated[Leaf, "note"]),
        (LEAF, Annotated[list[Leaf], ["cannot be hashed"]]),
        (LEAF, LeafId),
        (LEAF, Generically[Leaf]),
        (Generically(LEAF), Generically[Leaf]),
        (Leaves(LEAF), Leaves),
        (Kind.A, Literal[Kind.A]),
        (Branch([LEAF, None]), Branch),
        (Tree(branches={"b": Branch([LEAF])}), Tree),
        ({"tree": Tree(branches={"b": Branch([LEAF])}), "kind": Kind.B}, Bag),
        (Holder(LEAF), Holder),
        (Partly(None, LEAF), Partly),
        (LEAF, TypeVar("B", bound=Leaf)),
    ],
)
def test_types_from_the_annotation(value: Any, as_type: Any) -> None:
    tree = Codec().encode(value)
    codec = Codec()
    with pytest.raises(TypeMissing):
        codec.decode(tree)
    assert codec.decode(tree, as_type) == value


def test_types_from_registered_ones() -> None:
    value = Tree(branches={"b": Branch([LEAF])})
    codec = Codec()
    codec.register(Tree)
    assert codec.decode(Codec().encode(value)) == value


def test_the_message_of_an_unknown_type() -> None:
    tree = Codec().encode({"a": [LEAF]})
    with pytest.raises(TypeMissing) as caught:
        Codec().decode(tree, path="state")
    assert str(caught.value) == (
        f"state.a[0]: stored as {__name__}:Leaf, which is not known here; register it with hf.register(Leaf)"
    )


@pytest.mark.parametrize("tag", ["obj", "enum", "as"])
def test_a_stored_name_never_causes_an_import(tag: str) -> None:
    code = f"""
import sys
from holdfast.codec import Codec
from holdfast.errors import TypeMissing
before = set(sys.modules)
for name in ("antigravity:x", "wave:open", "os:system", "wave.x:y"):
    try:
        Codec().decode({{"$": {tag!r}, "t": name, "f": {{}}, "v": "A"}}, dict[str, int])
    except TypeMissing:
        continue
    raise SystemExit("not refused")
assert set(sys.modules) == before, set(sys.modules) - before
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def make(**fields: Any) -> type:
    """A class of this name, as it looks at some time."""
    columns = [(name, Any) if default is ... else (name, Any, default) for name, default in fields.items()]
    made = dataclasses.make_dataclass("Order", columns)
    made.__module__ = "shop"  # namespace= cannot say it from Python 3.12 on, and module= not before
    return made


def test_a_newer_class_replaces_a_remembered_one(codec: Codec) -> None:
    old, new = make(a=...), make(a=..., b=2)
    tree = codec.encode(old(1))
    codec.encode(new(1))
    assert codec.decode(tree) == new(1)


def test_a_registered_class_goes_before_a_remembered_one(codec: Codec) -> None:
    first, second = make(a=...), make(a=...)
    codec.register(first)
    with pytest.raises(Exception, match="another class is registered as 'shop:Order'"):
        codec.encode(second(1))
    with pytest.raises(UsageError, match="two classes are registered"):
        codec.register(second)
    codec.register(second, name="other")
    assert type(codec.decode(codec.encode(second(1)))) is second
    assert type(codec.decode(codec.encode(first(1)))) is first
    codec.register(first)


@pytest.mark.parametrize("kind", ["dataclass", "struct", "pydantic", "tuple"])
def test_fields_that_no_longer_fit(kind: str) -> None:
    def cls(**fields: Any) -> Any:
        hints = [(name, Any) if default is ... else (name, Any, default) for name, default in fields.items()]
        if kind == "dataclass":
            return make(**fields)
        if kind == "struct":
            return msgspec.defstruct("Order", hints, module="shop")
        if kind == "pydantic":
            return pydantic.create_model("Order", __module__="shop", **{n: (Any, d) for n, d in fields.items()})
        made = NamedTuple("Order", [(hint[0], Any) for hint in hints])  # type: ignore[misc]
        made.__module__ = "shop"
        made._field_defaults.update({name: d for name, d in fields.items() if d is not ...})
        return made

    tree = Codec().encode(cls(a=..., b=...)(a=1, b=2))
    for changed, message in [
        (
            cls(a=...),
            "value: shop:Order was stored with the field 'b', which it no longer has; give the class a version",
        ),
        (
            cls(a=..., b=..., c=...),
            "value: shop:Order was stored without the field 'c', which has no default; give the",
        ),
    ]:
        codec = Codec()
        codec.register(changed)
        with pytest.raises(TypeMissing) as caught:
            codec.decode(tree)
        assert str(caught.value).startswith(message)
        assert "hf.register(Order, version=2, upgrades={1: ...})" in str(caught.value)
    grown = cls(a=..., b=..., c=7)
    codec = Codec()
    codec.register(grown)
    back = codec.decode(tree)
    assert (back.a, back.b, back.c) == (1, 2, 7)
    if kind == "pydantic":
        assert back.model_fields_set == {"a", "b"}


def test_default_factories_make_new_objects() -> None:
    tree = Codec().encode(make()())

    class Order(msgspec.Struct):
        items: list[int] = msgspec.field(default_factory=lambda: [1])

    codec = Codec()
    codec.register(Order, name="shop:Order")
    one, two = codec.decode(tree), codec.decode(tree)
    assert one.items == two.items == [1]
    assert one.items is not two.items


def test_upgrades_apply_in_turn() -> None:
    first = Codec()
    old = make(name=...)
    first.register(old)
    tree = first.encode([old("First Last")])

    codec = Codec()

    @codec.register(
        name="shop:Order",
        version=3,
        upgrades={
            1: lambda fields: {"names": fields["name"].split()},
            2: lambda fields: {"first": fields["names"][0], "last": fields["names"][1]},
        },
    )
    @dataclass
    class Customer:
        first: str
        last: str

    assert codec.decode(tree) == [Customer("First", "Last")]
    again = codec.encode(Customer("a", "b"))
    assert again == {"$": "obj", "t": "shop:Order", "n": 3, "f": {"first": "a", "last": "b"}}
    with pytest.raises(TypeMissing, match="stored in version 3, and version 1 is registered here"):
        first.decode(again)


def test_upgrades_that_are_missing_or_fail() -> None:
    tree = Codec().encode(make(a=...)(1))
    codec = Codec()
    codec.register(make(a=...), version=3, upgrades={2: lambda fields: fields})
    with pytest.raises(TypeMissing, match="there is no upgrade from version 1; register it with"):
        codec.decode(tree)
    codec = Codec()
    codec.register(make(a=...), version=2, upgrades={1: lambda fields: fields["gone"]})
    with pytest.raises(TypeMissing, match="the upgrade of shop:Order from version 1 failed: KeyError"):
        codec.decode(tree)
    codec = Codec()
    codec.register(make(a=...), version=2, upgrades={1: lambda fields: None})  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeMissing, match="gave NoneType, not the dict"):
        codec.decode(tree)


def test_enums_that_change() -> None:
    tree = Codec().encode([Enum("Kind", ["A", "B"], module="shop").B])
    smaller = Enum("Kind", ["A", "C"], module="shop")
    codec = Codec()
    codec.register(smaller)
    with pytest.raises(TypeMissing, match=r"value\[0\]: shop:Kind has no member 'B' any more"):
        codec.decode(tree)
    codec = Codec()
    codec.register(smaller, version=2, upgrades={1: lambda fields: {"name": "C"}})
    assert codec.decode(tree) == [smaller.C]


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def test_functions_of_ones_own(codec: Codec) -> None:
    assert codec.register(Money, encode=lambda m: (m.cents, "EUR"), decode=lambda v: Money(v[0])) is Money
    tree = codec.encode({"price": Money(5)})
    back = codec.decode(tree)["price"]
    assert type(back) is Money
    assert back.cents == 5
    assert codec.raw(tree) == {"price": {"$type": f"{__name__}:Money", "value": [5, "EUR"]}}
    later = Codec()
    later.register(
        Money,
        version=2,
        upgrades={1: lambda v: {"c": v[0]}},
        encode=vars,
        decode=lambda v: Money(v["c"]),  # type: ignore[index]
    )
    assert later.decode(tree)["price"].cents == 5
    failing = Codec()
    failing.register(Money, encode=vars, decode=lambda v: v["nothing"])
    with pytest.raises(TypeMissing, match=r"value\.price: the decode function of .*:Money failed"):
        failing.decode(tree)


@pytest.mark.parametrize(
    ("cls", "options", "message"),
    [
        (Money, {}, "is no dataclass"),
        (Money, {"encode": vars}, "needs both"),
        (Leaf, {"version": 0}, "whole number from 1"),
        (Leaf, {"version": True}, "whole number from 1"),
        (Leaf, {"upgrades": {1: dict}}, "cannot have an upgrade from version 1"),
        (str, {"encode": str, "decode": str}, "stored by Holdfast itself"),
        (dict, {"encode": str, "decode": str}, "stored by Holdfast itself"),
        (3, {}, "takes a class"),
    ],
)
def test_registrations_that_are_refused(codec: Codec, cls: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        codec.register(cls, **options)


def test_register_as_a_bare_decorator(codec: Codec) -> None:
    @codec.register
    @dataclass
    class Here:
        a: int

    tree = Codec().encode(Here(1))
    assert codec.decode(tree) == Here(1)


@pytest.mark.parametrize(
    "tree",
    [
        {"$": "tuple"},
        {"$": "tuple", "v": 3},
        {"$": "int", "v": "zz"},
        {"$": "datetime", "v": "never"},
        {"$": "dict", "v": [[1]]},
        {"$": "dict", "v": [[[], 1]]},
        {"$": "set", "v": [[]]},
        {"$": "obj"},
        {"$": "bytes", "v": "!"},
        {"$": "decimal", "v": "x"},
        {"$": "path", "k": "sys", "v": "x"},
        {"$": []},
    ],
)
def test_damaged_trees(codec: Codec, tree: Any) -> None:
    with pytest.raises(ValueError, match=r"value\.a\[0\]: the stored .* is damaged"):
        codec.decode({"a": [tree]})


def test_unknown_tags_and_zones(codec: Codec) -> None:
    with pytest.raises(TypeMissing, match="the tag 'quaternion', which this Holdfast does not know"):
        codec.decode({"$": "quaternion"})
    with pytest.raises(TypeMissing, match="'Mars/Base' is not known on this machine"):
        codec.decode({"$": "zone", "v": "Mars/Base"})


def test_a_tree_that_is_too_deep(codec: Codec) -> None:
    tree: Any = 1
    for _ in range(100_000):
        tree = [tree]
    with pytest.raises(ValueError, match="nested too deeply"):
        codec.decode(tree)
