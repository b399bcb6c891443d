"""The limits of durable functions that the documents state are those of the code."""

import re
from pathlib import Path

from holdfast.engine.worker.worker import SELDOM
from holdfast.stores.postgres import connections, store, stuck_calls
from holdfast.stores.protocol import LOOK_EVERY

ROOT = Path(__file__).resolve().parents[2]
LIMITS = (ROOT / "docs" / "reference" / "limits.md").read_text()
CODE = "".join(path.read_text() for path in sorted((ROOT / "src" / "holdfast" / "engine").rglob("*.py")))


def constant(name: str) -> float:
    found = {float(value) for value in re.findall(rf"^{name} = ([\d_.]+)", CODE, re.MULTILINE)}
    assert len(found) == 1
    return found.pop()


def test_stated_limits_are_those_of_the_code() -> None:
    assert f"| {constant('MAX_DEPTH'):.0f} deep |" in LIMITS
    assert f", {constant('MAX_DEPTH'):.0f} deep." in (ROOT / "docs" / "howto" / "children.md").read_text()
    assert f"| {constant('MAX_THREADS'):.0f} threads |" in LIMITS
    assert f"without progress | {constant('MAX_CRASHES'):.0f};" in LIMITS
    assert constant("IN_PLACE") == 1_000_000, "limits.md says one second, and two how-to pages do"
    assert LOOK_EVERY == 1 / 20, "limits.md says a twentieth of a second"
    assert constant("GRACE") == 30, "run-workers.md says thirty seconds"


def test_stated_limits_of_postgresql_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "howto" / "postgresql.md").read_text()
    assert f"| a lost connection to PostgreSQL | {connections.PATIENCE:.0f} s |" in LIMITS
    assert f"for up to {connections.PATIENCE:.0f} s" in page
    assert f"| an answer of PostgreSQL that does not come | {stuck_calls.LIMIT:.0f} s |" in LIMITS
    assert f"cut off after {stuck_calls.LIMIT:.0f} s" in page
    assert f"every {store.LOOK_WHEN_TOLD:.0f} s, or every second" in page
    assert store.LOOK == 1
    assert "after {} to {} of its lease".format(*SELDOM) in page
