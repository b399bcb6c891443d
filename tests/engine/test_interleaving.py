"""Several operations at once on one held handle, cancelled and interrupted ones, and several rollbacks in one claim."""

import asyncio
from collections.abc import Callable

import pytest

import holdfast
from holdfast import AsyncRun, Holdfast, UsageError
from holdfast.errors import LeaseLost, StoreFull
from holdfast.testing.contract_author import delete

undone: list[str] = []


def act(name: str) -> str:
    return name


def take_back(result: str, name: str) -> None:
    undone.append(name)


def test_two_rollbacks_in_one_claim_leave_the_state_as_it_was_saved(hf: Holdfast) -> None:
    run, big = hf.run("run"), "x" * 500
    with run.claim():
        first = run.save({"big": big, "l": [1, 2]})
        run.save({"big": big, "l": [0, 1, 2], "gone": 1})
        run.rollback(to=first)
        second = run.save({"big": big, "l": [1, 2], "c": 1})
        run.save({"big": big, "l": [1, 2], "c": 1, "d": 2})
        run.rollback(to=second)
        run.save({"big": big, "l": [0, 1], "c": 1})
    assert hf.get("run").checkpoint().state == {"big": big, "l": [0, 1], "c": 1}
    run.audit()


def test_answers_at_once_on_a_held_run(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            one = await run.pause("one", output_key="a")
            two = await run.pause("two", output_key="b")
            async with run.claim():
                await asyncio.gather(run.answer(1, question=one.id), run.answer(2, question=two.id))
            assert [entry.kind for entry in await run.history()] == [
                "created",
                "asked",
                "asked",
                "answered",
                "answered",
            ]
            assert (await run.checkpoint()).answers == {"a": 1, "b": 2}

    asyncio.run(main())


def test_a_step_whose_wait_was_cancelled_is_not_run_again(store_url: str) -> None:
    calls: list[int] = []

    def count() -> int:
        calls.append(1)
        return len(calls)

    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                task = asyncio.create_task(run.once("k", count))
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await run.once("k", count) == 1
            assert [entry.kind for entry in await run.history()] == ["created", "done"]

    asyncio.run(main())
    assert calls == [1]


def test_nothing_is_rolled_back_while_a_step_is_running(store_url: str) -> None:
    async def slow(name: str) -> str:
        await asyncio.sleep(0.05)
        return name

    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                start = await run.save(1)
                task = asyncio.create_task(run.once("k", slow, "X", undo=take_back))
                await asyncio.sleep(0.01)
                with pytest.raises(UsageError, match="while a step is running: k"):
                    await run.rollback(to=start)
                await task
                await run.rollback(to=start)
                assert undone.pop() == "X"

    asyncio.run(main())


def test_two_rollbacks_at_once_undo_once(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                await run.once("k", act, "Y", undo=take_back)
                await asyncio.gather(run.rollback(0), run.rollback(0), return_exceptions=True)

    asyncio.run(main())
    assert undone == ["Y"]
    undone.clear()


def test_marks_at_once_count_once(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                assert sorted(await asyncio.gather(run.mark("k", "t"), run.mark("k", "t"))) == [False, True]
            assert len(await run.effects()) == 1

    asyncio.run(main())


@pytest.mark.parametrize("ticks", range(12))
def test_a_cancelled_operation_does_not_keep_the_run(store_url: str, ticks: int) -> None:
    async def work(run: AsyncRun) -> None:
        async with run.claim():
            await run.save(1)

    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            for operation in (work(run), run.save(2), run.once("k", act, "Z", target="z")):
                task = asyncio.ensure_future(operation)
                for _ in range(ticks):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                async with run.claim():
                    pass

    asyncio.run(main())


def test_a_step_is_not_called_under_a_lease_that_is_lost(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    calls: list[int] = []
    run = hf.run("run")
    run.claim()
    hf.client.store.beat(hf.client.engine.worker.name, 0)
    with opened().run("run").claim():
        with pytest.raises(LeaseLost):
            run.save(1)
        with pytest.raises(LeaseLost):
            run.once("k", calls.append, 1)
    assert calls == []


def test_a_write_after_the_claim_was_given_up_inside_of_its_block(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():
        run.pause("Send it?")
        with pytest.raises(UsageError, match="given up inside of this block"):
            run.once("send", print, "sent without approval")
    run.save("after the block it may be claimed again")
    assert [question.prompt for question in run.questions()] == ["Send it?"]


def test_an_erased_past_does_not_stop_the_run(hf: Holdfast) -> None:
    run, big = hf.run("run"), "x" * 500
    first = run.save({"big": big, "secret": 1})
    second = run.save({"big": big, "n": 1})
    run.redact(first)
    run.rollback(to=second)
    run.save({"new": 1})
    assert run.checkpoint().state == {"new": 1}


def test_a_result_that_did_not_last_is_not_given(store_url: str) -> None:
    calls: list[int] = []

    def count() -> int:
        calls.append(1)
        return len(calls)

    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.run("run")
            async with run.claim():
                apply = hf.client.store.apply

                def full(batch: object) -> list[object]:
                    hf.client.store.apply = apply  # type: ignore[method-assign]
                    raise StoreFull(hf.client.store.place)

                hf.client.store.apply = full  # type: ignore[assignment,method-assign]
                task = asyncio.create_task(run.once("k", count))
                while not calls:
                    await asyncio.sleep(0)
                task.cancel()
                assert await run.once("k", count) == 2  # at once: nobody knows yet how the first one went
                await asyncio.gather(task, return_exceptions=True)
            assert [entry.kind for entry in await run.history()] == ["created", "done"]

    asyncio.run(main())


def test_a_holder_whose_run_was_deleted_since_has_lost_it(hf: Holdfast) -> None:
    """Also where what was saved last has to be read first: it is not damaged, and not merely gone."""
    run = hf.run("deleted")
    run.save({"n": 1})
    with run.claim():
        assert run.held.lease is not None
        hf.client.store.beat(run.held.lease.record.worker or "", 0)
        delete(hf.client.store, run.uid)
        with pytest.raises(LeaseLost):
            run.save({"n": 2})
