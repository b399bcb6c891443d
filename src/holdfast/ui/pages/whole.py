"""Something long, in parts: one entry with all that it says, or the whole state at an entry."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from holdfast.cli.about import about
from holdfast.ui.api.problems import Refused
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.run import frame, head

CHARACTERS = 60_000  # at a time


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


def entry(ask: Ask) -> Response:
    """One entry, with all that it says."""
    run, top = ask.run, head(ask)
    named = str(ask.request.path_params["seq"])
    if not (named.isascii() and named.isdecimal() and len(named) < 16):
        raise Refused(404, "NoEntry", "an entry has a number")
    found = run.entry(int(named))
    return ask.render(
        "whole.html",
        title=f"{top.info.id}: entry {found.seq}",
        tab="journal",
        heading=f"Entry {found.seq}: {found.kind}",
        about=about(found),
        at=found.at,
        part=part_of(found.contents, ask.number("begin") or 0, run_url(top.info.id, "entries", found.seq)),
        **frame(ask, top),
    )


def state(ask: Ask) -> Response:
    """The whole state at an entry; of a run that has none, the results of its steps."""
    run, top = ask.run, head(ask)
    checkpoint = run.checkpoint(ask.number("at"))
    shown = checkpoint.raw_state if checkpoint.state_seq is not None else checkpoint.raw_results
    here = run_url(top.info.id, "state", "whole", at=str(checkpoint.seq))
    return ask.render(
        "whole.html",
        title=f"{top.info.id}: state at {checkpoint.seq}",
        tab="state",
        heading=f"State at entry {checkpoint.seq}",
        about=None,
        at=checkpoint.saved_at,
        part=part_of(shown, ask.number("begin") or 0, here),
        **frame(ask, top),
    )
