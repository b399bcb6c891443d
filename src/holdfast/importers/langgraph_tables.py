"""The tables that LangGraph's own savers leave in SQLite and in PostgreSQL, read a thread at a time, never written.

What they hold is taken over as it is serialized: no class of the user's is needed, and none is imported. Only what was
serialized by something else than LangGraph's usual format is read, and written, by the serializer that is given.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Protocol
from urllib.parse import quote

from langgraph.checkpoint.serde.types import TASKS
from msgspec import Struct

from holdfast.codec.tree import TAG, Tree
from holdfast.errors import StoreError, StoreNotFound, UsageError
from holdfast.integrations.langgraph.values import Cells, tree_of


class Row(Struct, frozen=True):
    """A checkpoint, with what was written to it: (task, path, index, channel, value)."""

    ns: str
    id: str
    parent: str | None
    metadata: Tree
    checkpoint: dict[str, Tree]
    writes: list[tuple[str, str, int, str, Tree]]


class Tables(Protocol):
    """Where the threads are."""

    place: str

    def threads(self) -> list[str]:
        """The ids of the threads."""

    def rows(self, thread: str) -> Iterator[Row]:
        """The checkpoints of a thread, by their ids."""


@contextmanager
def tables(url: str, cells: Cells) -> Iterator[Tables]:
    """The tables at a URL: ``sqlite:///path`` or ``postgresql://...``. Nothing is ever written there."""
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        with closing(_connect(url, rest.removeprefix("/"))) as db:
            yield _Sqlite(url, db, cells)
    elif scheme in ("postgresql", "postgres"):
        import psycopg

        try:
            conn = psycopg.connect(url)
        except psycopg.Error as error:
            raise StoreError(_shown(url), f"it cannot be read: {error}", what="database") from None
        with closing(conn):
            conn.read_only = True
            yield _Postgres(_shown(url), conn, cells)
    else:
        raise UsageError(f"url={url!r}: threads of LangGraph are read from sqlite:///path or postgresql://...")


def _shown(url: str) -> str:
    """The URL without a password."""
    head, at, tail = url.rpartition("@")
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}@{tail}" if at else url


def entries_of(tree: Any) -> dict[str, Tree]:
    """The entries of a dict's tree."""
    if not isinstance(tree, dict):
        raise ValueError(f"a dict was expected, not {type(tree).__name__}")
    if TAG in tree:
        if tree[TAG] != "map":
            raise ValueError("a dict with text for keys was expected")
        inside: dict[str, Tree] = tree["v"]
        return inside
    return tree


def _tree(cells: Cells, kind: str, data: bytes, place: str) -> Tree:
    """What was serialized; by way of the serializer, if only that can read it."""
    if kind in ("msgpack", "null", "bytes", "bytearray"):
        return tree_of(kind, data, place)
    return cells.tree(cells.serde.loads_typed((kind, data)), place)


# --- SQLite


def _connect(url: str, path: str) -> sqlite3.Connection:
    # Without `immutable`, SQLite puts a log beside a file in WAL mode, which a reader cannot remove.
    untouched = not any(os.path.exists(path + end) for end in ("-wal", "-journal"))
    with ExitStack() as stack:
        try:
            db = sqlite3.connect(f"file:{quote(path)}?mode=ro{'&immutable=1' if untouched else ''}", uri=True)
            stack.callback(db.close)
            names = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        except sqlite3.Error as error:
            raise StoreNotFound(url, f"it cannot be read: {error}") from None
        if not {"checkpoints", "writes"} <= names:
            raise StoreNotFound(url, "it has no tables of LangGraph (checkpoints, writes)")
        stack.pop_all()
        return db


