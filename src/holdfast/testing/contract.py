"""What every store promises, one test per promise.

To prove a store of your own, subclass `StoreContract` in a test module and say how the store is opened:

    from holdfast.testing.contract import StoreContract

    class TestMyStore(StoreContract):
        def open_store(self, place, clock):
            return MyStore(place / "mine.db", clock=clock)

pytest does the rest. ``place`` is a path that no other test uses; opening it twice must give two independent handles
on the same runs, as two processes would have them. What a store keeps in files has to stay under it. ``clock`` is a
`ManualClock`: leases are to be measured by it. Override the fixture ``place`` if your store lives somewhere else.

A store whose handle is bound to its process subclasses `ProcessStoreContract`: it has the same promises, and those
about `os.fork`. One that keeps files on this machine subclasses `FileStoreContract`, which adds those about processes
that are killed.

The tests use payloads of plain bytes: to a store they are opaque.
"""

from __future__ import annotations

import os
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import (
    Claimed,
    HoldfastError,
    LeaseLost,
    RunBlocked,
    RunEnded,
    RunExists,
    RunNotFound,
    StoreUnusable,
)
from holdfast.model import Change, Entry, Filter, Kind, Rewind, RunRecord, Status
from holdfast.stores.base import ANY, Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract_author import ALL, LEASE, Author, after, ids, item, make, put, refused, snapshot
from holdfast.testing.contract_moving import MovingContract
from holdfast.testing.contract_queues import QueueContract, order

HARD_IDS = {
    "a path upward": "../../etc",
    "an absolute path": "/etc/passwd",
    "NUL": "nul\0inside",
    "NUL alone": "\0",
    "512 characters": "x" * 512,
    "512 characters, another": "x" * 511 + "y",
    "512 emoji": "\U0001f980" * 512,
    "a device": "CON",
    "a device with a suffix": "con.txt",
    "lower case": "case",
    "upper case": "CASE",
    "title case": "Case",
    "a slash": "a/b",
    "a backslash": "a\\b",
    "a dot": "a.b",
    "an underscore": "a_b",
    "a dash": "a-b",
    "an escape": "a%2Fb",
    "a dot alone": ".",
    "two dots": "..",
    "a hidden name": ".hidden",
    "a leading space": " a.b",
    "a trailing space": "a.b ",
    "a trailing newline": "a.b\n",
    "a trailing dot": "a.b.",
    "a space alone": " ",
    "composed": unicodedata.normalize("NFC", "e\u0301t\u00e9"),
    "decomposed": unicodedata.normalize("NFD", "e\u0301t\u00e9"),
    "right to left": "\u202eabc",
    "a quote": "it's",
    "a double quote": '"quoted"',
    "a wildcard": "*",
    "one character for another": "a?b",
    "percent": "%",
    "what a file of ours is called": "lock",
    "JSON": '{"id": 1}',
    "text": "null",
    "the last character": "\U0010ffff",
}


USES = (
    *("get", "journal", "find", "read", "inbox", "taken", "orphans", "due", "next_wake", "version"),
    *("take", "backlog", "document", "documents", "put_document"),
    *("create", "append", "claim", "post", "enlist", "beat", "delete", "sweep", "rewrap", "adopt", "settle"),
)


