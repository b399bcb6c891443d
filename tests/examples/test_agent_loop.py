"""The agent as a durable function: no tool is used twice, and the dangerous one waits for a person."""

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast

from .conftest import Example

DONE, REFUSED, WAITING = 0, 1, 2
ASKS = "asks   Let the agent call delete_file(name='old.md')?"


@pytest.fixture(params=["sqlite:///{}/agent.db", "files:///{}/agent"])
def store(request: pytest.FixtureRequest, memdir: Path) -> str:
    (memdir / "out").mkdir()
    (memdir / "out" / "old.md").touch()
    return str(request.param).format(memdir)


def files(memdir: Path) -> list[str]:
    return sorted(path.name for path in (memdir / "out").iterdir())


def test_a_person_lets_it_go_on(store: str, example: Example, memdir: Path) -> None:
    given = ("agent_loop.py", store, "t", str(memdir / "out"))
    status, lines = example(*given)
    assert (status, lines[-1]) == (WAITING, ASKS)
    assert "tool   write_file report.md" in lines, "what stands beside the question is done meanwhile"
    assert example(*given) == (WAITING, [ASKS]), "called again too early, it does nothing"
    assert files(memdir) == ["old.md", "report.md"]
    assert example(*given, "--answer", "yes") == (
        DONE,
        ["tool   delete_file old.md", "model  turn 3", "done   old.md is gone"],
    )
    assert example(*given, "--answer", "yes")[0] == REFUSED
    assert files(memdir) == ["report.md"]
    assert example(*given, "--undo") == (DONE, ["undone write_file report.md", "stays  delete_file old.md"])
    assert files(memdir) == []


def test_a_person_says_no(store: str, example: Example, memdir: Path) -> None:
    given = ("agent_loop.py", store, "t", str(memdir / "out"))
    example(*given)
    assert example(*given, "--answer", "no") == (DONE, ["model  turn 3", "done   a person said no"])
    assert files(memdir) == ["old.md", "report.md"]


@pytest.mark.parametrize("at", ["search valves", "turn 2", "write_file"])
def test_killed_it_goes_on(
    at: str, store: str, example: Example, killed: Callable[..., list[str]], memdir: Path
) -> None:
    given = ("agent_loop.py", store, "t", str(memdir / "out"))
    before = killed(*given, at=at, TOOL_SECONDS="0.1")
    _, after = example(*given)
    assert after[-1] == ASKS
    with holdfast.open(store) as hf:
        done = {step.key for step in hf.get("t").steps() if step.status == "done"}
    assert {"toolu_1_1", "toolu_1_2", "toolu_2_1"} <= done
    assert "model  turn 1" in before
    assert "model  turn 1" not in after, "the model is not asked again"
