"""Workflows as parts of workflows: own runs with a parent, whose results arrive whatever dies in between."""

import asyncio
import gc
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from writes import Make, around

import holdfast
from holdfast import Holdfast, Status, ask, gather, sleep, step, this_step, workflow
from holdfast.errors import RunCancelled, StoreFull, StoreUnusable, UsageError
from holdfast.kernel.model import Post
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash, CrashSqliteStore, CrashStore, Fuse

Opener = Callable[..., Holdfast]

acted: Counter[str] = Counter()
gate = threading.Event()
entered = threading.Event()


@pytest.fixture(autouse=True)
def nothing_acted() -> Iterator[None]:
    acted.clear()
    gate.clear()
    entered.clear()
    yield
    gate.set()


class Refused(Exception):
    """An error of the user's own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


@step
def act(name: str) -> str:
    acted[name] += 1
    return name


@step
async def act_async(name: str) -> str:
    acted[name] += 1
    await asyncio.sleep(0)
    return name


@step
def refuse(code: int) -> None:
    acted["refuse"] += 1
    if acted["refuse"] == 1:
        raise Refused(code)


@step
def linger(name: str) -> str:
    entered.set()
    gate.wait(10)
    return act.function(name)


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
def leaf(name: str) -> str:
    return act(name) + act("leaf")


@workflow
async def leaf_async(name: str) -> str:
    return await act_async(name) + await act_async("leaf")


@workflow
def over(name: str) -> str:
    act("over")
    return leaf(name) + leaf_async(name) + act("after")  # type: ignore[operator]


@workflow
async def over_async(name: str) -> str:
    await act_async("over")
    return await awaited(leaf(name)) + await leaf_async(name) + await act_async("after")


async def awaited(value: Any) -> Any:
    """A sync workflow is awaited in an async one, which its signature does not tell."""
    return await value


OVER = pytest.mark.parametrize("wf", [over, over_async], ids=["sync", "async"])


def children_of(hf: Holdfast, parent: Any) -> dict[str, Status]:
    return {run.id: run.status for run in hf.runs(limit=1000) if run.parent == parent.uid}


# --- results


@OVER
def test_a_child_is_a_run_of_its_own_with_a_parent(hf: Holdfast, wf: Any) -> None:
    run = hf.start(wf, "a", id="p")
    assert run.result() == "aleaf" * 2 + "after"
    assert children_of(hf, run) == {"p/leaf#1": Status.COMPLETED, "p/leaf_async#1": Status.COMPLETED}
    child = hf.get("p/leaf#1")
    assert (child.info().parent, child.info().workflow, child.result()) == (run.uid, "leaf", "aleaf")
    assert acted == {"over": 1, "a": 2, "leaf": 2, "after": 1}


@OVER
def test_under_a_worker_and_from_async_code(hf: Holdfast, store_url: str, wf: Any) -> None:
    run = hf.enqueue(wf, "a", id="p")
    hf.work(until_idle=True)
    assert run.result(timeout=1) == "aleaf" * 2 + "after"

    async def main() -> Any:
        async with holdfast.open(store_url) as other:
            return await (await other.start(wf, "b", id="q")).result()

    assert asyncio.run(main()) == "bleaf" * 2 + "after"


def test_children_are_of_their_parents_queue(hf: Holdfast) -> None:
    run = hf.enqueue(over, "a", id="p", queue="slow")
    hf.work(until_idle=True, queues=["slow"])
    assert run.status is Status.COMPLETED
    assert hf.get("p/leaf#1").info().queue == "slow"


@workflow
def refuses(code: int) -> None:
    act("before")
    refuse(code)


@workflow
def meets(code: int) -> str:
    try:
        refuses(code)
    except Refused as error:
        return f"met {error.code}"
    return "fine"


@workflow
async def meets_async(code: int) -> str:
    try:
        await awaited(refuses(code))
    except Refused as error:
        return f"met {error.code}"
    return "fine"


@workflow
def passes_on(code: int) -> str:
    act("kept")
    refuses(code)
    return act("fine")


@pytest.mark.parametrize("wf", [meets, meets_async], ids=["sync", "async"])
def test_a_childs_error_comes_with_its_type(hf: Holdfast, wf: Any) -> None:
    run = hf.start(wf, 7, id="p")
    assert run.result() == "met 7"
    assert children_of(hf, run) == {"p/refuses#1": Status.FAILED}
    with pytest.raises(Refused, match="code 7"):
        hf.get("p/refuses#1").result()


def test_retry_tries_the_child_again_that_made_it_fail(hf: Holdfast) -> None:
    run = hf.start(passes_on, 7, id="p")
    with pytest.raises(Refused):
        run.result()
    run.retry()
    assert run.result() == "fine"
    assert acted == {"kept": 1, "before": 1, "refuse": 2, "fine": 1}
    assert children_of(hf, run) == {"p/refuses#1": Status.COMPLETED}


def test_a_failure_of_the_store_is_not_an_error_of_the_workflow(hf: Holdfast, monkeypatch: Any) -> None:
    """The parent must not take it for what its child raised, and fail with it."""
    apply, times = hf.client.store.apply, []

    def full_once(batch: Any) -> Any:
        if acted["a"] and not times:  # the first step of the child cannot be kept
            times.append(1)
            raise StoreFull(hf.client.store.place)
        return apply(batch)

    monkeypatch.setattr(hf.client.store, "apply", full_once)
    with pytest.raises(StoreFull):
        hf.start(over, "a", id="p")
    monkeypatch.undo()
    assert hf.get("p").status not in (Status.FAILED, Status.COMPLETED)
    assert hf.start(over, "a", id="p").result() == "aleaf" * 2 + "after"


def test_a_new_run_of_a_deleted_ones_id_has_its_own_children(hf: Holdfast) -> None:
    hf.start(over, "a", id="p").delete()
    assert hf.get("p/leaf#1").result() == "aleaf"
    acted.clear()
    hf.start(over, "a", id="p")
    assert acted == {"over": 1, "a": 2, "leaf": 2, "after": 1}


# --- waiting


@workflow
def asks(prompt: str) -> str:
    answer: str = ask(prompt, str)
    sleep(3600)
    return act(answer)


@workflow
async def asks_async(prompt: str) -> str:
    answer: str = await ask(prompt, str)
    await sleep(3600)
    return await act_async(answer)


@workflow
def middle(prompt: str) -> str:
    return asks(prompt) + "!"


@workflow
def top(prompt: str) -> str:
    return middle(prompt) + "?"


@workflow
async def top_async(prompt: str) -> str:
    return await asks_async(prompt) + "?"


WAITING = pytest.mark.parametrize(
    ("wf", "inner", "result"),
    [(top, "p/middle#1/asks#1", "yes!?"), (top_async, "p/asks_async#1", "yes?")],
    ids=["sync", "async"],
)


@WAITING
def test_a_handle_that_started_the_parent_drives_its_children(hft: Holdfast, wf: Any, inner: str, result: str) -> None:
    """No worker is needed, however deep the one is that waits."""
    run = hft.start(wf, "well?", id="p")
    assert run.status is hft.get(inner).status is Status.WAITING
    hft.get(inner).answer("yes")
    assert run.result() == result
    assert acted == {"yes": 1}


@WAITING
def test_parent_and_child_go_on_with_other_holders(
    timed: Opener, kill: Callable[[Holdfast], None], wf: Any, inner: str, result: str
) -> None:
    doomed = timed()
    doomed.start(wf, "well?", id="p")
    kill(doomed)
    hft = timed()
    hft.get(inner).answer("yes")
    assert hft.get(inner).resume() is Status.WAITING  # one drives the child alone, and dies
    kill(hft)
    worker = timed()
    worker.work(until_idle=True)
    assert worker.get("p").result(timeout=1) == result
    assert acted == {"yes": 1}


@WAITING
def test_who_takes_over_an_ended_child_tells_its_parent(
    timed: Opener, die: Callable[[Holdfast], None], clock: ManualClock, wf: Any, inner: str, result: str
) -> None:
    """The child's holder dies after it wrote how the child ended, before it left word."""
    timed().start(wf, "well?", id="p")
    doomed = timed()
    child = doomed.get(inner)
    child.answer("yes")
    assert child.resume() is Status.WAITING
    clock.advance(3600)

    def post_or_die(post: Post, make: Make) -> Any:
        if post.item.kind == "child":
            die(doomed)
        return make(post)

    doomed.client.store.apply = around(doomed.client.store, Post, post_or_die)  # type: ignore[method-assign]
    with pytest.raises((Crash, StoreUnusable)):
        child.resume()
    worker = timed()
    assert [entry.kind for entry in worker.get(inner).history()][-1] == "completed"
    worker.work(until_idle=True)
    assert worker.get("p").result(timeout=1) == result
    assert acted == {"yes": 1}


