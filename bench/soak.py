"""A million steps in one process: does its memory grow?"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import holdfast
from bench.harness import Say
from holdfast import step, workflow

RUNS = 10_000
STEPS = 100  # of each run
MEMORY = Path("/dev/shm")  # a folder in memory, where there is one: the disk is not what is looked at

GOALS: dict[str, float] = {"soak_growth_mb": 20.0}


@step
def same(x: int) -> int:
    return x


@workflow
def soak(steps: int) -> int:
    return sum(same(n) for n in range(steps))


def measure(folder: Path, say: Say) -> dict[str, float]:
    """In a process of its own, whose memory nobody else has made large before."""
    say(f"{RUNS * STEPS:,} steps")
    place = MEMORY if MEMORY.is_dir() else folder
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-", dir=place) as name:
        found: dict[str, float] = json.loads(subprocess.check_output([sys.executable, "-m", "bench.soak", name]))
    return found


def run(folder: Path) -> dict[str, float]:
    """How much the resident size grows after the first tenth of the runs."""
    first = 0.0
    with holdfast.open(f"sqlite:///{folder / 'soak.db'}?durability=normal") as hf:
        for n in range(RUNS):
            assert hf.start(soak, STEPS).result() == STEPS * (STEPS - 1) // 2
            if n == RUNS // 10:
                first = resident()
        last = resident()
    return {"soak_steps": RUNS * STEPS, "soak_growth_mb": last - first, "soak_resident_mb": last}


def resident() -> float:
    """Megabytes of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]))))
