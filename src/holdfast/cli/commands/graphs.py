"""`holdfast graph` and `holdfast check`: look at a graph or a flow without running it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import click

from holdfast.cli import flows
from holdfast.cli.codes import PROBLEMS
from holdfast.cli.options import command, module_option, opened, store_option
from holdfast.cli.remedies import command_line
from holdfast.cli.rendering import say, write_json
from holdfast.cli.targets import TargetRefused, find_workflow, is_flow
from holdfast.engine.run.handle import Run
from holdfast.errors import GraphInvalid, UsageError
from holdfast.present.arguments import declare
from holdfast.present.input import is_graph
from holdfast.present.remedies import module_words
from holdfast.present.words import one_line, printable

Drawing = Callable[[Literal["mermaid", "svg"]], str]


@command(
    "graph",
    "holdfast graph research:graph",
    "holdfast graph release.yaml --svg release.svg",
    "holdfast graph release-4f7k2q9x --svg taken.svg",
)
@click.argument("target", metavar="MODULE:GRAPH|FILE.py|FILE.yaml|RUN")
@click.option("--svg", type=click.Path(dir_okay=False), metavar="FILE", help="Write a picture to this file.")
@module_option
@store_option
def graph_command(target: str, svg: str | None, store: str | None, as_json: bool) -> None:
    """Draw a graph, a flow, or a run with the path that it took: as Mermaid, or as SVG with --svg.

    A run's graph is not in the store: name its module by --module. That of a flow is, and of what was imported from
    CAR. SVG needs the extra draw, and has
    nothing in it from outside.

    JSON: {"mermaid": text}; with --svg {"svg": path}.
    """
    if is_flow(target):
        return _draw(_of_graph(flows.load(target, as_json=as_json).graph, None), svg, as_json=as_json)
    if ":" in target or target.endswith(".py"):
        return _draw(_of_graph(_graph(target), None), svg, as_json=as_json)
    with opened(store) as hf:
        run = hf.get(target)
        _draw(_imported(run) or _of_graph(_graph_of(run), run), svg, as_json=as_json)


def _of_graph(graph: Any, run: Run | None) -> Drawing:
    return lambda form: str(graph.svg(run) if form == "svg" else graph.mermaid(run))


def _imported(run: Run) -> Drawing | None:
    """How to draw a run whose workflow came along from another system, as those of CAR do."""
    from holdfast import importers

    came = importers.origin(run)
    return partial(importers.drawing, run) if came is not None and came.system == "car" else None


def _draw(drawing: Drawing, svg: str | None, *, as_json: bool) -> None:
    if svg is None:
        text = drawing("mermaid")
        write_json({"mermaid": text}) if as_json else say(printable(text.rstrip()))
        return
    picture = drawing("svg")
    with open(svg, "w", encoding="utf-8") as file:
        file.write(picture)
    write_json({"svg": svg}) if as_json else say(f"Drawn: {svg}")


def _graph(target: str, lacks: str = "no picture") -> Any:
    found = find_workflow(target)
    if not is_graph(found):
        raise TargetRefused(f"{target} is a plain workflow, which has {lacks}: what it calls is known when it runs")
    return found


def _graph_of(run: Run) -> Any:
    """The graph of a run: a flow's is kept with it, another's is declared in this process."""
    declare(run)
    info = run.info()
    if info.queue is None:
        raise UsageError(f"run {run.id!r} is driven by hand, and has no picture; see `holdfast history`")
    found = run.declared()
    if found is None:
        way = command_line("graph", run.id, options=module_words(run) or ("--module", "MODULE"))
        raise UsageError(f"run {run.id!r}: its workflow {info.workflow!r} is not declared here; name its module: {way}")
    if not is_graph(found):
        raise UsageError(f"run {run.id!r} is of a plain workflow, which has no picture; see `holdfast history`")
    return found


@command("check", "holdfast check release.yaml", "holdfast check research:graph --json")
@click.argument("target", metavar="FILE.yaml|MODULE:GRAPH")
def check_command(target: str, as_json: bool) -> None:
    """Check a flow or a graph as a whole, without running it: all problems at once, each with its place.

    The exit status is 12 if there is an error; a warning is none.

    JSON: {"problems": [{"severity": "error|warning", "message": …, "file": …, "line": n, "column": n} or, of a graph,
    {"severity": "error", "place": …, "message": …}, …]}.
    """
    problems = _problems_of_flow(target) if is_flow(target) else _problems_of_graph(target)
    errors = [problem for problem in problems if problem["severity"] == "error"]
    if as_json:
        write_json({"problems": problems})
    else:
        for problem in problems:
            say(_line(problem))
        count = f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'}" if problems else "no problems"
        say(f"{target}: {count}")
    if errors:
        click.get_current_context().exit(PROBLEMS)


def _line(problem: dict[str, Any]) -> str:
    place = problem.get("place") or f"{problem['file']}:{problem['line']}:{problem['column']}"
    return one_line(f"{place}: {problem['severity']}: {problem['message']}")


def _problems_of_flow(path: str) -> list[dict[str, Any]]:
    import msgspec

    from holdfast.flow import check

    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    return [msgspec.structs.asdict(problem) for problem in check(path)]


def _problems_of_graph(target: str) -> list[dict[str, Any]]:
    try:
        _graph(target, "nothing to check").check()
    except GraphInvalid as invalid:
        return [{"severity": "error", "place": one.place, "message": one.message} for one in invalid.problems]
    return []
