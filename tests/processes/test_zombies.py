"""A holder that was stopped for longer than its lease, and wakes up, writes nothing if another one has the run.

Leases end by the clock of the machine, and that may be set back while a test runs: so tests wait until the run is free.
"""

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sizes import size

import holdfast
from holdfast import Run
from holdfast.errors import Claimed

LEASE = 0.5
SHORT = 0.3
WAIT = 20.0


def claim_when_free(run: Run) -> None:
    until = time.monotonic() + WAIT
    while True:
        try:
            run.claim()
            return
        except Claimed:
            assert time.monotonic() < until, "the lease does not end"
            time.sleep(0.05)


@pytest.fixture
def zombie(url: str, crew: Callable[[int], list[Any]]) -> Any:
    """A process that holds the run and is stopped."""
    [member] = crew(1)
    member.do("open", url=url, lease=LEASE)
    member.do("claim", id="thread")
    member.do("save", id="thread", state={"by": "zombie"})
    member.signal(signal.SIGSTOP)
    return member


@pytest.mark.parametrize("goes_on", [True, False], ids=["claimant-holds", "claimant-released"])
def test_a_zombie_is_refused_and_leaves_nothing(
    url: str,
    zombie: Any,
    goes_on: bool,
    refused: type[Any],
    disk: Path,
    kind: str,
    counts: Callable[[str], None],
) -> None:
    with holdfast.open(url) as hf:
        run = hf.get("thread")
        claim_when_free(run)
        mine = run.save({"by": "claimant"})
        if not goes_on:
            run.release()
        zombie.signal(signal.SIGCONT)
        time.sleep(LEASE)  # long enough for its heartbeat
        before = [(entry.seq, entry.kind) for entry in run.history()]
        tries = [
            ("save", {"state": {"by": "zombie again"}}),
            ("act", {"key": "late", "path": str(disk / "late")}),
            ("save", {"state": {"by": "zombie again"}}),
        ]
        for command, arguments in tries:
            with pytest.raises(refused) as error:
                zombie.do(command, id="thread", **arguments)
            assert error.value.kind == "LeaseLost"
        assert [(entry.seq, entry.kind) for entry in run.history()] == before
        assert run.checkpoint().state == {"by": "claimant"}
        assert not (disk / "late").exists(), "the intent was refused, so the tool must not run"
        counts(f"zombies: {kind}, writes of a stale epoch {len(tries)}, refused {len(tries)}, found in the journal 0")
        if goes_on:
            assert run.save({"by": "claimant", "more": 1}) == mine + 1
            zombie.do("release", id="thread")  # it has nothing to give up: the claimant keeps the run
            assert run.save({"by": "claimant", "more": 2}) == mine + 2
            run.release()
        zombie.do("release", id="thread")
        zombie.do("claim", id="thread")  # in the proper way it may come back
        zombie.do("save", id="thread", state={"by": "zombie, with a new lease"})
        assert run.checkpoint().state == {"by": "zombie, with a new lease"}
        run.audit()


def test_a_lease_that_nobody_claimed_may_still_write(url: str, zombie: Any) -> None:
    time.sleep(LEASE + 0.3)
    zombie.signal(signal.SIGCONT)
    seq = zombie.do("save", id="thread", state={"by": "a laptop that slept"})
    with holdfast.open(url) as hf:
        run = hf.get("thread")
        assert run.checkpoint(seq).state == {"by": "a laptop that slept"}


@pytest.mark.slow(covered_by="tests/engine/test_leases.py::test_the_heartbeat_keeps_a_lease_beyond_its_time")
def test_a_heartbeat_keeps_the_run(url: str, crew: Callable[[int], list[Any]]) -> None:
    [member] = crew(1)
    member.do("open", url=url, lease=1.5)
    member.do("claim", id="thread")
    with holdfast.open(url) as hf:
        for _ in range(5):
            offset = time.time() - time.monotonic()
            time.sleep(2)
            if abs(time.time() - time.monotonic() - offset) < 0.1:  # else somebody set the clock
                break
        with pytest.raises(Claimed):
            hf.get("thread").claim()


def test_a_stopped_process_becomes_an_orphan_and_is_recovered(url: str, zombie: Any, refused: type[Any]) -> None:
    with holdfast.open(url) as hf:
        until = time.monotonic() + WAIT
        while not (recovered := hf.recover()) and time.monotonic() < until:
            time.sleep(0.05)
        assert recovered == ("thread",)
        assert hf.get("thread").status == "ready"
        zombie.signal(signal.SIGCONT)
        with pytest.raises(refused) as error:
            zombie.do("save", id="thread", state={})
        assert error.value.kind == "LeaseLost"


def claims(claimant: Any, id: str, refused: type[Any]) -> bool:
    """Let it claim the run when it is free; False if it waits for a store that the stopped process has locked."""
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        claimant.send("claim", id=id)
        try:
            claimant.reply(timeout=2.0)
        except TimeoutError:
            return False
        except refused as error:
            if error.kind != "Claimed":
                raise
            time.sleep(0.05)
        else:
            return True
    raise AssertionError("the lease does not end")


@pytest.mark.parametrize("rounds", [size(1, 4), pytest.param(60, marks=pytest.mark.torture)])
def test_stopped_anywhere_in_a_stream_of_writes(
    quick_url: str,
    rounds: int,
    seed: int,
    crew: Callable[[int], list[Any]],
    refused: type[Any],
    kind: str,
    counts: Callable[[str], None],
) -> None:
    """It may be stopped inside a transaction; then others wait for the store, and nothing is claimed in that round."""
    chance = random.Random(seed)
    claimant, *zombies = crew(rounds + 1)
    claimant.do("open", url=quick_url)
    judged = acknowledged = 0
    for n, zombie in enumerate(zombies):
        id = f"thread-{n}"
        zombie.do("open", url=quick_url, lease=SHORT)
        zombie.do("claim", id=id)
        zombie.send("save_until_lost", id=id, name="zombie")
        time.sleep(chance.uniform(0.01, 0.2))
        zombie.signal(signal.SIGSTOP)
        if not claims(claimant, id, refused):
            zombie.kill()
            claimant.reply()
            claimant.do("release", id=id)
            continue
        first = claimant.do("save", id=id, state={"by": "claimant"})
        zombie.signal(signal.SIGCONT)
        acks = []
        while (line := zombie.line()) is not None and "LeaseLost" not in line:
            acks.append(line)
        assert line is not None
        assert "LeaseLost" in line
        last = claimant.do("save", id=id, state={"by": "claimant", "last": True})
        claimant.do("release", id=id)
        assert last == first + 1
        with holdfast.open(quick_url) as hf:
            run = hf.get(id)
            states = [run.checkpoint(seq).state for seq in range(1, last + 1)]
            run.audit()
        assert [state["by"] for state in states] == ["zombie"] * (first - 1) + ["claimant"] * 2
        assert len(acks) in (first - 1, first - 2)  # the last one may have been written and not yet said
        judged += 1
        acknowledged += len(acks)
        zombie.kill()
    counts(
        f"zombies: {kind}, stopped in a stream of writes {judged} of {rounds} (seed {seed}), states kept {acknowledged}"
    )
