"""What is particular to PostgreSQL: its clock, what it cannot keep, how a step is written, and its own limits."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

import holdfast
from holdfast.errors import Claimed, InboxNotEmpty, LeaseLost, StoreError, StoreUnusable
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.model import Append, Change, Filter, Kind, Post, RunRecord, Status
from holdfast.kernel.rules import appended
from holdfast.stores.postgres import connections
from holdfast.stores.postgres.append import Statement
from holdfast.stores.postgres.connections import Connection, begin
from holdfast.stores.postgres.guarded_connection import LentConnection
from holdfast.stores.postgres.rows import given, kept
from holdfast.stores.postgres.store import PostgresStore, ServerClock
from holdfast.stores.postgres.url import settings_of
from holdfast.stores.protocol import write_one
from holdfast.stores.sql_rows import sealed
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, after, item, make, put

Sql = Callable[..., list[Any]]
MINUTES = 300_000_000


# --- the end of a run


def test_an_end_sees_the_item_of_a_post_that_it_had_to_wait_for(
    store: PostgresStore, author: Author, postgres_url: str, sql: Sql
) -> None:
    held = store.claim(make(store, author.create("run")).uid, "east")
    end = author.append(held, Kind.DONE, change=Change(status=Status.COMPLETED, release=True))
    outcomes: list[Any] = []
    schema = settings_of(postgres_url).schema
    with psycopg.connect(postgres_url.partition("?")[0]) as poster:
        [(n,)] = poster.execute(f"SELECT n FROM {schema}.run WHERE uid = %s FOR NO KEY UPDATE", (held.uid,)).fetchall()
        ending = threading.Thread(target=lambda: outcomes.extend(store.apply([end])))
        ending.start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
        while not sql(waits, poster.info.backend_pid):
            time.sleep(0.01)
        kept_item = (n, b"digest", "k", "answer", 7, sealed(item("k")))
        poster.execute(
            f"INSERT INTO {schema}.inbox (run, digest, key, kind, at, payload, wakes, taken) "
            "VALUES (%s, %s, %s, %s, %s, %s, true, false)",
            kept_item,
        )
        poster.commit()
        ending.join()
    assert [type(one) for one in outcomes] == [InboxNotEmpty]
    record = store.get(uid=held.uid)
    assert record is not None
    assert (record.status, record.seq) == (Status.RUNNING, held.seq)


# --- the clock


@pytest.fixture
def skewed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets this machine's clock wrong."""
    real = time.time_ns

    def skew(micros: int) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: real() + micros * 1000)

    return skew


@pytest.mark.parametrize("by", [MINUTES, -MINUTES])
def test_leases_go_by_the_servers_clock(
    postgres_url: str, author: Author, skewed: Callable[[int], None], by: int
) -> None:
    right = PostgresStore(postgres_url)
    right.beat("right", LEASE)
    held = right.claim(make(right, author.create("run")).uid, "right")
    now = SystemClock().now()
    skewed(by)
    wrong = PostgresStore(postgres_url)
    assert isinstance(wrong.clock, ServerClock)
    assert abs(wrong.clock.now() - now) < 60_000_000 < abs(by)
    wrong.beat("wrong", LEASE)
    with pytest.raises(Claimed):
        wrong.claim(held.uid, "wrong")
    assert wrong.find(Filter(orphaned=True)) == []
    mine = wrong.claim(make(wrong, author.create("other")).uid, "wrong")
    skewed(0)
    with pytest.raises(Claimed):
        right.claim(mine.uid, "right")
    for store in (right, wrong):
        store.close()


# --- texts


@pytest.mark.parametrize("text", ["", "plain", "\0", "\x1b", "\x1b0", "\x1b[", "\0\x1b\0", "a\0b\x1b[0", "\x1b\x1b00"])
def test_any_text_comes_back(text: str) -> None:
    assert "\0" not in kept(text)
    assert given(kept(text)) == text


def test_beginnings_are_kept() -> None:
    texts = ["", "\0", "\x1b", "0", "[", "\0" + "0", "\x1b0", "\x1b[", "\x1b\0"]
    for one in texts:
        for other in texts:
            assert kept(one + other).startswith(kept(one))
            assert kept(other).startswith(kept(one)) == other.startswith(one)


