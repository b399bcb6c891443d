"""A workflow of yours, with a crash at every point: `crash_everywhere`.

The workflow is run once undisturbed, which counts the points at which its process could die: before and after each
commit, and after each effect. Then it is run again for each of them, dies there, and is gone on with by a fresh engine
on what was left. Questions are answered, timers pass on a virtual clock. What comes of it must be what came of it the
first time.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Literal

from msgspec import Struct

from holdfast.codec import expand, from_text
from holdfast.engine.app import Holdfast
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.declare import Workflow
from holdfast.engine.workflow.effect_step import this_step
from holdfast.engine.workflow.execution import Execution
from holdfast.engine.workflow.scope import StepScope, current_scope
from holdfast.engine.workflow.step import StepFunction
from holdfast.errors import Claimed, HoldfastError, RunEnded, UsageError
from holdfast.kernel.model import ENDED, Adopt, Append, Create, Filter, Post, RunRecord, Status, Write
from holdfast.kernel.rules import Outcome, wake_time
from holdfast.stores.files.store import FilesStore
from holdfast.stores.memory import MemoryStore
from holdfast.testing.clock import ManualClock
from holdfast.testing.crash import Crash, CrashDisk, CrashSqliteStore, CrashStore, Fuse
from holdfast.testing.still import open_still
from holdfast.views import Effect, Question

ID = "crash-everywhere"
ROUNDS = 1000  # of answering and waiting, after which a run is taken to be endless

Answers = Mapping[str, Any] | Callable[[Question], Any]
Problem = tuple[str, str]  # where the process died, and what was wrong then


class Effects(list[Any]):
    """A list of what was done to the outside world. Let the fakes that your steps call append to it.

    Each item is a point at which the process may die. With an idempotency key, `add` counts what was done under the
    same key once, as the outside does.
    """

    def __init__(self) -> None:
        super().__init__()
        self._keys: set[str] = set()
        self.by: list[str | None] = []  # the step that did it; "" for the workflow itself, None for neither
        self._fuse: Fuse | None = None

    def append(self, effect: Any) -> None:
        """Something was done."""
        scope = current_scope.get()
        self.by.append(scope.key if isinstance(scope, StepScope) else None if scope is None else "")
        super().append(effect)
        if self._fuse is not None:
            self._fuse.changed()
            self._fuse.point(f"after {effect!r} was done")

    def add(self, effect: Any, *, key: str) -> None:
        """Something was done under an idempotency key, such as ``this_step().idempotency_key``."""
        if key not in self._keys:
            self._keys.add(key)
            self.append(effect)

    def extend(self, effects: Any) -> None:
        """Several things were done."""
        for effect in effects:
            self.append(effect)

    def clear(self) -> None:
        """Nothing was done."""
        super().clear()
        self._keys.clear()
        self.by.clear()

    def begin(self, fuse: Fuse) -> None:
        self._fuse = fuse


class CrashReport(Struct, frozen=True):
    """What `crash_everywhere` found. ``points`` is at how many places the process could die, ``tried`` how many of
    them leave something different behind. Printed, it tells each problem with the place of the crash.
    """

    workflow: str
    points: int
    tried: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was wrong."""
        return not self.problems

    def __str__(self) -> str:
        places: dict[str, list[str]] = {}
        for where, what in self.problems:
            places.setdefault(what, []).append(where)
        counted = f"{len(places)} problem{'' if len(places) == 1 else 's'}"
        lines = [f"workflow {self.workflow}: {self.points} crash points, {counted}"]
        for what, found in places.items():
            more = f" (and at {len(found) - 1} more points)" if len(found) > 1 else ""
            lines.append(f"  {found[0]}{more}: {what}")
        return "\n".join(lines)


