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
    from holdfast.engine.acts import Done, this_step
    from holdfast.engine.branches import gather, map
    from holdfast.engine.calls import continue_as_new, emit, note, now, patched, random, send, this_run, uuid
    from holdfast.engine.checkpoint import Checkpoint
    from holdfast.engine.define import StepFunction, Workflow, step, workflow
    from holdfast.engine.races import first, timeout
    from holdfast.engine.run import AsyncRun, Run
    from holdfast.engine.scope import StepNow
    from holdfast.engine.undo import undo_function
    from holdfast.engine.waits import ask, receive, sleep
    from holdfast.errors import (
        AnswerRefused,
        BackupDamaged,
        Claimed,
        DeadlinePassed,
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
        RunCancelled,
        RunDamaged,
        RunEnded,
        RunError,
        RunExists,
        RunNotFound,
        SecretMissing,
        StepFailed,
        StepTimeout,
        StoreBusy,
        StoreDamaged,
        StoreError,
        StoreFull,
        StoreNotFound,
        StoreReadOnly,
        StoreTooNew,
        StoreUnusable,
        TimedOut,
        TooLarge,
        TypeMissing,
        Uncertain,
        UndoRefused,
        UsageError,
        ValueRefused,
        WorkflowMissing,
    )
    from holdfast.model import Status
    from holdfast.secret import Secret
    from holdfast.views import (
        AuditReport,
        Effect,
        EntryContents,
        EntryInfo,
        Field,
        Output,
        Page,
        PlannedUndo,
        Question,
        RollbackPlan,
        RollbackReport,
        RunInfo,
        StepInfo,
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
    "DeadlinePassed",
    "DefinitionChanged",
    "Done",
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
    "Output",
    "Page",
    "PlannedUndo",
    "Question",
    "QuestionClosed",
    "Redacted",
    "RollbackPlan",
    "RollbackReport",
    "Run",
    "RunBlocked",
    "RunCancelled",
    "RunDamaged",
    "RunEnded",
    "RunError",
    "RunExists",
    "RunInfo",
    "RunNotFound",
    "Secret",
    "SecretMissing",
    "Status",
    "StepFailed",
    "StepFunction",
    "StepInfo",
    "StepNow",
    "StepTimeout",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreNotFound",
    "StoreReadOnly",
    "StoreTooNew",
    "StoreUnusable",
    "TimedOut",
    "TooLarge",
    "TypeMissing",
    "Uncertain",
    "UndoRefused",
    "UsageError",
    "ValueRefused",
    "Workflow",
    "WorkflowMissing",
    "ask",
    "continue_as_new",
    "emit",
    "errors",
    "first",
    "gather",
    "map",
    "note",
    "now",
    "open",
    "patched",
    "random",
    "receive",
    "send",
    "sleep",
    "step",
    "this_run",
    "this_step",
    "timeout",
    "undo_function",
    "uuid",
    "workflow",
]

_HOMES = {
    "codec": ("Keyring",),
    "engine": ("AsyncHoldfast", "Holdfast", "open"),
    "engine.checkpoint": ("Checkpoint",),
    "engine.acts": (
        "Done",
        "this_step",
    ),
    "engine.branches": ("gather", "map"),
    "engine.races": ("first", "timeout"),
    "engine.calls": (
        "continue_as_new",
        "emit",
        "note",
        "now",
        "patched",
        "random",
        "send",
        "this_run",
        "uuid",
    ),
    "engine.define": (
        "StepFunction",
        "Workflow",
        "step",
        "workflow",
    ),
    "engine.scope": ("StepNow",),
    "engine.waits": (
        "ask",
        "receive",
        "sleep",
    ),
    "engine.run": ("AsyncRun", "Run"),
    "engine.undo": ("undo_function",),
    "model": ("Status",),
    "secret": ("Secret",),
    "views": (
        "AuditReport",
        "Effect",
        "EntryContents",
        "EntryInfo",
        "Field",
        "Output",
        "Page",
        "PlannedUndo",
        "Question",
        "RollbackPlan",
        "RollbackReport",
        "RunInfo",
        "StepInfo",
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
