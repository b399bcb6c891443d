"""The command line as a whole: its help, its documents, its exit statuses, its speed, and its completion."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from holdfast import errors
from holdfast.cli import COMMANDS, cli, codes
from holdfast.cli.options import Command

from .conftest import Call

ROOT = Path(__file__).resolve().parents[2]


def command_of(name: str) -> Command:
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, Command)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_explained(call: Call, name: str) -> None:
    command = command_of(name)
    assert command.name == name
    assert command.examples
    assert all(name in example and "holdfast " in example for example in command.examples)
    assert COMMANDS[name].help.endswith(".")
    text = inspect.getdoc(command.callback) or ""
    assert "JSON" in text, "what it gives with --json is not told"
    done = call(name, "--help")
    assert done.code == 0
    for wanted in ("--json", "--traceback", "Examples:", command.examples[0]):
        assert wanted in done.out
    assert "--store" in done.out or name in ("completion", "check", "move")  # which takes two


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    for parameter in command_of(name).params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_reference(name: str) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert f"## holdfast {name}\n" in page


def test_the_list_of_commands_tells_every_exit_status(call: Call) -> None:
    out = call("--help").out
    for name, entry in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(entry.help)}$", out, re.MULTILINE)
    for code in codes.CODES:
        assert re.search(rf"^ +{code.code}  {code.name} +{re.escape(code.meaning)}$", out, re.MULTILINE)
    for name in ("HOLDFAST_STORE", "HOLDFAST_MODULES", "HOLDFAST_KEYS", "HOLDFAST_TRACEBACK", "NO_COLOR"):
        assert name in out


def every_error(root: type[errors.HoldfastError] = errors.HoldfastError) -> list[type[errors.HoldfastError]]:
    return [root, *(error for kind in root.__subclasses__() for error in every_error(kind))]


def test_every_error_of_the_tree_has_an_exit_status() -> None:
    unmapped = {
        kind.__name__
        for kind in every_error()
        if kind.__module__ == errors.__name__ and codes.code_of(kind.__new__(kind)) == codes.UNEXPECTED
    }
    assert unmapped == {"HoldfastError", "NotDone"}  # the root, and what is raised by steps and never leaves the engine
    assert codes.code_of(errors.RunNotFound("a")) == 8
    assert codes.code_of(errors.Claimed("a")) == 6
    assert codes.code_of(errors.StoreDamaged("a")) == 7
    assert codes.code_of(errors.StoreFull("a")) == 10
    assert codes.code_of(KeyError("a")) == 1
    assert len({code.code for code in codes.CODES}) == len(codes.CODES)


def test_an_unknown_command(call: Call) -> None:
    done = call("rnu")
    assert done.code == 2
    assert "There is no command 'rnu'. Did you mean run?" in done.err


@pytest.mark.parametrize(("word", "meant"), [("list", "runs"), ("logs", "history or watch"), ("status", "show")])
def test_what_others_call_a_command(call: Call, word: str, meant: str) -> None:
    assert f"Did you mean {meant}?" in call(word).err


def test_the_version(call: Call) -> None:
    from holdfast import __version__

    assert call("--version").out == f"holdfast {__version__}\n"


def test_a_mistake_shows_no_traceback_unless_asked(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("show", "nobody").err.count("\n") == 1
    assert "Traceback" in call("show", "nobody", "--traceback").err
    monkeypatch.setenv("HOLDFAST_TRACEBACK", "1")
    assert "Traceback" in call("show", "nobody").err
    monkeypatch.setenv("HOLDFAST_TRACEBACK", "0")
    assert "Traceback" not in call("show", "nobody").err


def test_an_unexpected_error_is_told_in_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("never foreseen")

    monkeypatch.setattr("holdfast.engine.app.Holdfast.runs", fails)
    done = call("runs")
    assert done.code == 1
    assert done.err == "Error: ZeroDivisionError: never foreseen\n--traceback shows where it came from.\n"
    assert call("runs", "--json").json == {
        "error": {"type": "ZeroDivisionError", "message": "ZeroDivisionError: never foreseen", "exit": 1}
    }


def loaded(code: str, *words: str) -> set[str]:
    script = f"import sys; sys.argv[1:] = {list(words)!r}; {code}"
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", script], capture_output=True, text=True)
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_the_help_loads_next_to_nothing() -> None:
    modules = loaded("from holdfast.cli import main; main()", "--help")
    assert "click" in modules
    for heavy in (
        "rich",
        "msgspec",
        "sqlite3",
        "asyncio",
        "yaml",
        "jinja2",
        "holdfast.engine.app",
        "concurrent.futures",
    ):
        assert heavy not in modules, heavy


def test_a_list_loads_only_what_it_needs(call: Call) -> None:
    modules = loaded("from holdfast.cli import main; main()", "runs", "--json")
    assert "sqlite3" in modules
    for heavy in ("rich", "asyncio", "yaml", "jinja2", "httpx", "holdfast.graph", "holdfast.flow"):
        assert heavy not in modules, heavy


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(call: Call, shell: str) -> None:
    done = call("completion", shell)
    assert done.code == 0
    assert "_HOLDFAST_COMPLETE" in done.out
    assert call("completion", shell, "--json").json["shell"] == shell


def completed(url: str, *words: str) -> list[str]:
    script = "from holdfast.cli import main; main()"
    environment = os.environ | {
        "_HOLDFAST_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["holdfast", *words]),
        "COMP_CWORD": str(len(words)),
        "HOLDFAST_STORE": url,
    }
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


def test_commands_options_and_runs_are_completed(shop: Call, url: str) -> None:
    shop("quick", "order-1")
    shop("quick", "other-2")
    assert completed(url, "re") == ["resume", "retry", "resolve", "redact", "restore"]
    assert completed(url, "show", "ord") == ["order-1"]
    assert "--status" in completed(url, "runs", "--st")
    assert completed("sqlite:///nowhere/at-all.db", "show", "ord") == []


def test_output_that_nobody_reads(process: Callable[..., subprocess.Popen[str]], shop: Call) -> None:
    shop("quick", "q")
    child = process("history", "q", "--json")
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.close()
    assert child.wait(60) == 0
    assert child.stderr.read() == ""
    child.stderr.close()
