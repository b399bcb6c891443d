"""The wall clock is set while workers run: nothing is taken from a live one, and what is stopped still lapses."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from children import Child
from wall_clock import check_ahead, env_of

import holdfast

pytestmark = pytest.mark.needs("faketime")

LONG, SHORT = 30.0, 0.5
FAST = "tests/contract/test_contract.py::TestSqlite::test_a_clock_that_is_set_ends_no_lease_and_keeps_none"
Until = Callable[..., None]


class WallClock:
    """The clock of some processes, which a test can set. Their monotonic clock is the machine's."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.env = env_of(FAKETIME_TIMESTAMP_FILE=str(file), FAKETIME_NO_CACHE="1")
        self.set_ahead(0)

    def set_ahead(self, seconds: int) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+d}s\n")
        new.replace(self._file)
        check_ahead(self.env, seconds)


@pytest.fixture
def world(memdir: Path) -> str:
    return str(memdir / "world")


@pytest.fixture
def wall(tmp_path: Path) -> WallClock:
    return WallClock(tmp_path / "clock")


@pytest.mark.parametrize(
    "seconds",
    [86_400, pytest.param(-86_400, marks=pytest.mark.slow(covered_by=FAST))],
    ids=["a-day-ahead", "a-day-back"],
)
def test_a_clock_that_is_set_takes_no_run_from_a_live_worker(
    quick_url: str, world: str, wall: WallClock, workers: Callable[..., Child], labour: Any, until: Until, seconds: int
) -> None:
    """The holder is in an at-most-once step, and its next heartbeat is some time away."""
    holder = workers(quick_url, env=wall.env, lease=LONG, concurrency=1)
    with holdfast.open(quick_url) as hf:
        held = hf.enqueue(labour.charging, world)
        until(lambda: labour.happened(world) == ["charge"])
        other = workers(quick_url, env=wall.env, lease=LONG)
        wall.set_ahead(seconds)
        # What a dead worker left is taken before what is due, so the other one has looked at it when this is done.
        assert hf.enqueue(labour.quick, world, 1).result(timeout=30) == 1
        assert [pid for pid, _, what in labour.lines(world) if what == "quick 1"] == [other.pid]
        assert labour.happened(world).count("charge") == 1
        assert f".{holder.pid}." in str(held.info().holder)
        Path(f"{world}.charge").touch()
        assert held.result(timeout=30) == "charge"
        assert [pid for pid, _, what in labour.lines(world) if what == "charge"] == [holder.pid]
        held.audit()


def test_a_stopped_process_lapses_whatever_its_clock_said(
    quick_url: str, wall: WallClock, crew: Callable[..., list[Any]], until: Until
) -> None:
    wall.set_ahead(86_400)
    [stopped] = crew(1, env=wall.env)
    stopped.do("open", url=quick_url, lease=SHORT)
    stopped.do("claim", id="thread")
    stopped.signal(signal.SIGSTOP)
    with holdfast.open(quick_url) as hf:
        until(lambda: hf.recover() == ("thread",))
