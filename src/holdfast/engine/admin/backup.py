"""Backup to one file, and restore.

The file is lines of JSON: a header, with what is set about queues, the schedules and the hooks, then for each run its
record, its entries and its inbox, and a last line with the number of runs and a digest of everything before it, so that
a file that was cut short or changed is noticed before anything is restored. Payloads are copied as they are stored:
what is encrypted stays encrypted.

A restored run that was still going on is parked (`Status.BLOCKED`), and restored schedules and hooks are paused: a copy
never repeats effects by itself.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.engine.access.client import Client
from holdfast.engine.access.journal_reader import check_gapless
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.worker import queues, schedules
from holdfast.engine.workflow.revived import HOOK
from holdfast.errors import BackupDamaged, RunExists, RunNotFound, StoreError, StoreTooNew, UsageError, shown
from holdfast.kernel.journal import verify
from holdfast.kernel.model import ENDED, Adopt, Entry, Filter, Item, RunRecord, Status
from holdfast.kernel.rules import check_id
from holdfast.stores.protocol import READER, Store, write_one

FORMAT = "holdfast backup"
RESTORED = "restored from a backup, so it may be a copy of a run that goes on elsewhere"


KINDS = (queues.KIND, schedules.KIND, HOOK)


class _Kept(msgspec.Struct):
    """A document in a backup."""

    kind: str
    name: str
    value: bytes


class _Header(msgspec.Struct):
    format: str
    oldest_reader: int
    documents: list[_Kept] = []


class Archived(msgspec.Struct):
    """A whole run: its record, its journal and its inbox."""

    record: RunRecord
    entries: list[Entry]
    items: list[Item]
    taken: list[str]


def backup(client: Client, path: str, *, runs: Collection[str] | None = None) -> Op[int]:
    """Copy the whole store into one file, while others work; returns the number of runs.

    With it goes what is set about queues, the schedules and the hooks. With ``runs`` only these, by their ids, and what
    they need: the runs that they were forked from, and their children.
    """
    only = None if runs is None else (yield Read(_with_kin, client.store, runs))
    return int((yield Read(lambda: write_backup(client.store, _path_of(path), only))))


def _with_kin(store: Store, ids: Collection[str]) -> set[str]:
    """The uids of these runs, of all that their histories begin in, and of their children."""
    if isinstance(ids, str):
        raise UsageError(f"{shown('runs', ids)}: takes a list of ids")
    wanted: set[str] = set()
    found = [(id, store.get(check_id(id))) for id in ids]
    while found:
        id, record = found.pop()
        if record is None:
            raise RunNotFound(id)
        if record.uid not in wanted:
            wanted |= {record.uid, *(link.uid for link in record.lineage)}
            before = None
            while page := store.find(Filter(parent=record.uid, hidden=None), before=before, limit=500):
                before = page[-1].uid
                found += [(part.id, part) for part in page]
    return wanted


def _path_of(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise UsageError(f"{shown('path', path)}: a backup is a file, named by its path")
    return os.fsdecode(path)


def write_backup(store: Store, path: str, only: Collection[str] | None = None) -> int:
    digest, runs = sha256(), 0
    temporary = f"{path}.{store.clock.random_bytes(6).hex()}.new"  # process numbers come again, in containers soon
    try:
        with open(temporary, "xb") as file:
            for line in _lines(store, only):
                digest.update(line)
                file.write(line)
                runs += 1
            footer = {"runs": runs - 1, "sha256": digest.hexdigest()}
            file.write(msgspec.json.encode(footer) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise StoreError(path, f"it could not be written: {error.strerror}", what="backup") from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    return runs - 1


def _lines(store: Store, only: Collection[str] | None) -> Iterator[bytes]:
    kept = [_Kept(kind, one.name, one.value) for kind in KINDS for one in store.documents(kind)]
    yield msgspec.json.encode(_Header(FORMAT, READER, kept if only is None else [])) + b"\n"
    runs: list[tuple[int, str]] = []
    before = None
    while page := store.find(Filter(hidden=None), before=before, limit=500):
        before = page[-1].uid
        runs += [(len(record.lineage), record.uid) for record in page if only is None or record.uid in only]
    for _, uid in sorted(runs, reverse=True):  # forks first: what they share is in their origins when these are read
        archived = archived_run(store, uid)
        if archived is not None:
            yield msgspec.json.encode(archived) + b"\n"


def archived_run(store: Store, uid: str) -> Archived | None:
    """One run as it is at one moment; None if it was deleted."""
    while True:
        # The inbox first: an item that is taken meanwhile is then in the journal too, and not in neither.
        items, taken = store.inbox(uid), [one.key for one in store.inbox(uid, taken=True)]
        record = store.get(uid=uid)
        entries = store.read(uid, record.base, record.seq) if record is not None else []
        after = store.get(uid=uid)
        if record is None or after is None:
            return None
        if (after.epoch, after.seq, after.hash) == (record.epoch, record.seq, record.hash):
            verify(record.id, entries)
            check_gapless(record.id, entries, record.base, record.seq)
            return Archived(record, entries, items, taken)


def restore(client: Client, path: str) -> Op[tuple[str, ...]]:
    """Take in all runs of a backup; returns the ids of those that are parked until `Run.unblock`.

    What is set about queues is taken in too, and the schedules and hooks, paused, where there are none of the same
    name.

    Nothing is restored if the file is damaged (`BackupDamaged`) or has a run that is here already and went on
    (`RunExists`); what an earlier restore of the same file has brought is left as it is.
    """
    return (yield Read(lambda: take_in(client.store, _path_of(path)))).blocked  # type: ignore[no-any-return]


class Words(NamedTuple):
    """How messages speak of the file that is taken in."""

    what: str
    damaged: str
    other: str
    taken: str


OF_BACKUPS = Words(
    "backup",
    "the backup file is damaged or cut short; nothing was restored.",
    "this is not a backup of Holdfast; nothing was restored",
    "a run of this id is in the store already; restore into an empty store",
)
OF_EXPORTS = Words(
    "export",
    "the exported file is damaged or cut short; nothing was imported.",
    "this is not a file of `holdfast export`; nothing was imported",
    "a run of this id is in the store already; import it into an empty store",
)


class TakenIn(NamedTuple):
    """What a restore has done: ids of runs and of schedules, and names of hooks."""

    runs: tuple[str, ...]
    already: tuple[str, ...]  # which an earlier restore has brought
    blocked: tuple[str, ...]  # of the runs, those that had not ended
    schedules: tuple[str, ...]  # which are paused
    hooks: tuple[str, ...]  # which are paused


def take_in(store: Store, path: str, words: Words = OF_BACKUPS) -> TakenIn:
    """Restore the file into a store, and tell what came of it."""
    documents, archive = _read(path, words)
    known = {archived.record.uid for archived in archive}
    # A fork whose origin is not in the backup was deleted, with its origin, while the backup was made.
    whole = [archived for archived in archive if all(link.uid in known for link in archived.record.lineage)]
    runs = [archived for archived in whole if not _is_here(store, archived.record)]
    for archived in runs:
        record = archived.record
        if store.get(uid=record.uid) is not None or (not record.hidden and store.get(record.id) is not None):
            raise RunExists(record.id, words.taken)
    parked: list[str] = []
    for archived in sorted(runs, key=lambda archived: len(archived.record.lineage)):
        record = replace(archived.record, worker=None, was=None)
        if record.status not in ENDED | {Status.AWAY} and not record.hidden:
            record = replace(record, status=Status.BLOCKED, reason=RESTORED)
            parked.append(record.id)
        write_one(store, Adopt(record, archived.entries, archived.items, archived.taken))
    made = [one for one in documents if store.put_document(one.kind, one.name, _at_rest(one), None)]
    shown = [archived.record for archived in whole if not archived.record.hidden]
    new = {archived.record.uid for archived in runs}
    return TakenIn(
        tuple(record.id for record in shown if record.uid in new),
        tuple(record.id for record in shown if record.uid not in new),
        tuple(parked),
        tuple(one.name for one in made if one.kind == schedules.KIND),
        tuple(one.name for one in made if one.kind == HOOK),
    )


def _at_rest(document: _Kept) -> bytes:
    """What a document says, for a copy that does nothing by itself."""
    if document.kind == schedules.KIND:
        return schedules.paused(document.value)
    if document.kind == HOOK:
        hook: dict[str, Any] = msgspec.json.decode(document.value, type=dict)
        return msgspec.json.encode(hook | {"paused": True})
    return document.value


def _is_here(store: Store, record: RunRecord) -> bool:
    """Whether a restore that was broken off brought this run in already."""
    here = store.get(uid=record.uid)
    return (
        here is not None
        and here.hash == record.hash
        and (here.hidden or here.reason == RESTORED or here.status in ENDED | {Status.AWAY})
    )


def _read(path: str, words: Words) -> tuple[list[_Kept], list[Archived]]:
    """The documents and runs of a backup, after its digest was checked."""
    try:
        with open(path, "rb") as file:
            *lines, footer = file.read().splitlines(keepends=True)
        end: Any = msgspec.json.decode(footer)
        if end["sha256"] != sha256(b"".join(lines)).hexdigest() or end["runs"] != len(lines) - 1:
            raise BackupDamaged(path, words.damaged, what=words.what)
        header: Any = msgspec.json.decode(lines[0])
        if header["format"] != FORMAT:
            raise BackupDamaged(path, words.other, what=words.what)
        if header["oldest_reader"] > READER:
            raise StoreTooNew(path, "it was written by a newer Holdfast; upgrade this one", what=words.what)
        documents = msgspec.json.decode(lines[0], type=_Header).documents
        return documents, [msgspec.json.decode(line, type=Archived) for line in lines[1:]]
    except OSError as error:
        raise StoreError(path, f"it could not be read: {error.strerror}", what=words.what) from error
    except (ValueError, KeyError, TypeError) as error:
        raise BackupDamaged(path, words.damaged, what=words.what) from error
