"""A SQLite file is changed: a typed error or a true prefix, and nothing else.

The small databases here have small pages, so that trying every byte is a matter of minutes. By default some of the
bytes are tried; a failure names them.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sizes

import holdfast
from holdfast import Keyring, workflow
from holdfast.errors import StoreDamaged
from holdfast.stores.sqlite import file

KEYS = Keyring({"k": b"k" * 32}, current="k")
SAMPLE = sizes.size(8, 50, 120)
CHUNKS = 16


class Victim:
    """A database, with or without a log of the last commits, to be damaged and put back."""

    def __init__(self, folder: Path, keys: Keyring | None, fill: Any, go_on: Any = None) -> None:
        self.path, self.url = folder / "runs.db", f"sqlite:///{folder / 'runs.db'}"
        with holdfast.open(self.url, keys=keys) as hf:
            self.truth = fill(hf)
        if go_on is not None:
            hf = holdfast.open(self.url, keys=keys)
            self.truth = go_on(hf)
        self.parts = {path.name: path.read_bytes() for path in (self.path, self.log) if path.exists()}
        if go_on is not None:
            hf.close()

    @property
    def log(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    @property
    def written(self) -> int:
        """How many bytes of the log are frames; behind them is room for more."""
        return len(self.parts[self.log.name].rstrip(b"\0"))

    def damage(self, name: str, data: bytes) -> None:
        for path in self.path.parent.glob("runs.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for part, whole in self.parts.items():
            (self.path.parent / part).write_bytes(data if part == name else whole)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "PAGE_SIZE", 512)


def flip(victim: Victim, examine: Any, name: str, places: Iterable[tuple[int, int]], keys: Keyring | None) -> None:
    whole = victim.parts[name]
    for at, bit in places:
        changed = bytearray(whole)
        changed[at] ^= 1 << bit
        victim.damage(name, bytes(changed))
        examine.examine(f"{name} bit {bit} of byte {at} of {len(whole)}", victim.url, keys=keys, others=False)


def some(size: int, seed: int, n: int = SAMPLE) -> list[tuple[int, int]]:
    chosen = random.Random(seed)
    return [(chosen.randrange(size), chosen.randrange(8)) for _ in range(n)]


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("chunk", range(2))
def test_a_flipped_bit_in_the_database(
    encrypted: bool,
    chunk: int,
    memdir: Path,
    small_pages: None,
    filled: Any,
    examiner: Any,
    seed: int,
    tally: Callable[..., None],
) -> None:
    keys = KEYS if encrypted else None
    victim = Victim(memdir, keys, filled)
    victim.truth.allows_gone = victim.truth.bare_history = True
    examine = examiner(victim.truth)
    flip(victim, examine, "runs.db", some(len(victim.parts["runs.db"]), seed), keys)
    tally("damage: sqlite, some bytes flipped", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


@pytest.mark.torture
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_any_flipped_byte_in_the_database(
    chunk: int, memdir: Path, small_pages: None, filled: Any, examiner: Any, tally: Callable[..., None]
) -> None:
    victim = Victim(memdir, None, filled)
    victim.truth.allows_gone = victim.truth.bare_history = True
    examine = examiner(victim.truth)
    size = len(victim.parts["runs.db"])
    flip(victim, examine, "runs.db", [(at, (at + at // 8) % 8) for at in range(chunk, size, CHUNKS)], None)
    tally("damage: sqlite, every byte flipped", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


def test_a_database_that_was_cut_off(
    memdir: Path, small_pages: None, filled: Any, examiner: Any, tally: Callable[..., None]
) -> None:
    victim = Victim(memdir, None, filled)
    victim.truth.allows_gone = victim.truth.bare_history = True
    examine = examiner(victim.truth)
    whole = victim.parts["runs.db"]
    for size in (1, 15, 16, 99, 100, *sizes.sample(range(511, len(whole), 257), 40)):
        victim.damage("runs.db", whole[:size])
        examine.examine(f"runs.db cut to {size} of {len(whole)} bytes", victim.url, others=False)
    tally("damage: sqlite, cut off", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


def test_a_flipped_bit_in_the_log(
    memdir: Path, small_pages: None, filled: Any, continued: Any, examiner: Any, seed: int, tally: Callable[..., None]
) -> None:
    """SQLite forgets the commits from the damaged one on: a true prefix."""
    victim = Victim(memdir, None, filled, continued)
    examine = examiner(victim.truth)
    size, whole = victim.written, len(victim.parts["runs.db-wal"])
    assert size < whole
    room = [(at, at % 8) for at in (size, size + 24, (size + whole) // 2, whole - 1)]
    begin = [(at, at % 8) for at in sizes.sample(range(32), 8)]
    flip(victim, examine, "runs.db-wal", [*begin, *room, *some(size, seed, SAMPLE // 2)], None)
    for cut in sizes.sample(range(0, size, size // 40), 10):
        victim.damage("runs.db-wal", victim.parts["runs.db-wal"][:cut])
        examine.examine(f"runs.db-wal cut to {cut} of {size} bytes", victim.url, others=False)
    tally("damage: sqlite, log", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


@pytest.mark.torture
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_any_flipped_byte_in_the_log(
    chunk: int, memdir: Path, small_pages: None, filled: Any, continued: Any, examiner: Any, tally: Callable[..., None]
) -> None:
    victim = Victim(memdir, None, filled, continued)
    examine = examiner(victim.truth)
    flip(victim, examine, "runs.db-wal", [(at, at % 8) for at in range(chunk, victim.written, CHUNKS)], None)
    tally("damage: sqlite, every byte of the log flipped", tried=examine.tried, wrong=len(examine.wrong))
    examine.verdict()


def test_a_damaged_header_says_what_to_do(memdir: Path, filled: Any) -> None:
    victim = Victim(memdir, None, filled)
    whole = victim.parts["runs.db"]
    victim.damage("runs.db", b"\xff" * 100 + whole[100:])
    with pytest.raises(StoreDamaged, match=r"runs\.db.*restore"):
        holdfast.open(victim.url)


def test_damage_to_one_run_leaves_the_others(memdir: Path, filled: Any, examiner: Any) -> None:
    victim = Victim(memdir, None, filled)
    whole = victim.parts["runs.db"]
    place = whole.rindex(b"one two")
    victim.damage("runs.db", whole[:place] + b"0ne" + whole[place + 3 :])
    examine = examiner(victim.truth)
    examine.examine("the text of a state", victim.url)
    examine.verdict()
    assert examine.errors.get("RunDamaged")


@pytest.mark.parametrize("stored", ["7", "1.5", "'text'"])
@pytest.mark.parametrize("column", ["payload", "hash"])
def test_a_value_of_another_type_is_damage(memdir: Path, column: str, stored: str) -> None:
    """One bit of a row's header says of which type a value is."""
    with holdfast.open(f"sqlite:///{memdir}/runs.db") as hf:
        hf.run("run").save({"n": 1})
        hf.run("run").save({"n": 2})
        with closing(sqlite3.connect(memdir / "runs.db")) as db, db:
            assert db.execute(f"UPDATE entry SET {column} = {stored} WHERE seq = 2").rowcount == 1
        with pytest.raises(holdfast.errors.RunDamaged, match="run"):
            hf.get("run").checkpoint(2)
        with pytest.raises(holdfast.errors.RunDamaged, match="run"):
            hf.get("run").audit()


