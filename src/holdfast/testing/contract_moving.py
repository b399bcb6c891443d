"""What every store promises about runs that are moved from or to another one.

A part of `holdfast.testing.contract.StoreContract`.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.errors import Moved, RunExists
from holdfast.kernel.model import (
    ENDED,
    Adopt,
    Append,
    Change,
    EndMove,
    Entry,
    Filter,
    Kind,
    Order,
    Outlook,
    Post,
    Rewrap,
    RunRecord,
    Status,
)
from holdfast.kernel.rules import ANY
from holdfast.stores.protocol import Store, write_one
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract_author import (
    ALL,
    Author,
    after,
    delete,
    ids,
    item,
    keys_taken,
    make,
    put,
    refused,
    snapshot,
)

ELSEWHERE = "sqlite:////other \0 place.db"
LATER = 9_000_000_000_000_000


class MovingContract:
    """The promises about runs that live elsewhere."""

    def coming(self, author: Author, *kinds: str, **facts: Any) -> tuple[RunRecord, tuple[Entry, ...]]:
        """A run from elsewhere, in which nobody lives yet."""
        how = {"status": Status.AWAY, "away": ELSEWHERE, "was": Status.AWAY, "queue": "q", "workflow": "w"}
        write = author.create("coming", *kinds, **{**how, "epoch": 3, **facts})
        return replace(after(write.record, Append("", "", 0, "", write.entries))), write.entries

    def departed(self, store: Store, author: Author, id: str = "gone", **how: Any) -> RunRecord:
        """A run that was marked as gone by its holder."""
        held = store.claim(make(store, author.create(id, queue="q", workflow="w")).uid, "east")
        change = Change(status=Status.AWAY, release=True, away=ELSEWHERE, was=Status.READY)
        put(store, author.append(held, change=change, **how))
        found = store.get(uid=held.uid)
        assert found is not None
        return found

    # --- a run that is away

    def test_a_run_departs_when_its_holder_says_so(self, store: Store, other: Store, author: Author) -> None:
        made = make(store, author.create("run", queue="q", workflow="w", status=Status.WAITING, wake_at=LATER))
        write_one(store, Post(made.uid, item("k", wakes=False)))
        held = store.claim(made.uid, "east")
        how: dict[str, Any] = {"wake_at": LATER, "reason": "why", "away": ELSEWHERE, "was": Status.WAITING}
        put(store, author.append(held, change=Change(status=Status.AWAY, release=True, **how)))
        gone = replace(held, status=Status.AWAY, worker=None, **how)
        for handle in (store, other):
            assert handle.get("run") == handle.get(uid=made.uid) == gone
            assert ids(handle.find(Filter(statuses=(Status.AWAY,)))) == ["run"]
            assert [one.key for one in handle.inbox(made.uid)] == ["k"]
            assert len(handle.read(made.uid, 0, ALL)) == 1

    @pytest.mark.parametrize("allow", [ANY, frozenset({Status.AWAY})])
    def test_nobody_claims_a_run_that_is_away(self, store: Store, author: Author, allow: frozenset[Status]) -> None:
        gone = self.departed(store, author)
        before = snapshot(store, gone.uid)
        with pytest.raises(Moved, match=r"moved between here and .*other") as error:
            store.claim(gone.uid, "east", allow)
        assert (error.value.place, error.value.run) == (ELSEWHERE, "gone")
        assert snapshot(store, gone.uid) == before

    def test_nobody_takes_it_and_nobody_waits_for_it(self, store: Store, author: Author, clock: ManualClock) -> None:
        gone = self.departed(store, author)
        record, entries = self.coming(author, wake_at=clock.now() + 2_000_000)
        write_one(store, Adopt(record, entries, [item("k")]))
        clock.advance(1.0)
        order = Order(worker="east", queues={"q": None}, workflows=frozenset({"w"}), limit=10)
        for _ in range(2):
            assert store.take(order) == store.find(Filter(orphaned=True)) == []
            assert (store.look(["q"], ["w"]), store.backlog()) == (Outlook([]), {})
            clock.advance(2.0)
        assert gone.worker is None

    def test_nothing_is_posted_to_it(self, store: Store, author: Author) -> None:
        gone = self.departed(store, author)
        before = snapshot(store, gone.uid)
        with pytest.raises(Moved):
            write_one(store, Post(gone.uid, item("late")))
        assert snapshot(store, gone.uid) == before

    @pytest.mark.parametrize("kinds", [(Kind.DONE,), (Kind.DONE, Kind.DONE), ()])
    def test_nothing_is_appended_to_it(self, store: Store, author: Author, kinds: tuple[str, ...]) -> None:
        held = store.claim(make(store, author.create("run")).uid, "east")
        change = Change(status=Status.AWAY, release=True, away=ELSEWHERE, was=Status.READY)
        put(store, author.append(held, change=change))
        for holder in (held, replace(held, worker=None)):  # who held it, and who knows where it ends
            release = None if kinds else Change(status=Status.READY, release=True)
            refused(store, author.append(holder, *kinds, change=release), by=Moved)

    def test_those_beside_it_in_a_batch_are_written(self, store: Store, author: Author) -> None:
        gone = self.departed(store, author)
        held = store.claim(make(store, author.create("run")).uid, "east")
        batch = [author.append(gone, Kind.DONE), author.append(held, Kind.DONE)]
        outcomes = store.apply(batch)
        assert isinstance(outcomes[0], Moved)
        assert outcomes[1] is None
        assert (store.read(gone.uid, 0, ALL)[-1].seq, store.read(held.uid, 0, ALL)[-1].seq) == (0, 1)

    def test_it_keeps_its_id(self, store: Store, author: Author) -> None:
        gone = self.departed(store, author)
        assert make(store, author.create("gone")) == gone

    def test_its_key_can_be_wrapped_anew(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author, key_id="a", key_blob=b"old")
        write_one(store, Adopt(record, entries))
        assert write_one(store, Rewrap(record.uid, b"old", "b", b"new"))
        assert store.get(uid=record.uid) == replace(record, key_id="b", key_blob=b"new")

    # --- the end of a move

    @pytest.mark.parametrize("was", sorted(frozenset(Status) - {Status.AWAY, Status.RUNNING}))
    def test_it_becomes_what_it_was(self, store: Store, other: Store, author: Author, was: Status) -> None:
        record, entries = self.coming(author, wake_at=LATER, reason="why")
        write_one(store, Adopt(record, entries, [item("k", wakes=False)], ["taken"]))
        assert write_one(store, EndMove(record.uid, epoch=3, here=was))
        # Of what has ended nobody would take it in: so it is claimed once more.
        expected = replace(record, status=Status.READY if was in ENDED else was, away=None, was=None)
        assert store.get("coming") == other.get("coming") == expected
        assert ([one.key for one in other.inbox(record.uid)], keys_taken(other, record.uid)) == (["k"], ["taken"])
        assert not write_one(store, EndMove(record.uid, epoch=3, here=was))
        assert not write_one(store, EndMove(record.uid, epoch=3))
        allow = ANY if was in ENDED or was is Status.BLOCKED else frozenset({was})
        assert store.claim(record.uid, "east", allow).epoch == record.epoch + 1

    def test_what_arrived_meanwhile_wakes_it(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author, wake_at=LATER)
        write_one(store, Adopt(record, entries, [item("k")]))
        write_one(store, EndMove(record.uid, epoch=3, here=Status.WAITING))
        arrived = store.get("coming")
        assert arrived is not None
        assert (arrived.status, arrived.wake_at) == (Status.READY, None)

    def test_one_that_was_never_begun_still_is_not(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author, wake_at=LATER, epoch=0)
        write_one(store, Adopt(record, entries, [item("k")]))
        write_one(store, EndMove(record.uid, epoch=0, here=Status.WAITING))
        arrived = store.get("coming")
        assert arrived is not None
        assert (arrived.status, arrived.wake_at, arrived.epoch) == (Status.WAITING, LATER, 0)

    def test_it_does_not_arrive_without_what_was_posted(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author)
        write_one(store, Adopt(record, entries, [item("k"), item("l", wakes=False)], ["taken"]))
        for mail in ([], ["k"], ["k", "l", "taken"]):
            assert not write_one(store, EndMove(record.uid, epoch=3, here=Status.READY, mail=mail))
        assert store.get("coming") == record
        assert write_one(store, EndMove(record.uid, epoch=3, here=Status.READY, mail=["l", "k"]))

    def test_only_the_copy_of_that_move_becomes_the_run(self, store: Store, author: Author) -> None:
        """Whoever comes late with what he read before another move neither revives a run nor gives it up."""
        record, entries = self.coming(author)
        write_one(store, Adopt(record, entries))
        for epoch in (2, 4):
            assert not write_one(store, EndMove(record.uid, epoch=epoch, here=Status.READY))
        assert not write_one(store, EndMove(record.uid, epoch=3)), "it has not departed from here"
        assert store.get("coming") == record
        assert write_one(store, EndMove(record.uid, epoch=3, here=Status.READY))

    def test_one_that_nobody_holds_departs_if_nobody_claimed_it(self, store: Store, author: Author) -> None:
        made = make(store, author.create("run"))
        change = Change(status=Status.AWAY, release=True, away=ELSEWHERE, was=Status.READY)
        held = store.claim(made.uid, "east")
        refused(store, author.append(made, change=change))
        put(store, author.append(held, change=Change(status=Status.READY, release=True)))
        put(store, author.append(replace(held, worker=None), change=change))
        gone = store.get("run")
        assert gone is not None
        assert (gone.status, gone.epoch) == (Status.AWAY, 1)

    def test_it_can_go_on_and_its_keys_stay_used(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author, Kind.CREATED, Kind.DONE)
        write_one(store, Adopt(record, entries, [item("k")], ["taken"]))
        write_one(store, EndMove(record.uid, epoch=3, here=Status.READY))
        assert not write_one(store, Post(record.uid, item("taken")))
        assert write_one(store, Post(record.uid, item("new")))
        held = store.claim(record.uid, "east")
        put(store, author.append(held, Kind.DONE, took=("k",)))
        assert [entry.seq for entry in store.read(record.uid, 0, ALL)] == [0, 1, 2]

    def test_it_is_settled_for_good_and_may_be_deleted_then(self, store: Store, author: Author) -> None:
        gone = self.departed(store, author)
        with pytest.raises(Moved):
            delete(store, gone.uid)
        assert not write_one(store, EndMove(gone.uid, epoch=gone.epoch, here=Status.READY)), "it is not a copy"
        for epoch in (gone.epoch - 1, gone.epoch + 1):
            assert not write_one(store, EndMove(gone.uid, epoch=epoch)), "another move is meant"
        assert write_one(store, EndMove(gone.uid, epoch=gone.epoch))
        assert not write_one(store, EndMove(gone.uid, epoch=gone.epoch))
        assert store.get(uid=gone.uid) == replace(gone, was=None)
        with pytest.raises(Moved, match="was moved to"):
            store.claim(gone.uid, "east")
        assert delete(store, gone.uid)
        assert store.get(uid=gone.uid) is None

    def test_nothing_is_settled_of_other_runs(self, store: Store, run: RunRecord) -> None:
        for here in (Status.READY, None):
            assert not write_one(store, EndMove(run.uid, epoch=run.epoch, here=here))
            assert not write_one(store, EndMove("nobody", epoch=0, here=here))
        assert store.get("run") == run

    # --- copies that give way

    def test_a_copy_gives_way_to_a_newer_one(self, store: Store, other: Store, author: Author) -> None:
        record, entries = self.coming(author)
        write_one(store, Adopt(record, entries, [item("old"), item("both")], ["gone"]))
        fork = make(store, author.fork(record, entries[0], "fork"))
        more = author.entries(record.hash, 1, (Kind.SAVED, Kind.DONE))
        newer = replace(after(record, Append("", "", 0, "", more)), epoch=4, reason="newer", rollback=1)
        for _ in range(2):  # it may be repeated
            write_one(store, Adopt(newer, [*entries, *more], [item("both"), item("new")], ["taken"]))
        for handle in (store, other):
            assert handle.get("coming") == newer
            assert handle.read(record.uid, 0, ALL) == [*entries, *more]
            assert [one.key for one in handle.inbox(record.uid)] == ["both", "new"]
            assert keys_taken(handle, record.uid) == ["taken"]
        assert not delete(store, record), "it is not what was expected"
        assert delete(store, newer)  # the fork still shares it
        assert store.read(record.uid, 0, ALL) == [*entries, *more]
        assert delete(store, fork.uid)
        assert store.get(uid=record.uid) is None

    def test_a_payload_that_was_erased_meanwhile_is_erased(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author)
        write_one(store, Adopt(record, entries))
        erased = [replace(entries[0], payload=b'{"less":1}')]
        write_one(store, Adopt(record, erased))
        assert store.read(record.uid, 0, ALL) == erased

    def test_an_older_or_another_one_does_not_take_its_place(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author, Kind.CREATED, Kind.DONE)
        write_one(store, Adopt(record, entries, [item("k")]))
        before = snapshot(store, record.uid)
        shorter = after(record, Append("", "", 0, "", entries[:1]))
        another = author.entries(entries[0].hash, 1, (Kind.RAISED, Kind.DONE))
        for copy, its in (
            (replace(record, epoch=2), entries),
            (shorter, entries[:1]),
            (after(record, Append("", "", 0, "", another)), (entries[0], *another)),
        ):
            with pytest.raises(RunExists, match="newer copy of it"):
                write_one(store, Adopt(copy, its))
        assert snapshot(store, record.uid) == before

    def test_a_run_that_is_lived_in_does_not_give_way(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author)
        write_one(store, Adopt(record, entries))
        write_one(store, EndMove(record.uid, epoch=3, here=Status.READY))
        before = snapshot(store, record.uid)
        with pytest.raises(RunExists):
            write_one(store, Adopt(replace(record, epoch=9), entries, [item("k")]))
        assert snapshot(store, record.uid) == before

    def test_a_hidden_copy_becomes_the_run(self, store: Store, other: Store, author: Author) -> None:
        record, entries = self.coming(author)
        write_one(store, Adopt(replace(record, hidden=True, was=None), entries))
        fork = make(store, author.fork(record, entries[0], "fork"))
        assert store.get("coming") is None
        more = author.entries(record.hash, 1, (Kind.DONE,))
        newer = after(record, Append("", "", 0, "", more))
        write_one(store, Adopt(newer, [*entries, *more], [item("k")]))
        assert write_one(store, EndMove(record.uid, epoch=3, here=Status.READY))
        for handle in (store, other):
            arrived = handle.get("coming")
            assert arrived is not None
            assert arrived.status is Status.READY
            assert handle.read(record.uid, 0, ALL) == [*entries, *more]
        assert ids(store.find(Filter())) == ["fork", "coming"]
        assert delete(store, record.uid)
        assert store.read(record.uid, 0, ALL) == [*entries, *more]
        assert delete(store, fork.uid)
        assert store.get(uid=record.uid) is None

    def test_a_hidden_copy_does_not_take_an_id_that_is_taken(self, store: Store, author: Author) -> None:
        record, entries = self.coming(author)
        write_one(store, Adopt(replace(record, hidden=True, was=None), entries))
        other = make(store, author.create("coming"))
        with pytest.raises(RunExists):
            write_one(store, Adopt(record, entries))
        assert store.get("coming") == other
        kept = store.get(uid=record.uid)
        assert kept is not None
        assert kept.hidden

    def test_a_run_comes_back(self, store: Store, author: Author) -> None:
        """It departed from here, and lives here again, with what was done elsewhere."""
        gone = self.departed(store, author)
        write_one(store, EndMove(gone.uid, epoch=gone.epoch))
        entries = store.read(gone.uid, 0, ALL)
        more = author.entries(gone.hash, 1, (Kind.DONE,))
        back = replace(after(gone, Append("", "", 0, "", more)), epoch=gone.epoch + 2, was=Status.AWAY, reason="why")
        write_one(store, Adopt(back, [*entries, *more]))
        assert write_one(store, EndMove(gone.uid, epoch=back.epoch, here=Status.BLOCKED))
        assert store.get("gone") == replace(back, status=Status.BLOCKED, away=None, was=None)
