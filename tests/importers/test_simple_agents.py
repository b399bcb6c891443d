"""SimpleAgents' checkpoints, field by field."""

from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status
from holdfast.importers import import_from, origin


def test_workflow_step_next_node_and_scope(hf: Holdfast, opened: Callable[..., Holdfast], left: Callable) -> None:
    assert import_from("simple-agents", left("simple-agents"), hf).imported == ("run-1",)
    run = opened().get("run-1")
    at = run.checkpoint()
    assert (at.run, at.workflow, at.next) == ("run-1", "wf", "tool")
    assert at.state == {"input": {"k": "v"}}
    assert at.variables == {"step": 3}
    assert (at.node, at.queue, at.effects, at.questions) == (None, None, (), ())
    assert run.status is Status.READY
    assert origin(run).source == "run-1.json"
    assert hf.run("run-1", workflow="wf").checkpoint().next == "tool"


@pytest.mark.parametrize(
    "scope",
    [None, [], 0, -1, 1.5, True, "text", 2**64 - 1, -(2**63), {"": ""}, {"$": "tuple", "v": [1]}, [[[{"a": [None]}]]]],
)
def test_a_scope_is_any_value(hf: Holdfast, left: Callable, change: Callable, scope: Any) -> None:
    path = change(left("simple-agents") / "run-1.json", scope_snapshot=scope)
    assert import_from("simple-agents", path, hf).ok
    state = hf.get("run-1").checkpoint().state
    assert (state, type(state)) == (scope, type(scope))


def nested(levels: int) -> Any:
    value: Any = "deep"
    for _ in range(levels):
        value = [value]
    return value


def test_a_scope_as_deep_as_it_may_be(hf: Holdfast, left: Callable, change: Callable) -> None:
    path = change(left("simple-agents") / "run-1.json", scope_snapshot=nested(126))
    assert import_from("simple-agents", path, hf).ok
    assert hf.get("run-1").checkpoint().state == nested(126)


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        (nested(127), "nested deeper than 128 levels"),
        ({"n": 2**64}, "more than 64 bits"),
        ({"n": [-(2**63) - 1]}, "more than 64 bits"),
    ],
)
def test_a_scope_that_the_other_side_could_not_read(left: Callable, change: Callable, scope: Any, why: str) -> None:
    path = change(left("simple-agents") / "run-1.json", scope_snapshot=scope)
    with holdfast.open("memory://") as hf:
        [damaged] = import_from("simple-agents", path, hf).damaged
    assert why in damaged.why


@pytest.mark.parametrize("id", ["überall 2", "a.b", "..", "a b\n", "x" * 200, "run-1.json", "日本"])
def test_ids_are_any_text(hf: Holdfast, left: Callable, change: Callable, id: str) -> None:
    folder = left("simple-agents")
    (folder / "run-1.json").rename(folder / f"{id}.json")
    change(folder / f"{id}.json", run_id=id)
    assert import_from("simple-agents", folder, hf).imported == (id,)
    assert hf.get(id).checkpoint().next == "tool"
