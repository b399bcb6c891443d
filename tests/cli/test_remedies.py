"""What is told can be typed: errors name commands, and hints are commands that go on."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

import holdfast
from holdfast import Field, Holdfast
from holdfast.cli.remedies import command_line, in_commands
from holdfast.cli.rendering import column_widths
from holdfast.kernel.model import Kind
from holdfast.views import EntryContents, moment

from .conftest import SHOPPING, Call

LIBRARY = Path(holdfast.__file__).parent
WITHOUT_COMMAND = {"edit", "claim", "follow", "checkpoint"}  # which need values or a program


def test_an_unknown_run(call: Call) -> None:
    done = call("show", "nope")
    assert (done.code, done.err) == (8, "Error: there is no run 'nope' here; `holdfast runs` lists those that are\n")
    assert call("show", "nope", "--json").json["error"]["message"] in done.err


def test_every_call_that_messages_name_has_a_command() -> None:
    named: set[str] = set()
    for folder in ("engine", "graph", "stores", "flow", "integrations"):
        for path in (LIBRARY / folder).rglob("*.py"):
            tree = ast.parse(path.read_text())
            docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                    named |= set(re.findall(r"\brun\.(\w+)\(", node.value))
    assert named >= {"unblock", "resolve", "rollback"}
    arguments = {"rollback": "to=0", "resolve": "'pay#1', done=True, result=...", "": ""}
    for name in named - WITHOUT_COMMAND:
        end = " or done=False" if name == "resolve" else ""
        told = in_commands(f"do run.{name}({arguments.get(name, '')}){end}", "a b")
        assert told.startswith(f"do holdfast {name} 'a b'"), told


def test_commands_in_messages() -> None:
    assert in_commands("parked; `run.unblock()` lets it go on", "-x") == "parked; holdfast unblock -- -x lets it go on"
    assert in_commands("run.rollback(to=3) undoes it", None) == "holdfast rollback RUN --to 3 undoes it"
    said = in_commands("say run.resolve('it\\'s', x) now", "r")
    assert said == "say run.resolve('it\\'s', x) now"  # nothing that is not known is touched


def test_words_are_quoted() -> None:
    assert command_line("show", "a") == "holdfast show a"
    assert shlex.split(command_line("show", "it's; rm")) == ["holdfast", "show", "it's; rm"]
    assert command_line("answer", "-x", options=["--resume"]) == "holdfast answer --resume -- -x"
    assert command_line("show", "\x1b'\\é") == "holdfast show $'\\x1b\\'\\\\é'"


@pytest.mark.parametrize(
    ("wanted", "width", "widths"),
    [
        ([4, 6, 100], 80, [4, 6, 66]),
        ([4, 6, 10], 80, [4, 6, 10]),
        ([60, 6, 0], 80, [60, 6, 1]),
        ([500, 6, 100], 80, [48, 6, 22]),
        ([9, 9, 50], 20, [9, 9, 16]),
        ([0], 20, [1]),
    ],
)
def test_widths_of_columns(wanted: list[int], width: int, widths: list[int]) -> None:
    assert column_widths(wanted, width) == widths


# --- hints


def ways(told: str) -> list[str]:
    return [line.strip() for line in told.splitlines() if line.startswith("  holdfast ")]


def test_a_step_that_died_in_the_act_is_resolved(call: Call, shop: Call) -> None:
    done = shop("risky", "r")
    assert done.code == 5
    assert "run.resolve" not in done.out
    _, with_result, not_done = ways(done.out)
    assert with_result == f"holdfast resolve r 'once_only#1' --done --result JSON --resume --module {SHOPPING}"
    done = call(*shlex.split(with_result.replace("JSON", "'\"sent\"'"))[1:])
    assert (done.code, "sent" in done.out) == (0, True)
    assert "--not-done" in not_done


def test_a_run_that_is_driven_by_hand(call: Call, store: Holdfast) -> None:
    run = store.run("hand")
    assert ways(call("show", "hand").out) == []
    refused = call("resume", "hand")
    assert (refused.code, refused.out) == (2, "")
    assert "driven by hand" in refused.err
    assert "driven by hand" in call("graph", "hand").err
    with run.claim():
        assert ways(call("show", "hand").out) == ["holdfast watch hand"]
        run.pause("ok?", [Field("ok", "boolean")])
    assert ways(call("show", "hand").out) == ["holdfast answer hand"]


def test_the_module_or_workflow_that_was_meant(call: Call, memdir: Path) -> None:
    (memdir / "cellars.py").write_text("x = 1\n")
    assert "did you mean cellars?" in call("run", "cellar:x").err
    done = call("run", f"{SHOPPING}:quik")
    assert (done.code, "did you mean quick?" in done.err) == (8, True)


# --- what entries are about


def test_every_kind_is_about_something_or_nothing() -> None:
    from holdfast.present.about import about

    for kind in Kind:
        assert about(EntryContents(0, kind, moment(0), {})) is None  # it was erased, or is encrypted
    forked = EntryContents(3, Kind.FORKED, moment(0), {"from": "a", "at": 2})
    assert about(forked) == "run a at entry 2"
    queued = EntryContents(1, Kind.SAVED, moment(0), {"node": "plan", "queue": ["look", "think"]})
    assert about(queued) == "plan, next look, think"
    failed = EntryContents(1, Kind.UNDONE, moment(0), {"effect": 2, "ok": False, "error": "no\x1b"})
    assert about(failed) == "entry 2: failed: no "
    answered = EntryContents(1, Kind.ANSWERED, moment(0), {"question": 4, "value": 1, "by": "ann"})
    assert about(answered) == "entry 4 by ann"
    assert about(EntryContents(1, "unheard_of", moment(0), {})) is None
