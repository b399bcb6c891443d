"""`holdfast audit`, `redact`, `prune`, `export`, `import`, `backup`, `restore`, `init`, `doctor` and `worker`."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast

from .conftest import SHOPPING, Call

Begin = Callable[..., "subprocess.Popen[str]"]


def damaged(memdir: Path, seq: int = 1) -> None:
    with sqlite3.connect(memdir / "runs.db") as db:
        assert db.execute("UPDATE entry SET payload = ? WHERE seq = ?", (b'{"damaged": 1}', seq)).rowcount
    db.close()


# --- audit, redact, prune


def test_audit(call: Call, shop: Call, memdir: Path) -> None:
    shop("quick", "a")
    shop("sell", "b", order="B")
    done = call("audit")
    assert done.code == 0
    assert "2 of 2 runs verify." in done.out
    [report] = call("audit", "a", "--json").json["audits"]
    assert call("audit", "a", "--head", report["head"]).code == 0
    assert call("audit", "a", "--head", "99:" + "0" * 64).code == 7
    assert call("audit", "--head", "1:00").code == 2
    assert call("audit", "a", "--status", "failed").code == 2
    assert call("audit", "nobody").code == 8
    assert "No runs" not in call("audit", "--status", "failed").out
    damaged(memdir)
    broken = call("audit", "--json")
    assert broken.code == 7
    assert sorted(one["run"] for one in broken.json["damaged"]) == ["a", "b"]


def test_redact(call: Call, shop: Call) -> None:
    shop("sell", "s1", order="Secret Street 7")
    assert call("redact", "s1", "2").code == 2  # nobody can be asked here
    assert call("redact", "s1", "99", "--yes").code == 8
    done = call("redact", "s1", "2", "--yes", "--by", "me", "--why", "asked for")
    assert done.code == 0
    assert call("redact", "s1", "1", "--yes", "--json").json["redacted"] == [1]
    assert call("audit", "s1", "--json").json["audits"][0]["redacted"] == [1, 2]


def test_prune(call: Call, shop: Call, store: Holdfast) -> None:
    for id in "abc":
        shop("quick", id)
    shop("sell", "s1", order="A")
    assert call("prune").code == 2
    assert "There is nothing to delete." in call("prune", "--older-than", "1d", "--dry-run").out
    assert call("prune", "--older-than", "soon").code == 2
    dry = call("prune", "--keep-last", "1", "--dry-run", "--json").json
    assert dry == {"would": "prune", "count": 2, "runs": ["b", "a"]}
    refused = call("prune", "--keep-last", "1")
    assert refused.code == 2
    assert "2 to delete" in refused.err
    assert len(store.runs()) == 4
    assert call("prune", "--keep-last", "1", "--yes", "--json").json == {"pruned": ["b", "a"], "count": 2}
    assert "1 deleted." in call("prune", "--status", "waiting", "--yes").out
    assert [info.id for info in store.runs()] == ["c"]


# --- files


def test_export_and_import(call: Call, shop: Call, memdir: Path, url: str) -> None:
    shop("family", "p")
    shop("quick", "q")
    call("fork", "q", "--id", "q2", "--at", "0")
    assert call("export", "-o", "x").code == 2
    assert call("export", "nobody", "-o", "x").code == 8
    assert call("export", "p", "q2", "-o", "some.holdfast", "--json").json == {"file": "some.holdfast", "runs": 4}
    assert call("export", "p", "-o", "some.holdfast").code == 2
    assert call("export", "p", "-o", "some.holdfast", "--force").code == 0
    call("export", "p", "q2", "-o", "some.holdfast", "--force")
    copy = f"sqlite:///{memdir / 'copy.db'}"
    done = call("import", "some.holdfast", "--store", copy, "--json")
    assert done.code == 0
    assert sorted(done.json["blocked"]) == ["p", "p/shopping.sell#1", "q2"]
    ids = sorted(run["id"] for run in call("runs", "--store", copy, "--json").json["runs"])
    assert ids == ["p", "p/shopping.sell#1", "q", "q2"]
    shop("quick", "other")
    call("export", "--prefix", "o", "-o", "o.holdfast")
    with holdfast.open(copy) as hf:
        hf.run("other")
    assert call("import", "o.holdfast", "--store", copy).code == 9


def test_backup_and_restore(call: Call, shop: Call, memdir: Path) -> None:
    shop("quick", "q")
    shop("sell", "s", order="A")
    assert call("backup", "all.holdfast").out == "2 runs in all.holdfast.\n"
    assert call("backup", "all.holdfast").code == 2
    hook = ["--url", "https://chat.example.org/in", "--secret-env", "CHAT_SECRET"]
    assert call("hook", "chat", *hook).code == 0
    assert call("schedule", "daily", "--cron", "0 9 * * *", "--run", f"{SHOPPING}:quick").code == 0
    call("backup", "all.holdfast", "--force")
    restored = ("restore", "all.holdfast", "--store", "files:///restored")
    assert call(*restored).out.splitlines() == [
        "Taken in: 2 runs.",
        "  blocked, since it had not ended: holdfast unblock s --store files:///restored",
        "  paused schedule: holdfast schedule daily --resume --store files:///restored",
        "  paused hook: holdfast hook chat --resume --store files:///restored",
    ]
    assert call(*restored).out == "Nothing was taken in: all 2 runs of it are here already.\n"
    given = call(*restored, "--json").json
    assert (given["runs"], sorted(given["already"]), given["blocked"]) == ([], ["q", "s"], [])
    [kept] = call("hooks", "--store", "files:///restored", "--json").json["hooks"]
    assert (kept["name"], kept["paused"]) == ("chat", True)
    resumed = call("hook", "chat", "--resume", "--store", "files:///restored", "--json").json["hook"]
    assert resumed["paused"] is False
    call("restore", "all.holdfast", "--store", "files:///restored")
    [kept] = call("hooks", "--store", "files:///restored", "--json").json["hooks"]
    assert kept["paused"] is False  # what is here stays
    assert call("restore", "nowhere.holdfast").code == 8
    (memdir / "cut.holdfast").write_bytes((memdir / "all.holdfast").read_bytes()[:-40])
    done = call("restore", "cut.holdfast", "--store", "files:///other")
    assert done.code == 7
    assert "Traceback" not in done.err


# --- stores


def test_the_default_store_is_made_by_init(
    call: Call, shop: Call, memdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_STORE")
    for words in (["runs"], ["run", f"{SHOPPING}:quick"]):
        done = call(*words)
        assert done.code == 8
        assert "`holdfast init` makes one" in done.err
    made = call("init", "--json").json
    assert made["made"] == [".holdfast/holdfast.db", ".holdfast/.gitignore", "hello.py"]
    assert call("runs").out == "No runs.\n"
    (memdir / "hello.py").write_text("mine\n")
    assert "Everything is there already." in call("init").out
    assert (memdir / "hello.py").read_text() == "mine\n"
    assert call("init", "below", "--no-example").code == 0
    assert (memdir / "below" / ".holdfast" / "holdfast.db").is_file()


def test_the_example_of_init_runs(memdir: Path) -> None:
    def holdfast_(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST")}
        command = [sys.executable, "-m", "holdfast", *words]
        return subprocess.run(command, cwd=memdir, env=environment, capture_output=True, text=True, timeout=60)

    assert "Try it:" in holdfast_("init").stdout
    source = (memdir / "hello.py").read_text()
    (memdir / "hello.py").write_text(source.replace("time.sleep(1)", "time.sleep(0)"))
    assert holdfast_("run", "hello.py", "--input", '{"name": "you"}', "--id", "h").returncode == 3
    answered = holdfast_("answer", "h", "true", "--resume", "--module", "hello.py")
    assert (answered.returncode, answered.stderr) == (0, "")
    assert "sent to you: Hello, you." in answered.stdout
    back = holdfast_("rollback", "h", "--to", "0", "--then", "cancelled", "--module", "hello", "--yes")
    assert "taken back: sent to you" in back.stdout


@pytest.mark.parametrize(
    ("store", "code", "said"),
    [
        ("sqlite:///typo.db", 8, "there is nothing at typo.db"),
        ("files:///typo", 8, "there is nothing at typo"),
        ("runs.db", 8, "did you mean sqlite:///runs.db?"),
        ("postgres", 8, "there is no store of this kind"),
        ("sqlite://x.db", 8, "three slashes"),
        ("sqlite:///text.txt", 7, "not a SQLite file"),
    ],
)
def test_wrong_stores(call: Call, memdir: Path, store: str, code: int, said: str) -> None:
    (memdir / "text.txt").write_text("just some text " * 100)
    done = call("runs", "--store", store)
    assert (done.code, said in done.err) == (code, True), done.err
    assert not (memdir / "typo.db").exists()


def test_an_encrypted_store_is_read_with_its_keys(call: Call, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from base64 import b64encode

    key = b"k" * 32
    with holdfast.open(url, keys=holdfast.Keyring({"k1": key}, current="k1")) as hf:
        hf.run("private").save({"name": "hidden"})
    assert call("state", "private").code == 9
    monkeypatch.setenv("HOLDFAST_KEYS", f"k1={b64encode(key).decode()}")
    assert json.loads(call("state", "private").out) == {"name": "hidden"}
    monkeypatch.setenv("HOLDFAST_KEYS", "k1=nonsense!")
    wrong = call("state", "private")
    assert wrong.code == 2
    assert "nonsense" not in wrong.err


@pytest.mark.parametrize("words", [["worker", SHOPPING, "--until-idle"], ["run", f"{SHOPPING}:quick"]])
def test_whoever_makes_a_store_is_told(call: Call, memdir: Path, words: list[str]) -> None:
    """The URL may be mistyped."""
    told = "There was no store at new.db: a new one is made."
    assert told in call(*words, "--store", "sqlite:///new.db").err
    assert told not in call(*words, "--store", "sqlite:///new.db").err
    assert call("runs", "--store", "sqlite:///typo.db").code == 8
    assert not (memdir / "typo.db").exists()


# --- doctor


def findings(ended: Any) -> dict[str, str]:
    return {finding["what"]: finding["level"] for finding in ended.json["findings"]}


def test_doctor_of_a_sound_store(call: Call, shop: Call) -> None:
    shop("quick", "q")
    done = call("doctor")
    assert done.code == 0
    assert "All is well." in done.out
    assert set(findings(call("doctor", "--json")).values()) == {"ok"}


def test_doctor_looks_at_the_file_whatever_its_path_is(call: Call, memdir: Path) -> None:
    folder = memdir / "a#b c"
    folder.mkdir()
    url = f"sqlite:///{folder / 'runs.db'}"
    with holdfast.open(url) as hf:
        hf.run("r")
    before = sorted(memdir.iterdir())
    found = findings(call("doctor", "--json", "--store", url))
    assert set(found.values()) == {"ok"}
    assert sorted(memdir.iterdir()) == before


def test_doctor_finds_damage(call: Call, shop: Call, memdir: Path) -> None:
    shop("quick", "q")
    damaged(memdir)
    done = call("doctor", "--json")
    assert done.code == 12
    assert findings(done)["journal"] == "problem"
    assert "; restore the run from a backup" in call("doctor", "--full").out


def test_doctor_finds_a_file_that_is_no_store(call: Call, memdir: Path) -> None:
    for path in memdir.glob("runs.db*"):
        if path.is_file():
            path.unlink()
    (memdir / "runs.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    done = call("doctor", "--json")
    assert done.code == 12
    assert findings(done)["file"] == "problem"


def test_doctor_without_a_store(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_STORE")
    done = call("doctor")
    assert done.code == 12
    assert "holdfast init" in done.out


def test_doctor_finds_runs_that_do_not_go_on(
    call: Call, shop: Call, store: Holdfast, url: str, kill: Callable[[Holdfast], None]
) -> None:
    shop("risky", "r")
    other = holdfast.open(url)
    other.run("held").claim()
    kill(other)
    found = findings(call("doctor", "--json"))
    assert (found["blocked"], found["workers"]) == ("warning", "warning")
    assert store.get("held").status == "running"
    assert findings(call("doctor", "--recover", "--json"))["workers"] == "ok"
    assert store.get("held").status == "ready"


# --- worker


def test_a_worker_drives_what_is_due(call: Call, shop: Call, store: Holdfast) -> None:
    shop("quick", "q", "--detach")
    shop("sell", "s", "--detach", order="A")
    shop("quick", "other", "--detach", "--queue", "slow")
    done = call("worker", SHOPPING, "--until-idle")
    assert done.code == 0
    assert "run q: completed" in done.err
    assert [store.get(id).status for id in ("q", "s", "other")] == ["completed", "waiting", "ready"]
    events = call("worker", SHOPPING, "--until-idle", "--queue", "slow", "--json", "--verbose").lines
    assert "run.completed" in [event["event"] for event in events if "event" in event]


def test_a_worker_needs_modules(process: Begin, call: Call) -> None:
    child = process("worker")
    _, err = child.communicate(timeout=60)
    assert child.returncode == 2
    assert "name the modules" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_stops_in_good_order(process: Begin, shop: Call, store: Holdfast, number: signal.Signals) -> None:
    child = process("worker", SHOPPING)
    assert child.stderr is not None
    assert "the worker is at work" in child.stderr.readline()
    shop("quick", "q", "--detach")
    while "completed" not in child.stderr.readline():
        pass
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0
    assert "The worker has stopped." in err
    assert store.get("q").status == "completed"


def test_damage_of_the_first_entry_has_no_fork_before_it(call: Call, shop: Call, memdir: Path) -> None:
    shop("quick", "q")
    damaged(memdir, 0)
    done = call("show", "q")
    assert done.code == 7
    assert done.err.endswith("restore the run from a backup\n")
