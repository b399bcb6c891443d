"""How things are written on the pages: times, values, statuses. What templates use as filters."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment
from msgspec import Struct

from holdfast.cli.rendering import MARKS, ago, span, undo_word, workflow_of
from holdfast.ui.chart import brief, lane_name
from holdfast.ui.holders import worker_command
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.paths import part
from holdfast.ui.shapes import WorkerView
from holdfast.ui.timeline import Bar

CUT = 4_000  # characters of a value that are shown beside others

_MARKS = {
    **MARKS,
    "ready": "○",
    "waiting": "…",
    "asks": "?",
    "delayed": "◷",
    "died": "✗",
    "started": "▸",
    "retrying": "↻",
    "uncertain": "?",
    "repeated": "↻",
    "raised": "✗",
    "undone": "↩",
    "undo_failed": "✗",
    "left": "!",
    "missing": "✗",
    "unreadable": "✗",
    "pending": "○",
    "answered": "✓",
    "closed": "–",
    "not done": "–",
    "abandoned": "–",
    "paused": "‖",
    "alive": "●",
    "dead": "✗",
    "active": "▸",
    "away": "→",
}
_WORDS = {
    "undo_failed": "undo failed",
    "left": "left as it is",
    "missing": "undo not found",
    "unreadable": "undo cannot be called",
    "pending": "not reached",
    "died": "process died",
}


class Text(Struct, frozen=True):
    """A value as text. ``cut`` is how many characters were left out."""

    text: str
    cut: int = 0


def value(given: Any, limit: int = CUT) -> Text:
    """A value for people: text as it is, all else as JSON over several lines."""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, indent=2, default=str)
    return Text(text) if len(text) <= limit else Text(text[:limit], len(text) - limit)


def mark(status: str) -> str:
    """The sign of a status, which tells it apart where there are no colours."""
    return _MARKS.get(status, "·")


def look(bar: Bar) -> str:
    """The word of a bar's badge: what waits for a person, and what waits for a moment, are told apart."""
    waits = {"question": "asks", "timer": "delayed"} if bar.status == "waiting" else {}
    return waits.get(bar.sort, bar.status)


def word(status: str) -> str:
    """The word for a status."""
    return _WORDS.get(status, str(status))


def stamp(at: datetime) -> str:
    """A moment, exactly, in the zone of the server."""
    local = at.astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03} {local:%Z}"


def machine(at: datetime) -> str:
    """A moment as machines read it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")


def until(at: datetime) -> str:
    """How long it is until a moment."""
    seconds = (at - datetime.now(UTC)).total_seconds()
    return f"in {span(seconds)}" if seconds >= 0 else f"{span(-seconds)} ago"


def lease(worker: WorkerView) -> str:
    """How long a worker's leases hold, or since when they do not."""
    if worker.until.year == 1970:
        return "unknown"
    left = (worker.until - datetime.now(UTC)).total_seconds()
    if left >= 0 and not worker.alive:
        return "ended with it"
    return f"{span(left)} left" if left >= 0 else f"over for {span(-left)}"


def prepare(environment: Environment) -> None:
    """Give the templates what they use."""
    if "brief" in environment.filters:
        return
    environment.filters.update(
        ago=ago, brief=brief, lane=lane_name, look=look, machine=machine, mark=mark, span=span, stamp=stamp,
        undo_word=undo_word, until=until, value=value, word=word, workflow=workflow_of,
    )  # fmt: skip
    environment.globals.update(lease=lease, part=part, run_url=run_url, worker_command=worker_command)
