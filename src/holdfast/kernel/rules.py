"""The decisions that every store shares: pure functions over records and writes.

They do no I/O. Each store calls them inside its transaction, so that the rules about fences, claims, status, due runs
and deletion are in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import (
    Claimed,
    HoldfastError,
    InboxNotEmpty,
    InvalidId,
    LeaseLost,
    Moved,
    RunBlocked,
    RunDamaged,
    RunEnded,
    RunExists,
    RunNotFound,
)
from holdfast.kernel.clock import Clock
from holdfast.kernel.model import ENDED, Append, EndMove, Enlisted, Entry, Filter, Item, Outlook, RunRecord, Status

MAX_ID = 512
LIVE = frozenset({Status.READY, Status.RUNNING, Status.WAITING})
ANY = frozenset(Status)
SUSPECT = 2  # deaths of its holder at the same place, after which a run is executed alone where possible
UID_SLACK = 1_000_000  # microseconds
UID_TIMES = 1 << 52  # microseconds: what the time of a uid is below, until the year 2112
Outcome = RunRecord | HoldfastError | bool | None


class Awaited(Protocol):
    """What says whether a run is due: its record, or as much of that as is cheap to read."""

    @property
    def uid(self) -> str: ...
    @property
    def created_at(self) -> int: ...
    @property
    def queue(self) -> str | None: ...
    @property
    def workflow(self) -> str | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def status(self) -> Status: ...
    @property
    def worker(self) -> str | None: ...
    @property
    def wake_at(self) -> int | None: ...
    @property
    def hidden(self) -> bool: ...


class Term(Struct, frozen=True):
    """Until when the leases of a worker on this machine hold.

    Only ``boot`` and ``ends`` decide: a clock that is set, or a machine that sleeps, ends no lease of a live worker.
    ``until`` is the same moment by the wall clock, for people.
    """

    until: int
    boot: int | None = None  # none, if the version before wrote it, which goes by the wall clock
    ends: int | None = None

    @classmethod
    def of(cls, clock: Clock, lease: float) -> Term:
        """A term of this many seconds from now."""
        length = int(lease * 1_000_000)
        return cls(clock.now() + length, clock.boot, clock.monotonic() + length)

    def is_live(self, clock: Clock, running: bool | None) -> bool:
        """Whether it holds now. ``running`` is what the worker's lock says: nothing (None), if there is none."""
        if running is False:
            return False
        if self.boot is None or self.ends is None:
            return self.until > clock.now()
        return self.boot == clock.boot and self.ends > clock.monotonic()

    def enlisted(self, worker: str, clock: Clock, running: bool | None) -> Enlisted:
        """What is known of the worker. Where its lock says nothing, it may run unless the machine was booted since."""
        live = self.is_live(clock, running)
        may_run = live or self.boot == clock.boot if running is None else running
        return Enlisted(worker, self.until, live, may_run)


def new_version(clock: Clock) -> int:
    """A version for a document. Not a count: one that was deleted and made again must not have one that it had."""
    return int.from_bytes(clock.random_bytes(6))


def check_id(id: str) -> str:
    """The id, if it can be kept; raises `InvalidId`."""
    if not isinstance(id, str):
        raise InvalidId(f"an id is text, not {type(id).__name__}: {id!r}")
    if not 0 < len(id) <= MAX_ID:
        raise InvalidId(f"an id is 1 to {MAX_ID} characters long, this one has {len(id)}")
    try:
        id.encode()
    except UnicodeEncodeError:
        raise InvalidId(f"the id {id!r} holds a lone surrogate, which cannot be written as UTF-8") from None
    return id


def refusal(record: RunRecord | None, write: Append) -> LeaseLost | None:
    """Why the write may not be made, if so: only the holder of the current epoch may append.

    Where there is no holder, whoever knows the current epoch may. Where the run lives elsewhere, nobody may.
    """
    if record is None or record.hidden:
        return LeaseLost(write.id, "the run was deleted while this worker held it")
    if record.status is Status.AWAY:
        return moved(record)
    if record.epoch != write.epoch or (record.worker or "") != write.worker:
        return LeaseLost(write.id)
    return None


