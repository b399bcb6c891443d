"""`holdfast answer`, `fork`, `rollback`, `resolve`, `cancel`, `retry` and `unblock`."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast import Holdfast

from .conftest import SHOPPING, Call


@pytest.fixture(autouse=True)
def repaired(shop: Call) -> Iterator[Any]:
    """The printer is broken at the beginning of each test."""
    shop("quick", "warm-up")
    shopping = sys.modules["shopping"]
    shopping.broken["printer"] = True
    shopping.undone.clear()
    yield shopping
    shopping.broken.update(printer=True, bank=False)


# --- answer


def test_answer_with_json(call: Call, shop: Call, store: Holdfast) -> None:
    shop("sell", "s1", order="A-17")
    done = call("answer", "s1", '{"carrier": "post"}', "--by", "desk")
    assert done.code == 0
    assert "Answered." in done.out
    assert "holdfast resume s1" in done.out
    assert store.get("s1").status == "ready"
    call("resume", "s1", "-m", SHOPPING)
    [answered] = call("history", "s1", "--kind", "answered", "--json", "-c").lines
    assert answered["contents"]["by"] == "desk"


def test_answer_and_go_on(call: Call, shop: Call) -> None:
    shop("sell", "s1", order="A-17")
    done = call("answer", "s1", "--set", "carrier=courier", "--set", "parcels=2", "--resume", "-m", SHOPPING)
    assert done.code == 0
    assert "A-17 by courier" in done.out
    shop("sell", "s2", order="A-18")
    given = call("answer", "s2", '{"carrier": "post"}', "--resume", "-m", SHOPPING, "--json").lines
    assert given[0]["answered"].startswith("q")
    assert given[-1]["result"] == "A-18 by post"


def test_answer_a_child_under_its_parent(call: Call, shop: Call) -> None:
    shop("family", "p")
    done = call("answer", "p", '{"carrier": "post"}', "--resume", "-m", SHOPPING)
    assert "child gave B-1 by post" in done.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (['{"carrier": "horse", "parcels": "x", "z": 1}'], 9, "parcels: 'x' is not an integer"),
        (['{"carrier": "horse", "parcels": "x", "z": 1}'], 9, "z: there is no such field"),
        (["--set", "carrier=post", "--set", "insured=true"], 9, "the post insures nothing"),
        (["{"], 2, "this is not JSON"),
        ([], 2, "give the answer as JSON"),
        (["1", "--set", "carrier=post"], 2, "not both"),
        (["1", "--question", "q99"], 9, "question q99 is not open"),
    ],
)
def test_answers_that_are_refused(call: Call, shop: Call, words: list[str], code: int, said: str) -> None:
    shop("sell", "s1", order="A-17")
    done = call("answer", "s1", *words)
    assert done.code == code
    assert said in done.err
    assert call("questions", "s1", "--json").json["questions"] != []


@pytest.mark.parametrize(
    ("asked", "typed", "taken"),
    [
        (str, "done, and dusted", "done, and dusted"),
        (str, "true", "true"),
        (str, '"done"', "done"),
        (str, "@letter.txt", "Dear all\n"),
        (Literal["post", "courier"], "courier", "courier"),
        (Literal["post", "courier"], '"post"', "post"),
        (Literal["1", "2"], "2", "2"),
        (Literal[1, 2], "2", "2"),
        (date, "2026-01-31", "2026-01-31"),
        (int, "7", "7"),
    ],
)
def test_one_text_or_choice_is_given_as_it_is(
    call: Call, shop: Call, store: Holdfast, memdir: Path, asked: Any, typed: str, taken: str
) -> None:
    (memdir / "letter.txt").write_text("Dear all\n")
    sys.modules["shopping"].kind[:] = [asked]
    shop("asks_one", "a")
    assert call("answer", "a", typed).code == 0
    assert call("resume", "a", "-m", SHOPPING).code == 0
    assert store.get("a").result() == taken


def test_what_is_no_json_is_shown_quoted(call: Call, shop: Call, store: Holdfast) -> None:
    store.run("hand").pause("Anything?")
    done = call("answer", "hand", "it's done")
    assert done.code == 2
    way = done.err.partition("such as ")[2].strip()
    assert call("answer", "hand", *shlex.split(way)).code == 0
    sys.modules["shopping"].kind[:] = [Literal["post", "courier"]]
    shop("asks_one", "a")
    refused = call("answer", "a", "horse")
    assert (refused.code, "courier" in refused.err) == (9, True)


STOPPING = """\
name: stops
steps:
  - {id: a, run: 'true'}
  - {id: b, run: 'echo b >> did', breakpoint: before}
