"""Schedules: one run per tick however many workers there are, what was missed, and what can be done with them."""

import asyncio
import base64
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast
from holdfast import Holdfast, Keyring, Status, workflow
from holdfast.engine.workflow import declare
from holdfast.errors import ExtraMissing, ScheduleNotFound, UsageError
from holdfast.stores import open_store
from holdfast.stores.protocol import find_document
from holdfast.testing import ManualClock

Opener = Callable[..., Holdfast]
NOON = int(datetime(2024, 3, 30, 12, tzinfo=UTC).timestamp()) * 1_000_000
HOUR = 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@workflow
def report(kind: str, *, copies: int = 1) -> str:
    return f"{kind} x {copies}"


@workflow
def another(kind: str) -> str:
    return f"another {kind}"


def ids(hf: Holdfast) -> list[str]:
    return sorted(info.id for info in hf.runs(limit=1000))


def tick(hour: int, minute: int = 0, day: int = 30) -> str:
    return f"schedule:r@2024-03-{day:02}T{hour:02}:{minute:02}:00Z"


# --- ticks


def test_each_tick_is_a_run(hft: Holdfast, clock: ManualClock) -> None:
    schedule = hft.schedule(report, "daily", copies=2, cron="0 * * * *", id="r", tags={"team": "a"})
    hft.work(until_idle=True)
    assert ids(hft) == []
    for _ in range(3):
        clock.advance(HOUR)
        hft.work(until_idle=True)
    assert ids(hft) == [tick(13), tick(14), tick(15)]
    runs = [hft.get(id) for id in ids(hft)]
    assert {run.result(timeout=0) for run in runs} == {"daily x 2"}
    assert runs[0].info().tags == {"team": "a"}
    info = schedule.info()
    assert (info.next_at.hour, info.last_run) == (16, tick(15))
    assert info.last_at == datetime(2024, 3, 30, 15, tzinfo=UTC)


def test_it_follows_the_clocks_of_its_time_zone(hft: Holdfast, clock: ManualClock) -> None:
    hft.schedule(report, "x", cron="30 2 * * *", tz="Europe/Oslo", id="r")  # on the 31st there is no half past two
    for _ in range(48):
        clock.advance(HOUR / 2)
        hft.work(until_idle=True)
    assert ids(hft) == [tick(1, day=31)]


def test_a_worker_waits_for_the_next_tick(hft: Holdfast, clock: ManualClock) -> None:
    hft.schedule(report, "x", cron="0 * * * *", id="r")

    async def main() -> None:
        async with hft as hf:
            task = asyncio.create_task(hf.work())
            while not hf.client.engine.crews or next(iter(hf.client.engine.crews))._tick is None:
                await asyncio.sleep(0.005)
            clock.advance(HOUR)
            hf.client.engine.bell.ring()
            while (await hf.runs(status="completed")).items == ():
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.wait({task})
            assert [info.id for info in await hf.runs()] == [tick(13)]

    asyncio.run(main())


@pytest.mark.parametrize("round", range(3))
def test_one_run_per_tick_with_many_workers_at_once(timed: Opener, clock: ManualClock, round: int) -> None:
    handles = [timed() for _ in range(4)]
    handles[0].schedule(report, "x", cron="*/5 * * * *", id="r", catch_up="all")
    clock.advance(HOUR)
    start = threading.Barrier(4)

    def work(hf: Holdfast) -> None:
        start.wait()
        hf.work(until_idle=True)

    threads = [threading.Thread(target=work, args=(hf,)) for hf in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ids(handles[0]) == [tick(12, minute) for minute in range(5, 60, 5)] + [tick(13)]
    handles[0].work(until_idle=True)
    assert all(info.status is Status.COMPLETED and info.seq == 1 for info in handles[0].runs(limit=99))


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("one", [tick(17)]), ("all", [tick(hour) for hour in range(13, 18)]), ("none", [])],
)
def test_what_was_missed(hft: Holdfast, clock: ManualClock, catch_up: Any, expected: list[str]) -> None:
    schedule = hft.schedule(report, "x", cron="0 * * * *", id="r", catch_up=catch_up)
    clock.advance(5.5 * HOUR)
    hft.work(until_idle=True)
    assert ids(hft) == expected
    assert schedule.info().next_at.hour == 18
    clock.advance(0.5 * HOUR)
    hft.work(until_idle=True)
    assert ids(hft) == [*expected, tick(18)]


def test_many_that_were_missed_are_all_made_up_for(hft: Holdfast, clock: ManualClock) -> None:
    hft.schedule(report, "x", cron="* * * * *", id="r", catch_up="all")
    clock.advance(250 * 60)
    hft.work(until_idle=True, concurrency=50)
    assert len(hft.runs(status="completed", limit=999)) == 250


