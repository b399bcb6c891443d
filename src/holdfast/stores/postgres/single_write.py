"""Writes that are one statement: a run that is made, and a run that ends.

Nothing is looked up before. What they expect is nearly always so; where it is not, the statement does nothing, and the
write is made as any other one, which looks first and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from holdfast.kernel.model import ENDED, Append, Change, Create, Entry, Write
from holdfast.kernel.rules import Outcome, ending, is_chain
from holdfast.stores.postgres.connections import Connection, Statement, told
from holdfast.stores.postgres.rows import kept, kept_or_none, row_of


def made_alone(conn: Connection, queries: dict[str, str], write: Write, news: Statement) -> tuple[bool, Outcome]:
    """Make a write by one statement, and tell the others. Whether it was made so, and what it came to."""
    statement = _statement(queries, write)
    if statement is None:
        return False, None
    lock = (queries["lock"], ([write.uid],)) if isinstance(write, Append) else None
    try:
        made = told(conn, statement, news, lock=lock)
    except psycopg.errors.UniqueViolation:  # the entry was there already
        return False, None
    return bool(made), ending(write.record, write.entries) if made and isinstance(write, Create) else None


def _statement(queries: dict[str, str], write: Write) -> Statement | None:
    if not isinstance(write, Create | Append) or not write.entries or not is_chain(write.entries):
        return None
    if isinstance(write, Create):
        if write.record.lineage:
            return None
        return queries["create_one"], (*row_of(write.record), *_columns(write.entries))
    return _end(queries, write, write.change)


def _end(queries: dict[str, str], write: Append, change: Change | None) -> Statement | None:
    if change is None or write.took or write.redact or not is_end(change):
        return None
    fence, first = (write.uid, write.epoch, kept(write.worker)), write.entries[0]
    status = str(change.status), change.wake_at, kept_or_none(change.reason)
    return queries["end_one"], (*fence, *_columns(write.entries), first.seq - 1, first.prev, *status)


def is_end(change: Change) -> bool:
    """Whether a run ends and is released, with nothing else about it."""
    return change == Change(status=change.status, release=True, reason=change.reason) and change.status in ENDED


def _columns(entries: Sequence[Entry]) -> tuple[list[Any], ...]:
    rows = [(e.seq, e.at, e.state, kept(e.kind), e.hash, e.payload) for e in entries]
    return tuple(list(column) for column in zip(*rows, strict=True))
