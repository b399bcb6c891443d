"""What the tests of workflows share: a clock of their own, and other processes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from holdfast import Holdfast


@pytest.fixture
def hft(timed: Callable[..., Holdfast]) -> Holdfast:
    """The store, open, with a clock that moves only when it is told to."""
    return timed()


@pytest.fixture(params=["files", "sqlite"])
def shared_url(request: pytest.FixtureRequest, memdir: Path) -> str:
    """The URL of an empty store that other processes can open too."""
    return f"files:///{memdir / 'runs'}" if request.param == "files" else f"sqlite:///{memdir / 'runs.db'}"


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., str]:
    """Runs a script in another process; what it printed."""

    def run(script: str, *args: str, env: dict[str, str] | None = None, code: int = 0) -> str:
        path = tmp_path / "script.py"
        path.write_text(dedent(script))
        done = subprocess.run([sys.executable, str(path), *args], capture_output=True, text=True, timeout=60, env=env)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
