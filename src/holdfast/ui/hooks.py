"""Webhooks: other programs are told when a run asks something, is completed, fails or is cancelled.

A hook is a document of the store: where to, of what, and by which secret the requests are signed. What is due is found
in the journals by `holdfast.ui.outbox`, and each delivery is an ordinary run of the workflow below, on a queue of its
own, under an id that is made from what it tells. So there is one for each, whoever finds it, any worker may claim it,
and it is retried, watched and listed as all runs are.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import time
import urllib.request
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.app import Holdfast
from holdfast.engine.workflow.declare import step, workflow
from holdfast.engine.workflow.revived import HOOK as KIND
from holdfast.engine.workflow.scope import current_scope
from holdfast.errors import SecretMissing, StoreDamaged, UsageError
from holdfast.kernel.model import Document, Kind
from holdfast.stores.protocol import Store, find_document

QUEUE = "webhooks"
WORKFLOW = "holdfast.webhook"
TIMEOUT = 15.0  # seconds that a receiver may take
MAX_NAME = 64
_NAME = re.compile(rf"[!-.0-~]{{1,{MAX_NAME}}}")


class Event(StrEnum):
    """What can be told."""

    ASKED = "question.asked"
    COMPLETED = "run.completed"
    FAILED = "run.failed"
    CANCELLED = "run.cancelled"


EVENTS = {
    Kind.ASKED: Event.ASKED,
    Kind.COMPLETED: Event.COMPLETED,
    Kind.FAILED: Event.FAILED,
    Kind.CANCELLED: Event.CANCELLED,
}


class Hook(Struct, frozen=True, kw_only=True):
    """Who is told what. ``secret`` is the name of the environment variable that holds it, never the secret itself.

    What happened before ``since`` is not told.
    """

    url: str
    secret: str
    events: tuple[Event, ...] = tuple(Event)
    workflow: str | None = None
    paused: bool = False
    since: int = 0


class Notice(Struct, frozen=True, kw_only=True):
    """What a receiver gets, as JSON: that something happened, and where to look. Never what the run holds.

    ``id`` is the same for each attempt to tell it.
    """

    id: str
    type: Event
    at: datetime
    run: str
    uid: str
    seq: int
    workflow: str | None = None


class NotTaken(Exception):
    """The receiver did not take what it was told; it is tried again later."""


# --- the hooks of a store


def hooks(store: Store) -> dict[str, Hook]:
    """All hooks, by name."""
    return {document.name: _read(store, document) for document in store.documents(KIND)}


def _read(store: Store, document: Document) -> Hook:
    try:
        return msgspec.json.decode(document.value, type=Hook)
    except msgspec.MsgspecError as error:
        remedy = f"`holdfast hook {document.name} --delete` forgets it"
        raise StoreDamaged(store.place, f"what it says of a hook cannot be read ({error}); {remedy}") from None


def set_hook(
    hf: Holdfast,
    name: str,
    *,
    url: str | None = None,
    secret: str | None = None,
    events: tuple[Event, ...] | None = None,
    workflow: str | None = None,
    paused: bool | None = None,
) -> Hook:
    """Make a hook, or change one; what is None stays as it was. One that is resumed tells what happens from then on."""
    if not _NAME.fullmatch(name):  # it is in the id of each delivery, which is a header
        raise UsageError(f"a hook has a name of 1 to {MAX_NAME} plain characters without a slash, not {name!r}")
    if url is not None:
        _check_url(url)
    given = {"url": url, "secret": secret, "events": events, "workflow": workflow, "paused": paused}
    changes: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    now = hf.client.store.clock.now()

    def decide(before: Hook | None) -> Hook:
        if before is None and (url is None or secret is None):
            raise UsageError(f"there is no hook {name!r}; to make it, say where to (url) and by which secret")
        if before is None:
            return Hook(**{"since": now, **changes})
        since = now if before.paused and paused is False else before.since
        return replace(before, **{"since": since, **changes})

    return _change(hf.client.store, name, decide)


def delete_hook(hf: Holdfast, name: str) -> bool:
    """Forget a hook, also one that cannot be read; False if there was none.

    What it was to be told already is not told any more.
    """
    while known := find_document(hf.client.store, KIND, name):
        if hf.client.store.put_document(KIND, name, None, known.version):
            return True
    return False


def _change(store: Store, name: str, decide: Callable[[Hook | None], Hook]) -> Hook:
    """Replace a hook by what is decided on it as it is; what it is then."""
    while True:
        known = find_document(store, KIND, name)
        after = decide(_read(store, known) if known is not None else None)
        value = msgspec.json.encode(after)
        if store.put_document(KIND, name, value, known.version if known is not None else None):
            return after


def _check_url(url: str) -> None:
    if not _leads_somewhere(url):
        raise UsageError(f"{url!r} is not where a hook can lead: give http:// or https://, without a password in it")


def _leads_somewhere(url: str) -> bool:
    try:
        told = urlsplit(url)
        is_host = bool(told.hostname) and told.port != 0
    except ValueError:  # a port that is none, say
        return False
    plain = url.isascii() and url.isprintable() and " " not in url
    return plain and told.scheme in ("http", "https") and is_host and not (told.username or told.password)


# --- telling


@workflow(name=WORKFLOW)
def deliver(hook: str, notice: Notice) -> int | None:
    """Tell one thing to the receiver of a hook; what it answered, or None if there is no such hook any more."""
    return post(hook, notice)


@step(name="post", retries=12, delay=2.0, backoff=3.0, max_delay=3600.0)
def post(hook: str, notice: Notice) -> int | None:
    """Send the notice, signed. It is tried again for some hours until the receiver takes it."""
    scope = current_scope.get()
    assert scope is not None
    found = hooks(scope.execution.run.store).get(hook)
    if found is None:
        return None
    body = msgspec.json.encode(notice)
    headers = {"Content-Type": "application/json", "User-Agent": "holdfast", **signed(found, notice.id, body)}
    request = urllib.request.Request(found.url, body, headers, method="POST")
    try:
        with _opener().open(request, timeout=TIMEOUT) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        raise NotTaken(f"the receiver answered {error.code}") from None
    except (URLError, HTTPException, OSError) as error:
        raise NotTaken(f"the receiver cannot be reached: {getattr(error, 'reason', None) or error}") from None


def signed(hook: Hook, id: str, body: bytes, at: int | None = None) -> dict[str, str]:
    """The headers that prove who sent it and when, as the Standard Webhooks have them.

    The signature is HMAC-SHA256 over ``id.timestamp.body``.
    """
    stamp = str(int(time.time()) if at is None else at)
    text = b".".join([id.encode(), stamp.encode(), body])
    signature = base64.b64encode(hmac.digest(secret_of(hook), text, sha256)).decode()
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": f"v1,{signature}"}


def secret_of(hook: Hook) -> bytes:
    """The secret of a hook, from the environment. One that begins with ``whsec_`` is base64."""
    text = os.environ.get(hook.secret)
    if not text:
        raise SecretMissing(hook.secret, "set this environment variable where hooks are delivered")
    if not text.startswith("whsec_"):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise SecretMissing(hook.secret, "what follows whsec_ in it is to be base64") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A receiver cannot send us elsewhere."""

    def redirect_request(self, *_: object) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirect)
