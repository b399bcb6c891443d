"""Makes docs/pictures/page-*.png, the pictures of the web page in the README, from real runs in a real browser.

A shop is filled with orders by its own program, `holdfast ui` serves it, and Chromium looks at it. `make docs` calls
this; without Chromium it says so, and leaves the pictures as they are. Times on them differ with each making.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
SIZE = {"width": 1180, "height": 760}

SHOP = """\
import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Literal, TypedDict

import holdfast
from holdfast import END, Graph, aio, append, emit, note, step, this_step, workflow

@dataclass
class Shipping:
    carrier: Literal["post", "courier", "bicycle"]
    insured: bool = False
    words: str = ""

@step(target="card of {order}")
async def charge(order: str, cents: int) -> str:
    await asyncio.sleep(0.4)
    return f"receipt of {order}"

@charge.undo
def refund(receipt: str, order: str, cents: int) -> None: ...

@step
async def pack(item: str) -> str:
    await asyncio.sleep(0.15 + 0.12 * (len(item) % 4))
    return f"{item} packed"

@step(retries=3, delay=0.35)
async def label(order: str) -> str:
    await asyncio.sleep(0.2)
    if this_step().attempt < 3:
        raise ConnectionError("the printer is out of paper")
    return f"label of {order}"

@step(target="mailbox of {order}")
async def thank(order: str) -> str:
    await asyncio.sleep(0.1)
    return "sent"

@workflow
async def fulfil(order: str, cents: int, items: list[str]) -> str:
    await charge(order, cents)
    note(f"{order} is paid")
    await aio.map(pack, items)
    await label(order)
    await thank(order)
    emit({"order": order, "parcels": 1})
    shipping = await aio.ask(f"How shall order {order} be sent?", Shipping)
    return f"{order} goes by {shipping.carrier}"

@step
def stock(day: str) -> int:
    raise LookupError(f"there is no list of {day}")

@workflow
def count(day: str) -> int:
    return stock(day)

@step
def load(day: int) -> int:
    time.sleep(30)
    return day

@workflow
def backfill(days: int) -> int:
    note(f"loading {days} days")
    return sum(load(day) for day in range(days))

@step(target="account of {to}", at_most_once=True)
def transfer(to: str, cents: int) -> str:
    raise TimeoutError("the bank does not answer")

@workflow
def pay(to: str, cents: int) -> str:
    return transfer(to, cents)

class Draft(TypedDict):
    text: str
    notes: Annotated[list[str], append]

letter = Graph(Draft, name="letter")

@letter.node
def write(state: Draft) -> dict:
    time.sleep(0.2)
    return {"text": f"draft {len(state['notes']) + 1}"}

@letter.node
def review(state: Draft) -> dict:
    time.sleep(0.1)
    return {"notes": [f"read {state['text']}"]}

letter.entry(write)
letter.edge(write, review)
letter.route(review, lambda state: END if len(state["notes"]) >= 3 else "write", to=["write", END])

async def orders(hf: holdfast.AsyncHoldfast) -> None:
    for order, items in (("A-17", ["lamp", "desk"]), ("A-18", ["vase"]), ("A-19", ["lamp", "stool", "clock", "mat"])):
        tags = {"customer": order[-2:], "shop": "north"}
        run = await hf.start(fulfil, order, 4200, items, id=f"order/{order}", tags=tags)
        while not await run.questions():
            await asyncio.sleep(0.05)
    first = await hf.get("order/A-17")
    await first.answer(Shipping("post"), by="front desk")
    await first.resume()
    other = await first.fork(answers={"ask#1": Shipping("bicycle")}, id="order/A-17 by bicycle")
    await other.resume()

def others(hf: holdfast.Holdfast) -> None:
    hf.start(letter, {"text": "", "notes": []}, id="letter-1", tags={"to": "press"}).result()
    hf.start(count, "Monday", id="count-monday")
    hf.start(pay, "the mill", 9900, id="pay-the-mill")
    hf.enqueue(fulfil, "A-20", 990, ["rug"], id="order/A-20", tags={"customer": "20", "shop": "south"}, delay=3600)
    hf.enqueue(backfill, 30, id="backfill-2026")

async def begin() -> None:
    async with holdfast.open("sqlite:///shop.db") as hf:
        await orders(hf)

def fill() -> None:
    asyncio.run(begin())
    with holdfast.open("sqlite:///shop.db") as hf:
        others(hf)
"""


def main() -> int:
    path = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
    if path is None:
        print("docs/pictures/page-*.png stay as they are: there is no chromium on PATH")
        return 0
    with tempfile.TemporaryDirectory(prefix="holdfast-pictures-") as folder:
        (Path(folder) / "shop.py").write_text(SHOP, encoding="utf-8")
        environment = {**os.environ, "HOLDFAST_STORE": "sqlite:///shop.db", "PYTHONPATH": folder}
        quiet = subprocess.DEVNULL  # that a run fails is told, and meant
        subprocess.run(
            [sys.executable, "-c", "import shop; shop.fill()"], cwd=folder, env=environment, check=True, stderr=quiet
        )
        with (
            _started("worker", "shop", folder=folder, environment=environment),
            _started(
                "ui", "-m", "shop", "--port", "0", "--as", "operator", "--json", folder=folder, environment=environment
            ) as server,
        ):
            assert server.stdout is not None
            take(path, json.loads(server.stdout.readline())["url"])
    return 0


class _started:
    """A command of Holdfast's that runs as long as the block."""

    def __init__(self, *words: str, folder: str, environment: dict[str, str]) -> None:
        command = [str(BIN / "holdfast"), *words]
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> subprocess.Popen[str]:
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def take(path: str, url: str) -> None:
    """Look at the pages, and write the pictures."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        for name, address, scheme in (
            ("page-runs.png", "", "light"),
            ("page-run.png", "runs/order%2FA-19", "dark"),
        ):
            context = browser.new_context(viewport=SIZE, device_scale_factor=1.5, color_scheme=scheme)
            page = context.new_page()
            page.goto(url)
            page.wait_for_selector(".badge.s-running")
            page.goto(url.partition("?")[0] + address)
            page.wait_for_selector("[data-state=on]")
            page.screenshot(path=FOLDER / name)
            context.close()
        browser.close()


if __name__ == "__main__":
    raise SystemExit(main())
