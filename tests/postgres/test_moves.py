"""Runs are moved to PostgreSQL and away from it: also by processes that die, and where an answer is lost."""

from pathlib import Path
from typing import Any

import psycopg
import pytest
from movers import Pair, crash_at, furnish, nothing, others_work
from pgserver import Schemas

import holdfast
from holdfast.kernel.model import Append, Change, Status
from holdfast.stores.postgres.batch import Batch
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import Store
from holdfast.testing.contract_author import Author, make
from holdfast.testing.crash import CrashStore, Fuse

pytestmark = pytest.mark.usefixtures("deaths_are_known")
STEP = 4  # of how many points one is tried


class PostgresPair(Pair):
    """Two stores, one of which is in PostgreSQL."""

    def __init__(self, kinds: tuple[str, str], folder: Path, schemas: Schemas) -> None:
        self.schemas = schemas
        self.schema = schemas.take()
        super().__init__(kinds, folder)

    def open(self, name: str, fuse: Fuse) -> Store:
        if self.kinds[name] != "postgres":
            return super().open(name, fuse)
        return CrashStore(PostgresStore(self.schemas.url(self.schema), clock=self.clock), fuse)

    def rewind(self) -> None:
        self.schemas.give_back(self.schema)
        self.schema = self.schemas.take()
        super().rewind()
        if self.kinds["here"] == "postgres":
            self.clock.reset()
            with self.process() as (here, _):
                furnish(here)


@pytest.mark.slow(covered_by="tests/crash/test_move_crashes.py::test_a_crash_at_any_point")
@pytest.mark.parametrize("kinds", [("sqlite", "postgres"), ("postgres", "files")], ids="-".join)
def test_a_crash_at_many_points(kinds: tuple[str, str], memdir: Path, postgres_schemas: Schemas, tally: Any) -> None:
    pair = PostgresPair(kinds, memdir / "stores", postgres_schemas)
    fuse = Fuse()
    with pair.process(fuse) as (here, there):
        assert sorted(here.move(there, timeout=0).moved) == sorted(pair.before)
    points = fuse.distinct()[:: STEP if kinds[1] == "postgres" else STEP * 5]
    meanwhile = others_work if kinds[0] == "sqlite" else nothing
    violations = [found for at in points if (found := crash_at(pair, at, meanwhile))]
    tally(f"crashes of moves: {'-'.join(kinds)}", points=len(points), violations=len(violations))
    pair.schemas.give_back(pair.schema)
    assert not violations, "\n".join(violations[:20])


def test_all_of_it_from_schema_to_schema(postgres_url: str, postgres_schemas: Schemas) -> None:
    schema = postgres_schemas.take()
    with holdfast.open(postgres_url) as here, holdfast.open(postgres_schemas.url(schema)) as there:
        furnish(here)
        assert len(here.move(there).moved) == 8
        assert {info.status for info in here.runs()} == {Status.AWAY}
        place = here.get("whole").info().away
        assert place == there.place
        assert place is not None
        assert schema in place
    postgres_schemas.give_back(schema)


def test_a_departure_of_which_no_answer_came_is_looked_for(
    store: PostgresStore, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was not made, it is made then; where it was, it is not taken for something that somebody else did."""
    from holdfast.stores.postgres import store as postgres

    change = Change(status=Status.AWAY, release=True, away="elsewhere", was=Status.READY)
    for made in (False, True):
        run = make(store, author.create(f"run {made}"))
        commit, lost = postgres.commit, [True]

        def losing(conn: Any, *rest: Any, made: bool = made, commit: Any = commit, lost: list[bool] = lost) -> None:
            if lost and lost.pop():
                if made:
                    commit(conn, *rest)
                conn.close()
                raise psycopg.OperationalError("the connection is lost")
            commit(conn, *rest)

        monkeypatch.setattr(postgres, "commit", losing)
        [outcome] = store.apply([Append(run.uid, run.id, run.epoch, "", (), change)])
        assert outcome is None
        monkeypatch.undo()
        gone = store.get(uid=run.uid)
        assert gone is not None
        assert (gone.status, gone.away) == (Status.AWAY, "elsewhere")


def test_a_run_larger_than_one_statement_takes(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.postgres.batch.PORTION", 1000)
    inserted: list[int] = []
    statements = Batch.statements

    def counted(self: Batch) -> list[Any]:
        made = statements(self)
        inserted.append(sum("insert" in query.lower() and ".entry" in query for query, _ in made))
        return made

    monkeypatch.setattr(Batch, "statements", counted)
    with holdfast.open("memory://") as here, holdfast.open(postgres_url) as there:
        run = here.run("large")
        with run.claim():
            for n in range(20):
                run.save({"n": n, "text": "x" * (5000 if n == 7 else n)})
        head = here.audit("large").head
        assert here.move(there).moved == ("large",)
        assert there.audit("large").head == head
        assert there.get("large").checkpoint().state == {"n": 19, "text": "x" * 19}
    assert max(inserted) > 2
