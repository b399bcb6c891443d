"""A workflow asks a person: every kind of form, wrong answers, several questions, time limits, answers that race."""

import asyncio
import enum
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from writes import Make, around

import holdfast
from holdfast import AnswerRefused, Field, Holdfast, Run, TimedOut, UsageError, ask, step, workflow
from holdfast.errors import QuestionClosed
from holdfast.kernel.model import Post, Status
from holdfast.testing import ManualClock


@dataclass
class Shipping:
    carrier: Literal["post", "courier"]
    days: int = 3


class Address(msgspec.Struct):
    street: str
    number: Annotated[int, msgspec.Meta(gt=0)]


class Approval(pydantic.BaseModel):
    ok: bool
    note: str = pydantic.Field(default="", max_length=5)


class Choice(TypedDict):
    name: str
    many: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


KINDS: dict[str, Any] = {
    "dataclass": Shipping,
    "struct": Address,
    "pydantic": Approval,
    "typeddict": Choice,
    "literal": Literal["yes", "no"],
    "enum": Colour,
    "int": int,
    "str": str,
    "bool": bool,
    "list": list[int],
    "fields": [Field("name"), Field("age", "integer", required=False)],
    "anything": None,
}

# kind, what is answered, what the workflow gets
ANSWERS: list[tuple[str, Any, Any]] = [
    ("dataclass", Shipping("post"), Shipping("post")),
    ("dataclass", {"carrier": "courier", "days": 1}, Shipping("courier", 1)),
    ("struct", Address("Main", 4), Address("Main", 4)),
    ("struct", {"street": "Main", "number": 4}, Address("Main", 4)),
    ("pydantic", Approval(ok=True), Approval(ok=True)),
    ("pydantic", {"ok": False, "note": "no"}, Approval(ok=False, note="no")),
    ("typeddict", {"name": "x", "many": 2}, {"name": "x", "many": 2}),
    ("literal", "yes", "yes"),
    ("enum", Colour.BLUE, Colour.BLUE),
    ("enum", "red", Colour.RED),
    ("int", 7, 7),
    ("str", "seven", "seven"),
    ("bool", False, False),
    ("list", [1, 2], [1, 2]),
    ("fields", {"name": "auditor"}, {"name": "auditor", "age": None}),
    ("anything", {"a": [1]}, {"a": [1]}),
]

# kind, what is answered, what must be named as wrong
WRONG: list[tuple[str, Any, tuple[str, ...]]] = [
    ("dataclass", {"carrier": "pigeon", "days": "soon"}, ("carrier", "days")),
    ("struct", {"number": 0}, ("street", "number")),
    ("pydantic", {"ok": "maybe", "note": "too long"}, ("ok", "note")),
    ("typeddict", {"name": 1}, ("name", "many")),
    ("literal", "perhaps", ("perhaps",)),
    ("enum", "green", ("green",)),
    ("int", "seven", ("seven",)),
    ("bool", 1, ("1",)),
    ("list", [1, "x"], ("x",)),
    ("fields", {"age": "old", "size": 3}, ("name", "age", "size")),
]

got: dict[str, Any] = {}


@step
def keep_answer(run: str, shown: str) -> None:
    """So that there is something after the question."""


@workflow
def asks_once(kind: str) -> str:
    value = ask("What?", KINDS[kind])
    got[holdfast.this_run()] = value
    keep_answer(holdfast.this_run(), repr(value))
    return repr(value)


@workflow
async def asks_once_async(kind: str) -> str:
    value = await ask("What?", KINDS[kind])
    got[holdfast.this_run()] = value
    keep_answer(holdfast.this_run(), repr(value))
    return repr(value)


both = pytest.mark.parametrize("asks", [asks_once, asks_once_async], ids=["sync", "async"])


@both
@pytest.mark.parametrize(("kind", "answer", "wanted"), ANSWERS, ids=[kind for kind, _, _ in ANSWERS])
def test_an_answer_arrives_as_what_was_asked_for(hf: Holdfast, asks: Any, kind: str, answer: Any, wanted: Any) -> None:
    run = hf.start(asks, kind)
    assert run.status is Status.WAITING
    run.answer(answer)
    assert run.result() == repr(wanted)
    assert got[run.id] == wanted
    assert type(got[run.id]) is type(wanted)


@both
@pytest.mark.parametrize(("kind", "answer", "named"), WRONG, ids=[kind for kind, _, _ in WRONG])
def test_a_wrong_answer_is_refused_and_consumes_nothing(
    hf: Holdfast, asks: Any, kind: str, answer: Any, named: tuple[str, ...]
) -> None:
    run = hf.start(asks, kind)
    before = run.info().seq
    [question] = run.questions()
    with pytest.raises(AnswerRefused) as refused:
        run.answer(answer)
    assert len(refused.value.problems) == len(named)
    assert all(any(name in problem for problem in refused.value.problems) for name in named)
    assert (run.status, run.info().seq, run.questions()) == (Status.WAITING, before, (question,))
    right = next(answer for known, answer, _ in ANSWERS if known == kind)
    run.answer(right)
    run.result()


