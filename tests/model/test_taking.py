"""Random histories of queues: every store takes what the store in memory takes, and stays within the limits."""

import random
from collections import Counter
from pathlib import Path

import pytest

from holdfast.errors import RunEnded
from holdfast.kernel.admission import Candidate, Held, admitted
from holdfast.kernel.model import ENDED, Change, Limits, Order, Post, RunRecord, Status
from holdfast.stores import Store, open_store
from holdfast.stores.protocol import find_document, write_one
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, delete, item, make, put

QUEUES, LANES, WORKFLOWS = ("p", "q", "r"), (None, "a", "b", "c"), ("v", "w")


def limits_of(dice: random.Random) -> Limits | None:
    return None if dice.random() < 0.2 else Limits(*(dice.choice([None, None, 1, 2, 4]) for _ in range(4)))


class History:
    """The same things happen to two stores, and both say the same."""

    def __init__(self, dice: random.Random, store: Store, memory: Store, clock: ManualClock) -> None:
        self.dice, self.clock, self.author = dice, clock, Author(clock)
        self.both = (store, memory)
        self.held: list[RunRecord] = []
        self.known: list[str] = []
        self.workers = 0
        self.alive = [self.hire() for _ in range(3)]
        self.documents: dict[str, bytes] = {}

    def hire(self) -> str:
        self.workers += 1
        for store in self.both:
            store.beat(f"worker {self.workers}", LEASE)
        return f"worker {self.workers}"

    def enqueue(self) -> None:
        dice = self.dice
        later = self.clock.now() + dice.randrange(5_000_000) if dice.random() < 0.3 else None
        write = self.author.create(
            f"run {len(self.known)}",
            queue=dice.choice([*QUEUES, None]),
            workflow=dice.choice(WORKFLOWS),
            priority=dice.choice([0, 0, 0, 1, -3, 7]),
            lane=dice.choice(LANES),
            status=Status.READY if later is None else Status.WAITING,
            wake_at=later,
        )
        self.known.append(write.record.uid)
        for store in self.both:
            make(store, write)

    def take(self) -> None:
        dice = self.dice
        order = Order(
            worker=dice.choice(self.alive),
            queues={name: limits_of(dice) for name in dice.sample(QUEUES, dice.choice([1, 2, 3]))},
            workflows=frozenset(dice.sample(WORKFLOWS, dice.choice([1, 2]))),
            limit=dice.choice([1, 2, 5]),
            leave=frozenset(dice.sample(self.known, min(len(self.known), 2))),
            suspects=dice.choice([0, 1, 1]),
            alone=dice.random() < 0.3,
        )
        before = [record for record in self.held if record.worker in self.alive]
        taken, expected = (store.take(order) for store in self.both)
        assert taken == expected, order
        again = {record.uid for record in taken}
        self.held = [record for record in self.held if record.uid not in again] + taken
        for name, limits in order.queues.items():
            self.check(order.worker, name, limits or Limits(), before, taken)

    def check(self, worker: str, name: str, limits: Limits, before: list[RunRecord], taken: list[RunRecord]) -> None:
        new = [record for record in taken if record.queue == name]
        all_of_it = [record for record in before if record.queue == name] + new
        if not new:
            return
        assert limits.total is None or len(all_of_it) <= limits.total
        mine = sum(record.worker == worker for record in all_of_it)
        assert limits.per_worker is None or mine <= limits.per_worker
        lanes = Counter(record.lane for record in all_of_it if record.lane is not None)
        crowded = {record.lane for record in new} - {None}
        assert limits.per_lane is None or all(lanes[lane] <= limits.per_lane for lane in crowded)
        assert limits.starts is None or sum(record.epoch == 1 for record in new) <= limits.starts

    def let_go(self) -> None:
        mine = [record for record in self.held if record.worker in self.alive]
        if mine:
            held = self.dice.choice(mine)
            self.held.remove(held)
            status = self.dice.choice([Status.READY, Status.WAITING, Status.WAITING, Status.COMPLETED, Status.BLOCKED])
            wake_at = self.clock.now() + self.dice.randrange(-10, 3_000_000) if self.dice.random() < 0.7 else None
            at = wake_at if status is Status.WAITING else None
            for store in self.both:
                took = tuple(one.key for one in store.inbox(held.uid)) if status in ENDED else ()
                put(store, self.author.append(held, change=Change(status=status, release=True, wake_at=at), took=took))

    def die(self) -> None:
        gone = self.alive.pop(self.dice.randrange(len(self.alive)))
        for store in self.both:
            store.beat(gone, 0)
        self.alive.append(self.hire())

    def post(self) -> None:
        if self.known:
            uid, key = self.dice.choice(self.known), f"{self.dice.random()}"
            assert len({self.posted(store, uid, key) for store in self.both}) == 1

    @staticmethod
    def posted(store: Store, uid: str, key: str) -> bool:
        try:
            return write_one(store, Post(uid, item(key)))
        except RunEnded:
            return False

    def delete(self) -> None:
        free = [uid for uid in self.known if all(record.uid != uid for record in self.held)]
        if free:
            uid = self.dice.choice(free)
            assert len({delete(store, uid) for store in self.both}) == 1
            self.known.remove(uid)

    def write(self) -> None:
        name, value = self.dice.choice("xyz"), self.dice.choice([None, b"{}", b'{"a":1}'])
        for store in self.both:
            known = find_document(store, "k", name)
            assert not store.put_document("k", name, b"wrong", known.version + 1 if known else 5)
            assert store.put_document("k", name, value, known.version if known else None)
        self.documents.pop(name, None)
        if value is not None:
            self.documents[name] = value
        for store in self.both:
            assert {one.name: one.value for one in store.documents("k")} == self.documents

    def step(self) -> None:
        acts = [self.enqueue] * 5 + [self.take] * 6 + [self.let_go] * 4
        self.dice.choice([*acts, self.die, self.post, self.delete, self.write])()
        self.clock.advance(self.dice.choice([0.0, 0.1, 1.0]))
        for store in self.both:  # nobody's lease ends
            for worker in self.alive:
                store.beat(worker, LEASE)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_every_store_takes_what_the_store_in_memory_takes(kind: str, seed: int, memdir: Path) -> None:
    print(f"seed {seed}")
    clock = ManualClock(seed=seed)
    url = f"sqlite:///{memdir / 'runs.db'}" if kind == "sqlite" else f"files:///{memdir / 'runs'}"
    store, memory = open_store(url, clock=clock), open_store("memory://", clock=clock)
    history = History(random.Random(seed), store, memory, clock)
    for _ in range(160):
        history.step()
        assert store.backlog() == memory.backlog()
        assert store.look(QUEUES, WORKFLOWS).due == memory.look(QUEUES, WORKFLOWS).due
    store.close()


