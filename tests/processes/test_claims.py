"""Of many who claim a run at once exactly one wins; the others are told so, and nothing is lost by it."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sizes import size

import holdfast
from holdfast import Holdfast, Run
from holdfast.errors import Claimed

LONG = pytest.mark.torture
CONTESTANTS = 4


def check_history(run: Run, races: int) -> None:
    """Each winner saved one state; all of them are there, in order, and the chain holds."""
    assert run.info().seq == races
    assert [run.checkpoint(seq).state["race"] for seq in (1, races // 2, races)] == [0, races // 2 - 1, races - 1]
    assert run.audit().entries == races + 1
    assert run.info().holder is None


# --- threads


@pytest.fixture(params=["memory", "sqlite", "files"])
def any_url(request: pytest.FixtureRequest, memdir: Path) -> str:
    if request.param == "memory":
        return f"memory://races-{os.getpid()}-{memdir.name}"
    return f"sqlite:///{memdir}/runs.db" if request.param == "sqlite" else f"files:///{memdir}/runs"


class ThreadRaces:
    """Threads that claim the same run again and again, all at once; each has a handle of its own."""

    def __init__(self, engines: list[Holdfast], races: int) -> None:
        self.handles = [engines[n % len(engines)].run("contested") for n in range(CONTESTANTS)]
        self.races = races
        self.barrier = threading.Barrier(CONTESTANTS)
        self.won: list[list[int]] = [[] for _ in range(races)]
        self.refused = [0] * CONTESTANTS
        self.errors: list[BaseException] = []

    def run(self) -> None:
        threads = [threading.Thread(target=self._contest, args=(n,)) for n in range(CONTESTANTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _contest(self, number: int) -> None:
        run = self.handles[number]
        try:
            for race in range(self.races):
                self.barrier.wait()
                try:
                    run.claim()
                except Claimed:
                    self.refused[number] += 1
                else:
                    self.won[race].append(number)
                self.barrier.wait()
                if number in self.won[race]:
                    run.save({"race": race})
                    run.release()
        except BaseException as error:
            if not isinstance(error, threading.BrokenBarrierError):
                self.errors.append(error)
            self.barrier.abort()


@pytest.mark.parametrize("races", [size(200, 2_000), pytest.param(20_000, marks=LONG)])
def test_races_between_threads_have_one_winner(
    any_url: str, races: int, kind: str, counts: Callable[[str], None]
) -> None:
    with holdfast.open(any_url) as one, holdfast.open(any_url) as other:
        contest = ThreadRaces([one, other], races)
        contest.run()
        single = sum(len(winners) == 1 for winners in contest.won)
        counts(f"claim races: threads {races} ({kind}), winners exactly one in {single}")
        assert single == races
        assert sum(contest.refused) == races * (CONTESTANTS - 1)
        check_history(one.get("contested"), races)


# --- processes


@pytest.mark.parametrize("races", [size(40, 200), pytest.param(2_000, marks=LONG)])
def test_races_between_processes_have_one_winner(
    quick_url: str,
    races: int,
    kind: str,
    crew: Callable[[int], list[Any]],
    all_at_once: Callable[..., list[Any]],
    refused: type[Exception],
    counts: Callable[[str], None],
) -> None:
    members = crew(CONTESTANTS)
    for member in members:
        member.do("open", url=quick_url)
        member.do("status", id="contested")
    single = losers = 0
    wins = [0] * CONTESTANTS
    for race in range(races):
        outcomes = all_at_once(members, "claim", id="contested")
        winners = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, refused)]
        losers += sum(isinstance(outcome, refused) and outcome.kind == "Claimed" for outcome in outcomes)
        single += len(winners) == 1
        assert len(winners) == 1, f"race {race}: {outcomes}"
        wins[winners[0]] += 1
        members[winners[0]].do("save", id="contested", state={"race": race})
        members[winners[0]].do("release", id="contested")
    counts(f"claim races: processes {races} ({kind}), winners exactly one in {single}; wins of each {wins}")
    assert losers == races * (CONTESTANTS - 1)
    with holdfast.open(quick_url) as hf:
        check_history(hf.get("contested"), races)


def test_a_race_for_the_run_of_a_killed_holder_has_one_winner(
    quick_url: str,
    kind: str,
    crew: Callable[[int], list[Any]],
    all_at_once: Callable[..., list[Any]],
    refused: type[Exception],
    counts: Callable[[str], None],
) -> None:
    members = crew(CONTESTANTS)
    for member in members:
        member.do("open", url=quick_url, lease=3600)
    rounds = 5
    for n in range(rounds):
        [holder] = crew(1)
        holder.do("open", url=quick_url, lease=3600)
        holder.do("claim", id="contested")
        holder.do("save", id="contested", state={"race": n})
        holder.kill()
        outcomes = all_at_once(members, "claim", id="contested")
        winners = [n for n, outcome in enumerate(outcomes) if not isinstance(outcome, refused)]
        assert len(winners) == 1, outcomes
        assert {outcome.kind for outcome in outcomes if isinstance(outcome, refused)} == {"Claimed"}
        members[winners[0]].do("release", id="contested")
    counts(f"claim races: killed holders {rounds} ({kind}), winners exactly one in {rounds}, none waited for the lease")
    with holdfast.open(quick_url) as hf:
        check_history(hf.get("contested"), rounds)
