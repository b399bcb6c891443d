"""What every store promises about how runs are found: lists and their filters, and ids of any kind.

A part of `holdfast.testing.contract.StoreContract`.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from holdfast.kernel.model import Change, Filter, Kind, Post, RunRecord, Status
from holdfast.stores.protocol import Store, write_one
from holdfast.testing.clock import ManualClock
from holdfast.testing.contract_author import LEASE, Author, Opening, delete, ids, item, make, put

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


class FindingContract(Opening):
    """The promises about how runs are found: lists and their filters, and ids of any kind."""

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
        delete(store, made[9].uid)
        return [record for record in (store.get(uid=each.uid) for each in made) if record is not None]

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
        delete(store, first[-1].uid)
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

    # --- ids

    @pytest.mark.parametrize("id", HARD_IDS.values(), ids=HARD_IDS)
    def test_any_id_comes_back_as_it_was(
        self, store: Store, other: Store, place: Path, clock: ManualClock, author: Author, id: str
    ) -> None:
        made = make(store, author.create(id))
        held = store.claim(made.uid, "east")
        write_one(store, Post(made.uid, item("k")))
        put(store, author.append(held, Kind.DONE, took=("k",)))
        assert (held.id, other.get(id)) == (id, store.get(uid=made.uid))
        again = self.open_store(place, clock)
        assert ids(again.find(Filter())) == [id]
        assert again.get(id) == store.get(id)
        again.close()

    @pytest.mark.parametrize("id", HARD_IDS.values(), ids=HARD_IDS)
    def test_any_id_can_be_forked_and_deleted(self, store: Store, author: Author, run: RunRecord, id: str) -> None:
        made = make(store, author.create(id))
        fork = make(store, author.fork(made, store.read(made.uid, 0, 0)[0], f"{id[:500]}'s"))
        assert fork.lineage[0].id == id
        assert delete(store, made.uid)
        again = make(store, author.create(id))
        assert delete(store, again.uid)
        assert delete(store, fork.uid)
        assert ids(store.find(Filter(hidden=None))) == ["run"]

    def test_two_different_ids_never_meet(self, store: Store, author: Author) -> None:
        made = {id: make(store, author.create(id, tags={"its": repr(id)})) for id in HARD_IDS.values()}
        assert len({record.uid for record in made.values()}) == len(HARD_IDS)
        for n, record in enumerate(made.values()):
            put(store, author.append(store.claim(record.uid, "east"), Kind.DONE, payload=str(n).encode()))
            assert not delete(store, record)
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
            write_one(store, Post(record.uid, item("../" * 12 + "tmp/escaped")))
        assert around() == before
        for record in made:
            delete(store, record.uid)
        assert around() == before
