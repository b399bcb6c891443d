"""Live output: what commands print, as it comes, to whoever listens in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from msgspec import Struct

from holdfast.engine.log import WARNING, tell


class Line(Struct, frozen=True):
    """A line that a command of a flow printed, without secrets. ``step`` is the step's id."""

    run: str
    step: str
    stream: Literal["stdout", "stderr"]
    text: str


Listener = Callable[[Line], None]
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """While this lasts, ``listener`` gets every `Line` of the flows that are driven in this process.

    It is called by the thread that drives the run, so it should be quick. One that raises gets nothing more.
    """
    _listeners.append(listener)
    try:
        yield
    finally:
        if listener in _listeners:
            _listeners.remove(listener)


def hand_on(line: Line) -> None:
    """Give a line to all who listen."""
    for listener in list(_listeners):
        try:
            listener(line)
        except Exception as error:  # of the listener's own code: no reason to break off the command
            _listeners.remove(listener)
            told = "run {run}: whoever listened to its output gets no more: {error}"
            tell(WARNING, "flow.unheard", told, run=line.run, error=f"{type(error).__name__}: {error}")
