"""The parts of the command line that decide without looking at anything: differences, stories, answers, times."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import pytest

from holdfast.cli import prompts
from holdfast.cli.live import plain
from holdfast.cli.options import DURATION, JSON, MOMENT
from holdfast.present.diff import Difference, differences
from holdfast.present.names import fan_name, fan_of, node_of, step_name, task_name
from holdfast.present.timeline import Timeline
from holdfast.present.words import one_line, short, span
from holdfast.views import EntryContents, Field

# --- differences


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ({"x": 1}, {"x": 1}, []),
        ({"x": 1}, {"x": True}, [Difference("x", "changed", 1, True)]),
        ({"x": 1}, {"x": 1.0}, [Difference("x", "changed", 1, 1.0)]),
        ({"x": 1}, {}, [Difference("x", "removed", 1)]),
        ({}, {"a b": 1}, [Difference("['a b']", "added", None, 1)]),
        ([1, 2, 3], [1, 3], [Difference("[1]", "removed", 2)]),
        ([{"n": 1}], [{"n": 2}], [Difference("[0].n", "changed", 1, 2)]),
        ([1], [0, 1], [Difference("[0]", "added", None, 0)]),
        ({"x": [1]}, {"x": {"y": 1}}, [Difference("x", "changed", [1], {"y": 1})]),
        (None, [], [Difference("value", "changed", None, [])]),
        (list(range(3000)), [*range(2999), -1], [Difference("[2999]", "changed", 2999, -1)]),
        ([0] * 3000, [0] * 3001, [Difference("[3000]", "added", None, 0)]),
    ],
)
def test_differences(a: Any, b: Any, found: list[Difference]) -> None:
    assert list(differences(a, b)) == found


def some_value(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.randrange(6 if depth else 4)
    if kind == 4:
        return [some_value(chance, depth - 1) for _ in range(chance.randrange(4))]
    if kind == 5:
        return {chance.choice("abc d"): some_value(chance, depth - 1) for _ in range(chance.randrange(4))}
    return [None, chance.random() < 0.5, chance.randrange(3), chance.choice("xy")][kind]


def test_two_values_differ_if_and_only_if_there_is_a_difference(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        a, b = some_value(chance), some_value(chance)
        assert bool(list(differences(a, b))) == (json.dumps(a, sort_keys=True) != json.dumps(b, sort_keys=True))
        assert list(differences(a, json.loads(json.dumps(a)))) == []


# --- what is typed for a field


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (Field("x", "integer"), " 7 ", 7),
        (Field("x", "number"), "1.5", 1.5),
        (Field("x", "text"), " as it is ", " as it is "),
        (Field("x", "boolean"), "Yes", True),
        (Field("x", "date"), " 2026-01-31 ", "2026-01-31"),
        (Field("x", "choice", options=("a", "b")), "2", "b"),
        (Field("x", "choice", options=(1, 2), labels=("one", "two")), "two", 2),
        (Field("x", "choice", options=("2", "1")), "2", "2"),
        (Field("x", "list", items=Field("i", "integer")), "1, 2", [1, 2]),
        (Field("x", "list"), '["a"]', ["a"]),
        (Field("x", "mapping"), '{"a": 1}', {"a": 1}),
        (Field("x", "any"), "[1]", [1]),
        (Field("x", "any"), "just words", "just words"),
    ],
)
def test_what_is_typed_becomes_a_value(field: Field, text: str, value: Any) -> None:
    assert prompts._parsed(field, text) == value


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        (Field("x", "integer"), "x", "is not a whole number"),
        (Field("x", "boolean"), "maybe", "neither y nor n"),
        (Field("x", "choice", options=("a", "b")), "3", "is none of a, b"),
        (Field("x", "mapping"), "{", "this is not JSON"),
        (Field("x", "list"), "[", "this is not JSON"),
    ],
)
def test_what_is_typed_wrong(field: Field, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        prompts._parsed(field, text)


def test_every_problem_with_a_field_is_named() -> None:
    field = Field("x", "integer", minimum=5, multiple_of=2)
    assert prompts._problems(field, 3) == [": 3 is less than 5", ": 3 is not a multiple of 2"]
    assert prompts._problems(Field("x", "list", items=Field("i", "integer")), [1, "a"]) == [
        "[1]: 'a' is not an integer"
    ]


def test_what_stands_before_the_answer() -> None:
    assert prompts._line(Field("n", "integer", minimum=1, maximum=9), "n") == "  n (a whole number, from 1, up to 9): "
    assert prompts._line(Field("n", "text", required=False), "n") == "  n (may be left out): "
    assert prompts._line(Field("n", "boolean", default=False), "n") == "  n (y or n) [n]: "
    assert prompts._line(Field("n", "text", default="x\x1b[2J"), "n") == "  n [x [2J]: "


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> list[str]:
    shown: list[str] = []
    left = list(lines)

    def read(prompt: str) -> str:
        shown.append(prompt)
        return left.pop(0)

    monkeypatch.setattr("builtins.input", read)
    return shown


def test_an_object_inside_of_a_form(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = (Field("street"), Field("number", "integer", required=False))
    whole = (
        Field("name"),
        Field("home", "object", fields=inner),
        Field("work", "object", required=False, fields=inner),
    )
    typed(monkeypatch, "me", "Main", "", "n")
    assert prompts._object(whole, "") == {"name": "me", "home": {"street": "Main"}}
    shown = typed(monkeypatch, "me", "Main", "7", "y", "Side", "x", "8")
    given = prompts._object(whole, "")
    assert given["work"] == {"street": "Side", "number": 8}
    assert "  home.street: " in shown


def test_what_is_required_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = typed(monkeypatch, "", " ", "3")
    assert prompts._field(Field("n", "integer"), "n") == 3
    assert len(shown) == 3


def test_a_value_out_of_bounds_is_asked_again(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    typed(monkeypatch, "3", "8")
    assert prompts._field(Field("n", "integer", minimum=5, multiple_of=2), "n") == 8
    shown = capsys.readouterr().out.splitlines()
    assert shown == ["  ✗ n: 3 is less than 5", "  ✗ n: 3 is not a multiple of 2"]


# --- the story of a run

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def lines_of(*entries: tuple[str, dict[str, Any]]) -> list[str]:
    story, lines = Timeline(), list[str]()
    for n, (kind, contents) in enumerate(entries):
        lines += map(plain, story.add(EntryContents(n, kind, NOON + timedelta(seconds=n), contents)))
    return lines


def test_a_story() -> None:
    until = round((NOON + timedelta(seconds=3.5)).timestamp() * 1_000_000)
    assert lines_of(
        ("created", {}),
        ("intended", {"key": "charge#1", "target": "a card"}),
        ("raised", {"key": "charge#1", "attempt": 1, "until": until, "error": "OSError: no"}),
        ("done", {"key": "charge#1", "intent": 1, "attempts": 2}),
        ("done", {"key": "now#1", "result": "…"}),
        ("done", {"key": "patched:x"}),
        ("done", {"key": "map#1.3/scan#2", "digest": "d"}),
        ("asked", {"key": "ask#1", "prompt": "Go\x1b[31m on?"}),
        ("answered", {"question": 7, "value": True, "by": "me"}),
        ("raised", {"key": "bad#1", "attempt": 3, "final": True, "error": "ValueError: no"}),
        ("undone", {"effect": 1, "ok": False, "error": "OSError: gone"}),
        ("rewound", {"to": 0}),
        ("forked", {"from": "other", "at": 3}),
    ) == [
        "↻ charge  OSError: no; again in 1.5 s",
        "✓ charge  a card, attempt 2  2.0 s",
        "✓ map scan #2",
        "? Go [31m on?",
        "✓ true  by me",
        "✗ bad  ValueError: no (attempt 3)",
        "✗ undo of entry 1  OSError: gone",
        "↩ rolled back to entry 0",
        "· forked from other at 3",
    ]


def test_a_story_of_what_was_erased() -> None:
    erased = {"erased": True}
    assert lines_of(
        ("asked", {"key": "ask#1", "output_key": "ask#1", **erased}),
        ("answered", {"question": 0, **erased}),
        ("emitted", {"key": "note#1", "stream": "notes", **erased}),
        ("raised", {"key": "x#1", "final": True, **erased}),
        ("received", erased),
    ) == ["? (erased)", "✓ (erased)", "✗ x  an error that was erased", "✓ message  (erased)"]


def test_a_story_of_nodes() -> None:
    assert lines_of(
        ("saved", {"queue": ["plan"], "step": 0}),
        ("done", {"key": "plan#1/think#1", "digest": "d"}),
        ("saved", {"queue": ["fetch:1", "fetch:2"], "node": "plan", "step": 1, "seconds": 0.5}),
        ("saved", {"queue": ["fetch:2"], "node": "fetch", "step": 2, "seconds": 0.5}),
        ("saved", {"queue": ["build"], "node": "fetch", "step": 3, "seconds": 1.2}),
        ("done", {"key": "build#1/build#1", "result": {}, "seconds": 0.3}),
        ("saved", {"queue": ["rest"], "node": "build", "step": 4}),
        ("saved", {"queue": [], "node": "rest", "step": 5}),  # it says nothing: somebody may have slept meanwhile
        ("saved", {"next": "tool", "step": 6}),
    ) == ["  ✓ think", "✓ plan  0.5 s", "✓ fetch  2 of 2  1.5 s", "✓ build  0.3 s", "✓ rest", "· saved  next tool"]


def test_a_story_of_nodes_that_are_effects() -> None:
    began = {"tool": "send", "target": None}
    failure = {"error": "RuntimeError: no pigeons", "node": "check#1", "seconds": 0.2}
    assert lines_of(
        ("saved", {"queue": ["send"]}),
        ("intended", {"key": "send#1", **began}),
        ("done", {"key": "send#1", "intent": 1, "seconds": 0.5}),
        ("saved", {"queue": ["load:1"], "node": "send", "seconds": 0.5}),
        ("intended", {"key": "load#1.1", **began}),
        ("done", {"key": "load#1.1", "intent": 4}),
        ("saved", {"queue": ["check"], "node": "load"}),
        ("rollback_begun", {"to": 0, "plan": [4, 1], "failure": failure}),
        ("undone", {"effect": 4, "ok": True}),
        ("undone", {"effect": 1, "ok": False, "error": "OSError: gone"}),
        ("rewound", {"to": 0}),
        ("failed", failure),
        ("retried", {"keys": []}),
        ("intended", {"key": "send#1", **began}),
        ("raised", {"key": "send#1", "intent": 13, "error": "ValueError: no", "final": True}),
        ("failed", {"error": "ValueError: no", "node": "send#1"}),
    ) == [
        "✓ send  0.5 s",
        "✓ load  1 of 1",
        "✗ check  RuntimeError: no pigeons  0.2 s",
        "· rolls back to entry 0",
        "↩ undo of entry 4",
        "✗ undo of entry 1  OSError: gone",
        "↩ rolled back to entry 0  1 undone, 1 failed",
        "· tried again",
        "✗ send  ValueError: no",
    ]


def test_a_step_that_is_begun_anew_took_no_longer_than_since_then() -> None:
    begun = ("intended", {"key": "charge#1", "target": None})
    nothing = ("created", dict[str, Any]())
    assert lines_of(begun, nothing, nothing, begun, ("done", {"key": "charge#1", "intent": 3})) == ["✓ charge  1.0 s"]


def test_the_names_of_calls_of_nodes() -> None:
    names = [task_name(path) for path in ("check#1", "check#2", "fetch#1.3", "fetch#2.3")]
    assert names == ["check", "check (visit 2)", "fetch (item 3)", "fetch (visit 2, item 3)"]


def test_the_names_in_keys() -> None:
    assert (fan_of("map#1.3/scan#1"), fan_of("scan#1")) == ("map#1", None)
    assert (fan_name("map#1"), fan_name("sizes#1/map#1"), fan_name("fetch#2")) == ("map", "sizes", "fetch")
    assert (fan_name("g#1/timeout#1.1/gather#1"), fan_name("map#1.3/gather#1")) == ("g", "map")
    assert (node_of("plan#1/think#1"), node_of("map#1.1/x#1"), node_of("x#1"), node_of("1/x#1")) == (
        "plan",
        None,
        None,
        None,
    )
    assert (step_name("a/b#1"), step_name("b#3"), step_name("toolu_01")) == ("b", "b #3", "toolu_01")


# --- small things


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.96, "10.0 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (1800, "30 min"),
        (7260, "2 h 1 min"),
        (2e5, "2 d"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_durations_and_moments() -> None:
    assert DURATION.convert("90m", None, None) == timedelta(minutes=90)
    assert MOMENT.convert("2026-01-31T09:30+00:00", None, None) == datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    before = datetime.now(UTC)
    assert MOMENT.convert("1d", None, None) >= before - timedelta(days=1)
    for text in ("", "1", "d", "1y", "-1d", "1e9d", "999999999w"):
        with pytest.raises(click.BadParameter):
            DURATION.convert(text, None, None)
        with pytest.raises(click.BadParameter):
            MOMENT.convert(text, None, None)


@pytest.mark.parametrize("text", ["{", "nul", "Infinity", "", "'a'", '{"a": NaN}'])
def test_what_is_not_json(text: str) -> None:
    with pytest.raises(click.BadParameter):
        JSON.convert(text, None, None)


def test_texts_are_made_harmless() -> None:
    assert one_line("a\nb\x1b[31m\u202e") == "a b [31m "
    assert short({"a": "x" * 100}, 10) == '{"a":"xxx…'
