"""brainwires: ``<safe task id>.json``, with the tool calls that were completed and the log of their side effects.

Each effect of the log comes into the run's ledger as one that was made elsewhere; each completed tool id counts as a
completed step. Their outputs were not stored there, so there are none here.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from holdfast.importers.reading import (
    Count32,
    Label,
    Name,
    Seconds,
    Source,
    Unreadable,
    decode,
    digest_of,
    files_named,
    has_safe_name,
)
from holdfast.importers.records import Damaged, DoneElsewhere, Found, MadeElsewhere, Saved


class SideEffectRecord(Struct, frozen=True):
    """Something that a tool did to the outside world. ``completed_at`` is in seconds since 1970."""

    tool_use_id: Name
    tool_name: str
    completed_at: Seconds
    reversible: bool
    target: str | None = None


class WorkflowCheckpoint(Struct, frozen=True):
    """How far a task has come. ``updated_at`` is in seconds since 1970."""

    task_id: str
    agent_id: Label
    step_index: Count32
    completed_tool_ids: list[Name]
    side_effects_log: list[SideEffectRecord]
    updated_at: Seconds


def places(source: Source) -> Iterator[str]:
    """The files of tasks."""
    return files_named(source, ".json")


def read(source: Source, place: str) -> Iterator[Found | Damaged]:
    """The run of a task."""
    yield _run(source, place)


def _run(source: Source, path: str) -> Found:
    data = source.read(path)
    raw, checked = decode(data, WorkflowCheckpoint)
    if not has_safe_name(path, checked.task_id):
        raise Unreadable("$.task_id", f"it is {checked.task_id!r}, which the file is not named after")
    effects, notes = _effects(checked)
    made = {effect.key for effect in effects}
    others = sorted(set(checked.completed_tool_ids) - made)  # they were a set, so they have no order
    state = {name: value for name, value in raw.items() if name != "task_id"}
    return Found(
        source=source.name(path),
        id=checked.task_id,
        digest=digest_of(data),
        parts=(*effects, *map(DoneElsewhere, others), Saved(state=state)),
        tags={"agent": checked.agent_id},
        notes=notes,
    )


def _effects(checked: WorkflowCheckpoint) -> tuple[list[MadeElsewhere], tuple[str, ...]]:
    """The effects under keys that differ: what was logged twice there is two records, and stays two."""
    completed = set(checked.completed_tool_ids)
    used = completed | {record.tool_use_id for record in checked.side_effects_log}
    effects: list[MadeElsewhere] = []
    times: dict[str, int] = {}
    notes: list[str] = []
    for record in checked.side_effects_log:
        key = record.tool_use_id
        if key in times:
            while f"{key} ({times[key]})" in used:
                times[key] += 1
            key = f"{key} ({times[key]})"
            notes.append(f"tool call {record.tool_use_id!r} is in the log more than once; the other one is {key!r}")
        elif key not in completed:
            notes.append(f"tool call {key!r} is in the log and not among the completed ones; it counts as completed")
        times.setdefault(record.tool_use_id, 2)
        used.add(key)
        effects.append(
            MadeElsewhere(key=key, tool=record.tool_name, target=record.target, reversible=record.reversible)
        )
    return effects, tuple(notes)
