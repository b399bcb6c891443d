"""What every store promises about what wakes a run: its inbox, its time, and the news of others.

A part of `holdfast.testing.contract.StoreContract`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import InboxNotEmpty, RunEnded
from holdfast.kernel.model import ENDED, Adopt, Change, Filter, Kind, Outlook, Post, RunRecord, Status
from holdfast.kernel.rules import ANY
from holdfast.stores.protocol import Store, write_one
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract_author import (
    ALL,
    LEASE,
    Author,
    Opening,
    after,
    delete,
    ids,
    item,
    keys_taken,
    make,
    put,
    refused,
    snapshot,
    whole,
)


class WaitingContract(Opening):
    """The promises about what wakes a run: its inbox, its time, and the news of others."""

    # --- the inbox

    def test_post_leaves_an_item(self, store: Store, run: RunRecord) -> None:
        assert write_one(store, Post(run.uid, item("k", payload=b"\x00\xff\n")))
        assert store.inbox(run.uid) == [item("k", payload=b"\x00\xff\n")]

    def test_items_are_listed_oldest_first(self, store: Store, other: Store, run: RunRecord) -> None:
        keys = [f"k{n}" for n in (3, 1, 2, 10, 9)]
        for n, key in enumerate(keys):
            handle = (store, other)[n % 2]
            assert write_one(handle, Post(run.uid, item(key, at=100 - n)))
        assert [found.key for found in store.inbox(run.uid)] == keys

    def test_a_key_is_used_once(self, store: Store, other: Store, run: RunRecord) -> None:
        assert write_one(store, Post(run.uid, item("k", payload=b"first")))
        assert not write_one(store, Post(run.uid, item("k", payload=b"second")))
        assert not write_one(other, Post(run.uid, item("k", payload=b"third")))
        assert [found.payload for found in store.inbox(run.uid)] == [b"first"]

    def test_a_key_is_used_once_also_after_it_was_taken(self, store: Store, author: Author, held: RunRecord) -> None:
        write_one(store, Post(held.uid, item("k")))
        put(store, author.append(held, Kind.ANSWERED, took=("k",)))
        assert not write_one(store, Post(held.uid, item("k")))
        assert store.inbox(held.uid) == []

    def test_a_key_of_one_run_is_free_in_another(self, store: Store, author: Author, run: RunRecord) -> None:
        second = make(store, author.create("second"))
        assert write_one(store, Post(run.uid, item("k")))
        assert write_one(store, Post(second.uid, item("k")))

    @pytest.mark.parametrize("key", ["../../etc", "a/b", "\0", "x" * 2000, "a\nb", "K", "\U0001f980" * 500])
    def test_a_key_may_be_any_text(self, store: Store, author: Author, held: RunRecord, key: str) -> None:
        assert write_one(store, Post(held.uid, item("k")))
        assert write_one(store, Post(held.uid, item(key)))
        assert not write_one(store, Post(held.uid, item(key)))
        put(store, author.append(held, Kind.ANSWERED, took=(key,)))
        assert keys_taken(store, held.uid) == [key]
        assert [found.key for found in store.inbox(held.uid)] == ["k"]

    def test_taken_items_leave_the_inbox_with_the_write_that_took_them(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        for key in "abc":
            write_one(store, Post(held.uid, item(key)))
        put(store, author.append(held, Kind.ANSWERED, took=("c", "a")))
        assert [found.key for found in store.inbox(held.uid)] == ["b"]
        assert sorted(keys_taken(store, held.uid)) == ["a", "c"]

    def test_items_can_be_taken_without_an_entry(self, store: Store, author: Author, held: RunRecord) -> None:
        write_one(store, Post(held.uid, item("k")))
        put(store, author.append(held, took=("k",)))
        assert store.inbox(held.uid) == []
        assert keys_taken(store, held.uid) == ["k"]

    def test_post_makes_a_waiting_run_ready(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True, wake_at=99)))
        assert write_one(store, Post(held.uid, item("k")))
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.status, record.wake_at, record.worker) == (Status.READY, None, None)

    def test_an_item_that_does_not_wake_leaves_a_waiting_run(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        put(store, author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True, wake_at=99)))
        before = store.get(uid=held.uid)
        assert write_one(store, Post(held.uid, item("k", wakes=False)))
        assert store.get(uid=held.uid) == before

    @pytest.mark.parametrize("status", [Status.READY, Status.BLOCKED])
    def test_post_changes_no_other_status(self, store: Store, author: Author, held: RunRecord, status: Status) -> None:
        put(store, author.append(held, change=Change(status=status, release=True, reason="why")))
        before = store.get(uid=held.uid)
        assert write_one(store, Post(held.uid, item("k")))
        assert store.get(uid=held.uid) == before

    def test_a_refused_post_does_not_wake(self, store: Store, author: Author, held: RunRecord) -> None:
        write_one(store, Post(held.uid, item("k")))
        write = author.append(held, Kind.ANSWERED, took=("k",))
        put(store, write)
        put(store, author.append(after(held, write), change=Change(status=Status.WAITING, release=True)))
        assert not write_one(store, Post(held.uid, item("k")))
        record = store.get(uid=held.uid)
        assert record is not None
        assert record.status is Status.WAITING

    def test_post_does_not_disturb_the_holder(
        self, store: Store, other: Store, author: Author, held: RunRecord
    ) -> None:
        assert write_one(other, Post(held.uid, item("k")))
        put(store, author.append(held, Kind.DONE))

    def test_a_run_that_goes_to_wait_with_mail_is_ready_at_once(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        write_one(store, Post(held.uid, item("k")))
        put(store, author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True, wake_at=99)))
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.status, record.wake_at) == (Status.READY, None)

    def test_mail_that_does_not_wake_lets_a_run_go_to_wait(self, store: Store, author: Author, held: RunRecord) -> None:
        write_one(store, Post(held.uid, item("k", wakes=False)))
        put(store, author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True)))
        record = store.get(uid=held.uid)
        assert record is not None
        assert record.status is Status.WAITING

    def test_mail_that_is_taken_with_the_write_lets_a_run_go_to_wait(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        write_one(store, Post(held.uid, item("k")))
        change = Change(status=Status.WAITING, release=True)
        put(store, author.append(held, Kind.ANSWERED, Kind.ASKED, took=("k",), change=change))
        record = store.get(uid=held.uid)
        assert record is not None
        assert record.status is Status.WAITING

    @pytest.mark.parametrize("status", sorted(ENDED))
    @pytest.mark.parametrize("wakes", [True, False])
    def test_post_to_a_run_that_has_ended_is_refused(
        self, store: Store, other: Store, author: Author, held: RunRecord, status: Status, wakes: bool
    ) -> None:
        write_one(store, Post(held.uid, item("before")))
        change = Change(status=status, release=True)
        put(store, author.append(held, Kind(status), took=("before",), change=change))
        before = snapshot(store, held.uid)
        for handle in (store, other):
            with pytest.raises(RunEnded, match=str(status)):
                write_one(handle, Post(held.uid, item("k", wakes=wakes)))
            assert not write_one(handle, Post(held.uid, item("before", wakes=wakes)))
        assert snapshot(store, held.uid) == before
        again = store.claim(held.uid, "east", ANY)
        put(store, author.append(again, change=Change(status=Status.READY, release=True)))
        assert write_one(store, Post(held.uid, item("k", wakes=wakes)))  # it was not used

    @pytest.mark.parametrize("status", sorted(ENDED))
    @pytest.mark.parametrize("wakes", [True, False])
    @pytest.mark.parametrize("kinds", [(), (Kind.DONE,), (Kind.DONE, Kind.COMPLETED)], ids=len)
    def test_a_run_does_not_end_with_an_item_in_its_inbox(
        self, store: Store, author: Author, held: RunRecord, status: Status, wakes: bool, kinds: tuple[Kind, ...]
    ) -> None:
        change = Change(status=status, release=True)
        write_one(store, Post(held.uid, item("a", wakes=wakes)))
        write_one(store, Post(held.uid, item("b", wakes=wakes)))
        refused(store, author.append(held, *kinds, change=change), InboxNotEmpty)
        refused(store, author.append(held, *kinds, change=change, took=("a",)), InboxNotEmpty)
        put(store, author.append(held, *kinds, change=change, took=("a", "b")))
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.status, record.worker) == (status, None)
        assert store.inbox(held.uid) == []

    @pytest.mark.parametrize("wakes", [True, False])
    def test_nor_does_one_whose_status_follows_after_its_last_entry(
        self, store: Store, author: Author, held: RunRecord, wakes: bool
    ) -> None:
        write_one(store, Post(held.uid, item("a", wakes=wakes)))
        refused(store, author.append(held, Kind.COMPLETED, change=Change(final=True)), InboxNotEmpty)
        put(store, author.append(held, Kind.COMPLETED, change=Change(final=True), took=("a",)))
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.status, record.worker) == (Status.RUNNING, held.worker)
        assert store.inbox(held.uid) == []

    def test_an_end_that_is_refused_leaves_the_other_writes_of_its_batch(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        other = store.claim(make(store, author.create("other")).uid, "east")
        write_one(store, Post(held.uid, item("k")))
        ends = [
            author.append(one, Kind.DONE, change=Change(status=Status.COMPLETED, release=True)) for one in (held, other)
        ]
        refusal, made = store.apply(ends)
        assert type(refusal) is InboxNotEmpty
        assert made is None
        put(store, author.append(held, Kind.ANSWERED, took=("k",)))

    def test_of_an_end_and_a_post_at_once_one_is_refused(self, store: Store, other: Store, author: Author) -> None:
        for n in range(20):
            held = store.claim(make(store, author.create(f"run {n}")).uid, "east")
            end = author.append(held, Kind.DONE, change=Change(status=Status.COMPLETED, release=True))
            start, posted = threading.Barrier(2), list[bool]()

            def post(uid: str = held.uid, start: threading.Barrier = start, posted: list[bool] = posted) -> None:
                start.wait()
                try:
                    posted.append(write_one(other, Post(uid, item("k"))))
                except RunEnded:
                    posted.append(False)

            thread = threading.Thread(target=post)
            thread.start()
            start.wait()
            [outcome] = store.apply([end])
            thread.join()
            assert [outcome is None] == [not one for one in posted]
            assert len(store.inbox(held.uid)) == posted.count(True)

    def test_post_to_a_run_that_never_was_is_false(self, store: Store) -> None:
        assert not write_one(store, Post("0" * 24, item("k")))

    def test_post_to_a_deleted_run_is_false(self, store: Store, run: RunRecord) -> None:
        delete(store, run.uid)
        assert not write_one(store, Post(run.uid, item("k")))

    def test_post_to_a_hidden_run_is_false(self, store: Store, author: Author, run: RunRecord) -> None:
        make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        delete(store, run.uid)
        assert not write_one(store, Post(run.uid, item("k")))
        assert store.inbox(run.uid) == []

    # --- runs that are due

    def rest(self, store: Store, author: Author, id: str, status: Status, **facts: Any) -> RunRecord:
        """A run in the queue ``q`` of the workflow ``w`` that was released with this status."""
        wake_at = facts.pop("wake_at", None)
        made = make(store, author.create(id, **{"queue": "q", "workflow": "w", **facts}))
        put(
            store,
            author.append(
                store.claim(made.uid, "east"), change=Change(status=status, release=True, wake_at=wake_at, reason="-")
            ),
        )
        record = store.get(uid=made.uid)
        assert record is not None
        return record

    def test_a_new_run_of_a_queue_is_due(self, store: Store, other: Store, author: Author) -> None:
        made = make(store, author.create("new", queue="q", workflow="w"))
        assert store.look(["q"], ["w"]).due == [made]
        assert other.look({"p", "q"}, {"v", "w"}).due == [made]

    def test_a_run_of_no_queue_is_never_due(self, store: Store, author: Author) -> None:
        make(store, author.create("by hand", workflow="w"))
        make(store, author.create("tagged", workflow="w", tags={"queue": "q", "status": "ready", "worker": "w"}))
        assert store.look(["q", ""], ["w"]).due == []

    def test_only_runs_of_the_given_queues_and_workflows_are_due(self, store: Store, author: Author) -> None:
        for queue in ("p", "q", "r"):
            for workflow in ("v", "w", None):
                make(store, author.create(f"{queue}{workflow}", queue=queue, workflow=workflow))
        assert ids(store.look(["p", "q"], ["w", "x"]).due) == ["pw", "qw"]
        assert ids(store.look(["r"], ["v", "w"]).due) == ["rv", "rw"]
        assert store.look(["s"], ["w"]).due == []
        assert store.look([], ["w"]).due == []
        assert store.look(["p"], []).due == []

    def test_many_workflows_may_be_asked_for(self, store: Store, author: Author) -> None:
        names = [f"workflow {n}" for n in range(500)]
        made = [make(store, author.create(name, queue="q", workflow=name)) for name in (names[0], names[499])]
        assert store.look(["q"], names).due == made

    @pytest.mark.parametrize("text", ["it's", "a\0b", "%", "é", "\n", '"'])
    def test_queues_and_workflows_may_be_any_text(self, store: Store, author: Author, text: str) -> None:
        made = make(store, author.create("run", queue=text, workflow=text))
        assert store.look([text], [text]).due == [made]
        assert store.look([text + "x"], [text]).due == store.look([text], [text + "x"]).due == []

    @pytest.mark.parametrize("status", list(Status))
    def test_only_ready_runs_are_due_at_once(self, store: Store, author: Author, status: Status) -> None:
        record = self.rest(store, author, "run", status)
        assert store.look(["q"], ["w"]).due == ([record] if status is Status.READY else [])

    def test_a_waiting_run_is_due_when_its_time_has_come(
        self, store: Store, other: Store, author: Author, clock: ManualClock
    ) -> None:
        record = self.rest(store, author, "run", Status.WAITING, wake_at=clock.now() + 2_000_000)
        clock.advance(1.999)
        assert store.look(["q"], ["w"]).due == []
        clock.advance(0.001)
        assert store.look(["q"], ["w"]).due == other.look(["q"], ["w"]).due == [record]

    def test_a_waiting_run_is_due_when_something_arrives(self, store: Store, other: Store, author: Author) -> None:
        record = self.rest(store, author, "run", Status.WAITING, wake_at=1 << 52)
        write_one(other, Post(record.uid, item("k")))
        assert ids(store.look(["q"], ["w"]).due) == ["run"]

    def test_a_held_run_is_not_due(self, store: Store, author: Author, clock: ManualClock) -> None:
        made = make(store, author.create("run", queue="q", workflow="w"))
        held = store.claim(made.uid, "east")
        put(store, author.append(held, change=Change(status=Status.WAITING, wake_at=1)))
        assert store.look(["q"], ["w"]).due == []
        clock.advance(LEASE * 2)
        assert store.look(["q"], ["w"]).due == []
        assert ids(store.find(Filter(orphaned=True))) == ["run"]

    def test_a_hidden_run_is_not_due(self, store: Store, author: Author) -> None:
        ready = make(store, author.create("ready", queue="q", workflow="w"))
        waiting = self.rest(store, author, "waiting", Status.WAITING, wake_at=1)
        later = self.rest(store, author, "later", Status.WAITING, wake_at=1 << 50)
        for record in (ready, waiting, later):
            make(store, author.fork(record, store.read(record.uid, 0, 0)[0], f"fork of {record.id}"))
            delete(store, record.uid)
        assert store.look(["q"], ["w"]) == Outlook([])

    def test_runs_are_due_in_the_order_in_which_they_became_so(
        self, store: Store, author: Author, clock: ManualClock
    ) -> None:
        start = clock.now()
        wakes = {"c": 3, "e": 5, "a": 1, "later": 60}
        for id, seconds in wakes.items():
            self.rest(store, author, id, Status.WAITING, wake_at=start + seconds * 1_000_000)
        clock.advance(2)
        make(store, author.create("b", queue="q", workflow="w"))
        clock.advance(2)
        make(store, author.create("d", queue="p", workflow="w"))
        clock.advance(2)
        assert ids(store.look(["p", "q"], ["w"]).due) == ["a", "b", "c", "d", "e"]
        assert ids(store.look(["p", "q"], ["w"], limit=3).due) == ["a", "b", "c"]

    def test_the_next_wake_is_the_earliest_that_is_still_to_come(
        self, store: Store, other: Store, author: Author, clock: ManualClock
    ) -> None:
        assert self.wake(store) is None
        now = clock.now()
        self.rest(store, author, "never", Status.WAITING)
        self.rest(store, author, "ready", Status.READY, wake_at=now + 1_000_000)
        self.rest(store, author, "by hand", Status.WAITING, wake_at=now + 2_000_000, queue=None)
        assert self.wake(store) is None
        self.rest(store, author, "late", Status.WAITING, wake_at=now + 9_000_000)
        self.rest(store, author, "soon", Status.WAITING, wake_at=now + 4_000_000, queue="p")
        assert self.wake(store) == self.wake(other) == now + 4_000_000
        clock.advance(4)
        assert self.wake(store) == self.wake(other) == now + 9_000_000
        clock.advance(5)
        assert self.wake(store) is None

    def test_the_next_wake_is_of_these_queues_and_workflows(
        self, store: Store, author: Author, clock: ManualClock
    ) -> None:
        now = clock.now()
        for n, (queue, workflow) in enumerate((("p", "v"), ("q", "v"), ("q", "w"), ("p", "w")), 1):
            self.rest(
                store, author, f"run {n}", Status.WAITING, wake_at=now + n * 1_000_000, queue=queue, workflow=workflow
            )
        assert self.wake(store, ["q"], ["w"]) == now + 3_000_000
        assert self.wake(store, ["p"], ["v", "w"]) == now + 1_000_000
        assert self.wake(store, ["p", "q"], ["w"]) == now + 3_000_000
        assert self.wake(store, ["r"], ["w"]) is self.wake(store, ["q"], []) is self.wake(store, [], ["w"]) is None

    def test_without_runs_to_list_only_the_times_are_told(
        self, store: Store, author: Author, clock: ManualClock
    ) -> None:
        make(store, author.create("run", queue="q", workflow="w"))
        at = clock.now() + 1_000_000
        self.rest(store, author, "later", Status.WAITING, wake_at=at)
        assert store.look(["q"], ["w"], limit=0) == Outlook([], at)

    def test_a_run_that_is_held_or_was_woken_has_no_next_wake(self, store: Store, author: Author) -> None:
        first = self.rest(store, author, "first", Status.WAITING, wake_at=1 << 50)
        second = self.rest(store, author, "second", Status.WAITING, wake_at=1 << 51)
        store.claim(first.uid, "east")
        assert self.wake(store) == 1 << 51
        write_one(store, Post(second.uid, item("k")))
        assert self.wake(store) is None

    # --- posts among other writes

    def test_a_post_is_seen_by_the_writes_after_it(self, store: Store, author: Author, held: RunRecord) -> None:
        first = author.append(held, Kind.DONE)
        takes = author.append(after(held, first), Kind.DONE, took=("a",))
        posts = [Post(held.uid, item(key)) for key in ("a", "a", "b")]
        assert store.apply([first, *posts[:2], takes, posts[0], posts[2]]) == [None, True, False, None, False, True]
        assert [one.key for one in store.inbox(held.uid)] == ["b"]
        assert keys_taken(store, held.uid) == ["a"]
        assert len(store.read(held.uid, 1, ALL)) == 2

    def test_a_post_before_the_end_keeps_a_run_from_ending_and_one_after_it_is_refused(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        end = author.append(held, Kind.COMPLETED, change=Change(status=Status.COMPLETED, release=True))
        posted, refused = store.apply([Post(held.uid, item("a")), end])
        assert (posted, type(refused)) == (True, InboxNotEmpty)
        ended, refused = store.apply([replace(end, took=("a",)), Post(held.uid, item("b"))])
        assert (ended, type(refused)) == (None, RunEnded)
        assert store.inbox(held.uid) == []

    def test_a_post_wakes_a_run_that_begins_to_wait_in_the_same_batch(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        waits = author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True))
        assert store.apply([waits, Post(held.uid, item("a"))]) == [None, True]
        record = store.get("run")
        assert record is not None
        assert (record.status, record.worker) == (Status.READY, None)

    def wake(self, store: Store, queues: Sequence[str] = ("p", "q"), workflows: Sequence[str] = ("w",)) -> int | None:
        return store.look(queues, workflows).wake

    # --- the version

    @pytest.mark.parametrize("use", ["create", "append", "change", "release", "claim", "post", "adopt", "retire"])
    @pytest.mark.parametrize("by", ["the same handle", "another handle"])
    def test_whatever_is_committed_changes_the_version(
        self, store: Store, other: Store, author: Author, held: RunRecord, use: str, by: str
    ) -> None:
        free = make(store, author.create("free"))
        handle = store if by == "the same handle" else other
        record, entries = whole(author)
        changes: dict[str, Callable[[], object]] = {
            "create": lambda: make(handle, author.create("new")),
            "append": lambda: put(handle, author.append(held, Kind.DONE)),
            "change": lambda: put(handle, author.append(held, change=Change(status=Status.WAITING))),
            "release": lambda: put(handle, author.append(held, change=Change(status=Status.READY, release=True))),
            "claim": lambda: handle.claim(free.uid, "west"),
            "post": lambda: write_one(handle, Post(free.uid, item("k"))),
            "adopt": lambda: write_one(handle, Adopt(record, entries)),
            "retire": lambda: handle.beat("west", 0),
        }
        before = store.version()
        changes[use]()
        assert store.version() != before

    def test_the_version_changes_each_time(self, store: Store, other: Store, author: Author, run: RunRecord) -> None:
        seen = [store.version()]
        for n in range(50):
            write_one((store, other)[n % 2], Post(run.uid, item(f"k{n}")))
            seen.append(store.version())
        assert all(before != after for before, after in pairwise(seen))

    def test_reading_leaves_the_version(self, store: Store, other: Store, run: RunRecord) -> None:
        before = store.version()
        for handle in (store, other):
            handle.get("run")
            handle.find(Filter())
            handle.look(["q"], ["w"])
            handle.find(Filter(orphaned=True))
        assert store.version() == before
