"""Transactional steps: the user's rows and the entry are one commit, so they are done exactly once."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, UsageError, gather, step, this_step, workflow
from holdfast.errors import HoldfastError, NotStorable, StepFailed
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash, CrashSqliteStore, Fuse

raising: list[Exception] = []
tries: list[int] = []


@pytest.fixture(autouse=True)
def nothing_raised() -> None:
    raising.clear()
    tries.clear()


@step(transactional=True, retries=2, delay=0, retry_on=ConnectionError)
def pay(db: sqlite3.Connection, name: str, cents: int = 1) -> int:
    tries.append(this_step().attempt)
    db.execute("UPDATE account SET cents = cents + ? WHERE name = ?", (cents, name))
    if raising:
        raise raising.pop(0)
    return int(db.execute("SELECT cents FROM account WHERE name = ?", (name,)).fetchone()[0])


@workflow
def pay_twice(name: str) -> tuple[int, int]:
    return pay(name), pay(name, cents=10)


@workflow
async def pay_among_others(name: str) -> int:
    return pay(name)


@pytest.fixture
def path(memdir: Path) -> Path:
    path = memdir / "runs.db"
    SqliteStore(str(path)).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
        db.execute("INSERT INTO account VALUES ('a', 100)")
        db.commit()
    return path


@pytest.fixture
def sqlite(path: Path) -> Iterator[Holdfast]:
    with holdfast.open("", store=SqliteStore(str(path), clock=ManualClock())) as hf:
        yield hf


def cents(path: Path) -> int:
    """What the account holds, as everybody else sees it."""
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT cents FROM account").fetchone()[0])


def test_rows_and_results_are_kept_together(sqlite: Holdfast, path: Path) -> None:
    run = sqlite.start(pay_twice, "a", id="r")
    assert run.result() == (101, 111)
    assert cents(path) == 111
    assert [entry.kind for entry in run.history()] == ["created", "done", "done", "completed"]
    assert sqlite.start(pay_twice, "a", id="r").result() == (101, 111)
    assert cents(path) == 111


def test_an_async_workflow_may_call_one(sqlite: Holdfast, path: Path) -> None:
    assert sqlite.start(pay_among_others, "a").result() == 101
    assert cents(path) == 101


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its other threads die with it
def test_a_crash_at_any_point_leaves_it_done_exactly_once(path: Path) -> None:
    """A fuse is put at each commit in turn, before and after; the next process goes on."""
    points = 1
    n = 0
    while n < points:
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE account SET cents = 100")
            db.commit()
        fuse = Fuse(n)
        id = f"r{n}"
        dying = holdfast.open("", store=CrashSqliteStore(str(path), fuse, clock=ManualClock(seed=2 * n)))
        with suppress(Crash, HoldfastError):
            dying.start(pay_twice, "a", id=id)
        points = max(points, len(fuse.points) + 1)
        dying.client.engine.watch.stop()
        dying.client.engine.worker.stop()
        dying.client.store.drop()
        with holdfast.open("", store=SqliteStore(str(path), clock=ManualClock(seed=2 * n + 1))) as hf:
            assert hf.start(pay_twice, "a", id=id).result() == (101, 111), (n, fuse.points)
        assert cents(path) == 111, (n, fuse.points)
        n += 1
    assert n > 8


def test_an_error_takes_the_rows_back_and_is_tried_again(sqlite: Holdfast, path: Path) -> None:
    raising[:] = [ConnectionError("down"), ConnectionError("down")]
    run = sqlite.start(pay_among_others, "a")
    assert run.result() == 101
    assert (cents(path), tries) == (101, [1, 2, 3])
    assert [(one.status, one.attempts) for one in run.steps()] == [("done", 3)]


@pytest.mark.parametrize(
    "error", [ValueError("theirs"), sqlite3.IntegrityError("theirs"), StepFailed("x:Y", "theirs")], ids=type
)
def test_an_error_of_the_function_is_an_error_of_the_step(sqlite: Holdfast, path: Path, error: Exception) -> None:
    raising[:] = [error]
    run = sqlite.start(pay_among_others, "a", id="r")
    with pytest.raises(type(error), match="theirs"):
        run.result()
    assert cents(path) == 100
    run.retry()
    assert run.result() == 101


@step(transactional=True)
def misuse(db: Any, how: str) -> Any:
    db.execute("UPDATE account SET cents = 0")
    if how == "commit":
        db.commit()
    if how == "journal":
        db.execute("DELETE FROM entry")
    if how == "step":
        pay("a")
    return object() if how == "result" else None


@workflow
def misused(how: str) -> None:
    misuse(how)


@pytest.mark.parametrize(
    ("how", "error", "match"),
    [
        ("commit", UsageError, "Holdfast"),
        ("journal", UsageError, "the table entry is Holdfast's own"),
        ("step", UsageError, "step pay is called inside of step 'misuse#1'"),
        ("result", NotStorable, "result of misuse#1: object cannot be stored"),
    ],
)
def test_misuse_takes_the_rows_back(sqlite: Holdfast, path: Path, how: str, error: type[Exception], match: str) -> None:
    run = sqlite.start(misused, how)
    with pytest.raises(error, match=match):
        run.result()
    assert cents(path) == 100
    assert run.status is Status.FAILED


@step(transactional=True, target="account {name}")
def book(db: Any, name: str) -> None:
    db.execute("UPDATE account SET cents = cents + 1")


@book.undo
def unbook(result: None, name: str) -> None:
    tries.append(-1)


@workflow
def booked() -> None:
    book("a")


def test_it_may_have_a_target_and_an_undo(sqlite: Holdfast, path: Path) -> None:
    run = sqlite.start(booked)
    assert [(effect.target, effect.status) for effect in run.effects()] == [("account a", "done")]
    assert [effect.status for effect in run.rollback(to=0).undone] == ["undone"]
    assert tries == [-1]


@workflow
def in_branches() -> list[int]:
    return list(gather(*(lambda: pay("a") for _ in range(5))))


def test_parallel_branches_take_turns(sqlite: Holdfast, path: Path) -> None:
    assert sorted(sqlite.start(in_branches).result()) == [101, 102, 103, 104, 105]
    assert cents(path) == 105


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_another_store_refuses_it_and_says_why(memdir: Path, kind: str) -> None:
    url = "memory://" if kind == "memory" else f"files:///{memdir / 'runs'}"
    refused = pytest.raises(UsageError, match="a transactional step needs a store with SQL, such as sqlite:///path")
    with holdfast.open(url) as hf, refused:
        hf.start(pay_among_others, "a").result()
    assert tries == []


def test_what_it_cannot_be_is_refused_where_it_is_declared() -> None:
    with pytest.raises(UsageError, match="a transactional step is a plain function, not async"):

        @step(transactional=True)
        async def later(db: Any) -> None: ...

    declare: Callable[..., Any] = step
    for how in ({"at_most_once": True}, {"timeout": 3}):
        with pytest.raises(UsageError, match="takes neither at_most_once nor a timeout"):
            declare(transactional=True, **how)(pay.function)
    with pytest.raises(UsageError, match="step pay is transactional, and done in one go; it takes no timeout"):
        pay.options(timeout=1)
