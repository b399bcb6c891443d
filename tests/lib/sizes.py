"""How much of a long enumeration a test run tries: a sample in `make test`, everything in `make test-all`.

Of what would take too long there, `make test-all` tries a larger sample, and `make torture` everything.

HOLDFAST_PROFILE says which: ``quick`` (the default), ``all`` or ``torture``.
"""

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

PROFILE = os.environ.get("HOLDFAST_PROFILE") or "quick"


def size(quick: int, otherwise: int, torture: int | None = None) -> int:
    """Return how many are tried."""
    if PROFILE == "torture" and torture is not None:
        return torture
    return quick if PROFILE == "quick" else otherwise


def sample(points: Sequence[T], most: int = 6) -> Sequence[T]:
    """Return at most so many of the points in `make test`, from the first to the last; else all of them."""
    if PROFILE != "quick" or len(points) <= most:
        return points
    return [points[n * (len(points) - 1) // (most - 1)] for n in range(most)]


def draw(points: Sequence[T], seed: int, quick: int, otherwise: int) -> Sequence[T]:
    """Return so many of the points by chance, in their order; in `make torture` all of them.

    A test that has a seed runs there, too.
    """
    most = size(quick, otherwise, len(points))
    if len(points) <= most:
        return points
    return [points[n] for n in sorted(random.Random(seed).sample(range(len(points)), most))]
