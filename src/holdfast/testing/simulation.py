"""Several workers on one store, in an order that a number decides, so that whatever went wrong can be seen again.

Each worker, and a person who answers, sends and cancels, is a thread with an engine of its own; but only one of them
moves at a time. Before every call of the store it waits for its **turn**, and a scheduler with a seed says whose turn
it is. The scheduler also lets time pass, lets workers **stall** (no heartbeat, until they come back as zombies), and
lets them die before or after a call. The same seed gives the same history, entry by entry.

`Ledger` checks what must hold after each call of the store: who may hold a run, who may write to it, that journals
only grow. `Outside` is what steps do things to; it checks that what is done is not done again by a rightful holder.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

from holdfast.engine.app import Holdfast
from holdfast.engine.execute.execute import drive_on
from holdfast.engine.run.handle import Run
from holdfast.engine.workflow.declare import registered_names
from holdfast.engine.workflow.effect_step import this_step
from holdfast.engine.workflow.inputs import QUEUE
from holdfast.errors import Claimed, HoldfastError, InboxNotEmpty, LeaseLost
from holdfast.kernel.journal import verify
from holdfast.kernel.model import ENDED, Append, Create, Entry, Filter, Kind, RunRecord, Status, Write
from holdfast.kernel.rules import LIVE, Outcome, wake_time
from holdfast.stores.memory import MemoryStore
from holdfast.stores.protocol import LOOK_EVERY, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.crash import Crash
from holdfast.testing.still import open_still

LEASE = 10.0
MAX_TURNS = 20_000
MAX_TROUBLE = 20  # in one history; it must come to an end


class Violation(AssertionError):
    """Something that must hold did not."""


class Ledger:
    """What must hold of leases and journals, kept apart from the store."""

    def __init__(self, clock: ManualClock, violated: Callable[[str], NoReturn]) -> None:
        self.clock = clock
        self.holders: dict[str, tuple[str, int]] = {}
        self.epochs: dict[str, int] = {}
        self.until: dict[str, int] = {}
        self.entries: dict[str, list[Entry]] = {}
        self.refusals = 0  # writes of those who did not hold the run any longer
        self._violated = violated

    def lives(self, worker: str) -> bool:
        return self.until.get(worker, 0) > self.clock.now()

    def claimed(self, record: RunRecord, worker: str) -> None:
        held = self.holders.get(record.uid)
        if held is not None and self.lives(held[0]):
            self._violated(f"{record.id}: {worker} claimed it while {held[0]} held it and was alive")
        if record.epoch <= self.epochs.get(record.uid, 0):
            self._violated(f"{record.id}: epoch {record.epoch} was given before")
        self.holders[record.uid], self.epochs[record.uid] = (worker, record.epoch), record.epoch

    def refused(self, uid: str, error: HoldfastError) -> None:
        held = self.holders.get(uid)
        if isinstance(error, Claimed) and (held is None or not self.lives(held[0])):
            self._violated(f"run {uid} is stranded: nobody holds it, and it cannot be claimed: {error}")

    def wrote(self, write: Write, outcome: Outcome) -> None:
        if isinstance(write, Create):
            if isinstance(outcome, RunRecord) and outcome.uid == write.record.uid:
                self.entries[outcome.uid] = list(write.entries)
                self.epochs[outcome.uid] = outcome.epoch
                if outcome.worker is not None:
                    self.holders[outcome.uid] = outcome.worker, outcome.epoch
            return
        if not isinstance(write, Append):
            return
        held = self.holders.get(write.uid)
        if write.worker:
            rightful = held == (write.worker, write.epoch)
        else:  # to a run that nobody holds
            rightful = held is None and self.epochs[write.uid] == write.epoch
        if outcome is not None:
            if isinstance(outcome, InboxNotEmpty):
                return  # what was posted meanwhile comes before the end
            if (rightful and write.worker) or not isinstance(outcome, LeaseLost):
                self._violated(f"{write.id}: a write of its holder was refused: {outcome}")
            self.refusals += 1
            return
        if not rightful:
            self._violated(f"{write.id}: {write.worker} wrote at epoch {write.epoch}, which is not the current one")
        self._append(write)
        if write.change is not None and write.change.release:
            del self.holders[write.uid]

    def _append(self, write: Append) -> None:
        journal = self.entries[write.uid]
        for entry in write.entries:
            before = journal[-1]
            if entry.seq != before.seq + 1 or entry.prev != before.hash:
                self._violated(f"{write.id}: entry {entry.seq} does not follow entry {before.seq}")
            journal.append(entry)
        verify(write.id, write.entries)

    def check_journal(self, store: Store, record: RunRecord) -> None:
        """Nothing that was acknowledged is lost or changed."""
        if store.read(record.uid, 0, 1 << 40) != self.entries[record.uid]:
            self._violated(f"{record.id}: its journal is not what was written to it")


class Outside:
    """What steps do things to."""

    def __init__(self, simulation: Simulation) -> None:
        self.acts: Counter[str] = Counter()  # by idempotency key
        self.done: Counter[str] = Counter()  # by name
        self.undone: Counter[str] = Counter()
        self.zombies = 0  # acts of somebody who did not hold the run any longer
        self._simulation = simulation

    def act(self, name: str, *, once: bool = False) -> None:
        """The running step acts. ``once``: it must never do so twice."""
        this, simulation = this_step(), self._simulation
        record = simulation.raw.get(this.run)
        assert record is not None
        worker = simulation.actor().hf.client.engine.worker.name
        if simulation.ledger.holders.get(record.uid) == (worker, record.epoch):
            if this.key in simulation.observer.client.journals.fold(record, record.seq).steps:
                simulation.violated(f"{this.run}: {this.key} is on record as done, and its holder ran it again")
        else:
            self.zombies += 1
        self.acts[this.idempotency_key] += 1
        self.done[name] += 1
        if once and self.acts[this.idempotency_key] > 1:
            simulation.violated(f"{this.run}: {this.key} is at most once, and was done twice")

    def was_done(self) -> bool:
        """Whether the step that is being asked about acted."""
        return self.acts[this_step().idempotency_key] > 0


class TurnStore:
    """A store whose every call waits for its turn."""

    compress_over: int | None = None
    networked = False
    look_every = LOOK_EVERY

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.raw: Store = actor.simulation.raw
        self.place, self.clock = self.raw.place, self.raw.clock
        self._ledger = actor.simulation.ledger

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.raw, name)

        def in_turn(*args: Any, **kwargs: Any) -> Any:
            self.actor.turn(name)
            value = call(*args, **kwargs)
            self.actor.after(name)
            return value

        return in_turn

    def apply(self, batch: Sequence[Write]) -> list[Outcome]:
        self.actor.turn("apply")
        outcomes = self.raw.apply(batch)
        for write, outcome in zip(batch, outcomes, strict=True):
            self._ledger.wrote(write, outcome)
        self.actor.after("apply")
        return outcomes

    def claim(self, uid: str, worker: str, allow: Collection[Status] = LIVE, *, alone: bool = False) -> RunRecord:
        self.actor.turn("claim")
        try:
            record = self.raw.claim(uid, worker, allow, alone=alone)
        except HoldfastError as error:
            self._ledger.refused(uid, error)
            raise
        self._ledger.claimed(record, worker)
        self.actor.after("claim")
        return record

    def beat(self, worker: str, lease: float) -> None:
        self.actor.turn("beat")
        self.raw.beat(worker, lease)
        self._ledger.until[worker] = self.clock.now() + round(lease * 1_000_000)

    def version(self) -> int:
        return self.raw.version()  # asked for again and again, and nothing depends on when


class Actor:
    """Somebody who uses the store in turns, in a thread."""

    def __init__(self, simulation: Simulation, name: str, work: Callable[[Actor], bool]) -> None:
        self.simulation = simulation
        self.name = name
        self.stalled_until = 0
        self.resting = False
        self.ended = False
        self._work = work
        self._dead = False
        self._doom: str | None = None
        self._go = threading.Lock()
        self._go.acquire()
        self._back = threading.Lock()
        self._back.acquire()
        self.hf: Holdfast = open_still(TurnStore(self), lease=LEASE)
        self.thread = threading.Thread(target=self._live, name=f"simulated-{name}", daemon=True)
        self.thread.start()

    # --- in the scheduler's thread

    def move(self, doom: str | None = None) -> None:
        """Let it move until it waits for its turn again."""
        self._doom = doom
        self._go.release()
        self._back.acquire()

    def end(self) -> None:
        """Let it end, wherever it is."""
        self._dead = True
        while not self.ended:
            self.move()
        self.thread.join()

    # --- in its own

    def _live(self) -> None:
        self._go.acquire()
        try:
            while not self._dead:
                self.resting = not self._work(self)
                if self.resting:
                    self.turn("rest")
        except Crash:
            pass
        except BaseException as error:  # whatever it is, the simulation stops with it
            self.simulation.failure = self.simulation.failure or error
        finally:
            self.ended = True
            self._back.release()

    def turn(self, what: str) -> None:
        """Wait for the next turn, in which ``what`` is done. Dies here if that is its fate."""
        if self._dead:
            raise Crash
        self.simulation.calls.append((self.name, what))
        self._back.release()
        self._go.acquire()
        self.resting = False
        if self._dead or self._doom == "before":
            self._dead = True
            raise Crash

    def after(self, what: str) -> None:
        """It did something. Dies here, before it knows, if that is its fate."""
        if self._doom == "after":
            self._dead = True
            raise Crash


class Simulation:
    """One history. ``begin`` gives the runs to start, ``person`` what somebody does who looks at them now and then."""

    _current: Simulation | None = None

    def __init__(
        self,
        seed: int,
        begin: Callable[[Holdfast], None],
        person: Callable[[Simulation, Holdfast, random.Random], bool],
        *,
        workers: int = 3,
        trouble: float = 0.02,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = ManualClock(seed=seed)
        self.raw: Store = MemoryStore(clock=self.clock)
        self.ledger = Ledger(self.clock, self.violated)
        self.outside = Outside(self)
        self.observer = open_still(self.raw, lease=LEASE)
        self.calls: list[tuple[str, str]] = []
        self.failure: BaseException | None = None
        self.crashes = self.stalls = 0
        self._trouble = trouble
        self._person = person
        self._names = 0
        self._begin = begin
        self._begun = False
        self._workers = workers
        self.actors: list[Actor] = []

    @classmethod
    def now(cls) -> Simulation:
        """The one that is running, for the steps of its workflows."""
        assert cls._current is not None
        return cls._current

    def actor(self) -> Actor:
        """Whose thread this is."""
        this = threading.current_thread()
        return next(actor for actor in self.actors if actor.thread is this)

    def run(self) -> Simulation:
        """Simulate until all runs have ended. Raises `Violation`, with the seed and the schedule."""
        Simulation._current = self
        try:
            for _ in range(self._workers):
                self._hire()
            self.actors.append(Actor(self, "person", self._visit))
            for _ in range(MAX_TURNS):
                if self._is_over():
                    break
                self._step()
                if self.failure is not None:
                    break
            else:
                self.failure = Violation(f"after {MAX_TURNS} turns: {self._open()}")
            if self.failure is None:
                self._check_end()
        except Crash:  # of a check at the end
            pass
        finally:
            for actor in self.actors:
                actor.end()
            Simulation._current = None
        if self.failure is not None:
            told = f"{type(self.failure).__name__}: {self.failure}"
            raise Violation(f"seed {self.seed}: {told}\n{self.schedule()}") from self.failure
        return self

    def violated(self, what: str) -> NoReturn:
        """Something must not be. Whoever did it does nothing more, and the simulation ends."""
        self.failure = self.failure or Violation(what)
        raise Crash

    def schedule(self, last: int = 60) -> str:
        """The last turns."""
        return " ".join(f"{name}.{what}" for name, what in self.calls[-last:])

    def history(self) -> list[tuple[str, int, str]]:
        """Every run with its last entry; its hash covers all that came before."""
        return sorted((record.id, record.seq, record.hash.hex()) for record in self._records())

    # --- whose turn it is

    def _hire(self) -> None:
        self._names += 1
        self.actors.append(Actor(self, f"w{self._names}", self._labour))

    def _step(self) -> None:
        chance = self.random
        awake = self._awake()
        if all(actor.resting for actor in awake):
            self._pass_time(self._until_something())
        elif chance.random() < 0.1:
            self._pass_time(chance.choice((0.01, 0.5, 3.0)))
        awake = self._awake()
        if not awake:
            return
        busy = [actor for actor in awake if not actor.resting]
        actor = chance.choice(busy if busy and chance.random() < 0.9 else awake)
        doom = None
        if chance.random() < self._trouble and self.crashes + self.stalls < MAX_TROUBLE:
            if chance.random() < 0.7:
                self.stalls += 1
                actor.stalled_until = self.clock.now() + round(chance.uniform(0.5, 3) * LEASE * 1_000_000)
                return
            doom = chance.choice(("before", "after"))
        actor.move(doom)
        if actor.ended:
            self._bury(actor)

    def _awake(self) -> list[Actor]:
        now = self.clock.now()
        return [actor for actor in self.actors if actor.stalled_until <= now]

    def _bury(self, actor: Actor) -> None:
        """A process died. Its locks may be free at once, or its leases end in time."""
        self.crashes += 1
        self.actors.remove(actor)
        worker = actor.hf.client.engine.worker.name
        if self.random.random() < 0.5:
            self.raw.beat(worker, 0)
            self.ledger.until.pop(worker, None)
        if actor.name == "person":
            self.actors.append(Actor(self, "person", self._visit))
        else:
            self._hire()

    def _until_something(self) -> float:
        now = self.clock.now()
        times = [*(wake_time(record) or 0 for record in self._records()), *(one.stalled_until for one in self.actors)]
        soon = [(time - now) / 1_000_000 for time in times if time > now]
        return min([*soon, LEASE / 3])  # so that whoever rests may look in between

    def _pass_time(self, seconds: float) -> None:
        """Time passes, and whoever lives and is not stalled beats meanwhile."""
        while seconds > 0:
            some = min(seconds, LEASE / 3)
            seconds -= some
            self.clock.advance(some)
            for actor in self.actors:
                worker = actor.hf.client.engine.worker
                if actor.stalled_until <= self.clock.now() and worker.name in self.ledger.until:
                    self.raw.beat(worker.name, LEASE)
                    self.ledger.until[worker.name] = self.clock.now() + round(LEASE * 1_000_000)
                    worker.until = self.clock.monotonic() + round(LEASE * 1_000_000)

    # --- what they do

    def _labour(self, actor: Actor) -> bool:
        """What a worker does: take what is due, and drive it."""
        store = actor.hf.client.store
        found = store.look((QUEUE,), registered_names(), limit=10).due + store.find(Filter(orphaned=True), limit=10)
        if not found:
            return False
        record = self.random.choice(found)
        actor.hf.perform(drive_on(actor.hf.client.run(record.id, record.uid)))
        return True

    def _visit(self, actor: Actor) -> bool:
        """What the person does: begin the runs, and then see to them."""
        if not self._begun:
            self._begin(actor.hf)
            self._begun = True
        return self._person(self, actor.hf, self.random)

    # --- the end

    def _records(self) -> list[RunRecord]:
        return self.raw.find(Filter(), limit=1000)

    def _open(self) -> str:
        return ", ".join(f"{one.id} is {one.status}" for one in self._records() if one.status not in ENDED)

    def _is_over(self) -> bool:
        if not self._begun or any(actor.stalled_until > self.clock.now() or not actor.resting for actor in self.actors):
            return False
        return all(record.status in ENDED for record in self._records())

    def _check_end(self) -> None:
        for record in self._records():
            self.ledger.check_journal(self.raw, record)
            run = Run(self.observer.client.run(record.id, record.uid))
            run.audit()
            entries = run.held.journals.entries(record, record.base, record.seq, saved=False)
            told = [run.held.journals.data(run.id, uid, entry) for uid, entry in entries if entry.kind == Kind.ANSWERED]
            answers = Counter(data["question"] for data in told)
            if answers and max(answers.values()) > 1:
                self.violated(f"{record.id}: a question was answered twice: {answers}")
