"""What a run's journal tells a person: one line for each step, node, retry, question, note and end.

`Story` takes entries and gives lines; it does no I/O. `Follower` reads the entries of a run that are new, and those of
its children, from any store and whoever drives them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from holdfast.cli.rendering import clock, one_line, short, span
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.engine.run.outputs import Activity
from holdfast.engine.run.streams import Reader
from holdfast.errors import RunNotFound
from holdfast.kernel.fold import name_in
from holdfast.kernel.model import Kind, Status
from holdfast.views import EntryContents, moment

_NO_STEPS = frozenset({"now", "random", "uuid", "first", "timeout", "sleep", "receive"})
_BRANCHING = frozenset({"map", "gather", "first", "timeout", ""})
_ERROR = 200  # characters of a step's error; that of the run is told in full
AT_ONCE = 0.3  # seconds: a node that ended so soon after it was next was carried out by one process, without a wait
_FAN = re.compile(r"(.*#\d+)\.\d+/")


class Told(NamedTuple):
    """A line that stays on the screen."""

    status: str
    text: str
    detail: str = ""
    seconds: float | None = None
    fan: str | None = None  # the gather or map that it is a part of
    depth: int = 0  # of the child or node that it happened in


class Waiting(NamedTuple):
    """Something that is waited for now."""

    text: str
    until: datetime | None = None


def fan_of(key: str) -> str | None:
    """The call that a key is a branch of: ``map#1`` of ``map#1.3/fetch#1``."""
    found = _FAN.match(key)
    return found[1] if found else None


def fan_name(fan: str) -> str:
    """The name of such a call for people: that of the node or step which maps, if it is inside of one."""
    names = [part.partition("#")[0] for part in fan.split("/")]
    return next((name for name in reversed(names) if name not in _BRANCHING), names[0])


def node_of(key: str) -> str | None:
    """The node of a graph that a key belongs to: ``plan`` of ``plan#1/think#2``."""
    first, slash, _ = key.partition("/")
    name = first.partition("#")[0]
    return name if slash and "#" in first and name not in _BRANCHING else None


def step_name(key: str) -> str:
    """A key for people: a step's name, with its number from the second on."""
    if "#" not in key:
        return key
    name, _, number = key.rpartition("#")
    return name_in(key) if number == "1" else f"{name.rpartition('/')[2]} #{number}"


def task_name(path: str) -> str:
    """A call of a node for people: ``check`` of ``check#1``, ``check (visit 2)``, ``fetch (item 3)``."""
    node, _, numbers = path.rpartition("#")
    visit, _, item = numbers.partition(".")
    more = [f"visit {visit}" if visit != "1" else "", f"item {item}" if item else ""]
    return f"{node} ({', '.join(part for part in more if part)})" if any(more) else node


def covered(spans: list[tuple[datetime, datetime]]) -> float:
    """The seconds in which at least one of these was going on."""
    total, end = timedelta(), datetime.min.replace(tzinfo=UTC)
    for start, stop in sorted(spans):
        total += max(stop - max(start, end), timedelta())
        end = max(end, stop)
    return total.total_seconds()


