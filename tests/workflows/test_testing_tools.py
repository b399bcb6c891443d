"""What users test their workflows with: the virtual clock, crashes everywhere, and the fixtures."""

import random as chance
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.engine.workflow.declare import Workflow
from holdfast.testing import Effects, ManualClock, crash_everywhere

MONTH = timedelta(days=30)
done: Effects = Effects()


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


# --- the clock


@holdfast.workflow(name="tools-patient")
def patient(n: int) -> int:
    for _ in range(n):
        holdfast.sleep(MONTH)
    return n


@holdfast.workflow(name="tools-patient-async")
async def patient_async(n: int) -> int:
    for _ in range(n):
        await holdfast.sleep(MONTH)
    return n


@pytest.mark.parametrize("workflow", [patient, patient_async])
@pytest.mark.parametrize("kind", ["memory", "files", "sqlite"])
def test_months_pass_at_once(workflow: Workflow[..., Any], kind: str, memdir: Path) -> None:
    url = "memory://" if kind == "memory" else f"{kind}:///{memdir / 'store'}"
    clock = ManualClock()
    began = clock.now()
    with holdfast.testing.open(url, clock=clock) as hf:
        assert hf.start(workflow, 3).result() == 3
    assert clock.now() - began >= 3 * MONTH / timedelta(microseconds=1)


def test_months_pass_at_once_for_a_worker() -> None:
    with holdfast.testing.open() as hf:
        runs = [hf.enqueue(patient, n) for n in range(1, 4)]
        hf.work(until_idle=True)
        assert [run.result() for run in runs] == [1, 2, 3]


async def _wait_for_months() -> int:
    async with holdfast.testing.open() as hf:
        run = await hf.start(patient_async, 3)
        return int(await run.result())


def test_months_pass_at_once_for_async_callers() -> None:
    import asyncio

    assert asyncio.run(_wait_for_months()) == 3


# --- crashes


@holdfast.step
def charge(order: str) -> str:
    done.append(f"charged {order}")
    return f"receipt {order}"


@holdfast.step
def charge_safely(order: str) -> str:
    done.add(f"charged {order}", key=holdfast.this_step().idempotency_key)
    return f"receipt {order}"


@holdfast.step(at_most_once=True)
def wire(order: str) -> str:
    done.append(f"wired {order}")
    return f"wired {order}"


@holdfast.step(retries=2)
def mail(order: str) -> str:
    if holdfast.this_step().attempt == 1:
        raise ConnectionError
    done.add(f"mailed {order}", key=holdfast.this_step().idempotency_key)
    return "mailed"


@holdfast.workflow(name="tools-order")
def order(name: str) -> list[Any]:
    charge_safely(name)
    told = [wire(name), mail(name), holdfast.ask("Ship it?", str), packed(name)]
    holdfast.sleep(MONTH)
    return [*told, holdfast.receive("track")]


@holdfast.workflow(name="tools-packed")
def packed(name: str) -> str:
    return f"in {holdfast.ask('Which box?', str)}"


@holdfast.workflow(name="tools-async")
async def many(n: int) -> list[str]:
    return list(await holdfast.map(_one, range(n)))


async def _one(n: int) -> str:
    await holdfast.sleep(60)
    return charge_safely(str(n))


ANSWERS = {"Ship it?": "by post", "Which box?": "a small one"}


@pytest.mark.parametrize("on", ["files", "sqlite"])
def test_crashes_on_stores_that_last(on: Any) -> None:
    assert crash_everywhere(packed, "A", answers=ANSWERS, on=on).points > 15


def test_a_workflow_that_is_right_has_no_problems() -> None:
    report = crash_everywhere(order, "A", answers=ANSWERS, messages=[("track", 7)], effects=done)
    assert report.ok
    assert report.points > 60
    assert str(report).endswith("crash points, 0 problems")
    assert sorted(done) == ["charged A", "mailed A", "wired A"]


def test_an_async_workflow_is_crashed_too() -> None:
    report = crash_everywhere(many, 3, effects=done)
    assert report.tried > 15


def test_answers_may_be_a_function() -> None:
    asked: list[str] = []

    def answer(question: holdfast.Question) -> str:
        asked.append(question.prompt)
        return ANSWERS[question.prompt]

    crash_everywhere(order, "A", answers=answer, messages=[("track", 7)], effects=done)
    assert set(asked) == set(ANSWERS)


@holdfast.workflow(name="tools-repeating")
def repeating(name: str) -> str:
    return charge(name)


def test_an_effect_that_can_happen_twice_is_told_with_its_step_and_the_place() -> None:
    with pytest.raises(AssertionError) as told:
        crash_everywhere(repeating, "A", effects=done)
    text = str(told.value)
    assert "'charged A' happened twice by step charge#1" in text
    assert "crash after 'charged A' was done" in text
    assert "idempotency_key" in text


