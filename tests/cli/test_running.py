"""`holdfast run` and `resume`: targets, input, what is shown, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast

from .conftest import SHOPPING, Call


def test_a_run_that_completes(shop: Call) -> None:
    done = shop("quick", "q1", n=3)
    assert done.code == 0
    assert done.out.splitlines()[0] == "q1  shopping.quick"
    assert "printed by quick" in done.out
    assert "✓ completed  q1" in done.out
    assert json.loads(done.out[done.out.index("{") :]) == {"n": 3}


def test_quiet_shows_the_result_alone(shop: Call) -> None:
    assert json.loads(shop("counts", "c", "--quiet", n=3).out) == [0, 2, 4]


def test_json_gives_entries_and_then_the_run(shop: Call) -> None:
    done = shop("quick", "q1", "--json")
    *entries, last = done.lines
    assert [line["entry"]["kind"] for line in entries] == ["created", "completed"]
    assert set(entries[0]["entry"]) == {"run", "seq", "kind", "at", "contents"}
    assert last["run"]["status"] == "completed"
    assert last["result"] == {"n": 1}
    assert "printed by quick" in done.err  # what a workflow prints is not between the lines of JSON


def test_a_run_that_asks_waits(shop: Call) -> None:
    done = shop("sell", "s1", order="A-17")
    assert done.code == 3
    assert "✓ charge  card of A-17" in done.out
    assert "· paid" in done.out
    assert "? How shall it go?" in done.out
    assert f"  holdfast answer s1 --resume --module {SHOPPING}\n" in done.out


def test_a_run_that_fails(shop: Call) -> None:
    done = shop("fails", "f1")
    assert done.code == 4
    assert "✗ label  RuntimeError: the printer is on fire" in done.out
    assert "Traceback" not in done.out + done.err


def test_a_run_that_is_parked(shop: Call) -> None:
    done = shop("risky", "r1")
    assert done.code == 5
    assert "■ blocked  r1" in done.out
    assert "holdfast show r1" in done.out


def test_a_run_that_sleeps_goes_on_by_itself(shop: Call) -> None:
    done = shop("naps", "n1", seconds=0.05)
    assert done.code == 0
    assert "awake" in done.out


def test_a_child_is_shown_below_its_parent(call: Call, shop: Call) -> None:
    done = shop("family", "p")
    assert done.code == 3
    assert "  ✓ charge  card of B-1" in done.out
    assert f"  holdfast answer p --resume --module {SHOPPING}\n" in done.out
    assert call("answer", "p", '{"carrier": "post"}', "--resume", "--module", SHOPPING).code == 0


def test_steps_of_a_map_have_lines_where_there_is_no_terminal(shop: Call) -> None:
    assert shop("counts", "c", n=9).out.count("✓ map count") == 9


def test_the_same_id_is_the_same_run(shop: Call) -> None:
    shop("quick", "q1", n=3)
    again = shop("quick", "q1", n=3)
    assert again.code == 0
    assert "it is completed already" in again.out
    other = shop("quick", "q1", n=4)
    assert other.code == 9
    assert "other arguments" in other.err


def test_an_id_is_made_if_none_is_given(call: Call) -> None:
    [run] = [call("run", f"{SHOPPING}:quick", "--json").lines[-1]["run"]]
    assert run["id"].startswith("shopping.quick-")
    assert len(run["id"]) == len("shopping.quick-") + 8


def test_tags_queue_and_deadline(call: Call, store: Holdfast) -> None:
    target = f"{SHOPPING}:quick"
    done = call(
        "run", target, "--id", "t", "--tag", "a=1", "--tag", "b=2=3", "--queue", "slow", "--deadline", "60", "--detach"
    )
    assert done.code == 0
    assert "t is ready; a worker of queue slow goes on with it" in done.out
    info = store.get("t").info()
    assert (info.tags, info.queue, info.status) == ({"a": "1", "b": "2=3"}, "slow", "ready")
    assert store.get("t").entry(0).contents["seconds"] == 60
    assert call("run", target, "--id", "u", "--detach", "--json").json["run"]["status"] == "ready"


def test_resume_goes_on(shop: Call, call: Call, store: Holdfast) -> None:
    shop("sell", "s1", order="A-17")
    store.get("s1").answer({"carrier": "post"})
    done = call("resume", "s1", "--module", SHOPPING)
    assert done.code == 0
    assert "goes on after entry" in done.out
    assert "✓ charge" not in done.out  # that is done already
    assert "✓ ship" in done.out
    assert "A-17 by post" in done.out
    again = call("resume", "s1", "--module", SHOPPING, "--json")
    assert again.code == 0
    assert again.json["result"] == "A-17 by post"


def test_what_is_refused_is_not_announced(call: Call, shop: Call, store: Holdfast) -> None:
    shop("sell", "s1", order="A-17")
    other = shop("quick", "s1")
    assert (other.code, other.out) == (9, "")
    assert "it is a run of workflow 'shopping.sell'" in other.err
    assert shop("sell", "s1", order="B").out == ""
    store.get("s1").answer({"carrier": "post"})
    with store.get("s1").claim():
        held = call("resume", "s1", "-m", SHOPPING)
    assert (held.code, "goes on after" in held.out) == (6, False)


def test_resume_says_what_it_needs(process: Any, shop: Call, store: Holdfast) -> None:
    shop("sell", "s1", order="A-17")
    store.get("s1").answer({"carrier": "post"})
    child = process("resume", "s1")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 9
    assert "name its module: holdfast resume s1 --module shopping\n" in err
    assert store.get("s1").info().reason is None
    assert "Traceback" not in err


def test_resume_of_a_run_that_somebody_holds(shop: Call, call: Call, store: Holdfast) -> None:
    shop("quick", "q", "--detach")
    with store.get("q").claim():
        done = call("resume", "q", "--module", SHOPPING)
        again = shop("quick", "q")
    assert (done.code, again.code) == (6, 6)
    assert "by another process" in done.out
    assert "holdfast watch q" in done.out


def test_resume_of_a_run_driven_by_hand(call: Call, store: Holdfast) -> None:
    store.run("hand")
    done = call("resume", "hand")
    assert done.code == 2
    assert "driven by hand" in done.err


# --- targets


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("nowhere:flow", 8, "there is no module 'nowhere' here"),
        ("nowhere.py:flow", 8, "there is no file nowhere.py"),
        (f"{SHOPPING}:nothing", 8, "'nothing' is not there in"),
        (f"{SHOPPING}:not_a_workflow", 8, "is no such thing"),
        (SHOPPING, 8, "name one of them"),
        (":x", 8, "is named as module:name"),
        ("json:dumps", 8, "it has no workflow or graph at all"),
        ("raises.py:x", 1, "raises.py could not be imported: ValueError: no luck ("),
        ("syntax.py:x", 1, "SyntaxError"),
        ("needs.py:x", 1, "No module named 'surely_not_there'"),
        ("exits.py", 1, "SystemExit"),
        ("json.py:x", 8, "a module named 'json' is loaded already"),
    ],
)
def test_wrong_targets(call: Call, memdir: Path, target: str, code: int, said: str) -> None:
    (memdir / "raises.py").write_text("\nraise ValueError('no luck')\n")
    (memdir / "syntax.py").write_text("def (:\n")
    (memdir / "needs.py").write_text("import surely_not_there\n")
    (memdir / "exits.py").write_text("raise SystemExit(3)\n")
    (memdir / "json.py").write_text("")
    done = call("run", target)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) == 1


def test_the_only_workflow_of_a_file_needs_no_name(call: Call, memdir: Path) -> None:
    (memdir / "single_cli.py").write_text(
        "from holdfast import workflow\n@workflow\ndef only_one_here(n: int = 2) -> int:\n    return n\n"
    )
    assert call("run", "single_cli.py", "--quiet").out == "2\n"


def test_flow_options_are_not_for_workflows(call: Call) -> None:
    done = call("run", f"{SHOPPING}:quick", "--var", "a=1")
    assert done.code == 2
    assert "--input" in done.err


# --- input


@pytest.mark.parametrize(
    ("workflow", "given", "problems"),
    [
        ("sell", "{}", ["order: is missing"]),
        ("sell", '{"order": 7, "cents": "x", "nothing": 1}', ["order: 7 is not text", "cents: 'x' is not an integer"]),
        ("sell", '{"order": 7, "nothing": 1}', ["nothing: there is no such parameter"]),
        ("sell", '["A", 1, 2]', ["it takes 2 in order, not 3"]),
        ("sell", "[]", ["order: is missing"]),
        ("sell", '"A"', ["an object of the parameters by name, or an array"]),
        ("typed", '{"shipping": {"carrier": "horse", "x": 1}, "paths": [], "many": []}', ["shipping.x: there is no"]),
        ("typed", '{"shipping": {"carrier": "horse"}, "paths": [1], "many": 3}', ["shipping.carrier: 'horse' is none"]),
        ("typed", '{"shipping": {"carrier": "post"}, "paths": [1], "many": {}}', ["paths: "]),
        ("typed", '{"shipping": {"carrier": "post", "insured": true}, "paths": [], "many": {}}', ["insures nothing"]),
        ("typed", '{"shipping": {"carrier": "post"}, "paths": [], "many": {}, "one": []}', ["one: "]),
        ("sealed", '{"key": "NOT_SET_ANYWHERE"}', ["key: is a secret; give the name of the environment variable"]),
    ],
)
def test_input_that_does_not_fit(call: Call, workflow: str, given: str, problems: list[str]) -> None:
    done = call("run", f"{SHOPPING}:{workflow}", "--input", given, "--id", "never")
    assert done.code == 2
    for problem in problems:
        assert problem in done.err
    assert call("runs").out == "No runs.\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [("{", "this is not JSON"), ("NaN", "NaN is not a number of JSON"), ("@nowhere.json", "No such file")],
)
def test_input_that_is_no_json(call: Call, given: str, said: str) -> None:
    done = call("run", f"{SHOPPING}:quick", "--input", given)
    assert done.code == 2
    assert said in done.err


def test_input_that_is_nested_too_deeply(call: Call) -> None:
    done = call("run", f"{SHOPPING}:quick", "--input", "[" * 100_000)
    assert done.code == 2


def test_input_from_a_file_and_from_standard_input(call: Call, memdir: Path) -> None:
    (memdir / "in.json").write_text('{"n": 8}')
    assert json.loads(call("run", f"{SHOPPING}:quick", "-q", "-i", "@in.json").out.split("\n", 1)[1]) == {"n": 8}
    assert json.loads(call("run", f"{SHOPPING}:quick", "-q", "-i", "-", input="[9]").out.split("\n", 1)[1]) == {"n": 9}


def test_values_become_what_is_annotated(call: Call) -> None:
    given = '{"shipping": {"carrier": "post"}, "paths": ["/a"], "many": {"x": [1]}, "one": "two"}'
    done = call("run", f"{SHOPPING}:typed", "-q", "--input", given)
    assert done.out.strip() == "post [PosixPath('/a')] {'x': [1]} 'two'"


def test_a_secret_is_given_by_its_name(call: Call, monkeypatch: pytest.MonkeyPatch, memdir: Path) -> None:
    monkeypatch.setenv("CLI_TEST_KEY", "hunter2hunter2")
    assert call("run", f"{SHOPPING}:sealed", "-q", "--input", '{"key": "CLI_TEST_KEY"}').out == "14\n"
    assert b"hunter2" not in b"".join(path.read_bytes() for path in memdir.glob("runs.db*") if path.is_file())
