"""A call that is wrong is refused at once, by an error that names what was given and what is wanted."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Field, Holdfast, HoldfastError, Keyring, RunNotFound, UsageError
from holdfast.errors import (
    BackupDamaged,
    KeyMissing,
    NoCheckpoint,
    NonDeterminism,
    RunExists,
    StoreDamaged,
    StoreError,
    StoreNotFound,
    StoreReadOnly,
    StoreTooNew,
    UndoRefused,
)

Opener = Callable[..., Holdfast]


def refusal(kind: type[HoldfastError], call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> str:
    """What the refused call says: one line, of exactly this type."""
    with pytest.raises(kind) as refused:
        call(*args, **kwargs)
    assert type(refused.value) is kind
    message = str(refused.value)
    assert "\n" not in message
    return message


# --- the URL


@pytest.mark.parametrize(
    ("url", "told"),
    [
        (Path("p.db"), "a store is named by a URL such as sqlite:///p.db, not by a path"),
        (None, "url=None: a store is named by a URL such as sqlite:///runs.db, not NoneType"),
        (b"memory://", "a URL such as sqlite:///runs.db, not bytes"),
    ],
)
def test_a_store_is_named_by_a_url(url: Any, told: str) -> None:
    assert told in refusal(UsageError, holdfast.open, url)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("runs.db", "did you mean sqlite:///runs.db?"),
        ("/var/x.db", "did you mean sqlite:////var/x.db?"),
        ("sqlite:runs.db", "did you mean sqlite:///runs.db?"),
        ("sqlite3:///runs.db", "did you mean sqlite:///runs.db?"),
        ("file:///x", "did you mean files:///x?"),
        ("file:////var/x", "did you mean files:////var/x?"),
        ("memory", "did you mean memory://?"),
        ("Memory://a", "did you mean memory://a?"),
        ("sqlite://runs.db", "sqlite: takes three slashes: sqlite:///runs.db"),
        ("files://runs", "files: takes three slashes: files:///runs"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:///~/runs.db", "~ is not expanded; give the whole path"),
        ("files:///~", "~ is not expanded; give the whole path"),
        ("redis://x?a=b", "use memory://, files:///path, sqlite:///path or postgresql://"),
    ],
)
def test_a_url_that_is_nearly_right(url: str, told: str) -> None:
    message = refusal(StoreNotFound, holdfast.open, url)
    assert message.startswith(f"store {url}: ")
    assert told in message


def test_a_folder_that_is_not_a_url(memdir: Path) -> None:
    assert f"did you mean files:///{memdir}?" in refusal(StoreNotFound, holdfast.open, str(memdir))
    assert f"such as files:///{memdir}, not by a path" in refusal(UsageError, holdfast.open, memdir)


def test_a_wave_within_a_name_is_a_name(memdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(memdir)
    holdfast.open("sqlite:///~runs.db").close()
    assert (memdir / "~runs.db").exists()


# --- the other options of open


@pytest.mark.parametrize("keys", [{"k": b"k" * 32}, b"k" * 32, "secret", True])
def test_keys_are_a_keyring_and_never_shown(keys: Any) -> None:
    message = refusal(UsageError, holdfast.open, "memory://", keys=keys)
    assert "holdfast.Keyring({...}, current=...)" in message
    assert "kkk" not in message
    assert "secret" not in message


def test_a_keyring_is_made_of_several_keys() -> None:
    message = refusal(UsageError, Keyring, b"k" * 32, current="k")
    assert "Keyring({id: key}, current=id)" in message
    assert "kkk" not in message


@pytest.mark.parametrize("lease", ["30", None, True, -1, 0, float("nan"), float("inf"), timedelta(seconds=3)])
def test_a_lease_is_a_number_of_seconds(lease: Any) -> None:
    message = refusal(UsageError, holdfast.open, "memory://", lease=lease)
    assert message == f"lease={lease!r}: a lease lasts for more than 0 seconds, given as a number"


@pytest.mark.parametrize("max_bytes", ["1", None, True, 0, -1, 1e6])
def test_the_largest_payload_is_a_number_of_bytes(max_bytes: Any) -> None:
    assert f"max_bytes={max_bytes!r}: " in refusal(UsageError, holdfast.open, "memory://", max_bytes=max_bytes)


def test_nothing_is_made_by_a_refused_open(memdir: Path) -> None:
    refusal(UsageError, holdfast.open, f"sqlite:///{memdir / 'runs.db'}", lease=0)
    assert list(memdir.iterdir()) == []


# --- what stands at the path


def test_a_text_file_is_no_store_and_stays_alone(memdir: Path) -> None:
    path = memdir / "text.txt"
    path.write_text("a letter\n" * 50)
    message = refusal(StoreDamaged, holdfast.open, f"sqlite:///{path}")
    assert "this is not a SQLite file; choose another path" in message
    assert "restore a backup into a new one" in message
    assert list(memdir.iterdir()) == [path]
    assert path.read_text() == "a letter\n" * 50


def test_a_database_of_another_program_stays_alone(memdir: Path) -> None:
    path = memdir / "theirs.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (name TEXT)")
        db.commit()
    assert "belongs to another program" in refusal(StoreError, holdfast.open, f"sqlite:///{path}")
    assert list(memdir.iterdir()) == [path]


def test_a_store_that_was_moved_without_its_locks_is_opened(memdir: Path) -> None:
    with holdfast.open(f"sqlite:///{memdir / 'old.db'}") as hf:
        hf.run("run").save(1)
    (memdir / "old.db").rename(memdir / "new.db")
    with holdfast.open(f"sqlite:///{memdir / 'new.db'}") as hf:
        assert hf.get("run").checkpoint().state == 1


def test_a_folder_is_no_sqlite_file(memdir: Path) -> None:
    (memdir / "folder").mkdir()
    message = refusal(StoreError, holdfast.open, f"sqlite:///{memdir / 'folder'}")
    assert message.endswith("it is a folder, not a file; choose another path")
    assert [one.name for one in memdir.iterdir()] == ["folder"]


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
@pytest.mark.parametrize("path", ["/tmp/" + "x" * 300, *(["/proc/x.db"] if sys.platform == "linux" else [])])
def test_a_path_that_cannot_be_made(scheme: str, path: str) -> None:
    message = refusal(StoreError, holdfast.open, f"{scheme}:///{path}")
    assert message.startswith(f"store {scheme}:///{path}: ")
    assert "choose another" in message


def test_a_path_inside_of_a_file(memdir: Path) -> None:
    (memdir / "file").touch()
    for scheme in ("sqlite", "files"):
        assert "Not a directory" in refusal(StoreReadOnly, holdfast.open, f"{scheme}:///{memdir / 'file' / 'x'}")


# --- runs


def test_a_missing_run_is_sought_in_a_place(hf: Holdfast) -> None:
    message = refusal(RunNotFound, hf.get, "nope")
    assert message == (
        f"run 'nope': there is no such run in {hf.place}; hf.start(workflow, ..., id='nope') would make it, or "
        "hf.run('nope') for a loop of your own"
    )


@pytest.mark.parametrize("tags", [["a"], "a=b", {"a": 1}, {1: "a"}, 7])
def test_tags_are_text_by_text(hf: Holdfast, tags: Any) -> None:
    hf.run("there")
    for call in (lambda: hf.run("run", tags=tags), lambda: hf.run("there", tags=tags), lambda: hf.runs(tags=tags)):
        assert f"tags={tags!r}: tags are text by text" in refusal(UsageError, call)
    assert [info.id for info in hf.runs()] == ["there"]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"limit": "x"}, "limit='x': an int is wanted"),
        ({"limit": True}, "limit=True: "),
        ({"limit": 0}, "limit=0: an int is wanted, since a page has at least one run"),
        ({"limit": None}, "limit=None: "),
        ({"after": "zzz"}, "after='zzz' is not what a page gave as its next (24 hex digits)"),
        ({"after": "z" * 24}, "24 hex digits"),
        ({"after": 7}, "after=7 is not"),
        ({"created_from": "2025-01-01"}, "created_from='2025-01-01': give a datetime with a time zone"),
        ({"created_before": 1.5}, "created_before=1.5: give a datetime"),
        ({"created_before": datetime(2025, 1, 1)}, "created_before=datetime.datetime(2025, 1, 1, 0, 0) has no time"),
        ({"status": "asleep"}, "status='asleep': a status is one of ready, running"),
        ({"status": 7}, "status=7: a status is one of"),
        ({"status": [7]}, "status=[7]: a status is one of"),
        ({"workflow": 7}, "workflow=7: text is wanted, not int"),
        ({"prefix": b"x"}, "prefix=b'x': text is wanted, not bytes"),
    ],
)
def test_how_runs_are_listed(hf: Holdfast, how: dict[str, Any], told: str) -> None:
    assert told in refusal(UsageError, hf.runs, **how)


def test_a_cursor_of_the_list_is_taken(hf: Holdfast) -> None:
    for n in range(3):
        hf.run(str(n))
    first = hf.runs(limit=2, created_from=datetime(2000, 1, 1, tzinfo=UTC))
    assert [info.id for info in hf.runs(limit=2, after=first.next)] == ["0"]


def test_a_workflow_is_text(hf: Holdfast) -> None:
    assert "workflow=7: text is wanted" in refusal(UsageError, hf.run, "run", workflow=7)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"older_than": 30}, "older_than=30: give a timedelta, such as timedelta(days=30)"),
        ({"older_than": "30d"}, "older_than='30d': give a timedelta, such as timedelta(days=30)"),
        ({"keep_last": "x"}, "keep_last='x': how many runs to keep is an int, at least 0"),
        ({"keep_last": -1}, "keep_last=-1: "),
        ({"statuses": ["done"]}, "statuses=['done']: a status is one of"),
    ],
)
def test_what_is_pruned(hf: Holdfast, how: dict[str, Any], told: str) -> None:
    hf.run("run").complete()
    assert told in refusal(UsageError, hf.prune, **how)
    assert len(hf.runs()) == 1


# --- sequence numbers


@pytest.mark.parametrize("seq", ["x", True, 4.0, b"1", [1]])
def test_a_sequence_number_is_an_int(hf: Holdfast, seq: Any) -> None:
    run = hf.run("run")
    run.save(1)
    for name, call in {
        "seq": [run.checkpoint, run.redact],
        "at": [run.fork],
        "to": [run.rollback, run.plan_rollback],
    }.items():
        for operation in call:
            message = refusal(UsageError, operation, seq)
            assert message == f"{name}={seq!r}: a sequence number is an int, such as save() returns"
    assert (run.info().seq, run.info().generation) == (1, 0)


def test_a_rollback_goes_somewhere(hf: Holdfast) -> None:
    run = hf.run("run")
    for operation in (run.rollback, run.plan_rollback):
        assert "to=None: a sequence number is an int" in refusal(UsageError, operation, None)


def test_a_rollback_to_what_is_not_there(hf: Holdfast) -> None:
    run = hf.run("run")
    start = run.save("start")
    lost = run.save("lost")
    newest = run.info().seq
    for operation in (run.rollback, run.plan_rollback):
        for to in (999, -1):
            message = refusal(NoCheckpoint, operation, to=to)
            assert message == f"run 'run': there is no entry {to}; the newest is {newest}"
    run.rollback(to=start)
    for operation in (run.rollback, run.plan_rollback):
        message = refusal(NoCheckpoint, operation, to=lost)
        assert message.endswith(f"it was abandoned by a rollback; fork it with fork(at={lost})")
    assert run.fork(at=lost).checkpoint().state == "lost", "what the message says is possible"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"limit": 0}, "limit=0: an int is wanted, since a page has at least one entry"),
        ({"limit": "x"}, "limit='x': "),
        ({"limit": 2.0}, "limit=2.0: "),
        ({"kind": "zzz"}, "kind='zzz': an entry's kind is one of created, forked, saved"),
        ({"kind": ["saved"]}, "kind=['saved']: "),
        ({"after": 7}, "after=7 is not what a page gave"),
        ({"after": "-1"}, "after='-1' is not what a page gave"),
    ],
)
def test_how_a_history_is_listed(hf: Holdfast, how: dict[str, Any], told: str) -> None:
    assert told in refusal(UsageError, hf.run("run").history, **how)


# --- states, forks and steps


@pytest.mark.parametrize("name", ["next", "node"])
@pytest.mark.parametrize("value", [3, ["a"], b"x"])
def test_where_a_run_stands_is_text(hf: Holdfast, name: str, value: Any) -> None:
    run = hf.run("run")
    message = refusal(UsageError, run.save, 1, **{name: value})
    assert message == f"{name}={value!r}: text is wanted, not {type(value).__name__}"
    assert run.info().seq == 0


def test_what_was_given_is_not_shown_at_length(hf: Holdfast) -> None:
    message = refusal(UsageError, hf.run("run").save, 1, next=["line\nline"] * 1000)
    assert len(message) < 150


def test_a_fork_needs_an_id_of_its_own(hf: Holdfast) -> None:
    hf.run("taken")
    message = refusal(RunExists, hf.run("run").fork, id="taken")
    assert message == "run 'taken': a run with this id exists already; choose another id"


def test_a_changed_step_says_what_changed(hf: Holdfast) -> None:
    run = hf.run("run")
    run.once("key", str.upper, "a")
    arguments = refusal(NonDeterminism, run.once, "key", str.upper, "b")
    assert "now it is called with other arguments." in arguments
    function = refusal(NonDeterminism, run.once, "key", str.lower, "a")
    assert "completed at 1 as str.upper; now it is called as str.lower, another function." in function


# --- questions


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (["a"], "fields=['a']: each is a Field or a mapping, such as Field('name', 'text')"),
        ([3], "fields=[3]: each is a Field"),
        ({"name": "a"}, "fields={'name': 'a'}: is a list of fields"),
        (Field("a"), "is a list of fields, such as [Field('name', 'text')]"),
        ("a", "fields='a': is a list of fields"),
        (3, "fields=3: is a list of fields"),
        ([Field("a", "bool")], "field a: type='bool' is none of boolean, choice, integer, number, text"),  # type: ignore[arg-type]
        ([Field("a", ["text"])], "field a: type=['text'] is none of"),  # type: ignore[arg-type]
        ([{"name": "a", "type": None}], "field a: type=None is none of"),
        ([Field("a", options="xyz")], "field a: options='xyz' is not a list of text"),  # type: ignore[arg-type]
        ([{"name": "a", "options": None}], "field a: options=None is not a list"),
        ([{"name": "a", "label": 3}], "field a: label=3 is not text"),
        ([{"name": "a", "required": "no"}], "field a: required='no' is neither True nor False"),
        ([{"name": ["a"]}], "name is text, not ['a']"),
    ],
)
def test_the_fields_of_a_question(hf: Holdfast, fields: Any, told: str) -> None:
    run = hf.run("run")
    assert told in refusal(UsageError, run.pause, "x", fields)
    assert run.info().seq == 0


def test_fields_may_come_one_by_one_and_types_may_be_pythons(hf: Holdfast) -> None:
    asked = hf.run("run").pause("x", (field for field in [Field("a", bool), {"name": "b", "type": int}]))  # type: ignore[arg-type]
    assert [field.type for field in asked.fields] == ["boolean", "integer"]


def test_a_question_itself_says_which_one_is_answered(hf: Holdfast) -> None:
    run = hf.run("run")
    first = run.pause("First?", output_key="a")
    second = run.pause("Second?", output_key="b")
    run.answer("yes", question=second)
    assert run.questions() == (first,)
    with pytest.raises(
        holdfast.errors.QuestionClosed, match=re.escape(second.id) + f".*; open is {re.escape(first.id)}$"
    ):
        run.answer("again", question=second)
    run.answer("no", question=first)
    with run.claim():
        assert run.checkpoint().answers == {"a": "no", "b": "yes"}


# --- keys


def test_a_missing_key_names_the_run(opened: Opener) -> None:
    old, new = ({"old": b"o" * 32}, "old"), ({"new": b"n" * 32}, "new")
    opened(keys=Keyring(*old)).run("secret").save(1)
    for hf in (opened(keys=Keyring(*new)), opened(keys=Keyring({"old": b"x" * 32}, "old")), opened()):
        message = refusal(KeyMissing, hf.get("secret").checkpoint)
        assert message.startswith("run 'secret'")
        assert "'old'" in message
    assert refusal(KeyMissing, opened(keys=Keyring(*new)).rotate_keys).startswith("run 'secret': ")


# --- undos

SCRIPT = """
import sys
import holdfast

