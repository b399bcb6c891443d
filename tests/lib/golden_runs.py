"""The workflows of the golden stores (tests/golden). A stored run names them, so what they do must stay as it is."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypedDict
from uuid import UUID

import msgspec
import pydantic

import holdfast
from holdfast import END, Graph, Keyring, Secret, append, ask, flow, receive, sleep, step, workflow

KEYS = Keyring({"golden": bytes(range(32))}, current="golden")
FLOW = """
name: golden-flow
vars: {place: hall}
steps:
  - {id: say, run: 'echo tidy the {{ vars.place | quote }}'}
  - {id: sure, ask: {prompt: 'Sure?', type: text}}
outputs: {said: '{{ steps.say.stdout | trim }}', sure: '{{ steps.sure.result }}'}
"""
undone: list[Any] = []


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    number: int


class Parcel(msgspec.Struct):
    to: Address
    grams: Decimal


class Order(pydantic.BaseModel):
    id: str
    parcels: int


class Row(TypedDict):
    name: str


def everything() -> dict[str, Any]:
    """One value of each kind that can be stored."""
    return {
        "none": None,
        "numbers": [1, -(2**70), 1.5, float("inf"), True, Decimal("1.10")],
        "text": 'é " \u2028 😀',
        "bytes": b"\x00\xff",
        "times": [datetime(2024, 2, 29, 12, tzinfo=UTC), date(2024, 2, 29), timedelta(days=1, microseconds=1)],
        "sets": [{1, 2}, frozenset({"a"}), (1, ("x",))],
        "keys": {1: "one", (2, 3): "pair", None: "none"},
        "tag": {"$": "not a tag"},
        "others": [UUID(int=5), PurePosixPath("a/b"), Colour.RED],
        "classes": [Address("Main", 1), Parcel(Address("Side", 2), Decimal("3.5")), Order(id="o", parcels=2)],
        "row": Row(name="r"),
    }


@step
def makes_everything() -> dict[str, Any]:
    return everything()


@step
def doubles(n: int) -> int:
    return 2 * n


@step(target="account {name}")
def charge(name: str, cents: int) -> str:
    return f"receipt for {cents}"


@charge.undo
def refund(receipt: str, name: str, cents: int) -> None:
    undone.append((receipt, name, cents))


@step(at_most_once=True)
def transfers() -> None:
    raise TimeoutError("no answer from the bank")


@step
def fails() -> None:
    raise LookupError("nothing there")


@workflow
def completes() -> dict[str, Any]:
    return makes_everything()


@workflow
def fails_at_last(n: int) -> None:
    doubles(n)
    fails()


@workflow
def asks(n: int) -> str:
    doubled = doubles(n)
    address: Address = ask("Where to?", Address)
    return f"{doubled} to {address.street} {address.number}"


@workflow
def buys(name: str) -> str:
    receipt = charge(name, 500)
    return f"{receipt}, {ask('Go on?', str)}"


@workflow
def listens() -> list[Any]:
    return [receive(topic="a"), receive(topic="b")]


@workflow
def sleeps() -> str:
    sleep(timedelta(days=36500))
    return "awake"


@workflow
def blocks() -> None:
    transfers()


@workflow
def child(n: int) -> str:
    return f"child of {ask(f'Which, {n}?', int)}"


@workflow
def parent(n: int) -> str:
    return f"parent of {child(n)}"


@workflow
def reports(kind: str) -> str:
    return f"report of {kind}"


@workflow
def keeps(token: Secret, word: str) -> str:
    return f"{word} {ask('Which?', str)} {token}"


class Draft(TypedDict):
    text: str
    notes: Annotated[list[str], append]


draft = Graph(Draft, name="golden-draft")


@draft.node
def write(state: Draft) -> dict[str, Any]:
    return {"text": f"draft {len(state['notes'])}", "notes": ["written"]}


@draft.node
def review(state: Draft) -> dict[str, Any]:
    return {"notes": [ask(f"What of {state['text']}?", str)]}


draft.entry(write)
draft.edge(write, review)
draft.edge(review, END)


def fill(url: str) -> None:
    """Put a run of each kind into an empty store. A file is left in the current folder."""
    with holdfast.open(url) as hf:
        hf.start(completes, id="completed", tags={"team": "sales", "ü": "é"}).result()
        failed = hf.start(fails_at_last, 3, id="failed")
        assert failed.status == "failed"
        hf.start(asks, 1, id="cancelled").cancel("no longer wanted", by="kim")
        hf.start(asks, 2, id="asking", tags={"team": "sales"})
        hf.start(asks, 3, id="answered")
        hf.get("asking").fork(id="forked", by="kim")
        hf.start(buys, "kim", id="buying")
        hf.start(listens, id="listening").send({"n": 1}, topic="b")
        hf.start(sleeps, id="sleeping")
        hf.start(blocks, id="blocked")
        hf.start(parent, 7, id="parent")
        hf.enqueue(reports, "stock", id="queued", queue="mail", priority=3, key="lane")
        hf.queue("mail", limit=2, per_key=1)
        hf.schedule(
            reports, "sales", cron="30 0 9 * * 1-5", tz="Europe/Oslo", id="weekly", tags={"a": "b"}, paused=True
        )
        hf.start(draft, {"text": "", "notes": []}, id="graph")
        Path("golden.yaml").write_text(FLOW)
        flow.load("golden.yaml").start(hf, {"place": "attic"}, id="flow")
        by_hand = hf.run("by-hand", workflow="loop", definition={"v": 1})
        with by_hand.claim():
            start = by_hand.save({"lines": ["one"], "address": Address("Main", 1)}, next="tool", queue=[["tool", 4]])
            by_hand.once("write", str.upper, "x", target="a.txt")
            by_hand.save({"lines": ["one", "two"], "address": Address("Main", 2)})
        by_hand.rollback(to=start)
        by_hand.save({"lines": ["one", "other"], "address": Address("Main", 3)})
        erased = hf.run("erased")
        erased.save({"text": "to be forgotten"})
        erased.redact(1)
    with holdfast.open(url) as other:
        other.get("answered").answer(Address("Side", 9), by="lee")
    with holdfast.open(url, keys=KEYS) as sealed:
        sealed.start(keeps, Secret("golden-secret-value", "token"), "kept", id="encrypted")
    dying = holdfast.open(url)
    run = dying.run("running")
    run.claim()
    run.save({"n": 1})
    dying.client.engine.worker.stop()
    dying.client.store.drop()
