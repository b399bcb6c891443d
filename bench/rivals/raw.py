"""The limit: a bare INSERT for each step, of the bytes that Holdfast stores for one, and its commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import pg, steps
from bench.rivals import of_postgres, of_sqlite, rows, serve
from holdfast.stores import migrate


class Raw:
    def __init__(self, given: dict[str, Any]) -> None:
        self._place = given["place"]
        if self._place.startswith("postgresql:"):
            self.packages: tuple[str, ...] = ("psycopg",)
            migrate(f"{self._place}?schema=steps")
            self._limit: Any = pg.Raw(self._place)
            self._count = "SELECT count(*) FROM raw.entry"
        else:
            self.packages = ()
            self._limit = steps.Raw(Path(self._place), given["durability"])
            self._count = "SELECT count(*) FROM entry"

    def durability(self) -> str:
        return (of_postgres if self._place.startswith("postgresql:") else of_sqlite)(self._limit._db)

    def run(self, steps: int) -> None:
        self._limit.block(steps)

    def kept(self) -> int:
        return rows(self._place, self._count)


if __name__ == "__main__":
    serve(Raw)
