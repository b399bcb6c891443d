"""The command line in a real terminal: what is on the screen, what is asked there, and what signals do."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast

from .conftest import SHOPPING, Call
from .terminal import Terminal

Begin = Callable[..., Terminal]


@pytest.fixture(autouse=True)
def _made(url: str) -> None:
    holdfast.open(url).close()


def run_words(workflow: str, id: str, **given: object) -> list[str]:
    return ["run", f"{SHOPPING}:{workflow}", "--id", id, "--input", json.dumps(given)]


def test_a_run_with_its_question(terminal: Begin, store: Holdfast) -> None:
    with terminal(*run_words("sell", "s1", order="A-17"), "--by", "me") as screen:
        screen.until("  carrier:")
        screen.type("horse\n")
        screen.until("✗ carrier: 'horse' is none of post, courier")
        screen.type("1\n")
        screen.until("parcels (a whole number) [1]:")
        screen.type("many\n")
        screen.until("✗ parcels: 'many' is not a whole number")
        screen.type("\n")
        screen.until("insured (y or n) [n]:")
        screen.type("y\n")
        screen.until("✗ the answer: the post insures nothing")  # what the class itself says; all is asked again
        screen.type("courier\n2\ny\n")
        screen.until("A-17 by courier")
        assert screen.ended() == 0
        lines = screen.text.splitlines()
    assert lines[0] == "s1  shopping.sell"
    assert re.fullmatch(r"✓ charge +card of A-17 +\d\.\d s", lines[1])
    assert lines[2] == "· paid"
    assert lines.count("? How shall it go?") == 1
    assert lines[lines.index("? How shall it go?") + 1 :][:2] == ["  1 post", "  2 courier"]
    assert re.fullmatch(r"✓ completed  s1  in \d+\.\d s", lines[-2])
    assert lines[-1] == "A-17 by courier"
    [answered] = store.get("s1").history(kind="answered")
    said = store.get("s1").entry(answered.seq).contents
    assert (said["value"], said["by"]) == ({"carrier": "courier", "parcels": 2, "insured": True}, "me")


def test_a_bar_for_a_map(terminal: Begin) -> None:
    with terminal(*run_words("counts", "c1", n=60)) as screen:
        screen.until("/60")
        line = next(line for line in screen.text.splitlines() if "/60" in line)
        assert re.fullmatch(r"\S map +━{30}  \d+/60", line)
        assert screen.ended() == 0
        assert re.search(r"^✓ map +60 of 60$", screen.text, re.MULTILINE)
        assert "━" not in screen.text  # what was redrawn is gone
        assert screen.text.count("count") == 1  # the name of the workflow: no line for each of 60 steps


def test_a_spinner_while_a_step_goes_on(terminal: Begin, memdir: Path) -> None:
    marker = memdir / "begun"
    with terminal(*run_words("slowly", "l1", seconds=0.7, marker=str(marker))) as screen:
        screen.until("slow  ")
        [line] = [line for line in screen.text.splitlines() if "slow  " in line]
        assert re.fullmatch(r"[⠀-⣿] slow +\d\.\d s", line)
        assert screen.ended() == 0
        assert re.search(r"^✓ slow +\d\.\d s$", screen.text, re.MULTILINE)


def test_ctrl_c_leaves_a_run_that_can_be_resumed(terminal: Begin, store: Holdfast, memdir: Path) -> None:
    marker = memdir / "begun"
    with terminal(*run_words("slowly", "l1", seconds=0.4, marker=str(marker))) as screen:
        screen.until("✓ charge")
        while not marker.exists():
            time.sleep(0.01)
        assert screen.interrupt() == 130
        assert "Interrupted. What was done is kept. Go on with:" in screen.text
        assert f"holdfast resume l1 --module {SHOPPING}" in screen.text.replace("\n", "")
        assert "Traceback" not in screen.text
    assert store.get("l1").status == "ready"
    assert store.get("l1").is_completed("charge#1")
    with terminal("resume", "l1", "--module", SHOPPING) as screen:
        assert screen.ended() == 0
        assert "✓ charge" not in screen.text
        assert "✓ slow" in screen.text


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_without_a_terminal(
    process: Callable[..., object], store: Holdfast, memdir: Path, number: signal.Signals, code: int
) -> None:
    marker = memdir / "begun"
    child = process(*run_words("slowly", "l1", seconds=0.3, marker=str(marker)))
    while not marker.exists():
        time.sleep(0.01)
    child.send_signal(number)  # type: ignore[attr-defined]
    out, err = child.communicate(timeout=60)  # type: ignore[attr-defined]
    assert child.returncode == code  # type: ignore[attr-defined]
    assert "✓ charge" in out
    assert "holdfast resume l1" in err
    assert "Traceback" not in err
    assert store.get("l1").status == "ready"


def test_ctrl_c_while_asked(terminal: Begin, store: Holdfast) -> None:
    with terminal(*run_words("sell", "s1", order="A-17")) as screen:
        screen.until("  carrier:")
        assert screen.interrupt() == 130
        assert "holdfast resume s1" in screen.text
    with terminal("resume", "s1", "--module", SHOPPING) as screen:
        screen.until("  carrier:")
        screen.type("\x04")  # the end of the input: it is not answered now
        assert screen.ended() == 3
        assert "holdfast answer s1" in screen.text
    assert len(store.get("s1").questions()) == 1


def test_watch_and_answer_in_two_terminals(terminal: Begin, call: Call, shop: Call) -> None:
    shop("sell", "s1", order="A-17")
    with terminal("watch", "s1") as watching, terminal("answer", "s1", "--resume", "-m", SHOPPING) as answering:
        watching.until("? How shall it go?")
        answering.until("  carrier:")
        answering.type("post\n\n\n")
        assert answering.ended() == 0
        assert watching.ended() == 0
        lines = watching.text.splitlines()
    assert lines[0] == "s1  shopping.sell"
    assert '✓ {"carrier":"post","parcels":1,"insured":false}' in lines
    assert lines[-1] == "A-17 by post"
    assert any(line.startswith("✓ ship") for line in lines)


def test_ctrl_c_ends_the_watching_and_not_the_run(terminal: Begin, shop: Call) -> None:
    shop("sell", "s1", order="A-17")
    with terminal("watch", "s1") as screen:
        screen.until("? How shall it go?")
        assert screen.interrupt() == 130
        assert "No longer watched; s1 is waiting." in screen.text


def test_many_runs_are_agreed_to(terminal: Begin, shop: Call, store: Holdfast) -> None:
    for id in ("s1", "s2"):
        shop("sell", id, order=id)
    for typed, code, status in (("", 130, "waiting"), ("n\n", 9, "waiting"), ("y\n", 0, "cancelled")):
        with terminal("cancel", "--workflow", "shopping.sell") as screen:
            screen.until("Cancel 2 runs? [y/N]:")
            screen.type(typed)
            assert (screen.ended() if typed else screen.interrupt()) == code
        assert {store.get(id).status for id in ("s1", "s2")} == {status}


def test_no_color(terminal: Begin, shop: Call) -> None:
    shop("fails", "f1")
    coloured = re.compile(rb"\x1b\[[0-9;]*3[0-7]m")
    for words in (["show", "f1"], ["show", "nobody"], run_words("quick", "q")):
        with terminal(*words) as screen:
            screen.ended()
            assert coloured.search(screen.raw), words
        with terminal(*words, NO_COLOR="1") as screen:
            screen.ended()
            assert not coloured.search(screen.raw), words


def test_what_is_printed_stands_above_what_is_redrawn(terminal: Begin) -> None:
    with terminal(*run_words("quick", "q", n=5)) as screen:
        assert screen.ended() == 0
        lines = screen.text.splitlines()
    assert lines[:2] == ["q  shopping.quick", "printed by quick"]
    assert lines[2].startswith("✓ completed  q")
    assert json.loads("".join(lines[3:])) == {"n": 5}


def test_an_answer_that_came_from_elsewhere(terminal: Begin, store: Holdfast) -> None:
    with terminal(*run_words("sell", "s1", order="A-17")) as screen:
        screen.until("  carrier:")
        store.get("s1").answer({"carrier": "post"})
        screen.type("courier\n1\nn\n")
        screen.until("It was answered elsewhere, or is no longer asked.")
        assert screen.ended() == 0
        assert screen.text.endswith("A-17 by post")


def test_the_picture_of_a_screen_needs_nothing_from_outside(terminal: Begin) -> None:
    path = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "terminal.py"
    spec = importlib.util.spec_from_file_location("docs_terminal", path)
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    with terminal(*run_words("quick", "q")) as screen:
        assert screen.ended() == 0
        drawn = pictures.drawn(screen.screen)
    assert "shopping.quick" in drawn
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    assert "@font-face" not in drawn
    assert 'viewBox="0 0' in drawn
