"""What the tests of flows share: a flow from a text, and marks that commands leave in files."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, flow
from holdfast.flow import Flow, Problem
from holdfast.flow.file.loading import load_text

sys.path.insert(0, str(Path(__file__).parent))
import flow_calls  # noqa: F401  (from here on tests, and the flows in them, have it by this name)

sys.path.pop(0)

Load = Callable[..., Flow]


@pytest.fixture
def load(memdir: Path) -> Load:
    """Loads a flow from a text; its folder is that of the test. Without a name, it gets one."""

    def make(text: str, name: str = "flow.yaml") -> Flow:
        path = memdir / name
        path.write_text(text if text.lstrip().startswith("name:") else f"name: sample\n{text}")
        return flow.load(path)

    return make


@pytest.fixture
def problems() -> Callable[[str], list[Problem]]:
    """What is wrong with a text, in the order of the file."""

    def find(text: str) -> list[Problem]:
        return list(load_text(text, "f.yaml", "/tmp").problems)

    return find


@pytest.fixture
def mem() -> Any:
    """A store in memory."""
    with holdfast.open("memory://") as hf:
        yield hf


@pytest.fixture
def finish(load: Load, mem: Holdfast) -> Callable[..., Any]:
    """Runs a flow to its end, and gives the run's state."""

    def run(text: str, **vars: Any) -> Any:
        run = load(text).start(mem, vars)
        run.result()
        return run.checkpoint().state

    return run
