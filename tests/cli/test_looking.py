"""`holdfast runs`, `questions`, `show`, `history`, `state`, `diff` and `effects`: what is in a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast

from .conftest import SHOPPING, Call


def test_runs_are_listed_newest_first(call: Call, shop: Call) -> None:
    shop("quick", "a")
    shop("sell", "b", "--tag", "shop=2", order="B")
    lines = call("runs").out.splitlines()
    assert lines[0].split() == ["run", "status", "workflow", "created", "entries"]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["b", "needs", "input"],
        ["a", "completed", "shopping.quick"],
    ]
    given = call("runs", "--json").json
    assert [run["id"] for run in given["runs"]] == ["b", "a"]
    assert given["next"] is None
    assert set(given["runs"][0]) >= {"id", "uid", "status", "workflow", "tags", "created_at", "updated_at", "seq"}


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--status", "waiting"], ["b"]),
        (["-s", "waiting", "-s", "completed"], ["b", "a"]),
        (["--workflow", "shopping.quick"], ["a"]),
        (["--tag", "shop=2"], ["b"]),
        (["--prefix", "a"], ["a"]),
        (["--since", "1h"], ["b", "a"]),
        (["--before", "1h"], []),
        (["--since", "2020-01-01", "--before", "2021-01-01T10:00"], []),
        (["--limit", "1"], ["b"]),
    ],
)
def test_runs_are_filtered(call: Call, shop: Call, words: list[str], ids: list[str]) -> None:
    shop("quick", "a")
    shop("sell", "b", "--tag", "shop=2", order="B")
    assert [run["id"] for run in call("runs", "--json", *words).json["runs"]] == ids


def test_runs_are_paged(call: Call, shop: Call) -> None:
    for id in "abc":
        shop("quick", id)
    first = call("runs", "--limit", "2", "--json").json
    assert [run["id"] for run in call("runs", "--after", first["next"], "--json").json["runs"]] == ["a"]
    assert f"--after {first['next']}" in call("runs", "--limit", "2").out


@pytest.mark.parametrize("words", [["--status", "lost"], ["--since", "soon"], ["--tag", "x"], ["--limit", "0"]])
def test_wrong_filters(call: Call, words: list[str]) -> None:
    done = call("runs", *words)
    assert done.code == 2
    assert "Usage:" in done.err
    error = call("runs", *words, "--json").json["error"]
    assert (error["type"], error["exit"]) == ("UsageError", 2)


def test_questions(call: Call, shop: Call) -> None:
    assert call("questions").out == "Nothing is asked.\n"
    shop("sell", "s1", order="A-17")
    shop("sell", "s2", order="A-18")
    lines = call("questions").out.splitlines()
    assert sorted(line.split()[0] for line in lines[1:3]) == ["s1", "s2"]
    assert "carrier, parcels, insured" in lines[1]
    [question] = call("questions", "s1", "--json").json["questions"]
    assert (question["run"], question["prompt"]) == ("s1", "How shall it go?")
    assert [field["name"] for field in question["fields"]] == ["carrier", "parcels", "insured"]


def test_show_a_run_that_waits(call: Call, shop: Call) -> None:
    shop("sell", "s1", "--tag", "a=1", order="A-17")
    out = call("show", "s1").out
    assert out.startswith("? needs input  s1\n")
    for text in ("shopping.sell", "a=1", "charge#1", "? How shall it go?", "holdfast answer s1"):
        assert text in out


def test_show_a_run_that_failed(call: Call, shop: Call) -> None:
    shop("fails", "f1")
    out = call("show", "f1").out
    assert "error       RuntimeError: the printer is on fire" in out
    assert "holdfast retry f1 --resume --module shopping" in out
    assert "File" not in out
    assert "in label" in call("show", "f1", "--trace").out


def test_show_tells_the_input(call: Call, shop: Call, process: Any, memdir: Path) -> None:
    shop("sell", "s1", order="A-17", gift=True)
    assert call("show", "s1", "--json").json["input"] == {"order": "A-17", "gift": True}
    assert 'input       {"order":"A-17","gift":true}' in call("show", "s1").out
    child = process("show", "s1", "--json")  # where the workflow is not declared
    assert json.loads(child.communicate(timeout=60)[0])["input"] == {"args": ["A-17"], "gift": True}
    call("fork", "s1", "--input", '{"order": "Z"}', "--id", "s2", "-m", SHOPPING)
    assert call("show", "s2", "--json").json["input"] == {"order": "Z", "gift": True}
    (memdir / "release.yaml").write_text("name: release\nvars:\n  env: test\nsteps:\n  - {id: a, run: 'true'}\n")
    call("run", "release.yaml", "--var", "env=prod", "--id", "f1")
    assert call("show", "f1", "--json").json["input"] == {"env": "prod"}
    call("redact", "s1", "0", "--yes")
    assert call("show", "s1", "--json").json["input"] is None


def test_show_tells_how_long_steps_took(call: Call, shop: Call, memdir: Path) -> None:
    shop("slowly", "slow", seconds=0.15, marker=str(memdir / "m"))
    [line] = [line.split() for line in call("show", "slow").out.splitlines() if "slow#1" in line]
    assert line[1:3] == ["done", "slow#1"]
    assert float(line[3]) > 0
    assert line[4] == "ms"


def test_show_in_json(call: Call, shop: Call) -> None:
    shop("family", "p")
    shown = call("show", "p", "--json").json
    assert set(shown) == {"run", "input", "steps", "questions", "children", "died", "next", "node", "queue"}
    assert shown["children"] == ["p/shopping.sell#1"]
    assert [question["run"] for question in shown["questions"]] == ["p/shopping.sell#1"]
    shop("quick", "q")
    assert call("show", "q", "--json").json["result"] == {"n": 1}


def test_show_tells_a_child_and_a_fork_where_they_come_from(call: Call, shop: Call) -> None:
    shop("family", "p")
    lines = [line.split() for line in call("show", "p/shopping.sell#1").out.splitlines()]
    assert ["part", "of", "p"] in lines
    shop("quick", "q")
    call("fork", "q", "--id", "q2", "--at", "0")
    assert ["forked", "from", "q", "at", "0"] in [line.split() for line in call("show", "q2").out.splitlines()]


def test_many_steps_of_a_map_are_one_line(call: Call, shop: Call) -> None:
    shop("counts", "c", n=12)
    assert "12 × count" in call("show", "c").out


def test_history(call: Call, shop: Call) -> None:
    shop("sell", "s1", order="A-17")
    kinds = ["created", "intended", "done", "emitted", "asked"]
    abouts = ["", "charge#1: card of A-17", "charge#1", "paid", "How shall it go?"]
    told = [line.split(maxsplit=4)[3:] for line in call("history", "s1").out.splitlines()]
    assert [" ".join(one) for one in told] == [" ".join(one).strip() for one in zip(kinds, abouts, strict=True)]
    assert [line["about"] or "" for line in call("history", "s1", "--json").lines] == abouts
    assert [line["kind"] for line in call("history", "s1", "--json").lines] == kinds
    assert "contents" not in call("history", "s1", "--json").lines[0]
    [asked] = call("history", "s1", "--json", "--kind", "asked", "--contents").lines
    assert asked["contents"]["prompt"] == "How shall it go?"
    assert [line["seq"] for line in call("history", "s1", "--json", "--after", "1", "--limit", "2").lines] == [2, 3]
    assert '"prompt":"How shall it go?"' in call("history", "s1", "-c").out


def test_history_shows_what_a_rollback_abandoned(call: Call, shop: Call) -> None:
    shop("sell", "s1", order="A-17")
    call("rollback", "s1", "--to", "0", "--yes")
    assert "(done)" in call("history", "s1").out
    assert [line["live"] for line in call("history", "s1", "--json").lines][:3] == [True, False, False]


def test_state_of_a_loop_of_ones_own(call: Call, store: Holdfast) -> None:
    run = store.run("hand")
    first = run.save({"n": 1}, next="tool", queue=["x"])
    run.save({"n": 2, "words": ["a"]})
    assert json.loads(call("state", "hand").out) == {"n": 2, "words": ["a"]}
    at = call("state", "hand", "--at", str(first), "--json").json
    assert (at["state"], at["next"], at["queue"], at["seq"]) == ({"n": 1}, "tool", ["x"], first)


def test_state_of_a_workflow_is_what_its_steps_gave(call: Call, shop: Call) -> None:
    shop("sell", "s1", order="A-17")
    assert json.loads(call("state", "s1").out)["charge#1"] == "receipt of A-17"
    assert call("state", "s1", "--at", "0", "--json").json["steps"] == {}


def test_diff_of_one_run_at_two_entries(call: Call, store: Holdfast) -> None:
    run = store.run("hand")
    a = run.save({"n": 1, "gone": 0, "list": [1, 2, 3]})
    b = run.save({"n": 2, "new": {"x": 1}, "list": [1, 3, 4]})
    for second in (f"@{b}", f"hand@{b}"):
        given = call("diff", f"hand@{a}", second, "--json").json
        assert (given["a"], given["b"]) == ({"run": "hand", "seq": a}, {"run": "hand", "seq": b})
        assert [(one["path"], one["change"]) for one in given["differences"]] == [
            ("state.n", "changed"),
            ("state.gone", "removed"),
            ("state.list[1]", "removed"),
            ("state.list[2]", "added"),
            ("state.new", "added"),
        ]
    assert "~ state.n  1 → 2" in call("diff", f"hand@{a}", f"@{b}").out
    assert call("diff", "hand", "hand").out == "There is no difference.\n"


def test_diff_of_two_runs(call: Call, shop: Call, store: Holdfast) -> None:
    shop("sell", "s1", order="A-17")
    shop("sell", "s2", order="A-18")
    assert "~ steps" in call("diff", "s1", "s2").out
    store.run("odd@7")
    assert call("diff", "odd@7", "odd@7").code == 0  # an id may look like that
    assert call("diff", "@3", "s1").code == 2
    assert call("diff", "s1@99", "s2").code == 8


def test_effects(call: Call, shop: Call) -> None:
    shop("quick", "q")
    assert "nothing" in call("effects", "q").out
    shop("sell", "s1", order="A-17")
    assert "card of A-17" in call("effects", "s1").out
    [effect] = call("effects", "s1", "--json").json["effects"]
    assert (effect["target"], effect["status"], effect["reversible"]) == ("card of A-17", "done", True)


@pytest.mark.parametrize("words", [["show"], ["history"], ["state"], ["effects"], ["watch"], ["resume"], ["cancel"]])
def test_a_run_that_is_not_there(call: Call, words: list[str]) -> None:
    done = call(*words, "nobody")
    assert done.code == 8
    assert "'nobody'" in done.err
    told = call(*words, "nobody", "--json")
    assert told.code == 8
    assert told.json["error"] == {
        "type": "RunNotFound",
        "message": told.json["error"]["message"],
        "exit": 8,
        "run": "nobody",
    }
    assert told.err == ""


def test_control_characters_of_others_do_not_reach_the_terminal(call: Call, store: Holdfast) -> None:
    run = store.run("bad\x1b[2Jid")
    run.fail("red\x1b[31m\nalert")
    for words in (["runs"], ["show", run.id]):
        out = call(*words).out
        assert "\x1b" not in out
        assert "alert" in out or words == ["runs"]


def test_watch_from_elsewhere(call: Call, shop: Call) -> None:
    shop("quick", "q")
    done = call("watch", "q", "--json")
    assert done.code == 0
    assert [line["entry"]["kind"] for line in done.lines[:-1]] == ["created", "completed"]
    assert done.lines[-1]["result"] == {"n": 1}
    shop("sell", "s1", order="A-17")
    waits = call("watch", "s1", "--timeout", "0.1")
    assert waits.code == 3
    assert "✓ charge" in waits.out
    assert "✓ charge" not in call("watch", "s1", "--new", "--timeout", "0.1").out


def test_watch_a_loop_of_ones_own(call: Call, store: Holdfast) -> None:
    run = store.run("hand")
    run.save({"n": 1}, next="tool", queue=[("tool", 4)])
    run.once("toolu_1", len, "abc")
    run.mark("m", "mail", "a person")
    run.complete(7)
    out = call("watch", "hand").out
    assert "· saved  next tool" in out
    assert "✓ toolu_1" in out
    assert "✓ m\n" in out
    assert out.endswith("7\n")


def test_what_a_holder_has_not_taken_in_is_pending(call: Call, store: Holdfast) -> None:
    run = store.run("held")
    with run.claim():
        store.get("held").mark("m", "tool", "a.txt")
        assert "marked (pending)" in call("history", "held").out
        [_, marked] = call("history", "held", "--json", "-c").lines
        assert (marked["pending"], marked["contents"]["key"]) == (True, "m")
        assert call("audit", "held", "--json").json["audits"][0]["pending"] == ["marked"]
        assert "1 entries, 1 pending" in call("audit", "held").out
        assert "a.txt" in call("effects", "held").out
    with run.claim():
        assert "pending" not in call("history", "held").out
