"""Who drives runs, as far as the store knows: processes that died, queues that nobody takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from subprocess import Popen

import pytest

from holdfast import Holdfast

from .conftest import SHOPPING, Call
from .terminal import PATIENCE


@pytest.fixture
def killed(process: Callable[..., Popen[str]], memdir: Path, call: Call) -> None:
    """The run k, whose process was killed in the middle of a step."""
    marker = memdir / "begun"
    child = process(
        "run", f"{SHOPPING}:slowly", "--id", "k", "--input", f'{{"seconds": 60, "marker": "{marker}"}}', "--quiet"
    )
    end = time.monotonic() + PATIENCE
    while not marker.exists():
        assert time.monotonic() < end, "it did not begin"
        time.sleep(0.02)
    child.kill()
    child.communicate(timeout=60)


def test_a_run_whose_process_died_is_told(call: Call, killed: None, store: Holdfast) -> None:
    shown = call("show", "k")
    assert shown.out.splitlines()[0] == "✗ process died  k"
    assert "holdfast resume k --module shopping" in shown.out
    listed = call("runs")
    assert "its process has died; a worker resumes it: holdfast worker shopping" in listed.out
    assert call("show", "k", "--json").json["died"] is True
    assert call("runs", "--json").json["died"] == ["k"]
    with store.run("hand").claim():
        assert call("show", "hand").out.splitlines()[0] == "▸ running  hand"
        assert call("runs", "--prefix", "h", "--json").json["died"] == []


def test_nobody_goes_on_with_it_who_cannot(
    call: Call, killed: None, store: Holdfast, process: Callable[..., Popen[str]]
) -> None:
    for words in (["send", "k", "1", "--resume"], ["resume", "k"]):
        child = process(*words)
        out, err = child.communicate(timeout=60)
        assert (out, child.returncode, "--module shopping" in err) == ("", 9, True)
    assert store.client.store.inbox(store.get("k").uid) == []


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ready is expected to be taken at once."""
    for module in ("present.status", "cli.commands.doctor"):
        monkeypatch.setattr(f"holdfast.{module}.SOON", timedelta(seconds=-1))


def test_who_leaves_a_run_to_a_worker_is_told_of_it(call: Call, shop: Call, at_once: None) -> None:
    done = shop("quick", "q", "--detach", "--queue", "slow q")
    way = f"holdfast worker {SHOPPING} --queue 'slow q'"
    assert done.out == f"q is ready; a worker of queue slow q goes on with it:\n  {way}\n"
    shown = call("show", "q").out
    assert "no live worker of queue slow q is known" in shown
    assert "holdfast worker shopping --queue 'slow q'" in shown
    [found] = [one for one in call("doctor", "--json").json["findings"] if one["what"] == "unattended"]
    assert (found["level"], found["remedy"]) == ("warning", "holdfast worker MODULE --queue 'slow q'")
    assert "1 run ready in queue slow q" in found["text"]
    stopped = call("worker", SHOPPING, "--until-idle")
    assert f"1 run ready in queue slow q, which it does not take: {way}\n" in stopped.err
    assert "which it does not take" not in call("worker", SHOPPING, "--until-idle", "--queue", "slow q").err
    assert shop("quick", "q", "--detach", "--queue", "slow q").out == "q is completed already.\n"


def test_a_live_worker_is_no_reason_to_worry(call: Call, shop: Call, store: Holdfast, at_once: None) -> None:
    shop("quick", "q", "--detach")
    shop("quick", "held", "--detach")
    with store.get("held").claim():
        assert "no live worker" not in call("show", "q").out
        assert "unattended" not in call("doctor").out


def test_workers(call: Call, killed: None, store: Holdfast) -> None:
    with store.run("hand").claim():
        found = call("workers", "--json").json["workers"]
        assert sorted((one["alive"], one["holds"]) for one in found) == [(False, ["k"]), (True, ["hand"])]
        shown = call("workers").out
        assert "died" in shown
        assert "alive" in shown


def test_no_workers(call: Call) -> None:
    assert call("workers").out == "The store knows of no worker; `holdfast worker MODULE` is one.\n"


def test_delete(call: Call, shop: Call, store: Holdfast) -> None:
    shop("quick", "q")
    assert call("delete", "q").code == 2  # nobody can be asked here
    assert call("delete", "q", "--yes").out == "✓ q is deleted\n"
    assert call("delete", "q", "--yes").code == 8
    with store.run("hand").claim():
        assert call("delete", "hand", "--yes").code == 6
    assert call("delete", "hand", "--yes", "--json").json == {"deleted": "hand"}
