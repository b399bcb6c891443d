"""A million steps in one process: does its memory grow?"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import holdfast
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


def measure(folder: Path, say: Callable[[str], None]) -> dict[str, float]:
    place = MEMORY if MEMORY.is_dir() else folder
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-", dir=place) as name:
        return run(Path(name), say)


def run(folder: Path, say: Callable[[str], None]) -> dict[str, float]:
    """How much the resident size grows after the first tenth of the runs."""
    first = 0.0
    with holdfast.open(f"sqlite:///{folder / 'soak.db'}?durability=normal") as hf:
        for n in range(RUNS):
            assert hf.start(soak, STEPS).result() == STEPS * (STEPS - 1) // 2
            if n == RUNS // 10:
                first = resident()
            if n % 100 == 0:
                say(f"{n * STEPS:,} of {RUNS * STEPS:,} steps, {resident():.1f} MB resident")
        return {"soak_steps": RUNS * STEPS, "soak_growth_mb": resident() - first, "soak_resident_mb": resident()}


def resident() -> float:
    """Megabytes of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
