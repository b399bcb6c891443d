"""What the rows of both databases have in common: checksums, checks of columns, and pages of runs."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from holdfast.errors import RunDamaged
from holdfast.kernel.model import Filter, Item
from holdfast.kernel.rules import uids_within

MAX_TIME = 253_402_300_800_000_000  # the year 10,000


def checksum_of(columns: tuple[Any, ...]) -> bytes:
    return blake2b(msgspec.msgpack.encode(columns), digest_size=8).digest()


def sealed(item: Item) -> bytes:
    """The payload of an inbox item, after a checksum over the whole item."""
    return checksum_of((item.key, item.kind, item.at, int(item.wakes), item.payload)) + item.payload


def item_of(uid: str, key: Any, kind: Any, at: Any, sealed: Any, wakes: Any) -> Item:
    payload = bytes(sealed[8:]) if type(sealed) is bytes else b""
    if type(sealed) is not bytes or sealed[:8] != checksum_of((key, kind, at, wakes, payload)):
        raise RunDamaged(uid, f"the inbox item {key!r} was changed or damaged; restore the run from a backup")
    return Item(key, kind, at, payload, bool(wakes))


def is_entry(seq: Any, kind: Any, at: Any, state: Any, hash: Any) -> bool:
    """Whether the columns of an entry have the types that were written; a damaged one may have any."""
    return (
        type(seq) is int
        and type(kind) is str
        and type(at) is int
        and 0 <= at < MAX_TIME
        and (state is None or type(state) is int)
        and type(hash) is bytes
    )


def is_stored_entry(row: tuple[Any, ...]) -> bool:
    """Whether all columns of an entry have the right types, with its payload and the hash of the previous entry."""
    seq, kind, at, state, prev, hash, payload = row
    return is_entry(seq, kind, at, state, hash) and (prev is None or type(prev) is bytes) and type(payload) is bytes


def after_prefix(prefix: str) -> str | None:
    """A text that comes after all that begin with this prefix, and before all others behind it; None if it has none.

    Nor has a prefix with a lone surrogate, which no id has.
    """
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix[-1] < "\U0010ffff" else "\ud800"
    return end if not any("\ud800" <= character <= "\udfff" for character in prefix + end) else None


def newest_first(
    query: str, order: str, conditions: Sequence[tuple[list[str], list[Any]]], limit: int, mark: str
) -> tuple[str, list[Any]]:
    """A statement for the newest of what a query finds under several conditions, and its values.

    Of each, an index has what it finds in the ``order``, so no more of it is read than a page.
    """
    each: list[str] = []
    values: list[Any] = []
    for clauses, given in conditions:
        where = f"WHERE {' AND '.join(clauses)} " if clauses else ""
        each.append(f"{query} {where}ORDER BY {order} LIMIT {mark}")
        values += [*given, limit]
    if len(each) == 1:
        return each[0], values
    together = " UNION ALL ".join(f"SELECT * FROM ({one}) AS part" for one in each)
    return f"SELECT * FROM ({together}) AS parts ORDER BY uid DESC LIMIT {mark}", [*values, limit]


def within(column: str, filter: Filter, before: str | None, mark: str) -> tuple[list[str], list[str]]:
    """Conditions on the uid: those of a page, and of the time at which runs were made."""
    lo, hi = uids_within(filter)
    bounds = [(">=", lo), ("<", hi), ("<", before)]
    given = [(sign, value) for sign, value in bounds if value is not None]
    return [f"{column} {sign} {mark}" for sign, _ in given], [value for _, value in given]
