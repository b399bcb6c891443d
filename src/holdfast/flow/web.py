"""Requests, by httpx (the extra ``http``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from holdfast.errors import ActionFailed, ExtraMissing

BODY = 64_000  # characters that are kept of an answer
MAX_BYTES = 4 * 1024 * 1024  # that are read of an answer
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


def request(
    method: str,
    url: str,
    *,
    headers: dict[str, str],
    params: dict[str, str],
    json: Any,
    body: str | None,
    follow_redirects: bool,
    timeout: float | None,
    keep_on: Callable[[], None],
) -> Answer:
    """Send a request and read the answer, up to a limit. Raises `ActionFailed` if none comes."""
    check_installed()
    import httpx

    seconds = TIMEOUT if timeout is None else timeout
    until = time.monotonic() + seconds
    sent: dict[str, Any] = {"headers": headers, "params": params or None}
    if json is not None:
        sent["json"] = json
    if body is not None:
        sent["content"] = body.encode()
    try:
        with (
            httpx.Client(timeout=seconds, follow_redirects=follow_redirects) as client,
            client.stream(method, url, **sent) as response,
        ):
            data = b""
            for chunk in response.iter_bytes():
                keep_on()
                data += chunk
                if time.monotonic() > until:
                    raise ActionFailed(f"{method} {url}: no whole answer came within {seconds:g} s")
                if len(data) > MAX_BYTES:
                    raise ActionFailed(f"{method} {url}: the answer has more than {MAX_BYTES:,} bytes")
            text = data.decode(response.encoding or "utf-8", "replace")
            return Answer(response.status_code, text[:BODY], _json(text), response.headers.get("location"))
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, ValueError, TypeError) as error:
        raise ActionFailed(f"{method} {url}: {error or type(error).__name__}") from None


def _json(text: str) -> Any:
    from json import loads

    if len(text) > BODY:
        return None
    try:
        return loads(text)
    except (ValueError, RecursionError):
        return None
