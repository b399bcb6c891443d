"""Words and signs for statuses, values and times, the same at the terminal and on the page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.views import Effect, RunInfo

FLOW = "flow"  # the workflow of all runs of flows

_MARKS = {
    "completed": "✓",
    "done": "✓",
    "answered": "✓",
    "failed": "✗",
    "raised": "✗",
    "died": "✗",
    "dead": "✗",
    "undo_failed": "✗",
    "missing": "✗",
    "unreadable": "✗",
    "blocked": "■",
    "asks": "?",
    "uncertain": "?",
    "waiting": "…",
    "delayed": "◷",
    "running": "▸",
    "started": "▸",
    "active": "▸",
    "ready": "○",
    "pending": "○",
    "retrying": "↻",
    "repeated": "↻",
    "undone": "↩",
    "left": "!",
    "warning": "!",
    "cancelled": "–",
    "closed": "–",
    "not done": "–",
    "abandoned": "–",
    "paused": "‖",
    "alive": "●",
    "away": "→",
    "output": "»",
    "printed": " ",
}
_WORDS = {
    "asks": "needs input",
    "undo_failed": "undo failed",
    "left": "left as it is",
    "missing": "undo not found",
    "unreadable": "undo cannot be called",
    "pending": "not reached",
    "died": "process died",
}


def mark(status: str) -> str:
    """The sign of a status, which distinguishes it where there are no colours."""
    return _MARKS.get(status, "·")


def word(status: str) -> str:
    """The word for a status."""
    return _WORDS.get(status, str(status))


def workflow_of(info: RunInfo) -> str:
    """The workflow of a run; of a flow, its name."""
    return f"flow {info.tags['flow']}" if info.workflow == FLOW and "flow" in info.tags else info.workflow or ""


def undo_word(effect: Effect) -> str:
    """Whether a rollback would undo an effect, in a word or two."""
    if effect.status in ("repeated", "raised"):
        return "not needed"
    if effect.status == "undone":
        return "already"
    return "yes" if effect.reversible and effect.status not in ("undo_failed", "left") else "no"


# --- values


def one_line(value: Any) -> str:
    """A text without line breaks or control characters."""
    return "".join(char if char.isprintable() else " " for char in str(value))


def printable(text: str) -> str:
    """A text with its line breaks, and without other characters that a terminal might obey."""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


def short(value: Any, limit: int = 60) -> str:
    """A value as JSON in one line, cut if it is long."""
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    text = one_line(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def joined(*parts: str | None, by: str = ", ") -> str:
    """The parts that are there, with commas between them."""
    return by.join(part for part in parts if part)


def counted(count: int, what: str) -> str:
    """A number with its noun: ``1 run``, ``1,000 runs``."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")


# --- times


def ago(at: datetime) -> str:
    """How long ago a moment was, in one unit."""
    seconds = (datetime.now(UTC) - at).total_seconds()
    return "just now" if seconds < 1 else f"{seconds:.0f} s ago" if seconds < 10 else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """A time in one or two units: ``0.3 s``, ``12 s``, ``4 min 10 s``, ``3 h 5 min``, ``12 d``."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole < 600 and whole % 60 else "")
    if whole < 86_400:
        return f"{whole // 3600} h" + (f" {whole % 3600 // 60} min" if whole % 3600 >= 60 else "")
    return f"{whole // 86_400} d"


def brief(seconds: float) -> str:
    """How long something took: in milliseconds, if that was not long."""
    return f"{round(seconds * 1000)} ms" if 0 <= seconds < 1 else span(seconds)


def clock(at: datetime, zone: str | None = None) -> str:
    """A moment in local time; or in a time zone, which is then named."""
    if zone is None:
        return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    from zoneinfo import ZoneInfo

    return at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M:%S %Z")
