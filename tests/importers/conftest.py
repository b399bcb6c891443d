"""The files of the five source systems, written by hand from their documents."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast

FIXTURES = Path(__file__).with_name("fixtures")
FOLDERS = {
    "mur": "mur",
    "car": "car",
    "simple-agents": "simple_agents",
    "wesichain": "wesichain",
    "brainwires": "brainwires",
}


@pytest.fixture(params=FOLDERS)
def system(request: pytest.FixtureRequest) -> str:
    """Each of the systems."""
    return str(request.param)


@pytest.fixture
def left(memdir: Path) -> Callable[[str], Path]:
    """A copy of what a system left on disk."""

    def copy(system: str) -> Path:
        return Path(shutil.copytree(FIXTURES / FOLDERS[system], memdir / "left" / FOLDERS[system]))

    return copy


@pytest.fixture
def change() -> Callable[..., Path]:
    """Changes fields of a JSON file: ``change(path, step=4)``; a field that is given as ``...`` is removed."""

    def write(path: Path, **fields: Any) -> Path:
        record = json.loads(path.read_text("utf-8")) | fields
        kept = {name: value for name, value in record.items() if value is not ...}
        path.write_text(json.dumps(kept, indent=None if path.suffix == ".jsonl" else 2), "utf-8")
        return path

    return write


@pytest.fixture
def tree() -> Callable[[Path], dict[str, bytes | None]]:
    """All that is below a folder."""

    def read(folder: Path) -> dict[str, bytes | None]:
        return {
            str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in sorted(folder.rglob("*"))
        }

    return read


@pytest.fixture
def everything() -> Callable[[Holdfast], dict[str, Any]]:
    """All that is in a store, but for times and uids."""

    def read(hf: Holdfast) -> dict[str, Any]:
        told = {}
        for info in hf.runs(limit=1000):
            run = hf.get(info.id)
            entries = [run.entry(entry.seq) for entry in run.history(limit=1000)]
            told[info.id] = {
                "status": info.status,
                "workflow": info.workflow,
                "tags": info.tags,
                "entries": [(entry.seq, entry.kind, entry.contents) for entry in entries],
                "states": [
                    (at.state, at.node, at.next, at.queue, at.variables)
                    for at in (run.checkpoint(entry.seq) for entry in entries if entry.kind == "saved")
                ],
                "audited": run.audit().entries,
            }
        return told

    return read
