"""Shell commands: a process group of their own, whose output is read as it comes, and which never outlives its run.

The command is run by ``sh -e``. Beside it, in the same group, a small shell waits on a pipe that this process holds: if
this process dies, however that may be, the pipe closes and the group is ended. So nothing goes on unseen while another
process takes the run over.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from holdfast.errors import ActionFailed
from holdfast.flow.actions.secrets import Masker

TAIL = 16_000  # characters that are kept of each stream
MAX_LINE = 8_000  # characters of a line that is handed on
GRACE = 5.0  # seconds between TERM and KILL
LINGER = 0.5  # seconds for what a command left running, to close its output
_LOOK = 0.1  # seconds between two looks at whether to go on
_STEP = 0.02  # seconds between two looks at whether a group is gone
_CHUNK = 65536

_GUARDED = f"""exec 3<&0 </dev/null
{{ trap '' TERM INT HUP; IFS= read -r word <&3 && exit 0
kill -s TERM -- -$$; sleep {GRACE:g}; kill -s KILL -- -$$; }} >/dev/null 2>&1 &
exec 3<&-
exec /bin/sh -ec "$1"
"""


class Ended(Struct, frozen=True):
    """How a command ended. An exit code above 128 is that of a signal, as a shell says it."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False


class _Stream:
    """One of the two streams: bytes come in, lines without secrets go out, and the tail stays."""

    def __init__(self, name: str, masker: Masker, tell: Callable[[str, str], None]) -> None:
        self._name, self._masker, self._tell = name, masker, tell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""
        self.tail = ""

    def feed(self, data: bytes) -> None:
        self._take(self._masker.feed(self._decoder.decode(data)))

    def end(self) -> None:
        self._take(self._masker.feed(self._decoder.decode(b"", final=True)))
        self._take(self._masker.end())
        if self._line:
            self._tell(self._name, self._line)

    def _take(self, text: str) -> None:
        if not text:
            return
        self.tail = (self.tail + text)[-TAIL:]
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._tell(self._name, line)
        while len(self._line) > MAX_LINE:
            self._tell(self._name, self._line[:MAX_LINE])
            self._line = self._line[MAX_LINE:]


def run_shell(
    command: str,
    *,
    env: Mapping[str, str],
    cwd: str,
    timeout: float | None,
    masker: Callable[[], Masker],
    tell: Callable[[str, str], None],
    keep_on: Callable[[], None],
) -> Ended:
    """Run a command to its end. ``tell(stream, line)`` gets its output, ``keep_on`` raises if it is to be broken off.

    Raises `ActionFailed` if it cannot be started. Whatever is raised, the whole process group is ended first.
    """
    process = _started(command, env, cwd)
    streams = {"stdout": _Stream("stdout", masker(), tell), "stderr": _Stream("stderr", masker(), tell)}
    until = None if timeout is None else time.monotonic() + timeout
    try:
        timed_out = _read(process, streams, until, keep_on)
        if timed_out:
            end_group(process)
        code = process.wait()
    except BaseException:  # an interrupt, too: no command outlives who waits for it
        end_group(process)
        raise
    finally:
        _close(process)
    for stream in streams.values():
        stream.end()
    code = code if code >= 0 else 128 - code
    return Ended(code, streams["stdout"].tail, streams["stderr"].tail, timed_out)


def _started(command: str, env: Mapping[str, str], cwd: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", _GUARDED, "sh", command],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=cwd,
            env={**os.environ, **env},
            start_new_session=True,
        )
    except NotADirectoryError:
        raise ActionFailed(f"its folder {cwd!r} is a file") from None
    except FileNotFoundError:
        raise ActionFailed(f"its folder {cwd!r} is not on this machine; say another one with `cwd:`") from None
    except (OSError, ValueError) as error:
        raise ActionFailed(f"it cannot be started: {error}") from None


def _read(
    process: subprocess.Popen[bytes], streams: dict[str, _Stream], until: float | None, keep_on: Callable[[], None]
) -> bool:
    """Read until the output ends, or what was started has ended and nothing more comes; whether time was up first."""
    lingers: float | None = None
    with selectors.DefaultSelector() as selector:
        for name in streams:
            selector.register(getattr(process, name), selectors.EVENT_READ, name)
        while selector.get_map() or process.poll() is None:
            now = time.monotonic()
            if until is not None and now >= until and lingers is None:
                return True
            if lingers is None and process.poll() is not None:
                lingers = now + LINGER
            if lingers is not None and now >= lingers:
                return False
            keep_on()
            pause = _LOOK if until is None else max(0.0, min(_LOOK, until - now))
            _take(process, selector, streams, pause)
    return False


def _take(process: subprocess.Popen[bytes], selector: Any, streams: dict[str, _Stream], pause: float) -> None:
    if not selector.get_map():  # it closed its output, and goes on
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause)
        return
    for ready, _ in selector.select(pause):
        data = os.read(ready.fileobj.fileno(), _CHUNK)
        if data:
            streams[ready.data].feed(data)
        else:
            selector.unregister(ready.fileobj)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process group: TERM, and KILL for what is still there after a while.

    The shell ends at once, but what it had started may have something to clean up: all of them have that time.
    """
    _signal(process, signal.SIGTERM)
    _let_guard_go(process)
    until = time.monotonic() + GRACE
    try:
        while _signal(process, 0) and _is_at_work(process.pid) and time.monotonic() < until:
            process.poll()  # which takes it out of the group, if it has ended
            time.sleep(_STEP)
    finally:
        _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the group; whether anybody is left in it."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # of somebody who is another user by now
        pass
    return True


def _is_at_work(group: int) -> bool:
    """Whether anybody in a process group has not ended: where nobody waits for orphans, the dead stay in it."""
    if not os.path.isdir("/proc/self"):
        return True
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # it has just ended
            state, _, its_group, *_ = file.read().rpartition(b")")[2].split()
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return False


def _let_guard_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError):  # it is gone already
        os.write(process.stdin.fileno(), b"\n")


def _close(process: subprocess.Popen[bytes]) -> None:
    """Let the guard go, and close the pipes."""
    _let_guard_go(process)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
