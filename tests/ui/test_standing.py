"""How runs, queues and workers stand, as the pages tell it: whose process died, who waits for what, who takes what."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import selling
from msgspec.structs import replace
from starlette.testclient import TestClient

import holdfast
from holdfast import Holdfast, flow, step, workflow
from holdfast.present import status
from holdfast.present.input import input_of
from holdfast.present.remedies import remedies_of, worker_for
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.pages.run import said
from holdfast.ui.pages.words import in_buttons, worker_command

Serve = Callable[[Holdfast], TestClient]


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open("memory://") as opened:
        yield opened


@pytest.fixture
def pages(serving: Serve, hf: Holdfast) -> TestClient:
    return serving(hf)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ready is expected to be taken at once."""
    monkeypatch.setattr(status, "SOON", timedelta(seconds=-1))
    monkeypatch.setattr("holdfast.ui.pages.work.SOON", timedelta(seconds=-1))


def words(text: str) -> str:
    """What a page says, without how."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text.partition("<main")[2])).split())


# --- a process that died


def died(hf: Holdfast, id: str) -> None:
    """The worker that holds the run is gone, and nobody has noticed."""
    record = hf.client.store.get(id)
    assert record is not None
    assert record.worker is not None
    hf.client.store.beat(record.worker, 0)


def test_a_run_whose_process_died_is_not_said_to_be_running(hf: Holdfast, pages: TestClient) -> None:
    by_hand = hf.run("by hand")
    by_hand.claim()
    by_hand.once("first", int)
    queued = hf.enqueue(selling.room, "attic", queue="mail", id="queued")
    hf.client.store.claim(queued.uid, hf.client.engine.worker.ready())
    view = pages.get("/api/v1/runs/queued").json()["run"]
    assert (view["status"], view["holder_alive"]) == ("running", True)
    assert "▸ running" in words(pages.get("/runs/queued").text)
    assert "goes on after first" in words(pages.get(run_url("by hand")).text)
    died(hf, "queued")
    for path in ("/runs/queued", "/"):
        told = words(pages.get(path).text)
        assert "✗ process died" in told
        assert "its process has died; a worker resumes it: holdfast worker selling --queue mail" in told
    told = words(pages.get(run_url("by hand")).text)
    assert "its process has died; it can be claimed again" in told
    assert "goes on after" not in told
    assert "Was held by" in told
    listed = {one["id"]: one["holder_alive"] for one in pages.get("/api/v1/runs").json()["items"]}
    assert listed == {"queued": False, "by hand": False}
    hf.run("free")
    assert pages.get("/api/v1/runs/free").json()["run"]["holder_alive"] is None


# --- what runs wait for


@workflow
def sleeper() -> None:
    selling.pack("bed")
    holdfast.sleep(3600)


@workflow
def receiver() -> object:
    return holdfast.receive("parcel")


def test_who_asks_who_sleeps_and_who_waits_are_told_apart(hf: Holdfast, pages: TestClient) -> None:
    hf.start(selling.sell, "A-1", 4200, id="asks")
    hf.start(sleeper, id="sleeps")
    hf.enqueue(selling.room, "attic", id="later", delay=3600)
    hf.start(receiver, id="receives")
    badges = dict(re.findall(r'aria-hidden="true">(.)</span>([\w ]+)</span></td>', pages.get("/").text))
    assert badges == {"?": "needs input", "◷": "delayed", "…": "waiting"}
    assert "? questions 1" in words(pages.get("/").text)
    for id, told in (
        ("asks", "? needs input"),
        ("sleeps", "◷ delayed"),
        ("later", "◷ delayed"),
        ("receives", "… waiting"),
    ):
        assert words(pages.get(f"/runs/{id}").text).startswith(f'id="main" tabindex="-1"> {id} {told}')
    assert "Now ◷ delayed" in words(pages.get("/runs/sleeps").text)
    assert "Now ? needs input" in words(pages.get("/runs/asks").text)


# --- who takes from queues


def test_a_queue_that_nobody_takes_from_says_so_with_the_command(
    hf: Holdfast, pages: TestClient, at_once: None
) -> None:
    hf.enqueue(selling.room, "attic", queue="two words", id="ready")
    told = "is known: holdfast worker MODULE --queue 'two words'"
    assert f"No live worker of it {told}" in words(pages.get("/queues").text)
    for path in ("/", "/runs/ready"):
        known = told.replace("MODULE", "selling")
        assert f"no live worker of queue two words {known}" in words(pages.get(path).text)
    held = hf.enqueue(selling.room, "attic", queue="two words", id="held")
    hf.client.store.claim(held.uid, hf.client.engine.worker.ready())
    for path in ("/queues", "/", "/runs/ready"):
        assert "live worker" not in words(pages.get(path).text)
    died(hf, "held")
    assert f"No live worker of it {told}" in words(pages.get("/queues").text)
    hf.queue("two words", paused=True)
    assert "live worker" not in words(pages.get("/queues").text)


def test_a_reason_of_its_own_is_told_before_that_nobody_takes_it(
    hf: Holdfast, pages: TestClient, at_once: None
) -> None:
    run = hf.enqueue(selling.room, "attic", id="r")
    info = replace(run.info(), reason="waits for another process: version 2 is wanted")
    assert status.standing(hf, info).note == info.reason
    assert status.standing(hf, run.info()).note == "no live worker of queue default is known"


def test_what_was_just_enqueued_is_not_said_to_be_left_alone(hf: Holdfast, pages: TestClient) -> None:
    hf.enqueue(selling.room, "attic", id="new")
    assert "live worker" not in words(pages.get("/").text) + words(pages.get("/queues").text)


def test_the_command_for_a_worker() -> None:
    assert worker_command("default") == "holdfast worker MODULE"
    assert worker_for("mail", "flow").options == ("--flows", "--queue", "mail")


def test_limits_are_named_where_columns_are_not(hf: Holdfast, pages: TestClient) -> None:
    hf.enqueue(selling.room, "attic")
    assert 'data-name="limits"><span class="dim">none' in pages.get("/queues").text


def test_the_server_of_the_page_is_no_worker_unless_it_holds_something(hf: Holdfast, pages: TestClient) -> None:
    run = hf.run("r")
    with run.claim():
        assert [one["runs"] for one in pages.get("/api/v1/workers").json()["items"]] == [["r"]]
    assert hf.client.engine.worker.enlisted
    assert pages.get("/api/v1/workers").json()["items"] == []
    hf.client.store.beat("other.1", 30.0)
    assert [one["name"] for one in pages.get("/api/v1/workers").json()["items"]] == ["other.1"]
    assert "A worker that has found nothing to do yet is not known" in words(pages.get("/workers").text)


# --- parked runs


DOUBT = (
    "nobody knows whether it was done; say what happened with run.resolve('a#1', done=True, result=...) or done=False"
)


@pytest.mark.parametrize(
    ("reason", "lets", "told"),
    [
        (DOUBT, False, "nobody knows whether it was done; say what happened with “Resolve”"),
        (f"{DOUBT}; or run.unblock(), which asks its check", True, "; or “Let it go on”, which asks its check"),
        ("use another key; then run.unblock()", True, "use another key; then “Let it go on”"),
        (None, True, ""),
    ],
)
def test_a_parked_run_is_let_go_on_only_where_that_helps(hf: Holdfast, reason: Any, lets: bool, told: str) -> None:
    run = hf.start(pay, 3, id="r")
    acts = [one.act for one in remedies_of(run, replace(run.info(), reason=reason))]
    assert acts == ["resolve", "resolve", *(["unblock"] if lets else [])]
    assert in_buttons(reason or "").endswith(told)


@step(at_most_once=True)
def wire(n: int) -> int:
    raise ConnectionError("the line went dead")


@workflow
def pay(n: int) -> int:
    return wire(n)


def test_a_run_that_waits_for_resolve_does_not_offer_to_go_on(hf: Holdfast, pages: TestClient) -> None:
    hf.start(pay, 3, id="p")
    for part in ("", "/journal", "/effects"):
        text = pages.get(f"/runs/p{part}").text
        assert "/runs/p/retry" not in text, part
        assert "say what happened with “Resolve”" in text, part
        assert "holdfast resolve" not in text, part


# --- notices


def test_a_notice_is_there_while_it_fits(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(selling.sell, "A-1", 4200, id="A-1")
    assert "Answered" not in pages.get("/runs/A-1?said=answered").text  # it asks, again
    run.answer(selling.Shipping("post", 1.0))
    text = pages.get("/runs/A-1?said=answered").text
    assert re.search(r'id="region-said" role="status"><p class="notice good">Answered. It goes on when a worker', text)
    run.resume()
    text = pages.get("/runs/A-1?said=answered").text
    assert 'id="region-said" role="status"></div>' in text
    assert said("cancelled", run.info()) == ""
    assert said("nonsense", run.info()) == ""


# --- what a run began with


@workflow
def many(first: int, *rest: int, key: str = "k") -> int:
    return first


def test_arguments_have_their_names_where_the_workflow_is_known(hf: Holdfast, pages: TestClient) -> None:
    sold = hf.start(selling.sell, "A-1", 4200, id="A-1")
    assert "Input order A-1 cents 4200" in words(pages.get("/runs/A-1").text)
    fork = sold.fork(id="other", input={"cents": 1})
    assert input_of(fork, fork.info()).by_names == {"order": "A-1", "cents": 1}
    assert input_of(sold, sold.info()).named == [("order", "A-1"), ("cents", 4200)]
    several = hf.start(many, 1, 2, 3, key="x", id="m")
    told = input_of(several, several.info())
    assert (told.named, told.by_names) == ([("first", 1), ("rest", (2, 3)), ("key", "x")], None)
    unknown = replace(sold.info(), workflow="of elsewhere")
    assert input_of(sold, unknown).named == [("argument 1", "A-1"), ("argument 2", 4200)]


def test_of_a_flow_the_variables_come_first(hf: Holdfast, pages: TestClient, tmp_path: Any) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("name: hello\nvars:\n  who: world\nsteps:\n  - id: say\n    run: 'true'\n")
    flow.load(path).enqueue(hf, id="f")
    told = words(pages.get("/runs/f").text)
    assert "Input who world The flow {" in told
