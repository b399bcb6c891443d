"""On an event loop, nothing waits for the database: every call of the store is made in another thread."""

import asyncio
import threading
import time
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict, cast

import pytest

import holdfast
from holdfast import Graph, append, ask, emit, gather, note, now, patched, random, sleep, step, uuid, workflow
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.offload import aside
from holdfast.engine.access.operations import Call, Read
from holdfast.engine.control import edit
from holdfast.engine.workflow.waiting import wait
from holdfast.kernel.clock import SystemClock
from holdfast.stores.postgres.connections import Link
from holdfast.stores.postgres.store import PostgresStore


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Where a call was made on a loop."""
    found: list[str] = []
    call = Link.call

    def watched(self: Link, act: Any, **how: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            found.append("".join(traceback.format_stack(limit=9)))
        return call(self, act, **how)

    monkeypatch.setattr(Link, "call", watched)
    yield found
    assert not found, "\n".join(sorted(set(found)))


@step(target="{n}")
async def act(n: int) -> int:
    return n


@act.undo
async def unact(result: int, n: int) -> None: ...


@step
async def plain(n: int) -> int:
    return n


@step(at_most_once=True)
async def once(n: int) -> int:
    return n


@workflow
async def child(n: int) -> int:
    return await plain(n)


@workflow
async def everything(n: int) -> int:
    await act(n)
    found = await gather(plain(1), plain(2), child(3))
    await once(1)
    emit(uuid())
    note("so far so good")
    assert patched("new way")
    assert now().tzinfo is not None
    assert 0 <= random() < 1
    await sleep(0.01)
    said = await ask("how many?", int)
    return sum(found) + int(said)


@workflow
async def waits() -> int:
    return int(await ask("how many?", int))


def test_nothing_of_the_engine_blocks_the_loop(postgres_url: str, blocked: list[str]) -> None:
    async def main() -> None:
        async with holdfast.open(postgres_url) as hf:
            blocked.clear()  # opening waits for the server, as it does for a file
            run = await hf.start(everything, 1, id="run")
            working = asyncio.create_task(hf.work(queues=["default"]))
            queued = await hf.enqueue(waits)
            for one in (run, queued):
                while not await one.questions():
                    await asyncio.sleep(0.02)
                await one.answer(7)
            assert await run.result(timeout=20) == 13
            assert await queued.result(timeout=20) == 7
            assert len([value async for value in run.follow()]) == 1
            cancelled = await hf.enqueue(waits)
            await cancelled.cancel()
            fork = await run.fork(at=1)
            assert (await fork.checkpoint()).seq >= 1
            await run.rollback(0)
            await hf.runs()
            await run.history()
            hand = await hf.run("by hand")
            async with hand.claim():
                await hand.save({"n": 1})
                await hand.once("k", plain.function, 1)
            await hand.audit()
            await hf.recover()
            await hand.delete()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_what_was_asked_is_answered_also_to_who_is_cancelled(store: PostgresStore) -> None:
    """A claim that was made must become known, so the cancellation comes at the next wait."""
    asked, answer = threading.Event(), threading.Event()
    seen: list[object] = []

    def claim() -> str:
        asked.set()
        answer.wait(10)
        return "claimed"

    async def caller() -> None:
        seen.append(await aside(store, claim))
        await asyncio.sleep(0)
        seen.append("not reached")

    async def main() -> None:
        task = asyncio.create_task(caller())
        while not asked.is_set():
            await asyncio.sleep(0.01)
        task.cancel("enough")
        await asyncio.sleep(0.01)
        assert seen == []
        answer.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(main())
    assert seen == ["claimed"]


def test_a_timeout_around_it_stays_a_timeout(store: PostgresStore) -> None:
    answer = threading.Event()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                asyncio.get_running_loop().call_later(0.05, answer.set)
                await aside(store, lambda: answer.wait(10))
                await asyncio.sleep(5)

    asyncio.run(main())


def test_what_comes_while_the_store_is_asked_is_not_slept_through() -> None:
    """The store was asked whether a child has ended, which it had not; it did before the answer came."""
    execution: Any = SimpleNamespace(
        stirs=0, workflow=SimpleNamespace(is_async=True), clock=SystemClock(), suspend=lambda *_: None
    )
    ended: list[bool] = []
    waiting = wait(execution, cast(Any, None), "key", None, lambda: bool(ended), lambda: None)
    assert isinstance(next(waiting), Read)
    execution.stirs += 1
    assert isinstance(waiting.send(None), Read)  # and does not wait to be woken once more
    assert isinstance(waiting.send(None), Call)
    ended.append(True)
    assert isinstance(waiting.send(None), Read)
    with pytest.raises(StopIteration) as over:
        waiting.send(None)
    assert over.value.value is True


# --- in the order of the calls, though threads make them


@pytest.fixture
def first_save_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is held up in its thread, before it has the lock: others could overtake it."""
    save = Lease.save

    def late(lease: Lease, tree: Any, **how: Any) -> Any:
        if tree["state"] == 0:
            time.sleep(0.1)
        return save(lease, tree, **how)

    monkeypatch.setattr(Lease, "save", late)


@pytest.mark.usefixtures("first_save_is_late")
def test_saves_are_numbered_in_the_order_of_their_calls(postgres_url: str) -> None:
    async def main() -> list[int]:
        async with holdfast.open(postgres_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                return await asyncio.gather(*(run.save(n) for n in range(8)))

    assert asyncio.run(main()) == list(range(1, 9))


@pytest.mark.usefixtures("first_save_is_late")
def test_a_step_that_is_called_after_a_save_is_written_after_it(postgres_url: str) -> None:
    async def main() -> list[str]:
        async with holdfast.open(postgres_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                await asyncio.gather(run.save(0), run.once("step", str.upper, "a"))
            return [entry.kind for entry in await run.history()]

    assert asyncio.run(main()) == ["created", "saved", "done"]


def test_the_loop_does_not_wait_for_somebody_who_reads_under_the_lock(postgres_url: str) -> None:
    held, goes_on = threading.Event(), threading.Event()
    in_time: list[bool] = []

    def hold(lease: Lease) -> None:
        with lease.lock:
            held.set()
            in_time.append(goes_on.wait(20))

    async def main() -> None:
        async with holdfast.open(postgres_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                await run.save(1)
                assert run.held.lease is not None
                thread = threading.Thread(target=hold, args=(run.held.lease,))
                thread.start()
                held.wait(20)
                saving = asyncio.create_task(run.save(2))
                for _ in range(5):
                    await asyncio.sleep(0.01)
                goes_on.set()
                await saving
                thread.join()

    asyncio.run(main())
    assert in_time == [True]


class Talk(TypedDict):
    said: Annotated[list[str], append]


def test_an_edit_follows_the_state_that_it_was_made_for(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two at once, the second is not made for the state before the first."""
    graph = Graph(Talk, name="talk in order")
    graph.node(lambda state: {"said": ["hello"]}, name="greet")
    graph.entry("greet")
    edited = edit._edited

    def slowly(*args: Any) -> Any:
        made = edited(*args)
        time.sleep(0.05)
        return made

    monkeypatch.setattr(edit, "_edited", slowly)

    async def main() -> Any:
        async with holdfast.open(postgres_url) as hf:
            run = await hf.start(graph, {"said": []}, id="run")
            await run.result()
            fork = await run.fork(at=1, id="fork")
            async with fork.claim():
                await asyncio.gather(fork.edit({"said": ["a"]}), fork.edit({"said": ["b"]}))
            return (await fork.checkpoint()).state

    assert asyncio.run(main())["said"] == ["a", "b"]
