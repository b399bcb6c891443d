"""An index of a SQLite file is damaged, and its table is sound: what the index lacks is not taken for missing."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, ask, step, workflow
from holdfast.errors import Claimed, RunDamaged, StoreDamaged, TimedOut
from holdfast.stores.sqlite.connect import connect_to_read
from holdfast.stores.sqlite.damage import examine
from holdfast.stores.sqlite.statements import Q

EXECUTED: list[str] = []


@step
def weigh(what: str) -> str:
    EXECUTED.append(what)
    return what


@workflow
def parcel(what: str) -> str:
    weigh(what)
    return f"{what}: {ask('Send it?', bool)}"


class Indexed:
    """A store with a run, and its indexes, to be damaged while it is closed."""

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, f"sqlite:///{path}"
        EXECUTED.clear()
        with holdfast.open(self.url) as hf, suppress(TimedOut):
            hf.start(parcel, "book", id="needle").result(timeout=0)

    def page(self, index: str) -> slice:
        """Where the only page of an index or a table is."""
        with closing(sqlite3.connect(self.path)) as db:
            [(root,)] = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,))
            [(size,)] = db.execute("PRAGMA page_size")
        return slice((root - 1) * size, root * size)

    def overwrite(self, index: str, old: bytes) -> None:
        """Flip a bit of a key on the page of an index."""
        whole, page = bytearray(self.path.read_bytes()), self.page(index)
        assert whole[page].count(old) == 1, (index, whole[page].count(old))
        place = whole.index(old, page.start) + len(old) - 1
        whole[place] ^= 1
        self.path.write_bytes(bytes(whole))

    def cut(self, index: str) -> None:
        """Make the page of an index say that it has one cell less: its last one."""
        whole, page = bytearray(self.path.read_bytes()), self.page(index)
        cells = int.from_bytes(whole[page.start + 3 : page.start + 5])
        whole[page.start + 3 : page.start + 5] = (cells - 1).to_bytes(2)
        self.path.write_bytes(bytes(whole))

    def examined(self) -> list[str]:
        with closing(connect_to_read(str(self.path), sqlite3.Connection)) as db:
            return list(examine(db, Q, self.url))


@pytest.fixture
def indexed(memdir: Path) -> Indexed:
    return Indexed(memdir / "runs.db")


def uid_of(indexed: Indexed) -> str:
    with holdfast.open(indexed.url) as hf:
        return hf.get("needle").uid


def answer_in_inbox(hf: Holdfast) -> str:
    """Answer the question while somebody holds the run, so that the answer waits in the inbox; the uid of the run."""
    uid = hf.get("needle").uid
    hf.client.store.claim(uid, "holder")
    hf.get("needle").answer(True)
    return uid


def test_a_run_that_the_index_of_ids_lacks_is_not_made_again(indexed: Indexed) -> None:
    indexed.overwrite("run_by_id", b"needle")
    with holdfast.open(indexed.url) as hf:
        for call in (
            lambda: hf.get("needle"),
            lambda: hf.start(parcel, "book", id="needle"),
            lambda: hf.enqueue(parcel, "book", id="needle"),
            lambda: hf.run("needle"),
        ):
            with pytest.raises(StoreDamaged, match=r"'needle'.*doctor"):
                call()
    assert EXECUTED == ["book"]
    assert any("run_by_id" in text for text in indexed.examined())


def test_a_run_is_not_made_again_inside_of_a_transaction_of_the_user(indexed: Indexed) -> None:
    indexed.overwrite("run_by_id", b"needle")
    with holdfast.open(indexed.url) as hf, closing(sqlite3.connect(indexed.path)) as db:
        db.execute("BEGIN")
        with pytest.raises(StoreDamaged, match="'needle'"):
            hf.enqueue(parcel, "book", id="needle", within=db)


def test_damage_to_the_second_index_alone_harms_nothing_and_is_found(indexed: Indexed) -> None:
    indexed.overwrite("run_by_any_id", b"needle")
    with holdfast.open(indexed.url) as hf:
        assert hf.get("needle").info().id == "needle"
        with pytest.raises(holdfast.RunNotFound):
            hf.get("another")
    assert any("run_by_any_id" in text for text in indexed.examined())


def test_a_run_that_the_index_of_uids_lacks_is_not_gone(indexed: Indexed) -> None:
    uid = uid_of(indexed)
    indexed.overwrite("sqlite_autoindex_run_1", uid.encode())
    with holdfast.open(indexed.url) as hf:
        for call in (
            lambda: hf.client.store.get(uid=uid),
            lambda: hf.client.store.read(uid, 0, 9),
            lambda: hf.client.store.inbox(uid),
            lambda: hf.client.store.claim(uid, "tester"),
            lambda: hf.get("needle").checkpoint(),
            lambda: hf.get("needle").answer(True),
        ):
            with pytest.raises(StoreDamaged, match=uid):
                call()


@pytest.mark.parametrize("index", ["inbox_by_key", "inbox_again"])
@pytest.mark.parametrize("how", ["overwrite", "cut"])
def test_an_answered_question_is_not_open_again(indexed: Indexed, index: str, how: str) -> None:
    with holdfast.open(indexed.url) as hf:
        [item] = hf.client.store.inbox(answer_in_inbox(hf))
    indexed.overwrite(index, item.key.encode()) if how == "overwrite" else indexed.cut(index)
    with holdfast.open(indexed.url) as hf:
        if how == "cut" or index == "inbox_again":
            with pytest.raises(RunDamaged, match="inbox"):
                hf.get("needle").questions()
        with pytest.raises((RunDamaged, holdfast.errors.QuestionClosed)):
            hf.get("needle").answer(False)
    assert any(index in text for text in indexed.examined())


def test_an_item_that_is_marked_as_taken_by_damage_is_missed(indexed: Indexed) -> None:
    with holdfast.open(indexed.url) as hf:
        answer_in_inbox(hf)
    with closing(sqlite3.connect(indexed.path)) as db, db:
        marked = db.execute("UPDATE inbox SET taken = 1")  # as one bit of its row does, and as no index says
        assert marked.rowcount == 1
    with holdfast.open(indexed.url) as hf, pytest.raises(RunDamaged, match="inbox item"):
        [one.key for one in hf.client.store.inbox(hf.get("needle").uid, taken=True)]
    assert any("inbox item" in text for text in indexed.examined())


@pytest.mark.parametrize("index", ["document", "document_by_name"])
@pytest.mark.parametrize("how", ["overwrite", "cut"])
def test_limits_and_schedules_are_not_forgotten(indexed: Indexed, index: str, how: str) -> None:
    with holdfast.open(indexed.url) as hf:
        hf.queue("north", limit=1)
        hf.queue("south", limit=1)
    indexed.overwrite(index, b"south") if how == "overwrite" else indexed.cut(index)
    with holdfast.open(indexed.url) as hf:
        if how == "cut" or index == "document":
            with pytest.raises(StoreDamaged, match="queue"):
                hf.queues()
        if index == "document":
            with pytest.raises(StoreDamaged, match="'south'"):
                hf.queue("south", limit=2)
    assert indexed.examined()


def test_a_journal_that_an_index_cuts_short_is_damaged(indexed: Indexed) -> None:
    """Else its last step would be executed again."""
    indexed.cut("entry_by_seq")
    with holdfast.open(indexed.url) as hf:
        for call in (lambda: hf.get("needle"), lambda: hf.start(parcel, "book", id="needle")):
            with pytest.raises(RunDamaged, match="ends at 1, before 2"):
                call()
        assert [info.status for info in hf.runs()] == ["blocked"]
    assert EXECUTED == ["book"]


def test_the_last_steps_of_a_dead_holder_are_not_lost_with_an_index(indexed: Indexed) -> None:
    hf = holdfast.open(indexed.url)
    run = hf.run("last")
    run.claim()
    for n in range(3):
        run.once(f"step {n}", str, n)
    hf.client.store.drop()  # killed: its last steps are in no other row
    with closing(sqlite3.connect(indexed.path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    indexed.cut("entry_by_seq")
    indexed.path.with_name("runs.db.locks").joinpath("open").write_bytes(b"")  # nor is the file looked at when opened
    with holdfast.open(indexed.url) as hf, pytest.raises(RunDamaged, match="does not have its entry 3"):
        hf.get("last").once("step 2", EXECUTED.append, "again")
    assert EXECUTED == ["book"]


def test_a_worker_whose_row_is_damaged_keeps_its_runs_while_it_lives(indexed: Indexed) -> None:
    with holdfast.open(indexed.url) as hf, holdfast.open(indexed.url) as other:
        run = hf.run("held")
        run.claim()
        with closing(sqlite3.connect(indexed.path)) as db, db:
            assert db.execute("UPDATE worker SET until = 7").rowcount == 1
        with pytest.raises(Claimed):
            other.get("held").claim()
        with pytest.raises(StoreDamaged, match="worker"):
            other.client.store.workers()
        run.release()


# --- whoever opens a store that was not closed


def test_an_index_that_is_damaged_is_found_after_an_unclean_end(indexed: Indexed) -> None:
    """Also of an index that lists are read by, which nobody else would notice; each time, until it is repaired."""
    hf = holdfast.open(indexed.url)
    hf.client.store.drop()
    whole = indexed.path.read_bytes()
    indexed.cut("run_by_status")
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"not closed.*run_by_status.*doctor"):
            holdfast.open(indexed.url)
    indexed.path.write_bytes(whole)
    holdfast.open(indexed.url).close()


def test_a_log_that_was_left_is_an_unclean_end(indexed: Indexed) -> None:
    hf = holdfast.open(indexed.url)
    hf.run("new")
    parts = {path.name: path.read_bytes() for path in indexed.path.parent.glob("runs.db*") if path.is_file()}
    hf.close()
    indexed.cut("run_by_status")
    indexed.path.with_name("runs.db-wal").write_bytes(parts["runs.db-wal"][:100])
    with pytest.raises(StoreDamaged, match="not closed"):
        holdfast.open(indexed.url)


def test_a_store_that_was_closed_is_not_looked_through(indexed: Indexed) -> None:
    """So opening one takes as long as ever; the promise ends here, and `doctor` goes further."""
    indexed.cut("run_by_status")
    with holdfast.open(indexed.url) as hf, holdfast.open(indexed.url):
        assert [info.id for info in hf.runs()] == ["needle"]
        assert hf.runs(status="waiting").items == ()
    assert any("run_by_status" in text for text in indexed.examined())


def test_while_others_have_it_open_it_is_not_unclean(indexed: Indexed) -> None:
    with holdfast.open(indexed.url) as hf:
        hf.run("new")
        indexed.cut("run_by_status")
        holdfast.open(indexed.url).close()


# --- what doctor compares


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("DELETE FROM run_tag", "tags of runs"),
        ("INSERT INTO run_tag VALUES ('team', 'red', 'nobody')", "belong to no run"),
        ("DELETE FROM link", "forks"),
        ("INSERT INTO link VALUES (99, 98)", "name no run"),
        ("UPDATE entry SET run = 99 WHERE n = (SELECT max(n) FROM entry)", "entries belong to no run"),
        ("UPDATE inbox SET run = 99", "items of inboxes"),
        ("UPDATE document SET version = 7", "the queue 'north' is damaged"),
        ("UPDATE worker SET until = 7", "the worker"),
        ("UPDATE run SET epoch = 7", "its record"),
    ],
)
def test_doctor_compares_the_tables(indexed: Indexed, statement: str, told: str) -> None:
    hf = holdfast.open(indexed.url)
    hf.get("needle").answer(True)
    hf.run("tagged", tags={"team": "red"}).fork(id="fork").save({})
    hf.queue("north", limit=1)
    hf.client.store.drop()
    assert indexed.examined() == []
    with closing(sqlite3.connect(indexed.path)) as db, db:
        assert db.execute(statement).rowcount > 0
    assert any(told in text for text in indexed.examined()), indexed.examined()
