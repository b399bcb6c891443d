"""Ids, prompts, results and errors that would move a terminal; ids that a shell would misread; readers that go away."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Field, Holdfast

from .conftest import SHOPPING, Call
from .terminal import Terminal

EVIL = "\x1b[2J\x1b]0;mine\x07\u202egnp\u202c [bold]x[/] \x9b31m\rover\nline"


def harmless(raw: str, *, own: bool = False) -> bool:
    """Whether nothing of `EVIL` reached a terminal as it was; colours of our ``own`` may have."""
    found = [sign for sign in ("\x1b[2J", "\x1b]0", "\x07", "\u202e", "\x9b", "\rover") if sign in raw]
    return not found and (own or "\x1b" not in raw)


@pytest.fixture
def asked(store: Holdfast) -> str:
    """A run with nothing but what would move a terminal; its id."""
    run = store.run(f"id {EVIL}", tags={"t": EVIL})
    with run.claim():
        run.save({EVIL: EVIL}, next=EVIL)
        run.once(EVIL, str.upper, EVIL, target=EVIL)
        run.pause(EVIL, [Field("name", "text")])
    return run.id


@pytest.mark.parametrize(
    "words", [["runs"], ["questions"], ["show"], ["history"], ["history", "-c"], ["state"], ["effects"], ["watch"]]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_stored_moves_a_terminal(call: Call, asked: str, words: list[str], as_json: bool) -> None:
    options = ["--json"] if as_json else []
    if words == ["watch"]:
        options += ["--timeout", "0"]
    done = call(*words, *options, *([] if words == ["runs"] else [asked]))
    assert harmless(done.out + done.err)
    if as_json:
        lines = done.lines
        assert EVIL in json.dumps(lines, ensure_ascii=False) or json.dumps(EVIL)[1:-1] in json.dumps(lines)


def test_differences_and_errors_do_not_either(call: Call, asked: str, memdir: Path) -> None:
    assert harmless(call("diff", f"{asked}@0", "@1").out)
    assert harmless(call("show", f"no {EVIL}").err)
    (memdir / "evil_module.py").write_text(f"raise RuntimeError({EVIL!r})\n")
    assert harmless(call("run", "./evil_module.py:x").err)


def test_a_terminal_is_not_moved(terminal: Callable[..., Terminal], asked: str) -> None:
    for words in (["show", asked], ["state", asked], ["runs"], ["show", f"no {EVIL}"]):
        with terminal(*words) as screen:
            screen.ended()
            assert harmless(screen.raw.decode(), own=True), words


def test_the_hint_for_such_an_id_can_be_typed(call: Call, asked: str) -> None:
    shown = call("show", asked).out
    [way] = [line.strip() for line in shown.splitlines() if line.startswith("  holdfast answer")]
    words = subprocess.run(["bash", "-c", f"printf '%s\\0' {way}"], capture_output=True, check=True).stdout
    assert words.decode().split("\0")[:-1] == ["holdfast", "answer", asked]


@pytest.mark.parametrize("id", ["-x", "--help", "a b", "a/../b", "it's", "$(id)"])
def test_ids_that_look_like_something_else(call: Call, shop: Call, id: str) -> None:
    done = call("run", f"{SHOPPING}:sell", f"--id={id}", "--input", '["A-1"]')
    assert done.code == 3
    [way] = [line.strip() for line in done.out.splitlines() if line.startswith("  holdfast answer")]
    words = shlex.split(way)[1:]
    first = words.index("--") if "--" in words else len(words)
    answered = call(*words[:first], "--set", "carrier=post", *words[first:])
    assert (answered.code, "A-1 by post" in answered.out) == (0, True), answered.err


def test_no_column_is_left_out(store: Holdfast, terminal: Callable[..., Terminal]) -> None:
    run = store.run("narrow")
    with run.claim():
        run.pause("why? " * 40, [Field("name", "text")])
    with terminal("questions") as screen:
        screen.ended()
        head = screen.text.splitlines()[0].split()
    assert head == ["run", "question", "asked", "answer", "prompt"]


# --- whoever reads the output


def piped(url: str, memdir: Path, *words: str, lines: int = 1) -> tuple[int, str]:
    """Call a command whose output is read up to a line, and then no more; its exit status, and its errors."""
    child = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        cwd=memdir,
        env=os.environ | {"HOLDFAST_STORE": url, "PYTHONUTF8": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    for _ in range(lines):
        child.stdout.readline()
    child.stdout.close()
    errors = child.stderr.read().decode()
    child.stderr.close()
    return child.wait(60), errors


@pytest.mark.parametrize("options", [[], ["--json"], ["--quiet"]])
@pytest.mark.parametrize("lines", [0, 2])
def test_a_run_goes_on_though_nobody_reads(
    url: str, memdir: Path, store: Holdfast, options: list[str], lines: int
) -> None:
    words = ["run", f"{SHOPPING}:sell", "--id", "s1", "--input", '["A-1"]', *options]
    assert piped(url, memdir, *words, lines=lines) == (3, "")
    assert store.get("s1").status == "waiting"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_nobody_watches_for_nobody(url: str, memdir: Path, shop: Call, options: list[str]) -> None:
    shop("sell", "s1", order="A-1")
    code, errors = piped(url, memdir, "watch", "s1", *options)
    assert (code in (0, 3), errors) == (True, "")


def test_history_ends_with_its_reader(url: str, memdir: Path, store: Holdfast) -> None:
    run = store.run("long")
    with run.claim():
        for n in range(300):
            run.save({"n": n})
    assert piped(url, memdir, "history", "long", "--contents") == (0, "")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_disk_under_the_output(url: str, memdir: Path, store: Holdfast, options: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "runs", *options],
            cwd=memdir,
            env=os.environ | {"HOLDFAST_STORE": url},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_streams(url: str, memdir: Path, store: Holdfast) -> None:
    holdfast_ = shlex.join([sys.executable, "-m", "holdfast", "runs"])
    done = subprocess.run(
        ["bash", "-c", f"{holdfast_} >&- <&-"],
        cwd=memdir,
        env=os.environ | {"HOLDFAST_STORE": url},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_sigterm_leaves_the_terminal_as_it_was(terminal: Callable[..., Terminal], shop: Call) -> None:
    shop("sell", "s1", order="A-1")
    with terminal("watch", "s1") as screen:
        screen.until("How shall it go?")
        screen.process.terminate()
        assert screen.ended() == 143
        assert screen.raw.rindex(b"\x1b[?25h") > screen.raw.rindex(b"\x1b[?25l")  # the cursor is shown again


# --- one bad run among good ones


def test_one_bad_run_does_not_hide_the_questions_of_others(call: Call, shop: Call, memdir: Path, url: str) -> None:
    shop("sell", "good", order="A-1")
    keys = holdfast.Keyring({"k": b"k" * 32}, current="k")
    with holdfast.open(url, keys=keys) as hf:
        sealed = hf.run("sealed")
        with sealed.claim():
            sealed.pause("secret?", [Field("name", "text")])
    done = call("questions")
    assert done.code == 9
    assert "How shall it go?" in done.out
    assert "HOLDFAST_KEYS" in done.err
    told: Any = call("questions", "--json").json
    assert [one["run"] for one in told["questions"]] == ["good"]
    assert [one["run"] for one in told["unread"]] == ["sealed"]
    kinds = [line["kind"] for line in call("history", "sealed", "--json").lines]
    assert kinds == ["created", "asked"]  # which needs no key


def test_a_run_whose_process_died(call: Call, shop: Call, store: Holdfast, url: str, memdir: Path) -> None:
    shop("sell", "dead", order="A-1")
    child = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import os, holdfast; run = holdfast.open({url!r}).get('dead'); run.claim().__enter__(); os._exit(9)",
        ]
    )
    assert child.returncode == 9
    assert store.get("dead").status == "running"
    shown = call("show", "dead").out
    assert "holdfast watch" not in shown
    assert "  holdfast resume dead --module shopping\n" in shown
    watched = call("watch", "dead", "--timeout", "0.6")
    assert watched.code == 3
    assert "! its process has died; a worker resumes it, or holdfast resume dead\n" in watched.out
    assert "✗ process died  dead" in watched.out
