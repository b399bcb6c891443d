"""SimpleAgents: ``<run id>.json``, the latest checkpoint of a run: its workflow, step, next node and scope."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from holdfast.importers.reading import (
    Count,
    Label,
    Source,
    Unreadable,
    beside,
    decode,
    digest_of,
    files_named,
    is_named_after,
)
from holdfast.importers.records import Damaged, Found, Saved


class WorkflowCheckpoint(Struct, frozen=True):
    """What a run needs to be resumed."""

    run_id: str
    workflow_name: Label
    step: Count
    next_node_id: str
    scope_snapshot: Any


def places(source: Source) -> Iterator[str]:
    """The files of runs."""
    return files_named(source, ".json")


def read(source: Source, place: str) -> Iterator[Found | Damaged]:
    """The run of a file."""
    yield _run(source, place)


def _run(source: Source, path: str) -> Found:
    data = source.read(path)
    raw, checked = decode(data, WorkflowCheckpoint)
    if not is_named_after(path, checked.run_id):
        raise Unreadable("$.run_id", f"it is {checked.run_id!r}, which the file is not named after")
    variables = {"step": checked.step} | beside(raw, WorkflowCheckpoint)
    return Found(
        source=source.name(path),
        id=checked.run_id,
        digest=digest_of(data),
        parts=(Saved(state=raw["scope_snapshot"], next=checked.next_node_id, variables=variables),),
        workflow=checked.workflow_name,
    )
