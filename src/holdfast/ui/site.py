"""What all requests of one server share: the open store, the live watcher, the templates, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from msgspec import Struct

from holdfast.engine.app import Holdfast
from holdfast.ui.api.idempotency import Once
from holdfast.ui.live import Live
from holdfast.ui.security import LOOPBACK, Tokens

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection
    from starlette.templating import Jinja2Templates

P = ParamSpec("P")
T = TypeVar("T")


class Limits(Struct, frozen=True):
    """How much one server bears."""

    body: int = 1 << 20  # bytes of a request's body
    seconds: float = 20.0  # for a request's headers, and for its body, to arrive
    streams: int = 1000  # live streams at a time
    runs: int = 200  # that one stream watches
    threads: int = 16  # calls to the store at a time
    connections: int = 2000


class Site:
    """One server. Pages find it as ``request.app.state.site``."""

    def __init__(
        self,
        holdfast: Holdfast,
        tokens: Tokens,
        templates: Jinja2Templates,
        *,
        hosts: frozenset[str] = frozenset(LOOPBACK),
        limits: Limits | None = None,
    ) -> None:
        self.holdfast = holdfast
        self.tokens = tokens
        self.templates = templates
        self.hosts = hosts
        self.limits = limits or Limits()
        self.live = Live(holdfast, streams=self.limits.streams, runs=self.limits.runs)
        self.once = Once(holdfast)
        self._threads = CapacityLimiter(self.limits.threads)

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a plain function that asks the store, in a thread: the loop goes on meanwhile."""
        return await to_thread.run_sync(lambda: function(*args, **kwargs), limiter=self._threads)


def site_of(request: HTTPConnection) -> Site:
    """The server that a request came to."""
    site: Site = request.app.state.site
    return site
