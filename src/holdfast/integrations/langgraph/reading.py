"""Reading: one checkpoint, many, and what a channel was made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointTuple,
    DeltaChannelHistory,
    PendingWrite,
    writes_sort_key,
)
from msgspec import Struct

from holdfast.codec import Tree, patch
from holdfast.errors import Redacted, RunNotFound
from holdfast.integrations.langgraph import layout
from holdfast.integrations.langgraph.index import Found, Index
from holdfast.integrations.langgraph.layout import Contents, Header, tasks_in
from holdfast.integrations.langgraph.threads import Threads
from holdfast.integrations.langgraph.values import Cells
from holdfast.kernel.journal import Data, is_live, live_ranges
from holdfast.kernel.model import RunRecord

T = TypeVar("T")

NEAR = 16  # entries that are read along rather than left out


class Stored(Struct, frozen=True):
    """A checkpoint as it is stored, with what was written to it: (task, channel, value), in the order of the tasks."""

    header: Header
    contents: Contents
    writes: list[tuple[str, str, Tree]]


def read(threads: Threads, id: str, ns: str, checkpoint: str | None) -> Stored | None:
    """A checkpoint of a thread; the one with the largest id, if none is named."""
    return _asked(threads, id, lambda record: _read(threads, record, ns, checkpoint))


def _asked(threads: Threads, id: str, ask: Callable[[RunRecord], T | None]) -> T | None:
    """Ask a thread something; once more, if it was deleted or pruned meanwhile. None if there is none."""
    record = threads.record(id)
    while record is not None:
        before, told, problem = record, None, None
        try:
            told = ask(record)
        except (RunNotFound, Redacted) as error:
            problem = error
        record = threads.record(id)
        if record is not None and (record.uid, record.chapter) == (before.uid, before.chapter):
            if problem is not None:
                raise problem
            return told  # nothing that was read was erased under its hands
    return None


def _read(threads: Threads, record: RunRecord, ns: str, checkpoint: str | None) -> Stored | None:
    found = _newest(threads, record, ns, checkpoint)
    if found is not None:
        return found
    index = threads.index(record)
    wanted = index.get(ns, checkpoint)
    return next(read_all(threads, record, index, [wanted])) if wanted is not None else None


def _newest(threads: Threads, record: RunRecord, ns: str, checkpoint: str | None) -> Stored | None:
    """The checkpoint with the largest id, unless another one is asked for; None if more than the state is needed."""
    state = threads.state(record)
    top = layout.top(state, ns)
    if top is None or checkpoint not in (None, top[1]) or not layout.holds_top(state, ns):
        return None
    if checkpoint is None and not layout.is_lasting(ns):
        return None
    stored = state["checkpoint"]
    if stored["seq"] != top[0]:
        stored = _stored_header(threads, record, top[0])
    header = layout.header_of(stored)
    contents = layout.contents(state, ns)
    return Stored(header, contents, merged(_written(threads, record, header)))


def _stored_header(threads: Threads, record: RunRecord, seq: int) -> Data:
    uid, entry = threads.journals.entry(record, seq)
    data = threads.journals.data(record.id, uid, entry)
    stored: Data = (data.get("s") or data["d"]["s"])["checkpoint"]
    return stored


def _written(threads: Threads, record: RunRecord, header: Header) -> Iterator[Data]:
    """What was written to the newest checkpoint: before it, as it says itself, and since."""
    key = header.ns, header.id
    yield from (task for task in _tasks_of(threads, record, header.early) if (task["ns"], task["of"]) == key)
    ranges = live_ranges(record.rewinds, record.seq)
    for uid, entry in threads.journals.entries(record, header.seq + 1, record.seq):
        if is_live(ranges, entry.seq):
            data = threads.journals.data(record.id, uid, entry)
            yield from (task for task in tasks_in(data) if (task["ns"], task["of"]) == key and "erased" not in data)


def _tasks_of(threads: Threads, record: RunRecord, seqs: Iterable[int]) -> Iterator[Data]:
    """What tasks wrote, as these entries say, in order; entries near to each other are read together."""
    wanted = sorted(seqs)
    while wanted:
        near = 1
        while near < len(wanted) and wanted[near] - wanted[near - 1] <= NEAR:
            near += 1
        group, wanted = set(wanted[:near]), wanted[near:]
        for uid, entry in threads.journals.entries(record, min(group), max(group)):
            if entry.seq in group:
                yield from tasks_in(threads.journals.data(record.id, uid, entry))


def merged(tasks: Iterable[Data]) -> list[tuple[str, str, Tree]]:
    """The writes to a checkpoint, in the order in which LangGraph applies them.

    Of a task's write at an index the first counts; of a special one (below 0), the last.
    """
    kept: dict[tuple[str, int], tuple[str, str, Tree]] = {}
    for data in tasks:
        for index, channel, value in data["result"]:
            if index < 0 or (data["task"], index) not in kept:
                kept[data["task"], index] = data["path"], channel, value
    order = sorted(kept, key=lambda key: writes_sort_key(kept[key][0], *key))
    return [(key[0], *kept[key][1:]) for key in order]


def read_all(threads: Threads, record: RunRecord, index: Index, wanted: Sequence[Found]) -> Iterator[Stored]:
    """Checkpoints in the order of their places in the journal, which is gone through once."""
    places = {found.seq: found for found in wanted}
    written = written_to(threads, record, index, wanted)
    for seq, state in states(threads, record, sorted(places)):
        found = places[seq]
        header = layout.header_of(state["checkpoint"])
        yield Stored(header, layout.contents(state, found.ns), merged(written.get((found.ns, found.id), [])))


def written_to(
    threads: Threads, record: RunRecord, index: Index, wanted: Iterable[Found]
) -> dict[tuple[str, str], list[Data]]:
    """What was written to these checkpoints."""
    seqs = {seq for found in wanted for seq in index.writes.get((found.ns, found.id), [])}
    written: dict[tuple[str, str], list[Data]] = {}
    for data in _tasks_of(threads, record, seqs):
        written.setdefault((data["ns"], data["of"]), []).append(data)
    return written


def states(threads: Threads, record: RunRecord, seqs: Sequence[int]) -> Iterator[tuple[int, layout.State]]:
    """The states at these saves, oldest first."""
    if not seqs:
        return
    journals = threads.journals
    _, first = journals.entry(record, seqs[0])
    ranges = live_ranges(record.rewinds, record.seq)
    wanted = set(seqs)
    tree: Any = None
    erased = -1
    for uid, entry in journals.entries(record, first.state or 0, seqs[-1], saved=True):
        if not is_live(ranges, entry.seq):
            continue
        data = journals.data(record.id, uid, entry)
        if "erased" in data:
            tree, erased = None, entry.seq
            continue
        if tree is None and "s" not in data:
            if entry.seq in wanted:
                why = f"the checkpoint at {entry.seq} builds on entry {erased}, which was erased on request"
                raise Redacted(record.id, why)
            continue
        tree = data["s"] if "s" in data else patch(tree, data["d"])
        if entry.seq in wanted:
            yield entry.seq, layout.state_of(tree)


# --- in the form that LangGraph wants


def checkpoint_tuple(cells: Cells, thread: str, stored: Stored) -> CheckpointTuple:
    """What LangGraph is given of a checkpoint."""
    header = stored.header
    place = f"thread {thread!r}, checkpoint {header.id}"
    checkpoint = {name: cells.value(tree, f"{place}, {name}") for name, tree in header.rest.items()}
    checkpoint["id"] = header.id
    checkpoint["channel_values"] = {
        name: cells.value(tree, f"{place}, channel {name!r}") for name, tree in stored.contents.channels.items()
    }
    checkpoint["channel_versions"] = dict(stored.contents.versions)
    checkpoint["versions_seen"] = {node: dict(seen) for node, seen in stored.contents.seen.items()}
    return CheckpointTuple(
        config_of(thread, header.ns, header.id),
        cast(Checkpoint, checkpoint),
        cells.value(header.meta, f"{place}, metadata"),
        config_of(thread, header.ns, header.parent) if header.parent else None,
        pending(cells, place, stored.writes),
    )


def pending(cells: Cells, place: str, writes: Iterable[tuple[str, str, Tree]]) -> list[PendingWrite]:
    """Writes as LangGraph takes them."""
    return [(task, channel, cells.value(tree, f"{place}, write to {channel!r}")) for task, channel, tree in writes]


def config_of(thread: str, ns: str, id: str) -> RunnableConfig:
    """What names a checkpoint."""
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": id}}


# --- what a channel was made of


class Trail(Struct, frozen=True):
    """What the ancestors of a checkpoint say of a channel: its last value, and what was written since, oldest first."""

    writes: list[tuple[str, Tree]]
    seed: tuple[Tree] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether they say nothing."""
        return not self.writes and self.seed is None

    def data(self) -> Data:
        """As it is stored with a checkpoint whose ancestors are gone."""
        kept: Data = {"writes": [list(write) for write in self.writes]}
        if self.seed is not None:
            kept["seed"] = self.seed[0]
        return kept


