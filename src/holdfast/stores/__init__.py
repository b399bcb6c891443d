"""Where journals live.

`protocol` is what every store implements. Each backend has a module (`memory`) or a package (`files`, `sqlite`,
`postgres`) of its own, and none imports another. `locks`, `lock_holder` and `mounts` are for stores on local disks,
`sql_rows` for those with tables. The decisions that all stores share are in `holdfast.kernel.rules`.
"""

from __future__ import annotations

import os
from typing import Any

from holdfast.errors import StoreNotFound, UsageError
from holdfast.kernel.clock import Clock
from holdfast.stores.protocol import Store

__all__ = ["Store", "migrate", "open_store"]

_SCHEMES = ("memory", "files", "sqlite", "postgresql")


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """The store at a URL.

    ``memory://[name]``, ``files:///path``, ``sqlite:///path[?durability=full|normal]`` or
    ``postgresql://user:password@host:port/database[?schema=holdfast]``.
    """
    _check_is_text(url)
    scheme, colon, rest = url.partition("://")
    if scheme == "postgresql" and colon:
        return _open_postgres(url, clock)
    location, _, query = rest.partition("?")
    path = location.removeprefix("/")
    if scheme not in _SCHEMES or not colon or (scheme != "memory" and (not path or path == location)):
        from holdfast.stores.postgres.url import masked

        raise StoreNotFound(masked(url), _hint(masked(url)))
    if scheme != "memory":
        _check_path(url, scheme, path)
    options = dict(option.partition("=")[::2] for option in query.split("&") if option)
    if unknown := sorted(set(options) - {"sqlite": {"durability"}}.get(scheme, set())):
        raise UsageError(f"store {url}: unknown option {', '.join(unknown)}")
    if scheme == "memory":
        from holdfast.stores.memory import MemoryStore

        return MemoryStore(location, clock=clock)
    if scheme == "sqlite":
        from holdfast.stores.sqlite.store import SqliteStore

        return SqliteStore(path, clock=clock, **options)
    from holdfast.stores.files.store import FilesStore

    return FilesStore(path, clock=clock)


def migrate(url: str) -> tuple[int, ...]:
    """Make the store at a URL, or bring it up to date; the numbers of the migrations that were made.

    Needed for PostgreSQL alone, before the first use and after an upgrade; the other stores do it when they are opened.
    May be called by any number of processes at once.
    """
    _check_is_text(url)
    if not url.startswith("postgresql://"):
        open_store(url).close()
        return ()
    _check_postgres()
    from holdfast.stores.postgres.schema import migrate

    return migrate(url)


def _open_postgres(url: str, clock: Clock | None) -> Store:
    _check_postgres()
    from holdfast.stores.postgres.store import PostgresStore

    return PostgresStore(url, clock=clock)


def _check_postgres() -> None:
    try:
        import psycopg  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "psycopg":
            raise
        raise UsageError("a store in PostgreSQL needs an extra: pip install 'holdfast[postgres]'") from None


# --- a URL that was not meant that way


def _check_is_text(url: Any) -> None:
    if isinstance(url, os.PathLike):
        example = _guess(os.fsdecode(url))
        raise UsageError(f"url={url!r}: a store is named by a URL such as {example}, not by a path")
    if not isinstance(url, str):
        raise UsageError(f"url={url!r}: a store is named by a URL such as sqlite:///runs.db, not {type(url).__name__}")


def _check_path(url: str, scheme: str, path: str) -> None:
    if scheme == "sqlite" and path == ":memory:":
        raise StoreNotFound(url, "a store in memory has a URL of its own; use memory://")
    if path == "~" or (path.startswith("~") and "/" in path):
        raise StoreNotFound(url, f"~ is not expanded; give the whole path: {scheme}:///{os.path.expanduser(path)}")


def _hint(url: str) -> str:
    """What kinds of store there are, and which one was probably meant."""
    scheme, _, rest = url.partition("://")
    if scheme in ("files", "sqlite") and rest.strip("/"):
        return f"{scheme}: takes three slashes: {scheme}:///{rest}"
    kinds = (
        "there is no store of this kind; use memory://, files:///path, sqlite:///path or "
        "postgresql://user:password@host/database"
    )
    meant = _meant(url)
    return f"{kinds}; did you mean {meant}?" if meant else kinds


def _meant(url: str) -> str | None:
    from difflib import get_close_matches

    scheme, colon, rest = url.partition(":")
    near = next(iter(get_close_matches(scheme.lower(), _SCHEMES, 1)), None)
    if near == "memory" and (colon or scheme == near):
        return f"memory://{rest.lstrip('/')}"
    if near == "postgresql" and rest.strip("/"):
        return f"postgresql://{rest.lstrip('/')}"
    if near is not None and rest.strip("/"):
        return f"{near}:///{rest.removeprefix('//').removeprefix('/') if rest.startswith('//') else rest}"
    looks_like_a_path = not colon and ("." in url or "/" in url or os.path.exists(url))
    return _guess(url) if looks_like_a_path else None


def _guess(path: str) -> str:
    """The URL of a store at a path: a folder, or a file."""
    return f"files:///{path}" if os.path.isdir(path) else f"sqlite:///{path}"
