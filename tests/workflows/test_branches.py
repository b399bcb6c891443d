"""`gather`, `map`, `first` and `timeout`, sync and async: limits, errors, waiting beside each other, and races."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast, Run, Status, ask, receive, sleep, step, workflow
from holdfast.engine.workflow.concurrency.branches import Threads
from holdfast.errors import StepTimeout, TimedOut, UsageError
from holdfast.testing import ManualClock

ran: list[Any] = []
at_once: list[int] = [0, 0]
gate = threading.Event()
lock = threading.Lock()


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()
    at_once[:] = [0, 0]
    gate.clear()


def enter() -> None:
    with lock:
        at_once[0] += 1
        at_once[1] = max(at_once)


def leave() -> None:
    with lock:
        at_once[0] -= 1


@step
def act(n: int, seconds: float = 0.0) -> int:
    ran.append(n)
    enter()
    time.sleep(seconds)
    leave()
    return n * 10


@step
async def act_async(n: int, seconds: float = 0.0) -> int:
    ran.append(n)
    enter()
    try:
        await asyncio.sleep(seconds)
    finally:
        leave()
    return n * 10


@step
def fail(n: int) -> None:
    ran.append(n)
    raise ValueError(f"no {n}")


@step
async def fail_async(n: int) -> None:
    fail.function(n)


def drive(run: Run, answers: dict[str, Any], order: list[str]) -> None:
    """Answer the questions of these prompts in this order, going on after each."""
    for prompt in order:
        [question] = [one for one in run.questions() if one.prompt == prompt]
        run.answer(answers[prompt], question=question)
        run.resume()


def replayed(run: Run) -> Any:
    """What the run gives when it is replayed from its journal alone; nothing may be run."""
    before = list(ran)
    fork = run.fork(at=run.info().seq - 1)
    fork.resume()
    result = fork.result()
    assert ran == before
    return result


# --- all of them


@workflow
def fans_out(how: str) -> Any:
    match how:
        case "gather":
            return holdfast.gather(lambda: act(1, 0.02), lambda: act(2), lambda: act(3) + act(4))
        case "map":
            return holdfast.map(lambda n: act(n, 0.01), range(8), limit=3)
        case "errors":
            return [repr(one) for one in holdfast.gather(lambda: fail(1), lambda: act(2), return_exceptions=True)]
        case "nested":
            return holdfast.map(lambda n: holdfast.gather(lambda: act(n), lambda: act(n + 1)), [1, 5])
        case _:
            return holdfast.gather()


@workflow
async def fans_out_async(how: str) -> Any:
    match how:
        case "gather":
            return await holdfast.gather(act_async(1, 0.02), act_async(2), both(3, 4))
        case "map":
            return await holdfast.map(lambda n: act_async(n, 0.01), range(8), limit=3)
        case "errors":
            got = await holdfast.gather(fail_async(1), lambda: act_async(2), return_exceptions=True)
            return [repr(one) for one in got]
        case "nested":
            return await holdfast.map(lambda n: holdfast.gather(act_async(n), act_async(n + 1)), [1, 5])
        case _:
            return await holdfast.gather()


async def both(one: int, other: int) -> int:
    return await act_async(one) + await act_async(other)


RESULTS = {
    "gather": [10, 20, 70],
    "map": [n * 10 for n in range(8)],
    "errors": ["ValueError('no 1')", "20"],
    "nested": [[10, 20], [50, 60]],
    "none": [],
}


@pytest.mark.parametrize("flow", [fans_out, fans_out_async])
@pytest.mark.parametrize("how", list(RESULTS))
def test_results_come_in_the_order_of_the_call_and_are_replayed(hf: Holdfast, flow: Any, how: str) -> None:
    run = hf.start(flow, how)
    assert run.result() == RESULTS[how]
    assert at_once[1] <= 3 if how == "map" else True
    assert replayed(run) == RESULTS[how]


@workflow
def one_fails() -> Any:
    return holdfast.gather(lambda: fail(1), lambda: fail(2), lambda: act(3, 0.02), lambda: ask("Well?"))


@workflow
async def one_fails_async() -> Any:
    return await holdfast.gather(fail_async(1), fail_async(2), act_async(3, 0.02), ask("Well?"))


@pytest.mark.parametrize("flow", [one_fails, one_fails_async])
def test_an_error_is_raised_when_all_are_through_and_the_first_by_place_counts(hf: Holdfast, flow: Any) -> None:
    run = hf.start(flow)
    assert run.status is Status.WAITING
    assert sorted(ran) == [1, 2, 3]
    run.answer("yes")
    with pytest.raises(ValueError, match="no 1"):
        run.result()
    assert sorted(ran) == [1, 2, 3]


@pytest.mark.parametrize("what", [3, "text", None])
def test_a_branch_that_is_none_is_refused(hf: Holdfast, what: Any) -> None:
    @workflow(name=f"wrong {what}")
    def wrong() -> str:
        try:
            holdfast.gather(what)
        except UsageError as error:
            return str(error)
        return "no error"

    assert "each branch is a function without arguments" in hf.start(wrong).result()


# --- waiting beside each other


@workflow
def waits() -> Any:
    return holdfast.gather(
        lambda: (ask("a", int), act(1)),
        lambda: (ask("b", int), act(2)),
        lambda: (receive("t"), act(3)),
        lambda: act(4, 0.02),
    )


@workflow
async def waits_async() -> Any:
    return await holdfast.gather(asks("a", 1), asks("b", 2), receives(3), act_async(4, 0.02))


async def asks(prompt: str, n: int) -> tuple[int, int]:
    return await ask(prompt, int), await act_async(n)


async def receives(n: int) -> tuple[Any, int]:
    return await receive("t"), await act_async(n)


@pytest.mark.parametrize("flow", [waits, waits_async])
@pytest.mark.parametrize("order", [["a", "b"], ["b", "a"]])
def test_several_questions_are_open_at_once_and_each_answered_branch_goes_on(
    hf: Holdfast, flow: Any, order: list[str]
) -> None:
    run = hf.start(flow)
    assert ran == [4]
    assert sorted(question.prompt for question in run.questions()) == ["a", "b"]  # threads ask in any order
    drive(run, {"a": 7, "b": 8}, order[:1])
    assert ran == [4, {"a": 1, "b": 2}[order[0]]]
    run.send("hello", topic="t")
    run.resume()
    assert ran[2:] == [3]
    drive(run, {"a": 7, "b": 8}, order[1:])
    assert [list(one) if isinstance(one, tuple | list) else one for one in run.result()] == [
        [7, 10],
        [8, 20],
        ["hello", 30],
        40,
    ]
    assert sorted(ran) == [1, 2, 3, 4]


@workflow
async def answered_beside_a_step() -> Any:
    return await asyncio.gather(asks("a", 1), until_gate())


async def until_gate() -> int:
    return await waits_for_gate()


@step
async def waits_for_gate() -> int:
    while 1 not in ran:
        await asyncio.sleep(0.005)
    return 5


def test_an_answered_branch_goes_on_while_a_step_of_another_runs(opened: Callable[..., Holdfast]) -> None:
    hf, other = opened(), opened()
    thread = threading.Thread(target=lambda: hf.start(answered_beside_a_step, id="r"))
    thread.start()
    run = None
    while run is None or not run.questions():
        time.sleep(0.005)
        run = other.run("r") if other.runs().items else None
    run.answer(3)
    thread.join(20)
    assert [list(one) if isinstance(one, tuple | list) else one for one in run.result(timeout=5)] == [[3, 10], 5]


# --- races


@workflow
def races(how: str) -> Any:
    match how:
        case "steps":
            return holdfast.first(lambda: act(1, 0.15), lambda: act(2)), act(3)
        case "ask":
            return holdfast.first(lambda: ask("lost?"), lambda: (act(2), ask("won?"))[1]), ask("then?")
        case _:
            return holdfast.first(lambda: holdfast.gather(lambda: fail(1)), lambda: ask("lost?"))


@workflow
async def races_async(how: str) -> Any:
    match how:
        case "steps":
            return await holdfast.first(act_async(1, 30), act_async(2)), await act_async(3)
        case "ask":
            return await holdfast.first(ask("lost?"), acts_and_asks()), await ask("then?")
        case _:
            return await holdfast.first(asyncio.create_task(fails()), ask("lost?"))


async def fails() -> None:
    await fail_async(1)


async def acts_and_asks() -> Any:
    await act_async(2)
    return await ask("won?")


@pytest.mark.parametrize("flow", [races, races_async])
def test_the_winner_is_the_same_in_a_replay(hf: Holdfast, flow: Any) -> None:
    run = hf.start(flow, "steps")
    assert list(run.result()) == [20, 30]
    assert list(replayed(run)) == [20, 30]


@pytest.mark.parametrize("flow", [races, races_async])
def test_the_question_of_a_loser_is_closed(hf: Holdfast, flow: Any) -> None:
    run = hf.start(flow, "ask")
    assert [question.prompt for question in run.questions()] == ["lost?", "won?"]
    lost = run.questions()[0]
    drive(run, {"won?": "yes"}, ["won?"])
    assert [question.prompt for question in run.questions()] == ["then?"]
    with pytest.raises(holdfast.errors.QuestionClosed):
        run.answer("late", question=lost)
    run.answer("end")
    assert list(run.result()) == ["yes", "end"]
    assert ran == [2]
    assert list(replayed(run)) == ["yes", "end"]


@pytest.mark.parametrize("flow", [races, races_async])
def test_a_losers_question_is_closed_together_with_the_end_of_the_race(hf: Holdfast, flow: Any) -> None:
    run = hf.start(flow, "ask")
    drive(run, {"won?": "yes"}, ["won?"])
    kinds = [entry.kind for entry in run.history().items]
    assert kinds[kinds.index("closed") - 1] == "done"
    assert kinds.index("closed") < len(kinds) - 1 - kinds[::-1].index("asked")


@pytest.mark.parametrize("flow", [races, races_async])
def test_an_error_wins_too(hf: Holdfast, flow: Any) -> None:
    run = hf.start(flow, "fails")
    with pytest.raises(ValueError, match="no 1"):
        run.result()
    assert run.questions() == ()


@workflow
def loser_goes_on() -> Any:
    won = holdfast.first(lambda: holdfast.gather(lambda: holds_on()), lambda: act(2))
    gate.set()
    return won, act(9, 0.1)


def holds_on() -> None:
    gate.wait(5)
    act(1)


def test_a_branch_of_a_losing_branch_is_stopped_at_its_next_durable_call(hf: Holdfast) -> None:
    assert list(hf.start(loser_goes_on).result()) == [20, 90]
    assert ran == [2, 9]


# --- time limits


@workflow
def limited(how: str) -> Any:
    acts: dict[str, Callable[[], Any]] = {
        "ask": lambda: ask("Well?"),
        "sleep": lambda: sleep(1000),
        "nested": lambda: holdfast.timeout(1000, lambda: ask("Well?")),
        "in time": lambda: sleep(50),
    }
    try:
        holdfast.timeout(100, acts[how])
    except TimedOut as error:
        return [str(error), act(1), ask("then?")]
    return "in time"


@workflow
async def limited_async(how: str) -> Any:
    acts: dict[str, Callable[[], Any]] = {
        "ask": lambda: ask("Well?"),
        "sleep": lambda: sleep(1000),
        "nested": lambda: holdfast.timeout(1000, ask("Well?")),
        "in time": lambda: sleep(50),
    }
    try:
        await holdfast.timeout(100, acts[how])
    except TimedOut as error:
        return [str(error), await act_async(1), await ask("then?")]
    return "in time"


@pytest.mark.parametrize("flow", [limited, limited_async])
@pytest.mark.parametrize("how", ["ask", "sleep", "nested"])
def test_a_time_limit_survives_and_closes_the_question(hft: Holdfast, clock: ManualClock, flow: Any, how: str) -> None:
    run = hft.start(flow, how)
    assert run.status is Status.WAITING
    clock.advance(90)
    run.resume()
    assert ran == []
    assert len(run.questions()) == (how != "sleep")
    clock.advance(11)
    run.resume()
    assert ran == [1]
    assert [question.prompt for question in run.questions()] == ["then?"]
    run.answer("end")
    text, *rest = run.result()
    assert "timeout#1 took longer than 100 s" in text
    assert rest == [10, "end"]
    assert replayed(run)[1:] == [10, "end"]


@pytest.mark.parametrize("flow", [limited, limited_async])
def test_what_ends_in_time(hft: Holdfast, clock: ManualClock, flow: Any) -> None:
    run = hft.start(flow, "in time")
    clock.advance(51)
    run.resume()
    assert run.result() == replayed(run) == "in time"


@workflow
def slow_step() -> str:
    try:
        holdfast.timeout(0.03, lambda: (act(1, 0.1), act(2)))
    except TimedOut as error:
        return str(error)
    return "in time"


@workflow
async def slow_step_async() -> str:
    try:
        await holdfast.timeout(0.03, act_async(1, 30))
    except TimedOut as error:
        return str(error)
    return "in time"


@pytest.mark.parametrize("flow", [slow_step, slow_step_async])
def test_a_step_that_takes_too_long(hf: Holdfast, flow: Any) -> None:
    run = hf.start(flow)
    assert "took longer than 0.03 s" in run.result()
    time.sleep(0.12)
    assert ran == [1]
    assert replayed(run) == run.result()
    assert not issubclass(StepTimeout, TimedOut)


# --- resumed, with something new to do in one branch and something recorded in another


def asks_and_acts(n: int) -> int:
    ask(f"{n}?", str)
    return act(n, 0.01)


@workflow
def many_ask(many: int, limit: int | None) -> Any:
    return holdfast.map(asks_and_acts, range(many), limit=limit)


@workflow
def many_ask_within(many: int, limit: int | None) -> Any:
    def one(n: int) -> Any:
        return holdfast.gather(lambda: asks_and_acts(n), lambda: asks_and_acts(n + 100), limit=1)

    return holdfast.map(one, range(many), limit=limit)


@pytest.mark.parametrize(("many", "limit"), [(2, 1), (3, 2), (40, None)])
@pytest.mark.parametrize("within", [False, True], ids=["alone", "within"])
def test_a_held_branch_lets_those_go_on_that_have_not_begun(
    hf: Holdfast, many: int, limit: int | None, within: bool
) -> None:
    run = hf.start(many_ask_within if within else many_ask, many, limit)
    assert run.status is Status.WAITING
    questions = list(run.questions())
    assert len(questions) == many * (2 if within else 1)
    run.answer("yes", question=questions[0])
    assert run.resume() is Status.WAITING, run.info().reason
    assert len(ran) == 1
    for question in questions[1:]:
        run.answer("yes", question=question)
    assert run.resume() is Status.COMPLETED, run.info().reason
    assert len(ran) == len(set(ran)) == len(questions)
    assert at_once[1] <= (limit or 32)


@workflow
def the_second_begins_late() -> Any:
    def one(n: int) -> Any:
        time.sleep(n * 0.08)  # while somebody looks at the threads, for the second time
        return holdfast.gather(lambda: asks_and_acts(n), lambda: asks_and_acts(n + 100), limit=1)

    return holdfast.map(one, range(2), limit=1)


def test_a_slow_look_at_the_threads_is_a_look_at_one_moment(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    is_starting, work = Threads.is_starting.fget, Threads._work
    assert is_starting is not None

    def slowly(pool: Threads) -> bool:
        found = is_starting(pool)
        time.sleep(0.03)
        return found

    def work_late(pool: Threads, job: Any) -> None:
        time.sleep(0.06 if pool.scope.path else 0)
        work(pool, job)

    monkeypatch.setattr(Threads, "is_starting", property(slowly))
    monkeypatch.setattr(Threads, "_work", work_late)
    run = hf.start(the_second_begins_late)
    first, *others = run.questions()
    run.answer("yes", question=first)
    assert run.resume() is Status.WAITING, run.info().reason
    for question in others:
        run.answer("yes", question=question)
    assert run.resume() is Status.COMPLETED, run.info().reason


@workflow
def asks_beside_branches() -> Any:
    def fan_and_act() -> int:
        holdfast.gather(lambda: act(1), lambda: act(2))
        act(3)
        ask("second?", str)
        return act(4)

    return holdfast.gather(lambda: asks_and_acts(0), fan_and_act)


@pytest.mark.parametrize("slow", ["begins", "wakes"])
def test_a_slow_machine_blocks_nothing(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    from holdfast.engine.workflow.concurrency import branches

    run = hf.start(asks_beside_branches)
    begin, wait = branches.Threads.begin, branches.wait_for_threads

    def slow_begin(self: Any, *given: Any) -> Any:
        time.sleep(0.3)
        return begin(self, *given)

    def slow_wait(*given: Any, **named: Any) -> Any:
        found = wait(*given, **named)
        time.sleep(0.3)
        return found

    first, second = run.questions()
    run.answer("yes", question=first)
    if slow == "begins":
        monkeypatch.setattr(branches.Threads, "begin", slow_begin)
    else:
        monkeypatch.setattr(branches, "wait_for_threads", slow_wait)
    assert run.resume() is Status.WAITING, run.info().reason
    run.answer("yes", question=second)
    assert run.resume() is Status.COMPLETED, run.info().reason
    assert sorted(ran) == [0, 1, 2, 3, 4]


@workflow
def timed_in_a_race() -> Any:
    def one() -> int:
        found: int = holdfast.timeout(60, lambda: act(1))
        ask("Go?", str)
        return found + act(2)

    return holdfast.gather(lambda: asks_and_acts(9), lambda: holdfast.first(one))


@workflow
async def timed_in_a_race_async() -> Any:
    async def one() -> int:
        found: int = await holdfast.timeout(60, lambda: act_async(1))
        await ask("Go?", str)
        return found + await act_async(2)

    async def other() -> int:
        await ask("9?", str)
        return await act_async(9)

    return await holdfast.gather(other, lambda: holdfast.first(one))


@pytest.mark.parametrize("race", [timed_in_a_race, timed_in_a_race_async], ids=["sync", "async"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_timeout_that_ended_in_a_race_is_no_race(hf: Holdfast, race: Any, order: int) -> None:
    run = hf.start(race)
    for question in list(run.questions())[::order]:
        run.answer("yes", question=question)
        run.resume()
    assert run.result(timeout=20) == [90, 30]
    assert sorted(ran) == [1, 2, 9]
