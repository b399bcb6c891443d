"""`holdfast cancel`, `retry` and `unblock`: acts on runs that are named, or on all that a filter finds.

What a filter finds is shown first, with its count, and nothing is done until somebody agrees.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click
from msgspec import Struct

from holdfast.cli.codes import DONE, REFUSED, code_of
from holdfast.cli.commands.acting import agreed, resume_option
from holdfast.cli.commands.lists import every_run
from holdfast.cli.commands.running import check_can_go_on, resume_here
from holdfast.cli.options import (
    by_option,
    command,
    filter_options,
    module_option,
    runs_argument,
    with_store,
    yes_option,
)
from holdfast.cli.remedies import told_error
from holdfast.cli.rendering import RUN_TITLES, columns, run_rows, say, write_json
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.errors import HoldfastError, RunError, UsageError
from holdfast.kernel.model import Status
from holdfast.present.arguments import declare
from holdfast.present.words import counted, one_line
from holdfast.views import RunInfo

PREVIEW = 20  # runs that are shown before one agrees


def many_options(function: Any) -> Any:
    """The arguments and options of an act on many runs."""
    for option in (
        yes_option,
        click.option("--dry-run", is_flag=True, help="Show which runs it would be, and do nothing."),
        filter_options,
        runs_argument,
    ):
        function = option(function)
    return function


class Mode(Struct, frozen=True):
    """How an act on many runs is made: only shown, without a question, as JSON."""

    dry_run: bool
    yes: bool
    as_json: bool


def chosen(
    hf: Holdfast,
    verb: str,
    runs: tuple[str, ...],
    wanted: dict[str, Any],
    default: tuple[str, ...],
    mode: Mode,
) -> list[RunInfo] | None:
    """The runs that are named, or those that the filter finds once somebody has agreed; None if it was only asked."""
    if runs and wanted:
        raise UsageError(f"name the runs to {verb}, or say which by --status, --workflow and so on; not both")
    if not runs and not wanted:
        raise UsageError(
            f"which runs to {verb}? name them, or say --status, --workflow, --tag, --prefix, --since, --before"
        )
    found = [hf.get(id).info() for id in runs] if runs else every_run(hf, **{"status": list(default), **wanted})
    if mode.dry_run:
        preview(hf, found, verb, as_json=mode.as_json)
        return None
    if not runs and found:
        if not mode.as_json and not mode.yes:
            preview(hf, found, verb, as_json=False)
        agreed(f"{verb.capitalize()} {counted(len(found), 'run')}?", len(found), verb, yes=mode.yes)
    return found


def preview(hf: Holdfast, found: list[RunInfo], verb: str, *, as_json: bool) -> None:
    """Show which runs it is about."""
    if as_json:
        write_json({"would": verb, "count": len(found), "runs": found})
        return
    if found:
        columns(RUN_TITLES, run_rows(hf, found[:PREVIEW]), right=("entries",))
    if len(found) > PREVIEW:
        say(f"… and {len(found) - PREVIEW} more")
    say(f"{counted(len(found), 'run')} to {verb}." if found else "No such runs.")


def act(hf: Holdfast, found: list[RunInfo], act: Callable[[Run], str | None], said: str, *, as_json: bool) -> None:
    """Do it to each run; what goes wrong with one is told, and the others are still done.

    ``act`` gives what was not done of it, if anything.
    """
    results: list[dict[str, Any]] = []
    code = 0
    for info in found:
        try:
            run = hf.get(info.id)
            missed = act(run)
            results.append({"run": run.info()} | ({"missed": missed} if missed else {}))
        except HoldfastError as error:
            code = code or code_of(error)
            results.append({"run": info, "error": {"type": type(error).__name__, "message": told_error(error)}})
            if not as_json:
                say(f"✗ {one_line(told_error(error))}", err=True)
            continue
        code = code or (REFUSED if missed else DONE)
        if not as_json:
            told = f"{one_line(info.id)} {said.format(status=results[-1]['run'].status)}"
            say(f"! {told}; {one_line(missed)}" if missed else f"✓ {told}", err=bool(missed))
    if as_json:
        write_json({"count": len(found), "done": sum("error" not in one for one in results), "results": results})
    elif not found:
        say("No such runs.")
    elif len(found) > 1:
        say(f"{sum('error' not in one for one in results)} of {counted(len(found), 'run')}.")
    if code:
        click.get_current_context().exit(code)


_LIVE = ("ready", "running", "waiting", "blocked")


@command(
    "cancel",
    "holdfast cancel order-17 --why 'out of stock'",
    "holdfast cancel --status waiting --workflow fulfil --before 30d --dry-run",
    "holdfast cancel --tag customer=17 --undo --module orders --yes",
)
@many_options
@click.option("--why", metavar="TEXT", help="It is kept in the journal.")
@click.option("--undo", is_flag=True, help="Undo what they did to the outside world; needs --module.")
@click.option("--force", is_flag=True, help="Pass over undos that fail or are missing, and over uncertain effects.")
@by_option
@module_option
@with_store()
def cancel_command(
    hf: Holdfast,
    runs: tuple[str, ...],
    wanted: dict[str, Any],
    dry_run: bool,
    yes: bool,
    why: str | None,
    undo: bool,
    force: bool,
    by: str | None,
    as_json: bool,
) -> None:
    """Give up runs, and their children: those that are named, or all that a filter finds (previewed).

    A run that another process drives is asked to stop, and does so at its next durable call. Without --status, a filter
    finds the runs that have not ended.

    With --undo, an undo that fails blocks its run in the middle of its rollback (exit status 5); the same command again
    retries it, --force passes over it. The exit status is 9 if a run was cancelled and not all of it could be undone.

    JSON: {"count": n, "done": n, "results": [{"run": run, "error"?: …, "missed"?: …}, …]}; with --dry-run {"would":
    "cancel", "count": n, "runs": [run, …]}.
    """
    found = chosen(hf, "cancel", runs, wanted, _LIVE, Mode(dry_run, yes, as_json))
    if found is not None:
        act(hf, found, lambda run: _cancel(run, why, undo, force, by), "is {status}", as_json=as_json)


def _cancel(run: Run, why: str | None, undo: bool, force: bool, by: str | None) -> str | None:
    if undo or force:
        declare(run)
    run.cancel(why, undo=undo, force=force, by=by)
    if not (undo or force) or run.status is not Status.CANCELLED:
        return None
    still = [f"{one.key} ({one.status.replace('_', ' ')})" for one in run.effects() if one.status in _STILL_THERE]
    return f"not undone: {', '.join(still)}" if still else None


_STILL_THERE = ("undo_failed", "uncertain", "repeated", "left")


@command(
    "retry",
    "holdfast retry order-17 --resume --module orders",
    "holdfast retry --status failed --workflow fulfil --since 1d",
)
@many_options
@by_option
@resume_option
@with_store()
def retry_command(
    hf: Holdfast,
    runs: tuple[str, ...],
    wanted: dict[str, Any],
    dry_run: bool,
    yes: bool,
    by: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Try failed, cancelled or blocked runs again: those that are named, or all that a filter finds (previewed).

    What was done is not done again. They become ready, and a worker goes on with them; a single one goes on here with
    --resume. Without --status, a filter finds the failed runs.

    JSON: as of `holdfast cancel`; with --resume as of `holdfast run`.
    """
    found = chosen(hf, "retry", runs, wanted, ("failed",), Mode(dry_run, yes, as_json))
    _go_on(hf, found, partial(_retry, by=by), "is {status} again", resume=resume, as_json=as_json)


