"""What the API takes, in the query and in the body. A field that is not here is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.kernel.model import Kind, Status
from holdfast.ui.shapes.common import (
    MOST,
    Bound,
    Cursor,
    Limit,
    Moment,
    Name,
    Position,
    Priority,
    Rate,
    Seconds,
    Seq,
    Text,
)

# --- in the query


class Paging(Struct, frozen=True, forbid_unknown_fields=True):
    """Which page of a run's history."""

    limit: Limit = 100
    after: Position | None = None


class HistoryQuery(Paging, frozen=True, forbid_unknown_fields=True):
    """Which entries."""

    kind: Kind | None = None


class OutputQuery(Paging, frozen=True, forbid_unknown_fields=True):
    """Which values."""

    stream: Text | None = None


class RunQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs; everything that is given must hold. A ``tag`` is written as name=value."""

    status: list[Status] = []
    workflow: Text | None = None
    tag: Annotated[list[Annotated[str, Meta(pattern="^[^=]+=", max_length=1000)]], Meta(max_length=20)] = []
    prefix: Text | None = None
    created_from: Moment | None = None
    created_before: Moment | None = None
    limit: Limit = 50
    after: Cursor | None = None


class QuestionQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which questions: those of waiting, ready and running runs, newest run first."""

    limit: Annotated[int, Meta(ge=1, le=200, description="Of how many runs at most.")] = 50
    after: Cursor | None = None


class AtQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """At which entry; now, if it is left out."""

    at: Seq | None = None


class CompareQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What is compared: this run at ``at`` with ``run`` (the same one, if it is left out) at ``to``."""

    at: Seq | None = None
    run: Name | None = None
    to: Seq | None = None


class ToQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """To which entry."""

    to: Seq


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The head that was kept elsewhere."""

    head: Text | None = None


class EventQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What a stream is about: these runs, and with ``store`` whether anything changed at all."""

    run: list[Name] = []
    store: bool = False


class EntriesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """From which entry on."""

    after: Seq | None = None


# --- in the body


class Start(Struct, frozen=True, forbid_unknown_fields=True):
    """Begin a workflow that the server knows: a worker takes it from its queue. See `holdfast.Holdfast.enqueue`."""

    workflow: Name
    input: dict[str, Any] | list[Any] | None = None
    id: Name | None = None
    tags: dict[str, Text] = {}
    queue: Name = "default"
    priority: Priority = 0
    delay: Seconds | None = None
    key: Text | None = None
    dedup: Text | None = None
    ttl: Seconds | None = None
    deadline: Seconds | None = None


class Timetable(Struct, frozen=True, forbid_unknown_fields=True):
    """Which workflow is begun when; what is not said of ``paused`` stays. See `holdfast.Holdfast.schedule`."""

    workflow: Name
    cron: Text
    input: dict[str, Any] | list[Any] | None = None
    tz: Text = "UTC"
    tags: dict[str, Text] = {}
    queue: Name = "default"
    priority: Priority = 0
    deadline: Seconds | None = None
    catch_up: Literal["one", "all", "none"] = "one"
    paused: bool | UnsetType = UNSET


class Answer(Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a question: an object of its fields, or the bare value of the only one."""

    value: Any = None


class Message(Struct, frozen=True, forbid_unknown_fields=True):
    """A message for the run's workflow. One with a ``key`` is sent once."""

    value: Any = None
    topic: Text | None = None
    key: Text | None = None


class Fork(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the new run leaves the old one, and what differs there. See `holdfast.Run.fork`."""

    at: Seq | Literal["failure"] | None = None
    id: Name | None = None
    input: dict[str, Any] | None = None
    results: dict[str, Any] | None = None
    answers: dict[str, Any] | None = None
    edit: Any = None


class Rollback(Struct, frozen=True, forbid_unknown_fields=True):
    """To which entry, and what becomes of the run then. With ``force``, undos that fail are passed over."""

    to: Seq
    then: Literal["go-on", "cancelled"] = "go-on"
    force: bool = False


class Cancel(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and whether its effects are undone. With ``force``, undos that fail are passed over."""

    why: Text | None = None
    undo: bool = False
    force: bool = False


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """There is nothing more to say."""


class Resolve(Struct, frozen=True, forbid_unknown_fields=True):
    """What became of a step that died in the act."""

    key: Name
    done: bool
    result: Any = None


class Redact(Struct, frozen=True, forbid_unknown_fields=True):
    """The entries whose contents are erased, and why."""

    seqs: Annotated[list[Seq], Meta(min_length=1, max_length=MOST)]
    why: Text | None = None


class Several(Struct, frozen=True, forbid_unknown_fields=True):
    """Runs to do something to: those that are named, or those that ``where`` finds (up to ``where.limit``).

    With ``dry_run`` it is only told which.
    """

    runs: Annotated[list[Name], Meta(max_length=MOST)] = []
    where: RunQuery | None = None
    dry_run: bool = False


class CancelSeveral(Several, frozen=True):
    """Runs to give up, which are named or found as those of `Several` are; why; and whether to undo what they did.

    With ``force``, undos that fail are passed over.
    """

    why: Text | None = None
    undo: bool = False
    force: bool = False


class Prune(Struct, frozen=True, forbid_unknown_fields=True):
    """Which runs are deleted: of these statuses (ended ones, if none is named), but for the newest ``keep_last``.

    ``older_than`` spares those that were written to within so many seconds.
    """

    older_than: Seconds | None = None
    keep_last: Annotated[int, Meta(ge=0, le=2**31)] = 0
    statuses: list[Status] | None = None
    dry_run: bool = False


class QueueChange(Struct, frozen=True, forbid_unknown_fields=True):
    """What is set about a queue. What is left out stays as it was; null takes a limit away."""

    limit: Bound | UnsetType | None = UNSET
    per_worker: Bound | UnsetType | None = UNSET
    per_key: Bound | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET
