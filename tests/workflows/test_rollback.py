"""Rolling workflows back: what was done is undone in reverse, what could not be is told, and the run goes on."""

import asyncio
import gc
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Secret, Status, ask, gather, step, this_step, workflow
from holdfast.engine.workflow import undo_functions as undo_module
from holdfast.errors import (
    Claimed,
    NoCheckpoint,
    NotStorable,
    RunBlocked,
    RunCancelled,
    StoreUnusable,
    TimedOut,
    Uncertain,
    UndoFailed,
)
from holdfast.stores import open_store
from holdfast.testing.clock import ManualClock
from holdfast.testing.crash import Crash, CrashStore, Fuse

Opener = Callable[..., Holdfast]

told: list[str] = []
keys: list[str] = []
fails: Counter[str] = Counter()
gate = threading.Event()
entered = threading.Event()


@pytest.fixture(autouse=True)
def nothing_told() -> Iterator[None]:
    for one in (told, keys, fails):
        one.clear()
    gate.clear()
    entered.clear()
    yield
    gate.set()


@step
def reserve(name: str) -> str:
    told.append(f"+{name}")
    keys.append(this_step().idempotency_key)
    return name.upper()


@reserve.undo
def release(result: str, name: str) -> None:
    fails[name] -= 1
    if fails[name] >= 0:
        raise ConnectionError(f"{name} does not answer")
    told.append(f"-{result}")


@step(undo_retries=0)
async def reserve_async(name: str) -> str:
    await asyncio.sleep(0)
    told.append(f"+{name}")
    return name.upper()


@reserve_async.undo
async def release_async(result: str, name: str) -> None:
    await asyncio.sleep(0)
    told.append(f"-{result}")


@step(reversible=False)
def mail(to: str) -> None:
    told.append(f"mail {to}")


@step
def plain(name: str) -> None:
    told.append(name)


@step(target="door", retries=0)
def slam() -> None:
    raise OSError("it is stuck")


@workflow
def trip(who: str) -> str:
    reserve("car")
    mail(who)
    reserve("room")
    answer: str = ask("go?", str)
    plain(answer)
    return answer


@workflow
async def trip_async(who: str) -> str:
    await reserve_async("car")
    mail(who)
    await reserve_async("room")
    answer: str = await ask("go?", str)
    plain(answer)
    return answer


TRIPS = pytest.mark.parametrize("wf", [trip, trip_async], ids=["sync", "async"])


def test_the_preview_tells_what_the_rollback_then_does(hf: Holdfast) -> None:
    run = hf.start(trip, "bo", id="run")
    seq = run.info().seq
    plan = run.plan_rollback(0)
    wanted = [("reserve#2", "undo"), ("mail#1", "irreversible"), ("reserve#1", "undo")]
    assert [(one.effect.key, one.action) for one in plan.steps] == wanted
    assert run.info().seq == seq
    report = run.rollback(0)
    assert [effect.key for effect in report.undone] == ["reserve#2", "reserve#1"]
    assert [effect.key for effect in report.irreversible] == ["mail#1"]
    assert told == ["+car", "mail bo", "+room", "-ROOM", "-CAR"]
    with pytest.raises(NoCheckpoint):
        run.plan_rollback(999)


@TRIPS
def test_then_the_run_goes_on_from_there(hf: Holdfast, wf: Any) -> None:
    """Also of async steps from sync code; and what comes again has another key for the outside."""
    run = hf.start(wf, "bo", id="run")
    [question] = run.questions()
    to = run.effects()[1].seq + 1  # the mail was sent
    assert len(run.rollback(to).undone) == 1
    assert run.wait(timeout=0.05) is Status.WAITING
    [again] = run.questions()
    assert question.id != again.id
    run.answer("yes")
    assert run.result() == "yes"
    assert told == ["+car", "mail bo", "+room", "-ROOM", "+room", "yes"]
    assert len(set(keys)) == len(keys)
    run.rollback(0)  # also after its end
    assert run.status is Status.READY
    assert told[-2:] == ["-ROOM", "-CAR"]


