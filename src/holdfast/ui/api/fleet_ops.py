"""Queues, schedules and workers: what the operations of the API do about them."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.engine.worker import schedules
from holdfast.ui import shapes
from holdfast.ui.api.calls import Call, Plain
from holdfast.ui.api.write_ops import to_begin
from holdfast.ui.shapes import queue_view
from holdfast.views import ScheduleInfo, moment


def list_queues(call: Plain) -> shapes.Queues:
    """List the queues."""
    return shapes.Queues([queue_view(one) for one in call.hf.queues()])


def show_queue(call: Plain) -> shapes.QueueView:
    """Show a queue."""
    return queue_view(call.hf.queue(call.params["queue"]).info())


def change_queue(call: Call[None, shapes.QueueChange]) -> shapes.QueueView:
    """Limit, pause or resume a queue."""
    given: dict[str, Any] = {name: getattr(call.body, name) for name in call.body.__struct_fields__}
    given = {name: value for name, value in given.items() if value is not UNSET}
    if isinstance(rate := given.get("rate"), shapes.Rate):
        given["rate"] = rate.count, rate.seconds
    return queue_view(call.hf.queue(call.params["queue"], **given, by=call.person.name).info())


def forget_queue(call: Plain) -> shapes.Deleted:
    """Forget what is set about a queue; its runs stay."""
    return shapes.Deleted(call.hf.queue(call.params["queue"]).delete())


def list_schedules(call: Plain) -> shapes.Schedules:
    """List the schedules."""
    return shapes.Schedules([_told(one) for one in call.hf.schedules()])


def _told(info: ScheduleInfo) -> ScheduleInfo:
    """A schedule as the API shows it: where another store is, to which it was moved, is nobody's business."""
    return info if info.away is None else replace(info, away="another store")


def show_schedule(call: Plain) -> ScheduleInfo:
    """Show a schedule."""
    return _told(call.hf.get_schedule(call.params["schedule"]).info())


def set_schedule(call: Call[None, shapes.Timetable]) -> ScheduleInfo:
    """Make it, or change it."""
    given = call.body
    workflow, args, kwargs = to_begin(given.workflow, given.input)
    when = schedules.Timetable(
        cron=given.cron,
        tz=given.tz,
        queue=given.queue,
        priority=given.priority,
        tags=given.tags,
        deadline=given.deadline,
        catch_up=given.catch_up,
        paused=given.paused,
        by=call.person.name,
    )
    setting = schedules.set_schedule(call.hf.client, call.params["schedule"], workflow, args, kwargs, when)
    schedule: schedules.Schedule = call.hf.perform(setting)
    return schedule.info()


def pause_schedule(call: Call[None, shapes.Nothing]) -> ScheduleInfo:
    """Let it begin nothing."""
    schedule = call.hf.get_schedule(call.params["schedule"])
    schedule.pause(by=call.person.name)
    return schedule.info()


def resume_schedule(call: Call[None, shapes.Nothing]) -> ScheduleInfo:
    """Go on with its next tick."""
    schedule = call.hf.get_schedule(call.params["schedule"])
    schedule.resume(by=call.person.name)
    return schedule.info()


def trigger_schedule(call: Call[None, shapes.Nothing]) -> shapes.RunView:
    """Make a run of it now."""
    run: Any = call.hf.get_schedule(call.params["schedule"]).trigger(key=call.key)
    return call.view(run)


def delete_schedule(call: Plain) -> shapes.Deleted:
    """Delete it; its runs stay."""
    return shapes.Deleted(call.hf.get_schedule(call.params["schedule"]).delete())


def list_workers(call: Plain) -> shapes.Workers:
    """List the workers, and what they hold."""
    return shapes.Workers(
        [
            shapes.WorkerView(name=one.name, alive=one.alive, until=one.until or moment(0), runs=list(one.runs))
            for one in call.hf.workers()
        ]
    )
