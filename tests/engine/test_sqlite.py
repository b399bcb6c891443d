"""What only the SQLite store does: queueing writers, and compression that must not mislead."""

import errno
import fcntl
import os
import time
from contextlib import closing
from pathlib import Path

import pytest

import holdfast
from holdfast.stores.sqlite import transactions
from holdfast.stores.sqlite.transactions import WriterLock


def test_a_writer_that_stands_still_is_reported_after_a_while(memdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "BUSY_SECONDS", 0.2)
    with holdfast.open(f"sqlite:///{memdir / 'runs.db'}") as hf:
        run = hf.run("run")
        fd = os.open(memdir / "runs.db.locks" / "writer", os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX)
        started = time.monotonic()
        with pytest.raises(holdfast.errors.StoreBusy, match="kept the store locked since"):
            run.save({})
        assert time.monotonic() - started >= 0.2
        assert run.checkpoint().state is None, "reading goes on meanwhile"
        os.close(fd)
        run.save({"n": 1})
        assert run.checkpoint().state == {"n": 1}


def test_a_holder_is_named_since_it_took_the_lock(memdir: Path) -> None:
    with closing(WriterLock(str(memdir / "writer"))) as lock, closing(WriterLock(str(memdir / "writer"))) as waiting:
        assert waiting.holder() is None
        assert lock.take_within(1)
        first = waiting.holder()
        lock.free()
        assert lock.take_within(1)
        second = waiting.holder()
    assert first is not None
    assert second is not None
    assert first.pid == second.pid == os.getpid()
    assert first.since < second.since <= time.time()


def test_pure_growth_never_stores_a_second_copy_though_text_compresses(memdir: Path) -> None:
    with holdfast.open(f"sqlite:///{memdir / 'runs.db'}") as hf:
        run = hf.run("run")
        with run.claim():
            for n in range(300):
                run.save({"lines": ["the same words " * 20 + f"line {m}" for m in range(n)]})
        entries = hf.client.store.read(run.uid, 0, 1000, saved=True)
        assert [entry.seq for entry in entries if entry.state == entry.seq] == [1]
        assert len(run.checkpoint().state["lines"]) == 299


class Broken:
    """A connection that fails, whatever is asked of it."""

    def __getattr__(self, name: str) -> None:
        raise OSError("the disk failed")


def test_a_store_that_fails_does_not_stand_in_the_way_of_a_fork(memdir: Path) -> None:
    handles = [holdfast.open(f"sqlite:///{memdir / f'{n}.db'}") for n in range(12)]
    hf = handles.pop(6)
    real = [handle.client.store._db for handle in handles]  # type: ignore[attr-defined]
    for handle in handles:
        handle.client.store._db = Broken()  # type: ignore[attr-defined]
    child = os.fork()
    if child == 0:
        try:
            hf.client.store.get("run")
        except holdfast.errors.StoreUnusable:
            os._exit(0)
        finally:
            os._exit(1)
    for handle, connection in zip(handles, real, strict=True):
        handle.client.store._db = connection  # type: ignore[attr-defined]
        handle.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    hf.run("run")
    hf.close()


@pytest.mark.parametrize("fails", ["holdfast.stores.locks.Presence.come_in", "holdfast.stores.sqlite.file.glance"])
def test_a_store_that_cannot_be_opened_leaves_nothing_open(
    memdir: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holdfast.open(f"sqlite:///{memdir}/runs.db").client.store.drop()  # as a process that was killed leaves it
    before = len(os.listdir("/proc/self/fd"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fails, full)
    with pytest.raises(holdfast.errors.StoreFull):
        holdfast.open(f"sqlite:///{memdir}/runs.db")
    assert len(os.listdir("/proc/self/fd")) == before
