"""The records that everything else passes around. All of them are frozen.

A **run** is one append-only **journal** of **entries**, numbered by ``seq``. `RunRecord` is what a store knows
about a run beside its entries: who it is, who holds it, and in what state it is. `Entry` is one line of a journal.
The writes (`Create`, `Append`, `Post` and the others) are what callers hand to a store; an `Item` is what anybody
else than the lease holder may leave in a run's **inbox**.

Sequence numbers are one coordinate for a run and all its forks: a fork at 7 shares the entries 0 to 7 of its
parent and goes on with 8, so "the checkpoint at 5" means the same in both.

Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct


class Status(StrEnum):
    """In what state a run is."""

    READY = "ready"  # may be claimed and go on
    RUNNING = "running"  # held by a worker
    WAITING = "waiting"  # paused: a question, timer or message is waited for
    BLOCKED = "blocked"  # parked until a person acts
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    AWAY = "away"  # lives in another store


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})


class Kind(StrEnum):
    """What an entry says."""

    CREATED = "created"  # first entry of a run
    FORKED = "forked"  # first entry of a fork
    SAVED = "saved"  # a state, as a whole or as the difference to the one before
    STARTED = "started"  # a step has been running for so long that it is worth saying
    INTENDED = "intended"  # a step is about to act
    DONE = "done"  # a step's result
    RAISED = "raised"  # a step raised an error
    MARKED = "marked"  # an effect that was made elsewhere
    RESOLVED = "resolved"  # a person said what became of an uncertain step
    ASKED = "asked"  # a question
    ANSWERED = "answered"  # its answer, or that its time is over
    DECLINED = "declined"  # a person said no at a breakpoint, where the run keeps waiting
    CLOSED = "closed"  # a question that nobody waits for any longer
    LATE = "late"  # an answer or mark that was accepted, and came too late to count
    TIMER = "timer"  # something waits until a moment
    RECEIVED = "received"  # a message
    CHILD = "child"  # another run is started, as a part of this one
    EMITTED = "emitted"  # a value of the run's output stream, or a note on its progress
    CONTINUED = "continued"  # the workflow begins anew with another input; what was before is no longer read
    RETRIED = "retried"  # a failed run goes on, and what failed is tried again
    ROLLBACK_BEGUN = "rollback_begun"  # from here on only undos, until REWOUND
    UNDONE = "undone"  # one effect was undone, or its undo failed
    REWOUND = "rewound"  # the effective history ends at an earlier entry again
    REDACTED = "redacted"  # payloads were erased on request
    UNBLOCKED = "unblocked"  # a person let a parked run go on
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Entry(Struct, frozen=True, gc=False):
    """One line of a journal.

    ``state`` leads to the state that was current then: on a `Kind.SAVED` entry it is the seq of the snapshot from
    which its chain of differences starts (its own seq, if it is one), on any other entry the seq of the last save.
    ``hash`` covers ``prev``, the header and the digest of the stored payload.
    """

    seq: int
    kind: str
    at: int
    state: int | None
    prev: bytes
    hash: bytes
    payload: bytes


class Link(Struct, frozen=True, array_like=True):
    """An ancestor of a fork: the entries up to ``upto`` (and after the link before) are this journal's."""

    uid: str
    id: str
    upto: int


class Rewind(Struct, frozen=True, array_like=True):
    """A finished rollback: the entry ``at`` made the effective history end at ``to`` again."""

    at: int
    to: int


class RunRecord(Struct, frozen=True, kw_only=True):
    """What a store knows about a run beside its entries. The last four fields describe its newest entry."""

    uid: str
    id: str
    created_at: int
    root: bytes  # what the hash of the first own entry is chained to
    base: int = 0  # seq of the first own entry
    workflow: str | None = None
    tags: dict[str, str] = {}
    lineage: tuple[Link, ...] = ()
    key_id: str | None = None
    key_blob: bytes | None = None
    queue: str | None = None  # from which workers take it; None: it is driven by hand
    priority: int = 0  # what has a higher one is taken first
    lane: str | None = None  # runs of a queue that have the same one share the queue's limit per key
    parent: str | None = None  # uid of the run that started it as a part of itself

    status: Status = Status.READY
    epoch: int = 0
    worker: str | None = None
    rewinds: tuple[Rewind, ...] = ()
    rollback: int | None = None  # seq of a rollback that has begun and is not finished
    wake_at: int | None = None
    reason: str | None = None  # why it is blocked
    hidden: bool = False  # deleted, and kept only because forks share its entries
    chapter: int = 0  # seq of the entry from which on the journal is read to go on
    crashes: int = 0  # how often in a row its holder died at `crashed_at`; see `holdfast.kernel.rules.crashes_of`
    crashed_at: int = -1  # the newest seq at the last of these times
    away: str | None = None  # the store in which it lives, if that is another one
    was: Status | None = None  # while a move is under way: what it is when it arrives, or `AWAY` for its copy there

    seq: int = -1
    hash: bytes = b""
    updated_at: int = 0
    state: int | None = None

    @property
    def generation(self) -> int:
        """How often the run was rolled back."""
        return len(self.rewinds)


class Item(Struct, frozen=True):
    """Something left in a run's inbox. ``key`` is unique in the run for ever, also after the item was taken."""

    key: str
    kind: str
    at: int
    payload: bytes
    wakes: bool = True  # whether a waiting run may go on with it


