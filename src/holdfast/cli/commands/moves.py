"""`holdfast move`: runs and schedules into another store."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import click

from holdfast.cli.bars import counting
from holdfast.cli.codes import CLAIMED, DAMAGED, DONE, REFUSED
from holdfast.cli.options import DURATION, command, filter_options, opened
from holdfast.cli.rendering import COLOURS, console, say, write_json
from holdfast.errors import UsageError
from holdfast.present.words import one_line
from holdfast.views import LeftBehind, MoveReport

LINES = 20  # of those that were left
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
        _show(report)
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


def _show(report: MoveReport) -> None:
    from rich.text import Text

    where, would = console(), "to be moved" if report.dry_run else "moved"
    for name, found, level in (
        (f"runs {would}", report.moved, "ok"),
        (f"schedules {would}", report.schedules, "ok"),
        ("queues' settings", report.queues, "ok"),
        ("left", report.left, "problem"),
    ):
        style = COLOURS[level] if found else "dim"
        where.print(Text(f"{name:<21}", style="dim").append(f"  {len(found):>7,}", style=style))
    for one in report.left[:LINES]:
        say(one_line(f"✗ {one.why}"))
    if len(report.left) > LINES:
        say(f"… and {len(report.left) - LINES} more; --json lists all")
    if report.left and not report.dry_run:
        say(f"{len(report.left):,} left behind; the same command tries them again.")
