"""Flows at the command line: loaded from a file to be run, shown without being run, or resumed from the store.

`holdfast.flow` is imported only where a person named a flow, or a run of one: whoever drives flows runs what they say.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.cli.progress import View
from holdfast.cli.rendering import console, say, write_json
from holdfast.errors import UsageError
from holdfast.present.words import one_line

if TYPE_CHECKING:
    from holdfast.flow import Flow, Planned


def load(path: str, *, as_json: bool) -> Flow:
    """The flow in a file; what it warns of is told. Raises `FlowInvalid`, or FileNotFoundError."""
    import os

    from holdfast import flow

    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file {path}")
    loaded = flow.load(path)
    for warning in loaded.warnings:
        if not as_json:
            say(one_line(warning), err=True)
    return loaded


def variables_of(flow: Flow, given: Any, texts: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The variables: those of ``--input``, then those of ``--var``."""
    if given is not None and not isinstance(given, dict):
        raise UsageError("--input is an object of the flow's variables, by their names")
    return {**(given or {}), **flow.parse_vars([f"{name}={text}" for name, text in texts])}


def check_variables(flow: Flow, variables: dict[str, Any]) -> None:
    """Refuse values that do not fit, before anything is made or said; raises `VarsRefused`."""
    from holdfast.flow.file.variables import start_values

    start_values(flow.definition, variables)


def show_dry_run(flow: Flow, variables: dict[str, Any], *, as_json: bool) -> None:
    """Show what a run would do."""
    from holdfast.flow import dry_run

    steps = dry_run(flow, variables)
    if as_json:
        write_json({"flow": flow.name, "steps": steps})
        return
    for step in steps:
        _show_planned(step)
    say("\nNothing was done.")


def _show_planned(step: Planned) -> None:
    from rich.text import Text

    mark, style = {True: ("•", "cyan"), False: ("–", "bright_black"), None: ("?", "yellow")}[step.happens]
    text = Text("  " * step.depth).append(mark, style=style).append(f" {one_line(step.title or step.id):<16}")
    text.append(f"  {step.action:<5}", style="dim")
    what = step.what.strip().splitlines() or [""]
    text.append(f"  {one_line(what[0])}" + (" …" if len(what) > 1 else ""))
    said = [*step.details, *([f"undo: {step.undo}"] if step.undo else [])]
    if step.happens is not True:
        said.append("its condition does not hold" if step.happens is False else "whether it happens is not known yet")
    text.append(f"  ({one_line(', '.join(said))})" if said else "", style="dim")
    console().print(text)


@contextmanager
def output_to(view: View) -> Iterator[None]:
    """While this lasts, show what the commands of flows print."""
    if "holdfast.flow" not in sys.modules:
        yield
        return
    from holdfast.flow import listening

    with listening(lambda line: view.output(line.run, line.step, line.stream, line.text)):
        yield
