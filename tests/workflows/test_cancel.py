"""Giving a run up, and letting it go on again: what stops, what is undone, and what is tried again."""

import asyncio
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, ask, gather, sleep, step, workflow
from holdfast.engine.worker.inbox_watch import Watch
from holdfast.errors import DeadlinePassed, RunCancelled, RunEnded, TooLarge, UndoFailed, UsageError

Opener = Callable[..., Holdfast]

acted: Counter[str] = Counter()
fails: set[str] = set()
gate = threading.Event()
entered = threading.Event()


@pytest.fixture(autouse=True)
def nothing_acted() -> Iterator[None]:
    acted.clear()
    fails.clear()
    gate.clear()
    entered.clear()
    yield
    gate.set()


@step
def act(name: str) -> str:
    acted[name] += 1
    if name in fails:
        raise ValueError(name)
    return name


@step(undo_retries=0)
def book(name: str) -> str:
    acted[name] += 1
    return name


@book.undo
def unbook(result: str, name: str) -> None:
    if f"-{name}" in fails:
        raise ValueError(name)
    acted[f"-{name}"] += 1


@step
def linger(name: str) -> str:
    entered.set()
    gate.wait(10)
    acted[name] += 1
    return name


@step
async def linger_async(name: str) -> str:
    entered.set()
    try:
        await asyncio.sleep(30)
    except asyncio.CancelledError:
        acted["interrupted"] += 1
        raise
    return name


@workflow
def waits_to_hear(name: str) -> str:
    book(name)
    answer: str = ask("well?", str)
    return act(answer)


@workflow
async def waits_to_hear_async(name: str) -> str:
    book(name)
    answer: str = await ask("well?", str)
    return act(answer)


HEARS = pytest.mark.parametrize("wf", [waits_to_hear, waits_to_hear_async], ids=["sync", "async"])


# --- when


def test_before_it_began(hf: Holdfast) -> None:
    run = hf.enqueue(waits_to_hear, "a", id="run")
    run.cancel("not needed", by="somebody")
    hf.work(until_idle=True)
    assert (run.status, acted) == (Status.CANCELLED, {})
    with pytest.raises(RunCancelled, match="not needed"):
        run.result()
    assert run.entry(run.info().seq).contents["by"] == "somebody"


@HEARS
def test_while_it_waits(opened: Opener, wf: Any) -> None:
    run = opened().start(wf, "a", id="run")
    opened().get("run").cancel()
    with pytest.raises(RunCancelled):
        run.result()
    assert run.questions() == ()
    assert acted == {"a": 1}


@HEARS
def test_with_undo(hf: Holdfast, wf: Any) -> None:
    run = hf.start(wf, "a", id="run")
    run.cancel("changed my mind", undo=True)
    with pytest.raises(RunCancelled, match="changed my mind"):
        run.result()
    assert acted == {"a": 1, "-a": 1}
    assert [effect.status for effect in run.effects()] == ["undone"]


