"""DBOS: a workflow with steps.

Recommended: nothing but the URL of the database. Best: SQLite with a write-ahead log; PostgreSQL without a question to
the server before each use of a connection. With ``durability`` normal, SQLite does not sync at each commit.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from dbos import DBOS, DBOSConfig

from bench.rivals import of_postgres, of_sqlite, rows, serve


@DBOS.step()
def same(x: int) -> int:
    return x


@DBOS.workflow()
def function(steps: int) -> int:
    for n in range(steps):
        same(n)
    return steps


class Dbos:
    packages = ("dbos", "sqlalchemy")

    def __init__(self, given: dict[str, Any]) -> None:
        self._place = given["place"]
        self._on_postgres = self._place.startswith("postgresql:")
        url = self._place if self._on_postgres else f"sqlite:///{self._place}"
        config: DBOSConfig = {"name": "rival", "system_database_url": url, "log_level": "ERROR"}
        if given["best"] and self._on_postgres:
            config["db_engine_kwargs"] = {"pool_pre_ping": False}
        elif given["best"]:
            sa.event.listen(sa.Engine, "connect", self._settings(given["durability"]))
        DBOS(config=config)
        DBOS.launch()

    @staticmethod
    def _settings(durability: str) -> Any:
        def connected(connection: Any, record: Any) -> None:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {durability}")

        return connected

    def durability(self) -> str:
        from dbos._dbos import _get_dbos_instance

        with _get_dbos_instance()._sys_db.engine.connect() as pooled:
            connection = pooled.connection.dbapi_connection
            return (of_postgres if self._on_postgres else of_sqlite)(connection)

    def run(self, steps: int) -> None:
        assert function(steps) == steps

    def kept(self) -> int:
        table = "dbos.operation_outputs" if self._on_postgres else "operation_outputs"
        return rows(self._place, f"SELECT count(*) FROM {table}")


if __name__ == "__main__":
    serve(Dbos)
