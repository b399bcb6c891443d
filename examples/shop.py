"""The shop of the example order: what its steps do to the world, and how each of them is taken back.

The world is a folder of JSON files (``SHOP=folder``, by default ``shop``): ``bank.json`` is the bank's account book,
``stock.json`` the shelves, ``parcels.json`` what the carrier fetches, ``mail.json`` what customers read.

The steps live in a module of their own, not in the script: an undo is stored by its name (``shop:refund``), and
whoever rolls a run back later must be able to import it by that name. So have this folder on PYTHONPATH there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import Done, NotDone, step, this_step

SHOP = Path(os.environ.get("SHOP", "shop"))
SECONDS = float(os.environ.get("STEP_SECONDS", "0"))  # how long a step takes; the demo needs time to kill it


def read(name: str) -> dict[str, Any]:
    """What is in one of the shop's files."""
    path = SHOP / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


@contextmanager
def opened(name: str) -> Iterator[dict[str, Any]]:
    """One of the shop's files, to change."""
    path, content = SHOP / f"{name}.json", read(name)
    yield content
    SHOP.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(json.dumps(content, indent=1))
    path.with_suffix(".new").replace(path)


def tell(what: str, text: str) -> None:
    """Show that something was really done. Killed now, its step has acted, and nobody wrote that down."""
    print(f"{what}   {text}", flush=True)
    time.sleep(SECONDS)


@step(retries=3, delay=0.2, retry_on=ConnectionError, target="card of {order}")
def charge(order: str, cents: int) -> str:
    """Take the money. A bank that is given the same key twice charges once, so a crash in the act does no harm."""
    key = this_step().idempotency_key
    with opened("bank") as bank:
        bank.setdefault(key, {"order": order, "cents": cents})
    tell("step", f"charge {order}: {cents / 100:.2f}")
    return key


@charge.undo
def refund(receipt: str, order: str, cents: int) -> None:
    """An undo gets the step's result, then its arguments. It may be called twice, if its process dies in the act."""
    tell("undo", f"refund {order}: {cents / 100:.2f}")
    with opened("bank") as bank:
        bank.pop(receipt, None)


@step(target="{item}")
def reserve(order: str, item: str) -> str:
    """Put one aside."""
    key = this_step().idempotency_key
    with opened("stock") as stock:
        kept = stock.setdefault("kept", {})
        if key not in kept:
            if stock.get(item, 0) < 1:
                raise LookupError(f"{item} is sold out")
            stock[item] -= 1
            kept[key] = f"{item} for {order}"
    tell("step", f"reserve {item}")
    return key


@reserve.undo
def put_back(kept_under: str, order: str, item: str) -> None:
    tell("undo", f"put back {item}")
    with opened("stock") as stock:
        if stock["kept"].pop(kept_under, None) is not None:
            stock[item] += 1


@step(target="parcel of {order}")
def ship(order: str, carrier: str, note: str) -> str:
    """Hand the parcel over."""
    key = this_step().idempotency_key
    with opened("parcels") as parcels:
        parcels[key] = f"{order} by {carrier}" + (f", with a note: {note}" if note else "")
    tell("step", f"ship {order} by {carrier}")
    return key


@ship.undo
def call_back(parcel: str, order: str, carrier: str, note: str) -> None:
    tell("undo", f"call the parcel of {order} back from {carrier}")
    with opened("parcels") as parcels:
        parcels.pop(parcel, None)


@step(at_most_once=True, target="customer of {order}")
def thank(order: str, text: str) -> None:
    """Write to the customer. That cannot be taken back, and must not happen twice."""
    with opened("mail") as mail:
        mail.setdefault(order, []).append(text)
    tell("step", f"write to the customer of {order}")


@thank.check
def was_sent(order: str, text: str) -> Done | type[NotDone]:
    """Asked if a process died in the act: was it done?"""
    return Done(None) if text in read("mail").get(order, []) else NotDone
