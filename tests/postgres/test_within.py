"""`enqueue` in a transaction of the user's own: the run is there if and only if, and when, that is committed."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
from pgserver import Schemas
from psycopg.rows import dict_row

import holdfast
from holdfast import Holdfast, Keyring, workflow
from holdfast.errors import DefinitionChanged, RunNotFound, StoreReadOnly, UsageError

PATIENCE = 20.0
begun: dict[str, threading.Event] = {}


@workflow(name="within-ship")
def ship(order: str) -> str:
    begun.setdefault(order, threading.Event()).set()
    return f"{order} is shipped"


@pytest.fixture(autouse=True)
def orders(sql: Callable[..., list[Any]]) -> Iterator[Callable[[], list[str]]]:
    """The user's own table, as everybody else sees it."""
    begun.clear()
    sql("CREATE TABLE {schema}.orders (name text PRIMARY KEY)")
    yield lambda: [str(name) for (name,) in sql("SELECT name FROM {schema}.orders ORDER BY name")]
    sql("DROP TABLE {schema}.orders")


@pytest.fixture
def schema(postgres_url: str) -> str:
    return postgres_url.partition("schema=")[2]


@pytest.fixture
def plain_url(postgres_url: str) -> str:
    """The URL as psycopg takes it."""
    return postgres_url.partition("?")[0]


@pytest.fixture
def connect(plain_url: str) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    made: list[psycopg.Connection[Any]] = []

    def connecting(**how: Any) -> psycopg.Connection[Any]:
        made.append(psycopg.connect(plain_url, **how))
        return made[-1]

    yield connecting
    for connection in made:
        connection.close()


@pytest.fixture
def db(connect: Callable[..., psycopg.Connection[Any]]) -> psycopg.Connection[Any]:
    return connect()


@pytest.fixture
def order(schema: str) -> Callable[[psycopg.Connection[Any], str], None]:
    """Put a row of the user's own."""

    def put(db: psycopg.Connection[Any], name: str) -> None:
        db.execute(f"INSERT INTO {schema}.orders VALUES (%s)", (name,))

    return put


Order = Callable[[psycopg.Connection[Any], str], None]
Orders = Callable[[], list[str]]


def test_both_are_there_after_the_commit(hf: Holdfast, db: Any, order: Order, orders: Orders) -> None:
    order(db, "a")
    run = hf.enqueue(ship, "a", id="a", within=db, tags={"kind": "order"})
    with pytest.raises(RunNotFound, match=r"is not committed yet, or was rolled back"):
        _ = run.status
    assert (orders(), len(hf.runs())) == ([], 0)
    db.commit()
    assert (orders(), run.status, run.info().tags) == (["a"], "ready", {"kind": "order"})
    hf.work(until_idle=True)
    assert run.result() == "a is shipped"
    assert hf.audit(run).entries == run.info().seq + 1
    assert [one.id for one in hf.runs(tags={"kind": "order"})] == ["a"]


def test_neither_is_there_after_a_rollback(hf: Holdfast, db: Any, order: Order, orders: Orders) -> None:
    order(db, "a")
    run = hf.enqueue(ship, "a", id="a", within=db)
    db.rollback()
    hf.work(until_idle=True)
    assert (orders(), len(hf.runs()), begun) == ([], 0, {})
    with pytest.raises(RunNotFound, match=r"was rolled back"):
        run.info()
    assert hf.enqueue(ship, "other", id="a").status == "ready"  # nothing of it stays


def test_a_savepoint_that_is_rolled_back_takes_the_run_with_it(
    hf: Holdfast, db: Any, order: Order, orders: Orders
) -> None:
    order(db, "a")
    hf.enqueue(ship, "a", id="a", within=db)
    with suppress(ZeroDivisionError), db.transaction():
        order(db, "b")
        hf.enqueue(ship, "b", id="b", within=db)
        raise ZeroDivisionError
    db.commit()
    assert (orders(), [one.id for one in hf.runs()]) == (["a"], ["a"])


def test_a_connection_that_is_killed_before_the_commit(
    hf: Holdfast, db: Any, sql: Callable[..., list[Any]], order: Order, orders: Orders
) -> None:
    order(db, "a")
    hf.enqueue(ship, "a", id="a", within=db)
    sql("SELECT pg_terminate_backend(%s, 10000)", db.info.backend_pid)
    with pytest.raises(psycopg.OperationalError):
        db.commit()
    assert (orders(), len(hf.runs())) == ([], 0)
    with pytest.raises(UsageError, match=r"closed or lost"):
        hf.enqueue(ship, "a", id="a", within=db)


