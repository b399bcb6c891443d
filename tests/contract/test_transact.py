"""A step's own SQL in one transaction with its entry: both last or neither, and nothing of ours can be harmed."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import LeaseLost, RunDamaged, UsageError
from holdfast.kernel.model import Append, Change, Kind, RunRecord, Status
from holdfast.stores.files.store import FilesStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.protocol import Transacting
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import ALL, LEASE, Author, after, make, put, snapshot
from holdfast.testing.crash import Crash, CrashSqliteStore, Fuse

Act = Callable[[sqlite3.Connection], Append]


@pytest.fixture
def path(memdir: Path) -> Path:
    return memdir / "runs.db"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def author(clock: ManualClock) -> Author:
    return Author(clock)


@pytest.fixture
def store(path: Path, clock: ManualClock) -> Iterator[SqliteStore]:
    """A store in whose file there is a table of the user's, with a worker ``east``."""
    store = SqliteStore(str(path), clock=clock)
    store.beat("east", LEASE)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL)")
        db.execute("INSERT INTO account VALUES ('a', 100)")
        db.commit()
    yield store
    store.close()


@pytest.fixture
def held(store: SqliteStore, author: Author) -> RunRecord:
    return store.claim(make(store, author.create("run")).uid, "east")


def cents(path: Path) -> int:
    """What the account holds, as everybody else sees it."""
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT cents FROM account WHERE name = 'a'").fetchone()[0])


def paying(write: Append, amount: int = 1) -> Act:
    """A step that pays something in."""

    def act(db: sqlite3.Connection) -> Append:
        db.execute("UPDATE account SET cents = cents + ?", (amount,))
        return write

    return act


def doing(write: Append, *acts: Callable[[sqlite3.Connection], object]) -> Act:
    """A step that pays something in and then does these."""

    def act(db: sqlite3.Connection) -> Append:
        db.execute("UPDATE account SET cents = cents + 1")
        for each in acts:
            each(db)
        return write

    return act


# --- both or neither


def test_only_a_store_with_transactions_offers_them(store: SqliteStore, memdir: Path) -> None:
    assert isinstance(store, Transacting)
    assert not isinstance(MemoryStore(), Transacting)
    assert not isinstance(FilesStore(str(memdir / "files")), Transacting)


def test_the_rows_and_the_entry_are_made_together(
    store: SqliteStore, path: Path, author: Author, held: RunRecord
) -> None:
    write = author.append(held, Kind.DONE)
    seen: list[int] = []

    def act(db: sqlite3.Connection) -> Append:
        paying(write)(db)
        seen.append(cents(path))
        return write

    assert store.transact(act) is None
    assert (seen, cents(path)) == ([100], 101)
    assert store.read(held.uid, 1, ALL) == list(write.entries)


def test_an_append_with_a_change_is_made_too(store: SqliteStore, path: Path, author: Author, held: RunRecord) -> None:
    write = author.append(held, Kind.COMPLETED, change=Change(status=Status.COMPLETED, release=True))
    assert store.transact(paying(write)) is None
    record = store.get("run")
    assert record is not None
    assert (record.status, record.worker, cents(path)) == (Status.COMPLETED, None, 101)


def test_a_refused_append_takes_the_rows_back(store: SqliteStore, path: Path, author: Author, held: RunRecord) -> None:
    before = snapshot(store, held.uid)
    stale = Append(held.uid, held.id, held.epoch - 1, "east", author.append(held, Kind.DONE).entries)
    gap = author.append(after(held, author.append(held, Kind.DONE)), Kind.DONE)
    for write in (stale, gap):
        assert isinstance(store.transact(paying(write)), LeaseLost)
    assert cents(path) == 100
    assert snapshot(store, held.uid) == before


def test_an_append_that_was_made_before_is_no_error_and_adds_no_rows(
    store: SqliteStore, path: Path, author: Author, held: RunRecord
) -> None:
    write = author.append(held, Kind.DONE)
    assert store.transact(paying(write)) is None
    assert store.transact(paying(write)) is None
    assert cents(path) == 101
    assert len(store.read(held.uid, 0, ALL)) == 2


def test_a_damaged_run_takes_the_rows_back(store: SqliteStore, path: Path, author: Author, held: RunRecord) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE run SET reason = 'changed'")
        db.commit()
    write = author.append(held, Kind.COMPLETED, change=Change(status=Status.COMPLETED))
    assert isinstance(store.transact(paying(write)), RunDamaged)
    assert cents(path) == 100


@pytest.mark.parametrize(
    "error", [ValueError("theirs"), sqlite3.OperationalError("no such table: theirs"), OSError(28, "full"), Crash()]
)
def test_what_the_function_raises_rolls_back_and_is_raised_as_it_is(
    store: SqliteStore, path: Path, author: Author, held: RunRecord, error: BaseException
) -> None:
    def fail(_: object) -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        store.transact(doing(author.append(held, Kind.DONE), fail))
    assert caught.value is error
    assert cents(path) == 100
    assert store.transact(paying(author.append(held, Kind.DONE))) is None
    assert cents(path) == 101


