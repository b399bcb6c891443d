"""The HTTP API under ``/api/v1``: each operation of the table is a route.

A request is decoded into what the operation takes, carried out in a thread, and what it gives is encoded; whatever is
refused, on the way or there, becomes a problem document.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import Any, get_origin
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from sse_starlette import EventSourceResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import holdfast.ui.paths  # noqa: F401  # makes {run:part} known to routes
from holdfast.ui.api import openapi
from holdfast.ui.api.calls import Call
from holdfast.ui.api.idempotency import Given
from holdfast.ui.api.openapi import LINES
from holdfast.ui.api.operations import TABLE, Operation, perform
from holdfast.ui.api.problems import Refused, answer_of, problem_of
from holdfast.ui.live import Event
from holdfast.ui.security import current
from holdfast.ui.shapes import Nothing, RunView
from holdfast.ui.site import Site, site_of

BASE = "/api/v1"
JSON = "application/json"
SILENCE = 15  # seconds after which a stream says that it is still there
PATIENCE = 30.0  # seconds that a client of a stream may take to read an event
MAX_KEY = 200  # characters of an idempotency key
MAX_FIELDS = 1000  # parameters of a query
log = logging.getLogger("holdfast")


def routes() -> list[BaseRoute]:
    """All routes of the API."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in TABLE:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [
        *(_route(path, operations) for path, operations in by_path.items()),
        Route("/api/openapi.json", _document, name="openapi"),
    ]


def _route(path: str, operations: dict[str, Operation]) -> Route:
    """One route for all that can be done at a place."""
    ways = {method: _endpoint(operation) for method, operation in operations.items()}

    async def answer(request: Request) -> Response:
        return await ways["GET" if request.method == "HEAD" else request.method](request)

    return Route(BASE + path.replace("}", ":part}"), answer, methods=list(ways), name=path)


@cache
def _document_text() -> bytes:
    return msgspec.json.encode(openapi.document())


def _document(request: Request) -> Response:
    return Response(_document_text(), media_type=JSON)


def _endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        site = site_of(request)
        try:
            query = query_of(operation, request)
            if operation.streams:
                return await _streamed(site, operation, request, query)
            body = _body_of(operation, request, await request.body())
            given = await site.call(_carried_out, site, operation, request, query, body, await request.body())
        except Exception as error:  # whatever it is, the caller gets a document
            return refusal(site, error)
        headers = {"ETag": given.etag} if given.etag else {}
        return Response(given.body, given.status, headers, given.kind)

    return answer


def refusal(site: Site, error: Exception) -> Response:
    """What went wrong, as an answer; what nobody foresaw is told to the log."""
    problem = problem_of(error, site.holdfast.place)
    if problem.status == 500:
        log.error("a request could not be answered: %s", error, exc_info=error)
    return answer_of(problem, getattr(error, "headers", None))


def http_error(request: Request, error: Exception) -> Response:
    """What the router refuses: no such place, or not this way."""
    assert isinstance(error, HTTPException)
    title = {404: "NotFound", 405: "MethodRefused"}.get(error.status_code, "Refused")
    told = Refused(error.status_code, title, error.detail.lower(), dict(error.headers or {}))
    return answer_of(problem_of(told, ""), told.headers)


# --- decoding


def query_of(operation: Operation, request: Request) -> Struct:
    """What the operation is asked for in the query."""
    kind = operation.query or Nothing
    several = {one.encode_name for one in msgspec.structs.fields(kind) if _is_list(one.type)}
    found: dict[str, Any] = {}
    try:
        pairs = parse_qsl(request.url.query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise Refused(422, "Invalid", f"a query has up to {MAX_FIELDS} parameters") from None
    for name, value in pairs:
        if name in several:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Refused(422, "Invalid", f"{name} is given twice")
        else:
            found[name] = value
    try:
        return msgspec.convert(found, kind, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(422, "Invalid", f"query: {error}") from None


def _is_list(kind: Any) -> bool:
    inner = getattr(kind, "__origin__", kind)
    return list in (get_origin(kind), get_origin(inner))


def _body_of(operation: Operation, request: Request, body: bytes) -> Struct | None:
    if operation.body is None:
        return None
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON:
        raise Refused(415, "WrongKind", f"the body is to be {JSON}")
    try:
        return msgspec.json.decode(body or b"{}", type=operation.body)
    except msgspec.ValidationError as error:
        raise Refused(422, "Invalid", f"body: {error}") from None
    except msgspec.DecodeError as error:
        raise Refused(400, "NotJson", f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Refused(400, "NotJson", "the body is nested too deeply") from None


# --- carrying out


def _carried_out(
    site: Site, operation: Operation, request: Request, query: Struct, body: Struct | None, sent: bytes
) -> Given:
    person, headers = current(request), request.headers

    def act(key: str | None) -> Given:
        call: Call[Any, Any] = Call(site.holdfast, person, request.path_params, query, body, key=key)
        value = perform(operation.name, call, if_match=headers.get("if-match"))
        if isinstance(value, bytes):
            return Given(operation.status, value, kind=LINES)
        return Given(operation.status, msgspec.json.encode(value, enc_hook=str), _etag(value))

    key = headers.get("idempotency-key") if operation.repeatable else None
    if key is None:
        return act(None)
    if not 0 < len(key) <= MAX_KEY:
        raise Refused(422, "Invalid", f"an idempotency key has 1 to {MAX_KEY} characters")
    wanted = b"\n".join([request.url.path.encode(), request.url.query.encode(), sent])
    return site.once.carry_out(person.name, operation.name, key, wanted, act)


def _etag(value: Any) -> str | None:
    run = value if isinstance(value, RunView) else getattr(value, "run", None)
    return run.etag if isinstance(run, RunView) else None


async def _streamed(site: Site, operation: Operation, request: Request, query: Struct) -> Response:
    call: Call[Any, None] = Call(
        hf=site.holdfast, person=current(request), params=request.path_params, query=query, body=None
    )
    events: AsyncIterator[Event] = await operation.call(site, call)
    told = _until(events, request.state.until)
    return EventSourceResponse(told, ping=SILENCE, send_timeout=PATIENCE)


async def _until(events: AsyncIterator[Event], until: int | None) -> AsyncIterator[dict[str, str]]:
    """The events as they are sent, no longer than whoever is told of them is signed in."""
    ends = None if until is None else asyncio.get_running_loop().time() + until - time.time()
    while True:
        try:
            async with asyncio.timeout_at(ends):
                event = await anext(events)
        except (StopAsyncIteration, TimeoutError):
            return
        yield {"event": event.name, "data": event.data}
