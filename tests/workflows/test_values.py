"""What a workflow gets from outside is the same in each replay; secrets are never stored; endless loops stay cheap."""

import logging
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

import holdfast
from holdfast import Holdfast, Secret, Status, ask, step, workflow
from holdfast.errors import NoCheckpoint, NotStorable, SecretMissing, TooLarge
from holdfast.testing import ManualClock

SECRET = "hunter2-and-more"
done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


# --- time and chance


def _draw() -> list[Any]:
    return [holdfast.now(), holdfast.random(), holdfast.uuid(), holdfast.now(), holdfast.random(), holdfast.uuid()]


@workflow
def draws() -> list[Any]:
    before = _draw()
    ask("Go?")
    return [before, _draw()]


@workflow
async def draws_async() -> list[Any]:
    before = _draw()
    await ask("Go?")
    return [before, _draw()]


drawers = pytest.mark.parametrize("drawer", [draws, draws_async], ids=["sync", "async"])


@drawers
def test_a_replay_gets_the_same(hf: Holdfast, opened: Callable[..., Holdfast], drawer: Any) -> None:
    run = hf.start(drawer)
    seen = [entry.seq for entry in run.history(kind="done")]
    run.answer(None)
    before, after = run.result()
    assert [type(one) for one in before] == [datetime, float, UUID] * 2
    assert before[0].tzinfo == UTC
    assert 0 <= before[1] < 1
    assert before[1] != before[4]
    assert before[2] != before[5]
    # A fork has the same up to its point, and draws its own after that.
    fork = opened().get(run.id).fork(at=seen[-1])
    fork.resume()
    fork.answer(None)
    same, other = fork.result()
    assert same == before
    assert all(one != another for one, another in zip(other[1:3] + other[4:], after[1:3] + after[4:], strict=True))


def test_the_time_is_that_of_the_store(hft: Holdfast, clock: ManualClock) -> None:
    run = hft.start(draws)
    clock.advance(3600)
    run.answer(None)
    before, after = run.result()
    assert (after[0] - before[0]).total_seconds() == 3600


def test_outside_of_a_run_they_are_plain() -> None:
    drawn = _draw()
    assert abs((drawn[0] - datetime.now(UTC)).total_seconds()) < 60
    assert drawn[1] != drawn[4]
    assert drawn[2] != drawn[5]
    random.seed(7)
    assert [holdfast.random()] == [random.Random(7).random()]


# --- secrets


class Refused(Exception):
    """Says too much."""


@step
def log_in(password: Secret, user: str) -> str:
    done.append(password.reveal())
    return user.upper()


@step(retries=1, delay=0)
def leaks(password: Secret) -> None:
    value = password.reveal()
    raise Refused(f"the server refused {value}")


@workflow
def uses_a_secret(password: Secret, fails: bool = False) -> str:
    log_in(password, "kim")
    ask("Go?")
    if fails:
        leaks(password)
    return log_in(password, "lee")


@workflow
async def uses_a_secret_async(password: Secret, fails: bool = False) -> str:
    log_in(password, "kim")
    await ask("Go?")
    if fails:
        leaks(password)
    return log_in(password, "lee")


users = pytest.mark.parametrize("user", [uses_a_secret, uses_a_secret_async], ids=["sync", "async"])


