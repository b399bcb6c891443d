"""Files of a store are removed while processes work with it: nobody loses a claim by it, and nothing is lost unsaid."""

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import Claimed, HoldfastError, StoreUnusable

LONG, SHORT = 60.0, 0.5


@pytest.fixture
def locks(url: str) -> Path:
    """The folder in which each process has the lock that tells that it lives."""
    path = url.partition(":///")[2]
    return Path(path, "workers") if url.startswith("files") else Path(path + ".locks")


def remove_locks(folder: Path) -> None:
    """Remove what people take for left-overs. The worker's own record is no lock, and stays."""
    for found in folder.iterdir():
        if found.suffix != ".json":
            found.unlink()
    if not list(folder.iterdir()):
        folder.rmdir()


def test_a_holder_keeps_its_runs_when_the_lock_folder_is_removed(
    url: str, locks: Path, crew: Callable[..., list[Any]], until: Callable[..., None]
) -> None:
    [holder] = crew(1)
    holder.do("open", url=url, lease=LONG)
    holder.do("claim", id="thread")
    first = holder.do("save", id="thread", state={"n": 1})
    remove_locks(locks)
    with holdfast.open(url) as hf:
        run = hf.get("thread")
        for _ in range(2):
            with pytest.raises(Claimed):
                run.claim()
            assert hf.recover() == ()
            assert holder.do("save", id="thread", state={"n": 2}) > first
            holder.do("beat")  # with which it makes its lock again
            assert len(list(locks.glob(f"*.{holder.pid}.*.lock"))) == 1
            assert (locks / "writer").exists() is url.startswith("sqlite")
        holder.kill()
        with run.claim():  # at once, long before the lease ends, since the lock is free
            assert run.checkpoint().state == {"n": 2}


def test_an_older_epoch_writes_nothing_after_the_lock_folder_was_removed(
    url: str, locks: Path, crew: Callable[..., list[Any]], refused: type[Any]
) -> None:
    """The one who takes over claims and writes nothing, so that no number is taken that the other one would use."""
    [zombie] = crew(1)
    zombie.do("open", url=url, lease=SHORT)
    zombie.do("claim", id="thread")
    last = [zombie.do("save", id="thread", state={"n": n}) for n in range(3)][-1]
    zombie.signal(signal.SIGSTOP)
    remove_locks(locks)
    with holdfast.open(url) as hf:
        run, until = hf.get("thread"), time.monotonic() + 20
        while True:
            try:
                run.claim()
                break
            except Claimed:
                assert time.monotonic() < until, "the lease does not end"
                time.sleep(0.05)
        zombie.signal(signal.SIGCONT)
        with pytest.raises(refused) as error:
            zombie.do("save", id="thread", state={"n": "too late"})
        assert error.value.kind == "LeaseLost"
        assert run.save({"n": "of the new holder"}) == last + 1


@pytest.fixture
def store(url: str, kind: str) -> Path:
    """The file or folder that is the store."""
    return Path(url.partition(":///")[2])


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_database_or_folder_that_is_gone_is_noticed_at_the_next_write(url: str, store: Path, how: str) -> None:
    hf = holdfast.open(url)
    run = hf.run("run")
    with suppress(StoreUnusable), run.claim():
        run.once("first", str, 1)
        store.unlink() if store.is_file() else shutil.rmtree(store)
        if how == "replaced":
            with holdfast.open(url) as other:
                other.run("of another store")
        done: list[int] = []
        with pytest.raises(HoldfastError, match=NOTICED[url.partition(":")[0], how]):
            run.once("second", done.append, 2)
    with suppress(StoreUnusable):
        hf.close()
    with holdfast.open(url) as hf:
        assert [info.id for info in hf.runs()] == (["of another store"] if how == "replaced" else [])


def test_a_heartbeat_notices_it_too_and_makes_nothing_again(url: str, store: Path) -> None:
    hf = holdfast.open(url)
    hf.run("run").claim()
    shutil.rmtree(store.parent)
    with pytest.raises(StoreUnusable, match="removed"):
        hf.client.engine.worker._extend()
    assert not store.parent.exists()
    with suppress(StoreUnusable):
        hf.close()


NOTICED = {
    ("sqlite", "removed"): "removed or replaced .*; open the store again",
    ("sqlite", "replaced"): "removed or replaced .*; open the store again",
    ("files", "removed"): "removed .*; open the store again",
    ("files", "replaced"): "the run was deleted",  # all that the other store says is that it has no such run
}
