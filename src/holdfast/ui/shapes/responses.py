"""What the API gives. What is known as a record of `holdfast.views` is given as it is."""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from holdfast.engine.run.reading import run_info
from holdfast.kernel.model import RunRecord, Status
from holdfast.present.diff import Difference
from holdfast.ui.shapes.common import At, Rate
from holdfast.views import Effect, EntryInfo, PlannedUndo, Question, QueueInfo, RollbackReport, ScheduleInfo, StepInfo


def etag_of(record: RunRecord) -> str:
    """The tag of a run as it is: another one after each claim, entry, change of status or deletion."""
    told = f"{record.uid} {record.epoch} {record.seq} {record.status}"
    return f'"{sha256(told.encode()).hexdigest()[:24]}"'


class Point(Struct, frozen=True):
    """A run at an entry."""

    run: str
    seq: int


class RunView(Struct, frozen=True, kw_only=True):
    """A run. ``etag`` is what ``If-Match`` wants; what is ``encrypted`` can be read where its key is.

    ``key`` is what the queue's limit per key counts by; ``parent`` the uid of the run that started it as a part of
    itself; ``wake_at`` when it goes on by itself. ``holder_alive`` is false of a run whose process has died: it is
    ``running`` until somebody goes on with it.
    """

    id: str
    uid: str
    status: Status
    workflow: str | None
    tags: dict[str, str]
    created_at: At
    updated_at: At
    seq: int
    generation: int
    holder: str | None
    holder_alive: bool | None
    reason: str | None
    forked_from: Point | None
    queue: str | None
    priority: int
    key: str | None
    parent: str | None
    wake_at: At | None
    encrypted: bool
    etag: str


def run_view(record: RunRecord, alive: Collection[str]) -> RunView:
    """A record as the API shows it; ``alive`` are the workers that live."""
    known = asdict(run_info(record))
    known |= {"forked_from": Point(*known["forked_from"]) if known["forked_from"] else None}
    if record.away is not None and known["reason"] is not None:
        known["reason"] = known["reason"].replace(record.away, "another store")
    held = record.status is Status.RUNNING and record.worker is not None
    known |= {"encrypted": record.key_id is not None, "etag": etag_of(record)}
    known |= {"holder_alive": record.worker in alive if held else None}
    return RunView(**{name: known[name] for name in RunView.__struct_fields__})


class RunPage(Struct, frozen=True):
    """Runs, newest first. Give ``next`` as ``after`` to get the following ones; it is null at the end."""

    items: list[RunView]
    next: str | None = None


class Counts(Struct, frozen=True, kw_only=True):
    """How many runs of each status there are. One that has reached ``upto`` was not counted further."""

    counts: dict[str, int]
    upto: int


class RunDetail(Struct, frozen=True, kw_only=True):
    """A run, what it asks, and what came of it. If it is not ``readable`` (its key is not here), the rest is empty."""

    run: RunView
    readable: bool = True
    questions: list[Question] = []
    node: str | None = None
    next: str | None = None
    queue: Any = None
    result: Any = None
    error: str | None = None


class EntryPage(Struct, frozen=True):
    """Entries of a journal, oldest first, without their contents."""

    items: list[EntryInfo]
    next: str | None = None


class OutputView(Struct, frozen=True):
    """A value that a workflow emitted, or a note on its progress (of the stream ``notes``)."""

    seq: int
    at: At
    stream: str
    value: Any


class OutputPage(Struct, frozen=True):
    """What a workflow emitted, oldest first."""

    items: list[OutputView]
    next: str | None = None


class Comparison(Struct, frozen=True):
    """Where two runs, or one run at two entries, differ."""

    a: Point
    b: Point
    differences: list[Difference]


class Steps(Struct, frozen=True):
    """The steps of a run, in the order in which they began to count."""

    items: list[StepInfo]


class Effects(Struct, frozen=True):
    """What a run did to the outside world, oldest first."""

    items: list[Effect]


class Unread(Struct, frozen=True):
    """A run whose questions cannot be read, and why."""

    run: str
    message: str


class Questions(Struct, frozen=True):
    """Questions that wait for an answer. ``next`` goes on with those of older runs."""

    items: list[Question]
    unread: list[Unread] = []
    next: str | None = None


class Plan(Struct, frozen=True):
    """What a rollback would do, newest effect first."""

    to: int
    steps: list[PlannedUndo]


class RolledBack(Struct, frozen=True):
    """What a rollback did, and how the run stands then."""

    run: RunView
    report: RollbackReport


class Family(Struct, frozen=True, kw_only=True):
    """Where a run comes from, and what came from it."""

    run: RunView
    forked_from: list[Point]
    parent: RunView | None
    children: list[RunView]
    forks: list[RunView]


class Picture(Struct, frozen=True):
    """The graph of a run with the path that it took, in the language of Mermaid."""

    mermaid: str


class Audit(Struct, frozen=True):
    """The journal verifies, up to ``head``, which is worth keeping elsewhere."""

    run: str
    entries: int
    redacted: list[int]
    head: str


class Sent(Struct, frozen=True):
    """Whether the message was not sent before under its key."""

    run: RunView
    sent: bool


class Deleted(Struct, frozen=True):
    """Whether it was there."""

    deleted: bool


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of one run of several: how it stands, or why nothing was done to it."""

    run: str
    status: Status
    error: str | None = None


class Outcomes(Struct, frozen=True):
    """What became of several runs. With ``dry_run`` nothing was done."""

    items: list[Outcome]
    dry_run: bool


class Pruned(Struct, frozen=True):
    """The ids of the runs that were deleted, or would be."""

    runs: list[str]
    dry_run: bool


class Workflows(Struct, frozen=True):
    """The names of the workflows that can be begun here."""

    items: list[str]


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue: what limits it, since when and by whom, and how many of its runs are ready, running and waiting.

    ``oldest`` is how many seconds ago the oldest of those that are ready was made.
    """

    name: str
    limit: int | None
    per_worker: int | None
    per_key: int | None
    rate: Rate | None
    paused: bool
    set_at: At | None
    set_by: str | None
    ready: int
    running: int
    waiting: int
    oldest: float | None


def queue_view(info: QueueInfo) -> QueueView:
    """A queue as the API shows it."""
    return QueueView(**asdict(info) | {"rate": Rate(*info.rate) if info.rate is not None else None})


class Queues(Struct, frozen=True):
    """All queues that something is set about, or that have runs which have not ended."""

    items: list[QueueView]


class Schedules(Struct, frozen=True):
    """All schedules, by id."""

    items: list[ScheduleInfo]


class WorkerView(Struct, frozen=True, kw_only=True):
    """A process that holds runs. Its leases hold until ``until``, unless it beats again, as it does while it lives."""

    name: str
    alive: bool
    until: At
    runs: list[str]


class Workers(Struct, frozen=True):
    """Who holds runs, or may: each process that has claimed something and has not ended in good order.

    One that has found nothing to do yet is not known; the server that answers is left out while it holds nothing.
    """

    items: list[WorkerView]
