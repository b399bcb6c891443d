"""`holdfast run`, `resume` and `watch`: execute a run here and show it, or follow one that others execute."""

from __future__ import annotations

import secrets
import shlex
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from holdfast.cli.codes import BY_STATUS, INTERRUPTED, TERMINATED
from holdfast.cli.options import (
    DURATION,
    JSON,
    PAIR,
    SECONDS,
    SECONDS_ABOVE_0,
    by_option_of,
    command,
    module_option,
    opened,
    run_argument,
    store_option,
    with_store,
)
from holdfast.cli.progress import Progress, heading, view_for
from holdfast.cli.remedies import command_line, typed
from holdfast.cli.rendering import is_read, say, write_json
from holdfast.cli.session import LOOK, Session, Terminated, told_to_end
from holdfast.cli.targets import find_workflow, is_flow
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import RunNotFound, UsageError, WorkflowMissing
from holdfast.kernel.model import ENDED, Status
from holdfast.present.arguments import declare, fitted
from holdfast.present.follower import Follower
from holdfast.present.remedies import module_words, worker_for
from holdfast.present.status import has_died, standing
from holdfast.present.words import one_line, workflow_of
from holdfast.views import RunInfo

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # none that are mistaken for each other


def driving_options(function: Any) -> Any:
    """The options of whatever drives a run at the terminal."""
    for option in (
        click.option("--quiet", "-q", is_flag=True, help="Show the result only."),
        click.option("--no-ask", is_flag=True, help="Do not ask at the terminal; a run that asks waits."),
        by_option_of("Who answers what is asked here; it is kept with the answers."),
    ):
        function = option(function)
    return function


@command(
    "run",
    'holdfast run orders:fulfil --input \'{"order": "A-17", "cents": 4200}\'',
    "holdfast run ./report.py:monthly --input '[2026, 1]' --id report-2026-01",
    "holdfast run release.yaml --var env=prod --dry-run",
    "holdfast run orders:fulfil --input @order.json --detach --queue slow --delay 15m --priority 5",
)
@click.argument("target", metavar="MODULE:WORKFLOW|FILE.py:WORKFLOW|FILE.yaml")
@click.option("--input", "-i", "given", type=JSON, help="The arguments: an object by name, or an array in order.")
@click.option("--var", "variables", multiple=True, type=PAIR, help="A variable of a flow. May be repeated.")
@click.option("--id", metavar="ID", help="The id of the run; the same id again is the same run.")
@click.option("--tag", "tags", multiple=True, type=PAIR, help="A tag of the run. May be repeated.")
@click.option("--queue", default="default", show_default=True, help="From which workers take it.")
@click.option("--deadline", type=SECONDS_ABOVE_0, help="How long it may take as a whole, such as 5m.")
@click.option("--detach", "-d", is_flag=True, help="Leave it to a worker, and do not wait.")
@click.option("--priority", type=int, help="With --detach: of a queue, the highest is taken first. Else 0.")
@click.option("--delay", type=DURATION, help="With --detach: begin it this much later, such as 15m.")
@click.option("--key", metavar="TEXT", help="With --detach: what the queue's limit per key counts by.")
@click.option("--dedup", metavar="TEXT", help="With --detach: while there is a run with this text, it is that one.")
@click.option("--dry-run", is_flag=True, help="Of a flow: show what would be done, and do nothing.")
@driving_options
@store_option
def run_command(
    target: str,
    given: Any,
    variables: tuple[tuple[str, str], ...],
    id: str | None,
    tags: tuple[tuple[str, str], ...],
    queue: str,
    deadline: float | None,
    detach: bool,
    dry_run: bool,
    quiet: bool,
    no_ask: bool,
    by: str | None,
    store: str | None,
    as_json: bool,
    **place: Any,
) -> None:
    """Run a workflow, a graph or a flow, and show it until it ends or has to wait.

    A question is asked right here, if somebody sits at the terminal. Ctrl-C leaves the run as it is; `holdfast resume`
    goes on with it. The exit status tells how the run stands: 0 completed, 3 waiting, 4 failed, 5 blocked.

    JSON, a line for each entry of the journal as it is written: {"entry": entry}; of a flow also for each line that a
    command printed: {"output": …}; and at the end one with {"run": run} and its "result", "error" or "questions".
    """
    how: dict[str, Any] = {"tags": dict(tags), "queue": queue}
    place = {name: value for name, value in place.items() if value is not None}
    if place and (not detach or is_flow(target)):
        words = ", ".join(f"--{name}" for name in place)
        raise UsageError(f"{words}: is for a workflow that is left to a worker by --detach")
    if is_flow(target):
        if deadline is not None:
            raise UsageError(f"{target}: a flow says itself how long it may take, by timeout:")
        job = _flow_job(target, given, variables, how, dry_run=dry_run, as_json=as_json)
        if job is None:
            return
    else:
        if variables or dry_run:
            raise UsageError(f"{target}: --var and --dry-run are for flows; a workflow takes its arguments by --input")
        job = _workflow_job(target, given, how | {"deadline": deadline}, place)
    ctx = click.get_current_context()
    hf = ctx.with_resource(opened(store, make=True))
    if id is None and not job.has_own_id and "dedup" not in place:
        id = new_id(hf, job.name)
    if detach:
        _tell_detached(job.enqueue(hf, id), job.again, as_json=as_json)
        return
    begin = job.start
    if id is None:  # the flow chooses it, and it is known when the run is there
        made = job.enqueue(hf, None)
        id, begin = made.id, lambda *_: resumed(made)
    session = Session(hf, id, as_json=as_json, silent=quiet, asks=not no_ask, by=by, again=job.again)
    before = _found(hf, id)
    if before is not None:
        job.enqueue(hf, id)  # it is there, so this only refuses what it is no run of, before anything is said
    after = before.seq if before is not None else -1
    if not as_json and not quiet:
        heading(id, job.name, _since(before))
    ctx.exit(session.drive(lambda: begin(hf, id), after=after if after > 0 else -1))


