"""A process that was stopped for longer than its lease, between two steps, while another one went on with the run.

What it would write is refused in any case. Here it does not even execute a step that the other one has completed.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, step, workflow
from holdfast.errors import LeaseLost
from holdfast.stores import open_store
from holdfast.testing import ManualClock

Opener = Callable[..., Holdfast]
LEASE = 10
acts: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    acts.clear()


@pytest.fixture(params=["first-step", "late-heartbeat"])
def stopped(request: pytest.FixtureRequest, timed: Opener, clock: ManualClock) -> Callable[[Holdfast], Holdfast]:
    """Stops a handle's process for longer than its lease; what wakes first is its next step, or its heartbeat.

    Gives a handle of another process, which may claim what the first one holds.
    """

    def stop(zombie: Holdfast, meanwhile: Callable[[Holdfast], None]) -> None:
        clock.advance(LEASE + 1)
        meanwhile(timed(lease=LEASE))
        if request.param == "late-heartbeat":
            zombie.client.engine.worker.keep()

    return stop


@step
def plain(what: str) -> str:
    acts.append(what)
    return what


@step(timeout=30)
def limited(what: str) -> str:
    acts.append(what)
    return what


@step
async def awaited(what: str) -> str:
    acts.append(what)
    return what


@step(target="{what}")
def meant(what: str) -> str:
    acts.append(what)
    return what


def finish(other: Holdfast) -> None:
    """What another process does with the run."""
    run = other.get("run")
    run.resume()
    assert run.result(timeout=20) == "done"


@pytest.mark.parametrize("second", [plain, limited, meant], ids=["short", "with-a-timeout", "with-an-intent"])
def test_a_step_that_another_process_completed_is_not_executed(timed: Opener, stopped: Any, second: Any) -> None:
    zombie = timed(lease=LEASE)
    woken: list[bool] = []

    @workflow
    def flow() -> str:
        plain("first")
        if not woken:
            woken.append(True)
            stopped(zombie, finish)
        second("second")
        return "done"

    zombie.start(flow, id="run")
    assert acts == ["first", "second"]
    assert zombie.get("run").result(timeout=20) == "done"


def test_the_same_in_an_async_workflow(store_url: str, clock: ManualClock, stopped: Any) -> None:
    woken: list[bool] = []

    async def main() -> None:
        store = open_store(store_url, clock=clock)
        async with holdfast.open(store_url, store=store, lease=LEASE) as zombie:

            @workflow
            async def flow() -> str:
                await awaited("first")
                if not woken:
                    woken.append(True)
                    await asyncio.to_thread(stopped, zombie, finish)
                await awaited("second")
                return "done"

            await zombie.start(flow, id="run")
            assert acts == ["first", "second"]
            assert await (await zombie.get("run")).result(timeout=20) == "done"

    asyncio.run(main())


@pytest.mark.parametrize("target", [None, "the door"], ids=["plain", "with-an-intent"])
def test_a_run_driven_by_hand(timed: Opener, stopped: Any, target: str | None) -> None:
    zombie = timed(lease=LEASE)
    run = zombie.run("run")
    run.claim()
    run.once("first", acts.append, "first")

    def meanwhile(other: Holdfast) -> None:
        with other.run("run").claim() as taken:
            taken.once("second", acts.append, "second", target=target)

    stopped(zombie, meanwhile)
    with pytest.raises(LeaseLost):
        run.once("second", acts.append, "second", target=target)
    assert acts == ["first", "second"]


def put_back(result: None, what: str) -> None:
    acts.append(f"undo {what}")


def test_an_undo_that_another_process_has_made(timed: Opener, stopped: Any) -> None:
    zombie = timed(lease=LEASE)
    run = zombie.run("run")
    run.claim()
    for what in ("first", "second"):
        run.once(what, acts.append, what, undo=put_back)
    store: Any = zombie.client.store
    apply = store.apply

    def apply_and_stop(batch: Any) -> Any:
        outcomes = apply(batch)
        if any(entry.kind == "undone" for write in batch for entry in write.entries):
            store.apply = apply
            stopped(zombie, lambda other: other.recover())  # which ends the rollback
        return outcomes

    store.apply = apply_and_stop
    with pytest.raises(LeaseLost):
        run.rollback(to=0)
    assert acts == ["first", "second", "undo second", "undo first"]


def test_a_lease_that_nobody_claimed_is_gone_on_with(timed: Opener, clock: ManualClock) -> None:
    zombie = timed(lease=LEASE)

    @workflow
    def flow() -> str:
        plain("first")
        clock.advance(LEASE + 1)
        plain("second")
        return "done"

    assert zombie.start(flow, id="run").result(timeout=20) == "done"
    assert acts == ["first", "second"]
    assert [one.alive for one in zombie.client.store.workers()] == [True]


def test_nothing_is_asked_while_the_heartbeat_is_in_time_and_once_after_it_was_late(
    timed: Opener, clock: ManualClock
) -> None:
    hf = timed(lease=LEASE)
    store: Any = hf.client.store
    real, asked = store.get, list[str]()
    counted: list[int] = []

    def get(id: str | None = None, *, uid: str | None = None) -> Any:
        if uid is not None:
            asked.append(uid)
        return real(id, uid=uid)

    @workflow
    def flow() -> None:
        store.get = get
        for n in range(4):
            plain(f"{n}")
            clock.set_ahead(86_400)  # which ends no lease
        counted.append(len(asked))
        clock.advance(LEASE + 1)
        for n in range(4):
            plain(f"{n}")
        counted.append(len(asked))

    hf.start(flow).result(timeout=20)
    assert (len(acts), counted) == (8, [0, 1])
