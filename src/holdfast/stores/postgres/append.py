"""Plain steps, which do nothing but add entries: one statement, for one run or for any number of them.

A run whose fence is another one, or whose journal does not end where the entries go on, gets none of them; so what
was added says what was refused.

They are sent to libpq as they are, past the conveniences of psycopg, which would cost as much as the engine does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

from psycopg import errors
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

from holdfast.kernel.model import Append, Entry, Kind, Write
from holdfast.kernel.rules import is_chain
from holdfast.stores.postgres.arrays import BIGINT, BIGINTS, BYTEA, BYTEAS, TEXT, TEXTS, blobs, number, numbers, texts
from holdfast.stores.postgres.connections import Connection, told
from holdfast.stores.postgres.rows import kept

QUIET = frozenset(
    {Kind.DONE, Kind.RAISED, Kind.SAVED, Kind.STARTED, Kind.INTENDED, Kind.TIMER}
)  # nobody waits for them

Line = tuple[Append, Entry, Entry]  # a write, one of its entries, and the first one of the run in the batch
Values = list[bytes | None]


class Statement:
    """A statement of ours, which a connection prepares when it is first made there, if it prepares any."""

    def __init__(self, name: str, query: str, types: Sequence[int]) -> None:
        places = count(1)
        self._name = f"holdfast_{name}".encode()
        sent = re.sub("%[sb%]", lambda found: "%" if found[0] == "%%" else f"${next(places)}", query)
        self._query = sent.encode()
        self._types = types
        self._formats = [Format.BINARY] * len(types)

    def __call__(self, conn: Connection, values: Values) -> PGresult:
        """What it gives; raises the errors that psycopg would."""
        pg = conn.pgconn
        if conn.prepare_threshold is None:
            return _checked(pg.exec_params(self._query, values, self._types, self._formats, Format.BINARY))
        if self._name not in conn.prepared:
            _checked(pg.prepare(self._name, self._query, self._types))
            conn.prepared.add(self._name)
        # It takes None for NULL, as exec_params does; only its annotation does not say so.
        return _checked(pg.exec_prepared(self._name, values, self._formats, Format.BINARY))  # type: ignore[arg-type]


def _checked(result: PGresult) -> PGresult:
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise errors.error_from_result(result)
    return result


class Appending:
    """The two statements of a store."""

    def __init__(self, queries: dict[str, str]) -> None:
        self._queries = queries
        fence, entry = [TEXT, BIGINT, TEXT], [BIGINT, BIGINT, BIGINT, TEXT, BYTEA, BYTEA]
        self._one = Statement("append_one", queries["append_one"], [*fence, *entry, BIGINT, BYTEA])
        array = {TEXT: TEXTS, BIGINT: BIGINTS, BYTEA: BYTEAS}
        many = [array[kind] for kind in (*fence, BIGINT, BYTEA, *entry, TEXT)]
        self._many = Statement("append_many", queries["append_many"], many)

    def append(self, conn: Connection, lines: Sequence[Line]) -> set[str]:
        """Add entries; the uids of the runs that got theirs. Each gets all or none.

        A statement alone is a transaction of its own, with the settings of its session. Behind a pooler, where a
        session has none of ours, they are set in an explicit one.
        """
        if not conn.limited:
            rows = told(conn, (self._queries["append_many"], _lists(lines)))
            return {uid for uid, _ in rows}
        if len(lines) == 1:
            write, entry, _ = lines[0]
            return {write.uid} if self._one(conn, _values(write, entry)).ntuples else set()
        result = self._many(conn, _columns(lines))
        return {(result.get_value(row, 0) or b"").decode() for row in range(result.ntuples)}


def _values(write: Append, entry: Entry) -> Values:
    state = entry.state
    return [
        write.uid.encode(),
        number(write.epoch),
        kept(write.worker).encode(),
        number(entry.seq),
        number(entry.at),
        None if state is None else number(state),
        kept(entry.kind).encode(),
        entry.hash,
        entry.payload,
        number(entry.seq - 1),
        entry.prev,
    ]


def _columns(lines: Sequence[Line]) -> Values:
    writes, entries, firsts = zip(*lines, strict=True)
    uids = texts([write.uid for write in writes])
    return [
        uids,
        numbers([write.epoch for write in writes]),
        texts([kept(write.worker) for write in writes]),
        numbers([first.seq - 1 for first in firsts]),
        blobs([first.prev for first in firsts]),
        numbers([entry.seq for entry in entries]),
        numbers([entry.at for entry in entries]),
        numbers([entry.state for entry in entries]),
        texts([kept(entry.kind) for entry in entries]),
        blobs([entry.hash for entry in entries]),
        blobs([entry.payload for entry in entries]),
        uids,
    ]


def _lists(lines: Sequence[Line]) -> tuple[list[Any], ...]:
    """The same as psycopg takes it."""
    rows = [
        (w.uid, w.epoch, kept(w.worker), f.seq - 1, f.prev, e.seq, e.at, e.state, kept(e.kind), e.hash, e.payload)
        for w, e, f in lines
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    return (*columns, columns[0])


def is_quiet(lines: Sequence[Line]) -> bool:
    """Whether nobody waits for any of these entries."""
    return all(entry.kind in QUIET for _, entry, _ in lines)


def plain_of(batch: Sequence[Write]) -> list[Line] | None:
    """The entries of a batch, if it does nothing but add them, and those of a run follow each other."""
    lines: list[Line] = []
    seen: dict[str, Line] = {}  # the last one of each run
    for write in batch:
        if type(write) is not Append or write.change or write.took or write.redact or not write.entries:
            return None
        entries = write.entries
        first, before = entries[0], seen.get(write.uid)
        if before is not None:
            earlier, last, first = before
            same = earlier.epoch == write.epoch and earlier.worker == write.worker
            if not same or not is_chain((last, entries[0])):
                return None
        if len(entries) > 1 and not is_chain(entries):
            return None
        lines.extend((write, entry, first) for entry in entries)
        seen[write.uid] = lines[-1]
    return lines
