"""The view at a terminal: lines that stay, and below them what is being done, redrawn a few times a second.

All drawing is done by one thread. What a workflow prints meanwhile is taken line by line, and put above.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO

from holdfast.cli.rendering import COLOURS, MARKS, console, one_line, span
from holdfast.cli.story import Follower, Told, fan_name, fan_of, node_of, step_name

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.text import Text

FEW = 8  # lines of what is being done; and the branches of a map that are shown one by one
WIDTH = 30  # of a bar
LINE_MARKS = MARKS | {
    "retrying": "↻",
    "answered": "→",
    "note": "·",
    "output": "»",
    "timer": "◷",
    "undone": "↶",
    "undo_failed": "✗",
    "uncertain": "?",
    "warning": "!",
    "printed": " ",
}
_COLOURS = COLOURS | {"answered": "green", "note": "bright_black", "output": "", "timer": "yellow", "printed": "dim"}
_LOUD = frozenset({"failed", "waiting", "undo_failed", "warning", "printed"})

Fan = tuple[str, str]  # the run, and the call in it


class LiveView:
    """Shows a run at a terminal. With ``asks``, questions and answers are shown by whoever asks them."""

    def __init__(self, *, asks: bool = False) -> None:
        from rich.spinner import Spinner

        self._left_out = frozenset({"waiting", "answered"} if asks else ())
        self._console = console()
        self._spinner = Spinner("dots", style="cyan")
        self._bars: dict[Fan, tuple[int, int]] = {}  # how many branches have ended, and of how many
        self._counts: dict[Fan, int] = {}  # steps that were done in a call of which nobody here knows the whole
        self._live: Live | None = None
        self._printed = _Printed()

    def start(self) -> None:
        """Begin to draw, or go on after `stop`."""
        from rich.live import Live

        self._live = Live(
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()
        self._printed.begin()

    def stop(self) -> None:
        """Take away what is redrawn, and leave the rest."""
        if self._live is not None:
            live, self._live = self._live, None
            self._printed.end()
            self._show_printed()
            live.stop()

    def show(self, follower: Follower) -> None:
        """Show what is new, and draw what is being done."""
        from rich.console import Group
        from rich.text import Text

        found = follower.entries()
        self._look_at_bars(follower)
        self._show_printed()
        for one, entry in found:
            for told in one.story.tell(entry):
                self._show_line(one, told)
        if self._live is not None:
            lines = list(self._lines(follower))
            more = [Text(f"  … and {len(lines) - FEW} more", style="dim")] if len(lines) > FEW else []
            self._live.update(Group(*lines[:FEW], *more), refresh=True)

    def warn(self, text: str) -> None:
        """Show something that Holdfast warns of."""
        self._printed.put(Told("warning", one_line(text)))

    def output(self, run: str, step: str, stream: str, text: str) -> None:
        """Show a line that a command of a flow printed."""
        self._printed.put(Told("printed", f"{step} │ {one_line(text)}"))

    def leave(self) -> None:
        """Show how far the maps came that are not done."""
        for (_, name), (done, total) in self._bars.items():
            if done < total and total > FEW:
                self._console.print(styled(Told("note", fan_name(name), f"{done} of {total}")))

    # --- lines that stay

    def _show_printed(self) -> None:
        from rich.text import Text

        for line in self._printed.lines():
            self._console.print(styled(line) if isinstance(line, Told) else Text.from_ansi(line))

    def _show_line(self, one: Follower, told: Told) -> None:
        fan = (one.id, told.fan or "")
        for other in [known for known in self._counts if known[0] == one.id and known != fan]:
            if (count := self._counts.pop(other)) > FEW:  # something else is done: it has ended
                self._console.print(styled(Told("done", fan_name(other[1]), f"{count} steps", depth=told.depth)))
        if told.status in self._left_out:
            return
        if told.fan and told.status == "done":
            total = one.story.total(told.fan, {name: bar for (id, name), bar in self._bars.items() if id == one.id})
            if total is not None:
                if total > FEW:
                    return
            else:
                self._counts[fan] = self._counts.get(fan, 0) + 1
                if self._counts[fan] > FEW:
                    return
        self._console.print(styled(told))

    def _look_at_bars(self, follower: Follower) -> None:
        for one in follower.family():
            for name, (done, total) in one.branches().items():
                fan = (one.id, name)
                if done < total:
                    self._bars[fan] = (done, total)
                elif self._bars.get(fan, (total, total))[0] < total:  # it was seen going on, and has ended since
                    self._bars[fan] = (done, total)
                    if total > FEW and node_of(f"{name}/") is None:  # else the node has a line of its own
                        line = Told("done", fan_name(name), f"{total} of {total}", depth=one.story.depth)
                        self._console.print(styled(line))

    # --- what is being done

    def _lines(self, follower: Follower) -> Iterator[RenderableType]:
        from rich.text import Text

        frame = self._spinner.render(self._console.get_time())
        assert isinstance(frame, Text)
        for one in follower.family():
            if not one.is_running:
                continue
            inset, steps = "  " * one.story.depth, one.steps()
            going = {fan_name(fan): count for fan, count in one.branches().items() if count[0] < count[1]}
            bars = {name: count for name, count in (going | one.story.maps).items() if count[1] > FEW}
            for name, (done, total) in bars.items():
                yield bar(inset, frame, name, done, total)
            for node, since in one.story.queue.items():
                if node not in bars:
                    yield running(inset, frame, node, "", (datetime.now(UTC) - since).total_seconds())
            for key, seconds in sorted(steps.items(), key=lambda item: -item[1]):
                fan = fan_of(key)
                if (fan is None or fan_name(fan) not in bars) and node_of(key) != step_name(key):
                    yield step_line(one, inset + "  " * one.story.inset(key), frame, key, seconds)
        for (_, fan), count in self._counts.items():
            if count > FEW:
                yield Text().append_text(frame).append(f" {fan_name(fan):<16}").append(f"  {count} steps", style="dim")
        for one in follower.family():
            for wait in one.story.waits.values():
                yield waiting("  " * one.story.depth, wait.text, wait.until)


class _Printed:
    """What is printed while the screen is drawn: taken line by line, by whatever thread prints it."""

    def __init__(self) -> None:
        self._lines: SimpleQueue[str | Told] = SimpleQueue()
        self._streams: list[tuple[str, TextIO, _Line]] = []

    def begin(self) -> None:
        """Stand in for those of the standard streams that are this terminal."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream.isatty():
                line = _Line(self._lines, stream)
                self._streams.append((name, stream, line))
                setattr(sys, name, line)

    def end(self) -> None:
        """Give the streams back."""
        for name, stream, line in self._streams:
            line.finish()
            setattr(sys, name, stream)
        self._streams.clear()

    def put(self, line: Told) -> None:
        """Add a line of our own."""
        self._lines.put(line)

    def lines(self) -> Iterator[str | Told]:
        """The lines that came since."""
        while True:
            try:
                yield self._lines.get_nowait()
            except Empty:
                return


