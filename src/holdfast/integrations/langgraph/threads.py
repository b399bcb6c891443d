"""The threads of a store: a thread of LangGraph is a run of the workflow ``langgraph``, and has its id.

What was read of them is kept at hand: a `Pen` for each thread that was written to here, and an `Index` of each whose
history was asked for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from holdfast.engine.access.commit import Ticket
from holdfast.engine.access.operations import Nap, Op, Read, Settle, drive
from holdfast.engine.app import Holdfast
from holdfast.engine.run.finding import creation
from holdfast.errors import DefinitionChanged, LeaseLost, RunBlocked, RunEnded, RunNotFound
from holdfast.integrations.langgraph import layout
from holdfast.integrations.langgraph.index import Index
from holdfast.integrations.langgraph.thread_writer import Parked, Pen
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.model import ENDED, Append, Change, Create, RunRecord, Status
from holdfast.kernel.rules import check_here, check_id

WORKFLOW = "langgraph"
AT_HAND = 1_000  # threads
TRIES = 100  # of a write that others were faster than

LINGER = 0.001  # seconds that what a task wrote waits for the checkpoint that mostly follows, which takes it along
GATED = 0.003  # the same of a thread, which is woken when it is a good time for it

CLOCK = SystemClock()  # for waiting, also where a test has a clock of its own

Act = Callable[[Pen], Ticket | Parked]

K = TypeVar("K")
V = TypeVar("V")


class Threads:
    """What all calls of one saver share."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.engine = hf.client.engine
        self.store = hf.client.store
        self.journals = hf.client.journals
        self.committer = hf.client.committer
        self._lock = threading.RLock()
        self._pens: OrderedDict[str, Pen] = OrderedDict()
        self._absent: set[str] = set()  # threads that were looked for and are not there, so one can be made at once
        self._indexes: OrderedDict[str, tuple[threading.RLock, Index]] = OrderedDict()

    # --- reading

    def record(self, id: str) -> RunRecord | None:
        """The run of a thread, if there is one."""
        record = self.store.get(check_id(id))
        if record is None:
            if len(self._absent) >= AT_HAND:
                self._absent.clear()
            self._absent.add(id)
        elif record.workflow != WORKFLOW:
            raise DefinitionChanged(
                id, f"it is a run of {record.workflow!r}, and no thread of LangGraph; use another thread_id"
            )
        return record

    def state(self, record: RunRecord) -> layout.State:
        """The state of a thread as of the record's last entry; a blank one, if others have saved something there."""
        pen = self._pens.get(record.id)
        if pen is not None and pen.record.uid == record.uid:
            with pen.lock:
                if pen.end == (record.seq, record.hash):
                    return pen.shown()
        saved = self.journals.state(record)
        known = saved is not None and layout.is_checkpoint(saved.tree, saved.seq)
        return dict(saved.tree) if saved is not None and known else layout.blank()

    def index(self, record: RunRecord) -> Index:
        """The checkpoints of a thread, up to the record's last entry."""
        with self._lock:
            lock, index = self._indexes.get(record.uid) or (threading.RLock(), Index(record))
            if not index.is_of(record):
                lock, index = threading.RLock(), Index(record)
            keep(self._indexes, record.uid, (lock, index))
        with lock:
            index.carry_on(record, self.journals)
            return index

    # --- writing

    def write(self, id: str, act: Act) -> Op[None]:
        """Write to a thread, which is made if there is none; again, if somebody else was faster.

        ``act`` decides and submits. It may be called more than once.
        """
        for _ in range(TRIES):
            pen = self._pens.get(id) or (yield from self._pen(id))
            try:
                ticket = yield from submitted(pen, act)
                if is_own(ticket, ticket.result() if ticket.settled else (yield Settle(ticket))):
                    return
                self.forget(pen)
            except (LeaseLost, RunNotFound):
                self.forget(pen)
            except BaseException:  # what is remembered of it may be wrong now
                self.forget(pen)
                raise
        raise LeaseLost(id, f"others were faster {TRIES} times")

    def write_at_once(self, id: str, act: Act) -> None:
        """The same, blocking; without the way through an operation, where there is nothing to find out before."""
        pen = self._pens.get(id)
        if pen is not None:
            self.committer.check_process()
            try:
                made = act(pen)
                if isinstance(made, Parked):
                    made.gate.acquire(timeout=GATED)
                    made = pen.end_waiting(made)
                if is_own(made, made.result() if made.settled else self.committer.settle(made)):
                    return
                self.forget(pen)
            except (LeaseLost, RunNotFound):
                self.forget(pen)
            except BaseException:  # what is remembered of it may be wrong now
                self.forget(pen)
                raise
        drive(self.write(id, act), self.committer)

    def await_writes(self, id: str, ns: str, of: str) -> None:
        """Give the writes that led to a checkpoint the chance to arrive before it."""
        pen = self._pens.get(id)
        if pen is not None:
            pen.await_writes(ns, of, LINGER)

    def let_go(self, id: str, lasts: Callable[[], bool | None]) -> None:
        """Wake those who wait for what a checkpoint took along, if it is the last or if they are many.

        A single one may as well wait until the next checkpoint is committed, and does not disturb the graph till then.
        But the graph may need the threads of many.
        """
        pen = self._pens.get(id)
        if pen is not None and pen.waiting and (pen.waiting > 1 or lasts() is False):
            with pen.lock:
                pen.let_go()

    def forget(self, pen: Pen) -> None:
        """Make another pen next time."""
        with self._lock:
            if self._pens.get(pen.record.id) is pen:
                del self._pens[pen.record.id]

    def forget_thread(self, id: str) -> None:
        """Read the thread anew next time."""
        with self._lock:
            self._pens.pop(id, None)

    def _pen(self, id: str) -> Op[Pen]:
        record = None if id in self._absent else (yield from self.writable(id))
        self._absent.discard(id)  # if it is there after all, that is found out when it is made
        if record is None:
            pen = Pen.of_new(creation(self.hf.client, id, WORKFLOW, None, {}), self.journals, self.committer)
        else:
            saved = yield Read(self.journals.state, record)
            pen = Pen(record, saved, self.journals, self.committer)
        with self._lock:
            return keep(self._pens, id, self._pens.get(id, pen))

    def writable(self, id: str) -> Op[RunRecord | None]:
        """The run of a thread, if there is one, which nobody holds; raises the reason if it cannot be written to."""
        record = yield Read(self.record, id)
        if record is None:
            return None
        if record.worker is not None:
            record = yield from self._take_over(record)
        check_goes_on(record)
        return record  # type: ignore[no-any-return]

    def _take_over(self, record: RunRecord) -> Op[RunRecord]:
        """A run whose holder is dead is given free; raises `Claimed` if he lives."""
        worker = yield Read(self.engine.worker.ready)
        held = yield Read(self.store.claim, record.uid, worker)
        free = Change(status=Status.READY, release=True)
        yield Settle(self.committer.submit(Append(held.uid, held.id, held.epoch, worker, (), free)))
        return (yield Read(self.record, record.id))  # type: ignore[no-any-return]


