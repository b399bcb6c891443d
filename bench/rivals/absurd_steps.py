"""absurd: a task with steps, spawned and worked off in this process. PostgreSQL only.

Recommended: the client with a URL. Best: on a connection that prepares every statement at its first use.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import Absurd

from bench.rivals import of_postgres, rows, serve


class AbsurdTask:
    packages = ("absurd-sdk", "absurdctl", "psycopg")

    def __init__(self, given: dict[str, Any]) -> None:
        self._place = given["place"]
        control = Path(sys.executable).with_name("absurdctl")
        for command in (["init"], ["create-queue", "default"]):
            subprocess.run([control, command[0], "-d", self._place, *command[1:]], check=True)
        link: Any = self._place
        if given["best"]:
            link = psycopg.connect(self._place, autocommit=True, prepare_threshold=0)
        self._app = Absurd(link)

        @self._app.register_task(name="function")
        def function(params: Any, ctx: Any) -> int:
            for n in range(params["steps"]):
                ctx.step(f"same#{n}", lambda n=n: n)
            return int(params["steps"])

    def durability(self) -> str:
        return of_postgres(self._app._conn)

    def run(self, steps: int) -> None:
        task = self._app.spawn("function", {"steps": steps})
        self._app.work_batch(claim_timeout=600)
        found = self._app.fetch_task_result(task["task_id"])
        assert found is not None
        assert found.state == "completed"

    def kept(self) -> int:
        return rows(self._place, "SELECT count(*) FROM absurd.c_default")


if __name__ == "__main__":
    serve(AbsurdTask)
