"""Everything Holdfast raises, as one tree with one root.

A class's docstring is its default message. A message names the thing, the place and the remedy.

    HoldfastError
    ├── UsageError                 the call itself is wrong
    │   ├── InvalidId              an id that cannot be kept
    │   ├── UndoRefused            an undo that could not be found again later
    │   ├── StateReadOnly          a node changed the state that it was given
    │   ├── FlowInvalid            a flow file that cannot be run (``.problems``, each with its place)
    │   ├── VarsRefused            values that do not fit a flow's variables (``.problems``)
    │   ├── ExtraMissing           a package that is not installed here
    │   └── GraphInvalid           a graph that cannot run as it is declared (``.problems``)
    ├── RunError                   about one run (``.run``)
    │   ├── RunNotFound
    │   ├── RunExists
    │   ├── RunEnded               it is completed, failed or cancelled
    │   ├── RunBlocked             parked until a person acts
    │   │   └── UndoFailed         a rollback stopped at an undo that failed (``.report``)
    │   ├── RunCancelled           its result was asked for, and it was cancelled
    │   ├── DeadlinePassed         it took longer than it may
    │   ├── WorkflowMissing        its workflow is not declared in this process
    │   ├── StepTimeout            a step took longer than it may (a TimeoutError)
    │   ├── TimedOut               what was waited for did not come in time (a TimeoutError)
    │   ├── DefinitionChanged      it was made for another workflow or definition
    │   ├── Claimed                somebody else holds it
    │   ├── LeaseLost              this holder's epoch is no longer the current one
    │   │   └── Moved              it lives in another store (``.place``)
    │   ├── InboxNotEmpty          its end was refused: something was acknowledged that it has not taken in
    │   ├── NoCheckpoint           no such sequence number in the history
    │   ├── NonDeterminism         a completed step was called differently
    │   ├── Uncertain              an at-most-once step crashed in the act
    │   ├── QuestionClosed         it was answered already, or never asked
    │   ├── AnswerRefused          the answer does not fit its fields (``.problems``)
    │   ├── Redacted               the value was erased on request
    │   └── RunDamaged             what is stored of the run does not add up
    ├── ValueRefused               a value that cannot be stored or read (``.path``)
    │   ├── NotStorable
    │   ├── TooLarge
    │   ├── TypeMissing            stored type not registered here, or of an unknown version
    │   └── UpdateRefused          an update that does not fit the state (``.graph``, ``.node``, ``.field``)
    ├── FlowFailed                 a step of a flow failed, and so did its run (``.step``)
    ├── ActionFailed               what a step of a flow did has failed (``.record``)
    ├── TemplateRefused            a template that is none, or costs too much (``.place``, ``.why``)
    ├── NotDone                    raised by your step: it has not acted, so it may be tried again
    ├── StepFailed                 a step's error, of a type that is not here (``.type``, ``.message``)
    ├── ScheduleNotFound           there is no schedule of this id (``.schedule``)
    ├── ScheduleMoved              the schedule is in another store (``.schedule``, ``.place``)
    ├── KeyMissing                 the master key for a run is not in the keyring
    ├── SecretMissing              the value of a secret is not in this process (``.name``)
    ├── StoreError                 about the store as a whole (``.place``)
    │   ├── StoreNotFound
    │   ├── StoreDamaged
    │   ├── StoreFull
    │   ├── StoreReadOnly
    │   ├── StoreBusy
    │   ├── StoreUnreachable       the database cannot be reached
    │   ├── StoreTooNew            written for a newer Holdfast
    │   ├── StoreUnusable          closed, poisoned by a failed sync, or carried over a fork
    │   │   └── StoreReplaced      another file or folder is in its place, such as a restored backup
    │   └── BackupDamaged
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from holdfast.graph.model import Problem
    from holdfast.views import RollbackReport


class HoldfastError(Exception):
    """Something went wrong in Holdfast."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or "").strip())


class UsageError(HoldfastError):
    """The call is not valid here."""


class InvalidId(UsageError):
    """An id is 1 to 512 characters of text without lone surrogates."""


class UndoRefused(UsageError):
    """An undo must be a module-level function, so that another process can find it by name."""


class StateReadOnly(UsageError):
    """A node must not change the state that it is given; return an update instead."""


