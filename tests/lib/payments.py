"""Payments of every type, which one process makes and another one undoes. See tests/engine/test_undos_elsewhere.py.

A command opens the store, does one thing and prints what came of it as JSON. What was done to the world stands in a
file, one line of JSON for each payment and for each call of an undo.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic

import holdfast
from holdfast import Holdfast, ask, step, this_step, workflow
from holdfast.errors import Claimed, HoldfastError


class Died(BaseException):
    """Stands for the death of the process where there is only one."""


@dataclass
class Coins:
    cents: int


class Card(msgspec.Struct):
    number: str
    coins: Coins


class Bill(pydantic.BaseModel):
    number: str
    coins: Coins


class Parcel(TypedDict):
    weight: int
    coins: Coins


world = Path(os.environ.get("PAYMENTS", os.devnull))
trouble: dict[str, str] = {}  # what becomes of the undo of this name: it "raises", or its process "dies"


def note(what: str, *values: Any) -> None:
    """Write to the world what was done, and with values of which types."""
    kinds = [type(value).__name__ for value in values]
    line = {"what": what, "types": kinds, "values": [str(value) for value in values]}
    with world.open("a") as file:
        file.write(json.dumps({**line, "key": this_step().idempotency_key}) + "\n")


def undo(what: str, *values: Any) -> None:
    """Undo a payment, as far as there is no trouble."""
    note(what, *values)
    if trouble.get(what) == "raises":
        raise ConnectionError("the bank does not answer")
    if trouble.get(what) == "dies":
        if os.environ.get("PAYMENTS") is None:
            raise Died
        os._exit(9)


# --- of some only the step is annotated, of some only the undo, and of some neither says all


@step(undo_retries=0)
def pay_coins(given: Coins) -> Coins:
    note("pay_coins", given)
    return Coins(given.cents + 1)


@pay_coins.undo
def refund_coins(result, given):  # type: ignore[no-untyped-def]
    undo("refund_coins", result, given)


def refund_card(result: Card, given: Card, *, tip: Coins) -> None:
    undo("refund_card", result, given, tip)


@step(undo=refund_card, undo_retries=0)
def pay_card(given, *, tip):  # type: ignore[no-untyped-def]
    note("pay_card", given, tip)
    return given


@step(undo_retries=0)
async def pay_bill(given: Bill, more) -> list[Bill]:  # type: ignore[no-untyped-def]
    note("pay_bill", given, *more)
    return [given, *more]


@pay_bill.undo
async def refund_bill(result, given, more: tuple[Bill, ...]):  # type: ignore[no-untyped-def]
    await asyncio.sleep(0)
    undo("refund_bill", result[0], given, *more)


@step(undo_retries=0)
def send_parcel(given: Parcel) -> Parcel:
    note("send_parcel", given["coins"])
    return given


@send_parcel.undo
def take_parcel_back(result: Parcel, given: Parcel) -> None:
    undo("take_parcel_back", result["coins"], given["coins"])


CARD, BILL = Card("4242", Coins(5)), Bill(number="17", coins=Coins(7))


@workflow
def pays() -> None:
    pay_coins(Coins(1))
    pay_card(CARD, tip=Coins(2))
    send_parcel({"weight": 3, "coins": Coins(3)})
    ask("well?", str)


@workflow
async def pays_async() -> None:
    pay_coins(Coins(1))
    await pay_bill(BILL, (BILL, BILL))
    send_parcel({"weight": 3, "coins": Coins(3)})
    await ask("well?", str)


# --- effects in flight


@step(undo_retries=0)
async def pay_slowly(given: Coins, sibling: str) -> Coins:
    """Begins before its sibling fails, and ends long after that."""
    begun[sibling].set()
    await over[sibling].wait()
    for _ in range(20):
        await asyncio.sleep(0)
    note("pay_slowly", given)
    return Coins(given.cents + 1)


@pay_slowly.undo
async def refund_slowly(result, given, sibling):  # type: ignore[no-untyped-def]
    undo("refund_slowly", result, given)


@step
async def fail(sibling: str) -> None:
    await begun[sibling].wait()
    over[sibling].set()
    raise ValueError("a sibling failed")


@step(target="nobody knows")
async def hang(sibling: str) -> None:
    begun[sibling].set()
    await asyncio.Event().wait()


begun: dict[str, asyncio.Event] = {}
over: dict[str, asyncio.Event] = {}


def siblings(name: str) -> str:
    begun[name], over[name] = asyncio.Event(), asyncio.Event()
    return name


@workflow(on_failure="rollback")
async def gathers() -> None:
    one = siblings("gather")
    await asyncio.gather(pay_slowly(Coins(1), one), fail(one))


@workflow(on_failure="rollback")
async def groups() -> None:
    one = siblings("group")
    async with asyncio.TaskGroup() as group:
        group.create_task(pay_slowly(Coins(1), one))
        group.create_task(fail(one))


@workflow(on_failure="rollback")
async def hangs() -> None:
    one = siblings("hang")
    pay_coins(Coins(1))
    await asyncio.gather(hang(one), fail(one))


# --- commands


def begin(hf: Holdfast, *names: str) -> None:
    """Start a run of each workflow, under its name."""
    for name in names:
        hf.start(globals()[name], id=name)


def rollback(hf: Holdfast, *names: str) -> None:
    for name in names:
        hf.get(name).rollback(to=0, then="cancelled")


def proceed(hf: Holdfast, *names: str) -> None:
    """Roll back again, once nobody holds the run: it ends as it was going to."""
    for name in names:
        while True:
            try:
                hf.get(name).rollback(to=0)
                break
            except Claimed:  # by a process that died: across machines that is known when its lease is over
                time.sleep(0.05)


def force(hf: Holdfast, *names: str) -> None:
    for name in names:
        hf.get(name).cancel("enough", undo=True, force=True)


def plan(hf: Holdfast, *names: str) -> None:
    """Look, and do nothing."""


def main(url: str, command: str, names: list[str], **how: str) -> dict[str, Any]:
    """Do one thing in the store: the error it ended with, and each run's status, reason, effects and plan."""
    trouble.clear()
    trouble.update(how)
    error = ""
    lease = 1.0 if "dies" in how.values() else 30.0
    with holdfast.open(url, lease=lease, effect_wait=0.05 if "hangs" in names else 30.0) as hf:
        try:
            globals()[command](hf, *names)
        except (HoldfastError, Died) as raised:
            error = f"{type(raised).__name__}: {raised}"
        runs = {}
        for name in names:
            run = hf.get(name)
            steps = run.plan_rollback(0).steps if run.status != "failed" else ()
            runs[name] = {
                "status": run.status,
                "reason": run.info().reason,
                "effects": {one.key: one.status for one in run.effects()},
                "plan": {one.effect.key: [one.action, one.problem] for one in steps},
            }
    return {"error": error, **runs}


def from_command_line() -> None:
    """For a process of its own."""
    url, command, names, how = sys.argv[1:]
    print(json.dumps(main(url, command, names.split(","), **json.loads(how))))
