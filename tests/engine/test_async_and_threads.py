"""The same operations when awaited; many callers that share commits; and what cancelling does."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import AsyncHoldfast, AsyncRun, Holdfast, Run, Status
from holdfast.errors import Claimed, NonDeterminism, StoreUnusable, Uncertain, UndoFailed, UsageError

undone: list[Any] = []


async def fetch(url: str) -> str:
    await asyncio.sleep(0)
    return f"page {url}"


async def unfetch(result: str, url: str) -> None:
    await asyncio.sleep(0)
    undone.append((result, url))


def within(seconds: float, coroutine: Any) -> Any:
    """Run it, and fail rather than hang."""

    async def main() -> Any:
        async with asyncio.timeout(seconds):
            return await coroutine

    return asyncio.run(main())


# --- the same operations


def test_every_operation_is_awaited(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            assert isinstance(hf, AsyncHoldfast)
            run = await hf.run("run", workflow="w", definition=1)
            assert isinstance(run, AsyncRun)
            async with run.claim() as holding:
                assert run.epoch == holding.epoch == 1
                start = await run.save({"n": 1}, next="x")
                assert await run.once("a", fetch, "u", target="t", undo=unfetch) == "page u"
                assert await run.once("a", fetch, "u") == "page u"
                assert await run.once("sync", len, "abc") == 3
                with pytest.raises(NonDeterminism):
                    await run.once("a", fetch, "other")
                assert await run.mark("m", "tool") is True
                assert await run.is_completed("m")
                assert [effect.key for effect in await run.effects()] == ["a", "m"]
                question = await run.pause("Well?")
            assert (await run.questions()) == (question,)
            await run.answer("yes")
            async with run.claim():
                checkpoint = await run.checkpoint()
                assert (checkpoint.state, checkpoint.next) == ({"n": 1}, "x")
                assert checkpoint.answers == {"answer": "yes"}
                assert checkpoint.results == {"a": "page u", "sync": 3, "m": None}
            fork = await run.fork(at=start, id="fork")
            assert isinstance(fork, AsyncRun)
            assert (await fork.checkpoint()).state == {"n": 1}
            plan = await run.plan_rollback(start)
            assert [one.action for one in plan.steps] == ["irreversible", "undo"]
            report = await run.rollback(to=start)
            assert [effect.key for effect in report.undone] == ["a"]
            assert undone == [("page u", "u")]
            await run.redact(start)
            assert (await run.audit()).redacted == (start,)
            assert (await hf.audit("run")).run == "run"
            assert len(await run.history()) == (await run.info()).seq + 1
            await run.complete("done")
            await run.complete("again")
            await fork.fail("no")
            assert run.status is Status.COMPLETED
            assert {info.id for info in await hf.runs()} == {"run", "fork"}
            assert await hf.recover() == ()
            assert isinstance(await hf.get("run"), AsyncRun)
            assert await fork.delete() is True
            assert await hf.prune(keep_last=1) == ()

    undone.clear()
    within(20, main())


def test_a_claim_may_be_awaited_without_a_block(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            holding = await run.claim()
            assert holding.epoch == 1
            with pytest.raises(Claimed):
                await (await hf.get("run")).claim()
            await run.release()
            async with run.claim():
                pass

    within(20, main())


def test_backup_and_restore(store_url: str, memdir: Any) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            await (await hf.run("run")).save(1)
            assert await hf.backup(memdir / "backup") == 1
        async with holdfast.open("memory://") as hf:
            assert await hf.restore(memdir / "backup") == ("run",)
            run = await hf.get("run")
            await run.unblock()
            assert (await run.checkpoint()).state == 1

    within(20, main())


def test_a_coroutine_function_needs_an_async_handle(hf: Holdfast) -> None:
    """A coroutine that nobody awaits is no result."""
    run = hf.run("run")
    with pytest.raises(UsageError, match=r"fetch .* is async"):
        run.once("a", fetch, "u")
    assert not run.is_completed("a")
    assert (run.info().seq, run.status) == (0, Status.READY)


def test_an_async_undo_needs_an_async_handle(hf: Holdfast, store_url: str) -> None:
    """Otherwise an effect would be called undone that nobody undid."""
    undone.clear()
    run = hf.run("run")
    start = run.save(1)
    run.once("a", len, "abc", undo=unfetch_len)
    with pytest.raises(UndoFailed, match="is async"):
        run.rollback(to=start)
    assert undone == []

    async def main() -> None:
        async with holdfast.open(store_url) as other:
            await (await other.get("run")).rollback(to=start)

    asyncio.run(main())
    assert undone == ["abc"]


async def unfetch_len(result: int, text: str) -> None:
    undone.append(text)


def test_a_sync_and_an_async_handle_of_one_store(hf: Holdfast, store_url: str) -> None:
    run = hf.run("run")
    run.save("sync")

    async def main() -> None:
        async with holdfast.open(store_url) as other:
            theirs = await other.get("run")
            assert (await theirs.checkpoint()).state == "sync"
            with run.claim(), pytest.raises(Claimed):
                await theirs.save("x")
            await theirs.save("async")

    within(20, main())
    assert run.checkpoint().state == "async"


# --- cancelling


@pytest.mark.parametrize("ticks", range(4))
def test_cancelling_a_save_does_not_take_it_back(store_url: str, ticks: int) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            others = [await hf.run(f"other-{n}") for n in range(3)]
            async with run.claim():
                task = asyncio.create_task(run.save("cancelled"))
                crowd = [asyncio.create_task(other.save("x")) for other in others]
                for _ in range(ticks):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, *crowd, return_exceptions=True)
                after = await run.save("after")
            states = [(await run.checkpoint(seq)).state for seq in range(1, after + 1)]
            assert states[-1] == "after"
            if ticks:  # it had been submitted
                assert states == ["cancelled", "after"]
            await run.audit()

    within(20, main())


def test_cancelling_a_step_leaves_it_uncertain(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            started = asyncio.Event()

            async def charge() -> None:
                started.set()
                await asyncio.sleep(60)

            task = asyncio.create_task(run.once("charge", charge, at_most_once=True))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert run.status is Status.READY
            with pytest.raises(Uncertain):
                await run.once("charge", charge, at_most_once=True)

    within(20, main())


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("first", ["the flight", "the writers"])
def test_cancelling_everything_at_once_does_not_hang(store_url: str, begun: bool, first: str) -> None:
    """As `asyncio.run` does when the program is interrupted, with a commit in flight that the writers count on."""

    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            runs = [await hf.run(f"run-{n}") for n in range(4)]
            real, gate = hf.client.store.apply, threading.Event()
            hf.client.store.apply = lambda batch: (gate.wait(0.1), real(batch))[1]  # type: ignore[method-assign]
            saves, submit = [], hf.client.committer.submit
            hf.client.committer.submit = lambda write: (saves.append(write), submit(write))[1]  # type: ignore[method-assign]
            writers = [asyncio.create_task(run.save("x")) for run in runs]
            while not hf.client.committer._flights or len(saves) < len(writers):
                await asyncio.sleep(0)
            if begun:
                await asyncio.sleep(0.02)
            [flight] = hf.client.committer._flights.values()
            for task in (flight, *writers) if first == "the flight" else (*writers, flight):
                task.cancel()  # each writer then gives up its claim, which is one more write
            _, waiting = await asyncio.wait(writers, timeout=5)
            assert not waiting
            for run in runs:
                assert run.status is Status.READY
                assert (await run.checkpoint()).state == "x"
                await run.audit()

    within(20, main())


def test_a_loop_that_is_gone_does_not_break_the_others(hf: Holdfast) -> None:
    """It was closed with a write of its own in the queue; the next writer commits that too."""
    run, other = hf.run("run"), hf.run("other")
    run.claim()
    ticket = run.held.lease.save({"state": "left in the queue"})
    loop = asyncio.new_event_loop()
    ticket.futures = [loop.create_future()]
    loop.close()
    other.save("goes on")
    assert other.checkpoint().state == "goes on"
    assert run.checkpoint().state == "left in the queue"


# --- group commit


def test_concurrent_async_runs_share_commits(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            runs = [await hf.run(f"run-{n}") for n in range(50)]
            holdings = [await run.claim() for run in runs]
            assert len(holdings) == 50
            before = hf.client.committer.commits

            async def drive(run: AsyncRun) -> None:
                for k in range(4):
                    await run.save(k)
                    await run.once(f"step-{k}", fetch, str(k))

            await asyncio.gather(*(drive(run) for run in runs))
            commits = hf.client.committer.commits - before
            assert commits < 200  # of 400 writes
            for run in runs:
                assert (await run.checkpoint()).state == 3
                assert len((await run.checkpoint()).results) == 4
                await run.release()
            await runs[0].audit()

    within(30, main())


def test_a_lone_async_run_commits_inline(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                before = hf.client.committer.commits
                for k in range(5):
                    await run.save(k)
                assert hf.client.committer.commits - before == 5

    within(20, main())


def test_writes_of_one_run_at_the_same_time_keep_their_order(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                seqs = await asyncio.gather(*(run.save({"n": n}) for n in range(30)))
                assert seqs == list(range(1, 31))
                assert [(await run.checkpoint(seq)).state["n"] for seq in seqs] == list(range(30))
                results = await asyncio.gather(*(run.once(f"s{n}", fetch, str(n)) for n in range(30)))
                assert results == [f"page {n}" for n in range(30)]
            await run.audit()

    within(20, main())


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run it that often at the same time; an error in one of them is raised here."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(count)

    def body(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_threads_share_commits(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [hf.run(f"run-{n}") for n in range(10)]
    for run in runs:
        run.claim()
    real = hf.client.store.apply

    def slowly(batch: Any) -> Any:
        threading.Event().wait(0.002)  # as a disk is
        return real(batch)

    monkeypatch.setattr(hf.client.store, "apply", slowly)
    before = hf.client.committer.commits

    def work(number: int) -> None:
        for k in range(10):
            runs[number].save(k)

    in_threads(10, work)
    assert hf.client.committer.commits - before < 90  # of 100 writes
    for run in runs:
        assert run.checkpoint().state == 9
        run.audit()


def test_one_handle_in_many_threads(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():

        def work(number: int) -> None:
            for k in range(5):
                run.save({"n": number, "k": k})
                assert run.once(f"{number}-{k}", len, "x" * k) == k
                run.mark(f"m{number}-{k}", "tool")
                run.checkpoint()
                run.effects()
                run.history(limit=5)

        in_threads(6, work)
        assert len(run.checkpoint().completed) == 60
    assert run.audit().entries == 1 + 6 * 5 * 3
    assert run.checkpoint().step == 29


def test_one_step_in_many_threads_is_run_once(hf: Holdfast) -> None:
    run, calls, refused = hf.run("run"), [], []
    inside = threading.Event()

    def slow() -> str:
        calls.append(1)
        inside.wait(0.2)
        return "done"

    with run.claim():

        def work(number: int) -> None:
            try:
                assert run.once("step", slow) == "done"
            except UsageError as error:
                refused.append(str(error))

        in_threads(5, work)
        assert run.once("step", slow) == "done"
    assert calls == [1]
    assert all("is being run by another thread" in text for text in refused)


def test_closing_while_others_write(opened: Callable[..., Holdfast]) -> None:
    hf = opened()
    runs = [hf.run(f"run-{n}") for n in range(4)]
    acknowledged: dict[str, int] = {}
    started = threading.Barrier(5)

    def work(run: Run) -> None:
        with pytest.raises((StoreUnusable, Claimed, holdfast.errors.LeaseLost)):
            run.claim()
            started.wait()
            for k in range(100_000):
                run.save(k)
                acknowledged[run.id] = k

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    started.wait()
    threading.Event().wait(0.05)
    hf.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    again = opened()
    for id, last in acknowledged.items():
        assert again.get(id).checkpoint().state >= last
        assert again.get(id).status is Status.READY
        again.get(id).audit()
