"""Measure everything, show it as a table, and keep it in bench/results.json."""

from __future__ import annotations

import json
import platform
import sqlite3
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

import holdfast
from bench import kernel

RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    console = Console()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        console.print("measuring in", name, highlight=False)
        with console.status("a synced write") as status:
            figures |= kernel.raw_commit(folder)
            for store, place in (("sqlite", folder / "growth.db"), ("files", folder / "growth")):
                status.update(f"{kernel.SAVES} saves of a growing state, {store}")
                found = kernel.growth(f"{store}:///{place}", place, seed=7)
                figures |= {f"{key}_{store}": value for key, value in found.items()}
                status.update(f"forks deep in a history, {store}")
                found = kernel.forks(f"{store}:///{folder / 'forks'}-{store}")
                figures |= {f"{key}_{store}": value for key, value in found.items()}
            status.update("import time")
            figures |= kernel.imports()
    table = Table("figure", "measured", "goal", "")
    for key, value in sorted(figures.items()):
        goal = kernel.GOALS.get(key)
        verdict = "" if goal is None else "ok" if value <= goal else "missed"
        table.add_row(key, f"{value:,.2f}", "" if goal is None else f"≤ {goal}", verdict)
    console.print(table)
    environment = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "msgspec": msgspec.__version__,
        "holdfast": holdfast.__version__,
        "machine": platform.machine(),
    }
    RESULTS.write_text(json.dumps({"environment": environment, "figures": figures}, indent=2, sort_keys=True) + "\n")
    console.print("kept in", RESULTS.name, highlight=False)


main()
