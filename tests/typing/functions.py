"""What type checkers see of durable functions. `make check` reads this file; nobody runs it.

Wrong calls carry an ignore with the error that they must give: mypy reports an ignore that is not needed.
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
    async with holdfast.open("memory://") as hf:
        run = await hf.start(crawl, ["a"], id="c")
        assert_type(run, holdfast.AsyncRun)
        assert_type(await hf.enqueue(crawl, ["a"]), holdfast.AsyncRun)
        await hf.start(len, "abc")  # type: ignore[arg-type]


with holdfast.open("memory://") as hf:
    assert_type(hf.start(fulfil, "a", 1), holdfast.Run)
    assert_type(hf.enqueue(fulfil, "a", 1, queue="q", tags={"a": "b"}), holdfast.Run)
    run = hf.get("a")
    assert_type(run.wait(timeout=1), holdfast.Status)
    assert_type(run.resume(), holdfast.Status)
    assert_type(run.steps(), tuple[holdfast.StepInfo, ...])
    assert_type(run.outputs(), holdfast.Page[holdfast.Output])
    assert_type(run.fork(answers={"ask#1": True}), holdfast.Run)
    assert_type(run.rollback(0, then="cancelled"), holdfast.RollbackReport)
    assert_type(run.send("hello", key="k"), bool)
    hf.start(len, "abc")  # type: ignore[arg-type]