@both
def test_a_closed_question_takes_no_answer(hf: Holdfast, opened: Callable[..., Holdfast], asks: Any) -> None:
    run = hf.start(asks, "int")
    [question] = run.questions()
    run.answer(1)
    with pytest.raises(QuestionClosed):  # it is answered, although nobody has gone on yet
        opened().get(run.id).answer(2)
    run.result()
    with pytest.raises(QuestionClosed, match=question.id):
        run.answer(2, question=question)
    with pytest.raises(QuestionClosed, match="nowhere"):
        run.answer(2, question="nowhere")
    assert run.result() == "1"


# --- several at once


@workflow
def asks_two() -> list[int]:
    return holdfast.gather(lambda: ask("First?", int), lambda: ask("Second?", int))  # type: ignore[no-any-return]


@workflow
async def asks_two_async() -> list[int]:
    return list(await asyncio.gather(ask("First?", int), ask("Second?", int)))


two = pytest.mark.parametrize("asks", [asks_two, asks_two_async], ids=["sync", "async"])


@two
def test_several_questions_are_answered_in_any_order(hf: Holdfast, asks: Any) -> None:
    run = hf.start(asks)
    first, second = sorted(run.questions(), key=lambda question: question.prompt)
    with pytest.raises(UsageError, match=f"(?s){first.id}.*|{second.id}.*"):
        run.answer(1)
    run.answer(2, question=second.id)
    assert run.questions() == (first,)
    run.wait(timeout=0)
    assert run.questions() == (first,)
    run.answer(1)  # the only one now
    assert run.result() == [1, 2]


