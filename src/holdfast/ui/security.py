"""Who may come in, and what they may do there: tokens, sessions, and the checks of where a request comes from.

Everything here decides and does no I/O; `holdfast.ui.guard` asks it about each request. A token is given once, by
address or form, and exchanged for a cookie that is signed with it: the server keeps no list of sessions, and a new
token ends all that were begun with the old one.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Collection
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

MIN_TOKEN = 16  # characters of a token that somebody chose
SESSION = 12 * 3600  # seconds that a sign-in lasts
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Role(StrEnum):
    """What somebody may do."""

    VIEW = "view"  # look at everything
    ACT = "act"  # and answer, fork, cancel, and so on


class Person(Struct, frozen=True):
    """Who is signed in; ``name`` is what the journal says of their acts."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether they may do what needs this role."""
        return role is Role.VIEW or self.role is Role.ACT


class Session(Struct, frozen=True):
    """A sign-in by cookie, which lasts until a time. ``csrf`` is what a form must bring along that acts in its name."""

    person: Person
    csrf: str
    until: int


class Tokens:
    """The tokens that open the door, one for each role, and the sessions that were begun with them."""

    def __init__(self, act: str, view: str | None = None, *, name: str = "web") -> None:
        for option, token in (("token", act), ("view token", view)):
            if token is not None and len(token) < MIN_TOKEN:
                raise UsageError(f"the {option} has {len(token)} characters; it needs at least {MIN_TOKEN}")
        if view is not None and hmac.compare_digest(act.encode(), view.encode()):
            raise UsageError("the token and the view token are the same; they give different rights")
        self._tokens = [(Person(name, Role.ACT), act.encode())]
        if view is not None:
            self._tokens.append((Person(name, Role.VIEW), view.encode()))

    def person(self, token: str) -> Person | None:
        """Whose token it is. It takes as long for a wrong one as for a right one."""
        given = token.encode(errors="replace")
        found = [person for person, own in self._tokens if hmac.compare_digest(own, given)]
        return found[0] if found else None

    def begin(self, token: str) -> str | None:
        """The value of the cookie for whoever brings this token; None if it is not one."""
        person = self.person(token)
        if person is None:
            return None
        said = f"{person.role}.{int(time.time()) + SESSION}.{secrets.token_hex(16)}"
        return f"{said}.{_signed(self._key(person.role), said)}"

    def session(self, cookie: str) -> Session | None:
        """The session that a cookie stands for; None if it was not made here, or is over."""
        said, _, signature = cookie.rpartition(".")
        parts = said.split(".")
        if len(parts) != 3 or parts[0] not in [person.role for person, _ in self._tokens]:
            return None
        role, until, _ = parts
        key = self._key(Role(role))
        if not hmac.compare_digest(_signed(key, said).encode(), signature.encode(errors="replace")):
            return None
        if int(until) < time.time():
            return None
        [person] = [person for person, _ in self._tokens if person.role == role]
        return Session(person, _signed(key, f"csrf.{said}"), int(until))

    def _key(self, role: Role) -> bytes:
        [token] = [token for person, token in self._tokens if person.role is role]
        return hmac.digest(token, b"holdfast session", sha256)


def _signed(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(errors="replace"), sha256).hexdigest()


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(32)


def cookie_name(host: str) -> str:
    """The name of the cookie. Cookies are shared by all ports of a machine, so it has the port."""
    _, _, port = host.rpartition(":")
    return f"holdfast_{port}" if port.isdecimal() else "holdfast"


_HOST = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?", re.ASCII)


def allows_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a request for this host is meant for us. A page elsewhere can make its own name lead to this address.

    A name that is allowed without a port is allowed with any.
    """
    host = host.lower()
    if not _HOST.fullmatch(host):
        return False
    name, colon, port = host.rpartition(":")
    bare = name if colon and port.isdecimal() else host
    return host in allowed or bare in allowed


def same_origin(origin: str, host: str) -> bool:
    """Whether a page that posts here came from here. The scheme may differ: what ends TLS may stand before us."""
    try:
        told = urlsplit(origin)
    except ValueError:
        return False
    return told.scheme in ("http", "https") and told.netloc.lower() == host.lower()


def current(request: HTTPConnection) -> Person:
    """Who made the request. The guard lets nobody pass to a page who is not signed in."""
    person: Person = request.state.person
    return person


def csrf_token(request: HTTPConnection) -> str:
    """What each form of a page must have in its field ``csrf``; empty for a caller with a bearer token."""
    token: str = request.state.csrf
    return token
