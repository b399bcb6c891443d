"""A real PgBouncer in transaction mode in front of a server. Tests that use it are marked `needs("pgbouncer")`."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import programs
from pgserver import NOBODY, PATIENCE, free_port
from psycopg.conninfo import conninfo_to_dict

CONFIG = """\
[databases]
* = {server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 10
max_client_conn = 500
server_connect_timeout = 5
server_login_retry = 1
log_connections = 0
log_disconnections = 0
{more}
"""


class Bouncer:
    """Stands before the server of a URL; every transaction may be in another of its ten sessions."""

    def __init__(self, server: str, more: str = "") -> None:
        """``more`` are lines for its configuration."""
        program = programs.find("pgbouncer")
        assert program is not None, programs.why_missing("pgbouncer")
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pgbouncer-"))
        self._folder.chmod(0o755)
        known = conninfo_to_dict(server.partition("?")[0])
        kept = {name: known[name] for name in ("host", "port", "user", "password") if name in known}
        told = " ".join(f"{name}={value}" for name, value in kept.items())
        config = self._folder / "pgbouncer.ini"
        config.write_text(CONFIG.format(server=told, port=self.port, more=more))
        as_user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([program, str(config)], cwd="/", **quiet, **as_user)  # type: ignore[call-overload]
        until = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, "pgbouncer did not start"
            assert time.monotonic() < until, "pgbouncer did not start in time"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True

    def url(self, url: str) -> str:
        """The same, by way of this pooler."""
        parts = urlsplit(url)
        user = parts.username or "postgres"
        return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{self.port}"))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder)
