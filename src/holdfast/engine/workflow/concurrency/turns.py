"""Turns: what durable calls give is handed to the branches in the order of the journal, one at a time."""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable

GAP = 1.0  # seconds to wait, while a task is busy outside, for somebody to ask for what was recorded before


class Turns:
    """Who waits for a turn, and who is next. ``recorded`` are the entries that an earlier execution wrote."""

    def __init__(self, recorded: Iterable[int]) -> None:
        self.waiting: set[asyncio.Future[None]] = set()
        self.in_flight: set[int] = set()  # the entries that are being committed
        self._line: list[tuple[int, int, asyncio.Future[None]]] = []  # those who wait, by what is to be given
        self._order = sorted(recorded)
        self._given: set[int] = set()
        self._next = 0  # of what was recorded, the first that nobody was given yet
        self._held_up: float | None = None
        self._is_patient = True

    def wait(self, turn: asyncio.Future[None], seq: int) -> None:
        """Put a branch in line for what an entry gives."""
        heapq.heappush(self._line, (seq, id(turn), turn))
        self.waiting.add(turn)

    def note_given(self, seq: int) -> None:
        """What an entry gives was handed out."""
        if self._next < len(self._order):
            self._given.add(seq)
            while self._next < len(self._order) and self._order[self._next] in self._given:
                self._next += 1

    def take_next(self, are_outside: Callable[[], bool], now: float) -> asyncio.Future[None] | None:
        """The branch that has its turn; None if it has to wait for what comes before.

        ``are_outside`` says whether a task is busy outside: it may still ask for that, as all others would have by now.
        """
        while self._line and self._line[0][2].done():
            heapq.heappop(self._line)
        seq, _, turn = self._line[0]
        if any(other < seq for other in tuple(self.in_flight)):
            return None
        if self._next < len(self._order) and self._order[self._next] < seq:
            if self._is_patient and are_outside():
                self._held_up = self._held_up or now
                self._is_patient = now < self._held_up + GAP
                return None
            self._next = bisect_left(self._order, seq)
        self._held_up = None
        heapq.heappop(self._line)
        return turn
