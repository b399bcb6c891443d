"""The engine: one open store, the worker that holds runs of it, and the handles that users work with.

`Holdfast` is what `holdfast.open` gives. It makes `Run` handles (`holdfast.engine.run.handle`), whose writes pass
through a `Lease` (numbers, hashes, states) to the `Committer` (group commit) and on to the store; reads come back
through `Journals` (verified, decrypted, unpacked) into a `Fold`.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import UNSET, UnsetType

from holdfast.codec import Codec, Keyring, WrappedKey
from holdfast.engine.access.commit import Committer
from holdfast.engine.access.heartbeat import DEFAULT_LEASE, Worker
from holdfast.engine.access.journal_reader import Journals
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.offload import aside
from holdfast.engine.access.operations import Async, Nap, Op, Operable, Operation, Read, Settle, drive
from holdfast.engine.access.wakeups import Bell
from holdfast.engine.admin import backup as archive
from holdfast.engine.admin import move as moving
from holdfast.engine.argument_checks import (
    check_opening,
    check_retention,
    check_runs_page,
    check_texts,
    micros_of,
    statuses_of,
    tags_of,
)
from holdfast.engine.execute import start as begin
from holdfast.engine.execute.inputs import QUEUE
from holdfast.engine.run.handle import AsyncRun, Run, run_info
from holdfast.engine.worker import queues, schedules
from holdfast.engine.worker.inbox_watch import Watch
from holdfast.engine.worker.queues import AsyncQueue
from holdfast.engine.worker.schedules import AsyncSchedule, CatchUp
from holdfast.engine.worker.schedules import rotate_keys as rotate_schedules
from holdfast.errors import (
    Claimed,
    DefinitionChanged,
    HoldfastError,
    Moved,
    RunDamaged,
    RunError,
    RunNotFound,
    StoreError,
    UsageError,
)
from holdfast.kernel.admission import is_suspect
from holdfast.kernel.clock import SystemClock, new_uid
from holdfast.kernel.journal import Data, genesis, next_entry
from holdfast.kernel.model import ENDED, Change, Create, Filter, Kind, RunRecord, Status
from holdfast.kernel.rules import ANY, check_id
from holdfast.stores.protocol import Store
from holdfast.views import AuditReport, Page, RunInfo

if TYPE_CHECKING:
    from holdfast.engine.worker.worker import Crew
    from holdfast.engine.workflow.declare import StepFunction, Workflow
    from holdfast.engine.workflow.execution import Execution
    from holdfast.stores.user_transaction import Connection

T = TypeVar("T")
MAX_BYTES = 64 * 1024 * 1024  # of one payload
BLOCKED_SEEN = 1000  # runs that are looked at to find the children which others of a page wait for
EFFECT_WAIT = 30.0  # seconds for an effect in flight to end, when its branch is cancelled
MAX_CRASHES = 5  # of a process that executes one run alone, at the same place, until that run is blocked
IN_A_ROW, TURN = 4, 0.005  # how many runs are deleted before a pause of so many seconds, on this machine
SWEPT = 100  # and how many at once, across a network


class Tracer(Protocol):
    """What follows runs from outside, such as OpenTelemetry's spans. See `holdfast.integrations.otel`."""

    def context(self) -> dict[str, str]:
        """What is stored with a new run, so that its trace goes on wherever the run does."""

    def drive(self, execution: Execution, call: Callable[[], Any]) -> Any:
        """Call the workflow's function, or give something to await that does."""

    def step(self, execution: Execution, step: StepFunction[..., Any], key: str) -> AbstractContextManager[object]:
        """Entered while a step is carried out, with all its attempts."""

    def attempt(self, execution: Execution, key: str, attempt: int) -> AbstractContextManager[object]:
        """Entered while the step's function is called."""


