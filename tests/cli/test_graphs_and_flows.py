"""Graphs and flows at the command line: run, resumed, checked, drawn."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast

from .conftest import SHOPPING, Call
from .terminal import Terminal

DRAWINGS = str(Path(__file__).with_name("drawings.py"))

RELEASE = """\
name: release
vars:
  env: {type: text, default: staging}
  count: 2
steps:
  - id: build
    run: echo building {{ vars.env | quote }}
  - id: upload
    for_each: [a, b, c]
    run: echo {{ item | quote }}
  - id: approve
    ask: Deploy to {{ vars.env }}?
  - id: deploy
    run: echo deployed {{ vars.env | quote }}
    undo: echo taken back >> undone.txt
outputs:
  where: "{{ vars.env }}"
"""


@pytest.fixture
def release(memdir: Path) -> str:
    (memdir / "release.yaml").write_text(RELEASE)
    return "release.yaml"


# --- graphs


def test_a_plain_workflow_has_nothing_to_check(call: Call) -> None:
    done = call("check", f"{SHOPPING}:quick")
    assert (done.code, "which has nothing to check" in done.err) == (8, True)
    assert "which has no picture" in call("graph", f"{SHOPPING}:quick").err
    assert f"it has {SHOPPING}:" in call("graph", SHOPPING).err


def test_a_graph_is_run(call: Call) -> None:
    given = json.dumps({"sources": [{"url": "a"}, {"url": "b", "weight": 2}], "rounds": 0})
    done = call("run", f"{DRAWINGS}:research", "--id", "g", "--input", given)
    assert done.code == 3, done.err
    assert re.search(r"^✓ plan  \d\.\d s$", done.out, re.MULTILINE)
    assert re.search(r"^✓ fetch  2 of 2  \d\.\d s$", done.out, re.MULTILINE)
    assert "✓ fetch look_up" in done.out
    assert "? Enough?" in done.out
    shown = call("show", "g", "--json").json
    assert (shown["node"], shown["queue"]) == ("fetch", ["judge"])
    ended = call("answer", "g", '"yes"', "--resume", "--module", DRAWINGS, "--json").lines[-1]
    assert ended["result"]["found"] == ["A", "B", "yes"]
    assert json.loads(call("state", "g").out)["rounds"] == 1
    assert "+ state.found[2]  yes" in call("diff", "g@7", "g").out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"sources": [{"url": 1}], "x": 1}', "sources[0].url: 1 is not text"),
        ('{"x": 1}', "x: there is no such field"),
        ("[]", "an object of the fields of the state"),
        ('{"rounds": "many"}', "rounds: 'many' is not an integer"),
    ],
)
def test_a_state_that_does_not_fit(call: Call, given: str, said: str) -> None:
    done = call("run", f"{DRAWINGS}:research", "--input", given)
    assert done.code == 2
    assert said in done.err


def test_a_graph_is_checked(call: Call) -> None:
    assert call("check", f"{DRAWINGS}:research").out == f"{DRAWINGS}:research: no problems\n"
    done = call("check", f"{DRAWINGS}:broken")
    assert done.code == 12
    assert re.search(r"drawings\.py:\d+: error: .*nowhere", done.out)
    problems = call("check", f"{DRAWINGS}:broken", "--json").json["problems"]
    assert len(problems) >= 2
    assert set(problems[0]) == {"severity", "place", "message"}
    assert call("run", f"{DRAWINGS}:broken", "--input", '{"rounds": 1, "sources": []}').code == 12


def test_a_graph_is_drawn(call: Call, memdir: Path) -> None:
    assert call("graph", f"{DRAWINGS}:research").out.startswith("flowchart TD\n")
    assert call("graph", f"{DRAWINGS}:research", "--svg", "g.svg").out == "Drawn: g.svg\n"
    picture = (memdir / "g.svg").read_text()
    assert picture.startswith("<svg")
    call("run", f"{DRAWINGS}:research", "--id", "g", "--input", '{"sources": [], "rounds": 0}')
    taken = call("graph", "g", "--module", DRAWINGS, "--json").json["mermaid"]
    assert taken != call("graph", f"{DRAWINGS}:research", "--json").json["mermaid"]
    assert call("graph", f"{DRAWINGS}:look_up").code == 8
    assert call("graph", "nobody").code == 8


def test_what_has_no_picture(call: Call, shop: Call, process: Callable[..., object]) -> None:
    from .conftest import SHOPPING

    shop("quick", "q")
    plain = call("graph", "q", "--module", SHOPPING)
    assert (plain.code, "plain workflow" in plain.err) == (2, True)
    assert "plain workflow" in call("graph", f"{SHOPPING}:quick").err
    call("run", f"{DRAWINGS}:research", "--id", "g", "--input", '{"sources": [], "rounds": 0}')
    child = process("graph", "g")
    _, err = child.communicate(timeout=60)  # type: ignore[attr-defined]
    assert child.returncode == 2  # type: ignore[attr-defined]
    assert "name its module: holdfast graph g --module drawings\n" in err


def test_an_interrupt_is_gone_on_from(call: Call, terminal: Callable[..., Terminal], store: Holdfast) -> None:
    done = call("run", f"{DRAWINGS}:stopping", "--id", "i", "--input", '{"sources": [], "rounds": 0}')
    assert done.code == 3
    assert call("resume", "i", "--module", DRAWINGS, "--quiet").code == 0
    words = ["run", f"{DRAWINGS}:stopping", "--id", "j", "--input", '{"sources": [], "rounds": 0}']
    with terminal(*words) as screen:
        screen.until("go on? [y/N]")
        screen.type("n\n")
        assert screen.ended() == 3
    assert store.get("j").status == "waiting"
    with terminal("answer", "j", "--resume", "--module", DRAWINGS) as screen:
        screen.until("go on? [y/N]")
        screen.type("y\n")
        assert screen.ended() == 0
    assert store.get("j").checkpoint().raw_state["rounds"] == 2


# --- flows


def test_a_flow_is_run_and_resumed_without_its_file(call: Call, release: str, memdir: Path) -> None:
    done = call("run", release, "--var", "env=prod", "--id", "r1", "--tag", "team=a")
    assert done.code == 3, done.err
    assert done.out.startswith("r1  release\n")
    assert "  build │ building prod\n" in done.out
    assert "? Deploy to prod?" in done.out
    assert "  holdfast answer r1 --resume\n" in done.out
    (memdir / release).unlink()
    shown = call("runs", "--tag", "flow=release", "--tag", "team=a")
    assert "flow release" in shown.out
    answered = call("answer", "r1", "true", "--resume")
    assert answered.code == 0
    assert "  deploy │ deployed prod" in answered.out
    assert json.loads(answered.out[answered.out.index("{") :]) == {"where": "prod"}
    assert call("rollback", "r1", "--to", "0", "--then", "go-on", "--yes").code == 0
    assert (memdir / "undone.txt").read_text() == "taken back\n"


def test_a_flow_goes_on_in_a_process_that_knows_nothing_of_it(
    call: Call, release: str, process: Callable[..., Any], store: Holdfast
) -> None:
    call("run", release, "--id", "r1")
    store.get("r1").answer(True)
    child = process("resume", "r1", "--json")
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["result"] == {"where": "staging"}
    child = process("graph", "r1")
    assert "deploy" in child.communicate(timeout=60)[0]


def test_the_output_of_commands_in_json(call: Call, release: str) -> None:
    lines = call("run", release, "--json", "--id", "r1").lines
    printed = [line["output"]["text"] for line in lines if "output" in line]
    assert printed[0] == "building staging"
    assert sorted(printed[1:]) == ["a", "b", "c"]
    assert lines[-1]["run"]["status"] == "waiting"


def test_a_dry_run_does_nothing(call: Call, release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_STORE")  # it needs no store
    done = call("run", release, "--var", "env=prod", "--dry-run")
    assert done.code == 0
    assert re.search(r"build +run +echo building prod$", done.out, re.MULTILINE)
    assert re.search(r"deploy +run +echo deployed prod +\(undo: echo taken back >> undone.txt\)", done.out)
    assert done.out.endswith("Nothing was done.\n")
    steps = call("run", release, "--dry-run", "--json").json["steps"]
    assert [step["id"] for step in steps] == ["build", "upload", "upload", "upload", "approve", "deploy"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--var", "nothing=1"], 2, "there is no variable 'nothing'"),
        (["--var", "count=x"], 2, "count"),
        (["--var", "count"], 2, "NAME=VALUE"),
        (["--input", "[1]"], 2, "an object of the flow's variables"),
        (["--deadline", "3"], 2, "timeout:"),
    ],
)
def test_wrong_variables(call: Call, release: str, words: list[str], code: int, said: str) -> None:
    done = call("run", release, *words)
    assert (done.code, said in done.err) == (code, True), done.err
    assert call("runs").out == "No runs.\n"


def test_a_flow_is_checked(call: Call, release: str, memdir: Path) -> None:
    assert call("check", release).out == "release.yaml: no problems\n"
    (memdir / "bad.yaml").write_text("name: bad\nsteps:\n  - id: a\n    run: 7\n    nothing: 1\n")
    done = call("check", "bad.yaml")
    assert done.code == 12
    assert re.search(r"^bad\.yaml:\d+:\d+: error: ", done.out, re.MULTILINE)
    problem = call("check", "bad.yaml", "--json").json["problems"][0]
    assert set(problem) == {"file", "line", "column", "message", "severity"}
    for words in (["run", "bad.yaml"], ["graph", "bad.yaml"]):
        refused = call(*words)
        assert refused.code == 12
        assert "bad.yaml:" in refused.err
    for words in (["check", "no.yaml"], ["run", "no.yaml"], ["graph", "no.yaml"]):
        assert call(*words).code == 8


def test_a_flow_is_drawn(call: Call, release: str) -> None:
    assert "build" in call("graph", release).out
    call("run", release, "--id", "r1")
    assert "approve" in call("graph", "r1").out


def test_a_flow_is_left_to_a_worker(call: Call, release: str, store: Holdfast) -> None:
    assert call("run", release, "--detach", "--id", "r1", "--json").json["run"]["status"] == "ready"
    assert call("worker", "--flows", "--until-idle").code == 0
    assert store.get("r1").status == "waiting"


def test_a_flow_at_the_terminal(terminal: Callable[..., Terminal], call: Call, release: str) -> None:
    with terminal("run", release, "--id", "r1") as screen:
        screen.until("? Deploy to staging?")
        screen.until("  answer (y or n):")
        screen.type("y\n")
        assert screen.ended() == 0
        lines = screen.text.splitlines()
    assert lines[0] == "r1  release"
    assert "  build │ building staging" in lines
    assert any(re.fullmatch(r"✓ build +\d\.\d s", line) for line in lines)
    assert any(re.fullmatch(r"✓ deploy +.*\d\.\d s", line) for line in lines)


def test_a_flow_that_is_run_once_per_key(call: Call, memdir: Path) -> None:
    text = "name: once\nvars: {day: text}\nonce_per: '{{ vars.day }}'\nsteps:\n  - {id: a, run: echo hi}\n"
    (memdir / "once.yaml").write_text(text)
    first = call("run", "once.yaml", "--var", "day=mon", "--json").lines[-1]["run"]
    again = call("run", "once.yaml", "--var", "day=mon", "--json").lines[-1]["run"]
    other = call("run", "once.yaml", "--var", "day=tue", "--json").lines[-1]["run"]
    assert first["uid"] == again["uid"] != other["uid"]
    assert first["status"] == "completed"
