"""A store on a file system that is mounted to be read: it can be read, and whoever writes gets a typed error."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from stocked import answers, stock, uids

import holdfast
from holdfast import Holdfast, workflow
from holdfast.errors import StoreReadOnly

NAMES = {"sqlite": "runs.db", "files": "runs"}
COMMANDS = "tests/damage/test_read_only.py::test_the_commands_that_read_work"


@workflow
def read_nothing() -> None: ...


class Mount:
    """A folder, and another one at which it can be seen and not written."""

    def __init__(self, folder: Path) -> None:
        self.inside, self.outside = folder / "inside", folder / "outside"
        self.inside.mkdir()
        self.outside.mkdir()
        self.mounted = False

    def close_for_writing(self) -> None:
        for how in (["--bind", str(self.inside)], ["-o", "remount,ro,bind"]):
            done = subprocess.run(["mount", *how, str(self.outside)], capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
            self.mounted = True

    def end(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", self.outside], check=True)


@pytest.fixture
def mount(memdir: Path) -> Iterator[Mount]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a folder to be read alone")
    mount = Mount(memdir)
    yield mount
    mount.end()


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def url_of(kind: str, folder: Path) -> str:
    return f"{kind}:///{folder / NAMES[kind]}"


WRITES: dict[str, Callable[[Holdfast], Any]] = {
    "run": lambda hf: hf.run("new"),
    "save": lambda hf: hf.get("other").save({"n": 2}),
    "claim": lambda hf: hf.get("other").claim(),
    "answer": lambda hf: hf.get("open").answer(True),
    "send": lambda hf: hf.get("open").send(1),
    "start": lambda hf: hf.start(read_nothing, id="new"),
    "enqueue": lambda hf: hf.enqueue(read_nothing, id="new"),
    "fork": lambda hf: hf.get("other").fork(id="new"),
    "cancel": lambda hf: hf.get("open").cancel(),
    "queue": lambda hf: hf.queue("new", limit=1),
    "delete": lambda hf: hf.get("other").delete(),
}


def test_it_can_be_read_and_not_written(kind: str, mount: Mount) -> None:
    stock(lambda: holdfast.open(url_of(kind, mount.inside)))
    with holdfast.open(url_of(kind, mount.inside)) as hf:
        known = uids(hf)
        truth = answers(hf, known)
    mount.close_for_writing()
    with holdfast.open(url_of(kind, mount.outside)) as hf:
        assert answers(hf, known) == truth
        for name, write in WRITES.items():
            with pytest.raises(StoreReadOnly, match=str(mount.outside)):
                pytest.fail(f"{name}: {write(hf)}")
        assert answers(hf, known) == truth
        with pytest.raises(holdfast.RunNotFound):
            hf.get("new")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("files", marks=pytest.mark.slow(covered_by=COMMANDS))])
def test_the_commands_that_read_work(kind: str, mount: Mount) -> None:
    with holdfast.open(url_of(kind, mount.inside)) as hf:
        hf.run("one").save({"n": 1})
    mount.close_for_writing()
    url = url_of(kind, mount.outside)
    told = {}
    for words in (["runs"], ["show", "one"], ["doctor"]):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words, "--store", url], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        told[words[0]] = done.stdout
    assert "one" in told["runs"]
    assert "read-only" in told["doctor"]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "delete", "one", "--yes", "--store", url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Read-only" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_others_commit_is_read_there(mount: Mount) -> None:
    """Through another mount of the same file system, or by another user."""
    hf = holdfast.open(url_of("sqlite", mount.inside))
    hf.run("one").save({"n": 1})
    mount.close_for_writing()
    with holdfast.open(url_of("sqlite", mount.outside)) as reader:
        assert reader.get("one").checkpoint().state == {"n": 1}
        hf.get("one").save({"n": 2})
        assert reader.get("one").checkpoint().state == {"n": 2}
    hf.close()


def test_a_log_that_cannot_be_read_there_is_not_left_out(mount: Mount) -> None:
    """What its last writer committed is in it, so to read the file alone would give an older state."""
    with holdfast.open(url_of("sqlite", mount.inside)) as hf:
        hf.run("zero")
    hf = holdfast.open(url_of("sqlite", mount.inside))
    hf.run("one").save({"n": 1})
    parts = {path: path.read_bytes() for path in mount.inside.glob("runs.db*") if path.is_file()}
    hf.close()
    for path, data in parts.items():
        if not path.name.endswith("-shm"):
            path.write_bytes(data)
    mount.close_for_writing()
    with pytest.raises(StoreReadOnly, match=r"runs\.db"):
        holdfast.open(url_of("sqlite", mount.outside))


def test_a_store_to_be_migrated_says_so(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.stores.sqlite import file

    holdfast.open(url_of("sqlite", mount.inside)).close()
    mount.close_for_writing()
    newer = [*file.migrations(), (99, "")]
    monkeypatch.setattr(file, "migrations", lambda: newer)
    with pytest.raises(StoreReadOnly, match="older version"):
        holdfast.open(url_of("sqlite", mount.outside))
