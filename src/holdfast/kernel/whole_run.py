"""A run as a whole: for a store that keeps each run in one piece, loads it, changes it and saves it. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from holdfast.errors import HoldfastError, RunExists, RunNotFound
from holdfast.kernel.model import Adopt, Append, Create, EndMove, Entry, Item, Kind, Post, Rewrap, RunRecord
from holdfast.kernel.rules import (
    Outcome,
    adoptable,
    appended,
    check_takes,
    conflict,
    continues,
    end_refusal,
    ending,
    move_ended,
    refusal,
    taken_item,
    woken,
)


class WholeRun:
    """A run: its record, its own entries, its inbox, and the keys of the items that were taken."""

    def __init__(
        self, record: RunRecord, entries: Sequence[Entry], items: Sequence[Item] = (), taken: Sequence[str] = ()
    ) -> None:
        self.record = record
        self.entries = list(entries)
        self.inbox = {item.key: item for item in items}
        self.taken = set(taken)

    def read(
        self, lo: int, hi: int, *, saved: bool | None = None, payloads: bool = True, limit: int | None = None
    ) -> list[Entry]:
        """What `Store.read` gives."""
        base = self.record.base
        found = self.entries[max(lo - base, 0) : max(hi - base + 1, 0)]
        if saved is not None:
            found = [entry for entry in found if (entry.kind == Kind.SAVED) is saved]
        if not payloads:
            found = [replace(entry, payload=b"") for entry in found]
        return found[:limit]

    def items(self, *, taken: bool = False) -> list[Item]:
        """What `Store.inbox` gives."""
        return [taken_item(key) for key in sorted(self.taken)] if taken else list(self.inbox.values())

    def _append(self, write: Append) -> HoldfastError | None:
        if (refused := refusal(self.record, write)) is not None:
            return refused
        if write.entries and not continues(self.record, write):
            last = write.entries[-1].seq
            return conflict(write, self.read(last, last))
        if (unread := end_refusal(write, self.inbox)) is not None:
            return unread
        self.entries.extend(write.entries)
        for key in write.took:
            self.inbox.pop(key, None)
            self.taken.add(key)
        self.record = appended(self.record, write, mail=any(item.wakes for item in self.inbox.values()))
        for seq, payload in write.redact:
            place = seq - self.record.base
            self.entries[place] = replace(self.entries[place], payload=payload)
        return None

    def _post(self, item: Item) -> bool:
        if self.record.hidden or item.key in self.inbox or item.key in self.taken:
            return False
        check_takes(self.record)
        self.inbox[item.key] = item
        self.record = woken(self.record) if item.wakes else self.record
        return True

    def _end_move(self, write: EndMove) -> bool:
        after = move_ended(self.record, write, {item.key: item.wakes for item in self.inbox.values()})
        self.record = after or self.record
        return after is not None

    def _rewrap(self, write: Rewrap) -> bool:
        if self.record.key_blob != write.old:
            return False
        self.record = replace(self.record, key_id=write.key_id, key_blob=write.key_blob)
        return True

    def make(self, write: Append | Post | EndMove | Rewrap) -> Outcome:
        """Change the run as the write says; its outcome, as `Store.apply` gives it."""
        try:
            match write:
                case Append():
                    return self._append(write)
                case Post():
                    return self._post(write.item)
                case EndMove():
                    return self._end_move(write)
                case Rewrap():
                    return self._rewrap(write)
        except HoldfastError as refused:
            return refused


def new_run(
    write: Create | Adopt, named: RunRecord | None, here: RunRecord | None, is_known: Callable[[str], bool]
) -> WholeRun | RunRecord | HoldfastError:
    """A run that comes in: as it is kept from now on; or the one that has its id already; or why it may not.

    ``named`` is the visible run of the same id, ``here`` the run of the same uid. ``is_known`` says whether there is a
    run of a uid.
    """
    record = write.record
    lost = [link for link in record.lineage if not is_known(link.uid)]
    if isinstance(write, Create):
        if named is not None or here is not None:
            return named or RunExists(record.id)
        if lost:
            return RunNotFound(lost[0].id, "it was deleted, so it cannot be forked")
        return WholeRun(ending(record, write.entries), write.entries)
    try:
        adoptable(here, record, write.entries)
    except RunExists as refused:
        return refused
    if named is not None and named.uid != record.uid and not record.hidden:
        return RunExists(record.id)
    if lost:
        return RunNotFound(record.id, "the run that it was forked from is not in this store")
    return WholeRun(record, write.entries, write.items, write.taken)


def missing(write: Append | Post | EndMove | Rewrap) -> Outcome:
    """The outcome of a write to a run that is not there."""
    return refusal(None, write) if isinstance(write, Append) else False
