"""What every store promises about queues: what is taken, within which limits, and the documents of the engine.

A part of `holdfast.testing.contract.StoreContract`.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.kernel.model import Append, Backlog, Change, Kind, Limits, Order, Outlook, Post, RunRecord, Status
from holdfast.kernel.rules import SUSPECT
from holdfast.stores.protocol import Store, find_document, write_one
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract_author import LEASE, Author, delete, ids, item, make, put

TEXTS = ("a/b", "nul\0inside", "Case", "case", "é" * 300, "\U0001f980", " ", "..", "lock", ".lock")


def order(*queues: str, worker: str = "east", limit: int = 100, **how: Any) -> Order:
    """What a worker asks for: of the workflow ``w``, from these queues, with the limits that are given."""
    limits = how.pop("limits", None)
    names = queues or ("q",)
    how.setdefault("workflows", frozenset({"w"}))
    return Order(worker=worker, queues=dict.fromkeys(names, limits), limit=limit, **how)


def let_go(store: Store, author: Author, held: RunRecord, status: Status = Status.COMPLETED) -> None:
    """Give up a run that was taken."""
    put(store, author.append(held, change=Change(status=status, release=True)))


class QueueContract:
    """The promises about queues and documents."""

    def enqueued(self, store: Store, author: Author, id: str, **facts: Any) -> RunRecord:
        """A new run of the queue ``q`` and the workflow ``w``."""
        return make(store, author.create(id, **{"queue": "q", "workflow": "w", **facts}))

    def many_enqueued(self, store: Store, author: Author, *names: str, **facts: Any) -> list[RunRecord]:
        return [self.enqueued(store, author, name, **facts) for name in names]

    # --- records

    def test_a_run_keeps_its_priority_and_its_lane(self, store: Store, other: Store, author: Author) -> None:
        made = self.enqueued(store, author, "run", priority=-7, lane="customer \0 1")
        assert (made.priority, made.lane) == (-7, "customer \0 1")
        assert other.get("run") == made
        held = store.claim(made.uid, "east")
        assert (held.priority, held.lane) == (-7, "customer \0 1")

    def test_a_run_may_be_made_to_begin_later(self, store: Store, author: Author, clock: ManualClock) -> None:
        at = clock.now() + 5_000_000
        made = self.enqueued(store, author, "run", status=Status.WAITING, wake_at=at)
        assert store.take(order()) == []
        assert store.look(["q"], ["w"]) == Outlook([], at)
        assert write_one(store, Post(made.uid, item("k")))
        assert store.take(order()) == [], "what arrives does not let it begin sooner"
        clock.advance(5)
        assert ids(store.take(order())) == ["run"]

    # --- taking

    def test_take_claims_what_is_due(self, store: Store, other: Store, author: Author) -> None:
        made = self.enqueued(store, author, "run")
        [taken] = store.take(order())
        assert taken == replace(made, status=Status.RUNNING, epoch=1, worker="east")
        assert other.get("run") == taken
        assert store.take(order()) == other.take(order(worker="north")) == []
        put(store, author.append(taken, Kind.DONE))

    def test_take_is_of_the_given_queues_and_workflows(self, store: Store, author: Author) -> None:
        for queue in ("p", "q", "r"):
            for workflow in ("v", "w", None):
                self.enqueued(store, author, f"{queue}{workflow}", queue=queue, workflow=workflow)
        make(store, author.create("by hand", workflow="w"))
        assert store.take(order("s")) == store.take(order("p", workflows=frozenset())) == []
        assert store.take(Order(worker="east", queues={}, workflows=frozenset({"w"}), limit=9)) == []
        assert sorted(ids(store.take(order("p", "q")))) == ["pw", "qw"]
        assert sorted(ids(store.take(order("r", workflows=frozenset({"v", "w"}))))) == ["rv", "rw"]

    @pytest.mark.parametrize("status", [one for one in Status if one is not Status.READY])
    def test_what_is_not_due_is_not_taken(self, store: Store, author: Author, status: Status) -> None:
        held = store.claim(self.enqueued(store, author, "run").uid, "west")
        let_go(store, author, held, status)
        assert store.take(order()) == []

    def test_a_deleted_run_is_not_taken(self, store: Store, author: Author) -> None:
        delete(store, self.enqueued(store, author, "run").uid)
        assert store.take(order()) == []

    def test_take_stops_at_the_limit_and_leaves_what_is_not_wanted(self, store: Store, author: Author) -> None:
        made = self.many_enqueued(store, author, "a", "b", "c", "d")
        leave = frozenset({made[0].uid, made[2].uid})
        assert ids(store.take(order(limit=1, leave=leave))) == ["b"]
        assert ids(store.take(order(leave=leave))) == ["d"]
        assert ids(store.take(order())) == ["a", "c"]

    def test_the_highest_priority_goes_first_and_then_what_is_due_longest(
        self, store: Store, author: Author, clock: ManualClock
    ) -> None:
        start = clock.now()
        facts: dict[str, dict[str, Any]] = {
            "low": {"priority": -1},
            "waits": {"wake_at": start + 3_000_000, "status": Status.WAITING},
            "first": {},
            "high": {"priority": 5},
            "higher": {"priority": 70_000},
            "woken": {"wake_at": start + 1_000_000, "status": Status.WAITING, "priority": 5},
            "later": {"wake_at": start + 99_000_000, "status": Status.WAITING, "priority": 99},
        }
        for id, fact in facts.items():
            self.enqueued(store, author, id, **fact)
        clock.advance(10)
        expected = ["higher", "high", "woken", "first", "waits", "low"]
        assert ids(store.look(["q"], ["w"]).due) == expected
        assert ids(store.look(["q"], ["w"], limit=2).due) == expected[:2]
        assert [ids(store.take(order(limit=1)))[0] for _ in expected] == expected

    def test_queues_are_served_in_turn(self, store: Store, author: Author) -> None:
        for name in ("a1", "a2", "a3", "b1", "c1", "c2"):
            self.enqueued(store, author, name, queue=name[0], priority=9 if name[0] == "a" else 0)
        assert ids(store.take(order("b", "c", "a", limit=4))) == ["b1", "c1", "a1", "c2"]
        assert ids(store.take(order("b", "c", "a"))) == ["a2", "a3"]

    @pytest.mark.parametrize("text", TEXTS)
    def test_names_and_lanes_may_be_any_text(self, store: Store, author: Author, text: str) -> None:
        for id in "ab":
            self.enqueued(store, author, id, queue=text, workflow=text, lane=text)
        limits: dict[str, Limits | None] = {text: Limits(per_lane=1)}
        wanted = Order(worker="east", queues=limits, workflows=frozenset({text}), limit=9)
        assert ids(store.take(wanted)) == ["a"]
        assert store.take(wanted) == []
        assert set(store.backlog()) == {text}

    # --- limits

    def test_no_more_are_held_than_the_queue_allows(self, store: Store, other: Store, author: Author) -> None:
        self.many_enqueued(store, author, *"abcde")
        limits = Limits(total=3)
        first = store.take(order(limits=limits, limit=2))
        assert ids(first) == ["a", "b"]
        assert ids(other.take(order(worker="north", limits=limits))) == ["c"]
        assert store.take(order(limits=limits)) == other.take(order(worker="north", limits=limits)) == []
        let_go(store, author, first[0])
        assert ids(other.take(order(worker="north", limits=limits))) == ["d"]

    def test_what_was_claimed_otherwise_counts(self, store: Store, author: Author) -> None:
        made = self.many_enqueued(store, author, "a", "b", workflow="other")
        self.enqueued(store, author, "c")
        held = store.claim(made[0].uid, "west")
        assert store.take(order(limits=Limits(total=1))) == []
        let_go(store, author, held)
        assert ids(store.take(order(limits=Limits(total=1)))) == ["c"]

    def test_limits_of_one_queue_are_not_those_of_another(self, store: Store, author: Author) -> None:
        for id in ("p1", "p2", "q1", "q2"):
            self.enqueued(store, author, id, queue=id[0])
        queues = {"p": Limits(total=1), "q": None}
        wanted = Order(worker="east", queues=queues, workflows=frozenset({"w"}), limit=9)
        assert sorted(ids(store.take(wanted))) == ["p1", "q1", "q2"]

    def test_a_worker_holds_no_more_than_it_may(self, store: Store, author: Author) -> None:
        self.many_enqueued(store, author, *"abcde")
        limits = Limits(per_worker=2)
        first = store.take(order(limits=limits))
        assert ids(first) == ["a", "b"]
        assert store.take(order(limits=limits)) == []
        assert ids(store.take(order(worker="west", limits=limits))) == ["c", "d"]
        let_go(store, author, first[1])
        assert ids(store.take(order(limits=limits))) == ["e"]

    def test_lanes_have_a_limit_each_and_a_full_one_hides_no_other(self, store: Store, author: Author) -> None:
        for n in range(150):
            self.enqueued(store, author, f"a{n}", lane="a")
        for id, lane in (("b0", "b"), ("free", None), ("b1", "b"), ("free too", None)):
            self.enqueued(store, author, id, lane=lane)
        limits = Limits(per_lane=1)
        first = store.take(order(limits=limits))
        assert ids(first) == ["a0", "b0", "free", "free too"]
        assert store.take(order(worker="west", limits=limits)) == []
        let_go(store, author, first[1])
        assert ids(store.take(order(worker="west", limits=limits))) == ["b1"]

    def test_only_so_many_are_begun(self, store: Store, author: Author) -> None:
        made = self.many_enqueued(store, author, *"abcd")
        let_go(store, author, store.claim(made[2].uid, "west"), Status.READY)  # it was begun before
        assert ids(store.take(order(limits=Limits(starts=0)))) == ["c"]
        assert ids(store.take(order(limits=Limits(starts=2)))) == ["a", "b"]

    def test_limits_hold_together(self, store: Store, author: Author) -> None:
        for n, lane in enumerate("aabbcc"):
            self.enqueued(store, author, f"{lane}{n}", lane=lane)
        limits = Limits(total=4, per_worker=2, per_lane=1, starts=5)
        assert ids(store.take(order(limits=limits))) == ["a0", "b2"]
        assert ids(store.take(order(worker="west", limits=limits))) == ["c4"]
        assert ids(store.take(order(worker="west", limits=replace(limits, per_lane=2)))) == ["a1"]
        assert store.take(order(worker="west", limits=Limits(total=4))) == []

    # --- what the dead left

    def test_what_the_dead_left_is_taken_first(self, store: Store, other: Store, author: Author) -> None:
        self.enqueued(store, author, "new", priority=9)
        left = store.claim(self.enqueued(store, author, "left").uid, "west")
        other.claim(self.enqueued(store, author, "living").uid, "north")
        store.beat("west", 0)
        taken = store.take(order())
        assert ids(taken) == ["left", "new"]
        assert (taken[0].epoch, taken[0].worker, taken[0].crashes) == (left.epoch + 1, "east", 1)

    def test_the_dead_take_no_room(self, store: Store, author: Author, clock: ManualClock) -> None:
        self.many_enqueued(store, author, *"abc", lane="l")
        limits = Limits(total=2, per_worker=2, per_lane=2)
        assert ids(store.take(order(worker="west", limits=limits))) == ["a", "b"]
        assert store.take(order(limits=limits)) == []
        clock.advance(LEASE / 2)
        store.beat("east", LEASE)
        clock.advance(LEASE / 2)
        assert ids(store.take(order(limits=limits))) == ["a", "b"]
        assert store.take(order(limits=limits)) == []

    def test_what_is_not_for_this_worker_is_left_with_the_dead(self, store: Store, author: Author) -> None:
        others: dict[str, dict[str, Any]] = {
            "q": {"queue": "other"},
            "w": {"workflow": "other"},
            "hand": {"queue": None},
        }
        for id, facts in others.items():
            store.claim(self.enqueued(store, author, id, **facts).uid, "west")
        blocked = store.claim(self.enqueued(store, author, "blocked").uid, "west")
        put(store, author.append(blocked, change=Change(status=Status.BLOCKED)))
        store.beat("west", 0)
        assert store.take(order()) == []

    def test_of_runs_that_keep_killing_only_so_many_are_taken(self, store: Store, author: Author) -> None:
        made = self.many_enqueued(store, author, "a", "b", "sound")
        for n in range(3):
            for record in made[:2]:
                store.beat(f"dying {n}", LEASE)
                store.claim(record.uid, f"dying {n}")
                store.beat(f"dying {n}", 0)
        assert ids(store.take(order(suspects=0))) == ["sound"]
        assert ids(store.take(order())) == ["a"]
        assert ids(store.take(order())) == ["b"]

    def test_one_that_keeps_killing_is_taken_alone_by_who_executes_nothing(self, store: Store, author: Author) -> None:
        made = self.many_enqueued(store, author, "new", "left", "a", "b", "c")
        store.beat("dead", LEASE)
        store.claim(made[1].uid, "dead")
        for n in range(3):
            for record in made[2:]:
                store.beat(f"dying {n}", LEASE)
                store.claim(record.uid, f"dying {n}")
                store.beat(f"dying {n}", 0)
        store.beat("dead", 0)
        for n, id in enumerate("abcabc"):  # the one that was least often
            store.beat(f"alone {n}", LEASE)
            [taken] = store.take(order(worker=f"alone {n}", alone=True))
            assert (taken.id, taken.crashes) == (id, SUSPECT + 1 + n // 3)
            store.beat(f"alone {n}", 0)
        assert ids(store.take(order(suspects=0))) == ["left", "new"]
        assert ids(store.take(order(worker="west", alone=True))) == ["a"]

    # --- at once

    def test_of_many_who_take_at_once_no_two_get_the_same(self, store: Store, other: Store, author: Author) -> None:
        self.many_enqueued(store, author, *(f"{n}" for n in range(30)))
        taken = self.at_once(store, other, lambda worker: order(worker=worker, limit=4))
        assert Counter(record.id for record in taken) == Counter(f"{n}" for n in range(30))
        assert all(record.epoch == 1 for record in taken)

    def test_many_who_take_at_once_stay_within_the_limits(self, store: Store, other: Store, author: Author) -> None:
        for n in range(24):
            self.enqueued(store, author, f"{n}", lane=f"{n % 4}")
        limits = Limits(total=7, per_worker=5, per_lane=2)
        taken = self.at_once(store, other, lambda worker: order(worker=worker, limit=3, limits=limits))
        assert len(taken) == 7
        assert max(Counter(record.worker for record in taken).values()) <= 5
        assert max(Counter(record.lane for record in taken).values()) == 2

    def test_who_takes_other_workflows_at_once_stays_within_the_same_limits(
        self, store: Store, other: Store, author: Author
    ) -> None:
        workers = [(store, "east"), (store, "west"), (other, "north"), (other, "south")]
        other.beat("south", LEASE)
        for n in range(6):
            for _, name in workers:
                self.enqueued(store, author, f"{n} {name}", workflow=name, queue=f"q{n}")
            limits: dict[str, Limits | None] = {f"q{n}": Limits(total=1)}
            start, taken = threading.Barrier(4), list[RunRecord]()

            def take(handle: Store, name: str) -> None:
                start.wait()  # noqa: B023
                wanted = Order(worker=name, queues=limits, workflows=frozenset({name}), limit=9)  # noqa: B023
                taken.extend(handle.take(wanted))  # noqa: B023

            threads = [threading.Thread(target=take, args=one) for one in workers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(taken) == 1

    def at_once(self, store: Store, other: Store, wanted: Any) -> list[RunRecord]:
        """What four threads take until there is nothing left for them."""
        taken: list[RunRecord] = []
        start = threading.Barrier(4)

        def work(handle: Store, worker: str) -> None:
            start.wait()
            idle = 0
            while idle < 3:
                some = handle.take(wanted(worker))
                taken.extend(some)
                idle = 0 if some else idle + 1

        workers = [(store, "east"), (store, "west"), (other, "north"), (other, "north")]
        threads = [threading.Thread(target=work, args=(handle, worker)) for handle, worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return taken

    # --- what there is

    def test_the_backlog_of_each_queue(self, store: Store, author: Author, clock: ManualClock) -> None:
        assert store.backlog() == {}
        first = self.many_enqueued(store, author, *"abc")[0].created_at
        self.enqueued(store, author, "later", status=Status.WAITING, wake_at=clock.now() + 1)
        self.enqueued(store, author, "p", queue="p")
        make(store, author.create("by hand"))
        [a, p] = store.take(order("q", "p", limit=2))
        let_go(store, author, p)
        assert store.backlog() == {"q": Backlog(ready=2, running=1, waiting=1, oldest=first + 1)}
        let_go(store, author, a, Status.WAITING)
        assert store.backlog()["q"] == Backlog(ready=2, waiting=2, oldest=first + 1)

    def test_the_counts_of_each_status(self, store: Store, author: Author, clock: ManualClock) -> None:
        assert store.counts(10) == dict.fromkeys(Status, 0)
        self.many_enqueued(store, author, *"abc")
        self.enqueued(store, author, "later", status=Status.WAITING, wake_at=clock.now() + 1)
        [a] = store.take(order("q", limit=1))
        nothing = dict.fromkeys(Status, 0)
        assert store.counts(10) == {**nothing, Status.READY: 2, Status.RUNNING: 1, Status.WAITING: 1}
        assert store.counts(1) == {**nothing, Status.READY: 1, Status.RUNNING: 1, Status.WAITING: 1}
        let_go(store, author, a, Status.COMPLETED)
        delete(store, a.uid)
        assert store.counts(10) == {**nothing, Status.READY: 2, Status.WAITING: 1}

    def test_the_workers_that_have_registered(self, store: Store, other: Store, clock: ManualClock) -> None:
        store.beat("long", 60)
        other.beat("brief", 1)
        now = clock.now()
        assert [one.worker for one in store.workers()] == sorted(one.worker for one in store.workers())
        found = {one.worker: one for one in store.workers()}
        assert found["long"].alive
        assert found["brief"].alive
        assert found["long"].until - now == pytest.approx(60_000_000, abs=10)
        clock.advance(2)
        alive = {one.worker: one.alive for one in store.workers()}
        assert (alive["long"], alive["brief"]) == (True, False)
        store.beat("long", 0)
        assert "long" not in [one.worker for one in other.workers()]

    # --- documents

    def test_a_document_is_made_replaced_and_deleted(self, store: Store, other: Store) -> None:
        assert find_document(store, "k", "n") is None
        assert not store.put_document("k", "n", b"1", 7)
        assert store.put_document("k", "n", b"1", None)
        first = find_document(other, "k", "n")
        assert first is not None
        assert (first.name, first.value) == ("n", b"1")
        assert not other.put_document("k", "n", b"2", None)
        assert other.put_document("k", "n", b"2", first.version)
        assert not store.put_document("k", "n", b"3", first.version)
        assert not store.put_document("k", "n", None, first.version)
        second = find_document(store, "k", "n")
        assert second is not None
        assert (second.value, second.version != first.version) == (b"2", True)
        assert store.put_document("k", "n", None, second.version)
        assert find_document(store, "k", "n") is find_document(other, "k", "n") is None
        assert store.put_document("k", "n", None, None), "what is not there is gone already"
        assert store.put_document("k", "n", b"4", None)
        again = find_document(store, "k", "n")
        assert again is not None
        assert again.version not in (first.version, second.version), "who knew it before must not replace it"

    def test_documents_are_listed_by_kind_and_name(self, store: Store, other: Store) -> None:
        for kind, name in (("k", "b"), ("j", "x"), ("k", "a"), ("k", "c")):
            store.put_document(kind, name, name.encode(), None)
        assert [(one.name, one.value) for one in other.documents("k")] == [("a", b"a"), ("b", b"b"), ("c", b"c")]
        assert [one.name for one in other.documents("j")] == ["x"]
        assert other.documents("i") == []

    def test_documents_of_any_name_and_value_do_not_meet(self, store: Store, other: Store) -> None:
        values = {text: f'{{"{n}":[1,\n2]}}'.encode() for n, text in enumerate(TEXTS)} | {
            "odd": b"\x00\xff{",
            "none": b"",
        }
        for text, value in values.items():
            assert store.put_document("k", text, value, None)
        assert {one.name: one.value for one in other.documents("k")} == values
        for text, value in values.items():
            found = find_document(other, "k", text)
            assert found is not None
            assert found.value == value

    def test_of_many_who_replace_a_document_one_does(self, store: Store, other: Store) -> None:
        store.put_document("k", "n", b"0", None)
        won: list[int] = []
        start = threading.Barrier(4)

        def count(handle: Store) -> None:
            start.wait()
            for _ in range(15):
                known = find_document(handle, "k", "n")
                assert known is not None
                if handle.put_document("k", "n", str(int(known.value) + 1).encode(), known.version):
                    won.append(1)

        threads = [threading.Thread(target=count, args=(handle,)) for handle in (store, store, other, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = find_document(store, "k", "n")
        assert found is not None
        assert int(found.value) == len(won) > 0

    def test_documents_outlast_the_handle(self, store: Store, other: Store) -> None:
        store.put_document("k", "n", b"1", None)
        store.close()
        found = find_document(other, "k", "n")
        assert found is not None
        assert found.value == b"1"

    @pytest.mark.parametrize("use", ["take", "document"])
    def test_taking_and_documents_change_the_version(
        self, store: Store, other: Store, author: Author, use: str
    ) -> None:
        self.enqueued(store, author, "run")
        before = store.version()
        other.take(order(worker="north")) if use == "take" else other.put_document("k", "n", b"1", None)
        assert store.version() != before

    def test_looking_for_what_is_not_there_leaves_the_version(self, store: Store, author: Author) -> None:
        self.enqueued(store, author, "run")
        store.take(order())
        before = store.version()
        self.assert_idle(store)
        assert store.version() == before

    def assert_idle(self, store: Store) -> None:
        assert store.take(order()) == store.take(order(limits=Limits(total=1, per_lane=1))) == []
        assert store.documents("k") == []
        assert find_document(store, "k", "n") is None
        assert list(store.backlog()) == ["q"]

    def test_what_was_taken_is_fenced_as_any_claim(self, store: Store, author: Author, clock: ManualClock) -> None:
        self.enqueued(store, author, "run")
        [first] = store.take(order())
        clock.advance(LEASE + 1)
        store.beat("west", LEASE)
        [second] = store.take(order(worker="west"))
        assert second.epoch == first.epoch + 1
        late: Append = author.append(first, Kind.DONE)
        [outcome] = store.apply([late])
        assert outcome is not None
        put(store, author.append(second, Kind.DONE))
