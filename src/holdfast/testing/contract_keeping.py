"""What every store promises about what is kept: reading, erasing, deleting, new keys, and whole runs from elsewhere.

A part of `holdfast.testing.contract.StoreContract`.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from holdfast.errors import Claimed, RunExists, RunNotFound
from holdfast.kernel.model import Adopt, Change, Entry, Filter, Kind, Post, Rewind, Rewrap, RunRecord, Status
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


class KeepingContract(Opening):
    """The promises about what is kept: reading, erasing, deleting, new keys, and whole runs from elsewhere."""

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
        parent = store.get(uid=held.uid)
        assert parent is not None
        write = author.fork(parent, long[4], "fork")
        fork = make(store, write)
        assert store.read(fork.uid, 0, ALL) == list(write.entries)
        assert store.read(fork.uid, 0, 4) == []
        assert (fork.seq, fork.base, fork.state) == (5, 5, 3)

    def test_a_fork_goes_on_after_its_fork_point(
        self, store: Store, author: Author, held: RunRecord, long: list[Entry]
    ) -> None:
        parent = store.get(uid=held.uid)
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
        current = store.get(uid=held.uid)
        assert current is not None
        write = author.append(current, Kind.REDACTED, redact=((2, b"\x00gone"), (5, b"gone too")))
        put(store, write)
        expected = [*long, *write.entries]
        expected[2] = replace(long[2], payload=b"\x00gone")
        expected[5] = replace(long[5], payload=b"gone too")
        assert store.read(held.uid, 0, ALL) == expected
        assert other.read(held.uid, 0, ALL) == expected

    def test_redact_without_an_entry(self, store: Store, author: Author, held: RunRecord, long: list[Entry]) -> None:
        current = store.get(uid=held.uid)
        assert current is not None
        put(store, author.append(current, redact=((9, b"gone"),)))
        assert store.read(held.uid, 9, 9) == [replace(long[9], payload=b"gone")]
        assert store.get(uid=held.uid) == current

    def test_a_redacted_run_can_be_written_to(
        self, store: Store, author: Author, held: RunRecord, long: list[Entry]
    ) -> None:
        current = store.get(uid=held.uid)
        assert current is not None
        write = author.append(current, Kind.REDACTED, redact=((1, b"gone"),))
        put(store, write)
        put(store, author.append(after(current, write), Kind.DONE))
        assert [entry.seq for entry in store.read(held.uid, 0, ALL)] == list(range(12))

    # --- delete

    def test_delete_removes_everything(self, store: Store, other: Store, author: Author, run: RunRecord) -> None:
        write_one(store, Post(run.uid, item("k")))
        assert delete(store, run.uid)
        for handle in (store, other):
            assert handle.get("run") is None
            assert snapshot(handle, run.uid) == (None, [], [], [])
            assert handle.find(Filter(hidden=None)) == []

    def test_delete_may_be_repeated(self, store: Store, other: Store, run: RunRecord) -> None:
        assert delete(store, run.uid)
        assert not delete(store, run.uid)
        assert not delete(other, run.uid)

    def test_delete_of_a_run_that_never_was_is_false(self, store: Store) -> None:
        assert not delete(store, "0" * 24)

    def test_delete_of_a_live_holders_run_is_refused(self, store: Store, other: Store, held: RunRecord) -> None:
        for handle in (store, other):
            with pytest.raises(Claimed):
                delete(handle, held.uid)
        assert store.get("run") == held

    def test_a_run_whose_lease_is_over_may_be_deleted(self, store: Store, clock: ManualClock, held: RunRecord) -> None:
        clock.advance(LEASE)
        assert delete(store, held.uid)
        assert store.find(Filter(orphaned=True)) == []

    def test_the_id_of_a_deleted_run_is_free(self, store: Store, author: Author, run: RunRecord) -> None:
        write_one(store, Post(run.uid, item("k")))
        delete(store, run.uid)
        again = make(store, author.create("run"))
        assert again.uid != run.uid
        assert store.get("run") == again
        assert store.inbox(again.uid) == []
        assert write_one(store, Post(again.uid, item("k")))

    def test_the_id_of_a_hidden_run_is_free(self, store: Store, author: Author, run: RunRecord) -> None:
        first = store.read(run.uid, 0, 0)[0]
        make(store, author.fork(run, first, "fork"))
        delete(store, run.uid)
        again = make(store, author.create("run"))
        assert store.get("run") == again
        assert store.read(run.uid, 0, ALL) == [first]

    def test_delete_does_nothing_if_the_run_was_written_to_since(
        self, store: Store, author: Author, held: RunRecord
    ) -> None:
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
        before = store.get(uid=held.uid)
        assert not delete(store, held)
        assert store.get(uid=held.uid) == before

    def test_delete_does_nothing_if_the_run_was_claimed_since(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        held = store.claim(run.uid, "east")
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        assert not delete(store, run)
        assert store.get("run") is not None

    def test_delete_does_nothing_if_the_run_is_held_since(self, store: Store, run: RunRecord) -> None:
        held = store.claim(run.uid, "east")
        assert not delete(store, run)
        assert store.get("run") == held

    def test_delete_removes_the_run_as_expected(self, store: Store, run: RunRecord) -> None:
        assert delete(store, run)
        assert store.get(uid=run.uid) is None

    def test_a_run_with_forks_is_hidden(self, store: Store, author: Author, run: RunRecord) -> None:
        entries = store.read(run.uid, 0, ALL)
        make(store, author.fork(run, entries[0], "fork"))
        assert delete(store, run.uid)
        assert store.get("run") is None
        assert store.get(uid=run.uid) == replace(run, hidden=True)
        assert store.read(run.uid, 0, ALL) == entries
        assert not delete(store, run.uid)

    def test_a_hidden_run_goes_with_its_last_fork(self, store: Store, author: Author, run: RunRecord) -> None:
        first = store.read(run.uid, 0, 0)[0]
        left, right = (make(store, author.fork(run, first, name)) for name in ("left", "right"))
        delete(store, run.uid)
        delete(store, left.uid)
        assert store.read(run.uid, 0, ALL) == [first]
        delete(store, right.uid)
        assert store.get(uid=run.uid) is None
        assert store.read(run.uid, 0, ALL) == []
        assert store.find(Filter(hidden=None)) == []

    def test_deleting_a_fork_leaves_its_parent(self, store: Store, author: Author, run: RunRecord) -> None:
        before = snapshot(store, run.uid)
        fork = make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        assert delete(store, fork.uid)
        assert store.get(uid=fork.uid) is None
        assert snapshot(store, run.uid) == before

    def test_a_parent_is_deleted_at_once_when_its_forks_are_gone(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        fork = make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "fork"))
        delete(store, fork.uid)
        delete(store, run.uid)
        assert store.get(uid=run.uid) is None

    def test_a_chain_of_forks_keeps_all_that_it_shares(self, store: Store, author: Author, run: RunRecord) -> None:
        chain = self.chain(store, author, run, 4)
        for record in chain[:-1]:
            assert delete(store, record.uid)
        assert ids(store.find(Filter())) == [chain[-1].id]
        assert [store.read(record.uid, 0, ALL)[0].seq for record in chain] == [0, 1, 2, 3]
        assert delete(store, chain[-1].uid)
        assert [store.get(uid=record.uid) for record in chain] == [None] * 4

    def test_the_middle_of_a_chain_of_forks_goes_with_its_end(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        chain = self.chain(store, author, run, 3)
        delete(store, chain[1].uid)
        assert store.get(uid=chain[1].uid) is not None
        delete(store, chain[2].uid)
        assert store.get(uid=chain[1].uid) is None
        assert store.get("run") == chain[0]

    def test_a_hidden_run_can_be_forked_through_its_fork(self, store: Store, author: Author, run: RunRecord) -> None:
        chain = self.chain(store, author, run, 2)
        delete(store, run.uid)
        first = store.read(run.uid, 0, 0)[0]
        second = make(store, author.fork(chain[1], first, "second"))
        assert [link.uid for link in second.lineage] == [run.uid]
        delete(store, chain[1].uid)
        assert store.read(run.uid, 0, ALL) == [first]

    def test_many_are_deleted_with_all_that_is_theirs(self, store: Store, author: Author, run: RunRecord) -> None:
        others = [make(store, author.create(f"other {n}", tags={"of": str(n)})) for n in range(5)]
        write_one(store, Post(others[0].uid, item("k")))
        assert store.delete([store.get(one.id) or one for one in others[:4]]) == [True] * 4
        assert sorted(ids(store.find(Filter()))) == ["other 4", "run"]
        assert store.find(Filter(tags=(("of", "0"),))) == []
        assert store.inbox(others[0].uid) == []
        assert keys_taken(store, others[0].uid) == []
        assert store.read(others[0].uid, 0, ALL) == []
        again = make(store, author.create("other 0"))
        assert store.get("other 0") == again
        assert store.delete(others[:4]) == [False] * 4
        assert store.delete([]) == []

    def test_of_many_those_stay_that_are_held_or_have_changed(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        changed, claimed, gone = (make(store, author.create(name)) for name in ("changed", "claimed", "gone"))
        held = store.claim(changed.uid, "east")
        put(store, author.append(held, Kind.DONE, change=Change(status=Status.READY, release=True)))
        store.claim(claimed.uid, "east")
        delete(store, gone.uid)
        seen = [run, changed, claimed, gone, replace(store.get("changed") or changed, status=Status.COMPLETED)]
        *outcomes, refused = store.delete([*seen, store.get("claimed") or claimed])
        assert (outcomes, type(refused)) == ([True, False, False, False, False], Claimed)
        assert sorted(ids(store.find(Filter()))) == ["changed", "claimed"]

    def test_what_forks_share_is_hidden_among_many(self, store: Store, author: Author, run: RunRecord) -> None:
        entries = store.read(run.uid, 0, ALL)
        fork = make(store, author.fork(run, entries[0], "fork"))
        other = make(store, author.create("other"))
        assert store.delete([run, other]) == [True, True]
        assert ids(store.find(Filter())) == ["fork"]
        assert store.read(run.uid, 0, ALL) == entries
        assert store.get("fork") == fork

    def test_the_forks_of_a_run_are_filtered_and_paged_as_any_runs(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        [first] = store.read(run.uid, 0, ALL)
        forks = [make(store, author.fork(run, first, f"fork {n}")) for n in range(3)]
        make(store, author.create("fork 9"))
        store.claim(forks[1].uid, "east")
        assert ids(store.find(Filter(shares=run.uid), limit=2)) == ["fork 2", "fork 1"]
        assert ids(store.find(Filter(shares=run.uid), before=forks[1].uid)) == ["fork 0"]
        assert ids(store.find(Filter(shares=run.uid, statuses=(Status.RUNNING,)))) == ["fork 1"]
        assert ids(store.find(Filter(shares=run.uid, prefix="fork 2"))) == ["fork 2"]
        store.beat("east", 0)
        assert ids(store.find(Filter(shares=run.uid, orphaned=True, statuses=(Status.RUNNING, Status.READY)))) == [
            "fork 1"
        ]
        assert store.find(Filter(orphaned=True, statuses=(Status.READY,))) == []

    def test_the_forks_of_a_run_and_theirs(self, store: Store, author: Author, run: RunRecord) -> None:
        assert store.find(Filter(shares=run.uid)) == []
        first = make(store, author.fork(run, store.read(run.uid, 0, 0)[0], "first"))
        second = make(store, author.fork(first, store.read(first.uid, 1, 1)[0], "second"))
        make(store, author.create("another"))
        assert [one.id for one in store.find(Filter(shares=run.uid))] == ["second", "first"]
        assert [one.id for one in store.find(Filter(shares=run.uid), limit=1)] == ["second"]
        assert [one.id for one in store.find(Filter(shares=first.uid))] == ["second"]
        delete(store, second.uid)
        assert [one.id for one in store.find(Filter(shares=run.uid))] == ["first"]

    def test_a_fork_of_a_deleted_run_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        late = author.fork(run, store.read(run.uid, 0, 0)[0], "late")
        delete(store, run.uid)
        refused(store, late, RunNotFound)
        assert store.get("late") is None

    def chain(self, store: Store, author: Author, run: RunRecord, length: int) -> list[RunRecord]:
        """Runs of which each is a fork of the one before, at its end."""
        made = [run]
        for n in range(1, length):
            parent = made[-1]
            made.append(make(store, author.fork(parent, store.read(parent.uid, n - 1, n - 1)[0], f"fork {n}")))
        return made

    # --- rewrap

    def test_rewrap_replaces_the_wrapped_key(self, store: Store, author: Author) -> None:
        made = make(store, author.create("secret", key_id="k1", key_blob=b"\x00one"))
        assert write_one(store, Rewrap(made.uid, b"\x00one", "k2", b"\xfftwo"))
        assert store.get(uid=made.uid) == replace(made, key_id="k2", key_blob=b"\xfftwo")

    def test_rewrap_does_nothing_if_the_key_was_replaced_since(self, store: Store, author: Author) -> None:
        made = make(store, author.create("secret", key_id="k1", key_blob=b"one"))
        assert write_one(store, Rewrap(made.uid, b"one", "k2", b"two"))
        assert not write_one(store, Rewrap(made.uid, b"one", "k3", b"three"))
        assert store.get(uid=made.uid) == replace(made, key_id="k2", key_blob=b"two")

    def test_rewrap_does_not_disturb_the_holder(self, store: Store, author: Author) -> None:
        made = make(store, author.create("secret", key_id="k1", key_blob=b"one"))
        held = store.claim(made.uid, "east")
        assert write_one(store, Rewrap(made.uid, b"one", "k2", b"two"))
        put(store, author.append(held, Kind.DONE))

    def test_rewrap_reaches_hidden_runs(self, store: Store, author: Author) -> None:
        made = make(store, author.create("secret", key_id="k1", key_blob=b"one"))
        make(store, author.fork(made, store.read(made.uid, 0, 0)[0], "fork"))
        delete(store, made.uid)
        assert write_one(store, Rewrap(made.uid, b"one", "k2", b"two"))
        record = store.get(uid=made.uid)
        assert record is not None
        assert (record.key_id, record.hidden) == ("k2", True)

    def test_rewrap_of_a_run_that_never_was_is_false(self, store: Store) -> None:
        assert not write_one(store, Rewrap("0" * 24, b"one", "k2", b"two"))

    # --- adopt

    def test_adopt_takes_a_run_in_as_it_is(self, store: Store, other: Store, author: Author) -> None:
        record, entries = whole(
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
        write_one(store, Adopt(record, entries, items, ["taken"]))
        for handle in (store, other):
            assert snapshot(handle, record.uid) == (record, list(entries), items, ["taken"])
            assert handle.get("adopted") == record

    def test_an_adopted_key_stays_used(self, store: Store, author: Author) -> None:
        record, entries = whole(author)
        write_one(store, Adopt(record, entries, [item("open")], ["taken"]))
        assert not write_one(store, Post(record.uid, item("open")))
        assert not write_one(store, Post(record.uid, item("taken")))
        assert write_one(store, Post(record.uid, item("new")))
        assert [found.key for found in store.inbox(record.uid)] == ["open", "new"]

    def test_an_adopted_run_can_go_on(self, store: Store, author: Author) -> None:
        record, entries = whole(author, epoch=7)
        write_one(store, Adopt(record, entries))
        held = store.claim(record.uid, "east")
        assert held.epoch == 8
        put(store, author.append(held, Kind.DONE))
        assert len(store.read(record.uid, 0, ALL)) == 4

    def test_adopt_of_an_id_that_is_taken_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        record, entries = whole(author, "run")
        with pytest.raises(RunExists):
            write_one(store, Adopt(record, entries, [item("k")]))
        assert store.get("run") == run
        assert snapshot(store, record.uid) == (None, [], [], [])

    def test_adopt_of_a_uid_that_is_taken_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        before = snapshot(store, run.uid)
        record, entries = whole(author, uid=run.uid)
        with pytest.raises(RunExists):
            write_one(store, Adopt(record, entries, [item("k")]))
        assert snapshot(store, run.uid) == before
        assert store.get("adopted") is None

    def test_a_hidden_run_is_adopted_beside_a_visible_one_of_its_id(
        self, store: Store, author: Author, run: RunRecord
    ) -> None:
        record, entries = whole(author, "run", hidden=True)
        write_one(store, Adopt(record, entries))
        assert store.get("run") == run
        assert store.get(uid=record.uid) == record

    def test_an_adopted_fork_shares_its_parents_entries(self, store: Store, author: Author, run: RunRecord) -> None:
        first = store.read(run.uid, 0, 0)[0]
        write = author.fork(run, first, "fork")
        last = write.entries[-1]
        fork = replace(write.record, seq=last.seq, hash=last.hash, updated_at=last.at, state=last.state)
        write_one(store, Adopt(fork, write.entries))
        assert store.get("fork") == fork
        delete(store, run.uid)
        assert store.read(run.uid, 0, ALL) == [first]
        delete(store, fork.uid)
        assert store.get(uid=run.uid) is None

    def test_adopt_of_a_fork_without_its_parent_is_refused(self, store: Store, author: Author, run: RunRecord) -> None:
        write = author.fork(run, store.read(run.uid, 0, 0)[0], "fork")
        delete(store, run.uid)
        with pytest.raises(RunNotFound):
            write_one(store, Adopt(write.record, write.entries))
        assert store.get("fork") is None
