"""The fan-out: five at a time, one tried again, one broken, and nothing measured twice after a kill."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .conftest import Example

RESULT = "result  {'mean': 12.73913043478261, 'measured': 23, 'broken': ['station-13']}"


def test_one_is_tried_again_and_one_is_broken(example: Example, memdir: Path) -> None:
    status, lines = example("fan_out.py", f"sqlite:///{memdir}/w.db", "monday", STEP_SECONDS="0.001")
    assert status == 0
    measured = Counter(line for line in lines if line.startswith("measure"))
    assert len(measured) == 24
    assert {line: count for line, count in measured.items() if count > 1} == {"measure station-07": 3}
    assert lines[-3:] == [
        RESULT,
        "failed  map#1.13/measure#1, attempts: 1 (Broken: station-13 is broken)",
        "done    map#1.7/measure#1, attempts: 3 ",
    ]


def test_killed_it_measures_the_rest(example: Example, killed: Callable[..., list[str]], memdir: Path) -> None:
    given = ("fan_out.py", f"sqlite:///{memdir}/w.db", "monday")
    before = killed(*given, at="station-20")
    _, after = example(*given)
    assert RESULT in after
    again = {line for line in before if line.startswith("measure")} & set(after)
    assert "measure station-01" not in after
    assert len(again - {"measure station-07"}) <= 5, "at most those that were under way when it was killed"
