"""Bars on a scale of time: where each is drawn, and in which order. No I/O.

Long times in which nothing was done, such as a night until somebody answered, are folded: `Scale` gives them a small
width, and says how long they were.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from holdfast.present.timeline import SECOND, Bar, Look, Piece
from holdfast.present.words import brief

_FOLD_LEAST = 2 * SECOND
_LAST = 99.0  # where a box begins at the latest, so that one without length is seen at the end, too
_FOLD_OVER = 0.35  # of the time in which something was done: what lasts longer and is idle is folded to this


class Box(Struct, frozen=True):
    """A piece as it is drawn: in hundredths of the width."""

    x: float
    width: float
    look: Look


class Row(Struct, frozen=True):
    """A bar as it is drawn."""

    bar: Bar
    boxes: tuple[Box, ...]
    opens: bool  # whether it is the first of several in its lane
    alone: bool  # whether it has its lane to itself


class Tick(Struct, frozen=True):
    """A place on the scale, and how long after the beginning it is; or, of what is folded, how long that is."""

    x: float
    label: str


class Chart(Struct, frozen=True):
    """All that is drawn."""

    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    folds: tuple[Tick, ...]
    seconds: float


class Scale:
    """Times to places between 0 and 100, with long idle times folded."""

    def __init__(self, bars: Iterable[Bar], start: int, end: int) -> None:
        busy = _merged(
            (piece.start, piece.end) for bar in bars for piece in bar.pieces if piece.look not in ("wait", "pause")
        )
        worked = sum(stop - begin for begin, stop in busy)
        longest = max(round(worked * _FOLD_OVER), 1)
        self._times, self._places = [start], [0.0]
        self.folds: list[tuple[float, int]] = []  # the middle of each, and how long it is
        place = 0.0
        for begin, stop, idle in _alternating(busy, start, end):
            length = stop - begin
            shown = min(length, longest) if idle and worked and length >= _FOLD_LEAST else length
            if shown < length:
                self.folds.append((place + shown / 2, length))
            place += shown
            self._times.append(stop)
            self._places.append(place)
        self._whole = max(place, 1.0)
        self.folds = [(100 * middle / self._whole, length) for middle, length in self.folds]

    def place(self, at: int) -> float:
        """Where a moment is."""
        n = min(max(bisect_right(self._times, at), 1), len(self._times) - 1)
        before, after = self._times[n - 1], self._times[n]
        share = min(max((at - before) / (after - before), 0.0), 1.0) if after > before else 0.0
        return 100 * (self._places[n - 1] + share * (self._places[n] - self._places[n - 1])) / self._whole

    def moment(self, place: float) -> int:
        """Which moment is at a place."""
        wanted = place * self._whole / 100
        n = min(max(bisect_right(self._places, wanted), 1), len(self._places) - 1)
        before, after = self._places[n - 1], self._places[n]
        share = (wanted - before) / (after - before) if after > before else 0.0
        return round(self._times[n - 1] + share * (self._times[n] - self._times[n - 1]))


def _merged(stretches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The stretches in order, those that touch made one."""
    found: list[tuple[int, int]] = []
    for begin, stop in sorted(stretches):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((begin, stop))
    return found


def _alternating(busy: Sequence[tuple[int, int]], start: int, end: int) -> Iterable[tuple[int, int, bool]]:
    """The whole time in stretches, and whether nothing was done in them."""
    at = start
    for begin, stop in busy:
        if begin > at:
            yield at, begin, True
        yield max(begin, at), stop, False
        at = max(stop, at)
    if end > at or at == start:
        yield at, max(end, at), True


def chart(bars: Sequence[Bar]) -> Chart | None:
    """What is drawn of the bars, lanes together; None if there are none."""
    if not bars:
        return None
    start, end = min(bar.start for bar in bars), max(bar.end for bar in bars)
    scale = Scale(bars, start, end)
    rows: list[Row] = []
    lane = ""
    in_lane = Counter(bar.lane for bar in bars)
    for bar in _by_lane(bars):
        boxes = tuple(_box(scale, piece) for piece in bar.pieces)
        alone = bool(bar.lane) and in_lane[bar.lane] == 1
        rows.append(Row(bar, boxes, bool(bar.lane) and bar.lane != lane and not alone, alone))
        lane = bar.lane
    ticks = _distinct([Tick(x, brief((scale.moment(x) - start) / SECOND)) for x in (0.0, 25.0, 50.0, 75.0, 100.0)])
    folds = tuple(Tick(round(x, 2), brief(length / SECOND)) for x, length in scale.folds)
    return Chart(tuple(rows), ticks, folds, (end - start) / SECOND)


def _distinct(ticks: list[Tick]) -> tuple[Tick, ...]:
    """The first and the last one, and those between that say something else than their neighbours."""
    first, *between, last = ticks
    shown = [first]
    for tick in between:
        if tick.label not in (shown[-1].label, last.label):
            shown.append(tick)
    return (*shown, last)


def _box(scale: Scale, piece: Piece) -> Box:
    left, right = scale.place(piece.start), scale.place(piece.end)
    return Box(round(min(left, _LAST), 3), round(max(right - left, 0.0), 3), piece.look)


def _by_lane(bars: Sequence[Bar]) -> list[Bar]:
    """The bars in the order in which they began; the branches of a call together, by their numbers."""
    first: dict[str, int] = {}
    for n, bar in enumerate(bars):
        first.setdefault(_call(bar.lane), n)
    order = sorted(enumerate(bars), key=lambda one: _place(one[1].lane, one[0], first))
    return [bar for _, bar in order]


def _call(lane: str) -> str:
    """The outermost call that a lane is a branch of."""
    return lane.partition("/")[0].partition(".")[0]


def _place(lane: str, n: int, first: dict[str, int]) -> tuple[int, list[int], int]:
    if not lane:
        return n, [], n
    return first[_call(lane)], [int(number) for number in re.findall(r"\d+", lane)], n
