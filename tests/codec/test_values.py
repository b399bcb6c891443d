"""Every kind of value comes back as what it was, in type and in content, down to the last part."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec import Codec, pack, unpack


def same(a: Any, b: Any) -> bool:
    """Strictly the same: by type, content, order of keys and hidden state."""
    if type(a) is not type(b):
        return False
    if isinstance(a, enum.Enum):
        return a is b
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, Decimal):
        return a.as_tuple() == b.as_tuple()
    if isinstance(a, datetime | time):
        zones = a.tzinfo is b.tzinfo or repr(a.tzinfo) == repr(b.tzinfo)
        return zones and a.replace(tzinfo=None) == b.replace(tzinfo=None) and a.fold == b.fold
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, list | tuple | deque):
        hidden = same(getattr(a, "__dict__", None), getattr(b, "__dict__", None))
        limits = getattr(a, "maxlen", None) == getattr(b, "maxlen", None)
        return hidden and limits and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, set | frozenset):
        return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
    if type(a).__module__ == "builtins":
        return bool(a == b)
    if type(a).__module__ in ("datetime", "uuid") or isinstance(a, PurePath):
        return repr(a) == repr(b)
    if isinstance(a, ZoneInfo):
        return a.key == b.key
    slots = [name for base in type(a).__mro__ for name in getattr(base, "__slots__", ()) if name != "__dict__"]
    computed = ("later", "__orig_class__")
    state = {name: item for name, item in getattr(a, "__dict__", {}).items() if name not in computed}
    other = getattr(b, "__dict__", {})
    missing = object()
    names = [name for name in slots if not name.startswith("__") or name.startswith("__pydantic")]
    return same(state, {name: other[name] for name in state if name in other}) and all(
        same(getattr(a, name, missing), getattr(b, name, missing))
        for name in names
        if not (getattr(a, name, missing) is missing is getattr(b, name, missing))
    )


def stored(codec: Codec, value: Any) -> Any:
    """The value after a way through bytes."""
    return codec.decode(unpack(pack(codec.encode(value))))


def test_every_kind_comes_back(codec: Codec, kept: Any) -> None:
    back = stored(codec, kept)
    assert same(kept, back), (kept, back)
    assert codec.encode(back) == codec.encode(kept)


def test_the_comparison_of_these_tests_is_strict() -> None:
    assert not same([1], [True])
    assert not same({"a": 1, "b": 1}, {"b": 1, "a": 1})
    assert not same(Plain(1, [1]), Plain(1, [1.0]))
    assert not same(datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")))


def test_what_is_equal_in_python_stays_apart(codec: Codec) -> None:
    trees = [codec.encode(value) for value in ({1: "a"}, {True: "a"}, {1.0: "a"}, {"1": "a"}, [1], [True], [1.0], (1,))]
    packed = [pack(tree) for tree in trees]
    assert len(set(packed)) == len(packed)


def test_attributes_that_are_no_fields(codec: Codec) -> None:
    @dataclass
    class Holder:
        a: int

        def __post_init__(self) -> None:
            self.b = self.a

    holder = Holder(1)
    holder.b = 5
    back = stored(codec, holder)
    assert vars(back) == {"a": 1, "b": 5}


def test_trees_share_no_container_with_the_value(codec: Codec) -> None:
    value = {"list": [1], "plain": Plain(1, [2])}
    tree = codec.encode(value)
    before = pack(tree)
    value["list"].append(2)  # type: ignore[attr-defined]
    value["plain"].items.append(3)  # type: ignore[attr-defined]
    assert pack(tree) == before
    codec.decode(tree)["list"].append(9)
    assert pack(tree) == before


def test_sets_have_one_order(codec: Codec) -> None:
    names = [f"name {number}" for number in range(50)]
    backwards = names[::-1]
    assert pack(codec.encode(set(names))) == pack(codec.encode(set(backwards)))


def test_objects_keep_their_structure_in_the_tree(codec: Codec) -> None:
    tree = codec.encode(Plain(1, [(2,)]))
    assert tree == {"$": "obj", "t": f"{__name__}:Plain", "f": {"a": 1, "items": [{"$": "tuple", "v": [2]}]}}


def test_digest_sees_types_and_not_the_order_of_keys(codec: Codec) -> None:
    def of(value: Any) -> str:
        return codec.digest(codec.encode(value))

    assert len(of(1)) == 32
    assert of({"a": 1, "b": {"c": 1, "d": 2}}) == of({"b": {"d": 2, "c": 1}, "a": 1})
    assert of({1: "a", 2: {(3,): 4, None: 5}}) == of({2: {None: 5, (3,): 4}, 1: "a"})
    assert of({Key(((1, 2), (3, 4)))}) == of({Key(((1, 2), (3, 4)))})
    assert of(OrderedDict(a=1, b=2)) != of(OrderedDict(b=2, a=1))
    escaped = {"$": "dict", "v": [[2, 1], [1, 1]]}
    different = [1, True, 1.0, "1", [1], (1,), {1}, {"1": 1}, {1: 1}, escaped, {2: 1, 1: 1}]
    assert len({of(value) for value in different}) == len(different)
    assert of(escaped) != of({"$": "dict", "v": [[1, 1], [2, 1]]})


@dataclass
class Plain:
    a: int
    items: list[Any] = field(default_factory=list)


class Key(NamedTuple):
    parts: tuple[Any, ...]


class Record(msgspec.Struct):
    value: Any


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | text
    | st.sampled_from(["$", "v", "map", "tuple", ""])
    | st.binary(max_size=10)
    | st.complex_numbers()
    | st.decimals()
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.times()
    | st.dates()
    | st.timedeltas()
    | st.uuids()
    | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(lambda offset: datetime.now(UTC) + offset)
)
# A signalling NaN cannot be hashed, and an unordered one makes no useful key.
keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text | st.binary(max_size=4),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3) | st.builds(Key, st.tuples(inner)),
    max_leaves=5,
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.lists(inner, max_size=4).map(deque)
        | st.dictionaries(text | st.just("$"), inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4).map(OrderedDict)
        | st.sets(keys, max_size=4)
        | st.builds(Plain, st.integers(), st.lists(inner, max_size=3))
        | st.builds(Record, inner)
        | st.builds(Key, st.tuples(inner))
    ),
    max_leaves=20,
)


@given(values)
def test_anything_comes_back(value: Any) -> None:
    codec = Codec()
    back = stored(codec, value)
    assert same(value, back)
    assert pack(codec.encode(back)) == pack(codec.encode(value))
    codec.digest(codec.encode(value))
    msgspec.json.encode(codec.raw(codec.encode(value)))
