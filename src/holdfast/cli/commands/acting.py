"""`holdfast answer`, `send` and `fork`: acts on one run; and what all acts have in common."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.codes import REFUSED
from holdfast.cli.commands.running import check_can_go_on, resume_here
from holdfast.cli.options import (
    ANSWER,
    JSON,
    PAIR,
    Typed,
    by_option,
    command,
    module_option,
    run_argument,
    was_given,
    with_store,
)
from holdfast.cli.prompts import AS_TEXT, YES, ask, can_ask
from holdfast.cli.remedies import command_line, typed
from holdfast.cli.rendering import say, write_json
from holdfast.engine.app import Holdfast
from holdfast.engine.control.questions import is_breakpoint
from holdfast.engine.run.handle import Run
from holdfast.errors import AnswerRefused, QuestionClosed, UsageError
from holdfast.present.arguments import declare
from holdfast.present.questions import open_questions
from holdfast.present.remedies import remedies_of
from holdfast.present.status import has_died
from holdfast.present.words import one_line
from holdfast.views import Question


def resume_option(function: Any) -> Any:
    """The option ``--resume``, with ``--module`` for the code that it needs."""
    return click.option("--resume", "-r", is_flag=True, help="Go on with the run here afterwards.")(
        module_option(function)
    )


def finish(hf: Holdfast, run: Run, said: str, data: dict[str, Any], *, resume: bool, as_json: bool) -> None:
    """Tell what was done; then go on with the run, or tell how to."""
    if not resume:
        info = run.info()
        if as_json:
            write_json({"run": info, **data})
            return
        say(said)
        ways = remedies_of(run, info, open_questions(hf, run), died=has_died(hf, info))
        say("".join(f"  {typed(way)}\n" for way in ways), nl=False)
        return
    if as_json:
        write_json(data)
    else:
        say(said)
    resume_here(hf, run, as_json=as_json)


@command(
    "answer",
    "holdfast answer order-17",
    "holdfast answer order-17 courier",
    'holdfast answer order-17 \'{"carrier": "post"}\' --by front-desk --resume --module orders',
    "holdfast answer order-17 --set carrier=post --set insured=true",
)
@run_argument
@click.argument("value", required=False, type=ANSWER, metavar="[JSON|TEXT|@FILE|-]")
@click.option("--set", "given", multiple=True, type=PAIR, help="One field, as JSON or plain text. May be repeated.")
@click.option("--question", metavar="ID", help="Which one, if several are open.")
@click.option("--cancel", is_flag=True, help="At a breakpoint, with no: cancel the run, which keeps waiting otherwise.")
@by_option
@resume_option
@with_store()
def answer_command(
    hf: Holdfast,
    run: str,
    value: Typed | None,
    given: tuple[tuple[str, str], ...],
    question: str | None,
    cancel: bool,
    by: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Answer a question of a run: with JSON, field by field with --set, or asked for at the terminal.

    Where one text or one choice is asked for, it may be given as it is; and yes or no where that is the question.

    The answer is checked against what was asked, and every problem is named. The first answer counts. A question of a
    child is answered under the run that it is a part of, too. At a breakpoint, yes lets the run go on; no leaves it
    waiting, also with --resume.

    JSON: {"run": run, "answered": question id}.
    """
    handle = hf.get(run)
    if resume:
        check_can_go_on(hf, handle)
    asked = _the_question(hf, handle, question)
    asker = hf.get(asked.run)
    is_given = given or was_given("value")
    can_be_asked = can_ask() and not as_json
    if not is_given and not can_be_asked and is_breakpoint(asked):
        asker.answer(True, question=asked, by=by)
    elif not is_given:
        if not can_be_asked:
            raise UsageError(f"run {run!r} asks {asked.prompt!r}; give the answer as JSON, or with --set NAME=VALUE")
        try:
            ask(asked, lambda typed: asker.answer(typed, question=asked, by=by))
        except EOFError:
            say("\nNot answered.")
            click.get_current_context().exit(REFUSED)
    else:
        if given and value is not None:
            raise UsageError("give the answer as JSON or with --set, not both")
        told = _from_fields(asked, given) if value is None else _from_text(asked, value)
        asker.answer(told, question=asked, by=by)
        if told is False and is_breakpoint(asked):
            if cancel:
                asker.cancel("no at a breakpoint", by=by)
            kept = "Cancelled." if cancel else "It keeps waiting; answer yes, or cancel it."
            finish(hf, handle, kept, {"answered": asked.id}, resume=False, as_json=as_json)
            return
    finish(hf, handle, "Answered.", {"answered": asked.id}, resume=resume, as_json=as_json)


def _the_question(hf: Holdfast, run: Run, id: str | None) -> Question:
    found = [one for one in open_questions(hf, run) if id in (None, one.id)]
    if not found:
        which = f"question {id} is not open" if id else "no question is open"
        raise QuestionClosed(run.id, f"{which}; `{command_line('questions')}` lists those that are")
    if len(found) > 1:
        several = "; ".join(f"{one.id}: {one.prompt}" for one in found)
        raise UsageError(f"run {run.id!r} asks several questions; name one with --question: {several}")
    return found[0]


