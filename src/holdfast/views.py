"""What users get to see: frozen answers to questions about a run.

The records of `holdfast.kernel.model` are what stores keep; these are what is computed from them. Values in here are
decoded: they are what the user put in.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from holdfast.kernel.model import Status

T = TypeVar("T")

EffectStatus = Literal["done", "uncertain", "raised", "repeated", "undone", "undo_failed", "left"]
# fmt: off
FieldType = Literal[
    "text", "integer", "number", "boolean", "choice", "decimal", "date", "time", "datetime", "duration", "uuid",
    "bytes", "any", "list", "mapping", "object",
]
# fmt: on
Bound = int | float | str | None


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds: the years 1 and 9999


def moment(at: int) -> datetime:
    """A stored time as a datetime in UTC; one that no date has (to sleep for ever) as the first or the last date."""
    at = min(max(at, _FIRST), _LAST)
    return datetime.fromtimestamp(at // 1_000_000, UTC).replace(microsecond=at % 1_000_000)


class Effect(Struct, frozen=True, kw_only=True):
    """Something that was done to the outside world.

    ``status`` is ``done``; ``uncertain`` (it was begun, and its process died before saying how it went); ``repeated``
    (it was uncertain, and the step was run again since); ``raised`` (it was begun and raised an error); or, in and
    after a rollback, ``undone``, ``undo_failed`` or ``left`` (nothing could undo it, so it is still there).
    """

    seq: int
    key: str
    tool: str
    target: str | None
    reversible: bool
    status: EffectStatus
    at: datetime
    undo: str | None = None
    error: str | None = None


class Field(Struct, frozen=True, omit_defaults=True):
    """One field of the form that a question shows.

    ``type`` is text, integer, number, boolean or choice. A form that was made from a type also has decimal, date, time,
    datetime, duration, uuid, bytes, any, list and mapping (of ``items``), and object (of ``fields``).

    A field that is not ``required`` is None if it is left out, or stays out of the answer if it may be ``omitted``.
    ``labels`` are names for the ``options``, and may be answered as well; ``above`` and ``below`` are bounds that are
    not in the range themselves; ``unique`` items differ; ``of`` names the class that an object or choice was made from.
    What JSON has no type for, such as a date, is written as text in ``default`` and in bounds.
    """

    name: str
    type: FieldType = "text"
    required: bool = True
    options: tuple[str | int | bool, ...] = ()
    label: str | None = None
    default: Any = None
    description: str | None = None
    minimum: Bound = None
    maximum: Bound = None
    above: Bound = None
    below: Bound = None
    multiple_of: Bound = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    labels: tuple[str, ...] = ()
    items: Field | None = None
    fields: tuple[Field, ...] = ()
    unique: bool = False
    omitted: bool = False
    of: str | None = None


class Question(Struct, frozen=True, kw_only=True):
    """Something that a person is asked before the run goes on.

    The answer is a mapping of the ``fields``, or the bare value of the only one if the question is ``single``; without
    fields it is any value. ``type`` is the name of what the fields were made from. A breakpoint at which somebody said
    no is ``declined``, and stays open.
    """

    id: str
    run: str
    prompt: str
    fields: tuple[Field, ...]
    output_key: str
    seq: int
    at: datetime
    single: bool = False
    type: str | None = None
    declined: bool = False


class EntryInfo(Struct, frozen=True):
    """One line of a run's history, without its contents. ``live`` is false for what a rollback abandoned.

    What is ``pending`` was acknowledged, and the run's holder has not taken it in yet: its number may still change.
    """

    seq: int
    kind: str
    at: datetime
    live: bool = True
    inherited: bool = False
    pending: bool = False


class EntryContents(Struct, frozen=True):
    """One entry of a run's journal, with what it says as readable JSON: results, errors, who answered, and so on.

    What is ``pending`` was acknowledged, and the run's holder has not taken it in yet: its number may still change.
    """

    seq: int
    kind: str
    at: datetime
    contents: dict[str, Any]
    pending: bool = False


class RunInfo(Struct, frozen=True, kw_only=True):
    """A run in a list."""

    id: str
    uid: str
    status: Status
    workflow: str | None
    tags: dict[str, str]
    created_at: datetime
    updated_at: datetime
    seq: int
    generation: int
    holder: str | None
    reason: str | None
    forked_from: tuple[str, int] | None
    queue: str | None = None
    priority: int = 0
    key: str | None = None  # what the queue's limit per key counts by
    parent: str | None = None  # uid of the run that started it as a part of itself
    wake_at: datetime | None = None  # when it goes on by itself
    away: str | None = None  # the store in which it lives, if that is another one
    rolls_back: int | None = None  # the entry that began a rollback which is not done: whoever goes on finishes it


class QueueInfo(Struct, frozen=True, kw_only=True):
    """A queue in a list: what is set, when and by whom, and how many of its runs are ready, running and waiting.

    ``oldest`` is how many seconds ago the oldest of those that are ready was made. ``rate`` is how many runs may be
    begun in how many seconds.
    """

    name: str
    limit: int | None = None
    per_worker: int | None = None
    per_key: int | None = None
    rate: tuple[int, float] | None = None
    paused: bool = False
    set_at: datetime | None = None
    set_by: str | None = None
    ready: int = 0
    running: int = 0
    waiting: int = 0
    oldest: float | None = None


class ScheduleInfo(Struct, frozen=True, kw_only=True):
    """A schedule in a list. ``last_at`` is the newest tick for which a run was made, and ``last_run`` that run's id.

    ``set_at`` is when it was last made, changed, paused or resumed, and ``set_by`` who did that.
    """

    id: str
    workflow: str
    cron: str
    tz: str
    queue: str
    catch_up: Literal["one", "all", "none"]
    paused: bool
    next_at: datetime
    last_at: datetime | None = None
    last_run: str | None = None
    set_at: datetime | None = None
    set_by: str | None = None
    away: str | None = None  # the store in which it is, if that is another one


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A process that executes runs. Its claims hold until ``until``, which each heartbeat moves on."""

    name: str
    alive: bool
    until: datetime | None
    runs: tuple[str, ...]


