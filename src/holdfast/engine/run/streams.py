"""A run as it happens: its entries, and the states that it saves, one after the other until it has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TypeVar

from holdfast.codec import patch
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.journal_reader import Saved
from holdfast.engine.access.operations import Each, Listen, Op, Read, drive, drive_async
from holdfast.engine.argument_checks import check_history_page, check_seq
from holdfast.engine.run.checkpoint import Checkpoint, StepsAt
from holdfast.engine.workflow.declare import state_type
from holdfast.errors import Redacted
from holdfast.kernel.journal import is_live, live_ranges
from holdfast.kernel.model import ENDED, Entry, Kind, RunRecord, Status
from holdfast.kernel.rules import check_here
from holdfast.views import EntryContents, Page, moment

CHUNK = 200  # entries that are read at a time
T = TypeVar("T")


def events(run: HeldRun, *, after: int | None = None) -> Each[EntryContents]:
    """Yield the run's entries as they are written, until it has ended.

    Iterate it with ``for``, in async code with ``async for``. ``after`` is the ``seq`` to continue after. The entry of
    a save says what comes next and leaves out the state; `states` yields the states.
    """
    return _stream(run, after, _event)


def states(run: HeldRun, *, after: int | None = None) -> Each[Checkpoint]:
    """Yield the run's checkpoints as it saves them, until it has ended.

    Iterate it with ``for``, in async code with ``async for``. ``after`` is the ``seq`` to continue after.
    """
    return _stream(run, after, _checkpoint)


def entries(run: HeldRun, *, limit: int = 100, after: str | None = None) -> Op[Page[EntryContents]]:
    """The run's entries with what they say, oldest first, also those that a rollback abandoned.

    The entry of a save says what comes next and leaves out the state. An erased entry says that it was erased.
    """
    check_history_page(limit, after, None)
    record, pending = yield from run.pending()
    reader = Reader(run, -1 if after is None else int(after))
    reader.record = record
    last = reader.after + limit
    hi = min(last, record.seq)
    found = yield Read(reader.all_up_to, hi)
    for seq, kind, at, data in pending:
        if reader.after < seq <= last:
            found.append(EntryContents(seq, kind, moment(at), run.journals.raw(data), pending=True))
    newest = record.seq + len(pending)
    return Page(tuple(found), str(min(last, newest)) if last < newest else None)


def _stream(run: HeldRun, after: int | None, make: Callable[[Reader, str, Entry], T | None]) -> Each[T]:
    check_seq("after", 0 if after is None else after)
    reader = Reader(run, -1 if after is None else after)
    return _each_async(reader, make) if run.is_async else _each(reader, make)


def _each(reader: Reader, make: Callable[[Reader, str, Entry], T | None]) -> Iterator[T]:
    while not reader.over:
        yield from drive(reader.more(make), reader.run.committer)


async def _each_async(reader: Reader, make: Callable[[Reader, str, Entry], T | None]) -> AsyncIterator[T]:
    while not reader.over:
        for one in await drive_async(reader.more(make), reader.run.committer):
            yield one


class Reader:
    """Reads on in a run's journal, and keeps the state that was saved last, so that each save costs its own size."""

    def __init__(self, run: HeldRun, after: int) -> None:
        self.run = run
        self.after = after
        self.over = False
        self.record: RunRecord
        self._saved: Saved | None = None

    def more(self, make: Callable[[Reader, str, Entry], T | None]) -> Op[list[T]]:
        """What came since; waits until there is something."""
        run = self.run
        while True:
            heard = yield Read(run.engine.bell.heard)
            self.record = record = yield Read(run.read_record)
            if self.after < record.seq:
                found = yield Read(partial(self._read, make))
                self.over = record.status in ENDED and self.after == record.seq
                return found  # type: ignore[no-any-return]
            check_here(record)
            if record.status in ENDED:
                self.over = True
                return []
            yield Listen(run.engine.bell, heard, 1.0 if record.status is Status.RUNNING else None)

    def _read(self, make: Callable[[Reader, str, Entry], T | None]) -> list[T]:
        record = self.record
        upto = min(self.after + CHUNK, record.seq)
        ranges = live_ranges(record.rewinds, record.seq)
        entries = [
            (uid, entry)
            for uid, entry in self.run.journals.entries(record, self.after + 1, upto)
            if is_live(ranges, entry.seq)
        ]
        found = [one for uid, entry in entries if (one := make(self, uid, entry)) is not None]
        self.after = upto
        return found

    def all_up_to(self, hi: int) -> list[EntryContents]:
        """The entries that follow, also those that were abandoned."""
        found: list[EntryContents] = []
        for uid, entry in self.run.journals.entries(self.record, self.after + 1, hi):
            try:
                found.append(_event(self, uid, entry))
            except Redacted:
                self.forget()
                found.append(EntryContents(entry.seq, entry.kind, moment(entry.at), {"erased": True}))
        return found

    def all_there_is(self) -> Iterator[EntryContents]:
        """The entries that came since, also those that were abandoned; it does not wait for more."""
        self.record = record = self.run.read_record()
        while self.after < record.seq:
            hi = min(self.after + CHUNK, record.seq)
            found = self.all_up_to(hi)
            self.after = hi
            yield from found

    def saved(self, uid: str, entry: Entry) -> Saved | None:
        """What an entry saved; None if it was erased, or builds on what was."""
        data = self.run.journals.data(self.run.id, uid, entry)
        if "erased" in data:
            self._saved = None
            return None
        assert entry.state is not None
        if "s" in data:
            tree = data["s"]
        elif self._saved is not None and self._saved.snapshot == entry.state:
            tree = patch(self._saved.tree, data["d"])
        else:
            self._saved = self.run.journals.state(self.record, entry.seq)
            return self._saved
        self._saved = Saved(entry.seq, entry.at, tree, entry.state, 0, data.get("seconds"))
        return self._saved

    def forget(self) -> None:
        """What is saved next builds on an earlier state."""
        self._saved = None


def _event(reader: Reader, uid: str, entry: Entry) -> EntryContents:
    journals = reader.run.journals
    if entry.kind == Kind.SAVED:
        saved = reader.saved(uid, entry)
        told = {"erased": True} if saved is None else {k: v for k, v in saved.told.items() if k not in _LARGE}
    else:
        if entry.kind in (Kind.REWOUND, Kind.FORKED):
            reader.forget()
        told = journals.data(reader.run.id, uid, entry)
    return EntryContents(entry.seq, entry.kind, moment(entry.at), journals.raw(told))


_LARGE = frozenset({"state", "variables", "graph"})  # of what is saved, what may be large


def _checkpoint(reader: Reader, uid: str, entry: Entry) -> Checkpoint | None:
    if entry.kind != Kind.SAVED:
        if entry.kind in (Kind.REWOUND, Kind.FORKED):
            reader.forget()
        return None
    saved, record = reader.saved(uid, entry), reader.record
    if saved is None:
        return None
    journals = reader.run.journals
    steps = StepsAt(lambda: journals.fold(record, entry.seq))
    return Checkpoint(record, entry.seq, saved, journals, state_type(record), steps)
