"""The identity of runs: one id is one run, whoever starts it and how often; and what a handle tells of it."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, ask, sleep, step, workflow
from holdfast.engine.execute import result as results
from holdfast.errors import (
    DefinitionChanged,
    InvalidId,
    NoCheckpoint,
    RunBlocked,
    RunCancelled,
    RunNotFound,
    TimedOut,
    UsageError,
)

Opener = Callable[..., Holdfast]

acted: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def nothing_acted() -> None:
    acted.clear()


class Bankrupt(Exception):
    """An error of the user's own, with a field."""

    def __init__(self, who: str) -> None:
        super().__init__(f"{who} cannot pay")
        self.who = who


@step
def count(name: str) -> str:
    acted[name] += 1
    return name.upper()


@step
async def count_async(name: str) -> str:
    acted[name] += 1
    await asyncio.sleep(0)
    return name.upper()


@step(target="{name}")
def effect(name: str) -> None:
    acted[name] += 1


@step
def go_bankrupt(who: str) -> None:
    raise Bankrupt(who)


@step(at_most_once=True)
def in_doubt() -> None:
    raise OSError("the line broke")


@workflow
def one(name: str, times: int = 1) -> list[str]:
    return [count(name) for _ in range(times)]


@workflow
async def one_async(name: str, times: int = 1) -> list[str]:
    return [await count_async(name) for _ in range(times)]


@workflow
def another(name: str, times: int = 1) -> list[str]:
    return [name] * times


@workflow
def asks_a_name(prompt: str) -> str:
    count("before")
    answer: str = ask(prompt, str)
    return count(answer)


@workflow
async def asks_a_name_async(prompt: str) -> str:
    await count_async("before")
    answer: str = await ask(prompt, str)
    return await count_async(answer)


@workflow
def goes_broke(who: str) -> None:
    effect("books")
    go_bankrupt(who)


@workflow
async def goes_broke_async(who: str) -> None:
    effect("books")
    go_bankrupt(who)


@workflow
def doubts() -> None:
    in_doubt()


@workflow
def sleeps_an_hour() -> str:
    sleep(3600)
    return "awake"


ONE = pytest.mark.parametrize("wf", [one, one_async], ids=["sync", "async"])
ASKS = pytest.mark.parametrize("wf", [asks_a_name, asks_a_name_async], ids=["sync", "async"])


# --- the same id again


@ONE
def test_the_same_id_again_is_the_same_run_and_gives_its_result(hf: Holdfast, wf: Any) -> None:
    first = hf.start(wf, "a", 3, id="run")
    again = hf.start(wf, "a", times=3, id="run")
    queued = hf.enqueue(wf, name="a", times=3, id="run")
    assert first.uid == again.uid == queued.uid
    assert [run.result() for run in (first, again, queued)] == [["A"] * 3] * 3
    assert acted == {"a": 3}
    assert [run.id for run in hf.runs()] == ["run"]


@ASKS
def test_the_same_id_of_a_waiting_run_goes_on_with_it(opened: Opener, wf: Any) -> None:
    opened().start(wf, "name?", id="run")
    other_holder = opened()
    run = other_holder.start(wf, "name?", id="run")
    assert run.status is Status.WAITING
    run.answer("bo")
    assert run.result() == "BO"
    assert acted == {"before": 1, "bo": 1}


def test_the_same_id_of_an_enqueued_run_drives_it_here(hf: Holdfast) -> None:
    queued = hf.enqueue(one, "a", id="run")
    assert queued.status is Status.READY
    assert hf.start(one, "a", id="run").result() == ["A"]
    assert queued.status is Status.COMPLETED


@pytest.mark.parametrize("begin", ["start", "enqueue"])
def test_another_workflow_or_input_under_an_id_is_refused(hf: Holdfast, begin: str) -> None:
    run = hf.start(asks_a_name, "name?", id="run")
    again = getattr(hf, begin)
    with pytest.raises(DefinitionChanged, match=r"run 'run'.*workflow 'asks_a_name', not of 'another'; use another id"):
        again(another, "name?", id="run")
    with pytest.raises(DefinitionChanged, match=r"other arguments for asks_a_name; use another id, or fork it"):
        again(asks_a_name, "surname?", id="run")
    hf.run("by-hand")
    with pytest.raises(DefinitionChanged, match="a loop that is driven by hand"):
        again(asks_a_name, "name?", id="by-hand")
    assert run.status is Status.WAITING
    assert len(run.questions()) == 1


def test_arguments_are_compared_as_values(hf: Holdfast) -> None:
    """1, True and 1.0 are equal in Python, and are not the same input."""
    hf.start(another, "x", 1, id="run")
    for changed in (True, 1.0):
        with pytest.raises(DefinitionChanged):
            hf.start(another, "x", changed, id="run")