def test_an_effect_that_may_happen_twice_is_let_be() -> None:
    assert crash_everywhere(repeating, "A", effects=done, may_repeat={"charge"}).ok


@holdfast.workflow(name="tools-keyed")
def keyed(name: str) -> str:
    return charge.options(key="toolu_01")(name)


def test_a_step_that_may_repeat_is_known_by_its_name_also_under_a_key_of_its_caller() -> None:
    with pytest.raises(AssertionError, match="'charged A' happened twice by step toolu_01"):
        crash_everywhere(keyed, "A", effects=done, may_repeat={"ship"})
    assert crash_everywhere(keyed, "A", effects=done, may_repeat={"charge"}).ok


@holdfast.workflow(name="tools-careless")
def careless(name: str) -> str:
    done.append(f"printed {name}")
    return holdfast.ask("Ship it?", str)


def test_an_effect_outside_of_any_step_is_told() -> None:
    report = crash_everywhere(careless, "A", effects=done, answers=ANSWERS, check=False)
    assert not report.ok
    assert "'printed A' was done by the workflow itself, outside of any step" in str(report)


@holdfast.workflow(name="tools-forgetful")
def forgetful(name: str) -> str:
    if not _remembered:
        _remembered.append(name)
        charge_safely(name)
    return holdfast.ask("Ship it?", str)


_remembered: list[str] = []


def test_what_cannot_even_end_undisturbed_is_told() -> None:
    report = crash_everywhere(forgetful, "A", effects=done, answers=ANSWERS, before=_remembered.clear, check=False)
    [(where, what)] = report.problems
    assert where == "without a crash"
    assert "no longer does what was recorded" in what


@holdfast.workflow(name="tools-buffered")
def buffered(name: str) -> None:
    letters: list[str] = []
    collect(letters, name)
    for letter in letters:
        charge_safely(letter)


@holdfast.step
def collect(letters: list[str], name: str) -> None:
    letters.append(name)


def test_an_effect_that_may_never_happen_is_told() -> None:
    """What a step does to its arguments is not kept, so whoever goes on has no letters."""
    report = crash_everywhere(buffered, "A", effects=done, check=False)
    assert "crash after done collect#1 was kept" in str(report)
    assert "'charged A' happened never, not once" in str(report)
    assert "step charge_safely#1 was not done" in str(report)


@holdfast.workflow(name="tools-by-chance")
def by_chance(name: str) -> float:
    charge_safely(name)
    return chance.random()


def test_a_result_that_differs_each_time_is_told_once() -> None:
    report = crash_everywhere(by_chance, "A", check=False)
    assert len(report.problems) == 1
    assert "the result is another one each time" in str(report)
    assert crash_everywhere(by_chance, "A", compare=type).ok


def test_a_question_without_an_answer_is_an_error_that_names_it() -> None:
    with pytest.raises(holdfast.UsageError, match="asks 'Ship it\\?'"):
        crash_everywhere(careless, "A", effects=Effects())


def test_a_plain_list_is_refused() -> None:
    with pytest.raises(holdfast.UsageError, match=r"holdfast\.testing\.Effects"):
        crash_everywhere(repeating, "A", effects=[])  # type: ignore[arg-type]


@holdfast.workflow(name="tools-broken", on_failure="rollback")
def broken(name: str) -> None:
    made(name)
    raise ValueError(name)


@holdfast.step
def made(name: str) -> str:
    done.add(f"made {name}", key=holdfast.this_step().idempotency_key)
    return name


@made.undo
def unmade(result: str, name: str) -> None:
    done.add(f"unmade {name}", key=result)


def test_a_workflow_that_fails_must_fail_in_the_same_way() -> None:
    assert crash_everywhere(broken, "A", effects=done).ok
    assert sorted(done) == ["made A", "unmade A"]


# --- fixtures

SUITE = """
import holdfast

@holdfast.workflow
def wait(n: int) -> int:
    holdfast.sleep(n)
    return n

def test_fixtures(durable, virtual_clock, effects):
    began = virtual_clock.now()
    assert durable.start(wait, 86400).result() == 86400
    assert virtual_clock.now() - began >= 86400 * 1_000_000
    assert effects == []
"""

UNUSED = """
import sys

def test_nothing_is_loaded():
    assert not [name for name in sys.modules if name.startswith("holdfast.engine.app") or name == "msgspec"]
"""


@pytest.mark.parametrize("suite", [UNUSED, SUITE])
def test_the_fixtures_are_there_and_load_nothing_until_used(suite: str, tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(suite)
    others = ("hypothesispytest", "langsmith_plugin", "schemathesis", "cacheprovider")  # some load what this is about
    arguments = ["-q", *(f"-pno:{name}" for name in others), "--rootdir", str(tmp_path), str(tmp_path)]
    ran = subprocess.run([sys.executable, "-m", "pytest", *arguments], capture_output=True, text=True, cwd=tmp_path)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr
