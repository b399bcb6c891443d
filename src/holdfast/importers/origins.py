"""Where a run came from: the first entry after its creation, which every import writes before anything else."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.run.handle import Run
from holdfast.errors import NoCheckpoint
from holdfast.importers.records import Origin
from holdfast.kernel.model import Kind

TAG = "imported_from"  # of every imported run: the system
KEY = "holdfast.import"  # of the step whose result is the origin


def origin(run: Run) -> Origin | None:
    """Where the run was imported from; None if it was not, or if that was erased. A rollback does not change it."""
    if TAG not in run.info().tags:
        return None
    try:
        entry = run.entry(1)
    except NoCheckpoint:
        return None
    told: Any = entry.contents.get("result")
    if entry.kind != Kind.DONE or entry.contents.get("key") != KEY or not isinstance(told, dict):
        return None
    return msgspec.convert(told, Origin)