@ONE
def test_many_threads_that_start_one_id_make_one_run(opened: Opener, wf: Any) -> None:
    handles = [opened() for _ in range(3)]
    together = threading.Barrier(9)

    def start(n: int) -> tuple[str, Any]:
        together.wait(10)
        run = handles[n % 3].start(wf, "a", 4, id="run")
        return run.uid, run.result(timeout=20)

    with ThreadPoolExecutor(9) as threads:
        found = list(threads.map(start, range(9)))
    assert len({uid for uid, _ in found}) == 1
    assert all(result == ["A"] * 4 for _, result in found)
    assert acted == {"a": 4}


def test_many_tasks_that_start_one_id_make_one_run(store_url: str) -> None:
    async def main() -> list[Any]:
        async with holdfast.open(store_url) as hf:

            async def start() -> Any:
                run = await hf.start(one_async, "a", 4, id="run")
                return await run.result(timeout=20)

            return await asyncio.gather(*(start() for _ in range(9)))

    assert asyncio.run(main()) == [["A"] * 4] * 9
    assert acted == {"a": 4}


def test_ids_are_generated_and_checked(hf: Holdfast) -> None:
    runs = [hf.start(one, "a"), hf.start(one, "a"), hf.enqueue(one, "a")]
    assert len({run.id for run in runs}) == 3
    assert all(run.id.startswith("one-") for run in runs)
    with pytest.raises(InvalidId):
        hf.start(one, "a", id="")
    with pytest.raises(UsageError, match="is not a workflow"):
        hf.start(count, "a")  # type: ignore[arg-type]


def test_tags_are_kept_and_found(hf: Holdfast) -> None:
    hf.start(one, "a", id="a", tags={"team": "blue"})
    hf.enqueue(one, "b", id="b", tags={"team": "red"})
    assert hf.get("a").info().tags == {"team": "blue"}
    assert [run.id for run in hf.runs(tags={"team": "red"})] == ["b"]
    with pytest.raises(UsageError):
        hf.start(one, "c", tags={"n": 1})  # type: ignore[dict-item]
    assert [run.id for run in hf.runs(workflow="one")] == ["b", "a"]


# --- results


@pytest.mark.parametrize("wf", [goes_broke, goes_broke_async], ids=["sync", "async"])
def test_the_result_of_a_failed_run_is_the_error_it_failed_with(opened: Opener, wf: Any) -> None:
    run = opened().start(wf, "bo", id="run")
    assert run.status is Status.FAILED
    for handle in (run, opened().get("run")):
        with pytest.raises(Bankrupt, match="bo cannot pay") as raised:
            handle.result()
        assert raised.value.who == "bo"
        assert any("run 'run' failed with it; run.retry()" in note for note in raised.value.__notes__)


def test_the_result_of_a_cancelled_a_blocked_and_a_slow_run(hf: Holdfast) -> None:
    run = hf.start(asks_a_name, "name?", id="cancelled")
    run.cancel("nobody came")
    with pytest.raises(RunCancelled, match=r"run 'cancelled': nobody came"):
        run.result()
    with pytest.raises(RunBlocked, match=r"in_doubt#1.*run\.resolve.*run\.unblock\(\)"):
        hf.start(doubts, id="blocked").result()
    slow = hf.start(asks_a_name, "name?", id="slow")
    with pytest.raises(
        TimedOut, match=r"run 'slow': it is waiting after 0\.01 s; it waits for an answer, see run\.questions"
    ):
        slow.result(timeout=0.01)
    with pytest.raises(
        TimedOut, match=r"run 'left': it is ready after 0\.01 s; a worker goes on with it, or run\.resume"
    ):
        hf.enqueue(asks_a_name, "name?", id="left").result(timeout=0.01)
    assert slow.wait(timeout=0.01) is Status.WAITING
    with pytest.raises(RunNotFound, match="nowhere"):
        hf.get("nowhere")


def test_a_handle_that_was_got_waits_and_one_that_resumes_drives(opened: Opener) -> None:
    run = opened().start(asks_a_name, "name?", id="run")
    watcher, driver = opened().get("run"), opened().get("run")
    watcher.answer("bo")
    with pytest.raises(TimedOut):
        watcher.result(timeout=0.1)
    assert watcher.status is Status.READY  # nobody went on with it
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(watcher.result, timeout=20)
        assert driver.resume() is Status.COMPLETED
        assert waiting.result() == "BO"
    assert run.result() == "BO"


def test_waiting_takes_no_time_on_a_clock_of_ones_own(hft: Holdfast, timed: Opener) -> None:
    run = hft.start(sleeps_an_hour, id="run")
    assert run.status is Status.WAITING
    assert timed().get("run").wait(timeout=60) is Status.WAITING
    assert run.result() == "awake"