@TRIPS
def test_from_async_code(store_url: str, wf: Any) -> None:
    async def main() -> None:
        async with holdfast.open(store_url) as hf:
            run = await hf.start(wf, "bo", id="run")
            assert len((await run.plan_rollback(0)).steps) == 3
            assert len((await run.rollback(0)).undone) == 2
            await run.resume()
            await run.answer("yes")
            assert await run.result() == "yes"

    asyncio.run(main())
    assert told == ["+car", "mail bo", "+room", "-ROOM", "-CAR", "+car", "mail bo", "+room", "yes"]


def test_undos_are_tried_again_and_one_that_fails_stops_the_rollback(hft: Holdfast) -> None:
    fails.update({"room": 2, "car": 3})
    run = hft.start(trip, "bo", id="run")
    with pytest.raises(UndoFailed) as caught:
        run.rollback(0)
    assert [effect.key for effect in caught.value.report.undone] == ["reserve#2"]  # at the third attempt
    [failed] = caught.value.report.failed
    assert (failed.key, failed.error) == ("reserve#1", "ConnectionError: car does not answer")
    assert {effect.key: effect.status for effect in run.effects()} == {
        "reserve#1": "undo_failed",
        "mail#1": "done",
        "reserve#2": "undone",
    }
    assert run.status is Status.BLOCKED
    hft.work(until_idle=True)
    assert run.resume() is Status.BLOCKED
    with pytest.raises(RunBlocked, match="car does not answer"):
        run.result()
    assert [effect.key for effect in run.rollback(0).undone] == ["reserve#2", "reserve#1"]
    assert told == ["+car", "mail bo", "+room", "-ROOM", "-CAR"]
    assert run.resume() is Status.WAITING


@workflow
def slams() -> str:
    reserve("car")
    try:
        slam()
    except OSError:
        return "stuck"
    return "shut"


def test_what_may_or_may_not_have_happened_is_told(hf: Holdfast) -> None:
    run = hf.start(slams, id="run")
    report = run.rollback(0)
    assert [effect.key for effect in report.uncertain] == ["slam#1"]
    assert [effect.key for effect in report.undone] == ["reserve#1"]


@workflow
def reserves_several() -> list[str]:
    found: list[str] = gather(*(lambda name=name: reserve(name) for name in ("a", "b", "c")))  # type: ignore[misc]
    ask("go?", str)
    return found


def test_branches_are_undone_in_the_reverse_of_what_happened(hf: Holdfast) -> None:
    run = hf.start(reserves_several, id="run")
    done = [one.key for one in run.steps()]
    report = run.rollback(0)
    assert [effect.key for effect in report.undone] == done[::-1]


@step
def reserve_last(name: str) -> str:
    entered.set()
    assert gate.wait(20)
    return name.upper()


@reserve_last.undo
def release_last(result: str, name: str) -> None:
    told.append(f"-{result}")


def reserve_meanwhile(name: str) -> str:
    assert entered.wait(20)
    found = reserve(name)
    gate.set()
    return found


@workflow
def reserves_the_first_last() -> list[str]:
    return gather(lambda: reserve_last("begun first"), lambda: reserve_meanwhile("meanwhile"))  # type: ignore[no-any-return]


def test_what_was_done_last_is_undone_first_whenever_it_was_begun(hf: Holdfast) -> None:
    hf.start(reserves_the_first_last).rollback(0)
    assert told == ["+meanwhile", "-BEGUN FIRST", "-MEANWHILE"]


@step(retries=5, delay=3600, undo=release)
def stubborn(name: str) -> str:
    raise ConnectionError(f"{name} is busy")


@workflow
def tries_for_hours() -> None:
    reserve("car")
    stubborn("hotel")


@pytest.mark.parametrize("how", ["rollback", "cancel"])
def test_a_step_that_waits_for_its_next_attempt_is_not_uncertain(hf: Holdfast, how: str) -> None:
    """Its last one has said that it failed, and none is under way."""
    run = hf.start(tries_for_hours, id="run")
    assert run.status is Status.WAITING
    steps = run.plan_rollback(0).steps
    assert [(one.effect.key, one.action, one.problem) for one in steps] == [
        ("stubborn#1", "uncertain", None),
        ("reserve#1", "undo", None),
    ]
    run.rollback(0, then="cancelled") if how == "rollback" else run.cancel(undo=True)
    assert run.status is Status.CANCELLED
    assert [effect.status for effect in run.effects()] == ["undone", "raised"]
    assert told == ["+car", "-CAR"]


