"""Async workflows: driven by any kind of caller, paused when they are quiet and not before, and taken apart cleanly."""

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import holdfast
from holdfast import AsyncHoldfast, Holdfast, Status, ask, receive, sleep, step, workflow
from holdfast.errors import UsageError

ran: list[Any] = []
shared = asyncio.Event()


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


def within(seconds: float, coroutine: Any) -> Any:
    """Run it, and fail rather than hang; no task may be left, and nobody may complain."""
    complaints: list[Any] = []

    async def main() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(seconds):
            result = await coroutine
        for _ in range(100):
            if (left := asyncio.all_tasks() - {asyncio.current_task()}) == set():
                break
            await asyncio.sleep(0.01)  # a commit may still be coming back from its thread
        assert not left
        return result

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = asyncio.run(main())
        gc.collect()
    assert complaints == []
    return result


def on(url: str, work: Callable[[AsyncHoldfast], Any], seconds: float = 20) -> Any:
    """Do something with the store, open for async code."""

    async def main() -> Any:
        async with holdfast.open(url) as hf:
            return await work(hf)

    return within(seconds, main())


@step
async def fetch(name: str, seconds: float = 0.0) -> str:
    ran.append(name)
    await asyncio.sleep(seconds)
    return name.upper()


@step
def work(name: str, seconds: float = 0.0) -> str:
    ran.append(name)
    time.sleep(seconds)
    return name.upper()


# --- who drives


@workflow
async def approve(name: str) -> str:
    fetched = await fetch(name)
    answer = await ask("Go on?", bool)
    return f"{fetched} {answer} {await fetch('end')}"


