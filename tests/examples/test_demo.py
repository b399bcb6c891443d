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
    assert "card of A-17 done, lamp done, desk uncertain" in told
    assert "  charge       | 1       | 0        | 0\n" in told  # by the killed process, and by no worker
    assert "ok: one worker went on, the other kept away" in told
    assert "carrier: 'pigeon' is none of post, courier" in told
    assert "ok: again exactly one of the two had gone on with it" in told
    assert "ok: the fork's result: A-17 went out by courier" in told
    assert "  in stock  | lamp 2, desk 0                | lamp 3, desk 1\n" in told
    assert "ok: the money is back, and so are lamp and desk" in told
    assert "ok: it failed, and the shop is as it was before" in told
    assert told.count("verifies") == 3
    assert "not true:" not in told
    assert "\x1b" not in told, "plain lines where there is no terminal"
    assert list(memdir.iterdir()) == [], "nothing is left behind"


def test_a_fact_that_is_not_true_ends_the_demo(memdir: Path) -> None:
    broken = memdir / "broken"
    broken.mkdir()
    # A refund that does nothing: the demo must notice that the money is not back.
    (broken / "sitecustomize.py").write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import shop\n"
        "@shop.charge.undo\n"
        "def forget(receipt, order, cents): pass\n"
    )
    demo = run_demo(memdir, PYTHONPATH=str(broken))
    assert demo.returncode == 1
    assert "not true:" in demo.stdout
