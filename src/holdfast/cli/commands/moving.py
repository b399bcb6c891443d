"""`holdfast import`: runs that were exported, and what other systems left behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.bars import counting
from holdfast.cli.codes import DAMAGED, DONE, REFUSED
from holdfast.cli.commands.archives import take_in
from holdfast.cli.options import command, opened, store_option
from holdfast.cli.rendering import COLOURS, console, say, write_json
from holdfast.engine.admin import backup
from holdfast.engine.app import Holdfast
from holdfast.errors import StoreNotFound, UsageError
from holdfast.present.words import one_line

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast.importers import Summary

LANGGRAPH = "langgraph"
LINES = 20  # of each kind of thing that went wrong


def _complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The systems, and files."""
    from click.shell_completion import CompletionItem

    names = [CompletionItem(name) for name in systems() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


@command(
    "import",
    "holdfast import order-17.holdfast --store sqlite:///copy.db",
    "holdfast import car ./checkpoints --dry-run",
    "holdfast import mur ~/.mur/commander/checkpoints --prefix mur/",
    "holdfast import langgraph sqlite:///checkpoints.sqlite",
)
@click.argument("source", metavar="FILE|SYSTEM", shell_complete=_complete)
@click.argument("path", required=False, metavar="[PATH|URL]", type=click.Path())
@click.option("--dry-run", is_flag=True, help="Of another system: show what would be imported, and write nothing.")
@click.option("--prefix", metavar="TEXT", help="Of another system: what the ids of its runs begin with here.")
@store_option
def import_command(
    source: str, path: str | None, dry_run: bool, prefix: str | None, store: str | None, as_json: bool
) -> None:
    """Take in the runs of an exported file, or what another system left behind.

    Of a FILE of `holdfast export`, nothing is taken in if it is damaged, or has a run that is here. A run that had not
    ended is blocked: the original may go on elsewhere, and a copy must not repeat what it does. `holdfast unblock` lets
    it go on.

    SYSTEM is brainwires, car, mur, simple-agents or wesichain, with the folder (or a file of it), or langgraph, with
    the URL or the file of its database. They are only read. Runs keep their ids. What is here already is left alone,
    so it may be called again; the exit status is 7 if something was damaged, and 9 if something was refused.

    JSON: of a file as of `holdfast restore`; of another system {"system": …, "dry_run": …, "imported": [id, …],
    "already": [id, …], "damaged": [{"source": …, "place": …, "why": …}, …], "refused": [{"source": …, "run": id, "why":
    …}, …], "notes": [{"run": id, "text": …}, …]}.
    """
    ctx = click.get_current_context()
    if path is None:
        if source in systems() and not os.path.exists(source):
            raise UsageError(f"where are the runs of {source}? name their folder: `holdfast import {source} PATH`")
        if dry_run or prefix is not None:
            raise UsageError(f"{source}: --dry-run and --prefix are for other systems: {', '.join(systems())}")
        take_in(ctx.with_resource(opened(store, make=True)), source, as_json=as_json, words=backup.OF_EXPORTS)
        return
    reader = _reader(source)
    hf = ctx.with_resource(_nothing_written(store) if dry_run else opened(store, make=True))
    try:
        with counting(shown=sys.stdout.isatty() and not as_json) as count:
            progress = None if count is None else lambda at: count(at.done, at.total, at.latest)
            summary = reader(path, hf, dry_run=dry_run, progress=progress, prefix=prefix or "")
    except KeyboardInterrupt:
        say("\nInterrupted. What was imported stays; the same command goes on with the rest.", err=True)
        raise
    if as_json:
        write_json(summary)
    else:
        _show(summary)
    ctx.exit(DAMAGED if summary.damaged else REFUSED if summary.refused else DONE)


def systems() -> list[str]:
    """The systems whose runs can be imported."""
    from holdfast.importers import SYSTEMS

    return sorted([*SYSTEMS, LANGGRAPH])


def _reader(system: str) -> Callable[..., Summary]:
    """What imports from a system: ``reader(path, hf, dry_run=, progress=, prefix=)``."""
    from holdfast.importers import SYSTEMS

    if system in SYSTEMS:
        return SYSTEMS[system].run
    if system == LANGGRAPH:
        return _from_langgraph
    from difflib import get_close_matches

    near = get_close_matches(system, systems(), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UsageError(f"{system!r} is none of the systems {', '.join(systems())}{hint}")


def _from_langgraph(path: str, hf: Holdfast, **how: Any) -> Summary:
    try:
        from holdfast.importers.langgraph import import_langgraph
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "langgraph":
            raise
        raise UsageError("to import from LangGraph needs an extra: pip install 'holdfast[langgraph]'") from None
    return import_langgraph(path if "://" in path else f"sqlite:///{path}", hf, **how)


def _nothing_written(store: str | None) -> Holdfast:
    """The store, to be looked into; one that is not there is empty, and is not made for that."""
    try:
        return opened(store)
    except StoreNotFound:
        return opened("memory://")


def _show(summary: Summary) -> None:
    from rich.text import Text

    where, would = console(), "to be imported" if summary.dry_run else "imported"
    counts = ((would, summary.imported, "ok"), ("already there", summary.already, ""))
    wrong = (("damaged", summary.damaged, "problem"), ("refused", summary.refused, "problem"))
    for name, found, level in (*counts, *wrong):
        style = COLOURS.get(level, "") if found else "dim"
        where.print(Text(f"{name:<14}", style="dim").append(f"  {len(found):>7,}", style=style))
    _list((f"✗ {one.source}, at {one.place}: {one.why}" for one in summary.damaged), len(summary.damaged))
    _list((f"✗ {one.run} ({one.source}): {one.why}" for one in summary.refused), len(summary.refused))
    _list((f"· {one.run}: {one.text}" if one.run else f"· {one.text}" for one in summary.notes), len(summary.notes))


def _list(lines: Iterable[str], count: int) -> None:
    for _, line in zip(range(LINES), lines, strict=False):
        say(one_line(line))
    if count > LINES:
        say(f"… and {count - LINES} more; --json lists all")
