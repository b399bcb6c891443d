"""A PostgreSQL for measurements: as durable as a production server, in a folder of its own.

It is the server of the tests (`tests/lib/pgserver.py`) with its savings taken back: every commit is synced, pages are
written whole after a checkpoint, and autovacuum runs. What the server itself says about that is asked for, and a
server that says anything else is not measured.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

sys.path.append(str(Path(__file__).parents[1] / "tests" / "lib"))

from pgserver import Server, new_folder, programs  # noqa: F401 (it lies beside the tests, which are no package)

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
SETTINGS = DURABLE | {
    "autovacuum": "on",
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "min_wal_size": "256MB",
    "max_connections": "300",
    "track_wal_io_timing": "on",
    "track_io_timing": "on",
}


@contextmanager
def postgres(**settings: str) -> Iterator[Server]:
    """A server that is removed afterwards."""
    server = Server(new_folder())
    try:
        server.make("--wal-segsize=16")  # megabytes, as a server has it by default
        server.start(**SETTINGS | settings)
        check_durable(server.url)
        yield server
    finally:
        server.remove()


def check_durable(url: str) -> None:
    """Raise if the server does not sync its commits."""
    with psycopg.connect(url) as conn:
        found = {name: conn.execute(f"SHOW {name}").fetchone()[0] for name in DURABLE}  # type: ignore[index]
    if found != DURABLE:
        raise RuntimeError(f"not a durable server: {found}")


def ask(url: str, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """The rows that a statement gives, on a connection of its own."""
    with psycopg.connect(url, autocommit=True) as conn:
        cursor = conn.execute(statement, values or None)
        return cursor.fetchall() if cursor.description else []


def database(url: str, name: str) -> str:
    """Make a database beside that of a URL; its URL."""
    ask(url, f"CREATE DATABASE {name}")
    return f"{url.rpartition('/')[0]}/{name}"