def continues(record: RunRecord, write: Append) -> bool:
    """Whether the entries of the write go on where the journal ends."""
    first = write.entries[0]
    return first.seq == record.seq + 1 and first.prev == record.hash and is_chain(write.entries)


def ends(write: Append) -> bool:
    """Whether the run has ended with this write."""
    return write.change is not None and (write.change.final or write.change.status in ENDED)


def end_refusal(write: Append, untaken: Collection[str]) -> InboxNotEmpty | None:
    """Why a run may not end with this write, if so. ``untaken`` are the keys of all items in its inbox."""
    return InboxNotEmpty(write.id) if ends(write) and not set(untaken) <= set(write.took) else None


def is_chain(entries: Sequence[Entry]) -> bool:
    """Whether each of the entries follows the one before it."""
    return all(entry.seq == before.seq + 1 and entry.prev == before.hash for before, entry in pairwise(entries))


def conflict(write: Append, stored: Sequence[Entry]) -> LeaseLost | None:
    """A write whose place in the journal is taken: it is ours, made before (None), or it must be refused.

    ``stored`` is what the journal has under the number of the write's last entry.
    """
    last = write.entries[-1]
    if stored and stored[0].hash == last.hash:
        return None
    return LeaseLost(write.id, f"entry {last.seq} does not continue the journal as it is now, so it was refused")


def ending(record: RunRecord, entries: Sequence[Entry]) -> RunRecord:
    """The record of a run whose journal ends with these entries."""
    last = entries[-1]
    state = last.seq if last.kind == "saved" else last.state
    return replace(record, seq=last.seq, hash=last.hash, updated_at=last.at, state=state)


def appended(record: RunRecord, write: Append, *, mail: bool) -> RunRecord:
    """The record after the write. ``mail`` says that the inbox holds an item that wakes the run.

    A run that goes to wait while there is mail is ready at once; otherwise an answer that arrived while it was held
    would never be seen.
    """
    change = write.change
    if write.entries:
        record = ending(record, write.entries)
    if change is None:
        return record
    if change.status is not None:
        record = replace(record, status=change.status, wake_at=change.wake_at, reason=change.reason)
    if change.away is not None:
        record = replace(record, away=change.away, was=change.was)
    if change.rollback is not None:
        record = replace(record, rollback=change.rollback)
    if change.rewind is not None:
        record = replace(record, rewinds=(*record.rewinds, change.rewind), rollback=None)
    if change.chapter is not None:
        record = replace(record, chapter=change.chapter)
    if change.stays:
        record = replace(record, crashed_at=record.seq)
    if change.release:
        crashes = record.crashes if record.crashed_at == record.seq else 0  # it may be what kills its holders
        record = replace(record, worker=None, crashes=crashes)
    return woken(record) if mail else record


def claimed(
    record: RunRecord | None,
    uid: str,
    worker: str,
    allow: Collection[Status],
    *,
    holder_alive: bool,
    alone: bool = False,
) -> RunRecord:
    """The record after the worker claimed the run; raises the reason if it may not."""
    if record is None or record.hidden:
        raise RunNotFound(record.id if record else uid)
    check_here(record)
    if record.status not in allow:
        if record.status is Status.BLOCKED:
            raise RunBlocked(record.id, f"{record.reason or 'blocked'}; `run.unblock()` lets it go on")
        raise RunEnded(record.id, f"it is {record.status}; fork it, or roll it back, to go on")
    if record.worker is not None and holder_alive:
        if record.worker == worker:
            raise Claimed(record.id, "held by another handle or call of this same program; use the one that claimed it")
        raise Claimed(record.id, f"held by {record.worker}; try again when it lets go")
    # A parked run stays parked until somebody unblocks it, also if its claimer dies before that.
    status = Status.BLOCKED if record.status is Status.BLOCKED else Status.RUNNING
    record = replace(record, status=status, epoch=record.epoch + 1, wake_at=None)
    if record.worker is not None:  # it died
        record = replace(record, crashes=crashes_of(record, alone=alone), crashed_at=record.seq)
    return replace(record, worker=worker)


