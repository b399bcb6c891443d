"""The state of a run at each entry, with what the entry changed: a slider over the journal."""

from __future__ import annotations

from itertools import islice

from starlette.responses import Response

from holdfast.errors import NoCheckpoint
from holdfast.present.about import about
from holdfast.present.diff import State, changes, state_of
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.run import frame, head
from holdfast.ui.pages.words import part_of

DIFFERENCES = 200  # that are shown
RESULTS = 20_000  # entries up to which the results of all steps are put together: it takes a while


_SIGNS = {"added": "+", "removed": "−", "changed": "~"}


def page(ask: Ask) -> Response:
    """The state at an entry; the newest, if none is asked for."""
    run, top = ask.run, head(ask)
    seq = top.info.seq
    at = ask.number("at")
    at = seq if at is None else at
    if at > seq:
        raise NoCheckpoint(top.info.id, f"there is no entry {at}; the newest is {seq}")
    entry = run.entries(after=str(at - 1) if at else None, limit=1)[0]
    info = run.history(after=str(at - 1) if at else None, limit=1)[0]
    now = state_of(run, at, results=at <= RESULTS)
    before = state_of(run, at - 1, results=at <= RESULTS) if at else State(run=run.id, seq=0)
    found = list(islice(changes(before, now), DIFFERENCES + 1))
    return ask.render(
        "state.html",
        title=f"{top.info.id}: state",
        tab="state",
        at=at,
        entry=entry,
        about=about(entry),
        live_entry=info.live,
        state=now.shown,
        has_state=now.state is not None,
        next=now.next or now.queue,
        differences=found[:DIFFERENCES],
        signs=_SIGNS,
        more=len(found) > DIFFERENCES,
        too_long=at > RESULTS and now.state is None,
        **frame(ask, top),
    )


def whole(ask: Ask) -> Response:
    """The whole state at an entry; of a run that has none, the results of its steps."""
    run, top = ask.run, head(ask)
    found = state_of(run, ask.number("at"))
    return ask.render(
        "whole.html",
        title=f"{top.info.id}: state at {found.seq}",
        tab="state",
        heading=f"State at entry {found.seq}",
        about=None,
        at=run.checkpoint(found.seq).saved_at,
        part=part_of(found.shown, ask.number("begin") or 0, run_url(top.info.id, "state", "whole", at=str(found.seq))),
        **frame(ask, top),
    )
