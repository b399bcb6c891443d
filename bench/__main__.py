"""Measure, show it as a table, keep it in bench/results.json, and put it into the documents that quote it.

python -m bench              everything that was not measured on this tree yet
python -m bench --fresh      everything
python -m bench pg saver     only these parts, also if they were measured before; the others stay as they are
python -m bench --quick      the most important in less than a minute; nothing is kept

It needs the systems that are measured beside Holdfast: `make bench` installs them into .venv-peers, and runs it there.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from bench.harness import AtLeast, Measured, met
from bench.keeping import RESULTS, ROOT, Results, commit, digest_of_the_tree, environment

PARTS = {
    "steps": "a step against a bare INSERT, on SQLite; many runs at once; replay",
    "pg": "the same on PostgreSQL",
    "peers": "a step in other systems, beside ours",
    "saver": "HoldfastSaver against LangGraph's own savers",
    "kernel": "growing states saved by hand, forks, import time",
    "decisions": "what was measured for the decisions",
    "graphs": "a growing state in a graph, and in one of LangGraph",
    "curves": "how cost grows with steps, state, runs and forks",
    "profile": "where the time of a step goes",
    "million": "a million runs in the store",
    "fleet": "workers on one PostgreSQL, their failover, and what they cost when idle",
    "scale": "what one server does, taken to many by simulation",
    "ui": "500 live streams of the web page while 50 runs write",
    "soak": "a million steps: does the memory grow?",
}
QUICK = ("steps", "pg", "peers", "saver")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Holdfast, beside other systems.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these: {', '.join(PARTS)}")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--fresh", action="store_true", help="measure everything anew")
    how.add_argument("--quick", action="store_true", help="the most important in less than a minute; keeps nothing")
    given = parser.parse_args()
    if unknown := [name for name in given.parts if name not in PARTS]:
        parser.error(f"there is no {', '.join(unknown)}; choose among {', '.join(PARTS)}")
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        console.print("measuring in", name, highlight=False)
        if given.quick:
            quick(given.parts or QUICK, folder, console)
        else:
            full(given.parts, folder, console, fresh=given.fresh)


def quick(parts: Sequence[str], folder: Path, console: Console) -> None:
    for part in parts:
        module, place = part_of(part), folder / part
        if "quick" not in inspect.signature(module.measure).parameters:
            raise SystemExit(f"bench: {part} cannot be measured quickly; leave out --quick, or {part}")
        place.mkdir()
        with console.status(part) as status:
            figures = module.measure(place, telling(status, part), quick=True)
        show(console, part, figures, module.GOALS)


def full(chosen: Sequence[str], folder: Path, console: Console, *, fresh: bool) -> None:
    results = Results(environment(folder))
    if chosen and not results.same_machine:
        raise SystemExit("bench: the other figures are of another machine or of other versions; measure everything")
    for number, part in enumerate(chosen or PARTS, 1):
        tree, revision = digest_of_the_tree(), commit()
        if not chosen and not fresh and results.has(part, tree):
            console.print(f"{part}: measured before on this tree, and kept (--fresh measures it again)")
            continue
        module, place, started = part_of(part), folder / part, time.monotonic()
        place.mkdir()
        title = f"{part} ({number} of {len(chosen or PARTS)}): {PARTS[part]}"
        if not console.is_terminal:  # which has no line that changes
            console.print(title)
        with console.status(title) as status:
            figures = module.measure(place, telling(status, title))
        took = time.monotonic() - started
        shutil.rmtree(place)  # the next part shall have the disk for itself
        about = {"tree": tree, "commit": revision, "seconds": round(took)}
        results.keep(part, figures, module.GOALS, about)
        for kind in ("versions", "durability"):
            results.note(kind, getattr(module, kind.upper(), {}))
        show(console, f"{part}, {took:.0f} s", figures, module.GOALS)
    if not chosen:
        results.tidy(PARTS)
    console.print("kept in", str(RESULTS.relative_to(ROOT)), highlight=False)
    subprocess.run([sys.executable, ROOT / "docs" / "generate.py", "--figures"], check=True)


def part_of(name: str) -> Any:
    """A module with `measure(folder, say)`, which gives figures by name, and with GOALS."""
    return importlib.import_module(f"bench.{name}")


def telling(status: Any, part: str) -> Any:
    return lambda what: status.update(f"{part} … {what}")


def show(console: Console, title: str, figures: dict[str, float], goals: dict[str, float]) -> None:
    table = Table(Column("figure", no_wrap=True), "measured", "spread", "goal", "", title=title, title_justify="left")
    for name, value in figures.items():
        goal = goals.get(name)
        wanted = "" if goal is None else f"{'≥' if isinstance(goal, AtLeast) else '≤'} {float(goal):g}"
        verdict = "" if goal is None else "ok" if met(value, goal) else "[bold red]missed"
        spread = f"{value.spread[0]:,.2f} – {value.spread[1]:,.2f}" if isinstance(value, Measured) else ""
        table.add_row(name, f"{value:,.2f}", spread, wanted, verdict)
    console.print(table)


if __name__ == "__main__":
    main()
