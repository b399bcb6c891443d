"""The same work by Holdfast and by others: the cost of one durable step that does nothing, one after the other.

Each system is a process of the same kind (bench/rivals), all of them run at the same time on the same disk or server,
and take turns. Functions are compared with functions, graphs with graphs. Each is set up as its documents recommend,
and again with the best settings known to us at the same durability; what its database says of its durability is kept
beside the figures, and that its steps are really kept is looked up in its tables after each round.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.children import Child
from bench.database import database, postgres
from bench.harness import AtLeast, Measured, Say, in_turns, ratio

WARM = 1_000  # steps: past the first checkpoint of SQLite's log
STEPS = 200
ROUNDS = 9
ONE_STEP_RUNS = 25

GOALS: dict[str, float] = {
    "langgraph_sqlite_step_over_ours": AtLeast(2.5),
    "dbos_sqlite_step_over_ours": AtLeast(6),
    "langgraph_pg_step_over_ours": AtLeast(4),
    "dbos_pg_step_over_ours": AtLeast(4),
    "absurd_pg_step_over_ours": AtLeast(2),
}
VERSIONS: dict[str, str] = {}  # of the systems that were measured
DURABILITY: dict[str, str] = {}  # of each, as its database told it


class Entrant(NamedTuple):
    """One system in one setting."""

    module: str
    against: str | None = None  # the name of ours that does the same
    graph: bool = False
    best: bool = False
    durability: str = "full"


ON_SQLITE = {
    "raw_sqlite": Entrant("raw"),
    "holdfast_sqlite": Entrant("holdfast_steps"),
    "holdfast_graph_sqlite": Entrant("holdfast_steps", graph=True),
    "langgraph_sqlite": Entrant("langgraph_steps", "holdfast_graph_sqlite"),
    "langgraph_sqlite_best": Entrant("langgraph_steps", "holdfast_graph_sqlite", best=True),
    "burr_sqlite": Entrant("burr_steps", "holdfast_graph_sqlite"),
    "burr_sqlite_best": Entrant("burr_steps", "holdfast_graph_sqlite", best=True),
    "dbos_sqlite": Entrant("dbos_steps", "holdfast_sqlite"),
    "dbos_sqlite_best": Entrant("dbos_steps", "holdfast_sqlite", best=True),
}
WITHOUT_SYNC = {
    f"{name}_normal": entrant._replace(durability="normal", against=entrant.against and f"{entrant.against}_normal")
    for name, entrant in ON_SQLITE.items()
    if entrant.best or name.startswith(("raw", "holdfast"))
}
ON_POSTGRES = {
    "raw_pg": Entrant("raw"),
    "holdfast_pg": Entrant("holdfast_steps"),
    "holdfast_graph_pg": Entrant("holdfast_steps", graph=True),
    "langgraph_pg": Entrant("langgraph_steps", "holdfast_graph_pg"),
    "langgraph_pg_best": Entrant("langgraph_steps", "holdfast_graph_pg", best=True),
    "dbos_pg": Entrant("dbos_steps", "holdfast_pg"),
    "dbos_pg_best": Entrant("dbos_steps", "holdfast_pg", best=True),
    "absurd_pg": Entrant("absurd_steps", "holdfast_pg"),
    "absurd_pg_best": Entrant("absurd_steps", "holdfast_pg", best=True),
}


def measure(folder: Path, say: Say, *, quick: bool = False) -> dict[str, float]:
    rounds, steps, warm = (5, 50, 400) if quick else (ROUNDS, STEPS, WARM)
    sqlite = {name: str(folder / f"{name}.db") for name in ON_SQLITE | WITHOUT_SYNC}
    say("systems on SQLite")
    figures = compared(chosen(ON_SQLITE, quick), sqlite, steps, rounds, warm)
    if not quick:
        say("systems on SQLite that do not sync each commit")
        figures |= compared(WITHOUT_SYNC, sqlite, steps, rounds, warm)
    say("systems on PostgreSQL")
    with postgres() as server:
        entrants = chosen(ON_POSTGRES, quick)
        urls = {name: database(server.url, name) for name in entrants}
        figures |= compared(entrants, urls, steps, rounds, steps)
    return figures


def chosen(entrants: Mapping[str, Entrant], quick: bool) -> dict[str, Entrant]:
    return {name: entrant for name, entrant in entrants.items() if not (quick and (entrant.best or "burr" in name))}


def compared(
    entrants: Mapping[str, Entrant], places: Mapping[str, str], steps: int, rounds: int, warm: int
) -> dict[str, float]:
    """Microseconds of a step in each system, runs of one step in a second, and the ratios to ours."""
    with ExitStack() as stack:
        children: dict[str, Child] = {}
        for name, entrant in entrants.items():
            settings: dict[str, Any] = entrant._asdict() | {"place": places[name]}
            children[name] = Child(settings.pop("module"), **settings)
            stack.callback(children[name].stop)
        for name, child in children.items():
            ready = child.ready()
            VERSIONS.update(ready["versions"])
            DURABILITY[name] = ready["durability"]
        times = in_turns({name: child.turn(steps, warm) for name, child in children.items()}, rounds)
        whole = {name: child for name, child in children.items() if not name.startswith("raw")}
        short = in_turns(
            {name: lambda _, child=child: child.order(1, ONE_STEP_RUNS) for name, child in whole.items()},  # type: ignore[misc]
            5,
        )
    figures: dict[str, float] = {f"{name}_us": Measured.of(found, 1e6 / steps) for name, found in times.items()}
    for name, found in short.items():
        figures[f"{name}_one_step_runs_per_second"] = Measured.of([ONE_STEP_RUNS / each for each in found])
    for name, entrant in entrants.items():
        if entrant.against is not None:
            figures[f"{name}_step_over_ours"] = ratio(times[name], times[entrant.against])
    return figures
