"""Runs of flows are runs like any other: they are looked at, edited, forked, retried and drawn."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Status, flow
from holdfast.errors import DefinitionChanged, FlowFailed
from holdfast.testing import replay, save_history

ASKS = """
vars: {v: 1}
steps:
  - {id: a, run: 'echo a{{ vars.v }}'}
  - {id: b, run: 'echo b{{ vars.v }} >> did', breakpoint: true}
  - {id: c, ask: {prompt: which?, type: text}}
outputs: {v: '{{ vars.v }}', c: '{{ steps.c.result }}'}
"""


def test_the_state_has_variables_and_steps(load: Any, hf: Holdfast) -> None:
    run = load(ASKS).start(hf, id="r")
    checkpoint = run.checkpoint()
    assert (checkpoint.node, checkpoint.state["vars"], list(checkpoint.state["steps"])) == ("a", {"v": 1}, ["a"])
    assert run.info().workflow == "flow"
    assert run.info().tags == {"flow": "sample"}
    assert [one.id for one in hf.runs(tags={"flow": "sample"})] == ["r"]


def test_variables_are_edited_at_a_breakpoint(load: Any, hf: Holdfast, memdir: Path) -> None:
    run = load(ASKS).start(hf, id="r")
    run.edit({"vars": {"v": 2}})
    run.resume()
    run.answer("x")
    assert run.result() == {"v": 2, "c": "x"}
    assert (memdir / "did").read_text() == "b2\n"


def test_a_fork_with_another_answer(load: Any, hf: Holdfast, memdir: Path) -> None:
    run = load(ASKS).start(hf, id="r")
    run.resume()
    run.answer("one")
    assert run.result() == {"v": 1, "c": "one"}
    other = run.fork(answers={"c#1/ask#1": "two"}, id="other")
    other.resume()
    assert other.result() == {"v": 1, "c": "two"}
    assert (memdir / "did").read_text() == "b1\n"  # that is in the shared past


def test_retry_goes_on_at_what_failed(load: Any, hf: Holdfast, memdir: Path) -> None:
    run = load(
        "steps:\n  - {id: a, run: echo a >> did}\n"
        "  - {id: b, for_each: [1, 2, 3], limit: 1,\n"
        "     run: 'echo b{{ item }} >> did; test {{ item }} != 2 || test -e ready'}\n"
        "  - {id: p, parallel: [{id: x, run: echo x >> did}, {id: y, run: 'echo y >> did; test -e more'}]}\n"
    ).start(hf, id="r")
    assert run.status is Status.FAILED
    (memdir / "ready").touch()
    run.retry()
    run.resume()
    assert run.status is Status.FAILED
    (memdir / "more").touch()
    run.retry()
    run.resume()
    assert run.status is Status.COMPLETED
    assert sorted((memdir / "did").read_text().split()) == ["a", "b1", "b2", "b2", "b3", "x", "y", "y"]


def test_effects_of_items_are_undone(load: Any, hf: Holdfast, memdir: Path) -> None:
    run = load(
        "steps:\n  - id: a\n    for_each: [1, 2, 3]\n    steps:\n"
        "      - {id: make, run: 'touch made{{ item }}', undo: 'rm made{{ item }}; echo {{ index }} >> undone'}\n"
        "  - {id: b, run: 'false'}\n"
    ).start(hf, id="r")
    assert len(list(memdir.glob("made*"))) == 3
    report = run.rollback(to=0, then="cancelled")
    assert len(report.undone) == 3
    assert list(memdir.glob("made*")) == []
    assert sorted((memdir / "undone").read_text().split()) == ["0", "1", "2"]


def test_questions_and_pauses_inside_of_branches(load: Any, hf: Holdfast, memdir: Path) -> None:
    run = load(
        "steps:\n  - id: a\n    parallel:\n      - {id: b, ask: {prompt: b, type: text}}\n"
        "      - {id: c, run: echo c >> did}\n"
        "      - {id: d, for_each: [1, 2], ask: {prompt: 'd{{ item }}', type: text}}\n"
    ).start(hf, id="r")
    for _ in range(3):
        assert run.status is Status.WAITING
        question = run.questions()[0]
        run.answer(f"answer {question.prompt}", question=question)
        run.resume()
    assert run.status is Status.COMPLETED
    steps = run.checkpoint().state["steps"]
    assert steps["b"]["result"] == "answer b"
    assert [one["result"] for one in steps["d"]["items"]] == ["answer d1", "answer d2"]
    assert (memdir / "did").read_text() == "c\n"


def test_cancel_with_undo(load: Any, hf: Holdfast, memdir: Path) -> None:
    run = load("steps:\n  - {id: a, run: 'true', undo: touch undone}\n  - {id: b, ask: 'go?'}\n").start(hf)
    run.cancel(undo=True)
    assert run.status is Status.CANCELLED
    assert (memdir / "undone").exists()


def test_a_run_keeps_its_definition(load: Any, hf: Holdfast, memdir: Path) -> None:
    run = load("steps:\n  - {id: a, ask: 'go?'}\n  - {id: b, run: echo old >> did}\n").start(hf, id="r")
    changed = load("steps:\n  - {id: a, ask: 'go?'}\n  - {id: b, run: echo new >> did}\n")
    with pytest.raises(DefinitionChanged, match="another definition or other variables, and keeps those"):
        changed.start(hf, id="r")
    run.answer(True)
    run.resume()
    assert (memdir / "did").read_text() == "old\n"


def test_the_same_start_again_gives_the_same_run(hf: Holdfast, memdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (memdir / "f.yaml").write_text("name: f\nsteps:\n  - {id: a, run: echo x >> did}\n")
    first = flow.load(memdir / "f.yaml").start(hf, id="r")
    monkeypatch.chdir(memdir)
    assert flow.load("./f.yaml").start(hf, id="r").uid == first.uid  # however its path is written
    assert (memdir / "did").read_text() == "x\n"


def test_a_flow_is_drawn_with_its_path(load: Any, mem: Holdfast) -> None:
    loaded = load(ASKS)
    run = loaded.start(mem)
    for text in (loaded.graph.mermaid(), loaded.graph.mermaid(run=run)):
        assert "Graph sample" in text
        assert all(f'("{id}' in text for id in ("a", "b", "c"))


def test_a_history_is_replayed_without_doing_anything(load: Any, hf: Holdfast, memdir: Path) -> None:
    run = load("steps:\n  - {id: a, run: echo x >> did}\n  - {id: b, for_each: [1, 2], run: echo y >> did}\n").start(hf)
    save_history(run, memdir / "history")
    assert replay(memdir / "history").ended == "returned"
    assert sorted((memdir / "did").read_text().split()) == ["x", "y", "y"]


def test_an_erased_input_parks_the_run(load: Any, hf: Holdfast) -> None:
    run = load("steps:\n  - {id: a, ask: 'go?'}\n  - {id: b, run: 'true'}\n").start(hf)
    run.redact(0)
    run.answer(True)
    run.resume()
    assert run.status is Status.BLOCKED
    assert "erased" in str(run.info().reason)


def test_flows_that_call_each_other_are_refused(load: Any, memdir: Path) -> None:
    (memdir / "one.yaml").write_text("name: one\nsteps:\n  - {id: a, flow: two.yaml}\n")
    (memdir / "two.yaml").write_text("name: two\nsteps:\n  - {id: a, flow: one.yaml}\n  - {id: b, rum: x}\n")
    found = [f"{Path(one.file).name}:{one.line}:{one.column} {one.message}" for one in flow.check(memdir / "one.yaml")]
    assert found == [
        "two.yaml:3:19 one.yaml calls this flow itself, directly or by others; use `loop` instead",
        "two.yaml:4:5 a step does something: it has one of run, call, http, ask, flow, set, wait, parallel, steps",
        "two.yaml:4:13 unknown key 'rum'; did you mean `run`?",
    ]


def test_what_a_called_flow_needs_is_checked_at_load(load: Any, memdir: Path) -> None:
    (memdir / "inner.yaml").write_text("name: inner\nvars: {who: , n: 1}\nsteps:\n  - {id: a, run: 'true'}\n")
    (memdir / "outer.yaml").write_text("name: outer\nsteps:\n  - {id: a, flow: inner.yaml, with: {whom: x}}\n")
    [one, two] = flow.check(memdir / "outer.yaml")
    assert "there is no variable 'whom'; did you mean `who`? in inner.yaml" in one.message
    assert "variable 'who' has no value in inner.yaml" in two.message


def test_a_failure_of_a_called_flow_is_that_of_the_step(load: Any, mem: Holdfast, memdir: Path) -> None:
    (memdir / "inner.yaml").write_text("name: inner\nsteps:\n  - {id: x, run: exit 4}\n")
    run = load("steps:\n  - {id: a, flow: inner.yaml}\n").start(mem)
    with pytest.raises(FlowFailed, match=r"step 'x' \(inner.yaml:3:5\) failed: exit code 4"):
        run.result()


def test_a_called_flow_that_rolled_back_does_not_roll_back_its_caller(load: Any, mem: Holdfast, memdir: Path) -> None:
    (memdir / "inner.yaml").write_text(
        "name: inner\nsteps:\n  - {id: x, run: 'true', undo: echo x >> undone}\n"
        "  - {id: y, run: 'false', on_failure: rollback}\n"
    )
    run = load(
        "steps:\n  - {id: a, run: 'true', undo: echo a >> undone}\n  - {id: b, flow: inner.yaml, on_failure: skip}\n"
    ).start(mem)
    assert run.status is Status.COMPLETED
    assert run.checkpoint().state["steps"]["b"]["status"] == "failed"
    assert (memdir / "undone").read_text() == "x\n"


def test_a_function_that_ends_the_process_fails_its_step(load: Any, mem: Holdfast) -> None:
    run = load("steps:\n  - {id: a, call: 'flow_calls:leave', on_failure: skip}\n").start(mem)
    assert run.checkpoint().state["steps"]["a"] == {"status": "failed", "error": "SystemExit: 3"}


@pytest.mark.parametrize(
    ("undo", "done", "why"),
    [
        ("rm {{ steps.a[vars.part] | quote }}", False, "there is no 'nope'"),
        ("rm {{ (steps.a.stdout | from_json).name | quote }}", True, "it was done, and nothing can take it back"),
    ],
)
def test_an_undo_that_cannot_be_filled_in_is_found_before_the_act_where_it_can(
    load: Any, mem: Holdfast, memdir: Path, undo: str, done: bool, why: str
) -> None:
    text = f"steps:\n  - id: a\n    run: 'touch made; echo [1]'\n    undo: {undo}\n    on_failure: skip\n"
    run = load(f"vars: {{part: nope}}\n{text}").start(mem)
    assert why in run.checkpoint().state["steps"]["a"]["error"]
    assert (memdir / "made").exists() is done
