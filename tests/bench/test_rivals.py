"""A rival is a process that takes orders; what it says it made must be in its database."""

from pathlib import Path

import pytest

from bench.children import Child


@pytest.mark.parametrize(("module", "graph"), [("raw", False), ("holdfast_steps", False), ("holdfast_steps", True)])
def test_a_rival_takes_orders_and_says_how_durable_it_is(tmp_path: Path, module: str, graph: bool) -> None:
    child = Child(module, place=str(tmp_path / "rival.db"), durability="full", best=False, graph=graph)
    try:
        assert child.ready()["durability"] == "SQLite, journal_mode=wal, synchronous=FULL"
        assert child.order(20) > 0
        assert child.order(1, runs=3) > 0
    finally:
        child.stop()


def test_a_level_of_durability_is_read_back_from_the_connection(tmp_path: Path) -> None:
    child = Child("holdfast_steps", place=str(tmp_path / "rival.db"), durability="normal", best=False, graph=False)
    try:
        assert child.ready()["durability"].endswith("synchronous=NORMAL")
    finally:
        child.stop()


def test_a_rival_that_keeps_less_than_it_made_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = Child("raw", place=str(tmp_path / "rival.db"), durability="full", best=False, graph=False)
    try:
        child.ready()
        monkeypatch.setattr(child, "_answer", lambda: {"seconds": 0.1, "kept": 19})
        with pytest.raises(RuntimeError, match="raw kept 19 of 20 steps"):
            child.order(20)
    finally:
        child.stop()


def test_a_rival_that_ends_is_told_with_what_it_said(tmp_path: Path) -> None:
    child = Child("raw", place=str(tmp_path / "no" / "rival.db"), durability="full", best=False, graph=False)
    try:
        with pytest.raises(RuntimeError, match=r"raw gave no answer.*unable to open database file"):
            child.ready()
    finally:
        child.stop()
