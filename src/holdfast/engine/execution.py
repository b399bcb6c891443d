"""One drive of a workflow in this process: from the claim until it ends, or has nothing to do but wait.

The workflow's function is simply called. Its steps, questions and timers come here with a **key**, allotted when they
are called: the path of branches, the name, and a counter (``map#1.2/charge#1``). If the journal has the key already,
what it says is returned and nothing is run: so a function that is driven again from the top arrives where it was.
Otherwise the step acts, and its result is journaled.

A branch of a sync function that has to wait is taken apart by `Unwind`. An async one parks on a future; when every
branch waits and nothing is active, the lease is given up and the tasks are cancelled (`holdfast.engine.tasks`). Either
way, from then on every durable call raises `Unwind` again, so that ``finally`` blocks can do no harm.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from msgspec import Struct

from holdfast.engine import short
from holdfast.engine.define import StepFunction, Workflow, current_scope
from holdfast.engine.drive import Call, Op, Read, Settle, drive, drive_async
from holdfast.engine.events import DEBUG, INFO, WARNING, is_told, tell
from holdfast.engine.failures import account_of, one_line, revive
from holdfast.errors import HoldfastError, StepTimeout, UsageError, ValueRefused
from holdfast.journal import Data, Failed, Step
from holdfast.model import Append, Kind

if TYPE_CHECKING:
    from holdfast.commit import Ticket
    from holdfast.engine.lease import Lease
    from holdfast.engine.run import Run

Arguments = tuple[list[Any], dict[str, Any]]  # as they are stored
SHOWN = 200  # characters of arguments in a message
UNWINDS = 1000  # that were caught by the workflow, until that is told
T = TypeVar("T")


class Unwind(BaseException):
    """Takes a workflow's function apart, because its run has to wait, to stop or to end. Not an error: let it pass."""


class Suspended(Struct, frozen=True):
    """Nothing to do but wait."""


class Released(Struct, frozen=True):
    """This process is to stop; any other may go on."""


class Parked(Struct, frozen=True):
    """A person has to act."""

    reason: str


class Cancelled(Struct, frozen=True):
    """The run is given up."""

    why: str | None = None
    undo: bool = False
    by: str | None = None


