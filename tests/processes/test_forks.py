"""os.fork() in a process that holds a run: the child has no part in it, neither while its parent lives nor after."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import holdfast
from holdfast.errors import Claimed

Children = Callable[..., Any]


@contextmanager
def ending(pid: int) -> Iterator[None]:
    """The forked child is ours to end, wherever its parent is."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def heard(child: Any) -> list[str]:
    line = child.line(10)
    assert line is not None, "nothing was said"
    return line.split()


def tell(child: Any, line: str) -> None:
    os.write(child.process.stdin.fileno(), line.encode() + b"\n")


@pytest.mark.parametrize("parent_is", ["quiet", "busy", "busy again"])
def test_the_child_is_refused_and_the_parent_goes_on(url: str, parent_is: str, children: Children) -> None:
    """Also if other threads of the parent had locks at the moment of the fork, which nobody ever frees in the child."""
    parent = children("forker.py", "use" if parent_is == "quiet" else "use-while-busy", url)
    lines = [heard(parent) for _ in range(12)]
    [[_, pid]] = [line for line in lines if line[0] == "held"]
    with ending(int(pid)):
        said = dict(line for line in lines if line[0] != "held")
        inherited = ("save", "once", "mark", "read", "list", "other", "release", "status")
        assert {name: said[name] for name in inherited} == dict.fromkeys(inherited, "StoreUnusable")
        assert said["own-other"] == "done", "a store that the child opens itself is its own"
        assert said["own-claim"] == "Claimed", "its parent still holds the run"
        tell(parent, "go")
        assert heard(parent) == ["go-0", "done"]
    with holdfast.open(url) as hf:
        run = hf.get("thread")
        assert run.checkpoint().state == {"by": "parent", "n": 0}
        assert {info.id for info in hf.runs(prefix="made")} == {"made by the child"}
        with pytest.raises(Claimed):
            run.claim()
        run.audit()


def test_a_child_that_leaves_takes_nothing_with_it(url: str, children: Children) -> None:
    parent = children("forker.py", "leave", url)
    _, pid = heard(parent)
    time.sleep(0.3)
    with ending(int(pid)), holdfast.open(url) as hf:
        with pytest.raises(Claimed):
            hf.get("thread").claim()
        tell(parent, "go")
        assert heard(parent) == ["go-0", "done"]


def test_a_child_that_outlives_its_parent_does_not_keep_the_run(url: str, children: Children) -> None:
    parent = children("forker.py", "live-on", url)
    pid = dict([heard(parent), heard(parent)])["born"]  # and "held", from its parent
    with ending(int(pid)), holdfast.open(url) as hf:
        run = hf.get("thread")
        with pytest.raises(Claimed):
            run.claim()
        parent.kill()
        run.claim()
        run.save({"by": "the next one"})
        os.kill(int(pid), 0)  # the child does live


def test_a_child_born_in_a_write_does_not_keep_the_store(url: str, children: Children, crew: Any) -> None:
    parent = children("forker.py", "in-a-write", url)
    pid = dict([heard(parent), heard(parent)])["born"]  # and "held", from its parent
    with ending(int(pid)):
        parent.kill()
        [member] = crew(1)
        member.send("open", url=url)
        assert member.reply(10), "the store cannot be opened while the child lives"
        member.send("create", ids=["another"])
        assert member.reply(10), "the store is locked for as long as the child lives"
        member.send("claim", id="thread")
        assert member.reply(10)
        member.do("save", id="thread", state={})


def test_what_a_child_writes_lasts_when_its_parent_has_closed_the_store(url: str, children: Children) -> None:
    """SQLite's bookkeeping of locks is per process and goes wrong over a fork; the child must not inherit it."""
    parent = children("forker.py", "take-over", url)
    said = dict([heard(parent), heard(parent)])
    with ending(int(said["held"])):
        assert said["opened"] == "1"
        tell(parent, "close")
        assert heard(parent) == ["closed", "0"]
        os.kill(int(said["held"]), signal.SIGUSR1)
        assert heard(parent) == ["saved", "2"]
        os.kill(int(said["held"]), signal.SIGKILL)
        parent.kill()
        with holdfast.open(url) as hf:
            assert hf.get("of the child").checkpoint().state == {"n": 1}
