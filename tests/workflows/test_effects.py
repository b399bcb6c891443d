"""Steps that touch the world: seen before they act, at least once or at most once."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Done, Holdfast, NotDone, Run, RunBlocked, Status, UsageError, step, workflow
from holdfast import this_step as now_in
from holdfast.errors import StoreFull, StoreUnusable
from holdfast.kernel.model import Append
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash

Opener = Callable[..., Holdfast]
Die = Callable[[Holdfast], Any]
DEAD = (Crash, StoreUnusable)

acts: list[str] = []


@pytest.fixture(autouse=True)
def no_acts() -> None:
    acts.clear()


def refund(receipt: str, order: str) -> None:
    acts.append(f"refund {receipt} of {order}")


def take_back(receipt: str) -> None:
    acts.append(f"taken back {receipt}")


def resumed(timed: Opener, clock: ManualClock, id: str = "r") -> Run:
    """The run after an hour, driven on by another process."""
    clock.advance(3600)
    run = timed().get(id)
    run.resume()
    return run


def facts(run: Run) -> list[tuple[str, str | None, bool, str]]:
    return [(effect.key, effect.target, effect.reversible, effect.status) for effect in run.effects()]


# --- what is on record


def test_effects_tell_what_was_touched_and_whether_it_can_be_taken_back(hf: Holdfast) -> None:
    @step(target="account {account} of {bank}")
    def pay(account: str, *, bank: str = "north") -> None: ...

    @step(target=lambda order: f"order {order}", undo=refund)
    def charge(order: str) -> str:
        return "receipt"

    @step(reversible=True)
    def mail() -> None: ...

    @step(target="ledger", reversible=False)
    def book() -> None: ...

    @step
    def plain() -> None: ...

    @step(target="x")
    def fails() -> None:
        raise ValueError("no")

    @workflow
    def flow() -> None:
        pay("7")
        pay(account="8", bank="south")
        charge("A")
        mail()
        book.options(target="journal")()
        plain()
        fails()

    run = hf.start(flow)
    assert facts(run) == [
        ("pay#1", "account 7 of north", False, "done"),
        ("pay#2", "account 8 of south", False, "done"),
        ("charge#1", "order A", True, "done"),
        ("mail#1", None, True, "done"),
        ("book#1", "journal", False, "done"),
        ("fails#1", "x", False, "raised"),
    ]
    assert [effect.error for effect in run.effects()][-1] == "ValueError: no"
    assert [effect.tool for effect in run.effects()][2] == "charge"


@pytest.mark.parametrize("target", ["{nobody}", "{0}", "{order.id}", "{order:%d}", "{"])
def test_a_target_that_does_not_fit_names_the_step(hf: Holdfast, target: str) -> None:
    @step(target=target)
    def pay(order: str) -> None:
        acts.append("pay")

    @workflow
    def flow() -> None:
        pay("A")

    with pytest.raises(UsageError, match=r"step pay: target=.* does not fit its arguments"):
        hf.start(flow).result()
    assert acts == []


# --- seen while they run


def wait_for(run: Run, key: str, status: str) -> None:
    for _ in range(500):
        if (key, status) in [(one.key, one.status) for one in run.steps()]:
            return
        threading.Event().wait(0.01)
    raise AssertionError(f"{key} was never {status}: {run.steps()}")


@pytest.mark.parametrize("kind", ["plain", "effect", "async"])
def test_a_step_that_takes_long_is_seen_as_started_also_when_its_process_died(
    opened: Opener, kill: Any, kind: str
) -> None:
    go_on = threading.Event()

    @step
    def plain() -> str:
        go_on.wait(10)
        return "done"

    @step(target="world")
    def effect() -> str:
        return plain.function()

    @step(name="async")
    async def later() -> str:
        return await asyncio.to_thread(plain.function)

    @workflow(name="long-step")
    def flow() -> str:
        return plain() if kind == "plain" else effect()

    @workflow(name="long-async-step")
    async def async_flow() -> str:
        return await later()

    first, other = opened(lease=0.3), opened()
    chosen: Any = async_flow if kind == "async" else flow
    run = other.enqueue(chosen, id="r")

    def work() -> None:
        try:
            first.get("r").resume()
        except Exception as error:
            acts.append(type(error).__name__)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for(run, f"{kind}#1", "started")
        kill(first)
        wait_for(run, f"{kind}#1", "started")
    finally:
        go_on.set()
        thread.join(10)
    assert acts == ["StoreUnusable"]
    run.resume()
    assert run.result() == "done"
    assert [(one.key, one.status) for one in run.steps()] == [(f"{kind}#1", "done")]


# --- at least once


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("dies", [1, 2, 3], ids="in attempt {}".format)
def test_a_crash_in_any_attempt_is_visible(
    timed: Opener, die: Die, clock: ManualClock, dies: int, is_async: bool
) -> None:
    first = timed()

    def act() -> str:
        acts.append(now_in().idempotency_key)
        if len(acts) == dies:
            die(first)
        if len(acts) < 3:
            raise OSError("not now")
        return "receipt"

    async def act_later() -> str:
        return act()

    charge = step(name="charge", target="card", undo=take_back, retries=3, delay=0)(act_later if is_async else act)

    def flow() -> str:
        return str(charge())

    async def flow_later() -> str:
        return str(await charge())

    declared = workflow(name="dies in an attempt")(flow_later if is_async else flow)
    with pytest.raises(DEAD):
        first.start(declared, id="r")
    other = timed().get("r")
    assert facts(other) == [("charge#1", "card", True, "uncertain")]
    assert [(one.key, one.status, one.attempts) for one in other.steps()] == [("charge#1", "started", dies)]
    run = resumed(timed, clock)
    assert run.result() == "receipt"
    assert [effect.status for effect in run.effects()] == ["repeated", "done"]
    assert len(set(acts)) == 1
    assert [effect.status for effect in run.rollback(0).uncertain] == ["repeated"]


def test_a_crash_between_two_attempts_repeats_nothing(timed: Opener, kill: Die, clock: ManualClock) -> None:
    first = timed()

    @step(target="card", retries=3, delay=1800, max_delay=1800)
    def charge() -> str:
        acts.append(now_in().idempotency_key)
        if len(acts) == 1:
            raise OSError("not now")
        return "receipt"

    @workflow
    def flow() -> str:
        return charge()

    first.start(flow, id="r")
    kill(first)
    run = resumed(timed, clock)
    assert run.result() == "receipt"
    assert [effect.status for effect in run.effects()] == ["done"]
    assert [one.attempts for one in run.steps()] == [2]


def test_at_least_once_acts_again_after_a_crash_under_the_same_key(timed: Opener, die: Die, clock: ManualClock) -> None:
    first = timed()

    @step(undo=refund)
    def charge(order: str) -> str:
        acts.append(now_in().idempotency_key)
        if len(acts) == 1:
            die(first)
        return "receipt"

    @workflow
    def flow() -> str:
        return charge("A")

    with pytest.raises(DEAD):
        first.start(flow, id="r")
    other = timed().get("r")
    assert facts(other) == [("charge#1", None, True, "uncertain")]
    run = resumed(timed, clock)
    assert run.result() == "receipt"
    assert [effect.status for effect in run.effects()] == ["repeated", "done"]
    assert len(acts) == 2
    assert len(set(acts)) == 1


def test_attempts_share_one_key_and_one_effect_and_what_was_rolled_back_has_another(
    timed: Opener, clock: ManualClock
) -> None:
    keys: list[str] = []

    @step(retries=3, delay=60, undo=refund)
    def charge(order: str) -> str:
        keys.append(now_in().idempotency_key)
        if len(keys) in (1, 2):
            raise ConnectionError("down")
        return f"receipt {len(keys)}"

    @step
    def plain() -> str:
        return now_in().idempotency_key

    @workflow
    def flow() -> tuple[str, str, str]:
        return charge("A"), plain(), plain()

    run = timed().start(flow, id="r")
    assert run.status is Status.WAITING
    resumed(timed, clock)
    run = resumed(timed, clock)
    receipt, *plain_keys = run.result()
    assert (receipt, len(keys), len({*keys})) == ("receipt 3", 3, 1)
    assert len({*plain_keys, *keys}) == 3
    assert facts(run) == [("charge#1", None, True, "done")]
    run.rollback(to=0)
    assert acts == ["refund receipt 3 of A"]
    assert run.result()[0] == "receipt 4"
    assert keys[3] not in keys[:3]


def test_what_was_not_rolled_back_keeps_its_key(timed: Opener, die: Die, clock: ManualClock) -> None:
    first = timed()

    @step(target="card")
    def charge() -> None:
        acts.append(now_in().idempotency_key)
        if len(acts) == 1:
            die(first)

    @workflow
    def flow() -> None:
        charge()

    with pytest.raises(DEAD):
        first.start(flow, id="r")
    run = timed().get("r")
    run.rollback(to=run.effects()[0].seq)
    assert run.resume() is Status.COMPLETED
    assert (len(acts), len({*acts})) == (2, 1)


# --- at most once


def test_at_most_once_asks_a_person_after_a_crash_in_the_act(timed: Opener, die: Die, clock: ManualClock) -> None:
    first = timed()

    @step(at_most_once=True)
    def wire(order: str) -> str:
        acts.append(order)
        return str(die(first))

    @workflow
    def flow() -> str:
        return wire("A").upper()

    with pytest.raises(DEAD):
        first.start(flow, id="r")
    run = resumed(timed, clock)
    assert run.status is Status.BLOCKED
    assert run.info().reason == (
        "step 'wire#1' (wire) was begun and its process died, and it is not known whether it was done; say what "
        "happened with run.resolve('wire#1', done=True, result=...) or done=False"
    )
    assert [(one.key, one.status) for one in run.steps()] == [("wire#1", "uncertain")]
    run.unblock()  # without an answer it is no wiser
    with pytest.raises(RunBlocked, match=r"run.resolve\('wire#1'"):
        run.result()
    with pytest.raises(UsageError, match="step 'wire#2' of run 'r' is not uncertain"):
        run.resolve("wire#2", done=True)
    run.resolve("wire#1", done=True, result="ref-9")
    assert run.result() == "REF-9"
    assert acts == ["A"]
    assert facts(run) == [("wire#1", None, False, "done")]


def test_at_most_once_runs_again_when_a_person_says_that_it_was_not_done(
    timed: Opener, die: Die, clock: ManualClock
) -> None:
    first = timed()

    @step(at_most_once=True)
    def wire() -> str:
        acts.append("wire")
        return die(first) if len(acts) == 1 else "ref"

    @workflow
    def flow() -> str:
        return wire()

    with pytest.raises(DEAD):
        first.start(flow, id="r")
    run = resumed(timed, clock)
    run.resolve("wire#1", done=False)
    assert run.result() == "ref"
    assert acts == ["wire", "wire"]


@pytest.mark.parametrize(
    ("found", "result", "times"),
    [(Done("from check"), "from check", 1), (NotDone, "ref", 2), (NotDone("not there"), "ref", 2)],
)
def test_a_check_finds_out(timed: Opener, die: Die, clock: ManualClock, found: Any, result: str, times: int) -> None:
    first = timed()

    @step(at_most_once=True)
    def wire(order: str) -> str:
        acts.append(now_in().idempotency_key)
        return die(first) if len(acts) == 1 else "ref"

    @wire.check
    def look(order: str) -> Any:
        assert (order, now_in().idempotency_key) == ("A", acts[0])
        return found

    @workflow
    def flow() -> str:
        return wire("A")

    with pytest.raises(DEAD):
        first.start(flow, id="r")
    run = resumed(timed, clock)
    assert run.result() == result
    assert (len(acts), len({*acts})) == (times, 1)


@pytest.mark.parametrize("answer", ["raises", "odd"])
def test_a_check_that_does_not_know_parks_the_run_until_it_does(
    timed: Opener, die: Die, clock: ManualClock, answer: str
) -> None:
    first = timed()
    knows: list[bool] = []

    def look() -> Any:
        if knows:
            return Done("ref")
        if answer == "raises":
            raise ConnectionError("bank is down")
        return True

    @step(at_most_once=True, check=look)
    def wire() -> str:
        acts.append("wire")
        return str(die(first))

    @workflow
    def flow() -> str:
        return wire()

    with pytest.raises(DEAD):
        first.start(flow, id="r")
    run = resumed(timed, clock)
    expected = "its check raised ConnectionError: bank is down" if answer == "raises" else "its check gave bool"
    assert run.status is Status.BLOCKED
    assert expected in str(run.info().reason)
    assert "or run.unblock(), which asks its check" in str(run.info().reason)
    knows.append(True)
    run.unblock()
    assert run.result() == "ref"
    assert acts == ["wire"]


@pytest.mark.parametrize("how", ["raises", "times out", "times out in async", "cannot be stored"])
def test_an_at_most_once_step_that_raises_is_uncertain(hf: Holdfast, how: str) -> None:
    release = threading.Event()

    @step(at_most_once=True, retries=5, delay=0, timeout=0.01 if "times" in how else None)
    def wire() -> Any:
        acts.append("wire")
        if how == "times out":
            release.wait(10)
        if how == "raises":
            raise ConnectionError("line cut")
        return object()

    @step(at_most_once=True, timeout=0.01, name="wire")
    async def wire_soon() -> None:
        acts.append("wire")
        await asyncio.sleep(30)

    @workflow(name="uncertain")
    def flow() -> Any:
        try:
            return wire()
        except Exception:
            return "caught"

    @workflow(name="uncertain-async")
    async def async_flow() -> Any:
        return await wire_soon()

    chosen: Any = async_flow if "async" in how else flow
    run = hf.start(chosen, id="r")
    release.set()
    assert run.status is Status.BLOCKED
    error = {"raises": "ConnectionError: line cut", "cannot be stored": "NotStorable: "}.get(how, "StepTimeout: ")
    assert f"step 'wire#1' (wire) raised {error}" in str(run.info().reason)
    assert [(one.key, one.status) for one in run.steps()] == [("wire#1", "uncertain")]
    run.resolve("wire#1", done=True, result="by hand")
    assert run.result() == "by hand"
    assert acts == ["wire"]


def test_not_done_is_tried_again_as_often_as_was_said(timed: Opener, die: Die, clock: ManualClock) -> None:
    handles = [timed()]

    @step(at_most_once=True, retries=2, delay=60)
    def wire() -> None:
        acts.append(f"attempt {now_in().attempt}")
        raise NotDone(f"busy {len(acts)}")

    @workflow
    def flow() -> None:
        wire()

    run = handles[0].start(flow, id="r")
    assert run.status is Status.WAITING
    assert [effect.status for effect in run.effects()] == ["raised"]  # it is certain that nothing was done
    timed().get("r").resume()
    assert acts == ["attempt 1"]  # it is not its time yet
    assert resumed(timed, clock).status is Status.WAITING
    run = resumed(timed, clock)
    with pytest.raises(NotDone, match="busy 3"):
        run.result()
    assert acts == ["attempt 1", "attempt 2", "attempt 3"]
    assert [effect.status for effect in run.effects()] == ["raised"] * 3


@pytest.mark.parametrize("seconds", [20, 0], ids=["lapsed", "retired"])
def test_the_lease_is_confirmed_right_before_the_act(timed: Opener, clock: ManualClock, seconds: int) -> None:
    """A process whose run was taken over right after its intent does not act, whatever it knows of its lease."""
    asleep, thief = timed(lease=10), timed(lease=10)

    @step(at_most_once=True)
    def wire() -> None:
        acts.append("wire")

    @workflow
    def flow() -> str:
        wire()
        return "done"

    store: Any = asleep.client.store
    apply = store.apply

    def apply_and_fall_asleep(batch: Any) -> Any:
        outcomes = apply(batch)
        if any(entry.kind == "intended" for write in batch for entry in write.entries):
            store.apply = apply
            asleep.client.engine.worker.stop()
            store.beat(asleep.client.engine.worker.name, 0)
            clock.advance(seconds)
            thief.get("r").claim()
        return outcomes

    store.apply = apply_and_fall_asleep
    run = asleep.start(flow, id="r")
    assert acts == []
    assert run.status is Status.RUNNING  # by the other one


@pytest.fixture
def wiring(timed: Opener, clock: ManualClock) -> Any:
    """A process that is stopped in the act of an at-most-once step, and what another one does meanwhile."""
    first = timed(lease=10)
    meanwhile: list[Callable[[], None]] = []
    asked: list[str] = []

    @step(at_most_once=True)
    def wire() -> str:
        if meanwhile:
            clock.advance(20)
            meanwhile.pop()()
        acts.append("wired")
        return "ref"

    @wire.check
    def look() -> Any:
        asked.append("check")
        return Done("ref") if acts else NotDone

    @workflow
    def flow() -> str:
        return wire()

    return first, flow, meanwhile, asked


def test_a_check_is_not_asked_while_the_process_that_began_may_still_be_acting(timed: Opener, wiring: Any) -> None:
    first, flow, meanwhile, asked = wiring
    second = timed(lease=10)
    if first.client.store.networked:
        pytest.skip("a process on another machine is not seen, so nobody knows that it still runs")

    def take_over() -> None:
        for _ in range(2):
            run = second.get("r")
            run.resume()
            with pytest.raises(RunBlocked, match=f"{first.client.engine.worker.name}, whose process still runs"):
                run.result(timeout=20)
            run.unblock()
        run.resume()

    meanwhile.append(take_over)
    first.start(flow, id="r")
    assert (acts, asked) == (["wired"], [])
    first.close()  # now it can act no more
    run = second.get("r")
    run.unblock()
    run.resume()
    assert run.result(timeout=20) == "ref"
    assert (acts, asked) == (["wired"], ["check"])


def full_once(hf: Holdfast, when: Callable[[Any], bool]) -> None:
    """Let the store refuse the first write that has such an entry."""
    real, refused = hf.client.store.apply, list[int]()

    def apply(batch: Any) -> Any:
        found = [entry.seq for write in batch if isinstance(write, Append) for entry in write.entries if when(entry)]
        if found and not refused:
            refused.extend(found)
            raise StoreFull(hf.client.store.place)
        return real(batch)

    hf.client.store.apply = apply  # type: ignore[method-assign]


def test_a_check_is_asked_once_the_process_that_began_has_let_the_run_go(timed: Opener, wiring: Any) -> None:
    first, flow, _, asked = wiring
    second = timed(lease=10)
    full_once(first, lambda entry: entry.kind == "done")
    with pytest.raises(StoreFull):
        first.start(flow, id="r")
    run = second.get("r")
    run.resume()
    assert run.result(timeout=20) == "ref"
    assert (acts, asked) == (["wired"], ["check"])


def test_nor_when_the_same_process_takes_its_own_run_back(timed: Opener, wiring: Any) -> None:
    first, flow, meanwhile, asked = wiring
    second = timed(lease=10)

    def take_over() -> None:
        with second.get("r").claim():
            pass
        run = first.get("r")
        run.resume()
        with pytest.raises(RunBlocked, match="still runs and may be acting"):
            run.result(timeout=20)

    meanwhile.append(take_over)
    first.start(flow, id="r")
    assert (acts, asked) == (["wired"], [])
    run = first.get("r")
    run.unblock()
    run.resume()
    assert run.result(timeout=20) == "ref"
    assert (acts, asked) == (["wired"], ["check"])
