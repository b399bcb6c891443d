"""Random histories of an engine on a store, compared with a model after every step.

Two engines share one store, as two processes would. They create, claim, save, act, pause, answer, fork, roll back,
delete, prune and recover; leases expire, and processes die: in the act of a step, in the act of an undo, or between
two calls. The model is a few plain containers: for every entry of every run a `Moment`, what the checkpoint at that
entry must say for ever; and beside it who holds the run and what waits in its inbox. What the steps do to the world
is counted in `World`, so a step that was run again, or an undo that was called once too often, is noticed.

To try it on a store of your own, say how it is opened and let Hypothesis run it:

    class MyMachine(StoreMachine):
        def open_store(self, place, clock):
            return MyStore(place, clock=clock)

        def new_place(self):
            return tempfile.mkdtemp()

    run_state_machine_as_test(MyMachine)
"""

from __future__ import annotations

import enum
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

import holdfast
from holdfast.engine import Holdfast
from holdfast.engine.run import Run
from holdfast.errors import (
    Claimed,
    HoldfastError,
    LeaseLost,
    NoCheckpoint,
    NonDeterminism,
    QuestionClosed,
    RunEnded,
    RunExists,
    RunNotFound,
    UsageError,
)
from holdfast.model import ENDED, Kind, Status
from holdfast.stores.base import LIVE, Store
from holdfast.testing.clock import ManualClock

LEASE = 3600.0  # so long that the heartbeat, which beats in real time, never comes in between

# --- the world outside, and what the steps do to it


class Died(BaseException):
    """The process is gone: nothing catches this, as nothing catches a kill."""


class World:
    """What the steps of all runs did, and how often they were called."""

    def __init__(self) -> None:
        self.things: dict[str, int] = {}
        self.calls: Counter[str] = Counter()
        self.undos: Counter[str] = Counter()
        self.put_does = "works"  # what the next `put` does
        self.undo_dies: str | None = None  # the next undo dies: "before" it acts, or "after"


WORLD = World()


def compute(token: str, value: Any) -> Any:
    """A step that touches nothing."""
    WORLD.calls[token] += 1
    return value


def put(place: str, value: int) -> dict[str, str]:
    """A step that puts a thing somewhere; or raises; or dies before or after it has."""
    how, WORLD.put_does = WORLD.put_does, "works"
    WORLD.calls[place] += 1
    if how == "raises":
        raise ValueError(f"no room at {place}")
    if how != "dies before":
        WORLD.things[place] = value
    if how.startswith("dies"):
        raise Died
    return {"place": place}


def take_away(result: dict[str, str] | None, place: str, value: int) -> None:
    """The undo of `put`."""
    dies, WORLD.undo_dies = WORLD.undo_dies, None
    WORLD.undos[place] += 1
    if dies == "before":
        raise Died
    WORLD.things.pop(place, None)
    if dies == "after":
        raise Died


def fail_to_take_away(result: dict[str, str] | None, place: str, value: int) -> None:
    """An undo that does not work."""
    WORLD.undos[place] += 1
    raise ValueError(f"it is stuck at {place}")


UNDOS: dict[str, Callable[..., None] | None] = {"works": take_away, "fails": fail_to_take_away, "none": None}

# --- values to be saved


class Colour(enum.Enum):
    """A class that has to come back as itself."""

    RED = "red"
    GREEN = "green"


@dataclass
class Point:
    """Another one."""

    x: Any
    y: Any = None


_text = st.text(max_size=6)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | _text
    | st.binary(max_size=6)
    | st.sampled_from([Colour.RED, Colour.GREEN, Decimal("1.10"), timedelta(days=-1, microseconds=7)])
    | st.just(datetime(2024, 2, 29, 12, tzinfo=UTC))
    | st.uuids().map(lambda made: uuid.UUID(int=made.int))
)
values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_text, inner, max_size=4)
        | st.dictionaries(st.integers(0, 9), inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(st.integers() | _text, max_size=3)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=6,
)


