"""The end of a journal after a crash, damage anywhere in it, and how much of it is read."""

import os
import random
from pathlib import Path

import pytest

from holdfast.errors import RunDamaged
from holdfast.kernel.journal import verify
from holdfast.kernel.model import Item, Post, Status
from holdfast.stores.files import journal as files_journal
from holdfast.stores.files.store import FilesStore
from holdfast.stores.protocol import write_one


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


@pytest.fixture
def five(driver, root):
    """A run of five steps, its journal's path and where each line of it ends."""
    run = driver.claim(driver.create("run"))
    ends = []
    journal = only(root / "runs") / "journal.jsonl"
    for n in range(5):
        run = driver.append(run, b'{"step":%d}' % n)
        ends.append(journal.stat().st_size)
    return run, journal, ends


def test_a_torn_line_of_every_length(driver, root, five):
    run, journal, ends = five
    whole = journal.read_bytes()
    for cut in range(ends[3], ends[4] + 1):
        journal.write_bytes(whole[:cut])
        kept = 5 if cut >= ends[4] - 1 else 4  # without its newline alone the line is whole
        fresh = FilesStore(str(root))
        record = fresh.get(uid=run.uid)
        assert record.seq == kept
        entries = fresh.read(run.uid, 0, 99)
        verify("run", entries)
        assert len(entries) == kept + 1
        assert journal.stat().st_size == cut, "readers repair nothing"
        after = type(driver)(fresh).append(record, b'"next"')
        assert after.seq == kept + 1
        assert journal.read_bytes().startswith(whole[: ends[kept - 1]])
        assert [entry.payload for entry in FilesStore(str(root)).read(run.uid, kept + 1, 99)] == [b'"next"']


@pytest.mark.parametrize("zeros", [1, 7, 4095, 4096, 4097, 70_000])
@pytest.mark.parametrize("text", [b"", b'{"epoch":1,"wor'])
def test_zeros_at_the_end_were_never_text(driver, root, five, zeros, text):
    run, journal, _ = five
    whole = journal.read_bytes()
    journal.write_bytes(whole + text + b"\0" * zeros)
    fresh = FilesStore(str(root))
    assert fresh.get(uid=run.uid).seq == 5
    assert len(fresh.read(run.uid, 0, 99)) == 6
    type(driver)(fresh).append(run, b'"next"')
    assert journal.read_bytes().startswith(whole + b'{"epoch"')


def test_a_hole_in_the_last_line_was_never_text(driver, root, five):
    run, journal, ends = five
    whole = journal.read_bytes()
    for lo, hi in ((ends[3], ends[4] - 20), (ends[3] + 10, ends[4] - 30)):
        journal.write_bytes(whole[:lo] + b"\0" * (hi - lo) + whole[hi:])
        assert FilesStore(str(root)).get(uid=run.uid).seq == 4
    lo, hi = ends[2], ends[3] - 20
    journal.write_bytes(whole[:lo] + b"\0" * (hi - lo) + whole[hi:])
    with pytest.raises(RunDamaged, match=r"journal\.jsonl: byte"):
        FilesStore(str(root)).read(run.uid, 0, 99)


def test_a_line_that_takes_the_place_of_a_torn_one_is_seen(driver, root, five):
    run, journal, _ = five
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"x" * 10)
    reader = FilesStore(str(root))
    assert reader.get(uid=run.uid).seq == 5
    journal.write_bytes(whole)
    driver.append(run, b'"next"')
    length = journal.stat().st_size - len(whole)
    line = journal.read_bytes()[-length:]
    journal.write_bytes(whole + b"x" * length)
    assert reader.get(uid=run.uid).seq == 5
    with journal.open("r+b") as file:
        file.seek(len(whole))
        file.write(line)
    assert reader.get(uid=run.uid).seq == 6


def test_an_unfinished_founding_line_is_damage(driver, root):
    run = driver.create("run")
    journal = only(root / "runs") / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-10])
    with pytest.raises(RunDamaged, match="cut short"):
        FilesStore(str(root)).get(uid=run.uid)


def test_a_journal_shorter_than_the_record_says_is_damage(driver, root, five):
    run, journal, ends = five
    write_one(driver.store, Post(run.uid, Item("k", "message", 1, b"1")))  # replaces run.json, which then names entry 5
    journal.write_bytes(journal.read_bytes()[: ends[3]])
    with pytest.raises(RunDamaged, match="ends at entry 4, not at 5"):
        FilesStore(str(root)).get(uid=run.uid)
    with pytest.raises(RunDamaged):
        driver.store.claim(run.uid, "w2")


def test_missing_lines_are_damage(driver, root, five):
    run, journal, ends = five
    whole = journal.read_bytes()
    journal.write_bytes(whole[: ends[1]] + whole[ends[2] :])
    fresh = FilesStore(str(root))
    with pytest.raises(RunDamaged, match="entry 3 should be here"):
        fresh.read(run.uid, 0, 99)
    with pytest.raises(RunDamaged):
        fresh.read(run.uid, 3, 3)
    assert [entry.seq for entry in fresh.read(run.uid, 5, 5)] == [5]
    journal.write_bytes(whole[ends[0] :])
    with pytest.raises(RunDamaged):
        FilesStore(str(root)).read(run.uid, 0, 99)


def look(root: Path, uid: str) -> tuple[list[tuple[int, bytes]], object, list[Item], list[str]]:
    """All that can be seen of a run."""
    store = FilesStore(str(root))
    entries = store.read(uid, 0, 99)
    verify("run", entries)
    return (
        [(entry.seq, entry.payload) for entry in entries],
        store.get("run"),
        store.inbox(uid),
        [one.key for one in store.inbox(uid, taken=True)],
    )


