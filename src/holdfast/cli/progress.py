"""Showing a run while it goes on: a thread reads its journal, and a view shows what is new.

At a terminal the view is that of `holdfast.cli.live`. Without one there are plain lines, and programs get the entries
as lines of JSON.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from holdfast.cli.live import LiveView, plain
from holdfast.cli.rendering import console, fall_silent, heard_or_not, say, write_json
from holdfast.errors import HoldfastError
from holdfast.present.follower import Follower
from holdfast.present.words import one_line
from holdfast.views import EntryContents

EVERY = 0.1  # seconds between two looks
_SHOWN_ANYWAY = frozenset({"run.failed", "run.blocked", "run.unattended"})


class View(Protocol):
    """How what happens is shown."""

    def start(self) -> None:
        """Begin, or go on after `stop`."""

    def stop(self) -> None:
        """Leave the screen to somebody else."""

    def show(self, follower: Follower) -> None:
        """Show what is new."""

    def warn(self, text: str) -> None:
        """Show something that Holdfast warns of. May be called by any thread."""

    def output(self, run: str, step: str, stream: str, text: str) -> None:
        """Show a line that a command of a flow printed. May be called by any thread."""

    def leave(self) -> None:
        """Show how far it came, for somebody who leaves in the middle."""


class JsonView:
    """A line of JSON for each entry, where standard output was when it began."""

    def __init__(self) -> None:
        self._stream = sys.stdout

    def start(self) -> None:
        """Nothing is to be prepared."""

    def stop(self) -> None:
        """Nothing is left behind."""

    def show(self, follower: Follower) -> None:
        """The entries that are new."""
        for one, entry in follower.entries():
            write_json({"entry": entry_json(one.id, entry)}, self._stream)

    def warn(self, text: str) -> None:
        """The warning as a line of its own."""
        write_json({"warning": text}, self._stream)

    def output(self, run: str, step: str, stream: str, text: str) -> None:
        """The line with where it comes from."""
        write_json({"output": {"run": run, "step": step, "stream": stream, "text": text}}, self._stream)

    def leave(self) -> None:
        """The entries have told it."""


def entry_json(run: str, entry: EntryContents) -> dict[str, Any]:
    """An entry as every command gives it."""
    return {"run": run, "seq": entry.seq, "kind": entry.kind, "at": entry.at, "contents": entry.contents}


class PlainView:
    """A line of text for each thing that happens."""

    def start(self) -> None:
        """Nothing is to be prepared."""

    def stop(self) -> None:
        """Nothing is left behind."""

    def show(self, follower: Follower) -> None:
        """What is new, line by line."""
        for line in follower.lines():
            say(plain(line))

    def warn(self, text: str) -> None:
        """The warning as a line of its own."""
        say(f"! {one_line(text)}")

    def output(self, run: str, step: str, stream: str, text: str) -> None:
        """The line as it came, below its step."""
        say(f"  {step} │ {one_line(text)}")

    def leave(self) -> None:
        """The lines have told it."""


def view_for(*, as_json: bool, asks: bool = False) -> View:
    """The view that fits where the output goes. With ``asks``, questions are shown by whoever asks them."""
    if as_json:
        return JsonView()
    return LiveView(asks=asks) if sys.stdout.isatty() else PlainView()


def heading(id: str, workflow: str | None, rest: str = "") -> None:
    """The line above all others: which run it is."""
    from rich.text import Text

    text = Text().append(one_line(id), style="bold").append(f"  {one_line(workflow or '')}".rstrip())
    with heard_or_not():
        console().print(text.append(f"  {rest}" if rest else "", style="dim"))


class Progress:
    """Shows a run with a view, from a thread of its own, while it is entered."""

    def __init__(self, follower: Follower, view: View) -> None:
        self._follower = follower
        self._view = view
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._handler = _Warnings(view)
        self.is_heard = True  # whether somebody still reads the output

    def __enter__(self) -> Progress:
        logging.getLogger("holdfast").addHandler(self._handler)
        self.resume()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()
        logging.getLogger("holdfast").removeHandler(self._handler)

    def resume(self) -> None:
        """Begin to show, or go on after `pause`."""
        self._stop.clear()
        self._view.start()
        self._thread = threading.Thread(target=self._follow, name="holdfast-progress", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """The same as `pause`, in the middle: how far things came is shown, too."""
        self.pause()
        self._view.leave()

    def pause(self) -> None:
        """Show all that there is so far, and then nothing more."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            try:
                self._look()
            finally:
                self._view.stop()

    def _follow(self) -> None:
        while not self._stop.wait(EVERY):
            self._look()

    def warn(self, text: str) -> None:
        """Tell something that the journal does not."""
        self._view.warn(text)

    def _look(self) -> None:
        if not self.is_heard:
            return
        try:
            self._view.show(self._follower)
        except BrokenPipeError:  # the run goes on all the same
            self.is_heard = False
            fall_silent()
        except HoldfastError as error:  # whoever drives the run meets it as well; the next look may succeed
            logging.getLogger("holdfast").debug("the journal could not be read: %s", error)


class _Warnings(logging.Handler):
    """Shows what Holdfast warns of, but for what the view tells by itself."""

    def __init__(self, view: View) -> None:
        super().__init__(logging.WARNING)
        self._view = view

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "holdfast", {}).get("event") not in _SHOWN_ANYWAY:
            self._view.warn(record.getMessage())


@contextmanager
def quiet() -> Iterator[None]:
    """Show nothing of what Holdfast tells its log."""
    silence = logging.NullHandler()
    logging.getLogger("holdfast").addHandler(silence)
    try:
        yield
    finally:
        logging.getLogger("holdfast").removeHandler(silence)