def test_a_blocked_child_keeps_its_parent_waiting(hf: Holdfast) -> None:
    run = hf.start(top, "well?", id="p")
    hf.get("p/middle#1/asks#1").cancel("no")
    run.wait(timeout=0.2)
    with pytest.raises(RunCancelled, match="no"):
        run.result()


def test_a_cancel_that_is_acknowledged_before_the_end_of_a_child_decides_it(
    hf: Holdfast, opened: Callable[..., Holdfast]
) -> None:
    other = opened()

    @step
    def last() -> str:
        other.get(this_step().run).cancel("stop")  # of a run that is driven here: it finds the wish in its inbox
        return "done"

    @workflow
    def part() -> str:
        return last()

    @workflow
    def whole() -> str:
        return part()

    with pytest.raises(RunCancelled, match="stop"):
        hf.start(whole, id="p").result()
    assert [info.status for info in hf.runs() if info.id != "p"] == [Status.CANCELLED]


# --- a crash at every point


@workflow
def crashing(n: int) -> str:
    act("first")
    value = leaf("child") + middle_leaf("deep")
    return value + act("last")


@workflow
def middle_leaf(name: str) -> str:
    return leaf(name)


@workflow
async def crashing_async(n: int) -> str:
    await act_async("first")
    values = await asyncio.gather(leaf_async("child"), leaf_async("deep"))
    return "".join(values) + await act_async("last")


