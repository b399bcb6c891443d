"""What a process can tell of the runs that it drives: steps that are being made, branches, the workflow itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Activity, Holdfast, RunNotFound, ask, step, workflow

begun, go_on = threading.Event(), threading.Event()


@step
def wait_here(n: int) -> int:
    if n == 3:
        begun.set()
        assert go_on.wait(10)
    return n


@workflow(name="activity.fans")
def fans() -> list[int]:
    return holdfast.map(wait_here, [1, 2, 3])  # type: ignore[no-any-return]


@workflow(name="activity.asks")
def asks() -> str:
    holdfast.gather(lambda: wait_here(1), lambda: ask("Really?", bool))
    return "done"


@workflow(name="activity.parent")
def parent() -> str:
    return asks()


def test_steps_and_branches_are_told_while_they_last(hf: Holdfast) -> None:
    begun.clear()
    go_on.clear()
    hf.enqueue(fans, id="a")
    run = hf.get("a")
    assert run.activity() is None
    driver = threading.Thread(target=run.resume)
    driver.start()
    try:
        assert begun.wait(10)
        activity = run.activity()
        assert isinstance(activity, Activity)
        assert activity.steps["map#1.3/wait_here#1"] >= 0
        while activity.branches != {"map#1": (2, 3)}:  # the two others come to their ends
            time.sleep(0.001)
        assert list(activity.steps) == ["map#1.3/wait_here#1"]
    finally:
        go_on.set()
        driver.join(10)
    assert run.activity() is None
    assert (activity.steps, activity.branches) == ({}, {"map#1": (3, 3)})  # it can be looked at afterwards


def test_a_branch_that_waits_has_not_ended(hf: Holdfast) -> None:
    seen: list[Activity | None] = []
    real = holdfast.Run.activity

    @step
    def look() -> None:
        seen.append(real(hf.get("a")))

    @workflow(name="activity.looks")
    def looks() -> None:
        holdfast.gather(lambda: look(), lambda: ask("Really?", bool))

    hf.start(looks, id="a")
    [activity] = seen
    assert activity is not None
    assert activity.branches == {"gather#1": (1, 2)}


def test_what_a_run_is_a_run_of(hf: Holdfast) -> None:
    assert hf.start(asks, id="a").declared() is asks
    assert hf.run("hand").declared() is None


def test_results_that_need_no_classes(hf: Holdfast) -> None:
    run = hf.start(asks, id="a")
    checkpoint = run.checkpoint()
    assert checkpoint.raw_results == {"gather#1.1/wait_here#1": 1}
    assert checkpoint.raw_result is None
    run.answer(True)
    assert run.result() == "done"
    assert run.checkpoint().raw_result == "done"


def test_a_backup_of_some_runs_has_what_they_need(hf: Holdfast, memdir: Path) -> None:
    hf.start(parent, id="p")
    hf.start(asks, id="origin").fork(id="fork")
    hf.start(asks, id="other")
    path = memdir / "some"
    assert hf.backup(str(path), runs=["p", "fork"]) == 4
    with holdfast.open("memory://") as copy:
        copy.restore(str(path))
        assert sorted(info.id for info in copy.runs()) == ["fork", "origin", "p", "p/activity.asks#1"]
        assert copy.audit("fork").entries == hf.audit("fork").entries
    assert hf.backup(str(path), runs=[]) == 0
    with pytest.raises(RunNotFound):
        hf.backup(str(path), runs=["nobody"])
    with pytest.raises(holdfast.UsageError):
        hf.backup(str(path), runs="p")


def test_what_recover_would_free(opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None]) -> None:
    other = opened()
    other.run("held").claim()
    hf = opened()
    assert hf.recover(dry_run=True) == ()
    kill(other)
    assert hf.recover(dry_run=True) == ("held",)
    assert hf.get("held").status == "running"
    assert hf.recover() == ("held",)
    assert hf.get("held").status == "ready"
