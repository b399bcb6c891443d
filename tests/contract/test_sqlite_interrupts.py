"""Ctrl-C at any moment of a write to SQLite: nothing half is kept, and nothing that comes after it is lost."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

import holdfast
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import Author, make

STRIKES = 300


@pytest.fixture
def author() -> Author:
    return Author(ManualClock())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


def seen_by_others(path: Path, id: str) -> int:
    """How many entries of a run are there for anybody else."""
    with closing(sqlite3.connect(path)) as other:
        query = "SELECT count(*) FROM entry e JOIN run r ON r.n = e.run WHERE r.id = ?"
        return int(other.execute(query, (id,)).fetchone()[0])


def test_an_interrupt_while_another_writer_is_waited_for(path: Path) -> None:
    """It is told when the wait is over: the transaction has begun then, and has to be ended."""
    with holdfast.open(f"sqlite:///{path}") as hf, hf.run("r").claim() as run:
        run.once("a", int, 1)
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN IMMEDIATE")

            def strike() -> None:
                os.kill(os.getpid(), signal.SIGINT)
                other.execute("COMMIT")

            striking = threading.Timer(0.1, strike)
            striking.start()
            with pytest.raises(KeyboardInterrupt):
                hf.run("new").save({"n": 1})
            striking.join()
        for n in range(3):
            assert run.once(f"later-{n}", int, n) == n
            assert seen_by_others(path, "r") == n + 3
        assert hf.run("third").save({"n": 3}) is not None


@pytest.mark.parametrize("what", ["a step", "a run"])
def test_a_transaction_that_an_interrupt_left_open_is_no_part_of_the_next_write(path: Path, what: str) -> None:
    with holdfast.open(f"sqlite:///{path}") as hf, hf.run("r").claim() as run:
        run.once("a", int, 1)
        run.once("b", int, 2)
        hf.client.store._db.execute("BEGIN IMMEDIATE")
        hf.client.store._db.execute("INSERT INTO meta (name, value) VALUES ('half', 1)")
        if what == "a step":
            run.once("c", int, 3)
            assert seen_by_others(path, "r") == 4
        else:
            hf.run("new")
            assert seen_by_others(path, "new") == 1
        with closing(sqlite3.connect(path)) as other:
            assert other.execute("SELECT count(*) FROM meta WHERE name = 'half'").fetchone() == (0,)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may come in a weakref's callback
def test_interrupts_at_random(path: Path, author: Author, seed: int, tally: Callable[..., None]) -> None:
    """Each write that was acknowledged is there for others at once, whatever was interrupted before."""
    chance, struck, armed = random.Random(seed), 0, list[bool]()
    store = SqliteStore(str(path))

    def strike(*_: object) -> None:
        if armed:
            armed.clear()
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    try:
        for n in range(STRIKES):
            write = author.create(f"r{n}")
            with suppress(KeyboardInterrupt):
                try:
                    armed.append(True)
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 + chance.random() * 0.001)
                    store.apply([write])
                except KeyboardInterrupt:
                    struck += 1
                finally:
                    armed.clear()
            make(store, author.create(f"after-{n}"))
            assert seen_by_others(path, f"after-{n}") == 1, f"seed {seed}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        store.close()
    tally("interrupts of writes: sqlite", struck=struck, lost=0)