def _doomed(url: str, fuse: Fuse) -> Holdfast:
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        return holdfast.open(url, store=CrashSqliteStore(path, fuse, durability="normal"))
    return holdfast.open(url, store=Watched(open_store(url), fuse))  # type: ignore[arg-type]


class Watched(CrashStore):
    """The reads that workflows need beside those of the kernel."""

    def __getattr__(self, name: str) -> Any:
        self.fuse.check()
        return getattr(self.store, name)


def _crash(url: str, wf: Any, at: int | None) -> Fuse:
    fuse = Fuse()
    doomed = _doomed(url, fuse)
    fuse.points.clear()
    fuse.at = at
    try:
        doomed.start(wf, 1, id="p")
    except BaseException:
        if not fuse.dead:
            raise
    doomed.client.engine.watch.stop()
    doomed.client.engine.worker.stop()
    doomed.client.store.drop()
    return fuse


@pytest.mark.slow(
    covered_by="tests/crash/test_workflow_crashes.py::test_a_workflow_that_dies_at_any_point_ends_as_if_it_had_not"
)
@pytest.mark.parametrize("wf", [crashing, crashing_async], ids=["sync", "async"])
def test_a_crash_anywhere_leaves_no_run_stranded(
    beside: Callable[[object], str], wf: Any, tally: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda died: None)  # of the threads that watch, which are dead too
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)  # and of the tasks
    points = len(_crash(beside("dry"), wf, None).points)
    expected = "childleafdeepleaflast"
    for at in range(points):
        url = beside(at)
        acted.clear()
        _crash(url, wf, at)
        with holdfast.open(url) as hf:
            hf.enqueue(wf, 1, id="p")
            hf.work(until_idle=True)
            assert hf.get("p").result(timeout=5) == expected, at
            statuses = {run.id: run.status for run in hf.runs()}
        assert set(statuses.values()) == {Status.COMPLETED}, (at, statuses)
        assert len(statuses) == (4 if wf is crashing else 3)
        assert set(acted) == {"first", "child", "deep", "leaf", "last"}
        lost = 1 if wf is crashing else 2  # only the steps in whose commit it died may come twice
        assert sum(acted.values()) <= 6 + lost, (at, acted)
    gc.collect()
    tally("crashes of parents and children", points=points)


# --- many, and deep


@workflow
def fans(names: list[str]) -> list[str]:
    return gather(*(lambda name=name: leaf(name) for name in names))  # type: ignore[no-any-return, misc]


@workflow
async def fans_async(names: list[str]) -> list[str]:
    return await holdfast.map(leaf_async, names, limit=3)  # type: ignore[no-any-return]


@pytest.mark.parametrize("wf", [fans, fans_async], ids=["sync", "async"])
def test_many_children_at_once(hf: Holdfast, wf: Any) -> None:
    names = [f"n{n}" for n in range(10)]
    run = hf.start(wf, names, id="p")
    assert run.result() == [f"{name}leaf" for name in names]
    assert len(children_of(hf, run)) == 10
    assert acted == {**dict.fromkeys(names, 1), "leaf": 10}


@workflow
def deeper(n: int) -> int:
    return deeper(n - 1) + 1 if n else 0


@workflow
async def deeper_async(n: int) -> int:
    return await deeper_async(n - 1) + 1 if n else 0


@pytest.mark.parametrize("wf", [deeper, deeper_async], ids=["sync", "async"])
def test_the_depth_has_a_limit_that_says_what_to_do(wf: Any) -> None:
    with holdfast.open("memory://") as hf:
        assert hf.start(wf, 20).result() == 20
        with pytest.raises(UsageError, match=r"20 deep; use a loop, or continue_as_new"):
            hf.start(wf, 1000, id="p").result()
