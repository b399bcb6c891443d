"""Where journals live. `base` has the protocol that every store keeps; each other module is one store."""

from __future__ import annotations

from holdfast.clock import Clock
from holdfast.errors import StoreNotFound, UsageError
from holdfast.stores.base import Store

__all__ = ["Store", "open_store"]


def open_store(url: str, *, clock: Clock | None = None) -> Store:
    """The store at a URL: ``memory://[name]``, ``files:///path`` or ``sqlite:///path[?durability=full|normal]``."""
    scheme, colon, rest = url.partition("://")
    location, _, query = rest.partition("?")
    options = dict(option.partition("=")[::2] for option in query.split("&") if option)
    known = {"sqlite": {"durability"}}.get(scheme, set())
    if unknown := sorted(set(options) - known):
        raise UsageError(f"store {url}: unknown option {', '.join(unknown)}")
    if scheme == "memory" and colon:
        from holdfast.stores.memory import MemoryStore

        return MemoryStore(location, clock=clock)
    path = location.removeprefix("/")
    if scheme in ("sqlite", "files") and colon and location.startswith("/") and path:
        if scheme == "sqlite":
            from holdfast.stores.sqlite import SqliteStore

            return SqliteStore(path, clock=clock, **options)
        from holdfast.stores.files import FilesStore

        return FilesStore(path, clock=clock)
    raise StoreNotFound(url)
