"""A run's record as a row of PostgreSQL, and back; texts that PostgreSQL can keep; and a filter as SQL. No I/O."""

from __future__ import annotations

from hashlib import blake2b, sha256
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.errors import RunDamaged
from holdfast.kernel.model import Entry, Filter, Link, Rewind, RunRecord, Status
from holdfast.kernel.rules import each_status, uids_within
from holdfast.stores.sql_rows import MAX_TIME, after_prefix, is_entry, is_stored_entry, newest_first, within

KNOWN_STATUSES = frozenset(Status)
ESCAPE = "\x1b"
_NONE = type(None)
_decode_lineage = msgspec.json.Decoder(tuple[Link, ...]).decode
_decode_rewinds = msgspec.json.Decoder(tuple[Rewind, ...]).decode
_decode_tags = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


def kept(text: str) -> str:
    """The text as it is stored. PostgreSQL keeps no NUL, so that is written as two characters that begin with ESC.

    No stored text is the beginning of another one's that it should not be the beginning of, so prefixes can be
    looked for as they are stored.
    """
    if "\0" not in text and ESCAPE not in text:
        return text
    return text.replace(ESCAPE, ESCAPE + "[").replace("\0", ESCAPE + "0")


def given(text: str) -> str:
    """The text that was stored so."""
    return text.replace(ESCAPE + "0", "\0").replace(ESCAPE + "[", ESCAPE) if ESCAPE in text else text


def kept_or_none(text: str | None) -> str | None:
    return None if text is None else kept(text)


def given_or_none(text: str | None) -> str | None:
    return None if text is None else given(text)


def kept_tags(tags: dict[str, str]) -> str:
    return _encode({kept(name): kept(value) for name, value in tags.items()}).decode()


def key_digest(key: str) -> bytes:
    """By what an item of an inbox is found."""
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def changing(record: RunRecord) -> tuple[Any, ...]:
    """The columns that change while a run lives."""
    return (
        kept_or_none(record.key_id),
        record.key_blob,
        str(record.status),
        record.epoch,
        kept_or_none(record.worker),
        _encode(record.rewinds).decode(),
        record.rollback,
        record.wake_at,
        kept_or_none(record.reason),
        record.hidden,
        record.chapter,
        record.crashes,
        record.crashed_at,
        kept_or_none(record.away),
        record.was and str(record.was),
    )


def row_of(record: RunRecord) -> tuple[Any, ...]:
    """All columns of a new run."""
    key_id, key_blob, *rest = changing(record)
    return (
        record.uid,
        kept(record.id),
        record.created_at,
        record.root,
        record.base,
        kept_or_none(record.workflow),
        kept_tags(record.tags),
        _encode(record.lineage).decode(),
        key_id,
        key_blob,
        kept_or_none(record.queue),
        record.priority,
        kept_or_none(record.lane),
        kept_or_none(record.parent),
        *rest,
    )


_TEXT, _NUMBER, _BYTES, _FLAG = (str,), (int,), (bytes,), (bool,)
_TEXT_OR_NONE, _NUMBER_OR_NONE, _BYTES_OR_NONE = (str, _NONE), (int, _NONE), (bytes, _NONE)
_KINDS = (  # of the values of the query ``record``, without the first and those of the newest entry
    *(_TEXT, _TEXT, _NUMBER, _BYTES, _NUMBER, _TEXT_OR_NONE, _TEXT, _TEXT, _TEXT_OR_NONE, _BYTES_OR_NONE),
    *(_TEXT_OR_NONE, _NUMBER, _TEXT_OR_NONE, _TEXT_OR_NONE, _TEXT, _NUMBER, _TEXT_OR_NONE, _TEXT, _NUMBER_OR_NONE),
    *(_NUMBER_OR_NONE, _TEXT_OR_NONE, _FLAG, _NUMBER, _NUMBER, _NUMBER),
)


def is_time(value: Any) -> bool:
    """Whether this is a moment that was written; others have no date."""
    return type(value) is int and 0 <= value < MAX_TIME


