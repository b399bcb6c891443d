"""Lists of checkpoints, newest first, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple
from msgspec import Struct

from holdfast.engine.access.operations import Op, Read
from holdfast.errors import RunNotFound
from holdfast.integrations.langgraph.index import Found
from holdfast.integrations.langgraph.reading import checkpoint_tuple, read_all
from holdfast.integrations.langgraph.threads import WORKFLOW, Threads
from holdfast.integrations.langgraph.values import Cells
from holdfast.kernel.model import Filter, RunRecord

PAGE = 50  # checkpoints


class Wanted(Struct, frozen=True):
    """Which checkpoints to list. Everything that is given must hold."""

    thread: str | None
    ns: str | None
    id: str | None
    before: str | None
    metadata: dict[str, Any]

    def matches(self, cells: Cells, found: Found) -> bool:
        """Whether the checkpoint is one of them."""
        if self.id and found.id != self.id:
            return False
        if self.before and found.id >= self.before:
            return False
        if not self.metadata:
            return True
        metadata = cells.value(found.meta, "metadata")
        return all(metadata.get(name) == value for name, value in self.metadata.items())


def pages(threads: Threads, cells: Cells, wanted: Wanted, limit: int | None) -> Iterator[Op[Sequence[CheckpointTuple]]]:
    """Operations that give a page each."""
    found: list[tuple[RunRecord, Found]] = []
    left = limit

    def first() -> Op[Sequence[CheckpointTuple]]:
        for record in (yield Read(_records, threads, wanted.thread)):
            with suppress(RunNotFound):  # it was deleted meanwhile
                listed = yield Read(lambda record=record: threads.index(record).newest_first(wanted.ns))
                found.extend((record, one) for one in listed)
        found.sort(key=lambda each: each[1].id, reverse=True)
        return ()

    def page() -> Op[Sequence[CheckpointTuple]]:
        nonlocal left
        chosen: list[tuple[RunRecord, Found]] = []
        while found and len(chosen) < PAGE and (left is None or left > 0):
            record, one = found.pop(0)
            if wanted.matches(cells, one):
                chosen.append((record, one))
                left = None if left is None else left - 1
        return (yield Read(_read, threads, cells, chosen))  # type: ignore[no-any-return]

    if limit is not None and limit <= 0:
        return
    yield first()
    while found and (left is None or left > 0):
        yield page()


def _records(threads: Threads, thread: str | None) -> list[RunRecord]:
    if thread is not None:
        record = threads.record(thread)
        return [record] if record is not None else []
    return list(every_thread(threads))


def every_thread(threads: Threads) -> Iterator[RunRecord]:
    """All threads of the store."""
    before = None
    while page := threads.store.find(Filter(workflow=WORKFLOW), before=before, limit=500):
        before = page[-1].uid
        yield from page


def _read(threads: Threads, cells: Cells, chosen: Sequence[tuple[RunRecord, Found]]) -> list[CheckpointTuple]:
    """The checkpoints of a page, each thread's in one go through its journal."""
    of_thread: dict[str, list[tuple[RunRecord, Found]]] = {}
    for record, found in chosen:
        of_thread.setdefault(record.uid, []).append((record, found))
    made: dict[tuple[str, int], CheckpointTuple] = {}
    for uid, group in of_thread.items():
        record = group[0][0]
        with suppress(RunNotFound):
            for stored in read_all(threads, record, threads.index(record), [found for _, found in group]):
                made[uid, stored.header.seq] = checkpoint_tuple(cells, record.id, stored)
    # What is missing was deleted, or pruned, since it was listed.
    return [made[place] for record, found in chosen if (place := (record.uid, found.seq)) in made]
