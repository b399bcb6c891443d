"""Every point at which the process that drives a graph can die: whoever goes on ends as if nothing had happened."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from holdfast import Graph
from holdfast.testing import crash_everywhere
from tests.graph.crashing import effects, everything, racing, straight

ANSWERS = {"inner?": "in", "right?": "r", "never?": "n"}
GRAPHS: dict[str, Callable[[str], Graph]] = {"everything": everything, "straight": straight, "racing": racing}
IN_MEMORY = "tests/graph/test_crashes.py::test_a_graph_that_dies_at_any_point_ends_as_if_it_had_not"
# On files, which have the most points by far, only the smallest one each time.
ELSEWHERE = [
    pytest.param(name, on, marks=pytest.mark.torture if on == "files" and name != "racing" else ())
    for on in ("sqlite", "files")
    for name in GRAPHS
]


def answer(question: Any) -> Any:
    return ANSWERS.get(question.prompt, True)  # yes to an interrupt


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_that_dies_at_any_point_ends_as_if_it_had_not(name: str, tally: Callable[..., None]) -> None:
    crash(name, "memory", tally)


@pytest.mark.slow(covered_by=IN_MEMORY)
@pytest.mark.parametrize(("name", "on"), ELSEWHERE)
def test_the_same_on_stores_that_last(name: str, on: Literal["sqlite", "files"], tally: Callable[..., None]) -> None:
    crash(name, on, tally)


def crash(name: str, on: Literal["memory", "sqlite", "files"], tally: Callable[..., None]) -> None:
    report = crash_everywhere(GRAPHS[name](name), {}, answers=answer, effects=effects, on=on, check=False)
    tally(f"crash points of graphs: {on}", points=report.points, tried=report.tried)
    assert report.ok, str(report)
    assert report.tried > 30
