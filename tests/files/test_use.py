"""Syncs, full and failing disks, forked processes, several processes and threads, and the same answers as in memory."""

import errno
import fcntl
import multiprocessing
import os
import random
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.codec import redaction
from holdfast.errors import Claimed, HoldfastError, LeaseLost, RunExists, StoreFull, StoreReadOnly, StoreUnusable
from holdfast.kernel.clock import SystemClock
from holdfast.kernel.journal import payload_digest, verify
from holdfast.kernel.model import Adopt, Append, Change, Create, Filter, Item, Post, Rewrap, Status
from holdfast.stores.files import folder as run_folder
from holdfast.stores.files.disk import Disk, File
from holdfast.stores.files.store import FilesStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.protocol import write_one


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_a_step_is_one_write_and_one_sync(root, drive, counting):
    disk = counting()
    driver = drive(FilesStore(str(root), disk=disk)).enlist()
    run = driver.append(driver.claim(driver.create("run")), b"0")
    for n in range(3):
        disk.calls.clear()
        run = driver.append(run, b"%d" % n)
        assert disk.calls == ["open", "write", "fsync", "close"]
    disk.calls.clear()
    driver.append(run, b"1", change=Change(status=Status.WAITING, release=True))
    assert disk.calls.count("fsync") == 2
    assert disk.calls[2:3] == ["fsync"], "the line is lasting before run.json is touched"
    assert disk.calls[-2:] == ["replace", "fsync_folder"]
    driver.store.close()


def test_the_bell_is_rung_without_a_disk_that_is_watched(root, drive, counting):
    disk = counting()
    driver = drive(FilesStore(str(root), disk=disk)).enlist()
    run = driver.append(driver.claim(driver.create("run")), b"0")
    other = FilesStore(str(root))
    for _ in range(20):  # in a row: the stamps of the system would be the same
        before = other.version()
        disk.calls.clear()
        run = driver.append(run, b"1")
        assert disk.calls == ["open", "write", "fsync", "close"]
        assert other.version() != before
    (root / "bell").unlink()
    before = other.version()
    driver.append(run, b"2")
    assert other.version() != before
    driver.store.close()


def test_a_bell_that_cannot_be_rung_fails_no_write(driver, root, monkeypatch):
    run = driver.claim(driver.create("run"))
    (root / "bell").unlink()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    before = driver.store.version()
    monkeypatch.setattr(os, "utime", refuse)
    driver.append(run, b"1")
    assert driver.store.version() != before, "who wrote it knows"


def test_a_run_whose_record_is_behind_its_last_line_is_due(driver, root):
    made = driver.create("run")
    file = only(root / "runs") / "run.json"
    run = driver.claim(made)
    before = file.read_bytes()
    waiting = Change(status=Status.WAITING, release=True, wake_at=5)
    driver.append(run, b"1", change=waiting)
    file.write_bytes(before)  # as if the writer had died right after the line
    again = FilesStore(str(root))
    assert [record.id for record in again.look(["q"], ["w"]).due] == ["run"]