def exact(value: Any) -> Any:
    """Something that is equal for two values only if they are the same, also in type: 1, 1.0 and True differ."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, tuple((exact(key), exact(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return kind, tuple(exact(item) for item in value)
    if isinstance(value, set | frozenset):
        return kind, tuple(sorted(map(repr, value)))
    if isinstance(value, Point):
        return kind, exact(value.x), exact(value.y)
    return kind, repr(value)


# --- the model


@dataclass(frozen=True)
class Done:
    """A completed step: its result, and what it was called as (None: it was marked, so nothing is compared)."""

    result: Any
    call: Any


@dataclass(frozen=True)
class Deed:
    """An effect. ``settled`` is the entry that says how it went."""

    key: str
    status: str
    settled: int
    undo: str = "none"
    place: str = ""
    call: Any = None


@dataclass(frozen=True)
class Asked:
    """An open question."""

    generation: int
    prompt: str
    output_key: str


@dataclass(frozen=True)
class Moment:
    """What the checkpoint at one entry says, and which entries counted then."""

    kind: str = Kind.CREATED
    live: tuple[int, ...] = (0,)
    generation: int = 0
    state: Any = None
    state_seq: int | None = None
    step: int | None = None
    next: str | None = None
    done: dict[str, Done] = field(default_factory=dict)
    deeds: dict[int, Deed] = field(default_factory=dict)
    open: dict[str, int] = field(default_factory=dict)  # steps that were begun: key to entry
    questions: dict[int, Asked] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    undone: dict[int, bool] = field(default_factory=dict)  # by a rollback that is under way; whether it worked
    ended: Status | None = None
    result: Any = None


def settled(deeds: dict[int, Deed], undone: dict[int, bool]) -> dict[int, Deed]:
    """The effects, when these were undone."""
    status = {True: "undone", False: "undo_failed"}
    return {seq: replace(deed, status=status[undone[seq]]) if seq in undone else deed for seq, deed in deeds.items()}


@dataclass
class Life:
    """One life of a process: an engine, until it dies. ``until`` is when its leases end."""

    hf: Holdfast
    until: int | None = None  # None: it has claimed nothing yet
    handles: dict[str, Run] = field(default_factory=dict)


@dataclass
class Rolling:
    """A rollback that has begun."""

    to: int
    plan: list[int]
    results: dict[int, bool] = field(default_factory=dict)


@dataclass
class Twin:
    """The model of one run."""

    id: str
    uid: str
    base: int
    moments: list[Moment]
    lineage: tuple[str, ...] = ()
    status: Status = Status.READY
    holder: Life | None = None
    epoch: int = 0
    inbox: list[tuple[str, Any]] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    rolling: Rolling | None = None
    hands: list[Life] = field(default_factory=list)  # whose handles believe that they hold it
    hashes: list[bytes] = field(default_factory=list)  # of all entries, as they were read the first time
    checked: int = 0  # how many moments were compared

    @property
    def seq(self) -> int:
        return len(self.moments) - 1

    @property
    def now(self) -> Moment:
        return self.moments[-1]

    def write(self, kind: str, **facts: Any) -> int:
        """Add an entry, which changes these facts of the moment before."""
        seq = len(self.moments)
        self.moments.append(replace(self.now, kind=kind, live=(*self.now.live, seq), **facts))
        return seq

    def complete(self, kind: str, key: str, done: Done | None, deed: tuple[int, Deed] | None) -> None:
        """Add an entry that settles a step: it is done, or it was not."""
        now, seq = self.now, len(self.moments)
        steps = {**now.done, key: done} if done is not None else now.done
        deeds = {**now.deeds, deed[0]: replace(deed[1], settled=seq)} if deed is not None else now.deeds
        self.write(kind, done=steps, deeds=deeds, open={k: n for k, n in now.open.items() if k != key})

    def resting(self) -> Status:
        """The status when nobody holds it."""
        if self.rolling is not None:
            return Status.READY
        return self.now.ended or (Status.WAITING if self.now.questions else Status.READY)

    def let_go(self, status: Status | None = None) -> None:
        """Give up the lease."""
        self.hands = [life for life in self.hands if life is not self.holder]
        self.holder = None
        self.status = status or self.resting()
        self.wake()

    def wake(self) -> None:
        """A waiting run that has an answer in its inbox is ready."""
        if self.status is Status.WAITING and any(kind == "answer" for kind, _ in self.inbox):
            self.status = Status.READY

    def drain(self) -> None:
        """Move what waits in the inbox into the journal."""
        for kind, data in self.inbox:
            now = self.now
            if kind == "answer" and data["seq"] in now.questions:
                asked = now.questions[data["seq"]]
                if asked.generation == data["generation"]:
                    left = {seq: other for seq, other in now.questions.items() if seq != data["seq"]}
                    self.write(Kind.ANSWERED, questions=left, answers={**now.answers, asked.output_key: data["value"]})
            elif kind == "mark" and data not in now.done:
                self.mark(data)
        self.inbox.clear()

    def mark(self, key: str) -> None:
        """Add an effect that was made elsewhere."""
        seq = len(self.moments)
        self.complete(Kind.MARKED, key, Done(exact(None), None), (seq, Deed(key, "done", seq)))

    # --- going back

    def begin_rollback(self, to: int) -> None:
        """Decide what is to be undone."""
        now, point = self.now, max(to, self.base - 1)
        plan = [
            seq
            for seq, deed in sorted(now.deeds.items(), key=lambda found: found[1].settled, reverse=True)
            if deed.settled > point and deed.status in ("done", "uncertain", "repeated", "raised") and seq in now.live
        ]
        self.rolling = Rolling(max(to, self.base), plan)
        self.write(Kind.ROLLBACK_BEGUN, undone={})

    def undos(self) -> list[int]:
        """The effects whose undo is still to be called, in order."""
        assert self.rolling is not None
        return [
            seq
            for seq in self.rolling.plan
            if seq not in self.rolling.results
            and self.now.deeds[seq].status == "done"
            and self.now.deeds[seq].undo != "none"
        ]

    def rewind(self) -> None:
        """End the effective history at an earlier entry."""
        assert self.rolling is not None
        rolling, now, target = self.rolling, self.now, self.moments[self.rolling.to]
        deeds = settled(now.deeds, rolling.results)
        for seq in rolling.plan:
            if deeds[seq].status == "done":
                deeds[seq] = replace(deeds[seq], status="left")
        seq, generation = len(self.moments), now.generation + 1
        self.moments.append(
            replace(
                target,
                kind=Kind.REWOUND,
                live=(*(n for n in now.live if n <= rolling.to), seq),
                generation=generation,
                undone={},
                deeds=deeds,
                open={key: n for key, n in target.open.items() if deeds[n].status == "uncertain"},
                questions={n: replace(asked, generation=generation) for n, asked in target.questions.items()},
            )
        )
        self.rolling = None


picks = st.integers(0, 30)
keys = st.sampled_from("abcdefgh")
sides = st.integers(0, 1)


class StoreMachine(RuleBasedStateMachine):
    """Engines on a store against the model. Subclass it and say how the store is opened."""

    def __init__(self) -> None:
        super().__init__()
        WORLD.__init__()  # type: ignore[misc]
        self.clock = ManualClock()
        self.place = self.new_place()
        self.twins: dict[str, Twin] = {}  # by uid, also hidden ones
        self.gone: dict[str, Twin] = {}
        self.calls: Counter[str] = Counter()
        self.undos: Counter[str] = Counter()
        self.things: dict[str, int] = {}
        self.forks = 0
        self.lives = [self.born(), self.born()]
        self.watcher = self.open_engine()

    def open_store(self, place: str, clock: ManualClock) -> Store:
        """Open a handle on the store at ``place``."""
        raise NotImplementedError("say in a subclass how the store is opened")

    def new_place(self) -> str:
        """A place that no other example uses."""
        raise NotImplementedError("say in a subclass where the store lives")

    def remove_place(self, place: str) -> None:
        """Clean up."""

    # --- engines

    def open_engine(self) -> Holdfast:
        store = self.open_store(self.place, self.clock)
        hf = holdfast.open(store.place, store=store, lease=LEASE)
        hf.register(Colour)
        hf.register(Point)
        return hf

    def born(self) -> Life:
        return Life(self.open_engine())

    def kill(self, life: Life) -> None:
        """End an engine as a killed process ends: nothing is written."""
        life.hf._engine.worker.stop()
        life.hf._store.drop()

    def is_alive(self, life: Life | None) -> bool:
        return life is not None and life.until is not None and life.until > self.clock.now()

    def handle(self, life: Life, twin: Twin) -> Run:
        """The handle of this process on the run; it keeps one as long as it lives."""
        if twin.uid not in life.handles:
            life.handles[twin.uid] = life.hf.get(twin.id)
        return life.handles[twin.uid]

    def teardown(self) -> None:
        try:
            for twin in self.visible() if sys.exc_info()[0] is None else ():
                twin.checked = 0
                self.compare(twin)
        finally:
            for life in self.lives:
                life.hf.close()
            self.watcher.close()
            self.remove_place(self.place)

    # --- choosing

    def visible(self) -> list[Twin]:
        return [twin for twin in self.twins.values() if twin.uid not in self.gone]

    def pick(self, n: int) -> Twin:
        found = self.visible()
        return found[n % len(found)]

    def named(self, id: str) -> Twin | None:
        return next((twin for twin in self.visible() if twin.id == id), None)

    # --- holding a run

    def enlist(self, life: Life) -> None:
        if life.until is None:
            life.until = self.clock.now() + int(LEASE * 1_000_000)

    def refusal(self, twin: Twin, allow: frozenset[Status]) -> type[HoldfastError] | None:
        """Why the run may not be claimed now."""
        if twin.status not in allow:
            return RunEnded
        return Claimed if self.is_alive(twin.holder) else None

    def take(self, life: Life, twin: Twin) -> None:
        """The run is claimed: what was begun is finished, and what waits is taken in."""
        twin.holder, twin.status = life, Status.RUNNING
        twin.epoch += 1
        if twin.rolling is not None:
            self.finish_rollback(twin)
        twin.drain()

    def finish_rollback(self, twin: Twin, dies: str | None = None) -> bool:
        """Undo what is to be undone, unless it dies; whether it came to its end."""
        assert twin.rolling is not None
        for seq in twin.undos():
            deed = twin.now.deeds[seq]
            works = deed.undo == "works"
            self.undos[deed.place] += 1
            if works and dies != "before":
                self.things.pop(deed.place, None)
            if works and dies is not None:
                return False
            twin.rolling.results[seq] = works
            twin.write(Kind.UNDONE, undone=dict(twin.rolling.results))
        twin.rewind()
        return True

    def is_zombie(self, life: Life, twin: Twin) -> bool:
        return life in twin.hands and twin.holder is not life

    def bury(self, life: Life, twin: Twin) -> None:
        """A handle whose run was taken over writes: that is refused, nothing is done, and it gives up."""
        if not self.is_zombie(life, twin):
            return
        handle = life.handles[twin.uid]
        with pytest.raises(LeaseLost):
            handle.save({"written by": "a zombie"})
        with pytest.raises(LeaseLost):
            handle.once("zombie", put, "grave", 0, undo=take_away)
        handle.release()
        twin.hands.remove(life)

    def act(
        self,
        side: int,
        twin: Twin,
        call: Callable[[Run], Any],
        then: Callable[[Any], Any],
        *,
        allow: frozenset[Status] = LIVE,
        during: type[BaseException] | None = None,
        prepare: Callable[[], type[BaseException] | None] | None = None,
    ) -> None:
        """Do something that needs the lease, with the one that is held or one for this call alone.

        ``prepare`` looks at the model once the run is held, and says which error the call must raise. ``then`` does
        the same to the model.
        """
        life = self.lives[side]
        self.bury(life, twin)
        handle, owned = self.handle(life, twin), life not in twin.hands
        if owned:
            self.enlist(life)
            if (refused := self.refusal(twin, allow)) is not None:
                with pytest.raises(refused):
                    call(handle)
                self.compare(twin)
                return
            self.take(life, twin)
        expected = prepare() if prepare is not None else during
        if expected is None:
            then(call(handle))
        else:
            with pytest.raises(expected):
                call(handle)
            then(None)
        if owned and twin.holder is life:
            twin.let_go()
        self.compare(twin)

    # --- rules: runs and leases

    @precondition(lambda self: len(self.visible()) < 3)
    @rule(side=sides, n=st.integers(0, 1))
    def create(self, side: int, n: int) -> None:
        self.tick()
        id = f"run {n}"
        made = self.lives[side].hf.run(id, workflow="w", tags={"n": str(n)})
        twin = self.named(id)
        if twin is not None:
            assert made.uid == twin.uid
            return
        assert made.uid not in self.twins
        self.twins[made.uid] = twin = Twin(id, made.uid, 0, [Moment()])
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks)
    def claim(self, side: int, n: int) -> None:
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        handle = self.handle(life, twin)
        if life in twin.hands:
            with pytest.raises(Claimed):
                handle.claim()
            return
        self.enlist(life)
        if (refused := self.refusal(twin, LIVE)) is not None:
            with pytest.raises(refused):
                handle.claim()
        else:
            self.take(life, twin)
            twin.hands.append(life)
            assert handle.claim().epoch == twin.epoch
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks)
    def release(self, side: int, n: int) -> None:
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        self.handle(life, twin).release()
        if self.is_zombie(life, twin):
            twin.hands.remove(life)
        elif life in twin.hands:
            twin.let_go()
        self.compare(twin)

    @rule()
    def expire_all_leases(self) -> None:
        self.clock.advance(LEASE + 1)

    @rule(side=sides)
    def beat(self, side: int) -> None:
        life = self.lives[side]
        if life.until is not None:
            life.hf._store.beat(life.hf._engine.worker.name, LEASE)
            life.until = self.clock.now() + int(LEASE * 1_000_000)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks)
    def take_over(self, side: int, n: int) -> None:
        """One process sleeps too long, and another one takes the run; then the first one wakes up and writes."""
        self.claim(side, n)
        self.clock.advance(LEASE + 1)
        self.beat(1 - side)
        self.claim(1 - side, n)
        self.bury(self.lives[side], self.pick(n))
        self.compare(self.pick(n))

    @precondition(lambda self: any(self.is_zombie(life, twin) for twin in self.twins.values() for life in twin.hands))
    @rule()
    def zombies_write(self) -> None:
        for twin in self.twins.values():
            for life in list(twin.hands):
                self.bury(life, twin)
            if twin.uid not in self.gone:
                self.compare(twin)

    @rule(side=sides)
    def crash(self, side: int) -> None:
        """A process dies and comes back. Its leases are over at the latest when their time is."""
        dead, other = self.lives[side], self.lives[1 - side]
        self.kill(dead)
        for twin in self.twins.values():
            twin.hands = [life for life in twin.hands if life is not dead]
        self.clock.advance(LEASE + 1)
        if other.until is not None:
            other.hf._store.beat(other.hf._engine.worker.name, LEASE)
            other.until = self.clock.now() + int(LEASE * 1_000_000)
        self.lives[side] = self.born()
        for twin in self.visible():
            self.compare(twin)

    @rule(side=sides)
    def recover(self, side: int) -> None:
        self.tick()
        life = self.lives[side]
        orphans = [twin for twin in self.visible() if twin.holder is not None and not self.is_alive(twin.holder)]
        if orphans:
            self.enlist(life)
        for twin in orphans:
            self.take(life, twin)
            twin.holder = None
            twin.let_go()
        assert sorted(life.hf.recover()) == sorted(twin.id for twin in orphans)
        for twin in self.visible():
            self.compare(twin)

    # --- rules: states and steps

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, state=values, next=st.none() | _text, grows=st.booleans())
    def save(self, side: int, n: int, state: Any, next: str | None, grows: bool) -> None:
        self.tick()
        twin = self.pick(n)
        value: Any = state

        def prepare() -> None:
            nonlocal value
            if grows:  # a save that differs little from the one before is stored as the difference
                last = self.look(twin).checkpoint().state
                value = [*last, state] if isinstance(last, list) else [last, state]

        def call(run: Run) -> int:
            given = deepcopy(value)
            seq = run.save(given, next=next)
            if isinstance(given, list):
                given.append("changed after it was saved")
            return seq

        def then(seq: int) -> None:
            step = 0 if twin.now.step is None else twin.now.step + 1
            twin.write(Kind.SAVED, state=exact(value), state_seq=len(twin.moments), step=step, next=next)
            assert seq == twin.seq

        self.act(side, twin, call, then, prepare=prepare)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, key=keys, arg=st.sampled_from([0, 0, 0, 1]), value=values)
    def compute_once(self, side: int, n: int, key: str, arg: int, value: Any) -> None:
        self.tick()
        twin, token = self.pick(n), f"compute {arg}"
        name = (compute.__qualname__, token, exact(value))

        def prepare() -> type[BaseException] | None:
            done = twin.now.done.get(key)
            return NonDeterminism if done is not None and done.call not in (None, name) else None

        def then(result: Any) -> None:
            done = twin.now.done.get(key)
            if done is None:
                self.calls[token] += 1
                twin.complete(Kind.DONE, key, Done(exact(value), name), None)
                assert exact(result) == exact(value)
            elif done.call in (None, name):
                assert exact(result) == done.result

        self.once(side, twin, key, name, lambda run: run.once(key, compute, token, value), then, prepare)

    @precondition(lambda self: self.visible())
    @rule(
        side=sides,
        n=picks,
        key=keys,
        value=st.sampled_from([0, 0, 0, 1]),
        undo=st.sampled_from(["works", "works", "fails", "none"]),
        how=st.sampled_from(["works", "works", "works", "raises", "dies before", "dies after"]),
    )
    def put_once(self, side: int, n: int, key: str, value: int, undo: str, how: str) -> None:
        self.tick()
        twin = self.pick(n)
        place = f"{twin.uid}/{key}"
        name = (put.__qualname__, place, value)

        def prepare() -> type[BaseException] | None:
            done = twin.now.done.get(key)
            if done is not None:
                return NonDeterminism if done.call not in (None, name) else None
            return ValueError if how == "raises" else Died if how.startswith("dies") else None

        def then(result: Any) -> None:
            now = twin.now
            if (done := now.done.get(key)) is not None:
                assert done.call not in (None, name) or exact(result) == done.result
                return
            seq, deed = len(twin.moments), Deed(key, "uncertain", len(twin.moments), undo, place, name)
            before = now.open.get(key)
            deeds = {n: replace(d, status="repeated") if n == before else d for n, d in now.deeds.items()}
            twin.write(Kind.INTENDED, deeds={**deeds, seq: deed}, open={**now.open, key: seq})
            self.calls[place] += 1
            if how in ("works", "dies after"):
                self.things[place] = value
            if how == "works":
                assert result == {"place": place}
                twin.complete(Kind.DONE, key, Done(exact(result), name), (seq, replace(deed, status="done")))
            elif how == "raises":
                twin.complete(Kind.RAISED, key, None, (seq, replace(deed, status="raised")))

        def call(run: Run) -> Any:
            WORLD.put_does = how
            return run.once(key, put, place, value, target=place, undo=UNDOS[undo])

        self.once(side, twin, key, name, call, then, prepare)

    def once(
        self,
        side: int,
        twin: Twin,
        key: str,
        name: Any,
        call: Callable[[Run], Any],
        then: Callable[[Any], None],
        prepare: Callable[[], type[BaseException] | None],
    ) -> None:
        """Call a step. One that is completed is answered without the lease, unless a rollback may abandon it."""
        life = self.lives[side]
        self.bury(life, twin)
        done = twin.now.done.get(key)
        if done is None and ("mark", key) in twin.inbox:
            done = Done(exact(None), None)
        if done is None or twin.rolling is not None or life in twin.hands:
            self.act(side, twin, call, then, prepare=prepare)
        elif done.call in (None, name):
            assert exact(call(self.handle(life, twin))) == done.result
        else:
            with pytest.raises(NonDeterminism):
                call(self.handle(life, twin))
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, work=st.lists(st.tuples(keys, st.sampled_from(list(UNDOS))), min_size=1, max_size=4))
    def work(self, side: int, n: int, work: list[tuple[str, str]]) -> None:
        """Some progress, as a run in good order makes it."""
        for key, undo in work:
            self.put_once(side, n, key, 0, undo, "works")
            self.save(side, n, key, None, grows=True)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, key=keys, done=st.booleans(), again=values)
    def resolve(self, side: int, n: int, key: str, done: bool, again: Any) -> None:
        self.tick()
        twin = self.pick(n)
        key = min(twin.now.open, default=key)

        def then(_: None) -> None:
            seq = twin.now.open.get(key)
            if seq is not None:
                deed = twin.now.deeds[seq]
                result = Done(exact(again), deed.call) if done and key not in twin.now.done else None
                settled = (seq, replace(deed, status="done" if done else "raised"))
                twin.complete(Kind.RESOLVED, key, result, settled)

        def prepare() -> type[BaseException] | None:
            return None if key in twin.now.open else UsageError

        self.act(side, twin, lambda run: run.resolve(key, done=done, result=again), then, prepare=prepare)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, key=keys)
    def mark(self, side: int, n: int, key: str) -> None:
        """Needs no lease: without it, the mark waits in the inbox."""
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        self.bury(life, twin)
        used, known = f"mark {key} {twin.now.generation}", key in twin.now.done
        if life in twin.hands:
            assert self.handle(life, twin).mark(key, "tool") is not known
            if not known:
                twin.mark(key)
        else:
            new = not known and used not in twin.used
            assert self.handle(life, twin).mark(key, "tool") is new
            if new:
                twin.used.add(used)
                twin.inbox.append(("mark", key))
        self.compare(twin)

    # --- rules: pauses and ends

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, prompt=st.sampled_from(["Go on?", "Sure?"]), output_key=keys)
    def pause(self, side: int, n: int, prompt: str, output_key: str) -> None:
        self.tick()
        twin = self.pick(n)

        def then(question: holdfast.Question) -> None:
            now, wanted = twin.now, (prompt, output_key)
            same = [seq for seq, asked in now.questions.items() if (asked.prompt, asked.output_key) == wanted]
            if not same:
                asked = Asked(now.generation, prompt, output_key)
                twin.write(Kind.ASKED, questions={**now.questions, len(twin.moments): asked})
            seq = same[0] if same else twin.seq
            assert (question.seq, question.prompt) == (seq, prompt)
            twin.let_go(Status.WAITING)

        self.act(side, twin, lambda run: run.pause(prompt, output_key=output_key), then)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, which=picks, value=values)
    def answer(self, side: int, n: int, which: int, value: Any) -> None:
        """Needs no lease: the answer waits in the inbox."""
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        self.bury(life, twin)
        handle = self.handle(life, twin)
        answered = {
            data["seq"]
            for kind, data in twin.inbox
            if kind == "answer" and twin.now.questions.get(data["seq"], data["asked"]).generation == data["generation"]
        }
        waiting = [seq for seq in twin.now.questions if seq not in answered]
        seen = handle.questions()
        assert [question.seq for question in seen] == waiting
        if not waiting:
            with pytest.raises(QuestionClosed):
                handle.answer(value)
            return
        question = seen[which % len(seen)]
        handle.answer(value, question=question.id)
        asked = twin.now.questions[question.seq]
        data = {"seq": question.seq, "generation": asked.generation, "asked": asked, "value": exact(value)}
        twin.inbox.append(("answer", data))
        twin.wake()
        with pytest.raises(QuestionClosed):
            self.look(twin).answer(value, question=question.id)
        if life in twin.hands:
            twin.drain()
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, value=values, fails=st.booleans())
    def end(self, side: int, n: int, value: Any, fails: bool) -> None:
        if n % 3:
            return  # ended runs do little, so not too many
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        status = Status.FAILED if fails else Status.COMPLETED

        def call(run: Run) -> None:
            if fails:
                run.fail("no more")
            else:
                run.complete(value)

        def then(_: None) -> None:
            twin.write(Kind(status), ended=status, result=exact(None if fails else value), questions={})
            twin.let_go(status)

        self.bury(life, twin)
        if life not in twin.hands and twin.status is status:
            call(self.handle(life, twin))  # ending twice changes nothing
            self.compare(twin)
        else:
            self.act(side, twin, call, then)

    # --- rules: other ways

    @precondition(lambda self: self.visible() and len(self.visible()) < 5)
    @rule(side=sides, n=picks, at=picks, taken=st.integers(0, 9))
    def fork(self, side: int, n: int, at: int, taken: int) -> None:
        self.tick()
        twin = self.pick(n)
        parent, point = self.handle(self.lives[side], twin), at % (twin.seq + 1)
        if taken == 0:
            with pytest.raises(RunExists):
                parent.fork(point, id=twin.id)
            return
        self.forks += 1
        id = f"fork {self.forks}"
        made = parent.fork(point, id=id)
        start = twin.moments[point]
        waiting = start.kind == Kind.ASKED or (point == twin.seq and twin.status is Status.WAITING)
        child = Twin(id, made.uid, point + 1, twin.moments[: point + 1], (*twin.lineage, twin.uid))
        child.status = Status.WAITING if waiting else Status.READY
        deeds = settled(start.deeds, start.undone)
        deeds = {seq: deed for seq, deed in deeds.items() if deed.status != "uncertain"}
        child.write(Kind.FORKED, deeds=deeds, undone={}, open={}, ended=None, result=None)
        self.twins[made.uid] = child
        child.hashes = twin.hashes[: point + 1]
        self.compare(child)
        self.compare(twin)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks, to=picks, dies=st.sampled_from([None, None, "before", "after"]), goes_on=st.booleans())
    def rollback(self, side: int, n: int, to: int, dies: str | None, goes_on: bool) -> None:
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        wanted = [seq for seq in twin.now.live if seq >= twin.base - 1]
        near = wanted[-6:] if to % 2 else wanted
        point = to if to % 7 == 0 else near[to % len(near)]
        if twin.rolling is not None:
            dies = None  # the claim finishes the one that was broken off, and that would die first
        finishes = True

        def prepare() -> type[BaseException] | None:
            twin.drain()
            if point not in twin.now.live or point < twin.base - 1:
                return NoCheckpoint
            twin.begin_rollback(point)
            nonlocal finishes
            finishes = dies is None or not any(twin.now.deeds[seq].undo == "works" for seq in twin.undos())
            WORLD.undo_dies = None if finishes else dies
            return None if finishes else Died

        def then(report: holdfast.RollbackReport | None) -> None:
            if twin.rolling is None:
                return
            rolling = twin.rolling
            assert self.finish_rollback(twin, None if finishes else dies) is finishes
            if report is None:
                return
            told = {"undone": report.undone, "undo_failed": report.failed, "left": report.irreversible}
            for status, effects in told.items():
                expected = [seq for seq in rolling.plan if twin.now.deeds[seq].status == status]
                assert [effect.seq for effect in effects] == expected
            uncertain = [
                seq for seq in rolling.plan if twin.now.deeds[seq].status in ("uncertain", "repeated", "raised")
            ]
            assert sorted(effect.seq for effect in report.uncertain) == sorted(uncertain)
            assert (report.to, report.generation) == (rolling.to, twin.now.generation)

        self.act(side, twin, lambda run: run.rollback(point), then, allow=LIVE | ENDED, prepare=prepare)
        if twin.rolling is not None and life in twin.hands:
            with pytest.raises(UsageError):
                self.handle(life, twin).save("in the middle of a rollback")
            self.release(side, n)
        if goes_on:
            self.save(side, n, "on again", None, grows=True)
            self.save(side, n, "and on", None, grows=True)

    @precondition(lambda self: self.visible())
    @rule(side=sides, n=picks)
    def delete(self, side: int, n: int) -> None:
        if n % 2:
            return
        self.tick()
        life, twin = self.lives[side], self.pick(n)
        handle = self.handle(life, twin)
        if self.is_alive(twin.holder):
            with pytest.raises(Claimed):
                handle.delete()
            self.compare(twin)
            return
        assert handle.delete()
        assert not handle.delete()
        self.forget(twin)

    @rule(side=sides, keep=st.integers(0, 1))
    def prune(self, side: int, keep: int) -> None:
        self.tick()
        ended = sorted((twin for twin in self.visible() if twin.status in ENDED), key=lambda twin: twin.uid)
        expected = [twin for twin in ended[: len(ended) - keep] if twin.holder is None]
        hf = self.lives[side].hf
        pruned = hf.prune(older_than=timedelta(0), keep_last=keep)
        assert sorted(pruned) == sorted(twin.id for twin in expected)
        self.forget(*expected)

    def forget(self, *twins: Twin) -> None:
        """The runs were deleted: they are not seen any more, and what forks share of them stays."""
        for twin in twins:
            twin.holder = None
            self.gone[twin.uid] = twin
        for twin in twins:
            with pytest.raises(RunNotFound):
                self.watcher.get(twin.id)
        for other in self.visible():
            self.compare(other)
        store = self.watcher._store
        for uid in self.gone:
            shared = any(uid in other.lineage and self.shares(other, uid) for other in self.visible())
            if shared:
                assert store.journal(uid) is not None

    def shares(self, twin: Twin, uid: str) -> bool:
        record = self.watcher._store.journal(twin.uid)
        assert record is not None
        return any(link.uid == uid for link in record.lineage)

    # --- comparing

    def tick(self) -> None:
        self.clock.advance(0.001)

    def look(self, twin: Twin) -> Run:
        """A handle that knows nothing from before."""
        return self.watcher.get(twin.id)

    def compare(self, twin: Twin) -> None:
        """What the store says about the run is what the model says."""
        run = self.look(twin)
        info = run.info()
        assert run.uid == twin.uid
        assert (info.status, info.seq, info.generation) == (twin.status, twin.seq, twin.now.generation)
        assert (info.holder is None) is (twin.holder is None)
        if twin.holder is not None:
            assert info.holder == twin.holder.hf._engine.worker.name
        self.compare_journal(twin, run)
        for seq in range(min(twin.checked, twin.seq), twin.seq + 1):
            self.compare_moment(run, seq, twin.moments[seq])
        for seq in {self.clock.now() % (twin.seq + 1), twin.seq // 2}:
            self.compare_moment(run, seq, twin.moments[seq])
        twin.checked = twin.seq
        assert WORLD.things == self.things
        assert WORLD.calls == self.calls
        assert WORLD.undos == self.undos

    def compare_journal(self, twin: Twin, run: Run) -> None:
        """No gaps, the right kinds, nothing changed since it was read first, and the chain verifies."""
        history = run.history(limit=1000)
        assert [(entry.seq, entry.kind) for entry in history] == [
            (seq, str(moment.kind)) for seq, moment in enumerate(twin.moments)
        ]
        assert [entry.seq for entry in history if entry.live] == list(twin.now.live)
        assert [entry.seq for entry in history if entry.inherited] == list(range(twin.base))
        record = run._record()
        assert record.epoch == twin.epoch
        hashes = [entry.hash for entry in self.watcher._journals.headers(record, 0, twin.seq)]
        assert hashes[: len(twin.hashes)] == twin.hashes
        twin.hashes = hashes
        report = run.audit()
        assert (report.entries, report.redacted) == (twin.seq + 1, ())

    def compare_moment(self, run: Run, seq: int, moment: Moment) -> None:
        """A checkpoint says what was acknowledged, whatever happened since."""
        found = run.checkpoint(seq)
        assert (found.seq, found.generation) == (seq, moment.generation)
        assert (found.state_seq, found.step, found.next) == (moment.state_seq, moment.step, moment.next)
        if moment.state_seq is not None:
            assert exact(found.state) == moment.state
        assert {key: exact(value) for key, value in found.results.items()} == {
            key: done.result for key, done in moment.done.items()
        }
        assert [(effect.seq, effect.key, effect.status) for effect in found.effects] == [
            (n, deed.key, deed.status) for n, deed in sorted(moment.deeds.items())
        ]
        assert {question.seq: (question.prompt, question.output_key) for question in found.questions} == {
            n: (asked.prompt, asked.output_key) for n, asked in moment.questions.items()
        }
        assert {key: exact(value) for key, value in found.answers.items()} == moment.answers
        if moment.ended is not None:
            assert exact(found.result) == moment.result
