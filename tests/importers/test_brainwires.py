"""brainwires' tasks, field by field: completed tools are completed, side effects are in the ledger."""

import json
from collections.abc import Callable

import pytest

from holdfast import Holdfast, Status
from holdfast.importers import import_from

TASK, FILE = "proj/task.1 final", "proj_task_1_final.json"
LOG = [
    {
        "tool_use_id": "use-1",
        "tool_name": "write_file",
        "target": "src/main.rs",
        "completed_at": 1772355600,
        "reversible": True,
    },
    {"tool_use_id": "use-2", "tool_name": "git_push", "target": None, "completed_at": 1772355660, "reversible": False},
]


def never() -> None:
    raise AssertionError("it was completed elsewhere")


def test_tools_and_effects(hf: Holdfast, opened: Callable[..., Holdfast], left: Callable) -> None:
    summary = import_from("brainwires", left("brainwires"), hf)
    assert (summary.imported, summary.ok, summary.notes) == (("fresh-task", TASK), True, ())
    run = opened().get(TASK)
    assert run.checkpoint().state == {
        "agent_id": "agent-1",
        "step_index": 3,
        "completed_tool_ids": ["use-1", "use-2", "use-9"],
        "side_effects_log": LOG,
        "updated_at": 1772355661,
    }
    assert [(one.key, one.tool, one.target, one.reversible, one.status) for one in run.effects()] == [
        ("use-1", "write_file", "src/main.rs", True, "done"),
        ("use-2", "git_push", None, False, "done"),
    ]
    assert [entry.kind for entry in run.history()] == ["created", "done", "marked", "marked", "done", "saved"]
    assert run.info().tags == {"agent": "agent-1", "imported_from": "brainwires"}
    assert run.status is Status.READY


def test_what_was_completed_is_not_done_again(hf: Holdfast, left: Callable) -> None:
    import_from("brainwires", left("brainwires"), hf)
    run = hf.get(TASK)
    for key in ("use-1", "use-2", "use-9"):
        assert run.is_completed(key)
        assert run.once(key, never) is None  # there was no output to bring along
    assert not run.is_completed("use-3")
    assert run.once("use-3", len, "abc") == 3


def test_a_rollback_says_that_it_cannot_undo_them(hf: Holdfast, left: Callable) -> None:
    import_from("brainwires", left("brainwires"), hf)
    report = hf.get(TASK).rollback(to=1)
    assert [one.key for one in report.irreversible] == ["use-2", "use-1"]


def test_a_fresh_task(hf: Holdfast, left: Callable) -> None:
    import_from("brainwires", left("brainwires"), hf)
    run = hf.get("fresh-task")
    assert (run.effects(), run.checkpoint().state["step_index"]) == ((), 0)


def test_a_target_may_be_left_out(hf: Holdfast, left: Callable, change: Callable) -> None:
    path = left("brainwires") / FILE
    change(path, side_effects_log=[{key: value for key, value in LOG[1].items() if key != "target"}])
    import_from("brainwires", path, hf)
    assert hf.get(TASK).effects()[0].target is None


def test_effects_that_were_logged_twice_stay_two(hf: Holdfast, left: Callable, change: Callable) -> None:
    """Marking twice counts twice there; nothing of the log is lost, and no key meets another."""
    path = left("brainwires") / FILE
    taken = LOG[0] | {"tool_use_id": "use-1 (2)"}
    change(path, side_effects_log=[LOG[0], taken, LOG[0] | {"target": "b"}, LOG[0] | {"target": "c"}])
    summary = import_from("brainwires", path, hf)
    assert [(one.key, one.target) for one in hf.get(TASK).effects()] == [
        ("use-1", "src/main.rs"),
        ("use-1 (2)", "src/main.rs"),
        ("use-1 (3)", "b"),
        ("use-1 (4)", "c"),
    ]
    texts = [note.text for note in summary.notes]
    assert [text for text in texts if "more than once" in text] == [texts[1], texts[2]]
    assert "not among the completed ones" in texts[0]


@pytest.mark.parametrize("id", ["a/b", "a.b", "a b", "ä_b", "a_b"])
def test_a_safe_name_stands_for_any_of_these(hf: Holdfast, left: Callable, change: Callable, id: str) -> None:
    folder = left("brainwires")
    name = "ä_b.json" if id[0] == "ä" else "a_b.json"
    (folder / FILE).rename(folder / name)
    change(folder / name, task_id=id)
    assert id in import_from("brainwires", folder, hf).imported


def test_another_tasks_file_is_told(hf: Holdfast, left: Callable, change: Callable) -> None:
    folder = left("brainwires")
    change(folder / FILE, task_id="proj/task.2 final")
    [damaged] = import_from("brainwires", folder, hf).damaged
    assert (damaged.source, damaged.place) == (FILE, "$.task_id")


def test_a_tool_id_of_holdfasts_own_is_refused(hf: Holdfast, left: Callable, change: Callable) -> None:
    path = left("brainwires") / FILE
    change(path, completed_tool_ids=["holdfast.import"])
    [refused] = import_from("brainwires", path, hf).refused
    assert "holdfast.import" in refused.why
    assert len(hf.runs()) == 0


def test_unfinished_files_are_not_read(hf: Holdfast, left: Callable) -> None:
    folder = left("brainwires")
    (folder / "fresh-task.json.tmp").write_text(json.dumps({"task_id": "fresh-ta"})[:-3])
    assert import_from("brainwires", folder, hf).ok
