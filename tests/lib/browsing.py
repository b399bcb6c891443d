"""A real browser for tests: Chromium, driven by Playwright in a thread of its own, and a server for it to look at.

Playwright's plain interface would leave an event loop running in the thread of the tests, where others could not have
one any longer. So the loop runs beside, and `Held` makes each awaited call of it look like a plain one.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn
from playwright.async_api import async_playwright
from playwright.async_api import expect as expect_async

from holdfast import Holdfast
from holdfast.ui import create_app
from holdfast.ui.security import Tokens

TOKEN, VIEW_TOKEN = "a-token-for-those-who-act", "a-token-for-those-who-look"
PATIENCE = 20.0  # seconds after which something that should happen has not
# fmt: off
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--no-default-browser-check",
)
# fmt: on
expect_async.set_options(timeout=PATIENCE * 1000)


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="browser", daemon=True)
        self._thread.start()

    def wait(self, awaited: Any) -> Any:
        """What comes of it."""

        async def coroutine() -> Any:
            return await awaited

        return asyncio.run_coroutine_threadsafe(coroutine(), self._loop).result(PATIENCE * 2)

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a plain function on the loop, as Playwright's own want it."""

        async def coroutine() -> Any:
            return function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(coroutine(), self._loop).result(PATIENCE * 2)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


class Held:
    """Something of Playwright's, whose calls are waited for."""

    def __init__(self, loop: Loop, thing: Any) -> None:
        self._loop = loop
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        found = self._loop.call(getattr, self._thing, name)
        if not callable(found):
            return self._hold(found)

        def call(*args: Any, **kwargs: Any) -> Any:
            plain = [one._thing if isinstance(one, Held) else one for one in args]
            named = {key: one._thing if isinstance(one, Held) else one for key, one in kwargs.items()}
            given = self._loop.call(found, *plain, **named)
            return self._hold(self._loop.wait(given) if inspect.isawaitable(given) else given)

        return call

    def _hold(self, thing: Any) -> Any:
        if isinstance(thing, list):
            return [self._hold(one) for one in thing]
        return Held(self._loop, thing) if type(thing).__module__.startswith("playwright.") else thing


def expect(held: Held) -> Any:
    """Playwright's assertions, which wait until something holds."""
    return Held(held._loop, held._loop.call(expect_async, held._thing))


class Browser:
    """The browser of one test process."""

    def __init__(self, path: str) -> None:
        self._loop = Loop()
        self._manager = async_playwright()
        self._playwright = self._loop.wait(self._manager.start())
        self._browser = self._loop.wait(self._playwright.chromium.launch(executable_path=path, args=list(FLAGS)))

    @contextmanager
    def context(self, **how: Any) -> Iterator[Held]:
        """A browser of its own, with its own cookies."""
        made = Held(self._loop, self._browser).new_context(**{"viewport": {"width": 1200, "height": 800}, **how})
        made.set_default_timeout(PATIENCE * 1000)
        try:
            yield made
        finally:
            made.close()

    def close(self) -> None:
        """End it."""
        self._loop.wait(self._browser.close())
        self._loop.wait(self._playwright.stop())
        self._loop.close()


@contextmanager
def served(hf: Holdfast, *, name: str = "operator") -> Iterator[str]:
    """Serve a store on a free port; the address of the first page."""
    app = create_app(hf, tokens=Tokens(TOKEN, VIEW_TOKEN, name=name))
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, name="server", daemon=True)
    thread.start()
    until = time.monotonic() + PATIENCE
    while not server.started:
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
