"""`holdfast queues`, `queue`, `schedules`, `schedule`: what limits the workers, and what is begun by the clock."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.flows import load, variables_of
from holdfast.cli.options import JSON, PAIR, by_option, by_option_of, command, only_one, options_given, with_store
from holdfast.cli.remedies import command_line
from holdfast.cli.rendering import columns, say, write_json
from holdfast.cli.targets import TargetRefused, find_workflow, is_flow
from holdfast.engine.app import Holdfast
from holdfast.engine.worker.schedules import CATCH_UP, Timetable, set_schedule
from holdfast.engine.workflow.inputs import QUEUE
from holdfast.errors import UsageError
from holdfast.present.arguments import fitted
from holdfast.present.words import ago, clock, one_line
from holdfast.views import QueueInfo, ScheduleInfo

NONE = "none"  # takes a limit away


@command("queues", "holdfast queues", "holdfast queues --json")
@with_store()
def queues_command(hf: Holdfast, as_json: bool) -> None:
    """List the queues: what is in each of them, and its limits.

    JSON: {"queues": [{"name": …, "ready": n, "running": n, "waiting": n, "oldest": seconds, "limit": n, …}, …]}.
    """
    found = hf.queues()
    if as_json:
        write_json({"queues": found})
    elif not found:
        say("No queues.")
    else:
        _show_queues(found)


def _show_queues(found: tuple[QueueInfo, ...]) -> None:
    titles = ("queue", "ready", "running", "waiting", "limits", "")
    rows = [(one.name, one.ready, one.running, one.waiting, _limits(one), _paused(one)) for one in found]
    columns(titles, rows, right=("ready", "running", "waiting"))


def _limits(queue: QueueInfo) -> str:
    told = [f"{queue.limit} at a time"] if queue.limit is not None else []
    told += [f"{queue.per_worker} per worker"] if queue.per_worker is not None else []
    told += [f"{queue.per_key} per key"] if queue.per_key is not None else []
    told += [f"{queue.rate[0]} in {queue.rate[1]:g} s"] if queue.rate is not None else []
    return ", ".join(told)


def _limit(text: str) -> Any:
    """A number from 1 on, or that there is no limit."""
    if text == NONE:
        return NONE
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise click.BadParameter(f"{text!r} is not a number from 1 on, or {NONE}.")
    return int(text)


@command(
    "queue",
    "holdfast queue mail",
    "holdfast queue mail --limit 10 --per-key 1 --rate 100/60",
    "holdfast queue mail --pause",
)
@click.argument("name")
@click.option("--limit", type=_limit, metavar="N|none", help="Runs at a time, of all workers.")
@click.option("--per-worker", type=_limit, metavar="N|none", help="Runs at a time, of each worker.")
@click.option("--per-key", type=_limit, metavar="N|none", help="Runs at a time, of those enqueued with the same key.")
@click.option("--rate", metavar="N/SECONDS|none", help="How many runs may be begun in how many seconds.")
@click.option("--pause", is_flag=True, help="Workers take nothing from it.")
@click.option("--resume", is_flag=True, help="Workers go on with it.")
@by_option
@with_store()
def queue_command(
    hf: Holdfast,
    name: str,
    limit: Any,
    per_worker: Any,
    per_key: Any,
    rate: str | None,
    pause: bool,
    resume: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Show a queue, or set its limits; what is not given stays as it was.

    What runs already goes on. Limits hold for all workers of the store.

    JSON: {"queue": queue}, as of `holdfast queues`.
    """
    given = {"limit": limit, "per_worker": per_worker, "per_key": per_key}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    changes = {key: None if value == NONE else value for key, value in changes.items()}
    if rate is not None:
        changes["rate"] = _rate(rate)
    if only_one("pause", "resume") is not None:
        changes["paused"] = pause
    if not changes and name != QUEUE and all(one.name != name for one in hf.queues()):
        raise TargetRefused(
            f"there is no queue {name!r}: nothing is set about it, and no run is in it; "
            f"`{command_line('queues')}` lists those that are"
        )
    info = hf.queue(name, **changes, by=by).info()
    if as_json:
        write_json({"queue": info})
    else:
        _show_queues((info,))


def _paused(one: QueueInfo | ScheduleInfo) -> str:
    return (f"paused by {one_line(one.set_by)}" if one.set_by else "paused") if one.paused else ""


def _rate(text: str) -> tuple[int, float] | None:
    count, _, seconds = text.partition("/")
    try:
        return None if text == NONE else (int(count), float(seconds))
    except ValueError:
        raise UsageError(f"--rate {text}: write it as 100/60, for 100 runs in 60 seconds, or {NONE}") from None


@command("schedules", "holdfast schedules", "holdfast schedules --json")
@with_store()
def schedules_command(hf: Holdfast, as_json: bool) -> None:
    """List the schedules: which workflow each of them begins, and when next.

    JSON: {"schedules": [{"id": …, "workflow": …, "cron": …, "tz": …, "next_at": …, "last_run": id, …}, …]}.
    """
    found = hf.schedules()
    if as_json:
        write_json({"schedules": found})
    elif not found:
        say("No schedules.")
    else:
        _show_schedules(found)


