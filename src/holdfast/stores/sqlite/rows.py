"""What is stored as rows of SQLite, and back, with a checksum in each row; and a filter as SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import RunDamaged, StoreDamaged
from holdfast.kernel.model import Document, Filter, Link, Rewind, RunRecord, Status
from holdfast.kernel.rules import Term, each_status
from holdfast.stores.sql_rows import after_prefix, checksum_of, is_entry, newest_first, within

KNOWN_STATUSES = frozenset(Status)
_decode_lineage = msgspec.json.Decoder(tuple[Link, ...]).decode
_decode_rewinds = msgspec.json.Decoder(tuple[Rewind, ...]).decode
_decode_tags = msgspec.json.Decoder(dict[str, str]).decode


def rows_of(db: sqlite3.Connection, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of a list. A text that is not UTF-8 is shown as far as it can be, so that it hides no other row."""
    try:
        return db.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None):
            raise
    db.text_factory = lambda text: text.decode(errors="backslashreplace")
    try:
        return db.execute(statement, values).fetchall()
    finally:
        db.text_factory = str


def row_of(record: RunRecord) -> tuple[Any, ...]:
    """The columns of a record, and a checksum over them so that a damaged row is noticed."""
    columns = (
        record.uid,
        record.id,
        record.created_at,
        record.root,
        record.base,
        record.workflow,
        msgspec.json.encode(record.tags).decode(),
        msgspec.json.encode(record.lineage).decode(),
        record.key_id,
        record.key_blob,
        record.queue,
        record.priority,
        record.lane,
        record.parent,
        str(record.status),
        record.epoch,
        record.worker,
        msgspec.json.encode(record.rewinds).decode(),
        record.rollback,
        record.wake_at,
        record.reason,
        int(record.hidden),
        record.chapter,
        record.crashes,
        record.crashed_at,
    )
    was = None if record.was is None else str(record.was)
    return (*columns, checksum_of(columns), _sealed_away(record.uid, record.away, was), was, record.seq)


def _sealed_away(uid: str, away: str | None, was: str | None) -> str | None:
    """Where a run is, behind a checksum of its own: that of the record is one that the version before can check."""
    return None if away is None else f"{checksum_of((uid, away, was)).hex()} {away}"


def _away_in(uid: str, sealed: Any, was: Any) -> str | None:
    """Where a run is that is away; raises `ValueError` if that is not what was written."""
    away = sealed.partition(" ")[2] if type(sealed) is str else None
    if _sealed_away(uid, away, was) != sealed or (away is None and was is not None):
        raise ValueError(uid)
    return away


def record_of(row: tuple[Any, ...]) -> RunRecord:
    columns, checksum, (seq, hash, at, kind, state), (away, was, newest) = row[:25], row[25], row[26:31], row[31:]
    if checksum_of(columns) != checksum:
        raise RunDamaged(str(row[1]), "its record was changed or damaged; restore the run from a backup")
    if not is_entry(seq, kind, at, state, hash):
        raise RunDamaged(str(row[1]), "its newest entry is missing or damaged; restore the run from a backup")
    if newest is not None and (type(newest) is not int or newest > seq):
        raise RunDamaged(str(row[1]), f"its journal ends at {seq}, before {newest!r}; restore the run from a backup")
    if columns[14] not in KNOWN_STATUSES:
        raise RunDamaged(str(row[1]), f"its status {columns[14]!r} is unknown here; a newer Holdfast wrote it")
    try:
        place = _away_in(columns[0], away, was)
    except ValueError:
        raise RunDamaged(str(row[1]), "where it was moved to is damaged; restore the run from a backup") from None
    return RunRecord(
        uid=columns[0],
        id=columns[1],
        created_at=columns[2],
        root=columns[3],
        base=columns[4],
        workflow=columns[5],
        tags=_decode_tags(columns[6]),
        lineage=_decode_lineage(columns[7]),
        key_id=columns[8],
        key_blob=columns[9],
        queue=columns[10],
        priority=columns[11],
        lane=columns[12],
        parent=columns[13],
        status=Status(columns[14]),
        epoch=columns[15],
        worker=columns[16],
        rewinds=_decode_rewinds(columns[17]),
        rollback=columns[18],
        wake_at=columns[19],
        reason=columns[20],
        hidden=bool(columns[21]),
        chapter=columns[22],
        crashes=columns[23],
        crashed_at=columns[24],
        away=place,
        was=None if was is None else Status(was),
        seq=seq,
        hash=hash,
        updated_at=at,
        state=seq if kind == "saved" else state,
    )


def taken_seal(key: str) -> bytes:
    """What stands in place of the payload of an item that was taken."""
    return checksum_of((key, "taken"))


def taken_of(uid: str, key: Any, seal: Any) -> str:
    """The key of an item that was taken; it has no seal if an older version took it."""
    if type(key) is not str or seal not in (None, taken_seal(key)):
        raise RunDamaged(uid, f"the inbox item {key!r} was changed or damaged; restore the run from a backup")
    return key