class Job(NamedTuple):
    """What is to be run: begun here, or left to a worker, under an id. Some flows choose the id themselves."""

    name: str
    start: Callable[[Holdfast, str | None], Run]
    enqueue: Callable[[Holdfast, str | None], Run]
    again: tuple[str, ...] = ()  # what `holdfast resume` needs to find it again
    has_own_id: bool = False


def _workflow_job(target: str, given: Any, how: dict[str, Any], place: dict[str, Any]) -> Job:
    workflow = find_workflow(target)
    args, kwargs = fitted(workflow, given)
    return Job(
        workflow.name,
        lambda hf, id: hf.start(workflow, *args, id=id, **how, **kwargs),
        lambda hf, id: hf.enqueue(workflow, *args, id=id, **how, **place, **kwargs),
        ("--module", target.partition(":")[0]),
    )


def _flow_job(
    path: str,
    given: Any,
    variables: tuple[tuple[str, str], ...],
    how: dict[str, Any],
    *,
    dry_run: bool,
    as_json: bool,
) -> Job | None:
    """The flow in a file; None if it was only shown what it would do."""
    from holdfast.cli import flows

    flow = flows.load(path, as_json=as_json)
    vars = flows.variables_of(flow, given, variables)
    if dry_run:
        flows.show_dry_run(flow, vars, as_json=as_json)
        return None
    flows.check_variables(flow, vars)
    return Job(
        flow.name,
        lambda hf, id: flow.start(hf, vars, id=id, **how),
        lambda hf, id: flow.enqueue(hf, vars, id=id, **how),
        has_own_id=flow.definition.once_per is not None,
    )


def resumed(run: Run) -> Run:
    """The run, after it was driven on here."""
    run.resume()
    return run


def new_id(hf: Holdfast, name: str) -> str:
    """An id that is short enough to be typed, and that no run has."""
    while True:
        id = f"{name[:480]}-{''.join(secrets.choice(_ALPHABET) for _ in range(8))}"
        try:
            hf.get(id)
        except RunNotFound:
            return id


def _found(hf: Holdfast, id: str) -> RunInfo | None:
    try:
        return hf.get(id).info()
    except RunNotFound:
        return None


def _since(before: RunInfo | None) -> str:
    """What to say of a run that was there already."""
    if before is None or before.seq == 0:
        return ""
    return f"it is {before.status} already" if before.status in ENDED else f"goes on after entry {before.seq}"


def _tell_detached(run: Run, again: tuple[str, ...], *, as_json: bool) -> None:
    info = run.info()
    if as_json:
        write_json({"run": info})
    else:
        if info.status in ENDED:
            say(f"{one_line(info.id)} is {info.status} already.")
            return
        say(f"{one_line(info.id)} is {info.status}; a worker of queue {info.queue} goes on with it:")
        say(f"  {typed(worker_for(info.queue, info.workflow, (again or module_words(run))[1::2]))}")


@command("resume", "holdfast resume order-17 --module orders", "holdfast resume release-4f7k2q9x")
@run_argument
@click.option(
    "--accept", is_flag=True, help="Continue a run that is blocked since its code no longer does what was recorded."
)
@module_option
@driving_options
@with_store()
def resume_command(
    hf: Holdfast, run: str, accept: bool, quiet: bool, no_ask: bool, by: str | None, as_json: bool
) -> None:
    """Go on with a run here, and show it until it ends or has to wait.

    The code of a Python workflow is not in the store: name the module that declares it by --module, or in
    HOLDFAST_MODULES. A flow is resumed as it was when its run began. If somebody else drives the run, nothing is done,
    and the exit status is 6.

    --accept continues with what the code does now. Calls that were recorded and are still made keep their results; a
    finished step that is called under another key is executed again. `holdfast show` tells which they are.

    JSON and exit status are those of `holdfast run`.
    """
    handle = hf.get(run)
    if accept:
        handle.unblock(accept=True, by=by)
    resume_here(hf, handle, quiet=quiet, no_ask=no_ask, by=by, as_json=as_json)


