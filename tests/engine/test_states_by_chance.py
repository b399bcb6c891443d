"""Saves, edits, steps, rollbacks and forks in long claims, drawn by chance, against a plain list of what was saved."""

import copy
import random
from typing import Any

import pytest

from holdfast import Holdfast, Keyring, Run

Moment = tuple[Any, str | None]  # the state and what comes next

KEYS = Keyring({"k": bytes(range(32))}, "k")


class Twin:
    """What a run should say of itself: the moment at every number, and which numbers count."""

    def __init__(self, run: Run, moments: list[Moment], live: list[int], base: int) -> None:
        self.run, self.moments, self.live, self.base = run, moments, live, base

    def wrote(self, seq: int, moment: Moment) -> None:
        assert seq == len(self.moments)
        self.moments.append(moment)
        self.live.append(seq)

    def act(self, chance: random.Random) -> None:
        run, (state, following) = self.run, self.moments[-1]
        match chance.choices(("save", "edit", "step", "roll back"), (6, 1, 1, 2))[0]:
            case "save":
                state, following = changed(chance, state), chance.choice((None, "a", "b"))
                self.wrote(run.save(state, next=following), (state, following))
            case "edit" if state is not None:
                state = changed(chance, state)
                self.wrote(run.edit(state), (state, following))
            case "roll back":
                to = chance.choice([seq for seq in self.live if seq >= self.base])
                run.rollback(to=to)
                newest = run.info().seq
                self.moments += [self.moments[-1]] * (newest - len(self.moments)) + [self.moments[to]]
                self.live = [seq for seq in self.live if seq <= to] + [newest]
            case _:
                run.once(f"step {len(self.moments)}", max, 1, 2)
                self.wrote(run.info().seq, (state, following))

    def fork(self, chance: random.Random) -> "Twin":
        at = chance.randrange(len(self.moments))
        run = self.run.fork(at=at)
        live = [entry.seq for entry in run.history(limit=10_000) if entry.live]
        return Twin(run, [*self.moments[: at + 1], self.moments[at]], live, at + 1)

    def check(self, run: Run) -> None:
        for seq, (state, following) in enumerate(self.moments):
            found = run.checkpoint(seq)
            assert (repr(found.state), found.next) == (repr(state), following), seq
        assert repr(run.checkpoint().state) == repr(self.moments[-1][0])
        run.audit()


def changed(chance: random.Random, state: Any) -> Any:
    state = (
        copy.deepcopy(state) if state is not None and chance.random() < 0.8 else {"big": "x" * chance.choice((0, 400))}
    )
    for key in chance.choices("abcdef", k=chance.randint(1, 3)):
        if key in state and chance.random() < 0.3:
            del state[key]
        elif isinstance(state.get(key), list):
            state[key].insert(chance.randint(0, len(state[key])), chance.randint(0, 9))
        else:
            state[key] = chance.choice((1, True, 1.0, [1, 2], {"n": 2}, "text"))
    return state


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("seed", range(4))
def test_every_number_reads_as_it_was_saved(opened: Any, seed: int, encrypted: bool) -> None:
    hf: Holdfast = opened(keys=KEYS if encrypted else None)
    for n in range(12):
        chance = random.Random(f"{seed} {n}")
        print("seed", seed, n)
        twins = [Twin(hf.run(f"run {n}"), [(None, None)], [0], 0)]
        for _ in range(chance.randint(1, 4)):
            twin = chance.choice(twins)
            with twin.run.claim():
                for _ in range(chance.randint(1, 12)):
                    twin.act(chance)
            if chance.random() < 0.5:
                twins.append(twin.fork(chance))
        for twin in twins:
            twin.check(hf.get(twin.run.id))
