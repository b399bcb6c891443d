"""What happened in a run and when: the one place that interprets the entries of a journal for people.

`Timeline` takes entries in order. Each gives lines for a reader at a terminal, and all of them bars for a picture;
both come from the same state, so that they agree. It does no I/O; `window` reads the entries of a run.

A step that touches the world, a child, a question and a timer say when they started. A plain step is one entry, at its
end, with how long it took; one that does not say took next to no time. The time in which its run stood in a queue, or
waited for a worker, belongs to no step. A bar has one piece for each attempt, and for each pause between two; parallel
branches have lanes of their own.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engine.run.handle import Run
from holdfast.kernel.fold import name_in
from holdfast.kernel.journal import NOTED_FROM
from holdfast.kernel.model import ENDED, Kind, Status
from holdfast.present.names import call_name, fan_of, is_node, node_of, step_name, task_name
from holdfast.present.words import brief, clock, joined, one_line, short, span
from holdfast.views import EntryContents, RunInfo, moment

Look = Literal["work", "failed", "pause", "wait", "undo"]
Sort = Literal["step", "node", "question", "timer", "child", "save", "rollback"]

SECOND = 1_000_000
WINDOW = 300  # entries
_AT_ONCE = 0.3  # seconds: a node that ended so soon after it was next was executed by one process, without a wait
_ERROR = 200  # characters of a step's error in a line
_WAITS = {"sleep": "sleeps", "receive": "waits for a message"}
_UNSHOWN = frozenset({"now", "random", "uuid", "first", "timeout"})  # calls that are no work
_ERASED = "(erased)"

Contents = dict[str, Any]
Lines = Iterable["Line"]


class Line(NamedTuple):
    """One thing that happened, for a reader."""

    status: str
    text: str
    detail: str = ""
    seconds: float | None = None
    fan: str | None = None  # the gather or map that it belongs to
    depth: int = 0  # of the child or node that it happened in


class Waiting(NamedTuple):
    """Something that a run waits for now."""

    text: str
    until: datetime | None = None


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
    until: int | None = None  # of a timer: when it ends

    @property
    def look(self) -> str:
        """The word for how it stands: what waits for a person and what waits for a moment are distinguished."""
        waits = {"question": "asks", "timer": "delayed"} if self.status == "waiting" else {}
        return waits.get(self.sort, self.status)

    @property
    def took(self) -> str:
        """How long it took, as far as that is known."""
        return "?" if self.status == "uncertain" else brief(self.seconds) if self.timed else ""

    @property
    def attempt(self) -> int:
        """The attempt that runs, ended it, or comes next."""
        return self.attempts + (self.status == "retrying")

    @property
    def start(self) -> int:
        return self.pieces[0].start

    @property
    def end(self) -> int:
        return self.pieces[-1].end

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / SECOND


class Timeline:
    """Takes the entries of a run in order; has its bars, and gives the lines of each entry."""

    def __init__(self, *, by_hand: bool = False, since: int | None = None) -> None:
        self.by_hand = by_hand  # whether a loop of one's own drives the run, and not a workflow or graph
        self.bars: dict[int, Bar] = {}  # by their numbers, in the order of their rows
        self.queue: dict[str, int] = {}  # nodes that come next, and since when
        self.maps: dict[str, tuple[int, int]] = {}  # of nodes that map: how many items are done, and of how many
        self._open: dict[str, int] = {}  # keys of what has not ended, and the number of its bar
        self._clock: dict[str, int] = {} if since is None else {"": since}  # by lane: the time of its last entry
        self._fans: dict[str, int] = {}  # calls of ``map`` and the like, and since when they have branches
        self._drawn: set[str] = set()  # nodes whose own effect has a bar
        self._told: set[str] = set()  # nodes whose own step has a bar and a line
        self._spans: dict[str, list[tuple[int, int]]] = {}  # of nodes that map: when items were executed
        self._in_graph = False
        self._failures: set[str] = set()  # calls, and nodes, of which a bar says that they failed
        self._over: set[str] = set()  # keys of steps that have ended
        self._undos: Counter[bool] | None = None  # of the rollback that is not done: how many succeeded, and failed
        self._now = 0

    def add(self, entry: EntryContents, *, live: bool = True) -> list[Line]:
        """Take the next entry, and give its lines: none or a few. ``live`` is false for what a rollback abandoned."""
        self._now = at = round(entry.at.timestamp() * SECOND)
        take = _TAKE.get(entry.kind)
        found = take(self, entry.seq, at, entry.contents, live) if take is not None else ()
        return [one._replace(text=one_line(one.text), detail=one_line(one.detail)) for one in found]

    def finish(self, now: int, *, running: bool) -> list[Bar]:
        """The bars, with what has not ended drawn up to this moment."""
        for n in self._open.values():
            bar = self.bars[n]
            last = bar.pieces[-1]
            status = bar.status
            if status == "started" and not running:
                status = {"rollback": "not done", "child": "waiting"}.get(bar.sort, "uncertain")
            continues = bar.live and status in (bar.status, "waiting")  # nobody knows when an uncertain step ended
            piece = replace(last, end=max(last.start, now)) if continues else last
            self.bars[n] = replace(bar, status=status, pieces=(*bar.pieces[:-1], piece))
        return list(self.bars.values())

    def open_bar(self, key: str) -> Bar | None:
        """The bar of a call that has not ended."""
        n = self._open.get(key)
        return self.bars[n] if n is not None else None

    def waits(self) -> Iterator[Waiting]:
        """The moments that the run waits for: the ends of timers and of pauses between attempts."""
        for bar in [self.bars[n] for n in self._open.values()]:
            if bar.sort == "timer":
                yield Waiting(bar.name, moment(bar.until) if bar.until is not None else None)
            elif bar.status == "retrying":
                yield Waiting(f"{bar.name}: attempt {bar.attempt}", moment(bar.end))

    # --- bars

    def _restart(self, at: int) -> None:
        """From here on, nothing of what was before says when something started."""
        self._clock, self._fans, self._over = {"": at}, {}, set()
        self.queue = dict.fromkeys(self.queue, at)

    def _forget(self, at: int) -> None:
        """Nothing of what was under way before counts any longer."""
        self._restart(at)
        for kept in (self.queue, self.maps, self._spans, self._told, self._drawn):
            kept.clear()

    def _since(self, lane: str) -> int:
        """The time of the last entry of a branch; of a new one, when the call that it is a branch of was made."""
        if lane in self._clock or not lane:
            return self._clock.get(lane, self._now)
        around, _, last = lane.rpartition("/")
        call, dot, _ = last.rpartition(".")
        return self._fans.setdefault(f"{around}/{call}", self._since(around)) if dot else self._since(around)

    def _start(self, key: str, at: int, said: Contents) -> int:
        """When a call started of which an entry says how long it took; not before its branch was there."""
        took: int = round(said.get("seconds", NOTED_FROM) * SECOND)
        return at - took if "seconds" in said else max(self._since(key.rpartition("/")[0]), at - took)

    def _reach(self, lane: str, at: int) -> None:
        """A branch has come to this moment; what comes after it in the calls around it comes later."""
        self._clock[lane] = at
        while lane:
            lane = lane.rpartition("/")[0]
            self._clock[lane] = max(at, self._clock.get(lane, 0))

    def _begin(self, key: str, sort: Sort, seq: int, start: int, look: Look, live: bool, **more: Any) -> Bar:
        lane = key.rpartition("/")[0] if "#" in key and not is_node(key) else ""
        name = one_line(more.pop("name", None) or step_name(key))
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
        self.bars[n] = replace(bar, status="started", attempts=bar.attempt, pieces=pieces, **more)

    def _end(
        self, key: str, seq: int, at: int, status: str, look: Look | None = None, since: int | None = None, **more: Any
    ) -> Bar:
        n = self._open.pop(key)
        bar = self.bars[n]
        last = bar.pieces[-1]
        if last.look == "pause":  # the attempt after the pause is not journaled when it starts
            start = max(min(last.end, at), at if since is None else since)
        else:
            start = last.start if since is None else max(last.start, since)
        kind = look or ("work" if last.look == "pause" else last.look)
        pieces = (*_paused(bar, start), Piece(start, max(start, at), kind))
        self.bars[n] = bar = replace(bar, status=status, pieces=pieces, seq=seq, **more)
        self._reach(bar.lane, at)
        return bar

    def _stop(self, at: int) -> None:
        """Nothing more comes of what has not ended by now."""
        for key in list(self._open):
            n = self._open.pop(key)
            bar = self.bars[n]
            last = bar.pieces[-1]
            status = {"waiting": "closed", "started": "uncertain"}.get(bar.status, bar.status)
            status = "closed" if bar.sort == "child" else status
            ends = {"wait": max(last.start, at), "pause": min(last.end, at)}.get(last.look, last.end)
            self.bars[n] = replace(bar, status=status, pieces=(*bar.pieces[:-1], replace(last, end=ends)))

    # --- steps

    def on_started(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        key, start = said["key"], self._start(said["key"], at, said)
        if key in self._open:
            if self.bars[self._open[key]].pieces[-1].look == "pause":
                self._begin_again(key, start)
        elif key not in self._over:  # else it ended while this was being written
            self._begin(key, "step", seq, start, "work", live, status="started")
        return ()

    def on_intended(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        key, target = said["key"], one_line(said.get("target") or "")
        declared = said.get("again", seq)
        if key in self._open:
            more = {} if "again" in said else {"detail": target, "declared": declared}
            self._begin_again(key, at, **more)
        else:
            self._begin(key, "step", seq, at, "work", live, status="started", detail=target, declared=declared)
        return ()

    def on_child(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        if said["key"] not in self._open:
            link = str(said["id"])
            self._begin(said["key"], "child", seq, at, "work", live, status="started", link=link, declared=seq)
        return ()

    def on_done(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        key = said["key"]
        name = call_name(key)
        is_step = "digest" in said or "intent" in said or "tool" in said
        self._over.add(key)
        was_open = key in self._open
        if not was_open:
            if key.startswith("patched:") or (not is_step and name in _UNSHOWN):
                return
            if "message" in said or (not is_step and name in _WAITS):
                asked, words = self._since(key.rpartition("/")[0]), _WAITS.get(name, _WAITS["receive"])
                self._begin(key, "timer", seq, asked, "wait", live, status="waiting", name=words)
            else:
                self._begin(key, "step", seq, self._start(key, at, said), "work", live, status="done")
        bar, since = self.bars[self._open[key]], self._ran_since(key, at, said)
        attempts, detail = said.get("attempts", bar.attempt), joined(bar.detail, "erased" if "erased" in said else "")
        bar = self._end(key, seq, at, "done", since=since, attempts=attempts, detail=detail, live=live)
        if "intent" in said and self._is_effect_node(key):  # that it is saved, right after this, has its line
            self._drawn.add(name)
            return
        if is_node(key):
            self._told.add(name)
        if bar.sort != "timer":
            attempt = f"attempt {bar.attempts}" if bar.attempts > 1 else ""
            yield _line(bar, joined(bar.detail, attempt, bar.link), timed=was_open or is_node(key) or "seconds" in said)

    def _is_effect_node(self, key: str) -> bool:
        return self._in_graph and "/" not in key

    def _ran_since(self, key: str, at: int, said: Contents) -> int | None:
        """When the attempt started that ends now; None if its bar started with it: an effect says so anew."""
        bar = self.bars[self._open[key]]
        is_plain = (bar.sort == "step" and bar.declared is None) or self._is_effect_node(key)  # which may have waited
        return self._start(key, at, said) if is_plain or bar.pieces[-1].look == "pause" or "seconds" in said else None

    def on_raised(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        key = said["key"]
        timed = "seconds" in said or (key in self._open and not self._is_effect_node(key))
        error = one_line(said.get("error") or "an error that was erased")
        if key not in self._open:
            self._begin(key, "step", seq, self._start(key, at, said), "work", live, status="started")
        n, until = self._open[key], said.get("until")
        attempt, since = said.get("attempt", self.bars[n].attempt), self._ran_since(key, at, said)
        status = "retrying" if until is not None else "uncertain" if "uncertain" in said else "failed"
        bar = self._end(key, seq, at, status, "failed", since, attempts=attempt, error=error, live=live)
        if until is not None:
            self.bars[n] = replace(bar, pieces=(*bar.pieces, Piece(at, max(at, until), "pause")))
            self._open[key] = n
            detail = f"{short(error, _ERROR)}; again in {span(max((until - at) / SECOND, 0))}"
            yield _line(bar, detail, timed=False)
            return
        self._over.add(key)
        self._failures.add(key)
        detail = short(error, _ERROR) + (f" (attempt {attempt})" if attempt > 1 else "")
        yield _line(bar, detail, timed=timed)

    def on_resolved(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        key = said.get("key")
        if key in self._open:
            status = "done" if said.get("done") else "not done"
            if status == "done" and "/" not in key:  # a node, maybe, which whoever resumes the run saves
                self._drawn.add(call_name(key))
            bar = self._end(key, seq, at, status, detail=one_line(_by(said)), live=live)
            yield _line(bar, joined("resolved", bar.detail, by=" "), timed=False)

    # --- waiting

    def on_asked(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        prompt = said.get("prompt", _ERASED)
        key = said.get("key") or f"question {seq}"
        bar = self._begin(key, "question", seq, at, "wait", live, status="waiting", name=prompt)
        self._open[f"? {seq}"] = self._open.pop(bar.key)
        yield Line("asks", prompt)

    def on_answered(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        late = "failure" in said
        if (key := f"? {said['question']}") in self._open:
            told = "no answer in time" if late else one_line(_by(said))
            self._end(key, seq, at, "failed" if late else "answered", detail=told)
        if late:
            yield Line("failed", "no answer in time")
        else:
            yield Line("answered", short(said.get("value", _ERASED)), _by(said))

    def on_closed(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        if (key := f"? {said['question']}") in self._open:
            yield Line("closed", self._end(key, seq, at, "closed").name, "no longer asked")

    def on_timer(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        words, until = _WAITS.get(name_in(f"/{said['key']}")), said["until"]
        if words is not None:
            if said["key"] not in self._open:
                self._begin(said["key"], "timer", seq, at, "wait", live, status="waiting", name=words, until=until)
            if until - at >= SECOND:
                yield Line("delayed", words, f"until {clock(moment(until))}")

    def on_received(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        yield Line("answered", "message", short(said.get("value", _ERASED)))

    def on_emitted(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        if "value" in said:
            yield Line("note" if said["stream"] == "notes" else "output", short(said["value"], 200))

    # --- saved states, and the nodes of graphs

    def on_saved(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        """A node is done, or one item of a node that maps; or a loop of one's own saved its state."""
        node, queue = said.get("node"), said.get("queue")
        if "erased" in said and not self.by_hand:
            return
        if self.by_hand or not isinstance(queue, list):
            since, detail = self._since(""), one_line(f"next {said['next']}") if said.get("next") else ""
            self._begin(f"saved {seq}", "save", seq, since, "work", live, status="done", name="saved", detail=detail)
            self._end(f"saved {seq}", seq, at, "done")
            yield Line("note", "saved", detail)
            return
        self._in_graph = True
        if node is not None:
            yield from self._saved_node(str(node), seq, at, said, live)
        names = [str(name).partition(":") for name in queue]
        for name, count in Counter(name for name, colon, _ in names if colon).items():
            self.maps.setdefault(name, (0, count))
        self.queue = {name: at if name == node else self.queue.get(name, at) for name, _, _ in names}

    def _saved_node(self, node: str, seq: int, at: int, said: Contents, live: bool) -> Lines:
        seconds = self._took(node, at, said)
        if node not in self._told | self._drawn:
            bar = self._node(f"node {seq}", node, seq, at, said, "work", live=live, status="done", name=node)
            if bar.timed:
                self._spans.setdefault(node, []).append((bar.start, bar.end))
        if node in self.maps:
            done, total = self.maps[node][0] + 1, self.maps[node][1]
            self.maps[node] = done, total
            if done >= total:
                del self.maps[node]
                spans = self._spans.get(node)
                yield Line("done", node, f"{total} of {total}", _covered(spans) if spans else seconds)
        elif node not in self._told:
            yield Line("done", node, "", seconds)
        if node not in self.maps:
            self._spans.pop(node, None)
        self._told.discard(node)
        self._drawn.discard(node)

    def _took(self, node: str, at: int, said: Contents) -> float | None:
        """How long a call of a node took. If its entry does not say, that is known only of a quick one."""
        if said.get("seconds") is not None:
            return float(said["seconds"])
        seconds = (at - self.queue.get(node, self._since(""))) / SECOND
        return seconds if seconds < _AT_ONCE else None

    def _node(self, key: str, node: str, seq: int, at: int, said: Contents, look: Look, **more: Any) -> Bar:
        """The bar of a call of a node."""
        seconds = self._took(node, at, said)
        start = at - round((seconds or 0) * SECOND)
        bar = self._begin(key, "node", seq, start, look, timed=seconds is not None, **more)
        return self._end(key, seq, at, bar.status)

    def _failed(self, seq: int, at: int, said: Contents) -> Lines:
        """The node with which a run has failed has a bar of its own, if none says so yet."""
        path = said.get("node")
        if path is not None and path not in self._failures:
            self._failures.add(path)
            name, error = task_name(path), one_line(said.get("error") or "")
            node = path.rpartition("#")[0]
            self._node(path, node, seq, at, said, "failed", live=True, status="failed", name=name, error=error)
            yield Line("failed", name, short(error, _ERROR), said.get("seconds"))

    # --- rollbacks, ends and new starts

    def on_rolls_back(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        self._undos = Counter()
        if "failure" not in said:
            self._failures.clear()
        yield from self._failed(seq, at, said.get("failure") or {})
        self._stop(at)
        name, by = f"rolls back to entry {said['to']}", one_line(_by(said))
        self._begin("rollback", "rollback", seq, at, "undo", True, status="started", name=name, detail=by)
        yield Line("note", name, by)

    def on_undone(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        status = "uncertain" if "uncertain" in said else "left" if "left" in said else "undo_failed"
        status = "undone" if said.get("ok") else status
        if self._undos is not None:
            self._undos[bool(said.get("ok"))] += 1
        for n, bar in self.bars.items():
            if bar.declared == said["effect"]:
                self.bars[n] = replace(bar, status=status, error=one_line(said.get("error") or bar.error))
        passed = "passed over by force" if "passed" in said else ""
        yield Line(status, f"undo of entry {said['effect']}", joined(passed, said.get("error"), by=": "))

    def on_rewound(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        if "rollback" in self._open:
            self._end("rollback", seq, at, "done")
        self._forget(at)
        undos, self._undos = self._undos, None
        counts = f"{undos[True]} undone, {undos[False]} failed" if undos else ""
        yield Line("undone", f"rolled back to entry {said['to']}", counts)

    def on_ended(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        """What stays open ends with the run. Whoever shows the lines says how it ended."""
        yield from self._failed(seq, at, said)
        self._stop(at)

    def on_created(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        self._restart(at)
        return ()

    def on_forked(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        self._restart(at)
        yield Line("note", f"forked from {said['from']} at {said['at']}", _by(said))

    def on_continued(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        self._forget(at)
        yield Line("note", "starts anew")

    def on_retried(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        self._restart(at)
        self._failures.clear()
        yield Line("note", "tried again", _by(said))

    def on_unblocked(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        self._restart(at)
        yield Line("note", "unblocked", _by(said))

    def on_declined(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        yield Line("note", "stays at its breakpoint", _by(said))

    def on_late(self, seq: int, at: int, said: Contents, live: bool) -> Lines:
        yield Line("note", "an answer or mark came too late", _by(said))


_TAKE: dict[str, Callable[[Timeline, int, int, Contents, bool], Lines]] = {
    Kind.CREATED: Timeline.on_created,
    Kind.FORKED: Timeline.on_forked,
    Kind.CONTINUED: Timeline.on_continued,
    Kind.STARTED: Timeline.on_started,
    Kind.INTENDED: Timeline.on_intended,
    Kind.DONE: Timeline.on_done,
    Kind.MARKED: Timeline.on_done,
    Kind.RAISED: Timeline.on_raised,
    Kind.RESOLVED: Timeline.on_resolved,
    Kind.ASKED: Timeline.on_asked,
    Kind.ANSWERED: Timeline.on_answered,
    Kind.DECLINED: Timeline.on_declined,
    Kind.LATE: Timeline.on_late,
    Kind.CLOSED: Timeline.on_closed,
    Kind.TIMER: Timeline.on_timer,
    Kind.RECEIVED: Timeline.on_received,
    Kind.CHILD: Timeline.on_child,
    Kind.EMITTED: Timeline.on_emitted,
    Kind.SAVED: Timeline.on_saved,
    Kind.ROLLBACK_BEGUN: Timeline.on_rolls_back,
    Kind.UNDONE: Timeline.on_undone,
    Kind.REWOUND: Timeline.on_rewound,
    Kind.RETRIED: Timeline.on_retried,
    Kind.UNBLOCKED: Timeline.on_unblocked,
    Kind.COMPLETED: Timeline.on_ended,
    Kind.FAILED: Timeline.on_ended,
    Kind.CANCELLED: Timeline.on_ended,
}


def _line(bar: Bar, detail: str, *, timed: bool) -> Line:
    """The line of a step; without a time, if nobody said when it started."""
    seconds = bar.seconds if timed and bar.timed else None
    return Line(bar.status, bar.name, detail, seconds, fan_of(bar.key), inset(bar.key))


def inset(key: str) -> int:
    """How far a step stands inside: one, if it is a part of a node; the step of a flow is the node itself."""
    node = node_of(key)
    return int(node is not None and fan_of(key) is None and node != name_in(key))


def _by(said: Contents) -> str:
    return f"by {said['by']}" if said.get("by") else ""


def _paused(bar: Bar, start: int) -> tuple[Piece, ...]:
    """The pieces of a bar before an attempt that starts then: a pause lasts until it, maybe for want of a worker."""
    *before, last = bar.pieces
    return (*before, replace(last, end=start)) if last.look == "pause" else tuple(before)


def _covered(spans: list[tuple[int, int]]) -> float:
    """The seconds in which at least one of these was under way."""
    total = end = 0
    for start, stop in sorted(spans):
        total += max(stop - max(start, end), 0)
        end = max(end, stop)
    return total / SECOND


# --- the entries of a run


class Window(Struct, frozen=True):
    """The part of a journal that is shown, as bars."""

    bars: list[Bar]
    lo: int
    hi: int
    seq: int
    now: tuple[Bar, ...] = ()  # what has not ended
    after: str = ""  # of a run that is under way: the last thing that it did

    @property
    def whole(self) -> bool:
        """Whether that is all."""
        return self.lo == 0 and self.hi == self.seq


def window(run: Run, info: RunInfo, *, died: bool, upto: int | None = None) -> Window:
    """The timeline of the newest entries, or of those up to one; ``died``, if the process that held the run has."""
    hi = info.seq if upto is None else min(upto, info.seq)
    lo = max(0, hi - WINDOW + 1)
    before = lo - 1
    entries = _between(run, max(before, 0), hi, pending=upto is None)
    after = str(before - 1) if before > 0 else None
    lives = {one.seq: one.live for one in run.history(limit=len(entries) or 1, after=after)}
    since = round(entries[0].at.timestamp() * SECOND) if before >= 0 and entries else None
    timeline = Timeline(by_hand=info.queue is None, since=since)
    for entry in entries[1:] if before >= 0 else entries:
        timeline.add(entry, live=lives.get(entry.seq, True))
    continues = info.status not in ENDED and not died and hi == info.seq
    now = time.time() if continues else (entries[-1].at if entries else info.updated_at).timestamp()
    is_running = info.status is Status.RUNNING and not died
    bars = timeline.finish(round(now * SECOND), running=is_running or hi < info.seq)
    open_bars = [bar for bar in bars if bar.status in ("started", "retrying", "waiting") and bar.live]
    last = bars[-1].name if bars and is_running and continues else ""
    return Window(bars, lo, hi, info.seq, tuple(open_bars) if continues else (), last)


def _between(run: Run, lo: int, hi: int, *, pending: bool) -> list[EntryContents]:
    """Entries with lo <= seq <= hi; and what was acknowledged, and the holder has not taken in yet."""
    found = run.entries(after=str(lo - 1) if lo else None, limit=hi - lo + 1 + (WINDOW if pending else 0))
    return [one for one in found if one.seq <= hi or (pending and one.pending)]
