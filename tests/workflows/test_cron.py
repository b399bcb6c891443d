"""When a schedule is due: cron expressions in time zones, also when clocks are changed, and what was missed."""

import random
from datetime import UTC, datetime
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from sizes import size

from holdfast.engine.cron import GRACE, due_ticks, last_tick, next_tick, ticks

OSLO, SANTIAGO, NEW_YORK = "Europe/Oslo", "America/Santiago", "America/New_York"
SECOND = 1_000_000


def micros(text: str, tz: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp()) * SECOND


def told(found: list[int]) -> list[str]:
    return [datetime.fromtimestamp(at // SECOND, UTC).strftime("%m-%d %H:%M") for at in found]


def some(cron: str, tz: str, after: str, count: int) -> list[str]:
    return told(list(islice(ticks(cron, tz, micros(after)), count)))


# In Oslo the hour 2 to 3 is left out on 2024-03-31, and comes twice on 2024-10-27 (at 00:00 and 01:00 UTC). In New York
# it is left out on 2024-03-10 (at 07:00 UTC), and 1 to 2 comes twice on 2024-11-03 (at 05:00 and 06:00 UTC).
CHANGES = {
    "fixed, left out": ("30 2 * * *", OSLO, "2024-03-29T12:00", ["03-30 01:30", "03-31 01:00", "04-01 00:30"]),
    "fixed, twice": ("30 2 * * *", OSLO, "2024-10-25T12:00", ["10-26 00:30", "10-27 00:30", "10-28 01:30"]),
    "hourly, left out": ("15 * * * *", OSLO, "2024-03-31T00:00", ["03-31 00:15", "03-31 01:15", "03-31 02:15"]),
    "hourly, twice": ("15 * * * *", OSLO, "2024-10-27T00:00", ["10-27 00:15", "10-27 01:15", "10-27 02:15"]),
    "weekday mornings": ("0 9 * * 1-5", OSLO, "2024-03-29T00:00", ["03-29 08:00", "04-01 07:00", "04-02 07:00"]),
    "west, left out": ("30 2 * * *", NEW_YORK, "2024-03-09T12:00", ["03-10 07:00", "03-11 06:30", "03-12 06:30"]),
    "west, twice": ("30 1 * * *", NEW_YORK, "2024-11-02T12:00", ["11-03 05:30", "11-04 06:30", "11-05 06:30"]),
    "west, every 30 minutes": (
        "*/30 * * * *",
        NEW_YORK,
        "2024-11-03T05:00",
        ["11-03 05:30", "11-03 06:00", "11-03 06:30"],
    ),
    "south": ("0 0 * * *", SANTIAGO, "2024-09-07T12:00", ["09-08 04:00", "09-09 03:00", "09-10 03:00"]),
}


@pytest.mark.parametrize("case", CHANGES)
def test_clocks_that_are_changed(case: str) -> None:
    cron, tz, after, expected = CHANGES[case]
    assert some(cron, tz, after, 3) == expected


def test_who_comes_in_an_hour_that_is_there_twice_waits_for_the_next_day() -> None:
    second_time = micros(
        "2024-10-27T01:10"
    )  # 02:10 in Oslo, for the second time; the tick was at 02:30, the first time
    assert told([next_tick("30 2 * * *", OSLO, second_time)]) == ["10-28 01:30"]


@pytest.mark.parametrize("seed", range(5))
def test_the_last_tick_is_the_one_before_the_next(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(40):
        cron = dice.choice(["30 2 * * *", "*/7 * * * *", "0 9 * * 1-5", "15 */3 * * *", "0 0 1 * *", "59 23 L * *"])
        tz = dice.choice([OSLO, NEW_YORK, SANTIAGO, "UTC"])
        day = dice.choice(["2024-03-31", "2024-10-27", "2024-03-10", "2024-11-03", "2024-09-08", "2024-06-01"])
        at = micros(f"{day}T00:00") + dice.randrange(-40_000, 80_000) * SECOND + dice.randrange(SECOND)
        last = last_tick(cron, tz, at)
        assert last is not None
        assert last <= at < next_tick(cron, tz, last), (seed, cron, tz, at)


def test_ticks_only_grow() -> None:
    for tz in (OSLO, NEW_YORK, SANTIAGO):
        found = list(islice(ticks("*/20 * * * *", tz, micros("2024-01-01T00:00")), size(7_500, 26_000)))
        assert all(before < after for before, after in pairwise(found))


# --- what was missed

HOURLY = ("0 * * * *", "UTC")


def due(first: str, now: str, catch_up: str, most: int = 100) -> tuple[list[str], str]:
    chosen, following = due_ticks(*HOURLY, micros(first), micros(now), catch_up, most)
    return told(chosen), told([following])[0]


@pytest.mark.parametrize("catch_up", ["one", "all", "none"])
def test_what_is_in_time_is_due_whatever_the_policy(catch_up: str) -> None:
    assert due("2024-01-01T05:00", "2024-01-01T05:00", catch_up) == (["01-01 05:00"], "01-01 06:00")
    assert due("2024-01-01T05:00", "2024-01-01T05:01", catch_up) == (["01-01 05:00"], "01-01 06:00")


def test_what_was_missed_is_made_up_for_as_the_policy_says() -> None:
    late = "2024-01-01T08:30"
    assert due("2024-01-01T05:00", late, "all")[0] == ["01-01 05:00", "01-01 06:00", "01-01 07:00", "01-01 08:00"]
    assert due("2024-01-01T05:00", late, "one") == (["01-01 08:00"], "01-01 09:00")
    assert due("2024-01-01T05:00", late, "none") == ([], "01-01 09:00")
    assert due("2024-01-01T08:00", late, "one") == (["01-01 08:00"], "01-01 09:00")


def test_where_another_one_is_due_it_makes_up_for_what_was_missed() -> None:
    assert due("2024-01-01T05:00", "2024-01-01T08:01", "one") == (["01-01 08:00"], "01-01 09:00")
    assert due("2024-01-01T05:00", "2024-01-01T08:01", "none") == (["01-01 08:00"], "01-01 09:00")


def test_the_grace_is_a_minute() -> None:
    first = micros("2024-01-01T05:00")
    assert due_ticks(*HOURLY, first, first + GRACE, "none", 9)[0] == [first]
    assert due_ticks(*HOURLY, first, first + GRACE + 1, "none", 9)[0] == []


def test_many_are_made_up_for_some_at_a_time() -> None:
    chosen, following = due("2024-01-01T00:00", "2024-01-02T00:30", "all", 10)
    assert (len(chosen), chosen[-1], following) == (10, "01-01 09:00", "01-01 10:00")


def test_a_long_absence_costs_little() -> None:
    first, now = micros("1990-01-01T00:00"), micros("2024-01-01T08:30")
    for catch_up in ("one", "none"):
        assert due_ticks("* * * * *", OSLO, first, now, catch_up, 100)[1] == now + 60 * SECOND
