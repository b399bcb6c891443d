"""What each key of a flow does, in a run."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import flow_calls
import pytest

import holdfast
from holdfast import Holdfast, Status
from holdfast.errors import FlowFailed, UndoFailed, VarsRefused
from holdfast.stores import open_store
from holdfast.testing import ManualClock

Finish = Callable[..., Any]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    flow_calls.calls.clear()


def steps(text: str) -> str:
    return "steps:\n" + "\n".join(f"  {line}" for line in text.strip("\n").split("\n")) + "\n"


def test_run_keeps_exit_code_and_output(finish: Finish) -> None:
    state = finish(steps("- {id: a, run: 'echo out; echo err >&2'}"))
    assert state["steps"]["a"] == {"status": "ok", "exit_code": 0, "stdout": "out\n", "stderr": "err\n"}


def test_a_script_stops_at_the_first_command_that_fails(load: Any, mem: Holdfast) -> None:
    run = load(steps("- id: a\n  run: |\n    echo one\n    false\n    echo two")).start(mem)
    assert run.status is Status.FAILED
    with pytest.raises(FlowFailed, match=r"step 'a' \(.*flow.yaml:3:5\) failed: exit code 1: one"):
        run.result()


def test_env_cwd_and_what_a_command_knows_of_itself(finish: Finish, memdir: Path) -> None:
    (memdir / "sub").mkdir()
    state = finish(
        "env: {A: from the flow, B: '{{ vars.b }}'}\nvars: {b: x y}\n"
        + steps(
            "- {id: a, run: 'echo $A-$B-$C; pwd', env: {C: 1}, cwd: sub}\n"
            "- {id: b, env: {A: own}, run: 'echo $A $HOLDFAST_STEP; test -n $HOLDFAST_RUN$HOLDFAST_IDEMPOTENCY_KEY'}"
        )
    )
    assert state["steps"]["a"]["stdout"] == f"from the flow-x y-1\n{memdir}/sub\n"
    assert state["steps"]["b"]["stdout"] == "own b\n"


def test_a_folder_that_is_not_there_is_told(load: Any, mem: Holdfast) -> None:
    run = load(steps("- {id: a, run: 'true', cwd: nowhere}")).start(mem)
    with pytest.raises(FlowFailed, match=r"its folder '.*/nowhere' is not on this machine"):
        run.result()


def test_call_gives_arguments_as_they_are(finish: Finish) -> None:
    state = finish(
        "vars: {n: 4, list: [1, 2]}\n"
        + steps(
            "- {id: a, call: 'flow_calls:double', with: {number: '{{ vars.n }}'}}\n"
            "- id: b\n  call: 'flow_calls:remember'\n"
            "  with: {x: '{{ steps.a.result }}', y: ['{{ vars.list }}', 'n={{ vars.n }}']}"
        )
    )
    assert state["steps"]["a"] == {"status": "ok", "result": 8}
    assert flow_calls.calls == [("double", 4), ("remember", {"x": 8, "y": [[1, 2], "n=4"]})]


def test_a_result_that_cannot_be_kept_is_told(load: Any, mem: Holdfast) -> None:
    run = load(steps("- {id: a, call: 'flow_calls:unstorable'}")).start(mem)
    with pytest.raises(FlowFailed, match="flow_calls:unstorable gave what cannot be kept"):
        run.result()


def test_when_skips(finish: Finish) -> None:
    state = finish(
        "vars: {env: test}\n"
        + steps(
            "- {id: a, run: 'false', when: vars.env == 'prod'}\n"
            "- {id: b, run: 'true', when: steps.a.status == 'skipped'}\n"
            "- {id: c, run: 'false', when: false}"
        )
    )
    assert [state["steps"][id]["status"] for id in "abc"] == ["skipped", "ok", "skipped"]


def test_set_changes_variables(finish: Finish) -> None:
    state = finish(
        "vars: {n: 1, all: []}\n"
        + steps(
            "- {id: a, set: {n: '{{ vars.n + 1 }}', all: ['{{ vars.n }}', x], fresh: yes}}\n"
            "- {id: b, set: {n: '{{ vars.n * 10 }}'}}"
        )
    )
    assert state["vars"] == {"n": 20, "all": [1, "x"], "fresh": "yes"}


def test_set_keeps_to_the_types(load: Any, mem: Holdfast) -> None:
    run = load("vars: {n: 1}\n" + steps("- {id: a, set: {n: many}}")).start(mem)
    with pytest.raises(FlowFailed, match="variable 'n' is integer, not 'many'"):
        run.result()


def test_steps_and_parallel(finish: Finish) -> None:
    state = finish(
        steps(
            "- id: both\n"
            "  parallel:\n"
            "    - {id: one, run: echo 1}\n"
            "    - id: group\n"
            "      steps: [{id: two, run: echo 2}, {id: three, run: 'echo {{ steps.two.stdout | trim }}3'}]\n"
            "- {id: after, run: 'echo {{ steps.one.stdout | trim }} {{ steps.three.stdout | trim }}'}"
        )
    )
    assert state["steps"]["after"]["stdout"] == "1 23\n"


def test_branches_that_fail_are_all_told(load: Any, mem: Holdfast) -> None:
    text = "- id: both\n  parallel: [{id: a, run: exit 3}, {id: b, run: exit 4}, {id: c, run: 'true'}]"
    run = load(steps(text)).start(mem)
    with pytest.raises(FlowFailed, match=r"2 of 3 branches failed; the first: step 'a' .* exit code 3"):
        run.result()


def test_for_each(finish: Finish) -> None:
    state = finish(
        "vars: {days: [mon, tue, wed]}\n"
        + steps(
            "- {id: a, for_each: '{{ vars.days }}', run: 'echo {{ index }}{{ item | quote }}', limit: 2}\n"
            "- {id: b, for_each: [1, '{{ vars.days[0] }}'], steps: [{id: c, run: 'echo {{ item }}'}]}\n"
            "- {id: d, for_each: [], run: 'false'}"
        )
    )
    assert [one["stdout"] for one in state["steps"]["a"]["items"]] == ["0mon\n", "1tue\n", "2wed\n"]
    assert [one["steps"]["c"]["stdout"] for one in state["steps"]["b"]["items"]] == ["1\n", "mon\n"]
    assert state["steps"]["d"] == {"status": "ok", "items": []}
    assert "c" not in state["steps"]


def test_items_that_fail_do_not_stop_the_others(load: Any, mem: Holdfast, memdir: Path) -> None:
    text = "- {id: a, for_each: [1, 2, 3], run: 'touch did{{ item }}; test {{ item }} != 2'}"
    run = load(steps(text)).start(mem)
    with pytest.raises(FlowFailed, match="1 of 3 items failed; the first: exit code 1"):
        run.result()
    assert sorted(path.name for path in memdir.glob("did*")) == ["did1", "did2", "did3"]
    state = finish_all(load(steps(text[:-1] + ", on_failure: skip}")), mem)
    assert [one["status"] for one in state["steps"]["a"]["items"]] == ["ok", "failed", "ok"]
    assert state["steps"]["a"]["status"] == "failed"


def finish_all(flow: Any, mem: Holdfast) -> Any:
    run = flow.start(mem)
    run.result()
    return run.checkpoint().state


def test_loop_and_until(finish: Finish, memdir: Path) -> None:
    state = finish(
        "vars: {n: 0}\n"
        + steps(
            "- {id: a, loop: 3, run: 'echo {{ index }} >> rounds'}\n"
            "- {id: b, until: vars.n >= 4, set: {n: '{{ vars.n + 2 }}'}}\n"
            "- {id: c, until: steps.c.exit_code == 0, run: 'echo x >> tries; test $(wc -l < tries) -ge 3'}\n"
            "- {id: d, loop: 5, until: index == 1, steps: [{id: e, run: echo e}]}"
        )
    )
    assert (memdir / "rounds").read_text() == "0\n1\n2\n"
    assert state["vars"]["n"] == 4
    assert state["steps"]["c"]["rounds"] == 3
    assert state["steps"]["d"]["rounds"] == 2
    assert state["steps"]["e"]["stdout"] == "e\n"


def test_until_that_never_holds_fails(load: Any, mem: Holdfast) -> None:
    run = load(steps("- {id: a, loop: 2, until: 'false', run: exit 7}")).start(mem)
    with pytest.raises(FlowFailed, match="`until` did not hold in 2 rounds"):
        run.result()


def test_retry(finish: Finish) -> None:
    state = finish(steps("- {id: a, call: 'flow_calls:fail', with: {times: 2}, retry: {times: 2, delay: 0}}"))
    assert state["steps"]["a"]["result"] == "done"
    assert len(flow_calls.calls) == 3


def test_on_failure_retry_is_three_more_times(load: Any, mem: Holdfast, memdir: Path) -> None:
    clock_free = "- {id: a, run: 'echo x >> tries; exit 1', on_failure: retry, retry: {times: 3, delay: 0}}"
    assert load(steps(clock_free)).start(mem).status is Status.FAILED
    assert len((memdir / "tries").read_text().split()) == 4


@pytest.mark.parametrize(("code", "tries"), [(75, 3), (1, 1)])
def test_retry_only_on_some_exit_codes(load: Any, mem: Holdfast, memdir: Path, code: int, tries: int) -> None:
    text = f"- {{id: a, run: 'echo x >> tries; exit {code}', retry: {{times: 2, delay: 0, on: [75]}}}}"
    assert load(steps(text)).start(mem).status is Status.FAILED
    assert len((memdir / "tries").read_text().split()) == tries


def test_timeout_kills_and_fails(load: Any, mem: Holdfast) -> None:
    run = load(steps("- {id: a, run: sleep 60 & sleep 60, timeout: 100ms}")).start(mem)
    with pytest.raises(FlowFailed, match=r"it did not end within 0\.1 s, and was killed"):
        run.result()


@pytest.mark.parametrize(("failure", "after"), [("skip", "failed"), ("{goto: last}", "failed")])
def test_on_failure_goes_on(finish: Finish, failure: str, after: str) -> None:
    state = finish(
        steps(
            f"- {{id: a, run: 'echo why >&2; exit 9', on_failure: {failure}}}\n"
            "- {id: between, run: 'true'}\n"
            "- {id: last, run: 'echo {{ steps.a.status }} {{ steps.a.exit_code }} {{ steps.a.stderr | trim }}'}"
        )
    )
    assert state["steps"]["last"]["stdout"] == f"{after} 9 why\n"
    assert ("between" in state["steps"]) == (failure == "skip")


def test_goto_backwards_is_a_loop_with_a_guard(load: Any, mem: Holdfast, memdir: Path) -> None:
    text = "- {id: a, run: echo x >> visits}\n- {id: b, run: test -e ready, on_failure: {goto: a}}"
    run = load("max_steps: 6\n" + steps(text)).start(mem)
    assert run.status is Status.BLOCKED
    assert "it took 6 steps" in str(run.info().reason)
    (memdir / "ready").touch()
    run.unblock()
    run.resume()
    assert run.status is Status.COMPLETED
    assert len((memdir / "visits").read_text().split()) == 4


def test_a_failure_inside_is_that_of_what_is_around_it(finish: Finish) -> None:
    state = finish(steps("- {id: a, on_failure: skip, steps: [{id: b, run: exit 5}, {id: c, run: 'true'}]}"))
    assert state["steps"]["a"]["status"] == "failed"
    assert "step 'b'" in state["steps"]["a"]["error"]
    assert "c" not in state["steps"]


def test_rollback_undoes_in_reverse(load: Any, mem: Holdfast, memdir: Path) -> None:
    run = load(
        steps(
            "- {id: a, run: echo made-a, undo: 'echo undo-{{ steps.a.stdout | trim }} >> undone'}\n"
            "- id: b\n  call: 'flow_calls:double'\n  with: {number: 2}\n"
            "  undo: {call: 'flow_calls:forget', with: {what: '{{ steps.b.result }}'}}\n"
            "- {id: c, parallel: [{id: d, run: 'true', undo: 'echo undo-d >> undone'}]}\n"
            "- {id: e, run: 'false', on_failure: rollback}"
        )
    ).start(mem)
    assert run.status is Status.FAILED
    assert (memdir / "undone").read_text().split() == ["undo-d", "undo-made-a"]
    assert flow_calls.calls == [("double", 2), ("forget", 4)]
    assert {effect.status for effect in run.effects()} == {"undone"}


def test_a_whole_flow_may_roll_back(load: Any, mem: Holdfast, memdir: Path) -> None:
    text = "- {id: a, run: 'true', undo: touch undone}\n- {id: b, run: 'false'}"
    assert load("on_failure: rollback\n" + steps(text)).start(mem).status is Status.FAILED
    assert (memdir / "undone").exists()


def test_an_undo_finds_a_key_of_its_own(load: Any, mem: Holdfast, memdir: Path) -> None:
    said = "echo $HOLDFAST_IDEMPOTENCY_KEY >> keys"
    run = load(steps(f"- {{id: a, run: '{said}', undo: '{said}; test $(wc -l < keys) -ge 3'}}")).start(mem)
    run.rollback(to=0, then="cancelled")
    made, *undone = (memdir / "keys").read_text().split()
    assert len(undone) == 2
    assert len({made, *undone}) == 2


def test_an_undo_that_fails_is_reported(load: Any, mem: Holdfast) -> None:
    run = load(steps("- {id: a, run: 'true', undo: 'echo no >&2; exit 3'}")).start(mem)
    with pytest.raises(UndoFailed) as caught:
        run.rollback(to=0, then="cancelled")
    [failed] = caught.value.report.failed
    assert failed.error == "ActionFailed: the undo of step 'a' failed: exit code 3: no"


def test_ask_for_approval(load: Any, mem: Holdfast) -> None:
    text = steps("- {id: a, ask: 'Ship {{ vars.v }}?'}")
    run = load("vars: {v: 1}\n" + text).start(mem)
    assert run.status is Status.WAITING
    [question] = run.questions()
    assert (question.prompt, question.type) == ("Ship 1?", "bool")
    run.answer(True)
    run.resume()
    assert run.checkpoint().state["steps"]["a"] == {"status": "ok", "result": True}
    run = load("vars: {v: 1}\n" + text).start(mem)
    run.answer(False)
    with pytest.raises(FlowFailed, match="it was not approved"):
        run.result()


@pytest.mark.parametrize(
    ("ask", "answer", "wrong"),
    [
        ("{prompt: p, type: integer}", 3, "x"),
        ("{prompt: p, options: ['{{ vars.v }}', b]}", "1", "c"),
        ("{prompt: p, fields: [{name: who}, {name: n, type: integer, minimum: 2}]}", {"who": "me", "n": 2}, {"n": 1}),
    ],
)
def test_ask_with_a_form(load: Any, mem: Holdfast, ask: str, answer: Any, wrong: Any) -> None:
    run = load("vars: {v: 1}\n" + steps(f"- {{id: a, ask: {ask}}}")).start(mem)
    with pytest.raises(holdfast.AnswerRefused):
        run.answer(wrong)
    run.answer(answer)
    run.resume()
    assert run.checkpoint().state["steps"]["a"]["result"] == answer


def test_ask_with_a_default_after_a_timeout(load: Any) -> None:
    clock = ManualClock()
    with holdfast.open("memory://", store=open_store("memory://", clock=clock)) as hf:
        run = load(steps("- {id: a, ask: {prompt: p, type: text, default: late}, timeout: 1h}")).start(hf)
        clock.advance(3601)
        run.resume()
        assert run.checkpoint().state["steps"]["a"]["result"] == "late"


def test_wait(load: Any) -> None:
    clock = ManualClock()
    with holdfast.open("memory://", store=open_store("memory://", clock=clock)) as hf:
        soon = (datetime.fromtimestamp(clock.now() / 1e6, UTC) + timedelta(hours=3)).isoformat()
        run = load(
            f"vars: {{long: 1h30m, moment: '{soon}'}}\n"
            + steps(
                "- {id: a, wait: '{{ vars.long }}'}\n- {id: b, wait: {until: '{{ vars.moment }}'}}\n"
                "- {id: c, wait: 0.01}"
            )
        ).start(hf)
        assert run.status is Status.WAITING
        clock.advance(5400)
        run.resume()
        assert (run.status, list(run.checkpoint().state["steps"])) == (Status.WAITING, ["a"])
        clock.advance(5400)
        run.resume()
        assert run.status is Status.COMPLETED


@pytest.mark.parametrize("until", ["tomorrow", "2030-01-01T00:00:00"])
def test_a_moment_that_is_none_is_told(load: Any, mem: Holdfast, until: str) -> None:
    run = load(steps(f"- {{id: a, wait: {{until: '{until}'}}}}")).start(mem)
    with pytest.raises(FlowFailed, match=r"`wait.until` (is a date and time|has no time zone)"):
        run.result()


@pytest.mark.parametrize("where", ["before", "after"])
def test_breakpoint(load: Any, mem: Holdfast, where: str) -> None:
    run = load(steps(f"- {{id: a, run: 'true'}}\n- {{id: b, run: 'true', breakpoint: {where}}}")).start(mem)
    assert run.status is Status.WAITING
    assert ("b" in run.checkpoint().state["steps"]) == (where == "after")
    [question] = run.questions()
    assert "sample" in question.prompt
    run.resume()
    assert run.status is Status.COMPLETED


def test_outputs_are_the_result(load: Any, mem: Holdfast) -> None:
    text = steps("- {id: a, run: echo 3}") + "outputs: {n: '{{ steps.a.stdout | int }}', all: ['{{ vars }}', x]}\n"
    assert load("vars: {v: 1}\n" + text).start(mem).result() == {"n": 3, "all": [{"v": 1}, "x"]}
    assert load(steps("- {id: a, run: 'true'}")).start(mem).result() == {}


def test_an_output_that_cannot_be_made_fails_the_run(load: Any, mem: Holdfast) -> None:
    run = load(steps("- {id: a, run: 'true', when: 'false'}") + "outputs: {n: '{{ steps.a.stdout }}'}\n").start(mem)
    why = r"`outputs.n` \(.*flow.yaml\) is refused: there is no 'stdout', only status; the run keeps the definition"
    with pytest.raises(holdfast.errors.TemplateRefused, match=why):
        run.result()


def test_a_flow_in_a_flow_is_a_child(load: Any, mem: Holdfast, memdir: Path) -> None:
    (memdir / "inner.yaml").write_text(
        "name: inner\nvars: {who: , n: 1}\n"
        + steps("- {id: hi, run: 'echo hello {{ vars.who | quote }}', undo: touch taken-back}")
        + "outputs: {said: '{{ steps.hi.stdout | trim }}'}\n"
    )
    run = load(
        steps("- {id: a, flow: inner.yaml, with: {who: you}}\n- {id: b, run: 'echo {{ steps.a.result.said | quote }}'}")
    ).start(mem, id="outer")
    assert run.checkpoint().state["steps"]["b"]["stdout"] == "hello you\n"
    assert [one.id for one in mem.runs(prefix="outer/")] == ["outer/a#1/flow#1"]
    run.rollback(to=0, then="cancelled")
    assert (memdir / "taken-back").exists()


def test_vars_are_checked_at_the_start(load: Any, mem: Holdfast) -> None:
    flow = load(
        "vars:\n  env: {options: [a, b], default: a}\n  who:\n  n: 3\n  maybe: {required: false}\n"
        + steps("- {id: s, run: 'true'}")
    )
    with pytest.raises(VarsRefused) as caught:
        flow.start(mem, {"env": "c", "n": "4", "whom": "x"})
    assert caught.value.problems == (
        "there is no variable 'whom'; did you mean `who`?",
        "variable 'env' is one of a, b, not 'c'",
        "variable 'who' has no value; give one with --var who=...",
        "variable 'n' is integer, not '4'",
    )
    assert flow.parse_vars(["env=b", "n=4", "who=a=b"]) == {"env": "b", "n": 4, "who": "a=b"}
    with pytest.raises(VarsRefused, match="'n' is integer, not 'x'; 'who' is not a variable and its value"):
        flow.parse_vars(["n=x", "who"])
    assert flow.start(mem, {"who": "me"}).checkpoint().state["vars"] == {"env": "a", "who": "me", "n": 3, "maybe": None}


def test_the_whole_run_has_a_time_limit(load: Any, mem: Holdfast) -> None:
    run = load("timeout: 200ms\n" + steps("- {id: a, run: sleep 60}")).start(mem)
    with pytest.raises(holdfast.errors.DeadlinePassed):
        run.result()
