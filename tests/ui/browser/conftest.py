"""Chromium, one per test process; a store and a server per test; and pages that report what went wrong in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import programs
import pytest
import selling
from browsing import TOKEN, Browser, Held, served

import holdfast
from holdfast import Holdfast

Open = Callable[..., Held]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of this process."""
    path = programs.find("chromium")
    assert path is not None, programs.why_missing("chromium")
    made = Browser(path)
    yield made
    made.close()


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    """A store of this test alone."""
    selling.gate.clear()
    selling.undone.clear()
    with holdfast.open("memory://") as opened:
        yield opened
        selling.gate.set()


@pytest.fixture
def site(hf: Holdfast) -> Iterator[str]:
    """The address of a server of it."""
    with served(hf) as address:
        yield address


@pytest.fixture
def wrongs() -> list[str]:
    """What went wrong in pages: errors of scripts, refusals of the content policy, requests that left the site."""
    return []


@pytest.fixture
def open_page(browser: Browser, site: str, wrongs: list[str]) -> Iterator[Open]:
    """Opens a page in a browser that is signed in; with ``like=`` another tab of the same browser."""
    with ExitStack() as stack:

        def look(path: str = "/", *, like: Held | None = None, token: str = TOKEN, **how: Any) -> Held:
            context = like.context if like is not None else stack.enter_context(browser.context(**how))
            page = context.new_page()
            page.on("pageerror", lambda error: wrongs.append(f"error: {error}"))
            page.on("console", lambda said: wrongs.append(said.text) if "Content Security" in said.text else None)
            page.on("request", lambda one: wrongs.append(one.url) if not one.url.startswith(site) else None)
            page.on("dialog", lambda dialog: wrongs.append("a dialog"))
            if like is None:
                page.goto(f"{site}/?token={token}")
            page.goto(f"{site}{path}")
            return page

        yield look
    assert wrongs == []
