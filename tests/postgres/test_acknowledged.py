"""What a store has acknowledged is committed: a commit that fails after its statement has succeeded is no success."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psycopg
import pytest
from pgserver import Schemas

from holdfast.errors import StoreError
from holdfast.kernel.model import Change, Kind, RunRecord, Status
from holdfast.stores.postgres.connections import begin, commit, execute, told
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, make

Sql = Callable[..., list[tuple[object, ...]]]

# A deferred trigger acts when the transaction is committed, after the tag of the statement was sent.
FAILING = """
CREATE SEQUENCE {schema}.commits;
CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('{schema}.commits') <= :times THEN RAISE EXCEPTION 'no commit' USING ERRCODE = ':code'; END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON {schema}.entry DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION {schema}.fail();
"""
REMOVED = """
DROP TRIGGER fail ON {schema}.entry; DROP FUNCTION {schema}.fail(); DROP SEQUENCE {schema}.commits
"""


@pytest.fixture
def commits_fail(sql: Sql, request: pytest.FixtureRequest) -> Callable[[int, str], None]:
    """Has so many commits of entries fail with this code."""

    def fail(times: int, code: str) -> None:
        sql(FAILING.replace(":times", str(times)).replace(":code", code))
        request.addfinalizer(lambda: sql(REMOVED))

    return fail


def test_a_run_that_was_not_committed_is_not_acknowledged(
    store: PostgresStore, author: Author, commits_fail: Callable[[int, str], None]
) -> None:
    commits_fail(10**6, "23000")
    create = author.create("run")
    with pytest.raises(StoreError, match="no commit"):
        store.apply([create])
    assert store.get("run") is None


def test_an_end_that_was_not_committed_is_not_acknowledged(
    store: PostgresStore, author: Author, held: RunRecord, commits_fail: Callable[[int, str], None]
) -> None:
    commits_fail(10**6, "23000")
    end = author.append(held, Kind.COMPLETED, change=Change(status=Status.COMPLETED, release=True))
    with pytest.raises(StoreError, match="no commit"):
        store.apply([end])
    found = store.get(uid=held.uid)
    assert found is not None
    assert (found.status, found.worker) == (Status.RUNNING, "east")


@pytest.mark.parametrize("many", [1, 3])
def test_steps_that_were_not_committed_are_not_acknowledged(
    store: PostgresStore, author: Author, held: RunRecord, commits_fail: Callable[[int, str], None], many: int
) -> None:
    others = [store.claim(make(store, author.create(f"run {n}")).uid, "east") for n in range(1, many)]
    commits_fail(10**6, "23000")
    with pytest.raises(StoreError, match="no commit"):
        store.apply([author.append(run, Kind.DONE, payload=b"step") for run in (held, *others)])
    assert [entry.kind for run in (held, *others) for entry in store.read(run.uid, 1, 9)] == []


@pytest.mark.parametrize("times", [1, 3])
def test_a_commit_that_meets_another_is_made_again(
    store: PostgresStore, author: Author, held: RunRecord, commits_fail: Callable[[int, str], None], times: int
) -> None:
    commits_fail(times, "40001")
    made = make(store, author.create("another"))
    assert store.get("another") == made
    end = author.append(held, Kind.COMPLETED, change=Change(status=Status.COMPLETED, release=True))
    assert store.apply([end]) == [None]
    found = store.get(uid=held.uid)
    assert found is not None
    assert found.status is Status.COMPLETED


def test_a_commit_is_proven_by_its_answer(store: PostgresStore, author: Author) -> None:
    run = make(store, author.create("run"))
    with store._link.connect() as conn, pytest.raises(psycopg.errors.TransactionRollback, match="with ROLLBACK"):
        begin(conn, (store._q["lock"], ([run.uid],)))
        with suppress(psycopg.Error):
            conn.execute("SELECT 1 / 0")
        commit(conn, [])
    with store._link.connect() as conn:
        with pytest.raises(psycopg.OperationalError, match="had ended before"):
            commit(conn, [(store._q["pulse"], ())])
        assert store._link.is_lost(conn, psycopg.OperationalError())  # what it did is not known, so it is looked for


def test_what_cannot_be_told_to_others_is_committed_all_the_same(store: PostgresStore) -> None:
    with store._link.connect() as conn:
        assert told(conn, ("SELECT 7", ()), ("SELECT 1 / 0", ())) == [(7,)]


@pytest.mark.parametrize("early", [False, True])
def test_a_transaction_that_fails_at_its_end_is_an_error_of_the_connection(
    store: PostgresStore, author: Author, held: RunRecord, commits_fail: Callable[[int, str], None], early: bool
) -> None:
    """Where several statements are sent at once without BEGIN, psycopg knows no such answer."""
    commits_fail(10**6, "40001")
    [entry] = author.append(held, Kind.DONE).entries
    line = (entry.seq, entry.at, entry.state, entry.kind, entry.hash, entry.payload)
    values = (held.uid, held.epoch, "east", *line, entry.seq - 1, entry.prev)
    conn = store._link.connect()
    with pytest.raises(psycopg.OperationalError), conn.pipeline() as pipeline:
        execute(conn, store._q["append_one"], values)
        if early:  # the answer to Sync is there before psycopg has sent all
            pipeline._enqueue_sync()
            pipeline.command_queue.append(partial(time.sleep, 0.3))
            conn.wait(pipeline._communicate_gen())
    assert store._link.is_lost(conn, psycopg.OperationalError())
    conn.close()
    assert store.read(held.uid, 1, 9) == []


def test_the_isolation_level_of_the_server_does_not_matter(
    postgres_schemas: Schemas, postgres_url: str, clock: ManualClock, author: Author
) -> None:
    database = postgres_schemas.execute("SELECT current_database()")[0][0]
    setting = f'ALTER DATABASE "{database}" SET default_transaction_isolation'
    postgres_schemas.execute(f"{setting} = 'serializable'")
    try:
        store = PostgresStore(postgres_url, clock=clock)
        assert store._link.ask("SHOW transaction_isolation") == [("read committed",)]
        store.beat("west", LEASE)
        made = make(store, author.create("run"))
        assert store.get("run") == made
        store.close()
    finally:
        postgres_schemas.execute(f"{setting} = DEFAULT")
