"""Time limits and retries of steps inside, and of other flows, as a whole."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, RunBlocked, Status
from holdfast.errors import FlowFailed

NEVER = "sleep 300 & echo $! >> pids; wait"
AGAIN = "{times: 2, delay: 1ms}"


def ended(folder: Path) -> bool:
    return not any(Path("/proc", pid, "cmdline").exists() and _is_alive(pid) for pid in _pids(folder))


def _pids(folder: Path) -> list[str]:
    found = (folder / "pids").read_text().split()
    assert found
    return found


def _is_alive(pid: str) -> bool:
    return ") Z " not in Path("/proc", pid, "stat").read_text()


@pytest.mark.parametrize(
    "group",
    [
        f"steps: [{{id: a, run: 'echo a'}}, {{id: b, run: '{NEVER}'}}]",
        f"parallel: [{{id: a, run: '{NEVER}'}}, {{id: b, run: '{NEVER}'}}]",
        f"for_each: [1, 2], steps: [{{id: a, run: '{NEVER}'}}]",
        "flow: inner.yaml",
    ],
)
def test_what_is_inside_is_stopped_as_a_whole(load: Any, mem: Holdfast, memdir: Path, group: str) -> None:
    (memdir / "inner.yaml").write_text(f"name: inner\nsteps:\n  - {{id: a, run: '{NEVER}'}}\n")
    text = f"steps:\n  - {{id: g, timeout: 300ms, on_failure: skip, {group}}}\n  - {{id: after, run: 'echo on'}}\n"
    run = load(text).start(mem)
    run.result()
    steps = run.checkpoint().state["steps"]
    assert "it did not end within 0.3 s, and was stopped" in steps["g"]["error"]
    assert steps["after"]["stdout"] == "on\n"
    assert "a" not in steps  # whether it was done in time is another thing each time
    assert ended(memdir)
    assert all(one.status in (Status.COMPLETED, Status.CANCELLED) for one in mem.runs())


def test_a_rollback_after_a_time_limit_says_what_it_does_not_know(load: Any, mem: Holdfast, memdir: Path) -> None:
    inside = f"{{id: a, run: 'true', undo: touch undone}}, {{id: b, run: '{NEVER}', undo: touch not-known}}"
    run = load(f"steps:\n  - {{id: g, timeout: 300ms, on_failure: rollback, steps: [{inside}]}}\n").start(mem)
    with pytest.raises(RunBlocked, match=r"did not end within .* not known whether step .*b#1' was done"):
        run.result()
    assert [effect.status for effect in run.effects()] == ["done", "uncertain"]
    assert ended(memdir)
    run.rollback(to=0, then="cancelled", force=True)
    assert [effect.status for effect in run.effects()] == ["undone", "uncertain"]
    assert (memdir / "undone").exists()


def test_what_ends_in_time_is_kept(finish: Any) -> None:
    inside = "{id: a, run: 'echo a'}, {id: b, set: {x: 5}}"
    state = finish(
        f"steps:\n  - {{id: g, timeout: 1h, steps: [{inside}]}}\n  - {{id: c, run: 'echo {{{{ vars.x }}}}'}}\n"
    )
    assert state["steps"]["a"]["stdout"] == "a\n"
    assert state["steps"]["c"]["stdout"] == "5\n"


def test_a_failure_inside_of_a_time_limit_is_the_failure_it_is(load: Any, mem: Holdfast) -> None:
    run = load("steps:\n  - {id: g, timeout: 1h, steps: [{id: a, run: 'true'}, {id: b, run: exit 7}]}\n").start(mem)
    with pytest.raises(FlowFailed, match=r"step 'b' .* failed: exit code 7"):
        run.result()


@pytest.mark.parametrize(
    "group",
    [
        "steps: [{id: a, run: 'echo a >> a'}, {id: b, run: 'echo b >> b; test $(wc -l < b) -ge 3'}]",
        "parallel: [{id: a, run: 'echo a >> a'}, {id: b, run: 'echo b >> b; test $(wc -l < b) -ge 3'}]",
        "flow: inner.yaml",
    ],
)
@pytest.mark.parametrize("limit", ["", "timeout: 1h, "])
def test_what_is_inside_is_tried_again_as_a_whole(
    load: Any, mem: Holdfast, memdir: Path, group: str, limit: str
) -> None:
    steps = "  - {id: a, run: 'echo a >> a'}\n  - {id: b, run: 'echo b >> b; test $(wc -l < b) -ge 3'}\n"
    (memdir / "inner.yaml").write_text(f"name: inner\nsteps:\n{steps}")
    load(f"steps:\n  - {{id: g, {limit}retry: {AGAIN}, {group}}}\n").start(mem).result()
    assert [(memdir / name).read_text().split() for name in "ab"] == [["a"] * 3, ["b"] * 3]


def test_each_try_begins_with_the_same_variables(load: Any, mem: Holdfast) -> None:
    inside = "{id: a, set: {n: '{{ vars.n + 1 }}'}}, {id: b, run: exit 1}"
    text = f"vars: {{n: 0}}\nsteps:\n  - {{id: g, retry: {AGAIN}, on_failure: skip, steps: [{inside}]}}\n"
    run = load(text + "outputs: {n: '{{ vars.n }}'}\n").start(mem)
    assert run.result() == {"n": 1}


def test_a_step_inside_that_wants_a_rollback_is_not_tried_again(load: Any, mem: Holdfast, memdir: Path) -> None:
    inside = "{id: a, run: 'echo a >> a; exit 1', on_failure: rollback}"
    run = load(f"steps:\n  - {{id: g, retry: {AGAIN}, steps: [{inside}]}}\n").start(mem)
    with pytest.raises(FlowFailed):
        run.result()
    assert (memdir / "a").read_text() == "a\n"


def test_a_run_that_failed_goes_on_at_the_last_try(load: Any, mem: Holdfast, memdir: Path) -> None:
    inside = "{id: a, run: 'echo a >> a'}, {id: b, run: 'echo b >> b; test -e fixed'}"
    run = load(f"steps:\n  - {{id: g, retry: {AGAIN}, steps: [{inside}]}}\n").start(mem)
    assert run.status is Status.FAILED
    (memdir / "fixed").touch()
    run.retry()
    run.result()
    assert [len((memdir / name).read_text().split()) for name in "ab"] == [3, 4]


def test_the_state_that_people_see_is_not_the_definition(load: Any, mem: Holdfast) -> None:
    run = load("vars: {x: 1}\nsteps:\n  - {id: a, set: {x: 2}}\n").start(mem)
    assert run.checkpoint().state == {"vars": {"x": 2}, "steps": {"a": {"status": "ok"}}}