@pytest.mark.parametrize("between", ["refused", "recovered"])
def test_a_step_that_died_in_its_second_attempt_stays_uncertain(
    timed: Opener, die: Any, clock: ManualClock, between: str
) -> None:
    """Whoever gave up the run since: that its process died is not forgotten with that."""
    first = timed()

    @step(retries=3, delay=0.05, undo=release)
    def book(name: str) -> str:
        if this_step().attempt == 2:
            die(first)
        raise ConnectionError(name)

    @workflow
    def books() -> None:
        book("hotel")

    with pytest.raises((Crash, StoreUnusable)):
        first.start(books, id="run")
    clock.advance(3600)
    hf = timed()
    run = hf.get("run")
    if between == "recovered":
        assert hf.recover() == ("run",)
    for _ in range(2):
        with pytest.raises(Uncertain, match=r"not known whether step 'book#1' was done"):
            run.rollback(0)
        with pytest.raises(Uncertain, match=r"not known whether step 'book#1' was done"):
            run.cancel(undo=True)
    assert [effect.status for effect in run.effects()] == ["uncertain"]


def test_a_rollback_that_cannot_be_journaled_leaves_the_run_blocked(hf: Holdfast) -> None:
    token = Secret("sup3rs3cretvalue", "token")

    @step(at_most_once=True)
    def pay(token: Secret) -> None:
        raise ConnectionError("it is not known")

    @workflow
    def pays() -> None:
        pay(token)

    run = hf.start(pays, id="run")
    reason = run.info().reason
    assert (run.status, reason is None) == (Status.BLOCKED, False)
    with pytest.raises(NotStorable):
        run.rollback(0, force=True, by="sup3rs3cretvalue")
    info = run.info()
    assert (info.status, info.reason, info.holder) == (Status.BLOCKED, reason, None)


# --- by itself


class Strike(Exception):
    """An error of the user's own."""


@workflow(on_failure="rollback")
def strikes(who: str) -> None:
    reserve("car")
    mail(who)
    reserve("room")
    raise Strike(who)


@workflow(on_failure="rollback")
async def strikes_async(who: str) -> None:
    await asyncio.gather(reserve_async("car"), reserve_async("room"))
    raise Strike(who)


@pytest.mark.parametrize("wf", [strikes, strikes_async], ids=["sync", "async"])
def test_a_failure_is_rolled_back_if_it_was_declared_so(hf: Holdfast, wf: Any) -> None:
    run = hf.start(wf, "bo", id="run")
    with pytest.raises(Strike, match="bo"):
        run.result()
    assert sorted(told[-2:]) == ["-CAR", "-ROOM"]
    assert {effect.status for effect in run.effects() if effect.undo} == {"undone"}
    run.retry()
    with pytest.raises(Strike):
        run.result()
    assert told.count("-CAR") == told.count("+car") == 2


def test_also_in_a_fork(hf: Holdfast) -> None:
    """It undoes what it did itself."""
    run = hf.start(strikes, "bo", id="run")
    told.clear()
    fork = run.fork(at=2)  # the car is reserved
    with pytest.raises(Strike):
        fork.result()
    assert told == ["mail bo", "+room", "-ROOM"]


