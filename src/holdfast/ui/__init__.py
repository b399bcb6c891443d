"""The web page and the HTTP API: look at runs, answer questions, fork, roll back.

`create_app` builds a Starlette application for one open store, and ``holdfast ui`` serves it. A request passes the
`guard` (host, sign-in, cross-site checks, limits), and reaches a page (`pages`) or the API (`api`). Both act through
one declared table (`operations`), whose functions are plain calls of `Holdfast` and `Run`, made in threads, so that
the event loop is never held up by a store. `live` watches the store once for all streams; `hooks` tells other programs.

Needs the extra ``ui``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.ui.app import create_app as create_app

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    if name == "create_app":
        from holdfast.ui.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
