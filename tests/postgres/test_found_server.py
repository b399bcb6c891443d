"""HOLDFAST_TEST_POSTGRES: the tests use a server that is there already, and leave nothing behind."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from pgserver import Server, found

LEFT = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'test%' UNION SELECT datname FROM pg_database"


def test_a_server_that_is_named_is_used(own_server: Server) -> None:
    """Here one that is known by a database which no other server has."""
    with psycopg.connect(own_server.url, autocommit=True) as conn:
        conn.execute("CREATE DATABASE known_by_this")
    url = own_server.url.rpartition("/")[0] + "/known_by_this"
    tests = str(Path(__file__).with_name("test_contract.py"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, "-k", "claim and expired"]
    env = {**os.environ, "HOLDFAST_TEST_POSTGRES": url}
    env.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr
    with psycopg.connect(url) as conn:
        left = {name for (name,) in conn.execute(LEFT)}
        assert left == {"postgres", "template0", "template1", "known_by_this"}
        [(commits,)] = conn.execute(
            "SELECT xact_commit FROM pg_stat_database WHERE datname = 'known_by_this'"
        ).fetchall()
        assert commits > 10


def test_without_a_name_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_POSTGRES", "")
    assert found() is None
