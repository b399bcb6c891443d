"""What a run says of itself while it goes on: its steps, its notes and its output stream."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Each, Listen, Op, Read, drive, drive_async
from holdfast.engine.argument_checks import check_history_page, check_seq, check_texts
from holdfast.engine.workflow.outcomes import Unwind
from holdfast.kernel.fold import name_in
from holdfast.kernel.journal import Data, is_live, live_ranges
from holdfast.kernel.model import ENDED, Kind, RunRecord, Status
from holdfast.kernel.rules import check_here
from holdfast.views import Output, Page, StepInfo, moment

if TYPE_CHECKING:
    from holdfast.engine.workflow.execution import Execution

CHUNK = 200  # entries that are read at a time


def outputs(run: HeldRun, stream: str | None = None, *, limit: int = 100, after: str | None = None) -> Op[Page[Output]]:
    """The values that the workflow has emitted, oldest first: of one stream, or of all.

    ``"notes"`` is the stream of its notes.
    """
    check_texts(stream=stream)
    check_history_page(limit, after, None)
    found: list[Output] = []
    record = yield Read(run.read_record)
    last = -1 if after is None else int(after)
    while last < record.seq and len(found) < limit:
        lo, hi = last + 1, min(last + CHUNK, record.seq)
        for output in (yield Read(partial(_between, run, record, lo, hi))):
            if stream in (None, output.stream) and len(found) < limit:
                found.append(output)
        last = found[-1].seq if len(found) == limit else hi
    return Page(tuple(found), str(last) if last < record.seq else None)


def _between(run: HeldRun, record: RunRecord, lo: int, hi: int) -> list[Output]:
    ranges = live_ranges(record.rewinds, record.seq)
    said = [entry.seq for entry in run.journals.headers(record, lo, hi) if entry.kind == Kind.EMITTED]
    found: list[Output] = []
    for first, last in stretches([seq for seq in said if is_live(ranges, seq)]):
        for uid, entry in run.journals.entries(record, first, last):
            data = run.journals.data(run.id, uid, entry)
            if "erased" not in data:
                value = run.journals.value(run.id, data["value"], f"output at {entry.seq}")
                found.append(Output(entry.seq, moment(entry.at), data["stream"], value))
    return found


def stretches(seqs: list[int]) -> list[tuple[int, int]]:
    """The numbers as stretches without gaps, so that what lies between them is not read: it may be large."""
    found: list[tuple[int, int]] = []
    for seq in seqs:
        if found and found[-1][1] == seq - 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return found


def follow(run: HeldRun, stream: str = "output", *, after: int | None = None) -> Each[Any]:
    """Yield the values of a stream as the workflow emits them, until the run has ended.

    Iterate it with ``for``, in async code with ``async for``. ``after`` is the ``seq`` to continue after.
    """
    check_texts(stream=stream)
    check_seq("after", 0 if after is None else after)
    if run.is_async:
        return _follow_async(run, stream, -1 if after is None else after)
    return _follow(run, stream, -1 if after is None else after)


def _follow(run: HeldRun, stream: str, after: int) -> Iterator[Any]:
    over = False
    while not over:
        found, after, over = drive(_more(run, stream, after), run.committer)
        for output in found:
            yield output.value


async def _follow_async(run: HeldRun, stream: str, after: int) -> AsyncIterator[Any]:
    over = False
    while not over:
        found, after, over = await drive_async(_more(run, stream, after), run.committer)
        for output in found:
            yield output.value


def _more(run: HeldRun, stream: str, after: int) -> Op[tuple[list[Output], int, bool]]:
    """What came since; waits until there is something. And where to go on, and whether that was all."""
    while True:
        heard = yield Read(run.engine.bell.heard)
        record = yield Read(run.read_record)
        over = record.status in ENDED
        while after < record.seq:
            upto = min(after + CHUNK, record.seq)
            found = yield Read(partial(_between, run, record, after + 1, upto))
            after = upto
            if mine := [output for output in found if output.stream == stream]:
                return mine, after, over and after == record.seq
        if over:
            return [], after, True
        check_here(record)
        yield Listen(run.engine.bell, heard, 1.0 if record.status is Status.RUNNING else None)


class Activity:
    """What this process does for a run, also what the journal does not tell yet; it can be looked at repeatedly."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    @property
    def steps(self) -> dict[str, float]:
        """The keys of the steps that are being carried out, and since how many seconds."""
        now = time.monotonic()
        return {key: now - since for key, since in self._execution.active.copy().items()}

    @property
    def branches(self) -> dict[str, tuple[int, int]]:
        """For each call of ``gather`` and ``map``, how many of its branches have ended, and of how many."""
        fans = self._execution.fans.copy().items()
        return {name: (sum(map(_has_ended, fan)), len(fan)) for name, fan in fans}


def _has_ended(branch: Any) -> bool:
    """Whether a branch has come to its end: one that waits was taken apart, or is still there."""
    return branch.done() and not branch.cancelled() and not isinstance(branch.exception(), Unwind)


def activity(run: HeldRun) -> Activity | None:
    """What this process does for the run now; None if it is driven elsewhere, or not at all."""
    execution = run.engine.executions.get(run.uid)
    return Activity(execution) if execution is not None else None


def steps(run: HeldRun) -> Op[tuple[StepInfo, ...]]:
    """The steps of the run in the order in which they began to count, with how each of them stands."""
    fold = yield from run.seen()
    begun = "started" if (yield Read(run.read_record)).status is Status.RUNNING else "uncertain"
    found: dict[str, StepInfo] = {}
    times = {seq: at for seq, _, at, _ in fold.log}

    def add(key: str, tool: str | None, status: Any, seq: int, data: Data, attempts: int = 1) -> None:
        name = tool or (name_in(key) if "#" in key else key)
        found[key] = StepInfo(
            key=key,
            name=name,
            status=status,
            seq=seq,
            at=moment(times.get(seq, 0)),
            attempts=attempts,
            error=data.get("error"),
            seconds=data.get("seconds"),
            erased="erased" in data,
        )

    for seq, kind, _, data in fold.log:
        key = data.get("key")
        if key is None:
            continue
        if kind == Kind.STARTED and fold.started.get(key) == seq:
            add(key, data.get("tool"), "started", seq, data)
        elif kind == Kind.INTENDED and key in fold.intents:
            add(key, data.get("tool"), begun, seq, data, data.get("attempt", 1))
        elif kind == Kind.RAISED and "uncertain" in data and key in fold.intents:
            add(key, fold.ledger[fold.intents[key]].data["tool"], "uncertain", seq, data)
        elif kind == Kind.RAISED and key in fold.attempts:
            add(key, data.get("tool"), "retrying", seq, data, data.get("attempt", 1))
        elif kind == Kind.RAISED and key in fold.failures:
            add(key, fold.failures[key].tool, "failed", seq, data, data.get("attempt", 1))
        elif key in fold.steps and fold.steps[key].seq == seq:
            add(key, fold.steps[key].tool, "done", seq, data, data.get("attempts", 1))
    return tuple(found.values())