@pytest.mark.parametrize("committed", [True, False])
def test_of_two_with_one_id_the_second_waits_for_the_first(
    hf: Holdfast, connect: Callable[..., Any], committed: bool
) -> None:
    first, second = connect(), connect()
    mine = hf.enqueue(ship, "a", id="a", within=first)
    found: list[Any] = []
    other = threading.Thread(target=lambda: found.append(hf.enqueue(ship, "a", id="a", within=second)))
    other.start()
    until = time.monotonic() + PATIENCE
    waits = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
    with connect(autocommit=True) as watch:
        while watch.execute(waits, (second.info.backend_pid,)).fetchone() != ("Lock",):
            assert time.monotonic() < until
            time.sleep(0.01)
    first.commit() if committed else first.rollback()
    other.join(PATIENCE)
    second.commit()
    assert (found[0].uid == mine.uid) is committed
    assert [one.uid for one in hf.runs()] == [found[0].uid]


def test_a_worker_begins_it_after_the_commit_and_not_before(postgres_url: str, db: Any, order: Order) -> None:
    """The worker is told at the commit: by itself it would look only much later."""
    with holdfast.open(postgres_url) as hf, holdfast.open(postgres_url) as elsewhere:
        crew = threading.Thread(target=lambda: asyncio.run(_work(elsewhere)))
        crew.start()
        try:
            order(db, "later")
            hf.enqueue(ship, "later", id="later", within=db)
            for n in range(3):  # the worker is at work, and takes what is committed
                hf.enqueue(ship, f"sooner-{n}")
                assert begun.setdefault(f"sooner-{n}", threading.Event()).wait(PATIENCE)
            assert "later" not in begun
            db.commit()
            assert begun.setdefault("later", threading.Event()).wait(10.0)
        finally:
            for one in list(elsewhere.client.engine.crews):
                one.stop()
            crew.join(PATIENCE)


async def _work(hf: Holdfast) -> None:
    async with hf as elsewhere:
        await elsewhere.work()


def test_the_handles_own_worker_is_told_as_well(hf: Holdfast, db: Any) -> None:
    async def main() -> None:
        async with hf as elsewhere:
            work = asyncio.create_task(elsewhere.work())
            first = await asyncio.to_thread(hf.enqueue, ship, "first")
            while await asyncio.to_thread(lambda: first.status) != "completed":
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # it has looked again, found nothing, and listens
            await asyncio.to_thread(hf.enqueue, ship, "a", within=db)
            db.commit()
            async with asyncio.timeout(10.0):
                while "a" not in begun:
                    await asyncio.sleep(0.01)
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    asyncio.run(main())


def test_what_enqueue_takes_is_taken(hf: Holdfast, db: Any) -> None:
    run = hf.enqueue(ship, "a", queue="q", priority=7, key="ann", delay=3600, deadline=9.0, within=db)
    db.commit()
    info = run.info()
    assert (info.queue, info.priority, info.key, info.status) == ("q", 7, "ann", "waiting")
    assert info.wake_at is not None


def test_what_is_to_be_done_once(hf: Holdfast, connect: Callable[..., Any]) -> None:
    db = connect(row_factory=dict_row, cursor_factory=psycopg.ClientCursor)
    first = hf.enqueue(ship, "a", dedup="invoice", within=db)
    again = hf.enqueue(ship, "b", dedup="invoice", within=db)  # in the same transaction
    db.commit()
    assert (first.id, again.uid) == ("within-ship(invoice)#1", first.uid)
    assert hf.enqueue(ship, "c", dedup="invoice", within=db).uid == first.uid
    assert hf.enqueue(ship, "d", dedup="invoice").uid == first.uid
    assert hf.enqueue(ship, "e", dedup="invoice", ttl=0.000001, within=db).id == "within-ship(invoice)#2"


def test_what_the_users_connection_makes_of_values_is_its_own_matter(hf: Holdfast, db: Any) -> None:
    class Shouting(psycopg.adapt.Loader):
        def load(self, data: Any) -> str:
            return bytes(data).decode().upper()

    for kind in ("text", "int8", "bytea"):
        db.adapters.register_loader(kind, Shouting)
    assert hf.enqueue(ship, "a", id="a", within=db).id == hf.enqueue(ship, "a", id="a", within=db).id == "a"
    db.commit()
    assert hf.enqueue(ship, "a", id="a", within=db).status == "ready"
    assert db.execute("SELECT 'a'::text").fetchone()[0] == "A"