class Create(Struct, frozen=True):
    """Make a run with its first entries; a run that has this id already is returned as it is.

    With ``record.worker`` set, the new run is held by that worker from the start.
    """

    record: RunRecord
    entries: tuple[Entry, ...]


class Change(Struct, frozen=True):
    """How an `Append` changes the run's record, beside adding entries. Left out: it stays as it is."""

    status: Status | None = None
    release: bool = False
    rewind: Rewind | None = None
    rollback: int | None = None  # begin a rollback; a rewind ends it
    wake_at: int | None = None  # only together with a status
    reason: str | None = None  # only together with a status
    chapter: int | None = None  # begin a new chapter at this seq
    stays: bool = False  # the entries are no progress: a run whose holder died before is still at the same place
    final: bool = False  # the entries end the run, whose status follows: refused while the inbox holds something
    away: str | None = None  # only together with `Status.AWAY`, and so is
    was: Status | None = None


class Append(Struct, frozen=True):
    """Add entries to a run that ``worker`` holds at ``epoch``; refused with `LeaseLost` if it does not.

    With "" for the worker they are added to a run that nobody holds, if it was not claimed since the epoch was read. As
    with any append they must continue the journal as it is, so of two who add to the same end one is refused.
    """

    uid: str
    id: str
    epoch: int
    worker: str  # "" of a run that nobody holds
    entries: tuple[Entry, ...]
    change: Change | None = None
    took: tuple[str, ...] = ()  # keys of inbox items that these entries consume
    redact: tuple[tuple[int, bytes], ...] = ()  # own entries (seq) whose payload is replaced, and by what


class Post(Struct, frozen=True):
    """Leave an item in the inbox of a run, and make a waiting run ready if it wakes. False if its key was used before.

    Refused with `Moved` if the run lives elsewhere, with `RunEnded` if it has ended: nobody would take the item in.
    """

    uid: str
    item: Item


class EndMove(Struct, frozen=True):
    """End the move of a run: its copy here becomes the run, with the status ``here``; or (None) the run that departed
    from here lives for good elsewhere.

    False, and nothing is done, if there is no such copy, or nothing that departed, or one of another epoch; or if its
    inbox holds other items than those of the keys in ``mail``, where that is given.
    """

    uid: str
    epoch: int
    here: Status | None = None
    mail: Sequence[str] | None = None


class Rewrap(Struct, frozen=True):
    """Replace a run's wrapped data key; False if it is no longer the ``old`` one."""

    uid: str
    old: bytes
    key_id: str
    key_blob: bytes


class Adopt(Struct, frozen=True):
    """Take in a whole run from elsewhere, as it is. Refused with `RunExists` if its id or uid is used.

    A copy of the same run in which nobody lives (it is away, or hidden) gives way to it: see
    `holdfast.kernel.rules.adoptable`.
    """

    record: RunRecord
    entries: Sequence[Entry]
    items: Sequence[Item] = ()
    taken: Sequence[str] = ()


Write = Create | Append | Post | EndMove | Rewrap | Adopt


class Filter(Struct, frozen=True):
    """Which runs to list. Everything that is given must hold."""

    statuses: tuple[Status, ...] = ()
    workflow: str | None = None
    parent: str | None = None
    tags: tuple[tuple[str, str], ...] = ()
    prefix: str | None = None
    created_from: int | None = None
    created_before: int | None = None
    hidden: bool | None = False  # None: both
    shares: str | None = None  # forks that share entries of this journal, and their forks
    orphaned: bool = False  # held by a worker which is no longer alive


class Document(Struct, frozen=True):
    """A small piece of the engine's own, such as the limits of a queue: found by its kind and name.

    ``version`` is another one after each change.
    """

    name: str
    value: bytes
    version: int


class Limits(Struct, frozen=True):
    """How much of a queue may be taken. What is None is not limited."""

    total: int | None = None  # runs of it that are held by anybody
    per_worker: int | None = None  # runs of it that are held by the one who takes
    per_lane: int | None = None  # runs of it that are held and have the same lane
    starts: int | None = None  # runs that were never begun, of those that are taken now


class Order(Struct, frozen=True, kw_only=True):
    """What a worker wants to take: up to ``limit`` runs of these workflows, from these queues in turn.

    None for a queue's limits means that it has none. ``leave`` are the uids of runs that it does not want. Of runs
    whose holders died at the same place again and again, up to ``suspects`` are taken. A worker that executes nothing
    says so with ``alone``: if there is such a run, it gets that one and nothing else.
    """

    worker: str
    queues: dict[str, Limits | None]
    workflows: frozenset[str]
    limit: int
    leave: frozenset[str] = frozenset()
    suspects: int = 1
    alone: bool = False


class Outlook(Struct, frozen=True):
    """The work of some queues: the runs that are due, and the times at which to look again."""

    due: list[RunRecord]
    wake: int | None = None  # when the next waiting run becomes due
    lapse: int | None = None  # when the next lease of a holder of runs ends; None also where the store cannot say


class Enlisted(Struct, frozen=True):
    """A worker that has registered: until when its leases hold, and whether they hold now.

    ``running`` says that its process may still be at work. One that was stopped is running, and its leases lapse.
    """

    worker: str
    until: int
    alive: bool
    running: bool


class Backlog(Struct, frozen=True):
    """What there is in a queue: how many runs are ready, held and waiting, and since when the oldest is ready."""

    ready: int = 0
    running: int = 0
    waiting: int = 0
    oldest: int | None = None
