"""`enqueue` in a transaction of the user's own on SQLite: the run is there if and only if that is committed."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, workflow
from holdfast.errors import DefinitionChanged, RunNotFound, UsageError


@workflow(name="within-send")
def send(order: str) -> str:
    return f"{order} is sent"


@pytest.fixture
def path(memdir: Path) -> Path:
    return memdir / "runs.db"


@pytest.fixture
def hf(path: Path) -> Iterator[Holdfast]:
    with holdfast.open(f"sqlite:///{path}") as handle:
        yield handle


@pytest.fixture
def connect(path: Path, hf: Holdfast) -> Iterator[Callable[..., sqlite3.Connection]]:
    made: list[sqlite3.Connection] = []

    def connecting(**how: object) -> sqlite3.Connection:
        made.append(sqlite3.connect(path, **how))  # type: ignore[call-overload]
        return made[-1]

    with connecting() as db:
        db.execute("CREATE TABLE orders (name TEXT)")
    yield connecting
    for connection in made:
        connection.close()


Connect = Callable[..., sqlite3.Connection]


def test_both_or_neither(hf: Holdfast, connect: Connect) -> None:
    db = connect()
    db.row_factory, db.text_factory = sqlite3.Row, bytes
    db.execute("INSERT INTO orders VALUES ('a')")
    run = hf.enqueue(send, "a", id="a", tags={"kind": "order"}, within=db)
    with pytest.raises(RunNotFound, match=r"not committed yet"):
        _ = run.status
    assert hf.enqueue(send, "a", id="a", within=db).uid == run.uid
    with pytest.raises(DefinitionChanged):
        hf.enqueue(send, "b", id="a", within=db)
    db.commit()
    hf.enqueue(send, "b", id="b", within=db)  # it begins a transaction, as any INSERT does
    db.rollback()
    assert [one.id for one in hf.runs(tags={"kind": "order"})] == [one.id for one in hf.runs()] == ["a"]
    hf.work(until_idle=True)
    assert run.result() == "a is sent"
    assert hf.audit(run).entries == run.info().seq + 1
    assert db.text_factory is bytes


def test_a_savepoint(hf: Holdfast, connect: Connect) -> None:
    db = connect(isolation_level=None)
    db.execute("BEGIN")
    hf.enqueue(send, "a", id="a", within=db)
    db.execute("SAVEPOINT s")
    hf.enqueue(send, "b", id="b", within=db)
    db.execute("ROLLBACK TO s")
    db.execute("COMMIT")
    assert [one.id for one in hf.runs()] == ["a"]


def test_a_worker_is_not_told_before_the_commit(hf: Holdfast, connect: Connect) -> None:
    db = connect()
    run = hf.enqueue(send, "a", dedup="once", within=db)
    hf.work(until_idle=True)
    assert len(hf.runs()) == 0
    assert hf.enqueue(send, "b", dedup="once", within=db).uid == run.uid
    db.commit()
    hf.work(until_idle=True)
    assert run.status == "completed"


def test_async(hf: Holdfast, connect: Connect) -> None:
    async def main() -> str:
        async with hf as elsewhere:
            db = connect()
            run = await elsewhere.enqueue(send, "a", within=db)
            db.commit()
            await elsewhere.work(until_idle=True)
            return str(await run.result())

    assert asyncio.run(main()) == "a is sent"


def test_wrong_use(hf: Holdfast, connect: Connect, memdir: Path) -> None:
    with pytest.raises(UsageError, match=r"within= is in no transaction"):
        hf.enqueue(send, "a", within=connect(isolation_level=None))
    with pytest.raises(UsageError, match=r"takes a sqlite3.Connection"):
        hf.enqueue(send, "a", within=object())  # type: ignore[arg-type]
    for place, said in ((":memory:", "a database in memory"), (str(memdir / "other.db"), "other.db")):
        other = sqlite3.connect(place)
        with pytest.raises(UsageError, match=rf"within= is connected to .*{said}"):
            hf.enqueue(send, "a", within=other)
        other.close()
    with holdfast.open("memory://") as memory, pytest.raises(UsageError, match=r"within= needs a store with SQL"):
        memory.enqueue(send, "a", within=connect())
