"""One run of each kind that the terminal and the page describe, in one store."""

from __future__ import annotations

from pathlib import Path

import selling
import voyages

import holdfast
from holdfast import Holdfast, Secret, ask, flow, step, workflow
from holdfast.errors import UndoFailed

FLOW = (
    "name: hello\nvars:\n  who: world\nsteps:\n  - {id: say, run: 'true'}\n  - {id: ok, ask: 'Well, {{ vars.who }}?'}\n"
)
VALUE = "hunter2-hunter2"


@step(at_most_once=True)
def wire(n: int) -> int:
    raise ConnectionError("the line went dead")


@step(retries=3, delay=3600)
def dial(number: str) -> str:
    raise ConnectionError("nobody answers")


@workflow
def count_down(n: int) -> str:
    selling.pack(f"crate {n}")
    if n > 0:
        holdfast.continue_as_new(n - 1)
    return str(ask("Lift off?", str))


@workflow
def pay(n: int) -> int:
    return wire(n)


@workflow
def call_up(number: str) -> str:
    return dial(number)


@workflow
def outer(order: str) -> str:
    return selling.sell(order, 100)


@workflow
def sign_in(name: str, password: Secret) -> str:
    return selling.pack(name)


@workflow
def receiver(topic: str) -> object:
    return holdfast.receive(topic)


def fill(hf: Holdfast, folder: Path) -> list[str]:
    """Make one run of each kind; their ids."""
    hf.start(selling.sell, "A-1", 4200, id="asks")
    hf.start(count_down, 2, id="anew")
    graph = hf.start(voyages.ship, {"log": ["of old"]}, id="edited")
    graph.edit({"log": ["by hand"]})
    rolled = hf.start(selling.sell, "A-2", 4200, id="rolled back")
    rolled.rollback(to=0, then="cancelled", by="gina")
    selling.closed.append("A-3")
    stuck = hf.start(selling.sell, "A-3", 4200, id="undo failed")
    try:
        stuck.rollback(to=0)
    except UndoFailed:
        selling.closed.clear()
    hf.get("asks").fork(id="fork", input={"cents": 1})
    hf.get("anew").fork(id="fork of anew", input={"n": 7})
    hf.start(outer, "A-4", id="parent")
    hf.start(receiver, "parcel", id="waits")
    hf.start(pay, 3, id="uncertain")
    hf.start(selling.sell, "A-5", 4200, id="cancelled").cancel("no longer wanted", by="gina")
    hf.start(selling.broken, 3, id="failed")
    hf.start(selling.draft, {"text": "", "notes": []}, id="graph")
    hf.start(call_up, "five", id="retries")
    hf.start(sign_in, "ann", Secret(VALUE, "password"), id="secret")
    path = folder / "hello.yaml"
    path.write_text(FLOW)
    flow.load(path).start(hf, {"who": "moon"}, id="flow")
    erased = hf.start(selling.room, "attic", id="erased")
    erased.redact(0, 1, by="gina", why="asked to")
    answered = hf.start(selling.sell, "A-6", 4200, id="answered")
    answered.answer(selling.Shipping("post", 1.0), by="gina")
    hand = hf.run("by hand")
    with hand.claim():
        hand.save({"n": 1}, next="tool")
        hand.once("first", int, 7)
        hand.fail("it did not work")
    lost = hf.run("lost by hand")
    lost.claim()
    lost.once("first", int, 7)
    record = hf.client.store.get("lost by hand")
    assert record is not None
    assert record.worker is not None
    died = hf.enqueue(selling.room, "attic", queue="mail", id="died")
    hf.client.store.claim(died.uid, "another.process")
    hf.client.store.beat("another.process", 0)
    return [info.id for info in hf.runs(limit=100)]
