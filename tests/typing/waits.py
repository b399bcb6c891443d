"""What type checkers see of what a workflow waits for: values in a sync one, `holdfast.aio` in an async one."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypedDict, assert_type

from holdfast import aio, ask, first, gather, map, receive, sleep, step, timeout, workflow


@dataclass
class Ship:
    carrier: str


class Colour(Enum):
    RED = "red"


class Parcel(TypedDict):
    weight: int


@step
def charge(order: str, cents: int = 100) -> str:
    return order


@step
async def look(page: int) -> bytes:
    return b""


@step
async def count(page: int) -> int:
    return page


@workflow
def plain(branches: list[Callable[[], str]]) -> None:
    assert_type(ask("Which one?", Ship), Ship)
    assert_type(ask("Sure?", bool), bool)
    assert_type(ask("Sure?", bool, timeout=3, default=None), bool | None)
    assert_type(ask("Which colour?", Colour), Colour)
    assert_type(ask("How heavy?", Parcel), Parcel)
    assert_type(ask("Which ones?", list[int]), list[int])
    assert_type(ask("Which one?", Literal["a", "b"]), Any)  # no type object, so no checker can tell
    assert_type(ask("What?"), Any)
    assert_type(receive("ships", type=Ship), Ship)
    assert_type(receive("ships", type=Ship, timeout=3, default=None), Ship | None)
    assert_type(receive("ships"), Any)
    assert_type(gather(lambda: charge("a"), lambda: 3), tuple[str, int])
    assert_type(gather(lambda: charge("a"), lambda: 3, lambda: True), tuple[str, int, bool])
    assert_type(gather(*branches, limit=3), list[str])
    assert_type(gather(*branches, return_exceptions=True), list[str | Exception])
    assert_type(map(charge, ["a", "b"]), list[str])
    assert_type(map(charge, ["a", "b"], limit=1, return_exceptions=True), list[str | Exception])
    assert_type(first(lambda: charge("a"), lambda: 3), str | int)
    assert_type(first(*branches), str)
    assert_type(timeout(3, lambda: charge("a")), str)
    sleep(3)
    charge(ask("How many?", int))  # type: ignore[arg-type]
    charge(receive("ships", type=Ship))  # type: ignore[arg-type]
    map(charge, [3])  # type: ignore[arg-type]
    gather(3)  # type: ignore[call-overload]
    first(charge)  # type: ignore[arg-type]
    timeout(3, charge)  # type: ignore[arg-type]


@workflow
async def awaited() -> None:
    assert_type(await aio.ask("Which one?", Ship), Ship)
    assert_type(await aio.ask("Sure?", bool, timeout=3, default=None), bool | None)
    assert_type(await aio.ask("What?"), Any)
    assert_type(await aio.receive("ships", type=Ship), Ship)
    assert_type(await aio.receive("ships", type=Ship, timeout=3, default=None), Ship | None)
    assert_type(await aio.receive("ships"), Any)
    assert_type(await aio.gather(look(1), count(2)), tuple[bytes, int])
    assert_type(await aio.gather(lambda: look(1), lambda: count(2)), tuple[bytes, int])
    assert_type(await aio.gather(look(1), count(2), look(3)), tuple[bytes, int, bytes])
    assert_type(await aio.gather(*[look(1)], limit=3), list[bytes])
    assert_type(await aio.gather(*[look(1)], return_exceptions=True), list[bytes | Exception])
    assert_type(await aio.map(look, [1, 2]), list[bytes])
    assert_type(await aio.map(look, [1, 2], return_exceptions=True), list[bytes | Exception])
    assert_type(await aio.first(look(1), count(2)), bytes | int)
    assert_type(await aio.first(*[look(1)]), bytes)
    assert_type(await aio.timeout(3, look(1)), bytes)
    assert_type(await asyncio.gather(aio.ask("Who?", str), look(1)), tuple[str, bytes])
    await aio.sleep(3)
    await ask("Which one?", Ship)  # type: ignore[misc]
    charge(aio.ask("Which one?", str))  # type: ignore[arg-type]
    await aio.map(look, ["a"])  # type: ignore[arg-type]
    await aio.gather(3)  # type: ignore[call-overload]
    await aio.timeout(3, look)  # type: ignore[arg-type]
