"""A PostgreSQL server on a disk of its own that is small, and can be filled: a tmpfs that only its processes see.

`SmallDisk` speaks with a process (this file, run as a script) that makes the disk and the server on it. The disk is
mounted in a namespace of that process, which root may make, and where the system allows it everybody else, as the only
user of a namespace of users; it is gone with the last process that uses it. The server is ended with that process.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

from children import Child
from pgserver import Server, new_folder

NEW_NAMESPACE, NEW_USERS, PRIVATE = 0x00020000, 0x10000000, 1 << 18 | 1 << 14
SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "40",
    "max_wal_size": "4MB",
    "min_wal_size": "2MB",
}


class SmallDisk:
    """The server, from outside. Every call waits until it is done."""

    def __init__(self, megabytes: int) -> None:
        self._folder = new_folder()
        self._keeper = Child(__file__, str(self._folder), str(megabytes), outlives=True)
        self.url = self._told()

    def _told(self) -> str:
        line = self._keeper.line()
        assert line is not None, "the small disk could not be made"
        assert not line.startswith("error "), line
        return line

    def ask(self, command: str) -> str:
        """``fill`` leaves no space, ``clear`` gives it back, ``start`` starts the server if it has ended."""
        self._keeper.say(command)
        return self._told()

    def remove(self) -> None:
        """End the server; with it the disk goes."""
        self.ask("end")
        self._keeper.process.wait(30)
        self._keeper.clear_away()
        self._folder.rmdir()


# --- the process that keeps it


def mount(folder: str, megabytes: str) -> None:
    """Mount a disk that nobody else sees."""
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()

    def done(status: int) -> None:
        if status:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    done(libc.unshare(NEW_NAMESPACE | (NEW_USERS if user else 0)))
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    done(libc.mount(None, b"/", None, PRIVATE, None))
    done(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, f"size={megabytes}m,mode=0755".encode()))


def fill(ballast: Path) -> None:
    """Leave no space on the disk that this file is on."""
    with open(ballast, "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return  # that was the last of it


def _obey(server: Server, command: str) -> str:
    """Do it; what was done."""
    ballast = server.folder / "ballast"
    match command:
        case "fill":
            fill(ballast)
        case "clear":
            ballast.unlink(missing_ok=True)
        case "start" if not server.is_up():
            server.start(**SETTINGS)
            return "started"
    return "done"


def _keep(folder: str, megabytes: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # which are for the tests: they say ``end``, or end themselves
        signal.signal(number, signal.SIG_IGN)
    mount(folder, megabytes)
    server = Server(Path(folder))
    server.make()
    server.start(**SETTINGS)
    print(server.url, flush=True)
    try:
        for line in sys.stdin:
            if line == "end\n":
                break
            try:
                print(_obey(server, line.strip()), flush=True)
            except RuntimeError as error:  # the server did not start; a line for whoever asked
                print(f"error {' '.join(str(error).split())}", flush=True)
    finally:
        server.end()
    print("done", flush=True)


if __name__ == "__main__":
    _keep(*sys.argv[1:])
