"""What every store promises about what is created and appended: fences, the chain, batches, and what a write changes.

A part of `holdfast.testing.contract.StoreContract`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.errors import Claimed, LeaseLost, RunExists
from holdfast.kernel.model import Change, Kind, Post, Rewind, RunRecord, Status
from holdfast.stores.protocol import Store, write_one
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract_author import (
    ALL,
    LEASE,
    Author,
    Opening,
    after,
    delete,
    item,
    keys_taken,
    make,
    put,
    refused,
    snapshot,
)


class WritingContract(Opening):
    """The promises about what is created and appended: fences, the chain, batches, and what a write changes."""

    # --- create

    def test_create_gives_the_record_that_now_exists(self, store: Store, author: Author) -> None:
        write = author.create("new", workflow="w", tags={"a": "b"}, key_id="k", key_blob=b"\x00\xff")
        made = make(store, write)
        last = write.entries[-1]
        assert made == replace(write.record, seq=0, hash=last.hash, updated_at=last.at)

    def test_a_created_run_is_found_by_id_and_by_uid(self, store: Store, author: Author) -> None:
        made = make(store, author.create("new", workflow="w", tags={"a": "b"}, key_id="k", key_blob=b"\x00\xff"))
        assert store.get("new") == made
        assert store.get(uid=made.uid) == made

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
        assert store.get(uid=second.record.uid) is None

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
        assert store.get(uid="nowhere") is None
        assert store.read("nowhere", 0, ALL) == []
        assert store.inbox("nowhere") == []
        assert keys_taken(store, "nowhere") == []

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
        assert store.get(uid=held.uid) == after(held, write)

    def test_append_of_a_state_makes_it_the_current_one(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, Kind.SAVED))
        record = store.get(uid=held.uid)
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
        assert store.get(uid=run.uid) == replace(free, worker=None)

    def test_append_without_a_worker_is_fenced_too(self, store: Store, author: Author, run: RunRecord) -> None:
        free = replace(run, worker="")
        held = store.claim(run.uid, "east")
        refused(store, author.append(free, Kind.DONE))
        refused(store, author.append(replace(free, epoch=held.epoch), Kind.DONE))
        refused(store, author.append(replace(free, epoch=held.epoch), change=Change(status=Status.COMPLETED)))
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        refused(store, author.append(free, Kind.DONE))
        put(store, author.append(replace(free, epoch=held.epoch), Kind.DONE, change=Change(chapter=1)))
        record = store.get(uid=run.uid)
        assert record is not None
        assert (record.seq, record.chapter, record.worker) == (1, 1, None)

    def test_append_without_a_worker_to_a_deleted_run_is_refused(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        fork = make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        assert delete(store, run.uid)
        refused(store, author.append(replace(run, worker=""), Kind.DONE))
        refused(store, author.append(replace(run, worker=""), Kind.DONE, change=Change(chapter=1)))
        assert delete(store, fork.uid)
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
        store.beat("east", 0)
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
        assert delete(store, held.uid)
        refused(store, author.append(held, Kind.DONE))

    def test_append_to_a_hidden_run_is_refused(
        self, store: Store, author: Author, clock: ManualClock, held: RunRecord
    ) -> None:
        make(store, author.fork(held, store.read(held.uid, 0, 0)[0], "fork"))
        clock.advance(LEASE + 1)
        assert delete(store, held.uid)
        refused(store, author.append(held, Kind.DONE))

    def test_append_to_a_run_that_never_was_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        refused(store, author.append(replace(held, uid="0" * 24), Kind.DONE))

    def test_a_change_without_entries_is_fenced_too(self, store: Store, author: Author, held: RunRecord) -> None:
        change = Change(status=Status.COMPLETED, release=True)
        refused(store, author.append(replace(held, epoch=held.epoch - 1), change=change))
        refused(store, author.append(replace(held, worker="west"), change=change))

    def test_taking_and_redacting_are_fenced_too(self, store: Store, author: Author, held: RunRecord) -> None:
        write_one(store, Post(held.uid, item("k")))
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
        write_one(store, Post(held.uid, item("k")))
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
        store.beat("east", 0)
        delete(store, old.uid)
        store.beat("east", LEASE)
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
        assert store.get(uid=held.uid) == held

    def test_what_follows_a_refused_write_of_a_run_is_refused(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        ahead = replace(held, seq=held.seq + 1)
        first = author.append(ahead, Kind.DONE)
        outcomes = store.apply([first, author.append(after(ahead, first), Kind.DONE)])
        assert [type(outcome) for outcome in outcomes] == [LeaseLost] * 2
        assert store.get(uid=held.uid) == held

    def test_what_follows_a_release_in_a_batch_is_refused(self, store: Store, author: Author, held: RunRecord) -> None:
        first = author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True))
        outcomes = store.apply([first, author.append(after(held, first), Kind.DONE)])
        assert outcomes[0] is None
        assert type(outcomes[1]) is LeaseLost
        assert len(store.read(held.uid, 0, ALL)) == 2

    # --- how a write changes the record

    def test_a_change_begins_a_chapter(self, store: Store, other: Store, author: Author, held: RunRecord) -> None:
        write = author.append(held, Kind.CONTINUED, change=Change(chapter=1))
        put(store, write)
        assert store.get(uid=held.uid) == other.get("run") == replace(after(held, write), chapter=1)
        put(store, author.append(after(held, write), Kind.DONE, change=Change(status=Status.RUNNING)))
        record = store.get(uid=held.uid)
        assert record is not None
        assert record.chapter == 1

    def test_a_write_without_a_change_leaves_the_status(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, Kind.DONE))
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.status, record.worker, record.epoch) == (Status.RUNNING, "east", held.epoch)

    def test_a_change_sets_status_reason_and_wake_time(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.BLOCKED, reason="why", wake_at=5)))
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.status, record.reason, record.wake_at, record.worker) == (Status.BLOCKED, "why", 5, "east")

    def test_the_next_status_clears_reason_and_wake_time(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, change=Change(status=Status.BLOCKED, reason="why", wake_at=5)))
        put(store, author.append(held, change=Change(status=Status.READY)))
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.reason, record.wake_at) == (None, None)

    def test_a_release_gives_up_the_holder(self, store: Store, author: Author, held: RunRecord) -> None:
        put(store, author.append(held, change=Change(status=Status.WAITING, release=True, wake_at=9)))
        expected = replace(held, status=Status.WAITING, worker=None, wake_at=9)
        assert store.get(uid=held.uid) == expected

    def test_a_rollback_is_remembered_until_it_is_rewound(self, store: Store, author: Author, held: RunRecord) -> None:
        begun = author.append(held, Kind.ROLLBACK_BEGUN, change=Change(rollback=1))
        put(store, begun)
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.rollback, record.rewinds) == (1, ())
        rewound = author.append(after(held, begun), Kind.REWOUND, change=Change(rewind=Rewind(2, 0)))
        put(store, rewound)
        record = store.get(uid=held.uid)
        assert record is not None
        assert (record.rollback, record.rewinds, record.generation) == (None, (Rewind(2, 0),), 1)

    def test_rewinds_add_up(self, store: Store, author: Author, held: RunRecord) -> None:
        for n in (1, 2, 3):
            write = author.append(held, Kind.REWOUND, change=Change(rewind=Rewind(n, 0)))
            put(store, write)
            held = after(held, write)
        record = store.get(uid=held.uid)
        assert record is not None
        assert record.rewinds == (Rewind(1, 0), Rewind(2, 0), Rewind(3, 0))
