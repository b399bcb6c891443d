"""Commands are real process groups: they are ended as a whole, and never outlive who runs them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status, flow
from holdfast.errors import ActionFailed
from holdfast.flow import Line
from holdfast.flow.actions.process import TAIL, run_shell
from holdfast.flow.actions.secrets import Masker

PATIENCE = 30.0


def until(holds: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"this did not come: {what}"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


# Three processes, of which one ignores the polite signal.
CROWD = (
    "sleep 300 & echo $! >> pids; (trap '' TERM; echo ready >> up; sleep 300) & echo $! >> pids; echo $$ >> pids; wait"
)


def shell(command: str, folder: Path, **how: Any) -> Any:
    given: dict[str, Any] = {"env": {}, "timeout": None, "tell": lambda stream, line: None, "keep_on": lambda: None}
    return run_shell(command, cwd=str(folder), masker=lambda: Masker([]), **{**given, **how})


def test_output_is_handed_on_line_by_line_as_it_comes(tmp_path: Path) -> None:
    heard: list[tuple[str, str]] = []

    def tell(stream: str, line: str) -> None:
        heard.append((stream, line))
        if line == "one":
            (tmp_path / "go").touch()  # it waits for that: so the line came before the command ended

    ended = shell("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two >&2; printf three", tmp_path, tell=tell)
    assert heard == [("stdout", "one"), ("stderr", "two"), ("stdout", "three")]
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, "one\nthree", "two\n")


def test_only_the_tail_is_kept(tmp_path: Path) -> None:
    heard: list[int] = []
    ended = shell(
        "head -c 300000 /dev/zero | tr '\\0' x; printf end", tmp_path, tell=lambda s, line: heard.append(len(line))
    )
    assert len(ended.stdout) == TAIL
    assert ended.stdout.endswith("xend")
    assert sum(heard) == 300003


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    assert shell("printf 'a\\377b\\303'", tmp_path).stdout == "a\ufffdb\ufffd"


def test_what_a_command_leaves_running_does_not_hold_it_up(tmp_path: Path) -> None:
    ended = shell("sleep 300 & echo $! > pids; echo done", tmp_path)
    assert (ended.exit_code, ended.stdout) == (0, "done\n")
    [left] = pids(tmp_path / "pids")
    assert is_running(left)  # it was meant to stay
    os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize(
    ("command", "code"), [("exit 300", 44), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("false", 1)]
)
def test_exit_codes_are_those_of_a_shell(tmp_path: Path, command: str, code: int) -> None:
    assert shell(command, tmp_path).exit_code == code


def test_what_cannot_be_started_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, why in (("none", "is not on this machine"), ("file", "is a file")):
        with pytest.raises(ActionFailed, match=why):
            shell("true", tmp_path / folder)
    with pytest.raises(ActionFailed, match="it cannot be started"):
        shell("true", tmp_path, env={"A": "\0"})


def test_a_timeout_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.flow.actions.process.GRACE", 0.1)
    ended = shell(CROWD, tmp_path, timeout=0.5)
    assert ended.timed_out
    assert len(pids(tmp_path / "pids")) == 3
    until(lambda: not any(map(is_running, pids(tmp_path / "pids"))), "the end of the group")


def test_an_interrupt_ends_the_whole_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.flow.actions.process.GRACE", 0.1)

    def keep_on() -> None:
        if (tmp_path / "up").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shell(CROWD, tmp_path, keep_on=keep_on)
    until(lambda: not any(map(is_running, pids(tmp_path / "pids"))), "the end of the group")


def test_cancel_ends_the_whole_group(load: Any, hf: Holdfast, memdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.flow.actions.process.GRACE", 0.1)
    loaded = load(f"steps:\n  - id: a\n    run: |\n      {CROWD}\n  - {{id: b, run: touch never}}\n")
    thread = threading.Thread(target=lambda: loaded.start(hf, id="r"))
    thread.start()
    until((memdir / "up").exists, "the command")
    hf.get("r").cancel()
    thread.join(PATIENCE)
    assert hf.get("r").status is Status.CANCELLED
    until(lambda: not any(map(is_running, pids(memdir / "pids"))), "the end of the group")
    assert not (memdir / "never").exists()


SCRIPT = """
import sys, holdfast
from holdfast import flow
with holdfast.open(sys.argv[1]) as hf:
    flow.load(sys.argv[2]).start(hf, id="r")
"""


BRANCHES = """
name: branches
steps:
  - id: all
    for_each: [1, 2, 3]
    run: |
      test ! -e again || exit 0
      echo $$ >> pids; sleep 300
"""
WORKER_IN_A_HURRY = """
import sys, holdfast, holdfast.flow
with holdfast.open(sys.argv[1]) as hf:
    holdfast.flow.load(sys.argv[2]).enqueue(hf, id="r")
    hf.work(grace=0.1)