class GraphInvalid(UsageError):
    """The graph cannot run as it is declared."""

    def __init__(self, graph: str, problems: tuple[Problem, ...]) -> None:
        self.graph = graph
        self.problems = problems
        super().__init__(f"graph {graph}: " + "; ".join(map(str, problems)))


class FlowInvalid(UsageError):
    """The flow cannot be run."""

    def __init__(self, file: str, problems: Sequence[object]) -> None:
        self.file = file
        self.problems = tuple(problems)
        told = "; ".join(str(problem) for problem in self.problems[:5])
        more = f"; and {len(self.problems) - 5} more" if len(self.problems) > 5 else ""
        super().__init__(f"flow {file} cannot be run: {told}{more}")


class VarsRefused(UsageError):
    """The values do not fit the flow's variables."""

    def __init__(self, flow: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"flow {flow}: {'; '.join(self.problems)}")


class ExtraMissing(UsageError):
    """A package that this needs is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs a package that is not installed; run: pip install 'holdfast[{extra}]'")


class RunError(HoldfastError):
    """Something is wrong with one run."""

    def __init__(self, run: str, message: str | None = None) -> None:
        self.run = run
        detail = message if message is not None else (type(self).__doc__ or "").strip()
        super().__init__(f"run {run!r}: {detail}")


class RunNotFound(RunError):
    """there is no such run in this store."""


class RunExists(RunError):
    """a run with this id exists already."""


class RunEnded(RunError):
    """the run has ended; fork it, or roll it back, to go on."""


class RunBlocked(RunError):
    """the run is parked until a person acts; `run.unblock()` lets it go on."""


class UndoFailed(RunBlocked):
    """a rollback stopped at an undo that failed; roll back again to retry it, or with force=True to pass over it."""

    def __init__(self, run: str, message: str, report: RollbackReport) -> None:
        self.report = report
        super().__init__(run, message)


class RunCancelled(RunError):
    """the run was cancelled."""


class DeadlinePassed(RunError):
    """the run took longer than its deadline."""


class WorkflowMissing(RunError):
    """its workflow is not declared in this process; import the module that declares it."""


class StepTimeout(RunError, TimeoutError):
    """the step did not end within its timeout."""


class TimedOut(RunError, TimeoutError):
    """what was waited for did not come in time."""


class DefinitionChanged(RunError):
    """the run was made for another workflow, or for another definition of it."""


class Claimed(RunError):
    """the run is held by another worker; try again when its lease ends."""


class LeaseLost(RunError):
    """the lease was lost: another worker claimed the run, so this write was refused."""


class Moved(LeaseLost):
    """the run lives in another store."""

    def __init__(self, run: str, place: str, *, settled: bool = True) -> None:
        self.place = place
        moved = f"it was moved to {place}; go on with it there"
        moving = f"it is being moved between here and {place}; if that was broken off, `holdfast move` finishes it"
        super().__init__(run, moved if settled else moving)


class InboxNotEmpty(RunError):
    """something was acknowledged that the run has not taken in, so its end was not written; take it in first."""


class NoCheckpoint(RunError):
    """there is no such sequence number in the run's history."""


class NonDeterminism(RunError):
    """a completed step was called again with another name or other arguments."""


class Uncertain(RunError):
    """an at-most-once step crashed in the act; say what happened with `run.resolve(...)`."""


class QuestionClosed(RunError):
    """the question is not open: it was answered already, or never asked."""


class AnswerRefused(RunError):
    """the answer does not fit the question; nothing was consumed."""

    def __init__(self, run: str, problems: tuple[str, ...]) -> None:
        self.problems = problems
        super().__init__(run, "the answer was refused: " + "; ".join(problems))


class Redacted(RunError):
    """the value was erased on request."""


class RunDamaged(RunError):
    """what is stored of the run does not add up; restore it from a backup, or fork it before the damage."""


