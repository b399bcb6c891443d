"""Several processes at work in one store at the same time lose nothing of each other's, and do not get in the way."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sizes import size

import holdfast

Crew = Callable[[int], list[Any]]
AllAtOnce = Callable[..., list[Any]]
Say = Callable[[str], None]


@pytest.fixture
def opened_crew(quick_url: str, crew: Crew) -> Crew:
    """Makes members that have the store open."""

    def gather(size: int) -> list[Any]:
        members = crew(size)
        for member in members:
            member.send("open", url=quick_url)
        for member in members:
            member.reply()
        return members

    return gather


@pytest.mark.parametrize("holder", ["nobody", "one-of-them"])
@pytest.mark.parametrize("marks", [size(100, 500), pytest.param(1_000, marks=pytest.mark.torture)])
def test_marks_of_two_processes_are_all_kept(
    quick_url: str, holder: str, marks: int, opened_crew: Crew, all_at_once: AllAtOnce, kind: str, counts: Say
) -> None:
    one, two = opened_crew(2)
    if holder != "nobody":
        one.do("claim", id="thread")
    outcomes = all_at_once([one, two], "mark", id="thread", count=marks, each=[{"prefix": "a"}, {"prefix": "b"}])
    assert outcomes == [marks, marks]
    expected = {f"{prefix}{n}" for prefix in "ab" for n in range(marks)}
    with holdfast.open(quick_url) as hf:
        run = hf.get("thread")
        assert {effect.key for effect in run.effects()} == expected  # also those that wait in the inbox
        if holder != "nobody":
            one.do("release", id="thread")
        with run.claim():
            assert run.checkpoint().completed == expected
            assert not run.mark("a0", "tool")
        assert len(run.effects()) == 2 * marks
        run.audit()
    counts(f"marks at once: {kind}, held by {holder}, made {2 * marks}, lost 0")


def test_the_same_marks_of_two_processes_count_once(
    quick_url: str, opened_crew: Crew, all_at_once: AllAtOnce, kind: str, counts: Say
) -> None:
    marks = 60
    outcomes = all_at_once(opened_crew(3), "mark", id="thread", prefix="m", count=marks)
    assert sum(outcomes) == marks, "each mark is new for exactly one of them"
    with holdfast.open(quick_url) as hf:
        assert sorted(effect.key for effect in hf.get("thread").effects()) == sorted(f"m{n}" for n in range(marks))
    counts(f"the same marks at once: {kind}, made {3 * marks}, new {sum(outcomes)}, kept {marks}")


def test_one_run_per_id_however_many_create_it(
    quick_url: str, opened_crew: Crew, all_at_once: AllAtOnce, kind: str, counts: Say
) -> None:
    members = opened_crew(4)
    ids = [f"order {n}" for n in range(50)]
    got = all_at_once(members, "create", ids=ids)
    assert got[0] == got[1] == got[2] == got[3]
    with holdfast.open(quick_url) as hf:
        found = {info.id: info.uid for info in hf.runs(limit=1000)}
    assert found == dict(zip(ids, got[0], strict=True))
    counts(f"creations at once: {kind}, processes 4, ids {len(ids)}, runs made {len(found)}")


@pytest.mark.parametrize("saves", [40, pytest.param(2_000, marks=pytest.mark.torture)])
def test_six_writers_of_different_runs_do_not_disturb_each_other(
    url: str, saves: int, crew: Crew, all_at_once: AllAtOnce, refused: type[Exception], kind: str, counts: Say
) -> None:
    members = crew(6)
    for member in members:
        member.do("open", url=url)
    names = [f"w{n}" for n in range(6)]
    began = time.monotonic()
    outcomes = all_at_once(members, "saves", count=saves, each=[{"id": name, "name": name} for name in names])
    seconds = time.monotonic() - began
    assert [outcome for outcome in outcomes if isinstance(outcome, refused)] == []
    with holdfast.open(url) as hf:
        for name, seqs in zip(names, outcomes, strict=True):
            run = hf.get(name)
            assert [run.checkpoint(seq).state for seq in seqs] == [{"by": name, "n": n} for n in range(saves)]
            run.audit()
    counts(f"writers at once: {kind}, processes 6, states saved {6 * saves} in {seconds:.1f} s, busy errors 0")


@pytest.mark.parametrize("stores", [size(1, 5), pytest.param(100, marks=pytest.mark.torture)])
@pytest.mark.parametrize("store", ["sqlite", "files"])
def test_eight_processes_make_a_new_store_at_once(
    disk: Path, store: str, stores: int, crew: Crew, all_at_once: AllAtOnce, refused: type[Exception], counts: Say
) -> None:
    members = crew(8)
    for n in range(stores):
        url = f"sqlite:///{disk}/{n}/runs.db" if store == "sqlite" else f"files:///{disk}/{n}/runs"
        if store == "sqlite":
            (disk / str(n)).mkdir()
        same_id = [{"id": "shared" if number % 2 else f"own-{number}"} for number in range(8)]
        outcomes = all_at_once(members, "open_and_use", url=url, each=same_id)
        errors = [outcome for outcome in outcomes if isinstance(outcome, refused) and outcome.kind != "Claimed"]
        assert errors == []
        assert all_at_once(members, "close") == [None] * 8
        with holdfast.open(url) as hf:
            assert {info.id for info in hf.runs()} == {"shared", "own-0", "own-2", "own-4", "own-6"}
            for info in hf.runs():
                hf.audit(info.id)
    counts(f"stores made at once: {store}, stores {stores}, processes 8, failed 0")


@pytest.mark.parametrize("questions", [size(5, 20), pytest.param(300, marks=pytest.mark.torture)])
def test_of_five_answers_one_counts(
    quick_url: str,
    questions: int,
    opened_crew: Crew,
    all_at_once: AllAtOnce,
    refused: type[Exception],
    kind: str,
    counts: Say,
) -> None:
    members = opened_crew(5)
    with holdfast.open(quick_url) as hf:
        run = hf.run("thread")
        for n in range(questions):
            run.pause("which?", output_key=f"a{n}")
            assert run.status == "waiting"
            outcomes = all_at_once(members, "answer", id="thread", each=[{"value": k} for k in range(5)])
            winners = [k for k, outcome in enumerate(outcomes) if not isinstance(outcome, refused)]
            assert len(winners) == 1, outcomes
            assert {outcome.kind for outcome in outcomes if isinstance(outcome, refused)} == {"QuestionClosed"}
            assert run.status == "ready"
            with run.claim():
                assert run.checkpoint().answers[f"a{n}"] == winners[0]
        assert len(run.history(limit=1000, kind="answered")) == questions
        run.audit()
    counts(f"answers at once: {kind}, questions {questions}, processes 5, answers taken {questions}")
