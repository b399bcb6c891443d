"""`holdfast export`, `backup` and `restore`: runs in one file."""

from __future__ import annotations

import os
from typing import Any

import click

from holdfast.cli.commands.lists import every_run
from holdfast.cli.options import command, filter_options, runs_argument, with_store
from holdfast.cli.rendering import counted, say, write_json
from holdfast.engine import Holdfast
from holdfast.errors import UsageError


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
    count = hf.backup(output, runs=ids)
    _told(output, count, as_json=as_json)


@command("backup", "holdfast backup /backups/today.holdfast")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@with_store()
def backup_command(hf: Holdfast, file: str, force: bool, as_json: bool) -> None:
    """Copy the whole store into one file, while others work. The file is complete, or it is not there.

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
    """Take in all runs of a backup. Nothing is restored if the file is damaged, or has a run that is here already.

    A run that had not ended is blocked, as with `holdfast import`.

    JSON: {"file": path, "blocked": [id, …]}.
    """
    take_in(hf, file, as_json=as_json)


def take_in(hf: Holdfast, file: str, *, as_json: bool) -> None:
    """Take in the runs of a file, and tell which of them are blocked."""
    if not os.path.exists(file):
        raise FileNotFoundError(f"there is no file {file}")
    blocked = hf.restore(file)
    if as_json:
        write_json({"file": file, "blocked": blocked})
        return
    say("Taken in.")
    if blocked:
        are = "is" if len(blocked) == 1 else "are"
        say(f"{len(blocked)} had not ended, and {are} blocked: `holdfast unblock RUN` lets one go on.")
