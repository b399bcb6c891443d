"""mypy and pyright find in these files what they should: nothing, and no ignore that is not needed."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKED = [str(path) for path in sorted(HERE.glob("*.py")) if not path.name.startswith("test_")]


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers_accept_and_refuse_what_they_should(checker: str) -> None:
    pytest.importorskip(checker)
    options = {"mypy": ["--strict"], "pyright": ["--pythonpath", sys.executable]}[checker]
    command = [sys.executable, "-m", checker, *options, *CHECKED]
    done = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
