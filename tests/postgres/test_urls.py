"""URLs of a store in PostgreSQL: what they say, what is wrong with them, and that no password is ever shown."""

import builtins
import sys
from collections.abc import Callable
from typing import Any

import pytest
from pgserver import Schemas, free_port

import holdfast
from holdfast.errors import HoldfastError, StoreError, StoreNotFound, StoreUnreachable, UsageError
from holdfast.stores import open_store
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.url import masked, settings_of

SECRET = "hunter2/p@ss:w?rd"


def message(url: str) -> str:
    with pytest.raises(HoldfastError) as caught:
        open_store(url)
    text = str(caught.value)
    assert "\n" not in text
    return text


# --- what they say


def test_what_is_not_said_is_as_usual() -> None:
    settings = settings_of("postgresql://bo@db.example:5433/orders")
    assert (settings.schema, settings.pool, settings.prepare, settings.listen) == ("holdfast", 10, True, True)
    assert settings.place == "postgresql://bo@db.example:5433/orders"
    for part in ("user=bo", "host=db.example", "port=5433", "dbname=orders", "client_encoding=utf8"):
        assert part in settings.conninfo.split()


def test_options_of_ours_and_of_libpq() -> None:
    url = "postgresql://bo@h/d?schema=my%20runs&pool=3&prepare=off&listen=off&sslmode=require&application_name=shop"
    settings = settings_of(url)
    assert (settings.schema, settings.pool, settings.prepare, settings.listen) == ("my runs", 3, False, False)
    assert "sslmode=require" in settings.conninfo
    assert "application_name='holdfast shop'" in settings.conninfo
    assert "schema" not in settings.conninfo
    assert "password=a+b%c" in settings_of("postgresql://h/d?password=a+b%25c").conninfo


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ("schema=", "1 to 63 bytes"),
        ("schema=" + "x" * 64, "1 to 63 bytes"),
        ("schema=pg_mine", "does not begin with pg_"),
        ("pool=0", "from 1 to 1000"),
        ("pool=many", "from 1 to 1000"),
        ("prepare=maybe", "takes on or off"),
        ("listen=1", "takes on or off"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(option: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        open_store(f"postgresql://h/d?{option}")


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(StoreNotFound, match="colour"):
        open_store("postgresql://h/d?colour=red")


# --- what is wrong


def test_the_scheme_is_guessed() -> None:
    assert "did you mean postgresql://bo@h/d?" in message("postgres://bo@h/d")
    assert "postgresql://" in message("mysql://h/d")


def test_nobody_listens_there() -> None:
    text = message(f"postgresql://bo:{'secret1'}@127.0.0.1:{free_port()}/d")
    assert "Connection refused" in text
    assert "check the server" in text
    assert "secret1" not in text


def test_a_user_that_there_is_not(postgres_schemas: Schemas) -> None:
    with pytest.raises(StoreUnreachable, match=r"nobody-of-that-name.*check the server, the user and the password"):
        open_store(postgres_schemas.elsewhere(user="nobody-of-that-name"))


def test_a_database_that_there_is_not(postgres_schemas: Schemas) -> None:
    with pytest.raises(StoreNotFound, match=r'"nowhere" does not exist; create it with createdb, or name another one'):
        open_store(postgres_schemas.elsewhere(database="nowhere"))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://bo:{SECRET}@127.0.0.1:1/d",
        "postgresql://bo:hunter2%zz@127.0.0.1:1/d",
        "postgresql://bo:hunter2@127.0.0.1:notaport/d",
        "postgresql://127.0.0.1:1/d?user=bo&password=hunter2",
        "postgresql://bo:hunter2@/d?host=/nowhere",
        "postgresql://bo:hunter2@127.0.0.1:1/d?pool=many",
        "postgres://bo:hunter2@127.0.0.1/d",
        "postgresq://bo:hunter2@127.0.0.1/d",
        "mysql://bo:hunter2@127.0.0.1/d",
    ],
)
def test_no_message_shows_the_password(url: str) -> None:
    text = message(url)
    assert "hunter2" not in text
    assert "w?rd" not in text
    with pytest.raises(HoldfastError) as caught:
        holdfast.open(url)
    assert "hunter2" not in repr(caught.value)


def test_the_place_shows_no_password(postgres_schemas: Schemas, postgres_url: str) -> None:
    url = postgres_url.replace("@", ":hunter2@")
    with holdfast.open(url) as hf:
        assert "hunter2" not in repr(hf)
        assert "hunter2" not in hf.client.store.place
    assert masked("postgresql://a:b@h/d?sslpassword=c&x=1") == "postgresql://a@h/d?sslpassword=***&x=1"
    assert masked("no url") == "no url"


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "psycopg":
            raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
        return real(name, *args, **kwargs)

    for name in [name for name in sys.modules if name.startswith("holdfast.stores.postgres.store")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'holdfast\[postgres\]'"):
        open_store("postgresql://h/d")


# --- the pool


def test_a_pool_that_is_used_up_is_told(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.stores.postgres import connections

    monkeypatch.setattr(connections, "PATIENCE", 0.2)
    store = PostgresStore(f"{postgres_url}&pool=1")
    with (
        store._link.once(lambda conn: None),
        pytest.raises(StoreError, match=r"all 1 connections are in use; raise \?pool="),
    ):
        store.get("run")
    assert store.get("run") is None
    store.close()


def test_statements_are_not_prepared_where_a_pooler_mixes_sessions(postgres_url: str) -> None:
    """Each connection is made to forget what was prepared on it, as another one's would not have it."""
    store = PostgresStore(f"{postgres_url}&pool=1")
    for _ in range(20):
        store.get("run")
    assert store._link.prepares
    with store._link.once(lambda conn: None) as (conn, _):
        conn.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")  # so that psycopg does not learn of it
        prepared = conn.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
    assert prepared == (0,)
    assert store.get("run") is None
    assert not store._link.prepares
    store.close()
    store = PostgresStore(f"{postgres_url}&pool=1&prepare=off")
    for _ in range(20):
        store.get("run")
    with store._link.once(lambda conn: None) as (conn, _):
        assert conn.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    store.close()
