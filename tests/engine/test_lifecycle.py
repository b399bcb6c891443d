"""A run from its creation to its end, lists of runs, and what looks after a store."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status
from holdfast.engine.access.held_run import HeldRun
from holdfast.errors import (
    Claimed,
    DefinitionChanged,
    LeaseLost,
    RunBlocked,
    RunDamaged,
    RunEnded,
    RunNotFound,
    StoreFull,
    StoreNotFound,
    StoreUnusable,
    UsageError,
)

NOW = timedelta(0)


def ids(page: Any) -> list[str]:
    return [info.id for info in page]


# --- creation


def test_the_same_id_is_the_same_run(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    first = hf.run("run")
    assert hf.run("run").uid == opened().run("run").uid == opened().get("run").uid == first.uid
    assert first.info().seq == 0
    assert repr(first) == "<Run 'run'>"


def test_a_missing_run_is_named(hf: Holdfast) -> None:
    with pytest.raises(RunNotFound, match="run 'nobody'") as missing:
        hf.get("nobody")
    assert missing.value.run == "nobody"


def test_workflow_and_definition_are_checked(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    definition = {"steps": ["a", "b"], "version": 1}
    hf.run("run", workflow="wf", definition=definition)
    again = opened()
    again.run("run")
    again.run("run", workflow="wf")
    again.run("run", definition={"version": 1, "steps": ["a", "b"]})
    for wrong in ({"workflow": "other"}, {"definition": {}}, {"workflow": "wf", "definition": {"version": True}}):
        with pytest.raises(DefinitionChanged, match="run 'run'"):
            again.run("run", **wrong)
    hf.run("plain")
    with pytest.raises(DefinitionChanged):
        hf.run("plain", workflow="wf")
    with pytest.raises(DefinitionChanged):
        hf.run("plain", definition=definition)


def test_a_fork_is_of_the_same_definition(hf: Holdfast) -> None:
    hf.run("run", workflow="wf", definition="v1").fork(id="fork")
    hf.run("fork", workflow="wf", definition="v1")
    with pytest.raises(DefinitionChanged):
        hf.run("fork", definition="v2")


@pytest.mark.parametrize("tags", [{"a": 1}, {1: "a"}, {"a": None}])
def test_tags_are_text(hf: Holdfast, tags: Any) -> None:
    with pytest.raises(UsageError, match="tags are text"):
        hf.run("run", tags=tags)
    assert ids(hf.runs()) == []


# --- the claim


def test_a_claim_is_entered_and_left(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run, other = hf.run("run"), opened().run("run")
    with run.claim() as holding:
        assert run.epoch == holding.epoch == 1
        assert other.status is Status.RUNNING
        assert other.info().holder is not None
        with pytest.raises(Claimed, match="this handle holds"):
            run.claim()
        with pytest.raises(Claimed, match="held by"):
            hf.get("run").claim()  # another handle of the same engine is another holder
    assert run.epoch is None
    assert (other.status, other.info().holder) == (Status.READY, None)
    with other.claim() as holding:
        assert holding.epoch == 2


def test_a_claim_is_given_up_when_the_block_raises(hf: Holdfast) -> None:
    run = hf.run("run")
    with pytest.raises(ValueError, match="boom"), run.claim():
        run.save("kept")
        raise ValueError("boom")
    assert run.status is Status.READY
    assert run.checkpoint().state == "kept"


def test_release_may_be_repeated(hf: Holdfast) -> None:
    run = hf.run("run")
    run.claim()
    run.release()
    run.release()
    with run.claim():
        run.release()
    assert run.status is Status.READY


def test_the_old_holder_is_fenced_out(hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable) -> None:
    """Its process comes back to life after another one took the run over."""
    ghost = opened()
    old = ghost.run("run")
    old.claim()
    old.save("before")
    hf.client.store.beat(ghost.client.engine.worker.name, 0)
    with hf.get("run").claim():
        for write in (lambda: old.save("x"), lambda: old.once("x", len, ""), lambda: old.pause("?"), old.complete):
            with pytest.raises(LeaseLost):
                write()
        assert old.mark("seen", "tool") is True  # which anybody may
    assert hf.get("run").checkpoint().state == "before"
    old.release()
    with old.claim():
        old.save("claimed anew")
    assert hf.get("run").checkpoint().state == "claimed anew"


# --- the end


def test_completing_twice_changes_nothing(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    with run.claim():
        run.complete({"n": 1})
        assert run.epoch is None
    run.complete("other")
    opened().get("run").complete()
    assert run.checkpoint().result == {"n": 1}
    assert run.info().seq == 1
    with pytest.raises(RunEnded):
        run.fail("too late")


def test_a_failed_run_says_why(hf: Holdfast) -> None:
    run = hf.run("run")
    run.fail(ValueError("the disk is gone"))
    run.fail("again")
    assert run.status is Status.FAILED
    with pytest.raises(RunEnded):
        run.complete()
    assert run.checkpoint().result is None


def test_an_ended_run_takes_nothing_more(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save("last")
    run.complete("done")
    for write in (
        lambda: run.save("more"),
        lambda: run.once("x", len, ""),
        lambda: run.pause("?"),
        lambda: run.resolve("x", done=True),
        run.claim,
    ):
        with pytest.raises(RunEnded, match="fork it, or roll it back"):
            write()
    assert run.checkpoint().state == "last"
    fork = run.fork()
    assert fork.status is Status.READY
    assert fork.checkpoint().result is None
    fork.save("more")
    assert run.checkpoint(1).result is None


def test_deleted_runs_are_gone_for_their_handles(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run, other = hf.run("run"), opened().run("run")
    with run.claim(), pytest.raises(Claimed, match="cannot be deleted now"):
        other.delete()
    assert other.delete() is True
    assert other.delete() is False
    for call in (run.checkpoint, run.claim, run.info, lambda: run.save(1), lambda: run.mark("a", "b"), run.history):
        with pytest.raises(RunNotFound):
            call()


# --- lists


def test_runs_are_listed_newest_first_and_paged(hf: Holdfast) -> None:
    made = [f"run-{n}" for n in range(7)]
    for id in made:
        hf.run(id)
    assert ids(hf.runs()) == made[::-1]
    found, after = [], None
    while True:
        page = hf.runs(limit=3, after=after)
        found += ids(page)
        after = page.next
        if after is None:
            break
    assert found == made[::-1]
    assert hf.runs(limit=7).next is None
    with pytest.raises(UsageError, match="at least one"):
        hf.runs(limit=0)


def test_runs_are_filtered(hf: Holdfast) -> None:
    hf.run("a/1", workflow="w", tags={"env": "prod", "team": "x"})
    hf.run("a/2", workflow="w", tags={"env": "test"}).pause("?")
    hf.run("b%_", workflow="v").complete()
    hf.run("bx").fail("no")
    assert ids(hf.runs(workflow="w")) == ["a/2", "a/1"]
    assert ids(hf.runs(prefix="a/")) == ["a/2", "a/1"]
    assert ids(hf.runs(prefix="b%_")) == ["b%_"]
    assert ids(hf.runs(tags={"env": "prod"})) == ["a/1"]
    assert ids(hf.runs(tags={"env": "prod", "team": "y"})) == []
    assert ids(hf.runs(status="waiting")) == ["a/2"]
    assert ids(hf.runs(status=[Status.COMPLETED, "failed"])) == ["bx", "b%_"]
    assert ids(hf.runs(status=Status.READY, workflow="w")) == ["a/1"]
    assert ids(hf.runs(created_before=datetime(2000, 1, 1, tzinfo=UTC))) == []
    assert len(hf.runs(created_from=datetime(2000, 1, 1, tzinfo=UTC))) == 4
    with pytest.raises(UsageError, match="time zone"):
        hf.runs(created_from=datetime(2000, 1, 1))
    with pytest.raises(UsageError, match="ready, running"):
        hf.runs(status="sleeping")


def test_what_a_list_says(hf: Holdfast) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    run = hf.run("run", workflow="w", tags={"a": "b"})
    run.save(1)
    [info] = hf.runs()
    assert info == run.info()
    assert (info.id, info.uid, info.workflow, info.tags, info.seq) == ("run", run.uid, "w", {"a": "b"}, 1)
    assert before < info.created_at <= info.updated_at <= datetime.now(UTC) + timedelta(seconds=1)
    assert (info.status, info.holder, info.reason, info.generation) == (Status.READY, None, None, 0)


# --- recover


def test_recover_makes_orphans_ready_again(hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable) -> None:
    owner = opened()
    for n in range(3):
        run = owner.run(f"run-{n}")
        run.claim()
        run.save(n)
    waiting = owner.run("asked")
    waiting.pause("?")
    waiting.claim()
    live = hf.run("live")
    with live.claim():
        kill(owner)
        assert sorted(hf.recover()) == ["asked", "run-0", "run-1", "run-2"]
        assert hf.recover() == ()
        assert live.status is Status.RUNNING
    assert {info.id: info.status for info in hf.runs() if info.id != "live"} == {
        "run-0": Status.READY,
        "run-1": Status.READY,
        "run-2": Status.READY,
        "asked": Status.WAITING,
    }


def test_a_dead_holders_run_can_be_claimed_without_recover(
    hf: Holdfast, opened: Callable[..., Holdfast], kill: Callable
) -> None:
    owner = opened()
    owner.run("run").claim()
    kill(owner)
    with hf.get("run").claim() as holding:
        assert holding.epoch == 2


# --- parked runs


def test_a_damaged_run_is_parked_with_the_reason(
    hf: Holdfast, opened: Callable[..., Holdfast], damage: Callable
) -> None:
    run = hf.run("run")
    run.once("step", len, "abc")
    run.save(1)
    run.save(2)
    hf.close()
    damage(run, 1)
    again = opened()
    parked = again.get("run")
    with pytest.raises(RunDamaged):
        parked.claim()
    assert parked.status is Status.BLOCKED
    assert parked.info().reason
    with pytest.raises(RunBlocked, match="unblock"):
        parked.claim()
    other = again.run("other")
    other.save("the others go on")
    assert other.checkpoint().state == "the others go on"


def test_unblock_is_for_blocked_runs(hf: Holdfast) -> None:
    with pytest.raises(UsageError, match="is ready, not blocked"):
        hf.run("run").unblock()


# --- prune


def test_prune_wants_to_be_told_what(hf: Holdfast) -> None:
    hf.run("run").complete()
    with pytest.raises(UsageError, match="older_than="):
        hf.prune()
    assert len(hf.runs()) == 1


def test_prune_deletes_what_ended_long_ago(hf: Holdfast) -> None:
    for n in range(4):
        hf.run(f"done-{n}").complete()
    hf.run("failed").fail("x")
    hf.run("ready")
    hf.run("waiting").pause("?")
    assert hf.prune(older_than=timedelta(hours=1)) == ()
    assert sorted(hf.prune(older_than=NOW, dry_run=True)) == ["done-0", "done-1", "done-2", "done-3", "failed"]
    assert len(hf.runs()) == 7
    assert sorted(hf.prune(older_than=NOW, keep_last=2)) == ["done-0", "done-1", "done-2"]
    assert sorted(hf.prune(older_than=NOW, statuses=["failed", "ready"])) == ["failed", "ready"]
    assert sorted(ids(hf.runs())) == ["done-3", "waiting"]
    assert hf.prune(older_than=NOW) == ("done-3",)
    assert hf.prune(older_than=NOW) == ()


def test_prune_never_touches_a_held_run(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    held, free = hf.run("held"), hf.run("free")
    free.save(1)
    everything = list(Status)
    with held.claim():
        assert opened().prune(older_than=NOW, statuses=everything) == ("free",)
        held.save("still here")
    assert held.checkpoint().state == "still here"


def test_prune_keeps_what_forks_share(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save("shared")
    fork = run.fork(id="fork")
    run.complete()
    assert hf.prune(older_than=NOW) == ("run",)
    assert fork.checkpoint().state == "shared"
    fork.audit()


# --- open and close


def test_nothing_works_on_a_closed_store(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    run.save("kept")
    held = hf.run("held")
    held.claim()
    hf.close()
    hf.close()  # may be repeated
    for call in (lambda: hf.run("new"), lambda: run.save(1), run.claim, lambda: run.mark("a", "b"), run.delete):
        with pytest.raises(StoreUnusable):
            call()
    again = opened()
    assert again.get("run").checkpoint().state == "kept"
    assert ids(again.runs(prefix="new")) == []
    assert again.get("held").status is Status.READY  # closing gave it up
    with again.get("held").claim():
        pass


def test_reads_of_a_closed_store_are_refused_too(hf: Holdfast, store_url: str) -> None:
    run = hf.run("run")
    run.save(1)
    hf.close()
    for call in (run.checkpoint, run.history, run.effects, run.info, hf.runs, lambda: hf.get("run"), run.questions):
        with pytest.raises(StoreUnusable):
            call()


def test_a_with_statement_closes(store_url: str) -> None:
    with holdfast.open(store_url) as hf:
        hf.run("run").claim()
    with holdfast.open(store_url) as hf:
        assert hf.get("run").status is Status.READY
        assert store_url.partition(":")[0] in repr(hf)


@pytest.mark.parametrize("url", ["", "nothing", "redis://x", "sqlite:/x", "files://", "sqlite:///", "memory"])
def test_a_url_that_names_no_store(url: str) -> None:
    with pytest.raises(StoreNotFound, match="memory://, files:///path, sqlite:///path or postgresql://"):
        holdfast.open(url)


@pytest.mark.parametrize("lease", [0, -1])
def test_a_lease_lasts_for_some_time(lease: float) -> None:
    with pytest.raises(UsageError, match="more than 0 seconds"):
        holdfast.open("memory://", lease=lease)


def test_an_unknown_option_is_refused(memdir: Any) -> None:
    with pytest.raises(UsageError, match="unknown option fast"):
        holdfast.open(f"sqlite:///{memdir}/x.db?fast=yes")


def test_a_handle_is_not_carried_over_a_fork(hf: Holdfast) -> None:
    run = hf.run("run")
    run.save("parent")
    child = os.fork()
    if child == 0:
        try:
            run.save("child")
        except StoreUnusable:
            os._exit(0)
        except BaseException:
            os._exit(2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run.save("parent again")
    assert run.checkpoint().state == "parent again"


def test_what_a_run_waits_for_is_told_as_it_looks_from_here(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that only looks declares nothing, whatever workers do."""

    @holdfast.workflow(name="hello")
    def hello() -> None:
        """Does nothing."""

    run = hf.enqueue(hello, id="hello-1")
    assert run.info().reason is None
    monkeypatch.setattr("holdfast.engine.run.reading.registered_names", frozenset)
    assert run.info().reason == (
        "waits for a process that declares workflow 'hello', as this one does not; a worker that does goes on with it"
    )


def test_a_store_that_cannot_give_up_its_claims_is_closed(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hf = opened()
    hf.run("run").claim()

    def full(*_: Any) -> Any:
        raise StoreFull(hf.client.store.place)
        yield

    with monkeypatch.context() as patched:
        patched.setattr(HeldRun, "release", full)
        with pytest.raises(StoreFull):
            hf.close()
    with pytest.raises(StoreUnusable):
        hf.get("run")
    assert opened().get("run").claim()  # at once: the worker has signed off


@pytest.mark.parametrize("store_url", ["files", "sqlite"], indirect=True)
def test_a_store_that_cannot_sign_off_its_workers_is_closed(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hf = opened()
    store = hf.client.store
    hf.run("run").claim()

    def full(worker: str) -> None:
        raise StoreFull(store.place)

    with monkeypatch.context() as patched:
        patched.setattr(store, "_retire", full)
        with pytest.raises(StoreFull):
            store.close()
    with pytest.raises(StoreUnusable):
        store.get("run")
    assert opened().get("run").claim()  # at once: its lock is free
