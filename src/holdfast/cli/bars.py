"""A bar that shows how far something is that takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.cli.rendering import console
from holdfast.present.words import one_line

Count = Callable[[int, int, str], None]


@contextmanager
def counting(*, shown: bool) -> Iterator[Count | None]:
    """What shows how many of how many are done, and the latest of them; None if nobody is to see it."""
    if not shown:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    with Progress(
        BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False),
        console=console(), transient=True,
    ) as bar:  # fmt: skip
        task = bar.add_task("", total=None)
        yield lambda done, total, latest: bar.update(task, completed=done, total=total, description=one_line(latest))
