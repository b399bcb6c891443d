"""CAR's paused workflows, field by field: the question can be answered, and the run claimed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Field, Holdfast, Status
from holdfast.errors import AnswerRefused, Claimed, DefinitionChanged, UsageError
from holdfast.importers import drawing, import_from, origin
from holdfast.importers.car import fields_of
from holdfast.importers.car_drawing import topology_of

STATE = {"branch": "main", "build": {"id": 17, "ok": True, "seconds": 1.5}, "tags": ["a", "b"], "none": None}
FIELDS = (
    Field("ok", "boolean"),
    Field("channel", "choice", required=False, options=("stable", "beta")),
    Field("why", "text", required=False, label="Reason"),
)


def test_a_paused_run_is_a_run_with_an_open_question(
    hf: Holdfast, opened: Callable[..., Holdfast], left: Callable
) -> None:
    folder = left("car")
    summary = import_from("car", folder, hf)
    assert (sorted(summary.imported), summary.ok) == (["both", "crashed", "run-1"], True)

    run = opened().get("run-1")
    assert (run.status, run.info().workflow, run.info().tags) == (Status.WAITING, "Release", {"imported_from": "car"})
    at = run.checkpoint()
    assert (at.state, at.node, at.next, at.queue) == (STATE, "gate", None, None)
    assert at.variables == {
        "stage_results": [{"stage_id": "build", "output": "built"}],
        "completed_stage_ids": ["build"],
        "iterations": 1,
        "prior_duration_ms": 1234.5,
        "created_at": "2026-03-01T09:00:00.123456789Z",
    }
    [question] = run.questions()
    assert (question.prompt, question.output_key, question.fields) == ("Approve the release?", "approval", FIELDS)


def test_it_is_answered_and_claimed(hf: Holdfast, opened: Callable[..., Holdfast], left: Callable) -> None:
    folder = left("car")
    import_from("car", folder, hf)
    run, other = hf.get("run-1"), opened().get("run-1")
    with pytest.raises(AnswerRefused, match="channel"):
        run.answer({"ok": True, "channel": "nightly"})
    other.answer({"ok": True, "channel": "beta"}, by="operator")
    with run.claim():
        with pytest.raises(Claimed):
            other.claim()
        assert run.checkpoint().answers == {"approval": {"ok": True, "channel": "beta", "why": None}}
        run.save(run.checkpoint().state, node="deploy")
    run.complete("released")
    assert other.status is Status.COMPLETED
    assert import_from("car", folder, hf).already == ("both", "crashed", "run-1")


def test_a_claimed_run_is_armed_again(hf: Holdfast, left: Callable) -> None:
    summary = import_from("car", left("car"), hf)
    run = hf.get("crashed")
    assert (run.status, run.questions()[0].prompt) == (Status.WAITING, "Go on?")
    run.answer("anything")  # it has no fields
    assert run.status is Status.READY
    assert origin(run).kept["in_flight"] is True
    assert origin(hf.get("run-1")).kept["in_flight"] is False
    [note] = [note.text for note in summary.notes if note.run == "crashed"]
    assert note.startswith("a process had claimed it")


def test_a_stale_mark_is_not_read(hf: Holdfast, left: Callable) -> None:
    """As in the document: a .json beside it means that the .inflight counts no more, whatever is in it."""
    folder = left("car")
    summary = import_from("car", folder, hf)
    assert summary.damaged == ()
    assert [note.text for note in summary.notes if note.run == "both"] == [
        "the .inflight file beside it is a stale mark, and was not read"
    ]
    assert origin(hf.get("both")).source == "both.json"
    [damaged] = import_from("car", folder / "both.inflight", hf).damaged  # whoever names it is told
    assert "stale mark" in damaged.why


def test_the_definition_is_kept_with_the_run(hf: Holdfast, left: Callable) -> None:
    folder = left("car")
    import_from("car", folder, hf)
    workflow = json.loads((folder / "run-1.json").read_text())["workflow"]
    run = hf.get("run-1")
    run.answer({"ok": False})
    run.save({"another": "state"})
    run.rollback(to=0)
    assert origin(run).kept["workflow"] == workflow
    assert (workflow["start"], workflow["goal"], workflow["max_iterations"]) == ("build", "announce", 100)
    assert hf.run("run-1", workflow="Release", definition=workflow).id == "run-1"
    with pytest.raises(DefinitionChanged):
        hf.run("run-1", workflow="Release", definition=workflow | {"start": "gate"})


def test_stages_and_edges_are_drawn(hf: Holdfast, left: Callable) -> None:
    import_from("car", left("car"), hf)
    run = hf.get("run-1")
    run.answer({"ok": True})
    run.save({"elsewhere": True}, node="deploy")  # the drawing is of what was imported
    text = drawing(run)
    for name in ("build", "gate", "deploy", "announce", "approval.ok"):
        assert name in text
    assert drawing(run, "svg").startswith("<svg")
    run.redact(2)
    assert "announce" in drawing(run)
    with pytest.raises(UsageError, match="not imported from CAR"):
        drawing(hf.run("another"))
    with pytest.raises(UsageError, match="form='png'"):
        drawing(run, "png")


WORKFLOW: dict[str, Any] = {"id": "wf", "name": "", "start": "a", "goal": None, "stages": [], "edges": []}


@pytest.mark.parametrize(
    ("edge", "expected"),
    [
        ({"from": "a", "to": "b"}, ("a", "b", False, "")),
        ({"source": "a", "target": "b", "label": "x"}, ("a", "b", False, "x")),
        ({"from": "a", "to": "b", "condition": {"eq": 1}}, ("a", "b", True, '{"eq":1}')),
        ({"from": "a", "to": "b", "when": "y" * 50}, ("a", "b", True, "y" * 39 + "…")),
        ({"from": "a"}, None),
        ({"from": 1, "to": 2}, None),
        ("a -> b", None),
    ],
)
def test_edges_of_a_known_form_are_drawn(edge: Any, expected: tuple | None) -> None:
    made = topology_of(WORKFLOW | {"edges": [edge], "stages": ["a", {"id": "c"}, {"no": "id"}, 7]})
    assert [tuple(one.values()) for one in made["edges"]] == ([expected] if expected else [])
    assert [node["name"] for node in made["nodes"]] == ["a", "c", *(["b"] if expected else [])]
    assert (made["name"], made["entries"], made["goal"]) == ("wf", ["a"], False)


def test_a_goal_may_be_a_stage_or_anything(hf: Holdfast) -> None:
    edges = [{"from": "a", "to": "b"}]
    assert topology_of(WORKFLOW | {"goal": "a", "edges": edges})["edges"][1]["label"] == "goal"
    assert topology_of(WORKFLOW | {"goal": "b", "edges": edges})["goal"] is False
    assert topology_of(WORKFLOW | {"goal": {"score": ">0.9"}, "edges": edges})["goal"] is True


def test_unknown_forms_are_kept_and_told(hf: Holdfast, left: Callable, change: Callable) -> None:
    folder = left("car")
    path = folder / "run-1.json"
    workflow = json.loads(path.read_text())["workflow"] | {"stages": [{"stage": 1}], "edges": [["a", "b"], {}]}
    fields = [{"name": "ok", "type": {"kind": "bool"}}]
    change(path, workflow=workflow, fields=fields)
    summary = import_from("car", path, hf)
    run = hf.get("run-1")
    assert run.questions()[0].fields == ()
    run.answer(["whatever", "it", "is"])
    assert run.checkpoint().variables["fields"] == fields
    assert origin(run).kept["workflow"] == workflow
    assert len(summary.notes) == 3
    assert "gate" in drawing(run)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ()),
        ([{"name": "n"}], (Field("n", "text"),)),
        ([{"name": "n", "type": "String", "label": None}], (Field("n", "text"),)),
        ([{"name": "n", "type": "BOOL"}], (Field("n", "boolean"),)),
        ([{"name": "n", "type": "integer", "default": 3}], (Field("n", "integer", default=3),)),
        ([{"name": "n", "options": ["x", "y"]}], (Field("n", "choice", options=("x", "y")),)),
    ],
)
def test_fields_of_a_known_form(given: list[Any], expected: tuple[Field, ...]) -> None:
    made, problem = fields_of(given)
    assert (made, problem) == (expected, None)


@pytest.mark.parametrize(
    "given",
    [
        ["n"],
        [{"type": "text"}],
        [{"name": 1}],
        [{"name": ""}],
        [{"name": "n", "type": "file"}],
        [{"name": "n", "type": 1}],
        [{"name": "n", "kind": "text"}],
        [{"name": "n", "required": "yes"}],
        [{"name": "n", "options": "x"}],
        [{"name": "n", "options": [{}]}],
        [{"name": "n", "options": [[1]]}],
        [{"name": "n"}, {"name": "n"}],
        [{"name": "n", "type": "integer", "default": "x"}],
        [{"name": "n", "label": 7}],
        [{"name": "n", "description": []}],
    ],
)
def test_fields_of_another_form_take_any_answer(given: list[Any], hf: Holdfast) -> None:
    made, problem = fields_of(given)
    assert made == ()
    assert problem is not None
    assert "\n" not in problem


def test_a_run_id_may_lie_in_a_folder(hf: Holdfast, left: Callable, change: Callable) -> None:
    """CAR makes a path of the id, whatever is in it."""
    folder = left("car")
    change(folder / "run-1.json", run_id="team/run-1")
    change(folder / "both.json", run_id="other")
    summary = import_from("car", folder, hf)
    assert "team/run-1" in summary.imported
    assert [(one.source, one.place) for one in summary.damaged] == [("both.json", "$.run_id")]
