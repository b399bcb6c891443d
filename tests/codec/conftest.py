"""One value of every kind that can be kept, for the tests of both readers."""

from __future__ import annotations

import enum
from collections import OrderedDict, deque, namedtuple
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from holdfast.codec import Codec

T = TypeVar("T")


class Color(enum.Enum):
    RED = 1
    CRIMSON = 1
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    A = 1
    B = 4


@dataclass
class Point:
    x: int
    y: Any = 0


@dataclass(frozen=True, slots=True, order=True)
class Frozen:
    name: str
    tags: tuple[str, ...] = ()


@dataclass
class Counted:
    """Doubles on every construction, so that a second one would show."""

    count: int
    unset: int = field(init=False)
    total: int = field(init=False, default=0)
    start: InitVar[int] = 3
    shared: ClassVar[list[int]] = []

    def __post_init__(self, start: int) -> None:
        self.count *= 2
        self.total = start
        self.undeclared = [start]

    @cached_property
    def later(self) -> object:
        return object()


class Slotted:
    __slots__ = ("__hidden", "plain")

    def hide(self, value: Any) -> None:
        self.__hidden = value

    def hidden(self) -> Any:
        return self.__hidden


@dataclass(slots=True)
class SlottedPoint(Slotted):
    x: int


@dataclass
class Box(Generic[T]):
    content: T


class Struct(msgspec.Struct, frozen=True, kw_only=True, tag="s"):
    a: int
    b: list[int] = []
    c: Point | None = None


class OpenStruct(msgspec.Struct, dict=True):
    a: int | msgspec.UnsetType = msgspec.UNSET


class PostStruct(msgspec.Struct, frozen=True):
    items: list[int]

    def __post_init__(self) -> None:
        self.items.append(len(self.items))


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", validate_assignment=True)
    a: int
    b: list[Any] = []
    _secret: int = pydantic.PrivateAttr(default=1)

    @cached_property
    def later(self) -> object:
        return object()


class PlainModel(pydantic.BaseModel):
    size: float = 1.0
    inner: Model | None = None


class Root(pydantic.RootModel[list[int]]):
    pass


class Pair(NamedTuple):
    left: int
    right: Any = None


class LoosePair(Pair):
    pass


Old = namedtuple("Old", ["a", "b"])


def _made() -> dict[str, Any]:
    counted = Counted(2)
    assert counted.later
    slotted = SlottedPoint(1)
    slotted.plain = [1]
    slotted.hide({2})
    opened = OpenStruct()
    opened.__dict__["more"] = (1,)
    model = Model(a=1, z=(1, 2), **{"$": 3})
    model._secret = 9
    assert model.later
    # What validation would change must come back as it was.
    loose = PlainModel.model_construct(size=3, _fields_set=set())
    pair = LoosePair(1)
    pair.note = "n"  # type: ignore[attr-defined]
    bound = deque([1, 2], maxlen=2)
    paris = ZoneInfo("Europe/Paris")
    return {
        "none": None,
        "bools": [True, False],
        "numbers": [0, 1, 1.0, -1, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 1e16],
        "nan": float("nan"),
        "infinities": [float("inf"), float("-inf")],
        "big ints": [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**5000, -(10**30)],
        "complex": [1 + 2j, complex("nan"), complex(-0.0, float("inf"))],
        "text": ["", "é€😀", "\x00\n", '{"$":"tuple"}', "$", "nan", "2024-01-01"],
        "bytes": [b"", b"\x00\xff", bytearray(b"abc")],
        "lists": [[], [[]], [[1], [2, [3]]]],
        "tuples": [(), (1,), ((1, 2), [3, (4,)])],
        "sets": [set(), {1, 2, 3}, {"a", 1, (2,)}, frozenset({1, frozenset()})],
        "deques": [deque(), deque([1, (2,)]), bound],
        "dicts": [{}, {"b": 1, "a": 2}, {"a b": {"": 1}}, {"é": 1}],
        "odict": OrderedDict([("b", 1), ("a", (2,))]),
        "tag-like dicts": [{"$": "tuple", "v": [1]}, {"$": {"$": 1}}, {"v": 1}, {"$": "map", "v": {"$": 1}}],
        "int keys": {2: "b", 1: "a"},
        "bool keys": {True: "a", False: "b"},
        "mixed keys": {None: 0, 1.5: 1, (1, 2): 2, "s": 3, Color.RED: 4, b"x": 5, 2**70: 6, Mode.FAST: 7, 0: {1: 2}},
        "nan key": {float("inf"): 1},
        "datetimes": [
            datetime(2024, 1, 2, 3, 4, 5, 6),
            datetime(2024, 1, 2, tzinfo=UTC),
            datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=-5, minutes=30, seconds=1, microseconds=7))),
            datetime(2024, 1, 2, tzinfo=timezone(timedelta(hours=2), "here")),
            datetime(2024, 7, 2, tzinfo=paris),
            datetime(2024, 10, 27, 2, 30, tzinfo=paris, fold=1),
            datetime(2024, 10, 27, 2, 30, fold=1),
            datetime.max,
            datetime.min,
        ],
        "zones": [UTC, timezone(timedelta(hours=1)), timezone(timedelta(0), "zero"), paris],
        "dates": [date(2024, 2, 29), date.min, date.max],
        "times": [time(), time(1, 2, 3, 4, fold=1), time(5, tzinfo=UTC), time(5, tzinfo=paris)],
        "timedeltas": [timedelta(), timedelta(days=-1, microseconds=1), timedelta.max, timedelta.min],
        "decimals": [
            Decimal(text) for text in ("1.10", "-0", "NaN", "sNaN", "-NaN12", "Infinity", "1E+999999", "1e-9")
        ],
        "uuid": UUID("12345678-1234-5678-1234-567812345678"),
        "paths": [Path("a/b"), PurePosixPath("/x/é"), PureWindowsPath("C:\\x\\y"), Path()],
        "enums": [Color.RED, Color.CRIMSON, Color.BLUE, Level.LOW, Mode.FAST],
        "flags": [Right.READ, Right.READ | Right.WRITE, Right(0), Bits.A | Bits.B, Bits(0), Bits(64)],
        "dataclasses": [
            Point(1, Point(2, [Point(3)])),
            Frozen("n", ("a",)),
            {Frozen("k")},
            {Frozen("k"): 1},
            Box((1,)),
        ],
        "generic": Box[int](1),
        "post_init": counted,
        "slots": slotted,
        "structs": [Struct(a=1, b=[2], c=Point(1)), OpenStruct(1), PostStruct([5])],
        "open struct": opened,
        "models": [model, Model(a=1, b=[]), Model(a=1), PlainModel(inner=Model(a=2)), loose, Root([1, 2])],
        "named tuples": [Pair(1, (2,)), Old(1, b"2")],
        "loose pair": pair,
    }


KEPT = _made()


@pytest.fixture(params=KEPT.values(), ids=KEPT.keys())
def kept(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def codec() -> Codec:
    return Codec()
