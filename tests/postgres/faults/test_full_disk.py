"""The server's disk is full: workers wait, and when there is space again, everything goes on."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pgdisk import SmallDisk

from holdfast.errors import StoreBusy, StoreFull, StoreUnreachable
from holdfast.stores.postgres import connections

MEGABYTES = 80
FULL_FOR, LONGEST = 1.5, 20.0  # seconds; until a worker has met it, and how much longer


@pytest.fixture
def small() -> Iterator[SmallDisk]:
    small = SmallDisk(MEGABYTES)
    yield small
    small.remove()


@pytest.mark.slow(covered_by="tests/damage/test_full_disk.py")
@pytest.mark.parametrize("times", [2, pytest.param(40, marks=pytest.mark.torture)])
def test_when_there_is_space_again_everything_goes_on(
    small: SmallDisk,
    furnished: Callable[[str], str],
    fleets: Callable[[str], Any],
    times: int,
    monkeypatch: pytest.MonkeyPatch,
    verdict: Callable[..., None],
) -> None:
    """The server may end itself when it cannot write its log: then it is started again, as a service would be."""
    fleet = fleets(furnished(small.url))
    fleet.trial.bears = (StoreFull, StoreUnreachable, StoreBusy)
    monkeypatch.setattr(connections, "PATIENCE", 0.5)  # of this process, which is to make space
    crew = fleet.crew(fleet.command, 2)
    crew.fill()
    made, ended, until, before = 0, 0, 0.0, 0

    def strike() -> bool:
        nonlocal made, ended, until, before
        now = time.monotonic()
        if not until and made < times and fleet.at_work() == 2:
            small.ask("fill")
            until, before = now + FULL_FOR, fleet.told("the disk is full")
        elif until and now > until and (fleet.told("the disk is full") > before or now > until + LONGEST):
            small.ask("clear")
            ended += small.ask("start") == "started"
            made, until = made + 1, 0.0
        return made == times

    fleet.trial.go(strike, timeout=900 if times > 2 else 100)
    crew.dismiss()
    refused = fleet.told("the disk is full")
    assert refused > 0, "it was never full"
    verdict(fleet, "disk full", times=made, server_ended=ended, refused=refused)
