"""The application: the guard in front, the API and the pages behind it, and the files that the pages need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates

import holdfast
from holdfast.engine.app import Holdfast
from holdfast.ui import pages
from holdfast.ui.api import routes as api
from holdfast.ui.api.problems import Refused
from holdfast.ui.guard import Guard, wants_page
from holdfast.ui.pages.asking import Ask, refusal
from holdfast.ui.security import LOOPBACK, Tokens
from holdfast.ui.site import Limits, Site


def create_app(
    hf: Holdfast | str, *, tokens: Tokens, hosts: Collection[str] = LOOPBACK, limits: Limits | None = None
) -> Starlette:
    """The web page and the HTTP API of an open store, or of the store at a URL (which is closed with the application).

    ``tokens`` says who may come in. ``hosts`` are the names under which it answers, each with a port or for all ports.
    """
    opened = holdfast.open(hf) if isinstance(hf, str) else hf
    environment = Environment(
        loader=PackageLoader("holdfast.ui"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    site = Site(
        opened,
        tokens,
        Jinja2Templates(env=environment),
        hosts=frozenset(host.lower() for host in hosts),
        limits=limits,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            site.live.stop()
            await site.call(site.live.join)
            if isinstance(hf, str):
                opened.close()

    def shown(request: Request, error: Exception) -> Response:
        return refusal(Ask(request, {}), error)

    def missing(request: Request, error: Exception) -> Response:
        if wants_page(request.scope):
            return shown(request, Refused(404, "NotFound", "there is no such page"))
        return api.http_error(request, error)

    routes: list[BaseRoute] = [
        *api.routes(),
        *pages.routes(),
        Mount("/static", StaticFiles(packages=[("holdfast.ui", "static")]), name="static"),
    ]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={HTTPException: missing},
        middleware=[Middleware(Guard, site=site, show=shown)],
    )
    app.state.site = site
    return app
