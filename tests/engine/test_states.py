"""Saving states, reading them at any point, the history, and forks."""

import random
import string
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

import holdfast
from holdfast import Holdfast, Run, Status
from holdfast.errors import NoCheckpoint, NotStorable, RunExists, RunNotFound, TooLarge, UsageError


def kinds(run: Run) -> list[str]:
    return [entry.kind for entry in run.history()]


# --- save and checkpoint


def test_a_fresh_run_has_a_checkpoint_without_a_state(hf: Holdfast) -> None:
    checkpoint = hf.run("run").checkpoint()
    assert (checkpoint.seq, checkpoint.state, checkpoint.step, checkpoint.saved_at) == (0, None, None, None)
    assert (checkpoint.next, checkpoint.node, checkpoint.queue, checkpoint.variables) == (None, None, None, None)
    assert (checkpoint.results, checkpoint.answers, checkpoint.effects, checkpoint.questions) == ({}, {}, (), ())


def test_what_was_saved_comes_back_as_it_was(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    state = {"tuple": (1, 2.0, True), "set": {1, 2}, "money": Decimal("1.10"), "when": datetime.now(UTC), 3: b"\x00"}
    before = datetime.now(UTC)
    seq = hf.run("run").save(state, next="n", node="m", queue=[("a", 1)], variables={"v": None})
    checkpoint = opened().get("run").checkpoint()
    assert checkpoint.state == state
    assert [type(value) for value in checkpoint.state["tuple"]] == [int, float, bool]
    assert (checkpoint.next, checkpoint.node, checkpoint.queue) == ("n", "m", [("a", 1)])
    assert checkpoint.variables == {"v": None}
    assert checkpoint.seq == checkpoint.state_seq == seq
    assert abs(checkpoint.saved_at - before) < timedelta(seconds=10)


def test_the_state_may_be_changed_after_it_was_saved(hf: Holdfast) -> None:
    run, state = hf.run("run"), {"list": [1]}
    with run.claim():
        first = run.save(state)
        state["list"].append(2)
        second = run.save(state)
        state.clear()
        third = run.save({"list": [1, 2, 3], "n": 1})
    assert run.checkpoint(first).state == {"list": [1]}
    assert run.checkpoint(second).state == {"list": [1, 2]}
    assert run.checkpoint(third).state == {"list": [1, 2, 3], "n": 1}


def test_equal_values_of_other_types_are_kept_apart(hf: Holdfast) -> None:
    run = hf.run("run")
    seqs = [run.save({"x": value}) for value in (1, True, 1.0, 1)]
    assert [type(run.checkpoint(seq).state["x"]) for seq in seqs] == [int, bool, float, int]


def test_a_checkpoint_between_saves_has_the_state_before_it(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("a", len, "x")
    run.save("first")
    run.once("b", len, "xy")
    run.save("second")
    states = [run.checkpoint(seq).state for seq in range(5)]
    assert states == [None, None, "first", "first", "second"]
    assert [sorted(run.checkpoint(seq).completed) for seq in range(5)] == [[], ["a"], ["a"], ["a", "b"], ["a", "b"]]


def test_a_checkpoint_does_not_change_afterwards(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save(1)
    seen = run.checkpoint()
    run.once("later", len, "x")
    run.save(2)
    assert (seen.state, seen.completed) == (1, frozenset())


@pytest.mark.parametrize("seq", [-1, 2, 10**12])
def test_no_such_checkpoint(hf: Holdfast, seq: int) -> None:
    run = hf.run("run")
    run.save(1)
    with pytest.raises(NoCheckpoint, match=f"no entry {seq}; the newest is 1"):
        run.checkpoint(seq)


def test_many_states_are_all_readable(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """Through differences and snapshots alike; the state grows, shrinks and grows again."""
    run, kept = hf.run("run"), []
    with run.claim():
        for n in range(60):
            state = {"items": [f"item {i}" * 5 for i in range(abs(30 - n))], "n": n}
            kept.append((run.save(state), state))
    again = opened().get("run")
    for seq, state in kept:
        assert again.checkpoint(seq).state == state


def test_a_value_that_cannot_be_kept_is_refused_with_its_place(hf: Holdfast) -> None:
    run = hf.run("run")
    for wrong in ({"a": [1, {"b": object()}]}, {"a": [1, {"b": lambda: 1}]}):
        with pytest.raises(NotStorable) as refused:
            run.save(wrong)
        assert refused.value.path.startswith("state")
        assert "'a'" in refused.value.path or ".a" in refused.value.path or "[a]" in refused.value.path
    with pytest.raises(NotStorable) as refused:
        run.save({}, queue=[object()])
    assert refused.value.path.startswith("queue")
    assert kinds(run) == ["created"]
    assert run.status is Status.READY


def test_a_state_that_is_too_large_is_refused(
    opened: Callable[..., Holdfast], caplog: pytest.LogCaptureFixture
) -> None:
    def noise(length: int) -> str:
        return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))

    run = opened(max_bytes=2000).run("run")
    caplog.clear()  # of what a store says when it is opened
    run.save("x" * 100)
    assert not caplog.records
    run.save(noise(1600))
    assert "the limit is 2,000" in caplog.text  # an early warning
    with pytest.raises(TooLarge) as refused:
        run.save(noise(3000))
    assert refused.value.path == "state"
    with pytest.raises(TooLarge):
        run.once("big", str.upper, noise(3000), target="t")
    with pytest.raises(TooLarge) as refused:
        run.once("big", lambda: noise(3000))
    assert refused.value.path == "result of big"
    with pytest.raises(TooLarge):
        run.mark("big", "tool", result=noise(3000))
    with pytest.raises(TooLarge):
        run.pause(noise(3000))
    with pytest.raises(TooLarge):
        run.complete(noise(3000))
    assert run.status is Status.READY
    with run.claim():
        with pytest.raises(TooLarge):
            run.save(noise(3000))
        run.save("goes on")  # the claim is as good as before
    assert run.checkpoint().state == "goes on"
    assert not run.is_completed("big")
    assert run.audit().entries == 4


# --- history


def test_history_names_every_entry(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save(1)
    run.once("a", len, "x")
    run.once("b", len, "x", target="t")
    run.mark("c", "tool")
    run.pause("?")
    run.answer("!")
    run.complete()
    assert kinds(run) == ["created", "saved", "done", "intended", "done", "marked", "asked", "answered", "completed"]
    times = [entry.at for entry in run.history()]
    assert times == sorted(times)
    assert [entry.seq for entry in run.history()] == list(range(9))


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100, 101])
def test_history_is_paged(hf: Holdfast, limit: int) -> None:
    run = hf.run("run")
    with run.claim():
        for n in range(6):
            run.save(n)
            run.once(f"step-{n}", len, "")
    for kind, expected in ((None, list(range(13))), ("saved", list(range(1, 13, 2))), ("asked", [])):
        found, after, pages = [], None, 0
        while True:
            page = run.history(limit=limit, after=after, kind=kind)
            assert len(page) <= limit
            found += [entry.seq for entry in page]
            pages += 1
            after = page.next
            if after is None:
                break
        assert found == expected
        assert pages <= len(expected) // limit + 2


def test_history_refuses_a_strange_cursor(hf: Holdfast) -> None:
    with pytest.raises(UsageError, match="not what a page gave"):
        hf.run("run").history(after="yesterday")


# --- forks


def test_a_fork_shares_the_past_and_goes_its_own_way(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run", workflow="wf", tags={"a": "b"})
    run.once("step", str.upper, "shared")
    at = run.save({"n": 1}, next="x", queue=[1])
    run.save({"n": 2})
    run.once("later", len, "")
    fork = run.fork(at, id="fork")
    assert fork.info().forked_from == ("run", at)
    assert (fork.info().workflow, fork.info().tags) == ("wf", {"a": "b"})
    again = opened().get("fork")
    assert (again.checkpoint().state, again.checkpoint().next, again.checkpoint().queue) == ({"n": 1}, "x", [1])
    assert again.checkpoint().results == {"step": "SHARED"}
    assert again.once("step", str.upper, "shared") == "SHARED"
    again.save({"n": "mine"})
    assert run.checkpoint().state == {"n": 2}
    assert [(entry.kind, entry.inherited) for entry in again.history()] == [
        ("created", True),
        ("done", True),
        ("saved", True),
        ("forked", False),
        ("saved", False),
    ]
    assert again.audit().entries == 5


def test_a_fork_without_a_point_shares_everything(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save(1)
    fork = run.fork()
    assert fork.id.startswith("run.fork-")
    assert fork.checkpoint().state == 1
    assert run.fork().id != fork.id


def test_a_fork_of_a_fork_of_a_fork(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("0")
    run.save([0])
    runs = [run]
    for n in range(1, 6):
        runs.append(runs[-1].fork(id=str(n)))
        runs[-1].save([*range(n + 1)])
        runs[-1].once(f"step-{n}", len, "x" * n)
    again = opened()
    last = again.get("5")
    assert last.checkpoint().state == [0, 1, 2, 3, 4, 5]
    assert last.checkpoint().results == {f"step-{n}": n for n in range(1, 6)}
    assert last.info().forked_from == ("4", runs[5].info().forked_from[1])
    for n in range(6):
        point = again.get(str(n)).info().seq
        assert last.checkpoint(point).state == [*range(n + 1)]
    last.audit()
    cousin = last.fork(at=1, id="cousin")  # a point that lies in the first of them
    assert cousin.info().forked_from == ("0", 1)
    assert cousin.checkpoint().state == [0]
    cousin.save("own")
    assert cousin.audit().entries == 4


def test_a_fork_at_an_abandoned_entry_revives_it(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    run.once("step", len, "abc")
    lost = run.save("abandoned")
    run.rollback(to=start)
    run.save("new")
    fork = run.fork(at=lost)
    assert fork.checkpoint().state == "abandoned"
    assert fork.is_completed("step")
    assert not run.is_completed("step")
    fork.save("goes on")
    assert fork.checkpoint().state == "goes on"
    assert all(entry.live for entry in fork.history())
    after = run.fork()
    assert after.checkpoint().state == "new"
    assert [entry.live for entry in after.history()] == [entry.live for entry in run.history()] + [True]


def test_a_fork_id_is_used_once(hf: Holdfast) -> None:
    run = hf.run("run")
    run.fork(id="taken")
    for id in ("taken", "run"):
        with pytest.raises(RunExists):
            run.fork(id=id)
    assert len(hf.runs()) == 2


def test_a_fork_needs_no_lease(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    with run.claim():
        run.save("held")
        fork = opened().get("run").fork()
        fork.save("free")
        run.save("still held")
    assert (run.checkpoint().state, fork.checkpoint().state) == ("still held", "free")


def test_a_fork_does_not_inherit_what_was_begun(hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable) -> None:
    """The parent's uncertain step is the parent's to settle; the fork runs it for itself."""

    def die() -> None:
        kill(hf)
        raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, holdfast.errors.StoreUnusable)):
        hf.run("run").once("charge", die, at_most_once=True)
    run = opened().get("run")
    assert [effect.status for effect in run.effects()] == ["uncertain"]
    fork = run.fork()
    assert fork.effects() == ()
    assert fork.once("charge", lambda: "paid", at_most_once=True, check_args=False) == "paid"
    assert [effect.status for effect in run.effects()] == ["uncertain"]


def test_questions_of_a_fork_are_its_own(hf: Holdfast) -> None:
    run = hf.run("run")
    asked = run.pause("Go on?")
    fork = run.fork()
    assert fork.status is Status.WAITING
    [question] = fork.questions()
    assert question.prompt == "Go on?"
    assert question.id != asked.id
    fork.answer("fork")
    assert [one.id for one in run.questions()] == [asked.id]
    run.answer("run", question=asked.id)
    for claimed, answer in ((fork, "fork"), (run, "run")):
        with claimed.claim():
            assert claimed.checkpoint().answers == {"answer": answer}


# --- deleting runs with forks


def test_deleting_a_run_with_forks_keeps_what_they_share(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    run.save({"n": 1})
    run.once("step", len, "abc")
    fork = run.fork(id="fork")
    grandchild = fork.fork(id="grandchild")
    assert run.delete() is True
    assert run.delete() is False
    assert fork.delete() is True
    for read in (run.checkpoint, run.history, run.info, run.effects, run.fork, run.audit, run.claim):
        with pytest.raises(RunNotFound):
            read()
    again = opened().get("grandchild")
    assert again.checkpoint().state == {"n": 1}
    assert again.checkpoint().results == {"step": 3}
    assert again.info().forked_from == ("fork", 3)
    again.audit()
    fresh = hf.run("run")  # the id is free again, and means a new run
    assert fresh.checkpoint().state is None
    fresh.save("new")
    assert grandchild.checkpoint().state == {"n": 1}
    assert grandchild.delete() is True
    assert [info.id for info in hf.runs()] == ["run"]


def test_nothing_is_left_of_a_run_whose_last_fork_is_gone(
    hf: Holdfast, raw_bytes: Callable[..., bytes], store_url: str
) -> None:
    run = hf.run("run")
    run.save("a secret of the shared part")
    fork = run.fork(id="fork")
    run.delete()
    assert b"a secret of" in raw_bytes()
    fork.delete()
    hf.close()
    assert b"a secret of" not in raw_bytes()
