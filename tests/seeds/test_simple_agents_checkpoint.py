"""SimpleAgents' `checkpoint.rs`: save, load and delete a checkpoint that names workflow, step, next node and scope.

| its test                             | here                                 |
|--------------------------------------|--------------------------------------|
| round_trips_checkpoint_on_filesystem | test_round_trips_checkpoint          |

The other tests are named after what is weak there and must hold here.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import DefinitionChanged, NotStorable, RunNotFound

SCOPE = {"input": {"k": "v"}}


# --- the counterpart


def test_round_trips_checkpoint(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run-1", workflow="wf")
    for _ in range(3):
        run.save({"input": {}}, next="llm")
    run.save(SCOPE, next="tool")

    loaded = opened().get("run-1").checkpoint()
    assert (loaded.run, loaded.workflow, loaded.step, loaded.next) == ("run-1", "wf", 3, "tool")
    assert loaded.state == SCOPE

    run.delete()
    with pytest.raises(RunNotFound):
        opened().get("run-1")


# --- what is weak there


def test_resume_restores_outputs_counters_and_caches(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable
) -> None:
    """Not the input alone: what the nodes gave, how often loops went round, what was cached, and the pending work."""
    calls: list[str] = []

    def ask_model(prompt: str) -> dict[str, str]:
        calls.append(prompt)
        return {"text": prompt.upper()}

    state = SCOPE | {"outputs": {"llm": {"text": "HI"}}, "loops": {"retry": 2}, "cache": {("llm", "hi"): b"\x00\x01"}}
    run = hf.run("run", workflow="wf")
    run.claim()
    run.once("llm#1", ask_model, "hi")
    run.save(state, node="llm", next="tool", queue=[("tool", 4), ("merge", 5)], variables={"tries": 2})
    run.once("llm#2", ask_model, "again")
    kill(hf)

    again = opened().run("run", workflow="wf")
    with again.claim():
        resumed = again.checkpoint()
        assert resumed.state == state
        assert (resumed.node, resumed.next) == ("llm", "tool")
        assert resumed.queue == [("tool", 4), ("merge", 5)]
        assert resumed.variables == {"tries": 2}
        assert resumed.results == {"llm#1": {"text": "HI"}, "llm#2": {"text": "AGAIN"}}
        assert again.once("llm#2", ask_model, "again") == {"text": "AGAIN"}
    assert calls == ["hi", "again"]


def test_a_save_that_fails_leaves_the_one_before(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    run.save(SCOPE, next="tool")
    with pytest.raises(NotStorable) as refused:
        run.save({"input": {"k": object()}}, next="later")
    assert refused.value.path.startswith("state")
    for seen in (run, opened().get("run")):
        assert (seen.checkpoint().state, seen.checkpoint().next, seen.checkpoint().seq) == (SCOPE, "tool", 1)


def test_nothing_passing_is_left_behind(hf: Holdfast, memdir: Path) -> None:
    run = hf.run("run")
    run.save(SCOPE)
    run.save(SCOPE | {"more": 1})
    assert [path for path in memdir.rglob("*") if path.suffix in (".tmp", ".new")] == []


@pytest.mark.parametrize("id", ["../outside", "../../outside", "/outside", "a/../../outside", "..%2foutside"])
def test_a_run_id_does_not_traverse_paths(hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path, id: str) -> None:
    around = set(memdir.parent.iterdir()) | {Path("/outside")}
    hf.run(id).save(SCOPE)
    assert set(memdir.parent.glob("*outside*")) <= around
    assert not Path("/outside").exists()
    assert not list(memdir.glob("outside*"))
    assert opened().get(id).checkpoint().state == SCOPE
    hf.get(id).delete()
    assert memdir.exists()
    with pytest.raises(RunNotFound):
        hf.get(id)


def test_a_checkpoint_of_another_workflow_is_refused(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    hf.run("run", workflow="wf").save(SCOPE, next="tool")
    with pytest.raises(DefinitionChanged, match="workflow 'wf', not of 'other'"):
        opened().run("run", workflow="other")
    assert opened().run("run").checkpoint().next == "tool"  # who names no workflow may look at any
    assert opened().run("run", workflow="wf").checkpoint().next == "tool"
