"""What type checkers see of durable functions. `make check` reads this file; nobody runs it.

Wrong calls carry an ignore with the error that they must give: mypy and pyright report an ignore that is not needed.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import assert_type
from uuid import UUID

import holdfast
from holdfast import Done, NotDone, step, workflow


@step
def charge(order: str, cents: int = 100) -> str:
    return order


@charge.undo
def refund(receipt: str, order: str, cents: int) -> None: ...


@charge.undo  # type: ignore[arg-type]
def refund_without_arguments(receipt: str) -> None: ...


@charge.undo  # type: ignore[arg-type]
def refund_of_another_result(receipt: int, order: str, cents: int) -> None: ...


@charge.undo  # type: ignore[arg-type]
def refund_of_other_arguments(receipt: str, order: str, cents: str) -> None: ...


@step
async def book(seat: str, *, nights: int) -> UUID:
    return UUID(seat)


@book.undo
async def give_back(booking: UUID, seat: str, *, nights: int) -> None: ...


@book.undo  # type: ignore[arg-type]
def give_back_by_coroutine(booking: str, seat: str, *, nights: int) -> None: ...


@step(retries=3, timeout=10, target="{url}")
async def fetch(url: str) -> bytes:
    return b""


@step(at_most_once=True)
def send(to: str) -> int:
    return 1


@send.check
def was_sent(to: str) -> Done | type[NotDone]:
    return NotDone


@workflow
def fulfil(order: str, cents: int) -> list[str]:
    assert_type(charge(order, cents), str)
    assert_type(charge(order), str)
    assert_type(charge.options(key="a")(order, cents=3), str)
    charge(order, "many")  # type: ignore[arg-type]
    charge()  # type: ignore[call-arg]
    charge(order, dollars=3)  # type: ignore[call-arg]
    charge.options(colour="red")  # type: ignore[call-arg]
    assert_type(holdfast.now(), datetime)
    assert_type(holdfast.random(), float)
    assert_type(holdfast.uuid(), UUID)
    assert_type(holdfast.patched("a"), bool)
    assert_type(holdfast.this_step().idempotency_key, str)
    return [order]


@workflow(on_failure="rollback", version="2")
async def crawl(urls: list[str]) -> int:
    page = await fetch(urls[0])
    assert_type(page, bytes)
    assert_type(await asyncio.gather(fetch("a"), fetch("b")), tuple[bytes, bytes])
    await fetch(1)  # type: ignore[arg-type]
    return len(page)


@workflow(on_failure="panic")  # type: ignore[call-overload, untyped-decorator]
def wrong() -> None: ...


@dataclass
class Shop:
    name: str

    @step
    def open_door(self, key: str) -> bool:
        return True

    @workflow
    def day(self, hours: int) -> str:
        assert_type(self.open_door("k"), bool)
        self.open_door()  # type: ignore[call-arg]
        self.open_door(3)  # type: ignore[arg-type]
        return self.name


async def called() -> None:
    assert_type(fulfil("a", 1), list[str])
    fulfil("a")  # type: ignore[call-arg]
    fulfil("a", "b")  # type: ignore[arg-type]
    assert_type(await crawl(["a"]), int)
    assert_type(Shop("s").day(3), str)
    Shop("s").day()  # type: ignore[call-arg]
    assert_type(charge.function("a"), str)
