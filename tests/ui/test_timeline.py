"""From a journal to bars on a scale of time."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import selling

import holdfast
from holdfast.present.names import lane_name
from holdfast.present.timeline import Bar, Piece, Timeline
from holdfast.present.words import brief
from holdfast.ui.chart import Scale, chart
from holdfast.views import EntryContents

START = datetime(2026, 1, 31, 9, tzinfo=UTC)
ZERO = int(START.timestamp() * 1_000_000)


def told(*entries: tuple[float, str, dict[str, Any]], live: Any = (), now: float = 100, **how: Any) -> list[Bar]:
    """The bars of entries, each with its second."""
    running = how.pop("running", True)
    timeline = Timeline(**how)
    for seq, (second, kind, said) in enumerate(entries):
        timeline.add(EntryContents(seq, kind, START + timedelta(seconds=second), said), live=not live or seq in live)
    return timeline.finish(ZERO + round(now * 1_000_000), running=running)


def spans(bar: Bar) -> list[tuple[float, float, str]]:
    return [((one.start - ZERO) / 1e6, (one.end - ZERO) / 1e6, one.look) for one in bar.pieces]


CREATED = (0, "created", {"args": []})


def done(key: str, seconds: float | None = None, **more: Any) -> dict[str, Any]:
    return {"key": key, "digest": "", **more} | ({"seconds": seconds} if seconds is not None else {})


def test_a_plain_step_is_as_long_as_it_took_and_not_as_its_run_stood_in_a_queue() -> None:
    bars = told(CREATED, (60, "done", done("a#1", 2)), (65, "done", done("b#1", 5)), (99, "done", done("c#1")))
    assert [(bar.name, bar.status, spans(bar)) for bar in bars] == [
        ("a", "done", [(58, 60, "work")]),
        ("b", "done", [(60, 65, "work")]),
        ("c", "done", [(98.95, 99, "work")]),
    ]


def test_a_step_that_took_next_to_no_time_begins_where_its_branch_stood_if_that_was_just_before() -> None:
    bars = told(CREATED, (0.01, "done", done("a#1")), (0.03, "done", done("b#1")))
    assert [spans(bar) for bar in bars] == [[(0, 0.01, "work")], [(0.01, 0.03, "work")]]


def test_a_step_that_is_told_to_run_began_before_that() -> None:
    entries = (CREATED, (30, "started", {"key": "a#1", "seconds": 12}))
    [running] = told(*entries, now=40)
    assert (running.status, spans(running)) == ("started", [(18, 40, "work")])
    [ended] = told(*entries, (50, "done", done("a#1", 32)))
    assert (ended.status, spans(ended)) == ("done", [(18, 50, "work")])


def test_what_is_told_to_run_after_its_end_has_ended() -> None:
    late = (2, "started", {"key": "a#1", "seconds": 1})
    for how, ended in (("done", done("a#1", 1)), ("failed", {"key": "a#1", "attempt": 1, "error": "no"})):
        kind = "done" if how == "done" else "raised"
        for running in (True, False):
            [bar] = told(CREATED, (1, kind, ended), late, running=running)
            assert (bar.status, bar.end) == (how, ZERO + 1_000_000)
    first, again = told(CREATED, (1, "done", done("a#1", 1)), (2, "rewound", {"to": 0}), (9, *late[1:]), now=10)
    assert [(first.status, spans(first)), (again.status, spans(again))] == [
        ("done", [(0, 1, "work")]),
        ("started", [(8, 10, "work")]),
    ]


def test_a_wait_for_a_message_is_no_work() -> None:
    [bar] = told(CREATED, (7, "done", {"key": "receive#1", "n": 1, "message": 1, "result": None}))
    assert (bar.name, bar.status, spans(bar)) == ("waits for a message", "done", [(0, 7, "wait")])


def test_a_step_that_said_when_it_began() -> None:
    [bar] = told(CREATED, (3, "intended", {"key": "a#1", "target": "card"}), (4, "done", {"key": "a#1", "intent": 1}))
    assert (spans(bar), bar.detail, bar.declared) == ([(3, 4, "work")], "card", 1)


def test_attempts_and_the_pauses_between_them() -> None:
    until = ZERO + 3_000_000
    [bar] = told(
        CREATED,
        (1, "raised", {"key": "a#1", "attempt": 1, "until": until, "error": "no", "seconds": 1}),
        (4, "done", done("a#1", 1, attempts=2)),
    )
    assert spans(bar) == [(0, 1, "failed"), (1, 3, "pause"), (3, 4, "work")]
    assert (bar.status, bar.attempts) == ("done", 2)


def test_the_time_until_a_worker_tries_again_is_a_pause() -> None:
    failed = (1, "raised", {"key": "a#1", "attempt": 1, "until": ZERO + 3_000_000, "error": "no", "seconds": 1})
    [bar] = told(CREATED, failed, (60, "done", done("a#1", 2, attempts=2)))
    assert spans(bar) == [(0, 1, "failed"), (1, 58, "pause"), (58, 60, "work")]
    runs = (70, "started", {"key": "a#1", "seconds": 10})
    [bar] = told(CREATED, failed, runs, now=75)
    assert (bar.status, spans(bar)) == ("started", [(0, 1, "failed"), (1, 60, "pause"), (60, 75, "work")])
    [bar] = told(CREATED, failed, runs, (80, "done", done("a#1", 20, attempts=2)))
    assert (bar.status, spans(bar)) == ("done", [(0, 1, "failed"), (1, 60, "pause"), (60, 80, "work")])


def test_a_step_whose_process_died_is_as_long_as_it_took_when_it_was_made_again() -> None:
    [bar] = told(
        CREATED,
        (1, "intended", {"key": "a#1", "target": "card"}),
        (60, "intended", {"key": "a#1", "target": "card"}),
        (61, "done", {"key": "a#1", "intent": 2}),
    )
    assert (bar.status, bar.declared, spans(bar)) == ("done", 2, [(60, 61, "work")])
    [plain] = told(CREATED, (30, "started", {"key": "a#1", "seconds": 12}), (90, "done", done("a#1")))
    assert (plain.status, spans(plain)) == ("done", [(89.95, 90, "work")])


def test_a_step_that_failed_in_the_end() -> None:
    [bar] = told(CREATED, (1, "raised", {"key": "a#1", "attempt": 3, "error": "no", "seconds": 1}), (1, "failed", {}))
    assert (bar.status, bar.attempts, bar.error, spans(bar)) == ("failed", 3, "no", [(0, 1, "failed")])


def test_a_question_waits_until_it_is_answered() -> None:
    asked = (1, "asked", {"key": "ask#1", "prompt": "Well?"})
    [bar] = told(CREATED, asked, (9, "answered", {"question": 1, "by": "operator", "value": 1}))
    assert (bar.name, bar.status, bar.detail, spans(bar)) == ("Well?", "answered", "by operator", [(1, 9, "wait")])
    [still] = told(CREATED, asked, now=30)
    assert (still.status, spans(still)) == ("waiting", [(1, 30, "wait")])
    [late] = told(CREATED, asked, (9, "answered", {"question": 1, "failure": {}}))
    assert (late.status, late.detail) == ("failed", "no answer in time")
    [closed] = told(CREATED, asked, (5, "cancelled", {}))
    assert (closed.status, spans(closed)) == ("closed", [(1, 5, "wait")])


def test_branches_have_lanes_and_begin_with_the_call_that_made_them() -> None:
    bars = told(
        CREATED,
        (1, "done", done("a#1", 1)),
        (3, "done", done("map#1.2/b#1", 2)),
        (5, "done", done("map#1.1/b#1", 4)),
        (6, "done", done("map#1.1/c#1", 1)),
        (8, "done", done("d#1", 2)),
    )
    drawn = chart(bars)
    assert drawn is not None
    assert [(row.bar.lane, row.bar.name, row.opens, row.alone, spans(row.bar)[0][:2]) for row in drawn.rows] == [
        ("", "a", False, False, (0, 1)),
        ("map#1.1", "b", True, False, (1, 5)),
        ("map#1.1", "c", False, False, (5, 6)),
        ("map#1.2", "b", False, True, (1, 3)),
        ("", "d", False, False, (6, 8)),
    ]


def test_quick_steps_of_branches_begin_with_the_call_that_made_them() -> None:
    quick = ((1.02, "done", done("map#1.2/b#1")), (1.04, "done", done("map#1.1/b#1")))
    _, *branches = told(CREATED, (1, "done", done("a#1", 1)), *quick)
    assert [spans(bar)[0][:2] for bar in branches] == [(1, 1.02), (1, 1.04)]


def test_what_has_not_ended_goes_on_until_now_or_is_uncertain() -> None:
    entries = (CREATED, (2, "intended", {"key": "a#1"}))
    [running] = told(*entries, now=7)
    assert (running.status, spans(running)) == ("started", [(2, 7, "work")])
    [died] = told(*entries, now=7, running=False)
    assert (died.status, spans(died)) == ("uncertain", [(2, 2, "work")])


def test_what_a_rollback_undid_is_marked() -> None:
    bars = told(
        CREATED,
        (1, "intended", {"key": "a#1"}),
        (2, "done", {"key": "a#1", "intent": 1}),
        (3, "intended", {"key": "b#1"}),
        (4, "done", {"key": "b#1", "intent": 3}),
        (5, "rollback_begun", {"to": 0, "plan": [3, 1]}),
        (6, "undone", {"effect": 3, "ok": False, "error": "gone"}),
        (7, "undone", {"effect": 1, "ok": True}),
        (8, "rewound", {"to": 0}),
        live={0, 8},
    )
    assert [(bar.name, bar.status, bar.live, bar.error) for bar in bars] == [
        ("a", "undone", False, ""),
        ("b", "undo_failed", False, "gone"),
        ("rolls back to entry 0", "done", True, ""),
    ]


def test_a_node_of_a_graph_is_as_long_as_its_call_took_and_not_as_its_process_was_dead() -> None:
    bars = told(
        CREATED,
        (0, "saved", {"queue": ["a", "b", "m:1", "m:2"]}),
        (9, "saved", {"node": "a", "queue": ["b", "m:1", "m:2"], "seconds": 0.5}),
        (10, "saved", {"node": "m", "queue": ["b", "m:2"], "seconds": 1}),
        (12, "saved", {"node": "m", "queue": ["b"], "seconds": 2.5}),
        (20, "saved", {"node": "b", "queue": ["c"]}),
        (20.04, "saved", {"node": "c", "queue": []}),
    )
    assert [(bar.name, spans(bar)[0][:2], bar.timed) for bar in bars] == [
        ("a", (8.5, 9), True),
        ("m", (9, 10), True),
        ("m", (9.5, 12), True),
        ("b", (20, 20), False),  # it says nothing, and nobody knows who slept before
        ("c", (20, 20.04), True),
    ]


def test_a_node_that_can_be_undone_has_one_bar() -> None:
    entries = (
        CREATED,
        (0, "saved", {"queue": ["send"]}),
        (0, "intended", {"key": "send#1", "tool": "send", "target": None}),
        (30, "intended", {"key": "send#1", "tool": "send", "target": None}),  # of the next process
        (31, "done", {"key": "send#1", "intent": 3, "result": {}, "seconds": 1}),
        (31, "saved", {"node": "send", "queue": ["pack:1"], "seconds": 1}),
        (31, "intended", {"key": "pack#1.1", "tool": "pack", "target": None}),
        (50, "done", {"key": "pack#1.1", "intent": 6, "result": {}}),  # it waited for a person
        (50, "saved", {"node": "pack", "queue": []}),
    )
    send, pack = told(*entries)
    assert (send.name, send.status, spans(send)) == ("send", "done", [(30, 31, "work")])
    assert (pack.status, spans(pack)) == ("done", [(49.95, 50, "work")])
    undone = ((60, "rollback_begun", {"to": 0, "plan": [6, 3]}), (61, "undone", {"effect": 3, "ok": True}))
    bars = told(*entries, *undone, live={0, 9, 10}, running=False)
    assert [(bar.name, bar.status) for bar in bars] == [
        ("send", "undone"),
        ("pack #1.1", "done"),
        ("rolls back to entry 0", "not done"),
    ]


def test_a_node_of_which_a_person_said_that_it_was_done_has_one_bar() -> None:
    bars = told(
        CREATED,
        (0, "saved", {"queue": ["send"]}),
        (0, "intended", {"key": "send#1", "tool": "send", "target": None}),
        (30, "resolved", {"key": "send#1", "intent": 2, "done": True, "by": "gina"}),
        (40, "saved", {"node": "send", "queue": ["rest"]}),
        (40.1, "saved", {"node": "rest", "queue": []}),
    )
    assert [(bar.name, bar.status) for bar in bars] == [("send", "done"), ("rest", "done")]


FAILURE = {"error": "RuntimeError: no pigeons", "node": "check#2", "seconds": 0.5}


@pytest.mark.parametrize(
    "end",
    [
        [(9, "failed", FAILURE)],
        [
            (9, "rollback_begun", {"to": 0, "plan": [], "failure": FAILURE}),
            (9, "rewound", {"to": 0}),
            (9, "failed", FAILURE),
        ],
    ],
)
def test_the_node_that_a_graph_failed_at_has_a_bar(end: list[Any]) -> None:
    check, *others = told(CREATED, (0, "saved", {"queue": ["check"]}), *end, running=False)
    assert (check.name, check.status, check.error, check.live) == (
        "check (visit 2)",
        "failed",
        "RuntimeError: no pigeons",
        True,
    )
    assert spans(check) == [(8.5, 9, "failed")]
    assert [bar.name for bar in others] == ["rolls back to entry 0"][: len(end) - 1]


def test_an_effect_that_failed_has_a_bar_already_and_one_more_when_it_fails_again() -> None:
    raised = {"key": "check#2", "intent": 2, "error": FAILURE["error"], "final": True}
    begun = (1, "intended", {"key": "check#2", "tool": "check", "target": None})
    once = (CREATED, (0, "saved", {"queue": ["check"]}), begun, (2, "raised", raised), (2, "failed", FAILURE))
    assert [bar.status for bar in told(*once, running=False)] == ["failed"]
    again = told(*once, (5, "retried", {"keys": ["check#2"]}), (6, "failed", FAILURE), running=False)
    assert [bar.status for bar in again] == ["failed", "failed"]


def test_the_step_of_a_flow_is_its_node() -> None:
    bars = told(
        CREATED,
        (0, "saved", {"queue": ["build"]}),
        (1, "intended", {"key": "build#1/build#1", "target": "make"}),
        (2, "done", {"key": "build#1/build#1", "intent": 2}),
        (2, "saved", {"node": "build", "queue": ["test"]}),
        (4, "saved", {"node": "test", "queue": ["build"], "seconds": 2}),
        (5, "saved", {"node": "build", "queue": [], "seconds": 1}),
    )
    assert [(bar.name, bar.lane, spans(bar)[0][:2]) for bar in bars] == [
        ("build", "", (1, 2)),
        ("test", "", (2, 4)),
        ("build", "", (4, 5)),
    ]


def test_calls_that_are_no_work_are_not_shown() -> None:
    assert (
        told(CREATED, (1, "done", {"key": "now#1", "result": 1}), (1, "done", {"key": "patched:x", "result": 1})) == []
    )


def test_long_idle_times_are_folded() -> None:
    hour = 3600
    bars = told(
        CREATED,
        (10, "done", done("a#1", 10)),
        (10, "asked", {"key": "ask#1", "prompt": "Well?"}),
        (10 + hour, "answered", {"question": 2, "value": 1}),
        (20 + hour, "done", done("b#1", 10)),
    )
    drawn = chart(bars)
    assert drawn is not None
    [fold] = drawn.folds
    assert fold.label == "1 h"
    a, question, b = (row.boxes[0] for row in drawn.rows)
    assert a.width == b.width > 30
    assert question.width < a.width
    assert b.x + b.width == pytest.approx(100, abs=0.01)


def test_what_has_no_length_is_seen_at_the_end_too() -> None:
    bars = told(CREATED, (10, "done", {"key": "a#1", "digest": ""}), (10, "done", {"key": "b#1", "digest": ""}))
    drawn = chart(bars)
    assert drawn is not None
    last = drawn.rows[-1].boxes[0]
    assert (last.width, last.x < 100) == (0, True)
    assert chart([]) is None


def test_the_scale_says_nothing_twice() -> None:
    drawn = chart(told(CREATED, (0.001, "done", {"key": "a#1", "digest": ""})))
    assert drawn is not None
    assert [tick.label for tick in drawn.ticks] == ["0 ms", "1 ms"]


def test_a_scale_gives_back_the_moment_of_a_place(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        times = sorted(chance.sample(range(10**9), 2 * chance.randint(1, 8)))
        looks = [chance.choice(["work", "wait", "failed", "pause"]) for _ in times[::2]]
        bars = [
            Bar(key=str(n), name="", sort="step", status="done", seq=n, pieces=(Piece(a, b, look),))  # type: ignore[arg-type]
            for n, (a, b, look) in enumerate(zip(times[::2], times[1::2], looks, strict=True))
        ]
        scale = Scale(bars, times[0], times[-1])
        places = [scale.place(at) for at in times]
        assert places == sorted(places)
        assert (places[0], places[-1]) == (pytest.approx(0), pytest.approx(100))
        for at in times:
            assert scale.moment(scale.place(at)) == pytest.approx(at, abs=2_000)


def test_the_bars_of_real_runs() -> None:
    with holdfast.open("memory://") as hf:
        run = hf.start(selling.sell, "real", 4200, id="real")
        timeline = Timeline()
        for entry in run.entries():
            timeline.add(entry)
        bars = timeline.finish(ZERO, running=False)
        assert [(bar.name, bar.status, bar.attempts) for bar in bars] == [
            ("charge", "done", 1),
            ("label", "done", 2),
            ("mail", "done", 1),
            ("How shall real go?", "waiting", 1),
        ]


def test_words() -> None:
    assert [brief(seconds) for seconds in (0, 0.0123, 0.9994, 1.5, 75)] == [
        "0 ms",
        "12 ms",
        "999 ms",
        "1.5 s",
        "1 min 15 s",
    ]
    assert [lane_name(lane) for lane in ("map#1.3", "gather#2.1/map#1.2", "plan#1")] == [
        "map, branch 3",
        "gather #2, branch 1 / map, branch 2",
        "plan",
    ]
