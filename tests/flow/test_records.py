"""Names that no record of a step can have are found when the file is loaded; all others are left to the run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Status
from holdfast.flow import Problem

Problems = Callable[[str], list[Problem]]

STEPS = """\
name: sample
vars: {part: stdout}
steps:
  - {id: build, run: 'true'}
  - {id: fetch, http: 'http://h'}
  - {id: count, call: 'time:time'}
  - {id: approve, ask: 'ok?'}
  - {id: form, ask: {prompt: 'who?', fields: [{name: who}, {name: age, type: integer}]}}
  - {id: pause, wait: 1s}
  - {id: change, set: {x: 1}}
  - {id: both, parallel: [{id: left, run: 'true'}, {id: right, run: 'true'}]}
  - {id: days, for_each: [1, 2], run: 'true', undo: 'echo {{ steps.days.stdout | quote }}'}
  - {id: group, for_each: [1], steps: [{id: in, run: 'true'}, {id: after, when: steps.in.exit_code == 0, run: 'true'}]}
  - {id: poll, until: steps.poll.exit_code == 0 and steps.poll.rounds > 1, run: 'true'}
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("steps.approve.live", "there is no `steps.approve.live`; there are status, error, result"),
        ("steps.build.stdot", "there is no `steps.build.stdot`; did you mean `stdout`?"),
        ("steps.build.result", "there is no `steps.build.result`; there are status, error, exit_code, stdout, stderr"),
        ("steps['build']['result']", "there is no `steps.build.result`; there are status, error, exit_code"),
        ("steps.build.result.deep | trim", "there is no `steps.build.result`; there are status"),
        ("steps.fetch.exit_code", "there is no `steps.fetch.exit_code`; did you mean `status_code`?"),
        ("steps.count.stdout", "there is no `steps.count.stdout`; there are status, error, result"),
        ("steps.form.result.whom", "there is no `steps.form.result.whom`; did you mean `who`?"),
        ("steps.pause.result", "there is no `steps.pause.result`; there are status, error"),
        ("steps.change.x", "there is no `steps.change.x`; there are status, error"),
        ("steps.both.left", "there is no `steps.both.left`; there are status, error"),
        ("steps.days.stdout", "there is no `steps.days.stdout`; there are status, error, items"),
        ("steps.build.rounds", "there is no `steps.build.rounds`; there are"),
        ("steps.build is defined and steps.build.foo", "there is no `steps.build.foo`; there are"),
    ],
)
def test_a_name_that_no_record_has(problems: Problems, name: str, message: str) -> None:
    [found] = problems(STEPS + f'outputs: {{one: "{{{{ {name} }}}}"}}\n')
    assert found.message.startswith(message)
    assert (found.severity, found.line) == ("error", STEPS.count("\n") + 1)
    again = problems(STEPS + f'  - {{id: last, when: "{name}", run: a}}\n')
    assert [one.message for one in again] == [found.message]


@pytest.mark.parametrize(
    "name",
    [
        "steps.build.stdout",
        "steps.build.error",
        "steps.build[vars.part]",
        "steps[vars.part].foo",
        "steps.build.get('foo')",
        "steps.build.items()",
        "steps.build.stdout.upper()",
        "steps.build.foo | default('none')",
        "steps.build.foo.deep | default('none')",
        "steps.build.foo is defined",
        "steps.build.foo.deep if steps.build.foo is defined else 1",
        "steps.fetch.result.anything.at.all",
        "steps.count.result.anything",
        "steps.approve.result",
        "steps.form.result.who",
        "steps.form.result['age']",
        "steps.form.result.get('else')",
        "steps.days['items'][0].stdout",
        "steps.days.items | map(attribute='stdout') | list",
        "steps.group.items[0].steps.in.stdout",
        "steps.poll.rounds + steps.poll.exit_code",
        "steps.left.stdout",
    ],
)
def test_a_name_that_a_record_may_have(problems: Problems, name: str) -> None:
    assert problems(STEPS + f'outputs: {{one: "{{{{ {name} }}}}"}}\n') == []


def test_each_name_is_told_once_and_where_it_stands(problems: Problems) -> None:
    text = STEPS + "  - id: last\n    run: |\n      echo {{ steps.build.stdout | quote }}\n"
    text += "      echo {{ steps.build.foo | quote }} {{ steps.nope.a | quote }} {{ steps.nope.b | quote }}\n"
    text += "      echo {{ steps.build.foo | quote }}\n"
    line = STEPS.count("\n") + 4
    assert [(one.line, one.column, one.message.partition(";")[0]) for one in problems(text)] == [
        (line, 15, "there is no `steps.build.foo`"),
        (line, 45, "there is no `steps.nope`"),
    ]


def test_a_template_that_a_run_cannot_fill_in_says_what_helps(load: Any, mem: Holdfast, memdir: Path) -> None:
    """Neither trying again nor a fork does: the run keeps the definition that it began with."""
    text = "steps:\n- {id: a, run: 'true', when: 'false'}\n- {id: b, run: 'echo {{ steps.a.NAME | quote }}'}\n"
    run = load(text.replace("NAME", "stdout")).start(mem)
    mended = load(text.replace("NAME", "status"))
    forks = run.fork(at=0), run.fork(at="failure")
    run.retry()
    for one in (run, *forks):
        with pytest.raises(holdfast.errors.FlowFailed) as failed:
            one.result()
        assert str(failed.value).endswith(
            "there is no 'stdout', only status; the run keeps the definition that it began with, so mend the file "
            "and start a new run"
        )
    assert mended.start(mem).status is Status.COMPLETED


def test_what_a_command_said_is_shown_as_it_is(load: Any, mem: Holdfast) -> None:
    run = load("steps:\n- {id: a, run: exit 3, retry: {times: 1, delay: 0}}\n").start(mem)
    assert [step.error for step in run.steps()] == ["exit code 3"]
    assert [run.entry(one.seq).contents["error"] for one in run.history(kind="raised")] == ["exit code 3"] * 2
