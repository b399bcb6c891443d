"""What is done from the pages: each form posts here, and each act is an operation of the API.

A form says in which state its run was seen, where that matters: a rollback is refused if the plan that was shown is no
longer the one that would be carried out. An answer names its question, of which only the first answer counts, and a
cancel is meant for the run however far it has come.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

from holdfast.engine.control.questions import is_breakpoint
from holdfast.errors import AnswerRefused, NoCheckpoint, QuestionClosed, UndoFailed
from holdfast.present.outcome import outcome_of
from holdfast.ui import forms, shapes
from holdfast.ui.api.problems import Refused, without_place
from holdfast.ui.guard import own_path
from holdfast.ui.pages import questions, run
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.journal import named
from holdfast.ui.pages.words import in_buttons

ANY = "*"  # whatever became of the run since it was seen


def answer(ask: Ask) -> Response:
    """Answer a question; if that is refused, the page is shown again with what is wrong at the field."""
    handle = ask.run
    asked = next((one for one in handle.questions() if one.id == ask.one("question")), None)
    if asked is None:
        raise QuestionClosed(
            handle.id, "the question is no longer open: somebody else answered it, or it was taken back"
        )
    value = forms.read(asked, ask.form)
    try:
        body = shapes.Answer(value)
        ask.act("answer_question", run=handle.id, question=asked.id, body=body, if_match=ANY)
    except AnswerRefused as refused:
        shown = [
            questions.form(one, ask.form, refused.problems) if one.id == asked.id else questions.form(one)
            for one in handle.questions()
        ]
        return run.page(ask, shown, status=422)
    back = ask.one("back")
    word = "declined" if value is False and is_breakpoint(asked) else "answered"
    return ask.go(own_path(back) if back else run_url(handle.id, said=word))


def cancel_form(ask: Ask) -> Response:
    """Ask whether the run is to be given up."""
    top = run.head(ask)
    effects = [one for one in ask.run.effects() if one.status in ("done", "uncertain", "repeated")]
    return ask.render("cancel.html", title=f"Cancel {top.info.id}", tab=None, effects=effects, **run.frame(ask, top))


def cancel(ask: Ask) -> Response:
    """Give up the run."""
    body = shapes.Cancel(why=ask.one("why") or None, undo=bool(ask.one("undo")), force=bool(ask.one("force")))
    ask.act("cancel_run", run=ask.id, body=body, if_match=ANY)
    return ask.go(run_url(ask.id, said="cancelled"))


def retry_form(ask: Ask) -> Response:
    """Ask whether the run is to be tried again."""
    top = run.head(ask)
    return ask.render(
        "retry.html",
        title=f"Retry {top.info.id}",
        tab=None,
        error=outcome_of(ask.run, top.info).error,
        **run.frame(ask, top),
    )


def retry(ask: Ask) -> Response:
    """Try the run again, or let it go on."""
    ask.act("retry_run", run=ask.id, if_match=ask.one("etag"))
    return ask.go(run_url(ask.id, said="retried"))


def rollback_form(ask: Ask, wrong: dict[str, str] | None = None) -> Response:
    """Show what a rollback would do; where to is asked for first, if it is not said."""
    top = run.head(ask)
    plan, problem = None, None
    try:
        if (to := ask.number("to")) is not None:
            plan = ask.perform("plan_rollback", run=top.info.id, query=shapes.ToQuery(to))
    except NoCheckpoint as error:
        problem = str(error)
    except Refused as refused:
        problem = refused.detail
    return ask.render(
        "rollback.html",
        status=422 if wrong or problem else 200,
        title=f"Roll back {top.info.id}",
        tab=None,
        to=ask.one("to"),
        plan=plan,
        stay=[one for one in plan.steps if one.action in ("irreversible", "uncertain")] if plan is not None else [],
        problem=problem,
        wrong={"sure": "", "then": ""} | (wrong or {}),
        then=ask.form.get("then", "" if top.ended else "go-on"),
        entries=named(ask.run, top.info, live=True),
        **run.frame(ask, top),
    )


def rollback(ask: Ask) -> Response:
    """Roll back, and tell what was undone and what was not."""
    to = ask.number("to")
    if to is None or not ask.one("sure"):
        return rollback_form(ask, {"sure": "Say that you have read the plan."})
    if (then := ask.one("then")) not in ("go-on", "cancelled"):
        return rollback_form(ask, {"then": "Say what happens then."})
    force = bool(ask.one("force"))
    body = shapes.Rollback(to=to, then="cancelled" if then == "cancelled" else "go-on", force=force)
    status, stopped = 200, ""
    try:
        report = ask.act("roll_back_run", run=ask.id, body=body, if_match=ask.one("etag")).report
    except UndoFailed as failed:
        report, status, stopped = failed.report, 409, without_place(in_buttons(str(failed)), ask.hf.place)
    top = run.head(ask)
    title = f"The rollback of {top.info.id} stopped" if stopped else f"{top.info.id} was rolled back"
    return ask.render(
        "rolled_back.html",
        status=status,
        title=title,
        tab=None,
        report=report,
        stopped=stopped,
        **run.frame(ask, top),
    )


def resolve_form(ask: Ask, wrong: dict[str, str] | None = None) -> Response:
    """Ask what became of a step that died in the act."""
    top = run.head(ask)
    key = ask.one("key")
    step = next((one for one in ask.run.steps() if one.key == key), None)
    if step is None:
        raise Refused(404, "NoStep", f"the run has no step {key!r}")
    effect = next((one for one in ask.run.effects() if one.key == key), None)
    return ask.render(
        "resolve.html",
        status=422 if wrong else 200,
        title=f"Resolve {key}",
        tab=None,
        step=step,
        effect=effect,
        wrong={"done": "", "result": ""} | (wrong or {}),
        given={"result": ask.form.get("result", ""), "done": ask.form.get("done", "")},
        **run.frame(ask, top),
    )


def resolve(ask: Ask) -> Response:
    """Say what became of a step."""
    wrong: dict[str, str] = {}
    result: Any = None
    if ask.one("done") not in ("yes", "no"):
        wrong["done"] = "say whether it was done"
    if text := ask.form.get("result", "").strip():
        try:
            result = json.loads(text)
        except ValueError as error:
            wrong["result"] = f"this is not JSON: {error}"
    elif ask.one("done") == "yes":
        wrong["result"] = "say what it gave: null, if that is nothing"
    if wrong:
        return resolve_form(ask, wrong)
    body = shapes.Resolve(key=ask.one("key"), done=ask.one("done") == "yes", result=result)
    ask.act("resolve_step", run=ask.id, body=body, if_match=ask.one("etag"))
    return ask.go(run_url(ask.id, said="resolved"))


# --- queues and schedules


def queue(ask: Ask) -> Response:
    """Pause a queue, or let it go on."""
    name = str(ask.request.path_params["id"])
    ask.act("change_queue", queue=name, body=shapes.QueueChange(paused=ask.one("do") == "pause"))
    return ask.go("/queues")


def schedule(ask: Ask) -> Response:
    """Pause a schedule, let it go on, or make a run of it now."""
    id, operation = str(ask.request.path_params["id"]), f"{ask.one('do')}_schedule"
    if operation not in ("pause_schedule", "resume_schedule", "trigger_schedule"):
        raise Refused(422, "UnknownAct", "a schedule is paused, resumed or triggered")
    made = ask.act(operation, schedule=id)
    return ask.go(run_url(made.id) if operation == "trigger_schedule" else "/schedules")
