"""Flows that are begun by the clock: the definition goes with the schedule, and each tick is a run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast.flow
from holdfast import Holdfast
from holdfast.errors import UsageError, VarsRefused

FLOW = """
name: tidy
vars: {room: {type: text}}
steps:
  - id: say
    set: {said: "tidy {{ vars.room }}"}
"""


@pytest.fixture
def flow(memdir: Path) -> holdfast.flow.Flow:
    (memdir / "tidy.yaml").write_text(FLOW)
    return holdfast.flow.load(memdir / "tidy.yaml")


def test_each_tick_is_a_run_of_the_flow(
    timed: Callable[..., Holdfast], clock: Any, flow: holdfast.flow.Flow, memdir: Path
) -> None:
    hf = timed()
    schedule = flow.schedule(hf, {"room": "hall"}, cron="0 * * * *", id="hourly", tags={"of": "house"})
    (memdir / "tidy.yaml").unlink()  # it is not needed any more
    assert (schedule.info().workflow, schedule.info().cron) == ("flow", "0 * * * *")
    clock.advance(2 * 3600)
    timed().work(until_idle=True)
    [run] = [hf.get(info.id) for info in hf.runs()]
    assert (run.status, run.info().tags) == ("completed", {"flow": "tidy", "of": "house"})
    assert run.id.startswith("schedule:hourly@")
    again = flow.schedule(hf, {"room": "hall"}, cron="0 * * * *", id="hourly", tags={"of": "house"})
    assert again.info() == schedule.info()  # nothing of it changed


def test_wrong_use(hf: Holdfast, flow: holdfast.flow.Flow) -> None:
    with pytest.raises(VarsRefused, match="room"):
        flow.schedule(hf, {}, cron="0 * * * *", id="hourly")
    with pytest.raises(UsageError, match="cron"):
        flow.schedule(hf, {"room": "hall"}, cron="soon", id="hourly")
    assert hf.schedules() == ()
