"""When a schedule is due: the ticks of a cron expression in a time zone. No I/O.

cronsim does as Debian's cron does when clocks are changed. What runs at fixed times of the day runs once on every day,
also on the one where that time is left out (then right after the gap) or comes twice (then the first time); what runs
every hour or more often follows the hours as they pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.errors import ExtraMissing, UsageError, shown

if TYPE_CHECKING:
    from cronsim import CronSim

MINUTE = 60_000_000
GRACE = MINUTE  # what is later than this was missed
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
    simulated, _ = _cronsim()
    for moment in simulated(cron, datetime.fromtimestamp(after // 1_000_000, ZoneInfo(tz))):
        at = _micros(moment)
        if at > after:  # in an hour that comes twice, the first time may lie before
            yield at


def next_tick(cron: str, tz: str, after: int) -> int:
    """The first tick later than a time."""
    return next(ticks(cron, tz, after))


def last_tick(cron: str, tz: str, upto: int) -> int | None:
    """The newest tick that is not later than a time."""
    simulated, _ = _cronsim()
    start = datetime.fromtimestamp(upto // 1_000_000 + 1, ZoneInfo(tz))
    return next((at for moment in simulated(cron, start, reverse=True) if (at := _micros(moment)) <= upto), None)


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
