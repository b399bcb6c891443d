"""Races, and what becomes of those that lost: they are not missed when the run goes on, and their children end."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, ask, continue_as_new, first, gather, patched, receive, sleep, step, timeout, workflow
from holdfast.errors import TimedOut
from holdfast.testing import ManualClock


@workflow
async def approval() -> int:
    return await ask("approve?", int)  # type: ignore[no-any-return]


@workflow
def approval_in_a_thread() -> bool:
    return ask("approve?", bool)  # type: ignore[no-any-return]


@step(target="world")
async def never() -> None:
    await asyncio.Event().wait()


LOSERS: dict[str, Callable[[], Any]] = {
    "sleep": lambda: sleep(1000),
    "receive": lambda: receive(timeout=1000),
    "child": lambda: approval(),
    "step": lambda: never(),
    "race": lambda: first(sleep(1000), approval()),
    "limit": lambda: timeout(1000, sleep(2000)),
    "gather": lambda: gather(approval(), ask("neither?", int)),
}


@workflow
async def race_against_an_answer(loser: str) -> list[Any]:
    won = await first(LOSERS[loser](), ask("now?", int))
    is_new = patched("after the race")
    return [won, is_new, await ask("and then?", int)]


def _answer(run: Any, prompt: str) -> None:
    [question] = [question for question in run.questions() if question.prompt == prompt]
    run.answer(1, question=question)


@pytest.mark.parametrize("loser", sorted(LOSERS.keys() - {"step"}))
def test_what_lost_a_race_is_not_missed_when_the_run_goes_on(hft: Holdfast, loser: str) -> None:
    run = hft.start(race_against_an_answer, loser, id="race")
    _answer(run, "now?")
    run.resume()
    assert [question.prompt for question in run.questions()] == ["and then?"]
    _answer(run, "and then?")
    assert run.result(timeout=10) == [1, True, 1]
    assert {one.status for one in hft.runs().items if one.id != "race"} <= {"cancelled"}


def test_a_step_that_lost_a_race_is_not_missed_either(store_url: str) -> None:
    asyncio.run(_step_that_lost(store_url))


async def _step_that_lost(store_url: str) -> None:
    async with holdfast.open(store_url, effect_wait=0.05) as hf:
        driving = asyncio.create_task(hf.start(race_against_an_answer, "step", id="race"))
        while not (found := (await hf.runs()).items) or not await (await hf.get(found[0].id)).questions():
            await asyncio.sleep(0.01)
        run = await hf.get("race")
        await run.answer(1)
        await driving
        await run.answer(1)
        await run.resume()
        assert await run.result(timeout=10) == [1, True, 1]


@workflow
def approval_in_time() -> str:
    try:
        return str(timeout(100, approval_in_a_thread))
    except TimedOut:
        return "too late"


@workflow
async def approval_in_time_async() -> str:
    try:
        return str(await timeout(100, approval()))
    except TimedOut:
        return "too late"


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("flow", [approval_in_time, approval_in_time_async])
def test_a_child_that_took_too_long_is_cancelled(
    hft: Holdfast, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, flow: Any, dies: bool
) -> None:
    if dies:  # after it was journaled, and before the child was told
        monkeypatch.setattr("holdfast.engine.workflow.concurrency.races.drop_children", lambda execution: iter(()))
    run = hft.start(flow, id="approval_in_time")
    clock.advance(200)
    run.resume()
    assert run.result(timeout=10) == "too late"
    [child] = [one for one in hft.runs().items if one.id != "approval_in_time"]
    assert child.status == "cancelled"


@workflow
async def leaves_a_child_behind(anew: bool) -> None:
    if not anew:
        asyncio.create_task(approval())  # noqa: RUF006
        await receive()
        continue_as_new(True)
    await receive()


def test_cancelling_reaches_children_from_before_it_began_anew(hft: Holdfast) -> None:
    run = hft.start(leaves_a_child_behind, False)
    run.send("go on")
    run.resume()
    run.cancel()
    assert {one.status for one in hft.runs().items} == {"cancelled"}


# --- going back to before a child was cancelled


@workflow
async def raced() -> Any:
    won = await first(approval(), ask("now?", int))
    await ask("and then?", int)
    return won


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_child_that_lost_goes_on_again_after_a_rollback_to_before_that(hft: Holdfast, cancelled: bool) -> None:
    run = hft.start(raced, id="raced")
    point = run.info().seq
    child = hft.get("raced/approval#1")
    if cancelled:
        run.cancel()
    else:
        _answer(run, "now?")
        run.resume()
    assert child.status == "cancelled"
    run.rollback(to=point)
    run.resume()
    _answer(child, "approve?")
    run.resume()
    _answer(run, "and then?")
    assert run.result(timeout=10) == 1


def test_a_rollback_to_between_the_end_of_a_race_and_the_closing_of_its_questions(hft: Holdfast) -> None:
    run = hft.start(race_against_an_answer, "gather", id="race")
    _answer(run, "now?")
    run.resume()
    for point in [entry.seq for entry in run.history().items if entry.kind in ("done", "closed")]:
        fork = run.fork(at=point)
        fork.resume()
        _answer(fork, "and then?")
        assert fork.result(timeout=10)[0] == 1
