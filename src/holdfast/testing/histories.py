"""Saved histories, replayed against today's code: would a run that is under way still be understood?

A history is saved in the form of a backup, so that it holds everything that the run's journal does. A replay calls the
workflow's function with the recorded input, and gives it what was recorded. Nothing is done: the first step that the
history does not have ends the replay, and so does the first thing that would be written.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from holdfast.codec import Keyring
from holdfast.engine.access.lease import Lease
from holdfast.engine.admin import backup
from holdfast.engine.app import Holdfast
from holdfast.engine.execute.execute import call, left_out, missing
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.declare import Workflow, registered
from holdfast.engine.workflow.execution import Execution
from holdfast.engine.workflow.inputs import arguments_of
from holdfast.engine.workflow.outcomes import Parked, Raised, Returned
from holdfast.engine.workflow.replay import leftover
from holdfast.engine.workflow.step import StepFunction
from holdfast.errors import DefinitionChanged, NonDeterminism, Redacted, UsageError, ValueRefused, WorkflowMissing
from holdfast.kernel.model import Filter, RunRecord, Status
from holdfast.stores.memory import MemoryStore
from holdfast.stores.protocol import Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.still import open_still


class Replayed(Struct, frozen=True):
    """A replay that agreed with the history: how many of its calls were made again, and how it ended."""

    run: str
    workflow: str
    calls: int
    ended: str


def save_history(run: Run, path: str | os.PathLike[str]) -> None:
    """Save the history of a run in a file, to be replayed by `replay`. What is encrypted stays encrypted."""
    record = run.held.read_record()
    if record.queue is None:
        raise UsageError(f"run {run.id!r} is driven by hand, so there is no workflow to replay it")
    backup.write_backup(run.held.store, os.fspath(path), {record.uid, *(link.uid for link in record.lineage)})


def replay(
    path: str | os.PathLike[str], workflow: Workflow[..., Any] | None = None, *, keys: Keyring | None = None
) -> Replayed:
    """Replay a saved history against a workflow (by default: the one of its name), without doing anything.

    Raises `NonDeterminism` where today's code does something else than was recorded, telling both and the line.
    """
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    backup.take_in(store, os.fspath(path))
    record = max(store.find(Filter(hidden=None), limit=1000), key=lambda record: len(record.lineage))
    clock.advance(max(record.updated_at - clock.now(), 0) / 1_000_000)
    hf = open_still(_Unchanging(store), keys=keys)
    points = _chapter_ends(hf, record)
    calls, ended = 0, ""
    for at in points:
        told, ended = _replay(hf, _as_of(hf, record, at), workflow)
        calls += told
    return Replayed(record.id, str(record.workflow), calls, ended)


def _chapter_ends(hf: Holdfast, record: RunRecord) -> list[int]:
    """The last entry of each stretch after which the workflow began anew, and the last of all."""
    ends, start = [record.seq], record.chapter
    while start > 0:
        ends.append(start - 1)
        start = hf.client.journals.chapter(record, start - 1)
    return ends[::-1]


def _as_of(hf: Holdfast, record: RunRecord, at: int) -> RunRecord:
    chapter = hf.client.journals.chapter(record, at)
    rewinds = tuple(rewind for rewind in record.rewinds if rewind.at <= at)
    return replace(record, seq=at, chapter=chapter, rewinds=rewinds, status=Status.RUNNING, worker="replay")


def _replay(hf: Holdfast, record: RunRecord, workflow: Workflow[..., Any] | None) -> tuple[int, str]:
    fold = hf.client.journals.fold(record, record.seq)
    version = fold.input.get("version")
    found = workflow if workflow is not None else registered(record.workflow, version, fold.input.get("module"))
    if found is None:
        raise WorkflowMissing(record.id, missing(record.workflow, version))
    if found.name != record.workflow:
        raise DefinitionChanged(record.id, f"it is a run of workflow {record.workflow!r}, not of {found.name!r}")
    found = found.of_run(hf.client.codec, fold.input)
    run = hf.client.run(record.id, record.uid)
    lease = Lease(record, hf.client.journals, hf.client.committer, fold)
    reader = hf.client.engine.tracer = _Reader()
    try:
        args, kwargs = arguments_of(run, lease, found)
    except (Redacted, UsageError, ValueRefused) as error:
        raise NonDeterminism(record.id, f"its arguments do not fit {found.name} any longer: {error}") from error
    try:
        _, outcome = call(run, lease, found, args, kwargs)
    except Reached:
        outcome = None
    execution = reader.execution
    assert execution is not None
    if isinstance(execution.outcome, Parked):
        raise NonDeterminism(record.id, execution.outcome.reason)
    left = leftover(execution)
    if isinstance(outcome, Raised) and (left is not None or (fold.ended and fold.ended[0] is Status.COMPLETED)):
        text = f"{type(outcome.error).__name__}: {outcome.error}"
        raise NonDeterminism(record.id, f"the workflow raised {text}, where it went on before") from outcome.error
    if isinstance(outcome, Returned) and left is not None:
        raise NonDeterminism(record.id, left_out(left))
    ends = {Returned: "returned", Raised: "raised", type(None): "reached the end of the history"}
    return len(execution.consumed), ends.get(type(outcome), "waits")


class Reached(BaseException):
    """The end of what was recorded."""


class _Reader:
    """Lets no step act."""

    execution: Execution | None = None

    def context(self) -> dict[str, str]:
        return {}

    def drive(self, execution: Execution, call: Callable[[], Any]) -> Any:
        self.execution = execution
        return call()

    def step(self, execution: Execution, step: StepFunction[..., Any], key: str) -> AbstractContextManager[object]:
        execution.consumed.discard(key)
        raise Reached

    def attempt(self, execution: Execution, key: str, attempt: int) -> AbstractContextManager[object]:
        raise Reached


class _Unchanging:
    """A store that can be read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.place, self.clock, self.compress_over = store.place, store.clock, store.compress_over

    def __getattr__(self, name: str) -> Any:
        return _reached if name in _CHANGES else getattr(self._store, name)


def _reached(*args: Any, **kwargs: Any) -> NoReturn:
    raise Reached


_CHANGES = frozenset({"apply", "claim", "take", "put_document", "beat", "delete", "transact"})