def _from_text(question: Question, given: Typed) -> Any:
    """What was typed, read as the question wants it: as text, a choice by its name, yes or no, or else as JSON."""
    field = question.fields[0] if question.single else None
    if field is not None and field.type == "boolean":
        return _yes_or_no(question, given)
    if field is None or field.type not in (*AS_TEXT, "choice"):
        return given.read()
    bare = given.text.strip()
    if field.type == "choice" and bare in (names := [*map(str, field.options), *field.labels]):
        return field.options[names.index(bare) % len(field.options)]
    try:
        value = given.read()
    except click.BadParameter:  # it is text, which the check of the answer takes or refuses
        return given.text if field.type == "text" else bare
    return value if isinstance(value, str) or field.type == "choice" or value is None else given.text


def _yes_or_no(question: Question, given: Typed) -> Any:
    bare = given.text.strip()
    if bare.lower() in YES:
        return YES[bare.lower()]
    try:
        return given.read()
    except click.BadParameter:
        asked = f"run {question.run!r} asks {question.prompt!r}"
        raise UsageError(f"{asked}, and {bare!r} is neither yes nor no; give true or false") from None


def _from_fields(question: Question, given: tuple[tuple[str, str], ...]) -> Any:
    """Fields that were given one by one. What looks like JSON is JSON, but for a field that wants text."""
    types = {field.name: field.type for field in question.fields}
    strange = [(name, text) for name, text in given if name != "value"]
    if strange and question.single and question.fields[0].type not in ("mapping", "object", "any"):
        name, text = strange[0]
        way = command_line("answer", question.run, text)
        problem = f"the question has one value, and no field {name!r}; give it as `{way}`, or with --set value=VALUE"
        raise AnswerRefused(question.run, (problem,))
    values: dict[str, Any] = {}
    for name, text in given:
        values[name] = text
        if types.get(name) not in ("text", None):
            try:
                values[name] = JSON.convert(text, None, None)
            except click.BadParameter:  # it is text, which the check of the answer takes or refuses
                if types[name] == "boolean":
                    values[name] = YES.get(text.strip().lower(), text)
    return values["value"] if question.single and set(values) == {"value"} else values


@command(
    "send", "holdfast send order-17 '{\"paid\": true}' --topic payments", "holdfast send order-17 --resume -m orders"
)
@run_argument
@click.argument("value", required=False, type=JSON, metavar="[JSON|@FILE|-]")
@click.option("--topic", metavar="TEXT", help="What it is about; who waits for another topic does not get it.")
@click.option("--key", metavar="TEXT", help="A message with a key is sent once, however often you do.")
@by_option
@resume_option
@with_store()
def send_command(
    hf: Holdfast,
    run: str,
    value: Any,
    topic: str | None,
    key: str | None,
    by: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Send a message to a run, which takes it with receive(). It stays until it is taken.

    JSON: {"run": run, "sent": whether it was not sent before under this --key}.
    """
    handle = hf.get(run)
    if resume:
        check_can_go_on(hf, handle)
    sent = handle.send(value, topic=topic, key=key, by=by)
    said = "Sent." if sent else "It was sent before."
    finish(hf, handle, said, {"sent": sent}, resume=resume, as_json=as_json)


@command(
    "fork",
    "holdfast fork order-17 --at 4",
    'holdfast fork order-17 --answer ask#1=\'{"carrier": "courier"}\' --id order-17-courier --resume -m orders',
    "holdfast fork order-17 --at failure --module orders --resume",
)
@run_argument
@click.option("--at", metavar="SEQ|failure", help="Share the history up to this entry; or to right before it failed.")
@click.option("--id", metavar="ID", help="The id of the new run.")
@click.option("--input", "-i", "given", type=JSON, help="Other arguments, an object by name.")
@click.option("--result", "results", multiple=True, type=PAIR, metavar="KEY=JSON", help="Another result of a step.")
@click.option("--answer", "answers", multiple=True, type=PAIR, metavar="KEY=JSON", help="Another answer to a question.")
@by_option
@resume_option
@with_store()
def fork_command(
    hf: Holdfast,
    run: str,
    at: str | None,
    id: str | None,
    given: Any,
    results: tuple[tuple[str, str], ...],
    answers: tuple[tuple[str, str], ...],
    by: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Make a new run that shares the past of another, and goes its own way from there.

    Nothing is done again that lies in the shared past. It may differ from there on in an answer, a result or the input.

    JSON: {"run": the new run, "forked_from": id}.
    """
    handle = hf.get(run)
    declare(handle)
    if resume:
        check_can_go_on(hf, handle)
    if given is not None and not isinstance(given, dict):
        raise UsageError("--input is an object of the arguments that change, by their names")
    if at is not None and at != "failure" and not at.isdecimal():
        raise UsageError(f"--at {at}: is the number of an entry, or failure")
    point: Any = at if at in (None, "failure") else int(at)
    made = handle.fork(point, id=id, input=given, results=_json_of(results), answers=_json_of(answers), by=by)
    said = f"{one_line(made.id)} is a fork of {one_line(run)}."
    finish(hf, made, said, {"forked_from": run}, resume=resume, as_json=as_json)


def _json_of(given: tuple[tuple[str, str], ...]) -> dict[str, Any] | None:
    return {key: JSON.convert(text, None, click.get_current_context()) for key, text in given} or None


def agreed(question: str, count: int, what: str, *, yes: bool) -> None:
    """Go on only if the person agrees; where nobody can be asked, only with ``--yes``."""
    if yes:
        return
    if not can_ask():
        raise UsageError(f"{question} {count} to {what}; say --yes, since nobody can be asked here")
    if not click.confirm(question):
        say("Nothing was done.")
        click.get_current_context().exit(REFUSED)
