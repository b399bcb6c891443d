"""The command line, called in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Holdfast
from holdfast.cli import cli

from .terminal import Terminal

SHOPPING = str(Path(__file__).with_name("shopping.py"))


class Ended:
    """What a command gave."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        """The only line of JSON."""
        [line] = self.lines
        return line

    @property
    def lines(self) -> list[Any]:
        """All lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


Call = Callable[..., Ended]


@pytest.fixture
def url(memdir: Path) -> str:
    """A store that is not there yet."""
    return f"sqlite:///{memdir / 'runs.db'}"


@pytest.fixture
def call(url: str, memdir: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call a command in this process, with the store of the test."""
    monkeypatch.chdir(memdir)
    monkeypatch.setenv("HOLDFAST_STORE", url)
    for name in ("HOLDFAST_MODULES", "HOLDFAST_KEYS", "HOLDFAST_TRACEBACK", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    holdfast.open(url).close()

    def caller(*words: str, input: str | None = None) -> Ended:
        done = CliRunner().invoke(cli, list(words), input=input)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ended(done.exit_code, done.stdout, done.stderr)

    return caller


@pytest.fixture
def shop(call: Call) -> Call:
    """Call ``holdfast run`` for a workflow of `shopping`."""

    def run(workflow: str, id: str, *words: str, **given: Any) -> Ended:
        return call("run", f"{SHOPPING}:{workflow}", "--id", id, "--input", json.dumps(given), *words)

    return run


@pytest.fixture
def store(call: Call, url: str) -> Iterator[Holdfast]:
    """The store of the test, open."""
    with holdfast.open(url) as hf:
        yield hf


@pytest.fixture
def process(url: str, memdir: Path) -> Callable[..., subprocess.Popen[str]]:
    """Begin a command in a process of its own."""

    def begin(*words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            cwd=memdir,
            env=os.environ | {"HOLDFAST_STORE": url, "PYTHONUTF8": "1"} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


@pytest.fixture
def terminal(url: str, memdir: Path) -> Callable[..., Terminal]:
    """Begin a command in a terminal of its own."""

    def begin(*words: str, **environment: str) -> Terminal:
        return Terminal(
            sys.executable, "-m", "holdfast", *words, cwd=memdir, environment={"HOLDFAST_STORE": url} | environment
        )

    return begin
