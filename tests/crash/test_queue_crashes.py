"""A process dies, or the power fails, at every point of taking from a queue, of a schedule, and of what is set."""

from collections.abc import Callable
from pathlib import Path

import pytest
from scenario import SITES, FilesSite
from scenario_queues import arrange, serve
from sizes import sample
from verdict import crash_at, power_fails, power_failures, without_crash

from holdfast.testing import ManualClock


@pytest.mark.parametrize(
    ("kind", "recover"), [("memory", True), ("memory", False), ("sqlite", False), ("files", False)]
)
def test_a_crash_at_any_point(kind: str, recover: bool, memdir: Path, tally: Callable[..., None]) -> None:
    site = SITES[kind](str(memdir / "site"), ManualClock())
    fuse, expected = without_crash(site, serve)
    points = sample(fuse.distinct())
    violations = [found for at in points if (found := crash_at(site, serve, at, expected, recover=recover))]
    tally(f"crashes of queues: {kind}", points=len(points), violations=len(violations))
    site.wipe()
    assert not violations, "\n".join(violations[:20])
    assert {name for name in expected if name.startswith("here/")} == {
        "here/crash-errand(a)#1",
        "here/crash-errand(b)#1",
        "here/schedule:hourly@2023-11-14T23:00:00Z",
        "here/schedule:hourly@2023-11-15T00:00:00Z",
    }


def test_a_power_failure_at_any_point(memdir: Path, tally: Callable[..., None]) -> None:
    moments, found, expected = power_failures(str(memdir / "power"), arrange)
    site = FilesSite(str(memdir / "site"))
    site.wipe()
    chosen = sample(found)
    violations = [bad for place, image in chosen if (bad := power_fails(site, arrange, place, image, expected))]
    tally("power failures of queues: files", points=moments, tried=len(chosen), violations=len(violations))
    assert not violations, "\n".join(violations[:20])
