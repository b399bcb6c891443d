"""Forking a run at an entry, with another state, input, answer or result from there on."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace
from starlette.responses import Response

from holdfast.engine.control.questions import is_breakpoint
from holdfast.engine.run.handle import Run
from holdfast.errors import AnswerRefused, HoldfastError
from holdfast.forms import load_form
from holdfast.kernel.model import Kind
from holdfast.present.input import input_of
from holdfast.ui import forms, shapes
from holdfast.ui.api.problems import Refused, problem_of
from holdfast.ui.pages.addresses import run_url
from holdfast.ui.pages.asking import Ask
from holdfast.ui.pages.journal import named
from holdfast.ui.pages.run import frame, head
from holdfast.views import Field, Question, RunInfo

_ANSWERS = 50  # of the newest questions that are offered
_RESULTS = 50
_EDITED = 200_000  # characters of a state that a form holds: the body of a request has its limit
_FIELDS = ("at", "id", "edit", "input", "result_key", "result")


class Past(Struct, frozen=True):
    """A question that was asked, by the key of the call that asked it, and what was answered."""

    key: str
    question: Question
    value: Any | UnsetType = UNSET


class Kept(Struct, frozen=True):
    """What stands in the form when it is shown again, and what is wrong with it."""

    sent: dict[str, str]
    errors: dict[str, str] = {}
    problems: tuple[str, ...] = ()


def page(ask: Ask, kept: Kept | None = None) -> Response:
    """The form for a fork."""
    run, top = ask.run, head(ask)
    errors = dict(kept.errors) if kept is not None else {}
    at = _point(ask, top.info.seq, errors)
    past = _past(run, top.info)
    chosen = next((one for one in past if one.key == ask.one("answer")), None)
    sent = kept.sent if kept is not None else None
    made, rest = forms.placed(_controls(chosen, sent), kept.problems if kept else ()) if chosen else ((), ())
    checkpoint = run.checkpoint(at)
    by_hand = top.info.queue is None
    state = checkpoint.raw_state
    text = _text(state) if by_hand and state is not None else ""
    input = input_of(run, top.info)
    given = dict.fromkeys(_FIELDS, "") | {"at": ask.one("at"), "edit": text if len(text) <= _EDITED else ""}
    given["input"] = _arguments(input.by_names) if not by_hand else ""
    given |= sent or {}
    return ask.render(
        "fork.html",
        status=422 if kept is not None or errors else 200,
        title=f"Fork {top.info.id}",
        tab=None,
        at=at,
        given=given,
        errors=dict.fromkeys(_FIELDS, "") | errors,
        rest=(*rest, *([] if chosen or not kept else kept.problems)),
        by_hand=by_hand,
        state=state,
        too_long=len(text) if len(text) > _EDITED else 0,
        has_state=checkpoint.state_seq is not None,
        input=input,
        entries=named(run, top.info),
        past=past,
        chosen=chosen,
        controls=made,
        keys=_results(run) if not by_hand else [],
        **frame(ask, top),
    )


def _text(value: Any) -> str:
    """A value as it stands in the form."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _arguments(arguments: dict[str, Any] | None) -> str:
    """The arguments as they stand in the form; nothing, if they have no names, or are too long for it."""
    text = _text(arguments) if arguments else ""
    return text if len(text) <= _EDITED else ""


def _results(run: Run) -> list[str]:
    """The steps of which a fork may have another result: not what was only told, such as a note."""
    told = set(_newest(run, Kind.EMITTED, most=None))
    return [one.key for one in run.steps() if one.status in ("done", "failed") and one.seq not in told][-_RESULTS:]


