"""A request for a page, and the page that answers it.

A page is a plain function that takes an `Ask` and gives a response; `endpoint` calls it in a thread, so that the event
loop goes on while the store is read. What the store or the engine refuses becomes a page that says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import RunNotFound
from holdfast.ui.api.calls import Call
from holdfast.ui.api.operations import perform
from holdfast.ui.api.problems import Refused, problem_of
from holdfast.ui.pages.addresses import with_query
from holdfast.ui.pages.words import prepare
from holdfast.ui.security import Role, csrf_token
from holdfast.ui.site import Site, site_of
from holdfast.views import RunInfo

log = logging.getLogger("holdfast")


HANDLES = 64  # of runs that were looked at lately: each knows what it has read of its journal, and reads what is new
ENTRIES = 300_000  # that they have read, all together


class Handles:
    """The handles of a server, the one that was not used for longest first to be forgotten."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Run, int]] = {}  # by uid, with how many entries the run had
        self._lock = threading.Lock()

    def get(self, hf: Holdfast, id: str) -> Run:
        """The run of this id; raises `RunNotFound`."""
        fresh = hf.get(id)
        entries = fresh.info().seq + 1
        with self._lock:
            run, _ = self._known.pop(fresh.uid, (fresh, 0))
            self._known[fresh.uid] = run, entries
            while len(self._known) > 1 and (len(self._known) > HANDLES or self._weight() > ENTRIES):
                del self._known[next(iter(self._known))]
        return run

    def _weight(self) -> int:
        return sum(entries for _, entries in self._known.values())


class Ask:
    """What a page is asked for: by whom, which run, with what parameters, and what was sent with a form."""

    def __init__(self, request: Request, form: Mapping[str, str]) -> None:
        self.request = request
        self.form = form
        self.site: Site = site_of(request)
        self.hf: Holdfast = self.site.holdfast
        self.query: list[tuple[str, str]] = parse_qsl(request.url.query)
        self.person = request.state.person

    @property
    def may_act(self) -> bool:
        """Whether forms that act are shown."""
        return self.person is not None and self.person.may(Role.ACT)

    @property
    def id(self) -> str:
        """The id of the run that the address names."""
        return str(self.request.path_params["id"])

    @property
    def run(self) -> Run:
        """The run that the address names; raises `RunNotFound`. For reading only: many requests share it."""
        return self._handles.get(self.hf, self.id)

    @property
    def _handles(self) -> Handles:
        state = self.request.app.state
        if not hasattr(state, "handles"):
            state.handles = Handles()
        handles: Handles = state.handles
        return handles

    def perform(self, name: str, **params: Any) -> Any:
        """Carry out an operation of the API that looks at something."""
        query = params.pop("query", None)
        return perform(name, Call(self.hf, self.person, params, query, None))

    def act(self, name: str, *, body: Struct | None = None, if_match: str | None = None, **params: str) -> Any:
        """Carry out an operation of the API that changes something, in the name of who is signed in."""
        return perform(name, Call(self.hf, self.person, params, None, body), if_match=if_match)

    def info(self, id: str) -> RunInfo | None:
        """A run as it stands in lists; None if there is none of this id."""
        try:
            return self.hf.get(id).info()
        except RunNotFound:
            return None

    def one(self, name: str, default: str = "") -> str:
        """A parameter of the address, or of the form."""
        if name in self.form:
            return self.form[name]
        return next((value for key, value in self.query if key == name), default).strip()

    def all(self, name: str) -> list[str]:
        """A parameter that may be given several times."""
        return [value.strip() for key, value in self.query if key == name and value.strip()]

    def number(self, name: str) -> int | None:
        """A parameter that is the number of an entry; None if it is not given. Raises `Refused`."""
        text = self.one(name)
        if not text:
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 16):
            raise Refused(422, "NotANumber", f"{name}: the number of an entry is wanted")
        return int(text)

    def render(self, template: str, *, status: int = 200, **context: Any) -> Response:
        """The page that a template makes."""
        environment = self.site.templates.env
        prepare(environment)
        text = environment.get_template(template).render(
            person=self.person,
            may_act=self.may_act,
            csrf=csrf_token(self.request),
            path=self.request.url.path,
            here=with_query(self.request.url.path, dict(self.query)),
            **context,
        )
        return HTMLResponse(text, status)

    def go(self, url: str) -> Response:
        """Send the browser to another page, after something was done."""
        return RedirectResponse(url, 303)


Page = Callable[[Ask], Response]


def endpoint(page: Page) -> Callable[[Request], Awaitable[Response]]:
    """What answers requests for a page."""

    async def answer(request: Request) -> Response:
        body = await request.body() if request.method == "POST" else b""
        form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        ask = Ask(request, form)
        try:
            response = await ask.site.call(page, ask)
        except Exception as error:  # whatever it is, a person gets a page
            return await ask.site.call(refusal, ask, error)
        return unless_same(request, response)

    return answer


def refusal(ask: Ask, error: Exception) -> Response:
    """The page that says why there is no other. What nobody foresaw is told to the log, and no more than that here."""
    problem = problem_of(error, ask.hf.place)
    if problem.status == 500:
        log.error("a page could not be shown: %s", error, exc_info=error)
    return ask.render("refused.html", status=problem.status, problem=problem, title=problem.title)


def unless_same(request: Request, response: Response) -> Response:
    """The response with a tag of its contents; an empty one, if the browser has these contents already."""
    if request.method != "GET" or response.status_code != 200:
        return response
    tag = f'"{blake2b(bytes(response.body), digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache, private"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response
