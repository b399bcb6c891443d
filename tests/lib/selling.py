"""Workflows and a graph for the tests of the pages: with everything that a page shows."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

from holdfast import END, Graph, append, ask, emit, note, step, this_step, workflow

undone: list[str] = []
closed: list[str] = []  # the orders that the bank refuses to refund
gate = threading.Event()  # what `slow` waits for


@dataclass
class Shipping:
    carrier: Literal["post", "courier"]
    weight: float
    insured: bool = False
    words: str = ""


@step(target="card of {order}", undo_retries=0)
def charge(order: str, cents: int) -> str:
    return f"receipt of {order}"


@charge.undo
def refund(receipt: str, order: str, cents: int) -> None:
    if order in closed:
        raise ConnectionError("the bank is closed")
    undone.append(receipt)


@step(target="mailbox of {order}")
def mail(order: str) -> str:
    return "sent"


@step
def pack(item: str) -> str:
    return f"{item} packed"


@step(retries=2, delay=0.01)
def label(order: str) -> str:
    if this_step().attempt == 1:
        raise ConnectionError("the printer is out of paper")
    return f"label of {order}"


@workflow
def sell(order: str, cents: int) -> str:
    receipt = charge(order, cents)
    label(order)
    note(f"{order} is paid")
    emit({"paid": cents})
    mail(order)
    shipping: Shipping = ask(f"How shall {order} go?", Shipping)
    return f"{receipt}, by {shipping.carrier}"


@step
def slow(n: int) -> int:
    gate.wait(20)
    return n


@workflow
def long(n: int) -> int:
    pack("first")
    return slow(n)


@workflow
def broken(n: int) -> None:
    pack("x")
    raise ValueError(f"there are no {n}")


@workflow
def room(name: str) -> str:
    return pack(f"desk in {name}")


@workflow
def house(rooms: list[str]) -> list[str]:
    return [room(name) for name in rooms]


class Draft(TypedDict):
    text: str
    notes: Annotated[list[str], append]


draft = Graph(Draft, name="draft")


@draft.node
def write(state: Draft) -> dict[str, str]:
    return {"text": f"draft {len(state['notes']) + 1}"}


@draft.node
def review(state: Draft) -> dict[str, list[str]]:
    return {"notes": [f"read {state['text']}"]}


draft.entry(write)
draft.edge(write, review)
draft.route(review, lambda state: END if len(state["notes"]) >= 2 else "write", to=["write", END])
