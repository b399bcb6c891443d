"""A step with an effect that has begun is not broken off by a sibling that fails: it is awaited, and undone."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, NotDone, Status, first, gather, step, this_step, workflow
from holdfast.errors import RunBlocked, StepTimeout, TimedOut, Uncertain, UsageError

Opener = Callable[..., Holdfast]

told: list[str] = []
begun: dict[str, asyncio.Event] = {}
thread_begun, gate = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    told.clear()
    begun.clear()
    thread_begun.clear()
    gate.clear()
    yield
    gate.set()


async def wait_a_little() -> None:
    """Longer than anybody takes who does not wait for it."""
    for _ in range(50):
        await asyncio.sleep(0)


class Declined(Exception):
    """An error of the user's own."""


async def act(name: str, how: str = "") -> str:
    begun["it"].set()
    try:
        await (asyncio.Event().wait() if how == "hangs" else wait_a_little())
    except asyncio.CancelledError:
        told.append(f"{name} cancelled")
        raise
    told.append(name)
    if how:
        raise NotDone("no") if how == "not done" else Declined(how)
    return name.upper()


def undo(result: str | None, name: str, how: str = "") -> None:
    told.append(f"-{result}")


@step(undo=undo, retries=3, delay=60)
async def with_undo(name: str, how: str = "") -> str:
    return await act(name, how)


@step(target="{name}")
async def with_target(name: str, how: str = "") -> str:
    return await act(name, how)


@step(at_most_once=True, retries=3, delay=60)
async def at_most_once(name: str, how: str = "") -> str:
    return await act(name, how)


@step(undo=undo, undo_uncertain=True)
async def undone_in_any_case(name: str, how: str = "") -> str:
    return await act(name, how)


@step
async def without(name: str, how: str = "") -> str:
    return await act(name, how)


@step
async def bad() -> None:
    await begun["it"].wait()
    raise ValueError("a sibling failed")


STEPS = {one.name: one for one in (with_undo, with_target, at_most_once, undone_in_any_case, without)}


async def in_gather(*branches: Any) -> None:
    await asyncio.gather(*branches)


