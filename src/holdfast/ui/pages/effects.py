"""What a run did to the outside world, and what became of it: the ledger of its effects."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.run import frame, head

PAGE = 200  # effects


def page(ask: Ask) -> Response:
    """The ledger, oldest first."""
    run, top = ask.run, head(ask)
    effects = run.effects()
    begin = ask.number("from") or 0
    return ask.render(
        "effects.html",
        title=f"{top.info.id}: effects",
        tab="effects",
        effects=effects[begin : begin + PAGE],
        begin=begin,
        count=len(effects),
        step=PAGE,
        **frame(ask, top),
    )