class _Line(io.TextIOBase):
    """A stream that gives its lines to a queue; what else is asked of it is what the real one says."""

    def __init__(self, lines: SimpleQueue[str | Told], stream: TextIO) -> None:
        self._queue = lines
        self._stream = stream
        self._begun = ""

    def write(self, text: str) -> int:
        *whole, self._begun = (self._begun + text).split("\n")
        for line in whole:
            self._queue.put(line)
        return len(text)

    def finish(self) -> None:
        """Give the line that was begun, too."""
        if self._begun:
            self._queue.put(self._begun)
            self._begun = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


# --- lines


def step_line(one: Follower, inset: str, frame: Text, key: str, seconds: float) -> Text:
    """A step that is being carried out."""
    attempt = one.story.attempts.get(key, 1)
    parts = [one.story.targets.get(key, ""), f"attempt {attempt}" if attempt > 1 else ""]
    return running(inset, frame, step_name(key), one_line(", ".join(part for part in parts if part)), seconds)


def running(inset: str, frame: Text, name: str, detail: str, seconds: float) -> Text:
    """Something that is being done."""
    from rich.text import Text

    text = Text(inset).append_text(frame).append(f" {one_line(name):<16}")
    return text.append(f"  {detail}" if detail else "", style="dim").append(f"  {span(seconds)}", style="cyan")


def bar(inset: str, frame: Text, name: str, done: int, total: int) -> Text:
    """How far a ``gather`` or ``map`` is."""
    from rich.text import Text

    full = round(WIDTH * done / total)
    text = Text(inset).append_text(frame).append(f" {one_line(name):<16}  ")
    text.append("━" * full, style="green").append("━" * (WIDTH - full), style="bright_black")
    return text.append(f"  {done}/{total}", style="cyan")


def waiting(inset: str, what: str, until: datetime | None) -> Text:
    """Something that is waited for."""
    from rich.text import Text

    left = "" if until is None else f"  in {span(max((until - datetime.now(UTC)).total_seconds(), 0))}"
    return Text(inset).append(f"◷ {one_line(what)}", style="yellow").append(left, style="dim")


def styled(told: Told) -> Text:
    """A line in colours."""
    from rich.text import Text

    colour = _COLOURS.get(told.status, "")
    text = Text("  " * told.depth).append(LINE_MARKS.get(told.status, "·"), style=colour)
    name = told_name(told)
    wide = told.detail or told.seconds is not None
    text.append(f" {name:<16}" if wide else f" {name}", style=colour if told.status in _LOUD else "")
    if told.detail:
        text.append(f"  {told.detail}", style="red" if told.status == "failed" else "dim")
    if told.seconds is not None:
        text.append(f"  {span(told.seconds)}", style="dim")
    return text


def plain(told: Told) -> str:
    """A line without colours."""
    detail = f"  {told.detail}" if told.detail else ""
    seconds = f"  {span(told.seconds)}" if told.seconds is not None else ""
    return f"{'  ' * told.depth}{LINE_MARKS.get(told.status, '·')} {told_name(told)}{detail}{seconds}"


def told_name(told: Told) -> str:
    """What a line is about, with the map that it is a part of."""
    fan = one_line(fan_name(told.fan)) if told.fan is not None else told.text
    return told.text if fan == told.text else f"{fan} {told.text}"
