"""When a schedule is due: cron expressions in time zones, also when clocks are changed, and what was missed."""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise, product
from zoneinfo import ZoneInfo

import pytest
from sizes import size

from holdfast.engine.worker.cron import GRACE, due_ticks, last_tick, next_tick, ticks

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


# --- against an oracle that looks at every minute

ALL = range(24)
TIMES = {  # each as five fields, if it has no seconds, and as six: seconds, minutes, hours
    **{f"30 {hour}": ([0], [30], [hour]) for hour in ALL},
    **{f"20 0,10 {hour}": ([20], [0, 10], [hour]) for hour in range(5)},
    "5 59 1,2,3": ([5], [59], [1, 2, 3]),
    "*/20 15 0-3": ([0, 20, 40], [15], [0, 1, 2, 3]),
    "*/30 2": ([0], [0, 30], [2]),
    "45 */2": ([0], [45], list(range(0, 24, 2))),
    "15 *": ([0], [15], ALL),
    "*/7 *": ([0], list(range(0, 60, 7)), ALL),
    "30 45 *": ([30], [45], ALL),
    "*/15 0,40 *": ([0, 15, 30, 45], [0, 40], ALL),
    "10 0-23": ([0], [10], ALL),
}
# Where and when clocks are changed: also at midnight, by half an hour, and on the southern half of the earth.
PLACES = {
    OSLO: ("2024-03-31", "2024-10-27"),
    NEW_YORK: ("2024-03-10", "2024-11-03"),
    SANTIAGO: ("2024-09-08", "2024-04-07"),
    "Australia/Lord_Howe": ("2024-10-06", "2024-04-07"),
    "Asia/Beirut": ("2024-03-31", "2024-10-27"),
    "America/St_Johns": ("2024-03-10", "2024-11-03"),
    "Asia/Kathmandu": ("2024-03-31", "2024-10-27"),
}


@cache
def notes(tz: str, first: datetime) -> tuple[list[tuple[datetime, datetime]], dict[datetime, datetime]]:
    """What a clock on the wall shows, minute by minute, and when it shows each time for the first time."""
    zone = ZoneInfo(tz)
    moments = [first + timedelta(minutes=n) for n in range(-24 * 60, 4 * 24 * 60)]
    shown = [(moment, moment.astimezone(zone).replace(tzinfo=None, fold=0)) for moment in moments]
    return shown, {wall: moment for moment, wall in reversed(shown)}


def looked_up(tz: str, first: datetime, times: tuple[Sequence[int], Sequence[int], Sequence[int]]) -> list[int]:
    """The ticks of three days, looked up in the notes."""
    seconds, minutes, hours = times
    shown, first_time = notes(tz, first)
    found: set[datetime] = set()
    if len(hours) == 24:
        found = {m + timedelta(seconds=s) for m, wall in shown if wall.minute in minutes for s in seconds}
    else:
        after_gap = [later for (_, before), later in pairwise(shown) if later[1] - before > timedelta(minutes=1)]
        for day, hour, minute in product(range(6), hours, minutes):
            wanted = shown[0][1].replace(hour=0, minute=0) + timedelta(days=day, hours=hour, minutes=minute)
            if wanted in first_time:
                found |= {first_time[wanted] + timedelta(seconds=s) for s in seconds}
            else:
                found |= {moment for moment, wall in after_gap if wall.date() == wanted.date()}
    return sorted(int(m.timestamp()) * SECOND for m in found if first < m <= first + timedelta(days=3))


@pytest.mark.parametrize("tz", PLACES)
def test_five_fields_and_six_keep_the_same_promise_at_every_hour_of_every_change(tz: str) -> None:
    for change, (times, fields) in product(PLACES[tz], TIMES.items()):
        first = datetime.fromisoformat(change).replace(tzinfo=UTC) - timedelta(days=1, hours=6)
        expected = looked_up(tz, first, fields)
        crons = [f"{times} * * *"] if len(times.split()) == 3 else [f"{times} * * *", f"0 {times} * * *"]
        for cron in crons:
            found = list(islice(ticks(cron, tz, int(first.timestamp()) * SECOND), len(expected)))
            assert told(found) == told(expected), (cron, change)
            assert found == expected, (cron, change)
        between = random.Random(times).sample(expected, min(len(expected), 5))
        assert [last_tick(crons[-1], tz, at) for at in between] == between
        for before, after in islice(pairwise(expected), 5):
            assert last_tick(crons[-1], tz, after - 1) == before


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
