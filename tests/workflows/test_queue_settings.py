"""What is set about queues, what is told of them, and what is refused."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, QueueInfo, workflow
from holdfast.engine.execute.start import checked_place
from holdfast.errors import StoreDamaged, UsageError
from holdfast.testing import ManualClock
from holdfast.views import moment


@workflow
async def acting(name: str) -> str:
    return name


def test_only_what_is_given_changes(hft: Holdfast, clock: ManualClock) -> None:
    mail = hft.queue("mail", limit=10, per_worker=2, rate=(100, 60))
    hft.queue("mail", per_key=1, per_worker=None)
    hft.queue("mail")
    set_at = moment(clock.now())
    limits: dict[str, Any] = {"limit": 10, "per_key": 1, "rate": (100, 60.0)}
    assert mail.info() == QueueInfo(name="mail", **limits, set_at=set_at)
    clock.advance(2)
    mail.pause(by="operations")
    mail.pause(by="somebody else")  # which changes nothing
    set_at = moment(clock.now())
    hft.enqueue(acting, "a", queue="mail")
    hft.enqueue(acting, "b", queue="mail", delay=5)
    hft.enqueue(acting, "c", queue="another")
    clock.advance(7)
    assert hft.queues() == (
        QueueInfo(name="another", ready=1, oldest=7.0),
        QueueInfo(
            name="mail", **limits, paused=True, set_at=set_at, set_by="operations", ready=1, waiting=1, oldest=7.0
        ),
    )
    assert mail.delete()
    assert not mail.delete()
    assert mail.info() == QueueInfo(name="mail", ready=1, waiting=1, oldest=7.0)


def test_the_same_from_async_code(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            queue = await hf.queue("mail", limit=2)
            await queue.pause()
            run = await hf.enqueue(acting, "a", queue="mail", dedup="a")
            assert (await hf.enqueue(acting, "b", queue="mail", dedup="a")).uid == run.uid
            await hf.work(until_idle=True, queues=["mail"])
            assert (await queue.info()).ready == 1
            await queue.resume()
            await hf.work(until_idle=True, queues=["mail"])
            assert await run.result(timeout=0) == "a"
            assert [one.name for one in await hf.queues()] == ["mail"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *(("limit", value) for value in (0, -1, 1.5, True, "3")),
        *(("rate", value) for value in (5, (1,), (0, 1), (1, 0), (1, float("inf")), (1.5, 2), "1/s", (True, 1))),
        ("paused", 1),
        ("per_key", "a"),
    ],
)
def test_wrong_settings_are_refused(hf: Holdfast, name: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match=name):
        hf.queue("q", **{name: wrong})
    assert hf.queues() == ()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"priority": 1.5}, "priority"),
        ({"priority": 1 << 40}, "priority"),
        ({"delay": "1h"}, "delay"),
        ({"delay": -5}, "delay"),
        ({"delay": datetime(2024, 1, 1)}, "time zone"),
        ({"key": 5}, "key"),
        ({"dedup": 5}, "dedup"),
        ({"ttl": 5}, "dedup"),
        ({"dedup": "a", "ttl": -1}, "ttl"),
        ({"dedup": "a", "id": "b"}, "not both"),
        ({"queue": ""}, "queue"),
    ],
)
def test_a_wrong_place_is_refused(hf: Holdfast, wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        hf.enqueue(acting, "a", **wrong)
    assert len(hf.runs()) == 0


def test_a_time_that_has_passed_is_now() -> None:
    past = datetime.fromtimestamp(5, UTC)
    assert checked_place("q", 0, None, past, 10_000_000).wake_at is None


def test_settings_that_cannot_be_read_are_told_with_a_remedy(hf: Holdfast) -> None:
    hf.client.store.put_document("queue", "mail", b'{"limit": "many"}', None)
    with pytest.raises(StoreDamaged, match=r"'mail'.*hf\.queue\('mail'\)\.delete\(\) forgets it"):
        hf.queues()
    assert hf.queue("mail").delete()
    assert hf.queues() == ()


def test_a_worker_that_is_cancelled_while_the_bell_rings_ends(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            task = asyncio.create_task(hf.work())
            while not hf.client.engine.bell._loops:
                await asyncio.sleep(0.005)
            hf.client.engine.bell.ring()
            await asyncio.sleep(0)  # who listens is about to be woken
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=20)
            assert done

    asyncio.run(main())