def crashes_of(record: RunRecord, *, alone: bool) -> int:
    """What counts as a crash of a run when it is claimed from a holder that died.

    A process may die for any reason, and all its runs with it. So the first deaths at the same place only make the run
    a suspect (`SUSPECT`). From then on each try counts that it is given alone, in a process that executes nothing else.
    """
    if record.crashed_at != record.seq:
        return 1
    return record.crashes + 1 if record.crashes < SUSPECT or alone else record.crashes


def tries_alone(record: RunRecord) -> int:
    """How often a run was given a process of its own and got nowhere, or is about to be: the last try counts."""
    return max(record.crashes - SUSPECT, 0)


def woken(record: RunRecord) -> RunRecord:
    """The record after something arrived that a waiting run may go on with.

    One that was made to begin at a later time begins then, whatever arrives.
    """
    delayed = record.epoch == 0 and record.wake_at is not None
    if record.status is Status.WAITING and not delayed:
        return replace(record, status=Status.READY, wake_at=None)
    return record


def is_due(record: Awaited, queues: Collection[str], workflows: Collection[str], now: int) -> bool:
    """Whether a worker of these queues and workflows can go on with the run now."""
    return (
        record.queue in queues
        and record.workflow in workflows
        and record.worker is None
        and not record.hidden
        and (
            record.status is Status.READY
            or (record.status is Status.WAITING and record.wake_at is not None and record.wake_at <= now)
        )
    )


def due_order(record: Awaited) -> tuple[int, int, str]:
    """By what runs that are due are ordered: their priority, and since when they are due."""
    waiting = record.status is Status.WAITING and record.wake_at is not None
    return -record.priority, (record.wake_at or 0) if waiting else record.created_at, record.uid


def wake_time(record: RunRecord) -> int | None:
    """When the run becomes due, if a worker takes it and it waits for a time."""
    waits = record.status is Status.WAITING and record.queue is not None and record.worker is None
    return record.wake_at if waits and not record.hidden else None


def outlook(
    records: Iterable[RunRecord], queues: Collection[str], workflows: Collection[str], now: int, limit: int
) -> Outlook:
    """What `Store.look` says of these runs."""
    ours = [record for record in records if record.queue in queues and record.workflow in workflows]
    due = sorted((record for record in ours if is_due(record, queues, workflows, now)), key=due_order)
    wakes = [at for record in ours if (at := wake_time(record)) is not None and at > now]
    return Outlook(due[:limit], min(wakes, default=None))


def may_delete(record: RunRecord, expected: RunRecord, *, holder_alive: bool) -> bool:
    """Whether the run is as it was read, and so may be deleted.

    Raises `Claimed` if a live holder has it, `Moved` while it is being moved: which of the two counts is not settled
    yet. A copy that is known as one may be deleted.
    """
    if _state_of(expected) != _state_of(record):
        return False
    if record.worker is not None and holder_alive:
        raise Claimed(record.id, f"held by {record.worker}, so it cannot be deleted now")
    is_known_copy = record.was is Status.AWAY and expected.was is Status.AWAY
    if record.was is not None and not is_known_copy:
        raise moved(record)
    return True


def each_deleted(records: Sequence[RunRecord], delete: Callable[[RunRecord], bool]) -> list[bool | HoldfastError]:
    """What `Store.delete` gives, for a store that deletes them one after the other."""
    outcomes: list[bool | HoldfastError] = []
    for record in records:
        try:
            outcomes.append(delete(record))
        except (Claimed, Moved, RunDamaged) as refused:
            outcomes.append(refused)
    return outcomes


def _state_of(record: RunRecord) -> tuple[int, int, Status]:
    return record.epoch, record.seq, record.status


def each_status(filter: Filter) -> list[Filter]:
    """The same filter for each of its statuses alone: an index has the runs of one status in order, not of several."""
    return [replace(filter, statuses=(status,)) for status in dict.fromkeys(filter.statuses)] or [filter]