def test_an_error_of_their_sql_is_theirs(store: SqliteStore, path: Path, author: Author, held: RunRecord) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        store.transact(doing(author.append(held, Kind.DONE), lambda db: db.execute("SELECT * FROM nowhere")))
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        twice = "INSERT INTO account VALUES ('a', 1)"
        store.transact(doing(author.append(held, Kind.DONE), lambda db: db.execute(twice)))
    assert cents(path) == 100


@pytest.mark.parametrize("at", ["before commit", "after commit"])
def test_a_crash_at_the_commit_leaves_both_or_neither(
    store: SqliteStore, path: Path, author: Author, clock: ManualClock, held: RunRecord, at: str
) -> None:
    fuse = Fuse()
    dying = CrashSqliteStore(str(path), fuse, clock=clock)
    fuse.at = len(fuse.points) + ["before commit", "after commit"].index(at)
    write = author.append(held, Kind.DONE)
    with pytest.raises(Crash):
        dying.transact(paying(write))
    assert fuse.points[-1][0] == at
    dying.drop()
    made = at == "after commit"
    assert (cents(path), len(store.read(held.uid, 1, ALL))) == ((101, 1) if made else (100, 0))
    # The next holder either finds the entry, and does not act, or acts for the first time.
    store.beat("east", 0)
    store.beat("west", LEASE)
    again = store.claim(held.uid, "west")
    if again.seq == held.seq:
        assert store.transact(paying(author.append(again, Kind.DONE))) is None
    assert (cents(path), len(store.read(held.uid, 1, ALL))) == (101, 1)


# --- what the function may not do

