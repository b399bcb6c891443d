"""What all handles of one open store share: the store, the worker that holds its runs, and who is to be woken."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.codec import Codec, Keyring
from holdfast.engine.access.commit import Committer
from holdfast.engine.access.heartbeat import Worker
from holdfast.engine.access.journal_reader import Journals
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Op, drive
from holdfast.engine.access.wakeups import Bell
from holdfast.errors import RunError
from holdfast.kernel.model import Change, Status
from holdfast.stores.protocol import Store

if TYPE_CHECKING:
    from holdfast.engine.access.held_run import HeldRun

T = TypeVar("T")
MAX_BYTES = 64 * 1024 * 1024  # of one payload
EFFECT_WAIT = 30.0  # seconds for an effect in flight to end, when its branch is cancelled
MAX_CRASHES = 5  # of a process that executes one run alone, at the same place, until that run is blocked


class Tracer(Protocol):
    """What follows runs from outside, such as OpenTelemetry's spans. See `holdfast.integrations.otel`."""

    def context(self) -> dict[str, str]:
        """What is stored with a new run, so that its trace goes on wherever the run does."""

    def drive(self, execution: Any, call: Callable[[], Any]) -> Any:
        """Call the workflow's function, or give something to await that does."""

    def step(self, execution: Any, step: Any, key: str) -> AbstractContextManager[object]:
        """Entered while a step is carried out, with all its attempts."""

    def attempt(self, execution: Any, key: str, attempt: int) -> AbstractContextManager[object]:
        """Entered while the step's function is called."""


class Watching(Protocol):
    """Watches the inboxes of the runs that execute here. See `holdfast.engine.worker.inbox_watch`."""

    executions: dict[str, Any]  # `Execution`s, by the uids of their runs

    def watching(self, execution: Any) -> AbstractContextManager[None]:
        """Watch over an execution while it lasts."""

    def parts_of(self, execution: Any) -> list[Any]:
        """The executions of its children in this process."""

    def tell(self, uid: str) -> None:
        """Something was left for a run."""

    def beat(self) -> None:
        """There was a heartbeat."""

    def stop(self) -> None:
        """Watch no longer."""


class Stoppable(Protocol):
    """A worker of this process. See `holdfast.engine.worker.worker`."""

    def stop(self) -> None:
        """Claim nothing new, and release what executes here."""

    def joined(self, execution: Any) -> None:
        """An execution has begun while it works."""


class Upcalls(Protocol):
    """What a lower layer of the engine asks of a higher one. `holdfast.engine.app` provides it."""

    def finish_rollback(self, run: HeldRun, lease: Lease) -> Op[None]:
        """Finish a rollback that has begun, before anything else happens to the run."""

    def undo_child(self, run: HeldRun, id: str, *, force: bool) -> Op[str | None]:
        """Undo a child as a whole; what of it is irreversible, if anything."""

    def call_child(
        self, scope: Any, call: tuple[str, int], workflow: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Op[Any]:
        """The result of a workflow that a workflow calls as a child."""

    def cancel_losers(self, run: HeldRun, lease: Lease) -> Op[None]:
        """Cancel the children of branches that lost a race."""

    def present(self, value: Any, *, is_async: bool) -> Any:
        """The result of an operation as users get it: with handles in place of runs."""

    def retry_children(self, run: HeldRun, lease: Lease, to: int) -> Op[None]:
        """Retry the children that were cancelled after the entry that the run is rolled back to."""

    def cancel(self, run: HeldRun, lease: Lease, wish: Any) -> Op[Status]:
        """Cancel a run that was about to end: somebody has asked for that before."""


class Engine:
    """What all handles of one open store share."""

    upcalls: Upcalls
    watch: Watching

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
        self.held: set[HeldRun] = set()
        self.bell = Bell(store)
        self.crews: set[Stoppable] = set()
        self.tracer: Tracer | None = None
        self.acting: set[tuple[str, str]] = set()  # the at-most-once steps that are being called: uid of the run, key
        self.stuck: dict[str, tuple[Lease, Change | None]] = {}  # leases that could not be given up, by uid
        self.closed = False
        self._dismissed = False

    @property
    def executions(self) -> dict[str, Any]:
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
                lease = run.lease
                if lease is not None:
                    with suppress(RunError):  # of a damaged run; its lease ends with the worker
                        drive(run.release(lease), self.committer)
        finally:  # also where the disk is full: the leases end with the worker
            self.worker.stop()
            self.store.close()
