"""Erasing on request, and telling whether a history is as it was written."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Holdfast, Run, Status, step, workflow
from holdfast.errors import DefinitionChanged, NoCheckpoint, Redacted, RunDamaged, UsageError
from holdfast.kernel.model import Adopt, Entry, RunRecord
from holdfast.stores.protocol import write_one

SECRET = "reader@example.org"

undone: list[Any] = []


def send(to: str) -> str:
    return f"sent to {to}"


def recall(result: Any, to: str) -> None:
    undone.append((result, to))


def seqs(run: Run, kind: str) -> list[int]:
    return [entry.seq for entry in run.history(kind=kind)]


# --- redact


def test_the_erased_text_is_nowhere_in_the_store(
    hf: Holdfast, opened: Callable[..., Holdfast], raw_bytes: Callable[..., bytes]
) -> None:
    """Not in the journal, not in the inbox, not in free pages, not in a write-ahead log."""
    run = hf.run("run")
    run.save({"mail": SECRET, "n": 1})
    run.once("send", send, SECRET, target=f"to {SECRET}")
    run.mark("elsewhere", "tool", SECRET, result=SECRET)
    run.pause(f"Write to {SECRET}?", output_key="ok")
    run.answer(f"yes, to {SECRET}", by="operator")
    with run.claim():
        run.save({"mail": SECRET, "n": 2})
        run.save({"n": 3})
        run.mark("again", "tool", SECRET)
    with pytest.raises(ValueError, match="reader"):
        run.once("failing", lambda: int(SECRET), target="t")
    assert SECRET.encode() in raw_bytes()

    everything = [e.seq for e in run.history() if e.kind not in ("created", "rewound")]
    run.redact(*everything, by="operator", why="on request")
    assert run.checkpoint().state == {"n": 3}
    hf.close()
    assert SECRET.encode() not in raw_bytes()
    assert b"curie" not in raw_bytes()

    again = opened().get("run")
    report = again.audit()
    assert set(report.redacted) == set(everything)
    assert again.is_completed("send")
    with pytest.raises(Redacted, match="erased on request"):
        again.once("send", send, SECRET, target=f"to {SECRET}")
    assert again.checkpoint().state == {"n": 3}
    again.save({"n": 4})
    assert again.checkpoint().state == {"n": 4}


def test_while_others_have_the_store_open(
    hf: Holdfast, opened: Callable[..., Holdfast], raw_bytes: Callable[..., bytes], store_url: str
) -> None:
    other = opened()
    other.run("other").save("x")
    run = hf.run("run")
    run.save(SECRET)
    run.save("plain")
    run.redact(1)
    assert other.get("run").checkpoint().state == "plain"
    hf.close()
    other.close()
    assert SECRET.encode() not in raw_bytes()


def test_deleted_runs_leave_nothing(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    run = hf.run("run")
    run.save(SECRET)
    run.pause(SECRET)
    run.answer(SECRET)
    run.delete()
    hf.close()
    assert SECRET.encode() not in raw_bytes()


def test_an_erased_step_still_counts_as_completed(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("plain", send, SECRET)
    run.once("effect", send, SECRET, target=SECRET)
    before = run.audit().head
    run.redact(*seqs(run, "done"), *seqs(run, "intended"))
    for key in ("plain", "effect"):
        assert run.is_completed(key)
        with pytest.raises(Redacted):
            run.once(key, send, SECRET)
    assert run.checkpoint().completed == {"plain", "effect"}
    assert run.checkpoint().results == {}
    [effect] = run.effects()
    assert (effect.key, effect.tool, effect.target, effect.status) == ("effect", "send", None, "done")
    run.audit(head=before)


def test_an_erased_effect_is_not_undone_with_a_wrong_value(hf: Holdfast) -> None:
    undone.clear()
    for number, kinds in enumerate((["done"], ["intended"], ["done", "intended"])):
        run = hf.run(f"run-{number}")
        run.once("send", send, SECRET, undo=recall)
        run.redact(*(seq for kind in kinds for seq in seqs(run, kind)))
        assert [one.action for one in run.plan_rollback(0).steps] == ["irreversible"]
        report = run.rollback(to=0)
        assert [effect.key for effect in report.irreversible] == ["send"]
    assert undone == []


def test_states_that_build_on_an_erased_one_say_so(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():
        first = run.save({"mail": SECRET, "list": list(range(50))})
        second = run.save({"mail": SECRET, "list": list(range(51))})
    run.redact(first)
    for seq in (first, second):
        with pytest.raises(Redacted, match=f"entry {first}"):
            run.checkpoint(seq)
    assert run.checkpoint().state == {"mail": SECRET, "list": list(range(51))}  # the latest was kept, as a whole
    with run.claim():
        run.save({"list": [1]})
        assert run.checkpoint().step == 2
    run.audit()


def test_inside_of_a_claim(hf: Holdfast) -> None:
    run = hf.run("run")
    with run.claim():
        first = run.save({"mail": SECRET})
        run.save({"mail": None, "n": 1})
        run.redact(first)
        run.save({"mail": None, "n": 2})
    assert run.checkpoint().state == {"mail": None, "n": 2}
    run.audit()


def test_an_ended_run_stays_ended(hf: Holdfast) -> None:
    run = hf.run("run")
    run.complete(SECRET)
    run.redact(*seqs(run, "completed"))
    assert run.status is Status.COMPLETED
    with pytest.raises(Redacted, match="result was erased"):
        _ = run.checkpoint().result


def test_an_erased_answer_is_left_out_and_its_question_stays_answered(hf: Holdfast) -> None:
    run = hf.run("run")
    run.pause("Which?")
    run.answer(SECRET)
    with run.claim():
        run.redact(*seqs(run, "answered"))
    assert run.checkpoint().answers == {}
    assert run.questions() == ()


def test_a_definition_outlives_the_erasure_of_the_first_entry(hf: Holdfast) -> None:
    hf.run("run", definition=["a", "b"]).redact(0)
    assert hf.run("run", definition=["a", "b"]).status is Status.READY
    with pytest.raises(DefinitionChanged):
        hf.run("run", definition=["a", "c"])


def test_a_question_and_its_answer(hf: Holdfast) -> None:
    run = hf.run("run")
    question = run.pause(SECRET, [{"name": SECRET}])
    run.redact(question.seq)
    assert run.status is Status.WAITING
    [erased] = run.questions()
    assert (erased.prompt, erased.id) == ("(erased)", question.id)
    run.answer("still possible")
    with run.claim():
        assert run.checkpoint().answers == {"answer": "still possible"}


def test_what_cannot_be_erased(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save(1)
    fork = run.fork()
    fork.rollback(to=1)
    with pytest.raises(UsageError, match="belongs to the run that it was forked from"):
        fork.redact(1)
    for seq in seqs(fork, "rewound") + seqs(fork, "forked"):
        with pytest.raises(UsageError, match="holds nothing of yours"):
            fork.redact(seq)
    with pytest.raises(NoCheckpoint):
        run.redact(99)
    assert run.audit().redacted == ()
    assert fork.status is run.status is Status.READY


def test_erasing_twice(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save(SECRET)
    run.redact(1, 1)
    run.redact(1)
    assert run.audit().redacted == (1,)


def test_what_was_erased_in_the_parent_is_erased_in_its_forks(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("send", send, SECRET)
    run.save("x")
    fork = run.fork()
    run.redact(1)
    assert fork.is_completed("send")
    with pytest.raises(Redacted):
        fork.once("send", send, SECRET)


# --- audit


def test_an_audit_reports_the_head(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save(1)
    report = hf.audit("run")
    assert (report.run, report.entries, report.redacted) == ("run", 2, ())
    assert report.head.startswith("1:")
    assert hf.audit(run, head=report.head) == report
    run.save(2)
    longer = run.audit(head=report.head)
    assert longer.entries == 3
    assert longer.head != report.head


@pytest.mark.parametrize("head", ["", "x", "1:zz", ":", "abc:def"])
def test_a_head_is_what_an_audit_gave(hf: Holdfast, head: str) -> None:
    with pytest.raises(UsageError, match="not what an audit gave"):
        hf.run("run").audit(head=head)


@pytest.mark.parametrize("seq", [0, 1, 2, 3, 4])
def test_a_changed_entry_is_found(hf: Holdfast, opened: Callable[..., Holdfast], damage: Callable, seq: int) -> None:
    run = hf.run("run")
    run.save({"n": 1})
    run.once("step", len, "abc")
    run.save({"n": 2})
    run.save({"n": 3})
    hf.close()
    damage(run, seq)
    again = opened().get("run")
    with pytest.raises(RunDamaged):
        again.audit()
    for before in range(seq):
        again.checkpoint(before)  # what lies before the damage can still be read,
        again.fork(at=before)  # and gone on with


def copied(run: Run, hf: Holdfast, entries: list[Entry], **changes: Any) -> Run:
    """The run as somebody who may write everything would leave it, under the id "forged"."""
    record = run.held.read_record()
    last = entries[-1]
    state = last.seq if last.kind == "saved" else last.state
    forged: RunRecord = replace(
        record, id="forged", seq=last.seq, hash=last.hash, updated_at=last.at, state=state, **changes
    )
    write_one(hf.client.store, Adopt(forged, entries))
    return hf.get("forged")


def test_a_shortened_history_is_found_against_a_head_kept_elsewhere(
    hf: Holdfast, opened: Callable[..., Holdfast], beside: Callable[[object], str]
) -> None:
    run = hf.run("run")
    for n in range(4):
        run.save(n)
    head = run.audit().head
    forged = copied(run, opened(beside("other")), hf.client.store.read(run.uid, 0, 2))
    assert forged.audit().entries == 3  # nothing inside the store can show it
    with pytest.raises(RunDamaged, match="cut short: it ended at 4 before, now at 2"):
        forged.audit(head=head)


def test_a_rewritten_history_is_found_against_a_head_kept_elsewhere(
    hf: Holdfast, opened: Callable[..., Holdfast], beside: Callable[[object], str]
) -> None:
    from holdfast.kernel.journal import next_entry

    run = hf.run("run")
    for n in range(4):
        run.save(n)
    head = run.audit().head
    entries = hf.client.store.read(run.uid, 0, 4)
    rewritten = entries[:2]
    for entry in entries[2:]:
        payload = entry.payload.replace(b"2", b"7")
        rewritten.append(next_entry(rewritten[-1].hash, entry.seq, entry.kind, entry.at, entry.state, payload))
    forged = copied(run, opened(beside("other")), rewritten)
    forged.audit()
    with pytest.raises(RunDamaged, match="not the one that the given head was taken from"):
        forged.audit(head=head)


def test_rows_or_lines_removed_by_hand(
    hf: Holdfast,
    opened: Callable[..., Holdfast],
    store_url: str,
    journal_file: Callable[[str], Path],
    request: pytest.FixtureRequest,
) -> None:
    run = hf.run("run")
    for n in range(4):
        run.save(n)
    head = run.audit().head
    hf.close()
    match store_url.partition(":")[0]:
        case "memory":
            from holdfast.stores.memory import _shared

            del _shared[store_url.removeprefix("memory://")].runs[run.uid].entries[3:]
        case "sqlite":
            with sqlite3.connect(store_url.removeprefix("sqlite:///")) as db:
                db.execute("DELETE FROM entry WHERE seq > 2")
            db.close()
        case "files":
            path = journal_file("run")
            path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
        case "postgresql":
            request.getfixturevalue("in_postgres")("DELETE FROM {schema}.entry WHERE seq > 2")
    with pytest.raises(RunDamaged):
        opened().get("run").audit(head=head)


def test_a_gap_is_found(
    hf: Holdfast,
    opened: Callable[..., Holdfast],
    store_url: str,
    journal_file: Callable,
    request: pytest.FixtureRequest,
) -> None:
    run = hf.run("run")
    for n in range(4):
        run.save(n)
    hf.close()
    match store_url.partition(":")[0]:
        case "memory":
            from holdfast.stores.memory import _shared

            del _shared[store_url.removeprefix("memory://")].runs[run.uid].entries[2]
        case "sqlite":
            with sqlite3.connect(store_url.removeprefix("sqlite:///")) as db:
                db.execute("DELETE FROM entry WHERE seq = 2")
            db.close()
        case "files":
            path = journal_file("run")
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join(lines[:2] + lines[3:]))
        case "postgresql":
            request.getfixturevalue("in_postgres")("DELETE FROM {schema}.entry WHERE seq = 2")
    with pytest.raises(RunDamaged):
        opened().get("run").audit()


def test_an_erasure_that_nobody_vouches_for_is_found(
    hf: Holdfast, opened: Callable[..., Holdfast], beside: Callable[[object], str]
) -> None:
    """Somebody erased a payload behind our back: the chain holds, but no entry says who did it and why."""
    from holdfast.codec import pack, redaction
    from holdfast.kernel.journal import payload_digest

    run = hf.run("run")
    run.once("step", len, "abc")
    run.save(1)
    entries = hf.client.store.read(run.uid, 0, 2)
    left = pack({"key": "step", "tool": "len", "erased": True})
    entries[1] = replace(entries[1], payload=redaction(payload_digest(entries[1].payload), left))
    forged = copied(run, opened(beside("other")), entries)
    with pytest.raises(RunDamaged, match="entry 1 was erased, but no entry of the journal says so"):
        forged.audit()


def test_a_changed_leftover_of_an_erasure_is_found(
    hf: Holdfast, opened: Callable[..., Holdfast], beside: Callable[[object], str]
) -> None:
    from holdfast.codec import pack, redacted_digest, redaction

    run = hf.run("run")
    run.once("step", len, "abc")
    run.redact(1)
    entries = hf.client.store.read(run.uid, 0, 2)
    left = pack({"key": "another step", "tool": "len", "erased": True})
    entries[1] = replace(entries[1], payload=redaction(redacted_digest(entries[1].payload), left))
    forged = copied(run, opened(beside("other")), entries)
    with pytest.raises(RunDamaged):
        forged.audit()


def test_the_audit_of_a_fork_covers_what_it_inherited(
    hf: Holdfast, opened: Callable[..., Holdfast], damage: Callable
) -> None:
    run = hf.run("run")
    run.save(1)
    run.save(2)
    run.save(3)
    fork = run.fork(at=2, id="fork")
    fork.save("x")
    head = fork.audit().head
    run.delete()
    assert fork.audit(head=head).entries == 5


# --- SQLite in particular


@pytest.fixture
def careless_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of SQLite which leaves what was deleted where it was, as most do."""
    real = sqlite3.connect

    def connect(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        db = real(*args, **kwargs)
        db.execute("PRAGMA secure_delete = OFF")
        return db

    monkeypatch.setattr(sqlite3, "connect", connect)


@pytest.mark.usefixtures("careless_sqlite")
def test_erased_text_is_gone_from_the_file_and_its_log_at_once(memdir: Path) -> None:
    import holdfast

    path = memdir / "runs.db"
    with holdfast.open(f"sqlite:///{path}") as hf:
        run = hf.run("run")
        for n in range(30):
            run.save({"mail": f"{n} {SECRET}" * 20, "n": n})
        run.pause(SECRET)
        run.answer(SECRET)
        with run.claim():
            run.save({"n": "plain"})
        run.redact(*(entry.seq for entry in run.history() if entry.kind != "created"))
        for file in memdir.iterdir():
            if file.is_file():
                assert SECRET.encode() not in file.read_bytes(), file
        other = hf.run("other")
        other.save(SECRET)
        other.delete()
    for file in memdir.iterdir():
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


def test_a_parked_run_stays_parked(hf: Holdfast, opened: Callable[..., Holdfast], memdir: Path) -> None:
    run = hf.run("run")
    run.save(SECRET)
    hf.backup(str(memdir / "backup"))
    copies = opened("memory://copies-of-" + memdir.name)
    copies.restore(str(memdir / "backup"))
    copy = copies.get("run")
    before = copy.info()
    copy.redact(*seqs(copy, "created"))
    assert (copy.status, copy.info().reason) == (Status.BLOCKED, before.reason)


# --- why a run was parked


def parked(hf: Holdfast) -> Run:
    """A run that is not known to have paid: its record says so, with the error, which has the secret in it."""

    @step
    def look(colour: str) -> str:
        return f"{colour}, a little of white"

    @step(at_most_once=True)
    def pay(to: str) -> None:
        raise TimeoutError(f"no answer for {to}")

    @workflow(name="paying")
    def paying(to: str) -> None:
        look("purple")
        pay(to)

    run = hf.start(paying, SECRET, id="paying")
    assert run.status is Status.BLOCKED
    assert SECRET in (run.info().reason or "")
    return run


def test_why_a_run_was_parked_goes_with_what_it_quotes(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    run = parked(hf)
    run.redact(*(entry.seq for entry in run.history()))
    reason = run.info().reason or ""
    assert (run.status, "run.unblock()" in reason, SECRET in reason) == (Status.BLOCKED, True, False)
    hf.close()
    assert SECRET.encode() not in raw_bytes()


def test_what_was_unblocked_can_be_erased(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    run = parked(hf)
    run.unblock(by="operator")
    [unblocked] = seqs(run, "unblocked")
    run.redact(*(entry.seq for entry in run.history()))
    assert run.entry(unblocked).contents == {"by": "operator", "erased": True}
    run.audit()
    hf.close()
    assert SECRET.encode() not in raw_bytes()


def test_why_a_run_was_parked_stays_if_it_has_nothing_of_what_is_erased(hf: Holdfast) -> None:
    run = parked(hf)
    reason = run.info().reason
    run.redact(*seqs(run, "done"))
    assert run.info().reason == reason
    run.redact(*seqs(run, "raised"))
    assert run.info().reason != reason


def test_every_kind_of_ending_can_be_erased(hf: Holdfast, raw_bytes: Callable[..., bytes]) -> None:
    hf.run("failed").fail(ValueError(SECRET))
    hf.run("cancelled").cancel(SECRET)
    hf.run("completed").complete(SECRET)
    for id in ("failed", "cancelled", "completed"):
        run = hf.get(id)
        run.redact(*seqs(run, id))
        assert str(run.status) == id
    hf.close()
    assert SECRET.encode() not in raw_bytes()


def test_what_failed_is_tried_again_also_after_its_error_was_erased(hf: Holdfast) -> None:
    tried: list[str] = []

    @step
    def deliver(to: str) -> str:
        tried.append(to)
        if len(tried) == 1:
            raise ValueError(f"nobody at {to}")
        return "delivered"

    @workflow(name="delivering")
    def delivering(to: str) -> str:
        return deliver(to)

    run = hf.start(delivering, SECRET, id="delivering")
    assert run.status is Status.FAILED
    run.redact(*seqs(run, "failed"), *seqs(run, "raised"))
    run.retry()
    assert run.result() == "delivered"
