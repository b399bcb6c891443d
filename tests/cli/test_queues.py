"""`holdfast queues`, `queue`, `schedules`, `schedule` and `migrate`."""

from __future__ import annotations

import re

import pytest

import holdfast
from holdfast import workflow

from .conftest import SHOPPING, Call


@workflow
def report(day: str) -> str:
    return day


def test_queues(call: Call, url: str) -> None:
    assert call("queues").out == "No queues.\n"
    assert call("queue", "mail", "--limit", "10", "--per-key", "1", "--rate", "100/60").code == 0
    with holdfast.open(url) as hf:
        hf.enqueue(report, "monday", queue="mail")
    shown = call("queues").out
    assert "10 at a time, 1 per key, 100 in 60 s" in shown
    [queue] = call("queues", "--json").json["queues"]
    assert (queue["name"], queue["ready"], queue["limit"], queue["per_worker"]) == ("mail", 1, 10, None)


def test_a_queue_is_limited_paused_and_resumed(call: Call, url: str) -> None:
    call("queue", "mail", "--limit", "3", "--per-worker", "2")
    assert "paused" in call("queue", "mail", "--pause").out
    with holdfast.open(url) as hf:
        hf.enqueue(report, "monday", queue="mail", id="r")
        hf.work(queues=["mail"], until_idle=True)
        assert hf.get("r").status == "ready"
        assert "paused" not in call("queue", "mail", "--resume").out
        hf.work(queues=["mail"], until_idle=True)
        assert hf.get("r").result() == "monday"
    queue = call("queue", "mail", "--limit", "none", "--rate", "none", "--json").json["queue"]
    assert (queue["limit"], queue["per_worker"], queue["rate"]) == (None, 2, None)


@pytest.mark.parametrize("wrong", [("--limit", "0"), ("--limit", "many"), ("--rate", "100"), ("--per-key", "-1")])
def test_what_is_no_limit(call: Call, wrong: tuple[str, str]) -> None:
    done = call("queue", "mail", *wrong)
    assert done.code == 2
    assert wrong[1] in done.err
    assert call("queues").out == "No queues.\n"


def test_a_queue_that_is_not_there(call: Call) -> None:
    gone = call("queue", "nonesuch")
    assert (gone.code, gone.out, "`holdfast queues` lists" in gone.err) == (8, "", True)
    assert call("queue", "default").code == 0


def test_times_of_a_schedule_are_in_its_zone(call: Call, url: str) -> None:
    with holdfast.open(url) as hf:
        hf.schedule(report, "today", cron="0 3 * 7 *", tz="Asia/Kolkata", id="nightly")
    for words in (["schedules"], ["schedule", "nightly"]):
        assert re.search(r" \d{4}-07-\d\d 03:00:00 IST ", call(*words).out)


def test_priorities(call: Call, shop: Call) -> None:
    how = ["--cron", "0 9 * * *", "--run", f"{SHOPPING}:quick", "--priority", "7"]
    assert call("schedule", "daily", *how).code == 0
    triggered = call("schedule", "daily", "--trigger", "--json").json["run"]
    assert call("show", triggered, "--json").json["run"]["priority"] == 7
    for words in (["--priority", "3"], ["--delay", "1h"], ["--dedup", "x"], ["--key", "k"]):
        assert f"{words[0]}: is for a workflow that is left to a worker" in shop("quick", "here", *words).err
    how = ["--detach", "--priority", "3", "--key", "customer-1", "--delay", "1h", "--json"]
    later = shop("quick", "later", *how).json["run"]
    assert (later["priority"], later["key"], later["status"]) == (3, "customer-1", "waiting")
    once = ["run", f"{SHOPPING}:quick", "--detach", "--dedup", "x", "--json"]
    assert call(*once).json["run"]["id"] == call(*once).json["run"]["id"]


def test_schedules(call: Call, url: str) -> None:
    assert call("schedules").out == "No schedules.\n"
    gone = call("schedule", "daily")
    assert (gone.code, "`holdfast schedules` lists them" in gone.err) == (8, True)
    with holdfast.open(url) as hf:
        hf.schedule(report, "today", cron="0 9 * * *", tz="Europe/Oslo", id="daily")
    assert "0 9 * * * (Europe/Oslo)" in call("schedules").out
    assert "paused" in call("schedule", "daily", "--pause").out
    assert call("schedule", "daily", "--resume", "--json").json["schedule"]["paused"] is False
    run = call("schedule", "daily", "--trigger", "--json").json["run"]
    assert [one["id"] for one in call("runs", "--json").json["runs"]] == [run]
    assert "is enqueued" in call("schedule", "daily", "--trigger").out
    assert call("schedule", "daily", "--delete").code == 0
    assert call("schedules", "--json").json == {"schedules": []}


def test_migrate(call: Call) -> None:
    assert call("migrate").out == "✓ it is up to date\n"
    assert call("migrate", "--json").json == {"made": []}
    assert call("migrate", "--store", "mysql://here").code == 8
