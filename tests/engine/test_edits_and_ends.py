"""Editing a state, ends other than completion, and what becomes of attempts that are made again."""

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import pytest

from holdfast import Graph, Holdfast, NotDone, RunEnded, Status, add
from holdfast.engine.control import edit
from holdfast.errors import TypeMissing, Uncertain


def nothing(result: object, *args: object) -> None:
    """Undo for steps whose undoing leaves no trace."""


@dataclass
class Plan:
    steps: list[str]


def test_an_edit_keeps_the_pending_work(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save({"a": 1}, node="think", next="tool", queue=[("tool", 4)], variables={"env": "prod"})
    seq = run.edit({"a": 2})
    edited = run.checkpoint()
    assert edited.seq == seq
    assert edited.state == {"a": 2}
    assert (edited.node, edited.next, edited.queue, edited.variables) == (
        "think",
        "tool",
        [("tool", 4)],
        {"env": "prod"},
    )
    assert edited.step == 1


def test_a_save_says_everything_anew(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save({"a": 1}, next="tool", queue=[1])
    run.save({"a": 1})
    assert (run.checkpoint().next, run.checkpoint().queue) == (None, None)


def test_an_edit_before_any_save_is_a_save(hf: Holdfast) -> None:
    run = hf.run("run")
    run.edit([1])
    assert (run.checkpoint().state, run.checkpoint().step) == ([1], 0)


def test_a_cancelled_run_has_ended(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():
        run.cancel("no longer wanted")
    assert run.status is Status.CANCELLED
    run.cancel()
    with pytest.raises(RunEnded), run.claim():
        pass
    assert hf.runs(status="cancelled").items[0].id == "run"


def test_a_stored_result_can_be_had_of_an_ended_run(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("k", max, 1, 2)
    run.complete()
    assert run.once("k", max, 1, 2) == 2
    with pytest.raises(RunEnded):
        run.once("other", max, 1, 2)


def test_an_at_most_once_step_that_raised_may_have_acted(hf: Holdfast) -> None:
    run = hf.run("run")
    calls: list[int] = []

    def pay() -> None:
        calls.append(1)
        raise TimeoutError("no reply")

    with run.claim():
        with pytest.raises(TimeoutError):
            run.once("pay", pay, at_most_once=True)
        with pytest.raises(Uncertain, match="resolve"):
            run.once("pay", pay, at_most_once=True)
        assert [(effect.status, effect.error) for effect in run.effects()] == [("uncertain", "TimeoutError: no reply")]
        run.resolve("pay", done=True, result="receipt")
        assert run.once("pay", pay, at_most_once=True) == "receipt"
    assert len(calls) == 1


def test_an_at_most_once_step_that_says_it_has_not_acted_is_tried_again(hf: Holdfast) -> None:
    run = hf.run("run")
    answers: list[object] = [NotDone(), "receipt"]

    def pay() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with run.claim():
        with pytest.raises(NotDone):
            run.once("pay", pay, at_most_once=True)
        assert run.once("pay", pay, at_most_once=True) == "receipt"


def test_an_attempt_that_was_made_again_is_no_longer_uncertain(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save({})
    fails = [KeyboardInterrupt(), None]

    def act() -> str:
        error = fails.pop(0)
        if error is not None:
            raise error
        return "done"

    with pytest.raises(KeyboardInterrupt):
        run.once("k", act, target="x", undo=nothing)
    assert [effect.status for effect in run.effects()] == ["uncertain"]
    run.once("k", act, target="x", undo=nothing)
    assert [effect.status for effect in run.effects()] == ["repeated", "done"]
    report = run.rollback(to=start)
    assert [effect.seq for effect in report.undone] == [3]
    assert [effect.seq for effect in report.uncertain] == [2], "nobody knows what the first attempt did"


def test_a_fork_at_a_question_waits_for_it(hf: Holdfast) -> None:
    run = hf.run("run")
    question = run.pause("Go on?")
    run.answer("yes")
    with run.claim():
        run.save({})
    fork = run.fork(at=question.seq)
    assert fork.status is Status.WAITING
    [asked] = fork.questions()
    assert asked.id != question.id
    fork.answer("no")
    assert fork.status is Status.READY


def test_what_can_be_read_is_read_when_the_class_of_the_state_is_not_known(opened: object) -> None:
    first: Holdfast = opened()  # type: ignore[operator]
    first.run("run").save(Plan(["a"]), next="tool")
    first.close()
    second: Holdfast = opened()  # type: ignore[operator]
    checkpoint = second.get("run").checkpoint()
    assert checkpoint.next == "tool"
    with pytest.raises(TypeMissing, match=r"hf\.register"):
        _ = checkpoint.state
    assert checkpoint.raw_state == {"$type": f"{__name__}:Plan", "steps": ["a"]}
    assert second.get("run").checkpoint(type=Plan).state == Plan(["a"])


def test_names_that_come_and_go_do_not_store_the_state_anew(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():
        for n in range(40):
            run.save({"log": ["x" * 300] * n}, **({"next": "tool"} if n % 2 else {"queue": [n]}))
    entries = hf.client.store.read(run.uid, 0, 1000, saved=True)
    assert sum(entry.state == entry.seq for entry in entries) <= 2


class Count(TypedDict):
    n: Annotated[int, add]


def test_an_edit_is_not_applied_to_a_state_that_it_was_not_made_for(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write before it fails after the edit was decided, and before it is submitted."""
    graph = Graph(Count, name="counting edits")
    graph.node(lambda state: {"n": 0}, name="count")
    graph.entry("count")
    run = hf.start(graph, {"n": 0}, id="run")
    run.result()
    fork = run.fork(at=1, id="fork")
    fork.claim()
    fork.edit({"n": 100})
    decide, decided = edit._edited, list[int]()

    def overtaken(*args: Any) -> Any:
        made = decide(*args)
        decided.append(1)
        if len(decided) == 1:  # as if what it builds on turned out not to be there
            assert fork.held.lease is not None
            fork.held.lease.refresh()
        return made

    monkeypatch.setattr(edit, "_edited", overtaken)
    fork.edit({"n": 10})
    assert len(decided) == 2
    assert fork.checkpoint().state == {"n": 110}
    fork.release()
