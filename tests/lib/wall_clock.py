"""Processes whose wall clock is another one than the machine's, by libfaketime."""

import shutil
import subprocess
import time
from functools import cache
from pathlib import Path

SHARED = Path("/dev/shm")
LEFT = "faketime_shm_"  # and the number of the process that made it


@cache
def library() -> str:
    """The library to preload. The program `faketime` is not asked: it fails where a killed process left its memory."""
    program = shutil.which("faketime")
    assert program is not None
    found = sorted(Path(program).parent.parent.glob("lib*/**/faketime/libfaketimeMT.so*"))
    assert found, f"{program} is installed, and its library libfaketimeMT.so is not found beside it"
    return str(found[0])


def env_of(**more: str) -> dict[str, str]:
    """The environment of a process with a wall clock of its own. Its monotonic clock is the machine's."""
    _remove_left()
    return {"LD_PRELOAD": library(), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **more}


def check_ahead(env: dict[str, str], seconds: float) -> None:
    """See that a process with this environment is so far ahead."""
    shown = subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True, env=env).stdout
    assert abs(int(shown) - time.time() - seconds) < 5


def _remove_left() -> None:
    """Remove the shared memory of killed processes: a new process with the number of one would end at once."""
    for file in SHARED.glob(f"{LEFT}*"):
        if not Path("/proc", file.name.removeprefix(LEFT)).exists():
            file.unlink(missing_ok=True)