def test_an_async_workflow_from_start_to_result(store_url: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        run = await hf.start(approve, "a", id="r")
        assert run.status is Status.WAITING
        assert ran == ["a"]
        await run.answer(True)
        assert await run.result() == "A True END"
        assert await (await hf.start(approve, "a", id="r")).result() == "A True END"
        assert ran == ["a", "end"]

    on(store_url, main)


def test_an_async_workflow_from_sync_code(hf: Holdfast) -> None:
    run = hf.start(approve, "a")
    assert run.status is Status.WAITING
    run.answer(False)
    assert run.result() == "A False END"


def test_an_async_workflow_from_sync_code_in_a_running_loop_is_refused_and_stays_resumable(hf: Holdfast) -> None:
    async def main() -> None:
        with pytest.raises(UsageError, match=r"workflow approve is async.*async with holdfast.open"):
            hf.start(approve, "a", id="r")

    within(20, main())
    run = hf.start(approve, "a", id="r")
    run.answer(True)
    assert run.result() == "A True END"


@workflow
def slow() -> str:
    return work("slow", 0.15)


def test_a_sync_workflow_started_by_async_code_does_not_block_the_loop(store_url: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        started = asyncio.create_task(hf.start(slow))
        rounds = 0
        while not started.done():
            await asyncio.sleep(0.005)
            rounds += 1
        assert rounds > 3
        assert await (await started).result() == "SLOW"

    on(store_url, main)


@workflow
async def mixed() -> list[str]:
    here = work("here")
    threads = await asyncio.gather(asyncio.to_thread(work, "t1", 0.01), asyncio.to_thread(work, "t2"))
    await ask("Go on?")
    return [here, *threads, *await asyncio.gather(branch_of_sync("a"), branch_of_sync("b"))]


async def branch_of_sync(name: str) -> str:
    return work(name) + await fetch(name + "!") + work(name + "?")


def test_sync_steps_in_an_async_workflow_work_on_the_loop_in_threads_and_in_branches(store_url: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        run = await hf.start(mixed)
        await run.answer("yes")
        assert await run.result() == ["HERE", "T1", "T2", "AA!A?", "BB!B?"]
        assert sorted(ran) == sorted(["here", "t1", "t2", "a", "a!", "a?", "b", "b!", "b?"])
        fork = await run.fork()
        await fork.resume()
        assert await fork.result() == ["HERE", "T1", "T2", "AA!A?", "BB!B?"]
        assert len(ran) == 9

    on(store_url, main)


@workflow
async def asks_in_a_thread(what: str) -> str:
    acts: dict[str, Callable[[], Any]] = {
        "ask": lambda: ask("Well?"),
        "sleep": lambda: sleep(1),
        "step": lambda: asyncio.run(_awaiting("x")),
        "gather": lambda: holdfast.gather(lambda: 1),
    }
    try:
        await asyncio.to_thread(acts[what])
    except UsageError as error:
        return str(error)
    return "no error"


async def _awaiting(name: str) -> str:
    return await fetch(name)


@pytest.mark.parametrize("what", ["ask", "sleep", "step", "gather"])
def test_what_must_be_awaited_is_refused_in_a_thread_of_an_async_workflow(what: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        text = await (await hf.start(asks_in_a_thread, what)).result()
        assert "thread" in text
        assert "asks_in_a_thread" in text
        assert "await it in the workflow itself" in text

    on("memory://", main)


@workflow
async def loses_its_context() -> list[str]:
    told: list[str] = []

    def call() -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            work("lost")
        told.extend(str(one.message) for one in caught)

    thread = threading.Thread(target=call)
    thread.start()
    await asyncio.to_thread(thread.join)
    return told


def test_a_step_in_a_plain_thread_that_lost_its_run_warns() -> None:
    async def main(hf: AsyncHoldfast) -> None:
        [told] = await (await hf.start(loses_its_context)).result()
        assert "step work" in told
        assert "plain thread" in told
        assert "holdfast.gather" in told

    on("memory://", main)


def test_two_loops_and_a_thread_drive_runs_of_one_store_at_once(hf: Holdfast) -> None:
    results: dict[str, Any] = {}

    def drive(name: str) -> None:
        run = hf.start(approve, name)
        run.answer(True)
        results[name] = run.result()

    threads = [threading.Thread(target=drive, args=(f"n{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == {f"n{n}": f"N{n} True END" for n in range(6)}


@workflow
async def busy(n: int) -> int:
    await asyncio.gather(fetch(f"{n}a", 0.001), fetch(f"{n}b"))
    await sleep(0.01)
    return len(await fetch(f"{n}c"))


def test_two_hundred_runs_at_once_on_one_loop(store_url: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        runs = await asyncio.gather(*(hf.start(busy, n) for n in range(200)))
        assert [await run.result() for run in runs] == [len(f"{n}c") for n in range(200)]

    on(store_url, main, 60)


# --- cancelling whoever waits


@workflow
async def long() -> str:
    await asyncio.gather(fetch("a", 60), fetch("b", 0))
    return "never"


@pytest.mark.parametrize("which", ["start", "result"])
def test_cancelling_the_awaiting_task_gives_up_the_lease_and_the_run_can_go_on(store_url: str, which: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        if which == "start":
            waiting = asyncio.create_task(hf.start(long, id="r"))
        else:
            run = await hf.enqueue(long, id="r")
            run.held.adopted = True
            waiting = asyncio.create_task(run.result())
        while "b" not in ran:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        async with holdfast.open(store_url) as other:
            run = await other.run("r")
            assert run.status is Status.READY
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run.resume(), 0.1)
        assert ran == ["a", "b", "a"]

    on(store_url, main)


# --- quiet, and not before


async def one_asks(done: asyncio.Event | None = None) -> Any:
    answer = await ask("Well?")
    if done is not None:
        done.set()
    return answer


async def feeds(inbox: asyncio.Queue[str]) -> None:
    inbox.put_nowait(await one_asks())


async def numbers(inbox: asyncio.Queue[str]) -> AsyncIterator[str]:
    while True:
        yield await inbox.get()


@workflow
async def peers(how: str) -> Any:
    match how:
        case "gather":
            return await asyncio.gather(asyncio.gather(one_asks()), asyncio.gather(fetch("x")))
        case "group":
            async with asyncio.TaskGroup() as group:
                task = group.create_task(one_asks())
                group.create_task(fetch("x", 0.02))
            return task.result()
        case "shield":
            return await asyncio.shield(asyncio.gather(asyncio.shield(one_asks())))
        case "wait":
            [done], _ = await asyncio.wait([asyncio.create_task(one_asks())])
            return done.result()
        case "event after a step":
            event = asyncio.Event()
            task = asyncio.create_task(one_asks(event))
            await fetch("x", 0.02)
            await event.wait()
            return await task
        case "lock":
            lock = asyncio.Lock()
            return await asyncio.gather(locked(lock), locked(lock))
        case "semaphore":
            slots = asyncio.Semaphore(1)
            return await asyncio.gather(locked(slots), locked(slots))
        case "queue in a generator":
            inbox: asyncio.Queue[str] = asyncio.Queue()
            feeding = asyncio.create_task(feeds(inbox))
            async for got in numbers(inbox):
                await feeding
                return got
        case "condition":
            condition = asyncio.Condition()
            task = asyncio.create_task(one_asks())
            task.add_done_callback(lambda _: asyncio.ensure_future(notify(condition)))
            async with condition:
                await condition.wait()
            return await task


async def locked(lock: Any) -> Any:
    async with lock:
        return await ask("Well?")


async def notify(condition: asyncio.Condition) -> None:
    async with condition:
        condition.notify_all()


HOWS = ["gather", "group", "shield", "wait", "event after a step", "lock", "semaphore", "queue in a generator"]


@pytest.mark.parametrize("how", [*HOWS, "condition"])
def test_waiting_for_a_peer_that_waits_gives_up_the_lease(how: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        run = await hf.start(peers, how)
        while run.status is Status.WAITING:
            for question in await run.questions():
                await run.answer("yes", question=question)
            await run.resume()
        assert "yes" in str(await run.result())

    on("memory://", main)


@workflow
async def outside(how: str) -> Any:
    asking = asyncio.create_task(one_asks())
    match how:
        case "asyncio.sleep":
            await asyncio.sleep(0.15)
        case "a thread":
            await asyncio.to_thread(time.sleep, 0.15)
        case "wait for a thread":
            await asyncio.wait([asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.15)])
        case "gather with a thread":
            await asyncio.gather(asyncio.sleep(0), asyncio.get_running_loop().run_in_executor(None, time.sleep, 0.15))
        case "a step":
            await fetch("x", 0.15)
        case "an event of others":
            await shared.wait()
        case "a short sleep":
            await sleep(0.15)
    await fetch("after")
    return await asking


@pytest.mark.parametrize(
    "how",
    [
        "asyncio.sleep",
        "a thread",
        "wait for a thread",
        "gather with a thread",
        "a step",
        "an event of others",
        "a short sleep",
    ],
)
def test_a_branch_that_is_busy_outside_keeps_the_run_going(how: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        shared.clear()
        asyncio.get_running_loop().call_later(0.15, shared.set)
        run = await hf.start(outside, how)
        assert "after" in ran, "the run was given up while there was something to do"
        assert run.status is Status.WAITING
        await run.answer("yes")
        assert await run.result() == "yes"

    on("memory://", main)


# --- taken apart


@asynccontextmanager
async def guarded() -> AsyncIterator[None]:
    try:
        yield
    finally:
        ran.append("cleaned")
        await fetch("never, in the context manager")


@workflow
async def unwinds(how: str) -> Any:
    match how:
        case "finally":
            try:
                await asyncio.gather(one_asks(), one_asks())
            finally:
                ran.append("cleaned")
                await asyncio.gather(fetch("never"), holdfast.gather(fetch_later(), limit=1))
        case "except":
            try:
                await ask("Well?")
            except BaseException:
                ran.append("cleaned")
                work("never")
        case "collected":
            got = await asyncio.gather(one_asks(), receive("t"), return_exceptions=True)
            await fetch("end" if "yes" in got else "never")
            ran.append("cleaned")
        case "shield":
            with_shield = asyncio.create_task(stubborn())
            await asyncio.shield(with_shield)
        case "context manager":
            async with guarded():
                await one_asks()
        case "limit":
            await holdfast.gather(one_asks(), fetch_later(), fetch_later(), limit=1)
    return "end"


async def fetch_later() -> str:
    return await fetch("later")


async def stubborn() -> None:
    for _ in range(3):
        try:
            await asyncio.shield(one_asks())
        except asyncio.CancelledError:
            ran.append("cleaned")
            await fetch("never")


@pytest.mark.parametrize("how", ["finally", "except", "collected", "shield", "context manager", "limit"])
def test_taking_a_run_apart_does_no_durable_harm(store_url: str, how: str) -> None:
    async def main(hf: AsyncHoldfast) -> None:
        run = await hf.start(unwinds, how)
        assert run.status is Status.WAITING
        before = len((await run.history()).items)
        await asyncio.sleep(0.03)
        assert len((await run.history()).items) == before
        assert not [name for name in ran if name.startswith("never")]
        assert len(await run.questions()) == (2 if how == "finally" else 1)

    on(store_url, main)


@workflow
async def forgets() -> str:
    failing = asyncio.create_task(boom())
    await fetch("a", 0.01)
    await ask("Well?")
    del failing
    return "done"


async def boom() -> None:
    await fetch("b")
    raise ValueError("nobody looks at this")


def test_an_error_that_nobody_retrieves_makes_no_noise() -> None:
    async def main(hf: AsyncHoldfast) -> None:
        run = await hf.start(forgets)
        await run.answer("yes")
        assert await run.result() == "done"

    on("memory://", main)
