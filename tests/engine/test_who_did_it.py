"""Who forked, rolled back or gave up a run is journaled, where they say so."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, UsageError


def test_who_did_it_is_journaled(hf: Holdfast) -> None:
    run = hf.run("a")
    run.save({"n": 1})
    run.save({"n": 2})
    forked, plain = run.fork(1, id="b", by="operator"), run.fork(1, id="c")
    assert [one.entry(2).contents.get("by") for one in (forked, plain)] == ["operator", None]
    run.rollback(1, by="auditor")
    run.rollback(0, then="cancelled", by="auditor")
    assert [run.entry(one.seq).contents["by"] for one in run.history(kind="rollback_begun")] == ["auditor", "auditor"]
    [ended] = run.history(kind="cancelled")
    assert run.entry(ended.seq).contents["by"] == "auditor"
    forked.cancel(by="operator")
    [ended] = forked.history(kind="cancelled")
    assert forked.entry(ended.seq).contents["by"] == "operator"
    for wrong in (lambda: run.fork(0, by=7), lambda: run.rollback(0, by=7)):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="by=7"):
            wrong()
