"""Requests, by httpx (the extra ``http``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from msgspec import Struct

from holdfast.errors import ActionFailed, ExtraMissing

BODY = 64_000  # characters that are kept of an answer
MAX_BYTES = 4 * 1024 * 1024  # that are read of an answer
_LOOK = 0.1  # seconds between two looks at whether to go on
TIMEOUT = 30.0  # seconds, if the step says nothing


class Answer(Struct, frozen=True):
    """What came back. ``json`` is None if it is none, or too long to be kept."""

    status_code: int
    body: str
    json: Any = None
    location: str | None = None


def check_installed() -> None:
    """Raise `ExtraMissing` if there is no httpx."""
    try:
        import httpx  # noqa: F401
    except ImportError:
        raise ExtraMissing("`http:`", "http") from None


class Request(Struct, frozen=True):
    """What is sent, and where to."""

    method: str
    url: str
    headers: dict[str, str]
    params: dict[str, str]
    json: Any
    body: str | None
    follow_redirects: bool

    @property
    def parts(self) -> dict[str, Any]:
        """The same as httpx takes it."""
        sent: dict[str, Any] = {"headers": self.headers, "params": self.params or None}
        if self.json is not None:
            sent["json"] = self.json
        if self.body is not None:
            sent["content"] = self.body.encode()
        return sent


def send(request: Request, *, timeout: float | None, keep_on: Callable[[], None]) -> Answer:
    """Send a request and read the answer, up to a limit. Raises `ActionFailed` if none comes.

    A thread of its own does that, so that a time limit and ``keep_on`` hold also while nothing comes.
    """
    check_installed()
    seconds = TIMEOUT if timeout is None else timeout
    until = time.monotonic() + seconds
    answer: Future[Answer] = Future()
    given_up = threading.Event()

    def work() -> None:
        try:
            answer.set_result(_answer(request, seconds, given_up))
        except BaseException as error:  # it is raised where the answer is waited for
            answer.set_exception(error)

    threading.Thread(target=work, name="holdfast-http", daemon=True).start()
    try:
        while not answer.done():
            keep_on()
            if time.monotonic() > until:
                raise ActionFailed(f"{request.method} {request.url}: no whole answer came within {seconds:g} s")
            wait([answer], timeout=_LOOK)
    finally:
        given_up.set()
    return answer.result()


def _answer(request: Request, seconds: float, given_up: threading.Event) -> Answer:
    import httpx

    where = f"{request.method} {request.url}"
    try:
        with (
            httpx.Client(timeout=seconds, follow_redirects=request.follow_redirects) as client,
            client.stream(request.method, request.url, **request.parts) as response,
        ):
            data = b""
            for chunk in response.iter_bytes():
                if given_up.is_set():
                    break  # nobody waits for it any more
                data += chunk
                if len(data) > MAX_BYTES:
                    raise ActionFailed(f"{where}: the answer has more than {MAX_BYTES:,} bytes")
            text = data.decode(response.encoding or "utf-8", "replace")
            return Answer(response.status_code, text[:BODY], _json(text), response.headers.get("location"))
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, UnicodeError, ValueError, TypeError) as error:
        raise ActionFailed(f"{where}: {error or type(error).__name__}") from None


def _json(text: str) -> Any:
    from json import loads

    if len(text) > BODY:
        return None
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return None