class StoreContract(QueueContract, MovingContract):
    """The promises. See the module's text for how to use it."""

    def open_store(self, place: Path, clock: ManualClock) -> Store:
        """Open a handle on the store at ``place``, which is made if there is none."""
        raise NotImplementedError("say in a subclass how the store is opened")

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """Where the store of this test lives. Its parent folder belongs to the test too."""
        folder = tmp_path / "around" / "store"
        folder.mkdir(parents=True)
        return folder

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def author(self, clock: ManualClock) -> Author:
        return Author(clock)

    @pytest.fixture
    def store(self, place: Path, clock: ManualClock) -> Iterator[Store]:
        """A handle, with two workers: ``east`` and ``west``."""
        store = self.open_store(place, clock)
        store.enlist("east", LEASE)
        store.enlist("west", LEASE)
        yield store
        store.close()

    @pytest.fixture
    def other(self, store: Store, place: Path, clock: ManualClock) -> Iterator[Store]:
        """A second handle on the same place, as another process would have, with the worker ``north``."""
        other = self.open_store(place, clock)
        other.enlist("north", LEASE)
        yield other
        other.close()

    @pytest.fixture
    def run(self, store: Store, author: Author) -> RunRecord:
        """A run that nobody holds."""
        return make(store, author.create("run"))

    @pytest.fixture
    def held(self, store: Store, run: RunRecord) -> RunRecord:
        """The same, held by east."""
        return store.claim(run.uid, "east")

    # --- create

    def test_create_gives_the_record_that_now_exists(self, store: Store, author: Author) -> None:
        write = author.create("new", workflow="w", tags={"a": "b"}, key_id="k", key_blob=b"\x00\xff")
        made = make(store, write)
        last = write.entries[-1]
        assert made == replace(write.record, seq=0, hash=last.hash, updated_at=last.at)

    def test_a_created_run_is_found_by_id_and_by_uid(self, store: Store, author: Author) -> None:
        made = make(store, author.create("new", workflow="w", tags={"a": "b"}, key_id="k", key_blob=b"\x00\xff"))
        assert store.get("new") == made
        assert store.journal(made.uid) == made

    def test_a_created_run_keeps_its_queue_and_its_parent(
        self, store: Store, other: Store, author: Author, run: RunRecord
    ) -> None:
        made = make(store, author.create("child", queue="q", parent=run.uid))
        assert (made.queue, made.parent, made.chapter, made.crashes) == ("q", run.uid, 0, 0)
        assert other.get("child") == made
        held = store.claim(made.uid, "east")
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
        record = other.get("child")
        assert record is not None
        assert (record.queue, record.parent) == ("q", run.uid)

    def test_create_keeps_all_its_entries(self, store: Store, author: Author) -> None:
        write = author.create("new", Kind.CREATED, Kind.SAVED, Kind.DONE)
        assert make(store, write).seq == 2
        assert store.read(write.record.uid, 0, ALL) == list(write.entries)

    def test_the_record_of_a_run_created_with_a_state_leads_to_it(self, store: Store, author: Author) -> None:
        made = make(store, author.create("new", Kind.CREATED, Kind.SAVED))
        assert made.state == 1
        assert store.get("new") == made

    def test_creating_an_id_again_returns_the_run_that_exists(self, store: Store, author: Author) -> None:
        first = make(store, author.create("same", tags={"n": "1"}))
        second = author.create("same", tags={"n": "2"})
        assert make(store, second) == first
        assert store.journal(second.record.uid) is None

    def test_creating_an_id_again_returns_the_run_as_it_is_now(self, store: Store, author: Author) -> None:
        first = make(store, author.create("same"))
        held = store.claim(first.uid, "east")
        put(store, author.append(held, Kind.DONE))
        assert make(store, author.create("same")) == store.get("same")

    def test_an_id_is_created_once_in_a_batch(self, store: Store, author: Author) -> None:
        first, second = store.apply([author.create("same"), author.create("same")])
        assert isinstance(first, RunRecord)
        assert second == first

    def test_a_run_can_be_held_from_the_start(self, store: Store, author: Author) -> None:
        made = make(store, author.create("held", worker="east", epoch=1, status=Status.RUNNING))
        with pytest.raises(Claimed):
            store.claim(made.uid, "west")
        put(store, author.append(made, Kind.DONE))

    def test_another_handle_sees_what_was_created(self, store: Store, other: Store, author: Author) -> None:
        made = make(store, author.create("seen"))
        assert other.get("seen") == made
        assert make(other, author.create("seen")) == made

    def test_a_run_that_was_never_created_is_not_there(self, store: Store) -> None:
        assert store.get("nowhere") is None
        assert store.journal("nowhere") is None
        assert store.read("nowhere", 0, ALL) == []
        assert store.inbox("nowhere") == []
        assert store.taken("nowhere") == []

    def test_what_was_created_is_there_when_the_store_is_opened_again(
        self, store: Store, place: Path, clock: ManualClock, author: Author
    ) -> None:
        made = make(store, author.create("kept", Kind.CREATED, Kind.SAVED))
        before = snapshot(store, made.uid)
        again = self.open_store(place, clock)
        store.close()
        assert snapshot(again, made.uid) == before
        again.close()

    # --- append

    def test_append_adds_entries(self, store: Store, author: Author, held: RunRecord) -> None:
        write = author.append(held, Kind.DONE, Kind.SAVED, Kind.DONE)
        put(store, write)
        assert store.read(held.uid, 1, ALL) == list(write.entries)

    def test_append_moves_the_end_of_the_record(self, store: Store, author: Author, held: RunRecord) -> None:
        author.clock.advance(1)
        write = author.append(held, Kind.SAVED, Kind.DONE)
        put(store, write)
        assert store.journal(held.uid) == after(held, write)

    def test_append_of_a_state_makes_it_the_current_one(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, Kind.SAVED))
        record = store.journal(held.uid)
        assert record is not None
        assert record.state == 1

    def test_payloads_are_opaque_bytes(self, store: Store, author: Author, held: RunRecord) -> None:
        payloads = [b"", b"\0", b"\n", b" ", b'"a\nb"', b"{", b"1],[2", b"\xff\xfe", bytes(range(256)), b"x" * 300_000]
        for payload in payloads:
            write = author.append(held, Kind.DONE, payload=payload)
            put(store, write)
            held = after(held, write)
        assert [entry.payload for entry in store.read(held.uid, 1, ALL)] == payloads

    def test_an_unknown_kind_of_entry_is_kept(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, "of the future"))
        assert store.read(held.uid, 1, 1)[0].kind == "of the future"

    def test_another_handle_sees_what_was_appended(
        self, store: Store, other: Store, author: Author, held: RunRecord
    ) -> None:
        write = author.append(held, Kind.DONE)
        put(store, write)
        assert other.read(held.uid, 1, 1) == list(write.entries)
        assert other.get("run") == after(held, write)

    def test_the_holder_may_write_through_any_handle(
        self, store: Store, other: Store, author: Author, held: RunRecord
    ) -> None:
        write = author.append(held, Kind.DONE)
        put(store, write)
        put(other, author.append(after(held, write), Kind.DONE))
        assert len(store.read(held.uid, 0, ALL)) == 3

    # --- the fence

    def test_append_needs_a_claim(self, store: Store, author: Author, run: RunRecord) -> None:
        refused(store, author.append(replace(run, worker="east"), Kind.DONE))

    def test_append_without_a_worker_to_a_run_that_nobody_holds(
        self, store: Store, other: Store, author: Author, run: RunRecord
    ) -> None:
        free = replace(run, worker="")
        for handle in (store, other, store):
            write = author.append(free, Kind.SAVED, Kind.DONE) if handle is other else author.append(free, Kind.DONE)
            put(handle, write)
            refused(handle, author.append(free, Kind.DONE, payload=b"another at the same end"))
            free = replace(after(free, write), worker="")
        assert [entry.seq for entry in store.read(run.uid, 0, ALL)] == list(range(free.seq + 1))
        assert store.journal(run.uid) == replace(free, worker=None)

    def test_append_without_a_worker_is_fenced_too(self, store: Store, author: Author, run: RunRecord) -> None:
        free = replace(run, worker="")
        held = store.claim(run.uid, "east")
        refused(store, author.append(free, Kind.DONE))
        refused(store, author.append(replace(free, epoch=held.epoch), Kind.DONE))
        refused(store, author.append(replace(free, epoch=held.epoch), change=Change(status=Status.COMPLETED)))
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        refused(store, author.append(free, Kind.DONE))
        put(store, author.append(replace(free, epoch=held.epoch), Kind.DONE, change=Change(chapter=1)))
        record = store.journal(run.uid)
        assert record is not None
        assert (record.seq, record.chapter, record.worker) == (1, 1, None)

    def test_append_without_a_worker_to_a_deleted_run_is_refused(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        fork = make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        assert store.delete(run.uid)
        refused(store, author.append(replace(run, worker=""), Kind.DONE))
        refused(store, author.append(replace(run, worker=""), Kind.DONE, change=Change(chapter=1)))
        assert store.delete(fork.uid)
        refused(store, author.append(replace(run, worker=""), Kind.DONE))

    def test_append_under_an_older_epoch_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        refused(store, author.append(replace(held, epoch=held.epoch - 1), Kind.DONE))

    def test_append_under_a_later_epoch_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        refused(store, author.append(replace(held, epoch=held.epoch + 1), Kind.DONE))

    def test_append_by_another_worker_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        refused(store, author.append(replace(held, worker="west"), Kind.DONE))

    def test_append_after_release_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        refused(store, author.append(held, Kind.DONE))

    def test_append_after_another_claim_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        store.retire("east")
        store.claim(held.uid, "west")
        refused(store, author.append(held, Kind.DONE))

    def test_append_under_the_epoch_before_is_refused_also_to_the_same_worker(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        store.claim(held.uid, "east")
        refused(store, author.append(held, Kind.DONE))

    def test_append_to_a_deleted_run_is_refused(
        self, store: Store, author: Author, clock: ManualClock, held: RunRecord
    ) -> None:
        clock.advance(LEASE + 1)
        assert store.delete(held.uid)
        refused(store, author.append(held, Kind.DONE))

    def test_append_to_a_hidden_run_is_refused(
        self, store: Store, author: Author, clock: ManualClock, held: RunRecord
    ) -> None:
        make(store, author.fork(held, store.read(held.uid, 0, 0)[0], "fork"))
        clock.advance(LEASE + 1)
        assert store.delete(held.uid)
        refused(store, author.append(held, Kind.DONE))

    def test_append_to_a_run_that_never_was_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        refused(store, author.append(replace(held, uid="0" * 24), Kind.DONE))

    def test_a_change_without_entries_is_fenced_too(self, store: Store, author: Author, held: RunRecord) -> None:
        change = Change(status=Status.COMPLETED, release=True)
        refused(store, author.append(replace(held, epoch=held.epoch - 1), change=change))
        refused(store, author.append(replace(held, worker="west"), change=change))

    def test_taking_and_redacting_are_fenced_too(self, store: Store, author: Author, held: RunRecord) -> None:
        store.post(held.uid, item("k"))
        stale = replace(held, epoch=held.epoch - 1)
        refused(store, author.append(stale, Kind.DONE, took=("k",), redact=((0, b"gone"),)))
        refused(store, author.append(stale, took=("k",), redact=((0, b"gone"),)))

    # --- the chain

    def test_a_gap_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        refused(store, author.append(replace(held, seq=held.seq + 1), Kind.DONE))

    def test_a_wrong_hash_before_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        refused(store, author.append(replace(held, hash=b"\x01" * 32), Kind.DONE))

    def test_a_number_that_is_taken_by_another_entry_is_refused(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        put(store, author.append(held, Kind.DONE))
        refused(store, author.append(held, Kind.SAVED))

    def test_a_write_that_begins_at_a_taken_number_is_refused_as_a_whole(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        put(store, author.append(held, Kind.DONE))
        refused(store, author.append(held, Kind.DONE, Kind.DONE))

    def test_a_write_whose_own_entries_do_not_follow_each_other_is_refused_as_a_whole(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        write = author.append(held, Kind.DONE, Kind.DONE, Kind.DONE)
        first, second, third = write.entries
        refused(store, replace(write, entries=(first, third)))
        refused(store, replace(write, entries=(first, replace(second, prev=third.hash))))

    def test_the_same_write_may_be_made_twice(self, store: Store, author: Author, held: RunRecord) -> None:
        store.post(held.uid, item("k"))
        change = Change(status=Status.BLOCKED, reason="why")
        write = author.append(held, Kind.DONE, Kind.DONE, change=change, took=("k",))
        put(store, write)
        before = snapshot(store, held.uid)
        put(store, write)
        assert snapshot(store, held.uid) == before

    def test_the_same_write_may_be_made_twice_in_one_batch(self, store: Store, author: Author, held: RunRecord) -> None:
        write = author.append(held, Kind.DONE)
        assert store.apply([write, write]) == [None, None]
        assert store.read(held.uid, 1, ALL) == list(write.entries)

    # --- batches

    def test_an_empty_batch_does_nothing(self, store: Store) -> None:
        assert store.apply([]) == []

    def test_writes_of_one_run_follow_each_other_in_a_batch(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        first = author.append(held, Kind.DONE)
        second = author.append(after(held, first), Kind.DONE)
        assert store.apply([first, second]) == [None, None]
        assert [entry.seq for entry in store.read(held.uid, 0, ALL)] == [0, 1, 2]

    def test_each_write_of_a_batch_fails_by_itself(self, store: Store, author: Author, held: RunRecord) -> None:
        good = store.claim(make(store, author.create("good")).uid, "west")
        stale = author.append(replace(held, epoch=held.epoch - 1), Kind.DONE)
        outcomes = store.apply([stale, author.append(good, Kind.DONE), author.create("new")])
        assert type(outcomes[0]) is LeaseLost
        assert outcomes[1] is None
        assert outcomes[2] == store.get("new")
        assert len(store.read(good.uid, 0, ALL)) == 2
        assert len(store.read(held.uid, 0, ALL)) == 1

    def test_many_runs_go_on_in_one_batch_whatever_becomes_of_one(self, store: Store, author: Author) -> None:
        made = [make(store, author.create(f"r{n}")) for n in range(12)]
        held = [store.claim(record.uid, "east") for record in made]
        writes = [author.append(record, Kind.DONE, Kind.SAVED) for record in held]
        assert store.apply(writes) == [None] * 12
        held = [after(record, write) for record, write in zip(held, writes, strict=True)]
        writes = [author.append(record, Kind.DONE) for record in held]
        writes[5] = replace(writes[5], epoch=writes[5].epoch - 1)
        outcomes = store.apply([writes[0], author.create("new"), *writes[1:]])
        assert isinstance(outcomes.pop(1), RunRecord)
        assert [type(outcome) for outcome in outcomes] == [LeaseLost if n == 5 else type(None) for n in range(12)]
        assert [len(store.read(record.uid, 0, ALL)) for record in made] == [3 if n == 5 else 4 for n in range(12)]

    def test_a_run_that_took_the_place_of_a_deleted_one_is_not_written_to(self, store: Store, author: Author) -> None:
        old = store.claim(make(store, author.create("old")).uid, "east")
        put(store, author.append(old, Kind.DONE))
        store.retire("east")
        store.delete(old.uid)
        store.enlist("east", LEASE)
        new = store.claim(make(store, author.create("new")).uid, "east")
        refused(store, author.append(replace(new, uid=old.uid, id="old"), Kind.DONE))
        assert len(store.read(new.uid, 0, ALL)) == 1
        put(store, author.append(new, Kind.DONE))

    def test_a_conflict_does_not_take_the_rest_of_its_batch_along(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        good = store.claim(make(store, author.create("good")).uid, "west")
        put(store, author.append(held, Kind.DONE))
        outcomes = store.apply([author.append(good, Kind.DONE), author.append(held, Kind.SAVED), author.create("new")])
        assert outcomes[0] is None
        assert type(outcomes[1]) is LeaseLost
        assert outcomes[2] == store.get("new")
        assert len(store.read(good.uid, 0, ALL)) == 2

    def test_a_uid_that_is_taken_does_not_take_the_rest_of_its_batch_along(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        double = author.create("double", uid=held.uid)
        refused, made, wrote = store.apply([double, author.create("new"), author.append(held, Kind.DONE)])
        assert type(refused) is RunExists
        assert isinstance(made, RunRecord)
        assert wrote is None
        assert store.get("double") is None
        assert [entry.kind for entry in store.read(held.uid, 0, ALL)] == [Kind.CREATED, Kind.DONE]

    def test_all_later_writes_of_a_fenced_off_run_fail_too(self, store: Store, author: Author, held: RunRecord) -> None:
        stale = replace(held, epoch=held.epoch - 1)
        first = author.append(stale, Kind.DONE)
        second = author.append(after(stale, first), Kind.DONE)
        third = author.append(after(stale, second), Kind.DONE, change=Change(status=Status.COMPLETED, release=True))
        outcomes = store.apply([first, second, third])
        assert [type(outcome) for outcome in outcomes] == [LeaseLost] * 3
        assert store.journal(held.uid) == held

    def test_what_follows_a_refused_write_of_a_run_is_refused(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        ahead = replace(held, seq=held.seq + 1)
        first = author.append(ahead, Kind.DONE)
        outcomes = store.apply([first, author.append(after(ahead, first), Kind.DONE)])
        assert [type(outcome) for outcome in outcomes] == [LeaseLost] * 2
        assert store.journal(held.uid) == held

    def test_what_follows_a_release_in_a_batch_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        first = author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True))
        outcomes = store.apply([first, author.append(after(held, first), Kind.DONE)])
        assert outcomes[0] is None
        assert type(outcomes[1]) is LeaseLost
        assert len(store.read(held.uid, 0, ALL)) == 2

    # --- claims

    def test_claim_gives_the_run_to_the_worker(self, store: Store, run: RunRecord) -> None:
        held = store.claim(run.uid, "east")
        assert held == replace(run, status=Status.RUNNING, epoch=run.epoch + 1, worker="east")
        assert store.get("run") == held

    def test_claim_of_a_live_holders_run_is_refused(self, store: Store, held: RunRecord) -> None:
        with pytest.raises(Claimed):
            store.claim(held.uid, "west")
        assert store.journal(held.uid) == held

    def test_claim_is_refused_through_another_handle_too(self, store: Store, other: Store, held: RunRecord) -> None:
        with pytest.raises(Claimed):
            other.claim(held.uid, "north")

    def test_claim_of_a_run_that_one_holds_oneself_is_refused(self, store: Store, held: RunRecord) -> None:
        with pytest.raises(Claimed):
            store.claim(held.uid, "east")

    def test_claim_is_refused_until_the_lease_is_over(self, store: Store, clock: ManualClock, held: RunRecord) -> None:
        clock.advance(LEASE - 0.001)
        store.beat("west", LEASE)
        with pytest.raises(Claimed):
            store.claim(held.uid, "west")
        clock.advance(0.001)
        assert store.claim(held.uid, "west").worker == "west"

    def test_a_beat_extends_all_leases_of_a_worker(
        self, store: Store, author: Author, clock: ManualClock, held: RunRecord
    ) -> None:
        second = store.claim(make(store, author.create("second")).uid, "east")
        clock.advance(LEASE - 1)
        store.beat("east", LEASE)
        clock.advance(LEASE - 1)
        for uid in (held.uid, second.uid):
            with pytest.raises(Claimed):
                store.claim(uid, "west")

    def test_a_beat_counts_from_the_time_at_which_it_is_made(
        self, store: Store, clock: ManualClock, held: RunRecord
    ) -> None:
        store.beat("east", LEASE * 10)
        store.beat("east", LEASE)
        clock.advance(LEASE)
        assert store.claim(held.uid, "west").worker == "west"

    def test_a_beat_does_not_extend_the_leases_of_others(
        self, store: Store, clock: ManualClock, held: RunRecord
    ) -> None:
        clock.advance(LEASE)
        store.beat("west", LEASE)
        assert store.claim(held.uid, "west").worker == "west"

    def test_a_late_beat_revives_a_lease_that_nobody_claimed(
        self, store: Store, clock: ManualClock, held: RunRecord
    ) -> None:
        clock.advance(LEASE * 2)
        store.beat("east", LEASE)
        with pytest.raises(Claimed):
            store.claim(held.uid, "west")

    def test_beats_of_one_worker_may_come_at_once(self, store: Store, clock: ManualClock, held: RunRecord) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # so that they really come at once
        try:
            with ThreadPoolExecutor(4) as threads:
                for beat in [threads.submit(store.beat, "east", LEASE * 2) for _ in range(400)]:
                    beat.result()
        finally:
            sys.setswitchinterval(interval)
        clock.advance(LEASE)
        with pytest.raises(Claimed):
            store.claim(held.uid, "west")

    def test_an_expired_epoch_may_still_write_until_somebody_claims(
        self, store: Store, author: Author, clock: ManualClock, held: RunRecord
    ) -> None:
        clock.advance(LEASE * 2)
        write = author.append(held, Kind.DONE)
        put(store, write)
        store.beat("west", LEASE)
        store.claim(held.uid, "west")
        refused(store, author.append(after(held, write), Kind.DONE))

    # --- a store may remember what its holder wrote last, but not for too long

    @pytest.fixture
    def busy(self, store: Store, author: Author, held: RunRecord) -> RunRecord:
        """A run whose holder has been writing steps, one right after the other."""
        for _ in range(4):
            write = author.append(held, Kind.DONE)
            put(store, write)
            held = after(held, write)
        return held

    @pytest.mark.parametrize("by", ["store", "other"])
    def test_who_was_just_writing_is_refused_when_another_took_over(
        self, store: Store, other: Store, author: Author, clock: ManualClock, busy: RunRecord, by: str
    ) -> None:
        clock.advance(LEASE * 2)
        handle = {"store": store, "other": other}[by]
        handle.beat("west", LEASE)
        taken = handle.claim(busy.uid, "west")
        refused(store, author.append(busy, Kind.DONE))
        put(handle, author.append(taken, Kind.DONE))
        refused(store, author.append(busy, Kind.DONE))

    def test_who_was_just_writing_goes_on_after_others_wrote_elsewhere(
        self, store: Store, other: Store, author: Author, busy: RunRecord
    ) -> None:
        for handle in (store, other):
            write = author.append(busy, Kind.DONE)
            make(handle, author.create(f"beside {busy.seq}"))
            put(store, write)
            busy = after(busy, write)
        assert [entry.seq for entry in store.read(busy.uid, 0, ALL)] == list(range(busy.seq + 1))

    @pytest.mark.parametrize(
        "changes", [{"epoch": 2}, {"epoch": 0}, {"worker": "west"}, {"seq": 5}, {"seq": 3}, {"hash": b"x" * 32}]
    )
    def test_what_does_not_follow_is_refused_right_after_a_step(
        self, store: Store, author: Author, busy: RunRecord, changes: dict[str, Any]
    ) -> None:
        refused(store, author.append(replace(busy, **changes), Kind.DONE))
        put(store, author.append(busy, Kind.DONE))

    def test_a_step_of_another_run_does_not_pass_for_the_next_one(
        self, store: Store, author: Author, busy: RunRecord
    ) -> None:
        second = make(store, author.create("second"))
        mine = store.claim(second.uid, "east")
        write = author.append(mine, Kind.DONE)
        put(store, write)
        refused(store, author.append(replace(after(mine, write), uid=busy.uid, id=busy.id), Kind.DONE))

    def test_a_run_of_a_retired_worker_may_be_claimed_at_once(self, store: Store, held: RunRecord) -> None:
        store.retire("east")
        assert store.claim(held.uid, "west").worker == "west"

    def test_a_run_of_an_unknown_worker_may_be_claimed(self, store: Store, author: Author) -> None:
        made = make(store, author.create("held", worker="nobody", epoch=3, status=Status.RUNNING))
        assert store.claim(made.uid, "east").epoch == 4

    def test_an_epoch_only_grows(self, store: Store, author: Author, run: RunRecord) -> None:
        epochs = []
        for worker in ("east", "west", "east"):
            held = store.claim(run.uid, worker)
            epochs.append(held.epoch)
            put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        assert epochs == sorted(set(epochs))
        record = store.journal(run.uid)
        assert record is not None
        assert record.epoch == epochs[-1]

    def test_a_released_run_may_be_claimed_at_once(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        assert store.claim(held.uid, "west").epoch == held.epoch + 1

    def test_claim_shows_what_was_written_before(self, store: Store, author: Author, held: RunRecord) -> None:
        write = author.append(held, Kind.SAVED, change=Change(status=Status.READY, release=True))
        put(store, write)
        again = store.claim(held.uid, "west")
        assert (again.seq, again.hash, again.state) == (1, write.entries[-1].hash, 1)

    @pytest.mark.parametrize("status", [Status.READY, Status.WAITING])
    def test_a_resting_run_may_be_claimed(self, store: Store, author: Author, held: RunRecord, status: Status) -> None:
        put(store, author.append(held, change=Change(status=status, release=True, wake_at=99)))
        again = store.claim(held.uid, "west")
        assert (again.status, again.wake_at) == (Status.RUNNING, None)

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
    def test_claim_of_an_ended_run_is_refused(
        self, store: Store, author: Author, held: RunRecord, status: Status
    ) -> None:
        put(store, author.append(held, change=Change(status=status, release=True)))
        before = store.journal(held.uid)
        with pytest.raises(RunEnded):
            store.claim(held.uid, "west")
        assert store.journal(held.uid) == before

    def test_claim_of_a_blocked_run_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, change=Change(status=Status.BLOCKED, release=True, reason="see line 7")))
        with pytest.raises(RunBlocked, match="see line 7"):
            store.claim(held.uid, "west")

    @pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.BLOCKED])
    def test_any_run_may_be_claimed_where_its_status_is_allowed(
        self, store: Store, author: Author, held: RunRecord, status: Status
    ) -> None:
        put(store, author.append(held, change=Change(status=status, release=True)))
        claimed = store.claim(held.uid, "west", ANY)
        assert claimed.status is (Status.BLOCKED if status is Status.BLOCKED else Status.RUNNING)
        assert claimed.worker == "west"

    def test_a_parked_run_stays_parked_when_its_claimer_dies(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        put(store, author.append(held, change=Change(status=Status.BLOCKED, release=True, reason="see line 7")))
        store.enlist("west", 60)
        store.claim(held.uid, "west", ANY)
        store.retire("west")
        with pytest.raises(RunBlocked, match="see line 7"):
            store.claim(held.uid, "north")

    def test_claim_of_a_run_that_never_was_is_refused(self, store: Store) -> None:
        with pytest.raises(RunNotFound):
            store.claim("0" * 24, "east")

    def test_claim_of_a_deleted_run_is_refused(self, store: Store, run: RunRecord) -> None:
        store.delete(run.uid)
        with pytest.raises(RunNotFound):
            store.claim(run.uid, "east", ANY)

    def test_claim_of_a_hidden_run_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        store.delete(run.uid)
        with pytest.raises(RunNotFound):
            store.claim(run.uid, "east", ANY)

    def test_of_many_claims_at_once_one_wins(self, store: Store, other: Store, author: Author) -> None:
        for n in range(5):
            made = make(store, author.create(f"race {n}"))
            won: list[RunRecord] = []
            lost: list[HoldfastError] = []
            start = threading.Barrier(4)

            def claim(handle: Store, worker: str, uid: str, start: threading.Barrier = start) -> None:
                start.wait()
                try:
                    won.append(handle.claim(uid, worker))  # noqa: B023
                except Claimed as error:
                    lost.append(error)  # noqa: B023

            threads = [
                threading.Thread(target=claim, args=(handle, worker, made.uid))
                for handle, worker in [(store, "east"), (store, "west"), (other, "north"), (other, "north")]
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (len(won), len(lost)) == (1, 3)
            assert store.journal(made.uid) == won[0]

    # --- holders that died

    def test_a_first_claim_counts_no_crash(self, held: RunRecord) -> None:
        assert (held.crashes, held.crashed_at) == (0, -1)

    def test_holders_that_die_without_writing_are_counted(self, store: Store, other: Store, held: RunRecord) -> None:
        for n, worker in enumerate(["west", "east", "west"], 1):
            assert held.worker is not None
            store.retire(held.worker)
            store.enlist(worker, LEASE)
            held = store.claim(held.uid, worker)
            assert (held.crashes, held.crashed_at) == (n, 0)
            assert other.journal(held.uid) == held

    def test_a_holder_that_wrote_before_it_died_begins_the_count_anew(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        store.retire("east")
        held = store.claim(held.uid, "west")
        put(store, author.append(held, Kind.DONE))
        store.retire("west")
        store.enlist("east", LEASE)
        held = store.claim(held.uid, "east")
        assert (held.crashes, held.crashed_at) == (1, 1)

    def test_a_release_ends_the_count(self, store: Store, author: Author, held: RunRecord) -> None:
        store.retire("east")
        held = store.claim(held.uid, "west")
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        assert store.claim(held.uid, "west").crashes == 0

    # --- how a write changes the record

    def test_a_change_begins_a_chapter(self, store: Store, other: Store, author: Author, held: RunRecord) -> None:
        write = author.append(held, Kind.CONTINUED, change=Change(chapter=1))
        put(store, write)
        assert store.journal(held.uid) == other.get("run") == replace(after(held, write), chapter=1)
        put(store, author.append(after(held, write), Kind.DONE, change=Change(status=Status.RUNNING)))
        record = store.journal(held.uid)
        assert record is not None
        assert record.chapter == 1

    def test_a_write_without_a_change_leaves_the_status(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, Kind.DONE))
        record = store.journal(held.uid)
        assert record is not None
        assert (record.status, record.worker, record.epoch) == (Status.RUNNING, "east", held.epoch)

    def test_a_change_sets_status_reason_and_wake_time(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.BLOCKED, reason="why", wake_at=5)))
        record = store.journal(held.uid)
        assert record is not None
        assert (record.status, record.reason, record.wake_at, record.worker) == (Status.BLOCKED, "why", 5, "east")

    def test_the_next_status_clears_reason_and_wake_time(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, change=Change(status=Status.BLOCKED, reason="why", wake_at=5)))
        put(store, author.append(held, change=Change(status=Status.READY)))
        record = store.journal(held.uid)
        assert record is not None
        assert (record.reason, record.wake_at) == (None, None)

    def test_a_release_gives_up_the_holder(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, change=Change(status=Status.WAITING, release=True, wake_at=9)))
        expected = replace(held, status=Status.WAITING, worker=None, wake_at=9)
        assert store.journal(held.uid) == expected

    def test_a_rollback_is_remembered_until_it_is_rewound(self, store: Store, author: Author, held: RunRecord) -> None:
        begun = author.append(held, Kind.ROLLBACK_BEGUN, change=Change(rollback=1))
        put(store, begun)
        record = store.journal(held.uid)
        assert record is not None
        assert (record.rollback, record.rewinds) == (1, ())
        rewound = author.append(after(held, begun), Kind.REWOUND, change=Change(rewind=Rewind(2, 0)))
        put(store, rewound)
        record = store.journal(held.uid)
        assert record is not None
        assert (record.rollback, record.rewinds, record.generation) == (None, (Rewind(2, 0),), 1)

    def test_rewinds_add_up(self, store: Store, author: Author, held: RunRecord) -> None:
        for n in (1, 2, 3):
            write = author.append(held, Kind.REWOUND, change=Change(rewind=Rewind(n, 0)))
            put(store, write)
            held = after(held, write)
        record = store.journal(held.uid)
        assert record is not None
        assert record.rewinds == (Rewind(1, 0), Rewind(2, 0), Rewind(3, 0))

    # --- the inbox

    def test_post_leaves_an_item(self, store: Store, run: RunRecord) -> None:
        assert store.post(run.uid, item("k", payload=b"\x00\xff\n"))
        assert store.inbox(run.uid) == [item("k", payload=b"\x00\xff\n")]

    def test_items_are_listed_oldest_first(self, store: Store, other: Store, run: RunRecord) -> None:
        keys = [f"k{n}" for n in (3, 1, 2, 10, 9)]
        for n, key in enumerate(keys):
            handle = (store, other)[n % 2]
            assert handle.post(run.uid, item(key, at=100 - n))
        assert [found.key for found in store.inbox(run.uid)] == keys

    def test_a_key_is_used_once(self, store: Store, other: Store, run: RunRecord) -> None:
        assert store.post(run.uid, item("k", payload=b"first"))
        assert not store.post(run.uid, item("k", payload=b"second"))
        assert not other.post(run.uid, item("k", payload=b"third"))
        assert [found.payload for found in store.inbox(run.uid)] == [b"first"]

    def test_a_key_is_used_once_also_after_it_was_taken(self, store: Store, author: Author, held: RunRecord) -> None:
        store.post(held.uid, item("k"))
        put(store, author.append(held, Kind.ANSWERED, took=("k",)))
        assert not store.post(held.uid, item("k"))
        assert store.inbox(held.uid) == []

    def test_a_key_of_one_run_is_free_in_another(self, store: Store, author: Author, run: RunRecord) -> None:
        second = make(store, author.create("second"))
        assert store.post(run.uid, item("k"))
        assert store.post(second.uid, item("k"))

    @pytest.mark.parametrize("key", ["../../etc", "a/b", "\0", "x" * 2000, "a\nb", "K", "\U0001f980" * 500])
    def test_a_key_may_be_any_text(self, store: Store, author: Author, held: RunRecord, key: str) -> None:
        assert store.post(held.uid, item("k"))
        assert store.post(held.uid, item(key))
        assert not store.post(held.uid, item(key))
        put(store, author.append(held, Kind.ANSWERED, took=(key,)))
        assert store.taken(held.uid) == [key]
        assert [found.key for found in store.inbox(held.uid)] == ["k"]

    def test_taken_items_leave_the_inbox_with_the_write_that_took_them(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        for key in "abc":
            store.post(held.uid, item(key))
        put(store, author.append(held, Kind.ANSWERED, took=("c", "a")))
        assert [found.key for found in store.inbox(held.uid)] == ["b"]
        assert sorted(store.taken(held.uid)) == ["a", "c"]

    def test_items_can_be_taken_without_an_entry(self, store: Store, author: Author, held: RunRecord) -> None:
        store.post(held.uid, item("k"))
        put(store, author.append(held, took=("k",)))
        assert store.inbox(held.uid) == []
        assert store.taken(held.uid) == ["k"]

    def test_post_makes_a_waiting_run_ready(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True, wake_at=99)))
        assert store.post(held.uid, item("k"))
        record = store.journal(held.uid)
        assert record is not None
        assert (record.status, record.wake_at, record.worker) == (Status.READY, None, None)

    def test_an_item_that_does_not_wake_leaves_a_waiting_run(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        put(store, author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True, wake_at=99)))
        before = store.journal(held.uid)
        assert store.post(held.uid, item("k", wakes=False))
        assert store.journal(held.uid) == before

    @pytest.mark.parametrize("status", [Status.READY, Status.BLOCKED, Status.COMPLETED, Status.FAILED])
    def test_post_changes_no_other_status(self, store: Store, author: Author, held: RunRecord, status: Status) -> None:
        put(store, author.append(held, change=Change(status=status, release=True, reason="why")))
        before = store.journal(held.uid)
        assert store.post(held.uid, item("k"))
        assert store.journal(held.uid) == before

    def test_a_refused_post_does_not_wake(self, store: Store, author: Author, held: RunRecord) -> None:
        store.post(held.uid, item("k"))
        write = author.append(held, Kind.ANSWERED, took=("k",))
        put(store, write)
        put(store, author.append(after(held, write), change=Change(status=Status.WAITING, release=True)))
        assert not store.post(held.uid, item("k"))
        record = store.journal(held.uid)
        assert record is not None
        assert record.status is Status.WAITING

    def test_post_does_not_disturb_the_holder(
        self, store: Store, other: Store, author: Author, held: RunRecord
    ) -> None:
        assert other.post(held.uid, item("k"))
        put(store, author.append(held, Kind.DONE))

    def test_a_run_that_goes_to_wait_with_mail_is_ready_at_once(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        store.post(held.uid, item("k"))
        put(store, author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True, wake_at=99)))
        record = store.journal(held.uid)
        assert record is not None
        assert (record.status, record.wake_at) == (Status.READY, None)

    def test_mail_that_does_not_wake_lets_a_run_go_to_wait(self, store: Store, author: Author, held: RunRecord) -> None:
        store.post(held.uid, item("k", wakes=False))
        put(store, author.append(held, Kind.ASKED, change=Change(status=Status.WAITING, release=True)))
        record = store.journal(held.uid)
        assert record is not None
        assert record.status is Status.WAITING

    def test_mail_that_is_taken_with_the_write_lets_a_run_go_to_wait(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        store.post(held.uid, item("k"))
        change = Change(status=Status.WAITING, release=True)
        put(store, author.append(held, Kind.ANSWERED, Kind.ASKED, took=("k",), change=change))
        record = store.journal(held.uid)
        assert record is not None
        assert record.status is Status.WAITING

    def test_post_to_a_run_that_never_was_is_false(self, store: Store) -> None:
        assert not store.post("0" * 24, item("k"))

    def test_post_to_a_deleted_run_is_false(self, store: Store, run: RunRecord) -> None:
        store.delete(run.uid)
        assert not store.post(run.uid, item("k"))

    def test_post_to_a_hidden_run_is_false(self, store: Store, author: Author, run: RunRecord) -> None:
        make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        store.delete(run.uid)
        assert not store.post(run.uid, item("k"))
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
        record = store.journal(made.uid)
        assert record is not None
        return record

    def test_a_new_run_of_a_queue_is_due(self, store: Store, other: Store, author: Author) -> None:
        made = make(store, author.create("new", queue="q", workflow="w"))
        assert store.due(["q"], ["w"]) == [made]
        assert other.due({"p", "q"}, {"v", "w"}) == [made]

    def test_a_run_of_no_queue_is_never_due(self, store: Store, author: Author) -> None:
        make(store, author.create("by hand", workflow="w"))
        make(store, author.create("tagged", workflow="w", tags={"queue": "q", "status": "ready", "worker": "w"}))
        assert store.due(["q", ""], ["w"]) == []

    def test_only_runs_of_the_given_queues_and_workflows_are_due(self, store: Store, author: Author) -> None:
        for queue in ("p", "q", "r"):
            for workflow in ("v", "w", None):
                make(store, author.create(f"{queue}{workflow}", queue=queue, workflow=workflow))
        assert ids(store.due(["p", "q"], ["w", "x"])) == ["pw", "qw"]
        assert ids(store.due(["r"], ["v", "w"])) == ["rv", "rw"]
        assert store.due(["s"], ["w"]) == []
        assert store.due([], ["w"]) == []
        assert store.due(["p"], []) == []

    def test_many_workflows_may_be_asked_for(self, store: Store, author: Author) -> None:
        names = [f"workflow {n}" for n in range(500)]
        made = [make(store, author.create(name, queue="q", workflow=name)) for name in (names[0], names[499])]
        assert store.due(["q"], names) == made

    @pytest.mark.parametrize("text", ["it's", "a\0b", "%", "é", "\n", '"'])
    def test_queues_and_workflows_may_be_any_text(self, store: Store, author: Author, text: str) -> None:
        made = make(store, author.create("run", queue=text, workflow=text))
        assert store.due([text], [text]) == [made]
        assert store.due([text + "x"], [text]) == store.due([text], [text + "x"]) == []

    @pytest.mark.parametrize("status", list(Status))
    def test_only_ready_runs_are_due_at_once(self, store: Store, author: Author, status: Status) -> None:
        record = self.rest(store, author, "run", status)
        assert store.due(["q"], ["w"]) == ([record] if status is Status.READY else [])

    def test_a_waiting_run_is_due_when_its_time_has_come(
        self, store: Store, other: Store, author: Author, clock: ManualClock
    ) -> None:
        record = self.rest(store, author, "run", Status.WAITING, wake_at=clock.now() + 2_000_000)
        clock.advance(1.999)
        assert store.due(["q"], ["w"]) == []
        clock.advance(0.001)
        assert store.due(["q"], ["w"]) == other.due(["q"], ["w"]) == [record]

    def test_a_waiting_run_is_due_when_something_arrives(self, store: Store, other: Store, author: Author) -> None:
        record = self.rest(store, author, "run", Status.WAITING, wake_at=1 << 52)
        other.post(record.uid, item("k"))
        assert ids(store.due(["q"], ["w"])) == ["run"]

    def test_a_held_run_is_not_due(self, store: Store, author: Author, clock: ManualClock) -> None:
        made = make(store, author.create("run", queue="q", workflow="w"))
        held = store.claim(made.uid, "east")
        put(store, author.append(held, change=Change(status=Status.WAITING, wake_at=1)))
        assert store.due(["q"], ["w"]) == []
        clock.advance(LEASE * 2)
        assert store.due(["q"], ["w"]) == []
        assert ids(store.orphans()) == ["run"]

    def test_a_hidden_run_is_not_due(self, store: Store, author: Author) -> None:
        ready = make(store, author.create("ready", queue="q", workflow="w"))
        waiting = self.rest(store, author, "waiting", Status.WAITING, wake_at=1)
        for record in (ready, waiting):
            make(store, author.fork(record, store.read(record.uid, 0, 0)[0], f"fork of {record.id}"))
            store.delete(record.uid)
        assert store.due(["q"], ["w"]) == []
        assert store.next_wake() is None

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
        assert ids(store.due(["p", "q"], ["w"])) == ["a", "b", "c", "d", "e"]
        assert ids(store.due(["p", "q"], ["w"], limit=3)) == ["a", "b", "c"]

    def test_the_next_wake_is_the_earliest_of_all_queues(
        self, store: Store, other: Store, author: Author, clock: ManualClock
    ) -> None:
        assert store.next_wake() is None
        now = clock.now()
        self.rest(store, author, "never", Status.WAITING)
        self.rest(store, author, "ready", Status.READY, wake_at=5)
        self.rest(store, author, "by hand", Status.WAITING, wake_at=6, queue=None)
        assert store.next_wake() is None
        self.rest(store, author, "late", Status.WAITING, wake_at=now + 9_000_000)
        self.rest(store, author, "soon", Status.WAITING, wake_at=now + 4_000_000, queue="p", workflow=None)
        assert store.next_wake() == other.next_wake() == now + 4_000_000
        clock.advance(5)
        assert store.next_wake() == now + 4_000_000

    def test_the_next_wake_of_some_queues_and_workflows_after_a_time(self, store: Store, author: Author) -> None:
        for n, (queue, workflow) in enumerate((("p", "v"), ("q", "v"), ("q", "w"), ("p", "w")), 1):
            self.rest(store, author, f"run {n}", Status.WAITING, wake_at=n, queue=queue, workflow=workflow)
        assert store.next_wake(["q"], ["w"]) == 3
        assert store.next_wake(["p"], ["v", "w"]) == 1
        assert store.next_wake(["p"], ["v", "w"], after=1) == 4
        assert store.next_wake(["p", "q"], ["v", "w"], after=2) == 3
        assert store.next_wake(after=3) == 4
        assert store.next_wake(["q"], after=3) is None
        assert store.next_wake(["r"], ["w"]) is store.next_wake(["q"], []) is store.next_wake(after=4) is None

    def test_a_run_that_is_held_or_was_woken_has_no_next_wake(self, store: Store, author: Author) -> None:
        first = self.rest(store, author, "first", Status.WAITING, wake_at=1 << 50)
        second = self.rest(store, author, "second", Status.WAITING, wake_at=1 << 51)
        store.claim(first.uid, "east")
        assert store.next_wake() == 1 << 51
        store.post(second.uid, item("k"))
        assert store.next_wake() is None

    # --- the version

    @pytest.mark.parametrize("use", ["create", "append", "change", "release", "claim", "post", "adopt", "retire"])
    @pytest.mark.parametrize("by", ["the same handle", "another handle"])
    def test_whatever_is_committed_changes_the_version(
        self, store: Store, other: Store, author: Author, held: RunRecord, use: str, by: str
    ) -> None:
        free = make(store, author.create("free"))
        handle = store if by == "the same handle" else other
        record, entries = self.whole(author)
        changes: dict[str, Callable[[], object]] = {
            "create": lambda: make(handle, author.create("new")),
            "append": lambda: put(handle, author.append(held, Kind.DONE)),
            "change": lambda: put(handle, author.append(held, change=Change(status=Status.WAITING))),
            "release": lambda: put(handle, author.append(held, change=Change(status=Status.READY, release=True))),
            "claim": lambda: handle.claim(free.uid, "west"),
            "post": lambda: handle.post(free.uid, item("k")),
            "adopt": lambda: handle.adopt(record, entries, [], []),
            "retire": lambda: handle.retire("west"),
        }
        before = store.version()
        changes[use]()
        assert store.version() != before

    def test_the_version_changes_each_time(self, store: Store, other: Store, author: Author, run: RunRecord) -> None:
        seen = [store.version()]
        for n in range(50):
            (store, other)[n % 2].post(run.uid, item(f"k{n}"))
            seen.append(store.version())
        assert all(before != after for before, after in pairwise(seen))

    def test_reading_leaves_the_version(self, store: Store, other: Store, run: RunRecord) -> None:
        before = store.version()
        for handle in (store, other):
            handle.get("run")
            handle.find(Filter())
            handle.due(["q"], ["w"])
            handle.next_wake()
            handle.orphans()
        assert store.version() == before

    # --- workers and orphans

    def test_a_held_run_is_no_orphan_while_its_worker_lives(
        self, store: Store, other: Store, run: RunRecord, held: RunRecord
    ) -> None:
        assert store.orphans() == []
        assert other.orphans() == []

    def test_a_run_whose_lease_is_over_is_an_orphan(
        self, store: Store, other: Store, clock: ManualClock, held: RunRecord
    ) -> None:
        clock.advance(LEASE)
        assert store.orphans() == [held]
        assert other.orphans() == [held]

    def test_a_run_of_a_retired_worker_is_an_orphan(self, store: Store, held: RunRecord) -> None:
        store.retire("east")
        assert store.orphans() == [held]

    def test_a_run_that_nobody_holds_is_no_orphan(self, store: Store, clock: ManualClock, run: RunRecord) -> None:
        clock.advance(LEASE * 2)
        assert store.orphans() == []

    def test_a_released_run_is_no_orphan(
        self, store: Store, author: Author, clock: ManualClock, held: RunRecord
    ) -> None:
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
        clock.advance(LEASE * 2)
        assert store.orphans() == []

    def test_an_orphan_that_is_claimed_is_none_any_more(self, store: Store, held: RunRecord) -> None:
        store.retire("east")
        store.claim(held.uid, "west")
        assert store.orphans() == []

    def test_orphans_of_several_workers_are_listed_up_to_the_limit(
        self, store: Store, author: Author, clock: ManualClock
    ) -> None:
        for n in range(6):
            store.claim(make(store, author.create(f"o{n}")).uid, ("east", "west")[n % 2])
        clock.advance(LEASE)
        assert sorted(ids(store.orphans())) == [f"o{n}" for n in range(6)]
        assert len(store.orphans(limit=4)) == 4
        assert len(store.orphans(limit=1)) == 1

    def test_a_worker_may_be_retired_repeatedly(self, store: Store) -> None:
        store.retire("east")
        store.retire("east")
        store.retire("nobody")

    def test_a_retired_worker_may_enlist_again(self, store: Store, run: RunRecord) -> None:
        store.retire("east")
        store.enlist("east", LEASE)
        store.claim(run.uid, "east")
        with pytest.raises(Claimed):
            store.claim(run.uid, "west")

    def test_closing_retires_the_workers_of_that_handle_alone(self, store: Store, other: Store, author: Author) -> None:
        ours, theirs = make(store, author.create("ours")), make(store, author.create("theirs"))
        store.claim(ours.uid, "east")
        other.claim(theirs.uid, "north")
        other.close()
        assert ids(store.orphans()) == ["theirs"]
        with pytest.raises(Claimed):
            store.claim(ours.uid, "west")
        assert store.claim(theirs.uid, "west").worker == "west"

    def test_what_a_dropped_handle_held_may_be_claimed_when_its_lease_is_over(
        self, store: Store, other: Store, clock: ManualClock, run: RunRecord
    ) -> None:
        held = other.claim(run.uid, "north")
        other.drop()
        clock.advance(LEASE)
        store.beat("east", LEASE)
        assert store.orphans() == [held]
        assert store.claim(run.uid, "east").epoch == held.epoch + 1

    # --- read

    @pytest.fixture
    def long(self, store: Store, author: Author, held: RunRecord) -> list[Entry]:
        """A journal of ten entries: 0 created, then saved and done by turns."""
        for n in range(1, 10):
            write = author.append(held, (Kind.SAVED, Kind.DONE)[(n + 1) % 2])
            put(store, write)
            held = after(held, write)
        return store.read(held.uid, 0, ALL)

    def test_read_gives_all_entries_in_order(self, long: list[Entry]) -> None:
        assert [entry.seq for entry in long] == list(range(10))
        assert all(entry.prev == before.hash for before, entry in pairwise(long))

    @pytest.mark.parametrize(
        ("lo", "hi"), [(0, 0), (9, 9), (3, 6), (0, 4), (5, ALL), (-5, 2), (10, ALL), (6, 3), (-3, -1)]
    )
    def test_read_gives_the_entries_of_a_range(
        self, store: Store, held: RunRecord, long: list[Entry], lo: int, hi: int
    ) -> None:
        assert store.read(held.uid, lo, hi) == [entry for entry in long if lo <= entry.seq <= hi]

    @pytest.mark.parametrize("saved", [True, False])
    def test_read_can_be_asked_for_saves_only_or_for_all_but_saves(
        self, store: Store, held: RunRecord, long: list[Entry], saved: bool
    ) -> None:
        expected = [entry for entry in long if (entry.kind == Kind.SAVED) is saved]
        assert store.read(held.uid, 0, ALL, saved=saved) == expected
        assert store.read(held.uid, 2, 7, saved=saved) == [entry for entry in expected if 2 <= entry.seq <= 7]

    def test_read_without_payloads_leaves_them_empty(self, store: Store, held: RunRecord, long: list[Entry]) -> None:
        assert store.read(held.uid, 2, 7, payloads=False) == [replace(entry, payload=b"") for entry in long[2:8]]

    def test_read_stops_at_the_limit(self, store: Store, held: RunRecord, long: list[Entry]) -> None:
        assert store.read(held.uid, 2, ALL, limit=3) == long[2:5]
        assert store.read(held.uid, 2, ALL, limit=0) == []
        assert store.read(held.uid, 2, ALL, saved=True, limit=2) == [long[3], long[5]]

    def test_read_of_a_fork_gives_its_own_entries_alone(
        self, store: Store, author: Author, held: RunRecord, long: list[Entry]
    ) -> None:
        parent = store.journal(held.uid)
        assert parent is not None
        write = author.fork(parent, long[4], "fork")
        fork = make(store, write)
        assert store.read(fork.uid, 0, ALL) == list(write.entries)
        assert store.read(fork.uid, 0, 4) == []
        assert (fork.seq, fork.base, fork.state) == (5, 5, 3)

    def test_a_fork_goes_on_after_its_fork_point(
        self, store: Store, author: Author, held: RunRecord, long: list[Entry]
    ) -> None:
        parent = store.journal(held.uid)
        assert parent is not None
        fork = store.claim(make(store, author.fork(parent, long[4], "fork")).uid, "west")
        put(store, author.append(fork, Kind.DONE))
        assert [entry.seq for entry in store.read(fork.uid, 0, ALL)] == [5, 6]
        assert store.read(fork.uid, 5, 5)[0].prev == long[4].hash
        assert store.read(held.uid, 0, ALL) == long

    # --- redact

    def test_redact_replaces_payloads_and_nothing_else(
        self, store: Store, other: Store, author: Author, held: RunRecord, long: list[Entry]
    ) -> None:
        current = store.journal(held.uid)
        assert current is not None
        write = author.append(current, Kind.REDACTED, redact=((2, b"\x00gone"), (5, b"gone too")))
        put(store, write)
        expected = [*long, *write.entries]
        expected[2] = replace(long[2], payload=b"\x00gone")
        expected[5] = replace(long[5], payload=b"gone too")
        assert store.read(held.uid, 0, ALL) == expected
        assert other.read(held.uid, 0, ALL) == expected

    def test_redact_without_an_entry(self, store: Store, author: Author, held: RunRecord, long: list[Entry]) -> None:
        current = store.journal(held.uid)
        assert current is not None
        put(store, author.append(current, redact=((9, b"gone"),)))
        assert store.read(held.uid, 9, 9) == [replace(long[9], payload=b"gone")]
        assert store.journal(held.uid) == current

    def test_a_redacted_run_can_be_written_to(
        self, store: Store, author: Author, held: RunRecord, long: list[Entry]
    ) -> None:
        current = store.journal(held.uid)
        assert current is not None
        write = author.append(current, Kind.REDACTED, redact=((1, b"gone"),))
        put(store, write)
        put(store, author.append(after(current, write), Kind.DONE))
        assert [entry.seq for entry in store.read(held.uid, 0, ALL)] == list(range(12))

    # --- delete

    def test_delete_removes_everything(self, store: Store, other: Store, author: Author, run: RunRecord) -> None:
        store.post(run.uid, item("k"))
        assert store.delete(run.uid)
        for handle in (store, other):
            assert handle.get("run") is None
            assert snapshot(handle, run.uid) == (None, [], [], [])
            assert handle.find(Filter(hidden=None)) == []

    def test_delete_may_be_repeated(self, store: Store, other: Store, run: RunRecord) -> None:
        assert store.delete(run.uid)
        assert not store.delete(run.uid)
        assert not other.delete(run.uid)

    def test_delete_of_a_run_that_never_was_is_false(self, store: Store) -> None:
        assert not store.delete("0" * 24)

    def test_delete_of_a_live_holders_run_is_refused(self, store: Store, other: Store, held: RunRecord) -> None:
        for handle in (store, other):
            with pytest.raises(Claimed):
                handle.delete(held.uid)
        assert store.get("run") == held

    def test_a_run_whose_lease_is_over_may_be_deleted(self, store: Store, clock: ManualClock, held: RunRecord) -> None:
        clock.advance(LEASE)
        assert store.delete(held.uid)
        assert store.orphans() == []

    def test_the_id_of_a_deleted_run_is_free(self, store: Store, author: Author, run: RunRecord) -> None:
        store.post(run.uid, item("k"))
        store.delete(run.uid)
        again = make(store, author.create("run"))
        assert again.uid != run.uid
        assert store.get("run") == again
        assert store.inbox(again.uid) == []
        assert store.post(again.uid, item("k"))

    def test_the_id_of_a_hidden_run_is_free(self, store: Store, author: Author, run: RunRecord) -> None:
        first = store.read(run.uid, 0, 0)[0]
        make(store, author.fork(run, first, "fork"))
        store.delete(run.uid)
        again = make(store, author.create("run"))
        assert store.get("run") == again
        assert store.read(run.uid, 0, ALL) == [first]

    def test_delete_does_nothing_if_the_run_was_written_to_since(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
        before = store.journal(held.uid)
        assert not store.delete(held.uid, expected=held)
        assert store.journal(held.uid) == before

    def test_delete_does_nothing_if_the_run_was_claimed_since(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        held = store.claim(run.uid, "east")
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        assert not store.delete(run.uid, expected=run)
        assert store.get("run") is not None

    def test_delete_does_nothing_if_the_run_is_held_since(self, store: Store, run: RunRecord) -> None:
        held = store.claim(run.uid, "east")
        assert not store.delete(run.uid, expected=run)
        assert store.get("run") == held

    def test_delete_removes_the_run_as_expected(self, store: Store, run: RunRecord) -> None:
        assert store.delete(run.uid, expected=run)
        assert store.journal(run.uid) is None

    def test_a_run_with_forks_is_hidden(self, store: Store, author: Author, run: RunRecord) -> None:
        entries = store.read(run.uid, 0, ALL)
        make(store, author.fork(run, entries[0], "fork"))
        assert store.delete(run.uid)
        assert store.get("run") is None
        assert store.journal(run.uid) == replace(run, hidden=True)
        assert store.read(run.uid, 0, ALL) == entries
        assert not store.delete(run.uid)

    def test_a_hidden_run_goes_with_its_last_fork(self, store: Store, author: Author, run: RunRecord) -> None:
        first = store.read(run.uid, 0, 0)[0]
        left, right = (make(store, author.fork(run, first, name)) for name in ("left", "right"))
        store.delete(run.uid)
        store.delete(left.uid)
        assert store.read(run.uid, 0, ALL) == [first]
        store.delete(right.uid)
        assert store.journal(run.uid) is None
        assert store.read(run.uid, 0, ALL) == []
        assert store.find(Filter(hidden=None)) == []

    def test_deleting_a_fork_leaves_its_parent(self, store: Store, author: Author, run: RunRecord) -> None:
        before = snapshot(store, run.uid)
        fork = make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        assert store.delete(fork.uid)
        assert store.journal(fork.uid) is None
        assert snapshot(store, run.uid) == before

    def test_a_parent_is_deleted_at_once_when_its_forks_are_gone(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        fork = make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        store.delete(fork.uid)
        store.delete(run.uid)
        assert store.journal(run.uid) is None

    def test_a_chain_of_forks_keeps_all_that_it_shares(self, store: Store, author: Author, run: RunRecord) -> None:
        chain = self.chain(store, author, run, 4)
        for record in chain[:-1]:
            assert store.delete(record.uid)
        assert ids(store.find(Filter())) == [chain[-1].id]
        assert [store.read(record.uid, 0, ALL)[0].seq for record in chain] == [0, 1, 2, 3]
        assert store.delete(chain[-1].uid)
        assert [store.journal(record.uid) for record in chain] == [None] * 4

    def test_the_middle_of_a_chain_of_forks_goes_with_its_end(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        chain = self.chain(store, author, run, 3)
        store.delete(chain[1].uid)
        assert store.journal(chain[1].uid) is not None
        store.delete(chain[2].uid)
        assert store.journal(chain[1].uid) is None
        assert store.get("run") == chain[0]

    def test_a_hidden_run_can_be_forked_through_its_fork(self, store: Store, author: Author, run: RunRecord) -> None:
        chain = self.chain(store, author, run, 2)
        store.delete(run.uid)
        first = store.read(run.uid, 0, 0)[0]
        second = make(store, author.fork(chain[1], first, "second"))
        assert [link.uid for link in second.lineage] == [run.uid]
        store.delete(chain[1].uid)
        assert store.read(run.uid, 0, ALL) == [first]

    def test_many_are_swept_away_with_all_that_is_theirs(self, store: Store, author: Author, run: RunRecord) -> None:
        others = [make(store, author.create(f"other {n}", tags={"of": str(n)})) for n in range(5)]
        store.post(others[0].uid, item("k"))
        swept = store.sweep([store.get(one.id) or one for one in others[:4]])
        assert swept == {one.uid for one in others[:4]}
        assert sorted(ids(store.find(Filter()))) == ["other 4", "run"]
        assert store.find(Filter(tags=(("of", "0"),))) == []
        assert store.inbox(others[0].uid) == []
        assert store.taken(others[0].uid) == []
        assert store.read(others[0].uid, 0, ALL) == []
        again = make(store, author.create("other 0"))
        assert store.get("other 0") == again
        assert store.sweep(others[:4]) == set()
        assert store.sweep([]) == set()

    def test_what_is_held_or_has_changed_is_not_swept_away(self, store: Store, author: Author, run: RunRecord) -> None:
        changed, claimed, gone = (make(store, author.create(name)) for name in ("changed", "claimed", "gone"))
        held = store.claim(changed.uid, "east")
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
        store.claim(claimed.uid, "east")
        store.delete(gone.uid)
        seen = [run, changed, claimed, gone, replace(store.get("changed") or changed, status=Status.COMPLETED)]
        assert store.sweep([*seen, store.get("claimed") or claimed]) == {run.uid}
        assert sorted(ids(store.find(Filter()))) == ["changed", "claimed"]

    def test_what_forks_share_is_not_swept_away(self, store: Store, author: Author, run: RunRecord) -> None:
        entries = store.read(run.uid, 0, ALL)
        fork = make(store, author.fork(run, entries[0], "fork"))
        other = make(store, author.create("other"))
        gone = store.sweep([run, other])
        assert other.uid in gone
        assert store.read(run.uid, 0, ALL) == entries
        assert store.get("fork") == fork

    def test_the_forks_of_a_run_and_theirs(self, store: Store, author: Author, run: RunRecord) -> None:
        assert store.forks(run.uid) == []
        first = make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "first"))
        second = make(store, author.fork(first, store.read(first.uid, 1, 1)[0], "second"))
        make(store, author.create("another"))
        assert [one.id for one in store.forks(run.uid)] == ["second", "first"]
        assert [one.id for one in store.forks(run.uid, limit=1)] == ["second"]
        assert [one.id for one in store.forks(first.uid)] == ["second"]
        store.delete(second.uid)
        assert [one.id for one in store.forks(run.uid)] == ["first"]

    def test_a_fork_of_a_deleted_run_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        late = author.fork(run, store.read(run.uid, 0, 0)[0], "late")
        store.delete(run.uid)
        refused(store, late, RunNotFound)
        assert store.get("late") is None

    def chain(self, store: Store, author: Author, run: RunRecord, length: int) -> list[RunRecord]:
        """Runs of which each is a fork of the one before, at its end."""
        made = [run]
        for n in range(1, length):
            parent = made[-1]
            made.append(make(store, author.fork(parent, store.read(parent.uid, n - 1, n - 1)[0], f"fork {n}")))
        return made

    # --- find

    @pytest.fixture
    def many(self, store: Store, author: Author, clock: ManualClock) -> list[RunRecord]:
        """Ten runs, oldest first, a second apart; the last one is hidden."""
        made = []
        for n in range(10):
            clock.advance(1)
            tags = {"parity": ("even", "odd")[n % 2], "n": str(n)}
            made.append(make(store, author.create(f"run/{n}", workflow=("w", "v", None)[n % 3], tags=tags)))
        store.beat("east", LEASE)
        for n, status in enumerate(Status):
            if status is not Status.READY:
                held = store.claim(made[n].uid, "east")
                put(store, author.append(held, change=Change(status=status, release=status is not Status.RUNNING)))
        make(store, author.fork(made[9], store.read(made[9].uid, 0, 0)[0], "fork"))
        store.delete(made[9].uid)
        return [record for record in (store.journal(each.uid) for each in made) if record is not None]

    def test_find_lists_visible_runs_newest_first(self, store: Store, many: list[RunRecord]) -> None:
        assert ids(store.find(Filter())) == ["fork", *(f"run/{n}" for n in reversed(range(9)))]

    def test_find_gives_whole_records(self, store: Store, many: list[RunRecord]) -> None:
        assert store.find(Filter(prefix="run/")) == many[8::-1]

    def test_find_by_hidden(self, store: Store, many: list[RunRecord]) -> None:
        assert store.find(Filter(hidden=True)) == [many[9]]
        assert len(store.find(Filter(hidden=None))) == 11

    @pytest.mark.parametrize("status", list(Status))
    def test_find_by_status(self, store: Store, many: list[RunRecord], status: Status) -> None:
        expected = [record for record in reversed(many[:9]) if record.status is status]
        assert expected
        assert store.find(Filter(statuses=(status,), prefix="run/")) == expected

    def test_find_by_several_statuses(self, store: Store, many: list[RunRecord]) -> None:
        found = store.find(Filter(statuses=(Status.WAITING, Status.FAILED)))
        assert {record.status for record in found} == {Status.WAITING, Status.FAILED}

    def test_find_by_workflow(self, store: Store, many: list[RunRecord]) -> None:
        assert ids(store.find(Filter(workflow="v"))) == ["run/7", "run/4", "run/1"]

    def test_find_by_parent(self, store: Store, author: Author, many: list[RunRecord]) -> None:
        for n in range(4):
            make(store, author.create(f"child/{n}", parent=many[n % 2].uid, workflow=("w", "v")[n // 2]))
        assert ids(store.find(Filter(parent=many[1].uid))) == ["child/3", "child/1"]
        assert ids(store.find(Filter(parent=many[1].uid, workflow="w"))) == ["child/1"]
        assert ids(store.find(Filter(parent=many[1].uid), limit=1)) == ["child/3"]
        assert store.find(Filter(parent="nobody")) == []

    def test_find_by_tag(self, store: Store, many: list[RunRecord]) -> None:
        found = store.find(Filter(tags=(("parity", "odd"),)))
        assert ids(found) == ["run/7", "run/5", "run/3", "run/1"]

    def test_find_by_several_tags_needs_all_of_them(self, store: Store, many: list[RunRecord]) -> None:
        assert ids(store.find(Filter(tags=(("parity", "odd"), ("n", "3"))))) == ["run/3"]
        assert store.find(Filter(tags=(("parity", "even"), ("n", "3")))) == []

    @pytest.mark.parametrize(
        "text", ["", "it's", 'a "quote"', "a\\b", "$.a[0]", "%", "é", "e\u0301", "\n", "\0", "\0b", "1", "1.0", "null"]
    )
    def test_find_by_a_tag_of_any_text(self, store: Store, author: Author, text: str) -> None:
        for n, tags in enumerate(({text: "value"}, {"name": text}, {"else": "else"})):
            make(store, author.create(f"t{n}", tags=tags))
        assert ids(store.find(Filter(tags=((text, "value"),)))) == ["t0"]
        assert ids(store.find(Filter(tags=(("name", text),)))) == ["t1"]

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("", ["B", "%b", "a_b", "a%b", "a\0c", "a\0b", "a", "ab\U0001f980c", "ab"]),
            ("a", ["a_b", "a%b", "a\0c", "a\0b", "a", "ab\U0001f980c", "ab"]),
            ("ab", ["ab\U0001f980c", "ab"]),
            ("ab\U0001f980", ["ab\U0001f980c"]),
            ("a%", ["a%b"]),
            ("%", ["%b"]),
            ("a_", ["a_b"]),
            ("a\0", ["a\0c", "a\0b"]),
            ("a\0b", ["a\0b"]),
            ("b", []),
            ("abcd", []),
        ],
    )
    def test_find_by_prefix(self, store: Store, author: Author, prefix: str, expected: list[str]) -> None:
        for id in ("ab", "ab\U0001f980c", "a", "a\0b", "a\0c", "a%b", "a_b", "%b", "B"):
            make(store, author.create(id))
        assert ids(store.find(Filter(prefix=prefix))) == expected

    def test_find_by_time(self, store: Store, many: list[RunRecord]) -> None:
        third, sixth = many[3].created_at, many[6].created_at
        assert ids(store.find(Filter(created_from=sixth, prefix="run/"))) == ["run/8", "run/7", "run/6"]
        assert ids(store.find(Filter(created_before=third))) == ["run/2", "run/1", "run/0"]
        found = store.find(Filter(created_from=third, created_before=sixth))
        assert ids(found) == ["run/5", "run/4", "run/3"]

    def test_find_by_everything_at_once(self, store: Store, many: list[RunRecord]) -> None:
        one = many[4]
        assert one.workflow is not None
        filter = Filter(
            statuses=(one.status,),
            workflow=one.workflow,
            tags=(("parity", "even"),),
            prefix="run/4",
            created_from=one.created_at,
            created_before=one.created_at + 1,
        )
        assert store.find(filter) == [one]

    def test_find_stops_at_the_limit(self, store: Store, many: list[RunRecord]) -> None:
        assert ids(store.find(Filter(), limit=2)) == ["fork", "run/8"]

    @pytest.mark.parametrize("size", [1, 2, 3, 50])
    def test_pages_have_no_gaps_and_no_repeats(self, store: Store, many: list[RunRecord], size: int) -> None:
        assert self.paged(store, Filter(), size) == ids(store.find(Filter()))

    @pytest.mark.parametrize("size", [1, 2])
    def test_pages_of_a_filter_have_no_gaps_and_no_repeats(
        self, store: Store, many: list[RunRecord], size: int
    ) -> None:
        filter = Filter(tags=(("parity", "even"),))
        assert self.paged(store, filter, size) == ["run/8", "run/6", "run/4", "run/2", "run/0"]

    def test_pages_hold_while_runs_come_and_go(self, store: Store, author: Author, many: list[RunRecord]) -> None:
        first = store.find(Filter(), limit=3)
        make(store, author.create("newer"))
        store.delete(first[-1].uid)
        assert ids(store.find(Filter(), before=first[-1].uid, limit=3)) == ["run/6", "run/5", "run/4"]

    def paged(self, store: Store, filter: Filter, size: int) -> list[str]:
        """All that the filter finds, page by page."""
        found: list[str] = []
        before: str | None = None
        while page := store.find(filter, before=before, limit=size):
            assert len(page) <= size
            found += ids(page)
            before = page[-1].uid
        return found

    # --- rewrap

    def test_rewrap_replaces_the_wrapped_key(self, store: Store, author: Author) -> None:
        made = make(store, author.create("secret", key_id="k1", key_blob=b"\x00one"))
        assert store.rewrap(made.uid, b"\x00one", "k2", b"\xfftwo")
        assert store.journal(made.uid) == replace(made, key_id="k2", key_blob=b"\xfftwo")

    def test_rewrap_does_nothing_if_the_key_was_replaced_since(self, store: Store, author: Author) -> None:
        made = make(store, author.create("secret", key_id="k1", key_blob=b"one"))
        assert store.rewrap(made.uid, b"one", "k2", b"two")
        assert not store.rewrap(made.uid, b"one", "k3", b"three")
        assert store.journal(made.uid) == replace(made, key_id="k2", key_blob=b"two")

    def test_rewrap_does_not_disturb_the_holder(self, store: Store, author: Author) -> None:
        made = make(store, author.create("secret", key_id="k1", key_blob=b"one"))
        held = store.claim(made.uid, "east")
        assert store.rewrap(made.uid, b"one", "k2", b"two")
        put(store, author.append(held, Kind.DONE))

    def test_rewrap_reaches_hidden_runs(self, store: Store, author: Author) -> None:
        made = make(store, author.create("secret", key_id="k1", key_blob=b"one"))
        make(store, author.fork(made, store.read(made.uid, 0, 0)[0], "fork"))
        store.delete(made.uid)
        assert store.rewrap(made.uid, b"one", "k2", b"two")
        record = store.journal(made.uid)
        assert record is not None
        assert (record.key_id, record.hidden) == ("k2", True)

    def test_rewrap_of_a_run_that_never_was_is_false(self, store: Store) -> None:
        assert not store.rewrap("0" * 24, b"one", "k2", b"two")

    # --- adopt

    def whole(self, author: Author, id: str = "adopted", **facts: Any) -> tuple[RunRecord, tuple[Entry, ...]]:
        """A run as a backup has it."""
        write = author.create(id, Kind.CREATED, Kind.SAVED, Kind.REWOUND, **facts)
        last = write.entries[-1]
        end = {"seq": last.seq, "hash": last.hash, "updated_at": last.at, "state": last.state}
        return replace(write.record, **end), write.entries

    def test_adopt_takes_a_run_in_as_it_is(self, store: Store, other: Store, author: Author) -> None:
        record, entries = self.whole(
            author,
            workflow="w",
            tags={"a": "b"},
            key_id="k",
            key_blob=b"\x00",
            status=Status.BLOCKED,
            reason="why",
            epoch=7,
            rewinds=(Rewind(2, 0),),
            queue="q",
            parent="p",
            wake_at=9,
            chapter=1,
            crashes=2,
            crashed_at=0,
        )
        items = [item("second", at=1), item("first", at=2, wakes=False)]
        store.adopt(record, entries, items, ["taken"])
        for handle in (store, other):
            assert snapshot(handle, record.uid) == (record, list(entries), items, ["taken"])
            assert handle.get("adopted") == record

    def test_an_adopted_key_stays_used(self, store: Store, author: Author) -> None:
        record, entries = self.whole(author)
        store.adopt(record, entries, [item("open")], ["taken"])
        assert not store.post(record.uid, item("open"))
        assert not store.post(record.uid, item("taken"))
        assert store.post(record.uid, item("new"))
        assert [found.key for found in store.inbox(record.uid)] == ["open", "new"]

    def test_an_adopted_run_can_go_on(self, store: Store, author: Author) -> None:
        record, entries = self.whole(author, epoch=7)
        store.adopt(record, entries, [], [])
        held = store.claim(record.uid, "east")
        assert held.epoch == 8
        put(store, author.append(held, Kind.DONE))
        assert len(store.read(record.uid, 0, ALL)) == 4

    def test_adopt_of_an_id_that_is_taken_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        record, entries = self.whole(author, "run")
        with pytest.raises(RunExists):
            store.adopt(record, entries, [item("k")], [])
        assert store.get("run") == run
        assert snapshot(store, record.uid) == (None, [], [], [])

    def test_adopt_of_a_uid_that_is_taken_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        before = snapshot(store, run.uid)
        record, entries = self.whole(author, uid=run.uid)
        with pytest.raises(RunExists):
            store.adopt(record, entries, [item("k")], [])
        assert snapshot(store, run.uid) == before
        assert store.get("adopted") is None

    def test_a_hidden_run_is_adopted_beside_a_visible_one_of_its_id(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        record, entries = self.whole(author, "run", hidden=True)
        store.adopt(record, entries, [], [])
        assert store.get("run") == run
        assert store.journal(record.uid) == record

    def test_an_adopted_fork_shares_its_parents_entries(self, store: Store, author: Author, run: RunRecord) -> None:
        first = store.read(run.uid, 0, 0)[0]
        write = author.fork(run, first, "fork")
        last = write.entries[-1]
        fork = replace(write.record, seq=last.seq, hash=last.hash, updated_at=last.at, state=last.state)
        store.adopt(fork, write.entries, [], [])
        assert store.get("fork") == fork
        store.delete(run.uid)
        assert store.read(run.uid, 0, ALL) == [first]
        store.delete(fork.uid)
        assert store.journal(run.uid) is None

    def test_adopt_of_a_fork_without_its_parent_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        write = author.fork(run, store.read(run.uid, 0, 0)[0], "fork")
        store.delete(run.uid)
        with pytest.raises(RunNotFound):
            store.adopt(write.record, write.entries, [], [])
        assert store.get("fork") is None

    # --- ids

    @pytest.mark.parametrize("id", HARD_IDS.values(), ids=HARD_IDS)
    def test_any_id_comes_back_as_it_was(
        self, store: Store, other: Store, place: Path, clock: ManualClock, author: Author, id: str
    ) -> None:
        made = make(store, author.create(id))
        held = store.claim(made.uid, "east")
        store.post(made.uid, item("k"))
        put(store, author.append(held, Kind.DONE, took=("k",)))
        assert (held.id, other.get(id)) == (id, store.journal(made.uid))
        again = self.open_store(place, clock)
        assert ids(again.find(Filter())) == [id]
        assert again.get(id) == store.get(id)
        again.close()

    @pytest.mark.parametrize("id", HARD_IDS.values(), ids=HARD_IDS)
    def test_any_id_can_be_forked_and_deleted(self, store: Store, author: Author, run: RunRecord, id: str) -> None:
        made = make(store, author.create(id))
        fork = make(store, author.fork(made, store.read(made.uid, 0, 0)[0], f"{id[:500]}'s"))
        assert fork.lineage[0].id == id
        assert store.delete(made.uid)
        again = make(store, author.create(id))
        assert store.delete(again.uid)
        assert store.delete(fork.uid)
        assert ids(store.find(Filter(hidden=None))) == ["run"]

    def test_two_different_ids_never_meet(self, store: Store, author: Author) -> None:
        made = {id: make(store, author.create(id, tags={"its": repr(id)})) for id in HARD_IDS.values()}
        assert len({record.uid for record in made.values()}) == len(HARD_IDS)
        for n, record in enumerate(made.values()):
            put(store, author.append(store.claim(record.uid, "east"), Kind.DONE, payload=str(n).encode()))
            assert not store.delete(record.uid, expected=record)
        for n, (id, record) in enumerate(made.items()):
            found = store.get(id)
            assert found is not None
            assert (found.uid, found.id, found.tags) == (record.uid, id, {"its": repr(id)})
            assert store.read(record.uid, 1, 1)[0].payload == str(n).encode()
        assert ids(store.find(Filter(), limit=100)) == list(reversed(made))

    def test_no_id_leaves_the_place(self, store: Store, place: Path, author: Author) -> None:
        def around() -> list[str]:
            found = place.parent.parent.rglob("*") if place.is_dir() else []
            return sorted(str(path) for path in found if place != path and place not in path.parents)

        before = around()
        made = [make(store, author.create(id)) for id in HARD_IDS.values()]
        for record in made:
            store.post(record.uid, item("../" * 12 + "tmp/escaped"))
        assert around() == before
        for record in made:
            store.delete(record.uid)
        assert around() == before

    # --- closing

    def test_close_may_be_repeated(self, store: Store) -> None:
        store.close()
        store.close()

    def test_drop_may_be_repeated_and_follow_close(self, store: Store) -> None:
        store.close()
        store.drop()
        store.drop()
        store.close()

    def test_a_closed_handle_does_not_close_the_others(
        self, store: Store, other: Store, author: Author, run: RunRecord
    ) -> None:
        other.close()
        assert store.get("run") == run
        make(store, author.create("still open"))

    @pytest.mark.parametrize("way", ["close", "drop"])
    @pytest.mark.parametrize(
        "use",
        USES,
    )
    def test_a_closed_handle_refuses_everything(
        self, store: Store, author: Author, held: RunRecord, way: str, use: str
    ) -> None:
        getattr(store, way)()
        with pytest.raises(StoreUnusable):
            self.use(store, author, held, use)

    def use(self, store: Store, author: Author, held: RunRecord, use: str) -> None:
        """Call one method of the store."""
        record, entries = self.whole(author)
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: store.get("run"),
            "journal": lambda: store.journal(held.uid),
            "find": lambda: store.find(Filter()),
            "read": lambda: store.read(held.uid, 0, ALL),
            "inbox": lambda: store.inbox(held.uid),
            "taken": lambda: store.taken(held.uid),
            "orphans": lambda: store.orphans(),
            "due": lambda: store.due(["q"], ["w"]),
            "next_wake": lambda: store.next_wake(),
            "version": lambda: store.version(),
            "take": lambda: store.take(order("q")),
            "backlog": lambda: store.backlog(),
            "document": lambda: store.document("k", "n"),
            "documents": lambda: store.documents("k"),
            "put_document": lambda: store.put_document("k", "n", b"1", None),
            "create": lambda: store.apply([author.create("new")]),
            "append": lambda: store.apply([author.append(held, Kind.DONE)]),
            "claim": lambda: store.claim(held.uid, "west"),
            "post": lambda: store.post(held.uid, item("k")),
            "enlist": lambda: store.enlist("south", LEASE),
            "beat": lambda: store.beat("east", LEASE),
            "delete": lambda: store.delete(held.uid),
            "sweep": lambda: store.sweep([held]),
            "rewrap": lambda: store.rewrap(held.uid, b"", "k", b""),
            "adopt": lambda: store.adopt(record, entries, [], []),
            "settle": lambda: store.settle(held.uid, here=True),
        }
        calls[use]()

    # --- many at once

    def test_writers_of_different_runs_do_not_disturb_each_other(
        self, store: Store, other: Store, author: Author
    ) -> None:
        failed: list[BaseException] = []

        def write(handle: Store, held: RunRecord) -> None:
            try:
                for _ in range(10):
                    append = author.append(held, Kind.DONE)
                    put(handle, append)
                    held = after(held, append)
                    handle.post(held.uid, item(f"k{held.seq}"))
            except BaseException as error:  # it is raised by whoever joins the threads
                failed.append(error)

        handles = {"east": store, "west": store, "north": other}
        held = {worker: handles[worker].claim(make(store, author.create(worker)).uid, worker) for worker in handles}
        threads = [threading.Thread(target=write, args=(handles[worker], held[worker])) for worker in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        for record in held.values():
            assert [entry.seq for entry in store.read(record.uid, 0, ALL)] == list(range(11))
            assert [found.key for found in store.inbox(record.uid)] == [f"k{n}" for n in range(1, 11)]

    def test_a_key_that_many_post_at_once_is_used_once(self, store: Store, other: Store, run: RunRecord) -> None:
        accepted: list[bool] = []
        start = threading.Barrier(4)

        def post(handle: Store, n: int) -> None:
            start.wait()
            accepted.append(handle.post(run.uid, item("k", payload=str(n).encode())))

        threads = [threading.Thread(target=post, args=((store, other)[n % 2], n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(accepted) == [False, False, False, True]
        assert len(store.inbox(run.uid)) == 1


class ProcessStoreContract(StoreContract):
    """The promises of a store whose handle is bound to its process: about `os.fork`."""

    @pytest.mark.parametrize(
        "use",
        USES,
    )
    def test_a_handle_refuses_everything_in_a_forked_child(
        self, store: Store, author: Author, held: RunRecord, use: str
    ) -> None:
        before = snapshot(store, held.uid)

        def child() -> None:
            with pytest.raises(StoreUnusable):
                self.use(store, author, held, use)

        assert in_child(child) == 0
        assert snapshot(store, held.uid) == before

    def test_a_forked_child_that_closes_the_handle_leaves_its_parent_alone(
        self, store: Store, other: Store, author: Author, held: RunRecord
    ) -> None:
        assert in_child(store.close) == 0
        with pytest.raises(Claimed):
            other.claim(held.uid, "north")
        put(store, author.append(held, Kind.DONE))
        assert [entry.seq for entry in other.read(held.uid, 0, ALL)] == [0, 1]


class FileStoreContract(ProcessStoreContract):
    """The promises of a store that keeps files: also about processes that are killed."""

    def test_what_a_killed_process_held_may_be_claimed_at_once(
        self, store: Store, other: Store, run: RunRecord
    ) -> None:
        held = other.claim(run.uid, "north")
        other.drop()
        assert store.orphans() == [held]
        assert store.claim(run.uid, "east").epoch == held.epoch + 1

    def test_a_forked_child_may_open_the_store_again(
        self, store: Store, place: Path, clock: ManualClock, author: Author, run: RunRecord
    ) -> None:
        def child() -> None:
            again = self.open_store(place, clock)
            again.enlist("south", LEASE)
            held = again.claim(run.uid, "south")
            put(again, author.append(held, Kind.DONE))
            os._exit(0)  # as if it was killed: nothing is given up

        assert in_child(child) == 0
        assert len(store.read(run.uid, 0, ALL)) == 2
        assert store.claim(run.uid, "east").epoch == run.epoch + 2


def in_child(act: Callable[[], object]) -> int:
    """Call something in a forked child; its exit status, 0 if it returned."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
