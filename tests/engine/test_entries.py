"""Entries in pages, with what they say; and forks of hand-driven runs with another state."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Holdfast, UsageError


def test_entries_come_in_pages_with_what_they_say(hf: Holdfast) -> None:
    run = hf.run("a")
    run.save({"n": 1, "large": "x" * 5_000}, next="model")
    run.once("k", str.upper, "hello")
    run.save({"n": 2, "large": "x" * 5_000}, next="tool", node="model")
    first = run.entries(limit=2)
    rest = run.entries(limit=10, after=first.next)
    assert [(entry.seq, entry.kind) for entry in (*first, *rest)] == [
        (0, "created"),
        (1, "saved"),
        (2, "done"),
        (3, "saved"),
    ]
    assert rest.next is None
    saved = rest[1].contents
    assert (saved["next"], saved["node"], "state" in saved) == ("tool", "model", False)
    assert rest[0].contents["result"] == "HELLO"
    assert run.entries(after="3").items == ()
    with pytest.raises(UsageError, match="is not what a page gave"):
        run.entries(after="x")


def test_what_a_rollback_abandoned_is_among_the_entries(hf: Holdfast) -> None:
    run = hf.run("a")
    for n in range(4):
        run.save({"n": n}, next=f"after {n}")
    run.rollback(to=2)
    run.save({"n": 9}, next="again")
    told = [(entry.seq, entry.kind, entry.contents.get("next")) for entry in run.entries()]
    assert told == [
        (0, "created", None),
        (1, "saved", "after 0"),
        (2, "saved", "after 1"),
        (3, "saved", "after 2"),
        (4, "saved", "after 3"),
        (5, "rollback_begun", None),
        (6, "rewound", None),
        (7, "saved", "again"),
    ]


def test_what_was_erased_says_so_and_hides_nothing_else(hf: Holdfast) -> None:
    run = hf.run("a")
    run.save({"n": 1, "pad": "x" * 3_000}, next="one")
    run.save({"n": 2, "pad": "x" * 3_000}, next="two")
    run.once("k", str.upper, "hello")
    run.redact(1)
    told = [(entry.kind, entry.contents.get("erased")) for entry in run.entries(limit=4)]
    assert told == [("created", None), ("saved", True), ("saved", True), ("done", None)]


async def _async_entries(url: str) -> list[str]:
    async with holdfast.open(url) as hf:
        run = await hf.run("a")
        await run.save({"n": 1})
        return [entry.kind for entry in await run.entries()]


def test_entries_can_be_awaited() -> None:
    import asyncio

    assert asyncio.run(_async_entries("memory://")) == ["created", "saved"]


def test_a_fork_of_a_hand_driven_run_begins_with_the_state_that_it_was_given(hf: Holdfast) -> None:
    run = hf.run("a")
    run.save({"n": 1}, next="model", queue=[1])
    run.save({"n": 2}, next="tool")
    fork = run.fork(1, edit={"n": 9}, id="b")
    checkpoint = fork.checkpoint()
    assert (checkpoint.state, checkpoint.next, checkpoint.queue, checkpoint.step) == ({"n": 9}, "model", [1], 1)
    fork.save({"n": 10})
    assert (fork.checkpoint().state, fork.checkpoint().step, fork.checkpoint(3).state) == ({"n": 10}, 2, {"n": 9})
    assert run.checkpoint().state == {"n": 2}
    assert fork.audit().entries == 5
    empty = hf.run("c").fork(edit=[1], id="d")
    assert (empty.checkpoint().state, empty.checkpoint().step) == ([1], 0)
