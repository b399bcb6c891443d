"""The guard before every page and every operation: what does not pass here reaches nothing.

In this order: the host must be ours (against names that are made to lead here), the caller must be signed in, what
changes something must come from our own pages and from somebody who may act, and the body must arrive whole, in time,
and no larger than the limit. Every answer carries the headers by which a browser keeps the page to itself.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.ui.api.problems import Refused, answer_of, problem_of
from holdfast.ui.security import SAFE, SESSION, Person, Role, Session, allows_host, cookie_name, same_origin
from holdfast.ui.site import Site

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A form of ours must tell where it comes from; "no-referrer" would make a browser hide that from us, too.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
OPEN = ("/sign-in", "/static/")  # what everybody may see
LEAVE = "/sign-out"  # which changes nothing but who is signed in
FORM = "application/x-www-form-urlencoded"
log = logging.getLogger("holdfast")


class Guard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, site: Site, show: Callable[[Request, Exception], Response] | None = None) -> None:
        self.app = app
        self.site = site
        self._show = show  # how a person with a browser is told what is refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope["path"] = _raw_path(scope)
        scope.setdefault("state", {}).update(person=None, csrf="", until=None)
        begun = False

        async def shielded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            response, receive = await self._admit(scope, receive)
            await (response or self.app)(scope, receive, shielded)
        except Refused as refused:
            await self._told(scope, refused)(scope, receive, shielded)
        except Exception as error:  # whatever it is, the caller is told no more than that
            log.exception("%s could not be answered", scope["method"])
            if begun:
                raise
            await answer_of(problem_of(error, self.site.holdfast.place))(scope, receive, shielded)

    def _told(self, scope: Scope, refused: Refused) -> Response:
        if self._show is not None and wants_page(scope) and refused.status != 421:
            return self._show(Request(scope), refused)
        return answer_of(problem_of(refused, self.site.holdfast.place), refused.headers)

    async def _admit(self, scope: Scope, receive: Receive) -> tuple[Response | None, Receive]:
        """Let the request pass, with its body, or give the answer that sends it elsewhere; raises `Refused`."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        host = headers.get("host", "")
        if not allows_host(host, self.site.hosts):
            raise Refused(421, "WrongHost", "this server does not answer for that host; --allow-host names another")
        person, session = self._who(headers, host)
        scope["state"].update(
            person=person, csrf=session.csrf if session else "", until=session.until if session else None
        )
        if method in SAFE and (response := self._exchanged(scope, host)) is not None:
            return response, receive
        is_open = path == OPEN[0] or path.startswith(OPEN[1])
        if person is None and not is_open:
            return _sign_in_first(scope, headers), receive
        if method in SAFE:
            return None, _replayed(await self._body(headers, receive), receive)
        origin = headers.get("origin")
        if origin is not None and not same_origin(origin, host):
            raise Refused(403, "CrossSite", "this request comes from another site, which may not act here")
        if person is not None and not person.may(Role.ACT) and not is_open and path != LEAVE:
            raise Refused(403, "ViewOnly", "this token may look, and not act")
        body = await self._body(headers, receive)
        if session is not None and not _has_csrf(headers, body, session):
            raise Refused(403, "CrossSite", "the form's token is missing or wrong; load the page again and repeat it")
        return None, _replayed(body, receive)

    def _who(self, headers: Headers, host: str) -> tuple[Person | None, Session | None]:
        """Who calls: by a bearer token, or else by the cookie of a session."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.site.tokens.person(token.strip()), None
        cookie = _cookies(headers).get(cookie_name(host))
        session = self.site.tokens.session(cookie) if cookie else None
        return (session.person, session) if session else (None, None)

    def _exchanged(self, scope: Scope, host: str) -> Response | None:
        """A token in the address becomes a cookie, and goes from the address at once."""
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        token = dict(pairs).get("token")
        if token is None or scope["path"].startswith("/api/"):
            return None
        rest = urlencode([(name, value) for name, value in pairs if name != "token"])
        target = f"{scope['path']}?{rest}" if rest else scope["path"]
        return signed_in(self.site, token, host, _own(target), secure=scope["scheme"] == "https")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        limits = self.site.limits
        told = headers.get("content-length", "0")
        too_large = Refused(413, "TooLarge", f"a body may have {limits.body} bytes", {"Connection": "close"})
        if not told.isdecimal() or int(told) > limits.body:
            raise too_large
        chunks, size = list[bytes](), 0
        try:
            async with asyncio.timeout(limits.seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "CutShort", "the connection ended before the whole body was there")
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    if size > limits.body:
                        raise too_large
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            detail = f"the body did not arrive within {limits.seconds:g} seconds"
            raise Refused(408, "TooSlow", detail, {"Connection": "close"}) from None


def signed_in(site: Site, token: str, host: str, target: str, *, secure: bool) -> Response:
    """Sign in with a token and go on at ``target``; to the sign-in page again, if it is not one."""
    cookie = site.tokens.begin(token)
    if cookie is None:
        told = f"/sign-in?{urlencode({'refused': '1', 'next': target})}"
        return RedirectResponse(told, 303, {"Referrer-Policy": "no-referrer"})
    response = RedirectResponse(target, 303, {"Referrer-Policy": "no-referrer"})
    response.set_cookie(
        cookie_name(host), cookie, max_age=SESSION, path="/", secure=secure, httponly=True, samesite="strict"
    )
    return response


def signed_out(host: str) -> Response:
    """Forget who was signed in."""
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(cookie_name(host), path="/", httponly=True, samesite="strict")
    return response


def own_path(target: str) -> str:
    """A place on this site to go on at, or the first page: never another site's address."""
    return _own(target)


def _own(target: str) -> str:
    harmless = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if harmless else "/"


def _sign_in_first(scope: Scope, headers: Headers) -> Response:
    if scope["method"] not in SAFE and wants_page(scope):
        return RedirectResponse("/sign-in", 303)  # what was sent is lost; it is not to be repeated by itself
    if scope["path"].startswith("/api/") or scope["method"] not in SAFE:
        refused = Refused(401, "NotSignedIn", "a token is wanted: Authorization: Bearer TOKEN")
        return answer_of(problem_of(refused, ""), {"WWW-Authenticate": 'Bearer realm="holdfast"'})
    query = scope["query_string"].decode("latin-1")
    target = f"{scope['path']}?{query}" if query else scope["path"]
    return RedirectResponse(f"/sign-in?{urlencode({'next': target})}" if target != "/" else "/sign-in", 303)


def wants_page(scope: Scope) -> bool:
    """Whether a person with a browser asks, not a program."""
    return not scope["path"].startswith(("/api/", "/static/")) and "text/html" in Headers(scope=scope).get("accept", "")


def _raw_path(scope: Scope) -> str:
    """The path as it was sent, with its escapes: an id may hold a slash, which is not one between two parts."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:
        return quote(scope["path"])
    return raw.partition(b"?")[0].decode("latin-1")


def _cookies(headers: Headers) -> dict[str, str]:
    """All cookies. Those of other servers of this machine come along, whatever they look like."""
    return cookie_parser("; ".join(headers.getlist("cookie")))


def _has_csrf(headers: Headers, body: bytes, session: Session) -> bool:
    given = headers.get("x-csrf-token", "")
    if not given and headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
        given = parse_qs(body.decode("utf-8", "replace")).get("csrf", [""])[0]
    return hmac.compare_digest(given.encode(errors="replace"), session.csrf.encode())


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body that was read already, and then what else comes."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
