"""In a real browser: questions are answered, runs forked, rolled back, cancelled, tried again; queues are paused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import selling
from browsing import VIEW_TOKEN, Held, expect

from holdfast import Holdfast, Run

pytestmark = pytest.mark.needs("chromium")

Open = Callable[..., Held]


def sold(hf: Holdfast, id: str) -> Run:
    return hf.start(selling.sell, id, 4200, id=id)


def by_whom(run: Run, kind: str) -> list[str | None]:
    return [run.entry(info.seq).contents.get("by") for info in run.history(kind=kind)]


def test_a_question_is_answered_from_the_top_of_the_list(hf: Holdfast, open_page: Open) -> None:
    run = sold(hf, "A-1")
    page = open_page("/")
    page.get_by_role("link", name="Answer How shall A-1 go?").click()
    page.get_by_label("courier").check()
    page.get_by_label("Weight").fill("2.5")
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status").filter(has_text="Answered")).to_be_visible()
    run.resume()
    expect(page.locator(".head .badge")).to_have_text("✓completed")
    assert run.result() == "receipt of A-1, by courier"
    assert by_whom(run, "answered") == ["operator"]


def test_an_answer_that_does_not_fit_is_told_at_the_field(hf: Holdfast, open_page: Open) -> None:
    run = sold(hf, "A-1")
    page = open_page("/runs/A-1")
    page.get_by_label("Weight").fill("heavy")
    page.get_by_label("Words").fill("for the neighbour")
    page.get_by_role("button", name="Answer").click()
    weight = page.get_by_label("Weight")
    expect(weight).to_have_attribute("aria-invalid", "true")
    expect(weight).to_have_value("heavy")
    told = weight.get_attribute("aria-describedby").split()[-1]
    expect(page.locator(f"[id='{told}']")).to_have_text("'heavy' is not a number")
    expect(page.locator("fieldset.wrong", has_text="Carrier").locator(".error")).to_have_text("is required")
    expect(page.get_by_label("Words")).to_have_value("for the neighbour")
    weight.fill("3")
    page.get_by_label("post").check()
    page.get_by_role("button", name="Answer").click()
    expect(page.locator(".notice")).to_contain_text("Answered")
    run.resume()
    assert run.result() == "receipt of A-1, by post"


def test_of_two_who_answer_one_wins_and_the_other_is_told(hf: Holdfast, open_page: Open) -> None:
    run = sold(hf, "A-1")
    first, second = open_page("/runs/A-1"), open_page("/runs/A-1")
    for page, carrier in ((first, "post"), (second, "courier")):
        page.get_by_label(carrier).check()
        page.get_by_label("Weight").fill("1")
    first.get_by_role("button", name="Answer").click()
    expect(first.locator(".notice")).to_contain_text("Answered")
    expect(second.locator(".notice.closed")).to_contain_text("no longer open")
    second.get_by_role("button", name="Answer").click()
    expect(second.locator("h1")).to_have_text("Question closed")
    run.resume()
    assert run.result() == "receipt of A-1, by post"


def test_what_somebody_types_is_not_taken_away_by_news(hf: Holdfast, open_page: Open) -> None:
    run = sold(hf, "A-1")
    page = open_page("/runs/A-1")
    expect(page.locator("#lamp")).to_have_attribute("data-state", "on")
    page.get_by_label("Words").fill("half of a sen")
    run.send("something", topic="news")
    hf.get("A-1").resume()
    page.get_by_label("Words").press_sequentially("tence")
    expect(page.get_by_label("Words")).to_have_value("half of a sentence")


def test_a_fork_with_another_answer(hf: Holdfast, open_page: Open) -> None:
    run = sold(hf, "A-1")
    run.answer(selling.Shipping("post", 1.0), by="desk")
    run.resume()
    page = open_page("/runs/A-1/state?at=1")
    page.get_by_role("link", name="Fork", exact=True).click()
    page.get_by_role("link", name="How shall A-1 go?").click()
    expect(page.get_by_label("post")).to_be_checked()
    page.get_by_label("Weight").fill("much")
    page.get_by_role("button", name="Fork").click()
    expect(page.locator(".wrong .error")).to_have_text("'much' is not a number")
    page.get_by_label("courier").check()
    page.get_by_label("Weight").fill("2")
    page.get_by_label("Id of the new run").fill("A-1/other")
    page.get_by_role("button", name="Fork").click()
    expect(page.locator("h1")).to_have_text("A-1/other")
    made = hf.get("A-1/other")
    made.resume()
    assert made.result() == "receipt of A-1, by courier"
    expect(page.locator(".head .badge")).to_have_text("✓completed")
    page.get_by_role("link", name="Family").click()
    expect(page.locator(".tree .kin")).to_have_count(2)


def test_a_fork_with_an_edited_state(hf: Holdfast, open_page: Open) -> None:
    hf.start(selling.draft, {"text": "", "notes": []}, id="draft-1").result()
    page = open_page("/runs/draft-1/state?at=3")
    page.get_by_role("link", name="Fork here").click()
    expect(page.get_by_label("At entry")).to_have_value("3")
    page.get_by_label("An update of the state").fill('{"notes": ["by a person"')
    page.get_by_role("button", name="Fork").click()
    expect(page.locator("#edit-error")).to_contain_text("this is not JSON")
    page.get_by_label("An update of the state").fill('{"notes": ["by a person"]}')
    page.get_by_role("button", name="Fork").click()
    expect(page.get_by_role("status").filter(has_text="new run")).to_be_visible()
    [made] = [info for info in hf.runs() if info.forked_from is not None]
    assert made.forked_from == ("draft-1", 3)
    fork = hf.get(made.id)
    fork.resume()
    assert fork.result()["notes"] == ["read draft 1", "by a person", "read draft 3"]


def test_a_run_is_rolled_back_after_its_plan_was_shown(hf: Holdfast, open_page: Open) -> None:
    run = sold(hf, "A-1")
    page = open_page("/runs/A-1/state?at=0")
    page.get_by_role("link", name="Roll back to here").click()
    rows = page.locator(".plan tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("left as it is")
    expect(rows.nth(0)).to_contain_text("mailbox of A-1")
    expect(rows.nth(1)).to_contain_text("undone")
    expect(page.locator(".notice").filter(has_text="not undone")).to_be_visible()
    assert selling.undone == []
    page.get_by_role("button", name="Roll back to entry 0").click()
    expect(page.locator("#sure-error")).to_be_visible()
    assert selling.undone == []
    page.get_by_label("I have read the plan").check()
    page.get_by_label("it is cancelled").check()
    page.get_by_role("button", name="Roll back to entry 0").click()
    expect(page.locator("h2").filter(has_text="Rolled back to entry 0")).to_be_visible()
    assert selling.undone == ["receipt of A-1"]
    assert run.status == "cancelled"
    page.get_by_role("link", name="To the run").click()
    expect(page.locator(".t-row.abandoned .t-detail", has_text="undone")).to_be_visible()


def test_a_rollback_is_refused_if_the_run_went_on_since_its_plan(hf: Holdfast, open_page: Open) -> None:
    run = sold(hf, "A-1")
    page = open_page("/runs/A-1/rollback?to=0")
    page.get_by_label("I have read the plan").check()
    run.answer(selling.Shipping("post", 1.0))
    run.resume()
    page.get_by_role("button", name="Roll back to entry 0").click()
    expect(page.locator("h1")).to_have_text("Changed")
    assert selling.undone == []
    assert run.status == "completed"


def test_cancel_and_retry(hf: Holdfast, open_page: Open) -> None:
    run = sold(hf, "A-1")
    page = open_page("/runs/A-1")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_label("Why").fill("the customer called")
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".failure .said")).to_have_text("the customer called")
    assert by_whom(run, "cancelled") == ["operator"]
    page.get_by_role("link", name="Retry").click()
    page.get_by_role("button", name="Try it again").click()
    expect(page.locator(".head .badge")).to_have_text("○ready")
    assert by_whom(run, "retried") == ["operator"]


def test_a_queue_is_paused_and_resumed(hf: Holdfast, open_page: Open) -> None:
    hf.queue("mail", limit=3, rate=(100, 60.0))
    hf.enqueue(selling.sell, "A-1", 1, queue="mail")
    page = open_page("/queues")
    expect(page.locator("tr", has_text="mail")).to_contain_text("100 in 1 min")
    page.get_by_role("button", name="Pause mail").click()
    expect(page.locator("tr", has_text="mail").locator(".badge")).to_have_text("‖paused")
    assert hf.queue("mail").info().paused
    page.get_by_role("button", name="Resume mail").click()
    expect(page.locator("tr", has_text="mail").locator(".badge")).to_have_text("▸active")
    assert not hf.queue("mail").info().paused


def test_who_may_only_look_sees_no_form_that_acts(hf: Holdfast, open_page: Open) -> None:
    sold(hf, "A-1")
    page = open_page("/runs/A-1", token=VIEW_TOKEN)
    expect(page.locator(".question h3")).to_have_text("How shall A-1 go?")
    expect(page.locator("main form")).to_have_count(0)
    expect(page.locator(".acts")).to_have_count(0)


def test_signing_in_and_out(hf: Holdfast, site: str, open_page: Open) -> None:
    sold(hf, "A-1")
    page = open_page("/")
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("h1")).to_have_text("Sign in")
    page.goto(f"{site}/runs/A-1/journal")
    page.get_by_label("Token").fill("not the token at all")
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#token-error")).to_be_visible()
    page.get_by_label("Token").fill("a-token-for-those-who-act")
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{site}/runs/A-1/journal")
