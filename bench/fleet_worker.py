"""What the workers of a fleet do, and the workers of bench/fleet.py that are not started by `holdfast worker`.

python -m bench.fleet_worker crew URL LEASE COUNT    so many workers in threads, each with a handle of its own
python -m bench.fleet_worker steps URL SECONDS       makes step after step, and prints how long each of them took
python -m bench.fleet_worker prune URL               deletes all ended runs, and prints how many and how long it took
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import holdfast
from holdfast import step, workflow

STEPS = 10


@step
async def act(n: int) -> int:
    return n


@workflow(name="fleet-short")
async def short() -> int:
    return await act(0)


@workflow(name="fleet-long")
async def long() -> None:
    for n in range(STEPS):
        await act(n)


@workflow(name="fleet-empty")
async def empty() -> None:
    """No step at all."""


@step
async def rest(seconds: float) -> None:
    await asyncio.sleep(seconds)


@workflow(name="fleet-nap")
async def nap(seconds: float) -> None:
    await rest(seconds)


@step
def linger(name: str, folder: str) -> None:
    """Says that it has begun, and when, and goes on until it is told to end."""
    with open(Path(folder, "begun"), "a") as file:  # one line is one write
        file.write(f"{name} {os.getpid()} {time.monotonic()}\n")
    while not Path(folder, "end").exists():
        time.sleep(0.05)


@workflow(name="fleet-linger")
def lingering(name: str, folder: str) -> None:
    linger(name, folder)


@workflow(name="fleet-steps")
async def timed(seconds: float) -> None:
    """Prints how long each step took."""
    took, until = [], time.monotonic() + seconds
    n = 0
    while time.monotonic() < until:
        started = time.perf_counter()
        await act(n := n + 1)
        took.append(time.perf_counter() - started)
    print(json.dumps(took), flush=True)


def crew(url: str, lease: str, count: str) -> None:
    def work() -> None:
        with holdfast.open(url, lease=float(lease)) as hf:
            hf.work(concurrency=1)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(int(count) - 1)]
    for thread in threads:
        thread.start()
    work()
    os._exit(0)  # the others are killed as they are


async def steps(url: str, seconds: str) -> None:
    async with holdfast.open(url) as hf:
        print("ready", flush=True)
        while sys.stdin.readline():
            await (await hf.start(timed, float(seconds))).result()


def prune(url: str) -> None:
    with holdfast.open(url) as hf:
        print("ready", flush=True)
        sys.stdin.readline()
        started = time.monotonic()
        gone = hf.prune(older_than=timedelta(0))
        print(json.dumps([len(gone), time.monotonic() - started]), flush=True)


def main(what: str, *given: str) -> None:
    if what == "steps":
        asyncio.run(steps(*given))
    else:
        {"crew": crew, "prune": prune}[what](*given)


if __name__ == "__main__":
    main(*sys.argv[1:])
