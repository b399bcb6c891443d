"""The demo runs, and every fact in it is true; it ends with another status if one is not."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_demo(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONUTF8": "1", "NO_COLOR": "1"} | settings
    return subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")], capture_output=True, text=True, timeout=60, env=environment
    )


def test_the_demo_tells_the_truth(memdir: Path) -> None:
    demo = run_demo(memdir)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stderr == ""
    told = demo.stdout
    for chapter in range(1, 8):
        assert f"\n{chapter}/7 " in told
    assert re.search(r"ok: process \d+ was ended by SIGKILL", told)
    assert "summary.md uncertain" in told
    assert "  calls of   | first process | second process\n" in told
    assert "  draft.md   | 1             | 0\n" in told  # called by the first process, not by the second
    assert "  summary.md | 1             | 1\n" in told  # died in the act, so it was called again
    assert "send: 'maybe' is none of yes, no" in told
    assert "won (this is its 3rd holder)" in told
    assert "ok: exactly one of two won" in told
    assert "then made again (the same file, undone above)" in told
    assert "before: draft.md, outbox.txt, outline.md, summary.md\n" in told
    assert "after:  outbox.txt, outline.md\n" in told
    assert told.count("verifies") == 2
    assert "not true" not in told
    assert "\x1b" not in told, "plain lines where there is no terminal"
    assert list(memdir.iterdir()) == [], "nothing is left behind"


def test_a_fact_that_is_not_true_ends_the_demo(memdir: Path) -> None:
    broken = memdir / "broken"
    broken.mkdir()
    # A send that does nothing: the demo must notice that no message was sent.
    (broken / "sitecustomize.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import agent_tools\n"
        "agent_tools.send_message = lambda folder, to, text: 'sent'\n"
    )
    demo = run_demo(memdir, PYTHONPATH=str(broken))
    assert demo.returncode == 1
    assert "not true" in demo.stdout
