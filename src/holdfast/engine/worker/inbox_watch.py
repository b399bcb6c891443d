"""Watching over the workflows that are driven here: what is left in their inboxes, and steps that take long.

One thread for all of them. It looks a few times a second whether anything was committed at all, and only then into the
inboxes; within this process it is told at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.engine.access.engine import Engine
from holdfast.engine.control.cancel_requests import cancel_request
from holdfast.engine.log import WARNING, tell
from holdfast.engine.workflow.outcomes import Aborted
from holdfast.errors import HoldfastError, LeaseLost, StoreUnusable
from holdfast.stores.protocol import Telling

if TYPE_CHECKING:
    from holdfast.engine.workflow.execution import Execution

MAX_EARLY = 1_000


class Watch:
    """Sees to it that executions learn what was left for them."""

    def __init__(self, engine: Engine) -> None:
        self.executions: dict[str, Execution] = {}
        self._engine = engine
        self._lock = threading.RLock()  # not the condition: an interrupt in its __enter__ leaves it locked
        self._news = threading.Condition(self._lock)
        self._told: set[str] = set()
        self._early: set[str] = set()  # of whom there was news, and who are not driven here; or not yet
        self._lapses = 0  # of the worker, as far as they were seen to
        self._beaten = False  # whether there was a heartbeat since the last look
        self._stopped = False
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, execution: Execution) -> Iterator[None]:
        """Watch over an execution while it lasts."""
        uid = execution.run.uid
        with self._lock:
            self.executions[uid] = execution
            if uid in self._early:
                self._early.discard(uid)
                self._told.add(uid)
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="holdfast-watch", daemon=True)
                self._thread.start()
                if isinstance(self._engine.store, Telling):
                    self._engine.store.listen(lambda uid: self.tell(uid) if uid is not None else None)
            elif len(self.executions) == 1:
                self._news.notify_all()
        parent = self.executions.get(execution.lease.record.parent or "")
        if parent is not None and parent.outcome is not None:  # it was told to stop just before
            execution.release()
        for crew in list(self._engine.crews):
            crew.joined(execution)
        try:
            yield
        finally:
            with self._lock:
                self.executions.pop(uid, None)

    def parts_of(self, execution: Execution) -> list[Execution]:
        """The executions of the children that are driven as a part of this one."""
        return [one for one in list(self.executions.values()) if one.lease.record.parent == execution.run.uid]

    def tell(self, uid: str) -> None:
        """Something was left for a run; if it is driven here, it learns of it at once."""
        with self._lock:
            if uid in self.executions:
                self._told.add(uid)
                self._news.notify_all()
            else:
                if len(self._early) >= MAX_EARLY:
                    self._early.clear()
                self._early.add(uid)

    def stop(self) -> None:
        """Watch no longer."""
        with self._lock:
            self._stopped = True
            self._news.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _watch(self) -> None:
        seen, took = -1, 0.0
        while True:
            with self._lock:
                while not self.executions and not self._stopped:
                    self._news.wait()
                # No large part of the time, however many they are. That there is another one is no news of the others.
                until = time.monotonic() + max(self._engine.store.look_every, took * 20)
                while not (self._told or self._beaten or self._stopped) and (left := until - time.monotonic()) > 0:
                    self._news.wait(left)
                if self._stopped:
                    return
                told, self._told = self._told, set()
                beaten, self._beaten = self._beaten, False
                watched = list(self.executions.items())
            began = time.monotonic()
            try:
                if beaten:
                    self._see_to_steps()
                    began = time.monotonic()
                version = self._engine.store.version()
                for uid, execution in watched:
                    if uid in told or version != seen:
                        self._look(execution)
                seen = version
            except StoreUnusable:
                return
            except HoldfastError as error:  # whatever it is, the next look may succeed
                text = "the inboxes of what is driven here could not be read, will try again: {error}"
                tell(WARNING, "worker.failed", text, error=str(error))
            took = time.monotonic() - began

    def _look(self, execution: Execution) -> None:
        run = execution.run
        items = run.store.inbox(run.uid)
        if not items or execution.outcome is not None:
            return
        cancel = cancel_request(run, items)
        if cancel is not None:
            execution.stop(cancel)
        else:
            execution.mail()

    def beat(self) -> None:
        """With each heartbeat, which must not be held up: have the steps that take long seen to."""
        with self._lock:
            self._beaten = True
            self._news.notify_all()

    def _see_to_steps(self) -> None:
        """Say of the steps that have been running since the last heartbeat that they do."""
        long = time.monotonic() - self._engine.worker.lease / 3
        lapses, late = self._engine.worker.lapses, self._lapses != self._engine.worker.lapses
        for execution in list(self.executions.values()):
            try:
                if late and not execution.lease.is_current():
                    raise LeaseLost(execution.run.id)
                for key, since in list(execution.active.items()):
                    if since <= long:
                        execution.submit_started(key)
            except LeaseLost as lost:  # this process was asleep: what it still does is in vain
                execution.stop(Aborted(lost))
            except StoreUnusable:
                raise
            except HoldfastError as error:  # the next beat may succeed
                text = "run {run}: that its steps still run could not be written: {error}"
                tell(WARNING, "run.delayed", text, run=execution.run.id, error=str(error))
                lapses = self._lapses  # what could not be asked is asked again
        self._lapses = lapses