class FailingDisk(Disk):
    """Fails with the error at the named call for as long as there is one."""

    def __init__(self) -> None:
        self.fails: tuple[str, int] | None = None

    def write(self, file: File, data: bytes) -> None:
        if self.fails and self.fails[0] == "write":
            super().write(file, data[: len(data) // 2])
        self._fail("write", file.path)
        super().write(file, data)

    def fsync(self, file: File) -> None:
        self._fail("fsync", file.path)
        super().fsync(file)

    def truncate(self, file: File, size: int) -> None:
        self._fail("truncate", file.path)
        super().truncate(file, size)

    def open(self, path: str) -> File:
        self._fail("open", path)
        return super().open(path)

    def _fail(self, name: str, path: str) -> None:
        if self.fails and name in self.fails[0]:
            raise OSError(self.fails[1], os.strerror(self.fails[1]), path)


@pytest.mark.parametrize("call", ["write", "write truncate", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_loses_nothing_and_is_got_over(root, drive, call, code):
    disk = FailingDisk()
    driver = drive(FilesStore(str(root), disk=disk)).enlist()
    run = driver.append(driver.claim(driver.create("run")), b"0")
    disk.fails = (call, code)
    with pytest.raises(StoreFull):
        driver.append(run, b"1")
    with pytest.raises(StoreFull):
        driver.create("other")
    with pytest.raises(StoreFull):
        write_one(driver.store, Post(run.uid, Item("k", "message", 1, b"1")))
    disk.fails = None
    assert driver.store.get("run") == run
    run = driver.append(run, b'"after"')
    assert driver.store.inbox(run.uid) == []
    assert write_one(driver.store, Post(run.uid, Item("k", "message", 1, b"1")))
    driver.create("other")
    assert [entry.payload for entry in FilesStore(str(root)).read(run.uid, 1, 9)] == [b"0", b'"after"']
    driver.store.close()


def test_a_disk_that_fills_up_behind_the_line_does_not_take_it_back(root, drive):
    class Small(Disk):
        full = False

        def create(self, path: str) -> File:
            if self.full:
                raise OSError(errno.ENOSPC, "full", path)
            return super().create(path)

    disk = Small()
    driver = drive(FilesStore(str(root), disk=disk)).enlist()
    run = driver.claim(driver.create("run"))
    write_one(driver.store, Post(run.uid, Item("k", "message", 1, b"1")))
    disk.full = True
    run = driver.append(run, b'"took"', took=("k",), change=Change(rollback=1))
    assert (
        run.seq,
        run.rollback,
        driver.store.inbox(run.uid),
        [one.key for one in driver.store.inbox(run.uid, taken=True)],
    ) == (1, 1, [], ["k"])
    with pytest.raises(StoreFull):
        driver.append(run, b'"next"')
    disk.full = False
    run = driver.append(run, b'"next"')
    fresh = FilesStore(str(root))
    assert (fresh.get("run").rollback, fresh.inbox(run.uid), [one.key for one in fresh.inbox(run.uid, taken=True)]) == (
        1,
        [],
        ["k"],
    )
    driver.store.close()


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_disk_that_may_not_be_written_can_still_be_read(root, drive, code):
    disk = FailingDisk()
    driver = drive(FilesStore(str(root), disk=disk)).enlist()
    run = driver.append(driver.claim(driver.create("run")), b"0")
    disk.fails = ("open", code)
    with pytest.raises(StoreReadOnly, match="permissions"):
        driver.append(run, b"1")
    assert driver.store.get("run") == run
    disk.fails = None
    driver.append(run, b"1")
    driver.store.close()


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_failed_disk_poisons_the_handle(root, drive, call):
    disk = FailingDisk()
    driver = drive(FilesStore(str(root), disk=disk)).enlist()
    run = driver.append(driver.claim(driver.create("run")), b"0")
    disk.fails = (call, errno.EIO)
    with pytest.raises(StoreUnusable):
        driver.append(run, b"1")
    disk.fails = None
    for use in (lambda: driver.append(run, b"1"), lambda: driver.store.get("run"), lambda: driver.store.find(Filter())):
        with pytest.raises(StoreUnusable, match="open the store again"):
            use()
    driver.store.close()
    assert FilesStore(str(root)).get("run").seq == 1


def test_in_a_batch_each_write_stands_for_itself(driver):
    one, two = (driver.claim(driver.create(id)) for id in ("one", "two"))
    stale = replace(driver.next(one, b"stale"), epoch=0)
    good = driver.next(two, b"1")
    late = driver.next(replace(two, seq=1, hash=good.entries[-1].hash), b"2")
    outcomes = driver.store.apply([stale, good, late, good])
    assert isinstance(outcomes[0], LeaseLost)
    assert outcomes[1:] == [None, None, None], "made before, with the same hash, is made"
    other = driver.next(two, b"other")
    (refused,) = driver.store.apply([other])
    assert isinstance(refused, LeaseLost)
    assert "does not continue" in str(refused)
    (gap,) = driver.store.apply([driver.next(replace(two, seq=9), b"3")])
    assert isinstance(gap, LeaseLost)
    assert [entry.payload for entry in driver.store.read(two.uid, 1, 9)] == [b"1", b"2"]


def test_a_uid_that_is_known_is_not_used_again(driver):
    run = driver.create("a")
    with pytest.raises(RunExists):
        driver.create("b", uid=run.uid)
    with pytest.raises(RunExists):
        write_one(driver.store, Adopt(replace(run, id="b"), driver.store.read(run.uid, 0, 9)))


def test_a_forked_child_may_not_use_the_handle(driver):
    run = driver.claim(driver.create("run"))
    pid = os.fork()
    if pid == 0:
        try:
            driver.store.get("run")
        except StoreUnusable as error:
            driver.store.close()
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    driver.append(run, b"1")
    with pytest.raises(Claimed):
        FilesStore(driver.store.path).claim(run.uid, "w2")


def work(root: Path, drive: type, worker: str, rounds: int) -> None:
    """Claim whatever is free, write a few entries, and give it up again."""
    driver = drive(FilesStore(str(root)), worker).enlist()
    rng = random.Random(worker)
    made = 0
    while made < rounds:
        record = driver.store.get(f"run{rng.randrange(3)}")
        try:
            record = driver.claim(record)
        except Claimed:
            continue
        for n in range(rng.randrange(1, 4)):
            record = driver.append(record, b'"%s %d"' % (worker.encode(), n), kind=rng.choice(["saved", "done"]))
        if rng.random() < 0.3:
            write_one(driver.store, Post(record.uid, Item(f"{worker} {made}", "message", 1, b"1")))
        mail = tuple(item.key for item in driver.store.inbox(record.uid))[:2]
        driver.append(record, b'"bye"', took=mail, change=Change(status=Status.READY, release=True))
        made += 1
    driver.store.close()


def check(root: Path, rounds: int, workers: int) -> None:
    store = FilesStore(str(root))
    byes = epochs = 0
    for n in range(3):
        record = store.get(f"run{n}")
        entries = store.read(record.uid, 0, 10**9)
        verify(record.id, entries)
        assert [entry.seq for entry in entries] == list(range(record.seq + 1))
        byes += sum(entry.payload == b'"bye"' for entry in entries)
        epochs += record.epoch
        assert record.worker is None
    assert byes == epochs == rounds * workers


def test_processes_share_runs(disk, drive):
    root = disk / "store"
    for n in range(3):
        drive(FilesStore(str(root))).create(f"run{n}")
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(root, drive, f"w{n}", 15)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    check(root, 15, 3)


def test_threads_share_runs(root, drive):
    for n in range(3):
        drive(FilesStore(str(root))).create(f"run{n}")
    failures: list[BaseException] = []

    def guarded(n: int) -> None:
        try:
            work(root, drive, f"w{n}", 25)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    check(root, 25, 4)


def test_threads_of_one_handle_make_a_run_once(driver):
    made = []
    threads = [threading.Thread(target=lambda: made.append(driver.create("same").uid)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1


def test_a_killed_worker_frees_its_runs_at_once(root, drive):
    one, two = drive(FilesStore(str(root)), "w1").enlist(), drive(FilesStore(str(root)), "w2").enlist()
    run = one.claim(one.create("run"))
    with pytest.raises(Claimed):
        two.claim(run)
    assert two.store.find(Filter(orphaned=True)) == []
    one.store.drop()
    assert [record.id for record in two.store.find(Filter(orphaned=True))] == ["run"]
    assert two.claim(run).epoch == 2
    two.store.close()


def test_who_waited_for_a_run_that_was_deleted_is_told(root, drive, monkeypatch):
    waiting: list[str] = []
    real = run_folder.take_folder

    def noted(lock, path, how):
        waiting.append(path)
        real(lock, path, how)

    driver = drive(FilesStore(str(root))).enlist()
    run = driver.claim(driver.create("run"))
    folder = only(root / "runs")
    outcomes: list[object] = []
    monkeypatch.setattr(run_folder, "take_folder", noted)
    with (folder / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        threads = [
            threading.Thread(target=lambda: outcomes.extend(driver.store.apply([driver.next(run, b"1")]))),
            threading.Thread(target=lambda: outcomes.append(driver.store.get("run"))),
            threading.Thread(target=lambda: outcomes.append(driver.store.get(uid=run.uid))),
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads) and len(waiting) < 3:
            time.sleep(0.01)
        folder.rename(root / "runs" / ".gone-run")
    for thread in threads:
        thread.join(10)
    assert sorted(str(type(outcome).__name__) for outcome in outcomes) == ["LeaseLost", "NoneType", "NoneType"]
    driver.store.close()


def test_marks_of_a_journal_that_was_rewritten_are_noticed(root, drive):
    driver = drive(FilesStore(str(root))).enlist()
    run = driver.claim(driver.create("run"))
    for n in range(40):
        run = driver.append(run, b'"%d"' % n)
    reader = FilesStore(str(root))
    for lo in range(0, 40, 5):
        assert [entry.seq for entry in reader.read(run.uid, lo, lo + 4)] == list(range(lo, lo + 5))
    gone = tuple((seq, redaction(payload_digest(b'"%d"' % (seq - 1)))) for seq in (3, 4, 17))
    driver.append(run, b'"erased"', redact=gone)
    for lo in range(20, 40, 5):  # where marks are, and they are wrong now
        entries = reader.read(run.uid, lo, lo + 4)
        assert [entry.seq for entry in entries] == list(range(lo, lo + 5))
        verify("run", entries)
    driver.store.close()


class Clock(SystemClock):
    """Stands still unless told."""

    at = 1_000_000

    def now_ns(self) -> int:
        return self.at * 1000


class Twin:
    """Carries out the same calls on a files store and on one in memory, and compares what they give."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, Clock()
        self.memory = MemoryStore(clock=self.clock)
        self.files = FilesStore(str(root), clock=self.clock)

    def do(self, name: str, *args: object, **more: object) -> object:
        given = [self._call(store, name, *args, **more) for store in (self.memory, self.files)]
        assert given[0] == given[1], f"{name}{args}: {given}"
        return given[1]

    def _call(self, store: object, name: str, *args: object, **more: object) -> object:
        try:
            result = getattr(store, name)(*args, **more)
        except HoldfastError as error:
            return type(error)
        if name in ("apply", "delete"):
            return [type(outcome) if isinstance(outcome, HoldfastError) else outcome for outcome in result]
        return result

    def compare(self) -> None:
        for record in self.memory.find(Filter(hidden=None), limit=1000):
            self.do("get", uid=record.uid)
            self.do("get", record.id)
            self.do("read", record.uid, 0, 10**9)
            if not record.hidden:
                self.do("inbox", record.uid)
                self.do("inbox", record.uid, taken=True)
        for hidden in (None, True, False):
            self.do("find", Filter(hidden=hidden), limit=1000)
        self.do("find", Filter(orphaned=True), limit=1000)


@pytest.mark.parametrize("seed", range(6))
def test_it_answers_as_the_store_in_memory_does(root, drive, seed):
    rng, twin = random.Random(seed), Twin(root)
    driver = drive(twin.memory)
    workers = ["w0", "w1"]
    for worker in workers:
        twin.do("beat", worker, 50.0)
    for n in range(250):
        twin.clock.at += rng.randrange(100_000)
        runs = twin.memory.find(Filter(hidden=None), limit=1000)
        visible = [record for record in runs if not record.hidden]
        record = rng.choice(runs) if runs else None
        match rng.randrange(12):
            case 0 | 1 if len(visible) < 6:
                write = founding(driver, twin.memory, rng, visible, n)
                twin.do("apply", [write])
            case 2 | 3 if record:
                allow = rng.choice([frozenset(Status), frozenset({Status.READY, Status.WAITING, Status.RUNNING})])
                twin.do("claim", record.uid, rng.choice(workers), allow)
            case 4 | 5 | 6 | 7 if visible:
                twin.do(
                    "apply", [step(driver, twin.memory, rng, rng.choice(visible)) for _ in range(rng.randrange(1, 3))]
                )
            case 8 if visible:
                key = f"k{rng.randrange(30)}"
                item = Item(key, "message", n, b"%d" % n, wakes=rng.random() < 0.5)
                twin.do("apply", [Post(rng.choice(visible).uid, item)])
            case 9 if record and rng.random() < 0.5:
                twin.do("delete", [record])
            case 10:
                twin.do("beat", rng.choice(workers), rng.choice([-1.0, 50.0]))
                if record:
                    twin.do("apply", [Rewrap(record.uid, record.key_blob, "k", b"\x00\x01")])
            case 11:
                twin.files.drop()
                twin.files = FilesStore(str(root), clock=twin.clock)
                for worker in workers:
                    twin.do("beat", worker, 50.0)
        if n % 10 == 0:
            twin.compare()
    twin.compare()
    for record in sorted(twin.memory.find(Filter(), limit=1000), key=lambda record: rng.random()):
        twin.do("beat", "w0", -1.0)
        twin.do("beat", "w1", -1.0)
        twin.do("delete", [twin.memory.get(uid=record.uid)])
        twin.compare()
    assert os.listdir(root / "runs") == os.listdir(root / "hidden") == []
    twin.files.close()


def founding(driver, memory: MemoryStore, rng: random.Random, visible: list, n: int) -> Create:
    made: list[Create] = []
    driver.made = made.append
    if visible and rng.random() < 0.6:
        parent = rng.choice(visible)
        if parent.seq >= parent.base:
            driver.fork(parent, rng.randrange(parent.base, parent.seq + 1), f"run {n}")
            return made[0]
    driver.create(f"run {rng.randrange(8)}")
    return made[0]


def step(driver, memory: MemoryStore, rng: random.Random, record) -> Append:
    driver.worker = record.worker or "w0"
    entries = memory.read(record.uid, record.base, record.seq)
    target = rng.choice(entries)
    redact = ((target.seq, redaction(payload_digest(target.payload))),) if rng.random() < 0.2 else ()
    inbox = memory.inbox(record.uid)
    took = (rng.choice(inbox).key,) if inbox and rng.random() < 0.5 else ()
    change = None
    if rng.random() < 0.4:
        status = rng.choice([None, Status.WAITING, Status.WAITING, Status.READY, Status.BLOCKED, Status.COMPLETED])
        change = Change(status=status, release=rng.random() < 0.5, wake_at=5 if status else None)
    payloads = [b"%d" % rng.randrange(100) for _ in range(rng.randrange(0, 3))]
    return driver.next(record, *payloads, change=change, took=took, redact=redact)
