"""Several tasks wait for the same commits, and each of them goes on when they are made."""

import asyncio
import threading
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, step, workflow
from holdfast.engine.app import AsyncHoldfast
from holdfast.errors import StoreFull


@step
async def same(x: int) -> int:
    return x


@workflow(name="waiting-together")
async def many(n: int) -> int:
    return sum([await same(x) for x in range(n)])


def test_what_a_step_gives_is_lasting_when_the_workflow_gets_it(hf: Holdfast) -> None:
    seen: list[int] = []

    def look() -> None:
        [info] = hf.runs(workflow=look_each_time.name)
        seen.append(info.seq)

    @step
    def plain(x: int) -> int:
        return x

    @workflow(name="look-each-time")
    def look_each_time() -> None:
        for n in range(3):
            plain(n)
            look()

    hf.start(look_each_time)
    assert seen == [1, 2, 3]


def test_what_an_async_step_gives_is_lasting_when_the_workflow_gets_it(store_url: str) -> None:
    seen: list[int] = []

    async def main() -> None:
        async with holdfast.open(store_url) as hf:

            @workflow(name="look-each-time-async")
            async def look_each_time() -> None:
                for n in range(3):
                    await same(n)
                    [info] = await hf.runs(workflow="look-each-time-async")
                    seen.append(info.seq)

            await hf.start(look_each_time)

    asyncio.run(main())
    assert seen == [1, 2, 3]


def test_two_tasks_on_one_handle_both_go_on(store_url: str) -> None:
    """What one of them decides is built on what the other has submitted, so both wait for the same write."""

    async def steps(run: Any, name: str) -> None:
        for n in range(60):
            assert await run.once(f"{name}{n}", len, "abc") == 3

    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            runs = [await hf.run(f"run-{n}") for n in range(6)]
            for run in runs:
                await run.claim()
            crowd = [steps(run, name) for run in runs for name in ("a", "b")]
            await asyncio.wait_for(asyncio.gather(*crowd), 20)
            assert len(await runs[0].history(limit=1000)) == 121

    asyncio.run(main())


def test_a_lone_task_leaves_turns_to_the_others(store_url: str) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            task = asyncio.create_task(other())
            assert await (await hf.start(many, 2000)).result() == sum(range(2000))
            task.cancel()

    asyncio.run(main())
    assert turns > 10


def test_runs_of_several_loops_share_commits(store_url: str) -> None:
    results: list[int] = []

    async def drive(hf: AsyncHoldfast) -> None:
        runs = await asyncio.gather(*(hf.start(many, 20) for _ in range(5)))
        results.extend([await run.result() for run in runs])

    with holdfast.open(store_url) as hf:
        threads = [
            threading.Thread(target=lambda: asyncio.run(drive(AsyncHoldfast(hf.client.engine)))) for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert results == [sum(range(20))] * 10


def test_a_commit_that_fails_is_told_to_all_who_wait(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            runs = [await hf.run(f"run-{n}") for n in range(5)]
            for run in runs:
                await run.claim()

            def full(batch: object) -> list[object]:
                raise StoreFull(hf.client.store.place)

            with monkeypatch.context() as patch:
                patch.setattr(hf.client.store, "apply", full)
                told = await asyncio.gather(*(run.save(1) for run in runs), return_exceptions=True)
            assert [type(error) for error in told] == [StoreFull] * 5
            assert [await run.save(2) for run in runs] == [1] * 5

    asyncio.run(main())
