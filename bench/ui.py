"""The web page under many eyes: 500 live streams on one server, while 50 runs write.

A stream is behind by the age of the oldest entry that it was not told of when an event reaches it. The server is a
process of its own; its memory is looked at before the runs write, and while they do.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import holdfast
from bench.harness import AtLeast, Say

STREAMS = 500
RUNS = 50
SECONDS = 15.0
EVERY = 0.25  # seconds between two entries of a run
TOKEN = "a token for the benchmark alone"

GOALS: dict[str, float] = {
    "ui_streams_lag_max_s": 2.0,
    "ui_streams_told_share": AtLeast(1.0),
    "ui_streams_memory_growth_mb": 32.0,
}


def measure(folder: Path, say: Say) -> dict[str, float]:
    url = f"sqlite:///{folder / 'ui.db'}"
    say(f"{STREAMS} streams, {RUNS} runs that write for {SECONDS:g} s")
    with holdfast.open(url) as hf:
        runs = [hf.run(f"run-{n}") for n in range(RUNS)]
        command = [sys.executable, "-m", "holdfast", "ui", "--store", url, "--port", "0", "--json"]
        env = {**os.environ, "HOLDFAST_UI_TOKEN": TOKEN}
        server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            port = json.loads(server.stdout.readline())["port"]
            return asyncio.run(_watch(runs, port, server.pid))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


async def _watch(runs: list[holdfast.Run], port: int, pid: int) -> dict[str, float]:
    written: list[list[float]] = [[time.monotonic()] for _ in runs]  # when each entry was
    lags: list[float] = []
    last: list[int] = []  # the number of the last entry, once it is known
    streams = [asyncio.create_task(_listen(port, n % RUNS, written, lags, last)) for n in range(STREAMS)]
    while len(lags) < STREAMS:  # each of them was told how its run stands
        await asyncio.sleep(0.1)
    lags.clear()
    before = peak = _memory(pid)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        began = time.monotonic()
        await asyncio.to_thread(_write, runs, written)
        peak = max(peak, _memory(pid))
        await asyncio.sleep(max(EVERY - (time.monotonic() - began), 0))
    last.append(len(written[0]))
    await asyncio.to_thread(_write, runs, written)  # one more of each, which is the last
    async with asyncio.timeout(60):
        told = await asyncio.gather(*streams)
    return {
        "ui_streams_lag_max_s": max(lags),
        "ui_streams_lag_median_s": sorted(lags)[len(lags) // 2],
        "ui_streams_events_per_s": len(lags) / SECONDS,
        "ui_streams_told_share": sum(told) / STREAMS,
        "ui_streams_memory_mb": peak,
        "ui_streams_memory_growth_mb": peak - before,
    }


def _write(runs: list[holdfast.Run], written: list[list[float]]) -> None:
    for n, run in enumerate(runs):
        run.save({"step": len(written[n])})
        written[n].append(time.monotonic())


async def _listen(port: int, n: int, written: list[list[float]], lags: list[float], last: list[int]) -> bool:
    """One client, until it was told of the last entry of its run; whether it was."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET /api/v1/events?run=run-{n} HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {TOKEN}"]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    seen = 0
    try:
        while line := await reader.readline():
            if not line.startswith(b"data: "):
                continue
            seq = json.loads(line[6:])["seq"]
            oldest = written[n][min(seen + 1, len(written[n]) - 1)] if seq > seen else time.monotonic()
            lags.append(time.monotonic() - oldest)
            seen = seq
            if last and seen >= last[0]:
                return True
        return False
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def _memory(pid: int) -> float:
    """What the process holds, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the server has ended")
