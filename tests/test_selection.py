"""What `make test` leaves out is tried by a faster test, or is skipped in plain sight."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from selection import UNCOVERED


def test_each_slow_test_names_a_faster_one(request: pytest.FixtureRequest) -> None:
    """Where the whole suite was collected; else nobody knows."""
    assert request.config.stash[UNCOVERED] == []


NEEDY = """
import pytest

@pytest.mark.needs("chromium")
@pytest.mark.parametrize("n", range(3))
def test_in_a_browser(n): ...

@pytest.mark.needs("faketime")
def test_with_another_clock(): ...

def test_anywhere(): ...
"""


@pytest.fixture
def needy(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs tests that need programs where there are none: the status, and what was printed."""
    (tmp_path / "test_needy.py").write_text(NEEDY)
    lib = Path(__file__).parent / "lib"
    options = ["-q", "-p", "selection", "-o", "markers=needs: a program", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), "-c", os.devnull, str(tmp_path)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST"))}

    def run(**env: str) -> tuple[int, str]:
        nowhere = kept | {"PATH": str(tmp_path), "PYTHONPATH": str(lib), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=nowhere | env, capture_output=True, text=True)
        return done.returncode, done.stdout

    return run


def test_what_needs_a_missing_program_is_skipped_with_the_command_that_installs_it(
    needy: Callable[..., tuple[int, str]],
) -> None:
    status, told = needy()
    assert status == 0, told
    assert "3 tests: chromium is not installed: sudo apt-get install chromium\n" in told
    assert "1 test: faketime is not installed: sudo apt-get install faketime\n" in told
    assert "1 passed, 4 skipped" in told


def test_under_ci_a_skipped_test_is_a_failed_one(needy: Callable[..., tuple[int, str]]) -> None:
    status, told = needy(CI="true")
    assert status == 1, told
    assert "1 passed" in told
    assert "chromium is not installed" in told
