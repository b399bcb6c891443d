"""CAR's `CheckpointStore`: a paused workflow that is saved, claimed exactly once, completed, re-armed, and listed.

| its test                        | here                                |
|---------------------------------|-------------------------------------|
| save_load_remove_roundtrip      | test_save_load_remove_roundtrip     |
| claim_is_exactly_once           | test_claim_is_exactly_once          |
| recover_rearms_orphaned_inflight | test_recover_rearms_orphans        |

The other tests are named after what is weak there and must hold here. A paused workflow is a run with an open
question; its stage, state and results are the checkpoint's.
"""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Field, Holdfast, Run, Status
from holdfast.errors import Claimed, InvalidId, LeaseLost, RunDamaged, RunEnded, RunNotFound

STATE = {"branch": "main", "results": [1, 2], "iterations": 1}


def paused(hf: Holdfast, id: str) -> Run:
    """A run that waits at its gate."""
    run = hf.run(id, workflow="WF")
    with run.claim():
        run.save(STATE, node="gate", next="deploy")
        run.once("build", str.upper, "built")
        run.pause("approve?", [Field("ok", "boolean")], output_key="approval")
    return run


def ids(hf: Holdfast, *statuses: Status) -> list[str]:
    return sorted(info.id for info in hf.runs(status=statuses or None))


# --- the counterparts


