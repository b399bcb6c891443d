"""Signing in with a token, and out."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.ui.guard import own_path, signed_in, signed_out
from holdfast.ui.pages.asking import Ask


def page(ask: Ask) -> Response:
    """The form that asks for the token."""
    return ask.render(
        "sign_in.html", title="Sign in", next=own_path(ask.one("next", "/")), refused=bool(ask.one("refused"))
    )


def sign_in(ask: Ask) -> Response:
    """Take the token, and go on where the browser wanted to."""
    request = ask.request
    target = own_path(ask.form.get("next", "/"))
    host = request.headers.get("host", "")
    return signed_in(ask.site, ask.form.get("token", "").strip(), host, target, secure=request.url.scheme == "https")


def sign_out(ask: Ask) -> Response:
    """Forget who it was."""
    return signed_out(ask.request.headers.get("host", ""))
