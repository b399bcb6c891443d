"""The server goes down in the middle, as in a power failure, and comes back; sessions are ended at random."""

import threading
from collections.abc import Callable

import psycopg
import pytest
from pgserver import Server

import holdfast
from holdfast import gather, step, workflow
from holdfast.kernel.model import Kind, RunRecord
from holdfast.stores.postgres.schema import migrate
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import ALL, Author, after, make, put

acted: list[str] = []
gate = threading.Event()
STEPS = 12


@step
def act(name: str) -> str:
    acted.append(name)
    if name.endswith("/3"):
        gate.set()
    return name


@workflow
def acts(name: str) -> int:
    return len([act(f"{name}/{n}") for n in range(STEPS)])


@workflow
def branches() -> int:
    return sum(gather(*(lambda name=name: acts(name) for name in "xy")))  # type: ignore[misc]


@pytest.fixture
def url(own_server: Server) -> str:
    acted.clear()
    gate.clear()
    migrate(own_server.url)
    return own_server.url


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_that_is_restarted_loses_nothing(own_server: Server, url: str, tally: Callable[..., None]) -> None:
    with holdfast.open(url) as hf:
        runs = [hf.enqueue(acts, name) for name in "abcd"] + [hf.enqueue(branches)]
        worker = threading.Thread(target=hf.work, kwargs={"until_idle": True}, daemon=True)
        worker.start()
        assert gate.wait(30)
        own_server.stop("immediate")
        own_server.start(fsync="on", synchronous_commit="on", max_connections="40")
        worker.join(90)
        assert not worker.is_alive()
        assert [run.result(timeout=10) for run in runs] == [STEPS] * 4 + [2 * STEPS]
        for run in runs:
            run.audit()
    assert sorted(acted) == sorted(f"{name}/{n}" for name in "abcdxy" for n in range(STEPS))  # each of them once
    tally("server restarts", restarts=1, steps=len(acted))


def test_sessions_that_are_ended_at_random_lose_nothing_and_double_nothing(
    own_server: Server, url: str, tally: Callable[..., None]
) -> None:
    clock = ManualClock()
    author, killed, failed = Author(clock), 0, list[BaseException]()
    store = PostgresStore(f"{url}?application_name=victim&pool=4", clock=clock)
    store.beat("east", 1e6)
    held = [store.claim(make(store, author.create(f"run {n}")).uid, "east") for n in range(3)]
    over = threading.Semaphore(0)

    def write(record: RunRecord) -> None:
        try:
            for n in range(120):
                append = author.append(record, *([Kind.DONE] * (1 + n % 2)))
                put(store, append)
                record = after(record, append)
        except BaseException as error:  # it is looked at below
            failed.append(error)
        finally:
            over.release()

    threads = [threading.Thread(target=write, args=(record,)) for record in held]
    for thread in threads:
        thread.start()
    with psycopg.connect(url, autocommit=True) as conn:
        while not over.acquire(timeout=0.005) and killed < 40:
            ended = conn.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'holdfast victim' "
                "ORDER BY random() LIMIT 1"
            )
            killed += ended.rowcount
    for thread in threads:
        thread.join()
    assert failed == []
    for record in held:
        entries = store.read(record.uid, 0, ALL)
        assert [entry.seq for entry in entries] == list(range(181))
    tally("sessions ended", sessions=killed, writes=360, violations=0)
    store.close()


def test_a_holder_and_its_store_go_on_after_a_long_absence(
    own_server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that cannot wait any longer raises; the next one succeeds when the server is back."""
    monkeypatch.setattr("holdfast.stores.postgres.connections.PATIENCE", 0.3)
    with holdfast.open(url) as hf:
        run = hf.run("run")
        with run.claim():
            run.save({"n": 1})
            own_server.stop("immediate")
            with pytest.raises(holdfast.errors.StoreUnreachable, match=r"127\.0\.0\.1"):
                run.save({"n": 2})
            own_server.start(max_connections="40")
            run.save({"n": 3})
        assert run.checkpoint().state == {"n": 3}
        run.audit()
