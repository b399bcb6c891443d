"""Group commit: the one bridge from many callers, sync or async, to a store.

A write that is alone is committed at once by the thread that brought it. Writes that arrive while a commit is in
flight wait in a queue, and the next one to get the lock commits all of them in one transaction. There is no writer
thread: the waiting callers are the pool.

Async callers never block their loop for somebody else's commit: while this loop has a single write to make it is
committed inline (a thread hop would cost more than the commit), otherwise one flush is in flight off the loop and
what arrives meanwhile is the next batch.

A submitted write is irrevocable: cancelling its awaiter does not take it back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any

from holdfast.errors import StoreError, StoreUnusable, UsageError
from holdfast.model import Append, RunRecord, Write
from holdfast.stores.base import Outcome, Store, Transacting

if TYPE_CHECKING:
    import asyncio


class Ticket:
    """A submitted write and, once it is committed, its outcome."""

    __slots__ = ("future", "outcome", "settled", "write")

    def __init__(self, write: Write) -> None:
        self.write = write
        self.settled = False
        self.outcome: Outcome | BaseException = None
        self.future: asyncio.Future[None] | None = None

    def result(self) -> RunRecord | None:
        """The outcome of the write; raises what it failed with."""
        assert self.settled, "a write that nobody committed"
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Committer:
    """Commits writes to a store, many at a time when many are waiting."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.commits = 0
        self._pid = os.getpid()
        self._queue: list[Ticket] = []
        self._queue_lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._flights: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}

    def check_process(self) -> None:
        """Raise `StoreUnusable` in a forked child, before it waits for a lock that a thread of its parent had."""
        if os.getpid() != self._pid:
            raise StoreUnusable(self.store.place, "it was opened before os.fork(); open the store again in the child")

    def submit(self, write: Write) -> Ticket:
        """Put a write in line. It is committed by the next `settle` or `settle_async` of anybody."""
        ticket = Ticket(write)
        with self._queue_lock:
            self._queue.append(ticket)
        return ticket

    def settle(self, ticket: Ticket) -> RunRecord | None:
        """Wait until the write is committed, committing it and all that wait with it if nobody else does."""
        with self._flush_lock:
            if not ticket.settled:
                self._flush()
        return ticket.result()

    def transact(self, act: Callable[[Any], Append]) -> None:
        """Run ``act`` on the store's own connection, and commit what it did together with the write that it gives."""
        if not isinstance(self.store, Transacting):
            raise UsageError(f"{self.store.place}: a transactional step needs a store with SQL, such as sqlite:///path")
        with self._flush_lock:
            self._flush()
            refused = self.store.transact(act)
            self.commits += 1
        if refused is not None:
            raise refused

    async def settle_async(self, ticket: Ticket) -> RunRecord | None:
        """The same for a caller on an event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        flight = self._flights.get(loop)
        if flight is None:
            try:
                await asyncio.sleep(0)  # let the other tasks of this tick bring their writes
            except asyncio.CancelledError:
                self._depart(loop)  # it is committed all the same
                raise
            flight = self._flights.get(loop)
        if flight is None and len(self._queue) <= 1 and self._flush_lock.acquire(blocking=False):
            try:
                if not ticket.settled:
                    self._flush()
            finally:
                self._flush_lock.release()
            return ticket.result()
        ticket.future = future = loop.create_future()
        if ticket.settled:  # before the line above, by a flush in another thread, which then did not see the future
            return ticket.result()
        self._depart(loop)
        await future
        return ticket.result()

    def _depart(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that what waits is flushed off the loop."""
        if self._flights.get(loop) is None:
            flight = self._flights[loop] = loop.create_task(self._fly(loop), context=Context())
            flight.add_done_callback(self._landed)

    async def _fly(self, loop: asyncio.AbstractEventLoop) -> None:
        """Flush off the loop, one batch after the other, until nothing waits."""
        while self._queue:
            await loop.run_in_executor(None, self._flush_locked)
        del self._flights[loop]

    def _landed(self, flight: asyncio.Task[None]) -> None:
        """After a flight that was cancelled, even before it began: who counts on it must not wait for ever."""
        loop = flight.get_loop()
        if self._flights.get(loop) is flight:
            del self._flights[loop]
            self._flush_locked()

    def _flush_locked(self) -> None:
        with self._flush_lock:
            self._flush()

    def _flush(self) -> None:
        batch: list[Ticket] = []
        try:
            with self._queue_lock:
                batch, self._queue = self._queue, []
            if batch:
                outcomes = self._apply(batch)
                for ticket, outcome in zip(batch, outcomes, strict=True):
                    _settle(ticket, outcome)
        except BaseException:  # an interrupt: those who wait for the others must not take silence for success
            for ticket in batch:
                if not ticket.settled:
                    _settle(ticket, StoreError(self.store.place, "the commit was interrupted; it may have been made"))
            raise

    def _apply(self, batch: list[Ticket]) -> Sequence[Outcome | BaseException]:
        try:
            outcomes = self.store.apply([ticket.write for ticket in batch])
        except Exception as error:  # the transaction as a whole failed: nobody's write was made
            return [error] * len(batch)
        self.commits += 1
        return outcomes


def _settle(ticket: Ticket, outcome: Outcome | BaseException) -> None:
    ticket.outcome = outcome
    ticket.settled = True
    future = ticket.future
    if future is not None:
        with suppress(RuntimeError):  # its loop is closed, so nobody waits there any longer
            future.get_loop().call_soon_threadsafe(_wake, future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