def test_an_undo_that_is_gone_parks_the_run(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is half undone, and a person sees what is missing."""
    name = reserve.undo_name
    assert name is not None
    monkeypatch.delitem(undo_module._registered, name)
    monkeypatch.delitem(globals(), "release")
    run = hf.start(strikes, "bo", id="run")
    with pytest.raises(RunBlocked, match=r"it failed \(Strike: bo\), and cannot be rolled back: undo .*release"):
        run.result()
    assert not [line for line in told if line.startswith("-")]
    monkeypatch.undo()
    run.unblock()
    with pytest.raises(Strike):
        run.result()
    assert told[-2:] == ["-ROOM", "-CAR"]


# --- a crash at every point


class Watched(CrashStore):
    """The reads that workflows need beside those of the kernel."""

    def __getattr__(self, name: str) -> Any:
        self.fuse.check()
        return getattr(self.store, name)


def _doomed(url: str, act: Callable[[Holdfast], Any], at: int | None) -> int:
    fuse = Fuse()
    hf = holdfast.open(url, store=Watched(open_store(url), fuse))  # type: ignore[arg-type]
    fuse.points.clear()
    fuse.at = at
    try:
        act(hf)
    except BaseException:
        if not fuse.dead:
            raise
    hf.client.engine.watch.stop()
    hf.client.engine.worker.stop()
    hf.client.store.drop()
    return len(fuse.points)


@pytest.mark.slow(
    covered_by="tests/crash/test_workflow_crashes.py::test_a_workflow_that_dies_at_any_point_ends_as_if_it_had_not"
)
@pytest.mark.parametrize("how", ["by itself", "rollback", "cancel"])
def test_a_crash_in_its_middle(
    beside: Callable[[object], str], how: str, tally: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever claims the run goes on with it, no undo that was told succeeds twice, and it ends as it was to."""
    monkeypatch.setattr(threading, "excepthook", lambda died: None)  # of the threads that watch, which are dead too
    monkeypatch.setattr(logging.getLogger("asyncio"), "disabled", True)

    def act(hf: Holdfast) -> None:
        run = hf.start(strikes if how == "by itself" else trip, "bo", id="run")
        if how == "rollback":
            run.rollback(0, then="cancelled")
        elif how == "cancel":
            run.cancel("enough", undo=True)

    points = _doomed(beside("dry"), act, None)
    for at in range(points):
        told.clear()
        url = beside(at)
        _doomed(url, act, at)
        begun = "-ROOM" in told
        with holdfast.open(url) as hf:
            run = hf.enqueue(strikes if how == "by itself" else trip, "bo", id="run")
            hf.work(until_idle=True)
            if how == "by itself":
                with pytest.raises(Strike):
                    run.result(timeout=5)
            elif begun:
                with pytest.raises(RunCancelled, match=r"enough|rolled back"):
                    run.result(timeout=5)
            if run.status is not Status.WAITING:
                undone = [line for line in told if line.startswith("-")]
                assert undone in (["-ROOM", "-CAR"], ["-ROOM", "-ROOM", "-CAR"], ["-ROOM", "-CAR", "-CAR"]), (at, told)
                assert {one.status for one in run.effects() if one.undo} <= {"undone", "repeated"}
    gc.collect()
    tally("crashes of rollbacks", points=points)


# --- children, and whoever drives it


@workflow
def inmost(who: str) -> str:
    reserve("room")
    if who == "mail":
        mail(who)
    if who == "ask":
        ask("go?", str)
    return who


@workflow
def outmost(who: str) -> str:
    reserve("car")
    between(who)
    return ask("and now?", str)  # type: ignore[no-any-return]


@workflow
def between(who: str) -> str:
    return inmost(who)


@pytest.mark.parametrize("who", ["done", "ask"])
def test_children_are_taken_back_as_a_whole(hf: Holdfast, who: str) -> None:
    run = hf.start(outmost, who, id="run")
    report = run.rollback(0)
    assert [effect.key for effect in report.undone] == ["between#1", "reserve#1"]
    assert told == ["+car", "+room", "-ROOM", "-CAR"]
    assert hf.get("run/between#1").status is hf.get("run/between#1/inmost#1").status is Status.CANCELLED
    run.resume()
    assert told[4:] == ["+car", "+room"]
    assert hf.get("run/between#1~1").info().parent == run.uid


def test_what_a_child_could_not_undo_is_not_called_undone(hf: Holdfast) -> None:
    run = hf.start(outmost, "mail", id="run")
    report = run.rollback(0)
    [left] = report.irreversible
    assert (left.key, left.status) == ("between#1", "left")
    assert "1 irreversible" in str(left.error)
    assert "1 irreversible" in str(hf.get("run/between#1").effects()[0].error)
    assert told[-2:] == ["-ROOM", "-CAR"]


@pytest.mark.parametrize("who", ["done", "ask"])
def test_a_child_whose_undo_fails_stops_the_rollback_of_its_parents(hft: Holdfast, who: str) -> None:
    run = hft.start(outmost, who, id="run")
    fails["room"] = 3
    with pytest.raises(UndoFailed, match=r"'between#1' failed .*'inmost#1' failed .*room does not answer"):
        run.rollback(0)
    family = [run, hft.get("run/between#1"), hft.get("run/between#1/inmost#1")]
    assert [one.status for one in family] == [Status.BLOCKED] * 3
    assert told == ["+car", "+room"]
    run.rollback(0)
    assert told == ["+car", "+room", "-ROOM", "-CAR"]
    assert [one.status for one in family[1:]] == [Status.CANCELLED] * 2


def test_with_force_a_parent_passes_over_what_its_child_could_not_undo(hft: Holdfast) -> None:
    run = hft.start(outmost, "done", id="run")
    fails["room"] = 99
    with pytest.raises(UndoFailed):
        run.rollback(0)
    report = run.rollback(0, force=True)
    assert [effect.key for effect in report.undone] == ["reserve#1"]
    assert [effect.status for effect in hft.get("run/between#1/inmost#1").effects()] == ["undo_failed"]
    assert told == ["+car", "+room", "-CAR"]


@workflow(on_failure="rollback")
def strikes_within() -> None:
    reserve("car")
    strikes("bo")


def test_a_parent_that_waits_sees_that_its_child_is_blocked_in_its_rollback(hft: Holdfast) -> None:
    fails["room"] = 3
    run = hft.start(strikes_within, id="run")
    child = hft.get("run/strikes#1")
    assert (run.status, child.status) == (Status.WAITING, Status.BLOCKED)
    reason = run.info().reason or ""
    assert "waits for its child 'run/strikes#1', which is blocked" in reason
    assert "room does not answer" in reason
    assert [info.reason for info in hft.runs(status="waiting")] == [reason]
    with pytest.raises(TimedOut, match="'run/strikes#1', which is blocked"):
        run.result(timeout=0)
    child.rollback(0)
    assert child.status is Status.FAILED
    with pytest.raises(Strike):
        run.result()
    assert told == ["+car", "+car", "mail bo", "+room", "-ROOM", "-CAR", "-CAR"]


@step
def linger() -> None:
    entered.set()
    gate.wait(10)


@workflow
def lingers_on() -> None:
    reserve("car")
    linger()


@workflow
def asks_then_lingers() -> None:
    reserve("car")
    ask("go?", str)
    linger()
    plain("too late")


@workflow
def waits_for_lingers() -> None:
    asks_then_lingers()


def test_a_run_that_somebody_drives_is_not_rolled_back(opened: Opener) -> None:
    with ThreadPoolExecutor(1) as thread:
        driven = thread.submit(opened().start, lingers_on, id="run")
        assert entered.wait(10)
        run = opened().get("run")
        with pytest.raises(Claimed, match="run 'run'"):
            run.rollback(0)
        assert len(run.plan_rollback(0).steps) == 1
        gate.set()
        driven.result()
    assert run.rollback(0).undone
    assert told == ["+car", "-CAR"]


def test_a_child_that_somebody_drives_is_asked_to_stop_first(opened: Opener) -> None:
    hf, other = opened(), opened()
    run = hf.start(waits_for_lingers, id="run")
    child = other.get("run/asks_then_lingers#1")
    child.answer("yes")
    with ThreadPoolExecutor(2) as threads:
        driven = threads.submit(child.resume)
        assert entered.wait(10)
        rolling = threads.submit(run.rollback, 0)
        while other.client.engine.executions[child.uid].outcome is None:
            threading.Event().wait(0.01)
        gate.set()
        assert driven.result() is Status.CANCELLED
        assert [effect.key for effect in rolling.result().undone] == ["asks_then_lingers#1"]
    assert told == ["+car", "-CAR"]