# --- who makes the runs


def test_who_does_not_have_the_workflow_makes_its_runs_too(
    timed: Opener, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf = timed()
    hf.schedule(another, "x", cron="0 * * * *", id="r", queue="reports")
    kept = declare._workflows["another"]
    monkeypatch.delitem(declare._workflows, "another")
    clock.advance(HOUR)
    hf.work(until_idle=True, queues=["reports", "default"])
    assert hf.get(tick(13)).status is Status.READY
    monkeypatch.setitem(declare._workflows, "another", kept)
    timed().work(until_idle=True, queues=["reports"])
    assert hf.get(tick(13)).result(timeout=0) == "another x"


def test_what_is_wrong_with_one_schedule_does_not_keep_the_others(
    timed: Opener, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keyring({"k": b"k" * 32}, current="k")
    sealed = timed(keys=keys)
    sealed.schedule(report, "secret words", cron="0 * * * *", id="a")
    hf = timed()
    hf.schedule(report, "x", cron="0 * * * *", id="r")
    hf.client.store.put_document("schedule", "b", b'{"uid": 1}', None)
    clock.advance(HOUR)
    hf.work(until_idle=True)
    hf.work(until_idle=True)
    assert ids(hf) == [tick(13)]
    left = [record.getMessage() for record in caplog.records if "nothing can be begun here" in record.getMessage()]
    assert any("'a'" in text and "keys=" in text for text in left)
    assert any("hf.get_schedule('b').delete() forgets it" in text for text in left)
    assert hf.get_schedule("b").delete()
    sealed.work(until_idle=True)
    assert sealed.get(tick(13).replace(":r@", ":a@")).result(timeout=0) == "secret words x 1"


def test_arguments_are_encrypted_and_keys_rotated(
    timed: Opener, clock: ManualClock, raw_bytes: Callable[[], bytes]
) -> None:
    old = Keyring({"one": b"1" * 32}, current="one")
    timed(keys=old).schedule(report, "secret words", cron="0 * * * *", id="r")
    assert b"secret words" not in raw_bytes()
    [document] = timed().client.store.documents("schedule")
    assert b"secret words" not in base64.b64decode(msgspec.json.decode(document.value)["input"])
    both = timed(keys=Keyring({"one": b"1" * 32, "two": b"2" * 32}, current="two"))
    assert both.rotate_keys() == 1
    new = timed(keys=Keyring({"two": b"2" * 32}, current="two"))
    clock.advance(HOUR)
    new.work(until_idle=True)
    assert new.get(tick(13)).result(timeout=0) == "secret words x 1"


# --- what can be done with them


def test_to_declare_it_again_changes_what_is_different(timed: Opener, clock: ManualClock) -> None:
    hf = timed()
    schedule = hf.schedule(report, "x", cron="0 * * * *", id="r")
    document = find_document(hf.client.store, "schedule", "r")
    clock.advance(HOUR * 1.5)
    timed().schedule(report, "x", cron="0 * * * *", id="r")
    assert find_document(hf.client.store, "schedule", "r") == document, "nothing is different"
    hf.schedule(report, "y", cron="0 * * * *", id="r", queue="other")
    info = schedule.info()
    assert (info.next_at.hour, info.queue) == (13, "other"), "the tick that is due is not forgotten"
    hf.schedule(report, "y", cron="5 * * * *", id="r", queue="other")
    assert (schedule.info().next_at.hour, schedule.info().next_at.minute) == (14, 5)


def test_a_paused_schedule_begins_nothing_and_what_it_missed_is_gone(hft: Holdfast, clock: ManualClock) -> None:
    schedule = hft.schedule(report, "x", cron="0 * * * *", id="r", catch_up="all")
    schedule.pause()
    clock.advance(HOUR * 3)
    hft.work(until_idle=True)
    hft.schedule(report, "x", cron="0 * * * *", id="r", catch_up="all")  # as at the start of a program
    assert schedule.info().paused
    schedule.resume()
    hft.work(until_idle=True)
    assert ids(hft) == []
    schedule.resume()
    clock.advance(HOUR)
    hft.work(until_idle=True)
    assert ids(hft) == [tick(16)]
    hft.schedule(report, "x", cron="0 * * * *", id="r", paused=True)
    clock.advance(HOUR)
    hft.work(until_idle=True)
    hft.schedule(report, "x", cron="0 * * * *", id="r", paused=False)
    hft.work(until_idle=True)
    assert ids(hft) == [tick(16)]


def test_it_can_be_triggered(hft: Holdfast) -> None:
    schedule = hft.schedule(report, "x", cron="0 * * * *", id="r", paused=True)
    first, second = schedule.trigger(), schedule.trigger()
    assert first.id.startswith("schedule:r!")
    hft.work(until_idle=True)
    assert first.result(timeout=0) == second.result(timeout=0) == "x x 1"
    assert schedule.info().last_run is None


def test_it_is_listed_and_deleted(hft: Holdfast, clock: ManualClock) -> None:
    hft.schedule(report, "x", cron="0 9 * * 1-5", tz="Europe/Oslo", id="r")
    hft.schedule(another, "x", cron="0 * * * *", id="b", catch_up="none", paused=True)
    told = [(one.id, one.workflow, one.cron, one.tz, one.catch_up, one.paused) for one in hft.schedules()]
    assert told == [
        ("b", "another", "0 * * * *", "UTC", "none", True),
        ("r", "report", "0 9 * * 1-5", "Europe/Oslo", "one", False),
    ]
    schedule = hft.get_schedule("r")
    assert schedule.delete()
    assert not schedule.delete()
    for use in (schedule.info, schedule.pause, schedule.resume, schedule.trigger, lambda: hft.get_schedule("r")):
        with pytest.raises(ScheduleNotFound, match=r"no schedule 'r' in .*hf\.schedules\(\)"):
            use()
    clock.advance(HOUR * 100)
    hft.work(until_idle=True)
    assert ids(hft) == []


def test_a_schedule_that_was_deleted_and_made_again_is_another_one(hft: Holdfast, clock: ManualClock) -> None:
    hft.schedule(report, "x", cron="0 * * * *", id="r").delete()
    clock.advance(HOUR * 2)
    assert hft.schedule(report, "y", cron="0 * * * *", id="r").info().next_at.hour == 15


def test_the_same_from_async_code(store_url: str, clock: ManualClock) -> None:
    async def main() -> None:
        async with holdfast.open(store_url, store=open_store(store_url, clock=clock)) as hf:
            schedule = await hf.schedule(report, "x", cron="0 * * * *", id="r")
            run = await schedule.trigger()
            await hf.work(until_idle=True)
            assert await run.result(timeout=0) == "x x 1"
            await schedule.pause()
            assert [one.paused for one in await hf.schedules()] == [True]
            assert (await (await hf.get_schedule("r")).info()).id == "r"

    asyncio.run(main())


# --- what is refused


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        *(({"cron": cron}, "cron") for cron in ("", "* * *", "61 * * * *", "0 9 * * MOO", "0 0 30 2 *", 5, None)),
        ({"tz": "Europe/Atlantis"}, "Europe/Oslo"),
        ({"tz": "../etc/passwd"}, "Europe/Oslo"),
        ({"tz": ""}, "Europe/Oslo"),
        ({"tz": UTC}, "Europe/Oslo"),
        ({"id": ""}, "id"),
        ({"id": "x" * 500}, "id"),
        ({"catch_up": "some"}, "one, all, none"),
        ({"paused": 1}, "paused"),
        ({"queue": ""}, "queue"),
        ({"priority": "high"}, "priority"),
    ],
)
def test_what_is_wrong_is_refused_with_a_remedy(hft: Holdfast, wrong: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"cron": "0 * * * *", "id": "r", **wrong}
    with pytest.raises(UsageError, match=told) as refused:
        hft.schedule(report, "x", **given)
    assert "\n" not in str(refused.value)
    assert hft.schedules() == ()