"""


@pytest.mark.parametrize(
    ("script", "number"), [(SCRIPT, signal.SIGINT), (SCRIPT, signal.SIGKILL), (WORKER_IN_A_HURRY, signal.SIGTERM)]
)
def test_branches_end_with_their_process(memdir: Path, script: str, number: signal.Signals) -> None:
    (memdir / "flow.yaml").write_text(BRANCHES)
    url = f"sqlite:///{memdir}/runs.db"
    arguments = [sys.executable, "-c", script, url, str(memdir / "flow.yaml")]
    process = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    try:
        until(lambda: len(pids(memdir / "pids")) == 3, "the commands")
        process.send_signal(number)
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    until(lambda: not any(map(is_running, pids(memdir / "pids"))), "the end of the commands")
    (memdir / "again").touch()
    with holdfast.open(url) as hf:
        run = hf.get("r")
        run.resume()
        assert run.status is Status.COMPLETED


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_command_outlives_its_process_and_the_run_goes_on(memdir: Path, number: signal.Signals) -> None:
    (memdir / "flow.yaml").write_text(
        "name: killed\nsteps:\n"
        "  - {id: a, run: echo a >> did}\n"
        "  - id: b\n    run: |\n      trap 'echo asked > told; exit 1' TERM\n"
        "      echo b >> did\n      test ! -e again || exit 0\n"
        "      sleep 300 & echo $! >> pids; echo $$ >> pids; wait\n"
        "  - {id: c, run: echo c >> did}\n"
    )
    url = f"sqlite:///{memdir}/runs.db"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, url, str(memdir / "flow.yaml")], stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: len(pids(memdir / "pids")) == 2, "the command")
        process.send_signal(number)
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
    until(lambda: not any(map(is_running, pids(memdir / "pids"))), "the end of the command")
    assert (memdir / "told").read_text() == "asked\n"  # it could end in good order
    (memdir / "again").touch()
    (memdir / "flow.yaml").unlink()  # the run needs the file no longer
    with holdfast.open(url) as hf:
        run = hf.get("r")
        run.resume()
        assert run.result() == {}
    assert (memdir / "did").read_text().split() == ["a", "b", "b", "c"]


WORKER = """
import sys, holdfast, holdfast.flow
with holdfast.open(sys.argv[1]) as hf:
    hf.work(until_idle=True)
"""


def test_a_worker_goes_on_without_the_file(load: Any, memdir: Path) -> None:
    (memdir / "inner.yaml").write_text("name: inner\nsteps:\n  - {id: x, run: echo inner >> did}\n")
    url = f"sqlite:///{memdir}/runs.db"
    with holdfast.open(url) as hf:
        text = "steps:\n  - {id: a, run: echo outer >> did}\n  - {id: b, flow: inner.yaml}\n"
        run = load(text, "gone.yaml").enqueue(hf, id="r")
        for name in ("gone.yaml", "inner.yaml"):
            (memdir / name).write_text("name: changed\nsteps:\n  - {id: other, run: echo changed >> did}\n")
            (memdir / name).unlink()
        done = subprocess.run([sys.executable, "-c", WORKER, url], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert run.status is Status.COMPLETED
    assert (memdir / "did").read_text().split() == ["outer", "inner"]


def test_a_worker_that_lacks_a_function_leaves_the_run_to_others(memdir: Path) -> None:
    (memdir / "only_here.py").write_text("def greet():\n    return 'hi'\n")
    (memdir / "f.yaml").write_text("name: f\nsteps:\n  - {id: a, call: 'only_here:greet'}\n")
    url = f"sqlite:///{memdir}/runs.db"
    with holdfast.open(url) as hf:
        run = flow.load(memdir / "f.yaml").enqueue(hf)
        done = subprocess.run([sys.executable, "-c", WORKER, url], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert run.status is Status.READY
        assert "module only_here is not loaded here" in str(run.info().reason)
        run.resume()
        assert run.checkpoint().state["steps"]["a"]["result"] == "hi"


def test_the_same_in_async_code(load: Any) -> None:
    import asyncio

    async def main() -> Any:
        async with holdfast.open("memory://") as hf:
            run = await load("steps:\n  - {id: a, run: echo x}\noutputs: {x: '{{ steps.a.stdout }}'}\n").start(hf)
            return await run.result()

    assert asyncio.run(main()) == {"x": "x\n"}


def test_a_listener_that_fails_gets_no_more(load: Any, mem: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Line] = []

    def broken(line: Line) -> None:
        heard.append(line)
        raise OSError("closed")

    with flow.listening(broken):
        load("steps:\n  - {id: a, run: 'echo 1; echo 2'}\n").start(mem).result()
    assert [line.text for line in heard] == ["1"]
    assert "gets no more: OSError: closed" in caplog.text


def test_what_a_shell_started_has_time_to_clean_up(tmp_path: Path) -> None:
    """The shell itself ends at once; what it waits for must not be killed with it."""
    inner = "trap 'sleep 0.1; touch cleaned; exit' TERM; touch up; while :; do sleep 0.01; done"
    (tmp_path / "inner.sh").write_text(inner)

    def stop_when_up() -> None:
        if (tmp_path / "up").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shell("sh inner.sh; echo after", tmp_path, keep_on=stop_when_up)
    assert (tmp_path / "cleaned").exists()
