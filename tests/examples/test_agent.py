"""The agent that people copy: it goes on after each end of its process, asks once, and sends once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast

AGENT = Path(__file__).resolve().parents[2] / "examples" / "agent.py"
COMPLETE, REFUSED, WAITING = 0, 1, 2


@pytest.fixture(params=["sqlite:///{}/agent.db", "files:///{}/agent"])
def store(request: pytest.FixtureRequest, memdir: Path) -> str:
    return str(request.param).format(memdir)


def start(store: str, folder: Path, *options: str) -> tuple[int, list[str]]:
    process = subprocess.run(
        [sys.executable, str(AGENT), store, "report", str(folder), *options],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONUTF8": "1"},
    )
    assert "Traceback" not in process.stderr, process.stderr
    return process.returncode, process.stdout.splitlines()


def kill_while_sending(store: str, folder: Path) -> None:
    """Answer yes, go on, and kill the process while it sends the message."""
    assert start(store, folder)[0] == WAITING
    assert start(store, folder, "--answer", "yes")[0] == COMPLETE
    process = subprocess.Popen(
        [sys.executable, str(AGENT), store, "report", str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUTF8": "1", "TOOL_SECONDS": "60"},
    )
    assert process.stdout is not None
    assert any(line.startswith("tool   send_message") for line in process.stdout)
    process.kill()
    process.communicate()


def calls(lines: list[str]) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in lines if line.startswith("tool")]


def test_it_waits_for_a_person_and_then_completes(store: str, memdir: Path) -> None:
    out = memdir / "out"
    status, lines = start(store, out)
    assert status == WAITING
    assert calls(lines) == ["write_file outline.md", "write_file draft.md", "write_file summary.md"]

    status, lines = start(store, out)
    assert (status, calls(lines)) == (WAITING, []), "started again too early, it calls nothing"
    assert sum(line.startswith("asks") for line in lines) == 1, "and it does not ask twice"

    assert start(store, out, "--answer", "yes")[0] == COMPLETE
    status, lines = start(store, out)
    assert (status, calls(lines)) == (COMPLETE, ["send_message customer"])
    assert start(store, out) == (COMPLETE, ["done   The report is written and sent."])
    assert start(store, out, "--answer", "yes")[0] == REFUSED
    assert (out / "outbox.txt").read_text().count("to customer") == 1


def test_no_is_an_answer_too(store: str, memdir: Path) -> None:
    out = memdir / "out"
    start(store, out)
    start(store, out, "--answer", "no")
    status, lines = start(store, out)
    assert (status, calls(lines)) == (COMPLETE, [])
    assert not (out / "outbox.txt").exists()
    with holdfast.open(store) as hf:
        said = [message["content"] for message in hf.get("report").checkpoint().state if message["role"] == "tool"]
    assert said[-1] == "not sent: a person said no"


@pytest.mark.parametrize(("said", "sent"), [("done", []), ("not-done", ["send_message customer"])])
def test_a_person_says_what_became_of_a_killed_call(store: str, memdir: Path, said: str, sent: list[str]) -> None:
    out = memdir / "out"
    kill_while_sending(store, out)
    assert start(store, out)[0] == REFUSED, "it does not send again on a guess"
    assert start(store, out, "--resolve", said) == (COMPLETE, [])
    assert start(store, out, "--resolve", said)[0] == REFUSED, "nothing is uncertain any more"
    status, lines = start(store, out)
    assert (status, calls(lines)) == (COMPLETE, sent)


def test_a_tool_that_raises_tells_the_model(store: str, memdir: Path) -> None:
    out = memdir / "out"
    (out / "outline.md").mkdir(parents=True)  # so the file cannot be written
    assert start(store, out)[0] == WAITING
    with holdfast.open(store) as hf:
        said = [message["content"] for message in hf.get("report").checkpoint().state if message["role"] == "tool"]
    assert said[0].startswith("failed: IsADirectoryError")
    assert said[1].startswith("wrote")


def test_what_cannot_be_opened_or_found_is_a_message(store: str, memdir: Path) -> None:
    assert start("redis://here", memdir / "out")[0] == REFUSED
    assert start(store, memdir / "out", "--answer", "yes")[0] == REFUSED
    with holdfast.open(store) as hf:
        assert list(hf.runs()) == [], "an answer makes no run"
