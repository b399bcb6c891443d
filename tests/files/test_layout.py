"""What lies on the disk: a person can read it, ids never meet or leave the root, and payloads stay as they were."""

import json
import os
import unicodedata
from pathlib import Path

import pytest

from holdfast.codec import redaction
from holdfast.errors import InvalidId, RunDamaged, StoreDamaged, StoreError, StoreTooNew
from holdfast.kernel.journal import payload_digest, verify
from holdfast.kernel.model import Change, Filter, Item, Post, Status
from holdfast.stores.files.store import FilesStore
from holdfast.stores.protocol import write_one
from holdfast.testing.contract_author import delete


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_person_can_read_a_run(driver, root):
    run = driver.claim(driver.create("Order A/17", b'{"order":"A-17"}'))
    run = driver.append(run, b'{"receipt":"r-1"}')
    write_one(driver.store, Post(run.uid, Item("q1", "answer", 5, b'{"carrier":"post"}')))
    folder = only(root / "runs")
    assert folder.name.startswith("order-a-17-")
    record = json.loads((folder / "run.json").read_text())["record"]
    assert (record["id"], record["status"], record["worker"]) == ("Order A/17", "running", "w1")
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    assert [entry["data"] for line in lines for entry in line["entries"]] == [{"order": "A-17"}, {"receipt": "r-1"}]
    assert lines[1]["entries"][0]["hash"] == run.hash.hex()
    assert (lines[1]["epoch"], lines[1]["worker"]) == (1, "w1")
    items = [path for path in (folder / "inbox").iterdir() if path.is_file()]
    assert json.loads(items[0].read_text())["data"] == {"carrier": "post"}
    assert json.loads((root / "holdfast.json").read_text())["format"] == "holdfast files"


STRANGE = [
    "../../etc", "..", ".", "/", "a/b", "a.b", "a_b", "A/B", "a\0b", "CON", "con", "nul.txt", "run.json", "x" * 512,
    "😀" * 512, "é", unicodedata.normalize("NFD", "é"), "\n", " ", ".new-x", ".gone-x", "K", "\u212a", "-", "--",
]  # fmt: skip


