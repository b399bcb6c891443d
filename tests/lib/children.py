"""Processes that tests start, speak with line by line, stop and kill; none of them outlives its test."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_libc, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
PATIENCE = 60.0  # seconds until a process that does not answer is given up


class Child:
    """A process of ours: its lines are read with a time limit, and it never outlives the test."""

    def __init__(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        errors: Path | None = None,
        outlives: bool = False,
    ) -> None:
        """``command`` is what Python is given: a script or ``-m module``, and arguments.

        ``env`` is added to the environment; ``errors`` is a file to which the standard error is added. It is killed
        when this process dies, unless it ``outlives`` it, to clean up: then it sees the end of its standard input.
        """
        with open(os.devnull if errors is None else errors, "ab") as file:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if errors is None else file,
                env=None if env is None else {**os.environ, **env},
                preexec_fn=None if outlives else _die_with_parent,
            )
        self._read = b""
        self.ended = False  # whether everything that it wrote was read
        self._ready = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self, timeout: float = PATIENCE) -> str | None:
        """The next line that it says; None if there is none in time, or it has ended (see `ended`)."""
        assert self.process.stdout is not None
        until = time.monotonic() + timeout
        while b"\n" not in self._read:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return None
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                self.ended = True
                return None
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()

    @property
    def ready(self) -> bool:
        """Whether it has said so, as its first line."""
        self._ready = self._ready or self.line(0) == "ready"
        return self._ready

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        os.write(self.process.stdin.fileno(), line.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def clear_away(self) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def _die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def wait_until(what: Callable[[], Any], timeout: float = PATIENCE, pause: float = 0.005) -> None:
    """Wait until something is so."""
    end = time.monotonic() + timeout
    while not what():
        assert time.monotonic() < end, "it did not come to be in time"
        time.sleep(pause)
