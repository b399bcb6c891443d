"""One drive of a workflow in this process: from the claim until it ends, or has nothing to do but wait.

The workflow's function is simply called. Its steps, questions and timers come here with a **key**, allotted when they
are called: the path of branches, the name, and a counter (``map#1.2/charge#1``). If the journal has the key already,
what it says is returned and nothing is run: so a function that is driven again from the top arrives where it was.
Otherwise the step acts, and its result is journaled.

A branch of a sync function that has to wait is taken apart by `Unwind`. An async one parks on a future; when every
branch waits and nothing is active, the lease is given up and the tasks are cancelled (`AsyncExecution`). Either way,
from then on every durable call raises `Unwind` again, so that ``finally`` blocks can do no harm.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.lease import Lease
from holdfast.engine.access.operations import Nap, Op, Read, Settle, drive, drive_async
from holdfast.engine.log import WARNING, tell
from holdfast.engine.workflow.declare import Workflow
from holdfast.engine.workflow.failures import revive
from holdfast.engine.workflow.outcomes import Aborted, Cancelled, Expired, Outcome, Parked, Released, Suspended, Unwind
from holdfast.engine.workflow.replay import Arguments, caller, check_place, check_same
from holdfast.engine.workflow.replay_gate import BUSY, IDLE, OUTSIDE, Attempt, Gate, attempt
from holdfast.engine.workflow.scope import Scope
from holdfast.engine.workflow.step import StepCall, perform
from holdfast.errors import HoldfastError, ValueRefused
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.fold import Failed, Step
from holdfast.kernel.journal import Data
from holdfast.kernel.model import Append, Kind

if TYPE_CHECKING:
    from holdfast.engine.access.commit import Ticket
    from holdfast.engine.workflow.concurrency.branches import Threads

UNWINDS = 1000  # that were caught by the workflow, until that is told
T = TypeVar("T")


class Execution:
    """A workflow that is being driven under a lease."""

    def __init__(self, run: HeldRun, lease: Lease, workflow: Workflow[..., Any]) -> None:
        self.run = run
        self.lease = lease
        self.workflow = workflow
        self.engine = run.engine
        self.codec = run.codec
        self.committer = run.committer
        self.clock = run.store.clock
        self.outcome: Outcome | None = None
        self.active: dict[str, float] = {}  # the steps that run now, and since when
        self.in_flight: dict[str, float] = {}  # those of them that have an effect, and how long that is awaited
        self.called: set[str] = set()  # these, and those that wait to be tried again
        self.fans: dict[str, Sequence[Any]] = {}  # the branches of each gather and map: futures or tasks
        self.waits: dict[str, int | None] = {}  # what is waited for by key, and until when
        self.stirred = False  # whether something came for a branch that waits
        self.stirs = 0  # how often those that wait were woken to look
        self.over = False  # whether the thread that calls the function has come to its end
        self.abandoned = False  # whether nobody waits for that any longer
        self.interrupted = False  # whether whoever waits for its branches was interrupted
        self.failed: list[tuple[BaseException, str]] = []  # errors that were given to the workflow, with their keys
        self.failed_at: list[tuple[BaseException, Data]] = []  # of a graph: errors, and the node that raised each
        self.consumed: set[str] = set()
        self.patches: dict[str, bool] = {}
        self.began_at = lease.seq
        self.replays = len(lease.fold.log) > 1
        self.gate = Gate(self) if self.replays else None  # None: everything that was recorded has been asked for
        self.lost: list[str] = []  # the paths of branches that lost a race in this execution
        self.gone: list[str] = []  # the paths of tasks that were cancelled in it
        self.threads_lock = threading.RLock()  # guards the pools, their threads and slots, and who rests
        self.pools: list[Threads] = []  # the branches of a sync workflow
        self.gave_way = False  # whether a branch of these has given its slot back
        self.resting: dict[int, Callable[[], bool]] = {}  # its threads that wait for others, and whether they still do
        self._main = threading.get_ident()
        self._unwinds = 0
        self.passing: Ticket | None = None  # the last write that nobody waited for
        self.unsure: Ticket | None = None  # the last write of something that the workflow was given before it lasts
        self.places: dict[tuple[str, int], str] | None = None
        self.root = Scope(self, "")

    @property
    def deadline(self) -> int | None:
        """When the run must have ended."""
        return self.lease.fold.input.get("deadline")

    def era(self, generation: int) -> str:
        """Tells calls from those of the same key before a rollback, or before the workflow began anew."""
        chapter = self.lease.record.chapter
        return f"{generation}.{chapter}" if chapter else f"{generation}"

    @property
    def may_await(self) -> bool:
        """Whether the code that makes a call can await what it gives."""
        return self.workflow.is_async

    def perform(self, operation: Op[Any]) -> Any:
        """Carry out an operation of the workflow: now, or as something to await."""
        if self.workflow.is_async:
            return drive_async(operation, self.committer)
        return drive(operation, self.committer)

    def carry_out(self, operation: Op[T]) -> T:
        """Carry out an operation right here, for a plain function that waits for what it gives."""
        return drive(operation, self.committer)

    # --- taking the function apart

    def stop(self, outcome: Outcome) -> None:
        """From now on nothing new is done; what is decided first counts. May be called by any thread."""
        if self.outcome is None:
            self.outcome = outcome
            if self.gate is not None:
                self.gate.wake()
            if isinstance(outcome, Cancelled | Released):
                for part in self.engine.watch.parts_of(self):
                    part.release() if isinstance(outcome, Released) else part.stop(outcome)

    def release(self) -> None:
        """Let any other process go on: what is active may end, and nothing new is done. May be called by any thread."""
        self.stop(Released())

    def interrupt(self) -> None:
        """The thread that calls the function was interrupted: let its branches end, and nothing new is done."""
        self.interrupted = True
        self.release()
        for pool in self.pools.copy():
            pool.end()

    def mail(self) -> None:
        """Something is in the inbox. A sync workflow looks when it waits, so there is nothing to do."""

    def unwind(self, outcome: Outcome) -> NoReturn:
        """Take the function apart for this reason."""
        self.stop(outcome)
        raise Unwind

    def count_unwind(self) -> None:
        """Say so if the workflow catches `Unwind` again and again: nobody can stop a loop that never lets it pass."""
        self._unwinds += 1
        if self._unwinds == UNWINDS:
            told = (
                "run {run}: the workflow catches BaseException again and again, and so cannot be stopped, at {place}; "
                "catch Exception instead"
            )
            tell(WARNING, "run.stubborn", told, run=self.run.id, place=caller())

    def park(self, reason: str) -> NoReturn:
        """Take the function apart, and let a person see to it."""
        self.unwind(Parked(reason))

    def waits_of(self, scope: Scope) -> list[str]:
        """The keys of what a branch waits for."""
        return [key for key in self.waits.copy() if key.startswith(scope.path)]

    def borrow(self, scope: Scope, key: str) -> None:
        """A call is about to be carried out, maybe in another branch than the one that made it."""

    def lost_with(self, losers: Sequence[Scope]) -> list[str]:
        """The calls to be given up with branches that lost: children, and what their keys do not tell to be theirs."""
        return self.open_under([scope.path for scope in losers])

    def open_under(self, paths: list[str]) -> list[str]:
        """The keys of children and questions below these paths that have not ended."""
        fold = self.lease.fold
        asked = [one.key for one in fold.questions.copy().values() if one.key is not None]
        keys = [key for key in fold.children.copy() if key not in fold.steps and key not in fold.failures]
        return [key for key in (*keys, *asked) if key.startswith(tuple(paths))]

    def suspend(self, scope: Scope, key: str, until: int | None) -> Any:
        """Wait. A branch of a sync function is taken apart; the others go on."""
        if not scope.is_over:  # else it lost a race just now, and nobody waits for it
            self.waits[key] = until
        scope.stopped = True
        raise Unwind

    def dismantle(self) -> Any:
        """Nothing is left of a sync function that was taken apart."""

    def land(self) -> Op[None]:
        """Wait until no effect is in flight. A thread of a branch that lost may be in one."""
        until = time.monotonic() + max(self.in_flight.copy().values(), default=0.0)
        while self.in_flight and time.monotonic() < until:
            yield Nap(SystemClock(), 0.01)

    def soonest(self) -> int | None:
        """When the first of the waits is over, or the whole run is out of time."""
        times = [until for until in (*self.waits.copy().values(), self.deadline) if until is not None]
        return min(times, default=None)

    # --- what the journal has

    def recall(
        self,
        scope: Scope,
        key: str,
        n: int | None,
        name: str,
        digest: str | None,
        *,
        in_turn: bool = True,
        call: Arguments | None = None,
    ) -> Op[Step | None]:
        """What the journal has for a call: its result; None if it is to be made now. Raises what it failed with."""
        found = self.find(scope, key, n, digest)
        if found is None:
            return None
        check_same(self, key, name, found, digest, call)
        self.consume(key)
        if in_turn:
            yield from self.in_turn(found.seq)
        else:
            self.given(found.seq)
        if isinstance(found, Failed):
            raise self._again(key, found)
        if found.erased:
            self.park_erased(key, "result")
        return found

    def find(self, scope: Scope, key: str, n: int | None, digest: str | None) -> Step | Failed | None:
        """What the journal has for a call. If it has nothing, something new is to be done: see whether it may be."""
        fold = self.lease.fold
        found: Step | Failed | None = fold.steps.get(key) or fold.failures.get(key)
        if found is not None and key in fold.loose and found.digest != digest:
            found = None  # it goes another way than before the retry
        if self.replays and n is not None:
            check_place(self, scope.path, n, key)
        if found is None:
            self.check_deadline()
        return found

    def check_deadline(self) -> None:
        """Give the run up if it has taken longer than it may."""
        if (deadline := self.deadline) is not None and self.clock.now() >= deadline:
            self.unwind(Expired(self.lease.fold.input["seconds"]))

    def recall_now(self, scope: Scope, key: str, n: int, name: str) -> Op[Step | None]:
        """The same for a call that does not wait, not even for its turn."""
        return (yield from self.recall(scope, key, n, name, None, in_turn=False))

    def in_turn(self, seq: int) -> Op[None]:
        """Give what was recorded to the branches in that order. Those of a sync workflow do not wait for each other."""
        yield from ()

    def given(self, seq: int) -> None:
        """What was recorded was given to who asked for it, who cannot wait for his turn."""

    def _again(self, key: str, failed: Failed) -> Exception:
        if failed.failure is None:
            self.park_erased(key, "error")
        error = revive(failed.failure, self.codec)
        self.failed.append((error, key))
        return error

    def park_erased(self, key: str, what: str) -> NoReturn:
        """What is not there any more says nothing about the step, so the workflow must not act upon it."""
        self.park(
            f"the {what} of {key!r} was erased on request, and the workflow needs it to go on; fork the run with "
            f"results={{{key!r}: ...}}, roll it back to before that, or cancel it"
        )

    def leave_behind(self, ahead: Collection[str]) -> None:
        """Of what the journal has, only calls under these paths are still to come: all others count as made."""
        paths, fold = tuple(ahead), self.lease.fold
        for known in (fold.steps, fold.failures, fold.timers, fold.intents, fold.attempts, fold.children):
            for key, found in known.copy().items():
                if not key.startswith(paths):
                    self.consume(key)
                    if isinstance(found, Step | Failed):
                        self.given(found.seq)

    # --- what is new

    def consume(self, key: str) -> None:
        """Note that the code has asked for a call."""
        self.consumed.add(key)
        if self.gate is not None:
            self.gate.take(key)

    def admit(self, scope: Scope, key: str, name: str, digest: str | None = None, *, waits: bool = True) -> Op[None]:
        """Wait until the replay gate admits a new call. ``waits``: whether the caller awaits it."""
        gate = self.gate
        if gate is not None:
            wanted = attempt(scope, key, name, digest)
            if not gate.admits(wanted):
                yield from self.hold(gate, wanted, waits)
                scope.check(name)
        if self.gave_way:  # this branch, or another one that had the same slot
            yield Read(scope.take_slots)
            scope.check(name)
        if gate is not None:
            yield from self._write_deferred(gate)

    def _write_deferred(self, gate: Gate) -> Op[None]:
        """Journal what the workflow said while nothing new could be written, before something new is done."""
        for write in gate.take_deferred():
            yield from write()

    def hold(self, gate: Gate, wanted: Attempt, waits: bool) -> Op[None]:
        """Hold a new call at the gate."""
        yield Read(partial(gate.hold_thread, wanted))

    def let_held_go(self) -> None:
        """The gate is open. Held threads see that by themselves."""

    def look_at_held(self, gate: Gate) -> None:
        """See whether the threads of the run can still come to what was recorded."""
        gate.decide(self._threads_do(gate))

    def _threads_do(self, gate: Gate) -> str:
        with self.threads_lock:  # one moment: whoever rests has begun what it waits for
            if any(pool.is_starting for pool in self.pools):
                return BUSY
            threads = {self._main}.union(*(pool.threads for pool in self.pools))
            resting = {thread for thread, still in self.resting.items() if still()}
        still = threads - resting - {wanted.thread for wanted in gate.held}
        if not still:
            return IDLE
        frames = sys._current_frames()
        return OUTSIDE if all(_waits_for_thread(frames.get(one)) for one in still) else BUSY

    # --- steps

    def step(self, call: StepCall) -> Op[Any]:
        """The result of a step: the stored one, or that of executing it now."""
        return (yield from perform(call))

    def is_alone(self) -> bool:
        """Whether what an async step gives need not be handed out in turn."""
        return True

    def value(self, found: Step, key: str, as_type: Any = None) -> Any:
        """A stored result as the value that it was."""
        tree = found.result
        if type(tree) is not dict and type(tree) is not list:
            return tree
        try:
            return self.run.journals.value(self.run.id, tree, f"result of {key}", as_type)
        except ValueRefused as error:  # it is here that something is missing, and not in the workflow
            self.park(f"what was recorded cannot be read here: {error}; then run.unblock()")

    # --- writing

    def write(self, lines: list[tuple[str, Data]], what: str = "entry", **how: Any) -> Op[int]:
        """Journal entries and wait until they are lasting; the number of the first."""
        ticket = self.submit(lines, what, **how)
        yield from self.settle(ticket)
        assert isinstance(ticket.write, Append)
        return ticket.write.entries[0].seq if ticket.write.entries else self.lease.seq

    def write_by(
        self,
        lines: list[tuple[str, Data]],
        what: str = "entry",
        *,
        gives: bool = False,
        told: Callable[[], None] | None = None,
    ) -> Op[None]:
        """Journal entries in passing: an event loop is not held up for them, since what follows comes after them.

        With ``gives`` the workflow goes by what they say, so nothing is done outside of it before they are lasting.
        ``told`` is called when they are.
        """
        gate = self.gate
        if gate is None or not gate.defers(partial(self._write_by, lines, what, gives, told)):
            yield from self._write_by(lines, what, gives, told)

    def _write_by(
        self, lines: list[tuple[str, Data]], what: str, gives: bool, told: Callable[[], None] | None
    ) -> Op[None]:
        ticket = self.submit(lines, what)
        if self.committer.send_off(ticket, told):
            self.passing, self.unsure = ticket, ticket if gives else self.unsure
            return
        yield from self.settle(ticket)
        if told is not None:
            told()

    def make_sure(self) -> Op[None]:
        """Before something is done outside: what the workflow was given must not be another one after a crash."""
        ticket = self.unsure
        if ticket is None:
            return
        if not ticket.settled or ticket.outcome is not None:
            yield from self.settle(ticket)
        if self.unsure is ticket:  # not before: other branches wait for it too
            self.unsure = None

    def passed(self, outcome: Outcome) -> Op[Outcome]:
        """How it went, after all; nothing counts that was built on what was written in passing, and could not be."""
        gate = self.gate
        if gate is not None and not (
            isinstance(outcome, Suspended) and gate.is_needed()
        ):  # else it is said again later
            with suppress(Unwind):
                yield from self._write_deferred(gate)
        if self.passing is not None and (not self.passing.settled or self.passing.outcome is not None):
            with suppress(Unwind):
                yield from self.settle(self.passing)
            if isinstance(self.passing.outcome, HoldfastError):
                return Aborted(self.passing.outcome)
        return outcome

    def _check_passing(self) -> None:
        """Raise what came of the last write that nobody waited for, if it failed."""
        if self.passing is not None and self.passing.outcome is not None:
            self.passing.result()

    def submit(self, lines: Sequence[tuple[str, Data]], what: str = "entry", **how: Any) -> Ticket:
        """Put entries in line to be journaled."""
        return self.submitted(partial(self.lease.write, lines, what=what, **how))

    def submitted(self, submit: Callable[[], Ticket]) -> Ticket:
        """Have something put in line by a method of the lease."""
        try:
            self._check_passing()
            return submit()
        except ValueRefused:
            raise
        except HoldfastError as error:  # a lost lease, a full disk: not an error of the workflow
            self.unwind(Aborted(error))

    def take_in(self) -> Op[None]:
        """Move what waits in the inbox into the journal."""

        if (yield from self.unharmed(self.run.drain(self.lease))) and self.waits:
            self.stir()

    def unharmed(self, operation: Op[T]) -> Op[T]:
        """Carry out something whose failure (a lost lease, a full disk) says nothing about the workflow."""
        try:
            return (yield from operation)
        except ValueRefused:
            raise
        except HoldfastError as error:
            self.unwind(Aborted(error))

    def stir(self) -> None:
        """What one branch took in may be what another one waits for, and that one was taken apart already."""
        self.stirred = True

    def settle(self, ticket: Ticket) -> Op[None]:
        """Wait until a write that was submitted is lasting."""
        try:
            try:
                yield Settle(ticket)
            finally:
                self.lease.settled(ticket)
        except HoldfastError as error:
            self.unwind(Aborted(error))

    def submit_started(self, key: str) -> None:
        """Say that a step has been running for a while, unless it has the lease to itself, being transactional."""
        if not self.lease.lock.acquire(blocking=False):
            return
        try:
            since = self.active.get(key)
            if since is None or not self._is_under_way(key):
                return
            ticket = self.lease.write([(Kind.STARTED, {"key": key, "seconds": round(time.monotonic() - since, 3)})])
        finally:
            self.lease.lock.release()
        self.committer.settle(ticket)

    def _is_under_way(self, key: str) -> bool:
        """Whether the journal does not say so, and nothing of the end of this attempt: that may be on its way."""
        fold = self.lease.fold
        if self.outcome is not None or key in fold.started or key in fold.intents or fold.is_over(key):
            return False
        failed = fold.attempts.get(key)
        return failed is None or failed.until <= self.clock.now()


def _waits_for_thread(frame: FrameType | None) -> bool:
    """Whether a thread waits for another one, such as one that the workflow has made by itself."""
    return frame is None or frame.f_code.co_filename == threading.__file__