def _retry(run: Run, by: str | None) -> None:
    if (status := run.status) not in (Status.FAILED, Status.CANCELLED, Status.BLOCKED, Status.AWAY):
        raise RunError(run.id, f"it is {status}; only a failed, cancelled or blocked run is tried again")
    if run.info().rolls_back is not None:
        declare(run)
    run.retry(by=by)


def _unblock(run: Run, by: str | None) -> None:
    if run.info().rolls_back is not None:
        declare(run)
    run.unblock(by=by)


def _go_on(
    hf: Holdfast,
    found: list[RunInfo] | None,
    first: Callable[[Run], str | None],
    said: str,
    *,
    resume: bool,
    as_json: bool,
) -> None:
    """Let runs go on; with ``resume`` the only one here, which ends the command."""
    if found is not None and resume:
        _resume_one(hf, found, first, as_json=as_json)
    if found is not None:
        act(hf, found, first, said, as_json=as_json)


def _resume_one(hf: Holdfast, found: list[RunInfo], first: Callable[[Run], str | None], *, as_json: bool) -> None:
    if len(found) != 1:
        raise UsageError(f"--resume goes on with one run here, and these are {len(found)}; have a worker for more")
    run = hf.get(found[0].id)
    check_can_go_on(hf, run)
    first(run)
    resume_here(hf, run, as_json=as_json)


@command("unblock", "holdfast unblock order-17 --by operations", "holdfast unblock --workflow fulfil --yes")
@many_options
@by_option
@resume_option
@with_store()
def unblock_command(
    hf: Holdfast,
    runs: tuple[str, ...],
    wanted: dict[str, Any],
    dry_run: bool,
    yes: bool,
    by: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Let blocked runs go on: those that are named, or all that a filter finds (previewed).

    `holdfast show` tells why a run is blocked; see to that first.

    JSON: as of `holdfast cancel`; with --resume as of `holdfast run`.
    """
    found = chosen(hf, "unblock", runs, wanted, ("blocked",), Mode(dry_run, yes, as_json))
    _go_on(hf, found, partial(_unblock, by=by), "is {status}", resume=resume, as_json=as_json)
