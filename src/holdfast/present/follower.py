"""Following a run and its children while they happen, whoever executes them and in whatever store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.engine.run.outputs import Activity
from holdfast.engine.run.streams import Reader
from holdfast.errors import RunNotFound
from holdfast.kernel.model import Kind, Status
from holdfast.present.timeline import Line, Timeline
from holdfast.views import EntryContents


class Follower:
    """Reads the new entries of a run, and those of its children."""

    def __init__(self, hf: Holdfast, id: str, *, depth: int = 0, after: int = -1) -> None:
        self.id = id
        self.depth = depth
        self.timeline = Timeline()
        self.children: list[Follower] = []
        self.is_running = False  # whether somebody executes it
        self._hf = hf
        self._run: Run | None = None
        self._activity: Activity | None = None
        self._shown = after  # entries that were there before are read, and not told
        self._time = datetime.min.replace(tzinfo=UTC)
        self._reader: Reader | None = None

    def entries(self) -> list[tuple[Follower, EntryContents]]:
        """The entries since the last time, of this run and of its children, in the order of time."""
        for one in self.family():
            one.look()
        return [(one, entry) for _, one, entry in sorted(self.new(), key=lambda found: found[0])]

    def look(self) -> None:
        """Find the run, and what this process does for it."""
        if self._run is None:
            try:
                self._run = self._hf.get(self.id)
            except RunNotFound:  # it is about to be made
                return
        self._activity = self._run.activity() or self._activity

    def new(self) -> Iterator[tuple[datetime, Follower, EntryContents]]:
        """The new entries, with a time that never goes back within a run, whatever its clock did."""
        self.look()
        if self._run is None:
            return
        info = self._run.info()
        self.timeline.by_hand = info.queue is None
        self.is_running = info.status is Status.RUNNING
        self._reader = self._reader or Reader(self._run.held, -1)
        for entry in self._reader.all_there_is():
            if entry.kind == Kind.CHILD and "id" in entry.contents:
                self._add_child(str(entry.contents["id"]), known=entry.seq <= self._shown)
            if entry.seq > self._shown:
                self._time = max(self._time, entry.at)
                yield self._time, self, entry
            else:
                self.timeline.add(entry)
        for child in self.children:
            yield from child.new()

    def _add_child(self, id: str, *, known: bool) -> None:
        """Follow a child; of one that was there before, only what is new."""
        after = -1
        if known:
            try:
                after = self._hf.get(id).info().seq
            except RunNotFound:  # it was deleted
                return
        self.children.append(Follower(self._hf, id, depth=self.depth + 1, after=after))

    def add(self, entry: EntryContents) -> list[Line]:
        """The lines of an entry of this run."""
        return [line._replace(depth=self.depth + line.depth) for line in self.timeline.add(entry)]

    def lines(self) -> Iterator[Line]:
        """The lines of all that is new."""
        for follower, entry in self.entries():
            yield from follower.add(entry)

    def family(self) -> Iterator[Follower]:
        """The run and all its children."""
        yield self
        for child in self.children:
            yield from child.family()

    def steps(self) -> dict[str, float]:
        """The steps that this process executes now, and since how many seconds."""
        return self._activity.steps if self._activity is not None else {}

    def branches(self) -> dict[str, tuple[int, int]]:
        """How far the calls of ``gather`` and ``map`` are, or were when this process last executed the run."""
        return self._activity.branches if self._activity is not None else {}
