"""When a schedule is due: the ticks of a cron expression in a time zone. No I/O.

What runs at fixed times of the day runs once on every day, also on the one where that time is left out (then right
after the gap) or comes twice (then the first time); what runs in every hour follows the hours as they pass.

cronsim finds the times that an expression names. It is asked for those of a clock that is never changed, with five
fields and with six, so what becomes of them when clocks are changed is decided here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.errors import ExtraMissing, UsageError, shown

if TYPE_CHECKING:
    from cronsim import CronSim

MINUTE = 60_000_000
GRACE = MINUTE  # what is later than this was missed
HOURS, SECOND = 24, timedelta(seconds=1)
FIFTY_YEARS = 50 * 366 * 24 * 60 * MINUTE
EXAMPLE = "'0 9 * * 1-5' is 9 o'clock from Monday to Friday"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _cronsim() -> tuple[type[CronSim], type[Exception]]:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise ExtraMissing("a schedule", "cron") from None
    return CronSim, CronSimError


def check_cron(cron: Any, tz: Any) -> None:
    """Whether there is such a time zone, and the expression ever comes to pass there; raises `UsageError`."""
    _, wrong = _cronsim()
    if not isinstance(tz, str):
        raise UsageError(f"{shown('tz', tz)}: a time zone is named by text, such as 'Europe/Oslo'")
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"{shown('tz', tz)}: there is no such time zone here; use a name such as 'Europe/Oslo' or 'UTC' (where "
            "the system has no time zones at all: pip install tzdata)"
        ) from None
    if not isinstance(cron, str):
        raise UsageError(f"{shown('cron', cron)}: five fields of text are wanted: {EXAMPLE}")
    try:
        next(ticks(cron, tz, 0))
    except wrong as error:
        raise UsageError(f"{shown('cron', cron)}: {str(error).lower()}; five fields are wanted: {EXAMPLE}") from None
    except StopIteration:
        raise UsageError(f"{shown('cron', cron)}: there is no such day in 50 years; {EXAMPLE}") from None


def ticks(cron: str, tz: str, after: int) -> Iterator[int]:
    """The ticks later than a time, in order; in microseconds, as everything that is stored."""
    zone = ZoneInfo(tz)
    start = datetime.fromtimestamp(after // 1_000_000, UTC)
    found = (_in_every_hour if _names_every_hour(cron) else _once_a_day)(cron, zone, start)
    for moment in found:
        if (at := _micros(moment)) > after:
            yield at
            after = at


def _names_every_hour(cron: str) -> bool:
    simulated, _ = _cronsim()
    return len(simulated(cron, datetime.min).hours) == HOURS


def _once_a_day(cron: str, zone: ZoneInfo, start: datetime) -> Iterator[datetime]:
    """Each time that is named, once: where it comes twice, the first time; where it is left out, right after the gap.

    Some may lie before the start, in an hour that comes twice, and several may be right after the same gap.
    """
    simulated, _ = _cronsim()
    for named in simulated(cron, start.astimezone(zone).replace(tzinfo=None)):
        local = named.replace(tzinfo=zone)
        moment = local.astimezone(UTC)
        is_left_out = moment.astimezone(zone).replace(tzinfo=None) != named
        if is_left_out:
            before = local.replace(fold=1).astimezone(UTC)
            moment = _change(zone, before, moment, _offset(zone, before))
        yield moment


def _in_every_hour(cron: str, zone: ZoneInfo, start: datetime) -> Iterator[datetime]:
    """Each time that is named, as often as it comes."""
    simulated, _ = _cronsim()
    offset = _offset(zone, start)
    while True:
        for named in simulated(cron, start.replace(tzinfo=None) + offset):
            moment = (named - offset).replace(tzinfo=UTC)
            if _offset(zone, moment) != offset:
                break
            yield moment
            start = moment
        else:
            return
        change = _change(zone, start, moment, offset)
        start, offset = change - SECOND, _offset(zone, change)


def _change(zone: ZoneInfo, before: datetime, after: datetime, offset: timedelta) -> datetime:
    """The moment of a change of clocks between two, before which they have this offset."""
    while after - before > SECOND:
        middle = before + (after - before) // 2 // SECOND * SECOND
        before, after = (middle, after) if _offset(zone, middle) == offset else (before, middle)
    return after


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def next_tick(cron: str, tz: str, after: int) -> int:
    """The first tick later than a time."""
    return next(ticks(cron, tz, after))


def last_tick(cron: str, tz: str, upto: int) -> int | None:
    """The newest tick that is not later than a time."""
    span = MINUTE
    while span < FIFTY_YEARS:
        within = list(takewhile(lambda at: at <= upto, ticks(cron, tz, upto - span)))
        if within:
            return within[-1]
        span *= 2
    return None


def _micros(moment: datetime) -> int:
    return (moment - _EPOCH).days * 86_400_000_000 + (moment - _EPOCH).seconds * 1_000_000


def due_ticks(cron: str, tz: str, first: int, now: int, catch_up: str, most: int) -> tuple[list[int], int]:
    """The ticks, from the first one that nobody has seen to, for which a run is to be made now; and what is next.

    A tick that is later than the grace was missed. Of those that were missed all are made up for, none, or (``one``)
    the newest, unless another one is due anyway. No more than so many at a time; the rest are next.
    """
    begins = first if catch_up == "all" or first >= now - GRACE else next_tick(cron, tz, now - GRACE - 1)
    chosen: list[int] = []
    while begins <= now and len(chosen) < most:
        chosen.append(begins)
        begins = next_tick(cron, tz, begins)
    if not chosen and catch_up == "one":
        chosen = [max(first, last_tick(cron, tz, now) or first)]
    return chosen, begins
