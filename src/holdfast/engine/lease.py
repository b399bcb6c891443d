"""The right to write to one run: an epoch, the end of its journal, and the state that was saved last."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.codec import Tree, diff, to_text
from holdfast.commit import Committer, Ticket
from holdfast.engine.journals import Journals, Saved
from holdfast.errors import LeaseLost, RunDamaged
from holdfast.journal import Data, Fold, next_entry, wants_snapshot
from holdfast.model import Append, Change, Entry, Kind, RunRecord


class Lease:
    """Held by exactly one worker at a time. Numbers and hashes are given out in the order of the calls to `write`."""

    def __init__(self, record: RunRecord, journals: Journals, committer: Committer, fold: Fold) -> None:
        assert record.worker is not None
        self.record = record
        self.fold = fold
        self.lost = False
        self._journals = journals
        self._committer = committer
        self._lock = threading.RLock()
        self._seq, self._hash, self._at, self._state = record.seq, record.hash, record.updated_at, record.state
        self._unfolded: list[tuple[int, str, int, Data]] = []
        self._stale = False
        self._saved: Saved | None = None
        self._whole_bytes = 0

    @property
    def seq(self) -> int:
        """The number of the newest entry."""
        return self._seq

    def write(
        self,
        lines: Sequence[tuple[str, Data]],
        *,
        change: Change | None = None,
        took: tuple[str, ...] = (),
        redact: tuple[tuple[int, bytes], ...] = (),
        state: int | None = None,
        moves_state: bool = False,
        what: str = "entry",
    ) -> Ticket:
        """Submit entries; they are lasting when the ticket is settled.

        With ``moves_state`` the current state is from now on the one saved at ``state``.
        """
        with self._lock:
            self._check()
            pointer = state if moves_state else self._state
            entries = self._entries(lines, pointer, what)
            if moves_state:
                self._saved = None
            return self._submit(entries, pointer, change, took, redact)

    def _entries(self, lines: Sequence[tuple[str, Data]], state: int | None, what: str) -> list[Entry]:
        record, entries = self.record, list[Entry]()
        seq, prev, at = self._seq, self._hash, self._now()
        encrypted = record.key_id is not None
        for kind, data in lines:
            seq += 1
            payload = self._journals.seal(record.uid, encrypted, f"{seq}/{kind}", data, what)
            entry = next_entry(prev, seq, kind, at, state, payload)
            prev = entry.hash
            entries.append(entry)
        self._unfolded += [(entry.seq, kind, at, data) for entry, (kind, data) in zip(entries, lines, strict=True)]
        return entries

    def _now(self) -> int:
        """The time, which never goes back within a journal."""
        return max(self._journals.store.clock.now(), self._at)

    def _submit(
        self,
        entries: list[Entry],
        state: int | None,
        change: Change | None,
        took: tuple[str, ...],
        redact: tuple[tuple[int, bytes], ...],
    ) -> Ticket:
        record = self.record
        assert record.worker is not None
        if entries:
            last = entries[-1]
            self._seq, self._hash, self._at, self._state = last.seq, last.hash, last.at, state
        append = Append(record.uid, record.id, record.epoch, record.worker, tuple(entries), change, took, redact)
        return self._committer.submit(append)

    def save(self, tree: dict[str, Tree], *, keep: bool = False) -> Ticket:
        """Submit a state: what changed since the last one, or the whole if reading would cost too much otherwise.

        With ``keep``, what is not in the tree stays as it was.
        """
        with self._lock:
            self._check()
            last = self._saved or self._load()
            if keep and last is not None:
                tree = {**last.tree, **tree}
            tree["step"] = int(last.tree["step"]) + 1 if last is not None else 0  # type: ignore[arg-type]
            if last is not None:
                text = to_text({"d": diff(last.tree, tree)})
                if not self._should_be_whole(last.chain_bytes, len(text), tree):
                    return self._save(text, tree, last.snapshot, last.chain_bytes)
            return self._save(to_text({"s": tree}), tree, self._seq + 1, 0)

    def _save(self, text: bytes, tree: dict[str, Tree], snapshot: int, chained: int) -> Ticket:
        record, seq, at = self.record, self._seq + 1, self._now()
        place = f"{seq}/{Kind.SAVED}"
        payload = self._journals.seal_text(record.uid, record.key_id is not None, place, text, "state")
        entry = next_entry(self._hash, seq, Kind.SAVED, at, snapshot, payload)
        self._unfolded.append((seq, Kind.SAVED, at, {}))
        ticket = self._submit([entry], seq, None, (), ())
        self._saved = Saved(seq, at, tree, snapshot, chained + len(text))
        return ticket

    def builds_on(self, seq: int) -> bool:
        """Whether the current state is read with the help of this entry."""
        with self._lock:
            self._saved = self._saved or self._load()
            return self._saved is not None and self._saved.snapshot <= seq <= self._saved.seq

    def save_whole(self) -> Ticket:
        """Submit the current state once more, as a whole, because something it builds on is about to be erased."""
        with self._lock:
            self._check()
            last = self._saved or self._load()
            assert last is not None
            return self._save(to_text({"s": last.tree}), last.tree, self._seq + 1, 0)

    def _load(self) -> Saved | None:
        try:
            return self._journals.state(replace(self.record, seq=self._seq, state=self._state))
        except RunDamaged as damage:
            if self._current() is None:  # it cannot be read because somebody took the run over and deleted it
                raise LeaseLost(self.record.id) from damage
            raise

    def _current(self) -> RunRecord | None:
        """The record as it is now; None if the lease is lost."""
        now = self._journals.store.journal(self.record.uid)
        if now is not None and (now.epoch, now.worker) == (self.record.epoch, self.record.worker):
            return now
        self.lost = True
        return None

    def _should_be_whole(self, chain_bytes: int, delta_bytes: int, tree: Tree) -> bool:
        """Measures the whole state only when what was known of its size no longer decides."""
        if not wants_snapshot(chain_bytes, delta_bytes, self._whole_bytes):
            return False
        self._whole_bytes = len(to_text(tree))
        return wants_snapshot(chain_bytes, delta_bytes, self._whole_bytes)

    def settled(self, ticket: Ticket) -> None:
        """Take what is now lasting into the fold, or note that the write failed."""
        with self._lock:
            if not ticket.settled:  # its awaiter was cancelled; the next write to be settled takes it along
                return
            if isinstance(ticket.outcome, BaseException):
                self.lost = self.lost or isinstance(ticket.outcome, LeaseLost)
                self._stale = True
                return
            assert isinstance(ticket.write, Append)
            upto = ticket.write.entries[-1].seq if ticket.write.entries else -1
            while self._unfolded and self._unfolded[0][0] <= upto:
                self.fold.add(*self._unfolded.pop(0))

    def _check(self) -> None:
        """Raise `LeaseLost` if it is lost. After a failed write (a full disk), find out where the journal ends."""
        if self._stale and not self.lost:
            now = self._current()
            if now is not None:
                self._seq, self._hash, self._at, self._state = now.seq, now.hash, now.updated_at, now.state
                self._unfolded.clear()
                self._saved = None
                self._journals.fold(now, now.seq, self.fold)
                self._stale = False
        if self.lost:
            raise LeaseLost(self.record.id)
