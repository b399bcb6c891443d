"""What is done from the pages: forms as a browser sends them, and what is refused."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import selling
from starlette.testclient import TestClient

import holdfast
from holdfast import Field, Holdfast, Run, step, workflow
from holdfast.ui.pages.addresses import run_url

ACT, VIEW = "a-token-for-those-who-act", "a-token-for-those-who-look"
Serve = Callable[[Holdfast], TestClient]


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    selling.undone.clear()
    with holdfast.open("memory://") as opened:
        yield opened


@pytest.fixture
def pages(serving: Serve, hf: Holdfast) -> TestClient:
    return serving(hf)


def hidden(text: str, name: str) -> str:
    """What a hidden field of a form has in it."""
    return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', text)[1])  # type: ignore[index]


def contents(run: Run, kind: str) -> dict[str, Any]:
    [info] = run.history(kind=kind)
    return run.entry(info.seq).contents


def sold(hf: Holdfast) -> Run:
    return hf.start(selling.sell, "A-1", 4200, id="A-1")


# --- questions


def test_an_answer_is_checked_and_journaled_with_who_gave_it(hf: Holdfast, pages: TestClient) -> None:
    run = sold(hf)
    [asked] = run.questions()
    sent = {"question": asked.id, "f0": "1", "f1": "heavy", "f2": "true", "f3": "", "back": ""}
    refused = pages.post("/runs/A-1/answer", data=sent)
    assert refused.status_code == 422
    assert "&#39;heavy&#39; is not a number" in refused.text
    assert 'value="heavy"' in refused.text
    done = pages.post("/runs/A-1/answer", data=sent | {"f1": "2"}, follow_redirects=False)
    assert (done.status_code, done.headers["location"]) == (303, "/runs/A-1?said=answered")
    again = pages.post("/runs/A-1/answer", data=sent | {"f1": "2"})
    assert (again.status_code, "no longer open" in again.text) == (409, True)
    run.resume()
    said = contents(run, "answered")
    assert (said["by"], said["value"]["carrier"], said["value"]["words"]) == ("operator", "courier", "")


def test_after_an_answer_one_goes_back_only_within_the_site(hf: Holdfast, pages: TestClient) -> None:
    for back, target in (
        ("/questions", "/questions"),
        ("//elsewhere.example", "/"),
        ("https://elsewhere.example", "/"),
    ):
        run = hf.run(f"r{back}")
        run.pause("Well?", [Field("n", "integer")])
        sent = {"question": run.questions()[0].id, "f0": "1", "back": back}
        answer = pages.post(run_url(run.id, "answer"), data=sent, follow_redirects=False)
        assert answer.headers["location"] == target


def test_a_graph_that_stopped_is_let_go_on(hf: Holdfast, pages: TestClient) -> None:
    graph = holdfast.Graph(selling.Draft, name="stops")
    graph.node(selling.write)
    graph.entry("write")
    graph.interrupt(before=["write"])
    run = hf.start(graph, {"text": "", "notes": []}, id="g")
    [asked] = run.questions()
    assert "Keep waiting" in pages.get("/runs/g").text
    refused = pages.post("/runs/g/answer", data={"question": asked.id, "go_on": "no"})
    assert "It keeps waiting." in refused.text
    assert (run.resume(), run.questions()[0].declined) == ("waiting", True)
    pages.post("/runs/g/answer", data={"question": asked.id, "go_on": "yes"})
    run.resume()
    assert (run.status, run.result()["text"]) == ("completed", "draft 1")


# --- forks


def test_a_fork_of_a_run_that_is_driven_by_hand_with_another_state(hf: Holdfast, pages: TestClient) -> None:
    run = hf.run("r")
    run.save({"n": 1}, next="model")
    run.save({"n": 2}, next="model")
    form = pages.get("/runs/r/fork?at=1").text
    assert "&#34;n&#34;: 1" in form
    answer = pages.post("/runs/r/fork", data={"at": "1", "id": "f", "edit": '{"n": 9}'}, follow_redirects=False)
    assert answer.headers["location"] == "/runs/f?said=forked"
    fork = hf.get("f")
    assert (fork.checkpoint().state, fork.checkpoint().next, fork.info().forked_from) == ({"n": 9}, "model", ("r", 1))
    assert contents(fork, "forked")["by"] == "operator"


def test_a_fork_with_another_input_and_another_result(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(selling.house, ["attic"], id="h")
    assert run.result() == ["desk in attic packed"]
    made = pages.post("/runs/h/fork", data={"id": "i", "input": '{"rooms": ["hall"]}'}, follow_redirects=False)
    assert made.status_code == 303
    hf.get("i").resume()
    assert hf.get("i").result() == ["desk in hall packed"]
    other = {"id": "j", "result_key": "room#1", "result": '"nothing"'}
    assert pages.post("/runs/h/fork", data=other, follow_redirects=False).status_code == 303
    hf.get("j").resume()
    assert hf.get("j").result() == ["nothing"]


def test_a_fork_is_offered_what_it_began_with_and_takes_what_was_changed(hf: Holdfast, pages: TestClient) -> None:
    sold(hf)
    form = html.unescape(pages.get("/runs/A-1/fork").text)
    assert '{\n  "order": "A-1",\n  "cents": 4200\n}' in form
    offered = re.findall(r"<option>([^<]*)</option>", form)
    assert offered == ["charge#1", "label#1", "mail#1"]
    same = {"id": "same", "input": '{"order": "A-1", "cents": 4200}'}
    assert pages.post("/runs/A-1/fork", data=same, follow_redirects=False).status_code == 303
    assert hf.get("same").info().forked_from == ("A-1", 9)
    for id, cents in (("other", "1"), ("a number", "4200.0")):
        sent = {"id": id, "input": f'{{"order": "A-1", "cents": {cents}}}'}
        assert pages.post("/runs/A-1/fork", data=sent, follow_redirects=False).status_code == 303
        assert hf.get(id).info().forked_from == ("A-1", 0)


def test_a_state_that_is_too_long_for_a_form_is_left_as_it_is(hf: Holdfast, pages: TestClient) -> None:
    hf.run("r").save({"text": "x" * 300_000})
    form = pages.get("/runs/r/fork").text
    assert "too long to be edited here" in form
    assert len(form) < 20_000
    made = pages.post("/runs/r/fork", data={"id": "f", "edit": ""}, follow_redirects=True)
    assert "It goes on when whoever drives it claims it" in made.text
    assert hf.get("f").checkpoint().state == hf.get("r").checkpoint().state


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ({"input": "["}, "this is not JSON"),
        ({"input": "[1]"}, "an object of the arguments"),
        ({"input": '{"nonsense": 1}'}, "has no argument nonsense"),
        ({"at": "x"}, 'id="at-error">at: the number of an entry'),
        ({"at": "99"}, 'id="at-error">there is no entry 99'),
        ({"id": "h"}, "exists already"),
        ({"result_key": "none#1", "result": "1"}, "has no step or answer"),
    ],
)
def test_forks_that_make_no_sense_are_told_in_the_form(
    hf: Holdfast, pages: TestClient, sent: dict[str, str], told: str
) -> None:
    hf.start(selling.house, ["attic"], id="h").result()
    answer = pages.post("/runs/h/fork", data=sent)
    assert (answer.status_code, told in html.unescape(answer.text)) == (422, True)
    assert len(hf.runs()) == 2


# --- going back, and giving up


def test_a_rollback_wants_the_plan_to_be_read_and_the_run_to_be_as_it_was(hf: Holdfast, pages: TestClient) -> None:
    run = sold(hf)
    etag = hidden(pages.get("/runs/A-1/rollback?to=0").text, "etag")
    assert pages.post("/runs/A-1/rollback", data={"to": "0", "etag": etag, "then": "go-on"}).status_code == 422
    assert pages.post("/runs/A-1/rollback", data={"to": "0", "sure": "yes", "then": "go-on"}).status_code == 412
    hf.get("A-1").send("news")
    run.resume()
    sent = {"to": "0", "sure": "yes", "etag": etag, "then": "go-on"}
    stale = pages.post("/runs/A-1/rollback", data=sent)
    assert (stale.status_code, selling.undone) == (412, [])
    etag = hidden(pages.get("/runs/A-1/rollback?to=0").text, "etag")
    done = pages.post("/runs/A-1/rollback", data={"to": "0", "sure": "yes", "etag": etag, "then": "cancelled"})
    assert (done.status_code, selling.undone, run.status) == (200, ["receipt of A-1"], "cancelled")
    assert "Not everything could be undone" in done.text
    assert contents(run, "rollback_begun")["by"] == "operator"


def test_a_rollback_that_stops_says_where_and_can_be_said_again_or_forced(hf: Holdfast, pages: TestClient) -> None:
    run = sold(hf)
    selling.closed[:] = ["A-1"]

    def roll_back(**more: str) -> Any:
        etag = hidden(pages.get("/runs/A-1/rollback?to=0").text, "etag")
        return pages.post("/runs/A-1/rollback", data={"to": "0", "sure": "yes", "then": "go-on", "etag": etag, **more})

    try:
        stopped = roll_back()
        assert (stopped.status_code, run.status) == (409, "blocked")
        failed = html.escape("the undo of step 'charge#1' failed (ConnectionError: the bank is closed)", quote=True)
        failed = failed.replace("&#x27;", "&#39;")
        assert failed in stopped.text
        assert "Stopped on the way to entry 0" in stopped.text
        assert "not reached" in stopped.text
        assert failed in pages.get("/runs/A-1").text
        assert "its rollback to entry 0 stopped" in pages.get("/").text
        assert "undo failed" in pages.get("/runs/A-1/effects").text
        api = pages.get("/api/v1/runs/A-1")
        seen = api.json()["run"]
        assert (seen["status"], seen["reason"].partition(":")[0]) == ("blocked", "its rollback to entry 0 stopped")
        match = {"If-Match": api.headers["etag"]}
        refused = pages.post("/api/v1/runs/A-1/rollback", json={"to": 0}, headers=match)
        assert (refused.status_code, refused.json()["title"], refused.json()["run"]) == (409, "Undo failed", "A-1")
        assert pages.post("/runs/A-1/cancel", data={}).status_code == 409
        assert roll_back(force="yes", then="cancelled").status_code == 200
    finally:
        selling.closed.clear()
    assert (run.status, selling.undone) == ("cancelled", [])
    assert "not everything was undone" in pages.get("/").text


def test_a_cancel_by_the_api_can_be_forced(hf: Holdfast, pages: TestClient) -> None:
    run = sold(hf)
    selling.closed[:] = ["A-1"]
    try:
        for force, status in ((False, 409), (True, 200)):
            match = {"If-Match": pages.get("/api/v1/runs/A-1").headers["etag"]}
            body = {"undo": True, "force": force}
            assert pages.post("/api/v1/runs/A-1/cancel", json=body, headers=match).status_code == status
    finally:
        selling.closed.clear()
    assert run.status == "cancelled"


def test_what_happens_after_a_rollback_is_said_on_purpose_of_a_run_that_has_ended(
    hf: Holdfast, pages: TestClient
) -> None:
    sold(hf)
    run = hf.start(selling.house, ["attic"], id="h")
    assert run.result() == ["desk in attic packed"]
    chosen = r'name="then" value="(\S+)" checked'
    assert re.findall(chosen, pages.get("/runs/A-1/rollback?to=0").text) == ["go-on"]
    form = pages.get("/runs/h/rollback?to=0").text
    assert re.findall(chosen, form) == []
    assert "a worker then does it again from there" in form
    sent = {"to": "0", "sure": "yes", "etag": hidden(form, "etag")}
    refused = pages.post("/runs/h/rollback", data=sent)
    assert (refused.status_code, run.status) == (422, "completed")
    assert "Say what happens then." in refused.text
    assert pages.post("/runs/h/rollback", data=sent | {"then": "go-on"}).status_code == 200
    assert run.status == "ready"


def test_entries_are_offered_by_name(hf: Holdfast, pages: TestClient) -> None:
    run = sold(hf)
    for path in ("/runs/A-1/fork", "/runs/A-1/rollback"):
        text = pages.get(path).text
        assert 'list="entries"' in text
        assert '<option value="2">2 done charge#1</option>' in text
    run.rollback(1)
    assert '<option value="2">' in pages.get("/runs/A-1/fork").text
    assert '<option value="2">' not in pages.get("/runs/A-1/rollback").text


def test_a_rollback_to_where_none_can_go_is_told(hf: Holdfast, pages: TestClient) -> None:
    sold(hf)
    for to, told in (("99", "there is no entry 99"), ("x", "the number of an entry is wanted")):
        answer = pages.get(f"/runs/A-1/rollback?to={to}")
        assert answer.status_code == 422
        assert re.search(rf'id="to-error"[^>]*>[^<]*{told}', answer.text)


def test_cancel_with_undo_and_retry(hf: Holdfast, pages: TestClient) -> None:
    run = sold(hf)
    assert "2 effects, 1 can be" in pages.get("/runs/A-1/cancel").text
    pages.post("/runs/A-1/cancel", data={"why": "too late", "undo": "yes"})
    assert (run.status, selling.undone) == ("cancelled", ["receipt of A-1"])
    assert contents(run, "cancelled")["by"] == "operator"
    assert pages.post("/runs/A-1/cancel", data={}).status_code == 200  # once more changes nothing
    etag = hidden(pages.get("/runs/A-1/retry").text, "etag")
    pages.post("/runs/A-1/retry", data={"etag": etag})
    assert run.status == "ready"
    assert pages.post("/runs/A-1/retry", data={"etag": etag}).status_code == 412


@step(at_most_once=True, target="the bank")
def wire(n: int) -> int:
    raise ConnectionError("the line went dead")


@workflow
def pay(n: int) -> int:
    return wire(n)


def test_an_uncertain_step_is_resolved(hf: Holdfast, pages: TestClient) -> None:
    run = hf.start(pay, 3, id="p")
    assert run.status == "blocked"
    for path in ("/runs/p", "/runs/p/effects"):
        assert "/runs/p/resolve?key=wire%231" in pages.get(path).text
    form = pages.get("/runs/p/resolve?key=wire%231").text
    assert "the bank" in form
    sent = {"key": "wire#1", "etag": hidden(form, "etag")}
    assert "say whether it was done" in pages.post("/runs/p/resolve", data=sent).text
    assert "this is not JSON" in pages.post("/runs/p/resolve", data=sent | {"done": "yes", "result": "{"}).text
    refused = pages.post("/runs/p/resolve", data=sent | {"done": "yes", "result": " "})
    assert (refused.status_code, run.status) == (422, "blocked")
    assert "null, if that is nothing" in refused.text
    pages.post("/runs/p/resolve", data=sent | {"done": "yes", "result": "33"})
    assert contents(run, "resolved")["by"] == "operator"
    run.resume()
    assert run.result() == 33


@pytest.mark.parametrize(
    ("sent", "gives"), [({"done": "yes", "result": "null"}, None), ({"done": "no", "result": ""}, 1)]
)
def test_nothing_is_a_result_on_purpose(hf: Holdfast, pages: TestClient, sent: dict[str, str], gives: Any) -> None:
    run = hf.start(pay, 3, id="p")
    etag = hidden(pages.get("/runs/p/resolve?key=wire%231").text, "etag")
    said = pages.post("/runs/p/resolve", data=sent | {"key": "wire#1", "etag": etag}, follow_redirects=False)
    assert said.headers["location"] == "/runs/p?said=resolved"
    assert contents(run, "resolved")["done"] is (gives is None)


# --- queues and schedules


def test_queues_and_schedules(hf: Holdfast, pages: TestClient) -> None:
    hf.queue("a/b", limit=2)
    assert 'action="/queues/a%2Fb"' in pages.get("/queues").text
    pages.post("/queues/a%2Fb", data={"do": "pause"})
    info = hf.queue("a/b").info()
    assert (info.paused, info.set_by, info.set_at is not None) == (True, "operator", True)
    assert "by operator" in pages.get("/queues").text
    pages.post("/queues/a%2Fb", data={"do": "resume"})
    assert not hf.queue("a/b").info().paused
    schedule = hf.schedule(selling.room, "attic", cron="0 3 * * *", id="every night")
    for act, paused in (("pause", True), ("resume", False)):
        pages.post("/schedules/every%20night", data={"do": act})
        assert (schedule.info().paused, schedule.info().set_by) == (paused, "operator")
    made = pages.post("/schedules/every%20night", data={"do": "trigger"}, follow_redirects=False)
    assert made.headers["location"].startswith("/runs/")
    assert len(hf.runs(workflow="room")) == 1
    assert pages.post("/schedules/every%20night", data={"do": "delete"}).status_code == 422
    assert pages.post("/schedules/none", data={"do": "pause"}).status_code == 404


def test_workers_and_what_they_hold(hf: Holdfast, pages: TestClient) -> None:
    with hf.run("held").claim():
        text = pages.get("/workers").text
    assert "alive" in text
    assert 'href="/runs/held"' in text


# --- who may


def test_forms_want_the_token_of_the_session(hf: Holdfast, serving: Serve) -> None:
    run = sold(hf)
    pages = serving(hf)
    pages.headers.pop("authorization")
    pages.get(f"/?token={ACT}")
    text = pages.get("/runs/A-1/cancel").text
    assert pages.post("/runs/A-1/cancel", data={"why": "x"}).status_code == 403
    assert pages.post("/runs/A-1/cancel", data={"why": "x", "csrf": "0" * 64}).status_code == 403
    assert run.status == "waiting"
    pages.post("/runs/A-1/cancel", data={"why": "x", "csrf": hidden(text, "csrf")})
    assert run.status == "cancelled"


def test_who_may_only_look_cannot_act(hf: Holdfast, serving: Serve) -> None:
    run = sold(hf)
    pages = serving(hf)
    pages.headers["authorization"] = f"Bearer {VIEW}"
    text = pages.get("/runs/A-1").text
    assert "(view only)" in text
    assert "/runs/A-1/cancel" not in text
    for path in ("/runs/A-1/cancel", "/runs/A-1/answer", "/runs/A-1/fork", "/queues/default"):
        assert pages.post(path, data={"do": "pause"}).status_code == 403
    assert run.status == "waiting"


# --- what came from a run


EVIL = "<script>evil()</script>\"'><img src=x onerror=evil()>{{7*7}}"


@step(target="{text}")
def evil(text: str) -> str:
    return text


@workflow(name=EVIL)
def wicked(text: str) -> str:
    evil(text)
    holdfast.note(text)
    holdfast.emit({text: text}, stream=text)
    holdfast.ask(text, [Field(text, label=text, description=text, default=text), Field("c", options=(text, "b"))])
    return text


def test_a_script_in_every_field_of_a_run_is_only_text(hf: Holdfast, pages: TestClient) -> None:
    hf.start(wicked, EVIL, id=EVIL, tags={EVIL: EVIL})
    failed = hf.run(f"{EVIL}!", workflow=EVIL)
    failed.save({EVIL: EVIL}, next=EVIL, node=EVIL)
    failed.once(EVIL, str, EVIL, target=EVIL)
    failed.fail(EVIL)
    hf.get(EVIL).fork(id=f"{EVIL} fork")
    hf.enqueue(wicked, EVIL, queue="q" + EVIL, id="queued")
    hf.queue("q" + EVIL, limit=1)
    hf.schedule(wicked, EVIL, cron="0 0 * * *", id=EVIL)
    paths = ["/", f"/?q={EVIL}&workflow={EVIL}&tag={EVIL}", "/questions", "/queues", "/schedules", "/workers"]
    for id in (EVIL, f"{EVIL}!"):
        paths += [run_url(id, part) for part in ("state", "effects", "family", "journal", "fork", "cancel")]
        paths += [run_url(id), run_url(id, "rollback", to="0"), run_url(id, "fork", answer="ask#1")]
        paths += [run_url(id, "entries", 1)]
    for path in [*paths, f"/runs/{EVIL.replace('/', '%2F')}nobody"]:
        answer = pages.get(path)
        assert answer.status_code < 500, path
        assert "evil()" in html.unescape(answer.text) or path == "/workers", path
        assert not re.search(r"<script>evil|<img src=x|=\s*\"[^\"]*\"'><img", answer.text), path
        assert "{{7*7}}" in answer.text or path == "/workers" or "49" not in answer.text, path
    asked = hf.get(EVIL).questions()[0]
    refused = pages.post(run_url(EVIL, "answer"), data={"question": asked.id, "f0": EVIL, "f1": f"{EVIL}?"})
    assert refused.status_code == 422
    assert "<script>evil" not in refused.text
