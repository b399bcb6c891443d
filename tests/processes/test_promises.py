"""What one process may rely on, whatever others do to the store: tampering is found, reading stays cheap."""

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Keyring, Run
from holdfast.codec import redaction
from holdfast.errors import RunDamaged
from holdfast.kernel.journal import chain, payload_digest

# --- somebody writes into the database, and knows how the chain is made


class Forger:
    """Changes what is stored of a run, and makes the hashes fit again."""

    def __init__(self, path: Path, run: Run) -> None:
        self.path = path
        self.uid = run.uid

    def rewrite(self, change: Callable[[list[Any]], list[Any]]) -> None:
        """Pass all entries, as [seq, kind, at, state, payload], through a function; hash what it gives anew."""
        with sqlite3.connect(self.path) as db:
            [(number, before)] = db.execute("SELECT n, root FROM run WHERE uid = ?", (self.uid,))
            query = "SELECT seq, kind, at, state, payload FROM entry WHERE run = ? ORDER BY seq"
            entries = change([list(row) for row in db.execute(query, (number,))])
            db.execute("DELETE FROM entry WHERE run = ?", (number,))
            db.execute("UPDATE run SET newest = NULL WHERE n = ?", (number,))
            for seq, kind, at, state, payload in entries:
                before = chain(before, seq, kind, at, state, payload)
                row = (number, seq, kind, at, state, before, payload)
                db.execute("INSERT INTO entry (run, seq, kind, at, state, hash, payload) VALUES (?,?,?,?,?,?,?)", row)
        db.close()


@pytest.fixture
def path(memdir: Path) -> Path:
    return memdir / "runs.db"


def test_a_payload_does_not_open_in_the_place_of_another(path: Path) -> None:
    keys = Keyring({"k": os.urandom(32)}, "k")
    with holdfast.open(f"sqlite:///{path}", keys=keys) as hf:
        run = hf.run("thread")
        for amount in (1, 1_000_000):
            run.once(f"pay-{amount}", int, amount)

        def swap(entries: list[Any]) -> list[Any]:
            assert [entry[1] for entry in entries[-2:]] == ["done", "done"]
            entries[-1][4], entries[-2][4] = entries[-2][4], entries[-1][4]
            return entries

        Forger(path, run).rewrite(swap)
        with pytest.raises(RunDamaged):
            hf.get("thread").is_completed("pay-1")


def test_an_erasure_that_no_entry_tells_of_is_found(path: Path) -> None:
    with holdfast.open(f"sqlite:///{path}") as hf:
        run = hf.run("thread")
        run.once("k", int, 5)
        run.save({"n": 1})
        run.redact(1, by="officer", why="on request")
        assert run.audit().redacted == (1,)

        def erase(entries: list[Any]) -> list[Any]:
            entries[2][4] = redaction(payload_digest(entries[2][4])) + b'{"erased":true}'
            return entries

        Forger(path, run).rewrite(erase)
        with pytest.raises(RunDamaged, match="entry 2 was erased"):
            run.audit()


def test_a_history_that_was_cut_short_is_found_with_a_head_from_elsewhere(path: Path) -> None:
    with holdfast.open(f"sqlite:///{path}") as hf:
        run = hf.run("thread")
        run.save({"n": 1})
        run.save({"n": 2})
        head = run.audit().head
        assert run.audit(head=head).head == head
        Forger(path, run).rewrite(lambda entries: entries[:-1])
        run.audit()
        with pytest.raises(RunDamaged, match="cut short"):
            run.audit(head=head)


# --- somebody rolled the run back


def test_the_abandoned_part_can_still_be_read(quick_url: str) -> None:
    """It stays in the history, with its states, although they are stored as differences."""
    with holdfast.open(quick_url) as hf:
        run = hf.run("thread")
        notes = [f"note {n} of the part that is abandoned later" for n in range(8)]
        seqs = [run.save({"notes": notes[:n]}) for n in range(8)]
        run.rollback(seqs[2])
        run.save({"notes": ["another"]})
    with holdfast.open(quick_url) as hf:
        run = hf.get("thread")
        assert [run.checkpoint(seq).state["notes"] for seq in seqs] == [notes[:n] for n in range(8)]
        assert run.checkpoint().state == {"notes": ["another"]}


# --- reading and writing stay cheap


def stored_bytes(hf: Holdfast, run: Run, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many bytes of payloads the newest checkpoint takes to read."""
    total = 0
    read = hf.client.store.read

    def counted(*args: Any, **kwargs: Any) -> Any:
        nonlocal total
        found = read(*args, **kwargs)
        total += sum(len(entry.payload) for entry in found)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(hf.client.store, "read", counted)
        assert run.checkpoint().state is not None
    return total


def test_the_next_process_reads_about_twice_the_state_at_most(quick_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 3_000
    with holdfast.open(quick_url) as hf:
        run = hf.run("thread")
        with run.claim():
            for n in range(60):
                run.save({"text": os.urandom(size // 2).hex(), "n": n})
    with holdfast.open(quick_url) as hf:
        assert stored_bytes(hf, hf.get("thread"), monkeypatch) < 3 * size


def test_growth_is_not_stored_twice(quick_url: str) -> None:
    """A state that only grows costs its growth."""
    with holdfast.open(quick_url) as hf:
        run = hf.run("thread")
        notes: list[str] = []
        with run.claim():
            for _ in range(200):
                notes.append(os.urandom(50).hex())
                run.save({"notes": notes})
        record = hf.client.store.get("thread")
        assert record is not None
        stored = sum(len(entry.payload) for entry in hf.client.store.read(record.uid, 0, record.seq))
    assert stored < 2.7 * sum(map(len, notes))  # where states are compressed and differences are not, a little more


def test_writers_who_wait_are_committed_together(quick_url: str) -> None:
    """While one transaction is under way the writes of others gather, and the next one takes all of them."""
    with holdfast.open(quick_url) as hf:
        store = hf.client.store
        apply, batches = store.apply, list[int]()
        began, go_on = threading.Event(), threading.Event()

        def slow(batch: Any) -> Any:
            batches.append(len(batch))
            if len(batches) == 1:
                began.set()
                assert go_on.wait(30)
            return apply(batch)

        store.apply = slow  # type: ignore[method-assign]
        threads = [threading.Thread(target=hf.run, args=(f"run {n}",)) for n in range(9)]
        threads[0].start()
        assert began.wait(30)
        for thread in threads[1:]:
            thread.start()
        while len(hf.client.committer._queue) < 8:
            pass
        go_on.set()
        for thread in threads:
            thread.join()
        assert batches == [1, 8]
        assert len(hf.runs()) == 9
