"""Rivals as child processes: started, given orders in turn, and stopped."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import IO, Any

from bench.database import programs
from bench.keeping import ROOT

PATIENCE = 180.0  # seconds for an answer


class Child:
    """A module of bench.rivals in a process of its own."""

    def __init__(self, module: str, **given: Any) -> None:
        self.module = module
        self._said: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 (until it is stopped)
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"bench.rivals.{module}", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            cwd=ROOT,
            env=os.environ | {"PATH": f"{programs()}{os.pathsep}{os.environ['PATH']}"},  # absurdctl calls psql
        )

    def ready(self) -> dict[str, Any]:
        """Wait until it can take orders: its versions, and how durable it is."""
        return self._answer()

    def order(self, steps: int, runs: int = 1) -> float:
        """Seconds for so many runs of so many steps, which it must have kept afterwards."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"steps": steps, "runs": runs}).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._answer()
        if answer["kept"] < steps * runs:
            raise RuntimeError(f"{self.module} kept {answer['kept']} of {steps * runs} steps")
        return float(answer["seconds"])

    def turn(self, steps: int, warm: int) -> Callable[[int], float]:
        """What it does in a round: the first, which does not count, takes it past the first checkpoint of its log."""
        return lambda round: self.order(steps if round else warm)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            line = self._process.stdout.readline() if selector.select(PATIENCE) else b""
        if not line:
            self._said.seek(0)
            said = " ".join(self._said.read()[-2_000:].split())
            raise RuntimeError(f"{self.module} gave no answer; it said: {said}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._said.close()
