"""A store in one file, and back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Keyring, Status
from holdfast.errors import BackupDamaged, HoldfastError, KeyMissing, RunBlocked, RunExists, RunNotFound, StoreError

KEYS = {"k": b"k" * 32}


def fill(hf: Holdfast) -> None:
    """Runs of every status, with forks, hidden parents, questions, answers and marks."""
    done = hf.run("done", workflow="w", tags={"a": "b"})
    done.save({"n": 1})
    done.once("step", str.upper, "x", target="t")
    done.complete("result")
    hf.run("failed").fail("why")
    hf.run("ready").save([1, 2, 3])
    hf.run("asked").pause("Which?", [{"name": "n", "type": "integer"}], output_key="which")
    answered = hf.run("answered")
    answered.pause("Well?")
    answered.answer("in the inbox", by="operator")
    answered.mark("marked", "tool", result=7)
    taken = hf.run("taken")
    taken.pause("Well?")
    taken.answer("taken")
    with taken.claim():
        taken.save("after")
    rolled = hf.run("rolled")
    start = rolled.save("start")
    rolled.save("lost")
    rolled.rollback(to=start)
    parent = hf.run("parent")
    parent.save("shared")
    fork = parent.fork(id="fork")
    fork.save("fork's own")
    fork.fork(id="grandchild").save("grandchild's own")
    parent.delete()
    hf.run("erased").save("secret")
    hf.get("erased").redact(1)


def seen(hf: Holdfast) -> dict[str, Any]:
    """Everything that can be asked of the runs, but for what a restore changes: their status."""
    runs = {info.id: hf.get(info.id) for info in hf.runs(limit=100)}
    return {
        id: (
            run.uid,
            [(entry.seq, entry.kind, entry.at, entry.live, entry.inherited) for entry in run.history()],
            run.effects(),
            run.questions(),
            run.checkpoint().answers,
            run.checkpoint().results,
            run.info().forked_from,
            run.info().tags,
            run.info().workflow,
            run.audit(),
        )
        for id, run in runs.items()
    }


@pytest.fixture(params=["memory", "files", "sqlite"])
def target(request: pytest.FixtureRequest, memdir: Path) -> str:
    """The URL of a second, empty store of every kind."""
    place = {"memory": f"{memdir.name}-target", "files": f"/{memdir}/target", "sqlite": f"/{memdir}/target.db"}
    return f"{request.param}://{place[request.param]}"


def test_a_store_moves_to_any_other_kind(
    hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, target: str
) -> None:
    fill(hf)
    before = seen(hf)
    path = memdir / "backup"
    count = hf.backup(str(path))
    assert count == len(before) + 1  # the hidden parent too
    other = opened(target)
    parked = other.restore(path)
    assert sorted(parked) == sorted(set(before) - {"done", "failed"})
    assert seen(other) == before
    assert {info.status for info in other.runs(limit=100) if info.id in parked} == {Status.BLOCKED}
    assert other.get("done").status is Status.COMPLETED
    assert other.get("done").checkpoint().result == "result"
    with pytest.raises(RunNotFound):
        other.get("parent")
    assert other.get("grandchild").checkpoint(1).state == "shared"
    for id in ("grandchild", "fork"):
        assert other.get(id).delete() is True
    assert hf.get("fork").checkpoint().state == "fork's own"


def test_restored_runs_do_nothing_until_they_are_let(
    hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, target: str
) -> None:
    fill(hf)
    hf.backup(memdir / "backup")
    other = opened(target)
    other.restore(memdir / "backup")
    for id in ("ready", "asked", "answered", "fork"):
        run = other.get(id)
        with pytest.raises(RunBlocked, match="restored from a backup"):
            run.claim()
        with pytest.raises(RunBlocked):
            run.once("x", len, "")
        assert "restored from a backup" in run.info().reason
    assert other.recover() == ()
    assert hf.get("ready").status is Status.READY  # the original goes on

    ready, asked, answered = (other.get(id) for id in ("ready", "asked", "answered"))
    for run in (ready, asked, answered):
        run.unblock(by="operator")
    assert [run.status for run in (ready, asked, answered)] == [Status.READY, Status.WAITING, Status.READY]
    ready.save("goes on")
    asked.answer({"n": 3})
    with asked.claim():
        assert asked.checkpoint().answers == {"which": {"n": 3}}
    with answered.claim():
        assert answered.checkpoint().answers == {"answer": "in the inbox"}
        assert answered.checkpoint().results == {"marked": 7}
        assert answered.mark("marked", "tool") is False
    for run in (ready, asked, answered):
        run.audit()


def test_a_held_run_is_restored_without_its_holder(
    hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, target: str
) -> None:
    run = hf.run("run")
    with run.claim():
        run.save("while it is held")
        hf.backup(memdir / "backup")
        other = opened(target)
        assert other.restore(memdir / "backup") == ("run",)
        assert other.get("run").info().holder is None
        other.get("run").unblock()
        with other.get("run").claim():
            assert other.get("run").checkpoint().state == "while it is held"
        run.save("still held")


def test_what_is_encrypted_stays_encrypted(opened: Callable[..., Holdfast], memdir: Path, target: str) -> None:
    sealed = opened(keys=Keyring(KEYS, "k"))
    fill(sealed)
    before = seen(sealed)
    path = memdir / "backup"
    sealed.backup(path)
    for word in (b"secret", b"fork's own", b"in the inbox", b"Which?", b"marked"):
        assert word not in path.read_bytes().replace(b'"marked"', b"")  # which is also a kind of entry
    blind = opened(target)
    blind.restore(path)
    with pytest.raises(KeyMissing):
        blind.get("ready").checkpoint()
    assert seen(opened(target, keys=Keyring(KEYS, "k"))) == before


def test_an_unfinished_rollback_is_finished_after_the_restore(
    hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, target: str
) -> None:
    run = hf.run("run")
    start = run.save("start")
    run.once("step", put, "x", undo=break_once)
    broken.append(True)
    with pytest.raises(KeyboardInterrupt):
        run.rollback(to=start)
    hf.backup(memdir / "backup")
    other = opened(target)
    assert other.restore(memdir / "backup") == ("run",)
    other.get("run").unblock()
    with other.get("run").claim():
        assert [effect.status for effect in other.get("run").effects()] == ["undone"]
        assert other.get("run").checkpoint().state == "start"
    other.get("run").audit()


broken: list[bool] = []


def put(name: str) -> str:
    return name


def break_once(result: str, name: str) -> None:
    if broken:
        broken.pop()
        raise KeyboardInterrupt


def test_restoring_twice_is_the_same_as_once(
    hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, target: str
) -> None:
    fill(hf)
    hf.backup(memdir / "backup")
    other = opened(target)
    other.restore(memdir / "backup")
    before = seen(other)
    assert other.restore(memdir / "backup") == ()
    assert seen(other) == before


def test_a_restore_does_not_overwrite(hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, target: str) -> None:
    fill(hf)
    hf.backup(memdir / "backup")
    other = opened(target)
    other.run("ready").save("another run of that id")
    with pytest.raises(RunExists, match="'ready'"):
        other.restore(memdir / "backup")
    assert [info.id for info in other.runs()] == ["ready"]  # nothing was restored
    assert other.get("ready").checkpoint().state == "another run of that id"
    with pytest.raises(RunExists):
        hf.restore(memdir / "backup")  # the runs themselves are here and go on


def test_a_run_that_went_on_after_a_restore_is_not_set_back(
    hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, target: str
) -> None:
    hf.run("run").save(1)
    hf.backup(memdir / "backup")
    other = opened(target)
    other.restore(memdir / "backup")
    other.get("run").unblock()
    other.get("run").save(2)
    with pytest.raises(RunExists):
        other.restore(memdir / "backup")
    assert other.get("run").checkpoint().state == 2


def test_a_damaged_backup_restores_nothing(hf: Holdfast, memdir: Path) -> None:
    """At every byte: changed, or cut off there."""
    run = hf.run("run")
    run.save({"n": 1})
    run.mark("m", "tool")
    run.fork(id="fork")
    path, damaged = memdir / "backup", memdir / "damaged"
    hf.backup(path)
    whole = path.read_bytes()
    with holdfast.open("memory://") as other:
        for at in range(len(whole)):
            changed = bytearray(whole)
            changed[at] ^= 1 << (at % 7)
            for contents in (bytes(changed), whole[:at]):
                if contents == whole[:-1]:
                    continue  # but for the last newline it is whole
                damaged.write_bytes(contents)
                try:
                    other.restore(damaged)
                except (BackupDamaged, StoreError):
                    pass
                else:
                    assert at == len(whole) - 1, f"byte {at} of {len(whole)} was changed and nobody noticed"
                    break
                assert len(other.runs()) == 0


@pytest.mark.parametrize(
    "contents", [b"", b"\n", b"{}\n", b"[]", b"not json\n", b'{"runs":0,"sha256":1}\n', b"\xff\xfe"]
)
def test_a_file_that_is_no_backup(hf: Holdfast, memdir: Path, contents: bytes) -> None:
    (memdir / "file").write_bytes(contents)
    with pytest.raises(BackupDamaged, match="nothing was restored"):
        hf.restore(memdir / "file")


def test_a_backup_that_cannot_be_read_or_written(hf: Holdfast, memdir: Path) -> None:
    with pytest.raises(StoreError, match="could not be read"):
        hf.restore(memdir / "missing")
    with pytest.raises(StoreError, match="could not be written"):
        hf.backup(memdir / "no such folder" / "backup")
    hf.run("run")
    hf.backup(memdir / "backup")
    hf.backup(memdir / "backup")  # over the one before
    assert [path.name for path in memdir.iterdir() if path.name.startswith("backup")] == ["backup"]


def test_an_empty_store(hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, target: str) -> None:
    assert hf.backup(memdir / "backup") == 0
    assert opened(target).restore(memdir / "backup") == ()


def test_a_damaged_run_is_not_backed_up_unseen(
    hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, damage: Callable
) -> None:
    run = hf.run("run")
    run.save(1)
    run.save(2)
    hf.close()
    damage(run, 1)
    with pytest.raises(HoldfastError):
        opened().backup(memdir / "backup")
    assert not (memdir / "backup").exists()


@pytest.mark.parametrize("moment", ["get", "read", "inbox", "taken"])
def test_a_backup_is_made_while_others_work(
    hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Whatever moment it meets: what it holds is a run as it was, and no answer is lost between inbox and journal."""
    run = hf.run("run")
    run.pause("Well?")
    run.answer("yes")
    holder = opened()

    def taking(read: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            found = read(*args, **how)
            if moment == ("taken" if how.get("taken") else name) and holder.get("run").info().seq == 1:
                with holder.get("run").claim():  # the holder takes the answer while the backup reads
                    pass
            return found

        return call

    for name in ("get", "read", "inbox"):
        monkeypatch.setattr(hf.client.store, name, taking(getattr(hf.client.store, name), name))
    hf.backup(memdir / "backup")
    monkeypatch.undo()
    with holdfast.open("memory://") as other:
        other.restore(memdir / "backup")
        other.get("run").unblock()
        with other.get("run").claim():
            assert other.get("run").checkpoint().answers == {"answer": "yes"}
