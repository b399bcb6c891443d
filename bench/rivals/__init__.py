"""The systems that are measured beside each other, Holdfast among them: each in a process of its own, of the same kind.

A rival is a module that is run with one argument, a JSON object: where to keep its data, and with which settings. It
makes itself ready, says its versions and how durable it is (as its database tells it), and then carries out orders that
come as lines of JSON: so many runs of so many steps. It answers each with the seconds that they took and with how many
steps its database has more than before, so that the one who asks can see that they are really kept.
"""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Protocol

SYNCHRONOUS = ("OFF", "NORMAL", "FULL", "EXTRA")


class Rival(Protocol):
    """A system that can be given orders."""

    packages: tuple[str, ...]

    def durability(self) -> str:
        """What its database says of how it syncs."""
        ...

    def run(self, steps: int) -> None:
        """One run of so many steps, from its start to its end."""
        ...

    def kept(self) -> int:
        """How many steps its database has."""
        ...


def serve(make: Callable[[dict[str, Any]], Rival]) -> None:
    """Make a rival, and carry out orders until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a system prints must not come between the answers
    rival = make(json.loads(sys.argv[1]))
    rival.run(3)
    ready = {"versions": {name: version(name) for name in rival.packages}, "durability": rival.durability()}
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        before = rival.kept()
        gc.collect()
        started = time.perf_counter()
        for _ in range(order["runs"]):
            rival.run(order["steps"])
        took = time.perf_counter() - started
        print(json.dumps({"seconds": took, "kept": rival.kept() - before}), file=answers, flush=True)
    os._exit(0)  # some keep threads that would not end


def of_sqlite(db: Any) -> str:
    """The settings of a connection, or of one like those that the system uses."""
    [mode] = db.execute("PRAGMA journal_mode").fetchone()
    [level] = db.execute("PRAGMA synchronous").fetchone()
    return f"SQLite, journal_mode={mode}, synchronous={SYNCHRONOUS[level]}"


def of_postgres(db: Any) -> str:
    settings = ("synchronous_commit", "fsync", "full_page_writes")
    found = {name: db.execute(f"SELECT current_setting('{name}')").fetchone()[0] for name in settings}
    return "PostgreSQL, " + ", ".join(f"{name}={value}" for name, value in found.items())


def rows(place: str, query: str) -> int:
    """What a query counts, by a look at the database from outside."""
    if place.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(place) as db:
            [counted] = db.execute(query).fetchone()  # type: ignore[call-overload, misc]
    else:
        look = sqlite3.connect(place)
        [counted] = look.execute(query).fetchone()
        look.close()
    return int(counted)
