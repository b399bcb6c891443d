"""What a graph that fails, is rolled back or was answered looks like at the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import voyages

from holdfast import Holdfast, step, workflow
from holdfast.present.words import undo_word
from holdfast.views import Effect

from .conftest import Call

VOYAGES = str(Path(voyages.__file__))


@pytest.fixture(autouse=True)
def alive() -> Iterator[None]:
    voyages.deadly.clear()
    yield
    voyages.deadly.clear()


def begin(call: Call, graph: str, id: str) -> str:
    done = call("run", f"{VOYAGES}:{graph}", "--id", id, "--input", '{"log": []}')
    assert done.code == 3, done.err
    return done.out


def test_a_node_that_can_be_undone_has_one_line_with_its_time(call: Call) -> None:
    told = begin(call, "ship", "s")
    assert len(re.findall(r"^✓ send", told, re.MULTILINE)) == 1
    assert re.search(r"^✓ send  0\.[1-9] s$", told, re.MULTILINE)


def test_a_failed_graph_names_its_node(call: Call) -> None:
    begin(call, "ship", "f")
    told = call("answer", "f", "pigeon", "--resume", "--module", VOYAGES).out
    assert "✗ check  RuntimeError: no pigeons\n" in told
    shown = call("show", "f")
    assert re.search(r"^failed at +check *$", shown.out, re.MULTILINE)
    assert call("show", "f", "--json").json["failed_at"] == "check#1"


def test_a_drive_that_rolls_itself_back_tells_what_it_did(call: Call) -> None:
    begin(call, "there_and_back", "b")
    told = call("answer", "b", "pigeon", "--resume", "--module", VOYAGES).out
    lines = [re.sub(r"  \d\.\d s$", "", line) for line in told.splitlines()]
    assert lines[2:8] == [
        "✓ choose",
        "✗ check  RuntimeError: no pigeons",
        "· rolls back to entry 0",
        "↩ undo of entry 2",
        "↩ rolled back to entry 0  1 undone, 0 failed",
        "✗ failed  b  RuntimeError: no pigeons",
    ]
    assert re.search(r"^failed at +check *$", call("show", "b").out, re.MULTILINE)
    assert re.search(r"^entry +status +step +target +undo *\n +2 +undone +send#1 +already *$", call("effects", "b").out)


def test_a_rollback_that_died_is_told(call: Call, store: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    begin(call, "ship", "d")
    voyages.deadly.append("yes")
    with pytest.raises(voyages.Dies):
        store.get("d").rollback(to=0)
    told = "is being rolled back to entry 0; whoever resumes it finishes that"
    assert re.search(rf"^rollback +{told} *$", call("show", "d").out, re.MULTILINE)
    run = store.get("d")
    other = "another.process"
    store.client.store.claim(run.uid, other)
    store.client.store.beat(other, 0)
    shown, told = call("show", "d").out, "is being rolled back to entry 0; its process has died; a worker resumes it"
    assert re.search(rf"^rollback +{told} *$", shown, re.MULTILINE)
    assert not re.search(r"^(next|to do)", shown, re.MULTILINE)
    assert told in call("runs").out
    voyages.deadly.clear()
    with caplog.at_level("INFO", logger="holdfast"):
        assert call("resume", "d", "--module", VOYAGES).code == 3
    assert "run d: finished its rollback to entry 0: 1 undone" in caplog.messages
    assert "rolled back to" not in call("show", "d").out


def test_an_answer_is_shown_until_it_is_taken(call: Call) -> None:
    begin(call, "ship", "a")
    call("answer", "a", "train", "--by", "gina")
    assert "? By what?\n  answered: train by gina (not taken yet)\n" in call("show", "a").out
    assert call("show", "a", "--json").json["untaken"] == [
        {"run": "a", "prompt": "By what?", "value": "train", "by": "gina"}
    ]
    call("resume", "a", "--module", VOYAGES)
    assert "not taken yet" not in call("show", "a").out


@step
def look(who: str) -> str:
    return f"{who} is ill"


@workflow(name="voyages.sick_bay")
def sick_bay(who: str) -> int:
    return len(look(who))


def test_a_step_that_was_erased_is_marked(call: Call, store: Holdfast) -> None:
    run = store.start(sick_bay, "gina", id="e")
    run.result()
    assert "erased" not in call("show", "e").out
    run.redact(1)
    assert re.search(r"^ +1 +done +look#1 +\d+ ms +erased *$", call("show", "e").out, re.MULTILINE)


@pytest.mark.parametrize(
    ("status", "reversible", "word"),
    [
        ("done", True, "yes"),
        ("done", False, "no"),
        ("uncertain", True, "yes"),
        ("undone", True, "already"),
        ("repeated", True, "not needed"),
        ("raised", True, "not needed"),
        ("undo_failed", True, "no"),
        ("left", False, "no"),
    ],
)
def test_what_is_said_of_an_undo(status: str, reversible: bool, word: str) -> None:
    given: Any = status
    at = datetime(2026, 1, 31, tzinfo=UTC)
    effect = Effect(seq=1, key="a#1", tool="a", target=None, reversible=reversible, status=given, at=at)
    assert undo_word(effect) == word
