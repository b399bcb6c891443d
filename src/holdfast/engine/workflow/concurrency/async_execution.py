"""The execution of an async workflow: its branches are tasks, and a wait parks one of them on a future.

Every task that the workflow creates (with `asyncio.gather`, a task group, `create_task`) gets a scope of its own, named
after the task or what it executes (`task_scopes`), so that keys are stable whatever the interleaving.

When nothing is active and all tasks wait for each other or for something durable, the run is **quiet**: the lease is
given up and the tasks are cancelled. A task that waits for something else (a socket, `asyncio.sleep`) keeps the run
going (`holdfast.engine.workflow.concurrency.idle`). While anything is parked, a look at all of this is always under
way: at once after something happened, and now and then in any case.

What a durable call gives is handed to its branch **in turn** (`turns`): in the order of the journal, and only when
nobody is busy with what was handed out before. So branches that share something in memory see the same order when they
are replayed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Call, Op, Read, drive_async
from holdfast.engine.log import WARNING, tell
from holdfast.engine.workflow.concurrency.idle import RUNS, is_busy, shielded, waits_for
from holdfast.engine.workflow.concurrency.task_scopes import install_task_factory
from holdfast.engine.workflow.concurrency.thread_bridge import current_bridge, waiting_here
from holdfast.engine.workflow.concurrency.turns import Turns
from holdfast.engine.workflow.declare import Workflow
from holdfast.engine.workflow.execution import Execution
from holdfast.engine.workflow.outcomes import Aborted, Expired, Outcome, Raised, Released, Returned, Suspended, Unwind
from holdfast.engine.workflow.replay_gate import BUSY, IDLE, OUTSIDE, Attempt, Gate
from holdfast.engine.workflow.scope import Scope, current_scope, driving
from holdfast.engine.workflow.step import StepCall
from holdfast.engine.workflow.waiting import IN_PLACE
from holdfast.errors import UsageError
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.fold import Failed, Step
from holdfast.kernel.model import Append

if TYPE_CHECKING:
    from holdfast.engine.access.commit import Ticket

T = TypeVar("T")
LOOK_AGAIN = 0.05  # seconds after which a workflow that was not quiet is looked at again
PATIENCE = 5.0  # seconds after which it is told that a cancelled task does not end
STILL, STILL_MANY = 3, 6  # rounds of the loop in which nothing may happen until the next one has its turn
STILL_IDLE = 10  # rounds until those who are held may be idle for good
FEW = 64  # so many tasks are looked at in each round
SPIN = 200  # rounds after which a task that only spins is not waited for

_driven: Counter[int] = Counter()  # how many workflows are driven by the loop of each thread


class AsyncExecution(Execution):
    """A workflow of tasks that is being driven under a lease."""

    def __init__(self, run: HeldRun, lease: Lease, workflow: Workflow[..., Any]) -> None:
        super().__init__(run, lease, workflow)
        self.tasks: set[asyncio.Task[Any]] = set()
        self._scopes: dict[asyncio.Task[Any], Scope] = {}
        self._guests: set[asyncio.Task[Any]] = set()  # those that have no scope of their own
        self._held: set[asyncio.Future[None]] = set()  # by those who are held at the gate
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._parked: dict[asyncio.Future[None], tuple[str, int | None]] = {}
        self._borrowed: dict[str, str] = {}  # in which branch a call is carried out that another one made, by key
        self._awaited_at: dict[str, str] = {}  # in which branch something is waited for, by key
        self._quiet = self._loop.create_future()
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._still = 0
        self._drainer: asyncio.Task[None] | None = None
        self._has_mail = False
        self._has_looked = False  # into the inbox, since the run was claimed
        fold = lease.fold
        recorded = (found.seq for known in (fold.steps, fold.failures) for found in known.values())
        self._turns = Turns(recorded)
        self._acting: set[asyncio.Task[Any]] = set()  # the tasks that are in a step which is not in the journal yet

    async def drive(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
        """Call the workflow's function; how it went."""
        install_task_factory(self._loop, AsyncExecution)
        context = copy_context()
        context.run(current_scope.set, self.root)
        call: Any = partial(self.workflow.function, *args, **kwargs)
        tracer = self.engine.tracer
        function = call() if tracer is None else tracer.drive(self, call)
        _driven[self._thread] += 1
        driving.add(self._thread)
        root = asyncio.Task(function, loop=self._loop, context=context)
        self.follow(root, self.root)
        deadline = self._watch_deadline()
        try:
            await asyncio.wait({root, self._quiet}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            _driven[self._thread] -= 1
            if not _driven[self._thread]:
                driving.discard(self._thread)
            if deadline is not None:
                deadline.cancel()
            if not root.done() and self.outcome is None:  # whoever awaits this was cancelled
                self.stop(Suspended())
        if self.outcome is None and root.done():
            try:
                self.outcome = Returned(root.result())
            except Exception as error:  # of the user's function, which may raise anything
                self.outcome = Raised(error)
            except GeneratorExit:  # which would end the operation that drives this, and not the workflow
                self.outcome = Raised(RuntimeError("the workflow raised GeneratorExit"))
            except asyncio.CancelledError as error:  # by the workflow's own code
                self.outcome = Raised(RuntimeError(f"the workflow cancelled itself: {error!r}"))
            except Unwind:
                self.outcome = Suspended()
        assert self.outcome is not None
        return self.outcome

    def _watch_deadline(self) -> asyncio.TimerHandle | None:
        deadline = self.deadline
        if deadline is None or not isinstance(self.clock, SystemClock):
            return None
        left = (deadline - self.clock.now()) / 1_000_000
        return self._loop.call_later(max(left, 0), self.stop, Expired(self.lease.fold.input["seconds"]))

    def is_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether that is the loop that drives the workflow."""
        return loop is self._loop

    def follow(self, task: asyncio.Task[Any], scope: Scope, *, shared: bool = False) -> None:
        """Count a task as one of the workflow's."""
        self.tasks.add(task)
        self._scopes[task] = scope
        if shared:  # with the task that created it
            self._guests.add(task)
        task.add_done_callback(self._ended)
        self.look()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        path = self._scopes.pop(task).path  # also if nobody has needed it: the next of that name has the next number
        if self.gate is not None and task.cancelled() and task not in self._guests:
            self.gone.append(path)
        self._guests.discard(task)
        _look_at(task)
        self.look()

    @property
    def may_await(self) -> bool:
        return current_bridge.get() is None

    def perform(self, operation: Op[Any]) -> Any:
        if (bridge := current_bridge.get()) is not None:
            return bridge.carry(operation)
        name: str = getattr(operation, "__name__", "")
        self.check_thread(f"{name.strip('_')}()")
        return super().perform(operation)

    def carry_out(self, operation: Op[T]) -> T:
        bridge = current_bridge.get()
        if bridge is not None:
            return super().carry_out(bridge.waiting_there(operation, self.suspend))
        return super().carry_out(waiting_here(operation, self.suspend, self.clock))

    def check_thread(self, what: str) -> None:
        """Raise `UsageError` in a thread: what has to be awaited can only be awaited on the workflow's own loop."""
        if threading.get_ident() != self._thread:
            name = threading.current_thread().name
            raise UsageError(
                f"{what} is called in thread {name} of the async workflow {self.workflow.name} (run {self.run.id!r}); "
                "await it in the workflow itself: only sync steps can be called in a thread"
            )

    # --- taking it apart

    def stop(self, outcome: Outcome) -> None:
        super().stop(outcome)
        self._tell(self._stopped)

    def release(self) -> None:
        Execution.stop(self, Released())
        self._tell(self._release)

    def _tell(self, callback: Any) -> None:
        """Have it called on the loop, by any thread."""
        with suppress(RuntimeError):  # the loop is closed, so this is over
            self._loop.call_soon_threadsafe(callback)

    def _release(self) -> None:
        """Wait until no step is active, and what each of them gave is journaled."""
        if self.active:
            self._loop.call_later(0.01, self._release)
        else:
            self._stopped()

    def _stopped(self) -> None:
        if not self._quiet.done():
            self._quiet.set_result(None)

    async def dismantle(self) -> None:
        """Cancel what is left of the tasks, and wait until they have ended."""
        for handle in (self._soon, self._later):
            if handle is not None:
                handle.cancel()
        waited = 0.0
        while self.tasks:
            for task in list(self.tasks):
                if (behind := shielded(task)) is not None:
                    behind.add_done_callback(_look_at)
                task.cancel()
            await asyncio.wait(set(self.tasks), timeout=0.5)
            waited += 0.5
            if waited >= PATIENCE and self.tasks and not self.in_flight:
                names = ", ".join(sorted(task.get_name() for task in self.tasks))
                text = "run {run}: tasks that were cancelled do not end, and are left alone: {names}"
                tell(WARNING, "run.stubborn", text, run=self.run.id, names=names)
                break
        if self._drainer is not None:
            await asyncio.wait({self._drainer})

    # --- waiting

    def find(self, scope: Scope, key: str, n: int | None, digest: str | None) -> Step | Failed | None:
        self.borrow(scope, key)
        return super().find(scope, key, n, digest)

    def borrow(self, scope: Scope, key: str) -> None:
        here = current_scope.get()
        if here is not scope and isinstance(here, Scope):
            self._borrowed[key] = here.path

    def lost_with(self, losers: Sequence[Scope]) -> list[str]:
        # In first(sleep(9), ask("a")) the calls are made before there are branches, so their keys are not below these.
        paths = [scope.path for scope in losers]
        lost: dict[str, None] = {}
        seen = -1
        while seen < len(lost):
            seen = len(lost)
            for key, path in self._borrowed.items():
                if key not in lost and path.startswith(tuple(paths)):
                    lost[key] = None
                    paths.append(f"{key}.")  # a race or gather, whose branches are below its key
        return list(dict.fromkeys([*lost, *self.open_under(paths)]))

    def waits_of(self, scope: Scope) -> list[str]:
        # What is awaited by a branch may have been called by the one that made the branch: first(ask("a"), ask("b"))
        called = [key for key, path in self._awaited_at.items() if path.startswith(scope.path) and key in self.waits]
        return [*super().waits_of(scope), *called]

    def suspend(self, scope: Scope, key: str, until: int | None) -> Any:
        """Park a branch until something durable happens."""
        future: asyncio.Future[None] = self._loop.create_future()
        self._parked[future] = key, until
        self.waits[key] = until
        here = current_scope.get()
        self._awaited_at[key] = here.path if isinstance(here, Scope) else ""
        if until is not None and isinstance(self.clock, SystemClock):
            delay = max(until - self.clock.now(), 0) / 1_000_000
            timer = self._loop.call_later(delay, _wake, future)
            future.add_done_callback(lambda _: timer.cancel())
        future.add_done_callback(self._unparked)
        self.look()
        return future

    def _unparked(self, future: asyncio.Future[None]) -> None:
        key, _ = self._parked.pop(future)
        if not future.cancelled() or self.outcome is None:
            self.waits.pop(key, None)
        self.look()

    def mail(self) -> None:
        """Something is in the inbox. Called by any thread."""
        self._tell(self._mail)

    def _mail(self) -> None:
        self._has_looked = self._has_mail = True
        if self._drainer is None and self.outcome is None:
            self._drainer = self._loop.create_task(self._drain(), context=Context())

    async def _drain(self) -> None:

        try:
            while self._has_mail:  # also what came while the last of it was being written
                self._has_mail = False
                await drive_async(self.run.drain(self.lease), self.committer)
        except Exception as error:  # whatever it is, who drives the run gets to see it
            self.stop(Aborted(error))
        finally:
            self._drainer = None
        self.stir()

    def stir(self) -> None:
        self.stirs += 1
        for future in list(self._parked):
            _wake(future)  # each looks for itself whether what it waits for is there
        self.look()

    # --- is it quiet?

    def look(self) -> None:
        """Something happened: see soon who has his turn, and whether there is nothing to do but wait."""
        self._still = 0
        self._look_soon()

    def _look_soon(self) -> None:
        if self._soon is None and self.outcome is None:
            if self._later is not None:
                self._later.cancel()
                self._later = None
            self._soon = self._loop.call_soon(self._look)

    def _look_later(self) -> None:
        if self._later is None:
            self._later = self._loop.call_later(LOOK_AGAIN, self._look_soon_again)
        if not self._has_looked and self._parked:  # it may have come after the claim, before anybody watched
            self._mail()
        if not isinstance(self.clock, SystemClock):
            self._wake_due()

    def _look_soon_again(self) -> None:
        self._later = None
        self._look_soon()

    def _look(self) -> None:
        self._soon = None
        if (
            self.outcome is not None
            or self._quiet.done()
            or not (self._parked or self._turns.waiting or self._is_held())
        ):
            return
        self._still += 1
        if not self._is_still():
            self._look_soon()
        elif self._drainer is not None:
            self._look_later()
        elif self._turns.waiting:
            self._give_turn()
        elif self._is_held():
            self._look_at_held()
        elif self.active or not self._all_wait():
            self._look_later()

    def _is_still(self) -> bool:
        """Whether what happened last has no consequences any more."""
        if len(self.tasks) > FEW:
            return self._still >= STILL_MANY
        return self._still >= STILL and (self._still >= SPIN or not any(map(is_busy, self.tasks - self._acting)))

    def _are_outside(self) -> bool:
        """Whether a task waits for something that is neither durable, nor another task, nor the end of a step."""
        return bool(self._outside())

    def _outside(self) -> set[asyncio.Task[Any]]:
        durable = self._parked.keys() | self._turns.waiting | self._held
        tasks = self.tasks - self._acting
        return {task for task in tasks if waits_for(task, self.tasks, durable) in (OUTSIDE, RUNS)}

    def _all_wait(self) -> bool:
        """Whether there is nothing to do but wait: then the run is given up, or if it is not for long, waits here."""
        if self._are_outside():
            return False
        soonest = self.soonest()
        left = None if soonest is None else soonest - self.clock.now()
        if left is None or left > IN_PLACE:
            self.stop(Suspended())
            return True
        if isinstance(self.clock, SystemClock):
            return False  # the timers of the loop wake who waits
        self.clock.sleep(max(left, 0) / 1_000_000)
        if (deadline := self.deadline) is not None and self.clock.now() >= deadline:
            self.stop(Expired(self.lease.fold.input["seconds"]))
        self._wake_due()
        return True

    def _wake_due(self) -> None:
        now = self.clock.now()
        for future, (_, until) in list(self._parked.items()):
            if until is not None and until <= now:
                _wake(future)

    # --- who is held at the gate

    def hold(self, gate: Gate, wanted: Attempt, waits: bool) -> Op[None]:
        if threading.get_ident() == self._thread:
            return self._hold_here(gate, wanted) if waits else _at_once(gate, wanted)
        bridge = current_bridge.get()
        if bridge is not None:
            return _read(partial(bridge.carry, self._hold_here(gate, wanted)))
        return _read(partial(gate.hold_thread, wanted))

    def _hold_here(self, gate: Gate, wanted: Attempt) -> Op[None]:
        gate.held.append(wanted)
        try:
            while not gate.admits(wanted):
                future: asyncio.Future[None] = self._loop.create_future()
                self._held.add(future)
                self.look()
                try:
                    yield Call(_itself, (future,), {})
                finally:
                    self._held.discard(future)
        finally:
            gate.held.remove(wanted)
            self.look()

    def let_held_go(self) -> None:
        self._tell(self._let_held_go)

    def _let_held_go(self) -> None:
        for future in list(self._held):
            _wake(future)
        self.look()

    def look_at_held(self, gate: Gate) -> None:
        self._tell(self.look)  # the loop sees whether the tasks are idle

    def _is_held(self) -> bool:
        return self.gate is not None and bool(self.gate.held)

    def _look_at_held(self) -> None:
        """See whether the other branches can still come to what was recorded."""
        gate = self.gate
        assert gate is not None
        in_threads = {wanted.here for wanted in gate.held if wanted.thread != self._thread}
        outside = any(self._scopes[task] not in in_threads for task in self._outside())
        timer = self._last_timer(gate)
        if self.active:
            gate.decide(BUSY)
        elif outside or timer is not None:
            gate.decide(OUTSIDE, timer or 0.0)
        elif self._still < STILL_IDLE:  # a timer that is due may be about to be called
            self._look_soon()
            return
        else:
            gate.decide(IDLE)
        if self.outcome is None:
            self._look_later()

    def _last_timer(self, gate: Gate) -> float | None:
        """When the last of the timers goes off that the workflow's own code has set; None if there is none.

        A time limit of asyncio's may have ended what is held now. One that is longer than the run has taken so far has
        not gone off before anything was recorded. An event loop that does not show its timers may have some.
        """
        scheduled = getattr(self._loop, "_scheduled", None)
        if scheduled is None:
            return 0.0
        latest = self._loop.time() + gate.took + 1
        times = [handle.when() for handle in scheduled if not handle.cancelled() and self._is_own_timer(handle)]
        return max((when for when in times if when <= latest), default=None)

    def _is_own_timer(self, handle: Any) -> bool:
        scope = handle._context.get(current_scope) if handle._context is not None else None
        callback = handle._callback
        return (
            scope is not None
            and scope.execution is self
            and callback is not _wake
            and getattr(callback, "__self__", None) is not self
        )

    # --- who has his turn

    def is_alone(self) -> bool:
        return len(self.tasks) == 1 and threading.get_ident() == self._thread

    def step(self, call: StepCall) -> Op[Any]:
        step, key = call.step, call.key
        if not step.is_async:
            return (yield from super().step(call))
        self.check_thread(f"step {step.name}")
        fold, before = self.lease.fold, self.lease.seq
        task = asyncio.current_task()
        assert task is not None
        if key not in fold.steps and key not in fold.failures:
            self._acting.add(task)
        try:
            result = yield from super().step(call)
        except Exception:  # of the step, which may raise anything
            self._acting.discard(task)
            if (failed := self.lease.fold.failures.get(key)) is not None and failed.seq > before:
                yield from self.in_turn(failed.seq)
            raise
        except (asyncio.CancelledError, GeneratorExit, Unwind):
            raise
        except BaseException as interrupt:  # says nothing about the step, so nothing may be built on it
            self.stop(Aborted(interrupt))
            raise
        finally:
            self._acting.discard(task)
            self.look()
        if (done := self.lease.fold.steps.get(key)) is not None and done.seq > before:
            yield from self.in_turn(done.seq)
        return result

    def settle(self, ticket: Ticket) -> Op[None]:
        assert isinstance(ticket.write, Append)
        seq = ticket.write.entries[0].seq
        self._turns.in_flight.add(seq)
        try:
            yield from super().settle(ticket)
        finally:
            self._turns.in_flight.discard(seq)
            if self._turns.waiting:
                self._tell(self.look)

    def in_turn(self, seq: int) -> Op[None]:
        if len(self.tasks) > 1:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._turns.wait(turn, seq)
            self.look()
            try:
                yield Call(lambda: turn, (), {})
            finally:
                self._turns.waiting.discard(turn)
                self.look()
        self._turns.note_given(seq)

    def given(self, seq: int) -> None:
        note = partial(self._turns.note_given, seq)
        self._tell(note) if threading.get_ident() != self._thread else note()

    def _give_turn(self) -> None:
        """Let the one go on who waits for what was recorded first."""
        turn = self._turns.take_next(self._are_outside, self._loop.time())
        if turn is None:
            self._look_later()
            return
        turn.set_result(None)
        self._look_soon()


def _look_at(future: asyncio.Future[Any]) -> None:
    """Ask for the error, so that nobody is told that it was never looked at."""
    if not future.cancelled():
        future.exception()


def _itself(future: asyncio.Future[None]) -> asyncio.Future[None]:
    return future


def _read(ask: Callable[[], None]) -> Op[None]:
    yield Read(ask)


def _at_once(gate: Gate, wanted: Attempt) -> Op[None]:
    gate.check_now(wanted)
    yield from ()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
