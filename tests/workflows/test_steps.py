"""Steps: plain functions outside of a run; inside one, done once, with results and errors as they were."""

import asyncio
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import UUID

import pytest

from holdfast import Holdfast, Status, UsageError, sleep, step, this_step, workflow
from holdfast.testing import ManualClock

Opener = Callable[..., Holdfast]
T = TypeVar("T")


@step
def add(a: int, b: int = 1) -> int:
    """Adds."""
    return a + b


@step
async def add_soon(a: int, b: int = 1) -> int:
    return a + b


class Counter(Generic[T]):
    def __init__(self, start: int) -> None:
        self.n = start

    @step
    def plus(self, more: int) -> int:
        """Adds to it."""
        self.n += more
        return self.n

    @staticmethod
    @step
    def of(value: int) -> int:
        return value


@dataclass
class Order:
    id: str
    cents: Decimal


class Colour(Enum):
    RED = 1


class OutOfStock(Exception):
    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"{left} left of {item}")
        self.item = item
        self.left = left


def resumed(timed: Opener, clock: ManualClock, id: str = "r") -> Any:
    """The run after an hour, driven on by another process."""
    clock.advance(3600)
    run = timed().get(id)
    run.resume()
    return run


# --- outside of a run


def test_outside_of_a_run_a_step_is_the_function() -> None:
    assert add(1) == 2
    assert add(a=2, b=3) == 5
    assert asyncio.run(add_soon(1)) == 2
    counter = Counter[int](1)
    assert (counter.plus(2), counter.n, Counter.of(5)) == (3, 3, 5)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        add()  # type: ignore[call-arg]


def test_a_step_looks_like_its_function() -> None:
    assert (add.__name__, add.__doc__, add.__module__) == ("add", "Adds.", __name__)
    assert str(inspect.signature(add)) == "(a: int, b: int = 1) -> int"
    assert str(inspect.signature(Counter(1).plus)) == "(more: int) -> int"
    assert Counter.plus.__doc__ == "Adds to it."
    assert Counter.plus.__qualname__ == "Counter.plus"


# --- results


VALUES: list[Any] = [
    None,
    True,
    0,
    "",
    1.5,
    (1, "two", (3,)),
    [1, (2,)],
    {1, 2},
    frozenset({"a"}),
    {"a": [1], 2: "b"},
    b"\x00\xff",
    datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    date(2024, 2, 29),
    timedelta(days=1, microseconds=3),
    Decimal("1.10"),
    UUID(int=7),
    Path("a/b"),
    float("inf"),
]


def test_a_replay_runs_nothing_again_and_gives_the_same_values(timed: Opener, clock: ManualClock) -> None:
    ran: list[int] = []
    seen: list[list[Any]] = []

    @step
    def give(n: int) -> Any:
        ran.append(n)
        return VALUES[n]

    @workflow
    def flow() -> int:
        seen.append([give(n) for n in range(len(VALUES))])
        sleep(3600)
        return give(0) is None

    run = timed().start(flow, id="r")
    assert run.status is Status.WAITING
    run = resumed(timed, clock)
    assert run.result() is True
    assert ran == [*range(len(VALUES)), 0]
    assert seen[0] == seen[1] == VALUES
    assert [type(value) for value in seen[1]] == [type(value) for value in VALUES]


def test_types_of_ones_own_come_back_by_the_annotation_or_when_registered(timed: Opener, clock: ManualClock) -> None:
    orders = [Order("A-17", Decimal("42.00")), Order("B", Decimal(1))]
    seen: list[Any] = []

    @step
    def annotated() -> tuple[list[Order], Colour]:
        return orders, Colour.RED

    @step
    def bare():  # type: ignore[no-untyped-def]
        return orders[0]

    @workflow
    def flow() -> None:
        seen.append((annotated(), bare()))
        sleep(3600)

    timed().start(flow, id="r")
    run = resumed(timed, clock)
    assert run.status is Status.BLOCKED
    reason = str(run.info().reason)
    assert "result of bare#1" in reason
    assert "register it with hf.register(Order); then run.unblock()" in reason
    other = timed()
    other.register(Order)
    again = other.get("r")
    again.retry()
    assert again.result() is None
    assert seen[-1] == seen[0] == ((orders, Colour.RED), orders[0])


def test_a_result_that_is_not_what_the_annotation_says_comes_back_as_it_was(timed: Opener, clock: ManualClock) -> None:
    seen: list[Any] = []

    @step
    def lies() -> int:
        return "five"  # type: ignore[return-value]

    @workflow
    def flow() -> None:
        seen.append(lies())
        sleep(3600)

    timed().start(flow, id="r")
    assert resumed(timed, clock).status is Status.COMPLETED
    assert seen == ["five", "five"]


