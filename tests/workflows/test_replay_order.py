"""Random programs of branches, killed and answered at random: keys stay, nothing is done twice, the order is the same.

Every step is called with all that the branches have seen so far, in the order in which they saw it. So if a replay
showed them anything in another order than the journal has it, the run would be parked.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import size

import holdfast
from holdfast import AsyncHoldfast, AsyncRun, Status, ask, receive, sleep, step, workflow
from holdfast.engine.access.operations import drive_async
from holdfast.stores import open_store
from holdfast.testing import ManualClock

Branch = list[Any]


class Killed(BaseException):
    """As if the process had died."""


class World:
    """What is outside of the run: the chances of this test, and what was really done."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.kill_in: int | None = None
        self.kill: Callable[[], None] = lambda: None


world = World(0)
gates: dict[str, asyncio.Event] = {}
number = itertools.count()


def new_url() -> str:
    """An empty store."""
    return f"memory://order-{next(number)}"


@step
async def act(name: str, seen: list[str]) -> str:
    for _ in range(world.chance.choice([0, 0, 1, 2, 5])):
        await asyncio.sleep(0)
    if world.chance.random() < 0.3:
        await asyncio.sleep(world.chance.random() * 0.004)
    world.done[name] += 1
    if world.kill_in is not None:
        world.kill_in -= 1
        if world.kill_in < 0:
            world.kill_in = None
            world.kill()
    return name


@step
def act_at_once(name: str, seen: list[str]) -> str:
    world.done[name] += 1
    return name


@workflow
async def program(branches: list[Branch], how: str) -> list[str]:
    seen: list[str] = []
    await fan(branches, how, "", seen, asyncio.Lock())
    return seen


async def fan(branches: list[Branch], how: str, path: str, seen: list[str], lock: asyncio.Lock) -> None:
    parts = [run_branch(branch, f"{path}.{n}", seen, lock) for n, branch in enumerate(branches)]
    match how:
        case "gather":
            await asyncio.gather(*parts)
        case "group":
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part)
        case "tasks":
            for task in [asyncio.create_task(part) for part in parts]:
                await task
        case "wait":
            await asyncio.wait([asyncio.create_task(part) for part in parts])
        case "shield":
            await asyncio.gather(*(asyncio.shield(part) for part in parts))
        case "limit":
            await holdfast.gather(*parts, limit=2)
        case _:
            await holdfast.gather(*parts)
    seen.append(f"{path} is through")


async def run_branch(branch: Branch, path: str, seen: list[str], lock: asyncio.Lock) -> None:
    for n, act_of in enumerate(branch):
        name = f"{path}/{n}"
        if isinstance(act_of, list):
            how, inner = act_of
            await fan(inner, how, name, seen, lock)
        elif act_of == "locked":
            async with lock:
                seen.append(await act(name, list(seen)))
        elif act_of == "task":
            seen.append(await asyncio.create_task(act(name, list(seen))))
        elif act_of == "at once":
            seen.append(act_at_once(name, list(seen)))
        elif act_of == "yield":
            await asyncio.sleep(0)
        elif act_of == "ask":
            seen.append(await ask(name, str))
        elif act_of == "sleep":
            await sleep(0.002)
            seen.append(name)
        elif act_of == "long sleep":
            await sleep(3600)
            seen.append(name)
        elif act_of == "receive":
            seen.append(await receive(timeout=0.003, default=name))
        elif act_of == "emit":
            holdfast.emit(list(seen))
        else:
            seen.append(await act(name, list(seen)))


HOWS = st.sampled_from(["gather", "group", "tasks", "wait", "shield", "limit", "all"])
STEPS = st.sampled_from(["step", "step", "step", "task", "at once", "yield", "emit", "locked"])
WAITS = st.one_of(STEPS, st.sampled_from(["ask", "ask", "sleep", "receive"]))


def programs(acts: Any) -> Any:
    branches = st.lists(st.lists(acts, max_size=4), min_size=1, max_size=4)
    nested = st.tuples(HOWS, branches).map(list)
    return st.lists(st.lists(st.one_of(acts, acts, nested), max_size=5), min_size=1, max_size=4)


