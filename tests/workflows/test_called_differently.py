"""A step is never taken for another one: what is called differently than recorded parks the run, and says how."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, Keyring, Run, Status, sleep, step, workflow
from holdfast import map as hf_map
from holdfast.errors import StoreUnusable
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash

Opener = Callable[..., Holdfast]
Die = Callable[[Holdfast], Any]
DEAD = (Crash, StoreUnusable)

acts: list[str] = []


@pytest.fixture(autouse=True)
def no_acts() -> None:
    acts.clear()


def resumed(timed: Opener, clock: ManualClock, id: str = "r") -> Run:
    """The run after an hour, driven on by another process."""
    clock.advance(3600)
    run = timed().get(id)
    run.resume()
    return run


def test_the_order_of_dicts_and_sets_and_names_does_not_matter(timed: Opener, clock: ManualClock) -> None:
    forth = set(range(0, 800, 8))
    back = set(range(792, -8, -8))
    assert list(forth) != list(back)

    @step
    def look(table: dict[str, int], numbers: set[int], n: int, extra: str = "x") -> None:
        acts.append("look")

    @workflow
    def flow() -> None:
        if len(acts) == 0:
            look({"a": 1, "b": 2}, forth, 3)
        else:
            look(numbers=back, table={"b": 2, "a": 1}, n=3)
        sleep(3600)

    timed().start(flow, id="r")
    assert resumed(timed, clock).status is Status.COMPLETED
    assert acts == ["look"]


@pytest.mark.parametrize("change", ["another", "more", "fewer"])
@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_other_arguments_than_recorded_park_the_run(
    timed: Opener, clock: ManualClock, change: str, outcome: str
) -> None:
    before: tuple[Any, ...] = {"another": ("A", 1), "more": (), "fewer": ("A", 1)}[change]
    after: tuple[Any, ...] = {"another": ("A", True), "more": ("A", 1), "fewer": ()}[change]
    given = [before]

    @step
    def charge(*args: Any) -> None:
        acts.append("charge")
        if outcome == "failed":
            raise ValueError("no")

    @workflow
    def flow() -> None:
        try:
            charge(*given[0])
        except ValueError:
            acts.append("caught")
        sleep(3600)

    timed().start(flow, id="r")
    given[0] = after
    run = resumed(timed, clock)
    assert run.status is Status.BLOCKED
    reason = str(run.info().reason)
    was, shown = (", ".join(repr(one) for one in given) for given in (before, after))
    assert f"'charge#1' was called with other arguments ({was}) at entry 1 than now ({shown}), at {__file__}:" in reason
    assert "If the code was not changed, it depends on time or chance: put that into a step." in reason
    assert reason.endswith("or let the step take any arguments with @step(check_args=False)")
    line = int(reason.partition(f"{__file__}:")[2].partition(".")[0])
    with open(__file__) as file:
        assert "charge(*given[0])" in file.read().splitlines()[line - 1]
    assert acts.count("charge") == 1
    given[0] = before
    run.unblock()
    assert run.result() is None
    assert acts.count("charge") == 1


def test_other_arguments_are_taken_if_the_step_allows_them(timed: Opener, clock: ManualClock) -> None:
    given = ["A"]

    @step(check_args=False)
    def charge(order: str) -> str:
        return order

    @workflow
    def flow() -> str:
        found = charge(given[0])
        sleep(3600)
        return found

    timed().start(flow, id="r")
    given[0] = "B"
    assert resumed(timed, clock).result() == "A"


@pytest.mark.parametrize("kind", ["plain", "effect"])
def test_what_was_recorded_is_shown_as_far_as_it_is_kept(timed: Opener, clock: ManualClock, kind: str) -> None:
    long = {"text": "long " * 10}
    given: list[Any] = [long]

    @step(target="world" if kind == "effect" else None)
    def charge(order: Any, *, fast: bool = False) -> None: ...

    @workflow
    def flow() -> None:
        charge(given[0], fast=True)
        sleep(3600)

    timed().start(flow, id="r")
    given[0] = {}
    was = f" ({long!r}, fast=True)" if kind == "effect" else ""
    wanted = f"'charge#1' was called with other arguments{was} at entry {1 + bool(was)} than now ({{}}, fast=True), at"
    assert wanted in str(resumed(timed, clock).info().reason)


def test_the_place_of_another_call_is_named(timed: Opener, clock: ManualClock) -> None:
    drives: list[None] = []

    @step
    def one() -> None: ...

    @step
    def two() -> None: ...

    def branch(_: int) -> None:
        one() if len(drives) == 1 else two()
        sleep(3600)

    @workflow
    def flow() -> None:
        drives.append(None)
        hf_map(branch, [1])

    timed().start(flow, id="r")
    reason = str(resumed(timed, clock).info().reason)
    assert "call 1 of branch 'map#1.1' was recorded as 'map#1.1/one#1'" in reason


@pytest.mark.parametrize("at_most_once", [False, True])
def test_what_died_in_the_act_is_not_done_with_other_arguments(
    timed: Opener, die: Die, clock: ManualClock, at_most_once: bool
) -> None:
    first = timed()
    given = [4200]

    @step(target="card", at_most_once=at_most_once)
    def charge(cents: int) -> None:
        acts.append(f"charge {cents}")
        die(first)

    @workflow
    def flow() -> None:
        charge(given[0])

    with pytest.raises(DEAD):
        first.start(flow, id="r")
    given[0] = 1
    run = resumed(timed, clock)
    assert run.status is Status.BLOCKED
    assert "other arguments (4200) at entry 1 than now (1)" in str(run.info().reason)
    assert acts == ["charge 4200"]


def test_nothing_of_an_encrypted_run_is_in_the_reason(
    timed: Opener, clock: ManualClock, raw_bytes: Callable[[], bytes]
) -> None:
    hf = timed(keys=Keyring({"k": b"k" * 32}, current="k"))
    given = ["pearl-inside"]

    @step
    def note(text: str) -> None: ...

    @step(at_most_once=True)
    def wire() -> None:
        raise ValueError("pearl-in-error")

    @workflow(name="encrypted-changed")
    def changed() -> None:
        note(given[0])
        sleep(3600)

    @workflow(name="encrypted-raised")
    def raised() -> None:
        wire()

    first, second = hf.start(changed, id="a"), hf.start(raised, id="b")
    given[0] = "pearl-too"
    clock.advance(3600)
    first.resume()
    assert first.status is second.status is Status.BLOCKED
    assert "'note#1' was called with other arguments" in str(first.info().reason)
    assert "raised an error" in str(second.info().reason)
    assert b"pearl" not in raw_bytes()
