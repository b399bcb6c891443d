"""Going back: which effects are undone, in which order, what is said about the rest, and what a crash leaves."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, Run, Status
from holdfast.errors import (
    Claimed,
    NoCheckpoint,
    QuestionClosed,
    RunBlocked,
    RunEnded,
    StoreUnusable,
    Uncertain,
    UndoFailed,
    UndoRefused,
    UsageError,
)
from holdfast.kernel.fold import Fold
from holdfast.kernel.model import Kind


class Killed(BaseException):
    """Nothing after this line is run."""


undone: list[Any] = []
trouble: dict[str, BaseException] = {}  # what the next undo of this name raises
last_words: dict[str, Callable[[], None]] = {}  # what it does before


@pytest.fixture(autouse=True)
def _fresh() -> None:
    undone.clear()
    trouble.clear()
    last_words.clear()


def put(name: str, *, suffix: str = "") -> str:
    return f"put {name}{suffix}"


def take_back(result: str, name: str, *, suffix: str = "") -> None:
    last_words.pop(name, lambda: None)()
    if name in trouble:
        raise trouble.pop(name)
    undone.append((result, name, suffix))


def act(run: Run, *names: str) -> None:
    for name in names:
        run.once(name, put, name, target=name, undo=take_back)


def names() -> list[str]:
    return [name for _, name, _ in undone]


def keys(effects: Any) -> list[str]:
    return [effect.key for effect in effects]


def statuses(run: Run) -> dict[str, str]:
    return {effect.key: effect.status for effect in run.effects()}


# --- order and report


def test_effects_are_undone_newest_first_with_result_and_arguments(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b")
    run.once("c", put, "c", suffix="!", undo=take_back)
    report = run.rollback(to=start)
    assert undone == [("put c!", "c", "!"), ("put b", "b", ""), ("put a", "a", "")]
    assert keys(report.undone) == ["c", "b", "a"]
    assert (report.to, report.generation) == (start, 1)
    assert (report.failed, report.irreversible, report.uncertain) == ((), (), ())
    assert statuses(run) == {"a": "undone", "b": "undone", "c": "undone"}


def test_only_what_came_after_the_point_is_undone(hf: Holdfast) -> None:
    run = hf.run("run")
    act(run, "before")
    point = run.save("point")
    act(run, "after")
    run.rollback(to=point)
    assert names() == ["after"]
    assert statuses(run) == {"before": "done", "after": "undone"}
    assert run.is_completed("before")
    assert not run.is_completed("after")


def test_the_state_goes_back_too(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    point = run.save({"n": 1}, next="x", queue=[1])
    run.once("mid", len, "")
    between = run.info().seq
    run.save({"n": 2})
    run.save({"n": 3})
    run.rollback(to=between)
    for seen in (run, opened().get("run")):
        assert (seen.checkpoint().state, seen.checkpoint().next, seen.checkpoint().queue) == ({"n": 1}, "x", [1])
        assert seen.checkpoint().state_seq == point
        assert seen.is_completed("mid")
    assert run.save({"n": 4})
    assert run.checkpoint().state == {"n": 4}
    assert run.checkpoint().step == 1
    run.rollback(to=0)
    assert run.checkpoint().state is None
    run.save("from the beginning")
    assert (run.checkpoint().state, run.checkpoint().step) == ("from the beginning", 0)
    run.audit()


def test_history_stays_and_says_what_counts(hf: Holdfast) -> None:
    run = hf.run("run")
    point = run.save(1)
    act(run, "a")
    run.rollback(to=point)
    assert [(entry.kind, entry.live) for entry in run.history()] == [
        ("created", True),
        ("saved", True),
        ("intended", False),
        ("done", False),
        ("rollback_begun", False),
        ("undone", False),
        ("rewound", True),
    ]


# --- an undo that fails


def stopped(run: Run, to: int, **how: Any) -> UndoFailed:
    with pytest.raises(UndoFailed) as caught:
        run.rollback(to=to, **how)
    return caught.value


def test_a_failing_undo_stops_the_rollback_and_the_next_one_continues_there(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b", "c")
    run.save("later")
    trouble["b"] = ValueError("the bank is closed")
    error = stopped(run, start)
    assert "the undo of step 'b' failed (ValueError: the bank is closed)" in str(error)
    report = error.report
    assert (keys(report.undone), keys(report.failed), keys(report.pending)) == (["c"], ["b"], ["a"])
    assert report.failed[0].error == "ValueError: the bank is closed"
    assert statuses(run) == {"a": "done", "b": "undo_failed", "c": "undone"}
    info = run.info()
    assert (info.status, info.generation) == (Status.BLOCKED, 0)
    assert "'b' failed (ValueError: the bank is closed)" in (info.reason or "")
    assert run.checkpoint().state == "later", "nothing is rewound"
    report = run.rollback(to=start)
    assert names() == ["c", "b", "a"]
    assert keys(report.undone) == ["c", "b", "a"]
    assert (run.status, run.info().generation, run.checkpoint().state) == (Status.READY, 1, "start")
    run.audit()


def test_with_force_a_rollback_passes_over_it_and_records_that(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b", "c")
    trouble["b"] = ValueError("the bank is closed")
    stopped(run, start)
    report = run.rollback(to=start, force=True, by="operations")
    assert (keys(report.undone), keys(report.failed)) == (["c", "a"], ["b"])
    assert names() == ["c", "a"], "what failed before is not tried again, since a person has given it up"
    assert statuses(run) == {"a": "undone", "b": "undo_failed", "c": "undone"}
    begun = [run.entry(one.seq).contents for one in run.history(kind="rollback_begun")]
    assert [(one.get("force", False), one.get("by")) for one in begun] == [(False, None), (True, "operations")]
    passed = [run.entry(one.seq).contents for one in run.history(kind="undone")]
    assert [one.get("passed", False) for one in passed] == [False, False, True, False]
    assert run.rollback(to=start).undone == (), "it is not tried by a later rollback either"


def test_in_its_middle_a_run_is_neither_deleted_nor_pruned(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b")
    trouble["a"] = ValueError("the bank is closed")
    stopped(run, start)
    with pytest.raises(RunBlocked, match=r"force=True.*would forget"):
        run.delete()
    assert hf.prune(statuses=["blocked"]) == ()
    assert statuses(run) == {"a": "undo_failed", "b": "undone"}
    run.rollback(to=start, force=True)
    assert run.delete() is True


def test_with_force_from_the_start_each_failing_undo_is_tried_and_passed_over(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b", "c")
    trouble.update({"a": OSError("busy"), "c": OSError("busy")})
    report = run.rollback(to=start, force=True)
    assert (keys(report.undone), keys(report.failed)) == (["b"], ["c", "a"])
    assert (run.status, run.checkpoint().state) == (Status.READY, "start")


def test_what_is_allowed_in_the_middle_of_a_rollback(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a")
    middle = run.save("middle")
    act(run, "b", "c")
    trouble["b"] = ValueError("no")
    stopped(run, middle)
    for one in (run, opened().get("run")):
        for refused in (
            lambda one=one: one.save("more"),
            lambda one=one: one.once("d", put, "d"),
            lambda one=one: one.claim(),
            lambda one=one: one.complete(),
            lambda one=one: one.cancel(),
            lambda one=one: one.pause("well?"),
            lambda one=one: one.redact(start),
        ):
            with pytest.raises(RunBlocked, match="'b' failed"):
                refused()
        with pytest.raises(UsageError, match=f"rollback to entry {middle}, and can only be"):
            one.rollback(to=middle + 1)
        with pytest.raises(NoCheckpoint, match=f"fork it at that entry or an earlier one: run.fork\\(at={middle}\\)"):
            one.fork()
    assert run.fork(at=middle).checkpoint().state == "middle"
    assert run.status is Status.BLOCKED
    report = run.rollback(to=start)  # further back than it was asked for first
    assert (keys(report.undone), names()) == (["c", "b", "a"], ["c", "b", "a"])
    assert run.checkpoint().state == "start"


def test_no_question_is_open_in_the_middle_of_a_rollback(hf: Holdfast) -> None:
    """An answer would be acknowledged, and lost when the rollback ends."""
    run = hf.run("run")
    act(run, "a")
    asked = run.pause("Go on?")
    trouble["a"] = ValueError("no")
    stopped(run, 0)
    assert run.questions() == ()
    with pytest.raises(QuestionClosed):
        run.answer("yes", question=asked.id)
    run.rollback(to=0)


def test_a_rollback_that_died_is_finished_with_force_by_a_cancel(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save("start")
    act(run, "a", "b")
    trouble["b"] = Killed()
    with pytest.raises(Killed):
        run.rollback(to=0)
    trouble["b"] = ValueError("no")
    run.cancel(force=True)
    assert (run.status, names()) == (Status.CANCELLED, ["a"])


def test_the_plan_of_one_that_stopped_has_what_is_left_to_do(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b", "c")
    trouble["b"] = ValueError("no")
    stopped(run, start)
    assert [(one.effect.key, one.action) for one in run.plan_rollback(start).steps] == [("b", "undo"), ("a", "undo")]


@pytest.mark.parametrize("ways", [{"undo": True}, {"force": True}], ids=["undo", "force"])
def test_a_run_that_is_blocked_in_its_rollback_is_cancelled_by_finishing_that(
    hf: Holdfast, ways: dict[str, bool]
) -> None:
    run = hf.run("run")
    run.save("start")
    act(run, "a", "b")
    trouble["b"] = ValueError("no")
    stopped(run, 0)
    with pytest.raises(RunBlocked, match=r"run\.cancel\(force=True\)"):
        run.cancel("enough")
    run.cancel("enough", by="operations", **ways)
    assert run.status is Status.CANCELLED
    assert names() == (["b", "a"] if "undo" in ways else ["a"])
    assert run.entry(run.info().seq).contents == {"error": "enough", "by": "operations"}


def test_unblock_tries_again_too(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b")
    trouble["b"] = ValueError("no")
    stopped(run, start)
    run.unblock()
    assert names() == ["b", "a"]
    assert run.status is Status.READY


def test_the_holder_of_a_claim_loses_it_with_the_rollback_that_stops(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():
        start = run.save("start")
        act(run, "a")
        trouble["a"] = ValueError("no")
        stopped(run, start)
        with pytest.raises(UsageError, match="its claim was given up"):
            run.save("more")
    assert run.status is Status.BLOCKED
    assert run.info().holder is None


def test_one_that_died_and_is_continued_by_a_claim_stops_there_too(
    hf: Holdfast, opened: Callable[..., Holdfast]
) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b")
    trouble["b"] = Killed()
    with pytest.raises(Killed):
        run.rollback(to=start)
    trouble["b"] = ValueError("no")
    other = opened().get("run")
    with pytest.raises(UndoFailed, match="'b' failed"):
        other.claim()
    assert (other.status, statuses(other)) == (Status.BLOCKED, {"a": "done", "b": "undo_failed"})
    other.rollback(to=start)
    assert names() == ["b", "a"]


def test_what_cannot_be_undone_is_named(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    run.once("mail", put, "mail", target="operator")
    act(run, "file")
    run.mark("push", "git", "origin", reversible=True)  # reversible, but nobody said how
    report = run.rollback(to=start)
    assert (keys(report.undone), keys(report.irreversible)) == (["file"], ["push", "mail"])
    assert statuses(run) == {"mail": "left", "file": "undone", "push": "left"}


def test_plain_steps_are_simply_forgotten(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    run.once("pure", len, "abc")
    report = run.rollback(to=start)
    assert report.undone == report.failed == report.irreversible == report.uncertain == ()
    assert run.once("pure", len, "other arguments are fine now") == 28


def test_effects_that_are_uncertain_or_raised_are_named(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable
) -> None:
    run = hf.run("run")
    start = run.save("start")

    def refuse() -> None:
        raise ValueError("half done, perhaps")

    def die() -> None:
        kill(hf)
        raise Killed

    with pytest.raises(ValueError, match="perhaps"):
        run.once("raised", refuse, undo=take_back)
    with pytest.raises((Killed, StoreUnusable)):
        run.once("died", die, undo=take_back)
    again = opened().get("run")
    died, raised = again.plan_rollback(start).steps
    assert [(one.effect.key, one.action) for one in (died, raised)] == [("died", "uncertain"), ("raised", "uncertain")]
    assert "not known whether step 'died' was done" in (died.problem or "")
    assert raised.problem is None, "it said itself that it failed"
    before = again.info()
    with pytest.raises(Uncertain, match=r"'died' was done; run\.resolve\('died'"):
        again.rollback(to=start)
    assert (again.status, again.info().seq) == (Status.READY, before.seq)
    report = again.rollback(to=start, force=True)
    assert sorted(keys(report.uncertain)) == ["died", "raised"]
    assert undone == []
    assert again.once("died", put, "x", at_most_once=True) == "put x"  # a new generation begins anew


def test_the_plan_says_what_the_rollback_does_and_does_nothing(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a")
    run.once("b", put, "b", target="b")
    run.mark("c", "tool")
    before = run.info()
    plan = run.plan_rollback(start)
    assert plan.to == start
    assert [(one.effect.key, one.action) for one in plan.steps] == [
        ("c", "irreversible"),
        ("b", "irreversible"),
        ("a", "undo"),
    ]
    assert run.info() == before
    assert undone == []
    report = run.rollback(to=start)
    assert keys(report.irreversible) + keys(report.undone) == [one.effect.key for one in plan.steps]


def test_effects_that_were_marked_while_the_run_is_held_are_dealt_with(
    hf: Holdfast, opened: Callable[..., Holdfast]
) -> None:
    holder, other = hf.run("run"), opened().run("run")
    with holder.claim():
        start = holder.save("start")
        other.mark("push", "git")
        assert [one.effect.key for one in holder.plan_rollback(start).steps] == ["push"]
        assert keys(holder.rollback(to=start).irreversible) == ["push"]
        assert not other.is_completed("push")
    with holder.claim():
        assert not holder.is_completed("push")


def test_a_step_whose_intent_lies_before_the_point_is_undone_too(hf: Holdfast) -> None:
    """The point lies between intent and result: at that point nothing was done, so after it nothing may be."""
    run = hf.run("run")
    act(run, "a")
    intent = next(entry.seq for entry in run.history() if entry.kind == "intended")
    report = run.rollback(to=intent)
    assert names() == ["a"]
    assert keys(report.undone) == ["a"]
    assert not run.is_completed("a")
    act(run, "a")
    assert run.is_completed("a")


def test_parallel_steps_are_undone_in_the_order_of_their_results(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    with run.claim():
        run.once("outer", lambda: act(run, "inner"), target="o", reversible=True)
    assert [one.effect.key for one in run.plan_rollback(start).steps] == ["outer", "inner"]


# --- where one may go back to


def test_points_that_are_not_in_the_effective_history(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    lost = run.save("lost")
    run.rollback(to=start)
    for to in (lost, 99, -1):
        with pytest.raises(NoCheckpoint):
            run.rollback(to=to)
        with pytest.raises(NoCheckpoint):
            run.plan_rollback(to)
    assert run.status is Status.READY
    assert run.info().generation == 1


def test_a_fork_rolls_back_no_further_than_its_fork_point(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "parent's")
    fork = run.fork()
    act(fork, "own")
    with pytest.raises(NoCheckpoint, match="no further than its fork point 3"):
        fork.rollback(to=start)
    report = fork.rollback(to=3)
    assert keys(report.undone) == ["own"]
    assert statuses(fork) == {"parent's": "done", "own": "undone"}
    assert statuses(run) == {"parent's": "done"}
    run.rollback(to=start)
    assert names() == ["own", "parent's"]
    assert fork.is_completed("parent's")  # what happened to the parent later is not the fork's history


def test_an_undo_that_cannot_be_found_is_refused_before_anything_is_undone(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b")
    monkeypatch.delitem(globals(), "take_back")
    with pytest.raises(UndoRefused, match="take_back cannot be found"):
        run.rollback(to=start)
    assert run.info().generation == 0
    assert run.status is Status.READY
    assert "rollback_begun" not in [entry.kind for entry in run.history()]
    monkeypatch.undo()
    run.rollback(to=start)
    assert names() == ["b", "a"]


# --- again and again


def test_generations_do_not_meet(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    for generation in range(1, 4):
        run.once("step", put, f"try {generation}", target="t", undo=take_back)
        assert run.rollback(to=start).generation == generation
        assert run.info().generation == generation
    assert names() == ["try 1", "try 2", "try 3"]  # each once, never an old one again
    assert [effect.status for effect in run.effects()] == ["undone"] * 3
    assert run.checkpoint().generation == 3
    run.audit()


def test_a_second_rollback_further_back(hf: Holdfast) -> None:
    run = hf.run("run")
    first = run.save(1)
    act(run, "a")
    second = run.save(2)
    act(run, "b")
    run.rollback(to=second)
    act(run, "c")
    run.save(3)
    report = run.rollback(to=first)
    assert names() == ["b", "c", "a"]
    assert keys(report.undone) == ["c", "a"]
    assert run.checkpoint().state == 1
    assert run.checkpoint().completed == frozenset()


def test_what_became_of_an_uncertain_effect_can_be_said_before_it_is_rolled_back(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable
) -> None:
    run = hf.run("run")
    start = run.save(1)

    def die(name: str) -> None:
        kill(hf)
        raise Killed

    with pytest.raises((Killed, StoreUnusable)):
        run.once("a", die, "a", undo=take_back)
    again = opened().get("run")
    again.resolve("a", done=True, result="put a")
    assert keys(again.rollback(to=start).undone) == ["a"]
    assert undone == [("put a", "a", "")]


def test_questions_come_back_under_new_ids(hf: Holdfast) -> None:
    run = hf.run("run")
    first = run.pause("Go on?")
    run.answer("yes")
    with run.claim():
        assert run.checkpoint().answers == {"answer": "yes"}
        later = run.save("after")
    run.rollback(to=first.seq)
    assert run.status is Status.WAITING
    assert run.checkpoint().answers == {}
    [again] = run.questions()
    assert (again.prompt, again.seq) == ("Go on?", first.seq)
    assert again.id != first.id
    with pytest.raises(QuestionClosed):
        run.answer("no", question=first.id)
    run.answer("no", question=again.id)
    with run.claim():
        assert run.checkpoint().answers == {"answer": "no"}
    assert run.checkpoint(later).answers == {"answer": "yes"}


def test_questions_after_the_point_are_gone(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save(1)
    asked = run.pause("Go on?")
    run.answer("in the inbox, never read")
    run.rollback(to=start)
    assert run.questions() == ()
    assert run.status is Status.READY
    with pytest.raises(QuestionClosed):
        run.answer("late", question=asked.id)
    with run.claim():
        assert run.checkpoint().answers == {}


def test_an_ended_run_goes_on_after_a_rollback(hf: Holdfast) -> None:
    for end in ("complete", "fail"):
        run = hf.run(f"run-{end}")
        start = run.save("start")
        act(run, end)
        getattr(run, end)("the end")
        with pytest.raises(RunEnded):
            run.save("no")
        report = run.rollback(to=start)
        assert keys(report.undone) == [end]
        assert run.status is Status.READY
        assert run.checkpoint().result is None
        run.save("goes on")
        run.complete("again")
        assert run.checkpoint().result == "again"


def test_rolling_back_to_the_end_leaves_the_run_ended(hf: Holdfast) -> None:
    run = hf.run("run")
    run.complete("done")
    run.rollback(to=run.info().seq)
    assert run.status is Status.COMPLETED
    assert run.checkpoint().result == "done"


def test_a_held_run_is_rolled_back_by_its_holder_only(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    with run.claim():
        start = run.save(1)
        run.save(2)
        with pytest.raises(Claimed):
            opened().get("run").rollback(to=start)
        run.rollback(to=start)
        assert run.epoch is not None  # still held
        run.save(3)
    assert run.checkpoint().state == 3


# --- crashes in the middle


@pytest.mark.parametrize("ended", [False, True], ids=["going on", "ended"])
@pytest.mark.parametrize("how", ["broken off", "killed"])
def test_a_rollback_that_dies_is_continued_by_the_next_claimer(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable, how: str, ended: bool
) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b", "c")
    if ended:
        run.complete("too early")

    trouble["b"] = Killed()
    if how == "killed":
        last_words["b"] = lambda: kill(hf)
    with pytest.raises((Killed, StoreUnusable)):
        run.rollback(to=start)
    assert names() == ["c"]

    again = opened().get("run")
    assert again.checkpoint().state == "start"
    with again.claim():
        assert names() == ["c", "b", "a"]  # what was undone is not undone again
        assert statuses(again) == {"a": "undone", "b": "undone", "c": "undone"}
        assert again.info().generation == 1
        again.save("goes on")
    assert again.checkpoint().state == "goes on"
    again.audit()


def test_recover_finishes_a_rollback(hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable) -> None:
    owner = opened()
    run = owner.run("run")
    start = run.save("start")
    act(run, "a")
    run.claim()
    trouble["a"] = Killed()
    with pytest.raises(Killed):
        run.rollback(to=start)
    kill(owner)
    assert hf.recover() == ("run",)
    assert names() == ["a"]
    assert hf.get("run").info().generation == 1
    assert hf.get("run").status is Status.READY


def test_nothing_else_is_written_while_a_rollback_is_under_way(hf: Holdfast) -> None:
    """Otherwise the end of the rollback would abandon what was acknowledged meanwhile."""
    run = hf.run("run")
    with run.claim():
        start = run.save("start")
        act(run, "a")
        trouble["a"] = Killed()
        with pytest.raises(Killed):
            run.rollback(to=start)
        for write in (
            lambda: run.save("meanwhile"),
            lambda: run.once("meanwhile", len, ""),
            lambda: run.pause("meanwhile?"),
            lambda: run.complete(),
            lambda: run.rollback(to=start),
        ):
            with pytest.raises(UsageError, match="being rolled back"):
                write()
    with run.claim():
        assert names() == ["a"]
        run.save("afterwards")
    assert run.checkpoint().state == "afterwards"


def test_a_rollback_asked_for_again_after_a_break(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a", "b")
    trouble["a"] = Killed()
    with pytest.raises(Killed):
        run.rollback(to=start)
    run.rollback(to=start)
    assert names() == ["b", "a"]
    assert run.checkpoint().state == "start"
    run.audit()


def test_what_is_marked_while_a_rollback_is_under_way_is_kept(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """It was acknowledged after the decision to go back, so the end of the rollback does not take it along."""
    run, other = hf.run("run"), opened().run("run")
    start = run.save("start")
    act(run, "a")
    with run.claim():
        trouble["a"] = Killed()
        with pytest.raises(Killed):
            run.rollback(to=start)
        assert run.mark("by the holder", "tool") is True
        assert other.mark("by another", "tool") is True
    with other.claim():
        assert names() == ["a"]
        assert other.checkpoint().completed == {"by the holder", "by another"}
    assert statuses(run) == {"a": "undone", "by the holder": "done", "by another": "done"}


def test_a_rollback_may_give_the_run_up(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    act(run, "a")
    with pytest.raises(UsageError, match="'cancelled'"):
        run.rollback(to=start, then="completed")
    assert names() == [], "what is refused has undone nothing"
    run.rollback(to=start, then="cancelled")
    assert names() == ["a"]
    assert run.status == "cancelled"


def test_what_is_tried_on_a_copy_stays_with_it() -> None:
    """Of a rollback under way, too: what the copy has undone, the other one has not."""
    fold = Fold("run")
    fold.add(0, Kind.CREATED, 0, {})
    fold.add(1, Kind.MARKED, 0, {"key": "k", "tool": "t", "reversible": True})
    fold.add(2, Kind.ROLLBACK_BEGUN, 0, {"to": 0, "plan": [1]})
    copy = fold.copy()
    copy.add(3, Kind.UNDONE, 0, {"effect": 1, "ok": True})
    for one in (fold, copy):
        one.add(one.seq + 1, Kind.REWOUND, 0, {"to": 0})
    assert (fold.ledger[1].status, copy.ledger[1].status) == ("left", "undone")