def test_arguments_must_fit(hft: Holdfast) -> None:
    with pytest.raises(UsageError, match="report"):
        hft.schedule(report, cron="0 * * * *", id="r")
    with pytest.raises(UsageError, match="not a workflow"):
        hft.schedule(print, cron="0 * * * *", id="r")  # type: ignore[arg-type]


@pytest.fixture
def no_cronsim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)


def test_without_the_extra_it_says_so(hft: Holdfast, no_cronsim: None) -> None:
    with pytest.raises(ExtraMissing, match=r"holdfast\[cron\]"):
        hft.schedule(report, "x", cron="0 * * * *", id="r")


def test_a_backup_has_queues_and_schedules_and_a_copy_begins_nothing(
    timed: Opener, clock: ManualClock, tmp_path: Path
) -> None:
    hf, path = timed(), str(tmp_path / "backup")
    hf.queue("reports", limit=3)
    hf.schedule(report, "x", cron="0 * * * *", id="r", catch_up="all")
    hf.backup(path)
    with holdfast.open("memory://", store=open_store("memory://", clock=clock)) as copy:
        copy.restore(path)
        assert [(one.name, one.limit) for one in copy.queues()] == [("reports", 3)]
        clock.advance(HOUR)
        copy.work(until_idle=True)
        assert ids(copy) == []
        copy.get_schedule("r").resume()
        clock.advance(HOUR)
        copy.work(until_idle=True)
        assert ids(copy) == [tick(14)]
        copy.restore(path)  # once more: what is here stays
        assert not copy.get_schedule("r").info().paused
