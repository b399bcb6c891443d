"""Is the call itself right? Pure checks, made before anything is read or written.

Each raises a `UsageError` of one line that names the parameter, what was given, and what it takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from holdfast.codec import Keyring
from holdfast.errors import UsageError, shown
from holdfast.kernel.model import Kind, Status

_UID_DIGITS = 24


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_opening(keys: Any, lease: Any, max_bytes: Any, effect_wait: Any, max_crashes: Any) -> None:
    """What `holdfast.open` takes beside the URL. What was given as keys is never shown."""
    if keys is not None and not isinstance(keys, Keyring):
        raise UsageError(f"keys= takes holdfast.Keyring({{...}}, current=...), not {type(keys).__name__}")
    if isinstance(lease, bool) or not isinstance(lease, int | float) or not 0 < lease < math.inf:
        raise UsageError(f"{shown('lease', lease)}: a lease lasts for more than 0 seconds, given as a number")
    if isinstance(effect_wait, bool) or not isinstance(effect_wait, int | float) or not 0 <= effect_wait < math.inf:
        raise UsageError(f"{shown('effect_wait', effect_wait)}: a number of seconds is wanted, of at least 0")
    if not _is_int(max_bytes) or max_bytes < 1:
        raise UsageError(f"{shown('max_bytes', max_bytes)}: the largest payload is a number of bytes, at least 1")
    if not _is_int(max_crashes) or max_crashes < 1:
        raise UsageError(f"{shown('max_crashes', max_crashes)}: a count is wanted, an int of at least 1")


def check_seq(name: str, value: Any) -> None:
    """A number that an entry of the journal can have."""
    if not _is_int(value):
        raise UsageError(f"{shown(name, value)}: a sequence number is an int, such as save() returns")


def check_limit(limit: Any, what: str) -> None:
    """How much a page holds."""
    if not _is_int(limit) or limit < 1:
        raise UsageError(f"{shown('limit', limit)}: an int is wanted, since a page has at least one {what}")


def check_runs_page(limit: Any, after: Any) -> None:
    """Which page of the runs is asked for."""
    check_limit(limit, "run")
    if after is None:
        return
    if not isinstance(after, str) or len(after) != _UID_DIGITS or not set(after) <= set("0123456789abcdef"):
        raise UsageError(f"{shown('after', after)} is not what a page gave as its next ({_UID_DIGITS} hex digits)")


def check_history_page(limit: Any, after: Any, kind: Any) -> None:
    """Which page of a history is asked for."""
    check_limit(limit, "entry")
    if after is not None and not (isinstance(after, str) and after.isdecimal()):
        raise UsageError(f"{shown('after', after)} is not what a page gave as its next")
    if kind is not None and kind not in tuple(Kind):
        raise UsageError(f"{shown('kind', kind)}: an entry's kind is one of {', '.join(Kind)}")


_COUNTS = ("retries", "undo_retries", "limit", "concurrency")


def check_options(**values: Any) -> None:
    """Numbers of a declaration: counts, and times in seconds; or left out."""
    for name, value in values.items():
        if value is None:
            continue
        if name in _COUNTS:
            least = 0 if name.endswith("retries") else 1
            if not _is_int(value) or value < least:
                raise UsageError(f"{shown(name, value)}: a count is wanted, an int of at least {least}")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise UsageError(f"{shown(name, value)}: a number of at least 0 is wanted; times are in seconds")


def seconds_of(name: str, given: Any) -> float:
    """A duration: seconds as a number, or a timedelta."""
    value = given.total_seconds() if isinstance(given, timedelta) else given
    check_options(**{name: value})
    return float(value)


MAX_PRIORITY = 1 << 31


def check_queue(queue: Any) -> None:
    """The name of a queue."""
    if not isinstance(queue, str) or not queue:
        raise UsageError(f"{shown('queue', queue)}: a queue has a name, which is text")


def check_bounds(given: dict[str, Any]) -> None:
    """What is set about a queue, but for its rate."""
    for name, value in given.items():
        if name == "paused":
            if not isinstance(value, bool):
                raise UsageError(f"{shown(name, value)}: True or False is wanted")
        elif value is not None and (not _is_int(value) or value < 1):
            raise UsageError(f"{shown(name, value)}: an int of at least 1 is wanted, or None for no limit")


def rate_of(given: Any) -> tuple[int, float] | None:
    """How many runs may be begun in how many seconds."""
    if given is None:
        return None
    pair: tuple[Any, Any] = tuple(given) if isinstance(given, tuple | list) and len(given) == 2 else (0, 0)
    count, seconds = pair
    seconds = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds < math.inf
    if not _is_int(count) or not is_number or count < 1:
        raise UsageError(f"{shown('rate', given)}: give (count, seconds), such as rate=(100, 60.0) for 100 a minute")
    return count, float(seconds)


def check_priority(priority: Any) -> None:
    """How far in front of its queue a run stands."""
    if not _is_int(priority) or not -MAX_PRIORITY < priority < MAX_PRIORITY:
        raise UsageError(f"{shown('priority', priority)}: an int is wanted; a higher one is taken first, 0 is usual")


def check_dedup(id: Any, dedup: Any, ttl: Any) -> None:
    """What is to be done once."""
    check_texts(dedup=dedup)
    if dedup is not None and id is not None:
        raise UsageError("give id= or dedup=, not both: with dedup= the id is made from its text")
    if dedup is None and ttl is not None:
        raise UsageError(f"{shown('ttl', ttl)}: it is how long dedup= counts, so give that too")


def moment_of(name: str, given: Any, now: int) -> int:
    """A time to come: a datetime, or how long from now."""
    if isinstance(given, datetime):
        at = micros_of(name, given)
        assert at is not None
        return at
    return now + round(seconds_of(name, given) * 1_000_000)


def check_texts(**values: Any) -> None:
    """Parameters that are text, or left out."""
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            raise UsageError(f"{shown(name, value)}: text is wanted, not {type(value).__name__}")


def check_retention(older_than: Any, keep_last: Any) -> None:
    """What `prune` is to spare."""
    if older_than is not None and not isinstance(older_than, timedelta):
        example = f"timedelta(days={older_than if _is_int(older_than) else 30})"
        raise UsageError(f"{shown('older_than', older_than)}: give a timedelta, such as {example}")
    if not _is_int(keep_last) or keep_last < 0:
        raise UsageError(f"{shown('keep_last', keep_last)}: how many runs to keep is an int, at least 0")


def tags_of(given: Any) -> dict[str, str]:
    """Tags as they are kept."""
    made = dict(given or {}) if given is None or isinstance(given, Mapping) else None
    if made is None or not all(isinstance(name, str) and isinstance(value, str) for name, value in made.items()):
        raise UsageError(f"{shown('tags', given)}: tags are text by text, such as {{'team': 'search'}}")
    return made


def statuses_of(name: str, given: Any) -> tuple[Status, ...]:
    """The statuses that were asked for: one, several, or all (none)."""
    if given is None:
        return ()
    try:
        return tuple(sorted(Status(one) for one in ([given] if isinstance(given, str) else given)))
    except (TypeError, ValueError):
        raise UsageError(f"{shown(name, given)}: a status is one of {', '.join(Status)}") from None


def micros_of(name: str, moment: Any) -> int | None:
    """A time as it is stored."""
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise UsageError(f"{shown(name, moment)}: give a datetime with a time zone, such as datetime.now(UTC)")
    if moment.tzinfo is None:
        raise UsageError(f"{shown(name, moment)} has no time zone; give one, such as datetime.UTC")
    return int(moment.timestamp() * 1_000_000)
