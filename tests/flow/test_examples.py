"""The examples of flows, run as people would run them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Status, flow
from holdfast.errors import FlowFailed

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def release() -> flow.Flow:
    return flow.load(EXAMPLES / "release.yaml")


@pytest.mark.parametrize("name", ["release.yaml", "backfill.yaml"])
def test_an_example_has_no_problems(name: str) -> None:
    assert flow.check(EXAMPLES / name) == []


def test_release_and_roll_back(release: flow.Flow, memdir: Path) -> None:
    vars = {"folder": str(memdir / "site")}
    current = memdir / "site" / "production.txt"
    with holdfast.open(f"sqlite:///{memdir}/runs.db") as hf:
        run = release.start(hf, {"version": "1.4.0", **vars})
        assert run.status is Status.WAITING
        assert [one.prompt for one in run.questions()] == ["Release 1.4.0 to production?"]
        assert not current.exists()
        run.answer(True, by="ops")
        run.resume()
        assert run.result() == {"released": "1.4.0", "env": "production"}
        assert current.read_text() == "this is version 1.4.0\n"

        (memdir / "site" / "broken").touch()
        run = release.start(hf, {"version": "1.5.0", **vars})
        run.answer(True)
        with pytest.raises(FlowFailed, match=r"step 'verify' .* failed: exit code 1"):
            run.result()
        assert current.read_text() == "this is version 1.4.0\n"
        assert [effect.status for effect in run.effects()] == ["undone"]

        (memdir / "site" / "broken").unlink()
        assert release.start(hf, {"version": "1.6.0", "env": "staging", **vars}).result()["env"] == "staging"


def test_a_release_that_is_not_approved_does_nothing(release: flow.Flow, memdir: Path) -> None:
    with holdfast.open("memory://") as hf:
        run = release.start(hf, {"version": "1", "folder": str(memdir)})
        run.answer(False)
        with pytest.raises(FlowFailed, match="it was not approved"):
            run.result()
    assert not (memdir / "production.txt").exists()


BACKFILL = """
import sys, time, holdfast
from holdfast import flow
backfill = flow.load(sys.argv[1])
import backfill_days
load_day = backfill_days.load_day
def slow(day, folder):
    open(folder + ".log", "a").write(day + "\\n")
    time.sleep(float(sys.argv[4]))
    return load_day(day, folder)
backfill_days.load_day = slow
with holdfast.open(sys.argv[2]) as hf:
    print(backfill.start(hf, {"days": 12, "folder": sys.argv[3]}, id="fill").result())
"""


def start(memdir: Path, pause: float) -> subprocess.Popen[str]:
    arguments = [str(EXAMPLES / "backfill.yaml"), f"sqlite:///{memdir}/runs.db", str(memdir / "days"), str(pause)]
    return subprocess.Popen([sys.executable, "-c", BACKFILL, *arguments], stdout=subprocess.PIPE, text=True)


def test_a_back_fill_that_is_killed_goes_on_where_it_was(memdir: Path) -> None:
    log = memdir / "days.log"
    process = start(memdir, 0.05)
    end = time.monotonic() + 30
    while not (log.exists() and len(log.read_text().split()) >= 7):
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with holdfast.open(f"sqlite:///{memdir}/runs.db") as hf:
        kept = [step.key for step in hf.get("fill").steps() if step.name == "load"]
    process = start(memdir, 0)
    printed, _ = process.communicate(timeout=60)
    assert printed == "{'days': 12, 'rows': 288}\n"
    loaded: list[Any] = log.read_text().split()
    assert len(set(loaded)) == 12
    assert len(loaded) - 12 <= 4  # what was under way, four at a time
    assert len(kept) >= 1
    assert len(list((memdir / "days").glob("*.csv"))) == 12
