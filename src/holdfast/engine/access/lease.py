"""The right to write to one run: an epoch, and the run as it is after everything that was submitted under it.

The record and the fold are carried forward at the moment a write is submitted, by the same `appended` that the stores
use, so that whatever is decided next is decided on top of it. They are provisional until the write is settled. If it
fails, both are thrown away and read again from the store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any

from msgspec.structs import replace

from holdfast.codec import Tree, check_size, diff, patch_owned, to_text
from holdfast.engine.access.commit import Committer, Ticket
from holdfast.engine.access.journal_reader import Journals, Saved
from holdfast.engine.access.offload import Line
from holdfast.errors import HoldfastError, LeaseLost, Redacted, RunDamaged, RunNotFound
from holdfast.kernel.fold import Fold
from holdfast.kernel.journal import Data, next_entry, wants_snapshot
from holdfast.kernel.model import Append, Change, Entry, Kind, RunRecord
from holdfast.kernel.rules import appended


def _is_no_progress(kind: str, data: Data) -> bool:
    """Whether an entry only says what is about to be done, or is under way: who dies again has got no further."""
    return kind in (Kind.INTENDED, Kind.STARTED) or (kind == Kind.RESOLVED and not data["done"])


class Overtaken(Exception):
    """The change was computed for a state that is no longer the last one."""


class Lease:
    """Held by exactly one worker at a time. Numbers and hashes are given out in the order of the calls to `write`.

    Hold `lock` to decide and submit in one go; it must not be held while waiting.
    """

    def __init__(self, record: RunRecord, journals: Journals, committer: Committer, fold: Fold) -> None:
        assert record.worker is not None
        self.lock = threading.RLock()
        self.line = Line()  # orders the writes of concurrent tasks
        self._record = record
        self._ahead: tuple[int, bytes, int] | None = None  # seq, hash and time of the newest entry, if newer than that
        self.fold = fold
        self.lost = False
        self.lapses = 0  # of the worker, up to which the run is known to be held by it: see `Worker.confirm`
        self.untold = False  # whether the run has ended, and its parent does not know yet
        self.pending: Ticket | None = None  # the last write that was submitted
        self.took: set[str] = set()  # the inbox items that are in the journal, or on their way there
        self._worker = record.worker
        self._journals = journals
        self._clock = journals.store.clock
        self._committer = committer
        self._stale = False
        self._saved: Saved | None = None
        self._whole_bytes = 0

    @property
    def record(self) -> RunRecord:
        """The run as it is with all that was submitted."""
        if self._ahead is not None:
            with self.lock:
                if self._ahead is not None:
                    seq, hash, at = self._ahead
                    self.record = replace(self._record, seq=seq, hash=hash, updated_at=at)
        return self._record

    @record.setter
    def record(self, record: RunRecord) -> None:
        self._record, self._ahead = record, None

    @property
    def seq(self) -> int:
        """The number of the newest entry."""
        return self.record.seq

    def check(self) -> None:
        """Raise `LeaseLost` if it is lost. After a failed write (a full disk), find out where the journal ends."""
        with self.lock:
            if self.pending is not None:
                self.settled(self.pending)  # its awaiter may have been cancelled
            if self._stale and not self.lost:
                now = self._current()
                if now is None:
                    self.lost = True
                else:
                    self.record, self._saved, self.pending = now, None, None
                    self.took.clear()
                    self.fold = self._journals.fold(now, now.seq)
                    self._stale = False
            if self.lost:
                raise LeaseLost(self.record.id)

    @property
    def check_may_block(self) -> bool:
        """Whether `check` must read from the store, or must wait for a thread that holds the lock."""
        if not self.lock.acquire(blocking=False):
            return True
        try:
            failed = self.pending is not None and isinstance(self.pending.outcome, BaseException)
            return (self._stale or failed) and not self.lost
        finally:
            self.lock.release()

    @property
    def is_given_up(self) -> bool:
        """Whether it was given up together with the last write."""
        return self.record.worker is None and self.sound

    @property
    def sound(self) -> bool:
        """Whether the fold says what is lasting."""
        with self.lock:
            done = self.pending is None or self.pending.settled
            return done and not self._stale and not self.lost

    def is_current(self) -> bool:
        """Whether the store still says that the run is ours."""
        return self._current() is not None

    def transact(self, kind: str, act: Callable[[Any], Data]) -> None:
        """Write an entry in the same transaction as what ``act`` does on the store's own connection.

        ``act`` gives the entry's data. Nothing else of this run may be under way.
        """
        with self.lock:
            self.check()
            made: list[tuple[Append, Data]] = []

            def write(connection: Any) -> Append:
                data = act(connection)
                record = self.record
                entries = tuple(self._entries([(kind, data)], record.state, "result"))
                made[:] = [(Append(record.uid, record.id, record.epoch, self._worker, entries), data)]
                return made[0][0]

            try:
                self._committer.transact(write)
            except HoldfastError:
                self._stale = True  # it may have been made all the same
                raise
            append, data = made[0]
            self.record = appended(self.record, append, mail=False)
            self.fold.add(append.entries[0].seq, kind, append.entries[0].at, data)

    def refresh(self) -> None:
        """Read everything again before it is used next."""
        self._stale = True

    def write(
        self,
        lines: Sequence[tuple[str, Data]],
        *,
        change: Change | None = None,
        took: tuple[str, ...] = (),
        redact: tuple[tuple[int, bytes], ...] = (),
        state: int | EllipsisType | None = ...,
        what: str = "entry",
        acknowledged: bool = False,
    ) -> Ticket:
        """Submit entries; they are lasting when the ticket is settled.

        With ``state`` the current state is from now on the one that was saved there, or none. What was
        ``acknowledged`` in the inbox is not refused for the value of a secret.
        """
        with self.lock:
            if self._stale or self.lost or (self.pending is not None and self.pending.outcome is not None):
                self.check()
            if change is None and self._record.crashes and self._stays(lines):
                change = Change(stays=True)
            if isinstance(state, EllipsisType):
                state = self.record.state
            else:
                self._saved = None
            entries = self._entries(lines, state, what, acknowledged=acknowledged)
            ticket = self._submit(entries, change, took, redact)
            if took:
                self.took.update(took)
            for n, (kind, data) in enumerate(lines):
                entry = entries[n]
                self.fold.add(entry.seq, kind, entry.at, data)
            return ticket

    def _stays(self, lines: Sequence[tuple[str, Data]]) -> bool:
        """Whether a run whose holder died is still where it was then, also after these entries."""
        same = self.record.crashed_at == self.seq
        return same and bool(lines) and all(_is_no_progress(*line) for line in lines)

    def append(self, kind: str, data: Data, what: str) -> Ticket:
        """Submit one entry that changes nothing else: what `write` does, in one go, because most writes are that.

        In paired runs it made a step in memory 1.16 times as fast, and one on SQLite 1.09.
        """
        with self.lock:
            if self._stale or self.lost or (self.pending is not None and self.pending.outcome is not None):
                self.check()
            record = self._record
            last, prev, time = self._ahead or (record.seq, record.hash, record.updated_at)
            seq, at, payload = last + 1, self._clock.now_ns() // 1000, to_text(data)
            if at < time:
                at = time
            self._journals.codec.refuse_secrets(payload, what)
            if record.key_id is not None or len(payload) > self._journals.plain_bytes:
                place = f"{seq}/{kind}"
                payload = self._journals.seal_text(record.uid, record.key_id is not None, place, payload, what)
            entry = next_entry(prev, seq, kind, at, record.state, payload)
            write = Append(record.uid, record.id, record.epoch, self._worker, (entry,))
            self._ahead = seq, entry.hash, at  # the record itself is made anew when somebody wants it
            self.pending = ticket = self._committer.submit(write)
            self.fold.add(seq, kind, at, data)
            return ticket

    def _entries(
        self, lines: Sequence[tuple[str, Data]], state: int | None, what: str, *, acknowledged: bool = False
    ) -> list[Entry]:
        return self._journals.next_entries(self.record, lines, self._now(), state, what, acknowledged=acknowledged)

    def _now(self) -> int:
        """The time, which never goes back within a journal."""
        now, last = self._clock.now(), self.record.updated_at
        return now if now > last else last

    def _submit(
        self,
        entries: list[Entry],
        change: Change | None = None,
        took: tuple[str, ...] = (),
        redact: tuple[tuple[int, bytes], ...] = (),
    ) -> Ticket:
        record = self.record
        write = Append(record.uid, record.id, record.epoch, self._worker, tuple(entries), change, took, redact)
        self.record = appended(record, write, mail=False)
        self.pending = self._committer.submit(write)
        return self.pending

    # --- states

    def save(self, tree: dict[str, Tree], *, keep: bool = False, on: Saved | None = None) -> Ticket:
        """Submit a state: what changed since the last one, or the whole if reading would cost too much otherwise.

        With ``keep``, what is not in the tree stays as it was. ``on`` is the state that this one was computed for:
        raises `Overtaken` if another one is the last.
        """
        with self.lock:
            self.check()
            last = self._last()
            if on is not None and last is not on:
                raise Overtaken
            tree["step"] = int(last.tree["step"]) + 1 if last is not None else 0  # type: ignore[arg-type]
            if last is not None:
                # In the order of the one before: names that come and go must not make it look like another state.
                kept = last.tree if keep else {name: tree[name] for name in last.tree if name in tree}
                tree = {**kept, **tree}
                text = to_text({"d": diff(last.tree, tree)})
                if not self._should_be_whole(last.chain_bytes, len(text), tree):
                    return self._save(text, tree, last.snapshot, last.chain_bytes)
            return self._save(to_text({"s": tree}), tree, self.seq + 1, 0)

    def change(
        self,
        delta: Data,
        beside: Sequence[tuple[str, Data]] = (),
        said: Data | None = None,
        on: Saved | None = None,
    ) -> Ticket:
        """Submit what changed of the state since the last one, which the caller knows; and other entries, before it.

        What is ``said`` stands in the entry beside the state: how long it took, say.

        The tree that is held here is changed in place, so that this costs what the change does, and not the state.
        ``on`` is the state that the change was computed for: raises `Overtaken` if another one is the last.
        """
        with self.lock:
            self.check()
            last = self._last()
            assert last is not None, "what is changed was saved before"
            if on is not None and last is not on:
                raise Overtaken
            delta = {**delta, "s": {**delta.get("s", {}), "step": int(last.tree["step"]) + 1}}  # type: ignore[arg-type]
            more = said or {}
            text = to_text({"d": delta, **more})
            check_size(text, "state", limit=self._journals.max_bytes, warn_at=self._journals.max_bytes)
            self._journals.codec.refuse_secrets(text, "state")
            patch_owned(last.tree, delta)
            if self._should_be_whole(last.chain_bytes, len(text), last.tree):
                whole = to_text({"s": last.tree, **more})
                return self._save(whole, last.tree, self.seq + 1 + len(beside), 0, beside)
            return self._save(text, last.tree, last.snapshot, last.chain_bytes, beside)

    def saved(self) -> Saved | None:
        """The state that was saved last. Its tree is held here, and changes with it."""
        with self.lock:
            return self._last()

    def _save(
        self,
        text: bytes,
        tree: dict[str, Tree],
        snapshot: int,
        chained: int,
        beside: Sequence[tuple[str, Data]] = (),
    ) -> Ticket:
        record = self.record
        entries = self._entries(beside, record.state, "entry") if beside else []
        prev, seq, at = entries[-1].hash if beside else record.hash, self.seq + 1 + len(beside), self._now()
        place = f"{seq}/{Kind.SAVED}"
        payload = self._journals.seal_text(record.uid, record.key_id is not None, place, text, "state")
        ticket = self._submit([*entries, next_entry(prev, seq, Kind.SAVED, at, snapshot, payload)])
        for entry, (kind, data) in zip(entries, beside, strict=True):
            self.fold.add(entry.seq, kind, entry.at, data)
        self.fold.add(seq, Kind.SAVED, at, {})
        self._saved = Saved(seq, at, tree, snapshot, chained + len(text))
        return ticket

    def builds_on(self, seq: int) -> bool:
        """Whether the current state is read with the help of this entry."""
        with self.lock:
            last = self._last()
            return last is not None and last.snapshot <= seq <= last.seq

    def save_whole(self) -> Ticket:
        """Submit the current state once more, as a whole, because something it builds on is about to be erased."""
        with self.lock:
            self.check()
            last = self._last()
            assert last is not None
            return self._save(to_text({"s": last.tree}), last.tree, self.seq + 1, 0)

    def _last(self) -> Saved | None:
        """The state that was saved last. None also if it cannot be read any more, because it was erased."""
        if self._saved is None:
            try:
                self._saved = self._journals.state(self.record)
            except Redacted:
                return None
            except (RunDamaged, RunNotFound) as error:
                if self._current() is None:  # it cannot be read because somebody took the run over and deleted it
                    raise LeaseLost(self.record.id) from error
                raise
        return self._saved

    def _current(self) -> RunRecord | None:
        """The record as the store has it, while it is still ours."""
        now = self._journals.store.get(uid=self.record.uid)
        return now if now is not None and (now.epoch, now.worker) == (self.record.epoch, self._worker) else None

    def _should_be_whole(self, chain_bytes: int, delta_bytes: int, tree: Tree) -> bool:
        """Measures the whole state only when what was known of its size no longer decides."""
        if not wants_snapshot(chain_bytes, delta_bytes, self._whole_bytes):
            return False
        self._whole_bytes = len(to_text(tree))
        fits = self._whole_bytes <= self._journals.max_bytes  # a state that grew beyond it stays in pieces
        return fits and wants_snapshot(chain_bytes, delta_bytes, self._whole_bytes)

    def settled(self, ticket: Ticket) -> None:
        """Note how a write went, once it is known; if it failed, nothing that was built on it holds."""
        if isinstance(ticket.outcome, BaseException):
            with self.lock:
                self._stale = True  # whether it is lost, the store will tell
