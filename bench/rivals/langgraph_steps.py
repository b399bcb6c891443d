"""LangGraph: a graph with one node that is visited again and again, at durability "sync".

Recommended: the saver as `from_conn_string` opens it. Best: SQLite with large pages and a large cache; PostgreSQL in a
pipeline. With ``durability`` normal, SQLite does not sync at each commit.
"""

from __future__ import annotations

import sqlite3
from itertools import count
from typing import Any, TypedDict

from bench.rivals import of_postgres, of_sqlite, rows, serve


class State(TypedDict):
    n: int
    steps: int


class LangGraph:
    def __init__(self, given: dict[str, Any]) -> None:
        from langgraph.graph import END, START, StateGraph

        self._place, self._threads = given["place"], count()
        self._on_postgres = self._place.startswith("postgresql:")
        saver = self._on(given) if self._on_postgres else self._in_a_file(given)
        graph = StateGraph(State)
        graph.add_node("count", lambda state: {"n": state["n"] + 1})
        graph.add_edge(START, "count")
        graph.add_conditional_edges("count", lambda state: "count" if state["n"] < state["steps"] else END)
        self._saver, self._graph = saver, graph.compile(checkpointer=saver)

    def _on(self, given: dict[str, Any]) -> Any:
        from langgraph.checkpoint.postgres import PostgresSaver

        self.packages: tuple[str, ...] = ("langgraph", "langgraph-checkpoint-postgres")
        with PostgresSaver.from_conn_string(self._place) as saver:
            saver.setup()
        self._open = PostgresSaver.from_conn_string(self._place, pipeline=given["best"])  # closed with the process
        return self._open.__enter__()

    def _in_a_file(self, given: dict[str, Any]) -> Any:
        from langgraph.checkpoint.sqlite import SqliteSaver

        self.packages = ("langgraph", "langgraph-checkpoint-sqlite")
        db = sqlite3.connect(self._place, check_same_thread=False)
        if given["best"]:
            for setting in ("page_size = 16384", "cache_size = -64000", "mmap_size = 268435456", "temp_store = MEMORY"):
                db.execute(f"PRAGMA {setting}")
        saver = SqliteSaver(db)
        saver.setup()
        if given["durability"] == "normal":
            db.execute("PRAGMA synchronous = NORMAL")
        return saver

    def durability(self) -> str:
        if not self._on_postgres:
            return of_sqlite(self._saver.conn)
        import psycopg

        with psycopg.connect(self._place) as db:  # the saver changes none of these settings
            return of_postgres(db)

    def run(self, steps: int) -> None:
        config: Any = {"configurable": {"thread_id": str(next(self._threads))}, "recursion_limit": 1_000_000}
        self._graph.invoke({"n": 0, "steps": steps}, config, durability="sync")

    def kept(self) -> int:
        return rows(self._place, "SELECT count(*) FROM checkpoints")


if __name__ == "__main__":
    serve(LangGraph)