@workflow
def carry(what: str) -> str:
    return what


@pytest.mark.parametrize("stored", ["7", "1.5", "'text'", "NULL"])
def test_an_entry_of_another_type_is_damage_in_a_transaction_of_the_user(memdir: Path, stored: str) -> None:
    with holdfast.open(f"sqlite:///{memdir}/runs.db") as hf, closing(sqlite3.connect(memdir / "runs.db")) as db:
        hf.enqueue(carry, "book", id="run")
        with db:
            db.execute("PRAGMA writable_schema = 1")
            db.execute("UPDATE sqlite_schema SET sql = replace(sql, 'payload BLOB NOT NULL', 'payload BLOB')")
        with closing(sqlite3.connect(memdir / "runs.db")) as other, other:
            assert other.execute(f"UPDATE entry SET payload = {stored}").rowcount == 1
        db.execute("BEGIN")
        with pytest.raises(holdfast.errors.RunDamaged, match="entry 0"):
            hf.enqueue(carry, "book", id="run", within=db)


def test_a_damaged_queue_name_hides_no_other_queue(memdir: Path) -> None:
    with holdfast.open(f"sqlite:///{memdir}/runs.db") as hf:
        for queue in ("north", "south"):
            hf.enqueue(carry, queue, id=queue, queue=queue)
        with closing(sqlite3.connect(memdir / "runs.db")) as db, db:
            assert db.execute("UPDATE run SET queue = x'00ff' WHERE id = 'north'").rowcount == 1
        assert [queue.name for queue in hf.queues()] == ["south"]
        assert {info.id: info.status for info in hf.runs()} == {"north": "blocked", "south": "ready"}
        with pytest.raises(holdfast.errors.RunDamaged, match="north"):
            hf.get("north")