def _past(run: Run, info: RunInfo) -> list[Past]:
    """The questions that a workflow asked, with what was answered, newest first."""
    if info.queue is None:
        return []
    found: dict[str, Past] = {}
    answers = run.checkpoint().raw_results
    for seq in _newest(run, Kind.ASKED):
        said = run.entry(seq).contents
        if not said.get("key") or "fields" not in said:
            continue  # of a loop of one's own, or erased
        form = load_form(said["fields"])
        asked = Question(
            id=f"past{seq}", run=run.id, prompt=said["prompt"], fields=form.fields, seq=seq,
            output_key=said["output_key"], at=info.created_at, single=form.single, type=form.type,
        )  # fmt: skip
        if not is_breakpoint(asked):
            found[said["key"]] = Past(said["key"], asked, answers.get(said["key"], UNSET))
    return list(found.values())[::-1]


def _newest(run: Run, kind: str, most: int | None = _ANSWERS) -> list[int]:
    """The newest entries of a kind that were not rolled back, so many of them, or all."""
    found: list[int] = []
    after: str | None = None
    while True:
        page = run.history(kind=kind, limit=500, after=after)
        found = [*found, *(info.seq for info in page if info.live)][-(most or 0) :]
        if (after := page.next) is None:
            return found


def _controls(past: Past, sent: dict[str, str] | None) -> tuple[forms.Control, ...]:
    """The controls of a past question, with what was answered in them."""
    return forms.controls(_answered(past), sent)


def _answered(past: Past) -> Question:
    """The question with what was answered as its defaults."""
    question, value = past.question, past.value
    if isinstance(value, UnsetType) or not question.fields:
        return question
    if question.single:
        return replace(question, fields=(replace(question.fields[0], default=value),))
    given = value if isinstance(value, dict) else {}
    return replace(question, fields=tuple(_filled(field, given) for field in question.fields))


def _filled(field: Field, given: dict[str, Any]) -> Field:
    inner = given.get(field.name)
    if field.type == "object" and field.fields and isinstance(inner, dict):
        return replace(field, fields=tuple(_filled(one, inner) for one in field.fields))
    return replace(field, default=given[field.name]) if field.name in given else field


def post(ask: Ask) -> Response:
    """Make the fork, and go to it."""
    id = ask.id
    errors: dict[str, str] = {}
    given: dict[str, Any] = {"at": _point(ask, head(ask).info.seq, errors), "id": ask.one("id").strip() or None}
    for name in ("edit", "input", "result"):
        text = ask.form.get(name, "").strip()
        if not text:
            continue
        try:
            given[name] = json.loads(text)
        except ValueError as error:
            errors[name] = f"this is not JSON: {error}"
    if "input" in given and not isinstance(given["input"], dict):
        errors["input"] = "an object of the arguments that change, by their names, is wanted"
    elif "input" in given:
        given["input"] = _changed(given["input"], input_of(ask.run, head(ask).info).by_names)
    if "result" in given:
        given["results"] = {ask.one("result_key"): given.pop("result")}
    if chosen := ask.one("answer"):
        past = next((one for one in _past(ask.run, head(ask).info) if one.key == chosen), None)
        if past is None:
            raise Refused(404, "NoQuestion", f"the run did not ask {chosen!r}")
        given["answers"] = {chosen: forms.read(past.question, ask.form)}
    if errors:
        return page(ask, Kept(dict(ask.form), errors))
    try:
        made: shapes.RunView = ask.act("fork_run", run=id, body=shapes.Fork(**given))
    except AnswerRefused as refused:
        return page(ask, Kept(dict(ask.form), problems=refused.problems))
    except HoldfastError as error:
        return page(ask, Kept(dict(ask.form), problems=(problem_of(error, ask.hf.place).detail,)))
    return ask.go(run_url(made.id, said="forked"))


def _changed(sent: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any] | None:
    """The arguments that are others than before; None if none is."""
    known = before or {}
    return {name: one for name, one in sent.items() if name not in known or _text(known[name]) != _text(one)} or None


def _point(ask: Ask, newest: int, errors: dict[str, str]) -> int | None:
    try:
        at = ask.number("at")
    except Refused as refused:
        errors["at"] = refused.detail
        return None
    if at is not None and at > newest:
        errors["at"] = f"there is no entry {at}; the newest is {newest}"
        return None
    return at
