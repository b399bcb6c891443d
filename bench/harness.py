"""How everything here is measured: rivals take turns (A B C A B C …), and a figure is the median of its rounds.

A figure is a number; `Measured` also knows the spread of its rounds. A goal that is a plain number must not be
exceeded; one that is `AtLeast` must be reached.
"""

from __future__ import annotations

import gc
import math
import random
import statistics
import string
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Say = Callable[[str], None]
Goals = Mapping[str, float]

LOW, HIGH = 10, 90  # percent of the rounds, between which the spread lies


class AtLeast(float):
    """A goal that is met by this figure or a larger one."""


class Measured(float):
    """The median of some rounds."""

    spread: tuple[float, float]

    @classmethod
    def of(cls, rounds: Sequence[float], scale: float = 1.0) -> Measured:
        values = sorted(value * scale for value in rounds)
        figure = cls(statistics.median(values))
        figure.spread = (percentile(values, LOW), percentile(values, HIGH))
        return figure


def percentile(values: Sequence[float], percent: float) -> float:
    """Of sorted values, with what lies between two of them."""
    place = (len(values) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def ratio(one: Sequence[float], other: Sequence[float]) -> Measured:
    """The median of the rounds' ratios: what slows a round slows both."""
    return Measured.of([a / b for a, b in zip(one, other, strict=True)])


def met(value: float, goal: float) -> bool:
    return value >= goal if isinstance(goal, AtLeast) else value <= goal


def in_turns(rivals: Mapping[str, Callable[[int], float | None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each rival in each round: what it returns, or how long it took. Round 0 warms up, and is left out."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for round in range(rounds + 1):
        for name, run in rivals.items():
            gc.collect()
            started = time.perf_counter()
            told = run(round)
            took = time.perf_counter() - started if told is None else told
            if round:
                times[name].append(took)
    return times


def exponent(points: Mapping[float, float]) -> float:
    """k of the curve y = c·x^k that fits best, by least squares of the logarithms: 1 is linear, 2 quadratic."""
    xs = [math.log(x) for x in points]
    ys = [math.log(y) for y in points.values()]
    return statistics.linear_regression(xs, ys).slope


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def random_texts(count: int, seed: int, length: int = 1_024) -> list[str]:
    """Texts that cannot be compressed much."""
    source = random.Random(seed)
    alphabet = string.digits + string.ascii_letters + string.punctuation + " "
    return ["".join(source.choices(alphabet, k=length)) for _ in range(count)]


class Stopwatch:
    """Adds up the time that is spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started

        return call