def test_the_same_id_for_something_else_is_refused(opened: Callable[..., Holdfast], db: Any) -> None:
    hf = opened(keys=Keyring({"k": bytes(32)}, current="k"))
    run = hf.enqueue(ship, "a", id="a", within=db)
    assert hf.enqueue(ship, "a", id="a", within=db).uid == run.uid
    with pytest.raises(DefinitionChanged, match=r"other arguments"):
        hf.enqueue(ship, "b", id="a", within=db)
    db.commit()  # a refusal does not end the transaction
    with pytest.raises(DefinitionChanged, match=r"other arguments"):
        opened(keys=Keyring({"k": bytes(32)}, current="k")).enqueue(ship, "b", id="a", within=db)
    hf.work(until_idle=True)
    assert run.result() == "a is shipped"


async def _in_async_code(hf: Holdfast, plain_url: str) -> None:
    async with hf as elsewhere, await psycopg.AsyncConnection.connect(plain_url, autocommit=True) as db:
        async with db.transaction():
            run = await elsewhere.enqueue(ship, "a", id="a", within=db)
            assert (await elsewhere.enqueue(ship, "a", dedup="once", within=db)).id == "within-ship(once)#1"
            with pytest.raises(RunNotFound, match=r"not committed yet"):
                await run.info()
        assert (await run.info()).status == "ready"
        with pytest.raises(UsageError, match=r"within= is in no transaction"):
            await elsewhere.enqueue(ship, "a", within=db)
        with psycopg.connect(plain_url) as plain, pytest.raises(UsageError, match=r"give a psycopg.AsyncConnection"):
            await elsewhere.enqueue(ship, "a", within=plain)
        plain.close()


def test_async(hf: Holdfast, plain_url: str) -> None:
    asyncio.run(_in_async_code(hf, plain_url))


def test_an_async_connection_needs_async_code(hf: Holdfast, plain_url: str) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(plain_url) as db:
            with pytest.raises(UsageError, match=r"open the store with `async with`"):
                hf.enqueue(ship, "a", within=db)

    asyncio.run(main())


def test_a_session_of_sqlalchemy(hf: Holdfast, plain_url: str, orders: Orders, schema: str) -> None:
    engine = sqlalchemy.create_engine(plain_url.replace("postgresql:", "postgresql+psycopg:", 1))
    from sqlalchemy.orm import Session

    insert = sqlalchemy.text(f"INSERT INTO {schema}.orders VALUES (:name)")
    for name, commits in (("a", True), ("b", False)):
        with Session(engine) as session:
            session.execute(insert, {"name": name})
            driver = session.connection().connection.driver_connection
            hf.enqueue(ship, name, id=name, within=driver)
            with pytest.raises(UsageError, match=r"driver_connection"):
                hf.enqueue(ship, name, id=name, within=session)  # type: ignore[arg-type]
            session.commit() if commits else session.rollback()
    engine.dispose()
    assert (orders(), [one.id for one in hf.runs()]) == (["a"], ["a"])


def test_wrong_use(hf: Holdfast, connect: Callable[..., Any]) -> None:
    alone = connect(autocommit=True)
    with pytest.raises(UsageError, match=r"autocommit mode.*with connection.transaction"):
        hf.enqueue(ship, "a", within=alone)
    with alone.transaction():
        assert hf.enqueue(ship, "a", within=alone).id
    failed = connect()
    with pytest.raises(psycopg.errors.DivisionByZero):
        failed.execute("SELECT 1 / 0")
    with pytest.raises(UsageError, match=r"has failed.*roll it back"):
        hf.enqueue(ship, "a", within=failed)
    with pytest.raises(UsageError, match=r"within='x': takes a psycopg.Connection"):
        hf.enqueue(ship, "a", within="x")  # type: ignore[arg-type]
    with holdfast.open("memory://") as memory, pytest.raises(UsageError, match=r"within= needs a store with SQL"):
        memory.enqueue(ship, "a", within=connect())


def test_another_database_is_refused(
    hf: Holdfast, postgres_schemas: Schemas, plain_url: str, sql: Callable[..., list[Any]]
) -> None:
    name = f"other_{time.time_ns()}"
    sql(f"CREATE DATABASE {name}")
    try:
        head, _, _ = plain_url.rpartition("/")
        with psycopg.connect(f"{head}/{name}") as other, pytest.raises(UsageError, match=rf"the database '{name}' of"):
            hf.enqueue(ship, "a", within=other)
        other.close()
    finally:
        sql(f"DROP DATABASE {name}")


def test_a_user_who_may_not(hf: Holdfast, db: Any) -> None:
    db.execute("CREATE ROLE within_nobody")
    db.execute("SET LOCAL ROLE within_nobody")
    with pytest.raises(StoreReadOnly, match=r"grant the user .* the rights"):
        hf.enqueue(ship, "a", within=db)
    db.rollback()
