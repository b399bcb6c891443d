"""Steps that are run once, effects that are marked, and steps that died in the act."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from holdfast import Holdfast, Run, Status, undo_function
from holdfast.errors import (
    Claimed,
    HoldfastError,
    NonDeterminism,
    NotStorable,
    RunEnded,
    StoreUnusable,
    TypeMissing,
    Uncertain,
    UndoRefused,
    UsageError,
)


class Killed(BaseException):
    """Nothing after this line is run."""


@dataclass
class Receipt:
    number: int


class Counted:
    """A function that counts its calls."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((*args, *kwargs.items()))
        result = self.results.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result


def undo_nothing(result: Any, *args: Any) -> None:
    """An undo that can be found by its name."""


def kinds(run: Run) -> list[str]:
    return [entry.kind for entry in run.history()]


# --- once


def test_a_completed_step_is_not_run_again(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    step = Counted("first", "second")
    assert hf.run("run").once("key", step, 1, x=2) == "first"
    assert hf.get("run").once("key", step, 1, x=2) == "first"
    again = opened().get("run")
    with again.claim():
        assert again.once("key", step, 1, x=2) == "first"
        assert again.once("other", step, 1, x=2) == "second"
    assert step.calls == [(1, ("x", 2))] * 2
    assert kinds(again) == ["created", "done", "done"]


def test_a_step_that_touches_the_world_writes_its_intent_first(hf: Holdfast) -> None:
    run = hf.run("run")

    def act() -> str:
        assert kinds(run)[-1] == "intended"
        [effect] = run.effects()
        assert effect.status == "uncertain"
        return "done"

    run.once("key", act, target="the world")
    [effect] = run.effects()
    assert (effect.key, effect.target, effect.status, effect.reversible) == ("key", "the world", "done", False)
    assert effect.tool.endswith("act")


@pytest.mark.parametrize(
    "how",
    [{"target": "t"}, {"undo": undo_nothing}, {"reversible": True}, {"reversible": False}, {"at_most_once": True}],
)
def test_what_makes_a_step_an_effect(hf: Holdfast, how: dict[str, Any]) -> None:
    run = hf.run("run")
    run.once("key", len, "abc", **how)
    assert kinds(run) == ["created", "intended", "done"]
    [effect] = run.effects()
    assert effect.reversible is how.get("reversible", "undo" in how)
    assert effect.target == how.get("target")


@pytest.mark.parametrize("value", [None, 0, "", [], (), {"a": (1,)}, b"\xff", float("inf"), 2**100])
def test_results_come_back_as_they_were(hf: Holdfast, opened: Callable[..., Holdfast], value: Any) -> None:
    hf.run("run").once("key", Counted(value))
    again = opened().get("run").once("key", Counted())
    assert again == value
    assert type(again) is type(value)


def test_a_result_of_a_class_of_ones_own(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    step = Counted(Receipt(7))
    assert hf.run("run").once("key", step) == Receipt(7)
    again = opened()
    with pytest.raises(TypeMissing):
        again.get("run").once("key", step)
    assert again.get("run").once("key", step, result_type=Receipt) == Receipt(7)
    registered = opened()
    registered.register(Receipt)
    assert registered.get("run").once("key", step) == Receipt(7)


def test_other_arguments_are_noticed(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    run.once("key", str.upper, "a")
    for function, args in ((str.upper, ("b",)), (str.lower, ("a",)), (str.upper, ())):
        with pytest.raises(NonDeterminism, match=r"'key' was completed at 1 as str\.upper"):
            opened().get("run").once("key", function, *args)
    with pytest.raises(NonDeterminism):
        run.once("key", Counted("never"), "a")
    assert run.once("key", str.lower, "b", check_args=False) == "A"
    assert run.once("key", str.upper, "a") == "A"


def test_the_order_of_sets_and_keywords_does_not_matter(hf: Holdfast) -> None:
    run = hf.run("run")
    step = Counted("ok")
    run.once("key", step, {"x", "y", "z"}, {"k": 1, "l": 2}, a=1, b=2)
    assert run.once("key", step, {"z", "y", "x"}, {"l": 2, "k": 1}, b=2, a=1) == "ok"


def test_a_step_made_without_a_check_is_never_checked(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("key", str.upper, "a", check_args=False)
    assert run.once("key", str.upper, "b") == "A"


def test_a_plain_step_that_raises_leaves_nothing_and_is_run_again(hf: Holdfast) -> None:
    run, step = hf.run("run"), Counted(ValueError("first"), "second")
    with pytest.raises(ValueError, match="first"):
        run.once("key", step)
    assert (kinds(run), run.status) == (["created"], Status.READY)
    assert run.once("key", step) == "second"


def test_an_effect_that_raises_is_on_record_and_is_run_again(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run, step = hf.run("run"), Counted(ValueError("no such card"), "paid")
    with pytest.raises(ValueError, match="no such card"):
        run.once("key", step, target="card")
    [effect] = opened().get("run").effects()
    assert (effect.status, effect.error) == ("raised", "ValueError: no such card")
    assert not run.is_completed("key")
    assert run.once("key", step, target="card") == "paid"
    assert kinds(run) == ["created", "intended", "raised", "intended", "done"]
    assert [effect.status for effect in run.effects()] == ["raised", "done"]


def test_a_very_long_error_is_cut(hf: Holdfast) -> None:
    run = hf.run("run")
    with pytest.raises(ValueError):  # noqa: PT011
        run.once("key", Counted(ValueError("x" * 10_000)), target="t")
    [effect] = run.effects()
    assert len(effect.error) == 2000


def test_an_argument_that_cannot_be_kept_is_refused_before_anything_is_done(hf: Holdfast) -> None:
    run, step = hf.run("run"), Counted("never")
    for args, kwargs, path in (((1, [object()]), {}, "args[1]"), ((), {"named": {"a": object()}}, "named")):
        for how in ({}, {"target": "t"}, {"at_most_once": True}):
            with pytest.raises(NotStorable) as refused:
                run.once("key", step, *args, **how, **kwargs)
            assert path in refused.value.path
    assert step.calls == []
    assert (kinds(run), run.status) == (["created"], Status.READY)


def test_a_result_that_cannot_be_kept_is_refused_with_its_place(hf: Holdfast) -> None:
    run, step = hf.run("run"), Counted({"a": [object()]}, "kept")
    with pytest.raises(NotStorable) as refused:
        run.once("key", step)
    assert refused.value.path.startswith("result of key")
    assert (kinds(run), run.status) == (["created"], Status.READY)
    assert run.once("key", step) == "kept"


def test_an_effect_whose_result_cannot_be_kept_is_uncertain(hf: Holdfast) -> None:
    """It did act, and what came of it is not on record: nobody may take it for undone, or for done."""
    run = hf.run("run")
    with pytest.raises(NotStorable):
        run.once("key", Counted(object()), at_most_once=True)
    assert [effect.status for effect in run.effects()] == ["uncertain"]
    with pytest.raises(Uncertain):
        run.once("key", Counted("again"), at_most_once=True)
    run.resolve("key", done=True, result="by hand")
    assert run.checkpoint().results == {"key": "by hand"}


@pytest.mark.parametrize("key", ["", None, 7, b"key"])
def test_a_key_is_text(hf: Holdfast, key: Any) -> None:
    run = hf.run("run")
    with pytest.raises(UsageError, match="key is text"):
        run.once(key, len, "")
    with pytest.raises(UsageError, match="key is text"):
        run.mark(key, "tool")
    assert kinds(run) == ["created"]


@pytest.mark.parametrize("key", ["a/b", "../x", "x" * 5000, "ключ\n", "\0", "with space"])
def test_any_text_is_a_key(hf: Holdfast, opened: Callable[..., Holdfast], key: str) -> None:
    hf.run("run").once(key, len, "abc")
    hf.run("run").mark(f"m{key}", "tool")
    again = opened().get("run")
    assert again.is_completed(key)
    assert again.is_completed(f"m{key}")
    assert not again.is_completed(f"{key} ")


def test_a_step_inside_of_a_step(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():
        assert run.once("outer", lambda: run.once("inner", len, "abc") + 1) == 4
        with pytest.raises(UsageError, match="is being run"):
            run.once("self", lambda: run.once("self", len, "", check_args=False))
        assert run.checkpoint().results == {"outer": 4, "inner": 3}
        assert run.once("self", len, "ok") == 2  # the refused call left nothing behind


# --- undo functions


def closure() -> Callable[..., None]:
    captured = 1

    def undo(result: Any) -> None:
        assert captured

    return undo


class Holder:
    def method(self, result: Any) -> None: ...

    @staticmethod
    def static(result: Any) -> None: ...


@pytest.mark.parametrize(
    "undo",
    [
        lambda result: None,
        closure(),
        os.remove,
        os.path.join,
        functools.partial(undo_nothing),
        Holder().method,
        Counted("x"),
        print,
        functools.reduce,
    ],
    ids=["lambda", "closure", "builtin", "stdlib", "partial", "method", "callable", "print", "stdlib C"],
)
def test_an_undo_that_nobody_could_find_again_is_refused(hf: Holdfast, undo: Any) -> None:
    run, step = hf.run("run"), Counted("never")
    with pytest.raises(UndoRefused):
        run.once("key", step, undo=undo)
    assert (step.calls, kinds(run), run.status) == ([], ["created"], Status.READY)


def test_undo_functions_that_are_found_by_name(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("a", len, "", undo=undo_nothing)
    run.once("b", len, "", undo=Holder.static)
    registered = undo_function(closure())
    run.once("c", len, "", undo=registered)
    assert [effect.undo.partition(":")[2] for effect in run.effects()] == [
        "undo_nothing",
        "Holder.static",
        "closure.<locals>.undo",
    ]


def test_a_name_in_the_journal_does_not_reach_the_standard_library() -> None:
    from holdfast.engine.workflow.undo_functions import find

    for name in ("os:system", "subprocess:run", "shutil:rmtree", "nowhere:at_all", "builtins:eval", "holdfast:open"):
        with pytest.raises(UndoRefused):
            find(name)


# --- at most once


def died_in_the_act(hf: Holdfast, kill: Callable, **how: Any) -> None:
    """Run the step "charge" in a process that is killed while it acts."""

    def charge(cents: int) -> None:
        kill(hf)
        raise Killed

    with pytest.raises((Killed, StoreUnusable)):
        hf.run("run").once("charge", charge, 100, **how)


def charge(cents: int) -> str:
    return f"paid {cents}"


def test_at_least_once_is_run_again_after_a_crash(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable
) -> None:
    died_in_the_act(hf, kill, target="card")
    run = opened().get("run")
    assert run.once("charge", charge, 100, target="card") == "paid 100"
    assert [effect.status for effect in run.effects()][-1] == "done"


def test_at_most_once_is_not_run_again_after_a_crash(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable
) -> None:
    died_in_the_act(hf, kill, at_most_once=True)
    run, step = opened().get("run"), Counted("never")
    for _ in range(2):
        with pytest.raises(Uncertain, match=r"'charge'.*run\.resolve\('charge', done=True"):
            run.once("charge", step, 100, at_most_once=True)
    assert step.calls == []
    assert not run.is_completed("charge")
    run.resolve("charge", done=True, result="paid by phone", by="operator")
    assert run.once("charge", step, 100, at_most_once=True, check_args=False) == "paid by phone"
    assert [effect.status for effect in run.effects()] == ["done"]
    with pytest.raises(UsageError, match="not uncertain"):
        run.resolve("charge", done=False)


def test_a_step_that_was_not_done_may_be_run(hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable) -> None:
    died_in_the_act(hf, kill, at_most_once=True)
    run = opened().get("run")
    run.resolve("charge", done=False)
    assert run.once("charge", charge, 100, at_most_once=True) == "paid 100"
    assert [effect.status for effect in run.effects()] == ["raised", "done"]
    assert kinds(run) == ["created", "intended", "resolved", "intended", "done"]


def test_only_an_uncertain_step_can_be_resolved(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("done", len, "")
    for key in ("done", "never heard of"):
        with pytest.raises(UsageError, match="nothing to resolve"):
            run.resolve(key, done=True)
    assert run.status is Status.READY


def test_a_break_in_the_act_leaves_the_step_uncertain(hf: Holdfast) -> None:
    """Ctrl-C in a step: the process lives, the run is given up, and the step says that nobody knows."""
    run = hf.run("run")
    with pytest.raises(KeyboardInterrupt):
        run.once("charge", Counted(KeyboardInterrupt()), at_most_once=True)
    assert run.status is Status.READY
    with pytest.raises(Uncertain):
        run.once("charge", Counted("again"), at_most_once=True)


# --- marks


def test_a_mark_of_the_holder_is_an_entry(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():
        assert run.mark("use", "write_file", "a.txt", True, result={"bytes": 3}) is True
        assert kinds(run) == ["created", "marked"]
    [effect] = run.effects()
    assert (effect.tool, effect.target, effect.reversible, effect.status) == ("write_file", "a.txt", True, "done")
    assert run.checkpoint().results == {"use": {"bytes": 3}}


def test_a_mark_of_anybody_else_waits_in_the_inbox_and_counts_at_once(
    hf: Holdfast, opened: Callable[..., Holdfast]
) -> None:
    holder, other = hf.run("run"), opened().run("run")
    with holder.claim():
        assert other.mark("use", "write_file", "a.txt", result=3) is True
        for seen in (holder, other):
            assert seen.is_completed("use")
            assert [effect.target for effect in seen.effects()] == ["a.txt"]
            assert kinds(seen) == ["created", "marked"]
        holder.save("goes on")
        assert other.mark("use", "write_file") is False
    with holder.claim():
        assert kinds(holder) == ["created", "saved", "marked"]
        assert holder.checkpoint().results == {"use": 3}
        assert other.mark("use", "write_file") is False
    assert len(other.effects()) == 1


def test_the_holder_may_do_what_was_marked_meanwhile(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """Both counted on the step being theirs; the ledger tells of both, the first result stands."""
    holder, other = hf.run("run"), opened().run("run")
    with holder.claim():
        assert other.mark("use", "tool", result="marked") is True
        assert holder.mark("use", "tool", result="held") is True or holder.is_completed("use")
    with holder.claim():
        pass
    assert len([effect for effect in holder.effects() if effect.key == "use"]) == 1


def test_an_ended_run_takes_no_mark(hf: Holdfast) -> None:
    run = hf.run("run")
    run.mark("early", "tool")
    run.complete()
    with pytest.raises(RunEnded, match="completed"):
        run.mark("late", "tool")
    assert run.mark("early", "tool") is False
    assert not run.is_completed("late")
    assert [effect.key for effect in run.effects()] == ["early"]


def test_a_mark_does_not_wake_a_waiting_run(hf: Holdfast) -> None:
    run = hf.run("run")
    run.pause("?")
    run.mark("use", "tool")
    assert run.status is Status.WAITING
    assert run.is_completed("use")


def test_a_mark_may_be_made_again_after_a_rollback(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    assert run.mark("use", "tool") is True
    run.rollback(to=start)
    assert not run.is_completed("use")
    assert run.mark("use", "tool") is True
    assert run.is_completed("use")
    assert run.mark("use", "tool") is False


def test_an_unstorable_mark_is_refused(hf: Holdfast) -> None:
    run = hf.run("run")
    with pytest.raises(NotStorable):
        run.mark("use", "tool", result=object())
    assert not run.is_completed("use")


def test_a_step_needs_the_run(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run, step = hf.run("run"), Counted("never")
    with run.claim(), pytest.raises(Claimed):
        opened().get("run").once("key", step)
    run.complete()
    with pytest.raises(HoldfastError, match="completed"):
        run.once("key", step)
    assert step.calls == []


def test_a_partial_is_told_apart_by_what_it_calls_and_with_what(hf: Holdfast) -> None:
    run = hf.run("run")
    assert run.once("k", functools.partial(max, 1), 2) == 2
    assert run.once("k", max, 1, 2) == 2, "it is the same call"
    for other in (functools.partial(min, 1), functools.partial(max, 0)):
        with pytest.raises(NonDeterminism):
            run.once("k", other, 2)


def test_a_state_may_grow_beyond_the_limit_of_one_payload(opened: Callable[..., Holdfast]) -> None:
    run = opened(max_bytes=2_000).run("run")
    with run.claim():
        for n in range(30):
            run.save({"log": ["x" * 200] * n, "n": n})
        for n in range(30):
            run.save({"log": ["y" * 200] + ["x" * 200] * 28, "n": n})
    assert run.checkpoint().state == {"log": ["y" * 200] + ["x" * 200] * 28, "n": 29}
