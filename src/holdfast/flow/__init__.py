"""Flows: YAML files that describe what is to be done, step by step, and runs of them.

A file is read into nodes with places (`document`), checked by one table of keys (`shapes`, `keys`, `check`) and becomes
a `Definition` (`loading`, `model`), which is stored with each run. A run is that of a graph (`graph`), whose nodes do
the steps (`perform`): templates are filled in (`template`, `render`), actions act (`actions`, `process`, `web`,
`calls`), and what takes them back is stored beside them (`undo`). Secrets come in at the last moment (`secrets`).

    flow = holdfast.flow.load("release.yaml")
    run = flow.start(hf, vars={"env": "prod"})

A process that drives flows runs what their definitions say, shell commands included: import this module only where
whoever can write to the store may do that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, UnsetType

from holdfast.engine.access.client import Client
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.app import Holdfast
from holdfast.engine.execute import start as begin
from holdfast.engine.worker import schedules
from holdfast.errors import DefinitionChanged, FlowInvalid
from holdfast.flow import once
from holdfast.flow.actions.live_output import Line, Listener, listening
from holdfast.flow.file.document import Problem
from holdfast.flow.file.keys import schema
from holdfast.flow.file.loading import load_file
from holdfast.flow.file.model import Definition
from holdfast.flow.file.variables import parsed, start_values
from holdfast.flow.graph import FlowGraph, FlowState, first_input
from holdfast.flow.plan import Planned, plan
from holdfast.graph import Graph
from holdfast.kernel.clock import new_uid

__all__ = [
    "Flow",
    "FlowState",
    "Line",
    "Listener",
    "Planned",
    "Problem",
    "check",
    "dry_run",
    "listening",
    "load",
    "schema",
]


class Flow:
    """A flow that was loaded and has no errors; see `load`."""

    def __init__(self, definition: Definition, warnings: tuple[Problem, ...] = ()) -> None:
        self.definition = definition
        self.warnings = warnings
        self._graph: Graph | None = None

    def __repr__(self) -> str:
        return f"<flow {self.name} of {self.definition.file}>"

    @property
    def name(self) -> str:
        """Its name, which its runs have as the tag ``flow``."""
        return self.definition.name

    @property
    def graph(self) -> Graph:
        """The flow as a graph, to look at or draw."""
        if self._graph is None:
            self._graph = FlowGraph(self.definition)
        return self._graph

    def parse_vars(self, texts: Iterable[str]) -> dict[str, Any]:
        """Variables from texts such as ``env=prod``, each read as the type that it has; raises `VarsRefused`."""
        return parsed(self.definition, texts)

    def start(
        self,
        hf: Holdfast,
        vars: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        tags: Mapping[str, str] | None = None,
        queue: str = "default",
    ) -> Any:
        """Run the flow here until it finishes or pauses; its run. Await it if the store was opened with `async with`.

        The same ``id`` again gives the same run. Without one, `once_per:` decides which run it is; else it is a new
        one. Raises `VarsRefused` for values that do not fit.
        """
        return self._begin(hf, vars or {}, id, tags or {}, queue, enqueue=False)

    def enqueue(
        self,
        hf: Holdfast,
        vars: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        tags: Mapping[str, str] | None = None,
        queue: str = "default",
    ) -> Any:
        """Leave the flow to a worker, which needs to have imported `holdfast.flow`, but not the file. See `start`."""
        return self._begin(hf, vars or {}, id, tags or {}, queue, enqueue=True)

    def schedule(
        self,
        hf: Holdfast,
        vars: Mapping[str, Any] | None = None,
        *,
        cron: str,
        id: str,
        tz: str = "UTC",
        queue: str = "default",
        priority: int = 0,
        tags: Mapping[str, str] | None = None,
        catch_up: schedules.CatchUp = "one",
        paused: bool | UnsetType = UNSET,
        by: str | None = None,
    ) -> Any:
        """Begin the flow at the times that ``cron`` says; the schedule. See `Holdfast.schedule`, and `enqueue`.

        The definition is kept with the schedule: a file that was changed is scheduled anew, under the same ``id``. Each
        tick is a run of its own, whatever `once_per:` says. ``by`` is who sets it.
        """
        given = first_input(self.definition, dict(vars or {}))
        labels = {"flow": self.name, **(tags or {})}
        when = schedules.Timetable(cron, tz, queue, priority, labels, None, catch_up, paused, by)
        return hf.perform(schedules.set_schedule(hf.client, id, self.graph, [given], {}, when))

    def _begin(
        self,
        hf: Holdfast,
        vars: Mapping[str, Any],
        id: str | None,
        tags: Mapping[str, str],
        queue: str,
        *,
        enqueue: bool,
    ) -> Any:
        operation = self._op(hf.client, dict(vars), id, {"flow": self.name, **tags}, queue, enqueue)
        return hf.perform(operation)

    def _op(
        self, client: Client, vars: dict[str, Any], id: str | None, tags: dict[str, str], queue: str, enqueue: bool
    ) -> Op[Any]:
        given = first_input(self.definition, vars)
        is_there, by_key = False, id is None and self.definition.once_per is not None
        if by_key:
            assert self.definition.once_per is not None
            id, is_there = yield from once.id_for(
                client, self.definition, self.definition.once_per, dict(given["vars"])
            )
        elif id is None:
            id = f"{self.name}-{new_uid(client.store.clock)}"
        if is_there:
            assert id is not None
            found = yield Read(client.store.get, id)
            return client.run(found.id, found.uid)
        make = begin.enqueue if enqueue else begin.start
        try:
            return (yield from make(client, self.graph, given, id=id, tags=tags, queue=queue))
        except DefinitionChanged as changed:
            if not by_key:
                why = "it was started with another definition or other variables, and keeps those"
                raise DefinitionChanged(changed.run, f"{why}; resume it, or use another id") from None
            found = yield Read(client.store.get, id)  # somebody was faster, with other variables
            return client.run(found.id, found.uid)


def load(path: str | os.PathLike[str]) -> Flow:
    """The flow in a file, checked as a whole; raises `FlowInvalid` with all its ``problems``.

    The modules that it calls are imported, and the flows that it calls are taken in: nothing else is read later.
    """
    loaded = load_file(path)
    if loaded.definition is None:
        raise FlowInvalid(os.fspath(path), [one for one in loaded.problems if one.severity == "error"])
    return Flow(loaded.definition, tuple(one for one in loaded.problems if one.severity == "warning"))


def check(path: str | os.PathLike[str]) -> list[Problem]:
    """All that is wrong with a flow file, and what is risky in it, in the order of the file."""
    return list(load_file(path).problems)


def dry_run(flow: Flow, vars: Mapping[str, Any] | None = None) -> list[Planned]:
    """What a run with these variables would do, step by step, with every template filled in as far as it is known.

    Nothing is done, and no secret is read. Raises `VarsRefused` for values that do not fit.
    """
    return plan(flow.definition, start_values(flow.definition, vars or {}))