@two
def test_of_many_answers_at_once_one_counts(opened: Callable[..., Holdfast], asks: Any) -> None:
    run = opened().start(asks)
    question, other = run.questions()
    barrier = threading.Barrier(6)
    told: list[int | str] = []

    def give(handle: Run, value: int) -> None:
        barrier.wait()
        try:
            handle.answer(value, question=question)
            told.append(value)
        except QuestionClosed:
            told.append("closed")

    threads = [threading.Thread(target=give, args=(opened().get(run.id), n)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [one for one in told if one != "closed"]
    run.answer(99, question=other)
    assert sorted(run.result()) == sorted([winner, 99])


# --- while it is held

holding = threading.Event()
go_on = threading.Event()


@step
def hold_on() -> str:
    holding.set()
    assert go_on.wait(20)
    return "held"


@workflow
def asks_while_busy() -> list[Any]:
    def later() -> Any:
        hold_on()
        return ask("Later?", int)

    return holdfast.gather(lambda: ask("Now?", int), later)  # type: ignore[no-any-return]


@workflow
async def asks_while_busy_async() -> list[Any]:
    async def later() -> Any:
        await asyncio.to_thread(holding.set)
        while not go_on.is_set():
            await asyncio.sleep(0.005)
        return await ask("Later?", int)

    return list(await asyncio.gather(ask("Now?", int), later()))


@pytest.mark.parametrize("asks", [asks_while_busy, asks_while_busy_async], ids=["sync", "async"])
def test_an_answer_that_comes_while_another_branch_is_busy_is_not_forgotten(
    opened: Callable[..., Holdfast], asks: Any
) -> None:
    holding.clear()
    go_on.clear()
    hf = opened()
    thread = threading.Thread(target=hf.start, args=(asks,), kwargs={"id": "busy"})
    thread.start()
    assert holding.wait(20)
    other = opened().get("busy")
    while not other.questions():
        thread.join(0.005)
    assert other.status is Status.RUNNING
    [question] = other.questions()
    other.answer(1, question=question)
    go_on.set()
    thread.join()
    [late] = other.questions()
    assert late.prompt == "Later?"
    other.answer(2)
    run = hf.get("busy")
    assert run.resume() is Status.COMPLETED
    assert run.result() == [1, 2]


# --- time limits


@workflow
def asks_in_time(seconds: float, default: Any) -> Any:
    try:
        if default == "none given":
            return ask("Quick?", int, timeout=seconds)
        return ask("Quick?", int, timeout=timedelta(seconds=seconds), default=default)
    except TimedOut as late:
        keep_answer(holdfast.this_run(), "late")
        return f"late: {late}"


@workflow
async def asks_in_time_async(seconds: float, default: Any) -> Any:
    try:
        if default == "none given":
            return await ask("Quick?", int, timeout=seconds)
        return await ask("Quick?", int, timeout=timedelta(seconds=seconds), default=default)
    except TimedOut as late:
        keep_answer(holdfast.this_run(), "late")
        return f"late: {late}"


in_time = pytest.mark.parametrize("asks", [asks_in_time, asks_in_time_async], ids=["sync", "async"])


@in_time
@pytest.mark.parametrize("seconds", [0, 0.5, 3600.0])
@pytest.mark.parametrize("default", [5, None])
def test_after_the_time_the_default_is_the_answer(hft: Holdfast, asks: Any, seconds: float, default: Any) -> None:
    run = hft.start(asks, seconds, default)
    assert run.result() == default
    replayed = run.fork()
    assert replayed.resume() is Status.COMPLETED
    assert replayed.result() == default


@in_time
@pytest.mark.parametrize("seconds", [0, 0.5, 3600.0])
def test_without_a_default_the_workflow_is_told(
    hft: Holdfast, timed: Callable[..., Holdfast], asks: Any, seconds: float
) -> None:
    run = hft.start(asks, seconds, "none given")
    assert "Quick?" in run.result()
    assert "late" in run.result()
    # The same in a replay, from right after the question's time was over, and by another holder.
    [over] = [entry.seq for entry in run.history() if entry.kind == "answered"]
    replayed = timed().get(run.id).fork(at=over)
    replayed.resume()
    assert replayed.result() == run.result()


@in_time
def test_what_was_answered_in_time_counts_although_it_is_seen_late(
    hft: Holdfast, timed: Callable[..., Holdfast], clock: ManualClock, asks: Any
) -> None:
    run = hft.start(asks, 60.0, "none given")
    assert run.info().wake_at is not None
    timed().get(run.id).answer(4)
    clock.advance(61)
    assert run.result() == 4


@in_time
def test_what_is_answered_too_late_is_refused(hft: Holdfast, clock: ManualClock, asks: Any) -> None:
    run = hft.start(asks, 60.0, 9)
    [question] = run.questions()
    clock.advance(60)
    assert run.result() == 9
    with pytest.raises(QuestionClosed):
        run.answer(4, question=question)


@in_time
@pytest.mark.parametrize("seconds", [0.5, 60.0])
def test_an_answer_in_the_same_moment_as_the_time_limit_counts_or_is_refused(
    hft: Holdfast, timed: Callable[..., Holdfast], asks: Any, seconds: float
) -> None:
    """Somebody answers right before the holder says that the time is over."""
    other = timed()
    told: list[str] = []

    def answered_just_before(post: Post, make: Make) -> Any:
        if post.item.kind == "answer" and not told:
            told.append("asked")
            other.get("quick").answer(4)
            told.append("accepted")
        return make(post)

    hft.client.store.apply = around(hft.client.store, Post, answered_just_before)  # type: ignore[method-assign]
    assert hft.start(asks, seconds, 9, id="quick").result() == 4
    assert told == ["asked", "accepted"]


@in_time
def test_an_answer_that_is_under_way_when_the_time_is_over_is_refused(
    hft: Holdfast, timed: Callable[..., Holdfast], asks: Any
) -> None:
    run = hft.start(asks, 60.0, 9)
    other = timed()

    def overtaken(post: Post, make: Make) -> Any:
        assert run.result() == 9
        return make(post)

    other.client.store.apply = around(other.client.store, Post, overtaken)  # type: ignore[method-assign]
    with pytest.raises(QuestionClosed):
        other.get(run.id).answer(4)


@pytest.mark.parametrize("kind", ["dataclass", "enum"])
def test_the_answer_may_come_from_a_process_that_lacks_the_class(
    shared_url: str, python: Callable[..., str], kind: str
) -> None:
    with holdfast.open(shared_url) as hf:
        run = hf.start(asks_once, kind, id="asked")
        script = """
            import sys, holdfast
            with holdfast.open(sys.argv[1]) as hf:
                run = hf.get("asked")
                [question] = run.questions()
                print([field.name for field in question.fields])
                try:
                    run.answer({"carrier": "pigeon"} if question.fields[0].name == "carrier" else "green")
                except holdfast.AnswerRefused as refused:
                    print("refused", len(refused.problems))
                run.answer({"carrier": "post"} if question.fields[0].name == "carrier" else "red")
        """
        assert "refused 1" in python(script, shared_url)
        assert run.result() == repr(Shipping("post") if kind == "dataclass" else Colour.RED)


def test_a_question_is_refused_where_it_makes_no_sense(hf: Holdfast) -> None:
    with pytest.raises(UsageError, match="inside of a workflow"):
        ask("Anybody?")
