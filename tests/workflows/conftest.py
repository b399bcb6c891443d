"""What the tests of workflows share: a clock of their own, and other processes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from typing import Any, NoReturn

import pytest

import holdfast
from holdfast import Holdfast
from holdfast.errors import StoreUnusable
from holdfast.stores import open_store
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def timed(store_url: str, clock: ManualClock) -> Iterator[Callable[..., Holdfast]]:
    """Opens the store with the clock of this test; each call is another holder."""
    handles: list[Holdfast] = []

    def opener(**how: Any) -> Holdfast:
        handles.append(holdfast.open(store_url, store=open_store(store_url, clock=clock), **how))
        return handles[-1]

    yield opener
    for handle in handles:
        with suppress(StoreUnusable):  # of one that was killed
            handle.close()


@pytest.fixture
def hft(timed: Callable[..., Holdfast]) -> Holdfast:
    """The store, open, with a clock that moves only when it is told to."""
    return timed()


@pytest.fixture
def die(kill: Callable[[Holdfast], None]) -> Callable[[Holdfast], NoReturn]:
    """Called inside of a step: the process that has the handle is dead from here on. `Crash` or StoreUnusable comes."""

    def dying(handle: Holdfast) -> NoReturn:
        kill(handle)
        raise Crash

    return dying


@pytest.fixture(params=["files", "sqlite"])
def shared_url(request: pytest.FixtureRequest, memdir: Path) -> str:
    """The URL of an empty store that other processes can open too."""
    return f"files:///{memdir / 'runs'}" if request.param == "files" else f"sqlite:///{memdir / 'runs.db'}"


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., str]:
    """Runs a script in another process; what it printed."""

    def run(script: str, *args: str, env: dict[str, str] | None = None, code: int = 0) -> str:
        path = tmp_path / "script.py"
        path.write_text(dedent(script))
        done = subprocess.run([sys.executable, str(path), *args], capture_output=True, text=True, timeout=60, env=env)
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run
