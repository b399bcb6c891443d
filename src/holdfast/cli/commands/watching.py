"""`holdfast watch`: follow a run, whoever drives it."""

from __future__ import annotations

import time

import click

from holdfast.cli.codes import BY_STATUS, INTERRUPTED, TERMINATED
from holdfast.cli.options import SECONDS, command, run_argument, with_store
from holdfast.cli.progress import Progress, heading, view_for
from holdfast.cli.remedies import command_line
from holdfast.cli.rendering import is_read, say
from holdfast.cli.session import LOOK, Session, Terminated, told_to_end
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.kernel.model import ENDED, Status
from holdfast.present.follower import Follower
from holdfast.present.standing import standing
from holdfast.present.words import one_line, workflow_of

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
