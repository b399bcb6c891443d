"""The state of a run at each entry, with what the entry changed: a slider over the journal."""

from __future__ import annotations

from itertools import islice
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from holdfast.cli.about import about
from holdfast.cli.commands.looking import picture_of
from holdfast.cli.difference import Difference, differences
from holdfast.errors import NoCheckpoint
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.run import frame, head

DIFFERENCES = 200  # that are shown
RESULTS = 20_000  # entries up to which the results of all steps are put together: it takes a while
_COMPARED = ("state", "node", "next", "queue", "steps")


class Step(Struct, frozen=True):
    """A place where two states differ, as it is shown."""

    difference: Difference
    mark: str


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
    now = _picture(run, at, results=at <= RESULTS)
    before = _picture(run, at - 1, results=at <= RESULTS) if at else {**dict.fromkeys(_COMPARED), "steps": {}}
    found = list(islice(differences(before, now), DIFFERENCES + 1))
    return ask.render(
        "state.html",
        title=f"{top.info.id}: state",
        tab="state",
        at=at,
        entry=entry,
        about=about(entry),
        live_entry=info.live,
        state=now["state"] if now["state"] is not None else now["steps"],
        has_state=now["state"] is not None,
        next=now["next"] or now["queue"],
        steps=[Step(one, _SIGNS[one.change]) for one in found[:DIFFERENCES]],
        more=len(found) > DIFFERENCES,
        too_long=at > RESULTS and now["state"] is None,
        **frame(ask, top),
    )


def _picture(run: Any, at: int, *, results: bool) -> dict[str, Any]:
    """What is compared. Of a long run the results of its steps are left out, on both sides."""
    if not results:
        checkpoint = run.checkpoint(at)
        told = {"state": checkpoint.raw_state, "node": checkpoint.node, "next": checkpoint.next}
        return told | {"queue": list(checkpoint.queue) if checkpoint.queue else None, "steps": None}
    found = picture_of(run, at)
    return {name: found[name] for name in _COMPARED}
