"""Workers are killed, and stopped for longer than their lease: others go on, and who comes back too late is refused."""

import random
import signal
import time
from collections.abc import Callable
from typing import Any

import labour
import pytest
from children import Child, wait_until

from holdfast import Status
from holdfast.errors import RunNotFound

LONG = pytest.mark.torture


@pytest.mark.slow(
    covered_by="tests/processes/test_workflow_kills.py::test_workers_that_are_killed_lose_nothing_and_do_nothing_twice"
)
@pytest.mark.parametrize("kills", [30, pytest.param(400, marks=LONG)])
def test_workers_that_are_killed_lose_nothing_and_do_nothing_twice(
    fleet: Any, kills: int, verdict: Callable[..., None]
) -> None:
    crew = fleet.crew(fleet.worker)

    fleet.trial.go(crew.killing(kills), timeout=900 if kills > 30 else 90)
    crew.dismiss()
    verdict(fleet, "workers killed", kills=crew.killed)


# --- zombies


class Stopper:
    """Stops workers at random moments, and lets them go on when somebody else may have gone on with their runs."""

    def __init__(self, fleet: Any, chance: random.Random) -> None:
        self._fleet = fleet
        self._chance = chance
        self._asleep: dict[Child, float] = {}
        self._next = 0.0
        self.stops = 0

    def strike(self, members: list[Child]) -> None:
        now = time.monotonic()
        for worker, until in list(self._asleep.items()):
            if until < now:
                worker.signal(signal.SIGCONT)
                del self._asleep[worker]
        awake = [worker for worker in members if worker not in self._asleep]
        if self._next < now and len(awake) > 1:
            self._next = now + self._chance.uniform(0.1, 0.5)
            self._stop(self._chance.choice(awake))

    def _stop(self, worker: Child) -> None:
        worker.signal(signal.SIGSTOP)
        with open(f"/proc/{worker.pid}/stat") as stat:
            wait_until(lambda: stat.seek(0) == 0 and stat.read().rpartition(")")[2].split()[0] == "T")
        if self._is_about_to_act(worker):
            worker.signal(signal.SIGCONT)
            return
        self._asleep[worker] = time.monotonic() + self._chance.uniform(1.5, 2.5)  # the lease is 1 s
        self.stops += 1

    def _is_about_to_act(self, worker: Child) -> bool:
        """Whether it is inside of an at-most-once step. Whoever stands still there, and acts later, cannot be refused
        by anybody, and a check that looks meanwhile finds nothing done: that is told in the documents."""
        for info in self._fleet.hf.runs(status=["running"], limit=1000):
            if info.holder is not None and f".{worker.pid}." in info.holder:
                try:
                    effects = self._fleet.hf.get(info.id).effects()
                except RunNotFound:
                    continue
                if any(effect.tool == "charge" and effect.status == "uncertain" for effect in effects):
                    return True
        return False

    def wake_all(self) -> None:
        for worker in self._asleep:
            worker.signal(signal.SIGCONT)
        self._asleep.clear()


@pytest.mark.slow(
    covered_by="tests/postgres/faults/test_workers.py::test_a_zombie_that_wakes_right_before_it_acts_does_not"
)
@pytest.mark.parametrize("stops", [6, pytest.param(150, marks=LONG)])
def test_workers_that_stand_still_for_longer_than_their_lease_are_refused(
    fleet: Any, stops: int, verdict: Callable[..., None]
) -> None:
    log = fleet.folder / "log"
    crew, stopper = fleet.crew(lambda: fleet.worker(log=str(log))), Stopper(fleet, fleet.chance)

    def strike() -> bool:
        crew.fill()
        if stopper.stops < stops:
            stopper.strike([worker for worker in crew.members if worker.ready])
        else:
            stopper.wake_all()
        return stopper.stops >= stops

    fleet.trial.go(strike, timeout=900 if stops > 6 else 90)
    crew.dismiss()
    refused = log.read_text().count("another worker took it over")
    verdict(fleet, "workers stopped past their lease", stops=stopper.stops, refused=refused)


def test_a_zombie_that_wakes_right_before_it_acts_does_not(fleet: Any, tally: Callable[..., None]) -> None:
    """It is stopped after its intent; another one does it meanwhile; the zombie's lease is looked at before it acts."""
    world = fleet.trial.world
    log = fleet.folder / "log"
    zombie = fleet.worker(stop_at="charge", concurrency=1, log=str(log))
    assert zombie.line() == "ready"
    run = fleet.hf.enqueue(labour.parcel, world, 7, id="parcel")
    wait_until(lambda: any(effect.tool == "charge" for effect in run.effects()))
    heir = fleet.worker()
    assert heir.line() == "ready"
    assert run.result(timeout=30) == "7 pack, 7 postage"
    zombie.signal(signal.SIGCONT)
    wait_until(lambda: "run parcel: another worker took it over" in log.read_text())
    zombie.process.terminate()
    assert zombie.process.wait(30) == 0
    assert labour.happened(world).count("7 postage") == 1
    assert run.status is Status.COMPLETED
    run.audit()
    tally("PostgreSQL, zombies right before an act", zombies=1, runs=1, violations=0)
