"""Handles of runs that were looked at lately: each knows what it has read of its journal, and reads what is new."""

from __future__ import annotations

import threading

from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run

MOST = 64  # handles at hand
MOST_ENTRIES = 300_000  # that they have read, all together


class Handles:
    """The handles of a server, the one that was not used for longest first to be forgotten."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Run, int]] = {}  # by uid, with how many entries the run had
        self._lock = threading.Lock()

    def get(self, hf: Holdfast, id: str) -> Run:
        """The run of this id; raises `RunNotFound`."""
        fresh = hf.get(id)
        entries = fresh.info().seq + 1
        with self._lock:
            run, _ = self._known.pop(fresh.uid, (fresh, 0))
            self._known[fresh.uid] = run, entries
            while len(self._known) > 1 and (len(self._known) > MOST or self._weight() > MOST_ENTRIES):
                del self._known[next(iter(self._known))]
        return run

    def _weight(self) -> int:
        return sum(entries for _, entries in self._known.values())