def test_ids_never_meet_and_never_leave_the_root(driver, root):
    before = set(root.parent.iterdir())
    made = {id: driver.create(id) for id in STRANGE}
    assert len(list((root / "runs").iterdir())) == len(STRANGE)
    assert set(root.parent.iterdir()) == before
    for folder in (root / "runs").iterdir():
        assert set(folder.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        assert len(folder.name) <= 73
    again = FilesStore(str(root))
    assert {id: again.get(id) for id in STRANGE} == made
    assert {record.id for record in again.find(Filter(), limit=100)} == set(STRANGE)
    for record in made.values():
        assert delete(driver.store, record.uid)
    assert list((root / "runs").iterdir()) == []


def test_an_id_that_cannot_be_kept_is_refused(driver):
    for id in ("", "x" * 513, "\ud800"):
        with pytest.raises(InvalidId):
            driver.store.get(id)


def test_a_folder_that_holds_another_run_is_noticed(driver, root):
    driver.create("a")
    other = only(root / "runs")
    driver.create("b")
    (folder,) = set((root / "runs").iterdir()) - {other}
    for name in ("run.json", "journal.jsonl"):
        (folder / name).write_bytes((other / name).read_bytes())
    with pytest.raises(RunDamaged, match="holds the run 'a'"):
        driver.store.get("b")


PAYLOADS = [
    b"{}", b"null", b"1", b'"x"', b"[1, 2 ,3]", b'{"a" : 1 }', b"", b" ", b" 1", b"1 ", b"1\n", b"\n", b'{"a":\n1}',
    b"\r1", b"\x00" + b"d" * 32, b"\x01zip", b"\x02secret", bytes(range(256)), b"\xff\xfe", b'"\xff"', b"01", b"nul",
    b'"\xed\xa0\x80"', b"1 2", b"1],[2", b'1},{"x":2', b'"a\\u0000b"', '"é😀\u2028"'.encode(), b"1e400", b"-0.0",
    b"[" * 150 + b"]" * 150, b"[" * 50_000 + b"]" * 50_000, b'","sum":"0123456789abcdef"}', b'{"a":1,"a":2}',
    b"123456789012345678901234567890", b"\xef\xbb\xbf{}",
]  # fmt: skip


def test_payloads_come_back_byte_for_byte(driver, root):
    run = driver.claim(driver.create("bytes", PAYLOADS[1]))
    for payload in PAYLOADS:
        run = driver.append(run, payload)
    run = driver.append(run, *PAYLOADS)
    run = driver.append(run, *(b'"%s"' % (b"x" * n) for n in (4_000, 70_000, 300_000)))
    for n, payload in enumerate(PAYLOADS):
        write_one(driver.store, Post(run.uid, Item(f"k{n}", "message", n, payload, wakes=bool(n % 2))))
    again = FilesStore(str(root))
    entries = again.read(run.uid, 0, 10**9)
    verify("bytes", entries)
    assert [entry.payload for entry in entries[1 : 2 * len(PAYLOADS) + 1]] == [*PAYLOADS, *PAYLOADS]
    assert [item.payload for item in again.inbox(run.uid)] == PAYLOADS
    assert [item.wakes for item in again.inbox(run.uid)] == [bool(n % 2) for n in range(len(PAYLOADS))]
    for line in (only(root / "runs") / "journal.jsonl").read_bytes().splitlines():
        if b"[" * 1000 not in line:
            json.loads(line)  # every line is JSON for others too


def test_a_taken_item_leaves_its_key_and_no_more(driver, root):
    run = driver.claim(driver.create("run"))
    write_one(driver.store, Post(run.uid, Item("k", "message", 1, b'"a secret"')))
    driver.append(run, b'"took"', took=("k",))
    assert [one.key for one in driver.store.inbox(run.uid, taken=True)] == ["k"]
    assert not write_one(driver.store, Post(run.uid, Item("k", "message", 1, b'"again"')))
    texts = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    assert not any(b"a secret" in text for text in texts)


def test_an_erased_payload_is_nowhere_on_the_disk(driver, root):
    run = driver.append(driver.claim(driver.create("run")), b'"a secret"')
    before = driver.store.read(run.uid, 0, 9)
    gone = redaction(payload_digest(before[1].payload))
    driver.append(run, b'"erased"', redact=((1, gone),))
    after = driver.store.read(run.uid, 0, 9)
    verify("run", after)
    assert (after[0], after[1].payload, after[1].hash) == (before[0], gone, before[1].hash)
    texts = [path.read_bytes() for path in root.rglob("*") if path.is_file()]
    assert not any(b"a secret" in text for text in texts)


def test_a_kilobyte_costs_little_more(driver, root):
    run = driver.claim(driver.create("size"))
    run = driver.append(run, b'"first"')
    journal = only(root / "runs") / "journal.jsonl"
    before = journal.stat().st_size
    for _ in range(100):
        run = driver.append(run, b'{"ops":[["append","log","%s"]]}' % (b"x" * 1024), kind="saved")
    assert (journal.stat().st_size - before) / 100 < 1.3 * 1024


def test_a_folder_of_something_else_is_left_alone(root):
    root.mkdir()
    (root / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match="belongs to something else"):
        FilesStore(str(root))
    assert os.listdir(root) == ["thesis.txt"]
    file = root / "thesis.txt"
    with pytest.raises(StoreError, match="it is a file"):
        FilesStore(str(file))
    (root / "thesis.txt").unlink()
    (root / "runs").mkdir()
    (root / "runs" / "mine").mkdir()
    with pytest.raises(StoreError, match="belongs to something else"):
        FilesStore(str(root))
    (root / "runs" / "mine").rmdir()
    FilesStore(str(root)).close()


def test_a_newer_or_damaged_format_is_refused(root):
    FilesStore(str(root)).close()
    about = root / "holdfast.json"
    for field in ("oldest_reader", "oldest_writer"):
        about.write_text(json.dumps({"format": "holdfast files", "oldest_reader": 1, "oldest_writer": 1, field: 2}))
        with pytest.raises(StoreTooNew, match="upgrade"):
            FilesStore(str(root))
    about.write_text('{"format": "holdf')
    with pytest.raises(StoreDamaged, match=r"holdfast\.json"):
        FilesStore(str(root))
    about.write_text(json.dumps({"format": "other", "oldest_reader": 1, "oldest_writer": 1}))
    with pytest.raises(StoreError, match="something else"):
        FilesStore(str(root))


def test_forks_share_until_the_last_one_goes(driver, root):
    run = driver.claim(driver.create("a"))
    run = driver.append(run, b"1", b"2", b"3")
    run = driver.append(run, b"4", change=Change(status=Status.COMPLETED, release=True))
    child = driver.fork(run, 2, "b")
    grandchild = driver.fork(child, 3, "c")
    assert delete(driver.store, run.uid)
    assert delete(driver.store, child.uid)
    assert (driver.store.get("a"), driver.store.get("b")) == (None, None)
    fresh = FilesStore(str(root))
    assert [entry.payload for entry in fresh.read(run.uid, 0, 9)] == [b"{}", b"1", b"2", b"3", b"4"]
    assert fresh.get(uid=child.uid).hidden
    again = driver.create("a")  # the id is free
    assert fresh.get("a") == again
    assert fresh.get(uid=run.uid).hidden
    assert delete(driver.store, grandchild.uid)
    assert not delete(driver.store, grandchild.uid)
    assert os.listdir(root / "hidden") == []
    assert fresh.get(uid=run.uid) is None
    assert fresh.get("a") == again


def test_a_lost_cause_fork_does_not_keep_its_parent(driver, root):
    run = driver.create("a")
    folder = only(root / "runs")
    (folder / "forks").mkdir()
    (folder / "forks" / "0123456789abcdef01234567").write_text("never came to be")
    assert delete(driver.store, run.uid)
    assert os.listdir(root / "hidden") == []


def test_a_damaged_run_is_listed_and_hides_no_other(driver, root):
    runs = [driver.create(id) for id in ("a", "b", "c")]
    broken = next(folder for folder in (root / "runs").iterdir() if folder.name.startswith("b-"))
    text = (broken / "run.json").read_bytes()
    (broken / "run.json").write_bytes(text.replace(b'"ready"', b'"reedy"'))
    fresh = FilesStore(str(root))
    found = {record.id: record for record in fresh.find(Filter())}
    assert set(found) == {"a", "b", "c"}
    assert (found["b"].status, found["b"].uid) == (Status.BLOCKED, runs[1].uid)
    assert "run.json" in found["b"].reason
    assert [record.id for record in fresh.find(Filter(statuses=(Status.BLOCKED,)))] == ["b"]
    with pytest.raises(RunDamaged, match="backup"):
        fresh.get("b")
    with pytest.raises(RunDamaged):
        fresh.claim(runs[1].uid, "w")
    assert isinstance(fresh.apply([driver.next(runs[1], b"1")])[0], RunDamaged)
    (broken / "run.json").unlink()
    assert {record.status for record in fresh.find(Filter())} == {Status.READY, Status.BLOCKED}
    assert fresh.find(Filter(orphaned=True)) == []


def test_listing_is_newest_first_in_pages(driver):
    made = [driver.create(f"r{n}").uid for n in range(7)]
    first = driver.store.find(Filter(), limit=3)
    second = driver.store.find(Filter(), before=first[-1].uid, limit=10)
    assert [record.uid for record in first + second] == sorted(made, reverse=True)
