"""A terminal for tests: a command runs in a pseudo-terminal, and its screen is read as a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

PATIENCE = 20.0  # seconds until a text that does not come is missed


class Terminal:
    """A command in a terminal of its own."""

    def __init__(
        self, *command: str, cwd: Path, columns: int = 100, rows: int = 30, environment: Mapping[str, str] | None = None
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=2000)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "CI")}
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=inherited | {"TERM": "xterm-256color", "PYTHONUTF8": "1"} | dict(environment or {}),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.master)

    def _read(self, seconds: float) -> bool:
        """Take what was written, waiting a little for it; False at the end."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:  # nobody has the other end any longer
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    @property
    def text(self) -> str:
        """All lines so far, those that were scrolled away first."""
        above = ["".join(line[n].data for n in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self.screen.display]).rstrip()

    def until(self, wanted: str) -> str:
        """Wait until this text is on the screen; the screen."""
        end = time.monotonic() + PATIENCE
        alive = True
        while wanted not in self.text:
            if not alive or time.monotonic() > end:
                raise AssertionError(f"{wanted!r} did not come:\n{self.text}")
            alive = self._read(0.05)
        return self.text

    def type(self, text: str) -> None:
        """Type, as a person does."""
        os.write(self.master, text.encode())

    def interrupt(self) -> int:
        """Press Ctrl-C, and wait for the end; the exit status.

        Pressed in the very moment in which Python begins to read a line, it is not heard: then a person presses again.
        """
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self.type("\x03")
            again = time.monotonic() + 3
            while self._read(0.05) and time.monotonic() < again:
                pass
            if self.process.poll() is not None:
                break
        return self.ended()

    def ended(self) -> int:
        """Wait for the end; the exit status."""
        end = time.monotonic() + PATIENCE
        while self._read(0.05) and time.monotonic() < end:
            pass
        return self.process.wait(max(end - time.monotonic(), 1))
