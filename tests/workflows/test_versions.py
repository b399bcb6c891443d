"""Code changes while runs are under way: versions side by side, `patched`, and changes that do not fit the journal."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, RunBlocked, Status, TimedOut, ask, patched, step, workflow
from holdfast.engine.workflow import declare as define
from holdfast.errors import WorkflowMissing

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@step
def va(what: str = "a") -> str:
    done.append(what)
    return what


@step
def vb(what: str = "b") -> str:
    done.append(what)
    return what


@step
def vc(what: str = "c") -> str:
    done.append(what)
    return what


def declare(function: Callable[..., Any], name: str = "changing", **how: Any) -> Any:
    """The workflow as it is from now on, as after a deploy."""
    return workflow(name=name, **how)(function)


def forget(name: str, version: str | None = None) -> None:
    """As in a process that does not have it."""
    for one in [one for one in define._workflows[name] if one[0] == version]:
        del define._workflows[name][one]
    if not define._workflows[name]:
        del define._workflows[name]


# --- versions


def test_a_run_keeps_its_version(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    old = declare(lambda: f"old {ask('Go?', str)}", "versioned", version="1")
    new = declare(lambda: f"new {ask('Go?', str)}", "versioned", version="2")
    first, second = hf.start(old, id="first"), hf.start(new, id="second")
    for run in (first, second):
        run.answer("on")
    opened().work(until_idle=True)
    assert (first.result(), second.result()) == ("old on", "new on")
    assert hf.start(new, id="first").result() == "old on"  # the same run, in the version that it has


def test_a_run_whose_version_is_missing_waits_and_says_so(
    opened: Callable[..., Holdfast], hft: Holdfast, clock: Any
) -> None:
    old = declare(lambda: ask("Go?", int, timeout=60, default=7), "old one", version="1")
    declare(lambda: 2, "old one", version="2")
    run = hft.start(old, id="waits")
    clock.advance(61)
    forget("old one", "1")
    with pytest.raises(WorkflowMissing, match=r"'old one' in version '1' is not declared in this process"):
        run.result()
    assert run.status is Status.READY
    [listed] = [info for info in hft.runs() if info.id == "waits"]
    assert listed.reason is not None
    assert "version '1'" in listed.reason
    with pytest.raises(TimedOut, match="version '1'"):
        hft.get("waits").result(timeout=0)
    hft.work(until_idle=True)  # a worker without it leaves it alone, and goes on
    assert run.status is Status.READY
    declare(lambda: ask("Go?", int, timeout=60, default=7), "old one", version="1")
    assert run.result() == 7
    assert run.info().reason is None


def test_a_run_whose_workflow_is_missing_waits_and_says_so(hf: Holdfast) -> None:
    gone = declare(lambda: "here", "gone one")
    run = hf.enqueue(gone, id="waits")
    forget("gone one")
    [listed] = hf.runs()
    assert listed.reason is not None
    assert "gone one" in listed.reason
    with pytest.raises(WorkflowMissing, match="gone one"):
        run.resume()
    assert run.status is Status.READY
    declare(lambda: "back", "gone one")
    assert run.result() == "back"


# --- patched


def test_old_runs_keep_the_old_way_and_new_ones_take_the_new(hf: Holdfast) -> None:
    def before() -> list[str]:
        return [va(), vb(), ask("Go?", str), va("end")]

    def after() -> list[str]:
        found = [va()]
        if patched("check"):
            found.append(vc())
        return [*found, vb(), ask("Go?", str), va("end")]

    old = hf.start(declare(before), id="old")
    new = hf.start(declare(after), id="new")
    for run in (old, new):
        run.answer("on")
    assert old.result() == ["a", "b", "on", "end"]
    assert new.result() == ["a", "c", "b", "on", "end"]
    assert done == ["a", "b", "a", "c", "b", "end", "end"]
    # A fork of the old run from before that point takes the new way.
    assert _finished(old.fork(at=1)) == ["a", "c", "b", "on", "end"]


def _finished(run: Any) -> Any:
    run.resume()
    for _ in run.questions():
        run.answer("on")
    return run.result()


def test_a_run_that_has_not_come_to_the_point_takes_the_new_way(hf: Holdfast) -> None:
    old = hf.start(declare(lambda: [va(), ask("Go?", str), vb()]), id="old")
    declare(lambda: [va(), ask("Go?", str), vc() if patched("other") else vb()])
    old.answer("on")
    assert old.result() == ["a", "on", "c"]


def test_a_loop_stays_on_its_way(hf: Holdfast) -> None:
    def before() -> list[str]:
        return [va(f"{n} {ask(f'{n}?', str)}") for n in range(3)]

    def after() -> list[str]:
        return [(vc if patched("loop") else va)(f"{n} {ask(f'{n}?', str)}") for n in range(3)]

    old = hf.start(declare(before), id="old")
    old.answer("x")
    old.resume()
    new = hf.start(declare(after), id="new")
    for run, wanted in ((old, "va"), (new, "vc")):
        while run.questions():
            run.answer("x")
            run.resume()
        assert run.result() == ["0 x", "1 x", "2 x"]
        assert [info.name for info in run.steps() if info.name in ("va", "vc")] == [wanted] * 3


def test_a_new_run_takes_the_new_way_although_a_branch_lost_a_race(hf: Holdfast) -> None:
    def slow() -> str:
        va("slow")
        return str(holdfast.receive("never"))

    def races() -> list[str]:
        won = holdfast.first(slow, vb)
        return [won, ask("Go?", str), vc() if patched("race") else "old way"]

    run = hf.start(declare(races), id="race")
    run.answer("on")
    assert run.result() == ["b", "on", "c"]


def test_outside_of_a_run_the_new_way_is_taken() -> None:
    assert patched("anything") is True


def test_a_patch_may_have_any_name(hf: Holdfast) -> None:
    run = hf.start(declare(lambda: [patched("fix#12"), ask("Go?", str)]))
    run.answer("on")
    assert run.result() == [True, "on"]


# --- code that does not fit the journal


# As generators, so that the same code can be run by a sync and by an async workflow.
Code = Callable[[], Iterator[Any]]


def recorded() -> Iterator[Any]:
    yield va()
    yield vb("x")
    yield ask("Go?", str)
    yield va("end")


def inserted() -> Iterator[Any]:
    yield va()
    yield vc()
    yield vb("x")
    yield ask("Go?", str)


def removed() -> Iterator[Any]:
    yield vb("x")
    yield ask("Go?", str)
    yield va("end")


def renamed() -> Iterator[Any]:
    yield va()
    yield vc("x")
    yield ask("Go?", str)


def reordered() -> Iterator[Any]:
    yield vb("x")
    yield va()
    yield ask("Go?", str)
    yield va("end")


def other_arguments() -> Iterator[Any]:
    yield va()
    yield vb("y")
    yield ask("Go?", str)


def early() -> Iterator[Any]:
    yield va()


def early_at_the_question() -> Iterator[Any]:
    yield va()
    yield vb("x")


def another_wait() -> Iterator[Any]:
    yield va()
    yield vb("x")
    yield holdfast.sleep(1)


# the code, what was recorded, what is attempted
CHANGES: list[tuple[Code, str, str]] = [
    (inserted, "vb#1", "vc#1"),
    (removed, "va#1", "vb#1"),
    (renamed, "vb#1", "vc#1"),
    (reordered, "va#1", "vb#1"),
    (other_arguments, "vb#1", "other arguments"),
    (early, "vb#1", "returned without"),
    (early_at_the_question, "ask#1", "returned without"),
    (another_wait, "ask#1", "sleep#1"),
]


def plain(code: Code) -> Callable[[], Any]:
    return lambda: list(code())


def as_async(code: Code) -> Callable[[], Any]:
    async def awaits() -> Any:
        return [await one if hasattr(one, "__await__") else one for one in code()]

    return awaits


def swallowing(caught: type[BaseException], code: Code) -> Callable[[], Any]:
    def swallows() -> Any:
        found: Any = "all is well"
        try:
            found = list(code())
        except caught:
            with suppress(caught):
                vc("after all")
        return found

    return swallows


WAYS: dict[str, Callable[[Code], Callable[[], Any]]] = {
    "plain": plain,
    "async": as_async,
    "except Exception": partial(swallowing, Exception),
    "except BaseException": partial(swallowing, BaseException),
}


@pytest.mark.parametrize("answered", [False, True], ids=["open", "answered"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("code", "was", "now"), CHANGES, ids=[code.__name__ for code, _, _ in CHANGES])
def test_code_that_no_longer_fits_is_parked(
    hf: Holdfast, code: Code, was: str, now: str, way: Callable[[Code], Callable[[], Any]], answered: bool
) -> None:
    run = hf.start(declare(way(recorded)), id="run")
    if answered:
        run.answer("on")
    before = list(done)
    declare(way(code))
    assert run.resume() is Status.BLOCKED
    reason = run.info().reason
    assert reason is not None
    assert was in reason
    assert now in reason
    if now != "returned without":
        assert f"{__file__}:" in reason
    assert done == before  # nothing new was done
    with pytest.raises(RunBlocked, match="unblock"):
        run.result()
    # It is not tried again by itself, nor by a worker.
    seq, epoch = run.info().seq, hf.client.store.get(uid=run.uid).epoch  # type: ignore[union-attr]
    hf.work(until_idle=True)
    assert (run.info().seq, hf.client.store.get(uid=run.uid).epoch) == (seq, epoch)  # type: ignore[union-attr]
    # After a fix it goes on where it was.
    declare(way(recorded))
    run.unblock(by="ops")
    assert _finished(run) == ["a", "x", "on", "end"]
    assert done == ["a", "x", "end"]


@pytest.mark.parametrize("way", [plain, as_async], ids=["sync", "async"])
def test_a_sleep_that_was_begun_must_not_be_left_out(hft: Holdfast, way: Callable[[Code], Callable[[], Any]]) -> None:
    def sleeps() -> Iterator[Any]:
        yield va()
        yield holdfast.sleep(3600)

    run = hft.start(declare(way(sleeps)))
    declare(way(early))
    assert run.resume() is Status.BLOCKED
    assert "'sleep#1' was recorded" in str(run.info().reason)
    declare(way(sleeps))
    run.unblock()
    assert run.result() == ["a", None]


def test_a_parked_run_can_be_forked_before_the_change(hf: Holdfast) -> None:
    run = hf.start(declare(plain(recorded)))
    declare(plain(inserted))
    assert run.resume() is Status.BLOCKED
    assert _finished(run.fork(at=1)) == ["a", "c", "x", "on"]
    assert run.status is Status.BLOCKED


def test_a_parked_run_that_still_does_not_fit_is_parked_again(hf: Holdfast) -> None:
    run = hf.start(declare(plain(recorded)))
    declare(plain(inserted))
    run.resume()
    run.unblock()
    with pytest.raises(RunBlocked):
        run.result()
    assert run.status is Status.BLOCKED


def test_an_open_question_with_a_time_limit_is_not_forgotten_by_unblocking(hft: Holdfast) -> None:
    def asks() -> list[Any]:
        return [va(), ask("Go?", int, timeout=60, default=3)]

    run = hft.start(declare(asks))
    declare(lambda: [vb(), ask("Go?", int, timeout=60, default=3)])
    assert run.resume() is Status.BLOCKED
    declare(asks)
    run.unblock()
    hft.work(until_idle=True)
    assert run.result() == ["a", 3]


def test_what_failed_may_be_mended_by_a_step_before_it(hf: Holdfast) -> None:
    @step
    def fails(what: str) -> str:
        raise ValueError(what)

    run = hf.start(declare(lambda: [va(), fails("x"), vb()]))
    assert run.status is Status.FAILED
    declare(lambda: [va(), vc(), vb()])
    run.retry()
    assert run.result() == ["a", "c", "b"]


# --- no false alarms


@step(check_args=False)
async def vd(what: str, ticks: int) -> str:
    for _ in range(ticks):
        await asyncio.sleep(0)
    done.append(what)
    return what


@pytest.mark.parametrize("seed", range(8))
def test_correct_concurrent_code_is_never_parked(hf: Holdfast, seed: int) -> None:
    """The branches interleave differently in each drive, and wait in between."""
    chance = random.Random(seed)

    async def branch(name: str) -> list[str]:
        found = [await vd(f"{name}1", chance.randrange(6)), await ask(f"{name}?", str)]
        holdfast.note(name)
        await holdfast.sleep(0.001 * chance.randrange(3))
        holdfast.random()
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        return [*found, await vd(f"{name}2", 1), va(f"{name}3")]

    async def flow() -> list[list[str]]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(branch(name)) for name in "pqr"]
        more = await asyncio.gather(*(branch(name) for name in "st"))
        return [task.result() for task in tasks] + list(more)

    run = hf.start(declare(flow))
    while run.status is not Status.COMPLETED:
        assert run.status is Status.WAITING, run.info().reason
        questions = list(run.questions())
        question = chance.choice(questions)
        run.answer(question.prompt, question=question)
        run.resume()
    assert run.result() == [[f"{n}1", f"{n}?", f"{n}2", f"{n}3"] for n in "pqrst"]
    assert sorted(done) == sorted(f"{n}{k}" for n in "pqrst" for k in (1, 2, 3))


@pytest.mark.parametrize("seed", range(4))
def test_correct_code_in_threads_is_never_parked(hf: Holdfast, seed: int) -> None:
    chance = random.Random(seed)

    def branch(name: str) -> list[str]:
        holdfast.now()
        return [va(f"{name}1"), ask(f"{name}?", str), vb(f"{name}2")]

    def flow() -> Any:
        return [*holdfast.map(branch, "pq"), *holdfast.gather(lambda: branch("r"), lambda: branch("s"))]

    run = hf.start(declare(flow))
    while run.status is not Status.COMPLETED:
        assert run.status is Status.WAITING, run.info().reason
        question = chance.choice(list(run.questions()))
        run.answer(question.prompt, question=question)
        run.resume()
    assert run.result() == [[f"{n}1", f"{n}?", f"{n}2"] for n in "pqrs"]
    assert sorted(done) == sorted(f"{n}{k}" for n in "pqrs" for k in (1, 2))
