"""Every point at which the process that drives a workflow can die; and every point at which the next one can.

The workflows use every feature there is. Whoever comes next starts them again under the same ids, and everything must
end as if nothing had happened: the same results, nothing done again that was done, nothing at-most-once done twice, no
effect missing, nothing undone twice, no run stranded, and every journal sound.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from scenario import SITES, Site
from scenario_workflows import WORKFLOWS
from sizes import sample, size
from verdict import crash_at, crash_twice, without_crash

from holdfast.testing.clock import ManualClock
from holdfast.testing.crash import Fuse

CHUNKS = {"memory": 1, "sqlite": 1, "files": size(1, 4)}
EACH = [(kind, name, n) for kind, chunks in CHUNKS.items() for name in WORKFLOWS for n in range(chunks)]


def site_of(kind: str, folder: Path) -> Site:
    return SITES[kind](str(folder / "site"), ManualClock())


def covered(fuse: Fuse, chosen: list[int]) -> int:
    """How many points the chosen ones stand for."""
    distinct = fuse.distinct()
    before = dict(zip(distinct, [-1, *distinct], strict=False))
    return sum(at - before[at] for at in chosen)


@pytest.mark.parametrize(("kind", "name", "chunk"), EACH)
def test_a_workflow_that_dies_at_any_point_ends_as_if_it_had_not(
    kind: str, name: str, chunk: int, memdir: Path, tally: Callable[..., None]
) -> None:
    site, part = site_of(kind, memdir), WORKFLOWS[name]
    fuse, expected = without_crash(site, part)
    chosen = sample(fuse.distinct()[chunk :: CHUNKS[kind]])
    violations = [found for at in chosen if (found := crash_at(site, part, at, expected))]
    points = covered(fuse, chosen)
    tally(f"crash points of workflows: {kind}", points=points, tried=len(chosen), violations=len(violations))
    site.wipe()
    assert not violations, "\n".join(violations)
    assert len(fuse.distinct()) > 10


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_goes_on_without_recovery(name: str, memdir: Path, tally: Callable[..., None]) -> None:
    """The next process just starts it again, without `recover`."""
    site, part = site_of("memory", memdir), WORKFLOWS[name]
    fuse, expected = without_crash(site, part)
    chosen = sample(fuse.distinct())
    violations = [found for at in chosen if (found := crash_at(site, part, at, expected, recover=False))]
    points = covered(fuse, chosen)
    tally("crash points of workflows without recover", points=points, tried=len(chosen), violations=len(violations))
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_has_the_same_points_each_time(name: str, memdir: Path) -> None:
    """So that what the other tests tried is all there is."""
    site = site_of("memory", memdir)
    first, one = without_crash(site, WORKFLOWS[name])
    second, two = without_crash(site, WORKFLOWS[name])
    assert first.points == second.points
    assert one == two


# On files, which have the most points by far, every fourth first one.
@pytest.mark.torture
@pytest.mark.parametrize(("kind", "name", "chunk"), [one for one in EACH if one[2] == 0])
def test_a_workflow_whose_next_process_dies_too_ends_as_if_it_had_not(
    kind: str, name: str, chunk: int, memdir: Path, tally: Callable[..., None]
) -> None:
    site, part = site_of(kind, memdir), WORKFLOWS[name]
    fuse, expected = without_crash(site, part)
    pairs, violations = 0, []
    for first in fuse.distinct()[chunk :: CHUNKS[kind]]:
        tried, found = crash_twice(site, part, first, expected)
        pairs += tried
        violations += found
    tally(f"pairs of crash points of workflows: {kind}", tried=pairs, violations=len(violations))
    site.wipe()
    assert not violations, "\n".join(violations[:20])
