"""A worker process: what it does is written to a synced file, one line for each act."""

import os
import sys
import time

import holdfast
from holdfast import step, workflow


def note(line: str) -> None:
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)
    os.write(fd, f"{line} {os.getpid()}\n".encode())
    os.fsync(fd)
    os.close(fd)


@step
def act(name: str, n: int) -> int:
    note(f"{name}/{n}")
    time.sleep(0.02)
    return n


@workflow
def labour(name: str) -> int:
    return sum(act(name, n) for n in range(10))


if __name__ == "__main__":
    with holdfast.open(sys.argv[1], lease=1.0) as hf:
        print("ready", flush=True)
        hf.work(concurrency=3)