class LeftBehind(Struct, frozen=True):
    """A run or schedule that was not moved, and why."""

    id: str
    why: str
    error: str  # the name of the error's class


class MoveReport(Struct, frozen=True, kw_only=True):
    """What a move has moved: the ids of the runs and schedules, and the queues whose settings were copied.

    ``left`` are those that were not moved. With ``dry_run``, it is what would be moved.
    """

    moved: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    left: tuple[LeftBehind, ...] = ()
    dry_run: bool = False


class Output(Struct, frozen=True):
    """A value that a workflow emitted, or a note on its progress."""

    seq: int
    at: datetime
    stream: str
    value: Any


class StepInfo(Struct, frozen=True, kw_only=True):
    """A step of a run: ``started``, ``done``, ``failed``, ``retrying`` or ``uncertain``.

    ``seconds`` is how long its last attempt took (one that runs still: how long it had run at ``at``), None if that was
    less than a twentieth of a second, or is not known. What a step that is ``erased`` gave was erased on request.
    """

    key: str
    name: str
    status: Literal["started", "done", "failed", "retrying", "uncertain"]
    seq: int
    at: datetime
    attempts: int = 1
    error: str | None = None
    seconds: float | None = None
    erased: bool = False


class Page(Struct, Generic[T], frozen=True):
    """Some of a longer list. Give ``next`` as ``after=`` to get the following ones; it is None at the end."""

    items: tuple[T, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> T:
        return self.items[index]


class PlannedUndo(Struct, frozen=True):
    """What a rollback will do about one effect: ``undo`` it, or leave it (``irreversible``, ``uncertain``).

    ``missing``: this process cannot find the undo; ``unreadable``: it cannot read what the undo is called with. An
    effect that has a ``problem``, which says why, refuses the rollback unless it is forced.
    """

    effect: Effect
    action: Literal["undo", "irreversible", "uncertain", "missing", "unreadable"]
    problem: str | None = None


class RollbackPlan(Struct, frozen=True):
    """What a rollback would do, in the order in which it would do it (newest effect first)."""

    to: int
    steps: tuple[PlannedUndo, ...]


class RollbackReport(Struct, frozen=True):
    """What a rollback did. What is in ``failed``, ``irreversible`` and ``uncertain`` may still be there.

    ``pending`` are the effects that a rollback which stopped at a failed undo did not come to.
    """

    to: int
    generation: int
    undone: tuple[Effect, ...]
    failed: tuple[Effect, ...]
    irreversible: tuple[Effect, ...]
    uncertain: tuple[Effect, ...]
    pending: tuple[Effect, ...] = ()


class AuditReport(Struct, frozen=True):
    """The journal verifies: ``entries`` of them up to ``head``, which is worth keeping elsewhere.

    ``pending`` are the kinds of what was acknowledged and the run's holder has not taken into the journal yet.
    """

    run: str
    entries: int
    redacted: tuple[int, ...]
    head: str
    pending: tuple[str, ...] = ()
