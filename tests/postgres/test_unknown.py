"""A connection dies with an answer on its way: what was written is found out; nothing is doubled, nothing is lost."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pgproxy import Proxy
from psycopg.conninfo import conninfo_to_dict

import holdfast
from holdfast import step, workflow
from holdfast.errors import Claimed, LeaseLost, RunNotFound, StoreUnreachable
from holdfast.kernel.model import Adopt, Append, Change, Filter, Kind, Order, Post, Rewrap, RunRecord, Status
from holdfast.stores.postgres import connections, stuck_calls
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import find_document, write_one
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import ALL, LEASE, Author, after, delete, item, make, put, snapshot

SWALLOWED = "tests/postgres/test_unknown.py::test_a_step_is_written_once"
HOWS = [pytest.param("before", marks=pytest.mark.slow(covered_by=SWALLOWED)), "after", "swallow"]


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    where = conninfo_to_dict(postgres_url.partition("?")[0])
    proxy = Proxy(str(where["host"]), int(str(where["port"])))
    yield proxy
    proxy.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck_calls, "LIMIT", 0.3)
    monkeypatch.setattr(stuck_calls, "SWEEP", 0.05)


@pytest.fixture
def far(postgres_url: str, proxy: Proxy, clock: ManualClock) -> Iterator[PostgresStore]:
    """The store, seen through the proxy, with a worker ``far``."""
    where = conninfo_to_dict(postgres_url.partition("?")[0])
    far = PostgresStore(postgres_url.replace(f":{where['port']}/", f":{proxy.port}/"), clock=clock)
    far.beat("far", LEASE)
    yield far
    far.close()


@pytest.fixture
def run(store: PostgresStore, author: Author) -> RunRecord:
    return make(store, author.create("run"))


# --- writes


@pytest.mark.parametrize("how", HOWS)
def test_a_step_is_written_once(far: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, how: str) -> None:
    held = far.claim(run.uid, "far")
    for n in range(7):  # statements are prepared from some time on
        write = author.append(held, Kind.DONE, payload=b"step %d" % n)
        if n in (0, 6):
            proxy.lose(b"step %d" % n, how)
        put(far, write)
        held = after(held, write)
        assert proxy.struck.is_set()
    assert [entry.payload for entry in far.read(run.uid, 1, ALL)] == [b"step %d" % n for n in range(7)]
    assert far.get(uid=run.uid) == held


@pytest.mark.parametrize("how", HOWS)
def test_a_batch_of_steps_is_written_once(far: PostgresStore, proxy: Proxy, author: Author, how: str) -> None:
    held = [far.claim(make(far, author.create(f"r{n}")).uid, "far") for n in range(5)]
    writes = [author.append(record, Kind.DONE, Kind.SAVED, payload=b"of the batch") for record in held]
    writes[2] = Append(writes[2].uid, writes[2].id, 99, "far", writes[2].entries)
    proxy.lose(b"of the batch", how)
    outcomes = far.apply(writes)
    assert proxy.struck.is_set()
    assert [type(outcome) for outcome in outcomes] == [LeaseLost if n == 2 else type(None) for n in range(5)]
    assert [len(far.read(record.uid, 1, ALL)) for record in held] == [0 if n == 2 else 2 for n in range(5)]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("entries", [(), (Kind.COMPLETED,)], ids=["without an entry", "with an entry"])
def test_a_release_is_made_once(
    far: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, how: str, entries: tuple[str, ...]
) -> None:
    write_one(far, Post(run.uid, item("k")))
    held = far.claim(run.uid, "far")
    status = Status.COMPLETED if entries else Status.READY
    write = author.append(held, *entries, took=("k",), change=Change(status=status, release=True))
    proxy.lose(b"COMMIT\0", how)
    put(far, write)
    assert proxy.struck.is_set()
    record = far.get(uid=run.uid)
    assert record is not None
    assert (record.status, record.worker, record.epoch) == (status, None, held.epoch)
    assert ([one.key for one in far.inbox(run.uid, taken=True)], len(far.read(run.uid, 1, ALL))) == (
        ["k"],
        len(entries),
    )


@pytest.mark.parametrize("how", HOWS)
def test_a_release_that_somebody_else_built_upon_is_lost_or_made(
    far: PostgresStore, store: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, how: str
) -> None:
    """With an entry it is known that it was made, also when the run was claimed since."""
    held = far.claim(run.uid, "far")
    write = author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True))
    real = far._carefully

    def later(conn: Any, writes: Any, again: bool) -> Any:
        if again and how != "before":
            store.claim(run.uid, "east")
        return real(conn, writes, again)

    far._carefully = later  # type: ignore[method-assign]
    proxy.lose(b"COMMIT\0", how)
    put(far, write)
    assert len(far.read(run.uid, 1, ALL)) == 1


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "with others"])
def test_a_run_is_created_once(far: PostgresStore, proxy: Proxy, author: Author, how: str, others: int) -> None:
    write = author.create("new", Kind.CREATED, Kind.SAVED, tags={"a": "b"})
    proxy.lose(b"COMMIT\0" if others else b"ON CONFLICT DO NOTHING", how)
    made, *_ = far.apply([write, *(author.create(f"other-{n}") for n in range(others))])
    assert proxy.struck.is_set()
    assert isinstance(made, RunRecord)
    assert (made.uid, made.seq) == (write.record.uid, 1)
    assert made in far.find(Filter())
    assert len(far.find(Filter())) == 1 + others
    assert far.read(made.uid, 0, ALL) == list(write.entries)


@pytest.mark.parametrize("how", HOWS)
def test_a_run_ends_once(far: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, how: str) -> None:
    """In one statement, since nothing else is said about it."""
    held = far.claim(run.uid, "far")
    write = author.append(held, Kind.DONE, Kind.COMPLETED, change=Change(status=Status.COMPLETED, release=True))
    proxy.lose(b"crashes = 0", how)
    put(far, write)
    assert proxy.struck.is_set()
    record = far.get(uid=run.uid)
    assert record is not None
    assert (record.status, record.worker, record.epoch) == (Status.COMPLETED, None, held.epoch)
    assert far.read(run.uid, 1, ALL) == list(write.entries)


# --- the others


@pytest.mark.parametrize("how", HOWS)
def test_a_claim_is_made_once_and_known(
    far: PostgresStore, store: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, how: str
) -> None:
    proxy.lose(b"COMMIT\0", how)
    held = far.claim(run.uid, "far")
    assert proxy.struck.is_set()
    assert (held.worker, held.epoch) == ("far", run.epoch + 1)
    put(far, author.append(held, Kind.DONE))
    for handle, worker in ((store, "east"), (far, "far")):
        with pytest.raises(Claimed):
            handle.claim(run.uid, worker)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("taken", [False, True])
def test_an_item_is_posted_once(
    far: PostgresStore, store: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, how: str, taken: bool
) -> None:
    proxy.lose(b"COMMIT\0", how)
    assert write_one(far, Post(run.uid, item("k", at=77)))
    if taken:
        put(store, author.append(store.claim(run.uid, "east"), took=("k",)))
    assert not write_one(far, Post(run.uid, item("k", at=78)))
    assert proxy.struck.is_set()
    assert len(far.inbox(run.uid)) + len([one.key for one in far.inbox(run.uid, taken=True)]) == 1


@pytest.mark.parametrize("how", HOWS)
def test_a_run_is_deleted_once(far: PostgresStore, proxy: Proxy, run: RunRecord, how: str) -> None:
    proxy.lose(b"COMMIT\0", how)
    assert delete(far, run.uid)
    assert proxy.struck.is_set()
    assert not delete(far, run.uid)
    with pytest.raises(RunNotFound):
        far.claim(run.uid, "far")


@pytest.mark.parametrize("how", HOWS)
def test_a_run_is_adopted_once(far: PostgresStore, proxy: Proxy, author: Author, how: str) -> None:
    write = author.create("adopted", Kind.CREATED, Kind.SAVED)
    proxy.lose(b"COMMIT\0", how)
    write_one(far, Adopt(write.record, write.entries, [item("k")], ["t"]))
    assert proxy.struck.is_set()
    _, entries, items, taken = snapshot(far, write.record.uid)
    assert (entries, items, taken) == (list(write.entries), [item("k")], ["t"])


@pytest.mark.parametrize("how", HOWS)
def test_a_key_is_rewrapped_once(far: PostgresStore, proxy: Proxy, author: Author, how: str) -> None:
    made = make(far, author.create("secret", key_id="k1", key_blob=b"one"))
    proxy.lose(b"COMMIT\0", how)
    assert write_one(far, Rewrap(made.uid, b"one", "k2", b"two"))
    assert proxy.struck.is_set()
    assert not write_one(far, Rewrap(made.uid, b"one", "k2", b"two"))


@pytest.mark.parametrize("how", HOWS)
def test_what_is_taken_is_taken_once_and_known(far: PostgresStore, proxy: Proxy, author: Author, how: str) -> None:
    made = [make(far, author.create(f"r{n}", queue="q", workflow="w")) for n in range(3)]
    order = Order(worker="far", queues={"q": None}, workflows=frozenset({"w"}), limit=2)
    proxy.lose(b"COMMIT\0", how)
    taken = far.take(order)
    assert proxy.struck.is_set()
    assert [(one.uid, one.epoch, one.worker) for one in taken] == [(one.uid, 1, "far") for one in made[:2]]
    assert [one.uid for one in far.take(order)] == [made[2].uid]


@pytest.mark.parametrize("how", HOWS)
def test_a_document_is_put_once(far: PostgresStore, proxy: Proxy, how: str) -> None:
    for value, wanted in ((b"made", True), (b"replaced", True), (None, False)):
        before = find_document(far, "kind", "name")
        proxy.lose(b"document", how)
        assert far.put_document("kind", "name", value, before.version if before else None)
        assert proxy.struck.is_set()
        after = find_document(far, "kind", "name")
        assert (after.value if after else None) == value
        assert (after is not None) is wanted


@pytest.mark.parametrize("how", HOWS)
def test_reads_are_made_again(far: PostgresStore, proxy: Proxy, run: RunRecord, how: str) -> None:
    proxy.lose(b"NOT r.hidden", how)
    assert far.get("run") == run
    assert proxy.struck.is_set()


# --- transactional steps


@pytest.mark.parametrize("how", HOWS)
def test_a_transaction_is_made_or_rolled_back_and_that_is_known(
    far: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, sql: Callable[..., list[Any]], how: str
) -> None:
    schema = far._link.settings.schema
    sql("CREATE TABLE {schema}.paid (n integer)")
    try:
        held = far.claim(run.uid, "far")
        write = author.append(held, Kind.DONE)

        def act(db: Any) -> Append:
            db.execute(f"INSERT INTO {schema}.paid VALUES (1)")
            return write

        proxy.lose(b"COMMIT\0", how)
        if how == "before":
            with pytest.raises(StoreUnreachable, match="rolled back; it can be tried again"):
                far.transact(act)
            assert sql("SELECT * FROM {schema}.paid") == []
        assert far.transact(act) is None
        assert proxy.struck.is_set()
        assert sql("SELECT * FROM {schema}.paid") == [(1,)]
        assert len(far.read(run.uid, 1, ALL)) == 1
    finally:
        sql("DROP TABLE {schema}.paid")


@pytest.mark.parametrize("how", HOWS)
def test_an_answer_to_the_functions_own_statement_that_is_lost_is_known(
    far: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, sql: Callable[..., list[Any]], how: str
) -> None:
    schema = far._link.settings.schema
    sql("CREATE TABLE {schema}.paid (n integer)")
    try:
        write = author.append(far.claim(run.uid, "far"), Kind.DONE)

        def act(db: Any) -> Append:
            db.execute(f"INSERT INTO {schema}.paid VALUES (1)")
            return write

        proxy.lose(b"INSERT INTO " + schema.encode() + b".paid", how)
        with pytest.raises(StoreUnreachable, match="rolled back; it can be tried again"):
            far.transact(act)
        assert proxy.struck.is_set()
        assert sql("SELECT * FROM {schema}.paid") == []
        assert far.transact(act) is None
        assert sql("SELECT * FROM {schema}.paid") == [(1,)]
    finally:
        sql("DROP TABLE {schema}.paid")


def test_a_statement_of_the_function_may_take_long(far: PostgresStore, author: Author, run: RunRecord) -> None:
    """As long as the server is at work on it."""
    write = author.append(far.claim(run.uid, "far"), Kind.DONE)

    def act(db: Any) -> Append:
        db.execute("SELECT pg_sleep(%s)", (4 * stuck_calls.LIMIT,))
        return write

    assert far.transact(act) is None


# --- what stays unknown


def test_who_cannot_find_out_says_so(
    far: PostgresStore, proxy: Proxy, author: Author, run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.5)
    held = far.claim(run.uid, "far")
    proxy.close()
    with pytest.raises(StoreUnreachable, match=r"127\.0\.0\.1"):
        far.apply([author.append(held, Kind.DONE)])
    with pytest.raises(StoreUnreachable):
        far.get("run")
    far.drop()


# --- a workflow on top

done: list[int] = []


@step
def count(n: int) -> int:
    done.append(n)
    return n


@workflow
def counts(times: int) -> int:
    return sum(count(n) for n in range(times))


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_workflow_goes_on_through_it(far: PostgresStore, proxy: Proxy, how: str) -> None:
    done.clear()
    with holdfast.open("", store=far) as hf:
        run = hf.enqueue(counts, 6, id="counts")
        proxy.lose(b'"count#4"', how)
        hf.work(until_idle=True)
        assert run.result(timeout=0) == 15
        assert run.audit().entries == 8
    assert proxy.struck.is_set()
    assert done == list(range(6))
