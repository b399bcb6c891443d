"""The examples as people run them: each call is a process of its own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

Example = Callable[..., tuple[int, list[str]]]


def environment(**settings: str) -> dict[str, str]:
    return os.environ | {"PYTHONUTF8": "1"} | settings


@pytest.fixture
def example() -> Example:
    """Call an example; its exit status and the lines that it printed."""

    def call(name: str, *arguments: str, **settings: str) -> tuple[int, list[str]]:
        process = subprocess.run(
            [sys.executable, str(EXAMPLES / name), *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(**settings),
        )
        assert "Traceback" not in process.stderr, process.stderr
        return process.returncode, process.stdout.splitlines()

    return call


@pytest.fixture
def killed() -> Callable[..., list[str]]:
    """Call an example, and kill it as soon as it printed this; the lines that it printed."""

    def call(name: str, *arguments: str, at: str, **settings: str) -> list[str]:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / name), *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(**settings),
        )
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line.strip())
            if at in line:
                break
        process.kill()
        lines += [line.strip() for line in process.communicate()[0].splitlines()]
        assert at in "\n".join(lines)
        return lines

    return call
