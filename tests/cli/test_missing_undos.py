"""A rollback where the code of the undos is not: nothing is undone, and the plan says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast

from .conftest import SHOPPING, Call


@pytest.mark.parametrize("words", [("--plan",), ("--yes", "--then", "cancelled"), ()], ids=["plan", "yes", "asked"])
def test_an_undo_that_cannot_be_found(shop: Call, store: Holdfast, process: Any, words: tuple[str, ...]) -> None:
    shop("sell", "s1", order="A-17")
    child = process("rollback", "s1", "--to", "0", *words)
    out, err = child.communicate(timeout=60)
    planned = words == ("--plan",)
    assert "undo shopping:refund cannot be found here" in (out if planned else err)
    assert child.returncode == (0 if planned else 9)
    assert ("refused   charge#1" in out) == planned
    assert store.get("s1").info().generation == 0


def test_an_undo_is_imported_by_its_name_when_it_is_called_and_not_before(
    shop: Call, store: Holdfast, process: Any
) -> None:
    shop("sell", "s1", order="A-17")
    path = {"PYTHONPATH": str(Path(SHOPPING).parent)}
    child = process("rollback", "s1", "--to", "0", "--plan", **path)
    assert "undone" in child.communicate(timeout=60)[0]
    child = process("rollback", "s1", "--to", "0", "--yes", "--then", "cancelled", **path)
    child.communicate(timeout=60)
    assert (child.returncode, store.get("s1").status) == (0, "cancelled")


def test_a_flow_needs_no_module(call: Call, store: Holdfast, process: Any, memdir: Path) -> None:
    (memdir / "make.yaml").write_text(
        "name: make\nsteps:\n  - id: build\n    run: touch made\n    undo:\n      run: rm made\n"
    )
    assert call("run", "make.yaml", "--id", "f1").code == 0
    assert (memdir / "made").exists()
    child = process("rollback", "f1", "--to", "0", "--yes", "--then", "cancelled")
    _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (0, "")
    assert not (memdir / "made").exists()