REFUSED: dict[str, Callable[[sqlite3.Connection], object]] = {
    "commit": lambda db: db.commit(),
    "rollback": lambda db: db.rollback(),
    "close": lambda db: db.close(),
    "with": lambda db: db.__enter__(),
    "executescript": lambda db: db.executescript("SELECT 1"),
    "executescript of a cursor": lambda db: db.cursor().executescript("SELECT 1"),
    "BEGIN": lambda db: db.execute("BEGIN"),
    "COMMIT": lambda db: db.execute("COMMIT"),
    "END": lambda db: db.execute("END"),
    "ROLLBACK": lambda db: db.execute("ROLLBACK"),
    "SAVEPOINT": lambda db: db.execute("SAVEPOINT mine"),
    "RELEASE": lambda db: db.execute("RELEASE mine"),
    "isolation_level": lambda db: setattr(db, "isolation_level", None),
    "authorizer": lambda db: db.set_authorizer(None),
    "blob": lambda db: db.blobopen("entry", "payload", 1),
    "setting": lambda db: db.execute("PRAGMA synchronous = OFF"),
    "schema by hand": lambda db: db.execute("PRAGMA writable_schema = 1"),
    "another file": lambda db: db.execute("ATTACH ':memory:' AS more"),
    "statistics": lambda db: db.execute("ANALYZE"),
    "insert": lambda db: db.execute("INSERT INTO worker VALUES ('me', 1)"),
    "insert in capitals": lambda db: db.execute("INSERT INTO MAIN.WORKER VALUES ('me', 1)"),
    "insert by a cursor": lambda db: db.cursor().executemany("INSERT INTO worker VALUES (?, ?)", [("me", 1)]),
    "update": lambda db: db.execute("UPDATE run SET epoch = epoch + 1"),
    "delete": lambda db: db.execute("DELETE FROM entry"),
    "update after": lambda db: db.execute("WITH x AS (SELECT 1) UPDATE meta SET value = 9"),
    "drop": lambda db: db.execute("DROP TABLE inbox"),
    "drop of an index": lambda db: db.execute("DROP INDEX entry_by_seq"),
    "alter": lambda db: db.execute("ALTER TABLE entry ADD COLUMN more"),
    "rename": lambda db: db.execute("ALTER TABLE entry RENAME TO entries"),
    "index": lambda db: db.execute("CREATE INDEX more ON entry (at)"),
    "trigger": lambda db: db.execute("CREATE TRIGGER t AFTER INSERT ON entry BEGIN DELETE FROM account; END"),
    "a table before ours": lambda db: db.execute("CREATE TEMP TABLE entry (n)"),
    "a view before ours": lambda db: db.execute("CREATE TEMP VIEW run AS SELECT 1"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_the_functions_business_is_refused(
    store: SqliteStore, path: Path, author: Author, held: RunRecord, what: str
) -> None:
    before = snapshot(store, held.uid)
    with pytest.raises(UsageError, match=r"Holdfast|tables of your own"):
        store.transact(doing(author.append(held, Kind.DONE), REFUSED[what]))
    assert (cents(path), snapshot(store, held.uid)) == (100, before)
    put(store, author.append(held, Kind.DONE))


@pytest.mark.parametrize("what", REFUSED)
def test_what_was_refused_does_no_harm_if_the_function_goes_on(
    store: SqliteStore, path: Path, author: Author, held: RunRecord, what: str
) -> None:
    def try_it(db: sqlite3.Connection) -> None:
        with suppress(UsageError, sqlite3.DatabaseError):
            REFUSED[what](db)
        assert db.in_transaction
        db.execute("UPDATE account SET cents = cents + 1")

    write = author.append(held, Kind.DONE)
    assert store.transact(doing(write, try_it)) is None
    assert cents(path) == 102
    assert store.read(held.uid, 1, ALL) == list(write.entries)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM worker").fetchone() == (1,)


def test_a_trigger_of_theirs_that_writes_to_our_tables_is_refused(
    store: SqliteStore, path: Path, author: Author, held: RunRecord
) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TRIGGER t AFTER UPDATE ON account BEGIN DELETE FROM entry; END")
        db.commit()
    with pytest.raises(UsageError, match="the table entry is Holdfast's own"):
        store.transact(paying(author.append(held, Kind.DONE)))
    assert len(store.read(held.uid, 0, ALL)) == 1


@pytest.mark.parametrize("caught", [True, False])
def test_a_conflict_that_rolls_back_leaves_nothing(
    store: SqliteStore, path: Path, author: Author, held: RunRecord, caught: bool
) -> None:
    def collide(db: sqlite3.Connection) -> None:
        try:
            db.execute("INSERT OR ROLLBACK INTO account VALUES ('a', 1)")
        except sqlite3.IntegrityError:
            if not caught:
                raise
        for sql in ("UPDATE account SET cents = cents + 1", "CREATE TABLE more (n)"):
            with suppress(sqlite3.DatabaseError):
                db.execute(sql)

    with pytest.raises(UsageError if caught else sqlite3.IntegrityError):
        store.transact(doing(author.append(held, Kind.DONE), collide))
    assert cents(path) == 100
    assert len(store.read(held.uid, 0, ALL)) == 1
    put(store, author.append(held, Kind.DONE))


@pytest.mark.parametrize("use", ["apply", "claim", "transact", "close", "drop"])
def test_the_store_itself_cannot_be_used_meanwhile(
    store: SqliteStore, path: Path, author: Author, held: RunRecord, use: str
) -> None:
    write = author.append(held, Kind.DONE)
    uses: dict[str, Callable[[Any], object]] = {
        "apply": lambda _: store.apply([write]),
        "claim": lambda _: store.claim(held.uid, "east"),
        "transact": lambda _: store.transact(paying(write)),
        "close": lambda _: store.close(),
        "drop": lambda _: store.drop(),
    }
    with pytest.raises(UsageError, match="a transaction with it is under way"):
        store.transact(doing(write, uses[use]))
    assert cents(path) == 100
    assert store.transact(paying(write)) is None


# --- what it may do


def test_it_may_read_everything_and_make_tables_of_its_own(
    store: SqliteStore, path: Path, author: Author, held: RunRecord
) -> None:
    read: list[object] = []

    def work(db: sqlite3.Connection) -> None:
        read.extend(db.execute("SELECT id, epoch FROM run").fetchall())
        db.execute("CREATE TABLE log (n INTEGER PRIMARY KEY, text TEXT)")
        db.execute("CREATE INDEX log_by_text ON log (text)")
        db.execute("CREATE TRIGGER logged AFTER INSERT ON log BEGIN UPDATE account SET cents = cents + 10; END")
        db.execute("ALTER TABLE log ADD COLUMN more")
        db.execute("ALTER TABLE log RENAME TO logs")
        db.executemany("INSERT INTO logs (text) VALUES (?)", [("x",), ("y",)])
        db.execute("CREATE TABLE passing (n)")
        db.execute("DROP TABLE passing")
        read.append([row[1] for row in db.execute("PRAGMA table_info(logs)")])

    assert store.transact(doing(author.append(held, Kind.DONE), work)) is None
    assert read == [("run", 1), ["n", "text", "more"]]
    assert cents(path) == 121


def test_nothing_of_it_stays_with_the_connection(
    store: SqliteStore, path: Path, author: Author, held: RunRecord
) -> None:
    """Neither settings, nor a cursor that is half read: with that one, what others write could not be built upon."""
    kept: list[sqlite3.Cursor] = []

    def work(db: sqlite3.Connection) -> None:
        db.row_factory = sqlite3.Row
        db.text_factory = bytes
        db.execute("INSERT INTO account VALUES ('b', 1), ('c', 1)")
        for cursor in (db.execute("SELECT name FROM account"), db.cursor()):
            kept.append(cursor)
        kept[0].fetchone()
        kept[1].execute("SELECT name FROM account").fetchone()

    write = author.append(held, Kind.DONE)
    assert store.transact(doing(write, work)) is None
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE account SET cents = 0")
        db.commit()
    held = after(held, write)
    put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
    assert store.claim(held.uid, "east").epoch == held.epoch + 1
    with pytest.raises(sqlite3.ProgrammingError):
        kept[0].fetchone()
