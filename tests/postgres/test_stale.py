"""A session that keeps locks and stands still is ended; what it may have done is found out, and nobody is kept waiting.

With real processes that are stopped, and with partitions: tests/postgres/faults/test_frozen.py.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from children import wait_until
from pgproxy import Proxy
from psycopg.conninfo import conninfo_to_dict

from holdfast.errors import StoreUnreachable
from holdfast.kernel.model import Append, Kind, Limits, Order, Post, RunRecord, Status
from holdfast.kernel.rules import ANY
from holdfast.stores.postgres import connections
from holdfast.stores.postgres import store as postgres
from holdfast.stores.postgres.connections import Connection, begin, execute
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import write_one
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, item, make, put

Sql = Callable[..., list[tuple[object, ...]]]

NO_IDLE_LIMIT = "options=-c%20idle_in_transaction_session_timeout%3D0%20-c%20lock_timeout%3D100ms"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "STILL", 0.3)


@pytest.fixture
def other(postgres_url: str, clock: ManualClock) -> Iterator[PostgresStore]:
    """The store, in another process's eyes. The server does not end its sessions by itself."""
    other = PostgresStore(f"{postgres_url}&{NO_IDLE_LIMIT}", clock=clock)
    other.beat("west", LEASE)
    yield other
    other.close()


@pytest.fixture
def frozen(other: PostgresStore) -> Iterator[Connection]:
    """A connection of a process that is about to stand still."""
    conn = other._link.connect()
    yield conn
    conn.close()


def lock(store: PostgresStore, conn: Connection, uid: str, *, answered: bool) -> None:
    """Lock a run and stand still: after the server's answer, or in the middle of what belongs together."""
    statement = store._q["lock"], ([uid],)
    if answered:
        begin(conn, statement)
    else:  # its state is not idle, since no Sync was sent
        conn.pgconn.enter_pipeline_mode()
        conn.pgconn.send_query_params(b"BEGIN", None)
        query = store._q["lock"].replace("%s", "$1").encode()
        conn.pgconn.send_query_params(query, [b"{%s}" % uid.encode()])
        conn.pgconn.send_flush_request()
        conn.pgconn.flush()


def is_locked(sql: Sql, uid: str) -> bool:
    return not sql("SELECT 1 FROM {schema}.run WHERE uid = %s FOR UPDATE SKIP LOCKED", uid)


def test_the_server_ends_a_session_that_idles_in_a_transaction(
    postgres_url: str, clock: ManualClock, author: Author, sql: Sql
) -> None:
    """By itself: what is sent in one go ends with Sync, and nothing is sent behind it that would stop its watch."""
    store = PostgresStore(f"{postgres_url}&options=-c%20idle_in_transaction_session_timeout%3D200ms", clock=clock)
    run = make(store, author.create("run"))
    with store._link.connect() as conn:
        lock(store, conn, run.uid, answered=True)
        pid = conn.info.backend_pid
        wait_until(lambda: not sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid), timeout=20)
        conn.close()
    assert store.claim(run.uid, "nobody's").epoch == 1
    store.close()


@pytest.mark.parametrize("answered", [True, False], ids=["between two answers", "before an answer"])
def test_who_waits_for_a_lock_ends_the_session_that_stands_still(
    store: PostgresStore, other: PostgresStore, frozen: Connection, author: Author, sql: Sql, answered: bool
) -> None:
    run = make(store, author.create("run"))
    lock(other, frozen, run.uid, answered=answered)
    wait_until(lambda: is_locked(sql, run.uid))
    assert other.claim(run.uid, "west").epoch == 1
    assert not sql("SELECT 1 FROM pg_stat_activity WHERE pid = %s", frozen.info.backend_pid)


@pytest.mark.parametrize("answered", [True, False], ids=["between two answers", "before an answer"])
def test_a_heartbeat_ends_it_too_and_everybody_is_told_to_look(
    store: PostgresStore, other: PostgresStore, frozen: Connection, author: Author, sql: Sql, answered: bool
) -> None:
    """Who takes passes over what is locked, so it waits for nothing."""
    run = make(store, author.create("run", queue="q", workflow="w"))
    order = Order(worker="east", queues={"q": None}, workflows=frozenset({"w"}), limit=1)
    lock(other, frozen, run.uid, answered=answered)
    wait_until(lambda: is_locked(sql, run.uid))
    assert store.take(order) == []
    before, heard = store.version(), threading.Event()
    store.listen(lambda uid: heard.set())
    wait_until(lambda: store.hears)
    heard.clear()
    wait_until(lambda: store.beat("east", LEASE) or not is_locked(sql, run.uid), pause=0.1)
    assert store.version() != before
    assert heard.wait(20)
    assert [one.uid for one in store.take(order)] == [run.uid]


