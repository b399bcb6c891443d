"""A fan-out: many items, a few at a time, and one of them fails at first.

    python examples/fan_out.py sqlite:///weather.db monday

Each station is measured in a step of its own, at most five at a time. One is flaky, and is tried again; one is broken
for good, and does not stop the others. Kill it and call it again: what was measured is not measured again.
"""

from __future__ import annotations

import asyncio
import os
import sys

import holdfast
from holdfast import aio, emit, step, this_step, workflow

SECONDS = float(os.environ.get("STEP_SECONDS", "0.02"))  # how long a measurement takes
STATIONS = [f"station-{n:02}" for n in range(1, 25)]


class Broken(Exception):
    """No use in trying again."""


@step(retries=3, delay=0.05, retry_on=ConnectionError)
async def measure(station: str) -> int:
    """The temperature at a station."""
    print(f"measure {station}", flush=True)
    await asyncio.sleep(SECONDS)
    if station == "station-07" and this_step().attempt < 3:
        raise ConnectionError(f"{station} does not answer")
    if station == "station-13":
        raise Broken(f"{station} is broken")
    return 10 + int(station[-2:]) % 7


@workflow
async def weather(stations: list[str]) -> dict[str, object]:
    """All stations; what they measured, and which are broken."""
    found = await aio.map(measure, stations, limit=5, return_exceptions=True)
    measured = {name: value for name, value in zip(stations, found, strict=True) if not isinstance(value, Exception)}
    broken = [name for name in stations if name not in measured]
    emit({"measured": len(measured), "broken": broken})
    return {"mean": sum(measured.values()) / len(measured), "measured": len(measured), "broken": broken}


async def main(store: str, id: str) -> int:
    async with holdfast.open(store) as hf:
        run = await hf.start(weather, STATIONS, id=id)
        print("result ", await run.result())
        for step in await run.steps():
            if step.attempts > 1 or step.status == "failed":
                print(f"{step.status:7} {step.key}, attempts: {step.attempts}", f"({step.error})" if step.error else "")
    return 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main(*(sys.argv[1:3] or ["memory://", "monday"]))))
