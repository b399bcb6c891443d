"""How documents get their figures, tables and plots out of results."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


figures, plots = load(DOCS / "figures.py"), load(DOCS / "pictures" / "plots.py")

RESULTS: dict[str, Any] = {
    "figures": {"fast": 1234.567, "slow": 0.5, "dbos_pg_us": 900.0, "dbos_pg_best_us": 800.0, "raw_pg_us": 200.0}
    | {"holdfast_pg_us": 250.0, "dbos_pg_step_over_ours": 3.6, "dbos_pg_best_step_over_ours": 3.2},
    "spread": {"fast": [1000.0, 2000.0]},
    "goals": {"fast": {"at_least": 1000}, "slow": {"at_least": 1}},
    "versions": {"dbos": "3.3.0"},
    "durability": {"dbos_pg": "fsync=on"},
}


def test_a_figure_has_as_many_decimals_as_before() -> None:
    text = "takes 1<!-- bench: fast --> and 9.99<!-- bench: slow --> of it"
    assert figures.quoted(text, RESULTS) == "takes 1,235<!-- bench: fast --> and 0.50<!-- bench: slow --> of it"


def test_a_figure_that_was_not_measured_is_told() -> None:
    with pytest.raises(SystemExit, match="nothing is not a figure"):
        figures.quoted("1<!-- bench: nothing -->", RESULTS)


def test_a_table_is_made_anew() -> None:
    text = "before\n<!-- table: goals -->\nold\n<!-- end -->\nafter"
    made = figures.quoted(text, RESULTS)
    assert "old" not in made
    assert "| `fast` | 1,235 | 1,000 – 2,000 | ≥ 1000 | met |" in made
    assert "| `slow` | 0.50 |  | ≥ 1 | **missed** |" in made
    assert figures.quoted(made, RESULTS) == made


def test_a_comparison_takes_each_system_at_its_better_setting() -> None:
    rows = list(figures.comparison(RESULTS))
    assert "| a bare `INSERT` |  | 200 µs |" in rows
    assert "| DBOS 3.3.0, function |  | 800 µs, 3.20 × ours |" in rows
    [recommended, best] = [row for row in figures.peers("pg", RESULTS) if "DBOS" in row]
    assert recommended == "| DBOS | function | recommended | 900 | 3.60 |  | fsync=on |"
    assert "| best | 800 | 3.20 |" in best


@pytest.mark.parametrize(
    "picture",
    [
        plots.bars("a <title>", {"one": {"a & b": (10.0, "ours"), "c": (0.0, "peer")}}),
        plots.curves("curves", {"flat": ("µs", {10: 5.0, 1_000: 5.0}, 0.0), "one": ("ms", {1: 0.3, 10: 30.0}, 2.0)}),
    ],
    ids=["bars", "curves"],
)
def test_a_plot_is_svg_with_nothing_from_outside(picture: str) -> None:
    from xml.etree import ElementTree

    ElementTree.fromstring(picture)
    assert re.findall(r"\w+://[^\"]+", picture) == ["http://www.w3.org/2000/svg"]
    assert "nan" not in picture
    assert "prefers-color-scheme: dark" in picture
