"""One member of a crew: takes a command per line (JSON: name, arguments), carries it out and answers with a line.

Started as a process of its own by conftest.py. ``at`` is the moment of the monotonic clock, which all processes of a
machine share, at which a command begins.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Holdfast, Run

hf: Holdfast
handles: dict[str, Run] = {}


def open(url: str, lease: float = 30.0) -> int:
    global hf
    hf = holdfast.open(url, lease=lease)
    handles.clear()
    return os.getpid()


def open_and_use(url: str, id: str) -> str:
    open(url)
    handle(id).save({"by": os.getpid()})
    return handle(id).uid


def close() -> None:
    hf.close()


def handle(id: str) -> Run:
    if id not in handles:
        handles[id] = hf.run(id)
    return handles[id]


def claim(id: str) -> int:
    return handle(id).claim().epoch


def release(id: str) -> None:
    handle(id).release()


def save(id: str, state: Any) -> int:
    return handle(id).save(state)


def saves(id: str, count: int, name: str) -> list[int]:
    """Claim the run and save so often."""
    run = handle(id)
    with run.claim():
        return [run.save({"by": name, "n": n}) for n in range(count)]


def beat() -> None:
    """The heartbeat that would come in a while."""
    with hf.client.engine.worker._lock:
        hf.client.engine.worker._extend()


def save_until_lost(id: str, name: str) -> None:
    """Save until it is refused; each number is said on a line of its own when its save returned."""
    n = 0
    while True:
        said = {"value": [handle(id).save({"by": name, "n": n}), n]}
        print(json.dumps(said), flush=True)
        n += 1
        time.sleep(0.003)  # so that it is not inside a transaction most of the time


def act(id: str, key: str, path: str) -> str:
    """Run a step that leaves a file behind."""
    return str(handle(id).once(key, touch, path, target=path))


def touch(path: str) -> str:
    with Path(path).open("a") as file:
        file.write("touched\n")
    return path


def mark(id: str, prefix: str, count: int) -> int:
    """Mark so many effects; how many of them were new."""
    return sum(handle(id).mark(f"{prefix}{n}", "tool", target=f"{prefix}{n}") for n in range(count))


def create(ids: list[str]) -> list[str]:
    return [hf.run(id).uid for id in ids]


def answer(id: str, value: Any) -> None:
    handle(id).answer(value)


def status(id: str) -> str:
    return handle(id).status


COMMANDS: dict[str, Callable[..., Any]] = {
    command.__name__: command
    for command in (
        open, open_and_use, close, claim, release, save, saves, save_until_lost, beat,
        act, mark, create, answer, status,
    )
}  # fmt: skip


def main() -> None:
    for line in sys.stdin:
        name, arguments = json.loads(line)
        at = arguments.pop("at", 0.0)
        while time.monotonic() < at:
            pass
        try:
            answer = {"value": COMMANDS[name](**arguments)}
        except Exception as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