def trails(threads: Threads, record: RunRecord, index: Index, of: Found, channels: Iterable[str]) -> dict[str, Trail]:
    """What the ancestors of a checkpoint say of channels. A channel's value stops the walk for it."""
    remaining = set(channels)
    path: dict[str, list[Found]] = {name: [] for name in remaining}  # nearest first
    seeds: dict[str, Found] = {}
    visited: list[Found] = []
    for found in index.ancestors(of):
        visited.append(found)
        for name in remaining:
            path[name].append(found)
        seeds |= dict.fromkeys(remaining & found.has, found)
        remaining -= found.has
        if not remaining:
            break
    values = _values_at(threads, record, seeds)
    written = {key: merged(tasks) for key, tasks in written_to(threads, record, index, visited).items()}
    oldest = visited[-1] if visited else of
    made: dict[str, Trail] = {}
    for name, found_on in path.items():
        before = (oldest.trail or {}).get(name, {}) if name in remaining else {}
        writes = [(task, tree) for task, tree in before.get("writes", [])]
        for found in reversed(found_on):
            writes += [(task, tree) for task, to, tree in written.get((found.ns, found.id), []) if to == name]
        seed = (values[name],) if name in values else (before["seed"],) if "seed" in before else None
        made[name] = Trail(writes, seed)
    return made