@pytest.mark.parametrize("name", ["journal.jsonl", "run.json"])
def test_a_flipped_bit_is_an_error_or_a_true_prefix(driver, root, five, name):
    run, journal, _ = five
    write_one(driver.store, Post(run.uid, Item("k", "message", 1, b"1")))
    write_one(driver.store, Post(run.uid, Item("k2", "message", 1, b"2")))
    driver.append(run, b'"took"', took=("k",))
    run = driver.append(driver.store.get(uid=run.uid), b'"more"')
    truth = look(root, run.uid)
    path = journal.parent / name
    whole = path.read_bytes()
    chosen = range(len(whole) * 8) if name == "run.json" else random.Random(7).sample(range(len(whole) * 8), 3000)
    prefixes = 0
    for bit in chosen:
        path.write_bytes(whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :])
        try:
            entries, record, items, taken = look(root, run.uid)
        except RunDamaged:
            continue
        assert entries == truth[0][: len(entries)]
        assert (items, taken) == truth[2:]
        assert record.seq == entries[-1][0]
        prefixes += 1
    assert prefixes == 0  # nothing that was acknowledged goes unnoticed either


def test_damage_in_an_inbox_item_is_noticed(driver, root):
    run = driver.create("run")
    write_one(driver.store, Post(run.uid, Item("k", "message", 1, b'"hello"')))
    item = only(only(root / "runs") / "inbox")
    item.write_bytes(item.read_bytes().replace(b"hello", b"hallo"))
    with pytest.raises(RunDamaged, match="inbox"):
        driver.store.inbox(run.uid)


@pytest.fixture
def read_bytes(monkeypatch):
    """How many bytes of journals were read so far."""
    count = [0]

    def counted(fd: int, size: int, at: int) -> bytes:
        data = os.pread(fd, size, at)
        count[0] += len(data)
        return data

    monkeypatch.setattr(files_journal, "read_block", counted)
    return count


def test_reading_the_newest_does_not_read_all(driver, root, read_bytes):
    run = driver.claim(driver.create("run"))
    for _ in range(20):
        run = driver.append(run, *(b'"%s"' % (b"x" * 1000) for _ in range(50)))
    for n in range(5):
        run = driver.append(run, b"%d" % n)
    size = (only(root / "runs") / "journal.jsonl").stat().st_size
    assert size > 1_000_000
    fresh = FilesStore(str(root))
    read_bytes[0] = 0
    assert fresh.get("run").seq == run.seq
    assert read_bytes[0] < 10_000
    read_bytes[0] = 0
    assert [entry.payload for entry in fresh.read(run.uid, run.seq - 4, run.seq)] == [b"0", b"1", b"2", b"3", b"4"]
    assert read_bytes[0] < 300_000
    read_bytes[0] = 0
    assert len(fresh.read(run.uid, 0, 10**9, limit=3)) == 3
    assert read_bytes[0] < 200_000


def test_paging_through_reads_each_part_about_once(driver, root, read_bytes):
    run = driver.claim(driver.create("run"))
    for _ in range(4000):
        write = driver.next(run, b'"%s"' % (b"x" * 300))
        assert driver.store.apply([write]) == [None]
        run = type(run)(
            **{f: getattr(run, f) for f in run.__struct_fields__} | {"seq": run.seq + 1, "hash": write.entries[0].hash}
        )
    size = (only(root / "runs") / "journal.jsonl").stat().st_size
    fresh = FilesStore(str(root))
    fresh.get("run")
    read_bytes[0] = 0
    pages = [fresh.read(run.uid, lo, lo + 99) for lo in range(0, 4001, 100)]
    assert [entry.seq for page in pages for entry in page] == list(range(4001))
    verify("run", [entry for page in pages for entry in page])
    assert read_bytes[0] < 10 * size


def test_every_range_is_the_same_from_both_sides(driver, root):
    run = driver.claim(driver.create("run"))
    rng = random.Random(3)
    while run.seq < 60:
        kind = rng.choice(["saved", "done"])
        run = driver.append(run, *(b"%d" % rng.randrange(10**6) for _ in range(rng.randrange(1, 5))), kind=kind)
    fresh = FilesStore(str(root))
    entries = fresh.read(run.uid, 0, 10**9)
    verify("run", entries)
    for _ in range(500):
        lo, hi = rng.randrange(-3, 64), rng.randrange(-3, 70)
        saved, payloads, limit = rng.choice([None, True, False]), rng.random() < 0.7, rng.choice([None, 0, 1, 5])
        expected = [e for e in entries if lo <= e.seq <= hi and (saved is None or (e.kind == "saved") is saved)][:limit]
        found = fresh.read(run.uid, lo, hi, saved=saved, payloads=payloads, limit=limit)
        assert [(e.seq, e.prev, e.hash) for e in found] == [(e.seq, e.prev, e.hash) for e in expected]
        assert [e.payload for e in found] == [e.payload if payloads else b"" for e in expected]


def test_a_run_that_ends_in_a_change_can_be_read_before_it_is_finished(driver, root, five):
    from holdfast.kernel.model import Change

    run, journal, _ = five
    before = (journal.parent / "run.json").read_bytes()
    driver.append(run, b'"bye"', change=Change(status=Status.COMPLETED, release=True))
    (journal.parent / "run.json").write_bytes(before)
    record = FilesStore(str(root)).get("run")
    assert (record.status, record.worker, record.seq) == (Status.COMPLETED, None, 6)
