"""Burr: a state machine with one action that is visited again and again, its state kept after each. SQLite only here.

Recommended: its SQLite persister. Best: with a write-ahead log. With ``durability`` normal, SQLite does not sync at
each commit.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from burr.core import ApplicationBuilder, State, action, expr
from burr.core.persistence import SQLitePersister

from bench.rivals import of_sqlite, rows, serve


@action(reads=["n"], writes=["n"])
def counting(state: State) -> State:
    return state.update(n=state["n"] + 1)


@action(reads=["n"], writes=[])
def end(state: State) -> State:
    return state


class Burr:
    packages = ("burr",)

    def __init__(self, given: dict[str, Any]) -> None:
        self._place, self._ids = given["place"], count()
        self._persister = SQLitePersister(self._place, connect_kwargs={"check_same_thread": False})
        self._persister.initialize()
        if given["best"]:
            self._persister.connection.execute("PRAGMA journal_mode = WAL")
            self._persister.connection.execute(f"PRAGMA synchronous = {given['durability']}")

    def durability(self) -> str:
        return of_sqlite(self._persister.connection)

    def run(self, steps: int) -> None:
        application = (
            ApplicationBuilder()
            .with_actions(counting=counting, end=end)
            .with_transitions(("counting", "counting", expr(f"n < {steps}")), ("counting", "end"))
            .with_state(n=0)
            .with_entrypoint("counting")
            .with_state_persister(self._persister)
            .with_identifiers(app_id=f"run-{next(self._ids)}")
            .build()
        )
        *_, state = application.run(halt_after=["end"])
        assert state["n"] == steps

    def kept(self) -> int:
        return rows(self._place, "SELECT count(*) FROM burr_state")


if __name__ == "__main__":
    serve(Burr)