@users
@pytest.mark.parametrize("fails", [False, True])
def test_a_secret_is_nowhere_to_be_found(
    hf: Holdfast, raw_bytes: Callable[..., bytes], caplog: pytest.LogCaptureFixture, user: Any, fails: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    run = hf.start(user, Secret(SECRET, "password"), fails)
    run.answer(None)
    if fails:
        with pytest.raises(Refused) as refused:
            run.result()
        assert SECRET not in str(refused.value)
        assert SECRET not in "".join(refused.value.__notes__)
    else:
        assert run.result() == "LEE"
    assert done == [SECRET] * (1 if fails else 2)
    shown = [run.info(), run.steps(), [run.entry(n) for n in range(run.info().seq + 1)]]
    assert SECRET not in repr(shown)
    assert SECRET not in caplog.text
    assert SECRET.encode() not in raw_bytes()
    assert b"hunter2" not in raw_bytes()


def test_the_same_secret_again_is_the_same_run(hf: Holdfast) -> None:
    run = hf.start(uses_a_secret, Secret(SECRET, "password"), id="one")
    again = hf.start(uses_a_secret, Secret(SECRET, "password"), id="one")
    assert again.uid == run.uid


USER = """
    import sys, holdfast
    from holdfast import Secret, ask, step, workflow
    @step
    def log_in(password: Secret, user: str) -> str:
        return password.reveal()[::-1]
    @workflow(name="logs in elsewhere")
    def uses(password: Secret) -> str:
        before = log_in(password, "kim")
        ask("Go?")
        assert log_in(password, "lee") == before
        return "logged in"
    if sys.argv[2] == "start":
        with holdfast.open(sys.argv[1]) as hf:
            made = Secret.from_env("THE_PASSWORD") if sys.argv[3] == "env" else Secret("hunter2-and-more", "password")
            hf.start(uses, made, id="one").answer(None)
    else:
        known = {"password": "hunter2-and-more"} if sys.argv[3] == "given" else None
        with holdfast.open(sys.argv[1], secrets=known) as hf:
            run = hf.get("one")
            print(run.resume())
            print(run.result())
"""


@pytest.mark.parametrize("how", ["given", "env"])
def test_another_process_finds_the_secret_by_its_name(shared_url: str, python: Callable[..., str], how: str) -> None:
    env = {**os.environ, "THE_PASSWORD": SECRET}
    python(USER, shared_url, "start", how, env=env)
    assert "logged in" in python(USER, shared_url, "resume", how, env=env)


def test_a_process_that_lacks_the_secret_says_which_one(shared_url: str, python: Callable[..., str]) -> None:
    python(USER, shared_url, "start", "given")
    with holdfast.open(shared_url) as hf:

        @workflow(name="logs in elsewhere")
        def uses(password: Secret) -> str:
            log_in(password, "kim")
            ask("Go?")
            return log_in(password, "lee")

        run = hf.get("one")
        run.resume()
        with pytest.raises(SecretMissing, match=r"'password'.*secrets="):
            run.result()


# --- endless loops


@step
def work_off(n: int) -> int:
    done.append(str(n))
    return n


@workflow
def endless(n: int, last: int) -> str:
    work_off(n)
    got = holdfast.receive("go", timeout=60, default=None) if n % 2 else None
    if n == last:
        return f"done {n} {got}"
    holdfast.continue_as_new(n + 1, last=last)


@workflow
async def endless_async(n: int, last: int) -> str:
    work_off(n)
    got = await holdfast.receive("go", timeout=60, default=None) if n % 2 else None
    if n == last:
        return f"done {n} {got}"
    holdfast.continue_as_new(n + 1, last=last)


loops = pytest.mark.parametrize("loop", [endless, endless_async], ids=["sync", "async"])


@loops
def test_an_endless_loop_stays_cheap_to_go_on_with(hft: Holdfast, timed: Callable[..., Holdfast], loop: Any) -> None:
    run = hft.start(loop, 0, 100, id="loop")
    costs = []
    for _ in range(30):
        other = timed()
        read, rows = other.client.store.read, []

        def counting(*args: Any, read: Any = read, rows: list[int] = rows, **how: Any) -> Any:
            found = read(*args, **how)
            rows.append(len(found))
            return found

        other.client.store.read = counting  # type: ignore[method-assign]
        again = other.get("loop")
        assert again.resume() is Status.WAITING
        costs.append(sum(rows))
        again.send("next", topic="go")
        assert again.resume() is Status.WAITING
    assert max(costs) <= costs[0] + 2
    assert run.result().startswith("done 100")
    assert done == [str(n) for n in range(101)]


@loops
def test_all_chapters_stay_in_the_history(hft: Holdfast, loop: Any) -> None:
    run = hft.start(loop, 0, 3)
    assert run.result() == "done 3 None"
    history = run.history()
    begun = [entry.seq for entry in history if entry.kind == "continued"]
    assert len(begun) == 3
    assert [entry.seq for entry in history] == list(range(run.info().seq + 1))
    assert [run.checkpoint(at - 1).results["work_off#1"] for at in begun] == [0, 1, 2]
    with pytest.raises(NoCheckpoint, match=r"began anew at .* fork"):
        run.rollback(to=1)
    run.rollback(to=begun[-1])
    assert run.result() == "done 3 None"
    fork = run.fork(at=begun[0])
    assert fork.resume() is Status.WAITING
    assert fork.result() == "done 3 None"
    assert done == ["0", "1", "2", "3", "3", "1", "2", "3"]


@loops
def test_messages_that_wait_are_kept_in_the_next_chapter(hft: Holdfast, loop: Any) -> None:
    run = hft.start(loop, 1, 5)
    for n in range(3):
        run.send(n, topic="go")
    assert run.result() == "done 5 2"
    begun = [entry.seq for entry in run.history() if entry.kind == "continued"][-1]
    run.rollback(to=begun)
    assert run.result() == "done 5 2"


undone: list[str] = []


def free(result: str, what: str) -> None:
    undone.append(what)


@step(undo=free)
def hold(what: str) -> str:
    return what


@workflow(on_failure="rollback")
def holds(n: int) -> None:
    hold(f"chapter {n}")
    if n == 0:
        holdfast.continue_as_new(1)
    ask("Go?")
    raise ValueError("no")


def test_effects_of_earlier_chapters_stay_on_record(hf: Holdfast) -> None:
    undone.clear()
    run = hf.start(holds, 0)
    assert [effect.status for effect in run.effects()] == ["done"]
    run.answer(None)
    with pytest.raises(ValueError, match="no"):
        run.result()
    assert undone == ["chapter 1"]  # what an earlier chapter did was finished with it
    continued = next(entry.seq for entry in run.history() if entry.kind == "continued")
    assert [effect.key for effect in run.fork(at=continued - 1).effects()] == ["hold#1"]


@workflow
def continues_wrongly(how: str) -> None:
    if how == "unstorable":
        holdfast.continue_as_new(object())
    if how == "arguments":
        holdfast.continue_as_new(1, 2, 3)
    holdfast.continue_as_new("x" * 5000)


@pytest.mark.parametrize(
    ("how", "error"), [("unstorable", NotStorable), ("arguments", holdfast.UsageError), ("large", TooLarge)]
)
def test_arguments_that_cannot_be_kept_fail_the_run(
    opened: Callable[..., Holdfast], how: str, error: type[Exception]
) -> None:
    run = opened(max_bytes=4000).start(continues_wrongly, how)
    with pytest.raises(error):
        run.result()
    assert run.status is Status.FAILED
    assert run.info().holder is None