def entry_of(uid: str, row: tuple[Any, ...]) -> Entry:
    """The entry of a row of the query ``read``."""
    seq, kind, at, state, prev, hash, payload = row
    if not is_stored_entry(row) or prev is None:
        raise RunDamaged(uid, f"entry {seq} is not what was written; restore the run from a backup")
    return Entry(seq, given(kind), at, state, prev, hash, payload)


def record_of(row: tuple[Any, ...]) -> RunRecord:
    """The record of a row of the query ``record``."""
    columns, (seq, hash, at, kind, state), (away, was) = row[1:26], row[26:31], row[31:]
    id = given(columns[1]) if type(columns[1]) is str else str(columns[1])
    if seq is None:
        raise RunDamaged(id, "its entries are missing; restore the run from a backup")
    sound = all(type(value) in kinds for value, kinds in zip(columns, _KINDS, strict=True))
    if not sound or not is_time(columns[2]) or not is_entry(seq, kind, at, state, hash):
        raise RunDamaged(id, "its record or its newest entry was changed by hand; restore the run from a backup")
    if columns[14] not in KNOWN_STATUSES or was not in (None, *KNOWN_STATUSES):
        raise RunDamaged(id, f"its status {columns[14]!r} is unknown here; a newer Holdfast wrote it")
    try:
        return RunRecord(
            uid=columns[0],
            id=id,
            created_at=columns[2],
            root=columns[3],
            base=columns[4],
            workflow=given_or_none(columns[5]),
            tags={given(name): given(value) for name, value in _decode_tags(columns[6]).items()},
            lineage=_decode_lineage(columns[7]),
            key_id=given_or_none(columns[8]),
            key_blob=columns[9],
            queue=given_or_none(columns[10]),
            priority=columns[11],
            lane=given_or_none(columns[12]),
            parent=given_or_none(columns[13]),
            status=Status(columns[14]),
            epoch=columns[15],
            worker=given_or_none(columns[16]),
            rewinds=_decode_rewinds(columns[17]),
            rollback=columns[18],
            wake_at=columns[19],
            reason=given_or_none(columns[20]),
            hidden=columns[21],
            chapter=columns[22],
            crashes=columns[23],
            crashed_at=columns[24],
            away=given_or_none(away),
            was=None if was is None else Status(was),
            seq=seq,
            hash=hash,
            updated_at=at,
            state=seq if kind == "saved" else state,
        )
    except msgspec.MsgspecError as error:
        raise RunDamaged(id, f"its record was changed by hand ({error}); restore the run from a backup") from error


def listed(row: tuple[Any, ...]) -> RunRecord:
    """The record for a list: a damaged one is listed as such and does not hide the others."""
    try:
        return record_of(row)
    except RunDamaged as damage:
        return RunRecord(
            uid=str(row[1]), id=damage.run, created_at=0, root=b"", status=Status.BLOCKED, reason=str(damage)
        )


def tag_digest(name: str, value: str) -> bytes:
    """By what the runs of a tag are found; made the same by the function ``tag_digests`` of the schema."""
    return sha256(f"{kept(name)}\x1f{kept(value)}".encode("utf-8", "replace")).digest()[:8]


def page(
    queries: dict[str, str], filter: Filter, before: str | None, limit: int, now: int = 0
) -> tuple[str, list[Any]]:
    """The statement for a page of runs, newest first, and its values."""
    parts = []
    for one in each_status(filter):
        column = _indexed(one)
        if column is None:
            bounds, limits = within("r.uid", one, before, "%s")
        else:
            bounds, limits = _within_index(column, one, before)
            one = replace(one, statuses=(), workflow=None, parent=None)
        clauses, values = conditions(queries, one, now)
        parts.append(([*bounds, *clauses], [*limits, *values]))
    order = "r.uid DESC" if column is None else f"r.{column} DESC, r.uid DESC"
    return newest_first(queries["record"], order, parts, limit, "%s")


