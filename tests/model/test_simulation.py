"""Several workers, who stall, die and come back, on one store: thousands of histories, each decided by its seed."""

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sizes import size

import holdfast
from holdfast.engine.app import Holdfast
from holdfast.engine.workflow.effect_step import Done
from holdfast.errors import Claimed, HoldfastError, NotDone
from holdfast.kernel.model import ENDED, Kind, Status
from holdfast.testing.simulation import Simulation, Violation

CHUNKS = 8
SEEDS = int(os.environ.get("HOLDFAST_SEEDS") or size(4, 50))  # in each chunk


# --- what the workers work on


@holdfast.step
def look(name: str) -> str:
    Simulation.now().outside.act(name)
    return name


@holdfast.step(retries=3, delay=4)
def flaky(name: str) -> str:
    Simulation.now().outside.act(name)
    if holdfast.this_step().attempt < 3:
        raise ConnectionError(name)
    return name


@holdfast.step(target="{name}")
def put(name: str) -> str:
    Simulation.now().outside.act(name)
    return name


@put.undo
def take(result: str, name: str) -> None:
    Simulation.now().outside.undone[name] += 1


@holdfast.step(at_most_once=True)
def pay(name: str) -> str:
    Simulation.now().outside.act(name, once=True)
    return name


@pay.check
def paid(name: str) -> Any:
    return Done(name) if Simulation.now().outside.was_done() else NotDone


@holdfast.step(at_most_once=True)
def transfer(name: str) -> str:
    Simulation.now().outside.act(name, once=True)
    return name


@holdfast.step
async def fetch(name: str) -> str:
    Simulation.now().outside.act(name)
    return name


@holdfast.workflow(name="simulated-order")
def order(name: str) -> list[Any]:
    lot = holdfast.random()
    look(f"{name}-{lot}")
    flaky(f"{name}-flaky")
    put(f"{name}-put")
    pay(f"{name}-pay")
    holdfast.sleep(30)
    transfer(f"{name}-transfer")
    answer = holdfast.ask(f"{name}?", str)
    holdfast.emit(answer)
    return [name, answer]


@holdfast.workflow(name="simulated-ear")
def ear(heard: list[int], more: int) -> list[int]:
    heard.append(holdfast.receive("n"))
    look(f"heard-{heard[-1]}")
    if more:
        holdfast.continue_as_new(heard, more - 1)
    return heard


@holdfast.workflow(name="simulated-mouth")
def mouth(n: int) -> int:
    holdfast.send("ear", n, topic="n")
    holdfast.sleep(5)
    holdfast.send("ear", n + 1, topic="n")
    return n


@holdfast.workflow(name="simulated-fan")
async def fan(name: str) -> list[Any]:
    return list(await holdfast.gather(_one(f"{name}-1"), _one(f"{name}-2"), fetch(f"{name}-3")))


async def _one(name: str) -> str:
    await fetch(f"{name}-a")
    await holdfast.sleep(20)
    return await fetch(name)


@holdfast.workflow(name="simulated-child")
def child(name: str) -> str:
    put(name)
    holdfast.sleep(15)
    return look(f"{name}-looked")


@holdfast.workflow(name="simulated-parent")
def parent(name: str) -> str:
    return child(f"{name}-child")


@holdfast.workflow(name="simulated-broken", on_failure="rollback")
def broken(name: str) -> None:
    put(name)
    holdfast.sleep(10)
    raise ValueError(name)


@holdfast.workflow(name="simulated-dropped")
def dropped(name: str) -> None:
    put(name)
    holdfast.ask("Never answered", str)


def begin(hf: Holdfast) -> None:
    hf.enqueue(order, "order", id="order")
    hf.enqueue(ear, [], 3, id="ear")
    hf.enqueue(mouth, 0, id="mouth-0")
    hf.enqueue(mouth, 2, id="mouth-2")
    hf.enqueue(fan, "fan", id="fan")
    hf.enqueue(parent, "parent", id="parent")
    hf.enqueue(broken, "broken", id="broken")
    hf.enqueue(dropped, "dropped", id="dropped")


# --- what a person does


