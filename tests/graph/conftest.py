"""What the tests of graphs share: a clock of their own, and a death in the middle of something."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.errors import StoreUnusable
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(store_url: str, clock: ManualClock) -> Iterator[Callable[..., Holdfast]]:
    """Opens the store with the clock of this test; each call is another holder."""
    handles: list[Holdfast] = []

    def opener(**how: Any) -> Holdfast:
        handles.append(holdfast.open(store_url, store=open_store(store_url, clock=clock), **how))
        return handles[-1]

    yield opener
    for handle in handles:
        with suppress(StoreUnusable):  # of one that was killed
            handle.close()


@pytest.fixture
def die(kill: Callable[[Holdfast], None]) -> Callable[[Holdfast], NoReturn]:
    """Called inside of a node: the process that has the handle is dead from here on."""

    def dying(handle: Holdfast) -> NoReturn:
        kill(handle)
        raise Crash

    return dying


@pytest.fixture
def memory() -> Iterator[Holdfast]:
    """A store in memory, for what no store has a part in."""
    with holdfast.open("memory://") as handle:
        yield handle
