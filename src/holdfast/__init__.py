"""Durable workflows for Python.

A run is an append-only journal. Every step is checkpointed; a run survives a crash, pauses for a person, is resumed
exactly once, can be forked from any past checkpoint, and can be rolled back with its side effects undone.

Start with `holdfast.open`.
"""

from __future__ import annotations

from holdfast.codec import Keyring
from holdfast.engine import AsyncHoldfast, Holdfast, open
from holdfast.engine.checkpoint import Checkpoint
from holdfast.engine.run import AsyncRun, Run
from holdfast.engine.undo import undo_function
from holdfast.model import Status
from holdfast.views import (
    AuditReport,
    Effect,
    EntryInfo,
    Field,
    Page,
    PlannedUndo,
    Question,
    RollbackPlan,
    RollbackReport,
    RunInfo,
)

__version__ = "0.1.0"

__all__ = [
    "AsyncHoldfast",
    "AsyncRun",
    "AuditReport",
    "Checkpoint",
    "Effect",
    "EntryInfo",
    "Field",
    "Holdfast",
    "Keyring",
    "Page",
    "PlannedUndo",
    "Question",
    "RollbackPlan",
    "RollbackReport",
    "Run",
    "RunInfo",
    "Status",
    "open",
    "undo_function",
]
