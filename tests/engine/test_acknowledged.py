"""Acknowledged means recorded: an answer or mark that was accepted is in every view and in every fork of the head,
whether or not a holder has taken it in; an ended run refuses it, and no run ends over it.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from children import wait_until

import holdfast
from holdfast import Holdfast, Run, Status, ask, first, receive, step, workflow
from holdfast.errors import QuestionClosed, RunEnded

called: list[str] = []
others: list[Holdfast] = []  # another handle of the store


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    called.clear()


def kinds(run: Run) -> list[str]:
    return [entry.kind for entry in run.history()]


def tool(what: str) -> str:
    called.append(what)
    return what


@workflow
def asks() -> str:
    return str(ask("Which?", str))


@workflow
def listens() -> str:
    return f"{receive('news')} {ask('Which?', str)}"


# --- a run that nobody holds


def test_a_mark_is_in_every_view(hf: Holdfast) -> None:
    run = hf.run("run")
    assert run.mark("a", "tool", "a.txt", result=3) is True
    assert kinds(run) == ["created", "marked"]
    assert not any(entry.pending for entry in run.history())
    assert run.entry(1).contents["key"] == "a"
    checkpoint = run.checkpoint()
    assert (checkpoint.seq, checkpoint.completed, checkpoint.results) == (1, {"a"}, {"a": 3})
    assert [effect.target for effect in checkpoint.effects] == ["a.txt"]
    assert [effect.key for effect in run.effects()] == ["a"]
    assert run.audit().entries == 2
    assert hf.client.store.inbox(run.uid) == []
    assert run.once("a", tool, "a", check_args=False) == 3
    assert run.mark("a", "tool") is False
    assert called == []


@step
def pack(what: str) -> str:
    return what


@workflow
def packs_when_asked() -> list[str]:
    return [pack("first"), ask("Which?", str), pack("last")]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_mark_blocks_no_code_that_does_not_ask_for_it(hf: Holdfast, when: str) -> None:
    run = hf.start(packs_when_asked, id="run")
    if when == "before":
        run.mark("invoice", "billing", result=8)
    run.answer("next")
    if when == "after":
        run.mark("invoice", "billing", result=8)
    run.resume()
    assert run.result() == ["first", "next", "last"]


def test_a_fork_calls_no_tool_that_was_marked(hf: Holdfast) -> None:
    run = hf.run("run")
    run.mark("a", "tool", result=3)
    for fork in (run.fork(), run.fork(at=run.checkpoint().seq)):
        assert fork.once("a", tool, "a", check_args=False) == 3
        assert kinds(fork) == ["created", "marked", "forked"]
    assert called == []


def test_an_answer_is_in_every_view_and_in_every_fork(hf: Holdfast) -> None:
    run = hf.run("run")
    run.pause("Which?", output_key="way")
    run.answer("left", by="Ann")
    assert run.status is Status.READY
    assert kinds(run) == ["created", "asked", "answered"]
    assert run.entry(2).contents == {"question": 1, "by": "Ann", "value": "left"}
    fork = run.fork()
    for one in (run, fork):
        assert one.checkpoint().answers == {"way": "left"}
        assert one.questions() == ()
        with pytest.raises(QuestionClosed):
            one.answer("right")
    assert fork.status is Status.READY


@pytest.mark.parametrize("status", ["waiting", "blocked"])
def test_of_a_workflow(hf: Holdfast, status: str) -> None:
    run = hf.start(asks, id="run")
    if status == "blocked":
        with run.claim():
            pass
        lease = hf.client.store.claim(run.uid, hf.client.engine.worker.ready())
        blocked = holdfast.kernel.model.Change(status=Status.BLOCKED, release=True, reason="to see")
        hf.client.store.apply(
            [holdfast.kernel.model.Append(run.uid, run.id, lease.epoch, lease.worker or "", (), blocked)]
        )
    run.mark("m", "tool")
    run.answer("left")
    assert kinds(run)[-2:] == ["marked", "answered"]
    assert run.status is (Status.READY if status == "waiting" else Status.BLOCKED)
    fork = run.fork()
    assert fork.result() == "left"
    if status == "blocked":
        run.unblock()
    assert run.result() == "left"


def test_of_an_encrypted_run(opened: Callable[..., Holdfast]) -> None:
    keys = holdfast.Keyring({"one": bytes(range(32))}, current="one")
    run = opened(keys=keys).run("run")
    run.pause("Which?")
    run.mark("a", "tool")
    run.answer("left")
    assert kinds(run) == ["created", "asked", "marked", "answered"]
    assert run.fork().checkpoint().answers == {"answer": "left"}


def test_awaited(opened: Callable[..., Holdfast]) -> None:
    url = opened().client.store.place

    async def act() -> None:
        async with holdfast.open(url) as hf:
            run = await hf.run("run")
            await run.pause("Which?")
            await run.mark("a", "tool")
            await run.answer("left")
            assert [one.kind for one in await run.history()] == ["created", "asked", "marked", "answered"]
            checkpoint = await (await run.fork()).checkpoint()
            assert (checkpoint.answers, checkpoint.completed) == ({"answer": "left"}, {"a"})

    if url != "memory://":
        asyncio.run(act())


# --- a run that somebody holds


def test_while_it_is_held_it_is_pending_in_every_view(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    holder = hf.run("run")
    holder.pause("Which?")
    other = opened().get("run")
    with holder.claim():
        other.mark("a", "tool", "a.txt", result=3)
        other.answer("left", by="Ann")
        for seen in (holder, other):
            assert kinds(seen) == ["created", "asked", "marked", "answered"]
            assert [entry.pending for entry in seen.history()] == [False, False, True, True]
            assert [entry.seq for entry in seen.history(after="1")] == [2, 3]
            assert [entry.kind for entry in seen.history(kind="marked")] == ["marked"]
            assert [entry.pending for entry in seen.entries()] == [False, False, True, True]
            assert seen.entry(3).contents == {"question": 1, "by": "Ann", "value": "left"}
            assert seen.entry(3).pending
            checkpoint = seen.checkpoint()
            assert (checkpoint.seq, checkpoint.completed, checkpoint.answers) == (1, {"a"}, {"answer": "left"})
            assert [effect.target for effect in seen.effects()] == ["a.txt"]
            report = seen.audit()
            assert (report.entries, report.pending) == (2, ("marked", "answered"))
        pages, after = list[str](), None
        while True:
            page = other.history(limit=1, after=after)
            pages += [entry.kind for entry in page]
            if (after := page.next) is None:
                break
        assert pages == ["created", "asked", "marked", "answered"]
        fork = other.fork()
        assert kinds(fork) == ["created", "asked", "forked", "marked", "answered"]
        assert fork.checkpoint().answers == {"answer": "left"}
        assert fork.once("a", tool, "a", check_args=False) == 3
        assert kinds(other.fork(at=1)) == ["created", "asked", "forked"]  # where it was not
    assert called == []
    with holder.claim():
        assert kinds(holder) == ["created", "asked", "marked", "answered"]
        assert holder.audit().pending == ()


def test_a_fork_takes_over_neither_messages_nor_a_cancel(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.start(listens, id="run")
    other = opened().get("run")
    lease = run.claim()
    other.send("late", topic="news")
    other.cancel("no more")
    assert kinds(other)[-1] == "received"
    fork = other.fork(id="fork")
    assert "received" not in kinds(fork)
    lease.__exit__(None, None, None)
    fork.resume()
    assert fork.status is Status.WAITING
    fork.send("its own", topic="news")
    fork.resume()
    fork.answer("left")
    assert fork.result() == "its own left"


# --- the end


def test_what_comes_while_the_last_step_runs_is_recorded_before_the_end(
    hf: Holdfast, opened: Callable[..., Holdfast]
) -> None:
    other = opened()

    @step
    def last() -> str:
        other.get("run").mark("a", "tool")
        other.get("run").send("unread")
        return "done"

    @workflow(name="marked at its end")
    def ends() -> str:
        return last()

    run = hf.start(ends, id="run")
    assert run.result() == "done"
    found = kinds(run)
    assert sorted(found[-3:-1]) == ["marked", "received"]
    assert found[-1] == "completed"
    assert [effect.key for effect in run.effects()] == ["a"]
    assert hf.client.store.inbox(run.uid) == []


def test_a_cancel_that_was_acknowledged_before_the_end_counts(
    hf: Holdfast, opened: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks into the inbox before the end is written, as on a slow machine."""
    other = opened()
    monkeypatch.setattr("holdfast.engine.worker.inbox_watch.Watch._look", lambda self, execution: None)

    @step
    def last() -> str:
        other.get("run").cancel("no more")
        return "done"

    @workflow(name="cancelled at its end")
    def ends() -> str:
        return last()

    run = hf.start(ends, id="run")
    assert run.wait() is Status.CANCELLED
    assert hf.client.store.inbox(run.uid) == []