def test_methods_are_steps_of_their_object(timed: Opener, clock: ManualClock) -> None:
    counter = Counter[str](0)

    @workflow
    def flow() -> list[int]:
        found = [counter.plus(1), counter.plus(more=2), Counter.of(7)]
        sleep(3600)
        return found

    timed().start(flow, id="r")
    run = resumed(timed, clock)
    assert run.result() == [1, 3, 7]
    assert counter.n == 3
    assert [one.key for one in run.steps() if one.name != "sleep"] == ["plus#1", "plus#2", "of#1"]


# --- errors


def test_an_error_is_kept_with_its_type_and_raised_again(timed: Opener, clock: ManualClock) -> None:
    ran: list[str] = []
    caught: list[OutOfStock] = []

    @step
    def take(item: str) -> None:
        ran.append(item)
        raise OutOfStock(item, 2) from KeyError("shelf")

    @workflow
    def flow() -> str:
        try:
            take("cup")
        except OutOfStock as error:
            caught.append(error)
        sleep(3600)
        take("plate")
        return "taken"

    timed().start(flow, id="r")
    run = resumed(timed, clock)
    assert ran == ["cup", "plate"]
    _, second = caught
    assert type(second) is OutOfStock
    for error in caught:
        assert (error.item, error.left, str(error)) == ("cup", 2, "2 left of cup")
    assert repr(second.__cause__) == "KeyError('shelf')"
    with pytest.raises(OutOfStock, match="2 left of plate"):
        run.result()
    [failed] = [one for one in run.steps() if one.key == "take#2"]
    assert (failed.status, failed.error) == ("failed", "OutOfStock: 2 left of plate")


def test_a_failed_step_is_tried_again_by_retry_and_what_was_done_is_kept(hf: Holdfast) -> None:
    ran: list[str] = []
    broken = [True]

    @step
    def charge() -> str:
        ran.append("charge")
        return "paid"

    @step
    def ship() -> str:
        ran.append("ship")
        if broken:
            raise ValueError("no truck")
        return "shipped"

    @workflow
    def flow() -> str:
        return f"{charge()}, {ship()}"

    run = hf.start(flow, id="r")
    with pytest.raises(ValueError, match="no truck"):
        run.result()
    broken.clear()
    run.retry()
    assert run.result() == "paid, shipped"
    assert ran == ["charge", "ship", "ship"]


# --- keys


def test_an_explicit_key_is_the_identity_of_a_call(timed: Opener, clock: ManualClock) -> None:
    ran: list[str] = []

    @step
    def tool(name: str) -> str:
        ran.append(name)
        return name.upper()

    order = ["a", "b"]

    @workflow
    def flow() -> list[str]:
        found = [tool.options(key=f"toolu_{name}")(name) for name in order]
        sleep(3600)
        return found

    timed().start(flow, id="r")
    order.reverse()
    run = resumed(timed, clock)
    assert run.result() == ["B", "A"]
    assert ran == ["a", "b"]
    assert [one.key for one in run.steps()][:2] == ["toolu_a", "toolu_b"]


@pytest.mark.parametrize("key", ["", "add#1", "patched:x", 7])
def test_a_key_that_could_be_taken_for_an_allotted_one_is_refused(key: Any) -> None:
    with pytest.raises(UsageError, match=r"key=|text is wanted"):
        add.options(key=key)


@pytest.mark.parametrize("during", ["its run", "its pause"])
def test_the_same_key_twice_at_once_is_refused(timed: Opener, during: str) -> None:
    ran: list[int] = []
    refused: list[str] = []

    @step(retries=1, delay=60)
    async def slow() -> int:
        ran.append(this_step().attempt)
        await asyncio.sleep(0.01)
        if during == "its pause" and len(ran) == 1:
            raise ConnectionError("down")
        return 1

    async def once_more() -> None:
        while during == "its pause" and not (ran and "retrying" in [one.status for one in first.get("r").steps()]):
            await asyncio.sleep(0.001)
        try:
            await slow.options(key="one")()
        except UsageError as error:
            refused.append(str(error))

    @workflow
    async def flow() -> int:
        if not ran:
            return (await asyncio.gather(slow.options(key="one")(), once_more()))[0]
        return await slow.options(key="one")()

    first = timed()
    run = first.start(flow, id="r")
    assert refused == ["step 'one' of run 'r' is running already; give each call its own key"]
    assert run.result() == 1
    assert ran == ([1, 2] if during == "its pause" else [1])