def uids_within(filter: Filter) -> tuple[str | None, str | None]:
    """Between which uids lie all runs that were created when the filter says: not before the first, before the second.

    A uid begins with the time of creation. Some time is added at both ends, for runs that were made before it was the
    same to the microsecond.
    """
    lo = None if filter.created_from is None else max(filter.created_from - UID_SLACK, 0)
    hi = None if filter.created_before is None else max(filter.created_before + UID_SLACK, 0)
    return (
        None if lo is None or lo >= UID_TIMES else f"{lo:013x}",
        None if hi is None or hi >= UID_TIMES else f"{hi:013x}",
    )


def taken_item(key: str) -> Item:
    """The place of an item that was taken: nothing but its key is kept."""
    return Item(key, "taken", 0, b"", wakes=False)


def moved(record: RunRecord) -> Moved:
    """What to say to whoever wants something of a run that lives elsewhere."""
    return Moved(record.id, record.away or "another store", settled=record.was is None)


def check_here(record: RunRecord) -> None:
    """Raise `Moved` if the run lives elsewhere."""
    if record.status is Status.AWAY:
        raise moved(record)


def check_takes(record: RunRecord) -> None:
    """Raise the reason if nothing can be left for the run any more."""
    check_here(record)
    if record.status in ENDED:
        raise RunEnded(
            record.id, f"it is {record.status}, so it takes in nothing more; fork it, or roll it back, first"
        )


def move_ended(record: RunRecord | None, write: EndMove, mail: Mapping[str, bool]) -> RunRecord | None:
    """The record after a move of the run has ended; None if it is not the one that the write means.

    ``mail`` are the keys of all items in its inbox, and whether they wake.
    """
    if record is None or record.hidden or record.status is not Status.AWAY or record.epoch != write.epoch:
        return None
    if write.mail is not None and sorted(mail) != sorted(write.mail):
        return None
    if write.here is None:
        return replace(record, was=None) if departed(record) else None
    if record.was is not Status.AWAY:
        return None
    # What came while it was being moved is taken in by whoever claims it.
    here = Status.READY if write.here in ENDED and mail else write.here
    record = replace(record, status=here, away=None, was=None)
    return woken(record) if any(mail.values()) else record


def departed(record: RunRecord) -> bool:
    """Whether a run was marked as gone, by a move that is not settled; its copy elsewhere may still be to arrive."""
    return record.was is not None and record.was is not Status.AWAY


def adoptable(here: RunRecord | None, record: RunRecord, entries: Sequence[Entry]) -> bool:
    """Whether a copy of the run is here that gives way to the one that comes in; raises `RunExists` if it does not.

    That it is one that nobody lives in is not enough: what comes in must go on with what is here, which forks may
    share, and must not be older.
    """
    if here is None:
        return False
    place = here.seq - record.base
    goes_on = here.root == record.root and 0 <= place < len(entries) and entries[place].hash == here.hash
    if not (here.hidden or here.status is Status.AWAY):
        raise RunExists(record.id)
    if not goes_on or (not here.hidden and record.epoch < here.epoch):
        raise RunExists(record.id, "a newer copy of it, or one with another history, is in this store")
    return True


def matches(record: RunRecord, filter: Filter, is_alive: Callable[[str], bool] = lambda worker: True) -> bool:
    """Whether the run is one of those that the filter asks for."""
    return (
        (filter.hidden is None or record.hidden == filter.hidden)
        and (not filter.statuses or record.status in filter.statuses)
        and (filter.workflow is None or record.workflow == filter.workflow)
        and (filter.parent is None or record.parent == filter.parent)
        and all(record.tags.get(name) == value for name, value in filter.tags)
        and (filter.prefix is None or record.id.startswith(filter.prefix))
        and (filter.created_from is None or record.created_at >= filter.created_from)
        and (filter.created_before is None or record.created_at < filter.created_before)
        and (filter.shares is None or any(link.uid == filter.shares for link in record.lineage))
        and (not filter.orphaned or (record.worker is not None and not is_alive(record.worker)))
    )