def undo_and_cancel(result: str, what: str) -> None:
    called.append(f"undo {what}")
    others[0].get("failing").cancel("no longer wanted", by="Ann")


@step(undo=undo_and_cancel)
def made(what: str) -> str:
    return tool(what)


@workflow(on_failure="rollback")
def makes_and_fails() -> None:
    made("a")
    raise ValueError("no")


def test_a_cancel_while_a_failed_run_is_rolled_back_counts(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    others[:] = [opened()]
    run = hf.start(makes_and_fails, id="failing")
    assert called == ["a", "undo a"]
    assert (run.status, run.info().reason) == (Status.CANCELLED, None)
    assert kinds(run)[-1] == "cancelled"
    assert run.entry(run.checkpoint().seq).contents == {"error": "no longer wanted", "by": "Ann"}
    assert hf.client.store.inbox(run.uid) == []


@pytest.mark.parametrize("end", ["complete", "fail"])
@pytest.mark.parametrize("held", [False, True])
def test_a_cancel_that_was_acknowledged_before_an_end_by_hand_counts(
    hf: Holdfast, opened: Callable[..., Holdfast], end: str, held: bool
) -> None:
    run, other = hf.enqueue(asks, id="run"), opened()
    hf.work(until_idle=True)
    ended = partial(getattr(run, end), "given up")
    with run.claim():
        other.get("run").cancel("no more", by="ann")
        if held:
            with pytest.raises(RunEnded, match="asked to cancel it before"):
                ended()
    if not held:
        with pytest.raises(RunEnded, match="asked to cancel it before"):
            ended()
    assert (run.status, run.info().holder) == (Status.CANCELLED, None)
    assert run.entry(run.checkpoint().seq).contents == {"error": "no more", "by": "ann"}
    assert hf.client.store.inbox(run.uid) == []


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_a_run_that_is_driven_by_hand(hf: Holdfast, opened: Callable[..., Holdfast], end: str) -> None:
    run, other = hf.run("run"), opened().run("run")
    with run.claim():
        other.mark("a", "tool")
        getattr(run, end)(*(["why"] if end != "complete" else []))
    assert kinds(run)[1:-1] == ["marked"]
    with pytest.raises(RunEnded):
        other.mark("b", "tool")
    assert [effect.key for effect in run.effects()] == ["a"]


def test_a_mark_while_an_ended_run_is_held_for_something_else(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """It is running for as long as it is rolled back or erased, so it takes what comes, and records it."""
    run, other = hf.run("run"), opened().run("run")
    run.mark("a", "tool")
    run.complete()
    apply, marked = hf.client.store.apply, list[bool]()

    def marking(batch: Any) -> Any:
        if not marked:  # between the claim and the first write
            marked.append(other.mark("b", "tool"))
        return apply(batch)

    hf.client.store.apply = marking  # type: ignore[method-assign]
    run.redact(1)
    assert marked == [True]
    assert run.status is Status.COMPLETED
    assert hf.client.store.inbox(run.uid) == []
    assert [effect.key for effect in run.effects()] == ["a", "b"]


# --- what comes too late


@step
def works_until_answered(id: str) -> str:
    run = others[0].get(id)
    wait_until(run.questions)
    run.answer("stop", by="Ann")
    return "done"


@workflow
def works_or_asks() -> str:
    return str(first(lambda: ask("Stop?", str), lambda: works_until_answered("run")))


def test_an_answer_to_a_question_that_lost_its_race_is_on_record(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    others[:] = [opened()]
    run = hf.start(works_or_asks, id="run")
    assert run.result() in ("done", "stop"), "whichever is noticed first"
    [kept] = [*run.history(kind="answered"), *run.history(kind="late")]
    assert {"value": "stop", "by": "Ann"}.items() <= run.entry(kept.seq).contents.items()
    run.audit()
