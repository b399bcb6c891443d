"""A flow whose process dies at any point ends as if it had not: what was done is not done again."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import flow_calls
from sizes import sample

import holdfast
from holdfast import Holdfast, Status, flow
from holdfast.stores import memory, open_store
from holdfast.testing import ManualClock
from holdfast.testing.crash import Crash, CrashStore, Fuse
from holdfast.testing.still import open_still

CALL = "call: 'flow_calls:remember', with"
EVERYTHING = f"""
name: everything
vars: {{days: [mon, tue, wed], n: 0}}
steps:
  - {{id: first, {CALL}: {{a: 1}}, undo: {{call: 'flow_calls:forget', with: {{what: first}}}}}}
  - {{id: count, until: vars.n >= 2, set: {{n: '{{{{ vars.n + 1 }}}}'}}}}
  - {{id: skipped, {CALL}: {{b: 1}}, when: vars.n == 0}}
  - {{id: both, parallel: [{{id: left, {CALL}: {{left: 1}}}}, {{id: right, {CALL}: {{right: 1}}}}]}}
  - {{id: days, for_each: '{{{{ vars.days }}}}', limit: 2, {CALL}: {{day: '{{{{ item }}}}'}}}}
  - {{id: rounds, loop: 2, delay: 1h, {CALL}: {{round: '{{{{ index }}}}'}}}}
  - {{id: approve, ask: 'Go on?'}}
  - {{id: late, timeout: 90m, on_failure: skip, steps: [{{id: l1, {CALL}: {{late: 1}}}}, {{id: l2, wait: 2d}}]}}
  - {{id: whole, timeout: 1d, retry: {{times: 1, delay: 1m}}, on_failure: skip,
     steps: [{{id: w2, {CALL}: {{w: 2}}}}, {{id: w3, call: 'flow_calls:fail', with: {{times: 98}}}}]}}
  - {{id: inner, flow: inner.yaml, with: {{x: '{{{{ vars.n }}}}'}}}}
  - {{id: fails, call: 'flow_calls:fail', with: {{times: 99}}, on_failure: {{goto: last}}}}
  - {{id: jumped, {CALL}: {{never: 1}}}}
  - {{id: last, {CALL}: {{last: '{{{{ steps.inner.result.y }}}}'}}, breakpoint: true}}
outputs: {{n: '{{{{ vars.n }}}}', days: '{{{{ steps.days.items | length }}}}'}}
"""
INNER = f"""
name: inner
vars: {{x: 0}}
steps:
  - {{id: one, {CALL}: {{x: '{{{{ vars.x }}}}'}}}}
  - {{id: ok, ask: 'Inside too?'}}
outputs: {{y: '{{{{ vars.x * 10 }}}}'}}
"""


def done() -> Counter[str]:
    return Counter(f"{name} {given}" for name, given in flow_calls.calls)


def drive(loaded: flow.Flow, hf: Holdfast, clock: ManualClock) -> Any:
    """Carry the run on until it has ended, as whoever looks after it would."""
    run = loaded.start(hf, id="run")
    for _ in range(30):
        if run.status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.BLOCKED):
            break
        for one in hf.runs():
            handle = hf.get(one.id)
            for question in handle.questions():
                with suppress(holdfast.errors.QuestionClosed):
                    handle.answer(True, question=question)
        clock.advance(3600)
        run.resume()
    return run


def test_a_flow_that_dies_at_any_point_ends_as_if_it_had_not(memdir: Path, tally: Callable[..., None]) -> None:
    (memdir / "flow.yaml").write_text(EVERYTHING)
    (memdir / "inner.yaml").write_text(INNER)
    loaded = flow.load(memdir / "flow.yaml")

    def attempt(at: int | None) -> tuple[Fuse, Any, Counter[str]]:
        flow_calls.calls.clear()
        memory._shared.pop("crashes", None)
        clock, fuse = ManualClock(), Fuse(at)
        plain = open_store("memory://crashes", clock=clock)
        with suppress(Crash):
            drive(loaded, open_still(CrashStore(plain, fuse)), clock)
        plain.drop()
        with holdfast.open("memory://crashes", store=open_store("memory://crashes", clock=clock)) as hf:
            run = drive(loaded, hf, clock)
            assert run.status is Status.COMPLETED, f"crash at {at}: {run.status} {run.info().reason}"
            state = run.checkpoint().state
            return fuse, {"vars": state["vars"], "steps": state["steps"], "result": run.result()}, done()

    fuse, expected, once = attempt(None)
    assert expected["result"] == {"n": 2, "days": 3}
    assert {name: times for name, times in once.items() if times != 1} == {"remember {'w': 2}": 2, "fail 98": 2}
    assert len(once) == 1 + 2 + 3 + 2 + 1 + 2 + 1 + 1 + 1
    assert expected["steps"]["late"]["error"] == "it did not end within 5400 s, and was stopped"
    points = fuse.distinct()
    chosen = sample(points)
    again = 0
    for at in chosen:
        _, ended, made = attempt(at)
        assert ended == expected, f"crash at {at}"
        assert made.keys() == once.keys(), f"crash at {at}"
        extra = made - once
        # What was under way when it died. Of threads that take turns, those that come after it act in vain, too: a
        # process that really dies takes them with it.
        assert extra.total() <= 3, f"crash at {at}: {extra}"
        again += extra.total()
    tally("crash points of flows", tried=len(chosen), made_again=again)
    assert len(points) > 40