def test_with_undo_of_one_that_is_driven_by_hand(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("a", book.function, "a", undo=unbook)
    run.cancel("changed my mind", undo=True)
    assert (run.status, acted) == (Status.CANCELLED, {"a": 1, "-a": 1})
    run.cancel(undo=True)
    assert acted == {"a": 1, "-a": 1}


@workflow
def has_part(name: str) -> str:
    book(f"whole {name}")
    return waits_to_hear(name)


def test_with_undo_of_a_child_that_cannot_be_undone(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    """The parent is blocked with it, goes on when that is seen to, and no worker tries it again and again."""
    run = hf.start(has_part, "a", id="run")
    fails.add("-a")
    with pytest.raises(UndoFailed, match=r"run 'run/waits_to_hear#1': its rollback .*'book#1' failed"):
        run.cancel("enough", undo=True)
    child = hf.get("run/waits_to_hear#1")
    assert (run.status, child.status) == (Status.BLOCKED, Status.BLOCKED)
    assert "a child of it cannot be" in (run.info().reason or "")
    assert "run run/waits_to_hear#1: blocked: its rollback" in caplog.text
    assert "run run: blocked: it was cancelled" in caplog.text
    hf.work(until_idle=True)
    assert run.status is Status.BLOCKED
    fails.clear()
    run.cancel("enough", undo=True)
    assert (run.status, child.status) == (Status.CANCELLED, Status.CANCELLED)
    assert acted == {"whole a": 1, "a": 1, "-a": 1, "-whole a": 1}


def test_of_a_fork_with_undo_reaches_back_to_the_fork_point(hf: Holdfast) -> None:
    """What lies before belongs to the run that it was forked from."""
    run = hf.start(books_twice, id="run")
    fork = run.fork()
    fork.answer("yes")
    fork.resume()
    fork.cancel(undo=True)
    assert (fork.status, run.status) == (Status.CANCELLED, Status.WAITING)
    assert acted == {"first": 1, "second": 1, "-second": 1}


@workflow
def books_twice() -> None:
    book("first")
    ask("well?", str)
    book("second")
    ask("and now?", str)


def test_twice_and_after_the_end(hf: Holdfast) -> None:
    run = hf.start(waits_to_hear, "a", id="run")
    run.cancel("first")
    seq = run.info().seq
    run.cancel("second")
    assert run.info().seq == seq
    with pytest.raises(RunCancelled, match="first"):
        run.result()
    run.cancel(undo=True)  # nothing was undone yet, so there is something to do
    assert acted == {"a": 1, "-a": 1}
    run.cancel(undo=True)
    assert (run.status, acted["-a"]) == (Status.CANCELLED, 1)
    done = hf.start(lingers_not, id="done")
    with pytest.raises(RunEnded, match=r"run 'done': it is completed, so it cannot be cancelled"):
        done.cancel()
    assert done.result() == "x"


@workflow
def lingers_not() -> str:
    return act("x")


@workflow
def lingers() -> None:
    try:
        linger("slow")
        act("next")
    finally:
        acted["finally"] += 1
        act("too late")


@workflow
def lingers_in_branches() -> None:
    gather(lambda: linger("slow"), lambda: act("quick"))
    act("next")


@pytest.mark.parametrize("wf", [lingers, lingers_in_branches], ids=["plain", "gather"])
def test_while_a_sync_step_runs_in_another_thread(hf: Holdfast, wf: Any) -> None:
    """The step ends and is kept; nothing comes after it, also not from a finally block."""
    with ThreadPoolExecutor(1) as thread:
        driven = thread.submit(hf.start, wf, id="run")
        assert entered.wait(10)
        run = hf.get("run")
        run.cancel("stop")
        _until(lambda: hf.client.engine.executions[run.uid].outcome is not None)
        gate.set()
        driven.result()
    with pytest.raises(RunCancelled, match="stop"):
        run.result()
    assert acted["slow"] == 1
    assert not acted["next"] + acted["too late"]
    assert acted["finally"] == (wf is lingers)
    assert "linger#1" in str(run.checkpoint().completed)


@workflow
async def lingers_async() -> None:
    try:
        await asyncio.gather(linger_async("a"), linger_async("b"))
        act("next")
    finally:
        acted["finally"] += 1
        act("too late")


@workflow
async def parent_of_lingers_async() -> None:
    await lingers_async()


@workflow
def parent_of_lingers() -> None:
    lingers()
    act("next")


@pytest.mark.parametrize("wf", [lingers_async, parent_of_lingers_async], ids=["plain", "child"])
def test_while_async_steps_run(store_url: str, wf: Any) -> None:
    """They are interrupted at once."""

    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            driven = asyncio.create_task(hf.start(wf, id="run"))
            while not entered.is_set():
                await asyncio.sleep(0.01)
            run = await hf.get("run")
            await run.cancel("stop")
            await asyncio.wait_for(driven, 10)
            with pytest.raises(RunCancelled, match="stop"):
                await run.result()
            assert {one.status for one in await hf.runs()} == {Status.CANCELLED}

    asyncio.run(main())
    assert acted == {"interrupted": 2, "finally": 1}


def test_a_child_that_runs_in_its_parents_place(hf: Holdfast) -> None:
    with ThreadPoolExecutor(1) as thread:
        driven = thread.submit(hf.start, parent_of_lingers, id="run")
        assert entered.wait(10)
        run, child = hf.get("run"), hf.get("run/lingers#1")
        run.cancel("stop")
        _until(lambda: hf.client.engine.executions[child.uid].outcome is not None)
        gate.set()
        driven.result()
    assert run.status is child.status is Status.CANCELLED
    assert acted == {"slow": 1, "finally": 1}


def _until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not come about")


@workflow
def hears_by_child(name: str) -> str:
    book("parent")
    return waits_to_hear(name)


@pytest.mark.parametrize("undo", [False, True])
def test_children_that_wait(hf: Holdfast, undo: bool) -> None:
    run = hf.start(hears_by_child, "a", id="run")
    child = hf.get("run/waits_to_hear#1")
    run.cancel("stop", undo=undo)
    assert run.status is child.status is Status.CANCELLED
    with pytest.raises(RunCancelled, match=r"stop|rolled back"):
        child.result()
    assert acted == ({"a": 1, "parent": 1, "-a": 1, "-parent": 1} if undo else {"a": 1, "parent": 1})


def test_by_another_process(shared_url: str, tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(
        "import sys, time, holdfast\n"
        "@holdfast.step\n"
        "def tick(): print('tick', flush=True); time.sleep(0.05)\n"
        "@holdfast.workflow\n"
        "def ticks():\n"
        "    for _ in range(400): tick()\n"
        "with holdfast.open(sys.argv[1]) as hf:\n"
        "    run = hf.start(ticks, id='run')\n"
        "    print(run.status, flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, str(script), shared_url], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "tick\n"
        with holdfast.open(shared_url) as hf:
            run = hf.get("run")
            run.cancel("from afar")
            assert run.wait(timeout=20) is Status.CANCELLED
        assert process.communicate(timeout=20)[0].splitlines()[-1] == "cancelled"
    finally:
        process.kill()
        process.wait()


# --- again


@workflow
def caught() -> str:
    try:
        act("spare")
    except ValueError:
        act("handled")
    act("kept")
    return act("risky")


@workflow
async def caught_async() -> str:
    try:
        act("spare")
    except ValueError:
        act("handled")
    act("kept")
    return act("risky")


@pytest.mark.parametrize("wf", [caught, caught_async], ids=["sync", "async"])
def test_retry_tries_again_only_what_made_it_fail(opened: Opener, wf: Any) -> None:
    fails.update({"spare", "risky"})
    run = opened().start(wf, id="run")
    with pytest.raises(ValueError, match="risky"):
        run.result()
    fails.clear()
    again = opened().get("run")
    again.retry(by="somebody")
    assert again.result() == "risky"
    assert acted == {"spare": 1, "handled": 1, "kept": 1, "risky": 2}


@workflow
def handler_fails() -> str:
    try:
        act("spare")
    except ValueError:
        act("handled")
        act("risky")
    return act("end")


def test_what_was_caught_stays_even_if_its_handler_failed(hf: Holdfast) -> None:
    fails.update({"spare", "risky"})
    run = hf.start(handler_fails, id="run")
    fails.clear()
    run.retry()
    assert run.result() == "end"
    assert acted == {"spare": 1, "handled": 1, "risky": 2, "end": 1}


@workflow
def cleans_up() -> str:
    try:
        act("risky")
    except ValueError as error:
        act("clean")
        raise RuntimeError("it went wrong") from error
    return act("next") + act("end")


def test_another_way_after_a_failure_that_was_tried_again(hf: Holdfast) -> None:
    """What was done because of the failure is not missed when all goes well."""
    fails.add("risky")
    run = hf.start(cleans_up, id="run")
    with pytest.raises(RuntimeError, match="it went wrong"):
        run.result()
    fails.clear()
    run.retry()
    assert run.result() == "nextend"
    assert acted == {"risky": 2, "clean": 1, "next": 1, "end": 1}


def test_retry_after_a_failure_of_the_workflow_itself(hf: Holdfast) -> None:
    run = hf.start(raises_by_itself, id="run")
    with pytest.raises(LookupError):
        run.result()
    fails.add("fixed")
    run.retry()
    assert (run.result(), acted) == ("a", {"a": 1})


@workflow
def raises_by_itself() -> str:
    found = act("a")
    if "fixed" not in fails:
        raise LookupError("a bug")
    return found


@HEARS
@pytest.mark.parametrize("by_request", [False, True])
def test_retry_after_a_cancellation(opened: Opener, wf: Any, by_request: bool) -> None:
    hf = opened()
    if by_request:
        with hf.get(hf.enqueue(wf, "a", id="run").id).claim():
            opened().get("run").cancel("stop")  # left for whoever drives it
        hf.work(until_idle=True)
    else:
        hf.start(wf, "a", id="run").cancel("stop")
    run = opened().get("run")
    assert run.status is Status.CANCELLED
    run.retry()
    assert run.wait(timeout=0.1) is Status.WAITING
    run.answer("yes")
    assert run.result() == "yes"
    assert acted == {"a": 1, "yes": 1}


def test_retry_brings_children_back_that_were_cancelled_with_it(hf: Holdfast) -> None:
    run = hf.start(hears_by_child, "a", id="run")
    run.cancel()
    run.retry()
    assert run.wait(timeout=0.1) is Status.WAITING
    hf.get("run/waits_to_hear#1").answer("yes")
    assert run.result() == "yes"
    assert acted == {"parent": 1, "a": 1, "yes": 1}


@step(at_most_once=True)
def pay() -> str:
    acted["pay"] += 1
    if acted["pay"] == 1:
        raise OSError("the line broke")
    return "paid"


@workflow
def pays() -> str:
    return act("first") + pay()


def test_retry_after_it_was_blocked(hf: Holdfast) -> None:
    run = hf.start(pays, id="run")
    assert run.status is Status.BLOCKED
    run.resolve("pay#1", done=False)
    if run.status is Status.BLOCKED:
        run.retry()
    assert run.result() == "firstpaid"
    assert acted == {"first": 1, "pay": 2}


def test_retry_and_fork_give_the_time_again_that_a_run_may_take(hft: Holdfast, clock: Any) -> None:
    run = hft.start(dawdles, id="run", deadline=60)
    with pytest.raises(DeadlinePassed, match="60 s"):
        run.result()
    clock.advance(530)
    run.retry()
    assert run.result() == "end"
    clock.advance(3600)
    fork = run.fork(at=run.steps()[1].seq)
    assert fork.result() == "end"
    assert acted == {"first": 1, "end": 2}


@workflow
def dawdles() -> str:
    act("first")
    sleep(600)
    return act("end")


def test_only_what_has_ended_or_is_parked_is_tried_again(hf: Holdfast) -> None:
    run = hf.start(waits_to_hear, "a", id="run")
    with pytest.raises(UsageError, match=r"run 'run' is waiting; only a failed, cancelled or blocked run"):
        run.retry()


def test_news_of_a_run_that_came_before_it_was_driven_is_looked_at(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody is told of it between the look into its inbox and the moment from which on it is watched over."""
    looked = threading.Event()
    monkeypatch.setattr(Watch, "_look", lambda *_: looked.set())
    monkeypatch.setattr(type(hf.client.store), "look_every", 1_000.0)
    run = hf.enqueue(lingers)
    hf.client.engine.watch.tell(run.uid)
    working = threading.Thread(target=hf.work, kwargs={"until_idle": True})
    working.start()
    assert looked.wait(5), "only when the step had ended"
    gate.set()
    working.join()


def test_a_cancel_that_cannot_be_written_gives_up_the_claim(hf: Holdfast) -> None:
    run = hf.enqueue(waits_to_hear, "x", id="run")
    hf.work(until_idle=True)
    with pytest.raises(TooLarge):
        run.cancel("x" * (hf.client.engine.journals.max_bytes + 1))
    assert run.info().holder is None
    run.cancel("no more")
    assert run.status is Status.CANCELLED
