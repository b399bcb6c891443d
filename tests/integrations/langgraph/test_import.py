"""Threads of LangGraph's own savers: everything arrives, twice adds nothing, and what is damaged is told."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

import holdfast
from holdfast import Holdfast
from holdfast.errors import StoreError, StoreNotFound, UsageError
from holdfast.importers import origin
from holdfast.importers.langgraph import import_langgraph
from holdfast.importers.records import Progress
from holdfast.integrations.langgraph import HoldfastSaver, reading


@pytest.fixture
def old(tmp_path: Path, nested: Any, asking: Any, thread: Any) -> str:
    """A database of LangGraph's own saver, with two threads."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    nested(saver).invoke({"xs": [HumanMessage("in", id="1")]}, thread("deep"))
    nested(saver).invoke(Command(resume="a"), thread("deep"))
    asking(saver).invoke({"xs": ["in"]}, thread("asked"))
    connection.close()
    return f"sqlite:///{path}"


def official(url: str) -> SqliteSaver:
    return SqliteSaver(sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False))


def test_threads_arrive_whole_and_go_on(old: str, hf: Holdfast, asking: Any, thread: Any) -> None:
    content = Path(old.removeprefix("sqlite:///")).read_bytes()
    steps: list[Progress] = []
    planned = import_langgraph(old, hf, dry_run=True)
    assert planned.imported == ("asked", "deep")
    assert len(hf.runs()) == 0
    summary = import_langgraph(old, hf, progress=steps.append)
    assert (summary.imported, summary.ok) == (("asked", "deep"), True)
    assert [(step.done, step.total, step.latest) for step in steps] == [(1, 2, "asked"), (2, 2, "deep")]
    saver, before = HoldfastSaver(hf), official(old)
    for id in ("asked", "deep"):
        theirs, ours = list(before.list(thread(id))), list(saver.list(thread(id)))
        assert ours == theirs
        assert len(ours) >= 3
        hf.audit(id)
    before.conn.close()
    came = origin(hf.get("deep"))
    assert came is not None
    assert (came.system, came.id) == ("langgraph", "deep")
    assert asking(saver).invoke(Command(resume="x"), thread("asked"))["xs"] == ["in", "first", "x"]
    assert Path(old.removeprefix("sqlite:///")).read_bytes() == content


def test_a_second_import_adds_nothing(old: str, hf: Holdfast, asking: Any, thread: Any) -> None:
    import_langgraph(old, hf)
    seqs = {info.id: info.seq for info in hf.runs()}
    again = import_langgraph(old, hf)
    assert (again.imported, again.already, again.notes) == ((), ("asked", "deep"), ())
    saver = official(old)
    asking(saver).invoke(Command(resume="later"), thread("asked"))
    saver.conn.close()
    [note] = import_langgraph(old, hf).notes
    assert note.run == "asked"
    assert "added there since" in note.text
    assert {info.id: info.seq for info in hf.runs()} == seqs
    assert import_langgraph(old, hf, prefix="p/").imported == ("p/asked", "p/deep")


def test_nothing_is_left_beside_what_is_read(old: str, hf: Holdfast) -> None:
    path = Path(old.removeprefix("sqlite:///"))
    before = sorted(path.parent.glob(path.name + "*"))
    assert import_langgraph(old, hf).imported
    assert sorted(path.parent.glob(path.name + "*")) == before


def test_what_is_damaged_is_told_and_the_rest_goes_on(old: str, hf: Holdfast) -> None:
    with sqlite3.connect(old.removeprefix("sqlite:///")) as db:
        db.execute("UPDATE checkpoints SET checkpoint = x'c1' WHERE thread_id = 'asked'")
        db.execute("UPDATE checkpoints SET metadata = 'no json' WHERE thread_id = 'asked'")
    db.close()
    hf.run("deep", workflow="mine")
    summary = import_langgraph(old, hf)
    assert summary.imported == ()
    assert [one.place for one in summary.damaged] == ["thread 'asked'"]
    assert [(one.run, "mine" in one.why) for one in summary.refused] == [("deep", True)]
    assert not summary.ok
    with pytest.raises(holdfast.errors.RunNotFound):
        hf.get("asked")