def resume_here(
    hf: Holdfast,
    run: Run,
    *,
    quiet: bool = False,
    no_ask: bool = False,
    by: str | None = None,
    as_json: bool = False,
) -> None:
    """Drive a run on, as `holdfast resume` does, and end the command with its exit status."""
    ctx = click.get_current_context()
    again = tuple(word for name in ctx.meta.get("holdfast.modules", ()) for word in ("--module", name))
    session = Session(hf, run.id, as_json=as_json, silent=quiet, asks=not no_ask, by=by, again=again)
    info = run.info()
    if info.status not in (Status.READY, Status.WAITING, Status.RUNNING):
        ctx.exit(session.close(run))
    check_can_go_on(hf, run, by_resume=True)
    if not as_json and not quiet and (info.status is not Status.RUNNING or has_died(hf, info)):
        heading(run.id, workflow_of(info), f"goes on after entry {info.seq}")
    ctx.exit(session.drive(lambda: resumed(run), after=info.seq))


def check_can_go_on(hf: Holdfast, run: Run, *, by_resume: bool = False) -> None:
    """Refuse to go on here with a run that is driven by hand, or whose workflow is not declared in this process.

    Whoever acts on a run first asks this first, so that nothing is done if the rest of it cannot be.
    """
    info = run.info()
    if info.queue is None:
        raise UsageError(f"run {run.id!r} is driven by hand: the program that has its loop goes on with it")
    if info.status is Status.AWAY or (info.status is Status.RUNNING and not has_died(hf, info)):
        return  # it says where it is, or somebody else goes on with it
    declare(run)
    if run.declared() is None:
        words = module_words(run) or ("--module", "MODULE")
        way = command_line("resume", run.id, options=words) if by_resume else f"add {shlex.join(words)}"
        raise WorkflowMissing(run.id, f"its workflow {info.workflow!r} is not declared here; name its module: {way}")


_WONDER = 2.0  # seconds between two looks whether somebody drives it still


@command("watch", "holdfast watch order-17", "holdfast watch order-17 --json", "holdfast watch order-17 --timeout 60")
@run_argument
@click.option("--new", is_flag=True, help="Only what happens from now on.")
@click.option("--timeout", type=SECONDS, help="Watch for this long at most, such as 90s.")
@with_store()
def watch_command(hf: Holdfast, run: str, new: bool, timeout: float | None, as_json: bool) -> None:
    """Follow a run live, from its first entry, until it ends or is blocked. Nothing is done to it.

    Ctrl-C ends the watching, and not the run. The exit status tells how the run stands, as that of `holdfast run`.

    JSON, a line for each entry: {"entry": {"run": id, "seq": n, "kind": …, "at": …, "contents": …}}; and at the end
    one with {"run": …} and its "result", "error" or "questions".
    """
    handle = hf.get(run)
    info = handle.info()
    if not as_json:
        heading(run, workflow_of(info))
    follower = Follower(hf, run, after=info.seq if new else -1)
    ctx = click.get_current_context()
    try:
        with told_to_end(), Progress(follower, view_for(as_json=as_json)) as progress:
            _watch(hf, handle, progress, timeout)
    except KeyboardInterrupt as interrupt:
        if not as_json:
            say(f"\nNo longer watched; {one_line(run)} is {handle.status}.", err=True)
        ctx.exit(TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED)
    code = Session(hf, run, as_json=as_json).close(handle)
    ctx.exit(BY_STATUS[Status.WAITING] if handle.status is Status.RUNNING else code)


def _watch(hf: Holdfast, run: Run, progress: Progress, timeout: float | None) -> None:
    """Wait until the run has ended or is blocked, the time is over, or nobody reads what is shown."""
    began = time.monotonic()
    wonder_at, mourned = began, -1  # when to ask whether its holder lives; and of which entry it was told
    while progress.is_heard and is_read():
        left = LOOK if timeout is None else min(LOOK, began + timeout - time.monotonic())
        if left <= 0 or run.wait(timeout=left) in (*ENDED, Status.BLOCKED):
            return
        if time.monotonic() >= wonder_at:
            wonder_at = time.monotonic() + _WONDER
            info = run.info()
            stands = standing(hf, info) if info.seq != mourned else None
            if stands is not None and stands.died:
                mourned = info.seq
                progress.warn(f"{stands.told}, or {command_line('resume', run.id)}")
