"""How long a call took, as its entry says it: an entry is written at the end, and the branch may have stood before."""

from __future__ import annotations

from time import monotonic

from holdfast.kernel.journal import Data

TOLD_FROM = 0.05  # seconds: what took less says nothing, and costs nothing


def tell_time(data: Data, since: float | None) -> None:
    """Put into an entry how many seconds have passed since then, by the monotonic clock, if that is worth telling."""
    if since is not None and (seconds := monotonic() - since) >= TOLD_FROM:
        data["seconds"] = round(seconds, 3)
