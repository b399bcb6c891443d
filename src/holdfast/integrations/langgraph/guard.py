"""One writer at a time for each thread: who invokes a graph claims the thread, and others are refused until it is over.

LangGraph tells a checkpointer neither when an invocation begins nor when it ends. It begins with reading the thread's
newest checkpoint, and all its calls carry the same `Runtime`, by whose ``control`` it is known here; sub-graphs have
the same one. It is over when a checkpoint of the graph itself leaves nothing to run, when a task has interrupted or
failed, or, where the end shows in nothing that is written (as with ``interrupt_before``), when its objects are gone.

A call that belongs to no invocation, such as ``update_state``, claims the thread for itself alone. So does a write that
comes after the end: tasks of the last step may still be writing.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT, TASKS

from holdfast.engine.access.operations import Nap, Op, Read, Settle, drive
from holdfast.engine.log import WARNING, tell
from holdfast.engine.run.finding import creation
from holdfast.errors import Claimed, HoldfastError, LeaseLost
from holdfast.integrations.langgraph.thread_writer import Pen
from holdfast.integrations.langgraph.threads import CLOCK, WORKFLOW, Act, Threads, check_goes_on, keep, submitted
from holdfast.kernel.model import Append, Change, RunRecord, Status

_RUNTIME = "__pregel_runtime"
LATE = 0.002  # seconds
_RUNS_NEXT = ("branch:to:", "__start__", TASKS)


class Holder:
    """An invocation that has claimed a thread, or is about to. It has the claim to its end, or only while it writes."""

    def __init__(self, thread: str, config: RunnableConfig, *, lasting: bool) -> None:
        self.thread = thread
        self.token = token_of(config)
        self.caller = _caller()
        self.pen: Pen | None = None
        self.lasting = lasting
        self.writing = 0
        writer = _writer(config)
        self._alive = weakref.ref(writer) if writer is not None else None

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of the invocation."""
        return self._alive is not None and self._alive() is None