class ValueRefused(HoldfastError):
    """The value cannot be kept."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        super().__init__(f"{path}: {problem}")


class NotStorable(ValueRefused):
    """The value is of a kind that cannot be stored."""


class TooLarge(ValueRefused):
    """The value is larger than the limit."""


class TypeMissing(ValueRefused):
    """The stored type is not known here."""


class UpdateRefused(ValueRefused):
    """The update does not fit the state; nothing of it is kept."""

    def __init__(self, graph: str, node: str, field: str | None, problem: str) -> None:
        self.graph = graph
        self.node = node
        self.field = field
        where = f" of field {field!r}" if field is not None else ""
        super().__init__(f"graph {graph}, node {node}: the update{where}", problem)


class FlowFailed(HoldfastError):
    """A step of a flow failed, and so did its run."""

    def __init__(self, step: str, place: str, why: str, *, wants_rollback: bool = False) -> None:
        self.step = step
        self.wants_rollback = wants_rollback
        super().__init__(f"step {step!r} ({place}) failed: {why}")


class ActionFailed(HoldfastError):
    """What a step of a flow did has failed."""

    speaks_for_itself = False  # whether people are shown its text alone, without its type

    def __init__(self, why: str, record: Mapping[str, Any] | None = None) -> None:
        self.why = why
        self.record = dict(record or {})
        super().__init__(why)


class TemplateRefused(HoldfastError):
    """The template is none, or costs too much."""

    def __init__(self, place: str | None, why: str, line: int | None = None) -> None:
        self.place = place
        self.why = why
        self.line = line
        super().__init__(f"the template of {place} is refused: {why}" if place else f"the template is refused: {why}")


class NotDone(HoldfastError):
    """The step has not acted: raise this in an at-most-once step to let it be tried again."""


class StepFailed(HoldfastError):
    """A step failed with an error that cannot be made again here; import the module of its type first."""

    def __init__(self, type: str, message: str) -> None:
        self.type = type
        self.message = message
        super().__init__(message)


class ScheduleNotFound(HoldfastError):
    """There is no schedule of this id."""

    def __init__(self, schedule: str, place: str) -> None:
        self.schedule = schedule
        super().__init__(f"there is no schedule {schedule!r} in {place}; hf.schedules() lists them")


class ScheduleMoved(HoldfastError):
    """The schedule is in another store."""

    def __init__(self, schedule: str, place: str, *, settled: bool = True) -> None:
        self.schedule = schedule
        self.place = place
        moving = f"is being moved between here and {place}; if that was broken off, `holdfast move` finishes it"
        super().__init__(f"schedule {schedule!r} " + (f"was moved to {place}; it ticks there" if settled else moving))


class KeyMissing(HoldfastError):
    """The run is encrypted, and its master key is not in the keyring."""


class SecretMissing(HoldfastError):
    """The value of a secret is not in this process."""

    def __init__(self, name: str, remedy: str) -> None:
        self.name = name
        super().__init__(f"secret {name!r}: its value is not in this process; {remedy}")


class StoreError(HoldfastError):
    """Something is wrong with the store."""

    def __init__(self, place: str, message: str | None = None, *, what: str = "store") -> None:
        self.place = place
        detail = message if message is not None else (type(self).__doc__ or "").strip()
        super().__init__(f"{what} {place}: {detail}")


class StoreNotFound(StoreError):
    """there is no store of this kind; use memory://, files:///path, sqlite:///path or postgresql://user@host/database."""


class StoreDamaged(StoreError):
    """the store's own file is damaged; restore it from a backup."""


class StoreFull(StoreError):
    """the disk is full; nothing that was acknowledged is lost. Free some space and go on."""


class StoreReadOnly(StoreError):
    """the store cannot be written; check the permissions of the file and its folder."""


class StoreBusy(StoreError):
    """another process kept the store locked for too long; try again."""


class StoreUnreachable(StoreError):
    """the database cannot be reached; check the server and the network."""


class StoreTooNew(StoreError):
    """the store was written for a newer Holdfast; upgrade this one."""


class StoreUnusable(StoreError):
    """this handle can no longer be used; open the store again."""


class StoreReplaced(StoreUnusable):
    """the store was replaced while it was open, by a restored backup, say; open the store again."""


class BackupDamaged(StoreError):
    """the backup file is damaged or cut short; nothing was restored."""


_SHOWN = 80  # characters of what was given


def shown(name: str, value: object) -> str:
    """The parameter and what was given, in one line that is not too long."""
    text = " ".join(repr(value).split())
    return f"{name}={text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'}"
