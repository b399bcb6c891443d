"""Measure, show it as a table, keep it in bench/results.json, and put it into the documents that quote it.

python -m bench              everything
python -m bench decisions    only these figures; the others stay as they are (kernel, decisions, workflows, graphs,
                             langgraph, soak)
"""

from __future__ import annotations

import json
import platform
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

import holdfast
from bench import decisions, graphs, kernel, langgraph, soak, workflows

RESULTS = Path(__file__).with_name("results.json")
GENERATE = Path(__file__).parents[1] / "docs" / "generate.py"

MEASURE = {
    "kernel": kernel.measure,
    "decisions": decisions.measure,
    "workflows": workflows.measure,
    "graphs": graphs.measure,
    "langgraph": langgraph.measure,
    "soak": soak.measure,
}
GOALS = kernel.GOALS | decisions.GOALS | workflows.GOALS | graphs.GOALS | langgraph.GOALS | soak.GOALS


def main(chosen: list[str]) -> None:
    if unknown := [name for name in chosen if name not in MEASURE]:
        raise SystemExit(f"bench: there is no {', '.join(unknown)}; choose among {', '.join(MEASURE)}")
    environment = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "msgspec": msgspec.__version__,
        "holdfast": holdfast.__version__,
        "machine": platform.machine(),
    }
    kept = json.loads(RESULTS.read_text()) if chosen else {"environment": environment, "figures": {}}
    if kept["environment"] != environment:
        raise SystemExit(f"bench: the other figures are of {kept['environment']}; measure everything: python -m bench")
    console = Console()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        console.print("measuring in", name, highlight=False)
        with console.status("") as status:
            for part in chosen or MEASURE:
                figures |= MEASURE[part](Path(name), status.update)
    table = Table("figure", "measured", "goal", "")
    for key, value in sorted(figures.items()):
        goal = GOALS.get(key)
        verdict = "" if goal is None else "ok" if value <= goal else "missed"
        table.add_row(key, f"{value:,.2f}", "" if goal is None else f"≤ {goal}", verdict)
    console.print(table)
    results = {"environment": environment, "figures": kept["figures"] | figures, "goals": GOALS}
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    console.print("kept in", RESULTS.name, highlight=False)
    subprocess.run([sys.executable, GENERATE], check=True)


main(sys.argv[1:])
