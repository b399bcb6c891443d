"""The statements that are made on a SQLite file, by name, and the migrations of its schema."""

from __future__ import annotations

import os
from functools import cache

SQL_FOLDER = os.path.join(os.path.dirname(__file__), "sql")


@cache
def migrations() -> list[tuple[int, str]]:
    """The numbered migrations, as (number, SQL)."""
    found = []
    for name in sorted(os.listdir(SQL_FOLDER)):
        if name[:4].isdigit():
            with open(os.path.join(SQL_FOLDER, name), encoding="utf-8") as file:
                found.append((int(name[:4]), file.read()))
    return found


def _load_queries() -> dict[str, str]:
    with open(os.path.join(SQL_FOLDER, "queries.sql"), encoding="utf-8") as file:
        parts = file.read().split("-- name: ")[1:]
    return {name.strip(): sql.strip() for name, _, sql in (part.partition("\n") for part in parts)}


Q = _load_queries()
