"""Lists of runs, in every store: whatever is asked for, it is what the rule of `matches` says, newest first."""

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast.kernel.clock import Clock, new_uid
from holdfast.kernel.model import Change, Filter, RunRecord, Status
from holdfast.kernel.rules import matches
from holdfast.stores import open_store
from holdfast.stores.protocol import Store
from holdfast.testing import ManualClock
from holdfast.testing.contract_author import LEASE, Author, delete, ids, make, put

ENDS = [None, Status.READY, Status.WAITING, Status.COMPLETED, Status.FAILED, Status.BLOCKED]
FAR = 253_402_300_000_000_000  # in the year 9999


@pytest.fixture
def store(store_url: str, clock: ManualClock) -> Iterator[Store]:
    store = open_store(store_url, clock=clock)
    store.beat("east", LEASE)
    yield store
    store.close()


@pytest.fixture
def author(clock: ManualClock) -> Author:
    return Author(clock)


def some_tags(dice: random.Random) -> dict[str, str]:
    named = {"colour": ["red", "blue", "re\0d"], "size": ["1", "2"], "all": ["yes"], "\0": ["x" * 9_000]}
    return {name: dice.choice(values) for name, values in named.items() if dice.random() < 0.6}


def fill(store: Store, author: Author, dice: random.Random, runs: int = 40) -> list[RunRecord]:
    """Runs of all sorts, newest first."""
    for n in range(runs):
        author.clock.advance(dice.choice([0.0, 0.000_001, 0.5, 90.0]))
        write = author.create(
            f"{dice.choice('ab')}/{n}", tags=some_tags(dice), workflow=dice.choice(["v", "w", None]), queue="q"
        )
        made = make(store, write)
        if end := dice.choice(ENDS):
            held = store.claim(made.uid, "east")
            put(store, author.append(held, change=Change(status=end, release=True, reason="said so")))
        if dice.random() < 0.1:
            delete(store, made.uid)
    return store.find(Filter(hidden=None), limit=runs)


def some_filter(dice: random.Random, records: list[RunRecord]) -> Filter:
    one, other = dice.choice(records), dice.choice(records)
    given = {
        "statuses": tuple(dice.sample(list(Status), dice.choice([1, 2, 4]))),
        "workflow": dice.choice(["v", "w"]),
        "tags": tuple(dice.sample(list(one.tags.items()), min(len(one.tags), dice.choice([1, 2])))),
        "prefix": dice.choice(["a", "a/", "b/1", one.id]),
        "created_from": one.created_at + dice.choice([0, 1]),
        "created_before": other.created_at + dice.choice([0, 1]),
    }
    return Filter(**{name: value for name, value in given.items() if dice.random() < 0.35})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_a_list_is_what_the_rule_says(store: Store, author: Author, seed: int) -> None:
    dice = random.Random(seed)
    records = fill(store, author, dice)
    assert [record.uid for record in records] == sorted((record.uid for record in records), reverse=True)
    for _ in range(80):
        filter, size = some_filter(dice, records), dice.choice([1, 3, 50])
        expected = [record for record in records if matches(record, filter)]
        found: list[RunRecord] = []
        while page := store.find(filter, before=found[-1].uid if found else None, limit=size):
            found += page
        assert found == expected, (seed, filter, size)


def test_a_run_that_is_deleted_is_in_no_list_of_its_tags(store: Store, author: Author) -> None:
    tags = {"colour": "red", "long": "x" * 10_000}
    gone, stays = (make(store, author.create(id, tags=tags)) for id in ("gone", "stays"))
    assert delete(store, gone.uid)
    for tag in tags.items():
        assert store.find(Filter(tags=(tag,))) == [stays]


def test_a_tag_cannot_have_two_values(store: Store, author: Author) -> None:
    make(store, author.create("run", tags={"colour": "red"}))
    assert store.find(Filter(tags=(("colour", "red"), ("colour", "blue")))) == []


def test_times_may_be_as_far_away_as_there_are_times(store: Store, author: Author) -> None:
    run = make(store, author.create("run"))
    assert store.find(Filter(created_from=0, created_before=FAR)) == [run]
    assert store.find(Filter(created_from=FAR)) == []
    assert store.find(Filter(created_before=0)) == []


def test_a_run_whose_uid_is_a_little_older_is_found_by_the_time_it_was_made(store: Store, author: Author) -> None:
    """As they were made by those who asked the clock twice."""
    write = author.create("run", tags={"colour": "red"})
    made = make(store, replace(write, record=replace(write.record, created_at=write.record.created_at + 900)))
    at = made.created_at
    for tags in ((), (("colour", "red"),)):
        assert ids(store.find(Filter(created_from=at, created_before=at + 1, tags=tags))) == ["run"]
        assert store.find(Filter(created_from=at + 1, tags=tags)) == []


def test_a_uid_begins_with_the_time_that_it_is_given(clock: Clock) -> None:
    assert new_uid(clock, 0x123456789ABCD)[:13] == "123456789abcd"
