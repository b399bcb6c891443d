"""CAR: ``<run id>.json`` is a workflow that waits at a gate; ``<run id>.inflight`` is one that a process has claimed.

A paused workflow becomes a run with an open question. An ``.inflight`` file beside a ``.json`` file of the same run is
a stale mark and ignored, and one that stands alone is re-armed: that is what CAR's own ``recover_orphaned`` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from holdfast.errors import UsageError
from holdfast.forms import form
from holdfast.importers.car_drawing import undrawn
from holdfast.importers.reading import (
    Count,
    Label,
    Name,
    Source,
    Unreadable,
    beside,
    decode,
    digest_of,
    files_named,
    is_named_after,
)
from holdfast.importers.records import Asked, Damaged, Found, Saved
from holdfast.views import Field

PAUSED, CLAIMED = ".json", ".inflight"


class Workflow(Struct, frozen=True):
    """The definition of a workflow. What a stage, an edge or a goal looks like the source document does not show."""

    id: Label
    name: Label
    start: str
    stages: list[Any]
    edges: list[Any]
    max_iterations: Count
    metadata: dict[str, Any]
    goal: Any = None


class PausedWorkflow(Struct, frozen=True):
    """A run that waits at a gate. What a field or a stage's result looks like the source document does not show."""

    run_id: str
    workflow: Workflow
    paused_stage_id: str
    prompt: str
    fields: list[Any]
    output_key: Name
    wf_state: dict[str, Any]
    stage_results: list[Any]
    completed_stage_ids: list[Any]
    iterations: Count
    prior_duration_ms: float
    created_at: Annotated[datetime, Meta(tz=True)]


_VARIABLES = ("stage_results", "completed_stage_ids", "iterations", "prior_duration_ms", "created_at")


def places(source: Source) -> Iterator[str]:
    """A file for each run: the paused one, or else the claimed one."""
    found = list(files_named(source, PAUSED, CLAIMED))
    paused = {path for path in found if path.endswith(PAUSED)}
    for path in found:
        if path in paused or path.removesuffix(CLAIMED) + PAUSED not in paused:
            yield path


def read(source: Source, place: str) -> Iterator[Found | Damaged]:
    """The run of a file."""
    yield _run(source, place)


def _run(source: Source, path: str) -> Found:
    in_flight = path.endswith(CLAIMED)
    if in_flight and os.path.lexists(path.removesuffix(CLAIMED) + PAUSED):
        raise Unreadable("the file", f"it is a stale mark: the {PAUSED} file of the same run counts; import that")
    data = source.read(path)
    raw, checked = decode(data, PausedWorkflow)
    if not is_named_after(path, checked.run_id):
        raise Unreadable("$.run_id", f"it is {checked.run_id!r}, which the file is not named after")
    fields, problem = fields_of(checked.fields)
    notes = [problem] if problem else []
    if in_flight:
        notes.append("a process had claimed it: it waits again, and what that process did since is not in the file")
    elif os.path.lexists(path.removesuffix(PAUSED) + CLAIMED):
        notes.append("the .inflight file beside it is a stale mark, and was not read")
    workflow = raw["workflow"]
    notes += undrawn(workflow)
    variables = {name: raw[name] for name in _VARIABLES} | beside(raw, PausedWorkflow)
    if problem:
        variables["fields"] = raw["fields"]
    return Found(
        source=source.name(path),
        id=checked.run_id,
        digest=digest_of(data),
        parts=(
            Saved(state=raw["wf_state"], node=checked.paused_stage_id, variables=variables),
            Asked(checked.prompt, fields, checked.output_key),
        ),
        workflow=checked.workflow.name or checked.workflow.id,
        definition=workflow,
        kept={"workflow": workflow, "in_flight": in_flight},
        notes=tuple(notes),
    )


# --- the fields of a question

_TYPES = {"string": "text", "bool": "boolean"}
_WORDS = frozenset({"name", "type", "required", "options", "label", "default", "description"})


def fields_of(given: list[Any]) -> tuple[tuple[Field, ...], str | None]:
    """The fields of a form; or none, which takes any answer, and why they cannot be asked for.

    A field is understood if it is an object with a ``name`` and no other words than those that a `Field` here has too.
    """
    try:
        return form(_field(one) for one in given), None
    except (UsageError, TypeError) as error:
        why = " ".join(str(error).split())[:200]
        return (), f"its fields are of a form that is not known, so any answer is taken; they are in variables ({why})"


def _field(given: Any) -> Field:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise UsageError("a field without a name")
    unknown = sorted(set(given) - _WORDS)
    if unknown:
        raise UsageError(f"field {given['name']!r} has {', '.join(unknown)}")
    told = {word: value for word, value in given.items() if value is not None}
    kind = told.get("type", "text")
    if not isinstance(kind, str):
        raise UsageError(f"field {given['name']!r} has a type that is no text")
    options = told.get("options", [])
    if not isinstance(options, list):
        raise UsageError(f"field {given['name']!r} has options that are no list")
    return Field(**told | {"type": _TYPES.get(kind.lower(), kind.lower()), "options": tuple(options)})