async def finish(url: str, branches: list[Branch], how: str, kills: list[int], clock: ManualClock | None) -> list[str]:
    """Drive a run to its end, killed again and again, and answered in any order."""
    options = {} if clock is None else {"store": open_store(url, clock=clock)}
    async with holdfast.open(url, **options) as hf:
        run, plan = None, list(kills)
        keys: dict[str, str] = {}
        while run is None or run.status is not Status.COMPLETED:
            before = dict(world.done)
            kept = {} if run is None else await keys_of(run)
            assert all(kept.get(name, key) == key for name, key in keys.items()), "a key has changed"
            keys |= kept
            await drive(hf, run, branches, how, plan.pop() if plan else None)
            run = await hf.run("r")
            again = {name for name, count in world.done.items() if count > before.get(name, 0)} & set(keys)
            assert not again, f"done again: {again}"
            assert run.status in (Status.COMPLETED, Status.READY, Status.WAITING), (await run.info()).reason
            questions = list(await run.questions())
            some = world.chance.randint(min(1, len(questions)), len(questions))
            for question in world.chance.sample(questions, some):
                await run.answer(question.prompt, question=question)
            if not questions and run.status is Status.WAITING and clock is not None:
                clock.advance(3600)
        return await run.result()  # type: ignore[no-any-return]


async def keys_of(run: AsyncRun) -> dict[str, str]:
    """The keys of the steps that are kept, by the names which they were called with."""
    fold = await drive_async(run.held.seen(), run.held.committer)
    return {found.result: key for key, found in fold.steps.items() if "act" in key}


async def drive(hf: AsyncHoldfast, run: AsyncRun | None, branches: list[Branch], how: str, kill_in: int | None) -> None:
    world.kill_in = kill_in
    driven = asyncio.create_task(hf.start(program, branches, how, id="r"))

    def raise_it() -> None:
        raise Killed

    world.kill = world.chance.choice([driven.cancel, raise_it])
    async with asyncio.timeout(20):
        await asyncio.wait({driven})
    world.kill_in = None
    error = None if driven.cancelled() else driven.exception()
    if driven.cancelled() or error is not None:
        assert kill_in is not None
        assert error is None or isinstance(error, Killed) or _all_killed(error)


def _all_killed(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup) and error.split(Killed)[1] is None


def check(url: str, branches: list[Branch], how: str, kills: list[int], seed: int, clock: ManualClock | None) -> None:
    global world
    world = World(seed)
    first = asyncio.run(finish(url, branches, how, kills, clock))

    async def replay() -> list[str]:
        options = {} if clock is None else {"store": open_store(url, clock=clock)}
        async with holdfast.open(url, **options) as hf:
            run = await hf.run("r")
            fork = await run.fork(at=(await run.info()).seq - 1)
            await fork.resume()
            return await fork.result(timeout=20)  # type: ignore[no-any-return]

    done = dict(world.done)
    assert asyncio.run(replay()) == first
    assert done == world.done


@settings(max_examples=size(15, 60))
@given(programs(STEPS), HOWS, st.lists(st.integers(0, 12), max_size=4), st.integers(0, 1 << 30))
def test_branches_of_steps(branches: list[Branch], how: str, kills: list[int], seed: int) -> None:
    check(new_url(), branches, how, kills, seed, None)


@settings(max_examples=size(15, 60))
@given(programs(WAITS), HOWS, st.lists(st.integers(0, 12), max_size=4), st.integers(0, 1 << 30))
def test_branches_that_wait_too(branches: list[Branch], how: str, kills: list[int], seed: int) -> None:
    check(new_url(), branches, how, kills, seed, None)


@settings(max_examples=40)
@given(
    programs(st.one_of(WAITS, st.just("long sleep"))),
    HOWS,
    st.lists(st.integers(0, 12), max_size=4),
    st.integers(0, 1 << 30),
)
def test_branches_on_a_clock_of_ones_own(branches: list[Branch], how: str, kills: list[int], seed: int) -> None:
    check(new_url(), branches, how, kills, seed, ManualClock(seed=seed))


@step
async def act_last(gate: str) -> str:
    await gates[gate].wait()
    return "last"


@workflow
async def the_first_ends_last(gate: str) -> list[str]:
    seen: list[str] = []

    async def first() -> None:
        seen.append(await act_last(gate))

    async def second() -> None:
        seen.append(await act("meanwhile", []))
        gates[gate].set()

    gates[gate] = asyncio.Event()
    await asyncio.gather(first(), second())
    await ask("go on?")
    return seen


def test_a_branch_that_ended_last_ends_last_in_a_replay(store_url: str) -> None:
    global world
    world = World(0)
    with holdfast.open(store_url) as hf:
        run = hf.start(the_first_ends_last, "gate")
        run.answer("yes")
        assert run.result(timeout=20) == ["meanwhile", "last"]
        assert world.done == {"meanwhile": 1}


@pytest.mark.parametrize("seed", range(3))
def test_on_every_store(store_url: str, seed: int) -> None:
    branches = [["step", "ask", "step"], ["task", "sleep", ["tasks", [["step", "step"], ["ask"]]]], ["step"] * 4]
    check(store_url, branches, "gather", [seed * 3, seed], seed, None)
