"""How much of a long enumeration a test run tries: a sample in `make test`, everything in `make test-all`.

HOLDFAST_PROFILE says which: ``quick`` (the default), ``all`` or ``torture``.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

PROFILE = os.environ.get("HOLDFAST_PROFILE") or "quick"


def size(quick: int, otherwise: int) -> int:
    """Return how many are tried."""
    return quick if PROFILE == "quick" else otherwise


def sample(points: Sequence[T], most: int = 6) -> Sequence[T]:
    """Return at most so many of the points in `make test`, from the first to the last; else all of them."""
    if PROFILE != "quick" or len(points) <= most:
        return points
    return [points[n * (len(points) - 1) // (most - 1)] for n in range(most)]