@pytest.mark.parametrize("seed", range(200))
def test_what_is_admitted_is_all_that_could_be(seed: int) -> None:
    """No more than the limits allow, and nothing is left that they would allow."""
    dice = random.Random(seed)
    queues = {name: limits_of(dice) for name in QUEUES}
    candidates = {
        name: [Candidate(f"{name}{n}", dice.choice(LANES), dice.random() < 0.3) for n in range(dice.randrange(8))]
        for name in QUEUES
    }
    held = {
        name: [Held(dice.choice(["me", "you"]), dice.choice(LANES)) for _ in range(dice.randrange(4))]
        for name in QUEUES
    }
    order = Order(worker="me", queues=queues, workflows=frozenset(), limit=dice.choice([1, 3, 99]))
    chosen = admitted(order, candidates, held)
    assert len(chosen) == len(set(chosen)) <= order.limit
    for name, limits in queues.items():
        mine = [one for one in candidates[name] if one.uid in chosen]
        assert [one.uid for one in mine] == [uid for uid in chosen if uid[0] == name], "in their order"
        left = [one for one in candidates[name] if one.uid not in chosen]
        for one in left if len(chosen) < order.limit else ():
            assert not allowed(limits or Limits(), [*held[name], *(Held("me", two.lane) for two in mine)], mine, one)


def allowed(limits: Limits, held: list[Held], mine: list[Candidate], one: Candidate) -> bool:
    lane = sum(two.lane == one.lane for two in held)
    return not (
        (limits.total is not None and len(held) >= limits.total)
        or (limits.per_worker is not None and sum(two.worker == "me" for two in held) >= limits.per_worker)
        or (limits.per_lane is not None and one.lane is not None and lane >= limits.per_lane)
        or (limits.starts is not None and not one.begun and sum(not two.begun for two in mine) >= limits.starts)
    )
