"""Serving the application: where it listens, by which tokens one comes in, and for how long it waits for a client."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import uvicorn
from msgspec import Struct
from sse_starlette.sse import AppStatus
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.engine.app import Holdfast
from holdfast.errors import UsageError
from holdfast.ui.app import create_app
from holdfast.ui.security import LOOPBACK, Tokens, new_token
from holdfast.ui.site import Limits

PORT = 4653  # "hold" on the keys of a telephone
GRACE = 5  # seconds that requests have to end when the server does


class Settings(Struct, frozen=True, kw_only=True):
    """How the page is served. Without a token one is made up, which is then told by the address to open."""

    host: str = "127.0.0.1"
    port: int = PORT
    token: str | None = None
    view_token: str | None = None
    name: str = "web"
    allow_hosts: tuple[str, ...] = ()


class Address(Struct, frozen=True):
    """Where the page is: the address to open, with the token in it if that was made up here."""

    host: str
    port: int
    url: str


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def serve(hf: Holdfast, settings: Settings, ready: Callable[[Address], None], limits: Limits | None = None) -> None:
    """Serve the page and the API until SIGINT or SIGTERM; ``ready`` is called when it can be opened."""
    if settings.token is None and not is_loopback(settings.host):
        reached = f"--host {settings.host} can be reached from elsewhere"
        raise UsageError(f"{reached}: set a token on purpose, by --token or HOLDFAST_UI_TOKEN")
    limits = limits or Limits()
    token = settings.token or new_token()
    tokens = Tokens(token, settings.view_token, name=settings.name)
    with _listening(settings.host, settings.port) as listening:
        port = listening.getsockname()[1]
        name = f"[{settings.host.strip('[]')}]" if ":" in settings.host else settings.host
        asked = "" if settings.token is not None else "?" + urlencode({"token": token})
        address = Address(settings.host, port, f"http://{name}:{port}/{asked}")
        app = create_app(hf, tokens=tokens, hosts=_hosts(name, port, settings.allow_hosts), limits=limits)
        config = uvicorn.Config(
            app,
            http=_timely(limits.seconds),
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,  # an address may have a token in it
            server_header=False,
            limit_concurrency=limits.connections,
            timeout_graceful_shutdown=GRACE,
        )
        AppStatus.enable_automatic_graceful_drain = False  # streams are ended here, and not cut off
        _Server(config, lambda: ready(address), app.state.site.live.stop).run(sockets=[listening])


def _hosts(name: str, port: int, allowed: tuple[str, ...]) -> set[str]:
    """The names under which it answers: those of this machine with its port, and what was allowed on purpose."""
    own = {f"{host}:{port}" for host in (*LOOPBACK, name)}
    return own | {*LOOPBACK, name} | {*allowed} if port in (80, 443) else own | {*allowed}


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host.strip("[]"), port))
    except OSError as error:
        made.close()
        why = error.strerror or str(error)
        raise UsageError(f"cannot listen at {host} port {port}: {why}; --port 0 takes a free one") from None
    return made


class _Server(uvicorn.Server):
    """A server that says when it can be reached, and ends its streams before it waits for all requests to end."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready
        self._end_streams = end_streams

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        await super().shutdown(sockets)


def _timely(seconds: float) -> type[asyncio.Protocol]:
    """A protocol that ends a connection whose headers do not arrive in time, or whose client reads nothing for long."""

    class Timely(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._late: asyncio.TimerHandle | None = self.loop.call_later(seconds, self._end)
            self._unread: asyncio.TimerHandle | None = None

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._in_time()
            elif self._late is None:
                self._late = self.loop.call_later(seconds, self._end)

        def connection_lost(self, exc: Exception | None) -> None:
            self._in_time()
            self._is_read()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            super().pause_writing()
            self._wait_for_reader()

        def resume_writing(self) -> None:
            self._is_read()
            super().resume_writing()

        def _wait_for_reader(self) -> None:
            self._unread = self.loop.call_later(seconds, self._see, self.transport.get_write_buffer_size())

        def _see(self, left: int) -> None:
            if self.transport.get_write_buffer_size() < left:  # slow, but it reads
                self._wait_for_reader()
            else:
                self.transport.abort()

        def _is_read(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None

        def _in_time(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

        def _end(self) -> None:
            self.transport.close()

    return Timely
