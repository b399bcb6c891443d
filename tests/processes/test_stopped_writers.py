"""A process that is stopped in the middle of a write: others read SQLite, and who waits in vain is told who it is."""

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from children import Child

READING = [("runs",), ("show", "thread"), ("history", "thread"), ("workers",), ("questions",), ("queues",), ("audit",)]
# The command line as it is, but for the time after which it gives up.
IMPATIENT = """
from holdfast.cli import cli
from holdfast.stores.sqlite import connect, file, transactions

for module in (connect, file, transactions):
    module.BUSY_SECONDS = 0.5
cli()
"""


@pytest.fixture
def path(memdir: Path) -> Path:
    return memdir / "runs.db"


def has_turn(path: Path) -> bool:
    """Whether somebody is inside of a write."""
    return is_locked(Path(f"{path}.locks/writer"))


def is_locked(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@pytest.fixture(params=["step", "commits"])
def stopped(request: pytest.FixtureRequest, path: Path, children: Callable[..., Child]) -> Child:
    """A process that is stopped inside a transactional step, or inside a commit."""
    child = children("stopped.py", f"sqlite:///{path}", request.param)
    line = child.line()
    if request.param == "step":
        assert line == "stopping"
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        return child
    assert line == "writing"
    while True:
        child.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        if has_turn(path):
            return child
        child.signal(signal.SIGCONT)


def command(
    store: Path | str, *words: str, begin: tuple[str, ...] = ("-m", "holdfast")
) -> subprocess.CompletedProcess[str]:
    url = f"sqlite:///{store}" if isinstance(store, Path) else store
    return subprocess.run([sys.executable, *begin, *words, "--store", url], capture_output=True, text=True, check=False)


def test_everybody_reads_meanwhile(path: Path, stopped: Child) -> None:
    for words in READING:
        done = command(path, *words, begin=("-c", IMPATIENT))
        assert done.returncode == 0, (words, done.stderr)
        assert words[0] not in ("runs", "show", "workers") or "thread" in done.stdout
    assert has_turn(path)
    assert command(path, "runs").returncode == 0  # the command as it is


def test_a_writer_is_told_which_process_it_waited_for(path: Path, stopped: Child) -> None:
    done = command(path, "queue", "mail", "--pause", begin=("-c", IMPATIENT))
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert f"process {stopped.pid} (" in said
    assert "stopped.py" in said
    assert re.search(r"has kept the store locked since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", said)
    assert f"kill -CONT {stopped.pid}" in said


@pytest.mark.parametrize("stopped", ["step"], indirect=True)
def test_once_it_continues_so_do_the_others(path: Path, stopped: Child) -> None:
    stopped.signal(signal.SIGCONT)
    assert command(path, "queue", "mail", "--pause").returncode == 0
    assert stopped.line() == "done"


def test_a_transaction_of_the_users_own_is_named_too(path: Path, children: Callable[..., Child]) -> None:
    child = children("stopped.py", f"sqlite:///{path}", "own")
    assert child.line() == "stopping"
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
    assert command(path, "runs").returncode == 0
    done = command(path, "queue", "mail", "--pause", begin=("-c", IMPATIENT))
    assert done.returncode != 0
    assert f"a transaction of process {child.pid} (" in " ".join(done.stderr.split())


# --- files


def test_a_folder_that_a_stopped_process_has_locked_is_waited_for_so_long(
    memdir: Path, children: Callable[..., Child]
) -> None:
    """Those who read need the lock of the run's folder too. They are told who has it, and do not wait for ever."""
    store = memdir / "runs"
    child = children("stopped.py", f"files:///{store}", "commits")
    assert child.line() == "writing"
    [lock] = store.glob("runs/*/lock")
    while True:
        child.signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        if is_locked(lock):
            break
        child.signal(signal.SIGCONT)
    impatient = (
        "import sys, holdfast.stores.lock_holder as b; b.FOLDER_SECONDS = 0.5; from holdfast.cli import cli; cli()"
    )
    for words in [("runs",), ("show", "thread"), ("cancel", "thread")]:
        done = command(f"files:///{store}", *words, begin=("-c", impatient))
        said = " ".join(done.stderr.split())
        assert done.returncode == 10, (words, said)
        assert f"process {child.pid} (" in said
        assert f"kill -CONT {child.pid}" in said
    child.signal(signal.SIGCONT)
    assert command(f"files:///{store}", "runs").returncode == 0
