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

from holdfast.cli.rendering import COLOURS, console
from holdfast.present.follower import Follower
from holdfast.present.names import fan_name, fan_of, node_of, step_name
from holdfast.present.timeline import SECOND, Line, inset
from holdfast.present.words import joined, mark, one_line, span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.text import Text

FEW = 8  # lines of what is being done; and the branches of a map that are shown one by one
WIDTH = 30  # of a bar
_COLOURS = COLOURS | {"note": "bright_black", "printed": "dim"}
_LOUD = frozenset({"failed", "asks", "undo_failed", "warning", "printed"})

Fan = tuple[str, str]  # the run, and the call in it


class LiveView:
    """Shows a run at a terminal. With ``asks``, questions and answers are shown by whoever asks them."""

    def __init__(self, *, asks: bool = False) -> None:
        from rich.spinner import Spinner

        self._left_out = frozenset({"asks", "answered"} if asks else ())
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
            for line in one.add(entry):
                self._show_line(one, line)
        if self._live is not None:
            lines = list(self._lines(follower))
            more = [Text(f"  … and {len(lines) - FEW} more", style="dim")] if len(lines) > FEW else []
            self._live.update(Group(*lines[:FEW], *more), refresh=True)

    def warn(self, text: str) -> None:
        """Show something that Holdfast warns of."""
        self._printed.put(Line("warning", one_line(text)))

    def output(self, run: str, step: str, stream: str, text: str) -> None:
        """Show a line that a command of a flow printed."""
        self._printed.put(Line("printed", f"{step} │ {one_line(text)}"))

    def leave(self) -> None:
        """Show how far the maps came that are not done."""
        for (_, name), (done, total) in self._bars.items():
            if done < total and total > FEW:
                self._console.print(styled(Line("note", fan_name(name), f"{done} of {total}")))

    # --- lines that stay

    def _show_printed(self) -> None:
        from rich.text import Text

        for line in self._printed.lines():
            self._console.print(styled(line) if isinstance(line, Line) else Text.from_ansi(line))

    def _show_line(self, one: Follower, line: Line) -> None:
        fan = (one.id, line.fan or "")
        for other in [known for known in self._counts if known[0] == one.id and known != fan]:
            if (count := self._counts.pop(other)) > FEW:  # something else is done: it has ended
                self._console.print(styled(Line("done", fan_name(other[1]), f"{count} steps", depth=line.depth)))
        if line.status in self._left_out:
            return
        if line.fan and line.status == "done":
            known = one.timeline.maps.get(fan_name(line.fan)) or self._bars.get(fan)
            if known is not None:
                if known[1] > FEW:
                    return
            else:
                self._counts[fan] = self._counts.get(fan, 0) + 1
                if self._counts[fan] > FEW:
                    return
        self._console.print(styled(line))

    def _look_at_bars(self, follower: Follower) -> None:
        for one in follower.family():
            for name, (done, total) in one.branches().items():
                fan = (one.id, name)
                if done < total:
                    self._bars[fan] = (done, total)
                elif self._bars.get(fan, (total, total))[0] < total:  # it was seen going on, and has ended since
                    self._bars[fan] = (done, total)
                    if total > FEW and node_of(f"{name}/") is None:  # else the node has a line of its own
                        line = Line("done", fan_name(name), f"{total} of {total}", depth=one.depth)
                        self._console.print(styled(line))

    # --- what is being done

    def _lines(self, follower: Follower) -> Iterator[RenderableType]:
        from rich.text import Text

        frame = self._spinner.render(self._console.get_time())
        assert isinstance(frame, Text)
        for one in follower.family():
            if not one.is_running:
                continue
            margin, steps, now = "  " * one.depth, one.steps(), datetime.now(UTC).timestamp()
            going = {fan_name(fan): count for fan, count in one.branches().items() if count[0] < count[1]}
            bars = {name: count for name, count in (going | one.timeline.maps).items() if count[1] > FEW}
            for name, (done, total) in bars.items():
                yield bar(margin, frame, name, done, total)
            for node, since in one.timeline.queue.items():
                if node not in bars:
                    yield running(margin, frame, node, "", now - since / SECOND)
            for key, seconds in sorted(steps.items(), key=lambda item: -item[1]):
                fan = fan_of(key)
                if (fan is None or fan_name(fan) not in bars) and node_of(key) != step_name(key):
                    yield step_line(one, margin + "  " * inset(key), frame, key, seconds)
        for (_, fan), count in self._counts.items():
            if count > FEW:
                yield Text().append_text(frame).append(f" {fan_name(fan):<16}").append(f"  {count} steps", style="dim")
        for one in follower.family():
            for wait in one.timeline.waits():
                yield waiting("  " * one.depth, wait.text, wait.until)


