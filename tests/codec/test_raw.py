"""The raw reader shows any tree to tools that do not have the user's classes."""

from __future__ import annotations

import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from pathlib import PurePosixPath
from typing import Any
from zoneinfo import ZoneInfo

import pydantic
import pytest

import holdfast
from holdfast.codec import Codec

HUGE = 16**5000


class Kind(Enum):
    A = 1


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Point:
    x: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    a: int
    _p: int = 2


def plain(value: Any) -> bool:
    if type(value) is list:
        return all(map(plain, value))
    if type(value) is dict:
        return all(type(key) is str and plain(item) for key, item in value.items())
    return value is None or type(value) in (bool, int, float, str)


def test_every_kind_can_be_shown(codec: Codec, kept: Any) -> None:
    assert plain(Codec.raw(codec.encode(kept)))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([(1, {2}), deque([3])], [[1, [2]], [3]]),
        (float("nan"), "nan"),
        (-float("inf"), "-inf"),
        (2**80, 2**80),
        (b"\x00\xff", "AP8="),
        (datetime(2024, 1, 2, 3, 4, tzinfo=UTC), "2024-01-02T03:04:00+00:00"),
        (datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=-2), "x")), "2024-01-02T00:00:00-02:00"),
        (datetime(2024, 1, 2, tzinfo=ZoneInfo("Europe/Paris")), "2024-01-02T00:00:00[Europe/Paris]"),
        (time(1, 2), "01:02:00"),
        (timedelta(minutes=1.5), 90.0),
        (Decimal("1.10"), "1.10"),
        (PurePosixPath("a/b"), "a/b"),
        (1 + 2j, "(1+2j)"),
        (Kind.A, "A"),
        (Right.READ | Right.WRITE, 3),
        (Point([(1,)]), {"$type": f"{__name__}:Point", "x": [[1]]}),
        (Model(a=1, z={"$": 1}), {"$type": f"{__name__}:Model", "a": 1, "z": {"$": 1}, "_p": 2}),
        ({1: "a", None: "b", (1, 2): "c", Kind.A: "d"}, {"1": "a", "null": "b", "[1,2]": "c", "A": "d"}),
        ({1: "a", "1": "b"}, [[1, "a"], ["1", "b"]]),
        ({(HUGE,): "a"}, [[[HUGE], "a"]]),
        ({"$": "tuple", "v": [1]}, {"$": "tuple", "v": [1]}),
    ],
)
def test_how_values_are_shown(codec: Codec, value: Any, shown: Any) -> None:
    assert Codec.raw(codec.encode(value)) == shown


def test_tags_of_a_newer_holdfast_are_shown_as_they_are() -> None:
    assert Codec.raw({"$": "quaternion", "v": [{"$": "tuple", "v": []}]}) == {"$": "quaternion", "v": [[]]}


def test_importing_the_codec_loads_no_heavy_module() -> None:
    code = f"""
import sys, types, msgspec, sqlite3
heavy = {{"asyncio", "cryptography", "dataclasses", "logging", "pathlib", "pydantic", "zlib", "zoneinfo"}}
heavy -= set(sys.modules)
package = sys.modules["holdfast"] = types.ModuleType("holdfast")  # the codec alone, without the rest of the library
package.__path__ = {list(holdfast.__path__)!r}
import holdfast.codec
holdfast.codec.Codec().encode([1, "a", {{"b": None}}])
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
