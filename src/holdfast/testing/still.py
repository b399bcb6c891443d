"""An engine without threads of its own, so that what it does depends on nothing but its input.

A real engine has a heartbeat and a watch, and commits what async callers bring off their loop. Here a heartbeat comes
when a lease is about to end, the watch looks when it is told that there is something, and commits are made in place.
Everything else is the engine that users have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.codec import Codec, Keyring
from holdfast.engine.access.commit import Committer, Ticket
from holdfast.engine.access.engine import MAX_BYTES
from holdfast.engine.access.heartbeat import Worker
from holdfast.engine.app import Holdfast, new_engine
from holdfast.engine.worker.inbox_watch import Watch
from holdfast.engine.workflow.execution import Execution
from holdfast.kernel.model import RunRecord
from holdfast.stores.protocol import Store

LEASE = 3600.0  # longer than any test, so that no heartbeat comes in between


class StillWorker(Worker):
    """Beats only when it is asked for its name."""

    _enlisted = False

    @property
    def enlisted(self) -> bool:
        return self._enlisted

    def ready(self) -> str:
        if not self._enlisted:
            self.store.beat(self.name, self.lease)
            self._until = self._clock.monotonic() + int(self.lease * 1_000_000)
            self._enlisted = True
        self.keep()
        return self.name

    def keep(self) -> None:
        if self._enlisted and self._is_ending():
            self._extend()

    def stop(self) -> None:
        """There is no heartbeat to end."""


class StillWatch(Watch):
    """Looks into the inbox of a workflow as soon as somebody tells of it, and never by itself."""

    @contextmanager
    def watching(self, execution: Execution) -> Iterator[None]:
        self.executions[execution.run.uid] = execution
        try:
            yield
        finally:
            self.executions.pop(execution.run.uid, None)

    def tell(self, uid: str) -> None:
        execution = self.executions.get(uid)
        if execution is not None:
            self._look(execution)

    def stop(self) -> None:
        """There is no thread to end."""


class StillCommitter(Committer):
    """Commits what the tasks of one tick brought, on their loop."""

    async def settle_async(self, ticket: Ticket) -> RunRecord | None:
        try:
            await asyncio.sleep(0)
        finally:
            if not ticket.settled:  # also if it is cancelled: what was submitted is made
                self._flush_locked()
        return ticket.result()


def open_still(store: Store, *, keys: Keyring | None = None, lease: float = LEASE) -> Holdfast:
    """An open store, like `holdfast.open` gives it, whose engine has no threads."""
    engine = new_engine(store, Codec(), keys, lease, MAX_BYTES)
    engine.committer = StillCommitter(store)
    engine.worker = StillWorker(store, lease)
    engine.watch = StillWatch(engine)
    return Holdfast(engine)
