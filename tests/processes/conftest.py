"""Real processes and real signals.

A test drives a **crew**: processes that each run `crew.py`, take one command per line and answer it. They can be told
to act at the same moment, stopped, and killed. What a test counted it says with `counts`; see tests/conftest.py for
how that reaches the end of the test run.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import labour as _labour
import pytest
from children import PATIENCE, Child, wait_until

HERE = Path(__file__).parent


class Refused(Exception):
    """A command was answered with an error; `kind` is the name of its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Member(Child):
    """A process that carries out commands. See `crew.py` for what it knows."""

    def __init__(self, env: dict[str, str] | None = None) -> None:
        super().__init__(str(HERE / "crew.py"), env=env)

    def send(self, command: str, /, **arguments: Any) -> None:
        """Tell it to do something, without waiting. ``at`` is the moment (of the monotonic clock) to begin at."""
        self.say(json.dumps([command, arguments]))

    def reply(self, timeout: float = PATIENCE) -> Any:
        """What came of the command; raises `Refused` for what it raised there."""
        line = self.line(timeout)
        if line is None:
            raise TimeoutError(f"process {self.pid} {'ended' if self.ended else 'did not answer in time'}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], answer["message"])
        return answer["value"]

    def do(self, command: str, /, **arguments: Any) -> Any:
        self.send(command, **arguments)
        return self.reply()


def together(
    members: list[Member], command: str, *, each: list[dict[str, Any]] | None = None, **same: Any
) -> list[Any]:
    """Let all of them do the same thing at the same moment; what each got, or the `Refused` of it."""
    at = time.monotonic() + 0.002
    for member, own in zip(members, each or [{}] * len(members), strict=True):
        member.send(command, at=at, **same, **own)
    outcomes: list[Any] = []
    for member in members:
        try:
            outcomes.append(member.reply())
        except Refused as refused:
            outcomes.append(refused)
    return outcomes


@pytest.fixture
def children() -> Iterator[Callable[..., Child]]:
    """Starts scripts of this folder; whatever still runs at the end is killed."""
    started: list[Child] = []

    def start(script: str, *arguments: str, env: dict[str, str] | None = None) -> Child:
        started.append(Child(str(HERE / script), *arguments, env=env))
        return started[-1]

    yield start
    for child in started:
        child.clear_away()


@pytest.fixture
def crew() -> Iterator[Callable[..., list[Member]]]:
    """Makes members; they are killed at the end, stopped or not."""
    made: list[Member] = []

    def gather(size: int, *, env: dict[str, str] | None = None) -> list[Member]:
        made.extend(Member(env) for _ in range(size))
        return made[-size:]

    yield gather
    for member in made:
        member.clear_away()


@pytest.fixture
def all_at_once() -> Callable[..., list[Any]]:
    return together


@pytest.fixture
def refused() -> type[Refused]:
    return Refused


@pytest.fixture(params=["sqlite", "files"])
def url(request: pytest.FixtureRequest, disk: Path) -> str:
    """A store on a real disk that several processes can open."""
    return place(request.param, disk)


@pytest.fixture(params=["sqlite", "files"])
def quick_url(request: pytest.FixtureRequest, memdir: Path) -> str:
    """The same in memory, for what does not depend on syncing."""
    return place(request.param, memdir)


def place(kind: str, folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}" if kind == "sqlite" else f"files:///{folder / 'runs'}"


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Which store the test works on, for its counts."""
    return next(
        request.getfixturevalue(name).partition(":")[0]
        for name in ("url", "quick_url", "any_url")
        if name in request.fixturenames
    )


@pytest.fixture
def counts(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Says what the test has counted: at once with -s, and at the end of the whole test run."""

    def say(line: str) -> None:
        print(line)
        request.node.user_properties.append(("counts", line))

    return say


@pytest.fixture
def labour() -> Any:
    """The module `labour.py`: the workflows that its processes know."""
    return _labour


@pytest.fixture
def workers(children: Callable[..., Child]) -> Callable[..., Child]:
    """Starts worker processes on a store; each has begun to work when it is given."""

    def start(url: str, *, wait: bool = True, env: dict[str, str] | None = None, **options: Any) -> Child:
        child = children(_labour.__file__, url, json.dumps(options), env=env)
        if wait:
            assert child.line() == "ready"
        return child

    return start


@pytest.fixture
def until() -> Callable[..., None]:
    """Waits until something is so."""
    return wait_until
