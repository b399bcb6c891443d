"""The research graph: a person sends it round again, or ends it; killed, it searches for what it had not found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Example

DONE, REFUSED, WAITING = 0, 1, 2
FIRST = ["kelp: basics", "kelp: people", "kelp: numbers"]
ASKS = "asks   3 findings on kelp, cost 6. What else, or done?"


@pytest.fixture(params=["sqlite:///{}/research.db", "files:///{}/research"])
def store(request: pytest.FixtureRequest, memdir: Path) -> str:
    return str(request.param).format(memdir)


def test_a_person_sends_it_round_and_ends_it(store: str, example: Example) -> None:
    given = ("research_graph.py", store, "t")
    status, lines = example(*given, "kelp")
    assert (status, lines[0], lines[-1]) == (WAITING, "plan   kelp", ASKS)
    assert sorted(lines[1:-1]) == sorted(f"search {query}" for query in FIRST)
    assert example(*given, "kelp") == (WAITING, [ASKS]), "called again too early, it does nothing"
    assert example(*given, "--answer", "its price") == (
        WAITING,
        [
            "plan   its price",
            "search its price: details",
            "asks   4 findings on its price, cost 10. What else, or done?",
        ],
    )
    assert example(*given, "--answer", "done") == (
        DONE,
        [*(f"1. {len(query)} documents on {query}" for query in FIRST), "2. 18 documents on its price: details"],
    )
    assert example(*given, "--answer", "done")[0] == REFUSED


def test_the_path_is_drawn(store: str, example: Example) -> None:
    example("research_graph.py", store, "t", "kelp")
    status, lines = example("research_graph.py", store, "t", "--draw")
    assert status == DONE
    assert lines[0] == "flowchart TD"
    assert any("classDef here" in line for line in lines)


@pytest.mark.parametrize("at", ["plan   kelp", "search kelp: numbers"])
def test_killed_it_goes_on(at: str, store: str, example: Example, killed: Callable[..., list[str]]) -> None:
    before = killed("research_graph.py", store, "t", "kelp", at=at, SEARCH_SECONDS="0.1")
    _, after = example("research_graph.py", store, "t", "kelp")
    assert after[-1] == ASKS
    searched = [line for line in before + after if line.startswith("search")]
    assert {line.removeprefix("search ") for line in searched} == set(FIRST)
    if at.startswith("search"):
        assert "plan   kelp" not in after
        assert len(searched) <= len(FIRST) + 2, "at most those that were under way when it was killed"