class Engine:
    """What all handles of one open store share."""

    def __init__(
        self,
        store: Store,
        codec: Codec,
        keyring: Keyring | None,
        lease: float,
        max_bytes: int,
        effect_wait: float = EFFECT_WAIT,
        max_crashes: int = MAX_CRASHES,
    ) -> None:
        self.store = store
        self.max_crashes = max_crashes
        self.codec = codec
        self.committer = Committer(store)
        self.journals = Journals(store, codec, keyring, max_bytes)
        self.effect_wait = effect_wait
        self.worker = Worker(store, lease)
        self.held: set[Run] = set()
        self.bell = Bell(store)
        self.watch = Watch(self)
        self.crews: set[Crew] = set()
        self.tracer: Tracer | None = None
        self.worker.at_beat = self.watch.beat
        self.acting: set[tuple[str, str]] = set()  # the at-most-once steps that are being called: uid of the run, key
        self.stuck: dict[str, tuple[Lease, Change | None]] = {}  # leases that could not be given up, by uid
        self.closed = False
        self._dismissed = False

    @property
    def executions(self) -> dict[str, Execution]:
        """The workflows that are driven here now, by the uids of their runs."""
        return self.watch.executions

    def in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        """Call a function in a thread of its own, for a caller on an event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(set: Callable[[Any], None], value: Any) -> None:
            if not future.done():
                set(value)

        def call() -> None:
            try:
                value = work()
            except BaseException as error:  # it is raised where the thread is awaited
                tell, outcome = future.set_exception, error
            else:
                tell, outcome = future.set_result, value  # type: ignore[assignment]
            with suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(settle, tell, outcome)

        threading.Thread(target=copy_context().run, args=(call,), name="holdfast-run", daemon=True).start()
        return future

    def dismiss(self) -> None:
        """Let those who work here stop; once, since who is told twice waits for no step."""
        if not self._dismissed:
            self._dismissed = True
            for crew in list(self.crews):
                crew.stop()

    def close(self) -> None:
        """Give up all claims and close the store."""
        if self.closed:
            return
        self.closed = True
        self.dismiss()
        self.watch.stop()
        try:
            for run in list(self.held):
                lease = run._lease
                if lease is not None:
                    with suppress(RunError):  # of a damaged run; its lease ends with the worker
                        drive(run._let_go(lease), self.committer)
        finally:  # also where the disk is full: the leases end with the worker
            self.worker.stop()
            self.store.close()


class Holdfast(Operable):
    """An open store. Use it in a ``with`` statement, or ``async with`` for the same with awaits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._codec = engine.codec
        self._journals = engine.journals
        self._committer = engine.committer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._store.place}>"

    @property
    def place(self) -> str:
        """Where the store is, as messages name it: a URL without a password."""
        return self._store.place

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncHoldfast:
        return AsyncHoldfast(self._engine)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dismiss()  # here, on the loop that they work on
        await aside(self._store, self.close)

    def close(self) -> None:
        """Give up all claims and close the store. May be repeated."""
        self._engine.close()

    def register(self, type: type, **how: Any) -> type:
        """Make a type of yours known, so that stored values of it can be read. See `Codec.register`."""
        self._codec.register(type, **how)
        return type

    # --- runs

    @Operation
    def run(
        self,
        id: str,
        *,
        workflow: str | None = None,
        definition: Any = None,
        tags: Mapping[str, str] | None = None,
    ) -> Op[Run]:
        """The run of this id, made if there is none.

        ``workflow`` names what the run is a run of, and ``definition`` is anything that describes it (its steps,
        its version): a run that was made for another one is refused with `DefinitionChanged`.
        """
        check_id(id)
        check_texts(workflow=workflow)
        labels = tags_of(tags)
        digest = self._codec.digest(self._codec.encode(definition, "definition")) if definition is not None else None
        record = yield Read(lambda: self._store.get(id))
        if record is None:
            create = self._first(id, workflow, digest, labels)
            record = yield Settle(self._committer.submit(create))
        self._check_same(record, workflow, digest)
        return self._handle(record)

    def _first(self, id: str, workflow: str | None, digest: str | None, tags: dict[str, str]) -> Create:
        now = self._store.clock.now()
        uid = new_uid(self._store.clock, now)
        key = self._journals.new_key(uid)
        data: Data = {"definition": digest}
        payload = self._journals.seal(uid, key is not None, f"0/{Kind.CREATED}", data, "run")
        root = genesis(uid)
        record = RunRecord(
            uid=uid,
            id=id,
            created_at=now,
            root=root,
            workflow=workflow,
            tags=tags,
            key_id=key.key_id if key else None,
            key_blob=key.blob if key else None,
        )
        return self._journals.create(record, (next_entry(root, 0, Kind.CREATED, now, None, payload),))

    def _check_same(self, record: RunRecord, workflow: str | None, digest: str | None) -> None:
        if workflow is not None and record.workflow != workflow:
            raise DefinitionChanged(
                record.id, f"it is a run of workflow {record.workflow!r}, not of {workflow!r}; use another id"
            )
        if digest is not None:
            uid, first = self._journals.entry(record, 0)
            made_for = self._journals.data(record.id, uid, first).get("definition")
            if made_for != digest:
                raise DefinitionChanged(
                    record.id,
                    "it was made for another definition; open it without definition= to go on all the same, or use "
                    "another id",
                )

    @property
    def _run_class(self) -> type[Run]:
        return AsyncRun if isinstance(self, Async) else Run

    def _handle(self, record: RunRecord) -> Run:
        return self._run_class(self._engine, record.id, record.uid)

    @Operation
    def get(self, id: str) -> Op[Run]:
        """The run of this id; raises `RunNotFound` if there is none."""
        record = yield Read(lambda: self._store.get(check_id(id)))
        if record is None:
            raise RunNotFound(
                id,
                f"there is no such run in {self._store.place}; hf.start(workflow, ..., id={id!r}) would make it, or "
                f"hf.run({id!r}) for a loop of your own",
            )
        return self._handle(record)

    @Operation
    def runs(
        self,
        *,
        status: Status | str | Collection[Status | str] | None = None,
        workflow: str | None = None,
        tags: Mapping[str, str] | None = None,
        prefix: str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Op[Page[RunInfo]]:
        """Runs, newest first, filtered and paged: give the page's ``next`` as ``after=``."""
        check_texts(workflow=workflow, prefix=prefix)
        check_runs_page(limit, after)
        filter = Filter(
            statuses=statuses_of("status", status),
            workflow=workflow,
            tags=tuple(sorted(tags_of(tags).items())),
            prefix=prefix,
            created_from=micros_of("created_from", created_from),
            created_before=micros_of("created_before", created_before),
        )
        found = yield Read(lambda: self._store.find(filter, before=after, limit=limit + 1))
        blocked: dict[str | None, RunRecord] = {}  # by the parents that wait for them
        if any(record.status is Status.WAITING and record.queue is not None for record in found[:limit]):
            stuck = Filter(statuses=(Status.BLOCKED,))
            blocked = {one.parent: one for one in (yield Read(lambda: self._store.find(stuck, limit=BLOCKED_SEEN)))}
        page = [
            run_info(record, blocked.get(record.uid) if record.status is Status.WAITING else None)
            for record in found[:limit]
        ]
        return Page(tuple(page), page[-1].uid if len(found) > limit else None)

    # --- workflows

    start = Operation(begin.start)
    enqueue = Operation(begin.enqueue)
    queue = Operation(queues.queue)
    list_queues = Operation(queues.list_queues)
    schedule = Operation(schedules.schedule)
    get_schedule = Operation(schedules.get_schedule)
    schedules = Operation(schedules.schedules)

    def work(
        self,
        *,
        concurrency: int = 10,
        queues: Collection[str] = (QUEUE,),
        until_idle: bool = False,
        grace: float = 30.0,
    ) -> None:
        """Claim the runs of these queues that are due and drive them, ``concurrency`` at a time.

        Due are those that were enqueued, answered, woken or released, and those whose holder died. Returns after
        SIGTERM or SIGINT, when what it drives was released; steps have ``grace`` seconds to end. With ``until_idle``
        it returns when nothing is left to do or to wait for.
        """
        import asyncio

        from holdfast.engine.worker.worker import work

        with suppress(RuntimeError):
            asyncio.get_running_loop()
            raise UsageError("work() would block the event loop; open the store with `async with`, and await hf.work()")
        asyncio.run(work(self._engine, concurrency=concurrency, queues=queues, until_idle=until_idle, grace=grace))

    # --- looking after the store

    @Operation
    def recover(self, *, dry_run: bool = False) -> Op[tuple[str, ...]]:
        """Make the runs ready again whose holder died; their ids.

        Not needed for going on: a dead holder's run can be claimed at any time. It makes the list of runs true, and
        finishes rollbacks that were under way. A run whose holders died again and again at the same place is left to
        whoever executes it next, in a process of its own. With ``dry_run`` nothing is done.
        """
        recovered: list[str] = []
        left = yield Read(lambda: self._store.orphans(limit=1_000_000))
        driven = [one for one in left if one.queue and one.rollback is None and one.status is not Status.BLOCKED]
        suspects = {one.uid for one in driven if is_suspect(one)}
        orphans = [one for one in left if one.uid not in suspects]
        if dry_run:
            return tuple(record.id for record in orphans)
        for record in orphans:
            run = self._handle(record)
            try:
                lease = yield from run._claim(ANY, rolls=record.status is Status.BLOCKED)
                parked = Change(status=Status.BLOCKED, release=True, reason=record.reason)
                yield from run._let_go(lease, parked if record.status is Status.BLOCKED else None)
            except StoreError:
                raise
            except HoldfastError:
                continue  # somebody was faster, it had ended, it is parked and says why, or its key is not here
            recovered.append(record.id)
        return tuple(recovered)

    @Operation
    def prune(
        self,
        *,
        older_than: timedelta | None = None,
        keep_last: int = 0,
        statuses: Collection[Status | str] | None = None,
        dry_run: bool = False,
    ) -> Op[tuple[str, ...]]:
        """Delete runs of these statuses (by default: ended ones), but for the newest few; returns their ids.

        ``older_than`` spares those that were written to within that time. A run that somebody holds, or that is in the
        middle of its rollback, is never touched, nor are children of a run that has not ended, nor entries that a fork
        shares. With ``dry_run`` nothing is deleted. A moved run has the status ``away``.
        """
        if older_than is None and not keep_last and statuses is None:
            raise UsageError("prune() would delete every ended run: say older_than=, keep_last= or statuses=")
        check_retention(older_than, keep_last)
        now = self._store.clock.now()
        limit = now - older_than // timedelta(microseconds=1) if older_than is not None else now
        # What was made later was written to later; but if some are spared by their number, all are counted.
        made_by = None if keep_last else limit + 1
        wanted = statuses_of("statuses", ENDED if statuses is None else statuses)
        filter = Filter(statuses=wanted, created_before=made_by)
        pruned: list[str] = []
        at_once = SWEPT if self._store.networked else IN_A_ROW
        seen, before = 0, None
        while page := (yield Read(lambda before=before: self._store.find(filter, before=before, limit=500))):  # type: ignore[misc]
            before = page[-1].uid
            doomed: list[RunRecord] = []
            for record in page:
                seen += 1
                kept = seen <= keep_last or record.updated_at > limit
                if kept or record.worker is not None or record.was is not None or record.rollback is not None:
                    continue
                if record.parent is None or not (yield Read(lambda record=record: self._is_needed(record))):  # type: ignore[misc]
                    doomed.append(record)
            for n in range(0, len(doomed), at_once):
                some = doomed[n : n + at_once]
                gone = some if dry_run else (yield Read(lambda some=some: self._swept(some)))  # type: ignore[misc]
                pruned += [record.id for record in gone]
                if not dry_run and self._is_others_turn():
                    yield Nap(self._store.clock, TURN)
        return tuple(pruned)

    def _swept(self, records: Sequence[RunRecord]) -> list[RunRecord]:
        """Delete these, if they are as they were; which ones were. What shares entries is looked at by itself."""
        gone = self._store.sweep(records)
        return [record for record in records if record.uid in gone or self._delete(record)]

    def _is_others_turn(self) -> bool:
        """Whether one who writes much should pause, so that others on this machine can: they wait for one lock."""
        return not self._store.networked and isinstance(self._store.clock, SystemClock)

    def _is_needed(self, record: RunRecord) -> bool:
        """Whether the run is a part of one that has not ended, and may still ask for its result or take it back."""
        parent = self._store.journal(record.parent) if record.parent is not None else None
        return parent is not None and not parent.hidden and parent.status not in ENDED | {Status.AWAY}

    def _delete(self, record: RunRecord) -> bool:
        try:
            return self._store.delete(record.uid, expected=record)
        except (Claimed, Moved, RunDamaged):
            return False

    @Operation
    def audit(self, run: str | Run, *, head: str | None = None) -> Op[AuditReport]:
        """Verify a run's journal. See `Run.audit`."""
        handle = run if isinstance(run, Run) else (yield from type(self).get.function(self, run))
        return (yield from type(handle).audit.function(handle, head=head))

    @Operation
    def rotate_keys(self) -> Op[int]:
        """Wrap the data keys of all runs and schedules with the current master key; how many were. Entries stay."""
        keyring = self._journals.keyring
        if keyring is None:
            raise UsageError("open the store with keys= to rotate them")
        rotated, before = 0, None
        everything = Filter(hidden=None)
        while page := (yield Read(lambda before=before: self._store.find(everything, before=before, limit=500))):  # type: ignore[misc]
            before = page[-1].uid
            for record in page:
                if record.key_id in (None, keyring.current) or record.key_blob is None:
                    continue
                wrapped = WrappedKey(record.key_id, record.key_blob)
                new = keyring.rewrap(record.uid, wrapped, self._store.clock, of=f"run {record.id!r}")
                swap: Callable[[], bool] = lambda record=record, new=new: self._store.rewrap(  # type: ignore[misc]  # noqa: E731
                    record.uid, record.key_blob, new.key_id, new.blob
                )
                rotated += yield Read(swap)
        return rotated + int((yield Read(lambda: rotate_schedules(self._engine))))

    backup = Operation(archive.backup)
    restore = Operation(archive.restore)
    move = Operation(moving.move)


class AsyncHoldfast(Holdfast, Async):
    """The same for async callers: every operation is awaited."""

    if TYPE_CHECKING:

        async def run(
            self,
            id: str,
            *,
            workflow: str | None = None,
            definition: Any = None,
            tags: Mapping[str, str] | None = None,
        ) -> AsyncRun: ...
        async def get(self, id: str) -> AsyncRun: ...
        async def start(
            self,
            workflow: Workflow[..., Any],
            /,
            *args: Any,
            id: str | None = None,
            tags: Mapping[str, str] | None = None,
            deadline: float | None = None,
            queue: str = QUEUE,
            **kwargs: Any,
        ) -> AsyncRun: ...
        async def enqueue(
            self,
            workflow: Workflow[..., Any],
            /,
            *args: Any,
            id: str | None = None,
            tags: Mapping[str, str] | None = None,
            deadline: float | None = None,
            queue: str = QUEUE,
            priority: int = 0,
            delay: float | timedelta | datetime | None = None,
            key: str | None = None,
            dedup: str | None = None,
            ttl: float | timedelta | None = None,
            within: Connection | None = None,
            **kwargs: Any,
        ) -> AsyncRun: ...
        async def queue(
            self,
            name: str,
            *,
            limit: int | UnsetType | None = UNSET,
            per_worker: int | UnsetType | None = UNSET,
            per_key: int | UnsetType | None = UNSET,
            rate: tuple[int, float] | UnsetType | None = UNSET,
            paused: bool | UnsetType = UNSET,
            by: str | None = None,
        ) -> AsyncQueue: ...
        async def schedule(
            self,
            workflow: Workflow[..., Any],
            /,
            *args: Any,
            cron: str,
            id: str,
            tz: str = "UTC",
            queue: str = QUEUE,
            priority: int = 0,
            tags: Mapping[str, str] | None = None,
            deadline: float | None = None,
            catch_up: CatchUp = "one",
            paused: bool | UnsetType = UNSET,
            **kwargs: Any,
        ) -> AsyncSchedule: ...
        async def get_schedule(self, id: str) -> AsyncSchedule: ...

    async def work(  # type: ignore[override]
        self,
        *,
        concurrency: int = 10,
        queues: Collection[str] = (QUEUE,),
        until_idle: bool = False,
        grace: float = 30.0,
    ) -> None:
        """The same on this event loop. Cancel it to stop."""
        from holdfast.engine.worker.worker import work

        await work(self._engine, concurrency=concurrency, queues=queues, until_idle=until_idle, grace=grace)


def open(
    url: str,
    *,
    keys: Keyring | None = None,
    lease: float = DEFAULT_LEASE,
    max_bytes: int = MAX_BYTES,
    effect_wait: float = EFFECT_WAIT,
    max_crashes: int = MAX_CRASHES,
    secrets: Mapping[str, str | bytes] | Callable[[str], str | bytes | None] | None = None,
    store: Store | None = None,
) -> Holdfast:
    """Open a store: ``memory://``, ``files:///path`` or ``sqlite:///path``; it is made if there is none.

    ``keys`` encrypts everything that is put in. ``lease`` is how many seconds a claim outlives its last heartbeat.
    ``max_bytes`` is the largest payload. ``effect_wait`` is how many seconds a step with an effect and no timeout is
    awaited when its branch is cancelled. A run is blocked if its process died ``max_crashes`` times in a row at one
    place while it executed nothing else. ``secrets`` gives the values of `Secret` arguments by their names, to a
    process that goes on with a run which another one started. A ``store`` of one's own is used in place of the URL.
    """
    check_opening(keys, lease, max_bytes, effect_wait, max_crashes)
    if store is None:
        from holdfast.stores import open_store

        store = open_store(url)
    return Holdfast(Engine(store, Codec(secrets=secrets), keys, lease, max_bytes, effect_wait, max_crashes))
