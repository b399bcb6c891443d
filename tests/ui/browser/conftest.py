"""Chromium, one per test process; a store and a server per test; and pages that report what went wrong in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import programs
import pytest
import selling
from browsing import TOKEN, Browser, Held, served

import holdfast
from holdfast import Holdfast

Open = Callable[..., Held]


# `make test` looks at the page in a browser with these alone. What the others try is tried without one, too.
SMOKE = {"test_a_run_is_watched_live", "test_a_question_is_answered_from_the_top_of_the_list"}
WITHOUT_BROWSER = {
    "test_acting.py": "tests/ui/test_page_acts.py",
    "test_every_page.py": "tests/ui/test_pages_everywhere.py",
    "test_layout.py": "tests/ui/test_pages.py",
    "test_watching.py": "tests/ui/test_live.py",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.name not in SMOKE:
            item.add_marker(pytest.mark.slow(covered_by=WITHOUT_BROWSER.get(item.path.name)))


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
