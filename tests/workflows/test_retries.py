"""How a step is tried again, over crashes and long pauses, and what happens to one that takes too long."""

import asyncio
import logging
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from holdfast import Holdfast, Status, step, this_step, workflow
from holdfast.engine.workflow.attempts import Retry
from holdfast.errors import StepTimeout, StoreUnusable
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash

Opener = Callable[..., Holdfast]


def resumed(timed: Opener, clock: ManualClock, id: str = "r") -> Any:
    """The run after an hour, driven on by another process."""
    clock.advance(3600)
    run = timed().get(id)
    run.resume()
    return run


# --- tried again


def test_the_pause_grows_up_to_its_limit_and_is_spread() -> None:
    plain = Retry(times=9, delay=1, backoff=3.0, max_delay=20, jitter=False)
    assert [plain.pause(attempt, 0.5) for attempt in (1, 2, 3, 4, 5000)] == [1, 3, 9, 20, 20]
    spread = Retry(times=9, delay=8, backoff=1)
    assert (spread.pause(1, 0.0), spread.pause(1, 1.0)) == (4, 8)


def test_a_step_is_tried_again_after_longer_and_longer_pauses(timed: Opener, clock: ManualClock) -> None:
    times: list[float] = []

    @step(retries=3, delay=0.1, backoff=2, jitter=False)
    def flaky() -> int:
        times.append(clock.now() / 1_000_000)
        if len(times) < 4:
            raise ConnectionError("down")
        return this_step().attempt

    @workflow
    def flow() -> int:
        return flaky()

    run = timed().start(flow)
    assert run.result() == 4
    gaps = [round(after - before, 3) for before, after in pairwise(times)]
    assert gaps == [0.1, 0.2, 0.4]
    [one] = run.steps()
    assert (one.status, one.attempts) == ("done", 4)


def test_only_what_is_asked_for_is_tried_again(timed: Opener) -> None:
    raised = [ConnectionError("down"), ValueError("wrong")]

    @step(retries=5, delay=0.1, retry_on=(ConnectionError, TimeoutError))
    def flaky() -> None:
        raise raised.pop(0)

    @workflow
    def flow() -> None:
        flaky()

    run = timed().start(flow)
    with pytest.raises(ValueError, match="wrong"):
        run.result()
    [one] = run.steps()
    assert (one.status, one.attempts, one.error) == ("failed", 2, "ValueError: wrong")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_long_pause_gives_the_run_up_until_then(timed: Opener, clock: ManualClock, is_async: bool) -> None:
    attempts: list[int] = []

    def flaky() -> str:
        attempts.append(this_step().attempt)
        if len(attempts) < 3:
            raise ConnectionError("down")
        return "up"

    @step(retries=2, delay=60, jitter=False, name="flaky")
    def wait_for_it() -> str:
        return flaky()

    @step(retries=2, delay=60, jitter=False, name="flaky")
    async def await_it() -> str:
        return flaky()

    @workflow(name="long-pause")
    def flow() -> str:
        return wait_for_it()

    @workflow(name="long-pause-async")
    async def async_flow() -> str:
        return await await_it()

    run = timed().start(async_flow if is_async else flow, id="r")
    assert run.status is Status.WAITING
    wake_at = run.info().wake_at
    assert wake_at is not None
    assert wake_at.timestamp() * 1_000_000 == clock.now() + 60_000_000
    assert [(one.status, one.attempts) for one in run.steps()] == [("retrying", 1)]
    clock.advance(58)
    other = timed().get("r")
    other.resume()
    assert (attempts, other.status) == ([1], Status.WAITING)  # it is not its time yet
    clock.advance(2)
    other.resume()
    assert (attempts, other.status) == ([1, 2], Status.WAITING)
    assert other.result() == "up"
    assert attempts == [1, 2, 3]


def test_the_count_of_attempts_survives_a_crash(timed: Opener, die: Any, clock: ManualClock) -> None:
    attempts: list[int] = []
    first = timed()

    @step(retries=2, delay=0.1)
    def flaky() -> None:
        attempts.append(this_step().attempt)
        if attempts == [1, 2]:
            die(first)
        raise ConnectionError("down")

    @workflow
    def flow() -> None:
        flaky()

    with pytest.raises((Crash, StoreUnusable)):
        first.start(flow, id="r")
    run = resumed(timed, clock)
    with pytest.raises(ConnectionError):
        run.result()
    assert attempts == [1, 2, 2, 3]


def test_a_run_that_kills_its_process_is_blocked_though_each_process_recovers_first(
    timed: Opener, die: Any, clock: ManualClock
) -> None:
    now: list[Holdfast] = []

    @step
    def deadly() -> None:
        die(now[-1])

    @workflow
    def flow() -> None:
        deadly()

    deaths = 0
    while True:
        now.append(timed())
        now[-1].recover()
        try:
            run = now[-1].start(flow, id="r")
        except (Crash, StoreUnusable):
            deaths += 1
            assert deaths < 20
            clock.advance(3600)
            continue
        break
    assert run.status is Status.BLOCKED
    assert "its process died 5 times in a row" in (run.info().reason or "")
    run.unblock()
    with pytest.raises((Crash, StoreUnusable)):
        run.result()  # it is tried again


# --- limits of time


def test_what_a_sync_step_gives_after_its_timeout_is_discarded_and_logged(
    hf: Holdfast,
) -> None:
    go_on, logged = threading.Event(), threading.Event()
    keys: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "discarded" in record.getMessage() and "step slow#1" in record.getMessage():
                logged.set()

    @step(timeout=0.01)
    def slow() -> str:
        keys.append(this_step().key)
        go_on.wait(10)
        return "late"

    @workflow
    def flow() -> str:
        try:
            return slow()
        except TimeoutError as error:
            return str(error)

    listener = Listener()
    logging.getLogger("holdfast").addHandler(listener)
    try:
        run = hf.start(flow, id="r")
        assert run.result() == "run 'r': step 'slow#1' did not end within its timeout of 0.01 s"
        before = [entry.seq for entry in run.history()]
        go_on.set()
        assert logged.wait(10)
    finally:
        logging.getLogger("holdfast").removeHandler(listener)
    assert keys == ["slow#1"]
    assert [entry.seq for entry in run.history()] == before


def test_an_async_step_is_cancelled_at_its_timeout_and_may_be_tried_again(hf: Holdfast) -> None:
    ended: list[str] = []

    @step(timeout=0.01, retries=1, delay=0)
    async def slow() -> str:
        if this_step().attempt == 2:
            return "in time"
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "late"

    @step(timeout=5)
    async def own_timeout() -> None:
        raise TimeoutError("of its own")

    @workflow
    async def flow() -> str:
        with pytest.raises(TimeoutError, match="of its own") as caught:
            await own_timeout()
        assert not isinstance(caught.value, StepTimeout)
        return await slow()

    assert hf.start(flow).result() == "in time"
    assert ended == ["cancelled"]


def test_a_plain_step_of_an_async_workflow_is_tried_again_in_place(timed: Opener, clock: ManualClock) -> None:
    attempts: list[int] = []

    @step(retries=2, delay=5, jitter=False)
    def flaky(name: str) -> str:
        attempts.append(this_step().attempt)
        if this_step().attempt < 3:
            raise OSError("not yet")
        return name

    @workflow
    async def both() -> list[str]:
        return [flaky("on the loop"), await asyncio.to_thread(flaky, "in a thread")]

    assert timed().start(both).result() == ["on the loop", "in a thread"]
    assert attempts == [1, 2, 3, 1, 2, 3]
