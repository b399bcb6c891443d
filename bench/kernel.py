"""What the kernel costs: growth of states, forks deep in a history, import time.

Each function measures one thing and returns its figures by name. Nothing here asserts: the goals stand in `GOALS`
and are printed beside the figures.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import holdfast
from bench.harness import Measured, Say, Stopwatch, random_texts, ratio, size_of
from holdfast.engine.access import lease

SAVES = 2_000
ITEM = 1_024

GOALS: dict[str, float] = {
    "save_growth_bytes_over_appended_sqlite": 1.3,
    "save_growth_bytes_over_appended_files": 1.5,
    "save_growth_last_over_first_sqlite": 1.3,
    "save_growth_last_over_first_files": 1.3,
    "fork_10000_over_10": 2.0,
    "fork_10000_over_10_files": 2.0,
    "import_over_msgspec": 1.5,
}


def measure(folder: Path, say: Say) -> dict[str, float]:
    say("a synced write")
    figures = raw_commit(folder)
    for store, place in (("sqlite", folder / "growth.db"), ("files", folder / "growth")):
        say(f"{SAVES} saves of a growing state, {store}")
        found = growth(f"{store}:///{place}", place, seed=7)
        figures |= {f"{key}_{store}": value for key, value in found.items()}
        say(f"forks deep in a history, {store}")
        found = forks(f"{store}:///{folder / 'forks'}-{store}")
        figures |= {key if store == "sqlite" else f"{key}_{store}": value for key, value in found.items()}
    say("import time")
    return figures | imports()


def growth(url: str, stored_in: Path, seed: int) -> dict[str, float]:
    """A state that grows by one item at each save: bytes on disk, and whether the last saves cost more than the first.

    Encoding and comparing the state is linear in its size by nature; it is measured apart and reported beside.
    """
    items = random_texts(SAVES, seed, ITEM)
    watch, plain_diff = Stopwatch(), lease.diff
    lease.diff = watch.timed(plain_diff)
    total, compare = [], []
    try:
        with holdfast.open(url) as hf:
            hf.client.codec.encode = watch.timed(hf.client.codec.encode)  # type: ignore[method-assign]
            run, state = hf.run("growing"), {"messages": []}
            with run.claim():
                for item in items:
                    state["messages"].append(item)
                    watch.seconds, started = 0.0, time.perf_counter()
                    run.save(state)
                    total.append(time.perf_counter() - started)
                    compare.append(watch.seconds)
    finally:
        lease.diff = plain_diff
    rest = [whole - part for whole, part in zip(total, compare, strict=True)]
    tenth = SAVES // 10
    return {
        "save_growth_bytes_over_appended": size_of(stored_in) / (SAVES * ITEM),
        "save_growth_last_over_first": statistics.median(rest[-tenth:]) / statistics.median(rest[:tenth]),
        "save_growth_us": statistics.median(rest) * 1e6,
        "save_growth_encode_and_compare_first_us": statistics.median(compare[:tenth]) * 1e6,
        "save_growth_encode_and_compare_last_us": statistics.median(compare[-tenth:]) * 1e6,
    }


def forks(url: str, rounds: int = 15) -> dict[str, float]:
    """A fork with its first checkpoint read, deep in a history against near its beginning, at the same state size."""
    with holdfast.open(url) as hf:
        run = hf.run("long")
        with run.claim():
            while run.save({"text": "x" * 2_000, "n": random.random()}) < 10_001:
                pass
        times: dict[int, list[float]] = {10: [], 10_000: []}
        for _ in range(rounds):
            for at, found in times.items():
                started = time.perf_counter()
                run.fork(at=at).checkpoint()
                found.append(time.perf_counter() - started)
    return {"fork_10000_over_10": ratio(times[10_000], times[10]), "fork_at_10_us": Measured.of(times[10], 1e6)}


def imports(rounds: int = 25) -> dict[str, float]:
    """`import holdfast` against `import msgspec, sqlite3`, each in a fresh interpreter, interleaved.

    Names are loaded when they are first used; so the time until a store can be opened is measured too.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    usable = "import holdfast, holdfast.stores.sqlite.store; holdfast.open"
    times: dict[str, list[float]] = {"import msgspec, sqlite3": [], "import holdfast": [], usable: []}
    for _ in range(rounds):
        for statement, found in times.items():
            code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
            found.append(float(subprocess.check_output([sys.executable, "-c", code], env=environment)))
    base, ours, until_open = times.values()
    return {
        "import_over_msgspec": ratio(ours, base),
        "import_and_use_over_msgspec": ratio(until_open, base),
        "import_ms": Measured.of(ours, 1e3),
    }


def raw_commit(folder: Path, rounds: int = 300) -> dict[str, float]:
    """The physical limit beside it: one 4 KB write and its sync."""
    descriptor = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY)
    block, times = os.urandom(4096), []
    for _ in range(rounds):
        started = time.perf_counter()
        os.write(descriptor, block)
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - started)
    os.close(descriptor)
    return {"fdatasync_4k_us": Measured.of(times, 1e6)}
