"""Values in PostgreSQL's own binary form, for the statements by which steps are written.

psycopg would make them too, each in Python, which takes longer than the server takes for a row.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

BYTEA, BIGINT, TEXT = 17, 20, 25  # the numbers of these types, which are the same in every database
BYTEAS, TEXTS, BIGINTS = 1001, 1009, 1016  # and of arrays of them
_HEAD = struct.Struct(">5i")  # dimensions, whether there are nulls, type, length, first index
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)

number = struct.Struct(">q").pack


@lru_cache(64)  # one for each length
def _numbers(count: int) -> struct.Struct:
    return struct.Struct(">5i" + "iq" * count)


def numbers(values: Sequence[int | None]) -> bytes:
    """An array of ``bigint``."""
    count = len(values)
    if None in values:
        each = (_NULL if value is None else struct.pack(">iq", 8, value) for value in values)
        return _HEAD.pack(1, 1, BIGINT, count, 1) + b"".join(each)
    fields: list[Any] = [8] * (2 * count)
    fields[1::2] = values
    return _numbers(count).pack(1, 0, BIGINT, count, 1, *fields)


def blobs(values: Sequence[bytes], kind: int = BYTEA) -> bytes:
    """An array of ``bytea``."""
    each = chain.from_iterable((_LENGTH.pack(len(value)), value) for value in values)
    return _HEAD.pack(1, 0, kind, len(values), 1) + b"".join(each)


def texts(values: Sequence[str]) -> bytes:
    """An array of ``text``."""
    return blobs([value.encode() for value in values], TEXT)