"""


@pytest.mark.parametrize("no", ["false", "no"])
def test_no_at_a_breakpoint_keeps_waiting(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stops.yaml").write_text(STOPPING)
    call("run", "stops.yaml", "--id", "f")
    done = call("answer", "f", no, "--resume", "--by", "desk")
    assert done.code == 0
    assert "It keeps waiting" in done.out
    assert call("show", "f", "--json").json["run"]["status"] == "waiting"
    [declined] = call("history", "f", "--kind", "declined", "--json", "-c").lines
    assert declined["contents"]["by"] == "desk"
    assert not (tmp_path / "did").exists()
    assert "holdfast answer f" in call("show", "f").out
    call("answer", "f", "yes", "--resume")
    assert (tmp_path / "did").read_text() == "b\n"


def test_no_at_a_breakpoint_cancels_if_asked_to(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stops.yaml").write_text(STOPPING)
    call("run", "stops.yaml", "--id", "f")
    assert call("answer", "f", "no", "--cancel", "--resume").code == 0
    assert call("show", "f", "--json").json["run"]["status"] == "cancelled"
    assert not (tmp_path / "did").exists()


def test_answer_when_nothing_is_asked(call: Call, shop: Call) -> None:
    shop("quick", "q")
    done = call("answer", "q", "1")
    assert done.code == 9
    assert "no question is open" in done.err


def test_an_answer_may_be_null(call: Call, store: Holdfast) -> None:
    run = store.run("hand")
    run.pause("Anything?")
    assert call("answer", "hand", "null").code == 0
    with run.claim():
        assert run.checkpoint().answers == {"answer": None}


def test_send(call: Call, shop: Call) -> None:
    waits = shop("waits", "w")
    assert waits.code == 3
    assert "… waiting  w  for a message" in waits.out
    assert call("send", "w", '"no"', "--topic", "other", "--key", "k", "--json").json["sent"] is True
    assert "It was sent before." in call("send", "w", '"no"', "--topic", "other", "--key", "k").out
    done = call("send", "w", "42", "--topic", "payments", "--by", "bank", "--resume", "-m", SHOPPING)
    assert (done.code, done.out.splitlines()[-1]) == (0, "got 42")
    assert call("send", "w", "1").code == 9


# --- fork, rollback, resolve


def test_fork(call: Call, shop: Call) -> None:
    shop("sell", "s1", order="A-17")
    call("answer", "s1", '{"carrier": "post"}', "--resume", "-m", SHOPPING)
    done = call("fork", "s1", "--answer", 'ask#1={"carrier": "courier"}', "--id", "s2", "--resume", "-m", SHOPPING)
    assert done.code == 0
    assert "s2 is a fork of s1." in done.out
    assert "A-17 by courier" in done.out
    at = call("fork", "s1", "--at", "0", "--id", "s3", "--json").json
    assert (at["run"]["forked_from"], at["forked_from"]) == (["s1", 0], "s1")
    other = call("fork", "s1", "--input", '{"order": "Z"}', "--id", "s4", "-m", SHOPPING, "--resume", "--no-ask")
    assert other.code == 2  # it has no such option
    assert call("fork", "s1", "--id", "s2").code == 9
    assert call("fork", "s1", "--at", "x").code == 2
    assert call("fork", "s1", "--at", "99").code == 8
    assert call("fork", "s1", "--input", "[]").code == 2
    assert call("fork", "s1", "--result", "charge#1=x").code == 2


def test_fork_right_before_the_failure(call: Call, shop: Call, repaired: Any) -> None:
    shop("fails", "f1")
    repaired.broken["printer"] = False
    done = call("fork", "f1", "--at", "failure", "--id", "f2", "--resume", "-m", SHOPPING)
    assert done.code == 0
    assert "label of A-1" in done.out


def test_rollback_is_planned_and_agreed_to(call: Call, shop: Call, repaired: Any) -> None:
    shop("sell", "s1", order="A-17")
    plan = call("rollback", "s1", "--to", "0", "--plan")
    assert "card of A-17" in plan.out
    [step] = call("rollback", "s1", "--to", "0", "--plan", "--json").json["plan"]["steps"]
    assert (step["action"], step["effect"]["key"]) == ("undo", "charge#1")
    refused = call("rollback", "s1", "--to", "0")
    assert refused.code == 2
    assert "1 to undo; say --yes" in refused.err
    assert repaired.undone == []
    done = call("rollback", "s1", "--to", "0", "--yes")
    assert done.code == 0
    assert repaired.undone == ["receipt of A-17"]
    assert "s1 is rolled back to entry 0" in done.out


def test_rollback_in_json_and_to_the_end(call: Call, shop: Call, repaired: Any) -> None:
    shop("sell", "s1", order="A-17")
    given = call("rollback", "s1", "--to", "0", "--then", "cancelled", "--yes", "--json").json
    assert given["run"]["status"] == "cancelled"
    assert [effect["key"] for effect in given["report"]["undone"]] == ["charge#1"]


def test_a_rollback_that_leaves_something_says_so(call: Call, store: Holdfast) -> None:
    run = store.run("hand")
    run.mark("m", "mail", "a person")
    done = call("rollback", "hand", "--to", "0", "--yes")
    assert done.code == 9
    assert "left" in done.out
    assert call("rollback", "hand", "--to", "77", "--yes").code == 8


FAILED = "the undo of step 'charge#1' failed (ConnectionError: the bank is closed)"


def test_a_rollback_that_stops_is_seen_everywhere_and_goes_on_when_it_is_said_again(
    call: Call, shop: Call, repaired: Any
) -> None:
    shop("sell", "s1", order="A-17")
    repaired.broken["bank"] = True
    stopped = call("rollback", "s1", "--to", "0", "--yes")
    assert stopped.code == 5
    assert re.search(r"undo failed +charge#1", stopped.out)
    assert FAILED in stopped.err
    assert "holdfast rollback s1 --to 0 tries it again" in stopped.err
    assert "with --force it passes over it" in stopped.err
    given = call("rollback", "s1", "--to", "0", "--yes", "--json")
    assert (given.code, given.json["run"]["status"], given.json["error"]["type"]) == (5, "blocked", "UndoFailed")
    assert [one["key"] for one in given.json["report"]["failed"]] == ["charge#1"]
    for words in (("show", "s1"), ("runs",)):
        assert FAILED in " ".join(call(*words).out.split())
    shown = call("show", "s1").out
    assert "holdfast rollback s1 --to 0 --module shopping\n  holdfast rollback s1 --to 0 --force" in shown
    assert call("show", "s1", "--json").json["run"]["reason"].startswith("its rollback to entry 0 stopped")
    assert "undo failed" in call("effects", "s1").out
    sick = call("doctor")
    assert sick.code == 12
    assert "1 run blocked in the middle of a rollback, by an undo that failed: s1" in sick.out
    for words in (("resume", "s1", "-m", SHOPPING), ("unblock", "s1", "-m", SHOPPING)):
        refused = call(*words)
        assert refused.code == 5, words
    repaired.broken["bank"] = False
    assert call("rollback", "s1", "--to", "0", "--yes").code == 0
    assert repaired.undone == ["receipt of A-17"]


def test_with_force_a_rollback_passes_over_what_failed_and_says_so(call: Call, shop: Call, repaired: Any) -> None:
    shop("sell", "s1", order="A-17")
    repaired.broken["bank"] = True
    call("rollback", "s1", "--to", "0", "--yes")
    forced = call("rollback", "s1", "--to", "0", "--force", "--then", "cancelled", "--yes", "--by", "operations")
    assert forced.code == 9
    assert re.search(r"undo failed +charge#1", forced.out)
    assert "not everything was undone: the undo of step 'charge#1'" in " ".join(call("runs").out.split())
    well = call("doctor")
    assert (well.code, "1 run of which not everything was undone: s1" in well.out) == (0, True)


def test_a_cancel_whose_undo_fails_is_no_success(call: Call, shop: Call, repaired: Any) -> None:
    shop("sell", "s1", order="A-17")
    repaired.broken["bank"] = True
    for words in (("cancel", "s1", "--undo"), ("cancel", "s1", "--undo", "-m", SHOPPING)):
        done = call(*words)
        assert (done.code, done.out) == (5, "")
        assert f"✗ run 's1': its rollback to entry 0 stopped: {FAILED}" in done.err
    assert call("cancel", "s1").code == 5
    assert call("show", "s1", "--json").json["run"]["status"] == "blocked"
    forced = call("cancel", "s1", "--undo", "--force")
    assert (forced.code, forced.err) == (9, "! s1 is cancelled; not undone: charge#1 (undo failed)\n")
    shop("sell", "s2", order="B-1")
    call("cancel", "s2", "--undo")
    given = call("cancel", "s2", "--force", "--json")
    assert given.code == 9
    assert (given.json["done"], given.json["results"][0]["missed"]) == (1, "not undone: charge#1 (undo failed)")


def test_resolve(call: Call, shop: Call) -> None:
    shop("risky", "r1")
    assert call("resolve", "r1", "once_only#1").code == 2
    assert call("resolve", "r1", "nothing#1", "--done").code == 2
    named = call("resolve", "r1", "once_only", "--done", "--result", "1")
    assert (named.code, "did you mean once_only#1?" in named.err) == (2, True)
    silent = call("resolve", "r1", "once_only#1", "--done")
    assert (silent.code, "--result null if it gives nothing" in silent.err) == (2, True)
    assert call("resolve", "r1", "once_only#1", "--not-done", "--result", "1").code == 2
    done = call(
        "resolve", "r1", "once_only#1", "--done", "--result", '"sent"', "--by", "me", "--resume", "-m", SHOPPING
    )
    assert done.code == 0
    assert done.out.splitlines()[-1] == "sent"
    shop("risky", "r2")
    assert call("resolve", "r2", "once_only#1", "--not-done", "--json").json["resolved"] == "once_only#1"


def test_resolve_of_a_step_that_gives_none_needs_no_result(call: Call, shop: Call, process: Any) -> None:
    shop("risky_mail", "m1")
    child = process("resolve", "m1", "mail_once#1", "--done")  # where nothing is declared
    assert (child.communicate(timeout=60)[0], child.returncode) == ("", 2)
    assert call("resolve", "m1", "mail_once#1", "--done", "--resume", "-m", SHOPPING).out.endswith("mailed\n")
    shop("risky_mail", "m2")
    child = process("resolve", "m2", "mail_once#1", "--done", "--result", "null")
    assert "counts as done" in child.communicate(timeout=60)[0]


def ended(call: Call, shop: Call) -> None:
    shop("sell", "s1", order="A-17")
    call("answer", "s1", '{"carrier": "post"}', "--resume", "-m", SHOPPING)


def test_that_what_has_ended_is_done_again_is_said_before(call: Call, shop: Call, store: Holdfast) -> None:
    ended(call, shop)
    asked = call("rollback", "s1", "--to", "0").err
    assert "to entry 0, and a worker then does it again from there (--then cancelled leaves it)?" in asked
    assert call("rollback", "s1", "--to", "0", "--then", "cancelled", "--resume", "--yes").code == 2
    assert "and leave it as cancelled?" in call("rollback", "s1", "--to", "0", "--then", "cancelled").err
    assert store.get("s1").status == "completed"
    assert call("rollback", "s1", "--to", "0", "--yes").code == 0
    assert store.get("s1").status == "ready"


def test_resume_says_itself_that_it_goes_on(call: Call, shop: Call, repaired: Any) -> None:
    ended(call, shop)
    assert call("rollback", "s1", "--to", "0", "--yes", "--resume", "-m", SHOPPING).code == 3
    assert repaired.undone == ["receipt of A-17"]


@pytest.mark.parametrize(
    ("workflow", "words"),
    [
        ("sell", ["answer", "--set", "carrier=post"]),
        ("sell", ["fork", "--id", "other"]),
        ("sell", ["rollback", "--to", "0", "--yes"]),
        ("waits", ["send", "1", "--topic", "payments"]),
        ("fails", ["retry"]),
        ("risky", ["unblock"]),
        ("risky", ["resolve", "once_only#1", "--not-done"]),
    ],
)
def test_nothing_is_done_if_it_cannot_go_on_here(
    shop: Call, store: Holdfast, process: Any, workflow: str, words: list[str]
) -> None:
    shop(workflow, "r1", **({"order": "A-17"} if workflow == "sell" else {}))
    run = store.get("r1")
    before = run.info(), len(store.client.store.inbox(run.uid)), len(store.runs())
    child = process(words[0], "r1", *words[1:], "--resume")
    out, err = child.communicate(timeout=60)
    assert (out, child.returncode) == ("", 9)
    assert "is not declared here; name its module: add --module shopping\n" in err
    assert (run.info(), len(store.client.store.inbox(run.uid)), len(store.runs())) == before


# --- cancel, retry, unblock: one, and many


def test_cancel_one(call: Call, shop: Call, repaired: Any) -> None:
    shop("sell", "s1", order="A-17")
    done = call("cancel", "s1", "--why", "sold out", "--undo", "--by", "me")
    assert done.code == 0
    assert done.out == "✓ s1 is cancelled\n"
    assert repaired.undone == ["receipt of A-17"]
    assert "sold out" in call("show", "s1").out
    shop("quick", "q")
    assert call("cancel", "q").code == 9


def test_retry_one_and_go_on(call: Call, shop: Call, repaired: Any) -> None:
    shop("fails", "f1")
    repaired.broken["printer"] = False
    done = call("retry", "f1", "--resume", "-m", SHOPPING)
    assert done.code == 0
    assert "label of A-1" in done.out


def three_failed(shop: Call) -> None:
    for id in ("f1", "f2", "f3"):
        shop("fails", id)


def test_many_are_previewed_and_not_done_unasked(call: Call, shop: Call, store: Holdfast) -> None:
    three_failed(shop)
    done = call("retry", "--status", "failed", "--workflow", "shopping.fails")
    assert done.code == 2
    assert [line.split()[0] for line in done.out.splitlines()] == ["run", "f3", "f2", "f1", "3"]
    assert "3 runs to retry." in done.out
    assert "Retry 3 runs? 3 to retry; say --yes" in done.err
    assert len(store.runs(status="failed")) == 3


def test_many_are_done_with_yes(call: Call, shop: Call, store: Holdfast) -> None:
    three_failed(shop)
    done = call("retry", "--status", "failed", "--workflow", "shopping.fails", "--yes")
    assert done.code == 0
    assert done.out.splitlines() == [f"✓ {id} is ready again" for id in ("f3", "f2", "f1")] + ["3 of 3 runs."]
    assert len(store.runs(status="ready")) == 3
    assert "No such runs." in call("retry", "--workflow", "shopping.fails", "--yes").out


def test_a_dry_run_of_many(call: Call, shop: Call) -> None:
    three_failed(shop)
    assert "3 runs to cancel." in call("cancel", "--status", "failed", "--dry-run").out
    given = call("retry", "--prefix", "f", "--dry-run", "--json").json
    assert (given["would"], given["count"]) == ("retry", 3)
    assert [run["id"] for run in given["runs"]] == ["f3", "f2", "f1"]


def test_what_goes_wrong_with_one_does_not_stop_the_others(call: Call, shop: Call, store: Holdfast) -> None:
    shop("sell", "s1", order="A")
    shop("sell", "s2", order="B")
    shop("sell", "s3", order="C")
    call("cancel", "s2")
    store.get("s2").rollback(to=0)
    with store.get("s2").claim():
        done = call("retry", "s1", "warm-up")
    assert done.code == 9
    assert len([line for line in done.err.splitlines() if line.startswith("✗")]) == 2
    given = call("cancel", "--workflow", "shopping.sell", "--yes", "--json").json
    assert (given["count"], given["done"]) == (3, 3)
    mixed = call("cancel", "s1", "warm-up", "--json")
    assert mixed.code == 9
    assert [("error" in one) for one in mixed.json["results"]] == [False, True]


def test_many_need_a_filter_or_names(call: Call) -> None:
    assert "which runs to cancel?" in call("cancel").err
    assert call("cancel").code == 2
    assert "not both" in call("cancel", "a", "--status", "failed").err


def test_unblock(call: Call, shop: Call, store: Holdfast) -> None:
    shop("risky", "r1")
    assert "■ blocked  r1" in call("show", "r1").out
    assert call("unblock", "--workflow", "shopping.risky", "--yes", "--by", "me").code == 0
    assert store.get("r1").status == "ready"
    assert call("unblock", "r1").code == 2
    assert json.loads(call("history", "r1", "--kind", "unblocked", "--json", "-c").out)["contents"]["by"] == "me"


def test_resume_accepts_code_that_differs(call: Call, shop: Call, store: Holdfast, repaired: Any) -> None:
    shop("pack", "p1")
    assert call("resume", "p1", "--accept", "-m", SHOPPING).code == 2  # it is not blocked
    store.get("p1").answer(True)
    repaired.packed_by["how"] = "all at once"
    try:
        done = call("resume", "p1", "-m", SHOPPING)
        assert done.code == 5
        assert "'ship#1'" in done.out
        assert "'gather#1.1/ship#1'" in done.out
        assert "holdfast resume p1 --accept" in done.out
        done = call("resume", "p1", "--accept", "--by", "me", "-m", SHOPPING)
        assert done.code == 0
        assert "A-1 by hand" in done.out
    finally:
        repaired.packed_by["how"] = "one by one"
    [entry] = call("history", "p1", "--kind", "unblocked", "--json", "-c").lines
    assert (entry["contents"]["accepted"], entry["contents"]["by"]) == (True, "me")


def test_only_one_goes_on_here(call: Call, shop: Call) -> None:
    three_failed(shop)
    done = call("retry", "f1", "f2", "--resume", "-m", SHOPPING)
    assert done.code == 2
    assert "have a worker for more" in done.err
