"""What one process did, another one undoes: typed values, undos that fail or die, and effects in flight.

On the stores that processes can share, `elsewhere` is another process each time; in memory it is another engine, which
knows as little of the types that were written.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import payments
import pytest

Command = Callable[..., dict[str, Any]]
START = "import payments; payments.from_command_line()"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which everything stands that was done to the world."""
    monkeypatch.setattr(payments, "world", tmp_path / "world")
    return payments.world


@pytest.fixture
def here(store_url: str, world: Path) -> Command:
    """Carries out a command of `payments` in this process; what came of it."""

    def call(command: str, *names: str, **trouble: str) -> dict[str, Any]:
        return payments.main(store_url, command, list(names), **trouble)

    return call


@pytest.fixture
def elsewhere(store_url: str, here: Command, world: Path) -> Command:
    """The same in another process. Of one that died, nothing."""

    def call(command: str, *names: str, **trouble: str) -> dict[str, Any]:
        if store_url.startswith("memory"):
            return here(command, *names, **trouble)
        environment = {**os.environ, "PAYMENTS": str(world), "PYTHONPATH": str(Path(payments.__file__).parent)}
        words = [sys.executable, "-c", START, store_url, command, ",".join(names), json.dumps(trouble)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment)
        died = "dies" in trouble.values()
        assert done.returncode == (9 if died else 0), done.stderr
        return {} if died else json.loads(done.stdout)

    return call


def done_to(world: Path, prefix: str = "") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in world.read_text().splitlines()]
    return [line for line in lines if line["what"].startswith(prefix)]


def test_typed_values_are_read_by_the_annotations_in_another_process(
    here: Command, elsewhere: Command, world: Path
) -> None:
    """Dataclass, msgspec, pydantic and TypedDict; as arguments and as results; of sync and of async workflows."""
    here("begin", "pays", "pays_async")
    planned = here("plan", "pays", "pays_async")
    assert {tuple(step) for name in ("pays", "pays_async") for step in planned[name]["plan"].values()} == {
        ("undo", None)
    }
    undone = elsewhere("rollback", "pays", "pays_async")
    assert undone["error"] == ""
    for name in ("pays", "pays_async"):
        assert (undone[name]["status"], set(undone[name]["effects"].values())) == ("cancelled", {"undone"})
    told = [(line["what"], line["types"], line["values"]) for line in done_to(world) if "pay_" not in line["what"]]
    parcel = "take_parcel_back", ["Coins", "Coins"], ["Coins(cents=3)", "Coins(cents=3)"]
    coins = "refund_coins", ["Coins", "Coins"], ["Coins(cents=2)", "Coins(cents=1)"]
    card = "refund_card", ["Card", "Card", "Coins"], [str(payments.CARD), str(payments.CARD), "Coins(cents=2)"]
    bill = "refund_bill", ["Bill"] * 4, [str(payments.BILL)] * 4
    assert told[2:] == [parcel, card, coins, parcel, bill, coins]


def test_an_undo_that_dies_or_fails_is_retried_by_other_processes_with_the_same_idempotency_key(
    here: Command, elsewhere: Command, world: Path
) -> None:
    here("begin", "pays")
    elsewhere("rollback", "pays", refund_card="dies")
    stopped = here("proceed", "pays", refund_card="raises")
    assert stopped["error"].startswith("UndoFailed: ")
    assert "'pay_card#1' failed (ConnectionError: the bank does not answer)" in stopped["error"]
    for seen in (stopped, here("plan", "pays")):
        assert seen["pays"]["status"] == "blocked"
        assert "'pay_card#1' failed (ConnectionError: the bank does not answer)" in seen["pays"]["reason"]
        assert seen["pays"]["effects"] == {
            "pay_coins#1": "done",
            "pay_card#1": "undo_failed",
            "send_parcel#1": "undone",
        }
        assert list(seen["pays"]["plan"]) == ["pay_card#1", "pay_coins#1"]
    ended = elsewhere("proceed", "pays")
    assert (ended["error"], ended["pays"]["status"]) == ("", "cancelled")
    assert set(ended["pays"]["effects"].values()) == {"undone"}
    calls = [line["what"] for line in done_to(world)]
    assert calls[3:] == ["take_parcel_back", "refund_card", "refund_card", "refund_card", "refund_coins"]
    keys = {line["key"] for line in done_to(world, "refund_card")}
    assert len(keys) == 1, "each attempt has the same key"
    assert len({line["key"] for line in done_to(world)}) == 6, "and nothing else has it"


def test_with_force_another_process_passes_over_it(here: Command, elsewhere: Command, world: Path) -> None:
    here("begin", "pays")
    here("rollback", "pays", refund_card="raises")
    forced = elsewhere("force", "pays", refund_card="raises")
    assert (forced["error"], forced["pays"]["status"]) == ("", "cancelled")
    assert forced["pays"]["effects"] == {
        "pay_coins#1": "undone",
        "pay_card#1": "undo_failed",
        "send_parcel#1": "undone",
    }
    assert forced["pays"]["reason"].startswith("not everything was undone: the undo of step 'pay_card#1'")


def test_effects_in_flight_are_awaited_and_undone_if_need_be_by_another_process(
    here: Command, elsewhere: Command, world: Path
) -> None:
    """A sibling fails while a payment is under way; its undo then fails here, and is done elsewhere."""
    names = ("gathers", "groups")
    begun = here("begin", *names, refund_slowly="raises")
    for name in names:
        assert (begun[name]["status"], begun[name]["effects"]) == ("blocked", {"pay_slowly#1": "undo_failed"})
    ended = elsewhere("proceed", *names)
    for name in names:
        assert (ended[name]["status"], ended[name]["effects"]) == ("failed", {"pay_slowly#1": "undone"})
    undone = [(line["types"], line["values"]) for line in done_to(world, "refund_slowly")]
    assert undone == [(["Coins", "Coins"], ["Coins(cents=2)", "Coins(cents=1)"])] * 4


def test_an_effect_in_flight_that_does_not_end_blocks_the_run_until_somebody_decides(
    here: Command, elsewhere: Command, world: Path
) -> None:
    begun = here("begin", "hangs")
    for one in (begun, here("plan", "hangs")):
        assert one["hangs"]["status"] == "blocked"
        assert "not known whether step 'hang#1' was done" in one["hangs"]["reason"]
        assert one["hangs"]["effects"] == {"pay_coins#1": "done", "hang#1": "uncertain"}
        assert one["hangs"]["plan"]["hang#1"][0] == "uncertain"
    refused = here("rollback", "hangs")
    assert refused["error"].startswith("Uncertain: ")
    assert refused["hangs"]["status"] == "blocked"
    assert not done_to(world, "refund")
    forced = elsewhere("force", "hangs")
    assert (forced["hangs"]["status"], forced["hangs"]["effects"]) == (
        "cancelled",
        {"pay_coins#1": "undone", "hang#1": "uncertain"},
    )