async def in_group(*branches: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for branch in branches:
            group.create_task(branch)


async def in_groups(*branches: Any) -> None:
    """One group in another, and both are cancelled."""

    async def inside() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(branches[0])

    await in_group(inside(), *branches[1:])


WAYS = {"gather": in_gather, "group": in_group, "groups": in_groups}


@workflow(on_failure="rollback")
async def siblings(way: str, effect: str, how: str = "") -> None:
    begun["it"] = asyncio.Event()
    await WAYS[way](STEPS[effect]("pay", how), bad())


@pytest.mark.parametrize("way", WAYS)
def test_it_is_awaited_and_undone(hf: Holdfast, way: str) -> None:
    run = hf.start(siblings, way, "with_undo", id="run")
    assert run.status is Status.FAILED
    assert told == ["pay", "-PAY"]
    assert [effect.status for effect in run.effects()] == ["undone"]


@pytest.mark.parametrize("effect", ["with_target", "at_most_once"])
def test_one_that_cannot_be_undone_is_recorded(hf: Holdfast, effect: str) -> None:
    run = hf.start(siblings, "group", effect, id="run")
    assert run.status is Status.FAILED
    assert told == ["pay"]
    assert [effect.status for effect in run.effects()] == ["left"]


def test_a_step_without_an_effect_is_cancelled_at_once(hf: Holdfast) -> None:
    run = hf.start(siblings, "group", "without", "hangs", id="run")
    assert run.status is Status.FAILED
    assert told == ["pay cancelled"]


def test_one_that_fails_meanwhile_is_recorded_and_not_tried_again(hf: Holdfast) -> None:
    run = hf.start(siblings, "group", "with_undo", "declined", id="run")
    assert run.status is Status.FAILED
    assert told == ["pay"]
    assert [(effect.status, effect.error) for effect in run.effects()] == [("raised", "Declined: declined")]


@pytest.mark.parametrize(("how", "status"), [("declined", Status.BLOCKED), ("not done", Status.FAILED)])
def test_one_that_is_at_most_once_and_fails_meanwhile(hf: Holdfast, how: str, status: Status) -> None:
    """Unless it says that it has not acted, nobody knows."""
    run = hf.start(siblings, "group", "at_most_once", how, id="run")
    assert run.status is status
    assert [effect.status for effect in run.effects()] == ["uncertain" if status is Status.BLOCKED else "raised"]


@pytest.mark.parametrize("way", WAYS)
def test_one_that_does_not_end_in_time_blocks_the_run(opened: Opener, way: str) -> None:
    run = opened(effect_wait=0.02).start(siblings, way, "with_undo", "hangs", id="run")
    with pytest.raises(RunBlocked, match=r"it failed .*not known whether step 'with_undo#1' was done"):
        run.result()
    assert told == ["pay cancelled"]
    assert [effect.status for effect in run.effects()] == ["uncertain"]
    with pytest.raises(Uncertain):
        run.rollback(to=0)
    run.resolve("with_undo#1", done=True, result="FOUND")
    run.rollback(to=0, then="cancelled")
    assert told == ["pay cancelled", "-FOUND"]


def test_its_undo_is_called_if_it_bears_that(opened: Opener) -> None:
    run = opened(effect_wait=0.02).start(siblings, "group", "undone_in_any_case", "hangs", id="run")
    assert run.status is Status.FAILED
    assert told == ["pay cancelled", "-None"]
    assert [effect.status for effect in run.effects()] == ["undone"]


@step(undo=undo, timeout=0.02)
async def limited(name: str, how: str = "") -> str:
    return await act(name, how)


@step(undo=undo, timeout=0.02)
def limited_in_a_thread(name: str, how: str = "") -> str:
    gate.wait(20)
    return name


@workflow(on_failure="rollback")
async def is_late(in_a_thread: bool) -> None:
    begun["it"] = asyncio.Event()
    await asyncio.to_thread(limited_in_a_thread, "pay") if in_a_thread else await limited("pay", "hangs")


@pytest.mark.parametrize("in_a_thread", [False, True], ids=["async", "thread"])
def test_one_that_timed_out_may_have_been_done(hf: Holdfast, in_a_thread: bool) -> None:
    run = hf.start(is_late, in_a_thread, id="run")
    assert run.status is Status.BLOCKED
    [effect] = run.effects()
    assert effect.status == "uncertain"
    run.resolve(effect.key, done=False)
    with pytest.raises(StepTimeout):
        run.result()
    assert [effect.status for effect in run.effects()] == ["raised"]


@step(undo=undo)
async def waits(name: str) -> str:
    begun["it"].set()
    await begun["goes on"].wait()
    return await act(name)


@workflow
async def waits_for_word() -> None:
    begun.update({"it": asyncio.Event(), "goes on": asyncio.Event()})
    await waits("pay")


def test_a_run_that_is_cancelled_with_undo_awaits_it(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            driven = asyncio.create_task(hf.start(waits_for_word, id="run"))
            while "it" not in begun or not begun["it"].is_set():
                await asyncio.sleep(0.001)
            run = await hf.get("run")
            await run.cancel(undo=True)
            while hf.client.engine.executions[run.uid].outcome is None:
                await asyncio.sleep(0.001)
            begun["goes on"].set()
            await driven
            assert await run.wait() is Status.CANCELLED
            assert [effect.status for effect in await run.effects()] == ["undone"]

    asyncio.run(main())
    assert told == ["pay", "-PAY"]


@step
async def fast() -> str:
    await begun["it"].wait()
    return "fast"


@workflow
async def races() -> Any:
    begun["it"] = asyncio.Event()
    won = await first(with_undo("slow"), fast())
    told.append(won)
    await holdfast.ask("well?", str)
    return won


def test_the_loser_of_a_race_is_recorded_and_a_replay_agrees(hf: Holdfast) -> None:
    run = hf.start(races, id="run")
    assert told == ["slow", "fast"]
    run.answer("yes")
    assert run.result() == "fast"
    assert told == ["slow", "fast", "fast"]
    run.rollback(to=0, then="cancelled")
    assert told[-1] == "-SLOW"


@workflow
async def has_a_limit() -> str:
    begun["it"] = asyncio.Event()
    try:
        await holdfast.timeout(0.01, with_undo("slow", "hangs"))
    except TimedOut:
        return "too late"
    return "in time"


def test_a_time_limit_of_the_workflow_is_kept_when_its_effect_has_had_its_time(opened: Opener) -> None:
    run = opened(effect_wait=0.02).start(has_a_limit, id="run")
    assert run.result() == "too late"
    assert told == ["slow cancelled"]
    assert [effect.status for effect in run.effects()] == ["uncertain"]


@workflow
async def goes_on_after_a_failure() -> str:
    begun["it"] = asyncio.Event()
    try:
        await in_group(with_undo("pay"), bad())
    except* ValueError:
        told.append("caught")
    return await holdfast.ask("well?", str)  # type: ignore[no-any-return]


def test_a_workflow_that_goes_on_finds_it_done_in_a_replay(opened: Opener) -> None:
    run = opened().start(goes_on_after_a_failure, id="run")
    assert told == ["pay", "caught"]
    again = opened().get("run")
    again.answer("yes")
    assert again.resume() is Status.COMPLETED
    assert told == ["pay", "caught", "caught"]
    assert [effect.status for effect in run.effects()] == ["done"]


@step(undo=undo)
def in_a_thread(name: str) -> str:
    thread_begun.set()
    assert gate.wait(20)
    told.append(name)
    return name.upper()


def waits_for_the_thread() -> str:
    assert thread_begun.wait(20)
    return "first"


@workflow(on_failure="rollback")
def loses_a_thread() -> None:
    first(lambda: in_a_thread("slow"), waits_for_the_thread)
    threading.Timer(0.05, gate.set).start()
    raise ValueError("while it is in flight")


def test_a_thread_that_lost_a_race_is_awaited_before_anything_is_undone(hf: Holdfast) -> None:
    run = hf.start(loses_a_thread, id="run")
    assert run.status is Status.FAILED
    assert told == ["slow", "-SLOW"]


@workflow(on_failure="rollback")
async def leaves_a_thread_behind() -> None:
    async def fails() -> None:
        while not thread_begun.is_set():
            await asyncio.sleep(0.001)
        threading.Timer(0.05, gate.set).start()
        raise ValueError("while it is in flight")

    await in_group(asyncio.to_thread(in_a_thread, "slow"), fails())


def test_so_is_a_thread_of_an_async_workflow(hf: Holdfast) -> None:
    run = hf.start(leaves_a_thread_behind, id="run")
    assert run.status is Status.FAILED
    assert told == ["slow", "-SLOW"]


# --- what an undo knows of itself

keys: list[tuple[str, str, int]] = []
fails: list[Exception] = []


@step(undo_retries=1)
def keyed(name: str) -> None:
    keys.append((name, this_step().idempotency_key, this_step().attempt))


@keyed.undo
def unkeyed(result: None, name: str) -> None:
    now = this_step()
    keys.append((f"-{now.key}", now.idempotency_key, now.attempt))
    keyed("inside")  # just a function here, as anywhere outside of a run
    if fails:
        raise fails.pop()


@workflow
def keyed_twice() -> None:
    gather(lambda: keyed("a"))
    holdfast.ask("well?", str)


def test_an_undo_has_an_idempotency_key_of_its_own(hf: Holdfast) -> None:
    keys.clear()
    fails[:] = [ValueError("no")]
    run = hf.start(keyed_twice, id="run")
    run.rollback(to=0)
    run.resume()
    run.rollback(to=0, then="cancelled")
    tries = [one for one in keys if one[0] != "inside"]
    assert [(name, attempt) for name, _, attempt in tries] == [
        ("a", 1),
        ("-gather#1.1/keyed#1", 1),
        ("-gather#1.1/keyed#1", 2),
        ("a", 1),
        ("-gather#1.1/keyed#1", 1),
    ]
    made, undone, again, anew, undone_anew = (key for _, key, _ in tries)
    assert undone == again
    assert len({made, undone, anew, undone_anew}) == 4
    assert {key for name, key, _ in keys if name == "inside"} == {undone, undone_anew}
    with pytest.raises(UsageError, match=r"this_step\(\) is for code inside of a step or an undo"):
        this_step()
