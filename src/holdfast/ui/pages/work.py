"""Queues, schedules and workers: what there is to do, when more of it comes, and who does it."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.present.status import SOON, neglected
from holdfast.ui import shapes
from holdfast.ui.pages.asking import Ask


def queues(ask: Ask) -> Response:
    """All queues: how deep they are, and what is set about them."""
    found: shapes.Queues = ask.perform("list_queues")
    late = [one.name for one in found.items if one.oldest is not None and one.oldest > SOON.total_seconds()]
    idle = neglected(ask.hf.client.store, late)
    return ask.render("queues.html", title="Queues", live="store", queues=found.items, idle=idle)


def schedules(ask: Ask) -> Response:
    """All schedules, and when they come next."""
    found: shapes.Schedules = ask.perform("list_schedules")
    return ask.render("schedules.html", title="Schedules", live="store", schedules=found.items)


def workers(ask: Ask) -> Response:
    """Who is alive, and what each of them holds."""
    found: shapes.Workers = ask.perform("list_workers")
    return ask.render("workers.html", title="Workers", live="store", workers=found.items)