def crash_everywhere(
    workflow: Workflow[..., Any],
    /,
    *args: Any,
    answers: Answers | None = None,
    messages: Sequence[tuple[str | None, Any]] = (),
    effects: Effects | None = None,
    may_repeat: Collection[str] = (),
    compare: Callable[[Any], Any] = lambda result: result,
    before: Callable[[], Any] | None = None,
    on: Literal["memory", "files", "sqlite"] = "memory",
    check: bool = True,
    **kwargs: Any,
) -> CrashReport:
    """Run a workflow with these arguments, with a crash at every point; raises AssertionError telling every problem.

    Problems are: another result than without a crash; a step that was done and ran again; an at-most-once step that
    ran twice; an effect that happened twice or never; a run that is stranded or damaged.

    ``answers`` gives what is answered, by prompts, or by a function of the question; ``messages`` are sent to the run
    when it was started, as pairs of topic and value. ``effects`` is what your fakes append to. The effects of an
    at-least-once step may happen twice, and that is told, unless its name is in ``may_repeat``. ``compare`` is applied
    to results that hold something which differs each time. ``before`` is called before each start from nothing, to
    clear what your fakes keep. ``on`` is the kind of store. With ``check=False`` the report is returned in any case.
    """
    if not isinstance(workflow, Workflow):
        raise UsageError(f"{workflow!r} is not a workflow; declare the function with @holdfast.workflow")
    if effects is not None and not isinstance(effects, Effects):
        raise UsageError("effects= takes a holdfast.testing.Effects(), which is a list that your fakes append to")
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=_memory_folder()) as folder:
        case = Case(workflow, args, kwargs, answers, messages, frozenset(may_repeat), before)
        trial = Trial(case, effects if effects is not None else Effects(), on, folder)
        report = _enumerate(trial, compare)
    if check and not report.ok:
        raise AssertionError(str(report))
    return report