def worker_row(name: str, term: Term) -> tuple[Any, ...]:
    """The columns of a worker, and a checksum over them."""
    columns = (name, term.until, term.boot, term.ends)
    return (*columns, checksum_of(columns))


def term_of(place: str, name: Any, until: Any, boot: Any, ends: Any, checksum: Any) -> Term:
    """Until when a worker's leases hold; raises `StoreDamaged` if the row is not what was written.

    A row of the version before has the wall clock alone, and no checksum.
    """
    if type(until) is int and boot is None and ends is None and checksum is None:
        return Term(until)
    is_term = all(type(value) is int for value in (until, boot, ends))
    if not is_term or checksum != checksum_of((name, until, boot, ends)):
        raise StoreDamaged(place, f"what it says of the worker {name!r} is damaged; start that worker again")
    return Term(until, boot, ends)


def document_row(kind: str, document: Document) -> tuple[Any, ...]:
    """The columns of a document, and a checksum over them."""
    columns = (kind, document.name, document.value, document.version)
    return (*columns, checksum_of(columns))


def document_of(kind: str, place: str, name: Any, value: Any, version: Any, checksum: Any) -> Document:
    """The document of a row; raises `StoreDamaged` if it is not what was written."""
    if type(value) is not bytes or type(version) is not int or checksum_of((kind, name, value, version)) != checksum:
        raise StoreDamaged(place, f"what it says of the {kind} {name!r} is damaged; restore it from a backup")
    return Document(name, value, version)


def listed(row: tuple[Any, ...]) -> RunRecord:
    """The record for a list: a damaged one is listed as such and does not hide the others."""
    try:
        return record_of(row)
    except RunDamaged as damage:
        return RunRecord(
            uid=str(row[0]), id=str(row[1]), created_at=0, root=b"", status=Status.BLOCKED, reason=str(damage)
        )


def tagged(tags: Any, name: str, value: str) -> bool:
    """Whether these tags have this one. Those that are damaged have any, so that the run is listed as damaged."""
    try:
        return _decode_tags(tags).get(name) == value
    except (msgspec.MsgspecError, TypeError, UnicodeDecodeError):
        return True


def page(
    queries: dict[str, str], filter: Filter, before: str | None, limit: int, holders: Sequence[Any] | None = None
) -> tuple[str, list[Any]]:
    """The statement for a page of runs, newest first, and its values; only of these holders, if they are given.

    If there is a tag, it is looked up first; unless it has a NUL, at which a text ends for SQLite's JSON.
    """
    query, column, first, given = queries["record"], "r.uid", list[str](), list[str]()
    if by_tag := next((tag for tag in filter.tags if "\0" not in "".join(tag)), None):
        query, column = query.replace("FROM run r", queries["from_tag"]), "t.uid"
        first, given = ["t.name = ? AND t.value = ?"], [*by_tag]
    bounds, limits = within(column, filter, before, "?")
    if holders is not None:
        first, given = [*first, f"r.worker IN ({', '.join('?' * len(holders))})"], [*given, *holders]
    if filter.shares is not None:
        first, given = [*first, queries["forks"]], [*given, filter.shares]
    if holders is not None or filter.shares is not None:
        column = "+" + column  # they are few: what they are found by is another index than the one of this order
    found = [conditions(one) for one in each_status(filter)]
    parts = [([*first, *bounds, *clauses], [*given, *limits, *values]) for clauses, values in found]
    return newest_first(query, f"{column} DESC", parts, limit, "?")


def conditions(filter: Filter) -> tuple[list[str], list[Any]]:
    """A filter, of one status at most, as conditions on ``r``, and the values for their placeholders."""
    clauses: list[str] = []
    values: list[Any] = []

    def add(clause: str, *given: Any) -> None:
        clauses.append(clause)
        values.extend(given)

    if filter.hidden is not None:
        add("r.hidden = ?", int(filter.hidden))
    if filter.statuses:
        add("r.status = ?", str(filter.statuses[0]))
    if filter.workflow is not None:
        add("r.workflow = ?", filter.workflow)
    if filter.parent is not None:
        add("r.parent = ?", filter.parent)
    for name, value in filter.tags:
        add("tagged(r.tags, ?, ?)", name, value)
    if filter.prefix is not None:
        start = filter.prefix.encode("utf-8", "surrogatepass")  # as bytes: a text ends for SQLite at its first NUL
        add("substr(CAST(r.id AS BLOB), 1, ?) = ?", len(start), start)
        if filter.prefix and (end := after_prefix(filter.prefix)) is not None and filter.hidden is False:
            add("r.id >= ? AND r.id < ?", filter.prefix, end)  # says nothing new, but can be found by the index
    if filter.created_from is not None:
        add("r.created_at >= ?", filter.created_from)
    if filter.created_before is not None:
        add("r.created_at < ?", filter.created_before)
    return clauses, values
