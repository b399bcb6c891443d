"""brainwires' `workflow_state.rs`: completed tool ids and a side-effect log, so that a restart skips what was done.

| its test                                       | here                                            |
|------------------------------------------------|-------------------------------------------------|
| in_memory_roundtrip                            | test_roundtrip                                  |
| fs_save_and_load_roundtrip                     | test_roundtrip                                  |
| mark_step_and_skip                             | test_mark_step_and_skip                         |
| delete_removes_checkpoint                      | test_delete_removes_checkpoint                  |
| fs_atomic_write_produces_no_tmp_file_after_save | test_no_passing_file_after_save                |
| fs_mark_step_creates_checkpoint_implicitly     | test_mark_step_creates_checkpoint_implicitly    |
| fs_delete_is_idempotent                        | test_delete_is_idempotent                       |
| fs_checkpoint_path_sanitizes_special_chars     | test_ids_with_special_chars                     |

The other tests are named after what is weak there and must hold here. A task is a run, the agent is one of its tags.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Holdfast, undo_function
from holdfast.errors import RunNotFound, StoreUnusable


class PowerFailure(BaseException):
    """Nothing after this line is run."""


undone: list[tuple[str, str]] = []


def write_file(path: str) -> str:
    return f"wrote {path}"


@undo_function
def remove_file(result: str, path: str) -> None:
    undone.append((result, path))


# --- the counterparts


def test_roundtrip(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    with pytest.raises(RunNotFound):
        hf.get("t1")
    hf.run("t1", tags={"agent": "agent-1"}).save({})
    loaded = opened().get("t1")
    assert (loaded.id, loaded.info().tags) == ("t1", {"agent": "agent-1"})


def test_mark_step_and_skip(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("t2")
    run.mark("use-1", "write_file", "src/main.rs", reversible=True)
    for seen in (run, opened().get("t2")):
        assert seen.is_completed("use-1")
        assert not seen.is_completed("use-2")
        assert len(seen.effects()) == 1


def test_delete_removes_checkpoint(hf: Holdfast) -> None:
    run = hf.run("t3")
    run.mark("use-1", "write_file")
    run.delete()
    with pytest.raises(RunNotFound):
        hf.get("t3")
    assert not hf.run("t3").is_completed("use-1")  # a new run of the same id knows nothing of the old one


def test_no_passing_file_after_save(hf: Holdfast, memdir: Path) -> None:
    hf.run("atomic-task").save({})
    hf.run("atomic-task").mark("use-1", "write_file")
    assert [path for path in memdir.rglob("*") if path.suffix in (".tmp", ".new")] == []


def test_mark_step_creates_checkpoint_implicitly(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    hf.run("fresh-task").mark("use-99", "write_file", "foo.rs", reversible=True)
    loaded = opened().get("fresh-task")
    assert loaded.is_completed("use-99")
    [effect] = loaded.effects()
    assert (effect.tool, effect.target, effect.reversible) == ("write_file", "foo.rs", True)


def test_delete_is_idempotent(hf: Holdfast) -> None:
    run = hf.run("del-task")
    assert run.delete() is True
    assert run.delete() is False
    with pytest.raises(RunNotFound):
        hf.get("never-existed")


def test_ids_with_special_chars(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    hf.run("proj/task.1 final").save({"x": 1})
    assert opened().get("proj/task.1 final").id == "proj/task.1 final"
    assert [info.id for info in hf.runs()] == ["proj/task.1 final"]


# --- what is weak there


def test_no_lost_updates_when_many_mark_at_once(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    hf.run("task")
    handles = [opened().get("task") for _ in range(4)]
    barrier = threading.Barrier(len(handles))

    def mark(number: int) -> None:
        barrier.wait()
        for n in range(6):
            assert handles[number].mark(f"use-{number}-{n}", "write_file")

    threads = [threading.Thread(target=mark, args=(number,)) for number in range(len(handles))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = {f"use-{number}-{n}" for number in range(4) for n in range(6)}
    run = hf.get("task")
    assert {effect.key for effect in run.effects()} == everything
    with run.claim():
        assert run.checkpoint().completed == everything


def test_marking_twice_counts_once(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run, other = hf.run("task"), opened().run("task")
    assert run.mark("use-1", "write_file") is True
    assert other.mark("use-1", "write_file") is False
    assert run.mark("use-1", "write_file") is False
    with run.claim():
        assert run.mark("use-1", "write_file") is False
        assert other.mark("use-1", "write_file") is False
        assert run.mark("use-2", "write_file") is True
        assert run.mark("use-2", "write_file") is False
    assert [effect.key for effect in other.effects()] == ["use-1", "use-2"]


def test_ids_never_share_a_place(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    ids = ["a/b", "a.b", "a_b", "a b", "A_B", "a-b", "ä_b", "a_b "]
    for number, id in enumerate(ids):
        hf.run(id).save(number)
        hf.run(id).mark(f"use-{number}", "tool")
    again = opened()
    for number, id in enumerate(ids):
        assert again.get(id).checkpoint().state == number
        assert {effect.key for effect in again.get(id).effects()} == {f"use-{number}"}
    again.get("a_b").delete()
    assert sorted(info.id for info in hf.runs()) == sorted(set(ids) - {"a_b"})


def test_the_output_is_stored_and_returned(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """A call that is skipped still has its result."""
    calls: list[str] = []

    def search(query: str) -> dict[str, object]:
        calls.append(query)
        return {"hits": (1, 2), "for": query}

    first = hf.run("task").once("use-1", search, "kelp")
    again = opened().get("task")
    assert again.once("use-1", search, "kelp") == first == {"hits": (1, 2), "for": "kelp"}
    assert again.checkpoint().results == {"use-1": first}
    assert calls == ["kelp"]
    again.mark("use-2", "search", result=[3])
    with again.claim():
        assert again.checkpoint().results["use-2"] == [3]
        assert again.once("use-2", search, "marked elsewhere") == [3]
    assert calls == ["kelp"]


def test_a_crash_between_act_and_mark_is_visible(hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable) -> None:
    """The intent was on record before the tool was called."""

    def charge() -> None:
        kill(hf)
        raise PowerFailure

    with pytest.raises((PowerFailure, StoreUnusable)):
        hf.run("task").once("use-1", charge, target="card 4711")

    again = opened().get("task")
    [effect] = again.effects()
    assert (effect.key, effect.target, effect.status) == ("use-1", "card 4711", "uncertain")
    assert effect.tool.endswith("charge")
    assert not again.is_completed("use-1")


def test_reversible_is_used_by_rollback(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """What can be undone is undone, newest first; what cannot be is named."""
    undone.clear()
    run = hf.run("task")
    start = run.save({})
    run.once("use-1", write_file, "a.txt", target="a.txt", undo=remove_file)
    run.once("use-2", write_file, "b.txt", target="b.txt", undo=remove_file)
    run.once("use-3", write_file, "mail", target="operator@example.org", reversible=False)
    run.mark("use-4", "git_push", "origin")

    assert [(one.effect.key, one.action) for one in run.plan_rollback(start).steps] == [
        ("use-4", "irreversible"),
        ("use-3", "irreversible"),
        ("use-2", "undo"),
        ("use-1", "undo"),
    ]
    report = opened().get("task").rollback(to=start)
    assert undone == [("wrote b.txt", "b.txt"), ("wrote a.txt", "a.txt")]
    assert [effect.key for effect in report.undone] == ["use-2", "use-1"]
    assert [effect.key for effect in report.irreversible] == ["use-4", "use-3"]
    assert not run.is_completed("use-1")
    assert [(effect.key, effect.status) for effect in run.effects()] == [
        ("use-1", "undone"),
        ("use-2", "undone"),
        ("use-3", "left"),
        ("use-4", "left"),
    ]
