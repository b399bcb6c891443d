"""How things are written on the pages: times, values, statuses. What templates use as filters."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from jinja2 import Environment
from msgspec import Struct

from holdfast.present.names import lane_name, task_name
from holdfast.present.remedies import Remedy, command_line, reworded, worker_for
from holdfast.present.words import ago, brief, mark, span, undo_word, word, workflow_of
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.paths import part
from holdfast.ui.shapes import WorkerView

CUT = 4_000  # characters of a value that are shown beside others
CHARACTERS = 60_000  # of something long that one page shows


class Text(Struct, frozen=True):
    """A value as text. ``cut`` is how many characters were left out."""

    text: str
    cut: int = 0


def value(given: Any, limit: int = CUT) -> Text:
    """A value for people: text as it is, all else as JSON over several lines."""
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, indent=2, default=str)
    return Text(text) if len(text) <= limit else Text(text[:limit], len(text) - limit)


class Part(Struct, frozen=True):
    """A part of a text, and the addresses of those around it."""

    text: str
    begin: int
    length: int
    earlier: str | None
    later: str | None


def part_of(given: Any, begin: int, here: str) -> Part:
    """The part of a value, as JSON, that begins at a character."""
    text = json.dumps(given, ensure_ascii=False, indent=2, default=str)
    begin = min(begin, len(text))
    end = begin + CHARACTERS
    sign = "&" if "?" in here else "?"
    earlier = f"{here}{sign}begin={max(0, begin - CHARACTERS)}" if begin else None
    return Part(text[begin:end], begin, len(text), earlier, f"{here}{sign}begin={end}" if end < len(text) else None)


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


_BUTTONS = {  # what does on the pages what an act does
    "resolve": "“Resolve”",
    "unblock": "“Let it go on”",
    "retry": "“Retry”",
    "fork": "“Fork”",
    "cancel": "“Cancel”",
    "rollback": "“Roll back”",
    "effects": "“Effects”",
}
_FORCE = "“pass over undos that fail”"


def in_buttons(text: str) -> str:
    """A text of the engine, with the buttons that do what its calls of Python would do."""
    return reworded(text, None, _button).replace("with force=True", f"with {_FORCE}")


def _button(remedy: Remedy) -> str:
    if remedy.act not in _BUTTONS or "--accept" in remedy.options:
        return f"`{command_line(remedy.act, options=remedy.words)}`"
    place = f" to entry {remedy.to}" if remedy.act == "rollback" and remedy.to is not None else ""
    return f"{_BUTTONS[remedy.act]}{place}{f' with {_FORCE}' if remedy.options else ''}"


def typed(remedy: Remedy) -> str:
    """A remedy that needs a terminal, as the command that does it. It names no store."""
    return command_line(remedy.act, *remedy.arguments, options=remedy.words)


def worker_command(queue: str) -> str:
    """The command of a worker that takes from the queue."""
    return typed(worker_for(queue))


def prepare(environment: Environment) -> None:
    """Give the templates what they use."""
    if "brief" in environment.filters:
        return
    environment.filters.update(
        ago=ago, brief=brief, lane=lane_name, machine=machine, mark=mark, span=span, stamp=stamp, task=task_name,
        typed=typed, undo_word=undo_word, until=until, value=value, word=word, workflow=workflow_of,
    )  # fmt: skip
    environment.globals.update(lease=lease, part=part, run_url=run_url, worker_command=worker_command)
