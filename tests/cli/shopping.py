"""Workflows for the tests of the command line, which are named by the path of this file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import holdfast
from holdfast import Secret, ask, note, sleep, step, workflow

undone: list[str] = []
broken = {"printer": True, "bank": False}


@dataclass
class Shipping:
    carrier: Literal["post", "courier"]
    parcels: int = 1
    insured: bool = False

    def __post_init__(self) -> None:
        if self.insured and self.carrier == "post":
            raise ValueError("the post insures nothing")


@step(target="card of {order}", undo_retries=0)
def charge(order: str, cents: int) -> str:
    return f"receipt of {order}"


@charge.undo
def refund(receipt: str, order: str, cents: int) -> None:
    if broken["bank"]:
        raise ConnectionError("the bank is closed")
    undone.append(receipt)


@step
def ship(order: str, carrier: str) -> str:
    return f"{order} by {carrier}"


@workflow(name="shopping.sell")
def sell(order: str, cents: int = 100, *, gift: bool = False) -> str:
    charge(order, cents)
    note("paid")
    shipping = ask("How shall it go?", Shipping)
    return ship(order, shipping.carrier)


@step
def label(order: str) -> str:
    if broken["printer"]:
        raise RuntimeError("the printer is on fire")
    return f"label of {order}"


@workflow(name="shopping.fails")
def fails(order: str = "A-1") -> str:
    charge(order, 1)
    return label(order)


@workflow(name="shopping.quick")
def quick(n: int = 1) -> dict[str, int]:
    print("printed by quick")
    return {"n": n}


@step
def count(n: int) -> int:
    time.sleep(0.02)
    return n * 2


@workflow(name="shopping.counts")
def counts(n: int = 20) -> list[int]:
    return holdfast.map(count, range(n), limit=4)  # type: ignore[no-any-return]


@workflow(name="shopping.family")
def family() -> str:
    return f"child gave {sell('B-1')}"


@workflow(name="shopping.naps")
def naps(seconds: float = 0.01) -> str:
    sleep(seconds)
    return "awake"


@step
def slow(seconds: float, marker: str) -> str:
    Path(marker).write_text("begun")
    time.sleep(seconds)
    return "slow"


@workflow(name="shopping.slowly")
def slowly(seconds: float, marker: str) -> str:
    charge("S-1", 1)
    return slow(seconds, marker)


@workflow(name="shopping.typed")
def typed(shipping: Shipping, paths: list[Path], many: dict[str, Any], one: int | str = 1) -> str:
    return f"{shipping.carrier} {paths} {many} {one!r}"


@workflow(name="shopping.sealed")
def sealed(key: Secret) -> int:
    return len(key.reveal())


@step(at_most_once=True)
def once_only(order: str) -> str:
    raise TimeoutError("no word")


@workflow(name="shopping.risky")
def risky() -> str:
    return once_only("R-1")


@step(at_most_once=True)
def mail_once(order: str) -> None:
    raise TimeoutError("no word")


@workflow(name="shopping.risky_mail")
def risky_mail() -> str:
    mail_once("R-1")
    return "mailed"


@workflow(name="shopping.waits")
def waits() -> str:
    return f"got {holdfast.receive('payments')}"


kind: list[Any] = [str]


@workflow(name="shopping.asks_one")
def asks_one() -> str:
    return f"{ask('What?', kind[0])}"


not_a_workflow = 7


packed_by = {"how": "one by one"}


@workflow(name="shopping.pack")
def pack(order: str = "A-1") -> str:
    if packed_by["how"] == "one by one":
        packed = ship(order, "hand")
    else:
        [packed] = holdfast.gather(lambda: ship(order, "hand"))
    ask("Is it packed?", bool)
    return packed
