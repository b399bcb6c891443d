"""What happened in a run and when: entries of a journal become bars. No I/O. `holdfast.ui.chart` draws them.

A step that touches the world, a child, a question and a timer say when they began. A plain step is one entry, at its
end, with how long it took; one that says nothing of that took next to no time. The time in which its run stood in a
queue, or for a worker, is nobody's work. A bar has one piece for each attempt, and for each pause between two; parallel
branches have lanes of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.cli.rendering import one_line
from holdfast.cli.story import AT_ONCE, fan_of, node_of, step_name, task_name
from holdfast.kernel.fold import name_in
from holdfast.kernel.journal import NOTED_FROM
from holdfast.kernel.model import Kind
from holdfast.views import EntryContents

Look = Literal["work", "failed", "pause", "wait", "undo"]
Sort = Literal["step", "node", "question", "timer", "child", "save", "rollback"]

SECOND = 1_000_000
_WAITS = {"sleep": "sleeps", "receive": "waits for a message"}
_UNSHOWN = frozenset({"now", "random", "uuid", "first", "timeout"})  # calls that are no work


class Piece(Struct, frozen=True):
    """A stretch of a bar, in microseconds since 1970."""

    start: int
    end: int
    look: Look


class Bar(Struct, frozen=True, kw_only=True):
    """One line of the chart."""

    key: str
    name: str
    sort: Sort
    status: str
    seq: int
    pieces: tuple[Piece, ...]
    lane: str = ""  # the branch that it belongs to, "" for the run itself
    attempts: int = 1
    detail: str = ""
    error: str = ""
    link: str | None = None  # the id of the run that it is
    live: bool = True  # false for what a rollback abandoned
    declared: int | None = None  # the entry that said that it was about to act
    timed: bool = True  # false if nobody knows how long it took

    @property
    def start(self) -> int:
        return self.pieces[0].start

    @property
    def end(self) -> int:
        return self.pieces[-1].end

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / SECOND


class Reel:
    """Takes entries in order, and has the bars that they give."""

    def __init__(self, *, by_hand: bool = False, since: int | None = None) -> None:
        self.bars: dict[int, Bar] = {}  # by their numbers, in the order of their rows
        self._by_hand = by_hand
        self._open: dict[str, int] = {}  # keys of what has not ended, and the number of its bar
        self._clock: dict[str, int] = {} if since is None else {"": since}  # by lane: when something was last said
        self._fans: dict[str, int] = {}  # calls of ``map`` and the like, and since when they have branches
        self._queue: dict[str, int] = {}  # nodes that come next, and since when
        self._told: set[str] = set()  # nodes whose own step, or own effect, has a bar
        self._in_graph = False
        self._failures: set[str] = set()  # calls, and nodes, of which a bar says that they failed
        self._over: set[str] = set()  # keys of steps that have ended
        self._now = 0

    def add(self, entry: EntryContents, *, live: bool = True) -> None:
        """Take the next entry."""
        self._now = at = round(entry.at.timestamp() * SECOND)
        enter = _ENTER.get(entry.kind)
        if enter is not None and "erased" not in entry.contents:
            enter(self, entry.seq, at, entry.contents, live)
        elif entry.kind in (Kind.CREATED, Kind.FORKED, Kind.CONTINUED, Kind.RETRIED, Kind.UNBLOCKED):
            self._restart(at)
            if entry.kind == Kind.RETRIED:
                self._failures.clear()

    def finish(self, now: int, *, running: bool) -> list[Bar]:
        """The bars, with what has not ended drawn up to this moment."""
        for n in self._open.values():
            bar = self.bars[n]
            last = bar.pieces[-1]
            status = bar.status
            if status == "started" and not running:
                status = "not done" if bar.sort == "rollback" else "uncertain"
            goes_on = bar.live and status == bar.status  # of what is uncertain nobody knows when it ended
            piece = replace(last, end=max(last.start, now)) if goes_on else last
            self.bars[n] = replace(bar, status=status, pieces=(*bar.pieces[:-1], piece))
        return list(self.bars.values())

    def _restart(self, at: int) -> None:
        """From here on, nothing of what was before says when something began."""
        self._clock, self._fans, self._queue, self._over = {"": at}, {}, {}, set()

    def _since(self, lane: str) -> int:
        """When the branch last said something; of a new one, when the call that it is a branch of was made."""
        if lane in self._clock or not lane:
            return self._clock.get(lane, self._now)
        around, _, last = lane.rpartition("/")
        call, dot, _ = last.rpartition(".")
        return self._fans.setdefault(f"{around}/{call}", self._since(around)) if dot else self._since(around)

    def _start(self, key: str, at: int, said: dict[str, Any]) -> int:
        """When a call began of which an entry tells how long it took; not before its branch was there."""
        took: int = round(said.get("seconds", NOTED_FROM) * SECOND)
        return at - took if "seconds" in said else max(self._since(key.rpartition("/")[0]), at - took)

    def _tell(self, lane: str, at: int) -> None:
        """A branch has come to this moment; what comes after it in the calls around it comes later."""
        self._clock[lane] = at
        while lane:
            lane = lane.rpartition("/")[0]
            self._clock[lane] = max(at, self._clock.get(lane, 0))

    def _begin(self, key: str, sort: Sort, seq: int, start: int, look: Look, live: bool, **more: Any) -> Bar:
        lane = key.rpartition("/")[0] if "#" in key and not is_node(key) else ""
        name = more.pop("name", None) or step_name(key)
        self._since(lane)  # notes when the first branch of a call was there
        bar = Bar(
            key=key, name=name, sort=sort, seq=seq, lane=lane, live=live, pieces=(Piece(start, start, look),), **more
        )
        self._open[key] = n = len(self.bars)
        self.bars[n] = bar
        return bar

    def _begin_again(self, key: str, start: int, **more: Any) -> None:
        """Another attempt of a call runs since then; of one before that did not end nobody knows how long it took."""
        n = self._open[key]
        bar = self.bars[n]
        pieces = (*_paused(bar, start), Piece(start, start, "work"))
        self.bars[n] = replace(bar, status="started", pieces=pieces, **more)

    def _end(
        self, key: str, seq: int, at: int, status: str, look: Look | None = None, since: int | None = None, **more: Any
    ) -> None:
        n = self._open.pop(key)
        bar = self.bars[n]
        last = bar.pieces[-1]
        if last.look == "pause":  # the attempt after the pause is not journaled when it begins
            start = max(min(last.end, at), at if since is None else since)
        else:
            start = last.start if since is None else max(last.start, since)
        kind = look or ("work" if last.look == "pause" else last.look)
        self.bars[n] = replace(
            bar, status=status, pieces=(*_paused(bar, start), Piece(start, max(start, at), kind)), seq=seq, **more
        )
        self._tell(bar.lane, at)

    def on_started(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        key, start = said["key"], self._start(said["key"], at, said)
        if key in self._open:
            if self.bars[self._open[key]].pieces[-1].look == "pause":
                self._begin_again(key, start)
        elif key not in self._over:  # else it ended while this was being written
            self._begin(key, "step", seq, start, "work", live, status="started")

    def on_intended(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        key, target = said["key"], one_line(said.get("target") or "")
        declared = said.get("again", seq)
        if key in self._open:
            more = {} if "again" in said else {"detail": target, "declared": declared}
            self._begin_again(key, at, **more)
        else:
            self._begin(key, "step", seq, at, "work", live, status="started", detail=target, declared=declared)

    def on_done(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        key = said["key"]
        name = name_in(f"/{key}") if "#" in key else key
        is_step = "digest" in said or "intent" in said or "tool" in said
        self._over.add(key)
        if key not in self._open:
            if not is_step and (name in _UNSHOWN or key.startswith("patched:")):
                return
            if "message" in said:
                asked = self._since(key.rpartition("/")[0])
                self._begin(key, "timer", seq, asked, "wait", live, status="waiting", name=_WAITS["receive"])
            else:
                self._begin(key, "step", seq, self._start(key, at, said), "work", live, status="done")
        if is_node(key) or ("intent" in said and "/" not in key):  # that it is saved, right after this, is of this bar
            self._told.add(name)
        bar = self.bars[self._open[key]]
        since = self._ran_since(key, at, said)
        self._end(key, seq, at, "done", since=since, attempts=said.get("attempts", bar.attempts), live=live)

    def _ran_since(self, key: str, at: int, said: dict[str, Any]) -> int | None:
        """When the attempt began that ends now; None if its bar began with it: what touches the world says so anew."""
        bar = self.bars[self._open[key]]
        is_node = self._in_graph and "/" not in key  # which may have waited since it was begun
        is_plain = (bar.sort == "step" and bar.declared is None) or is_node
        return self._start(key, at, said) if is_plain or bar.pieces[-1].look == "pause" or "seconds" in said else None

    def on_raised(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        key, attempt = said["key"], said.get("attempt", 1)
        error = one_line(said.get("error") or "an error that was erased")
        if key not in self._open:
            self._begin(key, "step", seq, self._start(key, at, said), "work", live, status="started")
        n = self._open[key]
        until = said.get("until")
        if until is None:
            self._over.add(key)
            self._failures.add(key)
        status = "retrying" if until is not None else "uncertain" if "uncertain" in said else "failed"
        since = self._ran_since(key, at, said)
        self._end(key, seq, at, status, "failed", since, attempts=attempt, error=error, live=live)
        if until is not None:
            bar = self.bars[n]
            self.bars[n] = replace(bar, pieces=(*bar.pieces, Piece(at, max(at, until), "pause")))
            self._open[key] = n

    def on_resolved(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        if said.get("key") in self._open:
            status, by = "done" if said.get("done") else "not done", f"by {said['by']}" if said.get("by") else ""
            if status == "done" and "/" not in said["key"]:  # a node, maybe, which is saved by the next drive
                self._told.add(name_in(f"/{said['key']}"))
            self._end(said["key"], seq, at, status, detail=one_line(by), live=live)

    def on_asked(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        prompt = one_line(said.get("prompt", ""))
        bar = self._begin(
            said.get("key") or f"question {seq}", "question", seq, at, "wait", live, status="waiting", name=prompt
        )
        self._open[f"? {seq}"] = self._open.pop(bar.key)

    def on_answered(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        if (key := f"? {said['question']}") in self._open:
            by = f"by {said['by']}" if said.get("by") else ""
            late = "failure" in said
            self._end(
                key, seq, at, "failed" if late else "answered", detail="no answer in time" if late else one_line(by)
            )

    def on_closed(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        if (key := f"? {said['question']}") in self._open:
            self._end(key, seq, at, "closed")

    def on_timer(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        words = _WAITS.get(name_in(f"/{said['key']}"))
        if words is not None and said["key"] not in self._open:
            self._begin(said["key"], "timer", seq, at, "wait", live, status="waiting", name=words)

    def on_child(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        if said["key"] not in self._open:
            link = str(said["id"])
            self._begin(said["key"], "child", seq, at, "work", live, status="started", link=link, declared=seq)

    def on_saved(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        node, queue = said.get("node"), said.get("queue")
        if self._by_hand or not isinstance(queue, list):
            since = self._since("")
            following = one_line(f"next {said['next']}") if said.get("next") else ""
            self._begin(f"saved {seq}", "save", seq, since, "work", live, status="done", name="saved", detail=following)
            self._end(f"saved {seq}", seq, at, "done")
            return
        self._in_graph = True
        names = [str(name).partition(":")[0] for name in queue]
        if node is not None and node not in self._told:
            self._node(f"node {seq}", node, seq, at, said, "work", live=live, status="done", name=one_line(node))
        self._told.discard(str(node))
        self._queue = {name: at if name == node else self._queue.get(name, at) for name in names}

    def _node(self, key: str, node: str, seq: int, at: int, said: dict[str, Any], look: Look, **more: Any) -> None:
        """The bar of a call of a node. If it does not say how long it took, that is known only of a quick one."""
        took = said.get("seconds")
        start = at - round(took * SECOND) if took is not None else self._queue.get(node, self._since(""))
        timed = took is not None or at - start < AT_ONCE * SECOND
        bar = self._begin(key, "node", seq, start if timed else at, look, timed=timed, **more)
        self._end(key, seq, at, bar.status)

    def _failed(self, seq: int, at: int, said: dict[str, Any]) -> None:
        """The node that a run has failed with has a bar of its own, if none says so yet."""
        path = said.get("node")
        if path is not None and path not in self._failures:
            self._failures.add(path)
            name, error = one_line(task_name(path)), one_line(said.get("error") or "")
            node = path.rpartition("#")[0]
            self._node(path, node, seq, at, said, "failed", live=True, status="failed", name=name, error=error)

    def on_rolls_back(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        if "failure" not in said:
            self._failures.clear()
        self._failed(seq, at, said.get("failure") or {})
        self._stop(at)
        name, by = f"rolls back to entry {said['to']}", one_line(f"by {said['by']}") if said.get("by") else ""
        self._begin("rollback", "rollback", seq, at, "undo", True, status="started", name=name, detail=by)

    def on_undone(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        status = "undone" if said.get("ok") else "left" if "left" in said else "undo_failed"
        status = "uncertain" if "uncertain" in said else status
        for n, bar in self.bars.items():
            if bar.declared == said["effect"]:
                self.bars[n] = replace(bar, status=status, error=one_line(said.get("error") or bar.error))

    def on_rewound(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        if "rollback" in self._open:
            self._end("rollback", seq, at, "done")
        self._restart(at)

    def on_ended(self, seq: int, at: int, said: dict[str, Any], live: bool) -> None:
        self._failed(seq, at, said)
        self._stop(at)

    def _stop(self, at: int) -> None:
        """Nothing more comes of what has not ended by now."""
        for key in list(self._open):
            n = self._open.pop(key)
            bar = self.bars[n]
            last = bar.pieces[-1]
            status = {"waiting": "closed", "started": "uncertain"}.get(bar.status, bar.status)
            ends = {"wait": max(last.start, at), "pause": min(last.end, at)}.get(last.look, last.end)
            self.bars[n] = replace(bar, status=status, pieces=(*bar.pieces[:-1], replace(last, end=ends)))


def _paused(bar: Bar, start: int) -> tuple[Piece, ...]:
    """What a bar has before an attempt that begins then: the pause lasts until that, maybe for want of a worker."""
    *before, last = bar.pieces
    return (*before, replace(last, end=start)) if last.look == "pause" else tuple(before)


def is_node(key: str) -> bool:
    """Whether a step is all that its node does, as the steps of flows are: ``build#1/build#1``."""
    return node_of(key) == name_in(f"/{key}") and fan_of(key) is None


_ENTER: dict[str, Callable[[Reel, int, int, dict[str, Any], bool], None]] = {
    Kind.STARTED: Reel.on_started,
    Kind.INTENDED: Reel.on_intended,
    Kind.DONE: Reel.on_done,
    Kind.MARKED: Reel.on_done,
    Kind.RAISED: Reel.on_raised,
    Kind.RESOLVED: Reel.on_resolved,
    Kind.ASKED: Reel.on_asked,
    Kind.ANSWERED: Reel.on_answered,
    Kind.CLOSED: Reel.on_closed,
    Kind.TIMER: Reel.on_timer,
    Kind.CHILD: Reel.on_child,
    Kind.SAVED: Reel.on_saved,
    Kind.ROLLBACK_BEGUN: Reel.on_rolls_back,
    Kind.UNDONE: Reel.on_undone,
    Kind.REWOUND: Reel.on_rewound,
    Kind.COMPLETED: Reel.on_ended,
    Kind.FAILED: Reel.on_ended,
    Kind.CANCELLED: Reel.on_ended,
}
