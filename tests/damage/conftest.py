"""A small store that is damaged in every way, and what may be read from it afterwards."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Keyring
from holdfast.errors import HoldfastError, RunNotFound

KEYS = Keyring({"k": b"k" * 32}, current="k")


def note(text: str) -> str:
    return f"noted {text}"


@dataclass
class Truth:
    """What was in the store before it was damaged."""

    states: list[Any]  # by sequence number
    completed: list[frozenset[str]]
    results: dict[str, Any]
    kinds: list[str]
    effects: list[tuple[str, str | None]]
    heads: list[str]
    allows_gone: bool = False  # whether the damage may hide the whole run
    bare_history: bool = False  # whether a history is listed without being verified


def fill(hf: Holdfast) -> None:
    """The run that will be damaged, and one that will not."""
    other = hf.run("other")
    other.save({"mine": "all mine"})
    run = hf.run("victim")
    run.save({"step": 1, "text": "one"})
    go_on(hf)


def go_on(hf: Holdfast) -> None:
    run = hf.get("victim")
    with run.claim():
        run.once("note", note, "this", target="paper")
        run.save({"step": 2, "text": "one two"})
    hf.get("victim").mark("seen", "eye")


def truth_of(hf: Holdfast) -> Truth:
    run = hf.get("victim")
    last = run.info().seq
    record = run.held.read_record()
    hashes = [entry.hash.hex() for _, entry in run.held.journals.entries(record, 0, last)]
    points = [run.checkpoint(seq) for seq in range(last + 1)]
    return Truth(
        states=[point.state for point in points],
        completed=[point.completed for point in points],
        results={**points[-1].results, "seen": None},
        kinds=[entry.kind for entry in run.history()],
        effects=[(effect.key, effect.target) for effect in run.effects()],
        heads=[f"{seq}:{digest}" for seq, digest in enumerate(hashes)],
    )


class Examiner:
    """Reads and writes a damaged store in every way; `wrong` has what must not be."""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.wrong: list[str] = []
        self.errors: dict[str, int] = {}
        self.tried = 0

    def examine(self, what: str, url: str, *, keys: Keyring | None = None, others: bool = True) -> None:
        """Open the store; whatever is damaged, only typed errors and what was true may come."""
        self.tried += 1
        self.what, self.failed = what, 0
        hf = self.attempt("open", lambda: holdfast.open(url, keys=keys))
        if hf is None:
            return
        try:
            self.read(hf)
            self.write(hf)
            if others and self.tried % 4 == 1:  # they are the same each time
                self.others(hf)
        finally:
            self.attempt("close", hf.close)
        self.errors["nothing" if not self.failed else "noticed"] = (
            self.errors.get("nothing" if not self.failed else "noticed", 0) + 1
        )

    def attempt(self, call: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except HoldfastError as error:
            self.failed += 1
            name = type(error).__name__
            self.errors[name] = self.errors.get(name, 0) + 1
            if not str(error):
                self.wrong.append(f"{self.what}: {call}: {name} says nothing")
            if isinstance(error, RunNotFound) and not self.truth.allows_gone:
                self.wrong.append(f"{self.what}: {call}: {error}")
        except Exception as error:
            self.wrong.append(f"{self.what}: {call}: {type(error).__name__}: {error}")
        return None

    def expect(self, good: bool, call: str, value: Any) -> None:
        if not good:
            self.wrong.append(f"{self.what}: {call} gave {value!r}")

    def read(self, hf: Holdfast) -> None:
        truth = self.truth
        run = self.attempt("get", lambda: hf.get("victim"))
        if run is None:
            return
        for seq, state in enumerate(truth.states):
            point = self.attempt(f"checkpoint({seq})", lambda seq=seq: run.checkpoint(seq))
            if point is not None:
                self.expect(point.state == state, f"checkpoint({seq})", point.state)
                done = self.attempt(f"completed at {seq}", lambda point=point: point.completed)
                self.expect(done is None or done == truth.completed[seq], f"completed at {seq}", done)
        point = self.attempt("checkpoint", run.checkpoint)
        if point is not None:
            self.expect(point.state in truth.states, "checkpoint", point.state)
            results = self.attempt("results", lambda: point.results)
            wrong = {key: value for key, value in (results or {}).items() if truth.results.get(key, self) != value}
            self.expect(not wrong, "results", wrong)
        history = self.attempt("history", run.history)
        if history is not None:
            kinds = [entry.kind for entry in history]
            self.expect(truth.bare_history or kinds == truth.kinds[: len(kinds)], "history", kinds)
        effects = self.attempt("effects", run.effects)
        if effects is not None:
            found = [(effect.key, effect.target) for effect in effects]
            journaled = found[:-1] if found[-1:] == truth.effects[-1:] else found  # the last one is in the inbox
            self.expect(journaled == truth.effects[: len(journaled)], "effects", found)
        report = self.attempt("audit", run.audit)
        if report is not None:
            self.expect(report.head in truth.heads, "audit", report)
            self.attempt("audit with head", lambda: run.audit(head=truth.heads[-1]))

    def write(self, hf: Holdfast) -> None:
        """What is written on top of it is there, and what was there before is not changed by it."""
        run = self.attempt("get to write", lambda: hf.get("victim"))
        if run is None:
            return
        last = self.attempt("info", lambda: run.info().seq)
        seq = self.attempt("save", lambda: run.save({"new": True}))
        if last is not None and seq is not None:
            found = self.attempt("checkpoint of the new state", lambda: run.checkpoint(seq).state)
            self.expect(found in (None, {"new": True}), "the new state", found)
            for at, state in enumerate(self.truth.states[: last + 1]):
                old = self.attempt(f"checkpoint({at}) after save", lambda at=at: run.checkpoint(at).state)
                self.expect(old in (None, state), f"checkpoint({at}) after save", old)

    def others(self, hf: Holdfast) -> None:
        """The other run goes on as if nothing had happened."""
        try:
            other = hf.get("other")
            good = other.checkpoint(1).state == {"mine": "all mine"}
            self.expect(good, "the other run", other.checkpoint(1).state)
            listed = [info.id for info in hf.runs()]
            self.expect("other" in listed, "runs()", listed)
            hf.recover()
            seq = other.save({"more": 1})
            self.expect(other.checkpoint(seq).state == {"more": 1}, "the other run", other.checkpoint(seq).state)
        except Exception as error:
            self.wrong.append(f"{self.what}: the other run: {type(error).__name__}: {error}")

    def verdict(self) -> None:
        assert not self.wrong, f"{len(self.wrong)} wrong:\n" + "\n".join(self.wrong[:20])


@pytest.fixture
def examiner() -> Callable[[Truth], Examiner]:
    return Examiner


@pytest.fixture(params=[None, KEYS], ids=["plain", "encrypted"])
def keys(request: pytest.FixtureRequest) -> Keyring | None:
    return request.param


@pytest.fixture
def filled() -> Callable[[Holdfast], Truth]:
    """Fills a store, and tells what is in it."""

    def make(hf: Holdfast) -> Truth:
        fill(hf)
        return truth_of(hf)

    return make


@pytest.fixture
def continued() -> Callable[[Holdfast], Truth]:
    """Goes on in a store that was filled."""

    def make(hf: Holdfast) -> Truth:
        run = hf.get("victim")
        run.save({"step": 3, "text": "one two three"})
        run.save({"step": 4, "text": "one two three four"})
        return truth_of(hf)

    return make
