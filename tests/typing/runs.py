"""What type checkers see of runs: `start` and `enqueue` check the arguments, and a run knows what it returns.

The error of a call that no overload takes depends on the checker, so its ignore names none.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

import holdfast
from holdfast import AsyncRun, Checkpoint, EntryContents, Run, workflow


@workflow
def fulfil(order: str, cents: int) -> list[str]:
    return [order]


@workflow
async def crawl(urls: list[str], depth: int = 2) -> dict[str, Any]:
    return {}


@workflow
def parent(order: str) -> int:
    assert_type(fulfil(order, 3), list[str])
    fulfil(order)  # type: ignore[call-arg]
    return 3


@workflow
def nothing() -> None: ...


@workflow(version="2")
def report(kind: str = "all", *, days: int = 7) -> str:
    return kind


@workflow(on_failure="rollback")
async def mail(to: str, subject: str, body: str = "", cc: str = "") -> int:
    return len(body)


class Shop:
    @workflow
    def day(self, hours: int) -> str:
        return "day"


def started(hf: holdfast.Holdfast) -> None:
    assert_type(hf.start(fulfil, "a", 1), Run[list[str]])
    assert_type(hf.start(fulfil, order="a", cents=1), Run[list[str]])
    assert_type(hf.start(fulfil, "a", 1, id="a", tags={"a": "b"}, deadline=3), Run[list[str]])
    assert_type(hf.start(fulfil, order="a", cents=1, id="a"), Run[list[str]])
    assert_type(hf.start(crawl, ["a"]), Run[dict[str, Any]])
    assert_type(hf.start(crawl, ["a"], id="a"), Run[dict[str, Any]])
    assert_type(hf.start(crawl, ["a"], 3, queue="q"), Run[dict[str, Any]])
    assert_type(hf.start(nothing, id="n"), Run[None])
    assert_type(hf.start(report, id="r"), Run[str])
    assert_type(hf.start(report, "one", queue="q"), Run[str])
    assert_type(hf.start(report, "one", days=3), Run[str])
    assert_type(hf.start(mail, "a", "b", queue="q"), Run[int])
    assert_type(hf.start(mail, "a", "b", "c", "d", queue="q"), Run[int])
    assert_type(hf.start(Shop().day, 8, id="s"), Run[str])
    assert_type(hf.enqueue(fulfil, "a", 1), Run[list[str]])
    assert_type(hf.enqueue(fulfil, "a", 1, queue="q", delay=3, key="k", dedup="d", ttl=60), Run[list[str]])
    assert_type(hf.enqueue(crawl, ["a"], priority=3), Run[dict[str, Any]])
    hf.schedule(fulfil, "a", 1, cron="* * * * *", id="s", tz="UTC", catch_up="all")


def refused(hf: holdfast.Holdfast) -> None:
    hf.start(fulfil, "a", "b")  # type: ignore
    hf.start(fulfil, "a", "b", id="a")  # type: ignore
    hf.start(fulfil, "a")  # type: ignore
    hf.start(fulfil, "a", id="a")  # type: ignore
    hf.start(fulfil, "a", 1, 2)  # type: ignore
    hf.start(fulfil, order="a", cents="b")  # type: ignore
    hf.start(fulfil, "a", 1, id=3)  # type: ignore
    hf.start(report, days="3")  # type: ignore
    hf.start(mail, "a", id="a")  # type: ignore
    hf.start(fulfil, "a", 1, colour="red")  # type: ignore
    hf.start(fulfil, "a", 1, delay=3)  # type: ignore
    hf.start(crawl, "a", id="a")  # type: ignore
    hf.start(Shop().day, "8")  # type: ignore
    hf.start("fulfil", "a", 1)  # type: ignore
    hf.start(len, "abc")  # type: ignore
    hf.start(len, "abc", id="a")  # type: ignore
    hf.enqueue(fulfil, "a", "b")  # type: ignore
    hf.enqueue(fulfil, "a", "b", queue="q")  # type: ignore
    hf.enqueue(fulfil)  # type: ignore
    hf.schedule(fulfil, "a", "b", cron="* * * * *", id="s")  # type: ignore
    hf.schedule(fulfil, "a", 1, id="s")  # type: ignore


def takes(run: Run[int]) -> None: ...


def handled(hf: holdfast.Holdfast, run: Run[list[str]]) -> None:
    assert_type(run.result(), list[str])
    assert_type(run.result(timeout=3, type=int), int)
    assert_type(run.fork(), Run[list[str]])
    assert_type(run.fork_each([{}]), list[Run[list[str]]])
    assert_type(run.states(), Iterator[Checkpoint])
    assert_type(run.events(after=3), Iterator[EntryContents])
    assert_type(run.follow(), Iterator[Any])
    with run.claim() as held:
        assert_type(held, Run[list[str]])
    found = hf.get("a")
    assert_type(found, Run)
    assert_type(found, Run[Any])
    assert_type(found.result(), Any)
    assert_type(found.info(), holdfast.RunInfo)
    takes(run)  # type: ignore[arg-type]
    run.states(before=3)  # type: ignore[call-arg]


async def awaited(hf: holdfast.AsyncHoldfast) -> None:
    run = await hf.start(crawl, ["a"], id="c")
    assert_type(run, AsyncRun[dict[str, Any]])
    assert_type(await run.result(), dict[str, Any])
    assert_type(await run.result(type=int), int)
    assert_type(await run.info(), holdfast.RunInfo)
    assert_type(await run.fork(), AsyncRun[dict[str, Any]])
    assert_type(run.states(), AsyncIterator[Checkpoint])
    async with run.claim() as held:
        assert_type(held, AsyncRun[dict[str, Any]])
    assert_type(await hf.start(fulfil, "a", 1), AsyncRun[list[str]])
    assert_type(await hf.enqueue(fulfil, "a", 1, delay=1.5), AsyncRun[list[str]])
    found = await hf.get("a")
    assert_type(found, AsyncRun)
    assert_type(await found.result(), Any)
    assert_type(await found.info(), holdfast.RunInfo)
    await hf.start(crawl, "a")  # type: ignore
    await hf.enqueue(fulfil, "a", "b", queue="q")  # type: ignore
    takes(found)  # type: ignore[arg-type]


with holdfast.open("memory://") as hf:
    run = hf.get("a")
    assert_type(run.wait(timeout=1), holdfast.Status)
    assert_type(run.resume(), holdfast.Status)
    assert_type(run.steps(), tuple[holdfast.StepInfo, ...])
    assert_type(run.outputs(), holdfast.Page[holdfast.Output])
    assert_type(run.fork(answers={"ask#1": True}), holdfast.Run)
    assert_type(run.rollback(0, then="cancelled"), holdfast.RollbackReport)
    assert_type(run.send("hello", key="k"), bool)
