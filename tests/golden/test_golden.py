"""Stores that an earlier version wrote (see write.py) are opened, resumed, forked and rolled back by this one."""

import gzip
import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import golden_runs as golden
import pgserver
import pytest
from golden_runs import Address

import holdfast
from holdfast import Holdfast, Status
from holdfast.errors import Redacted
from holdfast.stores import migrate

HERE = Path(__file__).parent
WRITTEN = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "asking": "waiting",
    "answered": "ready",
    "forked": "ready",
    "buying": "waiting",
    "listening": "ready",
    "sleeping": "waiting",
    "blocked": "blocked",
    "parent": "waiting",
    "queued": "ready",
    "graph": "waiting",
    "flow": "waiting",
    "by-hand": "ready",
    "erased": "ready",
    "encrypted": "waiting",
    "running": "running",
}


@pytest.fixture(params=["sqlite", "files", "postgres"])
def url(request: pytest.FixtureRequest, memdir: Path) -> Iterator[str]:
    """A copy of a golden store."""
    if request.param == "sqlite":
        (memdir / "runs.db").write_bytes(gzip.decompress((HERE / "runs.db.gz").read_bytes()))
        yield f"sqlite:///{memdir / 'runs.db'}"
        return
    if request.param == "files":
        with tarfile.open(fileobj=io.BytesIO((HERE / "files.tar.gz").read_bytes())) as archive:
            archive.extractall(memdir, filter="data")
        yield f"files:///{memdir / 'files'}"
        return
    server = request.getfixturevalue("postgres_server")
    schema = f"golden_{memdir.name[-8:]}".lower().replace("-", "_")
    text = (HERE / "postgres.sql").read_text()
    for before, after in (
        ("golden.", f"{schema}."),
        ('"golden".', f"{schema}."),
        ("SCHEMA golden", f"SCHEMA {schema}"),
    ):
        text = text.replace(before, after)
    psql = [str(pgserver.programs() / "psql"), "-q", "-v", "ON_ERROR_STOP=1", server]
    subprocess.run(psql, input=text, text=True, check=True, capture_output=True)
    migrated = f"{server}{'&' if '?' in server else '?'}schema={schema}"
    migrate(migrated)
    yield migrated
    subprocess.run([*psql[:-1], "-c", f"DROP SCHEMA {schema} CASCADE", server], check=True, capture_output=True)


def known(hf: Holdfast) -> Holdfast:
    """The store, with the types that no annotation names."""
    for kind in (golden.Address, golden.Parcel, golden.Order, golden.Colour):
        hf.register(kind)
    return hf


@pytest.fixture
def hf(url: str, monkeypatch: pytest.MonkeyPatch, memdir: Path) -> Any:
    monkeypatch.chdir(memdir)
    golden.undone.clear()
    with holdfast.open(url, keys=golden.KEYS, secrets={"token": "golden-secret-value"}) as opened:
        yield known(opened)


def test_everything_can_be_read(hf: Holdfast) -> None:
    found = {info.id: str(info.status) for info in hf.runs(limit=100) if info.parent is None}
    assert found == WRITTEN
    for id in WRITTEN:
        run = hf.get(id)
        run.audit()
        run.info(), run.steps(), run.effects(), run.questions(), run.history()
    assert hf.get("completed").result() == golden.everything()
    assert [type(one) for one in hf.get("completed").result()["classes"]] == [
        golden.Address,
        golden.Parcel,
        golden.Order,
    ]
    assert [info.id for info in hf.runs(tags={"team": "sales"})] == ["forked", "asking", "completed"]
    assert hf.get("completed").info().tags == {"team": "sales", "ü": "é"}
    with pytest.raises(LookupError, match="nothing there"):
        hf.get("failed").result()
    with pytest.raises(Redacted):
        hf.get("erased").checkpoint(1)
    [weekly] = hf.schedules()
    assert (weekly.id, weekly.cron, weekly.tz, weekly.paused) == ("weekly", "30 0 9 * * 1-5", "Europe/Oslo", True)
    mail = hf.queue("mail").info()
    assert (mail.limit, mail.per_key) == (2, 1)


RESUMED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "asking": (lambda run: run.answer(Address("Main", 5)), "4 to Main 5"),
    "forked": (lambda run: run.answer(Address("Fork", 6)), "4 to Fork 6"),
    "answered": (lambda run: None, "6 to Side 9"),
    "buying": (lambda run: run.answer("yes"), "receipt for 500, yes"),
    "listening": (lambda run: run.send("first", topic="a"), ["first", {"n": 1}]),
    "graph": (lambda run: run.answer("good"), {"text": "draft 0", "notes": ["written", "good"]}),
    "flow": (lambda run: run.answer("sure"), {"said": "tidy the attic", "sure": "sure"}),
    "queued": (lambda run: None, "report of stock"),
    "encrypted": (lambda run: run.answer("this"), "kept this <Secret 'token'>"),
}


@pytest.mark.parametrize("id", RESUMED)
def test_it_is_resumed(hf: Holdfast, id: str) -> None:
    act, expected = RESUMED[id]
    run = hf.get(id)
    act(run)
    run.resume()
    assert run.result() == expected
    run.audit()


def test_a_parent_goes_on_with_its_child(hf: Holdfast) -> None:
    [child] = [info for info in hf.runs(limit=100) if info.parent is not None]
    hf.get(child.id).answer(5)
    hf.get(child.id).resume()
    hf.get("parent").resume()
    assert hf.get("parent").result() == "parent of child of 5"


def test_what_stopped_goes_on(hf: Holdfast, url: str) -> None:
    hf.get("blocked").resolve("transfers#1", done=True, result=None)
    hf.get("blocked").resume()
    assert hf.get("blocked").status is Status.COMPLETED
    hf.get("failed").retry()
    hf.get("failed").resume()
    assert hf.get("failed").status is Status.FAILED
    if not url.startswith("postgresql"):  # there a death is known when its lease is over
        assert hf.recover() == ("running",)
        with hf.get("running").claim() as run:
            assert run.checkpoint().state == {"n": 1}
            run.save({"n": 2})


def test_it_is_forked(hf: Holdfast) -> None:
    for id in WRITTEN:
        if id in ("blocked", "erased", "running"):
            continue
        run = hf.get(id)
        fork = run.fork(id=f"{id}-again")
        fork.audit()
        assert fork.checkpoint().state == run.checkpoint().state
    again = hf.get("asking").fork(id="another", input={"n": 10})
    again.resume()
    again.answer(Address("Other", 1))
    again.resume()
    assert again.result() == "20 to Other 1"


def test_it_is_rolled_back(hf: Holdfast) -> None:
    report = hf.get("buying").rollback(to=0)
    assert [effect.key for effect in report.undone] == ["charge#1"]
    assert golden.undone == [("receipt for 500", "kim", 500)]
    run = hf.get("by-hand")
    assert run.checkpoint().state == {"lines": ["one", "other"], "address": Address("Main", 3)}
    run.rollback(to=1)
    assert run.checkpoint().state == {"lines": ["one"], "address": Address("Main", 1)}
    assert run.checkpoint().next == "tool"
    run.save({"lines": []})
    run.audit()


def test_it_is_backed_up_and_moved(hf: Holdfast, memdir: Path) -> None:
    assert hf.backup(str(memdir / "backup")) == len(WRITTEN) + 1
    with holdfast.open("memory://", keys=golden.KEYS) as copy:
        known(copy).restore(str(memdir / "backup"))
        assert copy.get("completed").result() == golden.everything()
