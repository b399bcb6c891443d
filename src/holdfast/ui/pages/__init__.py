"""The pages: what a person sees in the browser.

One module per page. Each has functions that ask the store for what is shown (plain functions, called in a thread), and
render it with a template. Pages act through the operations of the API and never in a second way: see `acts`. Everything
works without JavaScript, but for live updates; ``static/page.js`` adds those.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.graph.draw.svg import stylesheet
from holdfast.ui.pages import (
    acts,
    effects,
    family,
    forking,
    journal,
    manual,
    questions,
    run,
    runs,
    signing,
    state,
    work,
)
from holdfast.ui.pages.asking import Page, endpoint

__all__ = ["routes"]

_LOOK: dict[str, Page] = {
    "/": runs.page,
    "/questions": questions.page,
    "/queues": work.queues,
    "/schedules": work.schedules,
    "/workers": work.workers,
    "/api": manual.page,
    "/sign-in": signing.page,
    "/runs/{id:part}": run.page,
    "/runs/{id:part}/state": state.page,
    "/runs/{id:part}/state/whole": state.whole,
    "/runs/{id:part}/effects": effects.page,
    "/runs/{id:part}/family": family.page,
    "/runs/{id:part}/journal": journal.page,
    "/runs/{id:part}/entries/{seq}": journal.entry,
    "/runs/{id:part}/fork": forking.page,
    "/runs/{id:part}/rollback": acts.rollback_form,
    "/runs/{id:part}/cancel": acts.cancel_form,
    "/runs/{id:part}/retry": acts.retry_form,
    "/runs/{id:part}/resolve": acts.resolve_form,
}
_ACT: dict[str, Page] = {
    "/sign-in": signing.sign_in,
    "/sign-out": signing.sign_out,
    "/runs/{id:part}/answer": acts.answer,
    "/runs/{id:part}/fork": forking.post,
    "/runs/{id:part}/rollback": acts.rollback,
    "/runs/{id:part}/cancel": acts.cancel,
    "/runs/{id:part}/retry": acts.retry,
    "/runs/{id:part}/resolve": acts.resolve,
    "/queues/{id:part}": acts.queue,
    "/schedules/{id:part}": acts.schedule,
}


def routes() -> list[BaseRoute]:
    """The routes of all pages."""
    return [
        Route("/graph.css", _graph_style),
        *(Route(path, endpoint(page), methods=["GET"]) for path, page in _LOOK.items()),
        *(Route(path, endpoint(page), methods=["POST"]) for path, page in _ACT.items()),
    ]


def _graph_style(request: Request) -> Response:
    """How pictures of graphs look: it is made with them, and stands apart, since pages allow no style of their own."""
    return Response(stylesheet(), media_type="text/css", headers={"Cache-Control": "max-age=3600"})
