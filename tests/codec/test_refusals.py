"""What cannot be kept is refused at the write, with the path to it."""

from __future__ import annotations

import io
import threading
from collections import Counter, UserDict, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from enum import Enum
from types import SimpleNamespace
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast.codec import Codec
from holdfast.errors import NotStorable


@dataclass
class Message:
    text: str
    callback: Any = None


@dataclass
class State:
    messages: list[Message]


@dataclass
class DictLike(dict):  # type: ignore[type-arg]
    a: int = 0


class Model(pydantic.BaseModel):
    a: int = 1
    b: Any = None


class Text(str):
    pass


class Number(int):
    pass


class Items(list):  # type: ignore[type-arg]
    pass


class Moment(datetime):
    pass


class Zone(tzinfo):
    pass


class Loose(Enum):
    A = 1

    @classmethod
    def _missing_(cls, value: object) -> Any:
        member = object.__new__(cls)
        member._name_ = "made up"
        member._value_ = value  # type: ignore[assignment]
        return member


class Disguised:
    @property
    def __class__(self) -> Any:
        return str


def refusal(value: Any, path: str = "state") -> str:
    with pytest.raises(NotStorable) as caught:
        Codec().encode(value, path)
    return str(caught.value)


def test_the_path_leads_to_the_problem() -> None:
    state = State([Message("a"), Message("b"), Message("c"), Message("d", lambda: None)])
    assert refusal(state) == "state.messages[3].callback: function cannot be stored"
    with pytest.raises(NotStorable) as caught:
        Codec().encode(state, "state")
    assert caught.value.path == "state.messages[3].callback"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (len, "state: builtin_function_or_method cannot be stored"),
        (int, "state: type cannot be stored"),
        (object(), "state: object cannot be stored"),
        (range(3), "state: range cannot be stored"),
        ((number for number in ()), "state: generator cannot be stored; make a list of it"),
        (memoryview(b""), "state: memoryview cannot be stored"),
        (..., "state: ellipsis cannot be stored"),
        ({"a": {"b c": [object()]}}, "state.a['b c'][0]: object cannot be stored"),
        ({"é": object()}, "state.é: object cannot be stored"),
        ({1: object()}, "state[1]: object cannot be stored"),
        ({(1, "x"): object()}, "state[(1, 'x')]: object cannot be stored"),
        ({1: 1, len: 2}, "state.keys()[1]: builtin_function_or_method cannot be stored"),
        ({"$": object()}, "state['$']: object cannot be stored"),
        ((1, (2, object())), "state[1][1]: object cannot be stored"),
        ({len}, "state[*]: builtin_function_or_method cannot be stored"),
        ("\ud800", "state: text with a lone surrogate cannot be stored"),
        (["a", {"b": "\udfff"}], "state[1].b: text with a lone surrogate cannot be stored"),
        ({"\ud800": 1}, "state['\\ud800']: text with a lone surrogate cannot be stored"),
        (Model(b=[object()]), "state.b[0]: object cannot be stored"),
    ],
)
def test_message(value: Any, message: str) -> None:
    assert refusal(value) == message


@pytest.mark.parametrize(
    "value",
    [
        Text("a"),
        Number(1),
        Items(),
        Moment(2024, 1, 1),
        Counter("a"),
        defaultdict(list),
        UserDict(),
        SimpleNamespace(),
        DictLike(),
        threading.Lock(),
        io.StringIO(),
        Disguised(),
        ValueError("x"),
        msgspec.Raw(b"1"),
        Loose(7),
        datetime(2024, 1, 1, tzinfo=Zone()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nothing_comes_back_as_something_else(value: Any) -> None:
    assert refusal([value]).startswith("state[0]: ")


def test_the_remedy_is_named() -> None:
    assert refusal(Counter()) == (
        "state: Counter cannot be stored; convert it, or register it with hf.register(Counter, encode=..., decode=...)"
    )


def test_fields_that_are_not_set() -> None:
    message = Message("a")
    del message.__dict__["text"]
    assert refusal(State([message])) == "state.messages[0].text: the field is not set"
    model = Model()
    del model.__dict__["b"]
    assert refusal(model) == "state.b: the field is not set"


def test_cycles() -> None:
    loop: list[Any] = [1]
    loop.append({"me": loop})
    assert refusal(loop) == "state[1].me: it contains itself, and a cycle cannot be stored"
    message = Message("a")
    message.callback = (message,)
    assert refusal([message]) == "state[0].callback[0]: it contains itself, and a cycle cannot be stored"
    pairs: dict[Any, Any] = {}
    pairs[1] = pairs
    assert refusal(pairs) == "state[1]: it contains itself, and a cycle cannot be stored"
    model = Model()
    model.b = model
    assert refusal(model) == "state.b: it contains itself, and a cycle cannot be stored"


def test_depth() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    codec = Codec()
    assert codec.decode(codec.encode(deep)) == deep
    message = refusal([deep])
    assert message.startswith("state[0][0]")
    assert message.endswith("…: nested deeper than 200 levels")
    for _ in range(100_000):
        deep = (deep,)
    assert refusal(deep).endswith("nested deeper than 200 levels")
    with pytest.raises(NotStorable):
        Codec(max_depth=2).encode([[[1]]])


def test_depth_never_ends_in_a_recursion_error() -> None:
    deep: Any = 1
    for _ in range(50_000):
        deep = {"a": deep}
    with pytest.raises(NotStorable, match="nested too deeply"):
        Codec(max_depth=10**9).encode(deep)


def test_encode_functions_that_fail() -> None:
    codec = Codec()

    def fail(value: Any) -> Any:
        raise KeyError("k")

    codec.register(SimpleNamespace, encode=fail, decode=fail)
    with pytest.raises(NotStorable, match=r"value\[0\]: the encode function of types:SimpleNamespace failed") as caught:
        codec.encode([SimpleNamespace()])
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_encode_function_that_goes_round() -> None:
    codec = Codec()
    codec.register(SimpleNamespace, encode=lambda value: value, decode=lambda value: value)
    with pytest.raises(NotStorable, match="nested deeper"):
        codec.encode(SimpleNamespace())


@dataclass
class Late:
    a: int
    b: int = field(init=False)


def test_a_field_that_init_leaves_out_may_be_unset() -> None:
    codec = Codec()
    assert not hasattr(codec.decode(codec.encode(Late(1))), "b")
