"""The engine: one open store, the worker that holds runs of it, and the handles that users work with.

`Holdfast` is what `holdfast.open` gives. It makes `Run` handles (`holdfast.engine.run.handle`), whose writes pass
through a `Lease` (numbers, hashes, states) to the `Committer` (group commit) and on to the store; reads come back
through `Journals` (verified, decrypted, unpacked) into a `Fold`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Required, TypedDict, TypeVar, TypeVarTuple, Unpack, overload

from msgspec import UNSET, UnsetType

from holdfast.codec import Codec, Keyring
from holdfast.engine.access.client import Client
from holdfast.engine.access.engine import EFFECT_WAIT, MAX_BYTES, MAX_CRASHES, Engine
from holdfast.engine.access.heartbeat import DEFAULT_LEASE
from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.offload import aside
from holdfast.engine.access.operations import Async, Op, Operable, Operation, Sync
from holdfast.engine.admin import backup as archive
from holdfast.engine.admin import move as moving
from holdfast.engine.admin.keys import rotate_keys
from holdfast.engine.admin.prune import prune
from holdfast.engine.admin.recover import recover
from holdfast.engine.argument_checks import check_opening
from holdfast.engine.control.cancel import cancel_driven, cancel_losers, retry_children
from holdfast.engine.control.rollback import finish_rollback, report_finished
from holdfast.engine.execute import start as begin
from holdfast.engine.execute.children import child, undo_child
from holdfast.engine.run import finding
from holdfast.engine.run.handle import AsyncRun, Run, presented
from holdfast.engine.worker import queues, schedules
from holdfast.engine.worker.inbox_watch import Watch
from holdfast.engine.worker.queues import AsyncQueue
from holdfast.engine.worker.schedules import AsyncSchedule, CatchUp, Schedule
from holdfast.engine.workflow.inputs import QUEUE
from holdfast.errors import UsageError
from holdfast.kernel.model import Status
from holdfast.stores import open_store
from holdfast.stores.protocol import Store

if TYPE_CHECKING:
    from holdfast.engine.workflow.declare import Takes, Workflow
    from holdfast.stores.user_transaction import Connection

    class StartOptions(TypedDict, total=False):
        """What `Holdfast.start` takes beside the arguments of the workflow."""

        id: str | None
        tags: Mapping[str, str] | None
        deadline: float | None
        queue: str

    class EnqueueOptions(StartOptions, total=False):
        """What `Holdfast.enqueue` takes beside the arguments of the workflow."""

        priority: int
        delay: float | timedelta | datetime | None
        key: str | None
        dedup: str | None
        ttl: float | timedelta | None
        within: Connection | None

    class ScheduleOptions(TypedDict, total=False):
        """What `Holdfast.schedule` takes beside the arguments of the workflow."""

        cron: Required[str]
        id: Required[str]
        tz: str
        queue: str
        priority: int
        tags: Mapping[str, str] | None
        deadline: float | None
        catch_up: CatchUp
        paused: bool | UnsetType


A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class Holdfast(Operable, Sync):
    """An open store. Use it in a ``with`` statement, or ``async with`` for the same with awaits."""

    def __init__(self, engine: Engine) -> None:
        self.client = Client(engine, is_async=isinstance(self, Async))  # for Holdfast's own modules
        self._committer = engine.committer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.place}>"

    @property
    def _subject(self) -> Client:
        return self.client

    def _presented(self, value: Any) -> Any:
        return self.client.engine.upcalls.present(value, is_async=self.client.is_async)

    @property
    def place(self) -> str:
        """Where the store is, as messages name it: a URL without a password."""
        return self.client.place

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncHoldfast:
        return AsyncHoldfast(self.client.engine)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.engine.dismiss()  # here, on the loop that they work on
        await aside(self.client.store, self.close)

    def close(self) -> None:
        """Give up all claims and close the store. May be repeated."""
        self.client.engine.close()

    def register(self, type: type, **how: Any) -> type:
        """Make a type of yours known, so that stored values of it can be read. See `Codec.register`."""
        self.client.codec.register(type, **how)
        return type

    # --- runs

    if TYPE_CHECKING:

        def run(
            self,
            id: str,
            *,
            workflow: str | None = None,
            definition: Any = None,
            tags: Mapping[str, str] | None = None,
        ) -> Run: ...
        def get(self, id: str) -> Run: ...
        @overload
        def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
        @overload
        def start(self, workflow: Takes[R], /, **options: Unpack[StartOptions]) -> Run[R]: ...
        @overload
        def start(self, workflow: Takes[A, R], a: A, /, **options: Unpack[StartOptions]) -> Run[R]: ...
        @overload
        def start(self, workflow: Takes[A, B, R], a: A, b: B, /, **options: Unpack[StartOptions]) -> Run[R]: ...
        @overload
        def start(self, workflow: Takes[*Ts, R], /, *args: *Ts, **options: Unpack[StartOptions]) -> Run[R]: ...
        @overload
        def start(self, workflow: Workflow[..., R], /, *, id: str, **kwargs: Any) -> Run[R]: ...
        def start(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]
        @overload
        def enqueue(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
        @overload
        def enqueue(self, workflow: Takes[R], /, **options: Unpack[EnqueueOptions]) -> Run[R]: ...
        @overload
        def enqueue(self, workflow: Takes[A, R], a: A, /, **options: Unpack[EnqueueOptions]) -> Run[R]: ...
        @overload
        def enqueue(self, workflow: Takes[A, B, R], a: A, b: B, /, **options: Unpack[EnqueueOptions]) -> Run[R]: ...
        @overload
        def enqueue(self, workflow: Takes[*Ts, R], /, *args: *Ts, **options: Unpack[EnqueueOptions]) -> Run[R]: ...
        @overload
        def enqueue(self, workflow: Workflow[..., R], /, *, id: str, **kwargs: Any) -> Run[R]: ...
        def enqueue(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]
        @overload
        def schedule(self, workflow: Takes[Any], /, **options: Unpack[ScheduleOptions]) -> Schedule: ...
        @overload
        def schedule(self, workflow: Takes[A, Any], a: A, /, **options: Unpack[ScheduleOptions]) -> Schedule: ...
        @overload
        def schedule(
            self, workflow: Takes[A, B, Any], a: A, b: B, /, **options: Unpack[ScheduleOptions]
        ) -> Schedule: ...
        @overload
        def schedule(
            self, workflow: Takes[*Ts, Any], /, *args: *Ts, **options: Unpack[ScheduleOptions]
        ) -> Schedule: ...
        @overload
        def schedule(self, workflow: Workflow[..., Any], /, *, cron: str, id: str, **kwargs: Any) -> Schedule: ...
        def schedule(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]
    else:
        run = Operation(finding.run)
        get = Operation(finding.get)
        start = Operation(begin.start)
        enqueue = Operation(begin.enqueue)
    runs = Operation(finding.runs)

    # --- workflows

    queue = Operation(queues.queue)
    queues = Operation(queues.queues)
    if not TYPE_CHECKING:
        schedule = Operation(schedules.schedule)
    get_schedule = Operation(schedules.get_schedule)
    schedules = Operation(schedules.schedules)
    workers = Operation(finding.workers)

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
        asyncio.run(
            work(self.client.engine, concurrency=concurrency, queues=queues, until_idle=until_idle, grace=grace)
        )

    # --- looking after the store

    recover = Operation(recover)
    prune = Operation(prune)
    audit = Operation(finding.audit)
    rotate_keys = Operation(rotate_keys)
    backup = Operation(archive.backup)
    restore = Operation(archive.restore)
    move = Operation(moving.move)


class AsyncHoldfast(Holdfast, Async):
    """The same for async callers: every operation is awaited."""

    if TYPE_CHECKING:

        async def run(  # type: ignore[override]
            self,
            id: str,
            *,
            workflow: str | None = None,
            definition: Any = None,
            tags: Mapping[str, str] | None = None,
        ) -> AsyncRun: ...
        async def get(self, id: str) -> AsyncRun: ...  # type: ignore[override]
        @overload  # type: ignore[override]
        async def start(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]: ...
        @overload
        async def start(self, workflow: Takes[R], /, **options: Unpack[StartOptions]) -> AsyncRun[R]: ...
        @overload
        async def start(self, workflow: Takes[A, R], a: A, /, **options: Unpack[StartOptions]) -> AsyncRun[R]: ...
        @overload
        async def start(
            self, workflow: Takes[A, B, R], a: A, b: B, /, **options: Unpack[StartOptions]
        ) -> AsyncRun[R]: ...
        @overload
        async def start(
            self, workflow: Takes[*Ts, R], /, *args: *Ts, **options: Unpack[StartOptions]
        ) -> AsyncRun[R]: ...
        @overload
        async def start(self, workflow: Workflow[..., R], /, *, id: str, **kwargs: Any) -> AsyncRun[R]: ...
        async def start(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]
        @overload  # type: ignore[override]
        async def enqueue(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]: ...
        @overload
        async def enqueue(self, workflow: Takes[R], /, **options: Unpack[EnqueueOptions]) -> AsyncRun[R]: ...
        @overload
        async def enqueue(self, workflow: Takes[A, R], a: A, /, **options: Unpack[EnqueueOptions]) -> AsyncRun[R]: ...
        @overload
        async def enqueue(
            self, workflow: Takes[A, B, R], a: A, b: B, /, **options: Unpack[EnqueueOptions]
        ) -> AsyncRun[R]: ...
        @overload
        async def enqueue(
            self, workflow: Takes[*Ts, R], /, *args: *Ts, **options: Unpack[EnqueueOptions]
        ) -> AsyncRun[R]: ...
        @overload
        async def enqueue(self, workflow: Workflow[..., R], /, *, id: str, **kwargs: Any) -> AsyncRun[R]: ...
        async def enqueue(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]
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
        @overload  # type: ignore[override]
        async def schedule(self, workflow: Takes[Any], /, **options: Unpack[ScheduleOptions]) -> AsyncSchedule: ...
        @overload
        async def schedule(
            self, workflow: Takes[A, Any], a: A, /, **options: Unpack[ScheduleOptions]
        ) -> AsyncSchedule: ...
        @overload
        async def schedule(
            self, workflow: Takes[A, B, Any], a: A, b: B, /, **options: Unpack[ScheduleOptions]
        ) -> AsyncSchedule: ...
        @overload
        async def schedule(
            self, workflow: Takes[*Ts, Any], /, *args: *Ts, **options: Unpack[ScheduleOptions]
        ) -> AsyncSchedule: ...
        @overload
        async def schedule(
            self, workflow: Workflow[..., Any], /, *, cron: str, id: str, **kwargs: Any
        ) -> AsyncSchedule: ...
        async def schedule(self, *args: Any, **kwargs: Any) -> Any: ...  # type: ignore[misc]
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

        await work(self.client.engine, concurrency=concurrency, queues=queues, until_idle=until_idle, grace=grace)


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
        store = open_store(url)
    return Holdfast(new_engine(store, Codec(secrets=secrets), keys, lease, max_bytes, effect_wait, max_crashes))


def new_engine(store: Store, codec: Codec, keys: Keyring | None, lease: float, *limits: Any) -> Engine:
    """The engine of an open store, with what its lower layers ask of the higher ones."""
    engine = Engine(store, codec, keys, lease, *limits)
    engine.upcalls = _Upcalls()
    engine.watch = Watch(engine)
    engine.worker.at_beat = engine.watch.beat
    return engine


class _Upcalls:
    """See `holdfast.engine.access.engine.Upcalls`."""

    def finish_rollback(self, run: HeldRun, lease: Lease) -> Op[None]:
        report_finished(run.id, (yield from finish_rollback(run, lease)))

    def undo_child(self, run: HeldRun, id: str, *, force: bool) -> Op[str | None]:
        return (yield from undo_child(run, id, force=force))

    def call_child(
        self, scope: Any, call: tuple[str, int], workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Op[Any]:
        return (yield from child(scope, call, workflow, args, kwargs))

    def cancel_losers(self, run: HeldRun, lease: Lease) -> Op[None]:
        yield from cancel_losers(run, lease)

    def present(self, value: Any, *, is_async: bool) -> Any:
        return presented(value, AsyncRun if is_async else Run)

    def retry_children(self, run: HeldRun, lease: Lease, to: int) -> Op[None]:
        yield from retry_children(run, lease, to)

    def cancel(self, run: HeldRun, lease: Lease, wish: Any) -> Op[Status]:
        return (yield from cancel_driven(run, lease, wish))