def test_a_prefix_that_no_id_can_have_finds_nothing(store: PostgresStore, held: RunRecord) -> None:
    assert store.find(Filter(prefix="\ud800")) == []
    assert len(store.find(Filter(prefix="r"))) == 1


def test_what_postgresql_cannot_index_is_refused_by_itself(store: PostgresStore, author: Author) -> None:
    name = "".join(chr(0x4E00 + (n * 7919) % 20000) for n in range(3000))
    outcomes = store.apply([author.create("good"), author.create("bad", workflow=name), author.create("too")])
    assert isinstance(outcomes[0], RunRecord)
    assert isinstance(outcomes[1], StoreError)
    assert isinstance(outcomes[2], RunRecord)
    assert sorted(record.id for record in store.find(Filter())) == ["good", "too"]


# --- steps


def test_a_plain_step_is_one_statement_and_leaves_the_record(
    store: PostgresStore, author: Author, held: RunRecord, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    execute, call = connections.execute, Statement.__call__

    def noted(conn: Any, statement: str, values: Any = ()) -> Any:
        asked.append(statement)
        return execute(conn, statement, values)

    def called(statement: Statement, conn: Any, values: Any) -> Any:
        asked.append(statement)
        return call(statement, conn, values)

    for module in ("store", "connections"):
        monkeypatch.setattr(f"holdfast.stores.postgres.{module}.execute", noted)
    monkeypatch.setattr(Statement, "__call__", called)
    before = sql("SELECT xmin, ctid FROM {schema}.run")
    for n in (1, 1, 3):
        write = author.append(held, *([Kind.DONE] * n))
        put(store, write)
        held = after(held, write)
    assert len(asked) == 3
    assert sql("SELECT xmin, ctid FROM {schema}.run") == before


@pytest.fixture
def aside(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection beside the store, in a transaction; not one of Holdfast's, which would be ended after 5 s."""
    with psycopg.connect(settings_of(postgres_url).conninfo, application_name="beside") as conn:
        yield conn
        conn.rollback()


def written(store: PostgresStore, conn: psycopg.Connection[Any], write: Append) -> None:
    """Write a step as the store does, without a commit."""
    [entry] = write.entries
    fence = (write.uid, write.epoch, write.worker)
    line = (entry.seq, entry.at, entry.state, entry.kind, entry.hash, entry.payload)
    assert conn.execute(store._q["append_one"], (*fence, *line, entry.seq - 1, entry.prev)).fetchone()


def test_a_claim_waits_for_the_step_that_is_being_written(
    postgres_url: str,
    store: PostgresStore,
    author: Author,
    held: RunRecord,
    clock: ManualClock,
    aside: psycopg.Connection[Any],
) -> None:
    """Else a step of the old holder could get in behind the claim. Here it waits in vain, and gives up."""
    clock.advance(LEASE * 2)
    write = author.append(held, Kind.DONE)
    written(store, aside, write)
    other = PostgresStore(f"{postgres_url}&options=-c%20lock_timeout%3D50ms", clock=clock)
    other.beat("west", LEASE)
    with pytest.raises(holdfast.errors.StoreBusy, match="lock timeout"):
        other.claim(held.uid, "west")
    aside.commit()
    claimed = other.claim(held.uid, "west")
    assert (claimed.epoch, claimed.seq) == (held.epoch + 1, write.entries[0].seq)
    other.close()


def test_a_commit_that_was_under_way_when_the_version_was_asked_for_changes_it(
    store: PostgresStore, author: Author, held: RunRecord, aside: psycopg.Connection[Any]
) -> None:
    """It was counted before, and could not be seen yet."""
    written(store, aside, author.append(held, Kind.DONE))
    before = store.version()
    assert store.version() == before
    aside.commit()
    assert store.version() != before


def test_steps_of_a_batch_are_checked_each(store: PostgresStore, author: Author, held: RunRecord) -> None:
    others = [store.claim(make(store, author.create(f"other {n}")).uid, "east") for n in range(4)]
    wrong = [
        replace(others[0], hash=b"x" * 32),
        replace(others[1], epoch=2),
        replace(others[2], worker="west"),
        replace(others[3], seq=5),
    ]
    outcomes = store.apply([author.append(record, Kind.DONE) for record in (*wrong, held)])
    assert [type(outcome) for outcome in outcomes] == [LeaseLost] * 4 + [type(None)]
    assert [len(store.read(record.uid, 0, 9)) for record in (*others, held)] == [1, 1, 1, 1, 2]


def test_a_run_is_made_and_ends_without_looking_first(
    store: PostgresStore, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But whoever is refused is told why, for which one has to look."""
    looked: list[int] = []
    carefully = store._carefully
    monkeypatch.setattr(store, "_carefully", lambda *given: (looked.append(1), carefully(*given))[1])
    store.beat("east", LEASE)
    write = author.create("quick")
    held = store.claim(make(store, write).uid, "east")
    change = Change(status=Status.FAILED, release=True, reason="it broke")
    end = author.append(held, Kind.DONE, Kind.FAILED, change=change)
    put(store, end)
    assert not looked
    record = store.get(uid=held.uid)
    assert record == appended(held, end, mail=False)
    assert make(store, author.create("quick")) == record
    [refused] = store.apply([author.append(held, Kind.DONE, Kind.FAILED, change=change)])
    assert isinstance(refused, LeaseLost)
    assert len(looked) == 2


def test_what_arrived_is_seen_by_a_run_that_goes_to_wait(store: PostgresStore, author: Author, held: RunRecord) -> None:
    write_one(store, Post(held.uid, item("k")))
    put(store, author.append(held, Kind.DONE, change=Change(status=Status.WAITING, release=True)))
    record = store.get(uid=held.uid)
    assert record is not None
    assert record.status is Status.READY


# --- connections


def test_a_connection_that_is_stuck_in_a_pipeline_is_lost(postgres_url: str) -> None:
    """As one whose session is ended in the midst of it: libpq cannot leave the pipeline, and does not say why."""
    store, tried = PostgresStore(f"{postgres_url}&pool=1"), list[tuple[Connection, bool]]()

    def act(conn: Connection, again: bool) -> Any:
        tried.append((conn, again))
        if not again:
            conn.pgconn.enter_pipeline_mode()
            conn.pgconn.send_query_params(b"SELECT pg_sleep(60)", None)
            conn.pgconn.exit_pipeline_mode()
        return conn.execute("SELECT 1").fetchone()

    assert store._link.call(act) == (1,)
    [(stuck, _), (other, again)] = tried
    assert stuck.closed
    assert again
    assert other is not stuck
    store.close()


def test_a_connection_that_is_stuck_is_not_given_to_the_next(postgres_url: str) -> None:
    store = PostgresStore(f"{postgres_url}&pool=1")
    with store._link.once(lambda conn: None) as (conn, _):
        conn.pgconn.enter_pipeline_mode()
        conn.pgconn.send_query_params(b"SELECT 1", None)
    assert conn.closed
    assert store.get("run") is None
    store.close()


# --- poolers


def test_where_a_pooler_answers_nothing_is_prepared_and_nothing_listens(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known by another session answering than the one that was connected to."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)
    store = PostgresStore(f"{postgres_url}&pool=1")
    for _ in range(10):
        assert store.get("run") is None
    with store._link.once(lambda conn: None) as (conn, _):
        assert conn.pooled
        assert conn.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    store.listen(lambda uid: None)
    thread = store._news._thread
    assert thread is not None
    thread.join(20)
    assert not thread.is_alive()
    assert not store._news.hears
    store.close()


def test_a_pooler_that_takes_no_options_gets_the_limits_in_each_transaction(
    postgres_url: str, author: Author, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = LentConnection.connect

    def refusing(conninfo: str, **how: Any) -> Any:
        if "idle_in_transaction" in conninfo:
            raise psycopg.OperationalError("FATAL: unsupported startup parameter: options")
        return connect(conninfo, **how)

    monkeypatch.setattr(LentConnection, "connect", refusing)
    store = PostgresStore(postgres_url)
    shown: list[Any] = []
    with store._link.once(begin) as (conn, _):
        shown.append(conn.execute("SHOW idle_in_transaction_session_timeout").fetchone())
    assert shown == [("10s",)]
    make(store, author.create("run"))
    store.close()


# --- closing


def test_a_store_that_cannot_say_goodbye_is_closed_all_the_same(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store, "_retire", lambda workers: (_ for _ in ()).throw(StoreError(store.place, "away")))
    store.close()
    assert "leases, which end by themselves" in caplog.text
    with pytest.raises(StoreUnusable):
        store.get("run")
