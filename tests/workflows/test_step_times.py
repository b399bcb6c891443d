"""What the journal says of a step that runs, and of how long it took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from holdfast import Holdfast, NotDone, Run, step, workflow
from holdfast.kernel import journal
from holdfast.kernel.fold import Fold
from holdfast.views import EntryContents


def told(run: Run, kind: str) -> list[EntryContents]:
    return [entry for entry in run.entries() if entry.kind == kind]


@contextmanager
def beating(hf: Holdfast, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Before each write lasts, a heartbeat comes that finds all steps to have run for long."""
    settle = hf.client.engine.committer.settle
    busy: list[None] = []

    def beat(ticket: Any) -> Any:
        if not busy:
            busy.append(None)
            for execution in list(hf.client.engine.executions.values()):
                for key in list(execution.active):
                    execution.submit_started(key)
            busy.clear()
        return settle(ticket)

    patch.setattr(hf.client.engine.committer, "settle", beat)
    yield
    patch.undo()


@pytest.mark.parametrize("how", ["done", "retried", "failed"])
def test_a_step_that_has_ended_is_not_told_to_run(hft: Holdfast, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    tries: list[None] = []

    @step(retries=int(how == "retried"), delay=0.1)
    def load() -> int:
        tries.append(None)
        if how == "failed" or (how == "retried" and len(tries) == 1):
            raise ValueError("no")
        return 1

    @workflow(name="beaten")
    def flow() -> int:
        try:
            return load()
        except ValueError:
            return 0

    with beating(hft, monkeypatch):
        run = hft.start(flow, id="r")
        run.wait()
    assert told(run, "started") == []
    assert [one.status for one in run.steps()] == ["failed" if how == "failed" else "done"]


def test_a_step_that_is_made_anew_after_a_retry_is_told_to_run(hft: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    fails, given = [True], [1]

    @step
    def after(n: int) -> int:
        for execution in list(hft.client.engine.executions.values()):
            execution.submit_started("after#1")
        return n

    @step
    def load() -> None:
        if fails:
            raise ValueError("no")

    @workflow(name="anew")
    def flow() -> int:
        try:
            load()
        except ValueError:
            after(given[0])
            raise
        return after(given[0])

    run = hft.start(flow, id="r")
    assert len(told(run, "started")) == 1
    fails.clear()
    given[:] = [2]
    run.retry()
    assert run.result() == 2
    assert len(told(run, "started")) == 2
    assert [(one.key, one.status) for one in run.steps()] == [("load#1", "done"), ("after#1", "done")]


def test_what_is_told_to_run_after_its_end_has_ended() -> None:
    fold = Fold("r")
    fold.add(0, "created", 0, {})
    fold.add(1, "done", 0, {"key": "load#1", "digest": "", "result": None})
    fold.add(2, "started", 0, {"key": "load#1", "seconds": 1})
    assert fold.started == {}
    fold.add(3, "raised", 0, {"key": "load#2", "final": True, "failure": None})
    fold.add(4, "started", 0, {"key": "load#2", "seconds": 1})
    assert fold.started == {}
    fold.add(5, "retried", 0, {"keys": ["load#2"]})
    fold.add(6, "started", 0, {"key": "load#2", "seconds": 1})
    assert fold.started == {"load#2": 6}


# --- how long it took


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousandth of a second is worth telling, so that no test has to wait for longer."""
    monkeypatch.setattr(journal, "NOTED_FROM", 0.001)


@pytest.mark.parametrize("kind", ["plain", "timeout", "effect", "async"])
def test_a_step_that_took_a_while_says_how_long(hft: Holdfast, quick: None, kind: str) -> None:
    tries: list[None] = []

    def load() -> int:
        time.sleep(0.002)
        tries.append(None)
        if len(tries) == 1:
            raise ValueError("no")
        return 1

    async def later() -> int:
        return load()

    how: dict[str, Any] = {"timeout": {"timeout": 60}, "effect": {"target": "world"}}.get(kind, {})
    made: Any = step(name="load", retries=1, delay=0.1, **how)(later if kind == "async" else load)

    @workflow(name="timed")
    def flow() -> int:
        return made()

    @workflow(name="timed-async")
    async def async_flow() -> int:
        return await made()

    chosen: Any = async_flow if kind == "async" else flow
    run = hft.start(chosen, id="r")
    assert run.result() == 1
    for found in ("raised", "done"):
        [entry] = told(run, found)
        assert 0.002 <= entry.contents["seconds"] < 60
    [shown] = run.steps()
    assert shown.seconds == entry.contents["seconds"]


def test_a_step_that_succeeds_at_once_says_how_long(hft: Holdfast, quick: None) -> None:
    @step
    def load() -> None:
        time.sleep(0.002)

    @step
    async def load_later() -> None:
        time.sleep(0.002)

    @workflow(name="timed-at-once")
    def flow() -> None:
        load()

    @workflow(name="timed-at-once-async")
    async def async_flow() -> None:
        await load_later()

    for chosen in (flow, async_flow):
        [done] = told(hft.start(chosen), "done")
        assert done.contents["seconds"] >= 0.002


def test_a_step_that_may_not_be_made_twice_says_it_too(hft: Holdfast, quick: None) -> None:
    @step(at_most_once=True, retries=0)
    def pay() -> None:
        time.sleep(0.002)
        raise NotDone("the bank is shut")

    @workflow(name="pays")
    def flow() -> None:
        pay()

    [raised] = told(hft.start(flow, id="r"), "raised")
    assert raised.contents["seconds"] >= 0.002


def test_a_loop_of_ones_own_says_it_too(hf: Holdfast, quick: None) -> None:
    run = hf.run("r")
    run.once("plain", time.sleep, 0.002)
    run.once("effect", time.sleep, 0.002, target="world")
    assert [entry.contents["seconds"] >= 0.002 for entry in told(run, "done")] == [True, True]
    assert all(one.seconds is not None for one in run.steps())


def test_what_took_next_to_no_time_says_nothing(hft: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "NOTED_FROM", 3600)

    @step
    def load() -> int:
        return 1

    @workflow(name="untimed")
    def flow() -> int:
        return load()

    run = hft.start(flow, id="r")
    assert [set(entry.contents) for entry in told(run, "done")] == [{"key", "n", "digest", "result"}]
    assert [one.seconds for one in run.steps()] == [None]
