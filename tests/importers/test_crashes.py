"""An import that dies at any point, and the next one: the outcome is that of an import that did not die."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scenario import SITES, Site

import holdfast
from holdfast import Holdfast
from holdfast.importers import import_from, origin
from holdfast.importers.writing import _make
from holdfast.testing.crash import Crash, Fuse

PARTS = {"mur": 4, "car": 3, "simple-agents": 2, "wesichain": 4, "brainwires": 5}


def attempt(site: Site, fuse: Fuse, system: str, folder: Path) -> Any:
    """Import, until the fuse blows."""
    store = None
    with suppress(Crash):
        store = site.open("here", fuse)
        with holdfast.open("", store=store) as hf:
            return import_from(system, folder, hf)
    if store is not None:
        store.drop()
    return None


@pytest.mark.parametrize("kind", SITES)
def test_a_crash_at_any_point_doubles_and_loses_nothing(
    kind: str, system: str, left: Callable, everything: Callable, memdir: Path, tally: Callable[..., None]
) -> None:
    folder, site = left(system), SITES[kind](str(memdir / "site"))
    site.wipe()
    counting = Fuse()
    assert attempt(site, counting, system, folder).ok
    with holdfast.open("", store=site.open("here", Fuse())) as hf:
        expected = everything(hf)

    points = counting.distinct()
    chosen = points if kind == "memory" else points[:: max(1, len(points) // 12)]
    finished = 0
    for at in chosen:
        site.wipe()
        attempt(site, Fuse(at), system, folder)
        summary = attempt(site, Fuse(), system, folder)
        assert summary.ok, (at, counting.points[at], summary)
        finished += bool(summary.imported)
        with holdfast.open("", store=site.open("here", Fuse())) as hf:
            hf.recover()  # of one that died when all was written, and before it let go
            assert everything(hf) == expected, (at, counting.points[at])
    site.wipe()
    tally(f"crash points of imports: {kind}", points=len(points), tried=len(chosen), violations=0)
    assert finished > 3


def half(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, system: str, path: Path, parts: int) -> None:
    """An import that dies after so many parts of its first run."""
    made: list[object] = []

    def dying(run: Any, part: Any) -> None:
        if len(made) == parts:
            raise Crash
        made.append(part)
        _make(run, part)

    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr("holdfast.importers.writing._make", dying)
        import_from(system, path, hf)


def first(system: str, folder: Path) -> Path:
    """One run, with more than one part."""
    names = {"car": "run-1.json", "brainwires": "proj_task_1_final.json"}
    return folder / names[system] if system in names else folder


def test_a_broken_off_import_is_finished(
    hf: Holdfast, system: str, left: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = first(system, left(system))
    for parts in range(PARTS[system]):
        half(hf, monkeypatch, system, path, parts)
        [id] = [info.id for info in hf.runs()]
        assert import_from(system, path, hf, dry_run=True).imported[0] == id
        assert import_from(system, path, hf).imported[0] == id
        run = hf.get(id)
        assert run.info().seq == PARTS[system] == origin(run).entries - 1
        for info in hf.runs():
            hf.get(info.id).delete()


def test_a_half_that_somebody_went_on_with_is_not_touched(
    hf: Holdfast, system: str, left: Callable, monkeypatch: pytest.MonkeyPatch, everything: Callable
) -> None:
    path = first(system, left(system))
    for parts in range(PARTS[system]):
        half(hf, monkeypatch, system, path, parts)
        [id] = [info.id for info in hf.runs()]
        hf.get(id).save("somebody else's")  # with the last one, it is as long as a whole import
        before = everything(hf)
        for dry_run in (True, False):
            refused = import_from(system, path, hf, dry_run=dry_run).refused
            assert [one.run for one in refused] == [id], parts
            assert "somebody has written" in refused[0].why
        assert everything(hf) | before == everything(hf)
        assert everything(hf)[id] == before[id]
        for info in hf.runs():
            hf.get(info.id).delete()


@dataclass
class Theirs:
    """A type that an import knows nothing of."""

    n: int


def test_a_half_with_a_state_that_cannot_be_read_here_is_not_touched(
    hf: Holdfast, opened: Callable[..., Holdfast], left: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = left("mur")
    half(hf, monkeypatch, "mur", folder, 2)
    [info] = hf.runs()
    hf.get(info.id).save(Theirs(1))
    [refused] = import_from("mur", folder, opened()).refused
    assert "somebody has written" in refused.why
    assert hf.get(info.id).checkpoint(type=Theirs).state == Theirs(1)


def test_a_half_of_what_has_changed_is_told(
    hf: Holdfast, left: Callable, change: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left("simple-agents") / "run-1.json"
    half(hf, monkeypatch, "simple-agents", path, 1)
    change(path, step=9)
    [refused] = import_from("simple-agents", path, hf).refused
    assert "delete run 'run-1'" in refused.why
    hf.get("run-1").delete()
    assert import_from("simple-agents", path, hf).imported == ("run-1",)


def test_a_run_that_another_import_writes_is_left_to_it(
    hf: Holdfast, opened: Callable[..., Holdfast], left: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = left("mur")
    half(hf, monkeypatch, "mur", folder, 2)
    other = opened()
    [info] = other.runs()
    with other.get(info.id).claim():
        [refused] = import_from("mur", folder, hf).refused
        assert "held by" in refused.why
    assert import_from("mur", folder, hf).imported == (info.id,)


def test_a_killed_process(left: Callable, memdir: Path, everything: Callable) -> None:
    """Killed by a signal in the middle of an execution, in a real process."""
    folder, url = left("mur"), f"sqlite:///{memdir / 'runs.db'}"
    program = """
        import os, signal, sys
        import holdfast
        from holdfast.importers import import_from, writing
        make, made = writing._make, []
        def dying(run, part):
            make(run, part)
            made.append(part)
            if len(made) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
        writing._make = dying
        with holdfast.open(sys.argv[2]) as hf:
            import_from("mur", sys.argv[1], hf)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(folder), url]
    done = subprocess.run(command, check=False, timeout=60, env=os.environ.copy())
    assert done.returncode == -signal.SIGKILL
    with holdfast.open(url) as hf, holdfast.open("memory://") as whole:
        assert len(hf.runs()) == 1
        assert import_from("mur", folder, hf).ok
        import_from("mur", folder, whole)
        assert everything(hf) == everything(whole)
