"""Saved histories, replayed against today's code."""

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.engine.workflow.declare import Workflow
from holdfast.testing import replay, save_history

done: list[str] = []


@holdfast.step
def charge(order: str) -> str:
    done.append(f"charged {order}")
    return f"receipt {order}"


@holdfast.step(at_most_once=True)
def wire(order: str) -> str:
    done.append(f"wired {order}")
    return f"wired {order}"


@holdfast.workflow(name="tools-many")
async def many(n: int) -> list[str]:
    return list(await holdfast.map(_one, range(n)))


async def _one(n: int) -> str:
    await holdfast.sleep(60)
    return charge(str(n))


@holdfast.workflow(name="tools-history")
def recorded(name: str) -> str:
    charge(name)
    holdfast.now()
    wire(name)
    answer = holdfast.ask("Ship it?", str)
    charge(answer)
    return answer


def changed(function: Any, name: str = "tools-history") -> Workflow[..., Any]:
    """What the code of a workflow may be tomorrow."""
    return Workflow(function, name=name)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Of a run that waits for an answer."""
    with holdfast.testing.open() as hf:
        run = hf.start(recorded, "A")
        save_history(run, tmp_path / "waiting.history")
        run.answer("B")
        assert run.result() == "B"
        save_history(run, tmp_path / "ended.history")
    done.clear()
    return tmp_path / "waiting.history"


def test_a_history_replays_and_nothing_is_done(history: Path) -> None:
    replayed = replay(history)
    assert (replayed.workflow, replayed.calls, replayed.ended) == ("tools-history", 4, "waits")
    assert replay(history.with_name("ended.history")).ended == "returned"
    assert not done


def test_a_longer_workflow_agrees_up_to_the_end_of_the_history(history: Path) -> None:
    def longer(name: str) -> str:
        charge(name)
        holdfast.now()
        wire(name)
        holdfast.ask("Ship it?", str)
        charge("C")
        return wire("D")

    assert replay(history, changed(longer)).ended == "waits"
    with pytest.raises(holdfast.errors.NonDeterminism, match="other arguments"):
        replay(history.with_name("ended.history"), changed(longer))
    assert not done


def test_another_order_is_told_with_what_was_recorded_and_the_line(history: Path) -> None:
    def swapped(name: str) -> str:
        charge(name)
        wire(name)
        return ""

    with pytest.raises(holdfast.errors.NonDeterminism) as told:
        replay(history, changed(swapped))
    assert "recorded as 'now#1', and is attempted as 'wire#1'" in str(told.value)
    assert f"{__file__}:{swapped.__code__.co_firstlineno + 2}" in str(told.value)
    assert not done


def test_a_guarded_change_agrees(history: Path) -> None:
    def patched(name: str) -> str:
        if holdfast.patched("check"):
            charge("first")
        charge(name)
        holdfast.now()
        wire(name)
        return holdfast.ask("Ship it?", str)

    assert replay(history, changed(patched)).ended == "waits"


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda name: charge(name), "was recorded, and the workflow returned without calling it"),
        (lambda name, more: charge(name), "its arguments do not fit"),
        (lambda name: charge(name + "!"), "other arguments"),
        (lambda name: 1 // 0, "raised ZeroDivisionError"),
    ],
)
def test_what_differs_is_told(history: Path, function: Any, told: str) -> None:
    with pytest.raises(holdfast.errors.NonDeterminism, match=told):
        replay(history, changed(function))


def test_a_history_of_another_workflow_is_refused(history: Path) -> None:
    with pytest.raises(holdfast.errors.DefinitionChanged, match="not of 'other'"):
        replay(history, changed(lambda name: None, "other"))


@holdfast.workflow(name="tools-chapters")
def chapters(n: int) -> int:
    charge(str(n))
    if n < 3:
        holdfast.continue_as_new(n + 1)
    return packed_twice(n)


@holdfast.step
def packed_twice(n: int) -> int:
    return n * 2


def test_every_chapter_is_replayed(tmp_path: Path) -> None:
    with holdfast.testing.open() as hf:
        run = hf.start(chapters, 1)
        assert run.result() == 6
        fork = run.fork(at=3, id="fork")
        save_history(run, tmp_path / "run")
        save_history(fork, tmp_path / "fork")
    assert replay(tmp_path / "run").calls == 4

    def otherwise(n: int) -> int:
        if n > 1:
            holdfast.now()
        charge(str(n))
        holdfast.continue_as_new(n + 1)

    for name in ("run", "fork"):
        with pytest.raises(
            holdfast.errors.NonDeterminism, match=r"recorded as 'charge#1', and is attempted as 'now#1'"
        ):
            replay(tmp_path / name, changed(otherwise, "tools-chapters"))


def test_an_async_history_replays(tmp_path: Path) -> None:
    with holdfast.testing.open() as hf:
        run = hf.start(many, 2)
        save_history(run, tmp_path / "begun")
        assert len(run.result()) == 2
        save_history(run, tmp_path / "ended")
    done.clear()
    assert replay(tmp_path / "begun").ended == "waits"
    assert replay(tmp_path / "ended").ended == "returned"
    assert not done