def person(simulation: Simulation, hf: Holdfast, chance: random.Random) -> bool:
    """Look at a run; whether there was something to do."""
    waiting = [info.id for info in hf.runs(limit=100) if info.status not in ENDED]
    if not waiting:
        return False
    run = hf.get(chance.choice(waiting))
    try:
        if run.status is Status.BLOCKED:
            return _help(simulation, run)
        if run.id == "dropped":
            if any(effect.status == "done" for effect in run.effects()):
                run.cancel("not needed", undo=True)
            return True
        for question in run.questions():
            run.answer("yes", question=question, by="person")
            return True
    except (holdfast.errors.QuestionClosed, holdfast.RunEnded, Claimed, holdfast.errors.LeaseLost):
        return True  # somebody was faster
    return False


def _help(simulation: Simulation, run: holdfast.Run) -> bool:
    for effect in run.effects():
        if effect.status == "uncertain":
            name = f"{run.id}-{effect.key.partition('#')[0]}"  # also of a step with a check, which is not asked
            done = simulation.outside.done[name] > 0  # while the process that began it may still be acting
            run.resolve(effect.key, done=done, result=name if done else None, by="person")
            return True
    run.unblock(by="person")
    return True


# --- what must come of it


def check(simulation: Simulation) -> None:
    hf, outside = simulation.observer, simulation.outside
    results = {id: hf.get(id).result() for id in ("order", "ear", "mouth-0", "mouth-2", "fan", "parent")}
    heard = results.pop("ear")
    assert sorted(heard) == [0, 1, 2, 3], heard
    assert results == {
        "order": ["order", "yes"],
        "mouth-0": 0,
        "mouth-2": 2,
        "fan": ["fan-1", "fan-2", "fan-3"],
        "parent": "parent-child-looked",
    }
    assert hf.get("broken").status is Status.FAILED
    assert hf.get("dropped").status is Status.CANCELLED
    assert outside.undone["broken"] >= 1
    assert outside.undone["dropped"] >= 1
    for name in ("order-put", "order-pay", "order-transfer", "heard-0", "heard-3", "fan-1", "parent-child"):
        assert outside.done[name] >= 1, name
    assert outside.done["order-pay"] == outside.done["order-transfer"] == 1
    if not simulation.crashes and not simulation.stalls:
        repeated = {name: n for name, n in outside.done.items() if n > 1 and name != "order-flaky"}
        assert not repeated
    for id in ("order", "fan", "ear"):
        kinds = Counter(entry.kind for entry in hf.get(id).history(limit=1000))
        assert kinds[Kind.COMPLETED] == 1


def simulate(seed: int, **how: Any) -> Simulation:
    simulation = Simulation(seed, begin, person, **how).run()
    try:
        check(simulation)
    except (AssertionError, HoldfastError) as error:
        raise Violation(f"seed {seed}: {error}\n{simulation.schedule()}") from error
    return simulation


def simulate_many(first: int, count: int, tally: Callable[..., None]) -> None:
    numbers: Counter[str] = Counter(seeds=count)
    print(f"seeds {first} to {first + count - 1}")
    for seed in range(first, first + count):
        done = simulate(seed, trouble=(0.0, 0.01, 0.02, 0.05)[seed % 4])
        numbers.update(turns=len(done.calls), crashes=done.crashes, stalls=done.stalls, refused=done.ledger.refusals)
    tally("simulated histories", **numbers)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_workers_that_stall_and_die_leave_nothing_undone_or_done_twice(chunk: int, tally: Callable[..., None]) -> None:
    simulate_many(chunk * SEEDS, SEEDS, tally)


@pytest.mark.parametrize("seed", [3, 7, 11])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    one, two = simulate(seed), simulate(seed)
    assert one.history() == two.history()
    assert one.calls == two.calls
    assert simulate(seed + 1).calls != one.calls


@pytest.mark.torture
@pytest.mark.parametrize("chunk", range(32))
def test_a_great_many_histories(chunk: int, tally: Callable[..., None]) -> None:
    first = random.SystemRandom().randrange(1_000_000, 1_000_000_000)
    simulate_many(first, 150, tally)
