"""A backup that is put in the place of a store while a worker has it open: the worker is told, and writes nothing."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Status
from holdfast.errors import StoreReplaced
from holdfast.stores.sqlite.identity import RAISE, Identity

LOG = ("-wal", "-shm")


def put_back(kind: str, how: str, backup: Path, path: Path) -> None:
    """Restore the backup over the store, as people do it."""
    copy = path.with_name("copy")
    if kind == "files":
        shutil.copytree(backup, copy)
        path.rename(path.with_name("before"))
        copy.rename(path)
        return
    if how.startswith("renamed"):
        shutil.copy(backup, copy)
        copy.replace(path)
    else:
        shutil.copy(backup, path)  # into the file that is there
    if how.endswith("log removed"):
        for part in LOG:
            os.unlink(f"{path}{part}")


WAYS = ["renamed", "renamed, log removed", "copied", "copied, log removed"]
SQLITE = [("sqlite", how) for how in WAYS]


@pytest.fixture
def path(memdir: Path) -> Path:
    return memdir / "runs"


def url_of(kind: str, path: Path) -> str:
    return f"{kind}:///{path}"


def backed_up(kind: str, path: Path) -> Path:
    """A store with a run that was held and has two states, and a copy of it."""
    with holdfast.open(url_of(kind, path)) as hf, hf.run("thread").claim() as run:
        run.save({"n": 1})
        run.save({"n": 2})
    backup = path.with_name("backup")
    if kind == "files":
        shutil.copytree(path, backup)
    else:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(backup)) as target:
            source.backup(target)
    return backup


def opened_again(kind: str, path: Path) -> holdfast.Holdfast:
    """The store, as whoever restored it opens it, who does what the error says if there is one."""
    try:
        return holdfast.open(url_of(kind, path))
    except StoreReplaced as replaced:
        told = str(replaced)
    assert f"remove {path}-wal and {path}-shm" in told
    for part in LOG:
        Path(f"{path}{part}").unlink(missing_ok=True)
    return holdfast.open(url_of(kind, path))


@pytest.mark.parametrize(("kind", "how"), [*SQLITE, ("files", "renamed")])
def test_a_worker_is_told_and_writes_nothing(
    kind: str, how: str, path: Path, crew: Callable[[int], list[Any]], refused: type[Any]
) -> None:
    backup = backed_up(kind, path)
    worker, idle = crew(2)
    for member in (worker, idle):
        member.do("open", url=url_of(kind, path))
    worker.do("claim", id="thread")
    worker.do("save", id="thread", state={"n": 3})
    assert idle.do("status", id="thread") == "running"
    put_back(kind, how, backup, path)
    for member, command, arguments in [
        (worker, "save", {"state": {"n": 4}}),
        (worker, "act", {"key": "late", "path": str(path.with_name("late"))}),
        (worker, "mark", {"prefix": "m", "count": 1}),
        (idle, "status", {}),
        (idle, "claim", {}),
    ]:
        with pytest.raises(refused) as error:
            member.do(command, id="thread", **arguments)
        assert error.value.kind == "StoreReplaced", (command, str(error.value))
    assert not path.with_name("late").exists()
    for member in (worker, idle):
        member.kill()
    with opened_again(kind, path) as hf:
        run = hf.get("thread")
        assert [entry.kind for entry in run.history()] == ["created", "saved", "saved"]
        assert run.checkpoint().state == {"n": 2}
        run.audit()
        with run.claim():
            run.save({"n": 10})


@pytest.mark.parametrize("how", WAYS)
def test_closing_a_replaced_store_leaves_the_restored_one_as_it_is(how: str, path: Path) -> None:
    backup = backed_up("sqlite", path)
    hf = holdfast.open(url_of("sqlite", path))
    run = hf.get("thread")
    run.claim()
    for n in range(20):
        run.save({"n": n, "text": "x" * 5000})
    put_back("sqlite", how, backup, path)
    with pytest.raises(StoreReplaced):
        run.save({"n": 100})
    with pytest.raises(StoreReplaced):
        hf.close()
    with opened_again("sqlite", path) as again:
        assert again.get("thread").checkpoint().state == {"n": 2}
        again.get("thread").audit()
        assert again.client.store._db.execute("PRAGMA integrity_check").fetchone() == ("ok",)  # type: ignore[attr-defined]


def test_checkpoints_of_others_are_no_replacement(path: Path) -> None:
    url = url_of("sqlite", path)
    with holdfast.open(url) as one, holdfast.open(url) as other, one.run("a").claim() as a, other.run("b").claim() as b:
        for n in range(30):
            a.save({"n": n})
            b.save({"n": n})
            with closing(sqlite3.connect(path)) as db:
                db.execute(f"PRAGMA wal_checkpoint({['PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'][n % 4]})")
        a.redact(1)
        b.save({"n": 30})
        assert (a.checkpoint().state, b.checkpoint().state) == ({"n": 29}, {"n": 30})


def test_a_log_that_a_killed_process_left_is_used(path: Path, crew: Callable[[int], list[Any]]) -> None:
    [member] = crew(1)
    member.do("open", url=url_of("sqlite", path))
    member.do("saves", id="thread", count=5, name="member")
    member.kill()
    assert Path(f"{path}-wal").stat().st_size
    with holdfast.open(url_of("sqlite", path)) as hf:
        assert hf.get("thread").checkpoint().state == {"by": "member", "n": 4}


def test_after_a_reboot_the_log_is_that_of_the_file(path: Path, crew: Callable[[int], list[Any]]) -> None:
    """A power failure may leave the file older than what was seen of it; what is in the log counts."""
    [member] = crew(1)
    member.do("open", url=url_of("sqlite", path))
    member.do("saves", id="thread", count=5, name="member")
    member.kill()
    Path(f"{path}.locks/stamp").write_text("another-boot 9000000000000000000")
    with holdfast.open(url_of("sqlite", path)) as hf:
        assert hf.get("thread").checkpoint().state == {"by": "member", "n": 4}


def test_a_backup_that_is_restored_while_nobody_is_there_is_taken(path: Path) -> None:
    backup = backed_up("sqlite", path)
    with holdfast.open(url_of("sqlite", path)) as hf, hf.run("thread").claim() as run:
        run.save({"n": 3})
    shutil.copy(backup, path)
    with holdfast.open(url_of("sqlite", path)) as hf:
        assert hf.get("thread").checkpoint().state == {"n": 2}
        assert hf.get("thread").status is Status.READY
        with hf.get("thread").claim() as run:
            run.save({"n": 3, "by": "another history"})


@pytest.mark.parametrize("how", ["restored", "restored beside one that is open", "made anew"])
def test_a_file_that_is_opened_without_a_log_has_its_own_log(
    how: str, path: Path, crew: Callable[[int], list[Any]]
) -> None:
    """What is acknowledged stands in the log alone, and others must not take it for that of the file before."""
    url = url_of("sqlite", path)
    backup = backed_up("sqlite", path)
    before = holdfast.open(url)
    with before.run("thread").claim() as run:
        run.save({"n": 3})
    if how != "restored beside one that is open":
        before.close()
    for part in ("", *LOG):
        Path(f"{path}{part}").unlink(missing_ok=True)
    if how != "made anew":
        shutil.copy(backup, path)
    assert Path(f"{path}.locks/stamp").exists()
    [other] = crew(1)
    with holdfast.open(url) as hf:
        hf.run("new")
        other.do("open", url=url)
        assert other.do("status", id="new") == "ready"
    if how == "restored beside one that is open":
        with pytest.raises(StoreReplaced):
            before.close()


def test_the_stamp_only_grows(path: Path) -> None:
    backed_up("sqlite", path)
    with closing(sqlite3.connect(path)) as db:
        [before] = db.execute("SELECT value FROM meta WHERE name = 'stamp'").fetchone()
        db.execute(RAISE, (1,))
        [after] = db.execute("SELECT value FROM meta WHERE name = 'stamp'").fetchone()
    assert after == before + 1


def test_a_checkpoint_that_another_thread_sees_first_is_no_older_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads of one handle look at the file at once, one before and one after a checkpoint."""
    with holdfast.open(url_of("sqlite", path)):
        identity = Identity(str(path), str(path.with_name("notes")))
        read, stamp = Identity._read, Identity._read(identity)
        assert stamp is not None

        def before_the_other(one: Identity) -> int | None:
            found = read(one)
            monkeypatch.setattr(Identity, "_read", lambda _: stamp + 1)
            assert not identity.is_older()  # the other thread, after the checkpoint
            return found

        monkeypatch.setattr(Identity, "_read", before_the_other)
        assert not identity.is_older()
        assert identity.is_older() is False
        monkeypatch.setattr(Identity, "_read", lambda _: stamp)
        assert identity.is_older(), "what is older than the newest stamp that was seen is noticed still"