class _Sqlite:
    def __init__(self, place: str, db: sqlite3.Connection, cells: Cells) -> None:
        self.place = place
        self._db = db
        self._cells = cells
        has_path = any(row[1] == "task_path" for row in db.execute("PRAGMA table_info(writes)"))
        self._path = "task_path" if has_path else "''"  # of older versions

    def threads(self) -> list[str]:
        return [row[0] for row in self._db.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")]

    def rows(self, thread: str) -> Iterator[Row]:
        found = self._db.execute(
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints "
            "WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns",
            (thread,),
        )
        for ns, id, parent, kind, checkpoint, metadata in found:
            place = f"checkpoint {id} of thread {thread!r}"
            tree = entries_of(_tree(self._cells, kind, checkpoint, place))
            kept = json.loads(metadata) if metadata is not None else {}
            meta = self._cells.tree(kept, f"metadata of {place}")
            yield Row(ns, id, parent or None, meta, tree, self._writes(thread, ns, id, place))

    def _writes(self, thread: str, ns: str, id: str, place: str) -> list[tuple[str, str, int, str, Tree]]:
        found = self._db.execute(
            f"SELECT task_id, {self._path}, idx, channel, type, value FROM writes "
            "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY task_id, idx",
            (thread, ns, id),
        )
        return [
            (task, path, index, channel, _tree(self._cells, kind, value, f"write to {channel!r} of {place}"))
            for task, path, index, channel, kind, value in found
        ]


# --- PostgreSQL

_BLOBS = """
SELECT b.channel, b.type, b.blob FROM jsonb_each_text(%s::jsonb) AS v (channel, version)
JOIN checkpoint_blobs b ON b.channel = v.channel AND b.version = v.version
WHERE b.thread_id = %s AND b.checkpoint_ns = %s
"""
_WRITES = """
SELECT task_id, task_path, idx, channel, type, blob FROM checkpoint_writes
WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s ORDER BY task_id, idx
"""


class _Postgres:
    def __init__(self, place: str, conn: Any, cells: Cells) -> None:
        self.place = place
        self._conn = conn
        self._cells = cells
        [there] = conn.execute("SELECT count(*) FROM information_schema.tables WHERE table_name = 'checkpoint_blobs'")
        if not there[0]:
            raise StoreNotFound(place, "it has no tables of LangGraph (checkpoints, checkpoint_blobs)")

    def threads(self) -> list[str]:
        found = self._conn.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")
        return [row[0] for row in found]

    def rows(self, thread: str) -> Iterator[Row]:
        ids = self._conn.execute(
            "SELECT checkpoint_ns, checkpoint_id FROM checkpoints WHERE thread_id = %s "
            "ORDER BY checkpoint_id, checkpoint_ns",
            (thread,),
        ).fetchall()
        for ns, id in ids:
            yield self._row(thread, ns, id)

    def _row(self, thread: str, ns: str, id: str) -> Row:
        cells, place = self._cells, f"checkpoint {id} of thread {thread!r}"
        [(parent, checkpoint, metadata)] = self._conn.execute(
            "SELECT parent_checkpoint_id, checkpoint, metadata FROM checkpoints "
            "WHERE thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s",
            (thread, ns, id),
        )
        tree = entries_of(cells.tree(checkpoint, place))
        values = dict(entries_of(tree.get("channel_values") or {}))
        versions = checkpoint.get("channel_versions", {})
        for channel, kind, blob in self._conn.execute(_BLOBS, (json.dumps(versions), thread, ns)):
            if kind != "empty":
                values[channel] = _tree(cells, kind, bytes(blob or b""), f"channel {channel!r} of {place}")
        tree = {**tree, "channel_values": {TAG: "map", "v": values} if TAG in values else values}
        if parent and checkpoint.get("v", 4) < 4:
            tree = self._with_sends(thread, ns, parent, tree)
        meta = cells.tree(metadata, f"metadata of {place}")
        return Row(ns, id, parent or None, meta, tree, self._writes(thread, ns, id, place))

    def _with_sends(self, thread: str, ns: str, parent: str, tree: dict[str, Tree]) -> dict[str, Tree]:
        """Older versions kept what is sent to nodes only as writes to the parent."""
        written = sorted(self._writes(thread, ns, parent, f"checkpoint {parent}"), key=lambda write: (write[1], *write))
        sends = [value for _, _, _, channel, value in written if channel == TASKS]
        if not sends:
            return tree
        versions: dict[str, Any] = entries_of(tree["channel_versions"])
        newest = max(versions.values(), default=f"{1:032}.{0:016}")
        return {
            **tree,
            "channel_values": {**entries_of(tree["channel_values"]), TASKS: sends},
            "channel_versions": {**versions, TASKS: newest},
        }

    def _writes(self, thread: str, ns: str, id: str, place: str) -> list[tuple[str, str, int, str, Tree]]:
        return [
            (task, path, index, channel, _tree(self._cells, kind, bytes(blob), f"write to {channel!r} of {place}"))
            for task, path, index, channel, kind, blob in self._conn.execute(_WRITES, (thread, ns, id))
        ]