def test_a_run_goes_on_after_its_holder_died(opened: Opener, kill: Callable[[Holdfast], None]) -> None:
    doomed = opened()
    doomed.start(asks_a_name, "name?", id="run")
    kill(doomed)
    hf = opened()
    hf.get("run").answer("bo")
    run = hf.get("run")
    assert run.resume() is Status.COMPLETED
    assert acted == {"before": 1, "bo": 1}


# --- what a handle tells


def test_history_checkpoints_effects_and_steps(hf: Holdfast) -> None:
    run = hf.start(goes_broke, "bo", id="run")
    kinds = [entry.kind for entry in run.history()]
    assert kinds == ["created", "intended", "done", "raised", "failed"]
    assert run.checkpoint(1).completed == frozenset()
    assert run.checkpoint(2).completed == {"effect#1"}
    assert run.checkpoint(3).error is None
    assert "bo cannot pay" in str(run.checkpoint().error)
    [booked] = run.effects()
    assert (booked.key, booked.target, booked.status, booked.reversible) == ("effect#1", "books", "done", False)
    assert [(one.key, one.status) for one in run.steps()] == [("effect#1", "done"), ("go_bankrupt#1", "failed")]
    with pytest.raises(NoCheckpoint):
        run.checkpoint(99)


def test_the_same_from_async_code(store_url: str) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.start(asks_a_name_async, "name?", id="run")
            assert run.status is Status.WAITING
            assert [entry.kind for entry in await run.history()] == ["created", "done", "asked"]
            assert (await run.checkpoint(1)).completed == {"count_async#1"}
            with pytest.raises(TimedOut):
                await run.result(timeout=0.01)
            await run.answer("bo")
            assert await run.result() == "BO"
            assert [one.status for one in await run.steps()] == ["done"] * 2
            assert await (await hf.enqueue(asks_a_name_async, "name?", id="run")).result() == "BO"
            plain = await hf.start(one, "a", id="plain")
            assert await plain.result() == ["A"]
            failed = await hf.start(goes_broke_async, "bo")
            with pytest.raises(Bankrupt):
                await failed.result()
            assert len(await failed.effects()) == 1

    asyncio.run(main())


# --- what it costs


@ONE
def test_a_plain_one_step_workflow_takes_three_commits(hf: Holdfast, wf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hf.start(wf, "warm").result()  # the worker enlists once
    changes: list[str] = []
    for name in ("apply", "claim", "take", "beat", "put_document", "delete"):
        change = getattr(hf.client.store, name)

        def counted(*args: Any, _name: str = name, _change: Any = change, **kwargs: Any) -> Any:
            changes.append(_name)
            return _change(*args, **kwargs)

        monkeypatch.setattr(hf.client.store, name, counted)
    assert hf.start(wf, "a").result() == ["A"]
    assert changes == ["apply"] * 3


@ONE
def test_sqlite_makes_three_transactions_for_it(tmp_path: Path, wf: Any) -> None:
    with holdfast.open(f"sqlite:///{tmp_path / 'runs.db'}") as hf:
        hf.start(wf, "warm").result()
        statements: list[str] = []
        hf.client.store._db.set_trace_callback(statements.append)  # type: ignore[attr-defined]
        assert hf.start(wf, "a").result() == ["A"]
        hf.client.store._db.set_trace_callback(None)  # type: ignore[attr-defined]
    inside, transactions = False, 0
    for words in (statement.upper().split() for statement in statements):
        if words[0] in ("BEGIN", "COMMIT"):
            inside = words[0] == "BEGIN"
            transactions += words[0] == "COMMIT"
        elif words[0] in ("INSERT", "UPDATE", "DELETE"):
            transactions += not inside  # one that commits by itself
    assert 0 < transactions <= 3


@workflow
def part_of_it() -> int:
    return 1


@workflow
def waits_with_a_part() -> int:
    got = part_of_it()
    ask("Go on?", bool)
    return got


def test_prune_leaves_the_children_of_a_run_that_has_not_ended(hf: Holdfast) -> None:
    run = hf.start(waits_with_a_part, id="whole")
    assert hf.get("whole/part_of_it#1").status is Status.COMPLETED
    assert hf.prune(statuses=["completed"]) == ()
    run.answer(True)
    assert run.result() == 1
    assert set(hf.prune(statuses=["completed"])) == {"whole", "whole/part_of_it#1"}


def test_who_waits_for_a_run_that_nobody_drives_is_told(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(results, "WONDER", 0.05)
    run = hf.enqueue(part_of_it)
    assert hf.get(run.id).wait(timeout=0.2) is Status.READY
    assert [record.message for record in caplog.records if "run.resume()" in record.message]
