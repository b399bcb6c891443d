"""The order that people copy: charged once whatever happens, shipped after an approval, and taken back as a whole."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast

from .conftest import EXAMPLES, Example, environment

Call = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def shop(example: Example, memdir: Path) -> Call:
    """Call the program, in a shop with three lamps and a desk."""

    def call(*arguments: str, **settings: str) -> tuple[int, list[str]]:
        return example("order.py", *arguments, SHOP=str(memdir), **settings)

    call("stock", "lamp=3", "desk=1")
    return call


def world(folder: Path) -> dict[str, Any]:
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    stock = found.get("stock", {})
    return {
        "charged": [line["cents"] for line in found.get("bank", {}).values()],
        "stock": {name: count for name, count in stock.items() if name != "kept"},
        "kept": len(stock.get("kept", {})),
        "parcels": list(found.get("parcels", {}).values()),
        "letters": sum(map(len, found.get("mail", {}).values())),
    }


EMPTY = {"charged": [], "stock": {"lamp": 3, "desk": 1}, "kept": 0, "parcels": [], "letters": 0}
SENT = {"charged": [4200], "stock": {"lamp": 2, "desk": 0}, "kept": 2, "parcels": ["A-17 by courier"], "letters": 1}


def place(shop: Call) -> tuple[int, list[str]]:
    return shop("place", "A-17", "4200", "lamp", "desk")


def test_it_asks_and_then_ships(shop: Call, memdir: Path) -> None:
    status, lines = place(shop)
    assert (status, lines[-1]) == (0, "asks   Ship lamp, desk for 42.00?")
    assert place(shop) == (0, lines[-1:]), "placed again, it does nothing twice"
    assert shop("answer", "A-17", "--carrier", "pigeon")[0] == 1
    assert shop("answer", "A-17", "--carrier", "courier")[0] == 0
    assert shop("answer", "A-17", "--carrier", "post")[0] == 1, "the first answer counts"
    status, lines = place(shop)
    assert (status, lines[-1]) == (0, "done   A-17 went out by courier")
    assert world(memdir) == SENT


WORKER = "tests/examples/test_order.py::test_killed_after_the_answer_a_worker_goes_on"
KILLED = "tests/examples/test_order.py::test_killed_in_any_step_it_charges_once"
LATER = [pytest.param(step, marks=pytest.mark.slow(covered_by=KILLED)) for step in ("reserve lamp", "reserve desk")]


@pytest.mark.parametrize("step", ["charge", *LATER])
def test_killed_in_any_step_it_charges_once(
    step: str, shop: Call, killed: Callable[..., list[str]], memdir: Path
) -> None:
    killed("order.py", "place", "A-17", "4200", "lamp", "desk", at=step, SHOP=str(memdir), STEP_SECONDS="0.1")
    _, lines = place(shop)
    assert step in lines[0], "it goes on with the step that it died in"
    shop("answer", "A-17", "--carrier", "courier")
    place(shop)
    assert world(memdir) == SENT


@pytest.mark.parametrize("step", ["ship", pytest.param("write to", marks=pytest.mark.slow(covered_by=WORKER))])
def test_killed_after_the_answer_a_worker_goes_on(
    step: str, shop: Call, killed: Callable[..., list[str]], memdir: Path
) -> None:
    place(shop)
    shop("answer", "A-17", "--carrier", "courier")
    killed("order.py", "place", "A-17", "4200", "lamp", "desk", at=step, SHOP=str(memdir), STEP_SECONDS="0.1")
    worker = subprocess.Popen(
        [sys.executable, str(EXAMPLES / "order.py"), "work"],
        stdout=subprocess.DEVNULL,
        env=environment(SHOP=str(memdir)),
    )
    with holdfast.open(f"sqlite:///{memdir}/orders.db") as hf:
        assert hf.get("A-17").wait(timeout=30) == "completed"
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=20)
    assert worker.returncode == 0
    assert place(shop) == (0, ["done   A-17 went out by courier"])
    assert world(memdir) == SENT


def test_a_refused_order_takes_itself_back(shop: Call, memdir: Path) -> None:
    place(shop)
    shop("answer", "A-17", "--refuse", "no such street")
    status, lines = place(shop)
    assert (status, [line.split()[0] for line in lines]) == (1, ["undo"] * 3)
    assert world(memdir) == EMPTY


def test_what_is_sold_out_takes_the_money_back(shop: Call, memdir: Path) -> None:
    status, _ = shop("place", "A-18", "900", "lamp", "sofa")
    assert status == 1
    assert world(memdir) == EMPTY


def test_a_sent_order_is_taken_back_but_for_the_letter(shop: Call, memdir: Path) -> None:
    place(shop)
    shop("answer", "A-17", "--carrier", "courier")
    place(shop)
    status, lines = shop("undo", "A-17")
    assert (status, lines[-1]) == (0, "stays  thank, customer of A-17")
    assert world(memdir) == EMPTY | {"letters": 1}