def act(what):
    return what

def take_back(result, what):
    pass

with holdfast.open(sys.argv[1]) as hf:
    run = hf.run("run")
    run.save("start")
    run.once("act", act, "x", undo=take_back)
"""


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            ["script.py"],
            "it was defined in a script; roll back from that script, or register it with undo_function",
        ),
        (["-c", "import script"], "put its folder on PYTHONPATH, or register it with undo_function"),
    ],
    ids=["script", "module"],
)
def test_an_undo_that_is_not_at_hand(store_url: str, memdir: Path, command: list[str], told: str) -> None:
    (memdir / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, *command, store_url], cwd=memdir, check=True)
    with holdfast.open(store_url) as hf:
        run = hf.get("run")
        message = refusal(UndoRefused, run.rollback, to=1)
        assert "take_back cannot be found here" in message
        assert message.endswith(told)
        assert run.info().generation == 0


# --- backups


def test_what_is_wrong_with_a_backup_is_said_of_the_backup(hf: Holdfast, memdir: Path) -> None:
    assert refusal(StoreError, hf.restore, memdir / "nope").startswith(
        f"backup {memdir / 'nope'}: it could not be read"
    )
    there = memdir / "no folder" / "b"
    assert refusal(StoreError, hf.backup, there).startswith(f"backup {there}: it could not be written")
    (memdir / "text").write_text("text")
    assert refusal(BackupDamaged, hf.restore, memdir / "text").startswith(f"backup {memdir / 'text'}: ")
    for operation in (hf.backup, hf.restore):
        assert "path=None: a backup is a file" in refusal(UsageError, operation, None)


def test_a_backup_of_a_newer_holdfast(hf: Holdfast, memdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hf.run("run")
    hf.backup(memdir / "backup")
    monkeypatch.setattr("holdfast.engine.admin.backup.READER", 0)
    message = refusal(StoreTooNew, hf.restore, memdir / "backup")
    assert message == f"backup {memdir / 'backup'}: it was written by a newer Holdfast; upgrade this one"


# --- the package


def test_the_package_lists_its_public_names_alone() -> None:
    assert dir(holdfast) == sorted(holdfast.__all__)
