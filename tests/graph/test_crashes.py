"""Every point at which the process that drives a graph can die: whoever goes on ends as if nothing had happened."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from holdfast import Graph
from holdfast.testing import crash_everywhere
from tests.graph.crashing import effects, everything, racing, straight

ANSWERS = {"inner?": "in", "right?": "r", "never?": "n"}
GRAPHS: dict[str, Callable[[str], Graph]] = {"everything": everything, "straight": straight, "racing": racing}
# On files, which have the most points by far, only the smallest one each time.
EACH = [
    pytest.param(name, on, marks=pytest.mark.torture if on == "files" and name != "racing" else ())
    for on in ("memory", "sqlite", "files")
    for name in GRAPHS
]


def answer(question: Any) -> Any:
    return ANSWERS.get(question.prompt)  # None for an interrupt


@pytest.mark.parametrize(("name", "on"), EACH)
def test_a_graph_that_dies_at_any_point_ends_as_if_it_had_not(
    name: str, on: Literal["memory", "sqlite", "files"], tally: Callable[..., None]
) -> None:
    report = crash_everywhere(GRAPHS[name](name), {}, answers=answer, effects=effects, on=on, check=False)
    tally(f"crash points of graphs: {on}", points=report.points, tried=report.tried)
    assert report.ok, str(report)
    assert report.tried > 30
