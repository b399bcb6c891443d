"""Threads of LangGraph's own savers become threads of `HoldfastSaver`: checkpoints, parents, writes.

A thread is taken in whole, by one commit, and read back: what stands here must be what stands there, else it is deleted
again and told.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import msgspec
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.codec.tree import Tree, canonical
from holdfast.engine.access.commit import Ticket
from holdfast.engine.access.operations import Async, drive
from holdfast.engine.app import Holdfast
from holdfast.engine.run.finding import creation
from holdfast.errors import HoldfastError, StoreError, UsageError
from holdfast.importers.langgraph_tables import Row, Tables, entries_of, tables
from holdfast.importers.origins import KEY, TAG
from holdfast.importers.records import Damaged, Note, Origin, Progress, Refused, Report, Summary
from holdfast.integrations.langgraph import threads_admin
from holdfast.integrations.langgraph.layout import Contents, Header, task_data
from holdfast.integrations.langgraph.reading import Stored, merged, read_all
from holdfast.integrations.langgraph.thread_writer import Kept, Pen
from holdfast.integrations.langgraph.threads import WORKFLOW, Threads
from holdfast.integrations.langgraph.values import Cells, check_serde
from holdfast.kernel.journal import Data
from holdfast.kernel.model import RunRecord

SYSTEM = "langgraph"


def import_langgraph(
    source_url: str,
    hf: Holdfast,
    *,
    dry_run: bool = False,
    progress: Report | None = None,
    prefix: str = "",
    serde: SerializerProtocol | None = None,
) -> Summary:
    """Take in the threads of LangGraph's SQLite or PostgreSQL tables (``sqlite:///path``, ``postgresql://...``).

    Threads keep their ids, after the ``prefix``; one that is here already is left alone. With ``dry_run`` everything is
    read and nothing is written. ``serde`` reads what was not serialized in LangGraph's usual way, such as what its
    `EncryptedSerializer` wrote. Nothing is ever written to the source.
    """
    if isinstance(hf, Async):
        raise UsageError(
            "import_langgraph() is not awaited: give it what holdfast.open() gave, in a thread if you must"
        )
    check_serde(serde)
    cells, threads = Cells(serde or JsonPlusSerializer()), Threads(hf)
    imported: list[str] = []
    already: list[str] = []
    damaged: list[Damaged] = []
    refused: list[Refused] = []
    notes: list[Note] = []
    with tables(source_url, cells) as source:
        names = source.threads()
        for done, name in enumerate(names):
            id = prefix + name
            try:
                is_new = _take(threads, source, name, id, dry_run=dry_run)
                (imported if is_new else already).append(id)
                if not is_new and (missing := _missing(threads, source, name, id)):
                    notes.append(Note(id, f"{missing} checkpoints were added there since; they were not imported"))
            except StoreError:
                raise
            except HoldfastError as error:
                refused.append(Refused(source.place, id, str(error)))
            except (ValueError, TypeError, KeyError, NotImplementedError) as error:
                damaged.append(Damaged(source.place, f"thread {name!r}", f"{type(error).__name__}: {error}"))
            if progress is not None:
                progress(Progress(done + 1, len(names), done + 1, name))
    return Summary(
        system=SYSTEM,
        dry_run=dry_run,
        imported=tuple(imported),
        already=tuple(already),
        damaged=tuple(damaged),
        refused=tuple(refused),
        notes=tuple(notes),
    )


def _take(threads: Threads, source: Tables, name: str, id: str, *, dry_run: bool) -> bool:
    """Take in a thread; False if it is here already."""
    if threads.record(id) is not None:
        return False
    if dry_run:
        for row in source.rows(name):
            _kept(row)
        return True
    create = creation(threads.hf.client, id, WORKFLOW, None, {TAG: SYSTEM})
    pen = Pen.of_new(create, threads.journals, threads.committer)
    came = Origin(system=SYSTEM, id=name, source=source.place, digest="", entries=0)
    told: Data = {"key": KEY, "tool": "imported", "result": msgspec.to_builtins(came)}
    ticket: Ticket = pen.take_in(told, (_kept(row) for row in source.rows(name)))
    record = threads.committer.settle(ticket)
    if record is None or record.uid != create.record.uid:
        return False  # somebody made it in the same moment
    problem = _difference(threads, source, name, record)
    if problem is not None:
        drive(threads_admin.delete(threads, id), threads.committer)
        raise ValueError(f"what was read back is not what was written, so it was deleted again: {problem}")
    return True


def _kept(row: Row) -> Kept:
    parts = dict(row.checkpoint)
    channels = entries_of(parts.pop("channel_values", None) or {})
    versions = entries_of(parts.pop("channel_versions", None) or {})
    seen = {node: entries_of(part) for node, part in entries_of(parts.pop("versions_seen", None) or {}).items()}
    parts.pop("id", None)
    tasks: dict[tuple[str, str], list[list[Any]]] = {}
    for task, path, index, channel, value in row.writes:
        tasks.setdefault((task, path), []).append([index, channel, value])
    header = Header(row.ns, row.id, row.parent, -1, row.metadata, parts)
    written = [task_data(row.ns, row.id, task, path, writes) for (task, path), writes in tasks.items()]
    return Kept(header, Contents(channels, versions, seen), written)


def _difference(threads: Threads, source: Tables, name: str, record: RunRecord) -> str | None:
    """Where what is here differs from what is there, if it does."""
    index = threads.index(record)
    here = read_all(threads, record, index, index.newest_first(None))
    for row, stored in zip_longest(source.rows(name), here):
        if row is None or stored is None or _canonical_of(_kept(row)) != _canonical_of(stored):
            return f"checkpoint {(row or stored.header).id}"
    return None


def _canonical_of(one: Kept | Stored) -> bytes:
    header, contents = one.header, one.contents
    writes = merged(one.tasks) if isinstance(one, Kept) else one.writes
    parts: list[Tree] = [header.ns, header.id, header.parent, header.meta, header.rest, contents.channels]
    more: Any = [dict(contents.versions), dict(contents.seen), [list(write) for write in writes]]
    return canonical([*parts, more])


def _missing(threads: Threads, source: Tables, name: str, id: str) -> int:
    """How many checkpoints of a thread are there and not here."""
    record = threads.record(id)
    assert record is not None
    here = threads.index(record).checkpoints
    return sum(row.id not in here.get(row.ns, {}) for row in source.rows(name))
