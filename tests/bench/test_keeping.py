"""What was measured is kept part by part, so that a measurement that was interrupted goes on."""

import json
from pathlib import Path

import pytest

from bench import keeping
from bench.harness import AtLeast, Measured
from bench.keeping import Results

HERE = {"cpu": "one", "python": "3"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.json"


def keep(results: Results, part: str, figures: dict[str, float], tree: str = "t1", **goals: float) -> None:
    results.keep(part, figures, goals, {"tree": tree, "commit": "c1", "seconds": 1})


def test_a_part_is_kept_when_it_is_done_and_known_by_the_next_call(path: Path) -> None:
    keep(Results(HERE, path), "steps", {"a": 1.0})
    again = Results(HERE, path)
    assert again.has("steps", "t1")
    assert not again.has("steps", "t2"), "another tree"
    assert not again.has("pg", "t1")
    assert not Results(HERE | {"python": "4"}, path).has("steps", "t1"), "another machine"


def test_a_part_that_is_measured_again_replaces_all_that_it_had(path: Path) -> None:
    results = Results(HERE, path)
    keep(results, "steps", {"old": Measured.of([1.0, 2.0, 3.0]), "both": 1.0}, old=2.0)
    keep(results, "pg", {"other": 7.0})
    keep(results, "steps", {"both": 2.0})
    kept = json.loads(path.read_text())
    assert kept["figures"] == {"both": 2.0, "other": 7.0}
    assert kept["spread"] == {}
    assert kept["goals"] == {}
    assert kept["commit"] == "c1"


def test_figures_have_spread_goals_and_few_digits(path: Path) -> None:
    results = Results(HERE, path)
    keep(results, "steps", {"a": Measured.of([1.0, 2.0, 3.0]), "b": 1 / 3}, a=1.5, b=AtLeast(0.3), never=1.0)
    results.note("versions", {"dbos": "3"})
    kept = json.loads(path.read_text())
    assert kept["spread"] == {"a": [1.2, 2.8]}
    assert kept["figures"]["b"] == 0.333333
    assert kept["goals"] == {"a": {"at_most": 1.5}, "b": {"at_least": 0.3}}
    assert kept["versions"] == {"dbos": "3"}
    assert kept["environment"] == HERE


def test_parts_that_are_no_more_are_forgotten(path: Path) -> None:
    results = Results(HERE, path)
    keep(results, "steps", {"a": 1.0})
    keep(results, "gone", {"b": 1.0}, b=2.0)
    results.tidy({"steps": ""})
    kept = json.loads(path.read_text())
    assert kept["figures"] == {"a": 1.0}
    assert kept["goals"] == {}
    assert list(kept["parts"]) == ["steps"]


def test_the_digest_changes_with_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "ROOT", tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a = 1\n")
    before = keeping.digest_of_the_tree()
    (tmp_path / "src" / "results.json").write_text("{}")
    assert keeping.digest_of_the_tree() == before
    (tmp_path / "src" / "a.py").write_text("a = 2\n")
    assert keeping.digest_of_the_tree() != before


def test_the_filesystem_is_the_one_that_is_mounted_deepest(tmp_path: Path) -> None:
    assert keeping.filesystem(Path("/proc")) == "proc"
    assert keeping.filesystem(tmp_path) != "proc"
