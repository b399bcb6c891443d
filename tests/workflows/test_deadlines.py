"""The deadline of a whole run: while it waits, while a step runs, with effects to undo, and after a retry."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, receive, step, workflow
from holdfast.errors import DeadlinePassed
from holdfast.testing import ManualClock

MONTH = 30 * 86400.0
done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@step(name="tick of a deadline")
def tick(what: str) -> str:
    done.append(what)
    return what


@workflow(deadline=60)
def takes_long(how: str) -> str:
    tick("begun")
    if how == "ask":
        holdfast.ask("Well?")
    elif how == "sleep":
        holdfast.sleep(MONTH)
    elif how == "short":
        for _ in range(1000):
            holdfast.sleep(0.5)
    else:
        receive()
    return tick("never")


@workflow(deadline=60)
async def takes_long_async(how: str) -> str:
    tick("begun")
    if how == "ask":
        await holdfast.ask("Well?")
    elif how == "sleep":
        await holdfast.sleep(MONTH)
    elif how == "short":
        for _ in range(1000):
            await holdfast.sleep(0.5)
    else:
        await receive()
    return tick("never")


@pytest.mark.parametrize("slow", [takes_long, takes_long_async], ids=["sync", "async"])
@pytest.mark.parametrize("how", ["ask", "sleep", "receive", "short"])
@pytest.mark.parametrize("seconds", [60, 0.5])
def test_a_run_that_waits_beyond_its_deadline_fails(
    hft: Holdfast, clock: ManualClock, slow: Any, how: str, seconds: float
) -> None:
    began = clock.now()
    run = hft.start(slow, how, deadline=seconds)
    with pytest.raises(DeadlinePassed, match=f"{seconds:g} s"):
        run.result(timeout=MONTH)
    assert run.status is Status.FAILED
    assert clock.now() - began <= (seconds + 1) * 1e6
    assert done == ["begun"]


def put_back(result: str, what: str) -> None:
    done.append(f"put back {what}")


@step(undo=put_back)
def take(what: str) -> str:
    done.append(f"took {what}")
    return what


@step
async def never_ends() -> None:
    try:
        await asyncio.sleep(20)
    finally:
        done.append("stopped")


@workflow(on_failure="rollback")
async def takes_then_hangs() -> None:
    take("a")
    await never_ends()


@pytest.mark.parametrize("by", ["sync", "async"])
def test_an_async_step_is_stopped_at_the_deadline_before_effects_are_undone(store_url: str, by: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.start(takes_then_hangs, deadline=0.2)
            with pytest.raises(DeadlinePassed):
                await run.result()

    if by == "async":
        asyncio.run(main())
    else:
        with holdfast.open(store_url) as hf, pytest.raises(DeadlinePassed):
            hf.start(takes_then_hangs, deadline=0.2).result()
    # On a machine that is very busy, its time may be over before the first step.
    assert done in (["took a", "stopped", "put back a"], ["took a", "put back a"], [])


@workflow(on_failure="rollback")
def takes_then_sleeps() -> None:
    take("b")
    holdfast.sleep(MONTH)


def test_a_sync_run_is_rolled_back_at_its_deadline(hft: Holdfast) -> None:
    with pytest.raises(DeadlinePassed):
        hft.start(takes_then_sleeps, deadline=100).result()
    assert done == ["took b", "put back b"]


@pytest.mark.parametrize("slow", [takes_long, takes_long_async], ids=["sync", "async"])
def test_what_is_tried_again_or_forked_has_as_much_time_again(hft: Holdfast, slow: Any) -> None:
    run = hft.start(slow, "receive")
    with pytest.raises(DeadlinePassed):
        run.result()
    fork = run.fork(at=1)
    fork.send("hello")
    assert fork.result() == "never"
    run.retry()
    run.send("hello")
    assert run.result() == "never"


@workflow(deadline=60)
def begins_anew(n: int) -> str:
    tick(f"chapter {n}")
    holdfast.sleep(25)
    if n == 9:
        return "never"
    holdfast.continue_as_new(n + 1)


def test_beginning_anew_does_not_give_more_time(hft: Holdfast) -> None:
    with pytest.raises(DeadlinePassed, match="60 s"):
        hft.start(begins_anew, 0).result()
    assert done == ["chapter 0", "chapter 1", "chapter 2"]


def test_a_run_that_nobody_drives_fails_when_a_worker_sees_it(
    timed: Callable[..., Holdfast], clock: ManualClock
) -> None:
    run = timed().enqueue(takes_long, "ask", deadline=10)
    clock.advance(20)
    timed().work(until_idle=True)
    assert run.status is Status.FAILED
    assert done == []
