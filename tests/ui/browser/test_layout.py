"""How pages lie on the screen in a real browser: what belongs on one line stays there, and words are not broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import selling
from browsing import Held, expect

from holdfast import Field, Holdfast

pytestmark = pytest.mark.needs("chromium")

Open = Callable[..., Held]
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

LINES = """(selector) => [...document.querySelectorAll(selector)].map((one) => {
  const tops = [...one.children].filter((part) => part.checkVisibility() && part.getBoundingClientRect().width > 1);
  return new Set(tops.map((part) => Math.round(part.getBoundingClientRect().top / 8))).size;
})"""
PIECES = "(selector) => [...document.querySelectorAll(selector)].map((one) => one.getClientRects().length)"


def test_schedules_at_a_desk(hf: Holdfast, open_page: Open) -> None:
    hf.schedule(selling.room, "attic", cron="0 3 * * *", id="nightly", tz="Europe/Paris")
    hf.schedule(selling.room, "x", cron="30 4 * * 1", id="weekly-report-of-everything", tz="America/Argentina/La_Rioja")
    hf.get_schedule("nightly").pause(by="somebody with a long name")
    page = open_page("/schedules", viewport=DESK)
    assert page.evaluate(PIECES, "td:nth-child(6) .dim") == [1, 1]  # "never"
    assert page.evaluate(LINES, ".c-acts .buttons") == [1, 1]


def test_navigation_and_tabs_are_one_line_on_a_phone_and_the_place_is_in_sight(hf: Holdfast, open_page: Open) -> None:
    hf.run("r")
    page = open_page("/runs/r/journal", viewport=PHONE)
    assert page.evaluate(LINES, ".bar nav, .tabs") == [1, 1]
    expect(page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.9)
    page = open_page("/api", like=page)
    expect(page.locator(".bar nav [aria-current]")).to_be_in_viewport(ratio=0.9)


def test_the_api_on_a_phone(open_page: Open) -> None:
    page = open_page("/api", viewport=PHONE)
    lefts = "() => [...new Set([...document.querySelectorAll('.summary')].map((s) => s.getBoundingClientRect().left))]"
    assert len(page.evaluate(lefts)) == 1
    assert page.evaluate(
        "() => [...document.querySelectorAll('.operations code')].every((c) => c.querySelector('wbr'))"
    )
    assert (
        page.evaluate("() => getComputedStyle(document.querySelector('.operations code')).overflowWrap") == "break-word"
    )


def test_three_choices_are_one_line_at_a_desk(hf: Holdfast, open_page: Open) -> None:
    fields = [Field("how", options=("with the post", "by a courier", "on a bicycle")), Field("sure", "boolean")]
    hf.run("r").pause("How?", [*fields, Field("words"), Field("more")])
    page = open_page("/runs/r", viewport=DESK)
    assert page.evaluate(LINES, ".options") == [1, 1]


def test_what_is_wrong_with_a_filter_has_the_whole_width(hf: Holdfast, open_page: Open) -> None:
    hf.run("r")
    page = open_page("/?tag=customer", viewport=DESK)
    expect(page.locator("#tag-error")).to_be_visible()
    assert page.locator("#tag-error").bounding_box()["height"] < 30
    assert page.locator("#tag-error").bounding_box()["width"] > 1000


def test_a_notice_goes_when_it_no_longer_fits(hf: Holdfast, open_page: Open) -> None:
    run = hf.start(selling.sell, "A-1", 4200, id="A-1")
    run.answer(selling.Shipping("post", 1.0))
    page = open_page("/runs/A-1?said=answered")
    expect(page.get_by_role("status").filter(has_text="Answered")).to_be_visible()
    expect(page.locator("#lamp")).to_have_attribute("data-state", "on")
    run.resume()
    expect(page.locator(".head .badge")).to_have_text("✓completed")
    expect(page.locator("#region-said .notice")).to_have_count(0)
