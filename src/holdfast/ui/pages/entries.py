"""The entries of a run by name, to choose one of them."""

from __future__ import annotations

from holdfast.cli.about import about
from holdfast.cli.rendering import short
from holdfast.engine.run.handle import Run
from holdfast.errors import HoldfastError
from holdfast.views import RunInfo

MOST = 200  # of the newest entries that are offered
_LONG = 80  # characters of what an entry is about


def named(run: Run, info: RunInfo, *, live: bool = False) -> list[tuple[int, str]]:
    """The newest entries, newest first, each with what it is about; with ``live`` without what was rolled back."""
    after = str(info.seq - MOST) if info.seq >= MOST else None
    try:
        entries = run.entries(after=after, limit=MOST)
        lives = {one.seq for one in run.history(after=after, limit=MOST) if one.live or not live}
    except HoldfastError:  # encrypted or damaged: its own page says so, and a number can still be typed
        return []
    return [
        (one.seq, short(f"{one.kind} {about(one) or ''}".strip(), _LONG))
        for one in entries
        if one.seq in lives and not one.pending
    ][::-1]
