"""Real processes: killed between a task's writes and the checkpoint; paused in one and resumed in another."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.integrations.langgraph import HoldfastSaver

PROGRAM = Path(__file__).with_name("program.py")


def run(*args: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(PROGRAM), *args], capture_output=True, text=True, timeout=60, **how)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'threads'}"


def test_killed_between_the_writes_and_the_checkpoint(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    killed = run("run", url, str(log), "kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert log.read_text() == "one\ntwo\n"
    with HoldfastSaver(url) as saver:
        found = saver.get_tuple({"configurable": {"thread_id": "t"}})
        assert found is not None
        assert found.pending_writes, "what the task wrote is there"
        assert [(channel, value) for _, channel, value in found.pending_writes if channel == "xs"] == [("xs", ["two"])]
    done = run("run", url, str(log), "resume")
    assert done.stdout.split() == ["in", "one", "two", "three"], done.stderr
    assert log.read_text() == "one\ntwo\nthree\n", "nothing was done twice"


@pytest.mark.slow(covered_by="tests/integrations/langgraph/test_graphs.py::test_a_graph_pauses_and_goes_on")
def test_paused_in_one_process_and_resumed_in_one_of_two_others(url: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert run("ask", url, str(log)).stdout.split() == ["paused"]
    both = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), "answer", url, str(log), "well"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GUARD": "1"},
        )
        for _ in range(2)
    ]
    for one in both:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in both:  # both at the same moment
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    said = sorted(one.communicate(timeout=60)[0].split() for one in both)
    assert said == [["in", "well"], ["refused"]]
    assert log.read_text() == "answered well\n", "the side effect happened once"
