"""`holdfast export`, `backup` and `restore`: runs in one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import click

from holdfast.cli.commands.lists import every_run
from holdfast.cli.options import command, filter_options, runs_argument, with_store
from holdfast.cli.remedies import command_line
from holdfast.cli.rendering import say, write_json
from holdfast.engine.admin import backup
from holdfast.engine.app import Holdfast
from holdfast.errors import StoreError, UsageError
from holdfast.present.words import counted

_LINES = 20  # of what is blocked or paused


@command(
    "export",
    "holdfast export order-17 --output order-17.holdfast",
    "holdfast export --status failed --since 1d --output failed.holdfast",
)
@runs_argument
@filter_options
@click.option("--output", "-o", required=True, type=click.Path(dir_okay=False), help="The file to write.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@with_store()
def export_command(
    hf: Holdfast, runs: tuple[str, ...], wanted: dict[str, Any], output: str, force: bool, as_json: bool
) -> None:
    """Copy runs into one file: those that are named, or all that a filter finds.

    What they need is copied with them: the runs that they were forked from, and their children. What is encrypted stays
    encrypted. `holdfast import` takes the file in, in any store.

    JSON: {"file": path, "runs": n}.
    """
    if bool(runs) == bool(wanted):
        raise UsageError("name the runs to export, or say which by --status, --workflow and so on; not both")
    _spare(output, force)
    ids = runs or tuple(info.id for info in every_run(hf, **wanted))
    try:
        count = hf.backup(output, runs=ids)
    except StoreError as error:
        if error.place != output:
            raise
        raise StoreError(output, str(error).removeprefix(f"backup {output}: "), what="export") from error
    _told(output, count, as_json=as_json)


@command("backup", "holdfast backup /backups/today.holdfast")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@with_store()
def backup_command(hf: Holdfast, file: str, force: bool, as_json: bool) -> None:
    """Copy the whole store into one file, while others work. The file is complete, or it is not there.

    In it are all runs, what is set about queues, the schedules and the hooks.

    JSON: {"file": path, "runs": n}.
    """
    _spare(file, force)
    _told(file, hf.backup(file), as_json=as_json)


def _spare(path: str, force: bool) -> None:
    if os.path.exists(path) and not force:
        raise UsageError(f"{path}: this file is there already; --force writes over it")


def _told(path: str, count: int, *, as_json: bool) -> None:
    if as_json:
        write_json({"file": path, "runs": count})
    else:
        say(f"{counted(count, 'run')} in {path}.")


@command("restore", "holdfast restore /backups/today.holdfast --store sqlite:///new.db")
@click.argument("file", type=click.Path(dir_okay=False))
@with_store(make=True)
def restore_command(hf: Holdfast, file: str, as_json: bool) -> None:
    """Take in all that is in a backup: its runs, what is set about queues, the schedules and the hooks.

    Nothing is restored if the file is damaged, or has a run that is here already and went on; what an earlier restore
    of it has brought is left as it is. A run that had not ended is blocked, as with `holdfast import`, and schedules
    and hooks are paused: the original may go on elsewhere. Those that are here under the same name stay.

    JSON: {"file": path, "runs": [id, …], "already": [id, …], "blocked": [id, …], "schedules": [id, …], "hooks": [name,
    …]}: what was taken in, what was here, and what of it is blocked or paused.
    """
    take_in(hf, file, as_json=as_json)


def take_in(hf: Holdfast, file: str, *, as_json: bool, words: backup.Words = backup.OF_BACKUPS) -> None:
    """Take in what is in a file, and tell what of it is blocked or paused, and how that goes on."""
    if not os.path.exists(file):
        raise FileNotFoundError(f"there is no file {file}")
    found = backup.take_in(hf.client.store, file, words)
    if as_json:
        write_json({"file": file, **found._asdict()})
        return
    say(_counts(found))
    _tell_resting("blocked, since it had not ended", found.blocked, lambda id: command_line("unblock", id))
    _tell_resting("paused schedule", found.schedules, lambda id: command_line("schedule", id, options=["--resume"]))
    _tell_resting("paused hook", found.hooks, lambda name: command_line("hook", name, options=["--resume"]))


def _counts(found: backup.TakenIn) -> str:
    if found.already and not found.runs:
        were = "the run of the file is" if len(found.already) == 1 else f"all {len(found.already):,} runs of it are"
        return f"Nothing was taken in: {were} here already."
    here = f"; {len(found.already):,} of the file were here already" if found.already else ""
    return f"Taken in: {counted(len(found.runs), 'run')}{here}."


def _tell_resting(what: str, names: Sequence[str], way: Callable[[str], str]) -> None:
    """A line for each, with the command that lets it go on."""
    for name in names[:_LINES]:
        say(f"  {what}: {way(name)}")
    if len(names) > _LINES:
        say(f"  … and {len(names) - _LINES:,} more; --json would list all")
