"""`holdfast move` and `import`: runs from a file, from another system, or into another store."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.bars import counting
from holdfast.cli.codes import CLAIMED, DAMAGED, DONE, REFUSED
from holdfast.cli.commands.archives import take_in
from holdfast.cli.options import DURATION, command, filter_options, opened, store_option
from holdfast.cli.rendering import COLOURS, console, say, write_json
from holdfast.engine.admin import backup
from holdfast.engine.app import Holdfast
from holdfast.errors import StoreNotFound, UsageError
from holdfast.present.words import one_line
from holdfast.views import LeftBehind, MoveReport

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from holdfast.importers import Summary

LANGGRAPH = "langgraph"
LINES = 20  # of each kind of thing that went wrong
_CODES = {"Claimed": CLAIMED, "LeaseLost": CLAIMED, "RunDamaged": DAMAGED, "StoreDamaged": DAMAGED}


@command(
    "move",
    "holdfast move sqlite:///runs.db postgresql://app@db.example/shop --dry-run",
    "holdfast move sqlite:///runs.db postgresql://app@db.example/shop",
    "holdfast move files:///runs sqlite:///runs.db --workflow fulfil --status completed",
)
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
@filter_options
@click.option("--timeout", type=DURATION, help="How long to wait for runs that others hold. Else: as long as it takes.")
@click.option("--dry-run", is_flag=True, help="Show what would be moved, and do nothing.")
def move_command(
    source: str, target: str, wanted: dict[str, Any], timeout: timedelta | None, dry_run: bool, as_json: bool
) -> None:
    """Move runs from one store into another, both named by their URLs, while others work.

    With a run go its children, and what started it. It is claimed, copied as it is stored, verified, and marked at the
    source: from then on whatever is wanted of it there is refused, with the place where it is now. Its history can
    still be read there, until `holdfast prune --status away`. Where all runs are moved, the schedules go, too, and what
    is set about queues is copied.

    It may be interrupted, or killed, at any moment: the same command again goes on with the rest. A run that somebody
    drives is waited for. The exit status is 7 if one is damaged, 6 or 9 if some were left.

    JSON: {"moved": [id, …], "schedules": [id, …], "queues": [name, …], "left": [{"id": …, "why": …, "error": …}, …],
    "dry_run": …}.
    """
    for url in (source, target):
        if url.startswith("memory:"):
            raise UsageError(f"{url}: what is in memory ends with this command; name a store that lasts")
    ctx = click.get_current_context()
    hf = ctx.with_resource(opened(source))
    to = ctx.with_resource(opened("memory://" if dry_run and _is_new(target) else target, make=True))
    seen = [0, 0]
    try:
        with counting(shown=sys.stdout.isatty() and not as_json) as count:

            def progress(done: int, total: int, latest: str) -> None:
                seen[:] = done, total
                if count is not None:
                    count(done, total, latest)

            seconds = None if timeout is None else timeout.total_seconds()
            report = hf.move(to, **wanted, timeout=seconds, dry_run=dry_run, progress=progress)
    except KeyboardInterrupt:
        rest = f" {seen[1] - seen[0]} of {seen[1]} remain;" if seen[1] else ""
        say(f"\nInterrupted. What was moved stays moved;{rest} the same command goes on.", err=True)
        raise
    if as_json:
        write_json(report)
    else:
        _show_moved(report)
    ctx.exit(_code(report.left))


def _is_new(url: str) -> bool:
    """Whether there is no store yet, so that one which is only looked into is not made."""
    import os

    from holdfast.cli.options import path_of

    path = path_of(url)
    return path is not None and not os.path.exists(path)


def _code(left: tuple[LeftBehind, ...]) -> int:
    """What is damaged comes first, then what cannot be moved there, then what somebody held."""
    found = {_CODES.get(one.error, REFUSED) for one in left}
    return next((code for code in (DAMAGED, REFUSED, CLAIMED) if code in found), DONE)


def _show_moved(report: MoveReport) -> None:
    would = "to be moved" if report.dry_run else "moved"
    _counts(
        (f"runs {would}", len(report.moved), "ok"),
        (f"schedules {would}", len(report.schedules), "ok"),
        ("queues' settings", len(report.queues), "ok"),
        ("left", len(report.left), "problem"),
    )
    _list((f"✗ {one.why}" for one in report.left), len(report.left))
    if report.left and not report.dry_run:
        say(f"{len(report.left):,} left behind; the same command tries them again.")


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
        _show_imported(summary)
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


def _show_imported(summary: Summary) -> None:
    _counts(
        ("to be imported" if summary.dry_run else "imported", len(summary.imported), "ok"),
        ("already there", len(summary.already), ""),
        ("damaged", len(summary.damaged), "problem"),
        ("refused", len(summary.refused), "problem"),
    )
    _list((f"✗ {one.source}, at {one.place}: {one.why}" for one in summary.damaged), len(summary.damaged))
    _list((f"✗ {one.run} ({one.source}): {one.why}" for one in summary.refused), len(summary.refused))
    _list((f"· {one.run}: {one.text}" if one.run else f"· {one.text}" for one in summary.notes), len(summary.notes))


def _counts(*rows: tuple[str, int, str]) -> None:
    from rich.text import Text

    where, width = console(), max(14, *(len(name) for name, _, _ in rows))
    for name, count, level in rows:
        style = COLOURS.get(level, "") if count else "dim"
        where.print(Text(f"{name:<{width}}", style="dim").append(f"  {count:>7,}", style=style))


def _list(lines: Iterable[str], count: int) -> None:
    for _, line in zip(range(LINES), lines, strict=False):
        say(one_line(line))
    if count > LINES:
        say(f"… and {count - LINES} more; --json lists all")
