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
    from holdfast import aio, errors
    from holdfast.codec import Keyring
    from holdfast.engine.app import AsyncHoldfast, Holdfast, open
    from holdfast.engine.run.checkpoint import Checkpoint
    from holdfast.engine.run.handle import AsyncRun, Run
    from holdfast.engine.run.outputs import Activity
    from holdfast.engine.worker.queues import AsyncQueue, Queue
    from holdfast.engine.worker.schedules import AsyncSchedule, Schedule
    from holdfast.engine.workflow.concurrency.branches import gather, map
    from holdfast.engine.workflow.concurrency.races import first, timeout
    from holdfast.engine.workflow.declare import Workflow, step, workflow
    from holdfast.engine.workflow.effect_step import Done, this_step
    from holdfast.engine.workflow.recorded_calls import (
        continue_as_new,
        emit,
        note,
        now,
        patched,
        random,
        send,
        this_run,
        uuid,
    )
    from holdfast.engine.workflow.scope import StepNow
    from holdfast.engine.workflow.step import StepFunction
    from holdfast.engine.workflow.undo_functions import undo_function
    from holdfast.engine.workflow.waiting import ask, receive, sleep
    from holdfast.errors import (
        AnswerRefused,
        Claimed,
        HoldfastError,
        NotDone,
        RunBlocked,
        RunCancelled,
        RunEnded,
        RunNotFound,
        TimedOut,
        UsageError,
    )
    from holdfast.graph import END, Graph, NodeContext, add, append, keep_last, merge, quorum, union
    from holdfast.kernel.model import Status
    from holdfast.secret import Secret
    from holdfast.views import (
        AuditReport,
        Effect,
        EntryContents,
        EntryInfo,
        Field,
        LeftBehind,
        MoveReport,
        Output,
        Page,
        PlannedUndo,
        Question,
        QueueInfo,
        RollbackPlan,
        RollbackReport,
        RunInfo,
        ScheduleInfo,
        StepInfo,
        WorkerInfo,
    )

__version__ = "0.1.0"

__all__ = [
    "END",
    "Activity",
    "AnswerRefused",
    "AsyncHoldfast",
    "AsyncQueue",
    "AsyncRun",
    "AsyncSchedule",
    "AuditReport",
    "Checkpoint",
    "Claimed",
    "Done",
    "Effect",
    "EntryContents",
    "EntryInfo",
    "Field",
    "Graph",
    "Holdfast",
    "HoldfastError",
    "Keyring",
    "LeftBehind",
    "MoveReport",
    "NodeContext",
    "NotDone",
    "Output",
    "Page",
    "PlannedUndo",
    "Question",
    "Queue",
    "QueueInfo",
    "RollbackPlan",
    "RollbackReport",
    "Run",
    "RunBlocked",
    "RunCancelled",
    "RunEnded",
    "RunInfo",
    "RunNotFound",
    "Schedule",
    "ScheduleInfo",
    "Secret",
    "Status",
    "StepFunction",
    "StepInfo",
    "StepNow",
    "TimedOut",
    "UsageError",
    "WorkerInfo",
    "Workflow",
    "add",
    "aio",
    "append",
    "ask",
    "continue_as_new",
    "emit",
    "errors",
    "first",
    "gather",
    "keep_last",
    "map",
    "merge",
    "note",
    "now",
    "open",
    "patched",
    "quorum",
    "random",
    "receive",
    "send",
    "sleep",
    "step",
    "this_run",
    "this_step",
    "timeout",
    "undo_function",
    "union",
    "uuid",
    "workflow",
]

_HOMES = {
    "codec": ("Keyring",),
    "engine.app": ("AsyncHoldfast", "Holdfast", "open"),
    "engine.run.checkpoint": ("Checkpoint",),
    "engine.workflow.effect_step": (
        "Done",
        "this_step",
    ),
    "engine.workflow.concurrency.branches": ("gather", "map"),
    "engine.run.outputs": ("Activity",),
    "engine.worker.queues": ("AsyncQueue", "Queue"),
    "engine.workflow.concurrency.races": ("first", "timeout"),
    "engine.workflow.recorded_calls": (
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
    "engine.workflow.declare": (
        "StepFunction",
        "Workflow",
        "step",
        "workflow",
    ),
    "engine.workflow.scope": ("StepNow",),
    "engine.workflow.waiting": (
        "ask",
        "receive",
        "sleep",
    ),
    "engine.run.handle": ("AsyncRun", "Run"),
    "engine.worker.schedules": ("AsyncSchedule", "Schedule"),
    "engine.workflow.undo_functions": ("undo_function",),
    "graph": ("END", "Graph", "NodeContext", "add", "append", "keep_last", "merge", "quorum", "union"),
    "kernel.model": ("Status",),
    "secret": ("Secret",),
    "views": (
        "AuditReport",
        "Effect",
        "EntryContents",
        "EntryInfo",
        "Field",
        "LeftBehind",
        "MoveReport",
        "Output",
        "Page",
        "PlannedUndo",
        "Question",
        "QueueInfo",
        "RollbackPlan",
        "RollbackReport",
        "RunInfo",
        "ScheduleInfo",
        "StepInfo",
        "WorkerInfo",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    if name in ("aio", "errors"):
        return import_module(f"holdfast.{name}")
    found = getattr(import_module(f"holdfast.{_HOME_OF.get(name, 'errors')}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
