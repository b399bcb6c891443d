"""Fixtures for tests with workflows. pytest finds them by itself where Holdfast is installed.

Nothing of Holdfast is loaded until one of them is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.testing import Effects, ManualClock


@pytest.fixture
def virtual_clock() -> ManualClock:
    """A clock that moves when a workflow waits, or when the test says so: ``virtual_clock.advance(60)``."""
    from holdfast.testing import ManualClock

    return ManualClock()


@pytest.fixture
def durable(virtual_clock: ManualClock) -> Iterator[Holdfast]:
    """An empty store in memory, open, on the virtual clock: ``durable.start(workflow, ...)``."""
    from holdfast.testing import open

    with open(clock=virtual_clock) as hf:
        yield hf


@pytest.fixture
def effects() -> Effects:
    """A list for the fakes of your steps to append to, which `crash_everywhere` understands."""
    from holdfast.testing import Effects

    return Effects()
