"""Questions, and the answers that fit them."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Field, Holdfast, Status
from holdfast.errors import AnswerRefused, NotStorable, QuestionClosed, RunEnded, UsageError


def ask(hf: Holdfast, *fields: Any, id: str = "run") -> Any:
    run = hf.run(id)
    run.pause("Well?", fields)
    return run


def answer_of(run: Any) -> Any:
    with run.claim():
        return run.checkpoint().answers["answer"]


# --- asking


def test_a_pause_gives_up_the_run_and_keeps_everything(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = hf.run("run")
    with run.claim():
        run.save({"n": 1}, next="deploy", queue=["x"])
        question = run.pause("Deploy?", [Field("ok", "boolean", label="OK?")], output_key="go")
        assert run.epoch is None
    assert (question.run, question.prompt, question.output_key) == ("run", "Deploy?", "go")
    assert question.fields == (Field("ok", "boolean", label="OK?"),)
    again = opened().get("run")
    assert again.status is Status.WAITING
    assert again.questions() == (question,)
    assert again.checkpoint().questions == (question,)
    assert (again.checkpoint().state, again.checkpoint().next, again.checkpoint().queue) == ({"n": 1}, "deploy", ["x"])


def test_the_same_question_is_not_asked_twice(hf: Holdfast) -> None:
    run = hf.run("run")
    first = run.pause("Well?", [Field("ok", "boolean")])
    with run.claim():
        assert run.pause("Well?", [{"name": "ok", "type": "boolean"}]) == first
    assert run.questions() == (first,)
    assert run.status is Status.WAITING


def test_several_questions_at_once(hf: Holdfast) -> None:
    run = hf.run("run")
    first = run.pause("First?", output_key="a")
    second = run.pause("Second?", output_key="b")
    assert [question.prompt for question in run.questions()] == ["First?", "Second?"]
    with pytest.raises(UsageError, match="several open questions") as refused:
        run.answer("which?")
    assert first.id in str(refused.value)
    assert second.id in str(refused.value)
    run.answer(2, question=second.id)
    assert run.questions() == (first,)
    run.answer(1)
    with run.claim():
        assert run.checkpoint().answers == {"a": 1, "b": 2}
        run.complete()


def test_a_run_with_an_open_question_goes_back_to_waiting(hf: Holdfast) -> None:
    run = hf.run("run")
    run.pause("First?", output_key="a")
    run.pause("Second?", output_key="b")
    run.answer(1, question=run.questions()[0].id)
    assert run.status is Status.READY
    with run.claim():
        assert run.status is Status.RUNNING
    assert run.status is Status.WAITING


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([{"type": "text"}], "needs a name"),
        ([{"name": "a", "kind": "text"}], "needs a name, and knows"),
        ([Field("a"), Field("a", "integer")], "given twice: a"),
        ([Field("a", "date")], "none of"),
        ([Field("", "text")], "name is text"),
        ([Field("a", "choice")], "a choice has options"),
        ([Field("a", "integer", options=("1",))], "only a choice has"),
        ([Field("a", "choice", options=(1, 2))], "options"),
        ([Field("a", "integer", default="many")], "the default of a: 'many' is not an integer"),
        ([Field("a", "choice", options=("x",), default="y")], "none of x"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(hf: Holdfast, fields: Any, problem: str) -> None:
    run = hf.run("run")
    with pytest.raises(UsageError, match=problem):
        run.pause("?", fields)
    assert (run.info().seq, run.status) == (0, Status.READY)


@pytest.mark.parametrize(("prompt", "key"), [(None, "a"), (7, "a"), ("?", ""), ("?", None)])
def test_a_question_has_a_prompt_and_a_key(hf: Holdfast, prompt: Any, key: Any) -> None:
    with pytest.raises(UsageError, match="prompt and an output_key"):
        hf.run("run").pause(prompt, output_key=key)


def test_python_types_name_field_types(hf: Holdfast) -> None:
    run = hf.run("run")
    fields = [{"name": "a", "type": str}, {"name": "b", "type": int}, {"name": "c", "type": float}]
    question = run.pause("?", [*fields, {"name": "d", "type": bool}, {"name": "e", "options": ["x", "y"]}])
    assert [field.type for field in question.fields] == ["text", "integer", "number", "boolean", "choice"]


# --- answering


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        (Field("f"), ["", "text", "ümlaut\n"], [1, True, 1.5, ["x"], b"x"]),
        (Field("f", "integer"), [0, -1, 2**70], [1.0, True, "1", [1]]),
        (Field("f", "number"), [0, 1.5, -2, 1e300], ["1", True, float("nan"), float("inf"), [1]]),
        (Field("f", "boolean"), [True, False], [0, 1, "true", "yes"]),
        (Field("f", "choice", options=("red", "green")), ["red", "green"], ["blue", "", "RED", 0, ["red"]]),
    ],
    ids=["text", "integer", "number", "boolean", "choice"],
)
def test_every_type_of_field(hf: Holdfast, field: Field, good: list[Any], bad: list[Any]) -> None:
    run = ask(hf, field)
    for value in bad:
        with pytest.raises(AnswerRefused, match="f: ") as refused:
            run.answer({"f": value})
        assert len(refused.value.problems) == 1
    assert (run.status, run.info().seq) == (Status.WAITING, 1)
    for number, value in enumerate(good):
        one = ask(hf, field, id=f"run-{number}")
        one.answer({"f": value})
        assert one.status is Status.READY
        answer = answer_of(one)["f"]
        assert answer == value
        assert type(answer) is type(value)


def test_every_problem_is_named_and_nothing_is_consumed(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = ask(hf, Field("count", "integer"), Field("ok", "boolean"), Field("name"), Field("note", required=False))
    with pytest.raises(AnswerRefused) as refused:
        run.answer({"count": "many", "name": 7, "extra": 1, "note": 3})
    assert sorted(problem.partition(":")[0] for problem in refused.value.problems) == [
        "count",
        "extra",
        "name",
        "note",
        "ok",
    ]
    for problem in refused.value.problems:
        assert problem in str(refused.value)
    for wrong in ("just text", None, ["count"], 3):
        with pytest.raises(AnswerRefused, match="mapping of field names"):
            run.answer(wrong)
    assert (run.status, run.info().seq) == (Status.WAITING, 1)
    opened().get("run").answer({"count": 1, "ok": False, "name": "x"}, by="operator")
    assert answer_of(run) == {"count": 1, "ok": False, "name": "x", "note": None}


def test_defaults_fill_what_is_left_out(hf: Holdfast) -> None:
    run = ask(
        hf, Field("n", "integer", default=3), Field("c", options=("x", "y"), default="y"), Field("o", required=False)
    )
    run.answer({})
    assert answer_of(run) == {"n": 3, "c": "y", "o": None}


@pytest.mark.parametrize("value", [None, "yes", 0, {"any": ("thing", 1)}, [b"\x00"]])
def test_a_question_without_fields_takes_anything(hf: Holdfast, value: Any) -> None:
    run = ask(hf)
    run.answer(value)
    assert answer_of(run) == value


def test_an_answer_that_cannot_be_kept_is_refused(hf: Holdfast) -> None:
    run = ask(hf)
    with pytest.raises(NotStorable):
        run.answer(object())
    run.answer("fine")
    assert answer_of(run) == "fine"


def test_the_first_answer_counts(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = ask(hf)
    [question] = run.questions()
    run.answer("first", by="operator")
    other = opened().get("run")
    for name in (question.id, None):
        with pytest.raises(QuestionClosed):
            other.answer("second", question=name)
    assert answer_of(run) == "first"
    with pytest.raises(QuestionClosed):
        run.answer("third", question=question.id)
    with pytest.raises(QuestionClosed):
        run.answer("x", question="q99.0-none")
    assert answer_of(run) == "first"


def test_of_many_answers_at_the_same_moment_one_counts(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = ask(hf)
    handles = [opened().get("run") for _ in range(5)]
    barrier, outcomes = threading.Barrier(5), []

    def answer(number: int) -> None:
        barrier.wait()
        try:
            handles[number].answer(number)
            outcomes.append(number)
        except QuestionClosed:
            pass

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = outcomes
    assert answer_of(run) == winner


def test_an_answer_while_the_run_is_held(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    run = ask(hf)
    other = opened().get("run")
    with run.claim():
        other.answer("from outside")
        for seen in (run, other):
            assert seen.questions() == ()
            assert seen.checkpoint().answers == {"answer": "from outside"}
            *_, last = seen.history()
            assert (last.kind, last.pending) == ("answered", True)
    assert run.status is Status.READY
    assert answer_of(run) == "from outside"


def test_an_answer_of_the_holder(hf: Holdfast) -> None:
    run = ask(hf)
    with run.claim():
        run.answer("my own")
        assert run.checkpoint().answers == {"answer": "my own"}
    assert run.status is Status.READY


def test_a_question_asked_after_the_answer_to_another_arrived(hf: Holdfast, opened: Callable[..., Holdfast]) -> None:
    """The holder goes to wait while mail is there: it must not sleep on it."""
    run = ask(hf)
    with run.claim():
        opened().get("run").answer("early")
        run.pause("And now?", output_key="now")
    assert run.status is Status.READY
    with run.claim():
        assert run.checkpoint().answers == {"answer": "early"}
    assert run.status is Status.WAITING


def test_who_answered_is_in_the_journal(hf: Holdfast) -> None:
    run = ask(hf)
    run.answer("yes", by="operator")
    with run.claim():
        pass
    record = run.held.read_record()
    uid, entry = run.held.journals.entry(record, record.seq)
    assert run.held.journals.data(run.id, uid, entry)["by"] == "operator"


def test_an_ended_run_asks_and_answers_nothing(hf: Holdfast) -> None:
    run = ask(hf)
    run.complete()
    with pytest.raises(RunEnded):
        run.pause("Again?")
    assert run.status is Status.COMPLETED
