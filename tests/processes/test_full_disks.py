"""A disk without room is an error with a name, also while a store is made; it never kills the process."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
import small_disk
from children import Child


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
def test_a_store_that_is_opened_on_a_full_disk(tmp_path: Path, children: Callable[..., Child], scheme: str) -> None:
    (tmp_path / "disk").mkdir()
    child = children(small_disk.__file__, str(tmp_path / "disk"), scheme)
    found: dict[str, str] = {}
    while (line := child.line()) is not None and line != "done":
        if line.startswith("no disk"):
            pytest.skip(f"this system lets nobody make a disk of his own: {line}")
        pages, _, what = line.partition(" ")
        found[pages] = what
    assert line == "done", f"it ended with {child.process.wait(60)} after {found}"
    assert {what.partition(":")[0] for what in found.values()} == {"StoreFull", "opened"}, found
    assert "the disk is full" in found["0"]


def test_a_lock_file_that_is_truncated_under_a_live_process(memdir: Path, children: Callable[..., Child]) -> None:
    script = memdir / "script.py"
    script.write_text(
        dedent(
            """
            import os, sys
            import holdfast

            with holdfast.open(f"sqlite:///{sys.argv[1]}/runs.db") as hf:
                run = hf.run("run")
                with run.claim():
                    for n in range(3):
                        run.once(f"before {n}", str, n)
                    for found in os.scandir(f"{sys.argv[1]}/runs.db.locks"):
                        os.truncate(found.path, 0)
                    for n in range(3):
                        run.once(f"after {n}", str, n)
                print(len(run.history()), flush=True)
            """
        )
    )
    child = children(str(script), str(memdir))
    assert child.line() == "7", f"it ended with {child.process.wait(60)}"
