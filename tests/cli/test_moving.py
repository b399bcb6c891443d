"""`holdfast import SYSTEM PATH`, and the pictures of what came along."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli.commands.transfer import systems
from holdfast.importers import SYSTEMS

from .conftest import Call
from .terminal import Terminal

FIXTURES = Path(__file__).parent.parent / "importers" / "fixtures"


@pytest.fixture
def left(memdir: Path) -> Callable[[str], str]:
    """A copy of what a system left on disk."""

    def copy(system: str) -> str:
        return str(shutil.copytree(FIXTURES / system.replace("-", "_"), memdir / "left" / system))

    return copy


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_is_imported_once(call: Call, store: Holdfast, left: Callable[[str], str], system: str) -> None:
    path = left(system)
    would = call("import", system, path, "--dry-run", "--json").json
    assert would["dry_run"]
    assert would["imported"]
    assert not store.runs().items
    done = call("import", system, path)
    count = len(would["imported"])
    assert done.code == (7 if would["damaged"] else 9 if would["refused"] else 0)
    assert ["imported", str(count)] in [line.split() for line in done.out.splitlines()]
    assert {info.id for info in store.runs()} == set(would["imported"])
    again = call("import", system, path, "--json").json
    assert (again["imported"], len(again["already"])) == ([], count)


def test_damage_is_told(call: Call, store: Holdfast, memdir: Path) -> None:
    (memdir / "paused").mkdir()
    for n in range(25):
        (memdir / "paused" / f"run-{n}\x1b.json").write_text('{ "run_id": ')
    done = call("import", "car", "paused")
    assert done.code == 7
    assert ["damaged", "25"] in [line.split() for line in done.out.splitlines()]
    assert done.out.count("✗ run-") == 20
    assert "… and 5 more; --json lists all" in done.out
    assert "\x1b" not in done.out
    assert len(call("import", "car", "paused", "--json").json["damaged"]) == 25


def test_what_is_refused_has_its_own_exit_status(call: Call, store: Holdfast, left: Callable[[str], str]) -> None:
    path = left("simple-agents")
    [first, *_] = call("import", "simple-agents", path, "--dry-run", "--json").json["imported"]
    store.run(first)
    done = call("import", "simple-agents", path)
    assert done.code == 9
    assert f"✗ {first} (" in done.out
    assert call("import", "simple-agents", path, "--prefix", "old/").code == 0
    assert store.get(f"old/{first}").info().tags["imported_from"] == "simple-agents"


def test_a_dry_run_makes_no_store(call: Call, left: Callable[[str], str], memdir: Path) -> None:
    assert call("import", "car", left("car"), "--dry-run", "--store", f"sqlite:///{memdir}/new.db").out
    assert not (memdir / "new.db").exists()


def test_words_that_do_not_fit(call: Call, memdir: Path) -> None:
    wrong = call("import", "cra", "left")
    assert (wrong.code, "did you mean car?" in wrong.err) == (2, True)
    assert "name their folder: `holdfast import car PATH`" in call("import", "car").err
    assert call("import", "x.holdfast", "--dry-run").code == 2
    assert call("import", "car", "nowhere").code == 2
    assert call("import", "x.holdfast").code == 8
    told = call("import", "--help").out
    assert all(name in told for name in systems())


def test_a_bar_at_a_terminal(terminal: Callable[..., Terminal], left: Callable[[str], str]) -> None:
    with terminal("import", "car", left("car")) as screen:
        screen.ended()
        assert "imported" in screen.text
        assert "━" not in screen.text  # it is gone when it is done
        assert "━".encode() in screen.raw


def test_the_workflow_of_car_is_drawn(call: Call, left: Callable[[str], str], memdir: Path) -> None:
    [first, *_] = call("import", "car", left("car"), "--json").json["imported"]
    assert call("graph", first).out.startswith("flowchart TD")
    assert call("graph", first, "--svg", "car.svg", "--json").json == {"svg": "car.svg"}
    assert (memdir / "car.svg").read_text().startswith("<svg")


def test_threads_of_langgraph(call: Call, store: Holdfast, memdir: Path) -> None:
    from langgraph.checkpoint.base import empty_checkpoint
    from langgraph.checkpoint.sqlite import SqliteSaver

    db = sqlite3.connect(memdir / "there.sqlite", check_same_thread=False)
    saver = SqliteSaver(db)
    saver.put({"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}, empty_checkpoint(), {}, {})
    db.close()
    for path in ("there.sqlite", f"sqlite:///{memdir}/there.sqlite"):
        assert call("import", "langgraph", path, "--dry-run", "--json").json["imported"] == ["t1"]
    assert call("import", "langgraph", "there.sqlite").code == 0
    assert store.get("t1").info().tags["imported_from"] == "langgraph"
    assert call("import", "langgraph", "nowhere.sqlite").code == 8
