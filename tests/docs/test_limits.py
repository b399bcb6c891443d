"""The limits of durable functions that the documents state are those of the code."""

from pathlib import Path

from holdfast.engine import bell, branches, children, waits, work, workflows

LIMITS = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "limits.md").read_text()


def test_stated_limits_are_those_of_the_code() -> None:
    assert f"| {children.MAX_DEPTH} deep |" in LIMITS
    assert f"| {branches.MAX_THREADS} threads |" in LIMITS
    assert f"without progress | {workflows.MAX_CRASHES} |" in LIMITS
    assert waits.IN_PLACE == 1_000_000, "limits.md, wait-and-message.md and retries-and-timeouts.md say one second"
    assert bell.LOOK_EVERY == 1 / 20, "limits.md says a twentieth of a second"
    assert work.GRACE == 30, "run-workers.md says thirty seconds"
