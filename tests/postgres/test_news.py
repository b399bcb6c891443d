"""What one handle commits is told to the others, and what is not told is found all the same."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, ask, emit, step, workflow
from holdfast.engine.worker.worker import Crew
from holdfast.kernel.model import Change, Kind, Post, RunRecord, Status
from holdfast.stores.postgres import store as postgres
from holdfast.stores.postgres.notify import PATIENCE, channel
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import Telling, write_one
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, after, delete, item, make, put

Sql = Callable[..., list[Any]]


class Ear:
    """Hears what a store tells."""

    def __init__(self, store: PostgresStore) -> None:
        self.heard: list[str | None] = []
        self._news = threading.Condition()
        store.listen(self._hear)
        self.until(1)  # that it listens now

    def _hear(self, uid: str | None) -> None:
        with self._news:
            self.heard.append(uid)
            self._news.notify_all()

    def until(self, n: int) -> None:
        """Wait until so many were heard."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.heard) >= n, 20), self.heard


@pytest.fixture
def other(postgres_url: str, clock: ManualClock) -> Iterator[PostgresStore]:
    other = PostgresStore(postgres_url, clock=clock)
    other.beat("north", LEASE)
    yield other
    other.close()


def test_what_others_commit_is_told(
    store: PostgresStore, other: PostgresStore, author: Author, held: RunRecord
) -> None:
    assert isinstance(store, Telling)
    ear = Ear(other)
    assert ear.heard == [None]  # something may have been missed before
    made = make(store, author.create("new"))
    ear.until(2)
    assert write_one(store, Post(made.uid, item("k")))
    ear.until(3)
    write = author.append(held, Kind.EMITTED)
    put(store, write)
    ear.until(4)
    held = after(held, write)
    put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
    ear.until(5)
    assert ear.heard == [None, None, made.uid, None, None]


def test_a_plain_step_and_ones_own_commits_are_not_told(
    store: PostgresStore, other: PostgresStore, author: Author, held: RunRecord
) -> None:
    ear = Ear(other)
    put(store, author.append(held, Kind.DONE))
    write_one(other, Post(held.uid, item("own")))
    write_one(store, Post(held.uid, item("last")))
    ear.until(2)
    assert ear.heard == [None, held.uid]