def test_a_step_of_a_user_may_stand_still_in_its_transaction(
    store: PostgresStore, other: PostgresStore, author: Author, held: RunRecord, sql: Sql
) -> None:
    """It keeps no lock of Holdfast's until it is about to be committed."""
    sql("CREATE TABLE {schema}.paid (n integer)")
    schema = store._link.settings.schema

    def act(db: Any) -> Append:
        db.execute(f"INSERT INTO {schema}.paid VALUES (1)")
        db.execute(f"SELECT count(*) FROM {schema}.run").fetchall()
        time.sleep(3 * postgres.STILL)
        other.beat("west", LEASE)
        return author.append(held, Kind.DONE)

    try:
        assert store.transact(act) is None
        assert sql("SELECT n FROM {schema}.paid") == [(1,)]
    finally:
        sql("DROP TABLE {schema}.paid")


def test_a_transaction_of_a_users_own_is_never_ended(
    store: PostgresStore, postgres_url: str, author: Author, sql: Sql
) -> None:
    """Whatever it locks: whoever enqueues in it keeps the id until the commit."""
    run = make(store, author.create("run"))
    with psycopg.connect(postgres_url.partition("?")[0], application_name="shop of holdfast") as conn:
        conn.execute(store._q["lock"], ([run.uid],))  # type: ignore[call-overload]
        time.sleep(2 * postgres.STILL)
        store.beat("east", LEASE)
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_a_queue_that_somebody_has_locked_is_passed_over(
    store: PostgresStore, other: PostgresStore, frozen: Connection, author: Author
) -> None:
    for queue in ("a", "b"):
        make(store, author.create(f"of {queue}", queue=queue, workflow="w"))
    limits = Limits(total=1)
    order = Order(worker="east", queues={"a": limits, "b": limits}, workflows=frozenset({"w"}), limit=1)
    begin(frozen, (store._q["make_queues"], (["a", "b"],)))
    frozen.commit()
    begin(frozen, (store._q["lock_queues"], (["a"],)))
    assert [one.id for one in store.take(order)] == ["of b"]
    assert execute(frozen, "SELECT 1").fetchall() == [(1,)]  # nobody had to wait for it


def test_a_queue_is_waited_for_if_there_is_nothing_else(
    store: PostgresStore, other: PostgresStore, frozen: Connection, author: Author
) -> None:
    make(store, author.create("run", queue="a", workflow="w"))
    order = Order(worker="west", queues={"a": Limits(total=1), "b": None}, workflows=frozenset({"w"}), limit=1)
    begin(frozen, (store._q["make_queues"], (["a"],)), (store._q["lock_queues"], (["a"],)))
    assert [one.id for one in other.take(order)] == ["run"]


# --- claims of which no answer came


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    where = conninfo_to_dict(postgres_url.partition("?")[0])
    proxy = Proxy(str(where["host"]), int(str(where["port"])))
    yield proxy
    proxy.close()


@pytest.fixture
def far(postgres_url: str, proxy: Proxy, clock: ManualClock) -> Iterator[PostgresStore]:
    """The store, seen through the proxy, with a worker ``far``."""
    where = conninfo_to_dict(postgres_url.partition("?")[0])
    far = PostgresStore(postgres_url.replace(f":{where['port']}/", f":{proxy.port}/"), clock=clock)
    far.beat("far", LEASE)
    yield far
    far.close()


def a_claim(store: PostgresStore, uid: str) -> None:
    store.claim(uid, "far")


def a_take(store: PostgresStore, uid: str) -> None:
    store.take(Order(worker="far", queues={"q": None}, workflows=frozenset({"w"}), limit=1))


