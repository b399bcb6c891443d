"""A run that was forked is lost, or its end is: its forks are damaged, and do not begin anew with an empty history."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pgserver import Schemas

import holdfast
from holdfast import Holdfast, ask, step, workflow
from holdfast.errors import RunDamaged, RunNotFound, TimedOut, UsageError

EXECUTED: list[str] = []
REFUSALS = (RunDamaged, RunNotFound, UsageError)  # none of them reads or writes anything


@step
def pack(what: str) -> str:
    EXECUTED.append(what)
    return what


@workflow
def ship(what: str) -> str:
    pack(what)
    ask("Ready?", bool)
    return what


def lose(hf: Holdfast, url: str, uid: str, path: Path, postgres: Callable[[], Schemas]) -> None:
    """Take the journal of a run out of its store, as damage may."""
    if url.startswith("memory"):
        hf.client.store._shelf.runs.pop(uid)
    elif url.startswith("files"):
        [folder] = [found.parent for found in path.rglob("run.json") if f'"uid": "{uid}"' in found.read_text()]
        shutil.rmtree(folder)
    elif url.startswith("sqlite"):
        with closing(sqlite3.connect(path / "runs.db")) as db, db:
            assert db.execute("DELETE FROM run WHERE uid = ?", (uid,)).rowcount == 1
    else:
        schema = url.partition("schema=")[2]
        postgres().execute(f"DELETE FROM {schema}.run WHERE uid = %s", (uid,))


@pytest.fixture(params=["memory", "files", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, memdir: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return {
        "memory": f"memory://{memdir.name}",
        "files": f"files:///{memdir / 'runs'}",
        "sqlite": f"sqlite:///{memdir / 'runs.db'}",
    }[request.param]


def test_a_fork_of_a_run_that_is_lost_is_damaged(url: str, memdir: Path, request: pytest.FixtureRequest) -> None:
    EXECUTED.clear()
    hf = holdfast.open(url)
    with suppress(TimedOut):
        hf.start(ship, "parcel", id="parent").result(timeout=0)
    hf.get("parent").fork(id="child")
    hf.get("child").fork(id="grandchild")
    by_hand = hf.run("by hand")
    by_hand.save({"n": 1})
    by_hand.save({"n": 2})
    by_hand.fork(id="copy")
    for id in ("parent", "by hand"):
        lose(hf, url, hf.get(id).uid, memdir, lambda: request.getfixturevalue("postgres_schemas"))
    with holdfast.open(url) as again:
        for id in ("child", "grandchild", "copy"):
            run = again.get(id)
            for call in (
                lambda run=run: run.checkpoint().completed,
                run.history,
                run.audit,
                run.questions,
                run.effects,
                lambda run=run: run.fork(id="another"),
                lambda run=run: run.resume(),
                lambda run=run: run.save({"n": 3}),
            ):
                with pytest.raises(REFUSALS) as error:
                    call()
                assert "erased" not in str(error.value)
        with pytest.raises(RunDamaged, match=r"child.*missing"):
            again.get("child").checkpoint().completed  # noqa: B018
        with pytest.raises(RunDamaged, match=r"copy.*missing"):
            again.get("copy").history()
    assert EXECUTED == ["parcel"]
    hf.close()