def _show_schedules(found: tuple[ScheduleInfo, ...]) -> None:
    rows = []
    for one in found:
        last = ago(one.last_at) if one.last_at is not None else ""
        rows.append((one.id, one.workflow, f"{one.cron} ({one.tz})", _next(one), last, one.last_run))
    columns(("schedule", "workflow", "when", "next", "last", "run"), rows)


def _next(schedule: ScheduleInfo) -> str:
    if schedule.away is not None:
        return f"in {one_line(schedule.away)}"
    if schedule.paused:
        return _paused(schedule)
    return clock(schedule.next_at, schedule.tz)


@command(
    "schedule",
    "holdfast schedule report",
    "holdfast schedule report --pause",
    "holdfast schedule report --trigger",
    "holdfast schedule nightly --cron '0 3 * * *' --tz Europe/Oslo --run release.yaml --var env=prod",
    "holdfast schedule report --cron '0 9 * * 1-5' --run reports:daily --input '[\"sales\"]'",
)
@click.argument("id")
@click.option("--cron", metavar="CRON", help="Make it, or change it: when it begins something.")
@click.option(
    "--run", "target", metavar="TARGET", help="What it begins: MODULE:WORKFLOW, FILE.py:WORKFLOW or FILE.yaml."
)
@click.option("--input", "-i", "given", type=JSON, help="The arguments: an object by name, or an array in order.")
@click.option("--var", "variables", multiple=True, type=PAIR, help="A variable of a flow. May be repeated.")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="The time zone of --cron.")
@click.option("--queue", default="default", show_default=True, help="The queue of its runs.")
@click.option("--priority", type=int, default=0, show_default=True, help="Of its runs: the highest is taken first.")
@click.option("--tag", "tags", multiple=True, type=PAIR, help="A tag of its runs. May be repeated.")
@click.option("--catch-up", type=click.Choice(CATCH_UP), default="one", show_default=True, help="Of missed ticks.")
@click.option("--pause", is_flag=True, help="Begin nothing until it is resumed.")
@click.option("--resume", is_flag=True, help="Go on with the next tick.")
@click.option("--trigger", is_flag=True, help="Enqueue a run now, beside those of the clock.")
@click.option("--delete", is_flag=True, help="Delete the schedule; its runs stay.")
@by_option_of("Who does this; it is kept with the schedule when that is made, changed, paused or resumed.")
@with_store()
def schedule_command(
    hf: Holdfast,
    id: str,
    cron: str | None,
    target: str | None,
    given: Any,
    variables: tuple[tuple[str, str], ...],
    pause: bool,
    resume: bool,
    trigger: bool,
    delete: bool,
    by: str | None,
    as_json: bool,
    **how: Any,
) -> None:
    """Show a schedule, or make, pause, resume, trigger or delete it.

    With --cron and --run it is made, or changed if there is one of this ID. Of a flow the definition is kept with it.

    JSON: {"schedule": schedule}, as of `holdfast schedules`; with --trigger also "run": id; with --delete
    {"deleted": id}.
    """
    only_one("pause", "resume", "trigger", "delete")
    only_one("cron", "delete")
    settings = options_given("given", "variables", *how)
    if (cron is None) != (target is None):
        raise UsageError("to make a schedule takes both: --cron says when, and --run what")
    if settings and cron is None:
        raise UsageError(
            f"{', '.join(settings)}: is set when a schedule is made or changed; add --cron, which says when, and "
            "--run, which says what"
        )
    if cron is not None and target is not None:
        _make_schedule(hf, target, given, variables, {**how, "id": id, "cron": cron, "by": by}, as_json=as_json)
    schedule = hf.get_schedule(id)
    if delete:
        schedule.delete()
        write_json({"deleted": id}) if as_json else say(f"✓ {one_line(id)} is deleted")
        return
    run = schedule.trigger() if trigger else None
    if pause or resume:
        schedule.pause(by=by) if pause else schedule.resume(by=by)
    info = schedule.info()
    if as_json:
        write_json({"schedule": info} | ({"run": run.id} if run is not None else {}))
        return
    _show_schedules((info,))
    if run is not None:
        say(f"✓ {one_line(run.id)} is enqueued")


def _make_schedule(
    hf: Holdfast,
    target: str,
    given: Any,
    variables: tuple[tuple[str, str], ...],
    how: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Make the schedule, or change it, for a workflow or a flow."""
    how = {**how, "tags": dict(how["tags"])}
    if is_flow(target):
        flow = load(target, as_json=as_json)
        flow.schedule(hf, variables_of(flow, given, variables), **how)
        return
    if variables:
        raise UsageError(f"{target}: --var is for flows; a workflow takes its arguments by --input")
    workflow = find_workflow(target)
    args, kwargs = fitted(workflow, given)
    hf.perform(set_schedule(hf.client, how.pop("id"), workflow, args, kwargs, Timetable(**how)))