def is_own(ticket: Ticket, made: RunRecord | None) -> bool:
    """Whether what was submitted is what there is now, and not a thread that somebody else was faster to make."""
    return not isinstance(ticket.write, Create) or made is None or made.uid == ticket.write.record.uid


def submitted(pen: Pen, act: Act) -> Op[Ticket]:
    """Have something written; what is parked, after it has waited for a checkpoint to take it along."""
    made = act(pen)
    if isinstance(made, Ticket):
        return made
    try:
        yield Nap(CLOCK, LINGER, made.gate)
    except BaseException:  # whoever waits is cancelled; what was written is not
        pen.end_waiting(made)
        raise
    return pen.end_waiting(made)


def check_goes_on(record: RunRecord) -> None:
    """Raise the reason if a thread cannot be written to now, though nobody else does."""
    check_here(record)
    if record.rollback is not None and record.status is not Status.BLOCKED:
        raise RunBlocked(record.id, "a rollback of it was broken off; any claim finishes it: `hf.get(id).claim()`")
    if record.status in ENDED:
        raise RunEnded(record.id, f"it is {record.status}; copy the thread to go on")
    if record.status is Status.BLOCKED:
        raise RunBlocked(record.id, f"{record.reason or 'blocked'}; `run.unblock()` lets it go on")


def keep(among: OrderedDict[K, V], key: K, value: V) -> V:
    """Keep something at hand, and let go of what was used longest ago."""
    among[key] = value
    among.move_to_end(key)
    if len(among) > AT_HAND:
        among.popitem(last=False)
    return value
