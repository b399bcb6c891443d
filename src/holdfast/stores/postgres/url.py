"""A URL of a PostgreSQL store: where it is, and how it is used. A password is never shown.

``postgresql://user:password@host:port/database?schema=holdfast`` and whatever else libpq takes (``sslmode=require``).
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

from msgspec import Struct

from holdfast.errors import StoreNotFound, UsageError

DEFAULT_SCHEMA = "holdfast"
DEFAULT_POOL = 10
MAX_NAME = 63  # bytes of an identifier
OWN = "holdfast"  # what the names of its sessions begin with
_NETWORK = {  # a connection that is dead is noticed, also where nobody says so
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}


class Settings(Struct, frozen=True):
    """What a URL says."""

    place: str  # for messages
    conninfo: str
    schema: str = DEFAULT_SCHEMA
    pool: int = DEFAULT_POOL  # connections at most
    prepare: bool = True
    listen: bool = True
    secrets: tuple[str, ...] = ()

    def scrubbed(self, text: str) -> str:
        """The text in one line, without what is secret."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())


def masked(url: str) -> str:
    """The URL without its password, for messages."""
    scheme, colon, rest = url.partition("://")
    userinfo, at, place = rest.rpartition("@")
    if not colon:
        return url
    shown = re.sub(r"(?i)(password=)[^&]*", r"\1***", place)
    return f"{scheme}://{userinfo.partition(':')[0]}{at}{shown}"


def settings_of(url: str) -> Settings:
    """Read a URL; raises `UsageError` or `StoreNotFound` if it is none that can be used."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    place = masked(url)
    location, _, query = url.partition("?")
    given = (one.partition("=") for one in query.split("&") if one)
    pairs = [(unquote(name), unquote(value)) for name, _, value in given]  # a plus is a plus here, as for libpq
    own = {name: value for name, value in pairs if name in ("schema", "pool", "prepare", "listen")}
    rest = "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs if name not in own)
    secrets = _secrets(location, pairs)
    try:
        parts: dict[str, Any] = conninfo_to_dict(f"{location}?{rest}" if rest else location)
    except ProgrammingError as error:
        bare = Settings(place, "", secrets=secrets)
        raise StoreNotFound(
            place,
            f"{bare.scrubbed(str(error))}; use postgresql://user:password@host:port/database, with @ : / and % in a "
            "password written as %40 %3A %2F %25",
        ) from None
    return Settings(
        place,
        make_conninfo(**{**_NETWORK, **parts, "application_name": _named(parts), "client_encoding": "utf8"}),
        _schema(own.get("schema", DEFAULT_SCHEMA)),
        _number(own.get("pool", str(DEFAULT_POOL))),
        _switch("prepare", own.get("prepare", "on")),
        _switch("listen", own.get("listen", "on")),
        secrets,
    )


def _named(parts: dict[str, Any]) -> str:
    """The name of a session, by which others know that it is one of Holdfast: see the query ``stale``."""
    return f"{OWN} {parts['application_name']}" if parts.get("application_name") else OWN


def _secrets(location: str, pairs: list[tuple[str, str]]) -> tuple[str, ...]:
    """Everything of the URL that a message must not show: also the parts into which a password could be cut."""
    userinfo = location.partition("://")[2].rpartition("@")[0]
    password = userinfo.partition(":")[2]
    passwords = [password, unquote(password), *(value for name, value in pairs if "password" in name)]
    found = {part for one in passwords for part in (one, *re.split(r"[@:/?#%]", one)) if len(part) > 2}
    return tuple(sorted(found, key=len, reverse=True))


def _schema(name: str) -> str:
    if not 0 < len(name.encode()) <= MAX_NAME or "\0" in name or name.startswith("pg_"):
        raise UsageError(f"schema={name!r}: the name of a schema is 1 to {MAX_NAME} bytes, and does not begin with pg_")
    return name


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 1000:
        raise UsageError(f"pool={text!r}: how many connections are open at most, from 1 to 1000")
    return int(text)


def _switch(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise UsageError(f"{name}={text!r}: takes on or off")
    return text == "on"
