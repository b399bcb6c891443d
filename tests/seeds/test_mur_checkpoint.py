"""MUR Commander's `checkpoint.rs`: a checkpoint before each step of a runbook; load one, load the latest, clean up.

| its test                 | here                           |
|--------------------------|--------------------------------|
| test_checkpoint_save_load | test_save_load_and_clean_up   |
| test_latest_checkpoint    | test_latest_checkpoint        |

The other tests are named after what is weak there and must hold here. An execution is a run, its variables are the
``variables`` of a save, and the completed steps are the results of `once`.
"""

import os
import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from holdfast import Holdfast
from holdfast.errors import DefinitionChanged, RunDamaged, RunNotFound, StoreUnusable


class PowerFailure(BaseException):
    """Nothing after this line is run."""


def remember(number: int) -> int:
    return number * 10


# --- the counterparts


def test_save_load_and_clean_up(hf: Holdfast) -> None:
    run = hf.run("execution")
    seq = run.save(None, next="0", variables={"key": "value"})

    loaded = run.checkpoint(seq)
    assert (loaded.step, loaded.next, loaded.variables) == (0, "0", {"key": "value"})
    assert loaded.results == {}
    assert loaded.saved_at is not None

    assert run.delete() is True
    assert [info.id for info in hf.runs()] == []
    with pytest.raises(RunNotFound):
        hf.get("execution")


def test_latest_checkpoint(hf: Holdfast) -> None:
    run = hf.run("execution")
    assert run.checkpoint().step is None  # no checkpoint yet is not an error
    for step in range(3):
        run.save(None, next=str(step), variables={})
    assert run.checkpoint().step == 2
    assert run.checkpoint().next == "2"


# --- what is weak there


def test_writes_are_synced(hf: Holdfast, store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a save returns, what it wrote is on the disk."""
    synced: list[int] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda fd, real=real: (synced.append(fd), real(fd))[1])
    run = hf.run("execution")
    with run.claim():
        before = len(synced)
        run.save({"n": 1})
        after = len(synced)
    match store_url.partition(":")[0]:
        case "files":
            assert after > before
        case "sqlite":
            assert hf.client.store._db.execute("PRAGMA synchronous").fetchone() == (2,)  # full: each commit is synced
            assert hf.client.store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_writes_are_atomic(
    hf: Holdfast, opened: Callable[..., Holdfast], store_url: str, monkeypatch: pytest.MonkeyPatch, kill: Callable
) -> None:
    """A process that dies in the middle of a save leaves the checkpoint before it, never half of the new one."""
    run = hf.run("execution")
    run.save({"text": "whole"})
    run.claim()

    def die(*_: object) -> None:
        kill(hf)
        raise PowerFailure

    match store_url.partition(":")[0]:
        case "memory":
            monkeypatch.setattr(hf.client.store, "apply", die)
        case "sqlite":
            monkeypatch.setattr(hf.client.store, "_commit", die)
        case "postgresql":
            monkeypatch.setattr(hf.client.store._appending, "append", die)
        case "files":
            from holdfast.stores.files.disk import Disk

            real = Disk.write

            def half(self: Disk, file: object, data: bytes) -> None:
                real(self, file, data[: len(data) // 2])
                die()

            monkeypatch.setattr(Disk, "write", half)
    with pytest.raises(BaseException) as failure:  # noqa: PT011
        run.save({"text": "half", "more": ["x"] * 50})
    assert not isinstance(failure.value, AssertionError)
    monkeypatch.undo()

    again = opened().get("execution")
    assert again.checkpoint().state == {"text": "whole"}
    again.save({"text": "next"})
    assert again.checkpoint().state == {"text": "next"}
    assert again.audit().entries == 3


def test_a_corrupt_latest_does_not_block_the_run(
    hf: Holdfast, opened: Callable[..., Holdfast], damage: Callable
) -> None:
    """The checkpoints before it can still be read, and the run goes on from there as a fork."""
    run = hf.run("execution")
    seqs = [run.save({"step": step, "text": f"step {step} " * 10}) for step in range(3)]
    hf.close()
    damage(run, seqs[-1])

    again = opened().get("execution")
    with suppress(RunDamaged):  # or it is seen as never written, which is a true prefix
        assert again.checkpoint().state["step"] == 1
    assert again.checkpoint(seqs[1]).state["step"] == 1
    fork = again.fork(at=seqs[1])
    fork.save({"step": 2, "text": "made again"})
    assert fork.checkpoint().state == {"step": 2, "text": "made again"}
    assert fork.audit().entries == 5


def test_an_abandoned_future_is_not_the_latest(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """After going back to step 1, the steps 2 and 3 are history: not returned as the latest, not counted as done."""
    run = hf.run("execution")
    seqs = []
    for step in range(4):
        seqs.append(run.save({"step": step}, next=str(step)))
        run.once(f"step-{step}", remember, step)
    run.rollback(to=seqs[1])

    for seen in (run, opened().get("execution")):
        assert seen.checkpoint().state == {"step": 1}
        assert seen.checkpoint().step == 1
        assert seen.checkpoint().completed == {"step-0"}
        assert [entry.seq for entry in seen.history(kind="saved") if entry.live] == seqs[:2]
        assert seen.checkpoint(seqs[3]).state == {"step": 3}  # still there for who asks for it by number
    assert run.save({"step": "1b"}) > seqs[3]
    assert run.checkpoint().step == 2


def test_storage_grows_linearly(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    """Twice the steps cost about twice the bytes; copying all completed steps into each checkpoint costs four times."""
    noise = random.Random(1)
    run = hf.run("execution")
    sizes = []
    with run.claim():
        done: list[str] = []
        for step in range(120):
            if step in (0, 60):
                sizes.append(len(raw_bytes()))
            done.append(noise.randbytes(300).hex())
            run.save({"done": done}, next=str(step))
            run.once(f"step-{step}", len, done[-1])
    sizes.append(len(raw_bytes()))
    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second < 1.7 * first  # quadratic growth would give 3


def test_the_checkpoint_is_tied_to_the_definition(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """A changed runbook does not go on from the checkpoint of the old one unseen."""
    runbook = {"name": "release", "steps": ["build", "deploy"]}
    hf.run("execution", workflow="release", definition=runbook).save({}, next="deploy")

    again = opened()
    assert again.run("execution", workflow="release", definition=dict(runbook)).checkpoint().next == "deploy"
    with pytest.raises(DefinitionChanged, match="another definition"):
        again.run("execution", workflow="release", definition=runbook | {"steps": ["build", "test", "deploy"]})
    with pytest.raises(DefinitionChanged, match="'release', not of 'cleanup'"):
        again.run("execution", workflow="cleanup")


def test_a_started_step_is_told_from_a_finished_one(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable
) -> None:
    """A crash in the act leaves the step begun and not finished, for everybody to see."""
    run = hf.run("execution")
    run.once("build", remember, 1, target="dist/")

    def deploy() -> None:
        kill(hf)
        raise PowerFailure

    with pytest.raises((PowerFailure, StoreUnusable)):
        run.once("deploy", deploy, target="production")

    again = opened().get("execution")
    assert [(effect.key, effect.status) for effect in again.effects()] == [("build", "done"), ("deploy", "uncertain")]
    assert again.is_completed("build")
    assert not again.is_completed("deploy")
