"""How long a claim holds. Real time, short leases."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, Status
from holdfast.errors import Claimed, LeaseLost
from holdfast.kernel import clock
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.rules import Term
from holdfast.stores.locks import WorkerLocks
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash

LEASE = 0.5


def beats() -> int:
    """How many heartbeats there are in this process."""
    return sum(thread.name == "holdfast-heartbeat" for thread in threading.enumerate())


def test_the_heartbeat_keeps_a_lease_beyond_its_time(opened: Callable[..., Holdfast]) -> None:
    run, other = opened(lease=LEASE).run("run"), opened().run("run")
    with run.claim():
        until = time.monotonic() + 2.2 * LEASE
        while time.monotonic() < until:
            with pytest.raises(Claimed):
                other.claim()
            time.sleep(0.05)
        run.save("still held")
    assert other.checkpoint().state == "still held"


def test_a_stopped_heartbeat_loses_the_lease(opened: Callable[..., Holdfast]) -> None:
    sleeper = opened(lease=LEASE)
    run, other = sleeper.run("run"), opened().run("run")
    run.claim()
    run.save("before it slept")
    sleeper.client.engine.worker.stop()
    time.sleep(LEASE + 0.1)
    with other.claim():
        with pytest.raises(LeaseLost):
            run.save("too late")
        other.save("taken over")
    assert other.checkpoint().state == "taken over"


def test_a_lease_that_nobody_claimed_may_still_write(opened: Callable[..., Holdfast]) -> None:
    """A laptop that slept over its lease goes on where nobody else has."""
    sleeper = opened(lease=0.1)
    run = sleeper.run("run")
    run.claim()
    sleeper.client.engine.worker.stop()
    time.sleep(0.2)
    run.save("awake again")
    assert run.checkpoint().state == "awake again"
    run.release()
    assert run.status is Status.READY


def test_recover_takes_what_expired(opened: Callable[..., Holdfast]) -> None:
    sleeper, keeper = opened(lease=0.1), opened()
    sleeper.run("run").claim()
    sleeper.client.engine.worker.stop()
    time.sleep(0.2)
    assert keeper.recover() == ("run",)
    assert keeper.get("run").status is Status.READY


def test_one_heartbeat_keeps_all_runs_of_a_worker(opened: Callable[..., Holdfast]) -> None:
    worker, other = opened(lease=LEASE), opened()
    before = beats()
    runs = [worker.run(f"run-{n}") for n in range(5)]
    for run in runs:
        run.claim()
    assert beats() == before + 1
    time.sleep(1.5 * LEASE)
    for run in runs:
        with pytest.raises(Claimed):
            other.get(run.id).claim()
    worker.close()
    assert beats() == before + 1  # that of the other one
    for run in runs:
        with other.get(run.id).claim():
            pass


def test_a_killed_process_frees_its_runs_at_once(opened: Callable[..., Holdfast], kill: Callable) -> None:
    """Without waiting for the time limit."""
    owner, other = opened(lease=3600), opened()
    owner.run("run").claim()
    with pytest.raises(Claimed):
        other.get("run").claim()
    kill(owner)
    with other.get("run").claim():
        pass


def test_nobody_beats_before_the_first_claim(opened: Callable[..., Holdfast]) -> None:
    before = beats()
    hf = opened()
    run = hf.run("run")
    run.checkpoint()
    run.mark("use", "tool")
    hf.runs()
    assert beats() == before


def test_what_dead_workers_left_is_removed(opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None]) -> None:
    for n in range(3):
        dead = opened()
        dead.run(f"run-{n}").claim()
        kill(dead)
    alive = opened()
    alive.run("run-0").claim()
    folder = getattr(getattr(alive.client.store, "_locks", None), "folder", None)
    if folder is not None:  # memory has no files
        assert [name for name in os.listdir(folder) if name.endswith(".lock")] == [
            f"{alive.client.engine.worker.name}.lock"
        ]
    assert sorted(alive.recover()) == ["run-1", "run-2"]


def test_all_processes_of_a_machine_name_the_same_boot() -> None:
    asked = "from holdfast.kernel.clock import SystemClock; print(SystemClock().boot)"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert SystemClock().boot == int(told)
    before, now, after = time.monotonic_ns(), SystemClock().monotonic(), time.monotonic_ns()
    assert before // 1000 <= now <= after // 1000


def test_a_system_that_does_not_name_its_boots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then locks alone tell that a worker of an earlier boot has ended."""
    monkeypatch.setattr(clock, "BOOT_ID", str(tmp_path / "missing"))
    assert clock._boot.__wrapped__() == (clock._boot() if clock._sysctl(b"kern.bootsessionuuid") else 0)
    assert Term(0, boot=0, ends=SystemClock().monotonic() + 1_000_000).is_live(SystemClock(), running=False) is False


def test_a_worker_of_the_version_before_goes_by_the_wall_clock() -> None:
    now = ManualClock()
    term = Term(now.now() + 1)
    assert term.is_live(now, running=True)
    assert not term.is_live(now, running=False)
    now.set_ahead(1)
    assert not term.is_live(now, running=True)


def test_a_row_of_a_worker_of_the_version_before_is_judged_by_the_wall_clock(memdir: Path) -> None:
    path = memdir / "runs.db"
    with holdfast.open(f"sqlite:///{path}") as hf:
        until = hf.client.store.clock.now() + 3600_000_000
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("INSERT INTO worker (name, until) VALUES ('live', ?), ('expired', 1)", (until,))
        found = {one.worker: (one.alive, one.running) for one in hf.client.store.workers()}
        assert found == {"live": (True, True), "expired": (False, False)}
        for holder in found:
            hf.client.store.claim(hf.run(f"of {holder}").uid, holder)
        with pytest.raises(Claimed):
            hf.get("of live").claim()
        with hf.get("of expired").claim():
            pass


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_who_dies_while_it_clears_away_the_dead_leaves_no_lease_without_a_lock(
    memdir: Path, kind: str, kill: Callable[[Holdfast], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease whose lock is missing holds until its end, so the lease goes first."""
    url = f"{kind}:///{memdir / 'store'}"
    dead, clearing = holdfast.open(url), holdfast.open(url)
    dead.run("run").claim()
    kill(dead)

    release = WorkerLocks.release

    def release_and_die(self: WorkerLocks, worker: str) -> None:
        release(self, worker)
        kill(clearing)
        raise Crash

    monkeypatch.setattr(WorkerLocks, "release", release_and_die)
    with pytest.raises(Crash):
        clearing.run("other").claim()
    monkeypatch.undo()
    with holdfast.open(url) as hf, hf.run("run").claim():
        pass


def test_workers_are_listed_with_the_runs_that_they_hold(
    opened: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.engine.run.finding.HELD_PAGE", 1)  # each run on a page of its own
    hf, other = opened(), opened()
    assert hf.workers() == ()
    with other.run("b").claim(), other.run("a").claim():
        [there] = hf.workers()
        assert (there.name, there.alive, there.runs) == (other.client.engine.worker.name, True, ("a", "b"))
        assert there.until is not None
        with hf.run("c").claim():
            assert {one.name: one.runs for one in hf.workers()} == {
                there.name: ("a", "b"),
                hf.client.engine.worker.name: ("c",),
            }
    assert [one.name for one in hf.workers()] == [there.name], "a worker that holds nothing, other than this one"
