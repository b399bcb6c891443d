"""Workflows that use every feature, written to be interrupted anywhere.

As in `scenario`, the work comes in parts, and each part is called again from the top by the next
process; here that means starting the same workflow under the same id. What each step does to the outside is noted in
the `World` under the step's idempotency key, so that `verdict` can tell what was done twice.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from scenario import Desk, Part, World, _now

import holdfast
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.effect_step import Done, this_step
from holdfast.errors import NotDone, RunNotFound, TimedOut
from holdfast.kernel.model import ENDED, Kind, Status

# --- steps


def _act(name: str) -> World:
    """Note that the running step does something to the outside."""
    world, this = _now[-1], this_step()
    world.acts[this.run, this.key, this.idempotency_key] += 1
    world.made[name] = this.idempotency_key
    world.fuse.changed()
    return world


@holdfast.step
def think(name: str, n: float) -> str:
    """Touches nothing, but the world counts it."""
    _act(name)
    return f"thought of {name}"


@holdfast.step(retries=2, delay=90)
def flaky(name: str) -> str:
    """Works at the second attempt."""
    _act(name)
    if this_step().attempt == 1:
        raise ConnectionError(f"{name} is away")
    return f"{name} is here"


@holdfast.step(target="shelf/{name}")
def put(name: str, text: str) -> str:
    """Can be undone."""
    _act(name).things[name] = text
    return f"put {name}"


@put.undo
def take_away(result: str, name: str, text: str) -> None:
    """Undoes `put`."""
    world = _now[-1]
    world.undos[world.made[name]] += 1
    world.things.pop(name, None)
    world.fuse.changed()


@holdfast.step(at_most_once=True)
def pay(name: str, cents: int) -> str:
    """Must not happen twice; the bank can be asked."""
    _act(name).payments[name] += cents
    return f"receipt for {name}"


@pay.check
def was_paid(name: str, cents: int) -> Any:
    """Asks the bank, which knows payments by their idempotency keys."""
    this = this_step()
    return Done(f"receipt for {name}") if (this.run, this.key, this.idempotency_key) in _now[-1].acts else NotDone


@holdfast.step(at_most_once=True, target="bank")
def transfer(name: str, cents: int) -> str:
    """Must not happen twice, and only a person can find out."""
    _act(name).payments[name] += cents
    return f"transferred {name}"


@holdfast.step(transactional=True)
def book(connection: Any, name: str) -> int:
    """Commits together with its entry, where there is SQL."""
    connection.execute("CREATE TABLE IF NOT EXISTS booked (name TEXT)")
    connection.execute("INSERT INTO booked VALUES (?)", (name,))
    return int(connection.execute("SELECT count(*) FROM booked WHERE name = ?", (name,)).fetchone()[0])


@holdfast.step
async def fetch(name: str, n: int) -> int:
    """Awaits something."""
    _act(name)
    await asyncio.sleep(0)
    return n * 2


@holdfast.step
def fail(name: str) -> None:
    """Fails for good."""
    _act(name)
    raise ValueError(f"{name} is broken")


# --- what parts have in common


def begin(desk: Desk, workflow: Any, *args: Any, id: str) -> Run:
    """Start a workflow, or go on with it."""
    run = desk.hf.start(workflow, *args, id=id)
    desk.note(run)
    return run


def settle(desk: Desk, run: Run, answers: dict[str, Any] | None = None) -> Run:
    """Go on with a run to its end: answer what it asks, and find out for it what it cannot know."""
    for _ in range(50):
        status = run.status
        if status in ENDED:
            break
        for question in run.questions():
            run.answer((answers or {})[question.prompt], question=question, by="operator")
            desk.seen.answered.setdefault(run.uid, set()).add(question.id)
            desk.note(run)
        if status is Status.BLOCKED:
            _resolve(desk, run)
        if run.status is Status.WAITING and (wake := run.info().wake_at) is not None:
            clock = run.held.store.clock
            clock.sleep(max(wake.timestamp() - clock.now() / 1_000_000, 0) + 0.001)
        run.resume()
        desk.note(run)
    assert run.status in ENDED, f"{run.id} is stranded: it is {run.status}"
    return run


def _resolve(desk: Desk, run: Run) -> None:
    for effect in run.effects():
        if effect.status == "uncertain" and effect.tool == "transfer":
            done = desk.world.payments[run.id] > 0
            result = f"transferred {run.id}" if done else None
            run.resolve(effect.key, done=done, result=result, by="clerk")
            desk.note(run)
    if run.status is Status.BLOCKED:
        run.unblock(by="clerk")
        desk.note(run)


# --- the work


@holdfast.workflow(name="crash-order")
def order_(name: str, in_sql: bool) -> str:
    lot, stamp, ticket = holdfast.random(), holdfast.now(), holdfast.uuid()
    think(f"{name}-lot", lot)  # with other arguments than before, this would be noticed
    think(f"{name}-stamp", stamp.timestamp())
    holdfast.note(f"begun {ticket.version}")
    flaky(f"{name}-store")
    put(name, "boxed")
    pay(f"{name}-pay", 100)
    transfer(name, 200)
    carrier = holdfast.ask("Which carrier?", str)
    holdfast.emit({"carrier": carrier})
    holdfast.sleep(3600)
    booked = book(f"{name}-booked") if in_sql else 1
    return f"{name} by {carrier}, {booked} booked"


def order(desk: Desk) -> None:
    """Steps of all kinds, a question, a timer, output and chance."""
    run = begin(desk, order_, "order", desk.site.kind == "sqlite", id="order")
    settle(desk, run, {"Which carrier?": "post"})
    assert run.result() == "order by post, 1 booked"
    assert [output.value for output in run.outputs("output")] == [{"carrier": "post"}]


@holdfast.workflow(name="crash-ear")
def ear_(n: int) -> list[Any]:
    heard = [holdfast.receive("talk") for _ in range(n)]
    heard.append(holdfast.receive("silence", timeout=60, default="nothing"))
    try:
        holdfast.receive("silence", timeout=60)
    except TimedOut:
        heard.append("nothing")
    return heard


@holdfast.workflow(name="crash-mouth")
def mouth_(n: int, said: int) -> int:
    holdfast.send("ear", f"word {said + 1}", topic="talk")
    if holdfast.patched("loudly"):
        think(f"voice-{said}", n)
    if said + 1 < n:
        holdfast.continue_as_new(n, said + 1)
    return n


def talk(desk: Desk) -> None:
    """Messages from a run that begins anew after each, to one that waits for them."""
    ear = begin(desk, ear_, 2, id="ear")
    mouth = begin(desk, mouth_, 2, 0, id="mouth")
    settle(desk, mouth)
    settle(desk, ear)
    assert ear.result() == ["word 1", "word 2", "nothing", "nothing"]


@holdfast.workflow(name="crash-fan")
async def fan_(n: int) -> list[Any]:
    both = await holdfast.gather(_branch("left"), _branch("right"))
    some = await holdfast.map(_fetch_one, range(n), limit=2)
    plain = await asyncio.gather(fetch("plain-1", 1), fetch("plain-2", 2))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_fetch_one(7))
    quick = await holdfast.first(_slow(), fetch("quick", 3))
    try:
        late: Any = await holdfast.timeout(60, _slow())
    except TimedOut:
        late = "late"
    return [both, some, plain, task.result(), quick, late]


async def _branch(name: str) -> str:
    await fetch(f"{name}-before", 1)
    if name == "left":
        await holdfast.sleep(120)
        return name
    said = await holdfast.ask("Right?", str)
    await fetch(f"{name}-after", 1)
    return f"{name} {said}"


async def _fetch_one(n: int) -> int:
    return await fetch(f"one-{n}", n)


async def _slow() -> str:
    await holdfast.sleep(3600)
    return "slow"


def fan(desk: Desk) -> None:
    """Branches that act, wait and race in an async workflow."""
    run = settle(desk, begin(desk, fan_, 3, id="fan"), {"Right?": "yes"})
    assert run.result() == [["left", "right yes"], [0, 2, 4], [2, 4], 14, 6, "late"]


@holdfast.workflow(name="crash-threads")
def threads_(n: int) -> list[Any]:
    both = holdfast.gather(lambda: think("one", 1), lambda: put("two", "2"), limit=1)
    some = holdfast.map(lambda k: think(f"many-{k}", k), range(n), limit=1)
    holdfast.timeout(60, lambda: think("in time", 1))
    try:
        holdfast.timeout(60, lambda: holdfast.sleep(3600))
    except TimedOut:
        return [both, some, "late"]
    return [both, some]


def threads(desk: Desk) -> None:
    """The same in a sync workflow. One branch at a time, so that each run of it has the same points."""
    run = settle(desk, begin(desk, threads_, 2, id="threads"))
    assert run.result() == [["thought of one", "put two"], ["thought of many-0", "thought of many-1"], "late"]


@holdfast.workflow(name="crash-child")
def child_(name: str) -> str:
    put(name, "small")
    return f"{name} {holdfast.ask(f'{name}?', str)}"


@holdfast.workflow(name="crash-sick", on_failure="rollback")
def sick_(name: str) -> None:
    put(name, "sick")
    fail(f"{name}-fails")


@holdfast.workflow(name="crash-parent")
def parent_(name: str) -> str:
    put(name, "large")
    try:
        sick_(f"{name}-sick")
    except ValueError as error:
        told = str(error)
    return f"{child_(f'{name}-child')}, and {told}"


def family(desk: Desk) -> None:
    """A child that asks, and one that fails and takes back what it did."""
    run = begin(desk, parent_, "parent", id="parent")
    for _ in range(20):
        if run.status in ENDED:
            break
        with suppress(RunNotFound):
            settle(desk, desk.hf.get("parent/crash-child#1"), {"parent-child?": "grows"})
        run.resume()
    desk.note(run)
    assert run.result() == "parent-child grows, and parent-sick-fails is broken"


@holdfast.workflow(name="crash-lost")
def lost_(name: str) -> str:
    put(name, "lost")
    return child_(f"{name}-child")


def orphan(desk: Desk) -> None:
    """A parent is cancelled with its child, and both undo what they did."""
    run = begin(desk, lost_, "lost", id="lost")
    if run.status is not Status.CANCELLED:
        run.cancel("changed our mind", undo=True, by="operator")
        desk.note(run)


@holdfast.workflow(name="crash-draft")
def draft_(name: str) -> str:
    first = put(f"{name}-1", "draft")
    second = put(f"{name}-2", "draft")
    mood = holdfast.ask("Good?", str)
    put(f"{name}-3", mood)
    return f"{first}, {second}, {mood}"


def back(desk: Desk) -> None:
    """A run is rolled back to its first step, with its effects undone, and goes on; then it is forked."""
    run = begin(desk, draft_, "draft", id="draft")
    if run.checkpoint().generation == 0:
        settle(desk, run, {"Good?": "bad"})
        if run.status is Status.COMPLETED:
            first = next(step for step in run.steps() if step.key == "put#1")
            run.rollback(first.seq)
            desk.note(run)
    settle(desk, run, {"Good?": "good"})
    assert run.result() == "put draft-1, put draft-2, good"
    try:
        other = desk.hf.get("other")
    except RunNotFound:
        other = run.fork(answers={"ask#1": "better"}, id="other")
    desk.note(other)
    other.resume()
    desk.note(other)
    assert other.result() == "put draft-1, put draft-2, better"


@holdfast.workflow(name="crash-broken", on_failure="rollback")
def broken_(name: str) -> None:
    put(f"{name}-1", "x")
    pay(f"{name}-pay", 1)
    holdfast.sleep(60)
    fail(f"{name}-fails")


def mend(desk: Desk) -> None:
    """A failed workflow undoes what it did, and fails again when it is tried again."""
    run = settle(desk, begin(desk, broken_, "broken", id="broken"))
    assert run.status is Status.FAILED
    if not run.history(kind=Kind.RETRIED):
        run.retry(by="operator")
        desk.note(run)
    settle(desk, run)
    assert run.status is Status.FAILED


WORKFLOWS: dict[str, Part] = {part.__name__: part for part in (order, talk, fan, threads, family, orphan, back, mend)}
