"""Threads as a whole: deleting, copying, pruning.

What is deleted of a thread that goes on is erased from its journal: that there was an entry stays on record, what it
said does not. What is kept is written once more, at the end, and what stands before is no longer read. So a thread that
was pruned is as cheap to read as a new one, and can still be audited.

First the new beginning is committed, then what was before is erased, but for what copies share: whoever copies the
thread in between begins at the new beginning, too, and whoever began before that looks whether it was there in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.codec import Tree, redacted_digest
from holdfast.engine.access.commit import Ticket
from holdfast.engine.access.operations import Op, Read, Settle
from holdfast.engine.control.delete import delete as delete_run
from holdfast.engine.control.erase import erasure_of
from holdfast.engine.control.fork import fork
from holdfast.errors import LeaseLost, Redacted, RunNotFound, UsageError
from holdfast.integrations.langgraph.index import Found, Index
from holdfast.integrations.langgraph.listing import every_thread
from holdfast.integrations.langgraph.reading import Stored, read_all, trails, written_to
from holdfast.integrations.langgraph.thread_writer import Kept, Pen
from holdfast.integrations.langgraph.threads import TRIES, WORKFLOW, Threads
from holdfast.integrations.langgraph.values import Cells
from holdfast.kernel.model import Filter, Kind, RunRecord

Choose = Callable[[Index], list[Found]]


def delete(threads: Threads, id: str) -> Op[None]:
    """Delete a thread, if there is one."""
    record = yield Read(threads.record, id)
    if record is not None:
        yield from delete_run(threads.hf.client.run(record.id, record.uid))
    threads.forget_thread(id)


def copy(threads: Threads, source: str, target: str) -> Op[None]:
    """A new thread that shares the whole history of another one, up to now."""
    for _ in range(TRIES):
        record = yield Read(threads.record, source)
        if record is None:
            raise RunNotFound(source, "there is no such thread, so it cannot be copied")
        yield from fork(threads.hf.client.run(record.id, record.uid), id=target)
        now = yield Read(partial(threads.store.get, uid=record.uid))  # also if it was deleted meanwhile
        if now is not None and now.chapter == record.chapter:
            return
        yield from delete(threads, target)  # it was pruned meanwhile, and may not have known of the copy
    raise LeaseLost(source, f"it was pruned {TRIES} times while it was copied")


def prune(threads: Threads, cells: Cells, ids: Sequence[str], strategy: str) -> Op[None]:
    """Delete what is not needed to go on, or everything."""
    if strategy not in ("keep_latest", "delete"):
        raise UsageError(f"strategy={strategy!r}: it is 'keep_latest' or 'delete'")
    for id in ids:
        if strategy == "delete":
            yield from delete(threads, id)
        else:
            yield from _keep_only(threads, cells, id, _newest)


def _newest(index: Index) -> list[Found]:
    return [there[max(there)] for there in index.checkpoints.values() if there]


def delete_for_runs(threads: Threads, cells: Cells, run_ids: Sequence[str]) -> Op[None]:
    """Delete the checkpoints that were made by these runs of LangGraph, in whatever thread. All threads are read."""
    doomed = set(run_ids)
    if not doomed:
        return

    def others(index: Index) -> list[Found]:
        return [one for one in index.newest_first(None) if _metadata(cells, one.meta).get("run_id") not in doomed]

    for record in (yield Read(lambda: list(every_thread(threads)))):
        yield from _keep_only(threads, cells, record.id, others)


def _metadata(cells: Cells, tree: Tree) -> dict[str, Any]:
    found = cells.value(tree, "metadata")
    return found if isinstance(found, dict) else {}


def _keep_only(threads: Threads, cells: Cells, id: str, choose: Choose) -> Op[None]:
    """Delete all checkpoints of a thread but some; again, if it was written to, pruned or deleted meanwhile."""
    for tried in range(TRIES):
        record = yield from threads.writable(id)
        if record is None:
            return
        try:
            index = yield Read(partial(threads.index, record))
            chosen = choose(index)
            if not chosen:
                yield from delete(threads, id)
                return
            if len(chosen) == sum(len(there) for there in index.checkpoints.values()):
                if not (yield Read(partial(_has_remains, threads, record))):
                    return
            else:
                yield Settle((yield Read(partial(_rewrite, threads, cells, record, index, chosen))))
        except (LeaseLost, Redacted, RunNotFound):
            if tried == TRIES - 1:
                raise
            continue
        finally:
            threads.forget_thread(id)
        yield from _erase(threads, id)
        return


def _rewrite(threads: Threads, cells: Cells, record: RunRecord, index: Index, chosen: Sequence[Found]) -> Ticket:
    """Submit the new beginning of a thread."""
    tasks = written_to(threads, record, index, chosen)
    stays = {(found.ns, found.id): found for found in chosen}
    kept: list[Kept] = []
    for stored in read_all(threads, record, index, chosen):
        header = stored.header
        if (header.ns, header.parent) not in stays:
            names = _rebuilt(_metadata(cells, header.meta), stored)
            trail = trails(threads, record, index, stays[header.ns, header.id], names)
            header = replace(
                header, trail={name: one.data() for name, one in trail.items() if not one.is_empty} or None
            )
        kept.append(Kept(header, stored.contents, tasks.get((header.ns, header.id), [])))
    pen = Pen(record, None, threads.journals, threads.committer)
    return pen.rewrite(record.chapter, kept)


def _erase(threads: Threads, id: str) -> Op[None]:
    """Erase what stands before the new beginning. A copy that is made from now on begins there, too."""
    for _ in range(TRIES):
        record = yield from threads.writable(id)
        if record is None:
            return
        erasures = yield Read(partial(_erasures, threads, record))
        if not erasures:
            return
        saved = yield Read(partial(threads.journals.state, record))
        pen = Pen(record, saved, threads.journals, threads.committer)
        try:
            yield Settle(pen.erase(erasures))
            return
        except LeaseLost:  # it was written to meanwhile
            continue
    raise LeaseLost(id, f"others were faster {TRIES} times")


def _has_remains(threads: Threads, record: RunRecord) -> bool:
    """Whether what was before the new beginning was not erased: whoever pruned it died in between."""
    if record.chapter == 0:
        return False
    since = threads.journals.headers(record, record.chapter, record.seq)
    return not any(entry.kind == Kind.REDACTED for entry in since)


def _rebuilt(metadata: dict[str, Any], stored: Stored) -> list[str]:
    """The channels that LangGraph may want to rebuild from what was written to them before."""
    counted = metadata.get("counters_since_delta_snapshot")
    missing = [name for name in stored.contents.versions if name not in stored.contents.channels]
    if isinstance(counted, dict):
        return [name for name in missing if name in counted]
    return [name for name in missing if not name.startswith(("branch:", "__"))]


def _erasures(threads: Threads, record: RunRecord) -> list[tuple[int, bytes]]:
    """What takes the place of the thread's own entries, but for those that copies of it share."""
    first = max(record.base, _shared_upto(threads, record) + 1)
    if first > record.chapter - 1:
        return []
    made: list[tuple[int, bytes]] = []
    for uid, entry in threads.journals.entries(record, first, record.chapter - 1):
        if entry.kind in (Kind.SAVED, Kind.DONE) and redacted_digest(entry.payload) is None:
            erasure = erasure_of(threads.journals, record, uid, entry)
            assert erasure is not None
            made.append((entry.seq, erasure))
    return made


def _shared_upto(threads: Threads, record: RunRecord) -> int:
    """The last entry of a thread that a fork shares; -1 if there is none. A fork may be deleted, and shared itself."""
    upto, before = -1, None
    while page := threads.store.find(Filter(workflow=WORKFLOW, hidden=None), before=before, limit=500):
        before = page[-1].uid
        upto = max([upto, *(link.upto for one in page for link in one.lineage if link.uid == record.uid)])
    return upto
