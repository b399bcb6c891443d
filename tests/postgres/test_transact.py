"""A step's own SQL in one transaction with its entry: both last or neither, and nothing of ours can be harmed."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import holdfast
from holdfast import Holdfast, step, workflow
from holdfast.errors import LeaseLost, RunDamaged, StoreError, StoreFull, StoreUnreachable, UsageError
from holdfast.kernel.model import Append, Change, Kind, RunRecord, Status
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import Transacting
from holdfast.testing.contract_author import ALL, Author, after, put, snapshot

Sql = Callable[..., list[Any]]
Act = Callable[[Any], Append]


@pytest.fixture(autouse=True)
def account(sql: Sql) -> Iterator[None]:
    sql("CREATE TABLE {schema}.account (name text PRIMARY KEY, cents integer NOT NULL)")
    sql("INSERT INTO {schema}.account VALUES ('a', 100)")
    yield
    sql("DROP TABLE IF EXISTS {schema}.account, {schema}.log")


@pytest.fixture
def cents(sql: Sql) -> Callable[[], int]:
    """What the account holds, as everybody else sees it."""
    return lambda: int(sql("SELECT cents FROM {schema}.account")[0][0])


@pytest.fixture
def schema(postgres_url: str) -> str:
    return postgres_url.partition("schema=")[2]


@pytest.fixture
def doing(schema: str) -> Callable[..., Act]:
    """A step that pays something in and then does these."""

    def make(write: Append, *acts: Callable[[Any, str], object]) -> Act:
        def act(db: Any) -> Append:
            db.execute(f"UPDATE {schema}.account SET cents = cents + %s", (1,))
            for each in acts:
                each(db, schema)
            return write

        return act

    return make


Doing = Callable[..., Act]

# --- both or neither


def test_the_rows_and_the_entry_are_made_together(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing
) -> None:
    assert isinstance(store, Transacting)
    write = author.append(held, Kind.DONE)
    seen: list[int] = []
    assert store.transact(doing(write, lambda db, schema: seen.append(cents()))) is None
    assert (seen, cents()) == ([100], 101)
    assert store.read(held.uid, 1, ALL) == list(write.entries)


def test_an_append_with_a_change_is_made_too(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing
) -> None:
    write = author.append(held, Kind.COMPLETED, change=Change(status=Status.COMPLETED, release=True))
    assert store.transact(doing(write)) is None
    record = store.get("run")
    assert record is not None
    assert (record.status, record.worker, cents()) == (Status.COMPLETED, None, 101)


def test_a_refused_append_takes_the_rows_back(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing
) -> None:
    before = snapshot(store, held.uid)
    stale = Append(held.uid, held.id, held.epoch - 1, "east", author.append(held, Kind.DONE).entries)
    gap = author.append(after(held, author.append(held, Kind.DONE)), Kind.DONE)
    for write in (stale, gap):
        assert isinstance(store.transact(doing(write)), LeaseLost)
    assert (cents(), snapshot(store, held.uid)) == (100, before)


def test_an_append_that_was_made_before_is_no_error_and_adds_no_rows(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing
) -> None:
    write = author.append(held, Kind.DONE)
    assert store.transact(doing(write)) is None
    assert store.transact(doing(write)) is None
    assert (cents(), len(store.read(held.uid, 0, ALL))) == (101, 2)


def test_a_damaged_run_takes_the_rows_back(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing, sql: Sql
) -> None:
    sql("UPDATE {schema}.run SET status = 'of the future'")
    write = author.append(held, Kind.COMPLETED, change=Change(status=Status.COMPLETED))
    assert isinstance(store.transact(doing(write)), RunDamaged)
    assert cents() == 100


@pytest.mark.parametrize("error", [ValueError("theirs"), psycopg.OperationalError("theirs"), KeyboardInterrupt()])
def test_what_the_function_raises_rolls_back_and_is_raised_as_it_is(
    store: PostgresStore,
    cents: Callable[[], int],
    author: Author,
    held: RunRecord,
    doing: Doing,
    error: BaseException,
) -> None:
    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        store.transact(doing(author.append(held, Kind.DONE), fail))
    assert caught.value is error
    assert cents() == 100
    assert store.transact(doing(author.append(held, Kind.DONE))) is None
    assert cents() == 101


def test_an_error_of_their_sql_is_theirs(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing
) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        store.transact(doing(author.append(held, Kind.DONE), lambda db, _: db.execute("SELECT * FROM nowhere")))
    assert cents() == 100


def test_an_error_of_their_sql_that_is_swallowed_is_told(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing
) -> None:
    def swallow(db: Any, _: str) -> None:
        with suppress(psycopg.Error):
            db.execute("SELECT * FROM nowhere")

    with pytest.raises(UsageError, match="a statement of the function failed"):
        store.transact(doing(author.append(held, Kind.DONE), swallow))
    assert cents() == 100


def test_a_savepoint_keeps_the_transaction_alive(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing
) -> None:
    def tried(db: Any, _: str) -> None:
        with suppress(psycopg.Error), db.transaction():
            db.execute("SELECT * FROM nowhere")

    assert store.transact(doing(author.append(held, Kind.DONE), tried)) is None
    assert cents() == 101


def _is_cut_off(db: Any, _: str) -> None:
    db.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def _is_cut_off_and_says_it_in_its_own_words(db: Any, _: str) -> None:
    try:
        _is_cut_off(db, "")
    except psycopg.Error as error:
        raise ValueError("no idea what this is") from error


def _finds_no_space(db: Any, _: str) -> None:
    db.execute("DO $$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$")


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (_is_cut_off, StoreUnreachable),
        (_is_cut_off_and_says_it_in_its_own_words, StoreUnreachable),
        (_finds_no_space, StoreFull),
    ],
)
def test_what_happens_to_the_server_is_no_error_of_the_function(
    store: PostgresStore,
    cents: Callable[[], int],
    author: Author,
    held: RunRecord,
    doing: Doing,
    act: Any,
    told: type[StoreError],
) -> None:
    write = author.append(held, Kind.DONE)
    with pytest.raises(told):
        store.transact(doing(write, act))
    assert cents() == 100
    assert store.transact(doing(write)) is None
    assert (cents(), len(store.read(held.uid, 1, ALL))) == (101, 1)


# --- what the function may not do

REFUSED: dict[str, Callable[[Any, str], object]] = {
    "commit": lambda db, _: db.commit(),
    "rollback": lambda db, _: db.rollback(),
    "close": lambda db, _: db.close(),
    "with": lambda db, _: db.__enter__(),
    "pipeline": lambda db, _: db.pipeline(),
    "autocommit": lambda db, _: setattr(db, "autocommit", False),
    "isolation": lambda db, _: db.set_isolation_level(None),
    "BEGIN": lambda db, _: db.execute("BEGIN"),
    "COMMIT": lambda db, _: db.execute(" /* a */ -- b\n commit"),
    "COMMIT of a cursor": lambda db, _: db.cursor().execute("COMMIT"),
    "COMMIT as bytes": lambda db, _: db.execute(b"COMMIT;"),
    "COMMIT composed": lambda db, _: db.execute(psycopg.sql.SQL("COMMIT")),
    "many times": lambda db, _: db.cursor().executemany("COMMIT", [()]),
    "END": lambda db, _: db.execute("END"),
    "ROLLBACK": lambda db, _: db.execute("ROLLBACK"),
    "PREPARE": lambda db, _: db.execute("PREPARE TRANSACTION 'x'"),
    "setting": lambda db, _: db.execute("SET search_path TO nowhere"),
    "LISTEN": lambda db, _: db.execute("LISTEN x"),
    "insert": lambda db, schema: db.execute(f"INSERT INTO {schema}.worker VALUES ('me', 1)"),
    "update": lambda db, schema: db.execute(f"UPDATE {schema}.run SET epoch = epoch + 1"),
    "delete": lambda db, schema: db.execute(f"DELETE FROM {schema}.entry"),
    "lock": lambda db, schema: db.execute(f"SELECT * FROM {schema}.run FOR UPDATE"),
    "alter": lambda db, schema: db.execute(f"ALTER TABLE {schema}.entry ADD COLUMN more text"),
    "drop": lambda db, schema: db.execute(f"DROP TABLE {schema}.inbox"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_the_functions_business_is_refused(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing, what: str
) -> None:
    before = snapshot(store, held.uid)
    with pytest.raises(UsageError, match="Holdfast"):
        store.transact(doing(author.append(held, Kind.DONE), REFUSED[what]))
    assert (cents(), snapshot(store, held.uid)) == (100, before)
    put(store, author.append(held, Kind.DONE))


def test_a_commit_behind_another_statement_is_found_out(
    store: PostgresStore, author: Author, held: RunRecord, doing: Doing
) -> None:
    for more in ("SELECT 1; COMMIT", "SELECT 1; COMMIT; BEGIN"):
        with pytest.raises(UsageError, match="ended by the function's own SQL"):
            store.transact(doing(author.append(held, Kind.DONE), lambda db, _, more=more: db.execute(more)))
    assert len(store.read(held.uid, 0, ALL)) == 1


# --- what it may do


def test_it_may_read_everything_and_make_tables_of_its_own(
    store: PostgresStore, cents: Callable[[], int], author: Author, held: RunRecord, doing: Doing
) -> None:
    read: list[object] = []

    def work(db: Any, schema: str) -> None:
        read.extend(db.execute(f"SELECT id, epoch FROM {schema}.run").fetchall())
        db.execute(f"CREATE TABLE {schema}.log (n integer)")
        db.cursor().executemany(f"INSERT INTO {schema}.log VALUES (%s)", [(1,), (2,)])
        db.execute("SAVEPOINT mine")
        db.execute(f"DELETE FROM {schema}.log")
        db.execute("ROLLBACK TO mine")
        db.execute("SET LOCAL work_mem = '8MB'")
        read.append(db.execute(f"SELECT sum(n) FROM {schema}.log").fetchone()[0])

    assert store.transact(doing(author.append(held, Kind.DONE), work)) is None
    assert (read, cents()) == ([("run", 1), 3], 101)


def test_nothing_of_it_stays_with_the_connection(
    store: PostgresStore, author: Author, held: RunRecord, doing: Doing
) -> None:
    def work(db: Any, _: str) -> None:
        db.row_factory = dict_row
        db.adapters.register_loader("int8", psycopg.types.string.TextLoader)
        assert db.execute("SELECT 7::int8 AS n").fetchone() == {"n": "7"}

    write = author.append(held, Kind.DONE)
    assert store.transact(doing(write, work)) is None
    held = after(held, write)
    assert store.get("run") == held
    put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))


# --- in a workflow


@step(transactional=True)
def pay(db: Any, schema: str) -> int:
    return int(db.execute(f"UPDATE {schema}.account SET cents = cents + 1 RETURNING cents").fetchone()[0])


@workflow
def pay_twice(schema: str) -> tuple[int, int]:
    return pay(schema), pay(schema)


@pytest.fixture
def hf(postgres_url: str) -> Iterator[Holdfast]:
    with holdfast.open(postgres_url) as hf:
        yield hf


def test_a_workflow_pays_exactly_once(hf: Holdfast, schema: str, cents: Callable[[], int]) -> None:
    run = hf.start(pay_twice, schema, id="r")
    assert run.result() == (101, 102)
    assert hf.start(pay_twice, schema, id="r").result() == (101, 102)
    assert cents() == 102
    assert [entry.kind for entry in run.history()] == ["created", "done", "done", "completed"]


cut_off: list[str] = []


@step(transactional=True)
def pay_in_spite(db: Any, schema: str) -> int:
    db.execute(f"UPDATE {schema}.account SET cents = cents + 1")
    if not cut_off:
        cut_off.append("now")
        db.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    return int(db.execute(f"SELECT cents FROM {schema}.account").fetchone()[0])


@workflow
def pay_once(schema: str) -> int:
    return pay_in_spite(schema)


def test_a_connection_that_is_lost_inside_of_a_step_does_not_fail_the_run(
    hf: Holdfast, schema: str, cents: Callable[[], int]
) -> None:
    cut_off.clear()
    run = hf.enqueue(pay_once, schema)
    hf.work(until_idle=True)
    assert (run.result(timeout=0), cents(), cut_off) == (101, 101, ["now"])