class Continued(Struct, frozen=True):
    """The workflow begins anew, with other arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Aborted(Struct, frozen=True):
    """The store cannot be written, or another worker has the run; it says nothing about the workflow."""

    error: BaseException


class Expired(Struct, frozen=True):
    """The run took longer than it may."""

    seconds: float


class Returned(Struct, frozen=True):
    """The function returned."""

    value: Any


class Raised(Struct, frozen=True):
    """The function raised."""

    error: Exception


Outcome = Suspended | Released | Parked | Cancelled | Continued | Aborted | Expired | Returned | Raised


class StepNow(Struct, frozen=True):
    """What a step can know of itself while it runs: see `this_step`."""

    run: str
    key: str
    attempt: int
    idempotency_key: str


class Scope:
    """Where in a run a call is made: the run's execution, and the path of branches that leads there."""

    __slots__ = ("branches", "calls", "counters", "execution", "parent", "path", "step", "stopped")

    def __init__(
        self, execution: Execution, path: str, step: tuple[str, int] | None = None, parent: Scope | None = None
    ) -> None:
        self.execution = execution
        self.path = path
        self.parent = parent
        self.step = step  # key and attempt of the step that is running here
        self.calls = 0
        self.branches = 0
        self.counters: dict[str, int] = {}
        self.stopped = False

    def allot(self, name: str) -> tuple[str, int]:
        """The key of the next call of that name, and the number of the call in this scope."""
        self.calls += 1
        count = self.counters[name] = self.counters.get(name, 0) + 1
        return f"{self.path}{name}#{count}", self.calls

    def branch(self, name: str) -> Scope:
        """A scope for a branch."""
        return Scope(self.execution, f"{self.path}{name}/", parent=self)

    def inside(self, key: str, attempt: int) -> Scope:
        """A scope for what a step does, which is not the run's business."""
        return Scope(self.execution, "", (key, attempt))

    def task(self) -> Scope:
        """A scope for a task, numbered by creation."""
        self.branches += 1
        return Scope(self.execution, f"{self.path}{self.branches}/", parent=self)

    @property
    def is_over(self) -> bool:
        """Whether nothing new may be done here: this branch, or one that it belongs to, was stopped."""
        scope: Scope | None = self
        while scope is not None:
            if scope.stopped:
                return True
            scope = scope.parent
        return False

    def check(self, what: str) -> None:
        """Raise `Unwind` if nothing new may be done here, and `UsageError` if this is inside of a step."""
        if self.step is not None:
            raise UsageError(
                f"{what} is called inside of step {self.step[0]!r} of run {self.execution.run.id!r}; a step is one "
                "act that is done or not: call it from the workflow instead (or a step's plain function, as "
                "name.function)"
            )
        if self.execution.outcome is not None or self.is_over:
            self.execution.count_unwind()
            raise Unwind

    def call(self, step: StepFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a step of the run."""
        if self.step is not None or self.parent is not None or self.stopped or self.execution.outcome is not None:
            self.check(f"step {step.name}")
        if step.is_async and not self.execution.workflow.is_async:
            raise UsageError(
                f"step {step.name} is async, and workflow {self.execution.workflow.name} is not, so nobody awaits "
                "it; declare the workflow with async def"
            )
        key, n = (step.key, None) if step.key is not None else self.allot(step.name)
        execution = self.execution
        if step.is_plain and execution.engine.tracer is None:
            return (short.call_async if step.is_async else short.call)(self, key, n, step, args, kwargs)
        operation = execution.step(self, key, n, step, args, kwargs)
        if step.is_async:
            return drive_async(operation, execution.committer)
        return drive(operation, execution.committer)

    def child(self, workflow: Workflow[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a workflow as a part of the run."""
        from holdfast.engine.children import child, part_name

        self.check(f"workflow {workflow.name}")
        return self.execution.perform(child(self, self.allot(part_name(workflow)), workflow, args, kwargs))


class Execution:
    """A workflow that is being driven under a lease."""

    def __init__(self, run: Run, lease: Lease, workflow: Workflow[..., Any]) -> None:
        self.run = run
        self.lease = lease
        self.workflow = workflow
        self.engine = run._engine
        self.codec = run._codec
        self.committer = run._committer
        self.clock = run._store.clock
        self.outcome: Outcome | None = None
        self.active: dict[str, float] = {}  # the steps that run now, and since when
        self.called: set[str] = set()  # these, and those that wait to be tried again
        self.waits: dict[str, int | None] = {}  # what is waited for by key, and until when
        self.stirred = False  # whether something came for a branch that waits
        self.over = False  # whether the thread that calls the function has come to its end
        self.abandoned = False  # whether nobody waits for that any longer
        self.failed: list[tuple[BaseException, str]] = []  # errors that were given to the workflow, with their keys
        self.consumed: set[str] = set()
        self.patches: dict[str, bool] = {}
        self.began_at = lease.seq
        self.replays = len(lease.fold.log) > 1
        self._unwinds = 0
        self._places: dict[tuple[str, int], str] | None = None
        self.root = Scope(self, "")

    @property
    def deadline(self) -> int | None:
        """When the run must have ended."""
        return self.lease.fold.input.get("deadline")

    def era(self, generation: int) -> str:
        """Tells calls from those of the same key before a rollback, or before the workflow began anew."""
        chapter = self.lease.record.chapter
        return f"{generation}.{chapter}" if chapter else f"{generation}"

    def perform(self, operation: Op[Any]) -> Any:
        """Carry out an operation of the workflow: now, or as something to await."""
        if self.workflow.is_async:
            return drive_async(operation, self.committer)
        return drive(operation, self.committer)

    # --- taking the function apart

    def stop(self, outcome: Outcome) -> None:
        """From now on nothing new is done; what is decided first counts. May be called by any thread."""
        if self.outcome is None:
            self.outcome = outcome
            if isinstance(outcome, Cancelled | Released):
                for part in self.engine.watch.parts_of(self):
                    part.release() if isinstance(outcome, Released) else part.stop(outcome)

    def release(self) -> None:
        """Let any other process go on: what is active may end, and nothing new is done. May be called by any thread."""
        self.stop(Released())

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
            tell(WARNING, "run.stubborn", told, run=self.run.id, place=_caller())

    def park(self, reason: str) -> NoReturn:
        """Take the function apart, and let a person see to it."""
        self.unwind(Parked(reason))

    def waits_of(self, scope: Scope) -> list[str]:
        """The keys of what a branch waits for."""
        return [key for key in list(self.waits) if key.startswith(scope.path)]

    def borrow(self, scope: Scope, key: str) -> None:
        """A call is about to be carried out, maybe in another branch than the one that made it."""

    def lost_with(self, losers: Sequence[Scope]) -> list[str]:
        """The calls to be given up with branches that lost: children, and what their keys do not tell to be theirs."""
        return self.open_under([scope.path for scope in losers])

    def open_under(self, paths: list[str]) -> list[str]:
        """The keys of children and questions below these paths that have not ended."""
        fold = self.lease.fold
        asked = [one.key for one in tuple(fold.questions.values()) if one.key is not None]
        keys = [key for key in tuple(fold.children) if key not in fold.steps and key not in fold.failures]
        return [key for key in (*keys, *asked) if key.startswith(tuple(paths))]

    def suspend(self, scope: Scope, key: str, until: int | None) -> Any:
        """Wait. A branch of a sync function is taken apart; the others go on."""
        if not scope.is_over:  # else it lost a race just now, and nobody waits for it
            self.waits[key] = until
        scope.stopped = True
        raise Unwind

    def dismantle(self) -> Any:
        """Nothing is left of a sync function that was taken apart."""

    def soonest(self) -> int | None:
        """When the first of the waits is over, or the whole run is out of time."""
        times = [until for until in (*self.waits.values(), self.deadline) if until is not None]
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
        self.check_same(key, name, found, digest, call)
        self.consumed.add(key)
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
            self._check_place(scope.path, n, key)
        deadline = fold.input.get("deadline")
        if found is None and deadline is not None and self.clock.now() >= deadline:
            self.unwind(Expired(fold.input["seconds"]))
        return found

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

    def check_same(
        self, key: str, name: str, found: Step | Failed, digest: str | None, call: Arguments | None = None
    ) -> None:
        if found.digest != digest and found.digest is not None and digest is not None:
            begun = self.lease.fold.ledger.get(self.lease.fold.intents.get(key, -1))
            recorded = self._shown((begun.data["args"], begun.data["kwargs"])) if begun is not None else ""
            self.park(
                f"the code no longer does what was recorded: {key!r} was called with other arguments{recorded} at "
                f"entry {found.seq} than now{self._shown(call)}, at {_caller()}. Put back what it did, or let the "
                "step take any arguments with @step(check_args=False); then run.unblock(), or fork the run before it"
            )
        if found.tool is not None and found.tool != name:
            self.park(
                f"the code no longer does what was recorded: {key!r} was recorded as {found.tool} at entry "
                f"{found.seq}, and is attempted as {name} now, at {_caller()}. Use another key; then run.unblock()"
            )

    def _shown(self, call: Arguments | None) -> str:
        """Arguments for people, shortened. Of an encrypted run nothing is shown: a reason stands in the clear."""
        if call is None or self.lease.record.key_id is not None:
            return ""
        trees, named = call
        parts = [repr(self.codec.raw(tree)) for tree in trees]
        parts += [f"{word}={self.codec.raw(tree)!r}" for word, tree in named.items()]
        text = self.codec.scrub(", ".join(parts))
        return f" ({text if len(text) <= SHOWN else text[: SHOWN - 1] + '…'})"

    def _check_place(self, path: str, n: int, key: str) -> None:
        """A call must not come where the journal has another one."""
        if self._places is None:
            self._places = {}
            for seq, _, _, data in self.lease.fold.log:
                if seq <= self.began_at and "n" in data:
                    recorded = str(data["key"])
                    self._places[recorded[: recorded.rfind("/") + 1], data["n"]] = recorded
        recorded_key = self._places.get((path, n))
        if recorded_key is not None and recorded_key != key and recorded_key not in self.lease.fold.loose:
            self.park(
                f"the code no longer does what was recorded: call {n} of {path or 'the workflow'!r} was recorded as "
                f"{recorded_key!r}, and is attempted as {key!r} now, at {_caller()}. Put back what it did, or guard "
                'the change with holdfast.patched("name"); then run.unblock(), or fork the run before it'
            )

    def is_replaying(self) -> bool:
        """Whether the journal has something that the workflow did not come to yet."""
        fold = self.lease.fold
        return any(not self._is_moot(key) for key in self._not_come_to() if key not in fold.loose)

    def leftover(self) -> str | None:
        """A call of the main branch that the journal has and the workflow did not make before it returned."""
        loose = self.lease.fold.loose
        return next((key for key in self._not_come_to() if "/" not in key and "#" in key and key not in loose), None)

    def _not_come_to(self) -> Iterator[str]:
        """The calls that the journal has, done or begun, and the workflow did not make in this drive."""
        fold = self.lease.fold
        recorded = (fold.steps, fold.failures, fold.timers, fold.intents, fold.attempts, fold.children)
        for known in recorded:
            for key in tuple(known):  # other branches write at the same time
                if key not in self.consumed and key not in fold.lost and not key.startswith("patched:"):
                    yield key
        for asked in tuple(fold.questions.values()):
            if asked.key is not None and asked.key not in self.consumed and asked.key not in fold.lost:
                yield asked.key

    def _is_moot(self, key: str) -> bool:
        """Whether a call was made in a branch that lost its race, and so is not made again."""
        fold = self.lease.fold
        parts = key.split("/")
        for end in range(1, len(parts)):
            for begin in range(end):  # the path of a race stands in front of its own key, which holds the path too
                race, _, number = "/".join(parts[begin:end]).rpartition(".")
                won = fold.steps.get(race)
                if race in fold.failures or (won is not None and "first#" in race and number != str(won.result + 1)):
                    return True
        return False

    # --- steps

    def step(
        self,
        scope: Scope,
        key: str,
        n: int | None,
        step: StepFunction[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Op[Any]:
        """The result of a step: the stored one, or that of running it now."""
        trees, named, digest = self.describe(step, args, kwargs)
        if self.find(scope, key, n, digest) is not None:
            found = yield from self.recall(scope, key, n, step.name, digest, in_turn=step.is_async, call=(trees, named))
            assert found is not None
            return self.value(found, key, step.result_type)
        fold = self.lease.fold
        if fold.intents and (begun := fold.intents.get(key)) is not None:
            declared = fold.ledger[begun].data
            recorded = Step(begun, declared.get("tool"), declared.get("digest"), None)
            self.check_same(key, step.name, recorded, digest, (trees, named))
        self.consumed.add(key)
        if key in self.called:
            raise UsageError(f"step {key!r} of run {self.run.id!r} is running already; give each call its own key")
        data: Data = {"key": key}
        if n is not None:
            data["n"] = n
        else:
            data["tool"] = step.name
        if digest is not None:
            data["digest"] = digest
        self.called.add(key)
        self.active[key] = time.monotonic()
        try:
            if self.engine.tracer is None:
                return (yield from self._act(scope, data, step, args, kwargs, trees, named))
            with self.engine.tracer.step(self, step, key):
                return (yield from self._act(scope, data, step, args, kwargs, trees, named))
        finally:
            self.active.pop(key, None)
            self.called.discard(key)

    def _act(
        self,
        scope: Scope,
        data: Data,
        step: StepFunction[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        trees: list[Any],
        named: dict[str, Any],
    ) -> Op[Any]:
        if step.has_intent:
            from holdfast.engine.acts import act

            return (yield from act(self, scope, data, step, args, kwargs, trees, named))
        return (yield from self.attempts(scope, data, step, args, kwargs))

    def is_alone(self, step: StepFunction[..., Any]) -> bool:
        """Whether what the step gives need not be handed out in turn."""
        return True

    def describe(
        self, step: StepFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], str | None]:
        """The arguments of a call as they are stored, and a digest of them."""
        if not args and not kwargs:
            return [], {}, "" if step.check_args else None
        codec = self.codec
        trees: list[Any] = []
        named: dict[str, Any] = {}
        for value in args:
            trees.append(codec.encode(value, f"{step.name}.args[{len(trees)}]"))
        for word, value in kwargs.items():
            named[word] = codec.encode(value, f"{step.name}.{word}")
        if not step.check_args:
            return trees, named, None
        return trees, named, self._digest(step, trees, named) if named else codec.digest([trees, named])

    def _digest(self, step: StepFunction[..., Any], trees: list[Any], named: dict[str, Any]) -> str:
        """The same for an argument that is given by its name as for one given by position."""
        with suppress(TypeError):  # they do not fit, which the call itself will say
            bound = step.signature.bind(*trees, **named)
            return self.codec.digest([list(bound.args), bound.kwargs])
        return self.codec.digest([trees, named])

    def value(self, found: Step, key: str, as_type: Any = None) -> Any:
        """A stored result as the value that it was."""
        tree = found.result
        if type(tree) is not dict and type(tree) is not list:
            return tree
        try:
            return self.run._journals.value(self.run.id, tree, f"result of {key}", as_type)
        except ValueRefused as error:  # it is here that something is missing, and not in the workflow
            self.park(f"what was recorded cannot be read here: {error}; then run.unblock()")

    def attempts(
        self,
        scope: Scope,
        data: Data,
        step: StepFunction[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Op[Any]:
        """Run the step until it succeeds or its retries are used up, and journal how it went."""
        key = data["key"]
        before = self.lease.fold.attempts.get(key)
        attempt = 0
        if before is not None:
            attempt = before.count
            yield from self.pause(scope, key, before.until)
        while True:
            attempt += 1
            try:
                return (yield from self.once(step, key, attempt, args, kwargs, data))
            except Exception as error:
                yield from self.failed_attempt(scope, data, step, attempt, error)

    def failed_attempt(
        self, scope: Scope, data: Data, step: StepFunction[..., Any], attempt: int, error: Exception
    ) -> Op[None]:
        """After an attempt that failed: wait for the next one. If it was the last, raises the error."""
        # What is wrong with the code, or with its result, is no better the next time.
        lasting = isinstance(error, UsageError | ValueRefused)
        again = attempt <= step.retry.times and isinstance(error, step.retry.on) and not lasting
        if not again:
            yield from self.fail(data["key"], {**data, "attempt": attempt}, error)
            raise error
        yield from self.retry_later(scope, data, step, attempt, error)

    def once(
        self,
        step: StepFunction[..., Any],
        key: str,
        attempt: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        data: Data,
    ) -> Op[Any]:
        """One attempt, and its result in the journal. What cannot be kept is an error of the step."""
        token = current_scope.set(Scope(self, "", (key, attempt)))
        try:
            if step.transactional:
                return (yield from self._transact(step, key, attempt, args, kwargs, data))
            if step.timeout is not None:
                call = Call(timed, (step, args, kwargs, self.run.id, key), {})
            else:
                call = Call(step.function, args, kwargs)
            if self.engine.tracer is None:
                result = yield call
            else:
                with self.engine.tracer.attempt(self, key, attempt):
                    result = yield call
        finally:
            current_scope.reset(token)
        what = f"result of {key}"
        done = {**data, "result": self.codec.encode(result, what) if result is not None else None}
        if attempt > 1:
            done["attempts"] = attempt
        yield from self.settle(self.submit([(Kind.DONE, done)], what))
        if is_told(DEBUG):
            tell(DEBUG, "step.done", "run {run}: step {step} done", run=self.run.id, step=key, attempt=attempt)
        return result

    def _transact(
        self,
        step: StepFunction[..., Any],
        key: str,
        attempt: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        data: Data,
    ) -> Op[Any]:
        """Run the step inside of the transaction that commits its entry."""
        yield from self.run._catch_up(self.lease)
        result: list[Any] = []
        raised: list[Exception] = []

        def act(connection: Any) -> Data:
            try:
                result[:] = [step.function(connection, *args, **kwargs)]
            except Exception as error:
                raised.append(error)
                raise
            return {**data, "result": self.codec.encode(result[0], f"result of {key}")}

        if attempt > 1:
            data = {**data, "attempts": attempt}
        try:
            yield Read(lambda: self.lease.transact(Kind.DONE, act))
        except (UsageError, ValueRefused):
            raise
        except HoldfastError as error:
            if error in raised:
                raise
            self.unwind(Aborted(error))
        return result[0]

    def retry_later(
        self,
        scope: Scope,
        data: Data,
        step: StepFunction[..., Any],
        attempt: int,
        error: Exception,
        *,
        first: Sequence[tuple[str, Data]] = (),
    ) -> Op[None]:
        """Journal that an attempt failed (after what comes ``first``), and wait until the next one."""
        key = data["key"]
        pause = step.retry.pause(attempt, self.clock.random_bytes(1)[0] / 255)
        until = self.clock.now() + round(pause * 1_000_000)
        text = one_line(error, self.codec)
        told = "run {run}: step {step} failed, attempt {attempt}: {error}; again in {pause:.3g} s"
        tell(INFO, "step.retried", told, run=self.run.id, step=key, attempt=attempt, error=text, pause=pause)
        line: Data = {name: data[name] for name in ("key", "n", "tool", "intent") if name in data}
        yield from self.write([*first, (Kind.RAISED, {**line, "attempt": attempt, "until": until, "error": text})])
        yield from self.pause(scope, key, until)

    def fail(self, key: str, data: Data, error: Exception) -> Op[int]:
        """Journal that a call has failed for good; the number of the entry."""
        self.failed.append((error, key))
        said = account_of(error, self.codec, self.run._journals.max_bytes)
        return (yield from self.write([(Kind.RAISED, {**data, "final": True, **said})]))

    def pause(self, scope: Scope, key: str, until: int) -> Op[None]:
        """Wait between two attempts."""
        from holdfast.engine.waits import wait_until

        self.active.pop(key, None)
        yield from wait_until(self, scope, key, until)
        scope.check(f"step {key}")  # it may have been told to stop meanwhile
        self.active[key] = time.monotonic()

    # --- writing

    def write(self, lines: list[tuple[str, Data]], what: str = "entry", **how: Any) -> Op[int]:
        """Journal entries and wait until they are lasting; the number of the first."""
        ticket = self.submit(lines, what, **how)
        yield from self.settle(ticket)
        assert isinstance(ticket.write, Append)
        return ticket.write.entries[0].seq if ticket.write.entries else self.lease.seq

    def submit(self, lines: Sequence[tuple[str, Data]], what: str = "entry", **how: Any) -> Ticket:
        """Put entries in line to be journaled."""
        try:
            return self.lease.write(lines, what=what, **how)
        except ValueRefused:
            raise
        except HoldfastError as error:  # a lost lease, a full disk: not an error of the workflow
            self.unwind(Aborted(error))

    def submit_one(self, kind: str, data: Data, what: str) -> Ticket:
        """The same for one entry."""
        try:
            return self.lease.append(kind, data, what)
        except ValueRefused:
            raise
        except HoldfastError as error:
            self.unwind(Aborted(error))

    def take_in(self) -> Op[None]:
        """Move what waits in the inbox into the journal."""
        from holdfast.engine.pauses import drain

        if (yield from self.unharmed(drain(self.run, self.lease))) and self.waits:
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
        """Say that a step has been running for a while. Called by the heartbeat."""
        with self.lease.lock:
            fold = self.lease.fold
            if key not in self.active or key in fold.started or key in fold.intents or self.outcome is not None:
                return
            ticket = self.lease.write([(Kind.STARTED, {"key": key})])
        self.committer.settle(ticket)


def timed(step: StepFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], run: str, key: str) -> Any:
    """Call the step's function, for no longer than its timeout."""
    assert step.timeout is not None
    if step.is_async:
        return _timed_async(step, args, kwargs, run, key)
    import contextvars
    import threading

    finished = threading.Event()
    box: list[tuple[bool, Any]] = []
    abandoned = False

    def work() -> None:
        try:
            box.append((True, step.function(*args, **kwargs)))
        except BaseException as error:  # it is raised again below, where the step was called
            box.append((False, error))
        finished.set()
        if abandoned:
            told = "run {run}: step {step} ended after its timeout; what it gave is discarded"
            tell(WARNING, "step.late", told, run=run, step=key)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name=f"holdfast-step-{key}", daemon=True).start()
    if not finished.wait(step.timeout):
        abandoned = True
        raise StepTimeout(run, f"step {key!r} did not end within its timeout of {step.timeout:g} s")
    fine, value = box[0]
    if not fine:
        raise value
    return value


async def _timed_async(
    step: StepFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], run: str, key: str
) -> Any:
    import asyncio

    limit = asyncio.timeout(step.timeout)
    try:
        async with limit:
            return await step.function(*args, **kwargs)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise StepTimeout(run, f"step {key!r} did not end within its timeout of {step.timeout:g} s") from error


def _caller() -> str:
    """The line of the user's code that is being run."""
    own = __name__.partition(".")[0]
    for frame, line in traceback.walk_stack(None):
        if frame.f_globals.get("__name__", "").partition(".")[0] not in (own, "asyncio", "threading", "concurrent"):
            return f"{frame.f_code.co_filename}:{line}"
    return "an unknown place"