def test_save_load_remove_roundtrip(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    with pytest.raises(RunNotFound):
        hf.get("missing")
    paused(hf, "run-1")

    loaded = opened().get("run-1")
    [question] = loaded.questions()
    assert (loaded.id, question.output_key, question.prompt) == ("run-1", "approval", "approve?")
    checkpoint = loaded.checkpoint()
    assert (checkpoint.node, checkpoint.next, checkpoint.state) == ("gate", "deploy", STATE)
    assert checkpoint.results == {"build": "BUILT"}
    assert ids(hf, Status.WAITING) == ["run-1"]

    assert loaded.delete() is True
    with pytest.raises(RunNotFound):
        hf.get("run-1")
    assert loaded.delete() is False  # may be repeated
    assert ids(hf) == []


def test_claim_is_exactly_once(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    paused(hf, "run-x")
    first, second = hf.get("run-x"), opened().get("run-x")
    first.claim()
    assert ids(hf, Status.WAITING, Status.READY) == []
    with pytest.raises(Claimed):
        second.claim()

    first.complete("done")
    first.complete("done")  # may be repeated
    for run in (first, second):
        with pytest.raises(RunEnded):
            run.claim()
    assert second.checkpoint().result == "done"


def test_recover_rearms_orphans(hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable) -> None:
    owner = opened()
    paused(owner, "crashed").claim()
    with pytest.raises(Claimed):
        hf.get("crashed").claim()
    kill(owner)
    assert ids(hf, Status.RUNNING) == ["crashed"]
    assert hf.recover() == ("crashed",)
    assert ids(hf, Status.WAITING) == ["crashed"]
    with hf.get("crashed").claim():
        pass
    hf.get("crashed").complete()

    # A run that was given up in good order is not re-armed because its former holder died.
    other = opened()
    with paused(other, "both").claim():
        pass
    kill(other)
    assert hf.recover() == ()
    with hf.get("both").claim():
        pass


# --- what is weak there


def test_two_claimers_never_destroy_the_checkpoint(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """Of many at the same moment exactly one gets the run, and what was paused is all there."""
    paused(hf, "run")
    handles = [opened().get("run") for _ in range(6)]
    for _ in range(5):
        barrier = threading.Barrier(len(handles))
        outcomes: list[Run | type] = []

        def claim(run: Run, barrier: threading.Barrier = barrier, outcomes: list[Run | type] = outcomes) -> None:
            barrier.wait()
            try:
                run.claim()
                outcomes.append(run)
            except Claimed:
                outcomes.append(Claimed)

        threads = [threading.Thread(target=claim, args=(run,)) for run in handles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == len(handles)
        [winner] = [run for run in outcomes if run is not Claimed]
        assert winner.checkpoint().state == STATE
        assert [question.prompt for question in winner.questions()] == ["approve?"]
        winner.release()


def test_a_second_process_cannot_steal_a_live_run(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """Not by claiming, not by recovering, not by deleting or pruning."""
    run = paused(hf, "run")
    thief = opened()
    with run.claim():
        assert thief.recover() == ()
        assert thief.prune(keep_last=0, older_than=timedelta(0), statuses=list(Status)) == ()
        with pytest.raises(Claimed):
            thief.get("run").claim()
        with pytest.raises(Claimed):
            thief.get("run").save({})
        with pytest.raises(Claimed):
            thief.get("run").complete()
        with pytest.raises(Claimed):
            thief.get("run").delete()
        run.save("still mine")
    assert thief.get("run").checkpoint().state == "still mine"


def test_an_old_owner_cannot_complete_a_new_claim(opened: Callable[..., Holdfast]) -> None:
    """Its epoch is over: every write of it is refused, and the new owner's claim stands."""
    sleeper, owner = opened(lease=0.05), opened()
    old = paused(sleeper, "run")
    sleeper.client.engine.worker.stop()  # its machine sleeps: no heartbeats
    old = sleeper.get("run")
    old.claim()
    time.sleep(0.1)

    new = owner.get("run")
    new.claim()
    for write in (lambda: old.complete("late"), lambda: old.save("late"), lambda: old.once("late", len, "")):
        with pytest.raises(LeaseLost):
            write()
    old.release()  # gives up nothing that is not its own
    assert new.status is Status.RUNNING
    assert old.epoch is None
    new.complete("in time")
    assert new.checkpoint().result == "in time"
    assert new.checkpoint().state == STATE


def test_a_corrupt_run_is_not_rearmed_for_ever(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable, damage: Callable
) -> None:
    """It is parked with the reason, once; the other runs are recovered all the same."""
    owner = opened()
    broken, whole = paused(owner, "broken"), paused(owner, "whole")
    broken.claim()
    whole.claim()
    kill(owner)
    damage(broken, 2)  # the result of the step, which the claim has to read

    assert hf.recover() == ("whole",)
    assert hf.recover() == ()
    assert hf.get("broken").status is Status.BLOCKED
    assert "entry 2" in hf.get("broken").info().reason or "journal.jsonl" in hf.get("broken").info().reason
    with pytest.raises(RunDamaged):
        hf.get("broken").audit()
    fork = hf.get("broken").fork(at=1)
    assert fork.checkpoint().state == STATE


@pytest.mark.parametrize(
    "id",
    [
        "../../escaped",
        "..",
        ".",
        "/tmp/escaped",
        "a/../../escaped",
        "run.json",
        "new\nline",
        "nul\0",
        "C:\\x",
        "%2e%2e%2f",
        "ſ",
        "x" * 512,
    ],
)
def test_the_run_id_is_opaque_and_never_a_path(
    opened: Callable[..., Holdfast], memdir: Path, store_url: str, id: str
) -> None:
    hf = opened()
    hf.run("neighbour").save("untouched")
    run = paused(hf, id)
    assert hf.get(id).checkpoint().state == STATE
    assert {path.name.partition(".")[0] for path in memdir.iterdir()} <= {"runs"}
    assert not list(memdir.parent.glob("escaped*"))
    run.delete()
    assert ids(hf) == ["neighbour"]
    assert hf.get("neighbour").checkpoint().state == "untouched"


@pytest.mark.parametrize("id", ["", "x" * 513, "lone \ud800", 7, None, b"run"])
def test_an_id_that_cannot_be_kept_is_refused(hf: Holdfast, id: object) -> None:
    with pytest.raises(InvalidId):
        hf.run(id)
    with pytest.raises(InvalidId):
        hf.get(id)
    with pytest.raises(InvalidId):
        hf.run("run").fork(id=id if id is not None else "")
    assert ids(hf) == ["run"]


def test_state_is_saved_between_gates(hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable) -> None:
    """A run that dies long before its gate goes on from its last save, with the results of its steps."""
    owner = opened()
    run = owner.run("run")
    run.claim()
    run.once("fetch", str.upper, "page")
    run.save({"fetched": 1})
    run.once("parse", str.upper, "tree")
    kill(owner)

    again = hf.get("run")
    with again.claim():
        assert again.checkpoint().state == {"fetched": 1}
        assert again.checkpoint().results == {"fetch": "PAGE", "parse": "TREE"}
