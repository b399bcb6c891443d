"""`python -m bench`: what was interrupted goes on, what is named is measured again, and --quick keeps nothing."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import __main__ as bench
from bench.keeping import Results


class Parts:
    """Two parts that note when they are measured; one of them can be made to be interrupted."""

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.interrupted = False

    def of(self, name: str) -> Any:
        def measure(folder: Path, say: Any, *, quick: bool = False) -> dict[str, float]:
            say("something")
            if self.interrupted and name == "two":
                raise KeyboardInterrupt
            self.measured.append(name)
            return {f"{name}_figure": float(len(self.measured))}

        return SimpleNamespace(measure=measure, GOALS={}, VERSIONS={name: "1"})


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    made, results = Parts(), tmp_path / "results.json"
    monkeypatch.setattr(bench, "PARTS", {"one": "", "two": ""})
    monkeypatch.setattr(bench, "QUICK", ("one",))
    monkeypatch.setattr(bench, "part_of", made.of)
    monkeypatch.setattr(bench, "environment", lambda folder: {"cpu": "one"})
    monkeypatch.setattr(bench, "digest_of_the_tree", lambda: "tree")
    monkeypatch.setattr(bench, "Results", lambda environment: Results(environment, results))
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: SimpleNamespace(returncode=1, stdout=""))
    return made


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    bench.main()


def test_what_was_interrupted_goes_on(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    parts.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch)
    parts.interrupted = False
    run(monkeypatch)
    assert parts.measured == ["one", "two"]
    run(monkeypatch)
    assert parts.measured == ["one", "two"], "all of it was measured on this tree"


def test_fresh_measures_everything_again(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch)
    run(monkeypatch, "--fresh")
    assert parts.measured == ["one", "two"] * 2


def test_what_is_named_is_measured_again_and_the_rest_stays(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch)
    run(monkeypatch, "one")
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["figures"] == {"one_figure": 3.0, "two_figure": 2.0}
    assert kept["versions"] == {"one": "1", "two": "1"}


def test_quick_keeps_nothing(parts: Parts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, "--quick")
    assert parts.measured == ["one"]
    assert not (tmp_path / "results.json").exists()


def test_a_part_that_is_not_there_is_told(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch, "three")
    assert "there is no three; choose among one, two" in capsys.readouterr().err


def test_every_part_can_be_measured() -> None:
    for name in bench.PARTS:
        assert callable(bench.part_of(name).measure)
        assert all(isinstance(goal, int | float) for goal in bench.part_of(name).GOALS.values())