def test_what_reads_back_differently_is_not_kept(old: str, hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = reading.merged
    monkeypatch.setattr(reading, "merged", lambda tasks: plain(tasks)[1:])
    summary = import_langgraph(old, hf)
    assert summary.imported == ()
    assert all("read back" in one.why for one in summary.damaged)
    assert len(hf.runs()) == 0


@pytest.mark.parametrize("store_url", ["memory"], indirect=True)
def test_wrong_sources(hf: Holdfast, tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound):
        import_langgraph(f"sqlite:///{tmp_path / 'none.db'}", hf)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE a (b)").connection.close()
    with pytest.raises(StoreNotFound, match="no tables of LangGraph"):
        import_langgraph(f"sqlite:///{tmp_path / 'other.db'}", hf)
    with pytest.raises(UsageError, match="sqlite"):
        import_langgraph("files:///x", hf)
    with pytest.raises(StoreError) as failed:
        import_langgraph("postgresql://me:secret@127.0.0.1:1/none", hf)
    assert "secret" not in str(failed.value)
    assert not os.path.exists(tmp_path / "none.db")


# --- PostgreSQL: the tables as LangGraph's saver makes them

TABLES = """
CREATE TABLE checkpoints (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint JSONB NOT NULL, metadata JSONB NOT NULL DEFAULT '{}',
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE checkpoint_blobs (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', channel TEXT NOT NULL,
    version TEXT NOT NULL, type TEXT NOT NULL, blob BYTEA,
    PRIMARY KEY (thread_id, checkpoint_ns, channel, version));
CREATE TABLE checkpoint_writes (thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL, task_id TEXT NOT NULL, idx INTEGER NOT NULL, channel TEXT NOT NULL, type TEXT,
    blob BYTEA NOT NULL, task_path TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_from_postgresql(postgres_server: str, hf: Holdfast, thread: Any) -> None:
    serde = JsonPlusSerializer()
    name = f"old_{os.getpid()}_{os.urandom(4).hex()}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    url = postgres_server.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(url) as conn:
        conn.execute(TABLES)
        parent = None
        for n, v in ((1, 4), (2, 4), (3, 3)):
            versions = {"messages": f"{n:032}.0.5", "count": f"{n:032}.0.5", "gone": "1"}
            values = {**empty_checkpoint(), "v": v, "id": f"c{n}", "channel_versions": versions}
            values["channel_values"] = {"count": n}
            conn.execute(
                "INSERT INTO checkpoints VALUES ('t', '', %s, %s, NULL, %s, %s)",
                (f"c{n}", parent, json.dumps(values), json.dumps({"source": "loop", "step": n})),
            )
            messages = [HumanMessage(str(m), id=str(m)) for m in range(n)]
            blob = ("t", "", "messages", versions["messages"], *serde.dumps_typed(messages))
            conn.execute("INSERT INTO checkpoint_blobs VALUES (%s, %s, %s, %s, %s, %s)", blob)
            task = serde.dumps_typed({"sent": n})
            conn.execute(
                "INSERT INTO checkpoint_writes VALUES ('t', '', %s, 'task', 0, '__pregel_tasks', %s, %s, '~a')",
                (f"c{n}", *task),
            )
            parent = f"c{n}"
        conn.execute("INSERT INTO checkpoint_blobs VALUES ('t', '', 'gone', '1', 'empty', NULL)")
    try:
        assert import_langgraph(url, hf).imported == ("t",)
        three, two, one = HoldfastSaver(hf).list(thread())
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert [m.content for m in two.checkpoint["channel_values"]["messages"]] == ["0", "1"]
    assert two.checkpoint["channel_values"]["count"] == 2
    assert "gone" not in two.checkpoint["channel_values"]
    assert two.parent_config == one.config
    assert two.metadata == {"source": "loop", "step": 2}
    assert two.pending_writes == [("task", "__pregel_tasks", {"sent": 2})]
    assert three.checkpoint["channel_values"]["__pregel_tasks"] == [{"sent": 2}], "as older versions kept it"
