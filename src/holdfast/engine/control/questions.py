"""Pausing for a person: a question is asked, the lease is given up, and the answer makes the run ready again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.engine.access.held_run import HeldRun
from holdfast.engine.access.operations import Op, Read
from holdfast.engine.access.posting import post_answer
from holdfast.errors import QuestionClosed, UsageError
from holdfast.forms import Form, check_answer, form, load_form, store_form
from holdfast.kernel.fold import Asked, question_id
from holdfast.kernel.journal import Data
from holdfast.kernel.model import ENDED, Change, Kind, Post, Status
from holdfast.stores.protocol import write_one
from holdfast.views import Field, Question, moment

CLOSED = ENDED | {Status.AWAY}  # nothing is added to the journal of such a run from here
INTERRUPT = "interrupt:"  # what the keys of questions begin with that `resume` answers


def pause(
    run: HeldRun, prompt: str, fields: Iterable[Field | Mapping[str, Any]] = (), output_key: str = "answer"
) -> Op[Question]:
    """Ask a person, and give up the lease until there is an answer.

    The answer is found under ``output_key`` in the checkpoint's ``answers`` once the run was claimed again. A loop
    that comes here again before there is one waits for the same question; it is not asked twice.
    """
    if not isinstance(prompt, str) or not isinstance(output_key, str) or not output_key:
        raise UsageError("a question has a prompt and an output_key, both text")
    checked = Form(form(fields))
    data: Data = {"prompt": prompt, "fields": store_form(checked), "output_key": output_key}
    lease, owned = yield from run.enter()
    for asked in lease.fold.questions.values():
        if (asked.prompt, load_form(asked.fields), asked.output_key) == (prompt, checked, output_key):
            yield from run.release(lease)
            return question(run.id, run.uid, asked)
    change = Change(status=Status.WAITING, release=True)
    try:
        seq = yield from run.write(lease, [(Kind.ASKED, data)], change=change, what="question")
    except BaseException:  # whatever it is, the run is given up, and it is raised
        yield from run.leave(lease, owned)
        raise
    run.forget(lease)
    return question(run.id, run.uid, lease.fold.questions[seq])


def question(run: str, uid: str, asked: Asked) -> Question:
    """An open question as users see it."""
    form = load_form(asked.fields)
    return Question(
        id=question_id(uid, asked),
        run=run,
        prompt=asked.prompt,
        fields=form.fields,
        output_key=asked.output_key,
        seq=asked.seq,
        at=moment(asked.at),
        single=form.single,
        type=form.type,
        declined=asked.declined,
    )


def questions(run: HeldRun) -> Op[tuple[Question, ...]]:
    """The questions that wait for an answer, oldest first. In the middle of a rollback there are none."""
    fold = yield from run.seen()
    if fold.rolling is not None:  # its end abandons them, or they come back under new ids
        return ()
    return tuple(question(run.id, run.uid, asked) for asked in fold.questions.copy().values())


def answer(run: HeldRun, value: Any, *, question: str | Question | None = None, by: str | None = None) -> Op[None]:
    """Answer an open question (the only one, if none is named). Anybody may; the first answer counts.

    A breakpoint of a graph or flow asks whether to go on: True lets the run go on, and False leaves it waiting, which
    is recorded. Answer it again, or cancel the run.

    Raises `AnswerRefused` naming every problem if it does not fit the fields, and `QuestionClosed` if the question
    was answered already. Nothing is consumed then.
    """
    if isinstance(question, Question):
        question = question.id
    open_questions = yield from questions(run)
    chosen = [asked for asked in open_questions if question in (None, asked.id)]
    if not chosen:
        which = f"question {question} is not open" if question else "no question is open"
        others = ", ".join(asked.id for asked in open_questions)
        raise QuestionClosed(
            run.id, f"{which}: it was answered already, or never asked{f'; open is {others}' if others else ''}"
        )
    if len(chosen) > 1:
        ids = ", ".join(asked.id for asked in chosen)
        raise UsageError(f"run {run.id!r} has several open questions; name one of them with question=: {ids}")
    asked = chosen[0]
    checked = check_answer(run.id, Form(asked.fields, asked.single, asked.type), value)
    if checked is False and is_breakpoint(asked):
        yield from _post_decline(run, asked, by)
    else:
        given: Data = {"value": run.codec.encode(checked, "answer")}
        if not (yield from post_answer(run, asked.id, asked.seq, given, by)):
            raise QuestionClosed(run.id, f"question {asked.id} was answered by somebody else just now")
    run.engine.watch.tell(run.uid)
    run.engine.bell.ring()
    if run.lease is None:
        yield from run.record_unheld()
    elif not run.lease.lost and run.lease.fold.rolling is None:
        yield from run.drain(run.lease)


def is_breakpoint(question: Question) -> bool:
    """Whether a graph or flow stopped there, and asks whether to go on."""
    return question.output_key.startswith(INTERRUPT)


def let_go_on(run: HeldRun) -> Op[None]:
    """Say yes at the breakpoints at which nobody has said no."""
    fold = yield from run.seen()
    for asked in fold.questions.copy().values():
        if asked.key is not None and asked.key.startswith(INTERRUPT) and not asked.declined:
            yield from post_answer(run, question_id(run.uid, asked), asked.seq, {"value": True})


def _post_decline(run: HeldRun, asked: Question, by: str | None) -> Op[None]:
    """Leave word that the run is to stay at a breakpoint. The question stays open, so this may come more than once."""
    data: Data = {"question": asked.seq, "id": asked.id, "by": by}
    record = yield Read(run.read_record)
    key = f"decline:{asked.id}.{run.store.clock.random_bytes(6).hex()}"
    item = run.journals.item(record, key, "decline", data, wakes=False)
    yield Read(write_one, run.store, Post(record.uid, item))
