"""A rollback in a server that does not have the code of the undos: it is told in the plan, and refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import holdfast

MODULE = """
def act(): return 1
def take_back(result): raise AssertionError("it was called")
"""


def test_an_undo_that_cannot_be_found_is_told_in_the_plan(
    serving: Callable[..., TestClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "faraway.py").write_text(MODULE)
    with holdfast.open("memory://missing-undos") as hf:
        with monkeypatch.context() as here:
            here.syspath_prepend(str(tmp_path))
            import faraway  # type: ignore[import-not-found]

            run = hf.run("r")
            run.once("act", faraway.act, undo=faraway.take_back)
        monkeypatch.delitem(sys.modules, "faraway")
        client = serving(hf)
        problem = "undo faraway:take_back cannot be found here"
        [step] = client.get("/api/v1/runs/r/rollback?to=0").json()["steps"]
        assert step["action"] == "missing"
        assert problem in step["problem"]
        page = client.get("/runs/r/rollback?to=0").text
        assert "undo not found" in page
        assert problem in page
        etag = client.get("/api/v1/runs/r").headers["etag"]
        refused = client.post("/api/v1/runs/r/rollback", json={"to": 0}, headers={"If-Match": etag})
        assert refused.status_code == 409
        assert problem in refused.json()["detail"]
        assert [one.status for one in run.effects()] == ["done"]
