"""Durable workflows for Python.

A run is an append-only journal. Every step is checkpointed; a run survives a crash, pauses for a person, is resumed
exactly once, can be forked from any past checkpoint, and can be rolled back with its side effects undone.

Start with `holdfast.open`.

The names below are loaded when they are first used, so that ``import holdfast`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast import errors
    from holdfast.codec import Keyring
    from holdfast.engine import AsyncHoldfast, Holdfast, open
    from holdfast.engine.checkpoint import Checkpoint
    from holdfast.engine.run import AsyncRun, Run
    from holdfast.engine.undo import undo_function
    from holdfast.errors import (
        AnswerRefused,
        BackupDamaged,
        Claimed,
        DefinitionChanged,
        HoldfastError,
        InvalidId,
        KeyMissing,
        LeaseLost,
        NoCheckpoint,
        NonDeterminism,
        NotDone,
        NotStorable,
        QuestionClosed,
        Redacted,
        RunBlocked,
        RunDamaged,
        RunEnded,
        RunError,
        RunExists,
        RunNotFound,
        StoreBusy,
        StoreDamaged,
        StoreError,
        StoreFull,
        StoreNotFound,
        StoreReadOnly,
        StoreTooNew,
        StoreUnusable,
        TooLarge,
        TypeMissing,
        Uncertain,
        UndoRefused,
        UsageError,
        ValueRefused,
    )
    from holdfast.model import Status
    from holdfast.views import (
        AuditReport,
        Effect,
        EntryContents,
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
    "AnswerRefused",
    "AsyncHoldfast",
    "AsyncRun",
    "AuditReport",
    "BackupDamaged",
    "Checkpoint",
    "Claimed",
    "DefinitionChanged",
    "Effect",
    "EntryContents",
    "EntryInfo",
    "Field",
    "Holdfast",
    "HoldfastError",
    "InvalidId",
    "KeyMissing",
    "Keyring",
    "LeaseLost",
    "NoCheckpoint",
    "NonDeterminism",
    "NotDone",
    "NotStorable",
    "Page",
    "PlannedUndo",
    "Question",
    "QuestionClosed",
    "Redacted",
    "RollbackPlan",
    "RollbackReport",
    "Run",
    "RunBlocked",
    "RunDamaged",
    "RunEnded",
    "RunError",
    "RunExists",
    "RunInfo",
    "RunNotFound",
    "Status",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreNotFound",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnusable",
    "TooLarge",
    "TypeMissing",
    "Uncertain",
    "UndoRefused",
    "UsageError",
    "ValueRefused",
    "errors",
    "open",
    "undo_function",
]

_HOMES = {
    "codec": ("Keyring",),
    "engine": ("AsyncHoldfast", "Holdfast", "open"),
    "engine.checkpoint": ("Checkpoint",),
    "engine.run": ("AsyncRun", "Run"),
    "engine.undo": ("undo_function",),
    "model": ("Status",),
    "views": (
        "AuditReport",
        "Effect",
        "EntryContents",
        "EntryInfo",
        "Field",
        "Page",
        "PlannedUndo",
        "Question",
        "RollbackPlan",
        "RollbackReport",
        "RunInfo",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    if name == "errors":
        return import_module("holdfast.errors")
    found = getattr(import_module(f"holdfast.{_HOME_OF.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
