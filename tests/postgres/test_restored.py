"""A backup that is restored under live workers: nothing of theirs gets into it, and they notice."""

import subprocess
from collections.abc import Callable
from contextlib import suppress

import pgserver
import pytest

import holdfast
from holdfast.errors import LeaseLost, StoreReplaced
from holdfast.stores.postgres.url import settings_of


def dump(url: str) -> str:
    """The schema of a store as SQL that makes it again."""
    settings = settings_of(url)
    command = [str(pgserver.programs() / "pg_dump"), "--clean", "--schema", settings.schema, settings.conninfo]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def restore(url: str, text: str) -> None:
    command = [str(pgserver.programs() / "psql"), "-q", "-v", "ON_ERROR_STOP=1", settings_of(url).conninfo]
    subprocess.run(command, input=text, check=True, capture_output=True, text=True)


def beat(hf: holdfast.Holdfast) -> None:
    hf.client.engine.worker._extend()


def test_a_worker_that_lived_through_a_restore_writes_nothing_and_keeps_nothing(postgres_url: str) -> None:
    did: list[str] = []
    old = holdfast.open(postgres_url, lease=3600)
    run = old.run("run")
    run.claim()
    run.once("first", did.append, "first")
    backup = dump(postgres_url)
    beat(old)
    run.once("second", did.append, "second")
    restore(postgres_url, backup)
    with pytest.raises(LeaseLost):
        run.once("third", did.append, "third")
    with pytest.raises(StoreReplaced, match="open the store again"):
        beat(old)
    calls: list[Callable[[], object]] = [old.runs, lambda: old.run("another"), run.checkpoint]
    for call in calls:
        with pytest.raises(StoreReplaced):
            call()
    with suppress(StoreReplaced):
        old.close()
    with holdfast.open(postgres_url) as new:
        assert [entry.kind for entry in new.get("run").history()] == ["created", "done"]


def test_heartbeats_of_a_store_that_was_not_restored_are_no_alarm(postgres_url: str) -> None:
    with holdfast.open(postgres_url) as hf:
        run = hf.run("run")
        with run.claim():
            for _ in range(3):
                beat(hf)
                run.save({})
