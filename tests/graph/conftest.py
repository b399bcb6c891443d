"""What the tests of graphs share: a clock of their own, and a death in the middle of something."""

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import Holdfast


@pytest.fixture
def memory() -> Iterator[Holdfast]:
    """A store in memory, for what no store has a part in."""
    with holdfast.open("memory://") as handle:
        yield handle