def _memory_folder() -> str | None:
    """Where syncing costs nothing, if the system has such a place."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None


def _enumerate(trial: Trial, compare: Callable[[Any], Any]) -> CrashReport:
    name, fuse = trial.workflow.name, Fuse()
    trial.start_over()
    try:
        trial.live(fuse)
    except Unfinished as error:
        return CrashReport(name, len(fuse.points), 0, (("without a crash", str(error)),))
    expected = trial.look(compare)
    wrong = trial.wrong_by_itself()
    trial.start_over(seed=1)
    trial.live(Fuse())
    if (other := trial.look(compare)).result != expected.result:
        wrong.append(
            f"the result is another one each time: {expected.result!r}, then {other.result!r}. What differs must come "
            "from a step, or from holdfast.now(), random() and uuid(); if it does, take it out with compare="
        )
    problems: list[Problem] = [("without a crash", what) for what in wrong]
    if problems:  # the same would be told for every point
        return CrashReport(name, len(fuse.points), 0, tuple(problems))
    chosen = fuse.distinct()
    for at in chosen:
        trial.start_over()
        blown = Fuse(at)
        if trial.live(blown):
            problems.append((f"point {at}", "it was not reached: the workflow does something else each time"))
            continue
        where = f"crash {blown.points[-1][0]}"
        try:
            trial.live(Fuse())
            problems += [(where, what) for what in trial.compare(expected, trial.look(compare))]
        except (HoldfastError, Unfinished) as error:
            problems.append((where, f"the run could not go on: {type(error).__name__}: {error}"))
    return CrashReport(name, len(fuse.points), len(chosen), tuple(problems))


class Unfinished(Exception):
    """A run that does not come to its end."""


class Seen(Struct, frozen=True):
    """What came of it."""

    result: Any
    steps: frozenset[str]
    effects: Counter[str]


class Case(Struct, frozen=True):
    """What is tried: a workflow with its arguments, and what comes to its runs from outside."""

    workflow: Workflow[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answers: Answers | None
    messages: Sequence[tuple[str | None, Any]]
    may_repeat: frozenset[str]
    before: Callable[[], Any] | None


class Trial:
    """One workflow, what its steps did, and the store that survives its processes."""

    def __init__(self, case: Case, effects: Effects, on: str, folder: str) -> None:
        self.case = case
        self.workflow = case.workflow
        self.effects = effects
        self.calls: Counter[tuple[str, str, str]] = Counter()  # of steps: run, key and idempotency key
        self.acted: set[tuple[str, str]] = set()
        self.once: set[tuple[str, str]] = set()  # those that are at most once
        self.names: dict[str, str] = {}  # of steps, by their keys: a key may be the caller's own
        self.again: list[str] = []  # steps that were done and ran again
        self._on, self._folder, self._number = on, folder, 0
        self._results: dict[str, Any] = {}

    def start_over(self, seed: int = 0) -> None:
        """From nothing."""
        self._number += 1
        self.clock = ManualClock(seed=seed)
        self._memory = MemoryStore(clock=self.clock)
        self.calls.clear()
        self.acted.clear()
        self.again.clear()
        self.effects.clear()
        if self.case.before is not None:
            self.case.before()

    def _open(self, fuse: Fuse) -> CrashSqliteStore | FilesStore | CrashStore:
        place = os.path.join(self._folder, str(self._number))
        if self._on == "sqlite":
            return CrashSqliteStore(place + ".db", fuse, durability="normal", clock=self.clock)
        if self._on == "files":
            return FilesStore(place, clock=self.clock, disk=CrashDisk(fuse))
        memory = MemoryStore(clock=self.clock, beside=self._memory)
        return _Named(memory, fuse)

    # --- one life

    def live(self, fuse: Fuse) -> bool:
        """One process: start the workflow, or go on with it, to its end. Whether it lived to see that."""
        self.effects.begin(fuse)
        try:
            store = self._open(fuse)
        except Crash:
            return False
        hf = open_still(store)
        hf.client.engine.tracer = _Recorder(self, fuse)
        try:
            hf.recover()
            run = hf.start(self.workflow, *self.case.args, id=ID, **self.case.kwargs)
            for n, (topic, value) in enumerate(self.case.messages):
                with suppress(RunEnded):
                    run.send(value, topic=topic, key=f"message {n}")
            self._see_to(hf, run)
            hf.close()
        except Crash:
            store.drop()
            return False
        except BaseException:  # also an interrupt: the store is let go of whatever it was
            store.drop()
            raise
        return True

    def _see_to(self, hf: Holdfast, run: Run) -> None:
        """Answer, resolve and wait until the run has ended, and its children too."""
        for _ in range(ROUNDS):
            open_runs = [record for record in hf.client.store.find(Filter(), limit=1000) if record.status not in ENDED]
            if not open_runs:
                return
            helped = [self._help(hf, record) for record in open_runs]
            if not any(helped):
                wakes = [at for record in open_runs if (at := wake_time(record)) is not None]
                if not wakes:
                    told = ", ".join(f"{record.id} is {record.status}" for record in open_runs)
                    raise Unfinished(f"nothing happens any longer: {told}")
                self.clock.advance(max(min(wakes) - self.clock.now(), 0) / 1_000_000)
        raise Unfinished(f"{run.id} did not end in {ROUNDS} rounds of answering and waiting")

    def _help(self, hf: Holdfast, record: RunRecord) -> bool:
        """Do for a run what somebody else has to do; whether there was something."""
        run = hf.get(record.id)
        helped = False
        for question in run.questions():
            run.answer(self._answer(question), question=question)
            helped = True
        if record.status is Status.BLOCKED:
            self._resolve(run, record)
            helped = True
        due = record.status is Status.WAITING and record.wake_at is not None and record.wake_at <= self.clock.now()
        if helped or due or record.status in (Status.READY, Status.RUNNING):
            with suppress(Claimed):
                run.resume()
                return True
        return helped

    def _answer(self, question: Question) -> Any:
        if callable(self.case.answers):
            return self.case.answers(question)
        given = self.case.answers or {}
        for name in (question.prompt, question.output_key):
            if name in given:
                return given[name]
        raise UsageError(f"the workflow asks {question.prompt!r}: say what is answered, with answers={{...}}")

    def _resolve(self, run: Run, record: RunRecord) -> None:
        """What a person does who finds out the truth about an at-most-once step that died in the act."""
        doubtful: list[Effect] = [effect for effect in run.effects() if effect.status == "uncertain"]
        if not doubtful:
            raise Unfinished(f"{record.id} is blocked: {record.reason}")
        for effect in doubtful:
            done = (record.id, effect.key) in self.acted
            run.resolve(effect.key, done=done, result=self._results.get(effect.key) if done else None)
        if run.status is Status.BLOCKED:
            run.unblock()

    # --- what came of it

    def look(self, compare: Callable[[Any], Any]) -> Seen:
        """What came of it. Raises what damage there is."""
        hf = open_still(self._open(Fuse()))
        hf.client.engine.tracer = _Recorder(self, Fuse())
        try:
            for info in hf.runs(limit=1000):
                hf.get(info.id).audit()
            run = hf.get(ID)
            try:
                result = compare(run.result())
            except HoldfastError as error:
                result = (type(error), str(error))
            except Exception as error:  # how the workflow ends is compared, whatever that is
                result = (type(error), error.args)
            now = run.checkpoint()
            self._results = {**self._results, **now.results}
            return Seen(result, frozenset(now.completed), Counter(repr(effect) for effect in self.effects))
        finally:
            hf.close()

    def wrong_by_itself(self) -> list[str]:
        """What is wrong whether there was a crash or not."""
        done = zip(self.effects, self.effects.by, strict=True)
        outside = {repr(effect) for effect, by in done if by == ""}
        return [
            f"{effect} was done by the workflow itself, outside of any step, so it is done again whenever the workflow "
            "is gone on with; do it in a step"
            for effect in sorted(outside)
        ]

    def compare(self, expected: Seen, found: Seen) -> Iterator[str]:
        """What differs from the run without a crash, and what must not be."""
        if found.result != expected.result:
            yield f"the result is {found.result!r}, not {expected.result!r}"
        for key in sorted(expected.steps - found.steps):
            yield f"step {key} was not done"
        yield from (f"step {key} was done, and ran again" for key in self.again)
        for (run, key, _), times in self.calls.items():
            if times > 1 and (run, key) in self.once:
                yield f"step {key} is at most once, and ran {times} times"
        yield from self.wrong_by_itself()
        for effect in sorted(expected.effects.keys() | found.effects.keys()):
            yield from self._compare_effect(effect, expected.effects[effect], found.effects[effect])

    def _compare_effect(self, effect: str, wanted: int, times: int) -> Iterator[str]:
        by = [key for one, key in zip(self.effects, self.effects.by, strict=True) if repr(one) == effect]
        step = next((key for key in by if key), None)
        if times < wanted:
            yield f"{effect} happened {_times(times)}, not {_times(wanted)}"
        elif times > wanted and (step is None or self.names.get(step, step) not in self.case.may_repeat):
            who = f"by step {step} " if step else ""
            yield (
                f"{effect} happened {_times(times)} {who}and should happen {_times(wanted)}: the process died between "
                "the act and the record of it. Give this_step().idempotency_key to the outside, make the step "
                "at_most_once, or let it be with may_repeat="
            )


def _times(n: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(n, f"{n} times")


class _Recorder:
    """Notes what steps do, without their help."""

    def __init__(self, trial: Trial, fuse: Fuse) -> None:
        self._trial, self._fuse = trial, fuse

    def context(self) -> dict[str, str]:
        return {}

    def drive(self, execution: Execution, call: Callable[[], Any]) -> Any:
        return call()

    def step(self, execution: Execution, step: StepFunction[..., Any], key: str) -> AbstractContextManager[object]:
        self._trial.names[key] = step.name
        if step.at_most_once:
            self._trial.once.add((execution.run.id, key))
        return nullcontext()

    @contextmanager
    def attempt(self, execution: Execution, key: str, attempt: int) -> Iterator[None]:
        trial, run = self._trial, execution.run.id
        if key in execution.lease.fold.steps:
            trial.again.append(key)
        trial.calls[run, key, this_step().idempotency_key] += attempt_counts(execution, key)
        before = len(trial.effects)
        try:
            yield
        finally:
            if key in trial.effects.by[before:]:
                trial.acted.add((run, key))
        trial.acted.add((run, key))
        self._fuse.changed()


def attempt_counts(execution: Execution, key: str) -> int:
    """An attempt that comes after one that failed is no repetition."""
    return 0 if key in execution.lease.fold.attempts else 1


class _Named(CrashStore):
    """A store with a fuse, whose points tell what is being committed."""

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        what = ", ".join(_told(write) for write in batch)
        return self._change(f"{what} was kept", lambda: self.store.apply(batch))


def _told(write: Write) -> str:
    """A write in words."""
    if isinstance(write, Create | Adopt):
        return f"run {write.record.id!r}"
    if isinstance(write, Post):
        return f"the {write.item.kind} {write.item.key}"
    if not isinstance(write, Append):
        return f"a change of {write.uid}"
    told = []
    for entry in write.entries:
        data: Any = from_text(expand(entry.payload))
        told.append(f"{entry.kind} {data['key']}" if "key" in data else str(entry.kind))
    return " and ".join(told) or (f"that it is {write.change.status}" if write.change is not None else "nothing")
