"""`holdfast move` is killed, again and again: each run ends up in one place, whole, and none is lost."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from movers import finish, furnish

import holdfast
from holdfast.kernel.model import Filter, Status

RUNS = 60
MOVE = [sys.executable, "-m", "holdfast", "move"]


@pytest.mark.slow(covered_by="tests/crash/test_move_crashes.py::test_a_crash_at_many_points")
@pytest.mark.parametrize(
    ("source", "target"), [("sqlite:///{}/a.db", "files:///{}/b"), ("files:///{}/a", "sqlite:///{}/b.db")]
)
def test_killed_at_any_moment(source: str, target: str, memdir: Path, seed: int, tally: Callable[..., None]) -> None:
    here, there = source.format(memdir), target.format(memdir)
    chance, kills = random.Random(seed), 0
    with holdfast.open(here) as hf:
        furnish(hf, delay=0.1)
        for n in range(RUNS):
            hf.run(f"r{n}").save({"n": n})
        ids = {info.id for info in hf.runs(limit=1000)}
    for _ in range(6):
        process = subprocess.Popen([*MOVE, here, there], stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.02, 0.2))
        wait_for_store(process, memdir)
        time.sleep(chance.uniform(0.0, 0.15))
        process.kill()
        kills += process.wait() == -9
        assert living(here, there, ids) <= 1
    done = subprocess.run(
        [*MOVE, here, there, "--json", "--timeout", "30s"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["left"] == []
    with holdfast.open(there) as hf:
        assert {info.id for info in hf.runs(limit=1000)} == ids
        assert not hf.runs(status="away").items
        for id in ids:
            hf.audit(id)
        assert [hf.get(f"r{n}").checkpoint().state for n in range(RUNS)] == [{"n": n} for n in range(RUNS)]
        finish(hf)
    with holdfast.open(here) as hf:
        assert {info.status for info in hf.runs(limit=1000)} == {Status.AWAY}
    tally("moves killed", kills=kills, runs=len(ids), violations=0)


def wait_for_store(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Wait until it has begun, or is over."""
    until = time.monotonic() + 20
    while process.poll() is None and not any(folder.glob("b*")):
        assert time.monotonic() < until
        time.sleep(0.005)


def living(here: str, there: str, ids: set[str]) -> int:
    """In how many of the stores a run lives, at most; all are in one of them."""
    counts = dict.fromkeys(ids, 0)
    found: set[str] = set()
    for url in (here, there):
        with holdfast.open(url) as hf:
            for record in hf.client.store.find(Filter(), limit=1000):
                found.add(record.id)
                counts[record.id] += record.status is not Status.AWAY
    assert found == ids
    return max(counts.values())