@pytest.mark.parametrize("act", [a_claim, a_take])
def test_a_run_that_was_claimed_by_a_call_that_failed_is_given_up(
    far: PostgresStore,
    store: PostgresStore,
    proxy: Proxy,
    author: Author,
    monkeypatch: pytest.MonkeyPatch,
    act: Callable[[PostgresStore, str], None],
) -> None:
    """The server is away for longer than anybody waits, right after the commit: who lives on does not know of it."""
    run = make(store, author.create("run", queue="q", workflow="w"))
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    proxy.lose(b"COMMIT\0", "after")
    proxy.refuses = True
    with pytest.raises(StoreUnreachable):
        act(far, run.uid)
    held = store.get(uid=run.uid)
    assert held is not None
    assert (held.worker, held.status) == ("far", Status.RUNNING)
    proxy.refuses = False
    far.beat("far", LEASE)
    free = store.get(uid=run.uid)
    assert free is not None
    assert (free.worker, free.status, free.epoch) == (None, Status.READY, 1)


def test_a_run_that_had_ended_is_given_up_with_what_came_meanwhile(
    far: PostgresStore, store: PostgresStore, proxy: Proxy, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no end again, as long as something waits in its inbox: whoever claims it takes that in."""
    run = make(store, author.create("run", status=Status.COMPLETED))
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    proxy.lose(b"COMMIT\0", "after")
    proxy.refuses = True
    with pytest.raises(StoreUnreachable):
        far.claim(run.uid, "far", ANY)
    assert write_one(store, Post(run.uid, item("answer:1")))
    proxy.refuses = False
    far.beat("far", LEASE)
    free = store.get(uid=run.uid)
    assert free is not None
    assert (free.worker, free.status, free.epoch) == (None, Status.READY, 1)


def test_a_claim_that_another_call_made_since_is_kept(
    far: PostgresStore, store: PostgresStore, proxy: Proxy, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another thread, say, while the call that failed was still waiting: it has the same worker and epoch."""
    run = make(store, author.create("run"))
    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    real, made = far._link.call, list[RunRecord]()

    def call(act: Any, **how: Any) -> Any:
        monkeypatch.setattr(far._link, "call", real)
        try:
            return real(act, **how)
        except StoreUnreachable:
            proxy.refuses = False
            made.append(far.claim(run.uid, "far"))
            raise

    monkeypatch.setattr(far._link, "call", call)
    proxy.lose(b"COMMIT\0", "before")
    proxy.refuses = True
    with pytest.raises(StoreUnreachable):
        far.claim(run.uid, "far")
    far.beat("far", LEASE)
    put(far, author.append(made[0], Kind.DONE))


def test_what_is_taken_by_a_commit_that_comes_late_is_known(
    far: PostgresStore, store: PostgresStore, proxy: Proxy, author: Author, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection was lost, and the server had not got the COMMIT yet: it is waited for, since it has the locks."""
    monkeypatch.setattr(postgres, "STILL", 60.0)
    made = [make(store, author.create(f"r{n}", queue="q", workflow="w")) for n in range(3)]
    order = Order(worker="far", queues={"q": None}, workflows=frozenset({"w"}), limit=2)
    taken: list[RunRecord] = []
    proxy.lose(b"COMMIT\0", "late")
    thread = threading.Thread(target=lambda: taken.extend(far.take(order)))
    thread.start()
    assert proxy.struck.wait(20)
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%{schema}%%'"
    wait_until(lambda: sql(waiting) or not thread.is_alive(), timeout=20)
    proxy.deliver()
    thread.join()
    assert [one.uid for one in taken] == [one.uid for one in made[:2]]
    assert [one.id for one in far.take(order)] == ["r2"]


def test_a_transaction_has_a_limit_of_its_own_where_the_server_knows_one(store: PostgresStore, sql: Sql) -> None:
    """From PostgreSQL 17 on; on older ones asking for it must not fail."""
    [(version,)] = sql("SELECT current_setting('server_version_num')::integer")
    knows = isinstance(version, int) and version >= 170000
    asked = "SELECT current_setting('transaction_timeout', true)"
    assert store._link.ask(asked) == [("90s" if knows else None,)]

    def act(conn: Connection, again: bool) -> None:
        begin(conn)
        execute(conn, connections.UNLIMITED)
        assert execute(conn, asked).fetchall() == [("0" if knows else None,)]
        execute(conn, connections.LIMITED)
        assert execute(conn, asked).fetchall() == [("90s" if knows else None,)]

    store._link.call(act)
