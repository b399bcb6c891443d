"""The walk of a call through the modules: of a plain step, of an answer, and of a rollback, on SQLite.

    python bench/walks.py            prints modules, calls and changes of module
    python bench/walks.py --mermaid  prints each walk as a picture of the rooms it comes to, as ARCHITECTURE.md shows it

Only calls of Python functions in `holdfast` are counted, in the thread that makes the call.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any

import holdfast
from holdfast import ask, step, workflow

OWN = os.path.join(os.path.dirname(holdfast.__file__), "")


class Walk:
    """The modules that a call passes through, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path: list[str] = []

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Follow what this thread calls."""
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OWN):
            self.path.append(frame.f_code.co_filename[len(OWN) : -len(".py")].removesuffix("/__init__"))

    @property
    def modules(self) -> list[str]:
        """Each module once, in the order in which they are come to."""
        return list(dict.fromkeys(self.path))

    @property
    def changes(self) -> int:
        """How often the walk goes from one module to another."""
        return sum(one != two for one, two in pairwise(self.path))

    def picture(self) -> str:
        """The packages that it comes to, each with its modules, and from where it comes there first."""
        rooms: dict[str, list[str]] = {}
        ways: list[tuple[str, str]] = []
        before = ""
        for module in self.path:
            room, _, name = module.rpartition("/")
            if room not in rooms and before:
                ways.append((before, room))
            names = rooms.setdefault(room, [])
            if name not in names:
                names.append(name)
            before = room
        numbers = {room: f"r{n}" for n, room in enumerate(rooms)}
        lines = [f'  {numbers[room]}["<b>{room or "holdfast"}</b><br/>{"<br/>".join(rooms[room])}"]' for room in rooms]
        lines += [f"  {numbers[here]} --> {numbers[there]}" for here, there in ways]
        return "\n".join(["```mermaid", "flowchart LR", *lines, "```"])


def give_back(result: int, n: int) -> None:
    """Undo nothing."""


@step
def plain(n: int) -> int:
    """Do nothing."""
    return n + 1


@step(undo=give_back)
def effect(n: int) -> int:
    """Do nothing that can be undone."""
    return n


stepping = Walk("a plain step")


@workflow
def steps() -> int:
    """Three steps, of which the last is followed: the others warm up."""
    plain(1)
    plain(2)
    with stepping.followed():
        return plain(3)


@workflow
def asks() -> str:
    """A question."""
    return str(ask("Which way?", str))


@workflow
def acts() -> int:
    """Two effects, and a question that keeps the run from its end."""
    effect(1)
    effect(2)
    ask("And then?", str)
    return 2


def walk(name: str, call: Callable[[], Any]) -> Walk:
    """Follow one call."""
    followed = Walk(name)
    with followed.followed():
        call()
    return followed


def walks() -> list[Walk]:
    """All three."""
    with tempfile.TemporaryDirectory() as folder, holdfast.open(f"sqlite:///{folder}/runs.db") as hf:
        hf.start(steps).result()
        asking = hf.start(asks)

        def answered() -> None:
            asking.answer("left")
            asking.result()

        acting = hf.start(acts)
        return [stepping, walk("an answer, and its result", answered), walk("a rollback", lambda: acting.rollback(0))]


def main() -> None:
    """Print them."""
    for one in walks():
        if "--mermaid" in sys.argv:
            print(one.picture())
        else:
            print(f"{one.name}: {len(one.modules)} modules, {len(one.path)} calls, {one.changes} changes of module")
            print("  " + " > ".join(one.modules))


if __name__ == "__main__":
    main()
