"""In a real browser: runs are watched as they go on, found again, and looked at from all sides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import selling
from browsing import Held, expect

from holdfast import Holdfast

pytestmark = pytest.mark.needs("chromium")

Open = Callable[..., Held]


def test_a_run_is_watched_live(hf: Holdfast, open_page: Open) -> None:
    page = open_page("/")
    expect(page.locator("#lamp")).to_have_attribute("data-state", "on")
    worker = threading.Thread(target=lambda: hf.start(selling.long, 7, id="long-1"))
    worker.start()
    expect(page.get_by_role("link", name="long-1", exact=True)).to_be_visible()
    page.get_by_role("link", name="long-1", exact=True).click()
    expect(page.locator(".head .badge")).to_have_text("▸running")
    expect(page.locator(".t-name a", has_text="pack")).to_be_visible()
    selling.gate.set()
    worker.join()
    expect(page.locator(".head .badge")).to_have_text("✓completed")
    expect(page.locator(".t-name a", has_text="slow")).to_be_visible()
    expect(page.locator("#region-told")).to_contain_text("7")


def test_ten_tabs_of_one_browser_are_all_live(hf: Holdfast, open_page: Open) -> None:
    """Browsers allow six connections to a host, so the tabs share one stream."""
    first = open_page("/")
    tabs = [first, *(open_page("/", like=first) for _ in range(9))]
    for tab in tabs:
        expect(tab.locator("#lamp")).to_have_attribute("data-state", "on")
    hf.run("new-one")
    for tab in tabs:
        tab.bring_to_front()
        expect(tab.get_by_role("link", name="new-one")).to_be_visible()


def test_a_browser_without_shared_workers_is_live_too(hf: Holdfast, open_page: Open) -> None:
    page = open_page("/sign-in")
    page.context.add_init_script("delete window.SharedWorker")
    page.goto(page.url.replace("/sign-in", "/"))
    expect(page.locator("#lamp")).to_have_attribute("data-state", "on")
    hf.run("new-one")
    expect(page.get_by_role("link", name="new-one")).to_be_visible()


def test_runs_are_filtered(hf: Holdfast, open_page: Open) -> None:
    hf.run("a-1", workflow="alpha", tags={"region": "north"})
    hf.run("a-2", workflow="alpha", tags={"region": "south"})
    hf.run("b-1", workflow="beta").complete(1)
    page = open_page("/")
    ids = page.locator("tbody .id")
    expect(ids).to_have_text(["b-1", "a-2", "a-1"])
    page.get_by_label("Id begins with").fill("a-")
    page.get_by_role("button", name="Filter").click()
    expect(ids).to_have_text(["a-2", "a-1"])
    page.get_by_label("Tag").fill("region=north")
    page.keyboard.press("Enter")
    expect(ids).to_have_text(["a-1"])
    page.get_by_role("link", name="Clear").click()
    page.locator(".count", has_text="completed").click()
    expect(ids).to_have_text(["b-1"])
    page.get_by_label("Tag").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.locator("#tag-error")).to_contain_text("name=value")


def test_with_the_keyboard_alone(hf: Holdfast, open_page: Open) -> None:
    for n in range(3):
        hf.run(f"r-{n}").save({"n": n})
    page = open_page("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("/")
    page.keyboard.type("r-")
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "r-" in url)
    expect(page.locator("#lamp")).to_have_attribute("data-state", "on")  # so its script is there
    expect(page.locator("tbody .id")).to_have_text(["r-2", "r-1", "r-0"])
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "r-1"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("r-2")
    page.get_by_role("link", name="State").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#at-shown")).to_have_text("1")
    page.locator("#at").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".here b")).to_have_text("Entry 0")


def test_news_leave_the_focus_and_what_was_scrolled_where_they_were(hf: Holdfast, open_page: Open) -> None:
    hf.enqueue(selling.long, 1, queue="b")
    hf.enqueue(selling.long, 2, queue="c")
    page = open_page("/queues")
    expect(page.locator("#lamp")).to_have_attribute("data-state", "on")
    page.keyboard.press("j")
    page.keyboard.press("j")
    hf.enqueue(selling.long, 3, queue="a")
    expect(page.locator("tbody th")).to_have_text(["a", "b", "c"])
    assert page.evaluate("document.activeElement.textContent") == "Pause c"

    run = hf.run("r")
    with run.claim():
        for n in range(60):
            run.once(f"step-{n}", int, n)
        page = open_page("/runs/r")
        expect(page.locator("#lamp")).to_have_attribute("data-state", "on")
        at_the_end = "box => box.scrollTop > 0 && box.scrollTop + box.clientHeight >= box.scrollHeight - 4"
        for n, expected in ((60, True), (61, False)):
            run.once(f"step-{n}", int, n)
            expect(page.locator(".t-name", has_text=f"step-{n}")).to_have_count(1)
            assert page.locator(".timeline").evaluate(at_the_end) is expected
            page.locator(".timeline").evaluate("box => { box.scrollTop = 70; }")
        assert page.locator(".timeline").evaluate("box => box.scrollTop") == 70


def test_the_slider_shows_each_state_and_what_changed(hf: Holdfast, open_page: Open) -> None:
    hf.start(selling.draft, {"text": "", "notes": []}, id="draft-1").result()
    page = open_page("/runs/draft-1/state?at=2")
    expect(page.locator("#region-state")).to_contain_text("draft 1")
    slider = page.locator("#at")
    slider.evaluate("one => { one.value = '3'; one.dispatchEvent(new Event('input')); }")
    expect(page.locator(".here b")).to_have_text("Entry 3")
    expect(page.locator(".d-added .where").first).to_have_text("state.notes[0]")
    expect(page.locator(".d-added ins").first).to_have_text("read draft 1")
    assert page.url.endswith("?at=3")
    page.locator("#step-on").click()
    expect(page.locator(".here b")).to_have_text("Entry 4")


def test_without_scripts_everything_is_still_there(hf: Holdfast, open_page: Open) -> None:
    hf.start(selling.sell, "A-1", 4200, id="A-1")
    page = open_page("/", java_script_enabled=False)
    page.get_by_role("link", name="A-1", exact=True).click()
    page.get_by_role("link", name="State").click()
    page.locator("#step-back").click()
    expect(page.locator(".here b")).to_contain_text("Entry")
    page.get_by_role("link", name="Overview").click()
    page.get_by_label("courier").check()
    page.get_by_label("Weight").fill("2")
    page.get_by_role("button", name="Answer").click()
    expect(page.locator(".notice")).to_contain_text("Answered")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(hf: Holdfast, open_page: Open, scheme: str) -> None:
    hf.start(selling.draft, {"text": "", "notes": []}, id="draft-1").result()
    page = open_page("/runs/draft-1", color_scheme=scheme)
    lightness: Callable[[str], Any] = lambda where: page.locator(where).first.evaluate(  # noqa: E731
        "one => getComputedStyle(one).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0)"
    )
    assert (lightness("body") > 600) is (scheme == "light")
    assert (lightness(".panel") > 600) is (scheme == "light")
    drawn = page.locator(".graph svg .page").evaluate("one => getComputedStyle(one).fill")
    assert drawn == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 29, 38)")  # as the panel around it
