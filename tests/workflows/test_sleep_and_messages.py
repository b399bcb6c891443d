"""Waiting without holding anything: sleep, and messages between runs."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from writes import Make, around

import holdfast
from holdfast import Holdfast, RunEnded, RunNotFound, TimedOut, UsageError, receive, send, step, workflow
from holdfast.kernel.model import Post, Status
from holdfast.testing import ManualClock

MONTH = 30 * 86400.0
done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


@step
def tick(what: str) -> str:
    done.append(what)
    return what


# --- sleep


@workflow
def sleeps(seconds: float, until: datetime | None = None) -> str:
    tick("before")
    if until is not None:
        holdfast.sleep(until=until)
    else:
        holdfast.sleep(timedelta(seconds=seconds) if seconds > 100 else seconds)
    return tick("after")


@workflow
async def sleeps_async(seconds: float, until: datetime | None = None) -> str:
    tick("before")
    if until is not None:
        await holdfast.sleep(until=until)
    else:
        await holdfast.sleep(timedelta(seconds=seconds) if seconds > 100 else seconds)
    return tick("after")


sleepers = pytest.mark.parametrize("sleeper", [sleeps, sleeps_async], ids=["sync", "async"])


@sleepers
def test_a_month_passes_at_once_on_a_clock_of_ones_own(hft: Holdfast, clock: ManualClock, sleeper: Any) -> None:
    began = clock.now()
    run = hft.start(sleeper, MONTH)
    assert run.status is Status.WAITING
    assert done == ["before"]
    wake_at = run.info().wake_at
    assert wake_at is not None
    assert wake_at.timestamp() * 1e6 == pytest.approx(began + MONTH * 1e6)
    assert clock.now() == began
    assert run.result() == "after"
    assert clock.now() >= began + MONTH * 1e6
    assert done == ["before", "after"]


@sleepers
def test_until_a_moment(hft: Holdfast, clock: ManualClock, sleeper: Any) -> None:
    moment = datetime.fromtimestamp(clock.now() / 1e6, UTC) + timedelta(days=3)
    run = hft.start(sleeper, 0, moment)
    assert run.info().wake_at == moment
    assert run.result() == "after"
    past = hft.start(sleeper, 0, moment - timedelta(days=30))
    assert past.status is Status.COMPLETED


@sleepers
def test_a_replay_does_not_sleep_again(hft: Holdfast, clock: ManualClock, sleeper: Any) -> None:
    run = hft.start(sleeper, MONTH)
    run.result()
    ended = clock.now()
    [slept] = [entry.seq for entry in run.history(kind="done")][1:2]
    fork = run.fork(at=slept)
    assert fork.resume() is Status.COMPLETED
    assert clock.now() == ended


@sleepers
def test_a_sleeping_run_survives_its_process(
    timed: Callable[..., Holdfast], kill: Callable[[Holdfast], None], clock: ManualClock, sleeper: Any
) -> None:
    first = timed()
    run = first.start(sleeper, MONTH, id="sleeper")
    woken = run.info().wake_at
    kill(first)
    clock.advance(MONTH / 2)
    other = timed().get("sleeper")
    assert other.resume() is Status.WAITING
    assert other.info().wake_at == woken  # not from the beginning
    assert other.result() == "after"
    assert done == ["before", "after"]


@sleepers
def test_many_sleepers_hold_no_thread(hft: Holdfast, sleeper: Any) -> None:
    hft.start(sleeper, MONTH)
    before = threading.active_count()
    for _ in range(20):
        hft.start(sleeper, MONTH)
    assert threading.active_count() <= before


@sleepers
def test_a_short_sleep_passes_by_itself(hf: Holdfast, sleeper: Any) -> None:
    assert hf.start(sleeper, 0.01).status is Status.COMPLETED


@pytest.mark.parametrize("wrong", [-1, "soon", None, True, float("inf"), datetime(2030, 1, 1)])
def test_a_senseless_duration_is_refused(hf: Holdfast, wrong: Any) -> None:
    @workflow(name="sleeps wrongly")
    def sleeps_wrongly() -> None:
        if isinstance(wrong, datetime):
            holdfast.sleep(until=wrong)
        holdfast.sleep(wrong)

    with pytest.raises(UsageError, match=r"duration|until|sleep\(\)"):
        hf.start(sleeps_wrongly).result()


# --- messages


@workflow
def collects(count: int, topic: str | None = None) -> list[Any]:
    return [receive(topic) for _ in range(count)]


@workflow
async def collects_async(count: int, topic: str | None = None) -> list[Any]:
    return [await receive(topic) for _ in range(count)]


collectors = pytest.mark.parametrize("collector", [collects, collects_async], ids=["sync", "async"])


@collectors
def test_messages_come_in_order_and_by_topic(opened: Callable[..., Holdfast], collector: Any) -> None:
    hf = opened()
    run = hf.enqueue(collector, 3, "a")
    for n in range(2):
        run.send(n, topic="a")  # before it has begun
        run.send("other", topic="b")
        run.send("none")
    assert run.resume() is Status.WAITING
    opened().get(run.id).send({"n": 2}, topic="a")
    assert run.result() == [0, 1, {"n": 2}]


@collectors
def test_a_message_that_nobody_receives_lets_the_run_rest(hf: Holdfast, collector: Any) -> None:
    run = hf.start(collector, 1, "wanted")
    for n in range(3):
        run.send(n, topic="unwanted")
    assert run.wait(timeout=0.01) is Status.WAITING
    before = hf.client.committer.commits, run.info().seq
    assert run.wait(timeout=0.1) is Status.WAITING
    assert run.resume() is Status.WAITING
    assert run.info().seq == before[1]
    assert run.wait(timeout=0.1) is Status.WAITING
    assert hf.client.committer.commits <= before[0] + 1  # the resume gave the lease up again
    run.send("it", topic="wanted")
    assert run.result() == ["it"]


@collectors
def test_a_key_makes_a_message_come_once(hf: Holdfast, opened: Callable[..., Holdfast], collector: Any) -> None:
    run = hf.start(collector, 2)
    assert run.send("first", key="k") is True
    assert opened().get(run.id).send("first", key="k") is False
    run.wait(timeout=0.01)
    assert run.send("first", key="k") is False  # also after it was taken
    run.send("second")
    assert run.result() == ["first", "second"]


@collectors
def test_an_ended_run_takes_no_message(hf: Holdfast, collector: Any) -> None:
    run = hf.start(collector, 0)
    with pytest.raises(RunEnded, match="completed"):
        run.send("late")


def test_a_loop_driven_by_hand_receives_nothing(hf: Holdfast) -> None:
    with pytest.raises(UsageError, match="by hand"):
        hf.run("by hand").send("hello")


@workflow
def waits_for_word(seconds: float, default: Any) -> Any:
    try:
        return receive(timeout=seconds) if default == "none given" else receive(timeout=seconds, default=default)
    except TimedOut:
        return tick("late")


@workflow
async def waits_for_word_async(seconds: float, default: Any) -> Any:
    try:
        if default == "none given":
            return await receive(timeout=timedelta(seconds=seconds))
        return await receive(timeout=seconds, default=default)
    except TimedOut:
        return tick("late")


waiters = pytest.mark.parametrize("waiter", [waits_for_word, waits_for_word_async], ids=["sync", "async"])


@waiters
@pytest.mark.parametrize("seconds", [0, 0.5, 60.0])
@pytest.mark.parametrize("default", ["none given", None, 3])
def test_a_time_limit_is_recorded(hft: Holdfast, waiter: Any, seconds: float, default: Any) -> None:
    wanted = "late" if default == "none given" else default
    run = hft.start(waiter, seconds, default)
    assert run.result() == wanted
    [over] = [entry.seq for entry in run.history() if entry.kind in ("done", "raised")][:1]
    fork = run.fork(at=over)
    fork.send("too late: it was decided")
    fork.resume()
    assert fork.result() == wanted


@waiters
def test_a_message_in_time_counts_although_it_is_seen_late(hft: Holdfast, clock: ManualClock, waiter: Any) -> None:
    run = hft.start(waiter, 60.0, "none given")
    run.send("in time")
    clock.advance(100)
    assert run.result() == "in time"


@waiters
def test_a_message_that_comes_while_it_waits_in_place_counts(
    hft: Holdfast, timed: Callable[..., Holdfast], clock: ManualClock, waiter: Any
) -> None:
    other, pass_time = timed(), clock.sleep

    def send_meanwhile(seconds: float) -> None:
        pass_time(seconds)
        other.get("waits").send("just in time")

    clock.sleep = send_meanwhile  # type: ignore[method-assign]
    assert hft.start(waiter, 0.5, "none given", id="waits").result() == "just in time"


@workflow
def shares_messages() -> list[Any]:
    return holdfast.gather(lambda: receive(), lambda: receive())  # type: ignore[no-any-return]


def test_branches_that_look_into_the_inbox_at_once_take_each_message_once(hf: Holdfast) -> None:
    inbox, barrier, sent = hf.client.store.inbox, threading.Barrier(2), threading.Event()

    def looked_into_at_once(uid: str) -> Any:
        if not threading.current_thread().name.startswith("holdfast-branch") or sent.is_set():
            return inbox(uid)
        if barrier.wait(20) == 0:
            hf.get("shares").send(1)
            hf.get("shares").send(2)
            sent.set()
        assert sent.wait(20)
        found = inbox(uid)
        barrier.wait(20)
        return found

    hf.client.store.inbox = looked_into_at_once  # type: ignore[method-assign]
    run = hf.start(shares_messages, id="shares")
    assert len(run.history(kind="received")) == 2
    assert sorted(run.result()) == [1, 2]


# --- from one run to another


class Crash(BaseException):
    """The process dies here."""


@workflow
def tells(to: str, texts: list[str]) -> str:
    for text in texts:
        send(to, text, topic="a")
    return "told"


@workflow
async def tells_async(to: str, texts: list[str]) -> str:
    for text in texts:
        send(to, text, topic="a")
    return "told"


tellers = pytest.mark.parametrize("teller", [tells, tells_async], ids=["sync", "async"])


@tellers
@pytest.mark.parametrize("at", range(1, 4))
def test_a_crash_between_the_message_and_its_entry_sends_it_once(
    opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None], teller: Any, at: int
) -> None:
    hf = opened()
    target = hf.start(collects, 3, "a", id="target")
    doomed = opened()
    apply, calls = doomed.client.store.apply, []

    def dies(batch: Any) -> Any:
        calls.append(1)
        if len(calls) > at:
            raise Crash
        return apply(batch)

    doomed.client.store.apply = dies  # type: ignore[method-assign]
    with pytest.raises(Crash):
        doomed.start(teller, "target", ["x", "y"], id="teller")
    kill(doomed)
    assert hf.get("teller").resume() is Status.COMPLETED
    target.send("end", topic="a")
    assert target.result() == ["x", "y", "end"]


@tellers
def test_a_message_that_arrived_before_the_crash_counts_although_its_target_has_ended(
    opened: Callable[..., Holdfast], kill: Callable[[Holdfast], None], teller: Any
) -> None:
    hf = opened()
    target = hf.start(collects, 1, "a", id="target")
    doomed = opened()

    def dies(post: Post, make: Make) -> Any:
        make(post)
        raise Crash

    doomed.client.store.apply = around(doomed.client.store, Post, dies)  # type: ignore[method-assign]
    with pytest.raises(Crash):
        doomed.start(teller, "target", ["x"], id="teller")
    kill(doomed)
    assert target.result() == ["x"]
    assert hf.get("teller").resume() is Status.COMPLETED


@tellers
def test_a_missing_or_ended_target_is_told_and_the_replay_agrees(hf: Holdfast, teller: Any) -> None:
    run = hf.start(teller, "nobody", ["x"])
    with pytest.raises(RunNotFound, match="nobody"):
        run.result()
    hf.start(collects, 0, id="ended")
    over = hf.start(teller, "ended", ["x"])
    with pytest.raises(RunEnded, match="ended"):
        over.result()


@tellers
def test_a_target_that_ends_right_before_it_is_sent_to_is_told_as_ended(
    hf: Holdfast, opened: Callable[..., Holdfast], teller: Any
) -> None:
    hf.start(collects, 1, "a", id="target")
    sender, other = opened(), opened()

    def late(post: Post, make: Make) -> Any:
        other.get("target").cancel("just now")
        return make(post)

    sender.client.store.apply = around(sender.client.store, Post, late)  # type: ignore[method-assign]
    run = sender.start(teller, "target", ["x"], id="teller")
    with pytest.raises(RunEnded, match="cancelled"):
        run.result()
    assert run.status is Status.FAILED


@workflow
def tells_or_else(to: str) -> str:
    try:
        send(to, "hello")
    except (RunNotFound, RunEnded):
        tick("else")
    return str(holdfast.ask("More?", str))


def test_what_a_send_failed_with_is_recorded(hf: Holdfast) -> None:
    run = hf.start(tells_or_else, "comes later")
    assert run.status is Status.WAITING
    hf.start(collects, 1, id="comes later")  # now it is there, and the replay must not send
    run.answer("no")
    assert run.result() == "no"
    assert hf.get("comes later").status is Status.WAITING
    assert done == ["else"]


@collectors
def test_a_rollback_gives_back_what_was_received_after_its_point(hf: Holdfast, collector: Any) -> None:
    run = hf.start(collector, 3)
    run.send(1)
    run.wait(timeout=0.01)
    point = run.info().seq
    run.send(2)
    run.wait(timeout=0.01)
    run.rollback(to=point)
    run.send(3)
    assert run.result(timeout=5) == [1, 2, 3]
    run.rollback(to=0)
    assert run.result(timeout=5) == [1, 2, 3]


@collectors
def test_a_fork_does_not_inherit_what_waits(hf: Holdfast, collector: Any) -> None:
    run = hf.start(collector, 2)
    run.send(1)
    run.wait(timeout=0.01)
    run.send("unwanted", topic="z")
    run.send(2)
    fork = run.fork()
    assert fork.resume() is Status.WAITING
    fork.send("other")
    assert fork.result() == [1, "other"]
    assert run.result() == [1, 2]


@workflow
def receives_late() -> Any:
    holdfast.ask("Go?")
    return receive()


def test_a_fork_does_not_inherit_what_its_origin_took_in_and_nobody_received(hf: Holdfast) -> None:
    run = hf.start(receives_late)
    run.send("for the origin")
    assert run.resume() is Status.WAITING
    assert len(run.history(kind="received")) == 1
    fork = run.fork()
    for one in (run, fork):
        one.resume()
        one.answer(None)
    assert run.result() == "for the origin"
    assert fork.resume() is Status.WAITING
    fork.send("for the fork")
    assert fork.result() == "for the fork"


@workflow
def gathers_messages() -> list[Any]:
    def late() -> Any:
        tick("late")
        holdfast.sleep(0.1)
        return receive("b")

    return holdfast.gather(lambda: receive("a"), late)  # type: ignore[no-any-return]


@workflow
async def gathers_messages_async() -> list[Any]:
    async def late() -> Any:
        tick("late")
        await holdfast.sleep(0.1)
        return await receive("b")

    return list(await asyncio.gather(receive("a"), late()))


@pytest.mark.parametrize("gatherer", [gathers_messages, gathers_messages_async], ids=["sync", "async"])
def test_what_one_branch_takes_in_wakes_the_other(opened: Callable[..., Holdfast], gatherer: Any) -> None:
    """A message for a branch that waits already arrives while another one is under way."""
    hf = opened()
    thread = threading.Thread(target=hf.start, args=(gatherer,), kwargs={"id": "both"})
    thread.start()
    while "late" not in done:
        time.sleep(0.001)
    time.sleep(0.03)
    run = hf.get("both")
    for n in range(3):
        run.send(n, topic="a")
    thread.join()
    steps = {info.name for info in run.steps() if info.status == "done"}
    assert "receive" in steps
    run.send("b", topic="b")
    run.resume()
    assert run.result() == [0, "b"]
