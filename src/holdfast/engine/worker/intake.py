"""What a worker gets to do: taken from its queues in turn, within their limits.

Before it takes, it reads what is set about the queues: the paused ones are left out, the others are told to the store
with their limits. Of a queue with a rate it first draws tokens, for as many runs as wait to be begun, and returns what
it did not need; who dies in between has begun fewer than it might, and never more.
"""

from __future__ import annotations

from collections.abc import Collection

from holdfast.engine.access.engine import Engine
from holdfast.engine.worker.queues import Settings, draw, put_back, read_settings
from holdfast.engine.workflow.declare import registered_names
from holdfast.kernel.model import Filter, Limits, Order, Outlook, RunRecord


class Intake:
    """The queues of one worker."""

    def __init__(self, engine: Engine, queues: tuple[str, ...]) -> None:
        self.queues = queues  # in the order in which it is their turn
        self.open: list[str] = []  # those that were not paused when it was looked last
        self.wake: int | None = None  # when a run may be begun for which there was no token
        self.outlook = Outlook([])  # as of the last time that it looked, before it took anything
        self._engine = engine

    def take(self, free: int, leave: Collection[str], *, suspects: int, alone: bool) -> list[RunRecord]:
        """Claim what is due, up to so many runs, but for these. ``alone`` says that the worker executes nothing."""
        store, names = self._engine.store, frozenset(registered_names())
        known = {name: settings for name, (settings, _) in read_settings(store).items()}
        self.wake = None
        self.open = [name for name in self.queues if not known.get(name, Settings()).paused]
        is_new = not self._engine.worker.enlisted
        # Before anything is taken: nobody else would notice who dies between the two.
        self.outlook = store.look(self.open, names, limit=len(leave) + 1 if is_new else 0)
        if is_new and not self._is_anything(leave) and not store.find(Filter(orphaned=True), limit=1):
            return []
        worker = self._engine.worker.ready()
        drawn: dict[str, int] = {}
        taken: list[RunRecord] = []
        try:
            queues: dict[str, Limits | None] = {}
            for name in self.open:
                settings = known.get(name)
                if settings is not None and settings.rate is not None:
                    drawn[name] = self._draw(name, names, leave, free)
                queues[name] = settings.limits(drawn.get(name)) if settings is not None else None
            order = Order(
                worker=worker,
                queues=queues,
                workflows=names,
                limit=free,
                leave=frozenset(leave),
                suspects=suspects,
                alone=alone,
            )
            taken = store.take(order)
        finally:
            for name, tokens in drawn.items():
                begun = sum(one.queue == name and one.epoch == 1 for one in taken)
                if tokens > begun:
                    put_back(store, name, tokens - begun)
        if taken:
            last = self.queues.index(taken[-1].queue or "") + 1
            self.queues = (*self.queues[last:], *self.queues[:last])
        return taken

    def is_held_back(self, leave: Collection[str]) -> bool:
        """Whether something is due that a limit keeps from being taken now, in a queue that is not paused."""
        self.outlook = self._engine.store.look(self.open, frozenset(registered_names()), limit=len(leave) + 1)
        return self._is_anything(leave)

    def _is_anything(self, leave: Collection[str]) -> bool:
        """Whether something was due when it looked last."""
        return any(one.uid not in leave for one in self.outlook.due)

    def _draw(self, name: str, names: frozenset[str], leave: Collection[str], free: int) -> int:
        """Take tokens for what waits to be begun, as far as there are any."""
        store = self._engine.store
        found = store.look([name], names, limit=free + len(leave)).due
        wanted = min(sum(one.epoch == 0 and one.uid not in leave for one in found), free)
        if not wanted:
            return 0
        drawn, after = draw(store, name, wanted)
        if drawn < wanted:
            moments = [at for at in (self.wake, after.next_token()) if at is not None]
            self.wake = min(moments, default=None)
        return drawn