def _values_at(threads: Threads, record: RunRecord, seeds: Mapping[str, Found]) -> dict[str, Tree]:
    wanted: dict[int, list[str]] = {}
    for name, found in seeds.items():
        wanted.setdefault(found.seq, []).append(name)
    values: dict[str, Tree] = {}
    for seq, state in states(threads, record, sorted(wanted)):
        for name in wanted[seq]:
            values[name] = (layout.channels(state, seeds[name].ns) or {})[name]
    return values


def history(
    threads: Threads, cells: Cells, thread: str, ns: str, checkpoint: str | None, channels: Sequence[str]
) -> Mapping[str, DeltaChannelHistory]:
    """What LangGraph rebuilds channels from that are not stored whole with each checkpoint."""
    told: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
    place = f"thread {thread!r}"

    def ask(record: RunRecord) -> dict[str, Trail] | None:
        index = threads.index(record)
        target = index.get(ns, checkpoint)
        return trails(threads, record, index, target, channels) if target is not None else None

    found = _asked(threads, thread, ask) if channels else None
    for name, trail in (found or {}).items():
        told[name]["writes"] = pending(cells, place, [(task, name, tree) for task, tree in trail.writes])
        if trail.seed is not None:
            told[name]["seed"] = cells.value(trail.seed[0], f"{place}, channel {name!r}")
    return told
