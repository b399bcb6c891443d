"""Writing to one thread: where its journal ends, and the state that was saved last.

A thread is written to by whoever has something to say, without a claim: an entry names the end of the journal that it
continues, and of two writers who name the same end one is refused, reads what the other wrote, and tries again. A
guarded thread is written to under a claim.

A pen runs ahead of the store: what was submitted counts as written. If a write is refused or fails, the pen is thrown
away, and another one is made from what the store has.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.codec import Tree, to_text
from holdfast.engine.access.commit import Committer, Ticket
from holdfast.engine.access.journal_reader import Journals, Saved
from holdfast.engine.control.erase import erasure_data
from holdfast.errors import HoldfastError, TooLarge
from holdfast.integrations.langgraph import layout
from holdfast.integrations.langgraph.grown_list import Look, Marks
from holdfast.integrations.langgraph.layout import Contents, Header
from holdfast.integrations.langgraph.values import Cells
from holdfast.kernel.journal import Data, is_live, live_ranges, next_entry, wants_snapshot
from holdfast.kernel.model import Append, Change, Create, Entry, Kind, RunRecord

MAX_PARKED = 3  # writes of tasks that wait for a checkpoint at a time: LangGraph has five threads or more
AFTER_VAIN = 16  # writes and checkpoints that do not wait, after one has waited in vain
MAX_NOTED = 100  # checkpoints of which is noted who wrote to them here
SHORT = 4 * 1024  # bytes that are not compressed: that would take longer than all else that is done for a checkpoint
SMALL = 2 * 1024  # bytes of a state that is stored as a whole: to find out what changed takes longer than to write it
LATE = 16  # entries before the last checkpoint, among which there may be writes to one that is put later
MAX_ALONG = 16 * 1024  # bytes of what a task wrote, that a checkpoint takes along without becoming too large by it


class Kept(Struct, frozen=True):
    """A checkpoint that stays when others are deleted, or comes from elsewhere, with what its tasks wrote."""

    header: Header
    contents: Contents
    tasks: list[Data]


Trees = Mapping[int, tuple[Look, Tree]]  # of objects that a task wrote, by their ids


class Parked:
    """What a task wrote, and is not submitted yet, or by which write it was. Who wrote it waits here meanwhile."""

    __slots__ = ("data", "gate", "ticket", "trees")

    def __init__(self, data: Data, trees: Trees) -> None:
        self.data = data
        self.trees = trees
        self.ticket: Ticket | None = None
        self.gate = threading.Lock()
        self.gate.acquire()


class Pen:
    """Writes to one thread. Hold `lock` to decide and submit in one go; it must not be held while waiting."""

    def __init__(self, record: RunRecord, saved: Saved | None, journals: Journals, committer: Committer) -> None:
        self.lock = threading.RLock()
        self.record = record
        self.place = f"thread {record.id!r}"
        self.state = layout.state_of(saved.tree if saved is not None else {})  # lists in it grow; `shown` is for others
        self._journals = journals
        self._committer = committer
        self._unborn: Entry | None = None
        self._end = record.seq, record.hash, record.updated_at
        self._saved = saved.seq if saved is not None else None
        self._snapshot = saved.snapshot if saved is not None else 0
        self._chain_bytes = saved.chain_bytes if saved is not None else 0
        self._whole_bytes = 0
        self._last: dict[str, str] = {}  # the checkpoint that was put last, by namespace
        self._before_last: dict[str, str] = {}  # the checkpoint before that one
        self._awaited: tuple[tuple[str, str], threading.Lock] | None = None  # see `await_writes`
        self._marks: dict[tuple[str, str], Marks] = {}
        self._grown: layout.Grown = {}  # since the checkpoint before
        self._opened = record.seq
        self._first = saved.seq if saved is not None else record.seq
        self._before: dict[tuple[str, str], list[int]] | None = None  # writes that were made before this pen
        self._plain_bytes = min(SHORT, journals.max_bytes // 2) if record.key_id is None else -1  # stored as they are
        self._parked: list[Parked] = []
        self._in_vain = 0
        self._waits_to_skip = 0  # by `await_writes`, after it has waited in vain
        self._along: list[Parked] = []  # what the last checkpoint took along
        self._writes: dict[tuple[str, str], list[int]] = {}  # made with this pen, by checkpoint
        if saved is not None and layout.is_checkpoint(saved.tree, saved.seq):
            self._last[self.state["checkpoint"]["ns"]] = self.state["checkpoint"]["id"]
        elif saved is not None:
            self._chain_bytes = sys.maxsize  # others have saved something there, so the next checkpoint is a whole

    @classmethod
    def of_new(cls, create: Create, journals: Journals, committer: Committer) -> Pen:
        """The pen of a thread that is made with the first write to it."""
        [first] = create.entries
        pen = cls(replace(create.record, seq=0, hash=first.hash, updated_at=first.at), None, journals, committer)
        pen._unborn = first
        return pen

    @property
    def end(self) -> tuple[int, bytes]:
        """The number and hash of the newest entry."""
        return self._end[:2]

    def shown(self) -> layout.State:
        """The state as it was saved last, for others to read: it stays as it is."""
        sub = {ns: self._copied(ns, channels) for ns, channels in self.state["sub"].items()}
        return {**self.state, "state": self._copied("", self.state["state"]), "sub": sub}

    def _copied(self, ns: str, channels: Mapping[str, Tree]) -> dict[str, Tree]:
        grown = self._grown
        return {name: tree[: grown.get((ns, name))] if type(tree) is list else tree for name, tree in channels.items()}

    # --- checkpoints

    def put(self, header: Header, given: Contents) -> Ticket:
        """Submit a checkpoint, and take along what tasks wrote and is not submitted yet.

        Its seq, and which writes to it came before, are filled in here.
        """
        with self.lock:
            along, texts = self._taken_along(header.ns, given)
            try:
                entry = self._checkpoint(header, given, along, texts)
            except TooLarge:
                if not along:
                    raise
                along = []  # which is written by itself then
                entry = self._checkpoint(header, given, along, [])
            before = self._last.get(header.ns)
            if before is not None and before != header.id:
                self._before_last[header.ns] = before
            self._last[header.ns] = header.id
            ticket = self._submit((entry,))
            for parked in along:
                parked.ticket = ticket
                self._note(parked.data, entry.seq)
            self._parked = [one for one in self._parked if one.ticket is None] if self._parked else []
            self.let_go()  # they would have got in the way of the graph, and can end while this one is committed
            self._along = along
            return ticket

    def _taken_along(self, ns: str, given: Contents) -> tuple[list[Parked], list[Raw]]:
        """What is parked and can be stored with a checkpoint, and how."""
        along, texts = [], []
        for parked in self._parked:
            text = to_text(layout.referring(parked.data, ns, given.channels, self._grown))
            if len(text) <= MAX_ALONG:
                along.append(parked)
                texts.append(Raw(text))
        return along, texts

    def _checkpoint(self, header: Header, given: Contents, along: list[Parked], texts: list[Raw]) -> Entry:
        """The entry of a checkpoint with what it takes along, some of which may be writes to itself."""
        seq, ns, id = self._end[0] + 1, header.ns, header.id
        early = self._written_so_far(ns, id)
        for parked in along:
            if parked.data["ns"] == ns and parked.data["of"] == id:
                early.append(seq)
        header = replace(header, seq=seq, early=tuple(dict.fromkeys(early)) if early else ())
        return self._save(layout.placed(self.state, header, given), texts)

    @property
    def waiting(self) -> int:
        """How many threads wait for what the checkpoint before took along."""
        return len(self._along)

    def let_go(self) -> None:
        """Wake the threads that wait for what the checkpoint before took along."""
        for parked in self._along:
            if parked.ticket is not None and parked.ticket.settled:
                parked.gate.release()
        self._along = []

    def encoded(
        self,
        cells: Cells,
        ns: str,
        parent: str | None,
        values: Mapping[str, Any],
        versions: Mapping[str, Any],
        changed: Mapping[str, Any],
    ) -> dict[str, Tree]:
        """The channels of a checkpoint as trees. What cannot have changed since its parent is not looked at."""
        old = layout.channels(self.state, ns) or {}
        follows = parent is not None and self._last.get(ns) == parent
        before = self.state["versions"].get(ns, {})
        trees: dict[str, Tree] = {}
        for name, value in values.items():
            same = follows and name in old and name not in changed and versions.get(name) == before.get(name)
            trees[name] = old[name] if same else self._tree(cells, ns, name, value, old.get(name))
        return {**{name: trees[name] for name in old if name in trees}, **trees}

    def _tree(self, cells: Cells, ns: str, name: str, value: Any, old: Tree) -> Tree:
        """The tree of a channel. That of a list that only grew is the old one, which grows too: it may be long."""
        marks = self._marks.pop((ns, name), None)
        if type(value) is not list or not cells.by_element:
            return cells.tree(value, self.place, "channel", name)
        value = value[:]
        if marks is not None and type(old) is list and marks.length == len(old) and marks.begin(value):
            self._mark(ns, name, marks, value)
            if len(value) > len(old):
                self._grown.setdefault((ns, name), len(old))
                for each in value[len(old) :]:
                    old.append(self._written(each) or cells.element(each, self.place, "channel", name))
            return old
        self._mark(ns, name, cells.marks(), value)
        return cells.tree(value, self.place, "channel", name)

    def _mark(self, ns: str, name: str, marks: Marks, value: list[Any]) -> None:
        """Remember what a list is, before its tree is made: what others change meanwhile is found the next time."""
        try:
            marks.add(value, marks.length)
        except (TypeError, ValueError, RecursionError):
            return  # there is something in it that is not stored: it is stored anew each time
        self._marks[ns, name] = marks

    def _written(self, value: Any) -> Tree:
        """The tree of an object that a task has just written, if it is still what it was then."""
        for parked in self._parked:
            look, tree = parked.trees.get(id(value), (None, None))
            if look is not None and look.sees(value):
                return tree
        return None

    def take_back(self) -> None:
        """Forget what a checkpoint has added that was refused before it was submitted."""
        for (ns, name), length in self._grown.items():
            grown: Any = (layout.channels(self.state, ns) or {})[name]
            del grown[length:]
        self._grown = {}
        self._marks.clear()

    def _written_so_far(self, ns: str, id: str) -> list[int]:
        """The writes to a checkpoint that came before it, or before it is put once more."""
        last = layout.top(self.state, ns)
        if last is not None and last[1] == id and last[0] <= self._opened:
            before = self._writes_since(last[0])
        else:
            if self._before is None:  # others, or a pen before this one, may have written to it
                self._before = self._writes_since(max(self._first - LATE, self.record.chapter, 1))
            before = self._before
        return before.get((ns, id), []) + self._writes.get((ns, id), [])

    def _writes_since(self, start: int) -> dict[tuple[str, str], list[int]]:
        """Where writes stand that were made before this pen, from an entry on, by checkpoint."""
        found: dict[tuple[str, str], list[int]] = {}
        if start > self._opened:
            return found
        ranges = live_ranges(self.record.rewinds, self._opened)
        for uid, entry in self._journals.entries(self.record, start, self._opened):
            if entry.kind not in (Kind.SAVED, Kind.DONE) or not is_live(ranges, entry.seq):
                continue
            data = self._journals.data(self.record.id, uid, entry)
            stored = layout.stored_header(data)
            if entry.seq == start and stored is not None and stored.get("seq") == start:
                found.setdefault((stored["ns"], stored["id"]), []).extend(stored.get("early", ()))
            for key in {(task["ns"], task["of"]) for task in layout.tasks_in(data)}:
                found.setdefault(key, []).append(entry.seq)
        return found

    # --- writes

    def park(self, data: Data, trees: Trees) -> Parked | Ticket:
        """Leave what a task wrote to the checkpoint that mostly follows at once.

        Not if many are waiting, in threads that the graph may need for what they wait for, or if one has waited in
        vain; nor the next ones after that.
        """
        with self.lock:
            if self._before_last.get(data["ns"]) == data["of"]:  # too late: the next checkpoint is written
                return self.write(data)
            if len(self._parked) >= MAX_PARKED or self._in_vain:
                self._in_vain = (self._in_vain or AFTER_VAIN) - 1
                for parked in self._parked[:]:
                    with suppress(HoldfastError):  # which whoever waits for it gets, too
                        self.write_parked(parked)
                    parked.gate.release()
                return self.write(data)
            parked = Parked(data, trees)
            self._parked.append(parked)
            self._end_awaiting(data)
            return parked

    def await_writes(self, ns: str, of: str, seconds: float) -> None:
        """Wait until the writes of a task to this checkpoint arrive.

        LangGraph submits the writes of a task before the checkpoint that follows, but to another thread, and either
        thread may run first.
        """
        with self.lock:
            known = any((one.data["ns"], one.data["of"]) == (ns, of) for one in self._parked)
            if known or (ns, of) in self._writes or self._in_vain or self._awaited or self._last.get(ns) != of:
                return
            if self._waits_to_skip:
                self._waits_to_skip -= 1
                return
            gate = threading.Lock()
            gate.acquire()
            self._awaited = (ns, of), gate
        came = False
        try:
            came = gate.acquire(timeout=seconds)
        finally:
            with self.lock:
                self._waits_to_skip = 0 if came else AFTER_VAIN
                if self._awaited is not None and self._awaited[1] is gate:
                    self._awaited = None

    def _end_awaiting(self, data: Data) -> None:
        if self._awaited is not None and self._awaited[0] == (data["ns"], data["of"]):
            self._awaited[1].release()
            self._awaited = None

    def write_parked(self, parked: Parked) -> Ticket:
        """Submit what a task wrote, unless a checkpoint has taken it along."""
        with self.lock:
            if parked.ticket is None:
                self._parked = [one for one in self._parked if one is not parked]
                parked.ticket = self.write(parked.data)
            return parked.ticket

    def end_waiting(self, parked: Parked) -> Ticket:
        """Submit what a task wrote and no checkpoint has taken along while it waited for one."""
        with self.lock:
            if parked.ticket is None:
                self._in_vain = AFTER_VAIN
            return self.write_parked(parked)

    def write(self, data: Data) -> Ticket:
        """Submit what a task wrote."""
        with self.lock:
            entry = self._entry(Kind.DONE, data)
            self._note(data, entry.seq)
            return self._submit([entry])

    def _note(self, data: Data, seq: int) -> None:
        self._end_awaiting(data)
        key = data["ns"], data["of"]
        if key not in self._writes and len(self._writes) >= MAX_NOTED:
            self._writes.pop(next(iter(self._writes)))
        self._writes.setdefault(key, []).append(seq)

    # --- all of it

    def rewrite(self, before: int, kept: Sequence[Kept]) -> Ticket:
        """Submit a new beginning: the checkpoints that are kept."""
        with self.lock:
            start = self._end[0] + 1
            self.state, self._saved = layout.blank(), None
            entries = [self._entry(Kind.CONTINUED, {"before": before}), *self._kept(kept)]
            return self._submit(entries, Change(chapter=start))

    def erase(self, erasures: Sequence[tuple[int, bytes]]) -> Ticket:
        """Submit the erasure of what was before the beginning."""
        with self.lock:
            entry = self._entry(Kind.REDACTED, erasure_data(erasures, None, "pruned"))
            return self._submit([entry], redact=tuple(erasures))

    def take_in(self, told: Data, found: Iterable[Kept]) -> Ticket:
        """Submit a whole thread that was found elsewhere, after an entry that tells where."""
        with self.lock:
            return self._submit([self._entry(Kind.DONE, told), *self._kept(found)])

    def _kept(self, found: Iterable[Kept]) -> Iterator[Entry]:
        for one in found:
            header = replace(one.header, seq=self._end[0] + 1, early=())
            yield self._save(layout.placed(self.state, header, one.contents))
            for data in one.tasks:
                yield self._entry(Kind.DONE, data)

    # --- entries

    def _save(self, state: layout.State, tasks: Sequence[Raw] = ()) -> Entry:
        along: Data = {"tasks": tasks} if tasks else {}
        whole = self._saved is None or self._chain_bytes <= SMALL
        if not whole:
            text = to_text({"d": layout.difference(self.state, state, self._grown), **along})
            whole = self._should_be_whole(len(text), state)
        if whole:
            text = to_text({"s": state, **along})
        entry = self._sealed(Kind.SAVED, text, self._end[0] + 1 if whole else self._snapshot)
        if whole:
            self._snapshot, self._chain_bytes = entry.seq, 0
        self.state, self._saved, self._grown = state, entry.seq, {}
        self._chain_bytes += len(text)
        return entry

    def _should_be_whole(self, delta_bytes: int, state: layout.State) -> bool:
        """Measures the whole state only when what was known of its size no longer decides."""
        if not wants_snapshot(self._chain_bytes, delta_bytes, self._whole_bytes):
            return False
        self._whole_bytes = len(to_text(state))
        fits = self._whole_bytes <= self._journals.max_bytes
        return fits and wants_snapshot(self._chain_bytes, delta_bytes, self._whole_bytes)

    def _entry(self, kind: Kind, data: Data) -> Entry:
        return self._sealed(kind, to_text(data), self._saved)

    def _sealed(self, kind: Kind, text: bytes, state: int | None) -> Entry:
        """The next entry."""
        last, prev, before = self._end
        seq, record = last + 1, self.record
        at = max(self._journals.store.clock.now(), before)
        payload = text
        self._journals.codec.refuse_secrets(text, self.place)
        if len(text) > self._plain_bytes:
            encrypted, where = record.key_id is not None, f"{seq}/{kind}"
            payload = self._journals.seal_text(record.uid, encrypted, where, text, self.place, over=SHORT)
        entry = next_entry(prev, seq, kind, at, state, payload)
        self._end = seq, entry.hash, at
        return entry

    def _submit(
        self, entries: Sequence[Entry], change: Change | None = None, redact: tuple[tuple[int, bytes], ...] = ()
    ) -> Ticket:
        record = self.record
        if self._unborn is not None:
            new = replace(record, seq=-1, hash=b"", updated_at=0)
            create = self._journals.create(new, (self._unborn, *entries))
            self._unborn = None
            return self._committer.submit(create)
        holder = record.worker or ""
        return self._committer.submit(
            Append(record.uid, record.id, record.epoch, holder, tuple(entries), change, redact=redact)
        )