class Story:
    """What happens in one run, line by line."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.begun: dict[str, datetime] = {}
        self.targets: dict[str, str] = {}
        self.attempts: dict[str, int] = {}
        self.waits: dict[str, Waiting] = {}
        self.children: dict[str, str] = {}
        self.queue: dict[str, datetime] = {}  # the nodes that come next, and since when
        self.maps: dict[str, tuple[int, int]] = {}  # of the nodes that map: how many items are done, and of how many
        self.by_hand = False  # whether a loop of one's own drives it, and not a workflow or graph
        self._told: set[str] = set()  # nodes whose own step had a line
        self._in_graph = False
        self._spans: dict[str, list[tuple[datetime, datetime]]] = {}  # of the nodes that map: when items were worked on
        self._failures: set[str] = set()  # nodes of which a line says that they failed
        self._undos: Counter[bool] | None = None  # of the rollback that goes on: how many succeeded, and how many not

    def tell(self, entry: EntryContents) -> Iterator[Told]:
        """The lines that an entry gives: none or a few."""
        tell = _TELL.get(entry.kind)
        if tell is not None:
            for told in tell(self, entry.contents, entry.at):
                yield told._replace(
                    text=one_line(told.text), detail=one_line(told.detail), depth=self.depth + told.depth
                )

    def inset(self, key: str) -> int:
        """How far a step stands inside: one, if it is a part of a node; the step of a flow is the node itself."""
        node = node_of(key)
        return int(node is not None and fan_of(key) is None and node != name_in(key))

    def total(self, fan: str, branches: dict[str, tuple[int, int]]) -> int | None:
        """How many branches a call has, if that is known: from the journal of a graph, or in this process."""
        known = self.maps.get(fan_name(fan)) or branches.get(fan)
        return known[1] if known is not None else None

    def _line(self, status: str, data: dict[str, Any], detail: str, at: datetime) -> Told:
        key = data["key"]
        begun = self.begun.pop(key, None)
        seconds = data.get("seconds")
        if seconds is None and node_of(key) == name_in(key) and fan_of(key) is None:  # the step of a flow
            seconds = self._since_queued(name_in(key), at)
        elif seconds is None and begun is not None and not self._is_node(key):
            seconds = (at - begun).total_seconds()
        return Told(status, step_name(key), one_line(detail), seconds, fan_of(key), self.inset(key))

    def _since_queued(self, node: str | None, at: datetime) -> float | None:
        """How long a quick node took, whose entry does not tell; of another one, nobody knows who slept meanwhile."""
        since = self.queue.get(str(node))
        seconds = (at - since).total_seconds() if since is not None else AT_ONCE
        return seconds if seconds < AT_ONCE else None

    def _is_node(self, key: str) -> bool:
        """Whether what a key stands for is a node that is an effect itself."""
        return self._in_graph and "/" not in key

    def on_intended(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        self.begun[data["key"]] = at  # also if it was begun before, by a process that has died since
        if data.get("target"):
            self.targets[data["key"]] = str(data["target"])
        return iter(())

    def on_done(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        key, attempts = data["key"], data.get("attempts", 1)
        self.waits.pop(key, None)
        self.attempts.pop(key, None)
        if "intent" in data and self._is_node(key):  # which has its line when it is saved, right after this
            return
        is_step = "digest" in data or "intent" in data or "tool" in data or name_in(f"/{key}") not in _NO_STEPS
        if is_step and not key.startswith("patched:"):
            if (node := node_of(key)) is not None and node == name_in(key) and fan_of(key) is None:
                self._told.add(node)
            parts = [self.targets.pop(key, ""), f"attempt {attempts}" if attempts > 1 else "", self.children.get(key)]
            yield self._line("done", data, ", ".join(part for part in parts if part), at)

    def on_raised(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        key, error = data["key"], data.get("error") or "an error that was erased"
        if "until" in data:
            self.attempts[key] = data["attempt"] + 1
            again = moment(data["until"])
            self.waits[key] = Waiting(f"{step_name(key)}: attempt {data['attempt'] + 1}", again)
            pause = span(max((again - at).total_seconds(), 0))
            detail = f"{short(error, _ERROR)}; again in {pause}"
            yield Told("retrying", step_name(key), detail, None, fan_of(key), self.inset(key))
            return
        self.waits.pop(key, None)
        attempt = data.get("attempt", 1)
        last = short(error, _ERROR) + (f" (attempt {attempt})" if attempt > 1 else "")
        self._failures.add(key)
        yield self._line("uncertain" if "uncertain" in data else "failed", data, last, at)

    def on_saved(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        """A node is done, or one item of a node that maps; or a loop of one's own saved its state."""
        node, queue = data.get("node"), data.get("queue")
        if self.by_hand or not isinstance(queue, list):
            yield Told("note", "saved", one_line(f"next {data['next']}") if data.get("next") else "")
            return
        self._in_graph = True
        yield from self._node(node, data.get("seconds"), at)
        names = [str(name).partition(":") for name in queue]
        for name, count in Counter(name for name, colon, _ in names if colon).items():
            self.maps.setdefault(name, (0, count))
        goes_on = node in self.maps  # other items of it are still to come
        self.queue = {name: self.queue.get(name, at) if name != node or goes_on else at for name, _, _ in names}

    def _node(self, node: str | None, seconds: float | None, at: datetime) -> Iterator[Told]:
        if node is None:
            return
        if node in self.maps:
            if seconds is not None:
                self._spans.setdefault(node, []).append((at - timedelta(seconds=seconds), at))
            done, total = self.maps[node][0] + 1, self.maps[node][1]
            self.maps[node] = done, total
            if done >= total:
                del self.maps[node]
                spans = self._spans.pop(node, [])
                took = covered(spans) if spans else self._since_queued(node, at)
                yield Told("done", node, f"{total} of {total}", took)
        elif node not in self._told:
            yield Told("done", node, "", seconds if seconds is not None else self._since_queued(node, at))
        self._told.discard(node)

    def on_asked(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        yield Told("waiting", one_line(data.get("prompt", "(erased)")))

    def on_answered(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        if "failure" in data:
            yield Told("failed", "no answer in time")
        else:
            by = f"by {data['by']}" if data.get("by") else ""
            yield Told("answered", short(data.get("value", "(erased)")), one_line(by))

    def on_timer(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        until, name = moment(data["until"]), name_in(f"/{data['key']}")
        if name in ("sleep", "receive"):
            words = "sleeps" if name == "sleep" else "waits for a message"
            self.waits[data["key"]] = Waiting(words, until)
            if (until - at).total_seconds() >= 1:
                yield Told("timer", words, f"until {clock(until)}")

    def on_received(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        yield Told("answered", "message", short(data.get("value", "(erased)")))

    def on_child(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        self.begun.setdefault(data["key"], at)
        self.children[data["key"]] = str(data["id"])
        return iter(())

    def on_emitted(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        if "value" in data:
            yield Told("note" if data["stream"] == "notes" else "output", short(data["value"], 200))

    def on_undone(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        if self._undos is not None:
            self._undos[bool(data["ok"])] += 1
        status = "undone" if data["ok"] else "left" if "left" in data else "undo_failed"
        passed = "passed over by force" if "passed" in data else ""
        about = ": ".join(part for part in (passed, one_line(data.get("error") or "")) if part)
        yield Told(status, f"undo of entry {data['effect']}", about)

    def on_rewound(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        for kept in (self.begun, self.targets, self.attempts, self.waits, self.children, self.queue, self.maps):
            kept.clear()
        self._spans.clear()
        undos, self._undos = self._undos, None
        counts = f"{undos[True]} undone, {undos[False]} failed" if undos else ""
        yield Told("undone", f"rolled back to entry {data['to']}", counts)

    def on_rolls_back(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        self._undos = Counter()
        if "failure" not in data:
            self._failures.clear()
        yield from self.on_failed(data.get("failure") or {}, at)
        yield from _said("note", "rolls back to entry {to}")(self, data, at)

    def on_failed(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        """The node of a graph with which a run has failed, if no line told it yet. How a run ends is told elsewhere."""
        path = data.get("node")
        if path is not None and path not in self._failures:
            self._failures.add(path)
            yield Told("failed", task_name(path), short(data.get("error") or "", _ERROR), data.get("seconds"))

    def on_retried(self, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        self._failures.clear()
        yield from _said("note", "tried again")(self, data, at)


def _said(status: str, text: str) -> Any:
    """What tells an entry of which there is not more to say than this, and who did it or why."""

    def tell(story: Story, data: dict[str, Any], at: datetime) -> Iterator[Told]:
        detail = data.get("error") or data.get("why") or (f"by {data['by']}" if data.get("by") else "")
        yield Told(status, one_line(text.format(**data)), one_line(detail))

    return tell


_TELL: dict[str, Any] = {
    Kind.INTENDED: Story.on_intended,
    Kind.DONE: Story.on_done,
    Kind.MARKED: Story.on_done,
    Kind.RAISED: Story.on_raised,
    Kind.SAVED: Story.on_saved,
    Kind.ASKED: Story.on_asked,
    Kind.ANSWERED: Story.on_answered,
    Kind.TIMER: Story.on_timer,
    Kind.RECEIVED: Story.on_received,
    Kind.CHILD: Story.on_child,
    Kind.EMITTED: Story.on_emitted,
    Kind.UNDONE: Story.on_undone,
    Kind.REWOUND: Story.on_rewound,
    Kind.CONTINUED: _said("note", "begins anew"),
    Kind.RETRIED: Story.on_retried,
    Kind.FAILED: Story.on_failed,
    Kind.DECLINED: _said("note", "stays at its breakpoint"),
    Kind.LATE: _said("note", "an answer or mark came too late"),
    Kind.UNBLOCKED: _said("note", "unblocked"),
    Kind.FORKED: _said("note", "forked from {from} at {at}"),
    Kind.ROLLBACK_BEGUN: Story.on_rolls_back,
}


class Follower:
    """Reads what is new in the journal of a run, and in those of its children."""

    def __init__(self, hf: Holdfast, id: str, *, depth: int = 0, after: int = -1) -> None:
        self.id = id
        self.story = Story(depth)
        self.parts: list[Follower] = []
        self.is_running = False  # whether somebody drives it
        self._hf = hf
        self._run: Run | None = None
        self._activity: Activity | None = None
        self._shown = after  # what was there before is read, and not told
        self._time = datetime.min.replace(tzinfo=UTC)
        self._reader: Reader | None = None

    def entries(self) -> list[tuple[Follower, EntryContents]]:
        """The entries that came since the last time, of this run and of its children, in the order of time."""
        for one in self.family():
            now = datetime.now(UTC)
            one.look()
            for key, seconds in one.steps().items():  # of a plain step the journal does not tell when it began
                one.story.begun.setdefault(key, now - timedelta(seconds=seconds))
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
        """What is new, with a time that never goes back within a run, whatever its clock did."""
        self.look()
        if self._run is None:
            return
        info = self._run.info()
        self.story.by_hand = info.queue is None
        self.is_running = info.status is Status.RUNNING
        self._reader = self._reader or Reader(self._run.held, -1)
        for entry in self._reader.all_there_is():
            if entry.kind == Kind.CHILD and "id" in entry.contents:
                self._add_child(str(entry.contents["id"]), known=entry.seq <= self._shown)
            if entry.seq > self._shown:
                self._time = max(self._time, entry.at)
                yield self._time, self, entry
            else:
                list(self.story.tell(entry))
        for part in self.parts:
            yield from part.new()

    def _add_child(self, id: str, *, known: bool) -> None:
        """Follow a child; of one that was there before, only what is new."""
        after = -1
        if known:
            try:
                after = self._hf.get(id).info().seq
            except RunNotFound:  # it was deleted
                return
        self.parts.append(Follower(self._hf, id, depth=self.story.depth + 1, after=after))

    def told(self) -> Iterator[Told]:
        """The same as lines."""
        for follower, entry in self.entries():
            yield from follower.story.tell(entry)

    def family(self) -> Iterator[Follower]:
        """The run and all its children."""
        yield self
        for part in self.parts:
            yield from part.family()

    def steps(self) -> dict[str, float]:
        """The steps that this process carries out now, and since how many seconds."""
        return self._activity.steps if self._activity is not None else {}

    def branches(self) -> dict[str, tuple[int, int]]:
        """How far the calls of ``gather`` and ``map`` are, or were when this process last drove the run."""
        return self._activity.branches if self._activity is not None else {}
