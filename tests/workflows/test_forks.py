"""Forks of workflows: another run with the same past, which may go another way; its origin does not notice."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, ask, receive, step, workflow
from holdfast.errors import AnswerRefused, NoCheckpoint, RunExists, UsageError

Opener = Callable[..., Holdfast]

acted: Counter[str] = Counter()
fails: set[str] = set()


@pytest.fixture(autouse=True)
def nothing_acted() -> None:
    acted.clear()
    fails.clear()


@step
def act(name: str) -> str:
    acted[name] += 1
    if name in fails:
        raise ValueError(name)
    return name


@step(target="{what}")
def touch(what: str) -> str:
    acted[what] += 1
    if what in fails:
        raise OSError(what)
    return what


@workflow
def story(hero: str, *, ending: str = "well") -> str:
    place = act(f"{hero} sets out")
    friend: str = ask("who helps?", str)
    act(f"{friend} helps")
    return act(f"{place}; ends {ending} with {friend}")


@workflow
async def story_async(hero: str, *, ending: str = "well") -> str:
    place = act(f"{hero} sets out")
    friend: str = await ask("who helps?", str)
    act(f"{friend} helps")
    return act(f"{place}; ends {ending} with {friend}")


STORIES = pytest.mark.parametrize("wf", [story, story_async], ids=["sync", "async"])


def told(hf: Holdfast, wf: Any, id: str = "run") -> Any:
    run = hf.start(wf, "ann", id=id)
    run.answer("bo")
    assert run.result() == "ann sets out; ends well with bo"
    return run


# --- where


@STORIES
def test_at_every_checkpoint(hf: Holdfast, wf: Any) -> None:
    """It goes on from there, runs again only what came after, and shares what came before."""
    run = told(hf, wf)
    history = list(run.history())
    for seq in range(len(history)):
        acted.clear()
        fork = run.fork(seq)
        assert fork.info().forked_from == ("run", seq)
        done = run.checkpoint(seq).completed
        if fork.wait(timeout=0.05) is Status.WAITING:
            fork.answer("bo")
        assert fork.result() == run.result()
        assert sum(acted.values()) == 3 - len(done - {"ask#1"})
        assert [entry.kind for entry in fork.history()][: seq + 1] == [entry.kind for entry in history][: seq + 1]
    assert list(run.history()) == history
    with pytest.raises(NoCheckpoint):
        run.fork(999)


@STORIES
def test_of_a_waiting_run(opened: Opener, wf: Any) -> None:
    """Its question gets an id of its own, and both can be answered differently."""
    run = opened().start(wf, "ann", id="run")
    fork = opened().get("run").fork(id="fork")
    [question], [same] = run.questions(), fork.questions()
    assert (question.prompt, same.prompt) == ("who helps?", "who helps?")
    assert question.id != same.id
    fork.answer("cy", question=same)
    assert fork.resume() is Status.COMPLETED
    assert run.status is Status.WAITING
    run.answer("bo", question=question)
    assert run.result() == "ann sets out; ends well with bo"
    assert fork.result() == "ann sets out; ends well with cy"
    assert acted["ann sets out"] == 1


def test_of_an_ended_run_and_of_a_fork(hf: Holdfast) -> None:
    run = told(hf, story)
    fork = run.fork(answers={"ask#1": "cy"}, id="fork")
    assert fork.result() == "ann sets out; ends well with cy"
    second = fork.fork(answers={"ask#1": "di"}, id="second")
    assert second.result() == "ann sets out; ends well with di"
    third = second.fork(results={"act#1": "nowhere"}, id="third")
    third.wait(timeout=0.05)
    third.answer("ed")
    assert third.result() == "nowhere; ends well with ed"
    assert [one.result() for one in (run, fork)] == [f"ann sets out; ends well with {who}" for who in ("bo", "cy")]
    assert acted["ann sets out"] == 1
    assert hf.start(story, "ann", id="second").uid == second.uid
    with pytest.raises(RunExists, match="fork"):
        run.fork(id="fork")


# --- what


@STORIES
def test_changed_input(hf: Holdfast, wf: Any) -> None:
    run = told(hf, wf)
    fork = run.fork(input={"hero": "dee", "ending": "badly"})
    fork.wait(timeout=0.05)
    fork.answer("bo")
    assert fork.result() == "dee sets out; ends badly with bo"
    late = run.fork(at=run.info().seq - 2, input={"ending": "soon"})  # when only the ending is left to be told
    acted.clear()
    assert late.result() == "ann sets out; ends soon with bo"
    assert sum(acted.values()) == 1
    with pytest.raises(UsageError, match=r"story.* has no argument herro"):
        run.fork(input={"herro": "x"})
    assert run.result() == "ann sets out; ends well with bo"


@workflow
def takes_any(**words: str) -> str:
    return act(" ".join(sorted(words.values())))


def test_changed_input_of_any_name(hf: Holdfast) -> None:
    run = hf.start(takes_any, a="x")
    assert run.fork(input={"b": "y"}).result() == "x y"


@STORIES
def test_changed_results_and_answers(hf: Holdfast, wf: Any) -> None:
    run = told(hf, wf)
    acted.clear()
    fork = run.fork(results={"act#1": "ann stays"}, answers={"ask#1": "cy"})
    assert fork.result(timeout=5) == "ann stays; ends well with cy"
    assert acted == {"cy helps": 1, "ann stays; ends well with cy": 1}
    [unasked] = [run.fork(at=1, answers={"ask#1": "di"})]
    assert unasked.result() == "ann sets out; ends well with di"
    for changes in ({"results": {"act#9": 1}}, {"answers": {"ask#2": 1}, "at": 1}):
        with pytest.raises(NoCheckpoint, match=r"no step or answer '(act#9|ask#2)' to change; it has: act#1"):
            run.fork(**changes)


def test_a_question_that_waits_is_answered_in_the_fork_alone(hf: Holdfast) -> None:
    run = hf.start(story, "ann", id="run")
    assert run.fork(answers={"ask#1": "cy"}).result() == "ann sets out; ends well with cy"
    assert run.status is Status.WAITING


@STORIES
def test_an_answer_that_does_not_fit_makes_no_fork(hf: Holdfast, wf: Any) -> None:
    run = told(hf, wf)
    with pytest.raises(AnswerRefused, match="7 is not text"):
        run.fork(answers={"ask#1": 7}, id="fork")
    assert [info.id for info in hf.runs()] == ["run"]


def test_many_in_one_commit(hf: Holdfast) -> None:
    run = told(hf, story)
    commits = hf.client.committer.commits
    forks = run.fork_each([{"answers": {"ask#1": who}, "id": who} for who in ("cy", "di", "ed")])
    assert hf.client.committer.commits == commits + 1
    assert [fork.result() for fork in forks] == [f"ann sets out; ends well with {who}" for who in ("cy", "di", "ed")]
    assert run.fork_each([]) == []
    with pytest.raises(UsageError, match="fork has no answer; it takes"):
        run.fork_each([{"answer": 1}])
    with pytest.raises(RunExists, match="'di'"):
        run.fork_each([{"id": "new"}, {"id": "di"}])


# --- from the last failure


@workflow
def risks() -> str:
    act("kept")
    try:
        act("caught")
    except ValueError:
        act("handled")
    touch("risky")
    return act("end")


@workflow
async def risks_async() -> str:
    act("kept")
    try:
        act("caught")
    except ValueError:
        act("handled")
    touch("risky")
    return act("end")


@pytest.mark.parametrize("wf", [risks, risks_async], ids=["sync", "async"])
def test_at_the_failure_it_goes_on_right_before_the_failed_step(hf: Holdfast, wf: Any) -> None:
    fails.update({"caught", "risky"})
    run = hf.start(wf, id="run")
    fails.clear()
    fork = run.fork(at="failure")
    assert fork.result() == "end"
    assert acted == {"kept": 1, "caught": 1, "handled": 1, "risky": 2, "end": 1}
    assert run.status is Status.FAILED
    assert run.fork(at="failure", results={"touch#1": "as if"}).result() == "end"
    assert acted["risky"] == 2
    with pytest.raises(NoCheckpoint, match="at='failure' is for a failed run, and it is completed"):
        fork.fork(at="failure")


@workflow
def risks_twice() -> str:
    touch("first")
    touch("second")
    return "end"


def test_at_the_last_of_several_failures(hf: Holdfast) -> None:
    fails.add("first")
    run = hf.start(risks_twice, id="run")
    fails.clear()
    fails.add("second")
    run.retry()
    with pytest.raises(OSError, match="second"):
        run.result()
    fails.clear()
    assert run.fork(at="failure").result() == "end"
    assert acted == {"first": 2, "second": 2}


# --- with children and messages


@workflow
def part(name: str) -> str:
    return act(name) + str(ask("more?", str))


@workflow
def whole(name: str) -> str:
    act("before")
    return part(name) + str(receive(topic="news"))


def test_children_that_had_ended_are_shared_and_open_ones_are_not(hf: Holdfast) -> None:
    run = hf.start(whole, "x", id="run")
    early = run.fork(id="early")  # the child waits for its answer
    hf.get("run/part#1").answer("y")
    assert run.wait(timeout=0.1) is Status.WAITING
    late = run.fork(id="late")  # the child has ended
    for one, news in ((late, "late news"), (run, "news")):
        one.resume()
        one.send(news, topic="news")
    assert (run.result(), late.result()) == ("xynews", "xylate news")
    assert acted == {"before": 1, "x": 1}
    early.resume()
    hf.get("early/part#1").answer("z")
    early.resume()
    early.send("early news", topic="news")
    assert early.result() == "xzearly news"
    assert acted == {"before": 1, "x": 2}
    assert hf.get("early/part#1").info().parent == early.uid


def test_messages_that_wait_are_their_receivers_alone(hf: Holdfast) -> None:
    run = hf.start(hears_news, id="run")
    run.send("one")
    run.resume()
    run.send("two")
    assert run.result() == ["one", "two"]
    fork = run.fork(run.steps()[0].seq)  # the first one was taken
    assert fork.wait(timeout=0.05) is Status.WAITING
    fork.send("other")
    assert fork.result() == ["one", "other"]


@workflow
def hears_news() -> list[Any]:
    return [receive(), receive()]


def test_a_fork_of_a_child_is_nobodys_child(hf: Holdfast) -> None:
    run = hf.start(whole, "x", id="run")
    fork = hf.get("run/part#1").fork(answers={"ask#1": "z"})
    assert (fork.resume(), fork.result()) == (Status.COMPLETED, "xz")
    assert fork.info().parent is None
    assert run.wait(timeout=0.1) is Status.WAITING
    hf.get("run/part#1").answer("y")
    run.resume()
    run.send("!", topic="news")
    assert run.result() == "xy!"


def test_forks_from_async_code_and_by_a_worker(hf: Holdfast, store_url: str) -> None:
    told(hf, story_async)

    async def main() -> list[Any]:
        async with holdfast.open(store_url) as other:
            run = await other.get("run")
            forks = await run.fork_each([{"answers": {"ask#1": who}} for who in ("cy", "di")])
            assert (await run.info()).status is Status.COMPLETED
            return [(await fork.resume(), await fork.result())[1] for fork in forks]

    assert asyncio.run(main()) == [f"ann sets out; ends well with {who}" for who in ("cy", "di")]
    fork = hf.get("run").fork(answers={"ask#1": "ed"})
    hf.work(until_idle=True)
    assert fork.result(timeout=1) == "ann sets out; ends well with ed"
