"""Holdfast: a function with steps, or a graph with one node that is visited again and again."""

from __future__ import annotations

from typing import Any, TypedDict

import holdfast
from bench.rivals import of_postgres, of_sqlite, rows, serve
from holdfast import END, Graph, step, workflow
from holdfast.stores import migrate


@step
def same(x: int) -> int:
    return x


@workflow
def function(steps: int) -> int:
    for n in range(steps):
        same(n)
    return steps


class Count(TypedDict):
    n: int
    steps: int


def counting() -> Graph:
    graph = Graph(Count, name="count", max_steps=1_000_000)
    graph.node(name="count")(lambda state: {"n": state["n"] + 1})
    graph.entry("count")
    graph.route("count", lambda state: "count" if state["n"] < state["steps"] else END, to=["count", END])
    return graph


class Holdfast:
    packages = ("holdfast",)

    def __init__(self, given: dict[str, Any]) -> None:
        self._place, self._graph = given["place"], counting() if given["graph"] else None
        self._on_postgres = self._place.startswith("postgresql:")
        if self._on_postgres:
            url = f"{self._place}?schema=holdfast"
            migrate(url)
        else:
            url = f"sqlite:///{self._place}?durability={given['durability']}"
        self._hf = holdfast.open(url)
        table = "holdfast.entry" if self._on_postgres else "entry"
        self._count = f"SELECT count(*) FROM {table} WHERE kind = '{'saved' if given['graph'] else 'done'}'"

    def durability(self) -> str:
        store: Any = self._hf.client.store
        if self._on_postgres:
            return str(store._link.call(lambda connection, again: of_postgres(connection)))
        return of_sqlite(store._db)

    def run(self, steps: int) -> None:
        if self._graph is None:
            self._hf.start(function, steps).result()
        else:
            self._hf.start(self._graph, {"n": 0, "steps": steps}).result()

    def kept(self) -> int:
        return rows(self._place, self._count)


if __name__ == "__main__":
    serve(Holdfast)
