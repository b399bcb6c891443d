"""Settings of the server that weaken what a commit promises: they are overruled where that can be, and told."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator

import psycopg
import pytest
from pgserver import Schemas, Server

from holdfast.stores.postgres.connections import begin
from holdfast.stores.postgres.store import PostgresStore

OFF = "options=-c%20synchronous_commit%3Doff"


@pytest.fixture
def lazy(postgres_schemas: Schemas, postgres_url: str) -> Iterator[str]:
    """The URL of a store, for a role whose commits wait for no disk."""
    name, schema = f"lazy_{postgres_schemas.name}", postgres_url.partition("schema=")[2]
    postgres_schemas.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
    postgres_schemas.execute(f"ALTER ROLE {name} SET synchronous_commit = off")
    yield f"{postgres_schemas.elsewhere(user=name)}?schema={schema}"
    postgres_schemas.execute(f"DROP ROLE {name}")


def waits_for(store: PostgresStore) -> object:
    """For what a commit of the store waits."""
    asked = ("SELECT current_setting('synchronous_commit')", ())
    [[(told,)]] = store._link.call(lambda conn, again: begin(conn, asked))
    [(alone,)] = store._link.ask(*asked)
    assert told == alone
    return told


def test_a_role_that_waits_for_no_disk_does_in_holdfast(lazy: str) -> None:
    with psycopg.connect(lazy.partition("?")[0]) as conn:
        assert conn.execute("SHOW synchronous_commit").fetchone() == ("off",)
    store = PostgresStore(lazy)
    assert waits_for(store) == "on"
    assert not any("synchronous_commit" in weakness for weakness in store.weaknesses())
    store.close()


def test_more_than_the_disk_is_waited_for_as_the_server_wants_it(
    postgres_schemas: Schemas, lazy: str, caplog: pytest.LogCaptureFixture
) -> None:
    postgres_schemas.execute(f"ALTER ROLE lazy_{postgres_schemas.name} SET synchronous_commit = remote_apply")
    store = PostgresStore(lazy)
    assert waits_for(store) == "remote_apply"
    store.close()


def test_who_turns_it_off_in_the_url_gets_that_and_is_warned(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast"):
        store = PostgresStore(f"{postgres_url}&{OFF}")
    assert waits_for(store) == "off"
    assert "synchronous_commit is off by the options of the URL" in caplog.text
    store.close()


def doctor(url: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "doctor", "--json", "--store", url],
        capture_output=True,
        text=True,
        check=True,
    )
    return {one["text"]: one["level"] for one in json.loads(done.stdout)["findings"] if one["what"] == "durability"}


def test_a_server_that_syncs_nothing_is_told_at_open_and_by_doctor(
    postgres_url: str, sql: Callable[..., list[tuple[object, ...]]], caplog: pytest.LogCaptureFixture
) -> None:
    if sql("SHOW fsync") != [("off",)]:
        pytest.skip("the server syncs")
    with caplog.at_level(logging.WARNING, "holdfast"):
        PostgresStore(postgres_url).close()
    assert "fsync is off" in caplog.text
    [(text, level)] = doctor(postgres_url).items()
    assert (text.partition(",")[0], level) == ("fsync is off", "warning")


@pytest.mark.slow(covered_by="tests/postgres/test_durability.py::test_a_role_that_waits_for_no_disk_does_in_holdfast")
def test_a_server_that_syncs_is_well(own_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    from holdfast.stores.postgres.schema import migrate

    migrate(own_server.url)
    with caplog.at_level(logging.WARNING, "holdfast"):
        PostgresStore(own_server.url).close()
    assert caplog.text == ""
    assert list(doctor(own_server.url).values()) == ["ok"]
    assert list(doctor(f"{own_server.url}?{OFF}").values()) == ["warning"]