def _indexed(filter: Filter) -> str | None:
    """The column by which runs are looked up that are ordered by their uids within it: if there is one, and no choice.

    The server would rather look through the newest of all runs for some that fit, as if they were spread evenly.
    """
    given = {"status": filter.statuses, "workflow": filter.workflow is not None, "parent": filter.parent is not None}
    named = [column for column, there in given.items() if there]
    few = filter.prefix or filter.shares is not None or filter.orphaned
    return named[0] if len(named) == 1 and not few else None


def _within_index(column: str, filter: Filter, before: str | None) -> tuple[list[str], list[Any]]:
    """Conditions on the uid, as conditions on an index that begins with another column.

    They do not say that it has one value: else the order would be that of the uids alone, which other indexes have.
    """
    value = str(filter.statuses[0]) if column == "status" else kept(getattr(filter, column))
    lo, hi = uids_within(filter)
    clauses, values = [f"(r.{column}, r.uid) >= (%s, %s)", f"r.{column} <= %s"], [value, lo or "", value]
    for end in (hi, before):
        if end is not None:
            clauses.append(f"(r.{column}, r.uid) < (%s, %s)")
            values += [value, end]
    return clauses, values


def page_of_tag(
    queries: dict[str, str], filter: Filter, before: str | None, limit: int, now: int
) -> tuple[str, list[Any]]:
    """The same for runs with a tag: the newest ``limit`` of the tag are looked at, and which of them fit the filter.

    Each gives a row, which begins with its uid; the rest of it is empty if it does not fit. So how many are looked at,
    and in which order, does not depend on what the server believes of how often a tag is used.
    """
    name, value = filter.tags[0]
    bounds, limits = within("uid", filter, before, "%s")
    newest = f"{queries['tagged']} {' '.join(f'AND {clause}' for clause in bounds)} ORDER BY uid DESC LIMIT %s"
    clauses, values = conditions(queries, filter, now)
    fitting = f"{queries['record']} WHERE {' AND '.join(['r.uid = t.uid', *clauses])}"
    statement = f"SELECT t.uid, fit.* FROM ({newest}) t LEFT JOIN LATERAL ({fitting}) fit ON true ORDER BY t.uid DESC"
    return statement, [tag_digest(name, value), *limits, limit, *values]


def conditions(queries: dict[str, str], filter: Filter, now: int) -> tuple[list[str], list[Any]]:
    """A filter as conditions on ``r``, and the values for their placeholders.

    ``now`` is used where the statements take the time from a clock of a test, and not from the server.
    """
    clauses: list[str] = []
    values: list[Any] = []

    def add(clause: str, *given: Any) -> None:
        clauses.append(clause)
        values.extend(given)

    if filter.hidden is not None:
        add("r.hidden" if filter.hidden else "NOT r.hidden")
    if len(filter.statuses) == 1:
        add("r.status = %s", str(filter.statuses[0]))
    elif filter.statuses:
        add("r.status = ANY(%s::text[])", [str(status) for status in filter.statuses])
    if filter.workflow is not None:
        add("r.workflow = %s", kept(filter.workflow))
    if filter.parent is not None:
        add("r.parent = %s", kept(filter.parent))
    if filter.tags:
        wanted: dict[str, str] = {}
        for name, value in filter.tags:
            if wanted.setdefault(name, value) != value:
                add("false")
        add("r.tags @> %s::jsonb", kept_tags(wanted))
    if filter.prefix:
        prefix = filter.prefix.encode("utf-8", "replace").decode()
        add("starts_with(r.id, %s)", kept(prefix))
        if prefix != filter.prefix:  # it has a lone surrogate, which no id has
            add("false")
        elif (end := after_prefix(kept(prefix))) is not None:
            add("r.id >= %s AND r.id < %s", kept(prefix), end)  # says nothing new, but can be found by the index
    if filter.created_from is not None:
        add("r.created_at >= %s", filter.created_from)
    if filter.created_before is not None:
        add("r.created_at < %s", filter.created_before)
    if filter.shares is not None:
        add(queries["forks"], filter.shares)
    if filter.orphaned:
        orphans = queries["orphans"].replace("%(now)s", "%s")
        add(f"r.n = ANY(ARRAY({orphans}))", *[now] * orphans.count("%s"))
    return clauses, values
