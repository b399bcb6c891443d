"""What every store promises about who may hold a run: claims, workers, and what the dead leave.

A part of `holdfast.testing.contract.StoreContract`.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import Claimed, HoldfastError, RunBlocked, RunEnded, RunNotFound
from holdfast.kernel.model import Change, Filter, Kind, RunRecord, Status
from holdfast.kernel.rules import ANY, SUSPECT
from holdfast.stores.protocol import Store
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract_author import ALL, LEASE, Author, Opening, after, delete, ids, make, put, refused


class HoldingContract(Opening):
    """The promises about who may hold a run: claims, workers, and what the dead leave."""

    # --- claims

    def test_claim_gives_the_run_to_the_worker(self, store: Store, run: RunRecord) -> None:
        held = store.claim(run.uid, "east")
        assert held == replace(run, status=Status.RUNNING, epoch=run.epoch + 1, worker="east")
        assert store.get("run") == held

    def test_claim_of_a_live_holders_run_is_refused(self, store: Store, held: RunRecord) -> None:
        with pytest.raises(Claimed):
            store.claim(held.uid, "west")
        assert store.get(uid=held.uid) == held

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

    @pytest.mark.parametrize("seconds", [86_400, -86_400], ids=["forward", "back"])
    def test_a_clock_that_is_set_ends_no_lease_and_keeps_none(
        self, store: Store, other: Store, clock: ManualClock, held: RunRecord, seconds: int
    ) -> None:
        clock.set_ahead(seconds)
        if store.networked:  # there is one clock for all, the server's, and this one is in its place
            assert ids(other.find(Filter(orphaned=True))) == (["run"] if seconds > 0 else [])
            clock.set_ahead(-seconds)
        for handle in (store, other):
            with pytest.raises(Claimed):
                handle.claim(held.uid, "west")
            assert handle.find(Filter(orphaned=True)) == []
        clock.advance(LEASE)
        assert [record.uid for record in other.find(Filter(orphaned=True))] == [held.uid]
        store.beat("west", LEASE)
        assert store.claim(held.uid, "west").epoch == held.epoch + 1

    def test_a_lease_of_another_boot_is_over(
        self, store: Store, other: Store, clock: ManualClock, held: RunRecord
    ) -> None:
        clock.reboot()
        if store.networked:  # it is not the server that was booted
            with pytest.raises(Claimed):
                other.claim(held.uid, "west")
            clock.advance(LEASE)
        assert [record.uid for record in other.find(Filter(orphaned=True))] == [held.uid]
        store.beat("west", LEASE)
        assert store.claim(held.uid, "west").epoch == held.epoch + 1

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
        handle, worker = {"store": (store, "west"), "other": (other, "north")}[by]
        handle.beat(worker, LEASE)
        taken = handle.claim(busy.uid, worker)
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
        store.beat("east", 0)
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
        record = store.get(uid=run.uid)
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
        before = store.get(uid=held.uid)
        with pytest.raises(RunEnded):
            store.claim(held.uid, "west")
        assert store.get(uid=held.uid) == before

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
        store.beat("west", 60)
        store.claim(held.uid, "west", ANY)
        store.beat("west", 0)
        with pytest.raises(RunBlocked, match="see line 7"):
            store.claim(held.uid, "north")

    def test_claim_of_a_run_that_never_was_is_refused(self, store: Store) -> None:
        with pytest.raises(RunNotFound):
            store.claim("0" * 24, "east")

    def test_claim_of_a_deleted_run_is_refused(self, store: Store, run: RunRecord) -> None:
        delete(store, run.uid)
        with pytest.raises(RunNotFound):
            store.claim(run.uid, "east", ANY)

    def test_claim_of_a_hidden_run_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        delete(store, run.uid)
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
            assert store.get(uid=made.uid) == won[0]

    # --- holders that died

    def test_a_first_claim_counts_no_crash(self, held: RunRecord) -> None:
        assert (held.crashes, held.crashed_at) == (0, -1)

    def test_holders_that_die_without_writing_are_counted(self, store: Store, other: Store, held: RunRecord) -> None:
        """Up to some number, whatever they did beside it; from then on only tries that the run is given alone."""
        for alone, count in [(False, 1), (False, SUSPECT), (False, SUSPECT), (True, 3), (False, 3), (True, 4)]:
            worker = "west" if held.worker == "east" else "east"
            assert held.worker is not None
            store.beat(held.worker, 0)
            store.beat(worker, LEASE)
            held = store.claim(held.uid, worker, alone=alone)
            assert (held.crashes, held.crashed_at) == (count, 0)
            assert other.get(uid=held.uid) == held

    def test_what_is_no_progress_leaves_a_run_at_the_same_place(
        self, store: Store, other: Store, author: Author, held: RunRecord
    ) -> None:
        for n, worker in enumerate(["west", "east"], 1):
            assert held.worker is not None
            store.beat(held.worker, 0)
            store.beat(worker, LEASE)
            held = store.claim(held.uid, worker)
            assert (held.crashes, held.crashed_at) == (n, n - 1)
            put(store, author.append(held, Kind.INTENDED, change=Change(stays=True)))
            after = store.get(uid=held.uid)
            assert after == other.get(uid=held.uid)
            assert after is not None
            assert (after.crashes, after.crashed_at, after.seq, after.status) == (n, n, n, Status.RUNNING)
            held = after

    def test_a_holder_that_wrote_before_it_died_begins_the_count_anew(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        store.beat("east", 0)
        held = store.claim(held.uid, "west")
        put(store, author.append(held, Kind.DONE))
        store.beat("west", 0)
        store.beat("east", LEASE)
        held = store.claim(held.uid, "east")
        assert (held.crashes, held.crashed_at) == (1, 1)

    def test_a_release_after_progress_ends_the_count(self, store: Store, author: Author, held: RunRecord) -> None:
        """A release without a new entry does not: the run may be what kills its holders, whoever tries it next."""
        store.beat("east", 0)
        held = store.claim(held.uid, "west")
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        held = store.claim(held.uid, "west")
        assert held.crashes == 1
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
        assert store.claim(held.uid, "west").crashes == 0

    # --- workers and orphans

    def test_a_held_run_is_no_orphan_while_its_worker_lives(
        self, store: Store, other: Store, run: RunRecord, held: RunRecord
    ) -> None:
        assert store.find(Filter(orphaned=True)) == []
        assert other.find(Filter(orphaned=True)) == []

    def test_a_run_whose_lease_is_over_is_an_orphan(
        self, store: Store, other: Store, clock: ManualClock, held: RunRecord
    ) -> None:
        clock.advance(LEASE)
        assert store.find(Filter(orphaned=True)) == [held]
        assert other.find(Filter(orphaned=True)) == [held]

    def test_a_run_of_a_retired_worker_is_an_orphan(self, store: Store, held: RunRecord) -> None:
        store.beat("east", 0)
        assert store.find(Filter(orphaned=True)) == [held]

    def test_a_run_that_nobody_holds_is_no_orphan(self, store: Store, clock: ManualClock, run: RunRecord) -> None:
        clock.advance(LEASE * 2)
        assert store.find(Filter(orphaned=True)) == []

    def test_a_released_run_is_no_orphan(
        self, store: Store, author: Author, clock: ManualClock, held: RunRecord
    ) -> None:
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
        clock.advance(LEASE * 2)
        assert store.find(Filter(orphaned=True)) == []

    def test_an_orphan_that_is_claimed_is_none_any_more(self, store: Store, held: RunRecord) -> None:
        store.beat("east", 0)
        store.claim(held.uid, "west")
        assert store.find(Filter(orphaned=True)) == []

    def test_orphans_of_several_workers_are_listed_up_to_the_limit(
        self, store: Store, author: Author, clock: ManualClock
    ) -> None:
        for n in range(6):
            store.claim(make(store, author.create(f"o{n}")).uid, ("east", "west")[n % 2])
        clock.advance(LEASE)
        assert sorted(ids(store.find(Filter(orphaned=True)))) == [f"o{n}" for n in range(6)]
        assert len(store.find(Filter(orphaned=True), limit=4)) == 4
        assert len(store.find(Filter(orphaned=True), limit=1)) == 1

    def test_a_worker_may_be_retired_repeatedly(self, store: Store) -> None:
        store.beat("east", 0)
        store.beat("east", 0)
        store.beat("nobody", 0)

    def test_a_retired_worker_may_enlist_again(self, store: Store, run: RunRecord) -> None:
        store.beat("east", 0)
        store.beat("east", LEASE)
        store.claim(run.uid, "east")
        with pytest.raises(Claimed):
            store.claim(run.uid, "west")

    def test_closing_retires_the_workers_of_that_handle_alone(self, store: Store, other: Store, author: Author) -> None:
        ours, theirs = make(store, author.create("ours")), make(store, author.create("theirs"))
        store.claim(ours.uid, "east")
        other.claim(theirs.uid, "north")
        other.close()
        assert ids(store.find(Filter(orphaned=True))) == ["theirs"]
        with pytest.raises(Claimed):
            store.claim(ours.uid, "west")
        assert store.claim(theirs.uid, "west").worker == "west"
