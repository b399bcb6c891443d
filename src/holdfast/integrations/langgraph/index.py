"""Which checkpoints a thread has, and where they stand in its journal.

The newest checkpoint is found without it. Whoever wants an earlier one, or all of them, has the journal read once; from
then on only what was written since is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from holdfast.codec import Tree
from holdfast.engine.access.journal_reader import Journals
from holdfast.integrations.langgraph.layout import header_of, tasks_in
from holdfast.kernel.journal import Data, is_live, live_ranges
from holdfast.kernel.model import Kind, RunRecord

Key = tuple[str, str]  # namespace and id of a checkpoint


class Found(Struct, frozen=True):
    """A checkpoint: where it stands, and what can be said of it without reading its channels."""

    ns: str
    id: str
    parent: str | None
    seq: int
    meta: Tree
    has: frozenset[str]  # the channels that have a value
    trail: dict[str, Data] | None


class Index:
    """The checkpoints of a thread, up to one entry of its journal."""

    def __init__(self, record: RunRecord) -> None:
        self.uid = record.uid
        self.checkpoints: dict[str, dict[str, Found]] = {}  # by namespace and id
        self.writes: dict[Key, list[int]] = {}  # the entries that hold writes to a checkpoint
        self._shape = _shape_of(record)
        self._seq = record.chapter - 1
        self._hash = b""
        self._has: dict[str, frozenset[str]] = {}

    def is_of(self, record: RunRecord) -> bool:
        """Whether it can be carried on to the record: nothing was rolled back, or left behind, since."""
        return self.uid == record.uid and self._shape == _shape_of(record) and self._seq <= record.seq

    def carry_on(self, record: RunRecord, journals: Journals) -> None:
        """Take in what was written up to the record's last entry."""
        if self._seq >= record.seq:
            return
        ranges = live_ranges(record.rewinds, record.seq)
        for uid, entry in journals.entries(record, self._seq + 1, record.seq):
            if entry.kind not in (Kind.SAVED, Kind.DONE) or not is_live(ranges, entry.seq):
                continue
            data = journals.data(record.id, uid, entry)
            if "erased" in data:
                continue
            if entry.kind == Kind.SAVED:
                self._take_save(entry.seq, data)
            for key in {(task["ns"], task["of"]) for task in tasks_in(data)}:
                self.writes.setdefault(key, []).append(entry.seq)
        self._seq = record.seq

    def _take_save(self, seq: int, data: Data) -> None:
        whole, stored = _parts(data)
        self._has = _channels(self._has, whole)
        if stored is None:
            return
        header = header_of(stored)
        if header.seq != seq:  # a save that somebody else made: it is no checkpoint
            return
        has = self._has.get(header.ns, frozenset())
        found = Found(header.ns, header.id, header.parent, seq, header.meta, has, header.trail)
        self.checkpoints.setdefault(header.ns, {})[header.id] = found

    def get(self, ns: str, id: str | None) -> Found | None:
        """A checkpoint; the one with the largest id, if none is named."""
        there = self.checkpoints.get(ns)
        if not there:
            return None
        return there.get(id if id is not None else max(there))

    def newest_first(self, ns: str | None) -> list[Found]:
        """The checkpoints of a namespace, or of all, by their ids."""
        if ns is not None:
            found = list(self.checkpoints.get(ns, {}).values())
        else:
            found = [each for there in self.checkpoints.values() for each in there.values()]
        return sorted(found, key=lambda each: each.id, reverse=True)

    def ancestors(self, of: Found) -> Iterator[Found]:
        """The parents of a checkpoint, nearest first; each once, since checkpoints put again can make a circle."""
        seen = {of.id}
        there = self.checkpoints.get(of.ns, {})
        parent = of.parent
        while parent is not None and parent not in seen and (found := there.get(parent)) is not None:
            seen.add(parent)
            yield found
            parent = found.parent


def _shape_of(record: RunRecord) -> tuple[int, int]:
    return record.chapter, len(record.rewinds)


def _parts(data: Data) -> tuple[Data, Data | None]:
    """What a save changes, in the form of a change; and the header in it."""
    whole = data["s"] if "s" in data else (data["d"] or {}).get("=")
    if whole is not None:
        return {"=": whole}, whole.get("checkpoint")
    delta = data["d"] or {}
    return delta, delta.get("s", {}).get("checkpoint")


def _channels(has: dict[str, frozenset[str]], delta: Data) -> dict[str, frozenset[str]]:
    """The names of the channels that have a value, by namespace, after a save."""
    if "=" in delta:
        whole = delta["="]
        return {"": frozenset(whole.get("state", ())), **_names(whole.get("sub", {}))}
    put, inside = delta.get("s", {}), delta.get("d", {})
    root = has.get("", frozenset())
    subs = {ns: names for ns, names in has.items() if ns}
    if "state" in put:
        root = frozenset(put["state"])
    elif "state" in inside:
        root = _changed(root, inside["state"])
    if "sub" in put:
        subs = _names(put["sub"])
    elif "sub" in inside:
        change = inside["sub"]
        gone = change.get("x", ())
        subs = {ns: names for ns, names in subs.items() if ns not in gone}
        subs |= {ns: _changed(subs[ns], part) for ns, part in change.get("d", {}).items()}
        subs |= _names(change.get("s", {}))
    return {"": root, **subs}


def _names(parts: dict[str, Any]) -> dict[str, frozenset[str]]:
    return {ns: frozenset(part) for ns, part in parts.items()}


def _changed(names: frozenset[str], change: Data) -> frozenset[str]:
    gone, put = change.get("x", ()), change.get("s", ())
    if not gone and names.issuperset(put):
        return names
    return names.difference(gone).union(put)
