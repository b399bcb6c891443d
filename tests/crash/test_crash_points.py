"""Every point at which a process can die, one after the other; and every point at which the next one can.

Points between which nothing changed leave the same behind, so of those only the last is tried, at which the most was
acknowledged. The others are counted with it.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from scenario import PARTS, SITES, whole
from sizes import sample, size
from verdict import crash_at, crash_twice, without_crash

import holdfast
from holdfast.testing.crash import Crash, Fuse

CHUNKS = {"memory": 1, "sqlite": size(1, 2), "files": size(1, 8)}
EACH = [(kind, name, n) for kind, chunks in CHUNKS.items() for name in PARTS for n in range(chunks)]


def covered(fuse: Fuse, chosen: list[int]) -> int:
    """How many points the chosen ones stand for."""
    distinct = fuse.distinct()
    before = dict(zip(distinct, [-1, *distinct], strict=False))
    return sum(at - before[at] for at in chosen)


@pytest.mark.parametrize(("kind", "name", "chunk"), EACH)
def test_a_crash_at_any_point_loses_nothing(
    kind: str, name: str, chunk: int, memdir: Path, tally: Callable[..., None]
) -> None:
    site, part = SITES[kind](str(memdir / "site")), PARTS[name]
    fuse, expected = without_crash(site, part)
    chosen = sample(fuse.distinct()[chunk :: CHUNKS[kind]])
    violations = [found for at in chosen if (found := crash_at(site, part, at, expected))]
    tally(f"crash points: {kind}", points=covered(fuse, chosen), tried=len(chosen), violations=len(violations))
    site.wipe()
    assert not violations, "\n".join(violations)
    assert len(chosen) > 3


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ("memory", "sqlite") for name in PARTS])
def test_going_on_needs_no_recovery(kind: str, name: str, memdir: Path, tally: Callable[..., None]) -> None:
    """The next process just claims the runs, without `recover`."""
    site, part = SITES[kind](str(memdir / "site")), PARTS[name]
    fuse, expected = without_crash(site, part)
    chosen = sample(fuse.distinct())
    violations = [found for at in chosen if (found := crash_at(site, part, at, expected, recover=False))]
    tally(
        f"crash points without recover: {kind}",
        points=covered(fuse, chosen),
        tried=len(chosen),
        violations=len(violations),
    )
    site.wipe()
    assert not violations, "\n".join(violations)


def test_a_backup_that_died_is_not_in_the_way_of_the_next(memdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process leaves its unfinished file, and in a container the next one has the same number."""
    with holdfast.open(f"files:///{memdir / 'store'}") as hf:
        hf.run("one").save({"n": 1})
        with monkeypatch.context() as patched, suppress(Crash):
            patched.setattr(os, "unlink", lambda path: None)
            patched.setattr(os, "replace", _die)
            hf.backup(str(memdir / "backup"))
        assert [path.name for path in memdir.glob("backup*")] != ["backup"]
        assert hf.backup(str(memdir / "backup")) == 1
    with holdfast.open(f"memory://{memdir.name}") as there:
        assert there.restore(str(memdir / "backup")) == ("one",)


def _die(*paths: str) -> None:
    raise Crash


@pytest.mark.torture
@pytest.mark.parametrize("name", PARTS)
def test_going_on_in_files_needs_no_recovery(name: str, memdir: Path, tally: Callable[..., None]) -> None:
    test_going_on_needs_no_recovery("files", name, memdir, tally)


@pytest.mark.torture
@pytest.mark.parametrize(("kind", "name", "chunk"), EACH)
def test_a_crash_while_recovering_from_a_crash_loses_nothing(
    kind: str, name: str, chunk: int, memdir: Path, tally: Callable[..., None]
) -> None:
    site, part = SITES[kind](str(memdir / "site")), PARTS[name]
    fuse, expected = without_crash(site, part)
    pairs, violations = 0, []
    for first in fuse.distinct()[chunk :: CHUNKS[kind]]:
        tried, found = crash_twice(site, part, first, expected)
        pairs += tried
        violations += found
    tally(f"pairs of crash points: {kind}", tried=pairs, violations=len(violations))
    site.wipe()
    assert not violations, "\n".join(violations[:20])


@pytest.mark.torture
@pytest.mark.parametrize("kind", SITES)
def test_a_crash_in_a_store_with_all_the_runs_loses_nothing(
    kind: str, memdir: Path, tally: Callable[..., None]
) -> None:
    site = SITES[kind](str(memdir / "site"))
    fuse, expected = without_crash(site, whole)
    chosen = fuse.distinct()
    violations = [found for at in chosen if (found := crash_at(site, whole, at, expected))]
    tally(f"crash points, all in one store: {kind}", tried=len(chosen), violations=len(violations))
    site.wipe()
    assert not violations, "\n".join(violations[:20])
