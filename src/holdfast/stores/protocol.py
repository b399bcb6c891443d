"""What every store can do.

A store is synchronous. Each method is one atomic transition, or one read, named by a verb of the domain:

- a run is **created** and its journal **appended** to by `Store.apply`, many writes in one transaction;
- a worker **beats** while it lives, and **claims** runs: the claim gives the run a new epoch, and from then on a
  write with an older epoch is refused. A claim of a run whose holder is alive is refused;
- a worker that looks for work **takes** what is due, within the limits of the queues;
- everybody else **posts** items into the run's inbox, each under a key that can be used once;
- the engine's own **documents** (what a queue's limits are, when a schedule is due) are replaced by compare and set.

`holdfast.kernel.rules` holds the decisions that all stores share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, runtime_checkable

from holdfast.errors import HoldfastError
from holdfast.kernel.clock import Clock
from holdfast.kernel.model import (
    Append,
    Backlog,
    Document,
    Enlisted,
    Entry,
    Filter,
    Item,
    Order,
    Outlook,
    RunRecord,
    Status,
    Write,
)
from holdfast.kernel.rules import LIVE, Outcome

LOOK_EVERY = 0.05  # seconds between two looks at a store on this machine, where one costs next to nothing
READER = WRITER = 1  # the format that this code reads and writes


class Store(Protocol):
    """Where journals are kept.

    ``place`` names it in messages. Payloads longer than ``compress_over`` bytes are compressed; never, if it is None.
    The calls of one that is ``networked`` take long enough to hold up an event loop, so they are made beside it.
    """

    place: str
    clock: Clock
    compress_over: int | None
    networked: bool

    @property
    def look_every(self) -> float:
        """After how many seconds it is worth while to ask again whether others have committed something."""

    def get(self, id: str | None = None, *, uid: str | None = None) -> RunRecord | None:
        """The visible run of this id; or the run of this uid, hidden or not."""

    def find(self, filter: Filter, *, before: str | None = None, limit: int = 50) -> list[RunRecord]:
        """Runs, newest first by uid; ``before`` is the uid of the last one of the page before."""

    def read(
        self, uid: str, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        """Own entries of a journal with lo <= seq <= hi, in order: only saves, all but saves, or both (None).

        Without ``payloads`` they are left empty, which is cheaper where they are large.
        """

    def inbox(self, uid: str, *, taken: bool = False) -> list[Item]:
        """Items that were not taken yet, oldest first. They are not chained, so the store itself detects damage.

        With ``taken``, those that were taken, by key: see `holdfast.kernel.rules.taken_item`.
        """

    def look(self, queues: Collection[str], workflows: Collection[str], *, limit: int = 100) -> Outlook:
        """What there is to do in these queues, for these workflows. With a limit of 0, only when to look again.

        A run is due if nobody holds it, and it is ready, or the time for which it waits has come. Those of a higher
        priority come first, then those that are due longest: a waiting run is due since its time; a ready one counts as
        due since it was created. Runs whose holder died are orphans: see `Filter`.
        """

    def take(self, order: Order) -> list[RunRecord]:
        """Claim for the worker what is due, and what a dead holder left, as far as the limits of the queues allow.

        Which ones, says `holdfast.kernel.admission.admitted`. Of many who take at once no two get the same run, and
        together they stay within the limits, which all of them are told alike. What was claimed otherwise counts too.
        """

    def backlog(self) -> dict[str, Backlog]:
        """What there is in each queue that has a run which has not ended, or is held."""

    def counts(self, upto: int) -> dict[Status, int]:
        """How many runs of each status there are, each counted up to this many; hidden ones do not count."""

    def version(self) -> int:
        """A number that is another one whenever something may have been committed, by anybody. Cheap to ask for."""

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        """Make the writes in one transaction; each succeeds or fails by itself.

        A `Create` gives the record that now exists, an `Append` and an `Adopt` give None, the others whether something
        was done; a refused write gives its error. An append that ends the run is refused with `InboxNotEmpty` while its
        inbox holds an item that it does not take.
        """

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE, *, alone: bool = False) -> RunRecord:
        """Give the run to the worker under a new epoch. ``alone`` says that its process executes no other run.

        Raises `Claimed` while another live worker holds it, `RunEnded` or `RunBlocked` if its status is not one of
        those allowed, `Moved` if it lives elsewhere, `RunNotFound` if it is gone.
        """

    def beat(self, worker: str, lease: float) -> None:
        """Let the leases of a worker hold for this many seconds from now. The first beat of a worker registers it.

        With a lease of 0 the worker retires: whatever it still holds may be claimed at once. A worker belongs to the
        handle that registered it; `close` retires all of its workers.
        """

    def workers(self) -> list[Enlisted]:
        """The workers that have registered and not retired, by name."""

    def delete(self, records: Sequence[RunRecord]) -> list[bool | HoldfastError]:
        """Delete the runs that are still as they were read, or hide those whose entries forks share.

        For each: whether it was deleted, or why not (`Claimed` while a live worker holds it, `Moved` while it is being
        moved, `RunDamaged`). False means that it is gone, or was claimed or written to since.
        """

    def documents(self, kind: str, name: str | None = None) -> list[Document]:
        """All documents of a kind, by name; or the one of this name, if there is one."""

    def put_document(self, kind: str, name: str, value: bytes | None, expected: int | None) -> bool:
        """Make or replace a document, or delete it (None), if its version is the expected one (None: there is none).

        False, and nothing is done, if it is not.
        """

    def close(self) -> None:
        """Retire the workers of this handle and give up all resources. May be repeated."""


@runtime_checkable
class Transacting(Protocol):
    """A store that lets a step write to the same database, in one transaction with the step's entry."""

    def transact(self, act: Callable[[Any], Append]) -> HoldfastError | None:
        """Call ``act`` with the store's own connection, in a transaction, and append what it returns.

        Both last, or neither: if the append is refused, what ``act`` wrote is rolled back and the refusal returned. So
        it is if the same append was made before, which is no error. What ``act`` raises rolls everything back and is
        raised as it is. ``act`` can neither end the transaction nor write to the store's tables (`UsageError`); it must
        not keep the connection, nor use the store for anything else meanwhile.
        """


@runtime_checkable
class Telling(Protocol):
    """A store that tells by itself when others have committed something, sooner than one would ask."""

    @property
    def hears(self) -> bool:
        """Whether what others commit is told at present."""

    def listen(self, heard: Callable[[str | None], None]) -> None:
        """Call ``heard`` from now on, in any thread, soon after another handle committed something of interest.

        It is given the uid of the run for which an item was posted; None, if it is something else. Nobody may rely on
        it: what is told may be lost, with the connection by which it is told.
        """

    def tell(self) -> None:
        """Tell the others that something was committed, of which they are not told by itself: a document."""


@runtime_checkable
class Examined(Protocol):
    """A store on a server, whose settings can make less of what it promises."""

    def weaknesses(self) -> list[str]:
        """What in the server's settings weakens a promise, what that means, and what to do about it."""


def write_one(store: Store, write: Write) -> bool:
    """Make one write; whether it did something. Raises its refusal."""
    [outcome] = store.apply([write])
    if isinstance(outcome, HoldfastError):
        raise outcome
    return outcome is not False


def find_document(store: Store, kind: str, name: str) -> Document | None:
    """The document of this kind and name."""
    return next(iter(store.documents(kind, name)), None)
