"""A piece of work that goes through a queue and a schedule, written to be interrupted anywhere.

As in `scenario_workflows` it is called again from the top by the next process. What is enqueued twice
is one run, a tick is one run, no more are held than the queue allows, and what was set about queue and schedule stays.
"""

from __future__ import annotations

from scenario import Desk
from scenario_workflows import think

import holdfast
from holdfast.engine.access.operations import drive
from holdfast.engine.execute.execute import drive_taken
from holdfast.engine.run.handle import Run
from holdfast.engine.worker.intake import Intake
from holdfast.engine.worker.schedules import fire
from holdfast.kernel.model import ENDED, Limits, Order
from holdfast.testing.clock import START

LATER = START + 2 * 3_600_000_000
QUEUE, LIMIT = "line", 2


@holdfast.workflow(name="crash-errand")
def errand_(name: str) -> str:
    return think(name, 1)


def serve(desk: Desk) -> None:
    """Settings, runs that are enqueued once, a schedule with its ticks, taking within limits, a pause."""
    hf = desk.hf
    arrange(desk, "0 * * * *", 60.0)
    hf.client.store.clock.sleep(max(LATER - hf.client.store.clock.now(), 0) / 1_000_000)
    drive(fire(hf.client.engine, set()), hf._committer)
    _work(desk)
    hf.queue(QUEUE).pause()
    desk.seen.kept.add("paused")


def arrange(desk: Desk, cron: str = "0 0 29 2 *", seconds: float = 0.05) -> None:
    """The same, up to the first tick."""
    hf, kept = desk.hf, desk.seen.kept
    queue = hf.queue(QUEUE, limit=LIMIT, rate=(3, seconds))
    assert queue.info().paused >= ("paused" in kept), "the pause is forgotten"
    for name in "abab":
        desk.note(hf.enqueue(errand_, name, queue=QUEUE, dedup=name, key=name, priority=ord(name)))
    assert "scheduled" not in kept or hf.schedules(), "the schedule is forgotten"
    hf.schedule(errand_, "tick", cron=cron, id="hourly", queue=QUEUE, catch_up="all")
    kept.add("scheduled")
    _work(desk)


def _work(desk: Desk) -> None:
    """Take and drive until all runs have ended."""
    hf = desk.hf
    intake = Intake(hf.client.engine, (QUEUE,))
    while any(info.status not in ENDED for info in hf.runs(limit=100)):
        taken = intake.take(5, (), suspects=1, alone=True)
        if not taken and intake.wake is not None:
            hf.client.store.clock.sleep((intake.wake - hf.client.store.clock.now()) / 1_000_000)
        assert taken or intake.wake is not None, "a run is stranded"
        assert len(taken) <= LIMIT, "more were taken than the queue allows"
        more = Order(worker="another", queues={QUEUE: Limits(total=len(taken))}, workflows=frozenset(), limit=9)
        assert hf.client.store.take(more) == []
        for record in taken:
            run = Run(hf.client.run(record.id, record.uid))
            hf.perform(drive_taken(run.held, record))
            desk.note(run)
