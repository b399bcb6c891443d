"""What the steps of a random history do to the world outside, and the values that they save."""

from __future__ import annotations

import enum
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

# --- the world outside, and what the steps do to it


class Died(BaseException):
    """The process is gone: nothing catches this, as nothing catches a kill."""


class World:
    """What the steps of all runs did, and how often they were called."""

    def __init__(self) -> None:
        self.things: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.undos: Counter[str] = Counter()
        self.put_does = "works"  # what the next `put` does
        self.undo_dies: str | None = None  # the next undo dies: "before" it acts, or "after"


WORLD = World()


def compute(token: str, value: Any) -> Any:
    """A step that touches nothing."""
    WORLD.calls[token] += 1
    return value


def put(place: str, value: int) -> dict[str, str]:
    """A step that puts a thing somewhere; or raises; or dies before or after it has."""
    how, WORLD.put_does = WORLD.put_does, "works"
    WORLD.calls[place] += 1
    if how == "raises":
        raise ValueError(f"no room at {place}")
    if how != "dies before":
        WORLD.things[place] = value
    if how.startswith("dies"):
        raise Died
    return {"place": place}


def take_away(result: dict[str, str] | None, place: str, value: int) -> None:
    """The undo of `put`."""
    dies, WORLD.undo_dies = WORLD.undo_dies, None
    WORLD.undos[place] += 1
    if dies == "before":
        raise Died
    WORLD.things.pop(place, None)
    if dies == "after":
        raise Died


def fail_to_take_away(result: dict[str, str] | None, place: str, value: int) -> None:
    """An undo that does not work."""
    WORLD.undos[place] += 1
    raise ValueError(f"it is stuck at {place}")


UNDOS: dict[str, Callable[..., None] | None] = {"works": take_away, "fails": fail_to_take_away, "none": None}

# --- values to be saved


class Colour(enum.Enum):
    """A class that has to come back as itself."""

    RED = "red"
    GREEN = "green"


@dataclass
class Point:
    """Another one."""

    x: Any
    y: Any = None


texts = st.text(max_size=6)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | texts
    | st.binary(max_size=6)
    | st.sampled_from([Colour.RED, Colour.GREEN, Decimal("1.10"), timedelta(days=-1, microseconds=7)])
    | st.just(datetime(2024, 2, 29, 12, tzinfo=UTC))
    | st.uuids().map(lambda made: uuid.UUID(int=made.int))
)
values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(texts, inner, max_size=4)
        | st.dictionaries(st.integers(0, 9), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers() | texts, max_size=3)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=6,
)


def exact(value: Any) -> Any:
    """Something that is equal for two values only if they are the same, also in type: 1, 1.0 and True differ."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, tuple((exact(key), exact(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return kind, tuple(exact(item) for item in value)
    if isinstance(value, set | frozenset):
        return kind, tuple(sorted(map(repr, value)))
    if isinstance(value, Point):
        return kind, exact(value.x), exact(value.y)
    return kind, repr(value)
