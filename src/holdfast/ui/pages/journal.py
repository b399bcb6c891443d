"""The raw journal of a run: its entries in pages, one entry as a whole, and entries by name to choose from."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.engine.run.handle import Run
from holdfast.errors import HoldfastError
from holdfast.kernel.model import Kind
from holdfast.present.about import about, journal_lines
from holdfast.present.words import short
from holdfast.ui.api.problems import Refused
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.run import frame, head
from holdfast.ui.pages.words import part_of
from holdfast.views import RunInfo

PAGE = 100  # entries
OFFERED = 200  # of the newest entries to choose from
_LONG = 80  # characters of what an entry is about


def page(ask: Ask) -> Response:
    """The entries of a run, oldest first; the last page, if none is asked for."""
    run, top = ask.run, head(ask)
    kind = ask.one("kind") or None
    if kind is not None and kind not in list(Kind):
        raise Refused(422, "UnknownKind", f"{kind!r} is no kind of entry")
    seq, lo = top.info.seq, ask.number("from")
    if lo is None:
        lo = 0 if kind is not None else max(0, seq - PAGE + 1)
    found = run.history(limit=PAGE, after=str(lo - 1) if lo else None, kind=kind)
    following = int(found.next) + 1 if found.next is not None else None
    return ask.render(
        "journal.html",
        title=f"{top.info.id}: journal",
        tab="journal",
        lines=journal_lines(run, found.items),
        kinds=[str(one) for one in Kind],
        kind=kind,
        lo=lo,
        earlier=run_url(top.info.id, "journal", **{"from": str(max(0, lo - PAGE)), "kind": kind}) if lo else None,
        later=run_url(top.info.id, "journal", **{"from": following, "kind": kind}) if following is not None else None,
        **frame(ask, top),
    )


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


def named(run: Run, info: RunInfo, *, live: bool = False) -> list[tuple[int, str]]:
    """The newest entries, newest first, each with what it is about; with ``live`` without what was rolled back."""
    after = str(info.seq - OFFERED) if info.seq >= OFFERED else None
    try:
        entries = run.entries(after=after, limit=OFFERED)
        lives = {one.seq for one in run.history(after=after, limit=OFFERED) if one.live or not live}
    except HoldfastError:  # encrypted or damaged: its own page says so, and a number can still be typed
        return []
    return [
        (one.seq, short(f"{one.kind} {about(one) or ''}".strip(), _LONG))
        for one in entries
        if one.seq in lives and not one.pending
    ][::-1]
