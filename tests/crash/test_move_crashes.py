"""A process that moves runs dies at every point: each run lives in one place all the time, and the next one ends it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from movers import Meanwhile, Pair, crash_at, interrupt_at, nothing, others_work
from sizes import sample

from holdfast.testing.crash import Fuse

STEP = 5  # on the slow ones, of how many points one is tried here; the torture tries all
PAIRS = [("memory", "memory"), ("sqlite", "sqlite"), ("sqlite", "files"), ("files", "sqlite")]


def enumerate_crashes(
    kinds: tuple[str, str], meanwhile: Meanwhile, folder: Path, tally: Callable[..., None], step: int
) -> None:
    pair = Pair(kinds, folder)
    fuse = Fuse()
    with pair.process(fuse) as (here, there):
        report = here.move(there, timeout=0)
    assert sorted(report.moved) == sorted(pair.before)
    points = sample(fuse.distinct()[::step])
    violations = [found for at in points if (found := crash_at(pair, at, meanwhile))]
    tally(f"crashes of moves: {'-'.join(kinds)}", points=len(points), violations=len(violations))
    assert not violations, "\n".join(violations[:20])


@pytest.mark.parametrize("meanwhile", [nothing, others_work])
def test_a_crash_at_any_point(meanwhile: Meanwhile, memdir: Path, tally: Callable[..., None]) -> None:
    enumerate_crashes(("memory", "memory"), meanwhile, memdir / f"stores-{meanwhile.__name__}", tally, 1)


@pytest.mark.parametrize("kinds", PAIRS[1:], ids="-".join)
def test_a_crash_at_many_points(kinds: tuple[str, str], memdir: Path, tally: Callable[..., None]) -> None:
    meanwhile = others_work if kinds == ("sqlite", "sqlite") else nothing
    enumerate_crashes(kinds, meanwhile, memdir / "stores", tally, STEP)


def test_somebody_moves_everything_back_at_any_point(memdir: Path, tally: Callable[..., None]) -> None:
    """The first mover goes on with what it knew."""
    pair = Pair(PAIRS[0], memdir / "stores")
    fuse = Fuse()
    with pair.process(fuse) as (here, there):
        here.move(there, timeout=0)
    found = [interrupt_at(pair, at, fuse.points) for at in sample(fuse.distinct())]
    violations = [one for one in found if one is not None]
    tally("moves back at the same time", points=len(found), violations=len(violations))
    assert not violations, "\n".join(violations[:20])


@pytest.mark.torture
@pytest.mark.parametrize("meanwhile", [nothing, others_work])
@pytest.mark.parametrize("kinds", PAIRS[1:], ids="-".join)
def test_a_crash_at_all_points(
    kinds: tuple[str, str], meanwhile: Meanwhile, memdir: Path, tally: Callable[..., None]
) -> None:
    enumerate_crashes(kinds, meanwhile, memdir / "stores", tally, 1)