class Guard:
    """Which invocation has which thread."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._holders: dict[str, Holder] = {}
        self._ends: OrderedDict[str, tuple[object, str]] = OrderedDict()  # who ended at which checkpoint, by thread
        self._epochs: OrderedDict[str, tuple[object, int]] = OrderedDict()  # who had the last claim, and its number
        self._gone: SimpleQueue[Holder | None] = SimpleQueue()  # may be put to while garbage is collected
        self._sweeper: threading.Thread | None = None

    # --- invocations

    def enter(self, thread: str, config: RunnableConfig) -> Op[None]:
        """An invocation begins to read a thread: claim it. Raises `Claimed` if another one has it."""
        token = token_of(config)
        if token is None or config["configurable"].get("checkpoint_ns"):
            return
        holder = self._holders.get(thread)
        if holder is not None:
            if holder.token is token:
                return
            if not holder.is_gone and holder.caller != _caller():
                raise Claimed(thread, "another invocation of this program is at work on the thread; wait for its end")
            yield from self._release(holder)
        if not (yield from self._hold(Holder(thread, config, lasting=True), config, fresh=True)):
            raise Claimed(thread, "another invocation of this program was faster; wait for its end")

    def release(self, thread: str) -> Op[None]:
        """Give up the claim on a thread, whoever has it here."""
        holder = self._holders.get(thread)
        if holder is not None:
            yield from self._release(holder)

    def write(
        self,
        thread: str,
        config: RunnableConfig,
        at: str,
        act: Act,
        *,
        lasts: bool | None,
    ) -> Op[None]:
        """Write to a thread under the invocation's claim.

        ``at`` is the checkpoint that it is about. ``lasts`` says whether the invocation goes on after it; None, that
        this cannot be told from it. Raises `LeaseLost` if another invocation has claimed the thread since, `Claimed` if
        this call belongs to none.
        """
        token = token_of(config)
        lasts = lasts if token is not None else None  # a call from outside of an invocation is by itself
        if lasts is False and token is not None:
            with self._lock:
                keep(self._ends, thread, (token, at))
        elif lasts and (end := self._ends.get(thread)) is not None and end[0] is token and at <= end[1]:
            lasts = None  # it was on its way when the end came
        holder = yield from self._join(thread, config, lasts)
        try:
            assert holder.pen is not None
            ticket = yield from submitted(holder.pen, act)
            _ = ticket.result() if ticket.settled else (yield Settle(ticket))
        except HoldfastError:
            holder.lasting = False  # nothing can be written on top of what failed
            raise
        finally:
            with self._lock:
                holder.writing -= 1
                is_over = not holder.lasting and not holder.writing
            if is_over:
                yield from self._end(holder)

    def _end(self, holder: Holder) -> Op[None]:
        """Give up the claim, unless somebody writes under it after all: tasks of the last step may be late."""
        if holder.token is not None:
            yield Nap(CLOCK, LATE)
        with self._lock:
            is_over = not holder.lasting and not holder.writing and self._holders.get(holder.thread) is holder
        if is_over:
            yield from self._release(holder)

    def _join(self, thread: str, config: RunnableConfig, lasts: bool | None) -> Op[Holder]:
        """The claim to write under: the invocation's, or one for this write."""
        token = token_of(config)
        while True:
            with self._lock:
                holder = self._holders.get(thread)
                if holder is not None and holder.pen is not None and holder.token is token:
                    holder.writing += 1
                    holder.lasting = holder.lasting if lasts is None else lasts
                    return holder
            if holder is None:
                made = Holder(thread, config, lasting=bool(lasts))
                made.writing = 1
                if (yield from self._hold(made, config, fresh=False)):
                    return made
            elif token is None and holder.is_gone:
                yield from self._release(holder)  # which nobody has done yet
            elif holder.token is not token:
                raise (Claimed if token is None else LeaseLost)(thread, "another invocation is at work on the thread")
            else:
                yield Nap(CLOCK, 0.001)  # another write of this invocation is about to have the claim

    # --- claims

    def _hold(self, holder: Holder, config: RunnableConfig, *, fresh: bool) -> Op[bool]:
        """Claim the thread for a holder; False if another one of this program was faster.

        One that is not ``fresh`` has had the claim before, and is refused with `LeaseLost` if others have had it since.
        """
        with self._lock:
            if holder.thread in self._holders:
                return False
            self._holders[holder.thread] = holder
        try:
            holder.pen = yield from self._claim(holder.thread)
        except BaseException:  # whatever it is, it is not held
            self._forget(holder)
            raise
        with self._lock:
            epoch = holder.pen.record.epoch
            last = self._epochs.get(holder.thread, (holder.token, epoch))
            keep(self._epochs, holder.thread, (holder.token, epoch))
        if not fresh and holder.token is not None and (last[0] is not holder.token or last[1] < epoch - 1):
            yield from self._release(holder)  # whatever it goes on with, others have been there since
            raise LeaseLost(holder.thread)
        if holder.lasting and (writer := _writer(config)) is not None:
            self._watch()
            weakref.finalize(writer, self._gone.put, holder).atexit = False
        return True

    def _claim(self, thread: str) -> Op[Pen]:
        threads = self._threads
        record = yield Read(threads.record, thread)
        if record is None:
            first = creation(threads.hf.client, thread, WORKFLOW, None, {})
            record = yield Settle(threads.committer.submit(first))
        check_goes_on(record)
        worker = yield Read(threads.engine.worker.ready)
        claimed: RunRecord = yield Read(threads.store.claim, record.uid, worker)
        saved = yield Read(threads.journals.state, claimed)
        return Pen(claimed, saved, threads.journals, threads.committer)

    def _forget(self, holder: Holder) -> None:
        with self._lock:
            if self._holders.get(holder.thread) is holder:
                del self._holders[holder.thread]

    def _release(self, holder: Holder) -> Op[None]:
        """Give up a claim. What was submitted under it is committed before."""
        self._forget(holder)
        if holder.pen is None:
            return
        record = holder.pen.record
        free = Change(status=Status.READY, release=True)
        ticket = self._threads.committer.submit(
            Append(record.uid, record.id, record.epoch, record.worker or "", (), free)
        )
        with suppress(LeaseLost):  # there is nothing to give up
            yield Settle(ticket)

    def _watch(self) -> None:
        if self._sweeper is None:
            self._sweeper = threading.Thread(target=self._sweep, name="holdfast-guard", daemon=True)
            self._sweeper.start()

    def _sweep(self) -> None:
        """Give up the claims of invocations that are gone."""
        while (holder := self._gone.get()) is not None:
            if self._holders.get(holder.thread) is holder:
                try:
                    drive(self._release(holder), self._threads.committer)
                except HoldfastError as error:
                    told = "run {run!r}: its claim could not be given up, and ends with this program: {error}"
                    tell(WARNING, "thread.held", told, run=holder.thread, error=str(error))

    def close(self) -> None:
        """Give up all claims."""
        if self._sweeper is not None:
            self._gone.put(None)
            self._sweeper.join()
            self._sweeper = None
        for holder in list(self._holders.values()):
            drive(self._release(holder), self._threads.committer)


def token_of(config: RunnableConfig) -> object | None:
    """By what the calls of one invocation are known, its sub-graphs' included; None for a call from outside of one."""
    runtime = config.get("configurable", {}).get(_RUNTIME)
    return getattr(runtime, "control", None) or runtime


def _writer(config: RunnableConfig) -> Any:
    """Something of the invocation's own that can be referred to weakly."""
    return getattr(config["configurable"].get(_RUNTIME), "stream_writer", None)


def _caller() -> object:
    """Where a call comes from: two calls from the same place cannot be at work at the same time.

    A task is referred to weakly: one that has failed keeps all that its invocation was.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return weakref.ref(task) if task is not None else threading.get_ident()


def lasts_after(ns: str, values: Mapping[str, Any]) -> bool | None:
    """Whether an invocation goes on after a checkpoint; None where that is a sub-graph's, which does not tell."""
    if ns:
        return None
    for name, value in values.items():
        if name.startswith(_RUNS_NEXT) and not (type(value) is list and not value):
            return True
    return False


def ends_with(ns: str, channels: Iterable[str]) -> bool:
    """Whether what a task wrote ends the invocation."""
    return not ns and not {INTERRUPT, ERROR}.isdisjoint(channels)
