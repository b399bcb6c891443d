"""A process that is killed with SIGKILL again and again, at any moment, and started again until its run is completed.

`agent.py` is that process. It keeps telling what it was promised (see there), and everything that it does to the
outside world is a line in a file of its own, synced by the tool itself. From these two this test knows what must be in
the store, and what must have happened how often.
"""

import collections
import hashlib
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sizes import size

import holdfast
from holdfast.errors import QuestionClosed

NEVER = 1_000_000
EXTRA_STEPS = 3  # for the start that is not killed


class Trial:
    """One run, its agent, and all that the agent was promised."""

    def __init__(self, url: str, world: Path, chance: random.Random, start: Callable[..., Any]) -> None:
        self.url = url
        self.world = world
        self.chance = chance
        self.start = start
        self.starts = 0
        self.epochs: list[int] = []
        self.acks: dict[int, str] = {}
        self.done_in: dict[str, int] = {}  # in which start a step was first said to be done
        self.marked: set[str] = set()
        self.answered: dict[str, bool] = {}
        self.resolved = 0
        self.closed = 0

    def live(self, steps: int, *, killed: bool) -> bool:
        """Start the agent, and kill it at some moment unless it is to finish; whether it completed the run."""
        self.starts += 1
        agent = self.start("agent.py", self.url, "thread", str(self.world), str(steps), str(self.starts))
        early = self.chance.random() < 0.2  # while it still starts, opens the store, claims
        until = time.monotonic() + (self.chance.uniform(0.03, 0.25) if early and killed else 60)
        completed = False
        while time.monotonic() < until and not agent.ended:
            line = agent.line(until - time.monotonic())
            if line is None:
                continue
            completed = self.heard(line) or completed
            if line.startswith("claimed") and killed and not early:
                until = min(until, time.monotonic() + self.chance.uniform(0, 0.08))
        if killed:
            agent.kill()
        while (line := agent.line()) is not None:  # what it was promised before it died counts as well
            completed = self.heard(line) or completed
        assert agent.process.wait() == (-9 if killed else 0)
        return completed

    def heard(self, line: str) -> bool:
        match line.split():
            case ["claimed", epoch]:
                self.epochs.append(int(epoch))
            case ["ack", seq, digest]:
                assert int(seq) not in self.acks, "a sequence number was given out twice"
                self.acks[int(seq)] = digest
            case ["did", key]:
                self.done_in.setdefault(key, self.starts)
            case ["resolved", _]:
                self.resolved += 1
            case ["asked", question, output_key]:
                self.answer(question, output_key)
            case ["completed"]:
                return True
            case _:
                raise AssertionError(f"the agent said {line!r}")
        return False

    def answer(self, question: str, output_key: str) -> None:
        with holdfast.open(self.url) as hf:
            run = hf.get("thread")
            if output_key in self.answered:  # asked again by a start that saw the question before the answer came
                with pytest.raises(QuestionClosed):
                    run.answer({"go": True}, question=question)
                return
            answer = self.chance.random() < 0.5
            run.answer({"go": answer}, question=question, by="parent")
            self.answered[output_key] = answer
            if self.chance.random() < 0.3:
                with pytest.raises(QuestionClosed):
                    run.answer({"go": not answer}, question=question)
                self.closed += 1

    def meddle(self) -> None:
        """Between two starts somebody else looks at the store, marks an effect, makes the list of runs true."""
        with holdfast.open(self.url) as hf:
            runs = hf.runs()
            if not runs:
                return  # killed before the run was made
            run = hf.get("thread")
            if self.chance.random() < 0.3:
                run.mark(f"outside-{self.starts}", "parent")
                self.marked.add(f"outside-{self.starts}")
            if self.chance.random() < 0.2:
                hf.recover()
                assert run.info().holder is None
            if self.acks:
                newest = max(self.acks)
                assert digest(run.checkpoint(newest).state) == self.acks[newest]

    def judge(self) -> dict[str, int]:
        """Everything that was promised is there, and nothing happened too often or not at all."""
        with holdfast.open(self.url) as hf:
            run = hf.get("thread")
            run.audit()
            assert run.status == "completed"
            end = run.checkpoint()
            lost = [seq for seq, sha in self.acks.items() if digest(run.checkpoint(seq).state) != sha]
            assert lost == []
            steps = end.state["step"]
            expected = {f"{kind}-{n}" for n in range(steps) for kind in ("write", "charge", "mark")} | self.marked
            assert end.completed == expected
            assert {key: answer["go"] for key, answer in end.answers.items()} == self.answered
            assert end.state["answers"] == {key[1:]: {"go": go} for key, go in self.answered.items()}
            assert end.state["notes"] == [f"{n}: " + "x" * (n * 7 % 50) for n in range(steps)]
            done = collections.Counter(effect.key for effect in run.effects() if effect.status == "done")
            assert done == collections.Counter(expected)
            made = {key for key in expected if key.startswith(("write", "charge"))}
            assert all(end.results[key] == f"result of {key}" for key in made)
        happened = [line.split() for line in self.world.read_text().splitlines()]
        times = collections.Counter(key for _, key in happened)
        assert made == set(times), "an effect is missing"
        twice = {key for key, count in times.items() if count > 1}
        assert not {key for key in twice if key.startswith("charge")}, "an at-most-once step happened twice"
        again = [key for start, key in happened if key in self.done_in and int(start) > self.done_in[key]]
        assert again == [], "a step was run again after it had been said to be done"
        assert len(self.epochs) == len(set(self.epochs))
        return {
            "acknowledged states": len(self.acks),
            "effects": len(happened),
            "run again": len(happened) - len(times),
            "uncertain resolved": self.resolved,
            "answers": len(self.answered),
        }


def digest(state: Any) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize("kills", [size(3, 15), pytest.param(300, marks=pytest.mark.torture)])
def test_a_killed_agent_goes_on_where_it_stopped(
    url: str, kills: int, seed: int, disk: Path, children: Callable[..., Any], kind: str, counts: Callable[[str], None]
) -> None:
    trial = Trial(url, disk / "world", random.Random(seed), children)
    for _ in range(kills):
        assert not trial.live(NEVER, killed=True)
        trial.meddle()
    steps = 1 + sum(key.startswith("mark-") for key in trial.done_in) + EXTRA_STEPS
    assert trial.live(steps, killed=False)
    found = trial.judge()
    counted = ", ".join(f"{name} {count}" for name, count in found.items())
    counts(f"kills: {kind} {kills}, {counted}; lost 0, missing 0, at-most-once twice 0, lease waits 0 (seed {seed})")