def test_a_lost_connection_is_made_again(
    store: PostgresStore, other: PostgresStore, held: RunRecord, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.postgres.notify.PATIENCE", (0.01, 0.02))
    assert PATIENCE[0] < PATIENCE[1]
    ear = Ear(other)
    name = channel(other._link.settings.schema)
    assert sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s", f'LISTEN "{name}"%')
    ear.until(2)
    write_one(store, Post(held.uid, item("k")))
    ear.until(3)
    assert ear.heard == [None, None, held.uid]


def test_who_does_not_listen_looks_more_often(postgres_url: str) -> None:
    quiet = PostgresStore(f"{postgres_url}&listen=off")
    quiet.listen(lambda uid: None)
    assert quiet.look_every <= postgres.LOOK * 1.25
    assert not [one for one in threading.enumerate() if one.name == "holdfast-news"]
    told = PostgresStore(postgres_url)
    Ear(told)
    assert told.look_every > postgres.LOOK * 1.25
    for store in (quiet, told):
        store.close()
    assert not [one for one in threading.enumerate() if one.name == "holdfast-news"]


def test_what_cannot_be_told_is_committed_all_the_same(
    store: PostgresStore, author: Author, held: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: nobody may take the failure of the news for one of the write."""
    too_long = "SELECT pg_notify('nobody', repeat('x', 9000))", ()
    monkeypatch.setattr(store._news, "of", lambda uid=None: too_long)
    with pytest.raises(holdfast.errors.StoreError, match="too long"):
        store._link.ask(*too_long)
    made = make(store, author.create("new"))
    assert write_one(store, Post(made.uid, item("k")))
    write = author.append(held, Kind.EMITTED)
    put(store, write)
    held = after(held, write)
    put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
    assert [entry.kind for entry in store.read(held.uid, 1, 99)] == [Kind.EMITTED, Kind.DONE]
    assert (len(store.inbox(made.uid)), delete(store, made.uid)) == (1, True)


# --- in workflows: nobody would look within the time of these tests


@pytest.fixture
def two(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Holdfast, Holdfast]]:
    monkeypatch.setattr(postgres, "LOOK_WHEN_TOLD", 1000.0)
    with holdfast.open(postgres_url) as one, holdfast.open(postgres_url) as other:
        yield one, other


@step
def double(n: int) -> int:
    return 2 * n


@workflow
def doubled(n: int) -> int:
    emit(n)
    return double(n)


@workflow
async def asked() -> int:
    return int(await ask("how many?", int))


@pytest.mark.timeout(60)
def test_workers_and_waiters_are_woken(two: tuple[Holdfast, Holdfast]) -> None:
    one, other = two
    worker = threading.Thread(target=other.work, daemon=True)
    worker.start()
    while not other.client.store._news.hears:  # type: ignore[attr-defined]
        threading.Event().wait(0.01)
    runs = [one.enqueue(doubled, n) for n in range(5)]
    assert [run.result(timeout=50) for run in runs] == [0, 2, 4, 6, 8]
    assert list(one.enqueue(doubled, 7, id="seven").follow()) == [7]
    question = one.enqueue(asked, id="asked")
    while not question.questions():
        threading.Event().wait(0.01)
    question.answer(3)
    assert question.result(timeout=50) == 3
    other.close()
    worker.join(20)
    assert not worker.is_alive()


@pytest.mark.timeout(60)
def test_who_has_nothing_to_do_asks_nothing_until_it_is_told(two: tuple[Holdfast, Holdfast]) -> None:
    one, other = two
    one.queue("default", paused=True)
    waiting = one.enqueue(doubled, 4)
    asked = other.client.store._link.ask  # type: ignore[attr-defined]
    count = [0]

    def counted(*values: Any, **how: Any) -> Any:
        count[0] += 1
        return asked(*values, **how)

    other.client.store._link.ask = counted  # type: ignore[attr-defined]
    worker = threading.Thread(target=other.work, daemon=True)
    worker.start()
    before = -1
    while not other.client.store.hears or count[0] != before:  # type: ignore[attr-defined]
        before = count[0]
        threading.Event().wait(0.5)
    threading.Event().wait(1.5)  # longer than one without news would wait
    assert count[0] == before
    one.queue("default").resume()
    assert waiting.result(timeout=50) == 8
    one.schedule(doubled, 1, id="each", cron="0 0 1 1 *")
    assert one.get_schedule("each").trigger().result(timeout=50) == 2
    other.close()
    worker.join(20)
    assert not worker.is_alive()


# --- when leases end


def test_it_is_known_when_the_next_lease_of_a_holder_ends(
    store: PostgresStore, other: PostgresStore, author: Author, clock: ManualClock
) -> None:
    assert store.look((), ()).lapse is None, "both live, and neither holds anything"
    clock.advance(2)
    store.beat("east", LEASE)
    ends = clock.now() + round(LEASE * 1_000_000)
    first = store.claim(make(store, author.create("first")).uid, "east")
    assert other.look((), ()).lapse == ends
    other.claim(make(store, author.create("second")).uid, "north")
    assert other.look((), ()).lapse == ends - 2_000_000, "north was heard of earlier"
    clock.advance(LEASE - 1)
    assert other.look((), ()).lapse == ends, "who is dead already is not waited for"
    put(store, author.append(first, Kind.DONE, change=Change(status=Status.READY, release=True)))
    assert other.look((), ()).lapse is None


def test_a_lease_that_ends_while_one_looks_is_not_overlooked(
    postgres_url: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(postgres_url, store=PostgresStore(postgres_url, clock=clock)) as hf:
        run = hf.enqueue(doubled, 1)
        hf.client.store.beat("north", LEASE)
        hf.client.store.claim(run.uid, "north")
        crew, heard = Crew(hf.client.engine, 1, ["default"], until_idle=False), hf.client.engine.bell.heard()
        take = crew._intake.take

        def slowly(*order: Any, **how: Any) -> Any:
            found = take(*order, **how)
            clock.advance(LEASE + 1)
            return found

        with monkeypatch.context() as context:
            context.setattr(crew._intake, "take", slowly)
            assert crew._look(heard, 1) == []
        assert [record.uid for record in crew._look(heard, 1)] == [run.uid]


@pytest.mark.timeout(60)
def test_an_idle_worker_goes_on_with_what_another_one_left_when_its_lease_is_over(postgres_url: str) -> None:
    with holdfast.open(postgres_url, lease=2.0) as left:
        left.client.engine.worker.ready()
        run = left.enqueue(doubled, 21)
        record = run.held.read_record()
        left.client.engine.worker.stop()  # its heart beats no longer
        with holdfast.open(postgres_url, lease=2.0) as other:
            worker = threading.Thread(target=other.work, daemon=True)
            left.client.store.claim(record.uid, left.client.engine.worker.name)
            worker.start()
            assert other.get(run.id).result(timeout=50) == 42
            other.close()
            worker.join(20)