class _Printed:
    """What is printed while the screen is drawn: taken line by line, by whatever thread prints it."""

    def __init__(self) -> None:
        self._lines: SimpleQueue[str | Line] = SimpleQueue()
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

    def put(self, line: Line) -> None:
        """Add a line of our own."""
        self._lines.put(line)

    def lines(self) -> Iterator[str | Line]:
        """The lines that came since."""
        while True:
            try:
                yield self._lines.get_nowait()
            except Empty:
                return


class _Line(io.TextIOBase):
    """A stream that gives its lines to a queue; what else is asked of it is what the real one says."""

    def __init__(self, lines: SimpleQueue[str | Line], stream: TextIO) -> None:
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


def step_line(one: Follower, margin: str, frame: Text, key: str, seconds: float) -> Text:
    """A step that is being carried out."""
    bar = one.timeline.open_bar(key)
    detail = joined(bar.detail, f"attempt {bar.attempt}" if bar.attempt > 1 else "") if bar is not None else ""
    return running(margin, frame, step_name(key), detail, seconds)


def running(margin: str, frame: Text, name: str, detail: str, seconds: float) -> Text:
    """Something that is being done."""
    from rich.text import Text

    text = Text(margin).append_text(frame).append(f" {one_line(name):<16}")
    return text.append(f"  {detail}" if detail else "", style="dim").append(f"  {span(seconds)}", style="cyan")


def bar(margin: str, frame: Text, name: str, done: int, total: int) -> Text:
    """How far a ``gather`` or ``map`` is."""
    from rich.text import Text

    full = round(WIDTH * done / total)
    text = Text(margin).append_text(frame).append(f" {one_line(name):<16}  ")
    text.append("━" * full, style="green").append("━" * (WIDTH - full), style="bright_black")
    return text.append(f"  {done}/{total}", style="cyan")


def waiting(margin: str, what: str, until: datetime | None) -> Text:
    """Something that is waited for."""
    from rich.text import Text

    left = "" if until is None else f"  in {span(max((until - datetime.now(UTC)).total_seconds(), 0))}"
    return Text(margin).append(f"◷ {one_line(what)}", style="yellow").append(left, style="dim")


def styled(line: Line) -> Text:
    """A line in colours."""
    from rich.text import Text

    colour = _COLOURS.get(line.status, "")
    text = Text("  " * line.depth).append(mark(line.status), style=colour)
    name = line_name(line)
    wide = line.detail or line.seconds is not None
    text.append(f" {name:<16}" if wide else f" {name}", style=colour if line.status in _LOUD else "")
    if line.detail:
        text.append(f"  {line.detail}", style="red" if line.status == "failed" else "dim")
    if line.seconds is not None:
        text.append(f"  {span(line.seconds)}", style="dim")
    return text


def plain(line: Line) -> str:
    """A line without colours."""
    detail = f"  {line.detail}" if line.detail else ""
    seconds = f"  {span(line.seconds)}" if line.seconds is not None else ""
    return f"{'  ' * line.depth}{mark(line.status)} {line_name(line)}{detail}{seconds}"


def line_name(line: Line) -> str:
    """What a line is about, with the map that it is a part of."""
    fan = one_line(fan_name(line.fan)) if line.fan is not None else line.text
    return line.text if fan == line.text else f"{fan} {line.text}"
