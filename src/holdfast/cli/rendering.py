"""How things look: JSON for programs; calm text, lists and colours for people.

`rich` is loaded only when something is shown to a person. Without a terminal, or with ``NO_COLOR``, there are no
colours, and lines are as long as they are.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

from holdfast.cli.remedies import in_commands, typed
from holdfast.engine.app import Holdfast
from holdfast.present.status import Standing, remark, standings
from holdfast.present.words import ago, one_line, printable, word, workflow_of
from holdfast.views import RunInfo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

COLOURS = {
    "completed": "green",
    "done": "green",
    "undone": "green",
    "ok": "green",
    "running": "cyan",
    "ready": "cyan",
    "started": "cyan",
    "waiting": "yellow",
    "asks": "yellow",
    "delayed": "yellow",
    "answered": "green",
    "retrying": "yellow",
    "uncertain": "yellow",
    "repeated": "yellow",
    "left": "yellow",
    "warning": "yellow",
    "blocked": "magenta",
    "died": "red",
    "failed": "red",
    "raised": "red",
    "undo_failed": "red",
    "problem": "red",
    "cancelled": "bright_black",
    "away": "bright_black",
}
_WIDEST = 48  # columns of a cell that is not the last of its line, where the width does not do for all
_LAST = 16  # columns that the last cell has in any case
_GAP = 2  # between two columns
_PIPED = 200  # columns, where there is no terminal that has a width


def write_json(value: Any, stream: TextIO | None = None) -> None:
    """One line of JSON on standard output."""
    click.echo(_harmless(msgspec.json.encode(value, enc_hook=str).decode()), file=stream)


def _harmless(text: str) -> str:
    """The same JSON, with escapes for what a terminal might obey, or not show, inside of its texts."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


def console(*, width: int | None = None) -> Console:
    """Where people read; as wide as it is, unless said otherwise."""
    stream = sys.stdout
    if width is None and not stream.isatty() and not os.environ.get("COLUMNS"):
        width = _PIPED
    return _kind_of_console()(file=stream, highlight=False, width=width, soft_wrap=not stream.isatty())


@cache
def _kind_of_console() -> type[Console]:
    from rich.console import Console

    class Piped(Console):
        """A console that leaves it to us what to do when nobody reads any longer; rich would end the process."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped


@contextmanager
def heard_or_not() -> Iterator[None]:
    """Go on quietly if whoever read the output has gone: what is done does not depend on being looked at."""
    try:
        yield
    except BrokenPipeError:
        fall_silent()


def is_read() -> bool:
    """Whether somebody may still read what goes to standard output; of a pipe, its reader may have gone."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # it is no file at all
        return True
    poll = select.poll()
    poll.register(number, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def fall_silent() -> None:
    """From now on, what goes to standard output goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """A line for people, as it is."""
    click.echo(text, err=err, nl=nl)


def status_text(status: str) -> Text:
    """A status in its colour."""
    from rich.text import Text

    return Text(word(status), style=COLOURS.get(status, ""))


def columns(titles: Sequence[str], rows: Iterable[Sequence[Any]], *, right: Sequence[str] = ()) -> None:
    """A list in columns, with nothing but space between them. The last one is cut where the width ends.

    No column is left out: a terminal that is too narrow for them breaks the lines.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [
        [cell if isinstance(cell, Text) else Text("" if cell is None else one_line(cell)) for cell in row]
        for row in rows
    ]
    wanted = [max([len(title), *(row[n].cell_len for row in cells)]) for n, title in enumerate(titles)]
    widths = column_widths(wanted, console().width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim", show_edge=False)
    for title, width in zip(titles, widths, strict=True):
        justify: Any = "right" if title in right else "left"
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis", width=width)
    for row in cells:
        table.add_row(*row)
    console(width=sum(widths) + _GAP * len(widths)).print(table, soft_wrap=False, crop=False)


def column_widths(wanted: Sequence[int], width: int) -> list[int]:
    """How wide the columns of a list are: the last one has what the others leave, and they what they want if it does.

    Every column is at least one wide, since rich leaves out those that are not.
    """
    *first, last = (max(one, 1) for one in wanted)
    if sum(first) + _GAP * len(first) + min(last, _LAST) > width:
        first = [min(one, _WIDEST) for one in first]
    left = width - sum(first) - _GAP * len(first)
    return [*first, min(last, max(left, _LAST))]


def pairs(rows: Iterable[tuple[str, Any]]) -> None:
    """Names and values below each other; what is None is left out."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value is not None and value != "":
            table.add_row(name, value if isinstance(value, Text) else Text(one_line(value)))
    console().print(table, soft_wrap=False)


def escaped(value: Any) -> str:
    """The same for text with rich's markup around it."""
    from rich.markup import escape

    return escape(one_line(value))


def pretty(value: Any) -> None:
    """A value as indented JSON, coloured at a terminal; a text as it is."""
    if isinstance(value, str):
        say(printable(value))
        return
    text = _harmless(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())
    where = console()
    if where.is_terminal and not where.no_color:
        from rich.syntax import Syntax

        where.print(Syntax(text, "json", theme="ansi_dark", background_color="default", word_wrap=True))
    else:
        say(text)


# --- runs

RUN_TITLES = ("run", "status", "workflow", "created", "entries", "")


def run_rows(hf: Holdfast, infos: Sequence[RunInfo]) -> list[list[Any]]:
    """Runs as rows of `RUN_TITLES`."""
    return [
        [info.id, status_text(one.look), workflow_of(info), ago(info.created_at), info.seq + 1, note_of(info, one)]
        for info, one in zip(infos, standings(hf, infos), strict=True)
    ]


def note_of(info: RunInfo, stands: Standing) -> str:
    """What there is to say about a run in a line, with a command where one helps."""
    note = in_commands(stands.told, info.id) or remark(info)
    return f"{note}: {typed(stands.worker)}" if stands.worker is not None else note
