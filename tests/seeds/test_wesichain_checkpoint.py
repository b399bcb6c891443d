"""wesichain's `checkpoint.rs`: typed state, node and queue; the history of a thread; forks at a sequence number.

| its test                          | here                                  |
|-----------------------------------|---------------------------------------|
| fork_creates_new_thread_up_to_seq | test_fork_creates_new_run_up_to_seq   |
| fork_missing_seq_errors           | test_fork_missing_seq_errors          |
| fork_independent_of_origin        | test_fork_independent_of_origin       |

The other tests are named after what is weak there and must hold here. A thread is a run. Its checkpoints are the
entries of kind ``saved``; their numbers are given by `save`, because a journal holds other entries too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from holdfast import Field, Holdfast, Run, Status
from holdfast.errors import NoCheckpoint, RunNotFound


@dataclass(frozen=True)
class Counter:
    """A typed state; an update is added to it."""

    n: int = 0

    def apply(self, update: int) -> "Counter":
        return replace(self, n=self.n + update)


def counted(hf: Holdfast, steps: int) -> tuple[Run, list[int]]:
    """The run "main" with this many checkpoints, and their numbers."""
    run, state = hf.run("main"), Counter()
    with run.claim():
        seqs = []
        for step in range(steps):
            seqs.append(run.save(state, node="node", queue=[("node", step + 1)]))
            state = state.apply(1)
    return run, seqs


def saves(run: Run) -> list[int]:
    return [entry.seq for entry in run.history(kind="saved")]


# --- the counterparts


def test_fork_creates_new_run_up_to_seq(hf: Holdfast) -> None:
    main, seqs = counted(hf, 5)
    fork = main.fork(at=seqs[2])
    assert fork.id != "main"
    assert saves(fork) == seqs[:3]
    latest = fork.checkpoint(type=Counter)
    assert (latest.step, latest.state) == (2, Counter(2))


def test_fork_missing_seq_errors(hf: Holdfast) -> None:
    main, _ = counted(hf, 1)
    for missing in (99, -1, 2):
        with pytest.raises(NoCheckpoint, match=f"no entry {missing}"):
            main.fork(at=missing)
    assert len(hf.runs()) == 1


def test_fork_independent_of_origin(hf: Holdfast) -> None:
    main, seqs = counted(hf, 3)
    fork = main.fork(at=seqs[1])
    main.save(Counter(3))
    assert saves(fork) == seqs[:2]
    fork.save(Counter(100))
    assert main.checkpoint(type=Counter).state == Counter(3)
    assert fork.checkpoint(type=Counter).state == Counter(100)


# --- what is weak there


def test_fork_works_on_every_store_and_lasts(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    main, seqs = counted(hf, 4)
    main.fork(at=seqs[1], id="branch").save(Counter(50), queue=[("other", 1)])

    again = opened().get("branch")
    assert again.checkpoint(type=Counter).state == Counter(50)
    assert again.checkpoint(seqs[1], type=Counter).queue == [("node", 2)]
    assert again.audit().entries == 5


def test_load_at_a_sequence_number(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    main, seqs = counted(hf, 5)
    for seen in (main, opened().get("main")):
        loaded = [seen.checkpoint(seq, type=Counter) for seq in seqs]
        assert [one.state.n for one in loaded] == [0, 1, 2, 3, 4]
        assert [one.queue for one in loaded] == [[("node", n)] for n in range(1, 6)]
        assert [one.state_seq for one in loaded] == seqs
        with pytest.raises(NoCheckpoint):
            seen.checkpoint(99)


def test_lineage_is_kept(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    main, seqs = counted(hf, 3)
    main.fork(at=seqs[1], id="child").fork(id="grandchild")
    again = opened()
    assert again.get("main").info().forked_from is None
    assert again.get("child").info().forked_from == ("main", seqs[1])
    assert again.get("grandchild").info().forked_from == ("child", seqs[1] + 1)
    inherited = [entry.seq for entry in again.get("child").history() if entry.inherited]
    assert inherited == list(range(seqs[1] + 1))


def test_delete_leaves_the_forks(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    main, seqs = counted(hf, 3)
    fork = main.fork(at=seqs[1])
    assert main.delete() is True
    with pytest.raises(RunNotFound):
        hf.get("main")
    assert [info.id for info in hf.runs()] == [fork.id]
    assert opened().get(fork.id).checkpoint(type=Counter).state == Counter(1)
    assert fork.delete() is True
    assert len(hf.runs()) == 0


def test_the_sequence_is_not_the_step(hf: Holdfast) -> None:
    """Every entry has a number of its own in its run, so two checkpoints of one step, or of two runs, never mix."""
    main = hf.run("main")
    first = main.save({"try": 1}, node="search")
    main.once("search", len, "abc")
    second = main.save({"try": 2}, node="search")
    other = hf.run("other").save({"of": "another run"})
    assert second > first + 1
    assert (main.checkpoint(first).state, main.checkpoint(second).state) == ({"try": 1}, {"try": 2})
    assert (main.checkpoint(first).step, main.checkpoint(second).step) == (0, 1)
    assert other == first
    assert hf.get("other").checkpoint(other).state == {"of": "another run"}


def test_approvals_are_kept(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    main, _ = counted(hf, 2)
    main.pause("Deploy?", [Field("ok", "boolean")], output_key="deploy")
    opened().get("main").answer({"ok": True}, by="operator")
    with main.claim():
        assert main.checkpoint().answers == {"deploy": {"ok": True}}
        main.save(Counter(9))
    assert opened().get("main").checkpoint(type=Counter).answers == {"deploy": {"ok": True}}
    assert main.fork().checkpoint().answers == {"deploy": {"ok": True}}


def test_editing_the_state_does_not_drop_pending_work(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """Queue, next node and open questions are still there after a person changed the state."""
    main, _ = counted(hf, 3)
    main.save(Counter(3), next="node", queue=[("node", 4), ("tool", 4)])
    main.pause("Go on?")

    editor = opened().get("main")
    seen = editor.checkpoint(type=Counter)
    with editor.claim():
        editor.save(replace(seen.state, n=70), next=seen.next, queue=seen.queue)

    after = opened().get("main")
    assert after.status is Status.WAITING
    assert after.checkpoint(type=Counter).state == Counter(70)
    seen = after.checkpoint(type=Counter)
    assert (seen.next, seen.queue) == ("node", [("node", 4), ("tool", 4)])
    assert [question.prompt for question in after.questions()] == ["Go on?"]


def test_one_torn_line_does_not_break_loads(
    hf: Holdfast, opened: Callable[..., Holdfast], store_url: str, journal_file: Callable
) -> None:
    """A writer that died halfway through a line: what was acknowledged is read, and the run goes on."""
    _, seqs = counted(hf, 3)
    hf.run("neighbour").save("whole")
    hf.close()
    if store_url.startswith("files"):  # elsewhere no line can be torn; the rest of the test holds on every store
        path = journal_file("main")
        line = path.read_bytes().splitlines(keepends=True)[-1]
        with path.open("ab") as file:
            file.write(line[: len(line) // 2])

    again = opened()
    assert again.get("neighbour").checkpoint().state == "whole"
    assert saves(again.get("main")) == seqs
    assert again.get("main").checkpoint(type=Counter).state == Counter(2)
    assert again.get("main").save(Counter(3)) == seqs[-1] + 1
    assert again.get("main").audit().entries == 5
