"""An order, as an ordinary function that survives being killed.

    export SHOP=/tmp/shop
    python examples/order.py stock lamp=3 desk=1
    python examples/order.py place A-17 4200 lamp desk      # works until a person is asked, or it is killed
    python examples/order.py answer A-17 --carrier post     # or: --refuse "no such street"
    python examples/order.py work                           # a worker: goes on with whatever is due
    python examples/order.py undo A-17                      # takes all of it back

Kill it wherever you like, and go on with ``work``. What was done is not done again. If a person refuses, or something
is sold out, the order fails, and what it did is undone by itself (``on_failure="rollback"``).
"""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import dataclass
from typing import Literal

import shop

import holdfast
from holdfast import ask, note, workflow


@dataclass
class Approval:
    """What a person is asked before anything is sent. It makes the form, and each answer is checked against it."""

    ship: bool
    carrier: Literal["post", "courier"] = "post"
    words: str = ""


class Refused(Exception):
    """A person said no."""


@workflow(on_failure="rollback")
def fulfil(order: str, cents: int, items: list[str]) -> str:
    """From the order to the parcel."""
    shop.charge(order, cents)
    for item in items:
        shop.reserve(order, item)
    note(f"{order} is paid and put aside")
    approval: Approval = ask(f"Ship {', '.join(items)} for {cents / 100:.2f}?", Approval)  # the process may end here
    if not approval.ship:
        raise Refused(approval.words or "a person said no")
    shop.ship(order, approval.carrier, approval.words)
    shop.thank(order, f"Your order {order} is on its way.")
    return f"{order} went out by {approval.carrier}"


def main() -> int:
    arguments = argparse.ArgumentParser(description="Orders that survive being killed.")
    commands = arguments.add_subparsers(dest="command", required=True)
    stock = commands.add_parser("stock", help="fill the shelves")
    stock.add_argument("items", nargs="+", metavar="ITEM=NUMBER")
    place = commands.add_parser("place", help="place an order, or go on with it")
    place.add_argument("order")
    place.add_argument("cents", type=int)
    place.add_argument("items", nargs="+")
    answer = commands.add_parser("answer", help="answer what an order asks")
    answer.add_argument("order")
    answer.add_argument("--carrier", default="post")
    answer.add_argument("--refuse", metavar="WHY")
    commands.add_parser("work", help="go on with whatever is due, until Ctrl-C")
    undo = commands.add_parser("undo", help="take an order back")
    undo.add_argument("order")
    given = arguments.parse_args()
    shop.SHOP.mkdir(parents=True, exist_ok=True)
    try:
        with holdfast.open(f"sqlite:///{shop.SHOP}/orders.db") as hf:
            return act(hf, given)
    except (holdfast.HoldfastError, Refused, LookupError) as problem:
        print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        return 1


def act(hf: holdfast.Holdfast, given: argparse.Namespace) -> int:
    """Do what the command line says."""
    if given.command == "stock":
        with shop.opened("stock") as shelves:
            shelves.update({name: int(number) for name, _, number in (item.partition("=") for item in given.items)})
    elif given.command == "work":
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
        hf.work()  # until SIGTERM or Ctrl-C
    elif given.command == "place":
        run = hf.start(fulfil, given.order, given.cents, given.items, id=given.order)
        for question in run.questions():
            print(f"asks   {question.prompt}")
        if run.status != "waiting":
            print(f"done   {run.result()}")
    elif given.command == "answer":
        refused = given.refuse is not None
        hf.get(given.order).answer(
            {"ship": False, "words": given.refuse} if refused else {"ship": True, "carrier": given.carrier},
            by="terminal",
        )
    else:
        report = hf.get(given.order).rollback(to=0, then="cancelled")  # or else it would begin anew
        for effect in report.irreversible:
            print(f"stays  {effect.tool}, {effect.target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
