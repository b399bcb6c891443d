"""Programs of tasks by chance, killed and resumed: no finished step is executed again, and correct code is not blocked.

A program is a tree of branches. Each branch makes calls and creates tasks in all the ways that asyncio, anyio and
Holdfast have. What a step really did is counted outside of the run, by the name that it was called with.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest
from sizes import size

import holdfast
from holdfast import AsyncHoldfast, Status, ask, sleep, step, workflow

# anyio leaves the coroutine alone of a task that is cancelled before it starts.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'do' was never awaited")

Change = Callable[[list[Any]], list[Any]]  # the program as it is from now on
number = itertools.count()


class Killed(BaseException):
    """The end of a process."""


class Broken(Exception):
    """What a step of the user's raises."""


class World:
    """What is outside of the run: the chances of this test, and what was really done."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.kill_in: int | None = None
        self.kill: Callable[[], None] = lambda: None
        self.program: list[Any] = []

    def act(self, name: str) -> None:
        self.done[name] += 1
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.kill_in = None
                self.kill()


world = World(0)


@step
async def act(name: str) -> str:
    for _ in range(world.chance.choice([0, 0, 1, 3])):
        await asyncio.sleep(0)
    if world.chance.random() < 0.2:
        await asyncio.sleep(world.chance.random() * 0.003)
    world.act(name)
    return name


@step
def act_at_once(name: str) -> str:
    world.done[name] += 1
    return name


@step
async def breaks(name: str) -> str:
    await asyncio.sleep(0)
    world.act(name)
    raise Broken(name)


@step
async def hangs(name: str) -> None:
    """Never ends, so it is never recorded."""
    await asyncio.sleep(3600)


# --- programs: a branch is [name, call, call, ...], and a call is a word, or [way, branch, branch, ...]

CALLS = ["step"] * 6 + ["at once", "thread", "anyio thread", "sleep", "ask", "yield", "fails", "note", "locked"]
WAYS = ["gather", "group", "tasks", "anyio", "shield", "wait for", "gather of ours", "limit", "named"]
ENDINGS = [
    "cancelled",
    "expired",
    "expired on 3.11",
    "failing group",
    "first",
    "timeout",
    "anyio deadline",
    "forgotten",
]


# Who gets a lock is decided by who comes first, and `asyncio.wait_for` of Python 3.11 forgets that it was cancelled if
# what it waits for ends at that moment. What Holdfast gives to a branch comes in the order of the journal, but not what
# a thread or a timer of asyncio's wakes: a program has the ones or the others.
ORDERED = {"locked", "wait for"}
UNORDERED = {"thread", "anyio thread", "expired", "expired on 3.11", "anyio deadline"}


def make_branch(chance: random.Random, name: str, depth: int, without: set[str]) -> list[Any]:
    calls, ways, endings = ([word for word in words if word not in without] for words in (CALLS, WAYS, ENDINGS))
    branch: list[Any] = [name]
    for n in range(chance.randint(1, 4 if depth else 3)):
        if depth and chance.random() < 0.35:
            way = chance.choice(ways if chance.random() < 0.6 else endings)
            parts = range(chance.randint(1, 3))
            branch.append([way, *(make_branch(chance, f"{name}.{n}.{part}", depth - 1, without) for part in parts)])
        else:
            branch.append(chance.choice(calls))
    return branch


@workflow
async def program() -> str:
    await do(world.program, asyncio.Lock())
    return "through"


async def do(branch: list[Any], lock: asyncio.Lock) -> None:
    name, *calls = branch
    for n, call in enumerate(calls):
        await (do_call(call, f"{name}/{n}", lock) if isinstance(call, str) else fan(call, f"{name}/{n}", lock))


async def do_call(call: str, name: str, lock: asyncio.Lock) -> None:
    match call:
        case "at once":
            act_at_once(name)
        case "thread":
            await asyncio.to_thread(act_at_once, name)
        case "anyio thread":
            await anyio.to_thread.run_sync(partial(act_at_once, name))
        case "sleep":
            await sleep(0.002)
        case "ask":
            await ask(name, str)
        case "yield":
            await asyncio.sleep(0)
        case "note":
            holdfast.note(name)
        case "fails":
            with suppress(Broken):
                await breaks(name)
        case "locked":
            async with lock:
                await act(name)
        case _:
            await act(name)


async def fan(call: list[Any], name: str, lock: asyncio.Lock) -> None:
    way, *branches = call
    parts = [partial(do, branch, lock) for branch in branches]
    match way:
        case "gather":
            await asyncio.gather(*(part() for part in parts))
        case "group":
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(part())
        case "tasks":
            for task in [asyncio.create_task(part()) for part in parts]:
                await task
        case "named":
            named = zip(parts, branches, strict=True)
            for task in [asyncio.create_task(part(), name=branch[0]) for part, branch in named]:
                await task
        case "anyio":
            async with anyio.create_task_group() as tasks:
                for part in parts:
                    tasks.start_soon(part)
        case "shield":
            await asyncio.gather(*(asyncio.shield(part()) for part in parts))
        case "wait for":
            for part in parts:
                await asyncio.wait_for(part(), 3600)
        case "gather of ours":
            await holdfast.gather(*(part() for part in parts))
        case "limit":
            await holdfast.gather(*(part() for part in parts), limit=2)
        case _:
            await end_early(way, parts, name)


async def end_early(way: str, parts: list[Any], name: str) -> None:
    """Branches of which not all come to their end."""
    match way:
        case "cancelled":
            tasks = [asyncio.create_task(part()) for part in parts]
            await act(f"{name} before")
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        case "forgotten":
            tasks = [asyncio.create_task(part()) for part in parts]
            await act(f"{name} before")
            tasks[0].cancel()
        case "expired":
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await hangs(name)
            await asyncio.gather(*(part() for part in parts))
        case "expired on 3.11":
            with suppress(TimeoutError):
                await asyncio.wait_for(hangs(name), 0.01)
            await asyncio.gather(*(part() for part in parts))
        case "anyio deadline":
            with anyio.move_on_after(0.01):
                await hangs(name)
            await asyncio.gather(*(part() for part in parts))
        case "failing group":
            with suppress(BaseExceptionGroup):
                async with asyncio.TaskGroup() as group:
                    for part in parts:
                        group.create_task(part())
                    group.create_task(breaks(f"{name} breaks"))
        case "first":
            await holdfast.first(*parts, partial(act, f"{name} beside"))
        case _:
            with suppress(holdfast.TimedOut):
                await holdfast.timeout(0.02, holdfast.gather(*(part() for part in parts)))
    await act(f"{name} after")


# --- driving them


async def finish(hf: AsyncHoldfast, kills: list[int], change: Change | None) -> dict[str, int]:
    """Execute the run to its end, killed again and again. With ``change``, other code is tried in between.

    Returns how often the run was blocked, and how often other code came through.
    """
    original, counts = world.program, Counter[str]()
    recorded: set[str] = set()
    run = None
    for turn in itertools.count():
        assert turn < 200
        has_changed = change is not None and run is not None and world.chance.random() < 0.7
        world.program = change(original) if has_changed and change is not None else original
        recorded |= await names_of(run) if run is not None else set()
        before = Counter(world.done)
        await execute(hf, kills.pop() if kills else None)
        run = await hf.run("r")
        again = {name for name in recorded if world.done[name] > before[name]}
        assert not again, f"executed again: {again}"
        if run.status is Status.BLOCKED:
            if not has_changed:  # what other code came through with may be loose in one execution, and not in another
                assert counts["changed"], (await run.info()).reason
                return dict(counts)
            assert world.done == before, "something was executed"
            counts["blocked"] += 1
            await run.unblock()
            continue
        counts["changed"] += has_changed
        original = world.program  # the code that the journal has been written by since
        if run.status is Status.COMPLETED:
            return dict(counts)
        assert run.status in (Status.READY, Status.WAITING), (run.status, await run.info())
        questions = list(await run.questions())
        for question in world.chance.sample(questions, world.chance.randint(min(1, len(questions)), len(questions))):
            await run.answer("yes", question=question)
    raise AssertionError


async def names_of(run: Any) -> set[str]:
    """The names that recorded steps were called with: what each of them gave."""
    from holdfast.engine.access.operations import drive_async

    fold = await drive_async(run.held.seen(), run.held.committer)
    failed = {found.failure["message"] for key, found in fold.failures.items() if "breaks#" in key}
    return {found.result for key, found in fold.steps.items() if "act#" in key or "act_at_once#" in key} | failed


async def execute(hf: AsyncHoldfast, kill_in: int | None) -> None:
    world.kill_in = kill_in
    driven = asyncio.create_task(hf.start(program, id="r"))

    def raise_it() -> None:
        raise Killed

    world.kill = world.chance.choice([driven.cancel, raise_it])
    await asyncio.wait({driven})
    world.kill_in = None
    error = None if driven.cancelled() else driven.exception()
    assert error is None or isinstance(error, Killed) or _all_killed(error), repr(error)


def _all_killed(error: BaseException) -> bool:
    return isinstance(error, BaseExceptionGroup) and error.split(Killed)[1] is None


async def play(seed: int, change: Change | None = None) -> dict[str, int]:
    global world
    world = World(seed)
    # A sync step on the event loop cannot wait, so other code may execute a new one before the run is blocked.
    without = {"at once"} if change is not None else set()
    without |= UNORDERED if world.chance.random() < 0.5 else ORDERED
    world.program = make_branch(world.chance, "p", 2, without)
    kills = [world.chance.randint(0, 9) for _ in range(world.chance.randint(1, 4))]
    async with holdfast.open(f"memory://tasks-{next(number)}") as hf, asyncio.timeout(50):
        return await finish(hf, kills, change)


SEEDS = [
    *(pytest.param(range(part, size(60, 300), 4), id=str(part)) for part in range(4)),
    pytest.param(range(1000), marks=pytest.mark.torture, id="all"),
]


@pytest.mark.parametrize("seeds", SEEDS)
def test_correct_programs_are_never_blocked(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "holdfast.engine.workflow.replay_gate.LEAST", 60.0
    )  # a busy machine may take long to wake a thread
    for seed in seeds:
        asyncio.run(play(seed))


# --- other code in between


async def nothing() -> None:
    """What a tracer or a warm-up may do in a task of its own."""


def changed(branch: list[Any]) -> list[Any]:
    """The program with tasks that were inserted, removed or put in another order."""
    chance = world.chance
    name, *calls = branch
    made: list[Any] = [name]
    for call in calls:
        if isinstance(call, str):
            made.append(call)
            continue
        way, *branches = call
        branches = [changed(one) for one in branches]
        match chance.randrange(6):
            case 0:
                branches.insert(chance.randint(0, len(branches)), [f"{name} new"])
            case 1:
                branches.insert(chance.randint(0, len(branches)), [f"{name} new {next(number)}", "step", "thread"])
            case 2 if len(branches) > 1:
                branches.pop(chance.randrange(len(branches)))
            case 3:
                chance.shuffle(branches)
            case 4:
                way = chance.choice(WAYS)
            case _:
                pass
        made.append([way, *branches])
    return made


@pytest.mark.parametrize("seeds", SEEDS)
def test_other_tasks_never_execute_a_finished_step_again(seeds: range) -> None:
    blocked = came_through = 0
    for seed in seeds:
        counts = asyncio.run(play(seed, changed))
        blocked += counts.get("blocked", 0)
        came_through += counts.get("changed", 0)
    assert blocked
    assert came_through
